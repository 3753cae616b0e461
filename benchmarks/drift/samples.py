"""One-line edits at random places of real files, the same ones for the same seed.

A sample is drawn from the file it changes, its number and the seed alone, so that more samples, or
fewer cores, never change the ones before them. Every edit leaves a file that Python parses: an
insertion is a statement where one may stand and a comment elsewhere, a deletion takes a line that
may go. Only so can the edit's scope be told, before and after.
"""

from __future__ import annotations

import io
import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from vllm_series.scope import parse_error

_TRIES = 40


class Kind(Enum):
    """What the one-line edit does."""

    INSERT = "insert"
    CHANGE = "change"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Pair:
    """The release that a patch is written on, and the one that it is brought to."""

    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.old} → {self.new}"


@dataclass(frozen=True, slots=True)
class Sample:
    """One edit of one file. `line` is 1-based: the line that is changed or deleted, or the one in
    front of the inserted line (0 is the start of the file). `before` is the file in the older
    release, `edited` the same with the edit, `target` the file in the newer release."""

    pair: Pair
    kind: Kind
    seed: int
    number: int
    path: str
    line: int
    before: bytes
    edited: bytes
    target: bytes

    @property
    def new_text(self) -> bytes:
        """The line that the edit brings in, empty for a deletion."""
        if self.kind is Kind.DELETE:
            return b""
        index = self.line if self.kind is Kind.INSERT else self.line - 1
        return split(self.edited)[index]


def split(text: bytes) -> list[bytes]:
    """The lines of a file as git counts them, endings kept."""
    return io.BytesIO(text).readlines()


def spliced(text: bytes, line: int, kind: Kind, new_text: bytes) -> bytes:
    """`text` with a one-line edit at `line`, counted as in `Sample`."""
    lines = split(text)
    if kind is Kind.INSERT:
        lines[line:line] = [new_text]
    else:
        lines[line - 1 : line] = [new_text] if new_text else []
    return b"".join(lines)


def pick_path(paths: Sequence[str], pair: Pair, kind: Kind, seed: int, number: int) -> str:
    """The file that a sample changes; every changed file is as likely as any other."""
    return _random(pair, kind, seed, number, "path").choice(paths)


def draw(
    pair: Pair, kind: Kind, seed: int, number: int, path: str, before: bytes, target: bytes
) -> Sample | None:
    """The sample with this number in this file; None where no line of it can be edited so that it
    still parses (a file of one docstring, say) and where this Python cannot parse the file."""
    chance = _random(pair, kind, seed, number, path)
    lines = split(before)
    if not lines or parse_error(before) is not None:
        return None
    for _ in range(_TRIES):
        line = chance.randrange(len(lines) + 1) if kind is Kind.INSERT else _solid(lines, chance)
        if line is None or (kind is Kind.INSERT and line and not lines[line - 1].endswith(b"\n")):
            continue
        for new_text in _texts(kind, lines, line, number, chance):
            edited = spliced(before, line, kind, new_text)
            if parse_error(edited) is None:
                return Sample(pair, kind, seed, number, path, line, before, edited, target)
    return None


def _random(pair: Pair, kind: Kind, seed: int, number: int, what: str) -> random.Random:
    return random.Random(f"{seed} {pair.old} {pair.new} {kind.value} {number} {what}")


def _solid(lines: Sequence[bytes], chance: random.Random) -> int | None:
    line = chance.randrange(len(lines)) + 1
    return line if lines[line - 1].strip() else None


def _texts(
    kind: Kind, lines: Sequence[bytes], line: int, number: int, chance: random.Random
) -> list[bytes]:
    """What the edit may write, best first; the first that parses is taken."""
    if kind is Kind.DELETE:
        return [b""]
    name = b"drift_sample_%d" % number
    if kind is Kind.CHANGE:
        text = lines[line - 1]
        bare = text.rstrip(b"\r\n")
        return [bare + b"  # " + name + text[len(bare) :]]
    above = next((text for text in reversed(lines[:line]) if text.strip()), b"")
    below = next((text for text in lines[line:] if text.strip()), b"")
    indents = [text[: len(text) - len(text.lstrip(b" \t"))] for text in (above, below)]
    chance.shuffle(indents)
    beside = lines[line - 1] if line else lines[0]
    end = b"\r\n" if beside.endswith(b"\r\n") else b"\n"
    statements = [indent + name + b" = None" + end for indent in indents]
    return [*statements, indents[0] + b"# " + name + end]
