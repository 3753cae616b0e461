"""The history of upstream as the judge of what carries patches: cases, answers, marks."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from drift.truth import align

from rebase.carriers import Asked, ask, runs_of
from rebase.cases import (
    Case,
    Direction,
    Distance,
    Triple,
    cases_of,
    changed_twice,
    distance,
    drawn,
    single,
    texts,
)
from rebase.truth import Mark, Truth, mark, truth
from vllm_series.patch import Hunk
from vllm_series.upstream.catalog import Catalog
from vllm_series.workspace.repository import Commit, Scratch

TRIPLES = (
    Triple("0.11.0", "0.12.0", "0.13.0"),
    Triple("0.15.0", "0.16.0", "0.17.0"),
    Triple("0.18.0", "0.19.0", "0.20.0"),
    Triple("0.22.0", "0.23.0", "0.24.0"),
    Triple("0.27.0", "0.28.0", "0.29.0"),
    Triple("0.31.0", "0.32.0", "0.33.0"),
    Triple("0.14.0", "0.20.0", "0.26.0"),
)
"""Neighbours, and three that are far from each other."""
QUICK = TRIPLES[5:6]
_MANY = 12
"""Hunks of a one-file diff above which no tool carries all of them."""
_FROM_ONE = 3
"""Single hunks that are taken of one file."""


@dataclass(frozen=True, slots=True)
class Marked:
    """A case, how near the other release came to it, and each tool's mark by name."""

    asked: Asked
    distance: Distance
    truth: Truth
    marks: Mapping[str, Mark]


def marked(
    triples: Sequence[Triple],
    samples: int,
    seed: int,
    catalog: Catalog,
    folder: Path,
    say: Callable[[str], None],
) -> Iterator[Marked]:
    """All cases of the triples: of each triple and direction up to `samples` one-file diffs and up
    to as many single hunks. Where nothing came near a patch and nothing moved it, it is no case.

    Raises the error of a release that cannot be read.
    """
    for triple in triples:
        trees = [catalog.tree(one) for one in (triple.first, triple.middle, triple.last)]
        paths = drawn(changed_twice(trees), triple, seed)[: 3 * samples]
        wanted = dict.fromkeys((triple.first, triple.middle, triple.last), paths)
        for error in catalog.prefetch(wanted, say).values():
            raise error
        pairs = [cases_of(triple, path, three) for path, three in texts(trees, paths).items()]
        for number, direction in enumerate(Direction):
            say(f"{triple} {direction.value}")
            place = folder / f"{triple}".replace("/", "-") / direction.value
            yield from _marked([pair[number] for pair in pairs], samples, seed, place)


def _marked(whole: Sequence[Case], samples: int, seed: int, folder: Path) -> Iterator[Marked]:
    mine, hunks, theirs = _differences(whole, folder / "differences")
    chosen: list[Case] = []
    near: dict[str, Distance] = {}
    for case in whole:
        how = distance(mine[case.place], theirs[case.place])
        if how is not Distance.STILL and len(hunks[case.place]) <= _MANY:
            chosen.append(case)
            near[case.place] = how
    chosen = chosen[:samples]
    parts: list[Case] = []
    for case in whole:
        of_file = hunks[case.place]
        numbers = list(range(1, len(of_file) + 1)) if len(of_file) > 1 else []
        random.Random(f"{case.name} {seed}").shuffle(numbers)
        for number in numbers[:_FROM_ONE]:
            how = distance(_bare(of_file[number - 1], mine[case.place]), theirs[case.place])
            if how is not Distance.STILL and len(parts) < samples:
                parts.append(single(case, of_file, number))
                near[parts[-1].place] = how
    cases = [*chosen, *parts]
    used = {case.path: case for case in cases}
    alignments = align(
        {path: case.base for path, case in used.items()},
        {path: case.target for path, case in used.items()},
        folder / "aligned",
    )
    for asked in ask(cases, folder / "asked"):
        known = truth(asked.case, asked.runs, alignments[asked.case.path])
        yield Marked(
            asked,
            near[asked.case.place],
            known,
            {
                name: mark(asked.case, known, asked.runs, answer.text, answer.runs)
                for name, answer in asked.answers.items()
            },
        )


def _bare(hunk: Hunk, runs: Sequence[Hunk]) -> list[Hunk]:
    """The runs of changed lines that are in a hunk."""
    first, after = hunk.first_line, hunk.first_line + hunk.old_count
    return [run for run in runs if first <= run.first_line <= after]


Hunks = Mapping[str, Sequence[Hunk]]


def _differences(cases: Sequence[Case], folder: Path) -> tuple[Hunks, Hunks, Hunks]:
    """The patches without and with context, and what the target changes, by a case's place."""
    with Scratch(folder) as scratch:
        base, patched, target = scratch.make(
            [
                _commit({case.place: case.base for case in cases}, None),
                _commit({case.place: case.patched for case in cases}, 0),
                _commit({case.place: case.target for case in cases}, 0),
            ]
        )
        return (
            runs_of(scratch, base, patched),
            runs_of(scratch, base, patched, context=3),
            runs_of(scratch, base, target),
        )


def _commit(files: Mapping[str, bytes], parent: int | None) -> Commit:
    plain = {path: (text, "100644") for path, text in files.items()}
    return Commit(plain, parent, b"a commit\n", b"A <a@example.com>", "0 +0000")
