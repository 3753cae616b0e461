"""The benchmark as a command: `nox -s drift_bench`, or `python benchmarks/drift --quick`."""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from drift import report
from drift.forms import Task, tasks
from drift.judge import BAD, Outcome, outcome
from drift.releases import Changed, changed_files
from drift.samples import Kind, Pair, Sample, draw, pick_path
from drift.tools import TOOLS, Tool, installed, versions
from drift.truth import Alignments, Truth, align, truth
from vllm_series.errors import VllmSeriesError

PAIRS = (
    Pair("0.11.0", "0.12.0"),
    Pair("0.12.0", "0.33.0"),
    Pair("0.15.0", "0.20.0"),
    Pair("0.19.0", "0.22.0"),
    Pair("0.22.0", "0.33.0"),
    Pair("0.26.0", "0.27.0"),
    Pair("0.27.0", "0.33.0"),
    Pair("0.28.0", "0.32.0"),
    Pair("0.29.0", "0.30.0"),
    Pair("0.32.0", "0.33.0"),
)
QUICK = (Pair("0.22.0", "0.33.0"), Pair("0.32.0", "0.33.0"))
_CHUNK = 60
"""Samples that share one scratch folder and one call of the tools that take many patches."""


@dataclass(frozen=True, slots=True)
class Work:
    """What a sample is drawn from: a number, and a file of both releases with its alignments."""

    number: int
    path: str
    old: bytes
    new: bytes
    alignments: Alignments


@dataclass(frozen=True, slots=True)
class Job:
    """Samples of one pair, kind and seed, for one worker. `tools` are names."""

    pair: Pair
    kind: Kind
    seed: int
    works: tuple[Work, ...]
    tools: tuple[str, ...]
    scratch: Path


def run(job: Job) -> list[Outcome]:
    """Draw the job's samples, ask every tool, judge every answer."""
    drawn: list[Sample] = []
    alignments: list[Alignments] = []
    for work in job.works:
        sample = draw(job.pair, job.kind, job.seed, work.number, work.path, work.old, work.new)
        if sample is not None:
            drawn.append(sample)
            alignments.append(work.alignments)
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory(dir=job.scratch) as name:
        folder = Path(name)
        chunk = tasks(drawn, folder)
        known = [truth(task.sample, found) for task, found in zip(chunk, alignments, strict=True)]
        for tool in TOOLS:
            if tool.name in job.tools:
                work_folder = folder / re.sub(r"\W+", "-", tool.name)
                work_folder.mkdir()
                outcomes += _judged(chunk, known, tool, work_folder)
                shutil.rmtree(work_folder)
    return outcomes


def _judged(
    chunk: Sequence[Task], known: Sequence[Truth], tool: Tool, folder: Path
) -> Iterator[Outcome]:
    asked = [at for at, task in enumerate(chunk) if task.sample.number % tool.every == 0]
    answers = tool.run([chunk[at] for at in asked], folder)
    for at, answer in zip(asked, answers, strict=True):
        yield outcome(chunk[at], known[at], answer, tool.name)


def jobs(
    files: Mapping[Pair, Changed],
    alignments: Mapping[Pair, Mapping[str, Alignments]],
    kinds: Sequence[Kind],
    seeds: Sequence[int],
    samples: int,
    tools: Sequence[Tool],
    scratch: Path,
) -> list[Job]:
    """Every job; `samples` is how many a pair, kind and seed has."""
    names = tuple(tool.name for tool in tools)
    result = []
    for pair, changed in files.items():
        paths = list(changed.old)
        for kind, seed in itertools.product(kinds, seeds):
            for start in range(0, samples, _CHUNK):
                works = []
                for number in range(start, min(start + _CHUNK, samples)):
                    path = pick_path(paths, pair, kind, seed, number)
                    old, new = changed.old[path], changed.new[path]
                    works.append(Work(number, path, old, new, alignments[pair][path]))
                result.append(Job(pair, kind, seed, tuple(works), names, scratch))
    return result


