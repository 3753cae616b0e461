"""How many conflicts the syntax tree takes away, and how often it is wrong.

    python benchmarks/structure.py            # all pairs of the drift benchmark, two seeds
    python benchmarks/structure.py --quick    # two pairs, one seed
    python benchmarks/structure.py --json

The samples, the truth and the pairs are those of the drift benchmark (its README). `partly` are the
one-line edits of which not everything beside them is kept, where a three-way merge by lines
conflicts. What `structure` makes of them is right when the edited line is the one that git's
alignment keeps, or when an inserted line stands beside the neighbour that git's alignment keeps, on
the same side, but for blank lines; and when the scope is that of the base. The other two classes
are asked too: `known` has one right result, to the byte, and of `lost` every placement is wrong.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from drift.judge import Mark, landed, mark, sample_name
from drift.main import PAIRS, QUICK
from drift.releases import changed_files
from drift.samples import Kind, Pair, Sample, draw, pick_path, split
from drift.tools import Answer
from drift.truth import Alignments, Standing, align, sealed, truth

from vllm_series.structure.resolve import Resolution, resolve

SCHEMA = "vllm-series/structure-bench/1"


@dataclass(frozen=True, slots=True)
class Found:
    """One sample: `word` says what became of it, `conflicts` whether git's merge has a conflict."""

    kind: str
    standing: str
    word: str
    conflicts: bool
    disputed: bool
    seconds: float
    case: str = ""


@dataclass(frozen=True, slots=True)
class Work:
    """Samples of one pair, kind and seed: number, path and the file in both releases."""

    pair: Pair
    kind: Kind
    seed: int
    files: tuple[tuple[int, str, bytes, bytes, Alignments], ...]
    known_every: int


def run(work: Work) -> list[Found]:
    """Draw the samples, ask, judge."""
    found = []
    for number, path, old, new, alignments in work.files:
        sample = draw(work.pair, work.kind, work.seed, number, path, old, new)
        if sample is None:
            continue
        known = truth(sample, alignments)
        if known.standing is Standing.KNOWN and number % work.known_every:
            continue
        started = time.perf_counter()
        answer = resolve(sample.before, sample.edited, sample.target, sample.path)
        seconds = time.perf_counter() - started
        if known.standing is Standing.PARTLY:
            word = "left" if answer is None else judged(sample, alignments[0], answer)
        else:
            made = mark(sample, known, Answer(answer.text if answer else None))
            word = made.value
        conflicts = known.standing is Standing.PARTLY and merge_conflicts(sample)
        case = told(sample, answer, word) if answer and known.standing is Standing.PARTLY else ""
        if answer and word in ("wrong", "placed_though_lost"):
            case = told(sample, answer, word)
        found.append(
            Found(
                sample.kind.value,
                known.standing.value,
                word,
                conflicts,
                known.disputed,
                seconds,
                case,
            )
        )
    return found


def judged(sample: Sample, alignment: object, answer: Resolution) -> str:
    """Whether a placed sample of the class `partly` is where a neighbour of it is kept."""
    from drift.truth import Alignment

    assert isinstance(alignment, Alignment)
    known = truth(sample, (alignment,))
    if mark(sample, known, Answer(answer.text)) is not Mark.SAME_SCOPE:
        return "wrong"
    line = landed(sample.target, answer.text, sample)
    assert line is not None
    if sample.kind is not Kind.INSERT:
        there = alignment.kept(sample.line)
        return "right" if there == line or _equal(sample, there, line) else "wrong"
    lines = split(sample.target)
    above, below = alignment.kept(sample.line), alignment.kept(sample.line + 1)
    if above is not None and above <= line and _blank(lines[above:line]):
        return "right"
    if below is not None and line < below and _blank(lines[line : below - 1]):
        return "right"
    return "apart"


def _equal(sample: Sample, there: int | None, line: int) -> bool:
    """Whether a deletion in a run of equal lines is the same as that of the line that is kept."""
    if there is None or sample.kind is not Kind.DELETE:
        return False
    lines = split(sample.target)
    low, high = sorted((there, line))
    return len(set(lines[low - 1 : high])) == 1


def _blank(lines: Sequence[bytes]) -> bool:
    return not any(line.strip() for line in lines)


