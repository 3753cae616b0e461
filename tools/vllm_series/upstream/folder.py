"""A release that lies unpacked in a folder: an installation, an unpacked wheel, a checkout."""

from __future__ import annotations

import errno
import io
import os
import stat
from collections.abc import Mapping
from functools import cached_property
from hashlib import sha256

from vllm_series.trees import PACKAGE, DiskTree

_PLAIN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
"""Follows no link and waits for no pipe."""


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
        """Of thousands of small files, so each is asked for what the walk has not told already."""
        found: dict[str, str] = {}
        self._tree.status(f"{PACKAGE}/__init__.py")  # refuses a package that is itself a link
        for path in self._tree.paths():
            try:
                descriptor = os.open(f"{self._tree.root}/{path}", _PLAIN)
            except OSError as error:
                if error.errno in (errno.ELOOP, errno.ENOENT, errno.ENXIO):
                    continue
                raise
            with io.FileIO(descriptor) as file:
                if stat.S_ISREG(os.fstat(descriptor).st_mode):
                    found[path] = sha256(file.readall()).hexdigest()
        return found
