"""Where the place of a hunk has gone, from one release to the next, whatever became of its text.

A hunk fits or it does not; its place outlives that. A place is a gap between two statements of a
scope, or the lines that the hunk takes out. It is carried from release to release by aligning whole
files (`align`): where the lines beside it are kept, they lead; where they are not, the gap between
the nearest kept lines whose statements are most like the old ones is the place. The scope is
followed as well, by its name, and where that is gone by where its lines have gone.

Lines are 0-based here, as in `align`.
"""

from __future__ import annotations

import ast
import io
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property

from vllm_series.align import GONE, Alignment
from vllm_series.scope import MODULE, Scopes, encloses, is_python

_TRIED = 400
"""Gaps that are compared where much is rewritten."""
_COMPARED = 400
"""Bytes of a statement that are compared."""
_SHARE = 0.5
"""The share of a scope's lines that must have gone elsewhere for that to be its new name."""
_WIDE = 10
"""How many lines more than it had a changed block may have before it counts as rewritten."""


class Text:
    """One file of one release: its lines, scopes and statements. `path` is posix."""

    def __init__(self, path: str, text: bytes) -> None:
        self.path = path
        self.text = text
        self.lines = io.BytesIO(text).readlines()

    @cached_property
    def scopes(self) -> Scopes | None:
        """None where the file is not Python or does not parse."""
        return Scopes.of(self.text, self.path)

    @cached_property
    def _spans(self) -> dict[int, tuple[int, int]]:
        return dict(_statements(self.text, self.lines)) if is_python(self.path) else {}

    def statement(self, line: int) -> tuple[int, int]:
        """First line and end (not included) of the statement that a line is a part of, of its head
        alone for a compound one; comments that stand together are one, any other line is one by
        itself."""
        found = self._spans.get(line)
        if found is None and self.is_comment(line):
            first, end = line, line + 1
            while first and self.is_comment(first - 1):
                first -= 1
            while end < len(self.lines) and self.is_comment(end):
                end += 1
            return first, end
        return found or (line, line + 1)

    def is_comment(self, line: int) -> bool:
        """Whether a line of Python holds a comment alone."""
        return (
            is_python(self.path)
            and line not in self._spans
            and self.lines[line].lstrip().startswith(b"#")
        )

    def range_of(self, scope: str | None) -> tuple[int, int] | None:
        """First line and end (not included) of a scope; the whole file for the module and for
        None; None where there is no such scope."""
        if scope is None or scope == MODULE:
            return 0, len(self.lines)
        found = self.scopes.ranges(scope) if self.scopes else None
        return (found[0] - 1, found[1]) if found else None

    def own(self, scope: str | None) -> bytes:
        """The lines of a scope; of the module those alone that stand in no class or function."""
        first, end = self.range_of(scope) or (0, 0)
        lines = range(first, end)
        scopes = self.scopes
        if scope == MODULE and scopes is not None:
            lines_of = [line for line in lines if scopes.innermost(line + 1) == MODULE]
            return b"".join(self.lines[line] for line in lines_of)
        return b"".join(self.lines[first:end])

    def is_blank(self, line: int) -> bool:
        """Whether a line holds white space alone."""
        return not self.lines[line].strip()


@dataclass(frozen=True, slots=True)
class Spot:
    """One change of a hunk: `count` lines from `start` on are taken out, and others put there."""

    start: int
    count: int = 0

    @property
    def end(self) -> int:
        """The line behind it."""
        return self.start + self.count


@dataclass(frozen=True)
class Place:
    """The spots of one hunk, in order, in one text, and the scope that they are followed in."""

    text: Text
    spots: tuple[Spot, ...]
    scope: str | None

    @property
    def line(self) -> int:
        """The 1-based line of the first change."""
        return self.spots[0].start + 1

    @cached_property
    def form(self) -> tuple[tuple[bytes, ...], ...]:
        """The text of the place, by which two releases have the same form of it or not: for every
        change the statement above, the lines taken out, the statement below. A neighbour outside
        of the scope is empty: what comes behind a function says nothing of its end."""
        span = self.text.range_of(self.scope) or (0, len(self.text.lines))
        return tuple(
            (
                _above(self.text, spot.start, span) or b"",
                b"".join(self.text.lines[spot.start : spot.end]),
                _below(self.text, spot.end, span) or b"",
            )
            for spot in self.spots
        )

    @property
    def shown(self) -> bytes:
        """The form as one text, for reading: where it is indented, below the line that opens its
        block, and an ellipsis for what stands between."""
        first, end = self.lines()
        lines = self.text.lines[first:end]
        indent = min((_indent(line) for line in lines if line.strip()), default=0)
        span = self.text.range_of(self.scope) or (0, len(self.text.lines))
        for line in range(first - 1, span[0] - 1, -1):
            text = self.text.lines[line]
            if text.strip() and _indent(text) < indent:
                head = self.text.statement(line)[0]
                between = [b" " * indent + b"...\n"] if line < first - 1 else []
                opening = self.text.lines[head : line + 1]
                return _dedented([*opening, *between, *lines])
        return _dedented(lines)

    def lines(self) -> tuple[int, int]:
        """First line and end (not included) of all its statements."""
        span = self.text.range_of(self.scope) or (0, len(self.text.lines))
        above = _solid(self.text, range(self.spots[0].start - 1, span[0] - 1, -1))
        below = _solid(self.text, range(self.spots[-1].end, span[1]))
        first = self.spots[0].start if above is None else self.text.statement(above)[0]
        end = self.spots[-1].end if below is None else self.text.statement(below)[1]
        return first, max(end, first)


