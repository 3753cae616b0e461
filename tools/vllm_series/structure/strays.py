"""Whether lines that a change leaves alone are in the same function or class behind it.

A patch that takes a class out and puts another in its place leaves a line between the two that
upstream has added there: it fits, it compiles, and it stands in a class that it was not made for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from vllm_series.scope import Scopes
from vllm_series.threeway import Edit

_WORD = re.compile(rb"[A-Za-z_]{2}")


def strays(
    base: tuple[bytes, bytes, Sequence[Edit]], here: tuple[bytes, bytes, Sequence[Edit]], path: str
) -> bool:
    """Whether a line that the edits keep has come into another scope, and not because the patch
    moves lines so where it was made. Each side is its text before, that after, and the edits of the
    one that give the other. False where a side does not parse, since nothing is known there."""
    intended = set(_moves(*base, path))
    return any(move not in intended for move in _moves(*here, path))


def _moves(
    before: bytes, after: bytes, edits: Sequence[Edit], path: str
) -> Iterator[tuple[str, str]]:
    """The scopes, before and after, of every kept line that changes its scope; lines without a word
    in them belong to nobody."""
    old, new = Scopes.of(before, path), Scopes.of(after, path)
    if old is None or new is None:
        return
    lines = before.splitlines(keepends=True)
    at = shift = 0
    for edit in (*edits, Edit(len(lines), 0, ())):
        for index in range(at, edit.start):
            if _WORD.search(lines[index]):
                one, two = old.innermost(index + 1), new.innermost(index + shift + 1)
                if one != two:
                    yield one, two
        at = edit.start + edit.removed
        shift += len(edit.added) - edit.removed