def main(words: Sequence[str] | None = None) -> int:
    """Run it. Exit code 0 whatever the tools do: a benchmark measures and does not judge; 3 where
    a release cannot be read."""
    options = _parser().parse_args(words)
    started = time.monotonic()
    pairs = options.pair or (QUICK if options.quick else PAIRS)
    seeds = options.seed or ([1] if options.quick else [1, 2])
    samples = options.samples or (200 if options.quick else 300)
    tools, missing = installed([tool for tool in TOOLS if not options.tool
                                or any(word in tool.name for word in options.tool)])  # fmt: skip
    for tool in missing:
        print(f"not run: {tool.name}: {tool.program} is not installed.", file=sys.stderr)
    try:
        files = changed_files(pairs, options.trees, _say)
    except VllmSeriesError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as name:
        scratch = Path(name)
        alignments = {}
        for number, pair in enumerate(pairs):
            alignments[pair] = align(files[pair].old, files[pair].new, scratch / f"pair{number}")
            shutil.rmtree(scratch / f"pair{number}")
        _say(f"aligned {sum(len(changed.old) for changed in files.values())} pairs of files, "
             f"{time.monotonic() - started:.0f} s")  # fmt: skip
        kinds = options.kind or list(Kind)
        wanted = jobs(files, alignments, kinds, seeds, samples, tools, scratch)
        cells: dict[tuple[Pair, Kind, int], list[Outcome]] = {}
        # Syntax trees have no cycles, and collecting walks them all: a third of a worker's time.
        with ProcessPoolExecutor(options.workers, initializer=gc.disable) as pool:
            for done, (job, outcomes) in enumerate(
                zip(wanted, pool.map(run, wanted), strict=True), 1
            ):
                cells.setdefault((job.pair, job.kind, job.seed), []).extend(outcomes)
                if done % 20 == 0 or done == len(wanted):
                    _say(f"{done} of {len(wanted)} chunks, {time.monotonic() - started:.0f} s")
    _print(
        [report.Cell(*key, tuple(outcomes)) for key, outcomes in cells.items()],
        tools,
        options,
        time.monotonic() - started,
    )
    return 0


def _print(
    cells: Sequence[report.Cell], tools: Sequence[Tool], options: argparse.Namespace, seconds: float
) -> None:
    names = [tool.name for tool in tools]
    if options.cases:
        _write_cases(cells, options.cases, ("ours",))
    if options.json:
        document = {
            "schema": report.SCHEMA,
            "tools": versions(tools),
            "seconds": round(seconds, 1),
            "cells": report.as_json(cells, names),
            "crashes": report.crashes(cells),
            "worst": list(report.worst(cells, names, options.worst)),
        }
        print(json.dumps(document, indent=1))
        return
    for text in report.tables(cells, names, options.details):
        print(text)
    print(report.LEGEND)
    print(report.words(cells, names))
    print("\n".join(versions(tools)), f"\n{seconds:.0f} s on {options.workers} workers\n")
    for text in report.crashes(cells):
        print(text)
    for case in report.worst(cells, names, options.worst):
        print(f"{'-' * 80}\n{case}")


def _write_cases(cells: Sequence[report.Cell], folder: Path, prefixes: tuple[str, ...]) -> None:
    """Every bad case of the tools so named, a file each."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for cell in cells:
        for one in cell.outcomes:
            if one.mark in BAD and one.tool.startswith(prefixes):
                name = f"{one.mark.value} {one.tool} {one.sample}"
                name = re.sub(r"[^\w.]+", "_", name, flags=re.ASCII)
                (folder / f"{name}.txt").write_text(one.case)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="drift", description="How often a one-line patch lands in the right place."
    )
    parser.add_argument("--quick", action="store_true", help="two pairs, one seed, fewer samples")
    parser.add_argument(
        "--pair", action="append", type=_pair, metavar="OLD-NEW", help="only this pair; repeatable"
    )
    parser.add_argument(
        "--kind", action="append", type=Kind, metavar="KIND", help="insert, change or delete"
    )
    parser.add_argument("--seed", action="append", type=int, help="repeatable; default: 1 and 2")
    parser.add_argument("--samples", type=int, help="of each pair, kind and seed; default: 300")
    parser.add_argument("--tool", action="append", help="only tools with this in their name")
    parser.add_argument("--worst", type=int, default=2, help="bad cases printed of each tool")
    parser.add_argument("--cases", type=Path, metavar="DIR", help="write all bad cases of ours")
    parser.add_argument("--details", action="store_true", help="a table for each pair, kind, seed")
    parser.add_argument("--json", action="store_true", help="counts and worst cases as JSON")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--trees", type=Path, metavar="DIR", help="read DIR/0.33.0/vllm instead of the index"
    )
    return parser


def _pair(text: str) -> Pair:
    old, dash, new = text.partition("-")
    if not (old and dash and new):
        raise argparse.ArgumentTypeError(f"{text} is not of the form 0.32.0-0.33.0")
    return Pair(old, new)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
