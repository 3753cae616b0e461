"""What a file that a release does not have may have become there.

As git finds renames: first a file with the very same bytes, then the files that only this release
has, the likeliest names first, each with the share of text that it kept (git's similarity index,
`git diff -M`: bytes of common lines by the size of the larger file). Only so many are read, since
each is a member of a wheel on the index. Older and newer releases are asked alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from difflib import SequenceMatcher
from pathlib import PurePosixPath

from vllm_series.answers import Rename

SHOWN = 3
READ = 20
"""Files read for each missing one."""
LEAST = 20
"""Per cent below which a file is not named."""


def likely(
    path: str, listing: Mapping[str, str], before: Mapping[str, str] | None
) -> tuple[str, ...]:
    """The files of `listing` that are worth a look for `path`, the likeliest first, at most `READ`.

    `listing` and `before` (the release that has `path`; None where that is not known) give content
    digests by path. A file that `before` has, with the same bytes, is no new name of anything.
    """
    own = before.get(path) if before else None
    if own is not None and (same := sorted(p for p, d in listing.items() if d == own)):
        return tuple(same[:SHOWN])
    suffix = PurePosixPath(path).suffix
    found = [
        (_nearness(path, other, known=before is not None and other in before), other)
        for other, digest in listing.items()
        if other.endswith(suffix) and not (before and before.get(other) == digest)
    ]
    found.sort(key=lambda item: (-item[0], item[1]))
    return tuple(other for _, other in found[:READ])


def renames(wanted: bytes, texts: Mapping[str, bytes]) -> tuple[Rename, ...]:
    """The best of `texts` by similarity to `wanted`, the text of the missing file."""
    size = len(wanted)
    lines = Counter(wanted.splitlines(keepends=True))
    rated = [Rename(path, _similarity(lines, size, text)) for path, text in texts.items()]
    rated = [rename for rename in rated if rename.similarity >= LEAST]
    return tuple(sorted(rated, key=lambda one: (-one.similarity, one.path))[:SHOWN])


def kept(wanted: Collection[bytes], texts: Mapping[str, bytes]) -> tuple[Rename, ...]:
    """The same where only some lines of the missing file are known, those that a patch shows: the
    share of them that a file holds."""
    lines = Counter(line for line in wanted if line.strip())
    size = sum(len(line) * count for line, count in lines.items())
    rated = []
    for path, text in texts.items():
        there = Counter(text.splitlines(keepends=True))
        rated.append(Rename(path, 100 * _common(lines, there) // size if size else 0))
    rated = [rename for rename in rated if rename.similarity >= LEAST]
    return tuple(sorted(rated, key=lambda one: (-one.similarity, one.path))[:SHOWN])


def _similarity(lines: Counter[bytes], size: int, text: bytes) -> int:
    larger = max(size, len(text))
    if not larger:
        return 100
    there = Counter(text.splitlines(keepends=True))
    share = 100 * _common(lines, there) // larger
    # Git keeps 100 for the very same bytes, too.
    return min(share, 99) if lines != there or size != len(text) else share


def _common(lines: Counter[bytes], there: Counter[bytes]) -> int:
    return sum(len(line) * count for line, count in (lines & there).items())


def _nearness(path: str, other: str, *, known: bool) -> float:
    """How likely `other` is the new name of `path`, by names alone; a file that the release with
    `path` has as well, under that name, comes after all new ones of a like name."""
    one, two = PurePosixPath(path), PurePosixPath(other)
    name = 1.0 if one.name == two.name else SequenceMatcher(None, one.stem, two.stem).ratio()
    if one.name == "__init__.py" and two.name == one.name:
        name = 0.3
    # `vllm/worker/model_runner.py` may become the package `vllm/worker/model_runner/`.
    inside = one.stem in two.parts or two.stem in one.parts
    folders = SequenceMatcher(None, one.parts[:-1], two.parts[:-1]).ratio()
    return 2 * name + folders + 0.7 * inside - 1.2 * known
