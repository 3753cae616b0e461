"""Applying a series: in, in again, looked at, refused, and nothing half done."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from commandline import ADDED, SCHEDULER, copied, everything, run
from conftest import Stock


def test_a_series_goes_in_once_is_verified_and_comes_out_to_the_byte(installed: Path) -> None:
    before = everything(installed)
    target = ("--target", installed)
    assert "not applied" in run("status", *target).out
    first = run("apply", *target)
    assert (first.code, "dynwidth.patch  exact" in first.out) == (0, True)
    assert (installed / ADDED).is_file()
    assert "+ dynwidth.patch  applied" in run("status", *target).out
    assert run("verify", *target).code == 0
    applied = everything(installed)
    second = run("apply", *target)
    assert (second.code, second.out.startswith("nothing to do")) == (0, True)
    assert everything(installed) == applied
    assert run("revert", *target).out == "dynwidth.patch  reverted\n"
    assert everything(installed) == before
    assert run("revert", *target).out.startswith("nothing to do")


def test_json_says_outcome_verdicts_and_places(installed: Path) -> None:
    applied = run("apply", "--json", "--target", installed).json()
    assert applied["outcome"] == "applied"
    patch = applied["patches"][0]  # type: ignore[index]
    assert patch["verdict"] == "exact"
    scopes = {hunk["scope"] for file in patch["files"] for hunk in file["hunks"]}
    assert "Scheduler.schedule" in scopes
    again = run("apply", "--json", "--target", installed).json()
    assert (again["outcome"], again["patches"]) == ("nothing to do", [])
    status = run("status", "--json", "--target", installed).json()
    assert status["patches"] == [{"name": "dynwidth.patch", "state": "applied"}]
    assert status["version"] == "0.33.0"
    verified = run("verify", "--json", "--target", installed).json()
    assert verified["differences"] == []
    assert verified["fingerprint"] == status["fingerprint"]
    assert run("revert", "--json", "--target", installed).json()["outcome"] == "reverted"


@pytest.mark.parametrize("option", ["--dry-run", "--diff"])
def test_dry_run_and_diff_write_nothing(installed: Path, option: str) -> None:
    before = everything(installed)
    told = run("apply", option, "--target", installed)
    assert told.code == 0
    assert everything(installed) == before
    run("apply", "--target", installed)
    patched = everything(installed)
    assert run("revert", option, "--target", installed).code == 0
    assert everything(installed) == patched


def test_diff_shows_the_change_as_git_would_take_it(installed: Path) -> None:
    shown = run("apply", "--diff", "--target", installed)
    assert f"+++ b/{SCHEDULER}" in shown.out
    done = subprocess.run(
        ["git", "apply", "--check", "-"], cwd=installed, input=shown.out.encode(), check=False
    )
    assert done.returncode == 0


def test_a_series_for_another_line_is_refused_where_it_does_not_fit(
    stock: Stock, tmp_path: Path
) -> None:
    tree = copied(stock("0.33.0"), tmp_path / "site")
    text = (tree / SCHEDULER).read_bytes()
    (tree / SCHEDULER).write_bytes(
        text.replace(b"self.kv_cache_manager.new_step_starts()", b"pass")
    )
    before = everything(tree)
    told = run("apply", "--target", tree)
    assert told.code == 1
    assert "drifted" in told.out
    assert "Scheduler.schedule" in told.err
    assert "as it was" in told.err
    assert everything(tree) == before
    refused = run("apply", "--json", "--target", tree).json()
    assert refused["outcome"] == "refused"


def test_no_series_for_the_version_is_no_success(installed: Path, series: Path) -> None:
    shutil.rmtree(series / "vllm-0.33")
    told = run("apply", "--target", installed, "--series-dir", series)
    assert told.code == 1
    assert "no series for vllm 0.33.0" in told.err
    assert "covers 0.10.2, 0.11, 0.11.0, 0.12" in told.err


def test_a_series_with_another_text_asks_for_a_revert_first(installed: Path, series: Path) -> None:
    assert run("apply", "--target", installed, "--series-dir", series).code == 0
    patch = series / "vllm-0.33" / "dynwidth.patch"
    patch.write_bytes(patch.read_bytes().replace(b"Forwarded: no", b"Forwarded: yes"))
    told = run("apply", "--target", installed, "--series-dir", series)
    assert told.code == 1
    assert "another text" in told.err
    assert "revert" in told.err
    assert run("status", "--target", installed, "--series-dir", series).code == 1
    shutil.rmtree(series)
    assert run("revert", "--target", installed).code == 0


def test_a_patch_added_to_the_series_later_goes_on_top(installed: Path, series: Path) -> None:
    run("apply", "--target", installed, "--series-dir", series)
    folder = series / "vllm-0.33"
    (folder / "second.patch").write_bytes(
        b"--- a/vllm/v1/core/sched/dynamic_width.py\n+++ b/vllm/v1/core/sched/dynamic_width.py\n"
        b"@@ -1,2 +1,3 @@\n # SPDX-License-Identifier: Apache-2.0\n+# on top\n"
        b" # SPDX-FileCopyrightText: Copyright contributors to the vllm-series project\n"
    )
    (folder / "series").write_text("dynwidth.patch\nsecond.patch\n")
    told = run("apply", "--json", "--target", installed, "--series-dir", series).json()
    assert [patch["name"] for patch in told["patches"]] == ["second.patch"]  # type: ignore[attr-defined]
    assert run("revert", "--top", "1", "--target", installed).out == "second.patch  reverted\n"
    assert b"# on top" not in (installed / ADDED).read_bytes()
    assert run("verify", "--target", installed).code == 0
    assert run("revert", "--top", "2", "--target", installed).code == 2


def test_a_series_that_lost_an_applied_patch_asks_for_a_revert_first(
    installed: Path, series: Path
) -> None:
    folder = series / "vllm-0.33"
    (folder / "more.patch").write_text(
        "--- /dev/null\n+++ b/vllm/more.py\n@@ -0,0 +1 @@\n+MORE = 1\n"
    )
    (folder / "series").write_text("dynwidth.patch\nmore.patch\n")
    words = ("apply", "--series-dir", series, "--target", installed)
    assert run(*words).code == 0
    before = everything(installed)
    (folder / "series").write_text("dynwidth.patch\n")
    told = run(*words)
    assert told.code == 1
    assert "more.patch is applied, but vllm-0.33 does not list it" in told.err
    assert everything(installed) == before


def test_what_is_there_already_by_other_hands_is_said_and_left(
    installed: Path, tmp_path: Path
) -> None:
    diff = tmp_path / "fix.diff"
    diff.write_text(run("apply", "--diff", "--target", installed).out)
    subprocess.run(["git", "apply", str(diff)], cwd=installed, check=True)
    before = everything(installed)
    told = run("apply", "--target", installed)
    assert told.code == 0
    assert "there already" in told.out
    assert "not under this name and text" in told.err
    assert everything(installed) == before
    assert run("revert", "--target", installed).out.startswith("nothing to do")
