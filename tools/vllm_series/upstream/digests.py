"""Digests of the files of a folder, kept by what the disk says of each, as git's index does.

Answers are kept by the bytes that they were made from, so every file has to be known by its digest,
and reading thousands of them takes longer than all the rest of a second run. A digest is taken from
the last run where size, times, and inode are those of then. A file that was changed just before it
was read may be changed again within the same tick of the clock, so its digest is not kept.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterator
from hashlib import sha256

from vllm_series.trees import PACKAGE
from vllm_series.upstream.store import LISTS, Store

_COMPILED = ".so"
"""Files that are known by what the disk says of them: no patch changes an extension module, and
they are the most of an installation, a gigabyte of it."""
_SETTLED = 2_000_000_000
"""Nanoseconds after which a change of a file shows in its times on every file system (FAT counts
two seconds)."""
_PLAIN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
"""Follows no link and waits for no pipe."""
_BLOCK = 1 << 20
_DIGITS = 64
_END = "\0\0"
"""Between two kept digests; no path holds a NUL."""


def digests(root: str, store: Store, now: int | None = None) -> dict[str, str]:
    """The hex SHA-256 of every regular file under `vllm/` of the folder `root`, by its path; links
    and Python's bytecode are passed over.

    `now` is the time in nanoseconds, None for the clock's. What stands for an extension module is
    another after every change, but not of its bytes alone. Raises OSError for what cannot be read.
    """
    now = time.time_ns() if now is None else now
    key = sha256(b"folder\0" + os.fsencode(root)).hexdigest()
    kept = _kept(store, key)
    known: dict[str, str] = {}
    found: dict[str, str] = {}
    for path, told in _files(f"{root}/{PACKAGE}", PACKAGE):
        times = max(told.st_mtime_ns, told.st_ctime_ns)
        stamp = f"{path}\0{told.st_size} {told.st_mtime_ns} {told.st_ctime_ns} {told.st_ino}"
        is_settled = times + _SETTLED < now
        digest = kept.get(stamp)
        if digest is None:
            if is_settled and path.endswith(_COMPILED):
                digest = sha256(os.fsencode(stamp)).hexdigest()
            else:
                digest = _digest(f"{root}/{path}")
            if digest is None:
                continue
        if is_settled:
            known[stamp] = digest
        found[path] = digest
    if known != kept and store.keeps:
        rows = _END.join([digest + stamp for stamp, digest in known.items()])
        store.put(LISTS, key, os.fsencode(rows))
    return found


def _kept(store: Store, key: str) -> dict[str, str]:
    data = store.get(LISTS, key)
    rows = os.fsdecode(data).split(_END) if data else ()
    return {row[_DIGITS:]: row[:_DIGITS] for row in rows}


def _files(folder: str, prefix: str) -> Iterator[tuple[str, os.stat_result]]:
    """Every regular file below a folder with its path and what the disk says of it."""
    with os.scandir(folder) as entries:
        for entry in entries:
            path = f"{prefix}/{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                if entry.name != "__pycache__":
                    yield from _files(entry.path, path)
            elif entry.is_file(follow_symlinks=False):
                try:
                    yield path, entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue


def _digest(place: str) -> str | None:
    """Of a file's bytes; None where it is gone by now, or a regular file no more."""
    try:
        descriptor = os.open(place, _PLAIN)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOENT, errno.ENXIO):
            return None
        raise
    try:
        told = os.fstat(descriptor)
        if not stat.S_ISREG(told.st_mode):
            return None
        found = sha256()
        at_once = min(told.st_size + 1, _BLOCK)
        while block := os.read(descriptor, at_once):
            found.update(block)
        return found.hexdigest()
    finally:
        os.close(descriptor)
