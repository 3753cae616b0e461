"""Which lines of one text are still there in another: both files aligned as wholes.

The rarest line that both hold is the surest anchor: the longest run around it is kept, and what
lies before and behind it is aligned in the same way (JGit's histogram diff, which `git diff
--histogram` follows). A run of changed lines that could as well begin a few lines further up or
down is then put where a reader would put it, by git's indent heuristic (git-config(1),
`diff.indentHeuristic`): a blank line between two functions goes with the function that is new, and
decides nothing. Lines that repeat without end are left unaligned; the work is bounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

GONE = -2
"""In place of a line's number: it is not in the other text."""
_MANY = 64
"""A line that stands more often than this in a region is no anchor there (git's limit)."""
_SMALL = 1 << 14
"""Regions without an anchor are compared line by line up to this product of their lengths."""
_WORK = 200
"""How often each line may be looked at before what is left counts as changed."""
_FAR = 100
"""How many lines a run of changed lines is moved at most for its looks (git's limit)."""


@dataclass(frozen=True, slots=True)
class Alignment:
    """For every line of `before`, 0-based, the line of `after` that it became; -1 for none.

    The lines that stay are equal, and in the same order on both sides.
    """

    kept: list[int]
    after: int
    """The number of lines of the other text."""

    def __getitem__(self, index: int) -> int:
        """The line that a line became. The edges of the files stand for lines that both have: -1
        gives -1, one behind the last gives one behind the last. `GONE` for a line that is not
        kept."""
        if index < 0:
            return -1
        if index >= len(self.kept):
            return self.after
        there = self.kept[index]
        return there if there >= 0 else GONE

    def run(self, start: int, count: int) -> int | None:
        """Where `count` lines from `start` stand together in the other text; None where they do
        not."""
        if not count:
            return None
        first = self.kept[start] if start < len(self.kept) else -1
        if first < 0 or self.kept[start : start + count] != list(range(first, first + count)):
            return None
        return first

    def back(self) -> list[int]:
        """For every line of the other text the line that it was; -1 for a new one."""
        origin = [-1] * self.after
        for index, there in enumerate(self.kept):
            if there >= 0:
                origin[there] = index
        return origin


def align(before: Sequence[bytes], after: Sequence[bytes]) -> Alignment:
    """Align two texts, given by their lines with endings."""
    numbers: dict[bytes, int] = {}
    old = [numbers.setdefault(line, len(numbers)) for line in before]
    new = [numbers.setdefault(line, len(numbers)) for line in after]
    gone, added = bytearray(b"\1") * len(old), bytearray(b"\1") * len(new)
    for at, to, count in _runs(old, new):
        gone[at : at + count] = bytes(count)
        added[to : to + count] = bytes(count)
    _settle(old, before, gone, added)
    _settle(new, after, added, gone)
    there = iter([index for index, flag in enumerate(added) if not flag])
    return Alignment([-1 if flag else next(there) for flag in gone], len(new))


def _runs(old: list[int], new: list[int]) -> Iterator[tuple[int, int, int]]:
    """Runs that both have, as start, start there and length; in no order, without overlap."""
    left = _WORK * (len(old) + len(new)) + 10_000
    waiting = [(0, len(old), 0, len(new))]
    while waiting:
        low, high, there, end = waiting.pop()
        if low == high or there == end or left < 0:
            continue
        anchor, work, repeats = _anchor(old, new, low, high, there, end)
        left -= work
        if anchor is None:
            if repeats and (high - low) * (end - there) <= _SMALL:
                yield from _plain(old, new, low, high, there, end)
            continue
        yield anchor
        at, to, count = anchor
        waiting.append((low, at, there, to))
        waiting.append((at + count, high, to + count, end))


def _anchor(
    old: list[int], new: list[int], low: int, high: int, there: int, end: int
) -> tuple[tuple[int, int, int] | None, int, bool]:
    """The run around the rarest line that both regions hold, the longest of those; how many lines
    were looked at; and, where there is none, whether lines that stand too often are in both."""
    places: dict[int, list[int]] = {}
    for index in range(low, high):
        line = old[index]
        if line in places:
            places[line].append(index)
        else:
            places[line] = [index]
    best: tuple[int, int, int] | None = None
    longest, rarest = 0, _MANY + 1
    work = high - low + end - there
    repeats = False
    index = there
    while index < end:
        spots = places.get(new[index])
        follows = index + 1
        if spots is None:
            pass
        elif len(spots) > rarest:
            repeats = True
        else:
            passed = -1
            for spot in spots:
                if spot < passed:
                    continue
                often = len(spots)
                at, to = spot, index
                while at > low and to > there and old[at - 1] == new[to - 1]:
                    at, to = at - 1, to - 1
                    if often > 1:
                        often = min(often, len(places[old[at]]))
                passed, stop = spot + 1, index + 1
                while passed < high and stop < end and old[passed] == new[stop]:
                    if often > 1:
                        often = min(often, len(places[old[passed]]))
                    passed, stop = passed + 1, stop + 1
                work += passed - at
                follows = max(follows, stop)
                if passed - at > longest or often < rarest:
                    best, longest, rarest = (at, to, passed - at), passed - at, often
        index = follows
    return best, work, repeats


