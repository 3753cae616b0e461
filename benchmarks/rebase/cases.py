"""Real changes of one file, to be carried to a release that changed the same file elsewhere.

Of three releases in a row the middle one is the base. `back` is the change to the last one, carried
to the first; `undo` is the change back to the first one, carried to the last. A file of which all
three differ gives one of each.
"""

from __future__ import annotations

import io
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from vllm_series.patch import Hunk
from vllm_series.trees import ReleaseTree


class Direction(Enum):
    """Which of the neighbours of the base the patch is made of, and which it goes to."""

    BACK = "back"
    UNDO = "undo"


class Distance(Enum):
    """What the other release did to the lines around the patch."""

    NEAR = "near"
    """It changed a line of the patch, or one at most three lines away."""
    MOVED = "moved"
    """It did not, but the patch's lines stand elsewhere."""
    STILL = "still"
    """They stand where they stood."""


@dataclass(frozen=True, slots=True)
class Triple:
    """Three releases, oldest first."""

    first: str
    middle: str
    last: str

    def __str__(self) -> str:
        return f"{self.first}/{self.middle}/{self.last}"


@dataclass(frozen=True, slots=True)
class Case:
    """One patch, `base` to `patched`, and the file that it goes to."""

    triple: Triple
    direction: Direction
    path: str
    base: bytes
    patched: bytes
    target: bytes
    number: int = 0
    """Which hunk of the change of the whole file it is, from 1; 0 for all of it."""

    @property
    def name(self) -> str:
        """What tells it from all others."""
        part = f" hunk {self.number}" if self.number else ""
        return f"{self.triple} {self.direction.value} {self.path}{part}"

    @property
    def place(self) -> str:
        """Where its file lies in a repository that holds many cases."""
        return f"{self.number}/{self.path}"


def single(case: Case, hunks: Sequence[Hunk], number: int) -> Case:
    """The case with one of its hunks alone, counted from 1."""
    hunk = hunks[number - 1]
    lines = io.BytesIO(case.base).readlines()
    start = hunk.first_line - 1
    lines[start : start + hunk.old_count] = hunk.post
    return replace(case, patched=b"".join(lines), number=number)


def texts(
    trees: Sequence[ReleaseTree], paths: Sequence[str]
) -> Mapping[str, tuple[bytes, bytes, bytes]]:
    """The three texts of each path, those without one left out."""
    found = {}
    for path in paths:
        one, two, three = (tree.read(path) for tree in trees)
        if one and two and three:
            found[path] = (one, two, three)
    return found


def changed_twice(trees: Sequence[ReleaseTree]) -> list[str]:
    """The Python files of which all three releases have another text."""
    listings = [tree.listing() for tree in trees]
    return sorted(
        path
        for path in listings[0]
        if path.endswith(".py")
        and all(path in listing for listing in listings)
        and len({listing[path] for listing in listings}) == 3
    )


def drawn(paths: Sequence[str], triple: Triple, seed: int) -> list[str]:
    """The same paths in an order that the seed alone decides."""
    order = sorted(paths)
    random.Random(f"{triple} {seed}").shuffle(order)
    return order


def cases_of(triple: Triple, path: str, three: tuple[bytes, bytes, bytes]) -> tuple[Case, Case]:
    """Both cases of a file."""
    first, middle, last = three
    return (
        Case(triple, Direction.BACK, path, middle, last, first),
        Case(triple, Direction.UNDO, path, middle, first, last),
    )


def distance(patch: Sequence[Hunk], other: Sequence[Hunk]) -> Distance:
    """How near the other release came; both are runs of changed lines, without context."""
    moved = False
    for mine in patch:
        start, end = mine.first_line, mine.first_line + mine.old_count
        shift = 0
        for theirs in other:
            first, after = theirs.first_line, theirs.first_line + theirs.old_count
            if first <= end + _BESIDE and start <= after + _BESIDE:
                return Distance.NEAR
            if after <= start:
                shift += theirs.new_count - theirs.old_count
        moved |= shift != 0
    return Distance.MOVED if moved else Distance.STILL


_BESIDE = 3
"""Lines of context that a diff shows."""