def follow(place: Place, there: Text, alignment: Alignment, scope: str | None) -> Place:
    """The place in another text, `scope` being what its scope is called there."""
    old_span = place.text.range_of(place.scope) or (0, len(place.text.lines))
    span = there.range_of(scope) or (0, len(there.lines))
    steps = _Steps(place.text, there, alignment, old_span, span)
    low = span[0]
    spots = []
    for spot in place.spots:
        spot = steps.block(spot, low) if spot.count else steps.gap(spot, low)
        spots.append(spot)
        low = max(low, spot.end)
    return Place(there, tuple(spots), scope)


def follow_scope(place: Place, there: Text, alignment: Alignment) -> str | None:
    """What the place's scope is called in another text of, as a rule, the same file; None where it
    is not there any more."""
    scope = place.scope
    if scope is None or scope == MODULE or place.text.scopes is None or there.scopes is None:
        return scope
    own, span = place.text.range_of(scope), there.range_of(scope)
    if own is None:
        return None
    if span is not None:
        led = _led(place, alignment, own)
        if led is None or span[0] <= led < span[1]:
            return scope
        # Both lines beside the place are kept, in another scope: they were moved there.
        inner = there.scopes.innermost(led + 1)
        return inner if inner != MODULE and not encloses(inner, scope) else scope
    return _taken_over(place, there, alignment)


class _Steps:
    """From one text to another, within a scope."""

    def __init__(
        self,
        here: Text,
        there: Text,
        alignment: Alignment,
        old: tuple[int, int],
        new: tuple[int, int],
    ) -> None:
        self.here, self.there, self.alignment = here, there, alignment
        self.old, self.new = old, new

    def kept_above(self, line: int) -> tuple[int, int] | None:
        """The nearest line of code from `line` upwards that is kept in the scope, and its place."""
        return self._kept(range(line, self.old[0] - 1, -1))

    def kept_below(self, line: int) -> tuple[int, int] | None:
        """The same downwards."""
        return self._kept(range(line, self.old[1]))

    def _kept(self, lines: range) -> tuple[int, int] | None:
        for line in lines:
            there = self.alignment[line]
            if there != GONE and not self.here.is_blank(line) and self._inside(there):
                return line, there
        return None

    def _inside(self, line: int) -> bool:
        return self.new[0] <= line < self.new[1]

    def gap(self, spot: Spot, low: int) -> Spot:
        """Where an insertion belongs, no earlier than `low`."""
        above = _solid(self.here, range(spot.start - 1, self.old[0] - 1, -1))
        below = _solid(self.here, range(spot.start, self.old[1]))
        up, down = self.kept_above(spot.start - 1), self.kept_below(spot.start)
        first = max(up[1] + 1 if up else self.new[0], low)
        last = down[1] if down else self.new[1]
        led = up and down and (up[0], down[0]) == (above, below) and last >= first
        if up and led and all(self.there.is_blank(line) for line in range(first, last)):
            return Spot(min(first + spot.start - up[0] - 1, last))
        if last < first:
            first, last = low, max(self.new[1], low)
        wanted = (
            _above(self.here, spot.start, self.old),
            _below(self.here, spot.start, self.old),
        )
        gaps = [gap for gap in range(first, last + 1) if self._is_gap(gap)][:_TRIED] or [first]
        upwards = not (up and up[0] == above)

        def rated(gap: int) -> tuple[float, int]:
            likeness = _alike(wanted[0], _above(self.there, gap, self.new))
            likeness += _alike(wanted[1], _below(self.there, gap, self.new))
            return round(likeness, 3), gap if upwards else -gap

        return Spot(max(gaps, key=rated))

    def _is_gap(self, line: int) -> bool:
        if line in (0, len(self.there.lines)):
            return True
        return self.there.statement(line - 1) != self.there.statement(line)

    def block(self, spot: Spot, low: int) -> Spot:
        """What became of lines that the hunk takes out."""
        run = self.alignment.run(spot.start, spot.count)
        if run is not None and run >= low:
            return Spot(run, spot.count)
        up, down = self.kept_above(spot.start - 1), self.kept_below(spot.end)
        kept = [
            there
            for line in range(spot.start, spot.end)
            if (there := self.alignment[line]) != GONE and there >= low
        ]
        first = max(up[1] + 1 if up else self.new[0], low)
        end = max(down[1] if down else self.new[1], first)
        if kept:
            beside_up = up and up[0] == spot.start - 1
            beside_down = down and down[0] == spot.end
            first = first if beside_up else max(first, kept[0])
            end = end if beside_down else max(first, kept[-1] + 1)
        if end - first > spot.count * 3 + _WIDE:
            return self.gap(Spot(spot.start), low)
        return Spot(first, end - first)


