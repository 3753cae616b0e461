"""Upstream's own changes as patches: thousands of hunks that nobody here wrote.

The diff between the Python files of two consecutive releases, made by git, must turn the older tree
into the newer one byte for byte, and back; as one patch, and as a series of one patch a file.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from git import Repo

from conftest import Stock

SMALLEST = "0.27.0-0.27.1"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "pair" in metafunc.fixturenames:
        pairs = metafunc.config.getoption("--replay-pair") or [SMALLEST]
        metafunc.parametrize("pair", pairs, scope="module")


class Replay:
    """Two releases, the older one's tree to write to, and git's diff between them."""

    def __init__(self, old: Path, new: Path, folder: Path) -> None:
        self.old = old
        self.new = new
        self.folder = folder
        self.repository = folder / "repository"
        self.patch = folder / "upstream.patch"
        repository = Repo.init(self.repository, mkdir=True)
        with repository:
            for tree in (old, new):
                shutil.rmtree(self.repository / "vllm", ignore_errors=True)
                shutil.copytree(tree / "vllm", self.repository / "vllm")
                repository.git.add(all=True)
                repository.git.commit(quiet=True, message=tree.name)
            diff: bytes = repository.git.diff(
                "HEAD~", "HEAD", "-M", full_index=True,
                stdout_as_string=False, strip_newline_in_stdout=False,
            )  # fmt: skip
        self.patch.write_bytes(diff)

    def tree(self, source: Path, name: str) -> Path:
        target = self.folder / name
        shutil.copytree(source / "vllm", target / "vllm")
        return target


@pytest.fixture(scope="module")
def replay(pair: str, stock: Stock, tmp_path_factory: pytest.TempPathFactory) -> Replay:
    old, new = pair.split("-")
    with pytest.MonkeyPatch.context() as sealed:
        sealed.setenv("GIT_CONFIG_NOSYSTEM", "1")
        sealed.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
        for role in ("AUTHOR", "COMMITTER"):
            sealed.setenv(f"GIT_{role}_NAME", "A Tester")
            sealed.setenv(f"GIT_{role}_EMAIL", "tester@example.com")
        return Replay(stock(old), stock(new), tmp_path_factory.mktemp("replay"))


def files(tree: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(tree)): path.read_bytes()
        for path in (tree / "vllm").rglob("*")
        if path.is_file()
    }


def run(*words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "vllm_series", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:] + done.stdout[-4000:]


def test_the_diff_makes_the_newer_release_and_revert_the_older(replay: Replay) -> None:
    tree = replay.tree(replay.old, "forward")
    stock_files = files(tree)
    run("apply", "--quiet", "--patch", str(replay.patch), "--target", str(tree))
    assert files(tree) == files(replay.new)
    run("revert", "--quiet", "--target", str(tree))
    assert files(tree) == stock_files
    assert sorted(path.name for path in tree.iterdir()) == ["vllm"]


def test_the_diff_reversed_makes_the_older_release(replay: Replay) -> None:
    tree = replay.tree(replay.new, "backward")
    run("apply", "--quiet", "--reverse", "--patch", str(replay.patch), "--target", str(tree))
    assert files(tree) == files(replay.old)


def test_one_patch_a_file_makes_the_same_release(replay: Replay) -> None:
    series = replay.folder / "series" / "vllm-0.0"
    series.mkdir(parents=True)
    whole = replay.patch.read_bytes()
    sections = re.split(rb"^(?=diff --git )", whole, flags=re.MULTILINE)[1:]
    names = []
    for number, section in enumerate(sections):
        names.append(f"{number:04d}.patch")
        (series / names[-1]).write_bytes(section)
    (series / "series").write_text("\n".join(names) + "\n")
    tree = replay.tree(replay.old, "split")
    run("apply", "--quiet", "--series-dir", str(series), "--target", str(tree))
    assert files(tree) == files(replay.new)
    stack = json.loads((tree / ".vllm-series" / "stack.json").read_text())
    assert [patch["name"] for patch in stack["patches"]] == names
