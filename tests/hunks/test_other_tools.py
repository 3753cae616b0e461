"""Git, quilt, GNU patch and this tool put every patch on stock files, with the same bytes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hunks.conftest import DISTINCT, folder_of, put_stock

if TYPE_CHECKING:
    from collections.abc import Callable


def run(tree: Path, *command: str | Path, **extra: str) -> None:
    """Run a tool in `tree`, sealed off from the user's configuration."""
    home = tree.with_name(f"{tree.name}-home")
    home.mkdir(exist_ok=True)
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "LC_ALL": "C",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CEILING_DIRECTORIES": str(tree.parent),
        **extra,
    }
    for role in ("AUTHOR", "COMMITTER"):
        environ[f"GIT_{role}_NAME"] = "A Tester"
        environ[f"GIT_{role}_EMAIL"] = "tester@example.com"
    done = subprocess.run(
        command,
        cwd=tree,
        env=environ,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}"


def git_am(tree: Path, folder: Path, patches: list[Path]) -> None:
    run(tree, "git", "init", "--quiet")
    run(tree, "git", "add", "--all")
    run(tree, "git", "commit", "--quiet", "--message=stock")
    run(tree, "git", "am", "--quiet", *patches)
    shutil.rmtree(tree / ".git")


def git_apply(tree: Path, folder: Path, patches: list[Path]) -> None:
    run(tree, "git", "apply", *patches)


def quilt_push(tree: Path, folder: Path, patches: list[Path]) -> None:
    run(
        tree, "quilt", "--quiltrc=-", "push", "-a", "--fuzz=0",
        QUILT_PATCHES=str(folder), QUILT_SERIES=str(folder / "series"),
    )  # fmt: skip
    shutil.rmtree(tree / ".pc")


def gnu_patch(tree: Path, folder: Path, patches: list[Path]) -> None:
    for each in patches:
        run(tree, "patch", "-p1", "-F0", "--batch", "--no-backup-if-mismatch", "-i", each)


def files(tree: Path) -> dict[str, bytes]:
    return {
        path.relative_to(tree).as_posix(): path.read_bytes()
        for path in sorted(tree.rglob("*"))
        if path.is_file()
    }


def touched(patches: list[Path]) -> set[str]:
    """The files that the patches change, from git's own reading of them."""
    counted = subprocess.run(
        ["git", "apply", "--numstat", "-z", *patches], check=True, capture_output=True
    ).stdout
    return {row.split(b"\t")[2].decode() for row in counted.split(b"\0") if row}


@pytest.fixture(params=DISTINCT)
def release(request: pytest.FixtureRequest) -> str:
    version: str = request.param
    return version


def ours(tree: Path, folder: Path, patches: list[Path]) -> None:
    run(
        tree, sys.executable, "-m", "vllm_series", "apply", "--target", tree,
        "--series-dir", folder,
    )  # fmt: skip
    shutil.rmtree(tree / ".vllm-series")


@pytest.mark.parametrize(
    ("name", "tool"),
    [
        ("vllm-series", ours),
        ("git", git_am),
        ("git", git_apply),
        ("quilt", quilt_push),
        ("patch", gnu_patch),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_a_tool_gives_the_bytes_that_the_patch_promises(
    release: str,
    name: str,
    tool: Callable[[Path, Path, list[Path]], None],
    tmp_path: Path,
    oracle: Callable[[str], str],
) -> None:
    if tool is not ours:
        oracle(name)
    folder = folder_of(release)
    patches = [folder / name for name in (folder / "series").read_text().split()]
    tree = tmp_path / "tree"
    put_stock(release, tree, touched(patches))
    stock = blob_ids(tree)
    promised = index_lines(patches)
    if all(stock.get(path, NO_FILE) == before for path, (before, _) in promised.items()):
        expected = {path: after for path, (_, after) in promised.items()}
    else:
        # Another release of the line than the patches were made on: another tool is the judge.
        assert f"\nBase: vllm {release}\n" not in patches[0].read_text()
        judge = tmp_path / "judge"
        shutil.copytree(tree, judge)
        (gnu_patch if tool is git_apply else git_apply)(judge, folder, patches)
        expected = blob_ids(judge)
        assert expected != stock
    tool(tree, folder, patches)
    assert blob_ids(tree) == expected


NO_FILE = "0" * 40


def blob_ids(tree: Path) -> dict[str, str]:
    return {path: blob_id(text) for path, text in files(tree).items()}


def blob_id(text: bytes) -> str:
    return (
        subprocess.run(
            ["git", "hash-object", "--stdin"], input=text, check=True, capture_output=True
        )
        .stdout.decode()
        .strip()
    )


def index_lines(patches: list[Path]) -> dict[str, tuple[str, str]]:
    """The blob id of every file before and after the whole series, from the `index` lines."""
    ids: dict[str, tuple[str, str]] = {}
    for each in patches:
        path = ""
        for line in each.read_text().splitlines():
            if line.startswith("diff --git a/"):
                path = line.partition(" b/")[2]
            elif line.startswith("index "):
                before, _, after = line.split()[1].partition("..")
                ids[path] = (ids.get(path, (before, ""))[0], after)
    return ids
