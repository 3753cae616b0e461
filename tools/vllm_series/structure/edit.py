"""One edit of a patch, brought to another release by the units beside it.

A unit counts as kept where nothing else in its group says the same, in the base and here, and the
alignment of the two files agrees line by line. Two units that are kept also give an order; where
upstream has reordered a group, nothing is placed in it.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from vllm_series.align import GONE, Alignment
from vllm_series.structure.objections import Change, objection
from vllm_series.structure.units import Group, Outline, Sort, Step, Unit
from vllm_series.threeway import Edit, spliced

_ANYWHERE = (
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef),
    *(ast.Import, ast.ImportFrom, ast.alias),
)


@dataclass(frozen=True, slots=True)
class Spot:
    """The edit as it is made in the release, and why there."""

    edit: Edit
    by_structure: bool
    reason: str


@dataclass(frozen=True, slots=True)
class _Found:
    """What an edit does to a group: `units` from and up to, become `added`."""

    way: tuple[Step, ...]
    start: int
    stop: int
    added: tuple[Unit, ...]


@dataclass(frozen=True, slots=True)
class _Pair:
    """A group of the base and what it is in the release. `alike` gives the number there of every
    unit that only one there can be, `kept` of those that the alignment says too. `around` are the
    units on the way to the group, on both sides."""

    old: Group
    new: Group
    alike: dict[int, int]
    kept: dict[int, int]
    way: tuple[Step, ...]
    around: tuple[tuple[Unit, Unit], ...]

    def straight(self) -> bool:
        """Whether the units that are kept are in the same order on both sides."""
        there = [self.kept[at] for at in sorted(self.kept)]
        return there == sorted(there)

    def sides(self, at: int, stop: int, number: int) -> bool:
        """Whether what was in front of units `at` to `stop` is in front of unit `number` of the
        release, and what was behind them is not; where functions and imports stand is all one."""
        return all(
            at <= one < stop or (one < at) == (to < number)
            for one, to in self.alike.items()
            if not any(isinstance(node, _ANYWHERE) for node in self.old.units[one].nodes)
        )

    def before(self, at: int) -> int:
        """The nearest kept unit in front of unit `at` of the base; -1 for none."""
        return max((one for one in self.kept if one < at), default=-1)

    def after(self, at: int) -> int:
        """The nearest kept unit from unit `at` on; the number of units for none."""
        return min((one for one in self.kept if one >= at), default=len(self.old.units))


class Judge:
    """Places the edits of one file."""

    def __init__(
        self, base: bytes, theirs: bytes, old: Outline, new: Outline, alignment: Alignment
    ) -> None:
        self.before = base.splitlines(keepends=True)
        self.there = theirs.splitlines(keepends=True)
        self.old, self.new, self.alignment = old, new, alignment
        origin = alignment.back()
        self.fresh = {at: self.there[at - 1].strip() for at, was in enumerate(origin, 1) if was < 0}
        """The lines of the release that the base does not have, by number, stripped."""

    def place(self, edit: Edit) -> Spot | None:
        """The edit in the release; None where its place is not sure, or something speaks against
        it."""
        above = self.alignment[edit.start - 1]
        below = self.alignment[edit.start + edit.removed]
        run = self.alignment.run(edit.start, edit.removed) if edit.removed else above + 1
        if GONE not in (above, below) and below - above - 1 == edit.removed and run == above + 1:
            return Spot(
                replace(edit, start=above + 1), False, "the lines on both sides of it are kept"
            )
        if run is None or is_lost(edit, self.alignment):
            return None
        after = Outline.of(spliced(self.before, [edit]))
        if after is None:
            return None
        found = self.units_of(edit, after)
        if found is None:
            return self.inside(edit, after)
        pair = self.paired(found.way)
        if pair is None or not pair.straight():
            return None
        if found.start < found.stop:
            return self.replaced(edit, found, pair, run)
        return self.inserted(edit, found, pair)

    # -- what the edit is -----------------------------------------------------------------------

    def units_of(self, edit: Edit, after: Outline) -> _Found | None:
        """The units that an edit adds and takes out, where it is nothing but whole units."""
        gone = _solid(self.old, edit.start + 1, edit.removed)
        new = _solid(after, edit.start + 1, len(edit.added))
        if new:
            for way in reversed(after.ways(*new)):
                group, was = after.group(way), self.old.group(way)
                span = after.covered(group, *new) if group else None
                if group is None or was is None or span is None:
                    continue
                start, stop = span[0], len(was.units) - (len(group.units) - span[1])
                if self.is_rest(was, group, start, stop, span[1]) and (
                    self.old.covered(was, *gone) == (start, stop) if gone else start == stop
                ):
                    return _Found(way, start, stop, tuple(group.units[start : span[1]]))
        elif gone:
            for way in reversed(self.old.ways(*gone)):
                was, group = self.old.group(way), after.group(way)
                span = self.old.covered(was, *gone) if was else None
                if was is None or span is None or group is None:
                    continue
                if self.is_rest(was, group, span[0], span[1], span[0]):
                    return _Found(way, span[0], span[1], ())
        return None

    def is_rest(self, was: Group, group: Group, start: int, stop: int, end: int) -> bool:
        """Whether all but units `start` to `stop`, which become `start` to `end`, is the same."""
        if stop < start or was.sort is not group.sort:
            return False
        return _said(was.units[:start]) == _said(group.units[:start]) and _said(
            was.units[stop:]
        ) == _said(group.units[end:])

    # -- what the release has -------------------------------------------------------------------

    def paired(self, way: Sequence[Step]) -> _Pair | None:
        """The group of the release that a way through the base leads to."""
        old, new = self.old.root, self.new.root
        there: list[Step] = []
        around: list[tuple[Unit, Unit]] = []
        for step in way:
            number = _alike(old, new).get(step.unit)
            if number is None:
                return None
            one, two = old.units[step.unit], new.units[number]
            inner = [group for group in one.groups if group.name == step.name]
            other = [group for group in two.groups if group.name == step.name]
            if len(inner) != 1 or len(other) != 1 or inner[0].sort is not other[0].sort:
                return None
            there.append(Step(number, step.name))
            around.append((one, two))
            old, new = inner[0], other[0]
        alike = _alike(old, new)
        kept = {at: to for at, to in alike.items() if self.agrees(old.units[at], new.units[to])}
        return _Pair(old, new, alike, kept, tuple(there), tuple(around))

    def agrees(self, one: Unit, two: Unit) -> bool:
        """Whether the alignment leads from the first and last line of a unit to those of the
        other, and from no line in it out of the other."""
        lines = [self.alignment[line - 1] for line in range(one.first, one.last + 1)]
        if lines[0] != two.first - 1 or lines[-1] != two.last - 1:
            return False
        return all(at == GONE or two.first <= at + 1 <= two.last for at in lines)

    # -- placing --------------------------------------------------------------------------------

    def replaced(self, edit: Edit, found: _Found, pair: _Pair, run: int) -> Spot | None:
        """Units that the patch changes or takes out: all of them are kept."""
        shift = run - edit.start
        spots = [pair.kept.get(at) for at in range(found.start, found.stop)]
        if spots[0] is None or spots != list(range(spots[0], spots[0] + len(spots))):
            return None
        for at, to in zip(range(found.start, found.stop), spots, strict=True):
            if pair.new.units[to or 0].first != pair.old.units[at].first + shift:
                return None
        what = _named(pair, found.stop - found.start, pair.old.units[found.start])
        reason = f"{what} that it changes stands untouched in the same place of the syntax tree"
        return self.checked(
            Edit(run, edit.removed, edit.added), found, pair, spots[0], False, reason
        )

    def inserted(self, edit: Edit, found: _Found, pair: _Pair) -> Spot | None:
        """Units that the patch adds: the one in front of them or the one behind is kept."""
        at = found.start
        above, below = self.front(edit, pair, at), self.behind(edit, pair, at)
        beside = above is not None and below is not None
        if above is None and below is None:
            return None
        if beside and below[0] < above[0]:  # type: ignore[index]
            return None
        only_comments = all(unit.is_comment for unit in found.added)
        parted = beside and below[0] > above[0]  # type: ignore[index]
        goes_on = pair.old.sort is Sort.TEXT or (at and pair.old.units[at - 1].is_comment)
        if only_comments and below is None and not goes_on:
            # A comment is about what follows it, and that is gone.
            return None
        if above is not None and not (parted and only_comments):
            (number, line), beside_it, is_edge = above, at - 1, not at
            words = "first" if is_edge else "in front of it stands"
        else:
            assert below is not None
            (number, line), beside_it, is_edge = below, at, at == len(pair.old.units)
            words = "last" if is_edge else "behind it stands"
        if is_edge:
            reason = f"it is the {words} in its {_GROUPS.get(pair.old.sort, 'list')}, as it was"
        else:
            what = _named(pair, 1, pair.old.units[beside_it])
            reason = f"{what} {words} in the same place of the syntax tree"
        if parted:
            reason += "; upstream has put something there too, which it leaves alone"
        return self.checked(Edit(line, 0, edit.added), found, pair, number, parted, reason)

    def front(self, edit: Edit, pair: _Pair, at: int) -> tuple[int, int] | None:
        """The number and 0-based line for an insertion in front of unit `at` of the base, by what
        stands before it; None where that is not kept."""
        if at:
            to = pair.alike.get(at - 1)
            if to is None:
                return None
            last, there = pair.old.units[at - 1].last, pair.new.units[to].last
            number = to + 1
            if self.alignment[last - 1] != there - 1:
                return None
        else:
            last, there, number = pair.old.first - 1, pair.new.first - 1, 0
            if pair.old.sort is Sort.TEXT or self.alignment[last - 1] != there - 1:
                return None
        blank = edit.start - last
        if blank < 0 or any(not self.old.is_blank(last + 1 + one) for one in range(blank)):
            return None
        line = there
        while blank and line < len(self.there) and self.new.is_blank(line + 1):
            line, blank = line + 1, blank - 1
        return None if blank else (number, line)

    def behind(self, edit: Edit, pair: _Pair, at: int) -> tuple[int, int] | None:
        """The same by what stands behind it."""
        if at < len(pair.old.units):
            to = pair.alike.get(at)
            if to is None:
                return None
            first, there = pair.old.units[at].first, pair.new.units[to].first
            number = to
            if self.alignment[first - 1] != there - 1:
                return None
        else:
            first, there = pair.old.last + 1, pair.new.last + 1
            number = len(pair.new.units)
            if pair.old.sort is Sort.TEXT or self.alignment[first - 1] != there - 1:
                return None
        blank = first - 1 - edit.start
        if blank < 0 or any(not self.old.is_blank(edit.start + 1 + one) for one in range(blank)):
            return None
        line = there - 1
        while blank and line and self.new.is_blank(line):
            line, blank = line - 1, blank - 1
        return None if blank else (number, line)

    def inside(self, edit: Edit, after: Outline) -> Spot | None:
        """An edit of lines in the middle of a unit: all of the unit (of a compound statement its
        header) is untouched."""
        first = edit.start + 1
        last = max(first, edit.start + edit.removed)
        for way in reversed(self.old.ways(first, last)):
            group, changed = self.old.group(way), after.group(way)
            if group is None or changed is None or len(group.units) != len(changed.units):
                continue
            for at, unit in enumerate(group.units):
                low = unit.first + (not edit.removed)
                if not low <= first <= last <= unit.last:
                    continue
                end = unit.header if last <= unit.header else unit.last
                run = self.alignment.run(unit.first - 1, end - unit.first + 1)
                pair = self.paired(way)
                if run is None or pair is None or not pair.straight():
                    continue
                to = _alike(group, pair.new).get(at)
                if to is None or pair.new.units[to].first != run + 1:
                    continue
                if not self.is_rest(group, changed, at, at + 1, at + 1):
                    continue
                there = pair.new.units[to]
                if end == unit.last and there.last - there.first != unit.last - unit.first:
                    continue
                kept = replace(pair, kept={**pair.kept, at: to})
                added = changed.units[at]
                reason = (
                    f"{_named(pair, 1, unit)} that it changes stands untouched in the same place"
                )
                reason += " of the syntax tree"
                moved = replace(edit, start=edit.start + run - (unit.first - 1))
                found = _Found(way, at, at + 1, (added,))
                return self.checked(moved, found, kept, to, False, reason, end != unit.last)
        return None

    # -- holding it against the release ---------------------------------------------------------

    def checked(
        self,
        edit: Edit,
        found: _Found,
        pair: _Pair,
        number: int,
        parted: bool,
        reason: str,
        is_header: bool = False,
    ) -> Spot | None:
        """The spot, where nothing speaks against it and the release with this edit alone is what
        it should be."""
        end = number + found.stop - found.start
        if not pair.sides(found.start, found.stop, number):
            return None
        if not is_header and not self.stands(edit, found, pair, number, end):
            return None
        if is_header and Outline.of(spliced(self.there, [edit])) is None:
            return None
        low, high = pair.before(found.start), pair.after(found.stop)
        if pair.kept.get(low, -1) >= number or pair.kept.get(high, end) < end:
            return None
        change = Change(
            sort=pair.old.sort,
            block=pair.way[-1].name if pair.way else "body",
            removed=tuple(pair.old.units[found.start : found.stop]),
            added=found.added,
            old=tuple(pair.old.units),
            new=tuple(pair.new.units),
            at=found.start,
            to=number,
            near_old=(
                tuple(pair.old.units[low + 1 : found.start]),
                tuple(pair.old.units[found.stop : high]),
            ),
            near_new=(
                tuple(pair.new.units[pair.kept[low] + 1 if low >= 0 else 0 : number]),
                tuple(
                    pair.new.units[end : pair.kept[high] if high < len(pair.old.units) else None]
                ),
            ),
            around=pair.around,
            modules=(self.old.tree, self.new.tree),
            parted=parted,
            is_header=is_header,
            fresh=self.fresh,
            lines=(edit.start, edit.added),
        )
        if objection(change) is not None:
            return None
        return Spot(edit, True, reason)

    def stands(self, edit: Edit, found: _Found, pair: _Pair, number: int, end: int) -> bool:
        """Whether the group, with this edit alone, holds just what it should."""
        after = Outline.of(spliced(self.there, [edit]))
        group = after.group(pair.way) if after else None
        if group is None:
            return False
        units = pair.new.units
        return _said(group.units) == [
            *_said(units[:number]), *_said(found.added), *_said(units[end:])
        ]  # fmt: skip


def is_lost(edit: Edit, alignment: Alignment) -> bool:
    """Whether upstream has changed what the edit takes out, or the lines on both sides of what it
    adds: no unit can tell its place then."""
    if edit.removed:
        return alignment.run(edit.start, edit.removed) is None
    return alignment[edit.start - 1] == alignment[edit.start] == GONE


def _solid(outline: Outline, first: int, count: int) -> tuple[int, int] | None:
    """The first and last of some lines that are not blank; None where all are."""
    lines = [line for line in range(first, first + count) if not outline.is_blank(line)]
    return (lines[0], lines[-1]) if lines else None


def _said(units: Sequence[Unit]) -> list[tuple[str, str]]:
    return [(unit.part, unit.whole) for unit in units]


def _alike(old: Group, new: Group) -> dict[int, int]:
    """By number the units that are one and the same on both sides: nothing else in either group
    says the same, or has the same key."""
    found: dict[int, int] = {}
    for name in ("key", "whole"):
        names = [[getattr(unit, name) for unit in group.units] for group in (old, new)]
        often = [Counter(each) for each in names]
        places = {text: at for at, text in enumerate(names[1])}
        for at, text in enumerate(names[0]):
            if often[0][text] == often[1][text] == 1:
                found[at] = places[text]
    if len(set(found.values())) != len(found):
        return {}
    return found


_UNITS = {
    Sort.BLOCK: "statement",
    Sort.ARGUMENTS: "argument",
    Sort.PARAMETERS: "parameter",
    Sort.NAMES: "imported name",
    Sort.TEXT: "line of the docstring",
}
_GROUPS = {Sort.BLOCK: "block", Sort.ARGUMENTS: "call", Sort.PARAMETERS: "signature"}


def _named(pair: _Pair, count: int, unit: Unit) -> str:
    """What a unit, or several of which it is the first, is called in a sentence."""
    word = "comment" if unit.is_comment else _UNITS.get(pair.old.sort, "element")
    return f"the {word}" if count == 1 else f"each {word}"
