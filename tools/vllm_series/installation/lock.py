"""One writer at a time, and no reader meanwhile: a lock on a tree that leaves nothing behind.

The lock is `flock` on the folder that holds the state (the dist-info, or the root of a bare tree).
A folder can be locked without write permission, so status and verify work on a read-only tree, no
lock file has to be listed in RECORD, and the kernel drops the lock of a process that was killed.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from vllm_series.errors import EnvironmentRefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from vllm_series.trees import DiskTree


@contextmanager
def exclusive(tree: DiskTree, waiting: Callable[[str], None] | None = None) -> Iterator[None]:
    """Hold the tree alone; where another process holds it, call `waiting` once and wait."""
    descriptor = _locked(_folder(tree), fcntl.LOCK_EX, waiting)
    try:
        yield
    finally:
        os.close(descriptor)


def shared(tree: DiskTree, waiting: Callable[[str], None] | None = None) -> Callable[[], None]:
    """Keep writers out while others may read too; what it gives ends that.

    Where a tree cannot be locked it is read all the same.
    """
    try:
        descriptor = _locked(_folder(tree), fcntl.LOCK_SH, waiting)
    except EnvironmentRefusedError:
        return lambda: None
    return lambda: os.close(descriptor)


def _folder(tree: DiskTree) -> Path:
    return tree.distribution.dist_info if tree.distribution else tree.root


def _locked(folder: Path, kind: int, waiting: Callable[[str], None] | None) -> int:
    while True:
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise EnvironmentRefusedError(
                f"{folder} cannot be opened: {error.strerror}. Was vLLM uninstalled just now?"
            ) from error
        try:
            try:
                fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                if waiting:
                    waiting(f"waiting for another vllm-series that works on {folder.parent}")
                    waiting = None
                fcntl.flock(descriptor, kind)
            if _is_still(folder, descriptor):
                return descriptor
        except OSError as error:
            os.close(descriptor)
            raise EnvironmentRefusedError(
                f"{folder} cannot be locked: {error.strerror}. "
                "Work on a file system with locks (NFS needs its lock service)."
            ) from error
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _is_still(folder: Path, descriptor: int) -> bool:
    """Whether the locked folder is the one at its path; a reinstall puts a new one there."""
    try:
        return os.path.samestat(folder.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
