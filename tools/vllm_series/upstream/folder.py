"""A release that lies unpacked in a folder: an installation, an unpacked wheel, a checkout."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from hashlib import sha256

from vllm_series.errors import RefusedError
from vllm_series.trees import DiskTree


class FolderTree:
    """A folder as a release; what is in it now, whatever it is named.

    Texts are held in no cache, since anybody may change them.
    """

    def __init__(self, tree: DiskTree, release: str) -> None:
        self._tree = tree
        self._release = release

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
        """The hex SHA-256 of all paths and their digests; reads the whole package once."""
        rows = "\n".join(f"{path},{digest}" for path, digest in sorted(self._digests.items()))
        return sha256(rows.encode("utf-8", "surrogateescape")).hexdigest()

    def read(self, path: str) -> bytes | None:
        """The whole file, None where there is none; refuses as `DiskTree.read` does."""
        return self._tree.read(path)

    def mode(self, path: str) -> int | None:
        """The permission bits."""
        return self._tree.mode(path)

    def listing(self) -> Mapping[str, str]:
        """Every Python file under `vllm/` with its hex SHA-256; links are passed over."""
        return self._digests

    @cached_property
    def _digests(self) -> dict[str, str]:
        found = {}
        for path in self._tree.paths():
            try:
                text = self._tree.read(path)
            except RefusedError:
                continue
            if text is not None:
                found[path] = sha256(text).hexdigest()
        return found
