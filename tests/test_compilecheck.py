"""Only what compiles for the target's own Python is written."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import warnings
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from installed import uv
from memory import measured
from vllm_series.compilecheck import check_compiles
from vllm_series.environments import find_tree
from vllm_series.errors import EnvironmentRefusedError
from vllm_series.trees import DiskTree

if TYPE_CHECKING:
    from conftest import Stock

HERE = (sys.version_info[0], sys.version_info[1])


@lru_cache
def other_python() -> tuple[Path, tuple[int, int]]:
    """A Python that differs from this one in whether it knows `def f[T]`, new in 3.12.

    Any that uv or pyenv know or that is on PATH. On a machine with a single Python it is that one,
    asked from outside as any other; what needs the difference is skipped then.
    """
    wanted = ("3.11", "3.10") if HERE >= (3, 12) else ("3.12", "3.13", "3.14")
    candidates: list[str | Path] = []
    for version in wanted:
        listed = subprocess.run(
            [uv(), "python", "find", version], capture_output=True, text=True, check=False
        )
        candidates += [listed.stdout.strip(), f"python{version}"]
        pyenv = os.environ.get("PYENV_ROOT")
        if pyenv:
            candidates += sorted(Path(pyenv, "versions").glob(f"{version}.*/bin/python"))
    for candidate in candidates:
        found = shutil.which(candidate) if candidate else None
        if found:
            asked = subprocess.run(
                [found, "-c", "import sys; print(*sys.version_info[:2])"],
                capture_output=True,
                text=True,
                check=False,
            )
            if asked.returncode == 0:
                major, minor = map(int, asked.stdout.split())
                return Path(found), (major, minor)
    return Path(sys.executable), HERE


def tree_for(folder: Path, python: Path | None, version: tuple[int, int] | None) -> DiskTree:
    return DiskTree(folder, None, python, version)


@pytest.fixture(params=["in process", "own interpreter", "other version"])
def tree(request: pytest.FixtureRequest, tmp_path: Path) -> DiskTree:
    """The same questions to each of the ways of asking."""
    if request.param == "in process":
        return tree_for(tmp_path, None, None)
    if request.param == "own interpreter":
        return tree_for(tmp_path, Path(sys.executable), None)
    return tree_for(tmp_path, *other_python())


def test_what_does_not_compile_is_named_with_its_line(tree: DiskTree) -> None:
    found = check_compiles(
        tree,
        [
            ("vllm/good.py", None, b"x = 1\n"),
            ("vllm/open.py", b"x = 1\n", b"x = 1\ny = (\n"),
            ("vllm/outside.py", None, b"\nreturn 1\n"),
            ("vllm/null.py", b"", b"x\0y"),
            ("vllm/latin.py", b"", b"# coding: utf-8\nx = '\xff'\n"),
            ("vllm/text.txt", b"", b"("),
            ("vllm/gone.py", b"(", None),
        ],
    )
    assert [(failure.path, failure.exempt) for failure in found] == [
        ("vllm/open.py", False),
        ("vllm/outside.py", False),
        ("vllm/null.py", False),
        ("vllm/latin.py", False),
    ]
    assert found[0].line == 2
    assert str(found[1]).startswith("vllm/outside.py:2 does not compile for Python ")
    assert "'return' outside function" in str(found[1])


def test_a_file_that_never_compiled_is_exempt_and_named(tree: DiskTree) -> None:
    (failure,) = check_compiles(tree, [("vllm/py2.py", b"print 1\n", b"print 2\n")])
    assert failure.exempt
    assert failure.path == "vllm/py2.py"


def test_each_patch_of_a_file_is_judged(tree: DiskTree) -> None:
    found = check_compiles(
        tree, [("vllm/a.py", b"x = 1\n", b"x = (\n"), ("vllm/a.py", b"x = (\n", b"x = 2\n")]
    )
    assert [(failure.path, failure.exempt) for failure in found] == [("vllm/a.py", False)]


def test_nothing_runs_and_no_warning_is_shown(tree: DiskTree, tmp_path: Path) -> None:
    trap = tmp_path / "ran"
    text = f"open({str(trap)!r}, 'w')\nx = '\\d' is 3\n".encode()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert check_compiles(tree, [("vllm/trap.py", None, text)]) == []
    assert seen == []
    assert not trap.exists()


def test_the_syntax_is_that_of_the_target() -> None:
    python, version = other_python()
    if (version >= (3, 12)) == (HERE >= (3, 12)):
        pytest.skip("no Python on the other side of 3.12 is here; get one from uv or your system")
    newer = b"def f[T](x: T) -> T:\n    return x\n"
    for tree in (
        tree_for(Path("/"), python, version),
        tree_for(Path("/"), Path(sys.executable), HERE),
    ):
        knows = (tree.python_version or (0, 0)) >= (3, 12)
        assert bool(check_compiles(tree, [("vllm/new.py", None, newer)])) is not knows


def test_an_interpreter_that_cannot_be_asked_is_named(tmp_path: Path) -> None:
    item = [("vllm/a.py", None, b"x = 1\n")]
    with pytest.raises(EnvironmentRefusedError, match=r"python2\.0"):
        check_compiles(tree_for(tmp_path, None, (2, 0)), item)
    stopped = tmp_path / "python"
    stopped.write_text("#!/bin/sh\nexit 7\n")
    stopped.chmod(0o755)
    with pytest.raises(EnvironmentRefusedError, match="status 7"):
        check_compiles(tree_for(tmp_path, stopped, (2, 0)), item)
    stopped.write_bytes(b"\x7fELF broken")
    with pytest.raises(EnvironmentRefusedError, match="cannot be started"):
        check_compiles(tree_for(tmp_path, stopped, (2, 0)), item)
    assert check_compiles(tree_for(tmp_path, None, (2, 0)), []) == []


WHOLE = """
import sys
from pathlib import Path
from vllm_series.compilecheck import check_compiles
from vllm_series.environments import find_tree
tree = find_tree(Path(sys.argv[1]))
items = [(path, None, tree.read(path)) for path in tree.paths()]
print(len(items), check_compiles(tree, items))
"""


def test_a_whole_release_compiles_in_little_memory(stock: Stock) -> None:
    printed, kilobytes = measured(WHOLE, stock("0.33.0"))
    count, _, failures = printed.partition(" ")
    assert int(count) > 2000
    assert failures == "[]"
    assert kilobytes < 300_000


def test_failures_among_many_files_keep_their_order(stock: Stock) -> None:
    tree = find_tree(stock("0.33.0"))
    items: list[tuple[str, bytes | None, bytes | None]] = [
        (path, None, tree.read(path)) for path in list(tree.paths())[:800]
    ]
    broken = {10, 400, 799}
    items = [
        (path, before, (after or b"") + b"\n(") if number in broken else (path, before, after)
        for number, (path, before, after) in enumerate(items)
    ]
    assert sum(len(after or b"") for _, _, after in items) > 4_000_000
    found = check_compiles(tree, items)
    assert [failure.path for failure in found] == [items[number][0] for number in sorted(broken)]
