"""The benchmark as a command: `nox -s bench_rebase`, or `python benchmarks/rebase --quick`."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rebase import history, people, roundtrip, speed
from rebase.carriers import OURS, TOOLS
from rebase.cases import Triple
from rebase.hand import RELEASES, SERIES
from rebase.truth import Mark
from vllm_series.errors import VllmSeriesError
from vllm_series.upstream.catalog import Catalog
from vllm_series.upstream.open import open_catalog

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("history", "people", "roundtrip", "speed")
_BAD = (Mark.WRONG, Mark.OTHER_SCOPE)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts that are asked for; 1 where ours puts anything in a wrong place or a round trip
    does not end where it began."""
    words = _parser().parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix="rebase-"))
    try:
        catalog = open_catalog()
        is_well = True
        for part in words.only or PARTS:
            started = time.monotonic()
            is_well &= _RUN[part](words, catalog, folder / part)
            print(f"{part}: {time.monotonic() - started:.0f} s\n", flush=True)
    except VllmSeriesError as error:
        print(f"benchmarks/rebase: {error}", file=sys.stderr)
        return error.exit_code
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0 if is_well else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks/rebase", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one triple, few samples, few steps")
    parser.add_argument("--only", action="append", choices=PARTS, help="one part; may be repeated")
    parser.add_argument(
        "--triple", action="append", help="three releases, 0.31.0/0.32.0/0.33.0; may be repeated"
    )
    parser.add_argument("--samples", type=int, help="one-file diffs a triple and direction (60)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every case's marks there")
    parser.add_argument("--series", type=Path, default=ROOT / "series", help="for the round trip")
    return parser


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def _history(words: argparse.Namespace, catalog: Catalog, folder: Path) -> bool:
    triples = tuple(Triple(*one.split("/")) for one in words.triple or ()) or (
        history.QUICK if words.quick else history.TRIPLES
    )
    samples = words.samples or (10 if words.quick else 60)
    found = list(history.marked(triples, samples, words.seed, catalog, folder, _say))
    print(f"{len(found)} real changes, {sum(one.truth.disputed for one in found)} disputed\n")
    for title, cases in (
        ("one-file diffs", [one for one in found if not one.asked.case.number]),
        ("single hunks", [one for one in found if one.asked.case.number]),
    ):
        print(f"| {title} ({len(cases)}) | carried | {' | '.join(one.value for one in Mark)} |")
        print(f"|---|---:|{'---:|' * len(Mark)}")
        for tool in TOOLS:
            marks = Counter(one.marks[tool] for one in cases)
            carried = len(cases) - marks[Mark.REFUSED]
            numbers = " | ".join(str(marks[one]) for one in Mark)
            print(f"| {tool} | {carried} | {numbers} |")
        print()
    notes = Counter((one.marks[OURS].value, _told(one.asked.answers[OURS].note)) for one in found)
    for (name, note), number in sorted(notes.items()):
        print(f"{number:6} {name}: {note}")
    bad = [one for one in found if one.marks[OURS] in _BAD]
    for one in bad:
        print(f"{one.marks[OURS].value}: {one.asked.case.name}")
    if words.json:
        value = [
            {
                "case": one.asked.case.name,
                "distance": one.distance.value,
                "disputed": one.truth.disputed,
                "marks": {tool: one.marks[tool].value for tool in TOOLS},
                "note": one.asked.answers[OURS].note,
            }
            for one in found
        ]
        words.json.write_text(json.dumps(value, indent=1))
    return not bad


def _told(note: str) -> str:
    return "git's merge is in another scope" if note.startswith("git's merge puts") else note


def _people(words: argparse.Namespace, catalog: Catalog, folder: Path) -> bool:
    releases = RELEASES[-3:] if words.quick else RELEASES
    for name, patches in SERIES.items():
        found = people.steps(patches, releases, folder / name, catalog, _say)
        print(f"| {name}: from | to | git stops at | rebase stops at | by structure | as people |")
        print("|---|---|---|---|---|---:|")
        for step in found:
            ours = step.ours
            print(
                f"| {step.old} | {step.new} | {', '.join(step.git.stopped)} "
                f"| {', '.join(ours.stopped)} | {', '.join(ours.by_structure)} "
                f"| {ours.equal} of {step.patches} |"
            )
        for tool, outcomes in (
            ("git", [one.git for one in found]),
            ("rebase", [one.ours for one in found]),
        ):
            free = sum(not one.stopped for one in outcomes)
            whole = sum(one.equal == len(patches) for one in outcomes)
            stops = sum(len(one.stopped) for one in outcomes)
            print(
                f"{tool}: {free} of {len(found)} steps without conflict, {whole} as people made "
                f"them, {stops} patches stopped"
            )
        print()
    return True


def _roundtrip(words: argparse.Namespace, catalog: Catalog, folder: Path) -> bool:
    releases = roundtrip.RELEASES[:4] if words.quick else roundtrip.RELEASES
    trip = roundtrip.trip(words.series, releases, folder, catalog, _say)
    for title, steps in (("back", trip.back), ("forth", trip.forth)):
        asked = [step.onto for step in steps if step.by_hand]
        print(
            f"{title}: {len(steps)} steps, {len(asked)} with a person's answer"
            + (f" ({', '.join(asked)})" if asked else "")
        )
    print(f"the same on both ways: {', '.join(trip.alike)}")
    is_same = trip.start == trip.end
    print(f"what comes home is {'byte for byte what left' if is_same else 'another series'}")
    return is_same


def _speed(words: argparse.Namespace, catalog: Catalog, folder: Path) -> bool:
    for line in speed.table(catalog, folder, 20 if words.quick else 171, _say):
        print(line)
    return True


_RUN = {"history": _history, "people": _people, "roundtrip": _roundtrip, "speed": _speed}
