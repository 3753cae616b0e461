"""The lock is that of the folder at its place, also when the folder is replaced meanwhile."""

from __future__ import annotations

import fcntl
import os
import shutil
import threading
from typing import TYPE_CHECKING

import pytest

from vllm_series.installation.lock import exclusive
from vllm_series.trees import DiskTree

if TYPE_CHECKING:
    from pathlib import Path


def is_free(folder: Path) -> bool:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def test_whoever_waited_while_vllm_was_reinstalled_locks_the_new_folder(tmp_path: Path) -> None:
    tree = DiskTree(tmp_path / "tree")
    tree.root.mkdir()
    waits, entered, done = threading.Event(), threading.Event(), threading.Event()

    def other() -> None:
        with exclusive(tree, lambda _message: waits.set()):
            entered.set()
            done.wait(30)

    waiter = threading.Thread(target=other)
    with exclusive(tree, pytest.fail):
        waiter.start()
        assert waits.wait(30)
        shutil.rmtree(tree.root)
        tree.root.mkdir()
    try:
        assert entered.wait(30)
        assert not is_free(tree.root)
    finally:
        done.set()
        waiter.join()
    assert is_free(tree.root)
