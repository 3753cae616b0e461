"""Which trees the hunk tests run on: every covered release, or the one that `--vllm-tree` names."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from stock import RELEASES

if TYPE_CHECKING:
    from conftest import Stock

SERIES = Path(__file__).resolve().parents[2] / "series"
NEEDED = ("vllm/v1/core/sched", "vllm/v1/engine/core.py", "vllm/v1/request.py")
"""What the hunk tests lift from: enough of a release to patch and to test."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "patched" in metafunc.fixturenames:
        tree = metafunc.config.getoption("--vllm-tree")
        trees = [Path(tree)] if tree else RELEASES
        metafunc.parametrize("patched", trees, ids=str, indirect=True, scope="session")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Other tools are compared on stock releases; a given tree is patched already."""
    if config.getoption("--vllm-tree") and collection_path.name == "test_other_tools.py":
        return True
    return None


@pytest.fixture(scope="session")
def patched(
    request: pytest.FixtureRequest, stock: Stock, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A folder that contains a patched `vllm/`."""
    if isinstance(request.param, Path):
        return request.param
    release: str = request.param
    tree = tmp_path_factory.mktemp(f"patched-{release}")
    for name in NEEDED:
        source, target = stock(release) / name, tree / name
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
    folder = SERIES / f"vllm-{release.rpartition('.')[0]}"
    subprocess.run(
        [sys.executable, "-m", "vllm_series", "apply", "--quiet", "--series-dir", str(folder),
         "--target", str(tree)],
        check=True,
    )  # fmt: skip
    return tree
