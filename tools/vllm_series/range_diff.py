"""Two series side by side: what of their patches is compared, and what git says of each pair.

The comparison is git's own range-diff (git-range-diff(1)), which sets diffs against diffs. Trailers
that differ between any two lines (the base, the day of the last change) say nothing of a patch and
would make every pair differ, so they are left out of the messages unless asked for. Blob ids and
line numbers git leaves out by itself.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from vllm_series.patch import Patch

OF_THE_LINE = ("base", "last-update")
"""Trailers that differ because the lines do."""

_HEAD = re.compile(
    rb" *(?P<left>\d+|-): +(?:[0-9a-f]+|-+) (?P<sign>[=!<>]) +(?P<right>\d+|-): +(?:[0-9a-f]+|-+) "
)


class Relation(Enum):
    """How the patches of a pair stand to each other; the values are git's signs."""

    SAME = "="
    CHANGED = "!"
    LEFT_ONLY = "<"
    RIGHT_ONLY = ">"


@dataclass(frozen=True, slots=True)
class Pair:
    """A patch of each side, or of one alone. `left` and `right` count from 0 in their series.

    `diff` is git's comparison of the two, from the third column on; empty where there is none.
    """

    relation: Relation
    left: int | None
    right: int | None
    diff: str = ""


def compared(patch: Patch, full: bool = False) -> Patch:
    """The patch with the trailers that are compared; with `full` all of them."""
    if full:
        return patch
    kept = tuple((key, value) for key, value in patch.trailers if key.lower() not in OF_THE_LINE)
    return replace(patch, trailers=kept)


def pairs(told: bytes) -> tuple[Pair, ...]:
    """The pairs of an output of git range-diff without colours, in its order.

    A line in the first column starts a pair, what belongs to it is four columns in.
    """
    found: list[Pair] = []
    bodies: list[list[bytes]] = []
    for line in told.split(b"\n"):
        head = _HEAD.match(line)
        if head is None:
            if bodies:
                bodies[-1].append(line[4:])
            continue
        found.append(
            Pair(
                Relation(head["sign"].decode("ascii")), _place(head["left"]), _place(head["right"])
            )
        )
        bodies.append([])
    return tuple(replace(pair, diff=_text(body)) for pair, body in zip(found, bodies, strict=True))


def _place(number: bytes) -> int | None:
    return None if number == b"-" else int(number) - 1


def _text(lines: Sequence[bytes]) -> str:
    text = b"\n".join(lines).strip(b"\n").decode("utf-8", "backslashreplace")
    return f"{text}\n" if text else ""