def _led(place: Place, alignment: Alignment, span: tuple[int, int]) -> int | None:
    """Where the line of code in front of the first change went, if it and the one behind stand
    together there. Both must be the scope's own (`span`): what stands beside a function may go
    anywhere."""
    first = place.spots[0]
    above = _solid(place.text, range(first.start - 1, span[0] - 1, -1))
    below = _solid(place.text, range(first.start, span[1]))
    if above is None or below is None:
        return None
    up, down = alignment[above], alignment[below]
    return up if up != GONE and down != GONE and 0 < down - up <= below - above else None


def _taken_over(place: Place, there: Text, alignment: Alignment) -> str | None:
    """The innermost scope that holds most of what is kept of the place's scope, where that is a
    good part of it."""
    span = place.text.range_of(place.scope)
    if span is None or there.scopes is None:
        return None
    solid = [line for line in range(*span) if not place.text.is_blank(line)]
    kept = [alignment[line] for line in solid if alignment[line] != GONE]
    if len(kept) < _SHARE * len(solid):
        return None
    owners: Counter[str] = Counter()
    for line in kept:
        scope: str | None = there.scopes.innermost(line + 1)
        while scope and scope != MODULE:
            owners[scope] += 1
            scope = there.scopes.enclosing(scope)
    is_class = (
        place.text.scopes is not None and place.text.scopes.signature(place.scope or "") is None
    )
    good = [
        scope
        for scope, count in owners.items()
        if count >= 0.8 * len(kept) and (there.scopes.signature(scope) is None) is is_class
    ]
    if not good:
        return None
    found = max(good, key=lambda scope: (scope.count("."), owners[scope]))
    # A class that was always around it has not taken its place.
    return None if encloses(found, place.scope or MODULE) else found


def likeness(old: bytes, new: bytes) -> float:
    """The share of lines that two texts have in common, blank ones aside, 0 to 1."""
    one = Counter(line.strip() for line in old.splitlines() if line.strip())
    two = Counter(line.strip() for line in new.splitlines() if line.strip())
    larger = max(one.total(), two.total())
    return (one & two).total() / larger if larger else 1.0


def _alike(old: bytes | None, new: bytes | None) -> float:
    if old is None or new is None:
        return 1.0 if old is new else 0.0
    if old == new:
        return 1.0
    one, two = old.strip()[:_COMPARED], new.strip()[:_COMPARED]
    return 0.95 * SequenceMatcher(None, one, two, autojunk=False).ratio()


def _indent(line: bytes) -> int:
    return len(line) - len(line.lstrip(b" \t"))


def _dedented(lines: list[bytes]) -> bytes:
    indent = min((_indent(line) for line in lines if line.strip()), default=0)
    return b"".join(line[indent:] if line.strip() else b"\n" for line in lines)


def _solid(text: Text, lines: range) -> int | None:
    return next((line for line in lines if not text.is_blank(line)), None)


def _above(text: Text, gap: int, span: tuple[int, int]) -> bytes | None:
    """The statement in front of a gap; None at the start of the scope."""
    line = _solid(text, range(gap - 1, span[0] - 1, -1))
    if line is None:
        return None
    first, _end = text.statement(line)
    return b"".join(text.lines[first : line + 1])


def _below(text: Text, gap: int, span: tuple[int, int]) -> bytes | None:
    """The statement behind a gap; None at the end of the scope."""
    line = _solid(text, range(gap, span[1]))
    if line is None:
        return None
    _first, end = text.statement(line)
    return b"".join(text.lines[line:end])


def _statements(text: bytes, lines: list[bytes]) -> Iterator[tuple[int, tuple[int, int]]]:
    """Every line that is a part of a statement, with that statement's first line and end."""
    if len(text.splitlines()) != len(lines):
        return  # Python ends lines where git does not
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt):
            first, end = node.lineno - 1, node.end_lineno or node.lineno
            if hasattr(node, "body") or hasattr(node, "cases"):
                end = _head_end(node, lines)
            for line in range(first, end):
                yield line, (first, end)


def _head_end(node: ast.stmt, lines: list[bytes]) -> int:
    """The line behind the head of a compound statement: where its colon ends a line."""
    inner = getattr(node, "body", None) or getattr(node, "cases", None)
    body = inner[0] if inner else node
    start: int = getattr(getattr(body, "pattern", body), "lineno", node.lineno)
    for line in range(node.lineno - 1, start - 1):
        if lines[line].split(b"#")[0].rstrip().endswith(b":"):
            return line + 1
    return node.lineno
