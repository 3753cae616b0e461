"""Merging a patched file with a new release where only neighbours of the change are different.

A merge by lines stops when a line beside a change has changed. Often the syntax tree still tells
the place: the statement that the patch changes stands untouched in the same block, or the one in
front of an insertion does, or the one behind it. That is looked for here, and taken only where
nothing speaks against it. The result is for review, always; what is not sure is left to a person.

Every edit is judged alone:

- The lines on both sides are kept and adjacent: the rule of diff3, as `threeway` has it.
- The units (`units`) that it changes or takes out are untouched, and are the only ones that say the
  same in their group, in the base and here; the way to the group leads through units that are
  equally sure. The same for the unit in front of or behind what it adds.
- What upstream changed next to it and what the patch changes leave each other alone (`effects`).
- What it leaves alone stays in its function or class (`strays`).
- With the edit alone, base and release parse, and the group is what it was with just this change.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from vllm_series.align import align
from vllm_series.scope import Scopes, is_python, of_change
from vllm_series.structure.edit import Judge, Spot, is_lost
from vllm_series.structure.strays import strays
from vllm_series.structure.units import Outline
from vllm_series.threeway import Edit, spliced


@dataclass(frozen=True, slots=True)
class Place:
    """Where one edit went. `base_line` is its first line in the base, `line` that in the result;
    `by_structure` says that the lines beside it did not tell. `reason` is one sentence."""

    base_line: int
    line: int
    scope: str
    by_structure: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Resolution:
    """The merged file, and where every edit of the patch went, in order."""

    text: bytes
    places: tuple[Place, ...]

    def notes(self, path: str) -> tuple[str, ...]:
        """What a person should look at, a sentence each."""
        return tuple(
            f"{path} line {place.line} in {place.scope}: {place.reason}"
            for place in self.places
            if place.by_structure
        )


def resolve(base: bytes, ours: bytes, theirs: bytes, path: str) -> Resolution | None:
    """Put what was changed from `base` to `ours` into `theirs`; None where any of it has no sure
    place, or is there already.

    `base` is the file that the patch was made on, `ours` the same with the patch, `theirs` the file
    of the other release. The result is for review: the syntax tree knows where a statement belongs,
    not what it is for.
    """
    if not is_python(path) or base == ours or theirs in (base, ours):
        return None
    before, there = base.splitlines(keepends=True), theirs.splitlines(keepends=True)
    alignment = align(before, there)
    edits = edits_between(before, ours.splitlines(keepends=True))
    if any(is_lost(edit, alignment) for edit in edits):
        return None
    old, new = Outline.of(base), Outline.of(theirs)
    if old is None or new is None:
        return None
    judge = Judge(base, theirs, old, new, alignment)
    spots: list[Spot] = []
    for edit in edits:
        spot = judge.place(edit)
        if spot is None:
            return None
        spots.append(spot)
    moved = [spot.edit for spot in spots]
    for one, two in itertools.pairwise(moved):
        if one.start + one.removed > two.start:
            return None
    result = spliced(there, moved)
    if not _takes_back(result, moved, theirs):
        return None
    sides = (base, ours, edits), (theirs, result, moved)
    scopes = _same_scopes(*sides, path)
    if scopes is None or strays(*sides, path):
        return None
    places = []
    shift = 0
    for edit, spot, scope in zip(edits, spots, scopes, strict=True):
        line = spot.edit.start + shift + 1
        places.append(Place(edit.start + 1, line, scope, spot.by_structure, spot.reason))
        shift += len(edit.added) - edit.removed
    return Resolution(result, tuple(places))


def edits_between(before: Sequence[bytes], after: Sequence[bytes]) -> list[Edit]:
    """The runs of changed lines between two texts, in order."""
    alignment = align(before, after)
    found = []
    at = there = 0
    for index in range(len(before) + 1):
        kept = alignment[index]
        if index < len(before) and kept < 0:
            continue
        if index > at or kept > there:
            found.append(Edit(at, index - at, tuple(after[there:kept])))
        at, there = index + 1, kept + 1
    return found


def _takes_back(result: bytes, edits: Sequence[Edit], theirs: bytes) -> bool:
    """Whether the release's file comes out when every edit is undone."""
    lines = result.splitlines(keepends=True)
    original = theirs.splitlines(keepends=True)
    back = []
    shift = 0
    for edit in edits:
        removed = tuple(original[edit.start : edit.start + edit.removed])
        at = edit.start + shift
        if tuple(lines[at : at + len(edit.added)]) != edit.added:
            return False
        back.append(Edit(at, len(edit.added), removed))
        shift += len(edit.added) - edit.removed
    return spliced(lines, back) == theirs


_Side = tuple[bytes, bytes, Sequence[Edit]]


def _same_scopes(base: _Side, here: _Side, path: str) -> list[str] | None:
    """The scope of every edit; None where it is not the same on both sides, or a side does not
    parse."""
    found: list[list[str]] = []
    for before, after, edits in (base, here):
        pre, post = Scopes.of(before, path), Scopes.of(after, path)
        if pre is None or post is None:
            return None
        scopes = []
        shift = 0
        for edit in edits:
            first = edit.start + 1
            removed = range(first, first + edit.removed)
            added = range(first + shift, first + shift + len(edit.added))
            after_lines = [edit.start + edit.removed] if edit.added else []
            scopes.append(of_change(pre, post, removed, added, after_lines))
            shift += len(edit.added) - edit.removed
        found.append(scopes)
    return found[0] if found[0] == found[1] else None
