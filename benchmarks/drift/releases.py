"""The Python files of two releases that differ between them, from wherever this project reads
releases: the index, a folder of wheels, or (for work without a network) a folder of trees."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from drift.samples import Pair
from vllm_series.trees import DiskTree, ReleaseTree
from vllm_series.upstream.open import UpstreamOptions, open_catalog


@dataclass(frozen=True, slots=True)
class Changed:
    """The files that both releases of a pair have and that differ, by path, sorted."""

    old: Mapping[str, bytes]
    new: Mapping[str, bytes]


def changed_files(
    pairs: Sequence[Pair], trees: Path | None, say: Callable[[str], None]
) -> dict[Pair, Changed]:
    """What differs in each pair. `trees` is a folder of folders, `0.33.0/vllm/…`; None reads the
    wheels of the index, and of those only the files that are asked for.

    Raises the error of a release that cannot be read: a benchmark on less than it says is none.
    """
    if trees is not None:
        return {pair: _differing(_OnDisk(trees / pair.old), _OnDisk(trees / pair.new))
                for pair in pairs}  # fmt: skip
    catalog = open_catalog(UpstreamOptions())
    wanted: dict[str, set[str]] = {}
    for pair in pairs:
        paths = _paths(catalog.tree(pair.old), catalog.tree(pair.new))
        for version in (pair.old, pair.new):
            wanted.setdefault(version, set()).update(paths)
    for error in catalog.prefetch(wanted, say).values():
        raise error
    return {pair: _differing(catalog.tree(pair.old), catalog.tree(pair.new)) for pair in pairs}


def _paths(old: ReleaseTree | _OnDisk, new: ReleaseTree | _OnDisk) -> list[str]:
    before, after = old.listing(), new.listing()
    return sorted(
        path
        for path, digest in before.items()
        if path.endswith(".py") and after.get(path, digest) != digest
    )


def _differing(old: ReleaseTree | _OnDisk, new: ReleaseTree | _OnDisk) -> Changed:
    before: dict[str, bytes] = {}
    after: dict[str, bytes] = {}
    for path in _paths(old, new):
        one, other = old.read(path), new.read(path)
        # An empty file has no place that a diff could tell from another.
        if one and other:
            before[path], after[path] = one, other
    return Changed(before, after)


class _OnDisk:
    """A bare folder with `vllm/` in it, listed by content as a wheel is by its RECORD."""

    def __init__(self, folder: Path) -> None:
        self._tree = DiskTree(folder.resolve())

    def read(self, path: str) -> bytes | None:
        return self._tree.read(path)

    def listing(self) -> dict[str, str]:
        return {
            path: hashlib.sha256((self._tree.root / path).read_bytes()).hexdigest()
            for path in self._tree.paths()
        }
