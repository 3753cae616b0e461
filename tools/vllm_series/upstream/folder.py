"""A release that lies unpacked in a folder: an installation, an unpacked wheel, a checkout."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from hashlib import sha256

from vllm_series.trees import PACKAGE, DiskTree
from vllm_series.upstream.digests import digests
from vllm_series.upstream.store import Store

_HELD = 16 << 20
"""Bytes of texts in memory for each folder."""


class FolderTree:
    """A folder as a release; what is in it now, whatever it is named.

    Texts are held in no cache, since anybody may change them, but for a short while in memory: a
    check reads a file up to three times. Their digests are kept in `store`.
    """

    def __init__(self, tree: DiskTree, release: str, store: Store) -> None:
        self._tree = tree
        self._release = release
        self._store = store
        self._texts: dict[str, bytes | None] = {}
        self._held = 0

    @property
    def label(self) -> str:
        """Distribution and version where the folder tells them, and the folder."""
        return self._tree.label

    @property
    def version(self) -> str | None:
        """The release."""
        return self._release

    @property
    def release(self) -> str:
        """The release."""
        return self._release

    @cached_property
    def identity(self) -> str:
        """The hex SHA-256 of all paths and their digests; reads what changed since last time."""
        rows = "\n".join(f"{path},{digest}" for path, digest in sorted(self._digests.items()))
        return sha256(rows.encode("utf-8", "surrogateescape")).hexdigest()

    def read(self, path: str) -> bytes | None:
        """The whole file, None where there is none; refuses as `DiskTree.read` does."""
        if path not in self._texts:
            text = self._tree.read(path)
            self._held += len(text or b"")
            if self._held > _HELD:
                self._texts.clear()
                self._held = len(text or b"")
            self._texts[path] = text
        return self._texts[path]

    def mode(self, path: str) -> int | None:
        """The permission bits."""
        return self._tree.mode(path)

    def listing(self) -> Mapping[str, str]:
        """Every file under `vllm/` with its digest, as `digests` gives them."""
        return self._digests

    @cached_property
    def _digests(self) -> dict[str, str]:
        self._tree.status(f"{PACKAGE}/__init__.py")  # refuses a package that is itself a link
        if not (self._tree.root / PACKAGE).is_dir():
            return {}
        return digests(os.fspath(self._tree.root), self._store)