def merge_conflicts(sample: Sample) -> bool:
    """Whether `git merge-file` has a conflict."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        texts = {"a": sample.target, "b": sample.before, "c": sample.edited}
        for each, text in texts.items():
            (folder / each).write_bytes(text)
        done = subprocess.run(
            ["git", "merge-file", "-q", "-p", "a", "b", "c"],
            cwd=folder, env=sealed(folder), capture_output=True, check=False,
        )  # fmt: skip
    return done.returncode != 0


def told(sample: Sample, answer: Resolution, word: str) -> str:
    """A placed sample for the eye: the place in both releases."""
    line = landed(sample.target, answer.text, sample)
    parts = [f"{word}: {sample_name(sample)}: {sample.path}:{sample.line}"]
    parts += [f"  {place.scope}: {place.reason}" for place in answer.places]
    at = sample.line + (sample.kind is Kind.INSERT)
    parts += [f"-- {sample.pair.old}, edited", _excerpt(sample.edited, at)]
    if sample.kind is not Kind.INSERT:
        parts[-1] = _excerpt(sample.before, at)
    if line is not None:
        text = answer.text if sample.kind is not Kind.DELETE else sample.target
        parts += [
            f"-- {sample.pair.new}", _excerpt(text, line + (sample.kind is Kind.INSERT))
        ]  # fmt: skip
    return "\n".join(parts)


def _excerpt(text: bytes, line: int) -> str:
    lines = text.decode("utf-8", "replace").split("\n")
    low = max(0, line - 6)
    return "\n".join(
        f"{'>' if low + at + 1 == line else ' '}{low + at + 1:6}  {row}"
        for at, row in enumerate(lines[low : line + 5])
    )


def main(words: Sequence[str] | None = None) -> int:
    """Run it. Exit code 0 whatever is found: a benchmark measures and does not judge."""
    parser = argparse.ArgumentParser(prog="structure", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="two pairs, one seed, 200 samples")
    parser.add_argument("--seed", action="append", type=int, help="repeatable; default: 1 and 2")
    parser.add_argument("--samples", type=int, help="of each pair, kind and seed; default: 300")
    parser.add_argument("--known-every", type=int, default=10, help="ask one in so many `known`")
    parser.add_argument("--show", type=int, default=0, help="print so many placed ones, at random")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--trees", type=Path, help="read DIR/0.33.0/vllm instead of the index")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(words)
    pairs = QUICK if options.quick else PAIRS
    seeds = options.seed or ([1] if options.quick else [1, 2])
    samples = options.samples or (200 if options.quick else 300)

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    files = changed_files(pairs, options.trees, say)
    works = []
    with tempfile.TemporaryDirectory() as name:
        for number, pair in enumerate(pairs):
            changed = files[pair]
            alignments = align(changed.old, changed.new, Path(name) / str(number))
            paths = list(changed.old)
            for kind, seed in itertools.product(Kind, seeds):
                drawn = []
                for one in range(samples):
                    path = pick_path(paths, pair, kind, seed, one)
                    drawn.append(
                        (one, path, changed.old[path], changed.new[path], alignments[path])
                    )
                works.append(Work(pair, kind, seed, tuple(drawn), options.known_every))
    found: list[Found] = []
    with ProcessPoolExecutor(options.workers, initializer=gc.disable) as pool:
        for number, part in enumerate(pool.map(run, works), 1):
            found += part
            say(f"{number} of {len(works)}")
    report(found, options.json, options.show)
    return 0


def report(found: Sequence[Found], as_json: bool, show: int) -> None:
    """Print counts, and the bad cases in full."""
    cells: dict[str, Counter[str]] = {}
    for one in found:
        cell = cells.setdefault(f"{one.standing} {one.kind}", Counter())
        cell[one.word] += 1
        cell["conflicts"] += one.conflicts
        cell["conflicts gone"] += one.conflicts and one.word != "left"
    partly = [one for one in found if one.standing == "partly"]
    bad = [one for one in found if one.word in ("wrong", "apart", "placed_though_lost")]
    times = sorted(one.seconds for one in partly)
    document = {
        "schema": SCHEMA,
        "partly": len(partly),
        "conflicts": sum(one.conflicts for one in partly),
        "conflicts_gone": sum(one.conflicts and one.word != "left" for one in partly),
        "right": sum(one.word == "right" for one in partly),
        "bad": len(bad),
        "bad_disputed": sum(one.disputed for one in bad),
        "median_ms": round(1000 * times[len(times) // 2]) if times else None,
        "cells": {name: dict(cell) for name, cell in sorted(cells.items())},
        "bad_cases": [one.case for one in bad],
    }
    if as_json:
        print(json.dumps(document, indent=1))
        return
    for name, value in document.items():
        if name == "cells":
            for cell_name, cell in sorted(cells.items()):
                print(
                    f"  {cell_name:16}", ", ".join(f"{n} {word}" for word, n in cell.items() if n)
                )
        elif name != "bad_cases":
            print(f"{name}: {value}")
    for one in bad:
        print("-" * 80)
        print("disputed " if one.disputed else "", one.case, sep="")
    placed = [one for one in partly if one.word == "right"]
    for one in random.Random(7).sample(placed, min(show, len(placed))):
        print("-" * 80)
        print(one.case)


if __name__ == "__main__":
    sys.exit(main())
