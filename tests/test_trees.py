"""Reading a release from a disk: what is there, what is refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from installed import SCHEDULER
from vllm_series.environments import find_tree
from vllm_series.errors import EnvironmentRefusedError, RefusedError
from vllm_series.trees import DiskTree, Tree, python_of

if TYPE_CHECKING:
    from conftest import Stock


@pytest.fixture
def tree(tmp_path: Path) -> DiskTree:
    package = tmp_path / "vllm"
    (package / "v1").mkdir(parents=True)
    (package / "__init__.py").write_bytes(b"")
    (package / "v1" / "engine.py").write_bytes(b"a\r\nb\x0c\n\xff")
    (package / "v1" / "engine.py").chmod(0o750)
    return DiskTree(tmp_path)


def test_a_file_is_read_whole_with_its_mode(tree: DiskTree) -> None:
    reader: Tree = tree
    assert reader.read("vllm/v1/engine.py") == b"a\r\nb\x0c\n\xff"
    assert reader.mode("vllm/v1/engine.py") == 0o750
    assert reader.read("vllm/__init__.py") == b""


@pytest.mark.parametrize("path", ["vllm/none.py", "vllm/none/none.py", "vllm/__init__.py/x.py"])
def test_no_file_is_none(tree: DiskTree, path: str) -> None:
    assert tree.read(path) is None
    assert tree.mode(path) is None


@pytest.mark.parametrize(
    "path",
    [
        "",
        "vllm",
        "vllm/",
        "/etc/passwd",
        "vllm/../x",
        "../vllm/x",
        "other/x",
        "vllm/./x",
        "vllm/\0",
    ],
)
def test_a_path_outside_the_package_is_refused(tree: DiskTree, path: str) -> None:
    with pytest.raises(RefusedError, match="not a file of the vllm package"):
        tree.read(path)


def test_what_is_not_a_regular_file_is_refused(tree: DiskTree) -> None:
    os.mkfifo(tree.root / "vllm" / "pipe")
    for path in ("vllm/v1", "vllm/pipe"):
        with pytest.raises(RefusedError, match="not a regular file"):
            tree.read(path)


def test_links_are_refused_at_every_level(tree: DiskTree, tmp_path: Path) -> None:
    (tree.root / "vllm" / "link.py").symlink_to(tree.root / "vllm" / "__init__.py")
    (tree.root / "vllm" / "dangling.py").symlink_to(tmp_path / "nowhere")
    (tree.root / "vllm" / "folder").symlink_to(tree.root / "vllm" / "v1")
    for path in ("vllm/link.py", "vllm/dangling.py", "vllm/folder/engine.py", "vllm/folder/no.py"):
        with pytest.raises(EnvironmentRefusedError, match=r"is a link.*--link-mode"):
            tree.read(path)


def test_python_files_are_listed_without_bytecode(tree: DiskTree) -> None:
    (tree.root / "vllm" / "__pycache__").mkdir()
    (tree.root / "vllm" / "__pycache__" / "x.py").write_bytes(b"")
    (tree.root / "vllm" / "data.json").write_bytes(b"")
    assert list(tree.paths()) == ["vllm/__init__.py", "vllm/v1/engine.py"]


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (b"__version__ = version = '0.33.0'\n", "0.33.0"),
        (b'x = 1\nversion = "0.9.1.dev3+gabc"\n', "0.9.1.dev3+gabc"),
        (b"__version__ = compute()\n", None),
        (b"\xff\n", None),
    ],
)
def test_a_bare_folder_has_the_version_that_it_states(
    tree: DiskTree, text: bytes, version: str | None
) -> None:
    assert tree.version is None
    (tree.root / "vllm" / "_version.py").write_bytes(text)
    assert tree.version == version


def test_an_unpacked_release_knows_its_distribution(stock: Stock) -> None:
    tree = find_tree(stock("0.33.0"))
    assert tree.distribution
    assert (tree.distribution.name, tree.version) == ("vllm", "0.33.0")
    assert tree.label == f"vllm 0.33.0 in {tree.root}"
    assert tree.read(SCHEDULER)
    bare = DiskTree(tree.root)
    assert bare.version == "0.33.0"
    assert bare.label == str(tree.root)


def test_the_interpreter_is_read_off_the_place(tmp_path: Path) -> None:
    site = tmp_path / "lib" / "python3.13" / "site-packages"
    site.mkdir(parents=True)
    assert python_of(site) == (None, (3, 13))
    binary = tmp_path / "bin" / "python3.13"
    binary.parent.mkdir()
    binary.write_bytes(b"")
    assert python_of(site) == (binary, (3, 13))
    (tmp_path / "pyvenv.cfg").write_text("home = /usr/bin\n")
    assert python_of(site) == (None, (3, 13))
    (tmp_path / "bin" / "python").write_bytes(b"")
    assert python_of(site) == (tmp_path / "bin" / "python", (3, 13))
    assert python_of(tmp_path) == (None, None)
