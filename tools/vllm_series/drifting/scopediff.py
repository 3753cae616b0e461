"""What upstream changed in one function between two releases, as a diff of that function alone.

A diff of the whole file between two releases of vLLM often has a hundred hunks; the question here
is about one scope. The two texts of the scope are aligned (`align`), and the line numbers are those
of the files, so that the diff can be found again in them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vllm_series.align import align
from vllm_series.drifting.following import Text
from vllm_series.scope import MODULE

CONTEXT = 3


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a diff: a scope of a text, or none of it. `title` goes into the diff's head,
    `place` is the first line and the end (0-based, not included) of what is asked about."""

    title: str
    text: Text | None = None
    scope: str | None = None
    place: tuple[int, int] | None = None

    @property
    def span(self) -> tuple[int, int]:
        """First line and end of the scope, 0-based; empty where it is not there."""
        return (self.text.range_of(self.scope) if self.text else None) or (0, 0)

    @property
    def lines(self) -> list[bytes]:
        """The scope's lines."""
        first, end = self.span
        return self.text.lines[first:end] if self.text else []

    def has(self, lines: range) -> bool:
        """Whether any of these lines is the scope's: of the module those alone that stand in no
        class or function."""
        if self.text is None or self.text.scopes is None or self.scope != MODULE:
            return bool(lines)
        scopes = self.text.scopes
        return any(scopes.innermost(line + 1) == MODULE for line in lines)


@dataclass(frozen=True, slots=True)
class ScopeDiff:
    """`head` is the two lines of file names; every one of `hunks` is a hunk, and `near` are the
    numbers of those that reach the place."""

    head: str
    hunks: tuple[str, ...]
    near: tuple[int, ...]

    @property
    def whole(self) -> str:
        """The whole diff; empty for none."""
        return self.head + "".join(self.hunks) if self.hunks else ""

    @property
    def beside(self) -> str:
        """The hunks that reach the place; empty for none."""
        return self.head + "".join(self.hunks[at] for at in self.near) if self.near else ""

    @property
    def size(self) -> int:
        """The lines of all hunks."""
        return sum(hunk.count("\n") for hunk in self.hunks)


def scope_diff(old: Side, new: Side) -> ScopeDiff:
    """The diff of one scope. A side without the scope counts as empty."""
    before, after = old.lines, new.lines
    hunks: list[str] = []
    near: list[int] = []
    for low, high, there, end in _groups(before, after):
        first, second = old.span[0] + low, new.span[0] + there
        meets = _meets(old.place, first, first + high - low) or _meets(
            new.place, second, second + end - there
        )
        if not meets and not _own(old, new, (first, before[low:high]), (second, after[there:end])):
            continue
        if meets:
            near.append(len(hunks))
        hunks.append(
            _hunk(
                before[low:high],
                after[there:end],
                first,
                second,
                new.scope or old.scope or "",
            )
        )
    head = f"--- {old.title}\n+++ {new.title}\n"
    return ScopeDiff(head, tuple(hunks), tuple(near))


def _own(
    old: Side, new: Side, before: tuple[int, list[bytes]], after: tuple[int, list[bytes]]
) -> bool:
    """Whether any changed line of two parts of a scope (first line, lines) is its own."""
    gone, added = set(range(len(before[1]))), set(range(len(after[1])))
    for at, there in enumerate(align(before[1], after[1]).kept):
        if there >= 0:
            gone.discard(at)
            added.discard(there)
    return any(old.has(range(before[0] + at, before[0] + at + 1)) for at in gone) or any(
        new.has(range(after[0] + at, after[0] + at + 1)) for at in added
    )


def _meets(place: tuple[int, int] | None, first: int, end: int) -> bool:
    return place is not None and first < max(place[1], place[0] + 1) and place[0] < end


def _groups(before: Sequence[bytes], after: Sequence[bytes]) -> list[tuple[int, int, int, int]]:
    """Every group of changes with its context: lines of both sides, first and end."""
    changes = []
    at = to = 0
    kept = [(old, new) for old, new in enumerate(align(before, after).kept) if new >= 0]
    for old, new in [*kept, (len(before), len(after))]:
        if old > at or new > to:
            changes.append((at, old, to, new))
        at, to = old + 1, new + 1
    groups: list[tuple[int, int, int, int]] = []
    for low, high, there, end in changes:
        if groups and low - groups[-1][1] <= 2 * CONTEXT:
            groups[-1] = (groups[-1][0], high, groups[-1][2], end)
        else:
            groups.append((low, high, there, end))
    wide = []
    for low, high, there, end in groups:
        above = min(CONTEXT, low, there)
        below = min(CONTEXT, len(before) - high, len(after) - end)
        wide.append((low - above, high + below, there - above, end + below))
    return wide


def _hunk(before: list[bytes], after: list[bytes], first: int, second: int, scope: str) -> str:
    out = [
        f"@@ -{_range(first, len(before))} +{_range(second, len(after))} @@ {scope}".rstrip() + "\n"
    ]
    at = to = 0
    kept = [(old, new) for old, new in enumerate(align(before, after).kept) if new >= 0]
    for old, new in [*kept, (len(before), len(after))]:
        out += [_line("-", line) for line in before[at:old]]
        out += [_line("+", line) for line in after[to:new]]
        if old < len(before):
            out.append(_line(" ", before[old]))
        at, to = old + 1, new + 1
    return "".join(out)


def _range(first: int, count: int) -> str:
    """As git writes it: no line counted names the line in front."""
    start = first + 1 if count else first
    return str(start) if count == 1 else f"{start},{count}"


def _line(sign: str, line: bytes) -> str:
    text = line.decode("utf-8", "backslashreplace")
    return sign + text if text.endswith("\n") else f"{sign}{text}\n\\ No newline at end of file\n"