def _plain(
    old: list[int], new: list[int], low: int, high: int, there: int, end: int
) -> Iterator[tuple[int, int, int]]:
    """The longest common subsequence of two small regions, line by line."""
    width = end - there + 1
    rows = [[0] * width]
    for at in range(high - 1, low - 1, -1):
        line, below = old[at], rows[-1]
        row = [0] * width
        for to in range(width - 2, -1, -1):
            if line == new[there + to]:
                row[to] = below[to + 1] + 1
            else:
                row[to] = below[to] if below[to] >= row[to + 1] else row[to + 1]
        rows.append(row)
    rows.reverse()
    at, to = 0, 0
    while low + at < high and there + to < end:
        if old[low + at] == new[there + to]:
            yield low + at, there + to, 1
            at, to = at + 1, to + 1
        elif rows[at + 1][to] >= rows[at][to + 1]:
            at += 1
        else:
            to += 1


# -- where a run of changed lines begins -----------------------------------------------------------


def _settle(lines: list[int], texts: Sequence[bytes], flags: bytearray, other: bytearray) -> None:
    """Move every run of flagged lines up or down, where equal lines at its two ends allow it: to
    where the other side has changed lines too, else to where it looks best.

    Between any two lines that stay, both sides have one run, which may be empty; `gap` follows the
    run of the other side that belongs to the one at hand.
    """
    size = len(lines)
    gap = _Gap(other)
    at = 0
    while (start := flags.find(1, at)) >= 0:
        gap.step(start - at)
        end = flags.find(0, start)
        start, end = _slide(lines, texts, flags, start, end if end >= 0 else size, gap)
        if end >= size:
            return
        at = end + 1
        gap.step(1)


class _Gap:
    """A run of changed lines, perhaps empty, between two lines that stay."""

    __slots__ = ("_number", "_stays")

    def __init__(self, flags: bytearray) -> None:
        stays = [index for index, flag in enumerate(flags) if not flag]
        self._stays = [-1, *stays, len(flags)]
        self._number = 0

    def step(self, runs: int) -> None:
        """Go on by so many lines that stay; back, where it is negative."""
        self._number += runs

    @property
    def is_empty(self) -> bool:
        return self._stays[self._number] + 1 == self._stays[self._number + 1]


def _slide(
    lines: list[int], texts: Sequence[bytes], flags: bytearray, start: int, end: int, gap: _Gap
) -> tuple[int, int]:
    """The new start and end of one run; runs that it meets on the way become a part of it."""
    size = len(lines)
    while True:
        length = end - start
        beside = -1
        while start and lines[start - 1] == lines[end - 1]:
            start, end = _up(flags, start, end)
            gap.step(-1)
        highest = end
        if not gap.is_empty:
            beside = end
        while end < size and lines[start] == lines[end]:
            start, end = _down(flags, start, end)
            gap.step(1)
            if not gap.is_empty:
                beside = end
        if end - start == length:
            break
    if end == highest:
        return start, end
    if beside >= 0:
        best = beside
    else:
        length = end - start
        lowest = max(highest, end - length - 1, end - _FAR)
        best = min(
            range(lowest, end + 1),
            key=lambda split: (_Score(texts, split, split - length), -split),
        )
    while end > best:
        start, end = _up(flags, start, end)
        gap.step(-1)
    return start, end


def _up(flags: bytearray, start: int, end: int) -> tuple[int, int]:
    flags[start - 1] = 1
    flags[end - 1] = 0
    return flags.rfind(0, 0, start - 1) + 1, end - 1


def _down(flags: bytearray, start: int, end: int) -> tuple[int, int]:
    flags[start] = 0
    flags[end] = 1
    found = flags.find(0, end + 1)
    return start + 1, found if found >= 0 else len(flags)


class _Score:
    """How bad it looks to cut a text at two places; the constants are git's, fitted by its authors
    to diffs that people had judged."""

    __slots__ = ("indent", "penalty")

    def __init__(self, texts: Sequence[bytes], *splits: int) -> None:
        self.indent = 0
        self.penalty = 0
        for split in splits:
            self._add(texts, split)

    def __lt__(self, other: _Score) -> bool:
        deeper = (self.indent > other.indent) - (self.indent < other.indent)
        return 60 * deeper + self.penalty - other.penalty < 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Score) and not self < other and not other < self

    __hash__ = None  # type: ignore[assignment]

    def _add(self, texts: Sequence[bytes], split: int) -> None:
        at_end = split >= len(texts)
        here = -1 if at_end else _indent(texts[split])
        blanks_above, above = _next_indent(texts, range(split - 1, -1, -1))
        blanks_below, below = _next_indent(texts, range(split + 1, len(texts)))
        if above == -1 and not blanks_above:
            self.penalty += 1
        if at_end:
            self.penalty += 21
        blanks_below = 1 + blanks_below if here == -1 else 0
        blanks = blanks_above + blanks_below
        self.penalty += 6 * blanks_below - 30 * blanks
        indent = here if here != -1 else below
        self.indent += indent
        if indent == -1 or above == -1 or indent == above:
            return
        if indent > above:
            self.penalty += 10 if blanks else -4
        elif below != -1 and below > indent:
            self.penalty += 17 if blanks else 24
        else:
            self.penalty += 17 if blanks else 23


def _next_indent(texts: Sequence[bytes], order: range) -> tuple[int, int]:
    """How many blank lines come next, up to 20, and the indentation behind them; -1 for none."""
    blanks = 0
    for index in order:
        indent = _indent(texts[index])
        if indent != -1:
            return blanks, indent
        blanks += 1
        if blanks == 20:
            return blanks, 0
    return blanks, -1


def _indent(line: bytes) -> int:
    """The indentation in columns, at most 200; -1 for a blank line."""
    code = line.lstrip()
    if not code:
        return -1
    indent = line[: len(line) - len(code)]
    return min(200, len(indent.expandtabs(8)))
