"""Which patches write the same lines of a file, and which lines a later hunk cannot do without.

Line numbers are enough for both: those of the tree where every hunk of a file is placed, else those
that the patches recorded. A region is a half-open pair of 1-based lines; one that is empty lies in
front of its line. Two regions that touch count as the same place, as for git's merge: which of two
lines inserted there comes first is decided by the order of the patches alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from vllm_series.checking.answers import Overlap
from vllm_series.patch import Hunk


@dataclass(frozen=True, slots=True)
class Written:
    """What one patch does to one file: its hunks with the line where each pre-image starts.

    `old_id` and `new_id` are the blob ids that the patch recorded, None where it did not.
    """

    patch: str
    path: str
    hunks: tuple[tuple[Hunk, int], ...]
    placed: bool
    old_id: str | None = None
    new_id: str | None = None


@dataclass(frozen=True, slots=True)
class Meeting:
    """A hunk of `second` (1-based `number`) that meets what `first` wrote, in the lines that
    `second` finds. `writes` says that both change them; else the hunk only shows them."""

    first: str
    second: str
    path: str
    number: int
    lines: tuple[int, int]
    writes: bool


@dataclass(frozen=True, slots=True)
class _Region:
    patch: str
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class _Run:
    """Lines from `start` up to `stop` become `count` lines."""

    start: int
    stop: int
    count: int


def overlaps(written: Sequence[Written]) -> tuple[Overlap, ...]:
    """Every pair of patches that write the same place of a file, once for each hunk of the second;
    `written` is in the order of the series."""
    found = [
        Overlap(meeting.first, meeting.second, meeting.path, meeting.lines)
        for meeting in meetings(written)
        if meeting.writes
    ]
    return tuple(dict.fromkeys(found))


def meetings(written: Sequence[Written]) -> tuple[Meeting, ...]:
    """Every hunk that shows or changes lines which a patch in front of it wrote."""
    by_path: dict[str, list[Written]] = {}
    for one in written:
        by_path.setdefault(one.path, []).append(one)
    return tuple(
        meeting for changes in by_path.values() if len(changes) > 1 for meeting in _met(changes)
    )


def _met(changes: Sequence[Written]) -> list[Meeting]:
    found: list[Meeting] = []
    # All lines of one count: where one change is not placed, the recorded ones of all.
    stacked = all(change.placed for change in changes)
    owned: list[_Region] = []
    for at, change in enumerate(changes):
        hunks = [
            (number, hunk, line if stacked else hunk.first_line)
            for number, (hunk, line) in enumerate(change.hunks, 1)
        ]
        if not stacked and (twin := _made_beside(changes[:at], change)) is not None:
            # Both diffs were made on the same file, neither knows the other.
            there = [
                _Region(other.patch, run.start, run.stop)
                for other in changes[twin:at]
                if _same(other.old_id, change.old_id)
                for hunk, _ in other.hunks
                for run in _runs(hunk, hunk.first_line)
            ]
        else:
            there = owned
        for number, hunk, line in hunks:
            found += _hunk(change, number, hunk, line, there)
        runs = [run for _, hunk, line in hunks for run in _runs(hunk, line)]
        owned = [
            _Region(region.patch, _moved(region.start, runs), _moved(region.stop, runs, end=True))
            for region in owned
        ]
        shift = 0
        for run in runs:
            owned.append(_Region(change.patch, run.start + shift, run.start + shift + run.count))
            shift += run.count - (run.stop - run.start)
    return found


def _hunk(
    change: Written, number: int, hunk: Hunk, line: int, owned: Sequence[_Region]
) -> list[Meeting]:
    found = []
    runs = _runs(hunk, line)
    for region in owned:
        if region.patch == change.patch:
            continue
        meets = [run for run in runs if run.start <= region.stop and region.start <= run.stop]
        shown = region.start < line + hunk.old_count and line < region.stop
        # Lines that the first one took out: only a hunk that spans the gap can tell.
        shown = shown or line < region.start == region.stop < line + hunk.old_count
        if meets:
            first = min(run.start for run in meets)
            last = max(max(run.stop - 1 for run in meets), first)
            found.append(
                Meeting(region.patch, change.patch, change.path, number, (first, last), True)
            )
        elif shown:
            lines = (region.start, max(region.stop - 1, region.start))
            found.append(Meeting(region.patch, change.patch, change.path, number, lines, False))
    return found


def _made_beside(front: Sequence[Written], change: Written) -> int | None:
    """The first change in front that was made on the very file that `change` was made on."""
    if change.old_id is None or any(_same(one.new_id, change.old_id) for one in front):
        return None
    return next((at for at, one in enumerate(front) if _same(one.old_id, change.old_id)), None)


def _same(one: str | None, other: str | None) -> bool:
    return bool(one and other and (one.startswith(other) or other.startswith(one)))


def _runs(hunk: Hunk, line: int) -> list[_Run]:
    """The changes of a hunk whose pre-image starts at `line`."""
    runs = []
    for changed, group in groupby(hunk.ops, key=lambda op: op != ord(" ")):
        ops = list(group)
        removed = len(ops) if not changed else ops.count(ord("-"))
        if changed:
            runs.append(_Run(line, line + removed, ops.count(ord("+"))))
        line += removed
    return runs


def _moved(line: int, runs: Sequence[_Run], *, end: bool = False) -> int:
    """Where the edge in front of `line` is after `runs`, of a region's `end` or its start."""
    shift = 0
    for run in runs:
        if run.stop < line or (run.stop == line and (not end or run.start < run.stop)):
            shift += run.count - (run.stop - run.start)
        elif run.start < line:
            return run.start + shift + (run.count if end else 0)
    return line + shift
