"""A release as its source archive holds it: a gzipped tar with one folder at the top.

A tar has no directory, so it is read once from front to back, never unpacked, and what a member
could do to a disk (links, devices, paths outside) is refused as in a wheel. What it costs is
bounded before it is spent: bytes after gzip, members, and the size of each file that is kept.
"""

from __future__ import annotations

import gzip
import io
import tarfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import IO, cast

from vllm_series.errors import EnvironmentRefusedError
from vllm_series.trees import PACKAGE
from vllm_series.upstream.member import LARGEST, is_plain

_LARGEST_ARCHIVE = 1 << 30
_MOST_KEPT = 512 << 20
_MOST_MEMBERS = 200_000


@dataclass(frozen=True)
class SdistTree:
    """The files under `vllm/` of one source archive, all of them in memory."""

    label: str
    release: str
    identity: str
    texts: Mapping[str, bytes]
    modes: Mapping[str, int]

    @property
    def version(self) -> str | None:
        """The release."""
        return self.release

    def read(self, path: str) -> bytes | None:
        """The whole file, None where there is none."""
        return self.texts.get(path)

    def mode(self, path: str) -> int | None:
        """The permission bits as an installer sets them (0o755 or 0o644)."""
        return self.modes.get(path)

    def listing(self) -> Mapping[str, str]:
        """Every file with its hex SHA-256."""
        return self._digests

    @cached_property
    def _digests(self) -> dict[str, str]:
        return {path: sha256(text).hexdigest() for path, text in self.texts.items()}


def read_sdist(file: IO[bytes], label: str, identity: str) -> SdistTree:
    """The tree of a source archive that `label` names in messages; `identity` is its hex SHA-256.

    Raises EnvironmentRefusedError for an archive that is damaged, hostile, or no sdist of vLLM.
    """
    kept: dict[str, bytes] = {}
    modes: dict[str, int] = {}
    try:
        with (
            gzip.GzipFile(fileobj=file, mode="rb") as inflated,
            tarfile.open(
                fileobj=cast("IO[bytes]", bounded := _Bounded(inflated, label)),
                mode="r|",
                encoding="utf-8",
            ) as archive,
        ):
            seen: set[str] = set()
            size = 0
            for info in archive:
                if len(seen) >= _MOST_MEMBERS:
                    raise _refused(label, f"it has more than {_MOST_MEMBERS} members")
                if not is_plain(info.name):
                    raise _refused(label, f"{info.name[:200]!r} is no plain relative path")
                if info.name in seen:
                    raise _refused(label, f"{info.name} is in it twice")
                seen.add(info.name)
                _, _, path = info.name.partition("/")
                if path != "PKG-INFO" and not path.startswith(f"{PACKAGE}/"):
                    continue
                if info.isdir():
                    continue
                if not info.isreg() or info.issparse():
                    raise _refused(label, f"{info.name} is no regular file")
                size += info.size
                if info.size > LARGEST or size > _MOST_KEPT:
                    raise _refused(label, f"{info.name} is larger than any source")
                member = archive.extractfile(info)
                text = b"" if member is None else member.read()
                if len(text) != info.size:
                    raise _refused(label, f"{info.name} breaks off")
                kept[path] = text
                modes[path] = 0o755 if info.mode & 0o111 else 0o644
            # To the end, where gzip's own check stands.
            while bounded.read():
                pass
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError, ValueError) as error:
        raise _refused(label, f"it cannot be read: {error}") from error
    if len({name.partition("/")[0] for name in seen}) != 1:
        raise _refused(label, "it does not have one folder at the top")
    version = _version(kept.pop("PKG-INFO", b""))
    modes.pop("PKG-INFO", None)
    if not version or not kept:
        raise _refused(label, f"it has no {'PKG-INFO' if kept else PACKAGE + '/'}")
    return SdistTree(label, version, identity, kept, modes)


class _Bounded(io.RawIOBase):
    """What comes out of gzip, refused once it is too much."""

    def __init__(self, file: gzip.GzipFile, label: str) -> None:
        super().__init__()
        self._file = file
        self._label = label
        self._left = _LARGEST_ARCHIVE

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(min(size, 1 << 20) if size >= 0 else 1 << 20)
        self._left -= len(data)
        if self._left < 0:
            raise _refused(self._label, f"it inflates beyond {_LARGEST_ARCHIVE} bytes")
        return data


def _version(text: bytes) -> str:
    for line in text.splitlines():
        if not line:
            break
        name, _, value = line.partition(b":")
        if name.lower() == b"version":
            return value.strip().decode("ascii", "replace")
    return ""


def _refused(label: str, reason: str) -> EnvironmentRefusedError:
    return EnvironmentRefusedError(
        f"{label} is not a source archive to be trusted: {reason}. Nothing of it is used."
    )
