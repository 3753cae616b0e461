"""The nearest place of a hunk that is not placed, as a diff for the reader's eyes.

Nothing here decides anything: `place` has refused already, and shows where it looked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

_FOLDS: tuple[tuple[str, Callable[[bytes], bytes]], ...] = (
    ("line endings", lambda line: line.rstrip(b"\r\n")),
    ("white space", lambda line: b" ".join(line.split())),
)
_WHITE = b" \t\n\r\v\f"
_COMMON = 8
"""A line that stands more often than this says little of the place."""


def only_difference(wanted: Sequence[bytes], lines: Sequence[bytes]) -> str:
    """`line endings` or `white space` where `wanted` stands in `lines` but for them; else empty."""
    # Most hunks differ in more than white space, which shows without a look at each line.
    bare, hay = (b"".join(texts).translate(None, _WHITE) for texts in (wanted, lines))
    if bare not in hay:
        return ""
    for word, fold in _FOLDS:
        needle, hay = (b"\n" + b"\n".join(map(fold, texts)) + b"\n" for texts in (wanted, lines))
        if needle in hay:
            return word
    return ""


def nearest(wanted: Sequence[bytes], lines: Sequence[bytes], expected: int) -> int:
    """Index in `lines` around which most of `wanted` stands; ties go to `expected`."""
    votes: dict[int, int] = {}
    known: dict[bytes, list[int]] = {line: [] for line in wanted if line.strip()}
    for index, line in enumerate(lines):
        if line in known:
            known[line].append(index)
    for index, line in enumerate(wanted):
        places = known.get(line, [])
        for place in places if len(places) <= _COMMON else ():
            start = max(0, place - index)
            votes[start] = votes.get(start, 0) + 1
    if not votes:
        return max(0, min(expected, len(lines) - len(wanted)))
    return min(votes, key=lambda start: (-votes[start], abs(start - expected)))


def shown(
    wanted: Sequence[bytes], there: Sequence[bytes], start: int, what: str = "the hunk expects"
) -> str:
    """A diff from the hunk's lines to those of the tree that begin at 0-based `start`; `what` says
    whose lines they are."""
    import difflib

    body = difflib.unified_diff(
        _readable(wanted),
        _readable(there),
        what,
        f"line {start + 1} holds",
        lineterm="",
        n=len(wanted),
    )
    return "\n".join(line.replace("\r", "\\r") for line in body if not line.startswith("@@"))


def _readable(lines: Sequence[bytes]) -> list[str]:
    return [line.decode("utf-8", "backslashreplace").rstrip("\n") for line in lines]
