"""Everything between two releases as one patch: 1,246 Python files at once, in bounded memory."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from installed import snapshot
from memory import measured
from vllm_series.environments import find_tree
from vllm_series.installation.transaction import revert
from vllm_series.installation.verify import verify

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Stock

REPLAY = """
import sys, time
from pathlib import Path
from vllm_series.environments import find_tree
from vllm_series.steps import FileStep, PatchStep
from vllm_series.installation.transaction import apply
tree, newer = find_tree(Path(sys.argv[1])), find_tree(Path(sys.argv[2]))
files = []
for path in sorted({*tree.paths(), *newer.paths()}):
    before, after = tree.read(path), newer.read(path)
    if before != after:
        files.append(FileStep(path, before, after))
start = time.perf_counter()
apply(tree, [PatchStep("release", b"", tuple(files))])
seconds = time.perf_counter() - start
print(len(files), seconds)
"""


def test_a_release_becomes_the_next_and_comes_back(stock: Stock, tmp_path: Path) -> None:
    older, newer = stock("0.32.0"), stock("0.33.0")
    shutil.copytree(older, tmp_path / "tree")
    tree = find_tree(tmp_path / "tree")
    before = snapshot(tree.root)
    printed, kilobytes = measured(REPLAY, tree.root, newer)
    count, seconds = map(float, printed.split())
    assert count > 1200
    assert kilobytes < 300_000
    print(f"{count:.0f} files, {seconds:.2f} s, {kilobytes / 1000:.0f} MB")
    expected = find_tree(newer)
    assert {path: tree.read(path) for path in tree.paths()} == {
        path: expected.read(path) for path in expected.paths()
    }
    assert verify(tree) == []
    revert(tree)
    assert snapshot(tree.root) == before
