"""What every test may use: real releases, a tree and a series to change, a sealed Git."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import stock as stock_releases
from commandline import SERIES, copied
from vllm_series.smoke.environment import FOLDER as ENVIRONMENTS
from vllm_series.upstream.store import KINDS


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--vllm-tree",
        metavar="DIR",
        default=None,
        help="run the hunk tests on this patched tree (a folder with vllm/ in it) alone",
    )
    parser.addoption(
        "--replay-pair",
        metavar="OLD-NEW",
        action="append",
        default=None,
        help="replay the diff between these two releases (repeat for several); default: the "
        "smallest pair",
    )


class Stock:
    """Pristine releases by version; what it returns is shared and must not be written to."""

    def __call__(self, version: str, distribution: str = "vllm") -> Path:
        return stock_releases.release(version, distribution)


@pytest.fixture(scope="session")
def stock() -> Stock:
    return Stock()


@pytest.fixture
def installed(stock: Stock, tmp_path: Path) -> Path:
    """What the tool touches of an installed 0.33.0: the scheduler's folder and the dist-info."""
    return copied(stock("0.33.0"), tmp_path / "site-packages")


@pytest.fixture
def series(tmp_path: Path) -> Path:
    """A copy of this project's series folders, to be changed."""
    target = tmp_path / "series"
    shutil.copytree(SERIES, target)
    return target


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What is read of releases is shared with the user's cache, since it is known by its digest and
    dear to fetch; repositories and whatever else a test leaves in a cache is not."""
    shared = stock_releases.cache_dir().parent
    own = tmp_path_factory.mktemp("cache") / "vllm-series"
    own.mkdir()
    for name in (*KINDS, stock_releases.cache_dir().name, ENVIRONMENTS, "uv"):
        (shared / name).mkdir(parents=True, exist_ok=True)
        (own / name).symlink_to((shared / name).resolve())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_SERIES_CACHE", str(own))
        yield


@pytest.fixture(autouse=True)
def sealed_git(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """No user's git configuration, identity or date reaches a test."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(home / "gitconfig"))
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "A Tester")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "tester@example.com")
        monkeypatch.setenv(f"GIT_{role}_DATE", "2026-12-01T00:00:00+0000")


@pytest.fixture(autouse=True)
def no_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """No width of a terminal reaches a test; xdist gives its workers one."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture(scope="session")
def oracle() -> Callable[[str], str]:
    """Finds a real tool that defines what is right: `oracle("quilt")` gives its path.

    Where it is not installed, the test is skipped on a person's machine, which says so in its
    closing lines, and fails in CI, where nothing may be left out.
    """

    def find(name: str) -> str:
        path = shutil.which(name)
        if path is not None:
            return path
        message = f"{name} is not installed; get it from your system's packages"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)

    return find
