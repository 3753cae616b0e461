"""Which trees the hunk tests run on: every covered release, or the one that `--vllm-tree` names.

A release whose files are those of another, as far as a hunk test may look, is tested as that one:
`tests/releases.json` lists them under `alike`, which `test_alike.py` holds against the index.
"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from packaging.version import Version

from stock import COVERED
from vllm_series.environments import find_tree
from vllm_series.upstream.open import open_catalog

if TYPE_CHECKING:
    from vllm_series.upstream.catalog import Catalog

HERE = Path(__file__).resolve().parent
SERIES = HERE.parents[1] / "series"
NEEDED = (
    "vllm/_version.py",
    "vllm/v1/core/sched/",
    "vllm/v1/engine/core.py",
    "vllm/v1/metrics/",
    "vllm/v1/request.py",
    "vllm/v1/spec_decode/metrics.py",
)
"""What the hunk tests lift from: enough of a release to patch and to test."""
ALSO: Mapping[str, tuple[str, ...]] = {
    "vllm-0.30": (
        "vllm/model_executor/warmup/jit_warmup_triton_helper.py",
        "vllm/utils/cpu_triton_utils.py",
        "vllm/v1/sample/rejection_sampler.py",
        "vllm/v1/spec_decode/utils.py",
        "vllm/v1/worker/cpu_model_runner.py",
    ),
}
"""What the patches that only one series has need beside that, by its folder."""
ALIKE: Mapping[str, str] = json.loads((HERE.parent / "releases.json").read_text())["alike"]
"""Releases by the one that they are tested as."""
DISTINCT = tuple(release for release in COVERED if release not in ALIKE)


def folder_of(release: str) -> Path:
    """The series that serves a release: its own folder before that of its line."""
    own = SERIES / f"vllm-{release}"
    return own if own.is_dir() else SERIES / f"vllm-{release.rpartition('.')[0]}"


def needed(release: str) -> tuple[str, ...]:
    """What the hunk tests lift from in a release: files, and folders with a `/` at their end."""
    return (*NEEDED, *ALSO.get(folder_of(release).name, ()))


@functools.cache
def catalog() -> Catalog:
    """The releases of the index. Of their wheels only the files that are asked for are fetched."""
    return open_catalog()


def put_stock(release: str, folder: Path, wanted: Iterable[str]) -> None:
    """Write stock files of a release into a folder; a name that ends in `/` means all that is in
    it, and one that the release does not have is passed over."""
    tree = catalog().tree(release)
    names = tuple(wanted)
    paths = [
        path
        for path in tree.listing()
        if path in names or path.startswith(tuple(name for name in names if name.endswith("/")))
    ]
    for error in catalog().prefetch({release: paths}).values():
        raise error
    for path in paths:
        text = tree.read(path)
        assert text is not None
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(text)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "since(release): what older releases do not have")
    config.addinivalue_line("markers", "before(release): what this release no longer has")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "patched" in metafunc.fixturenames:
        tree = metafunc.config.getoption("--vllm-tree")
        trees = [Path(tree)] if tree else DISTINCT
        metafunc.parametrize("patched", trees, ids=str, indirect=True, scope="session")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what a release does not have: it is not asked for, so it is no skip."""
    left: list[pytest.Item] = []
    for item in items:
        called = getattr(item, "callspec", None)
        tree = called.params.get("patched") if called else None
        if tree is not None and not _has(item, _version(tree)):
            left.append(item)
    if left:
        config.hook.pytest_deselected(items=left)
        gone = set(map(id, left))
        items[:] = [item for item in items if id(item) not in gone]


def _has(item: pytest.Item, version: Version) -> bool:
    return all(version >= Version(mark.args[0]) for mark in item.iter_markers("since")) and all(
        version < Version(mark.args[0]) for mark in item.iter_markers("before")
    )


@functools.cache
def _version(tree: Path | str) -> Version:
    """The release of a parameter of `patched`."""
    if isinstance(tree, str):
        return Version(tree)
    version = find_tree(tree).version
    if version is None:
        raise pytest.UsageError(f"{tree} does not say which release it is.")
    return Version(version)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Stock releases are not asked for where a tree is given, which is patched already."""
    if config.getoption("--vllm-tree") and collection_path.name in (
        "test_alike.py",
        "test_other_tools.py",
    ):
        return True
    return None


@pytest.fixture(scope="session")
def patched(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that contains a patched `vllm/`."""
    if isinstance(request.param, Path):
        return request.param
    release: str = request.param
    tree = tmp_path_factory.mktemp(f"patched-{release}")
    put_stock(release, tree, needed(release))
    subprocess.run(
        [sys.executable, "-m", "vllm_series", "apply", "--quiet", "--series-dir",
         str(folder_of(release)), "--target", str(tree)],
        check=True,
    )  # fmt: skip
    return tree


@pytest.fixture
def version(patched: Path) -> Version:
    """The release that `patched` holds."""
    return _version(patched)
