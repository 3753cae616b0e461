"""Applying anyone's diff with `--patch`: any tree, backwards, in part, and what is refused."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from commandline import ADDED, SCHEDULER, everything, run
from conftest import Stock


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


def test_a_diff_under_another_name_and_text_is_there_already_and_stays_revertible(
    installed: Path, tmp_path: Path
) -> None:
    before = everything(installed)
    diff, same = tmp_path / "any.diff", tmp_path / "same.diff"
    diff.write_text(run("apply", "--diff", "--target", installed).out)
    same.write_text("Said otherwise.\n\n" + diff.read_text())
    assert run("apply", "--patch", diff, "--target", installed).code == 0
    applied = everything(installed)
    told = run("apply", "--patch", same, "--target", installed)
    assert (told.code, "there already" in told.out) == (0, True)
    assert "not under this name and text: revert takes out what status lists" in told.err
    assert everything(installed) == applied
    assert "any.diff" in run("status", "--target", installed).out
    assert run("revert", "--target", installed).out == "any.diff  reverted\n"
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


def test_a_malformed_patch_is_refused_with_its_line(installed: Path, tmp_path: Path) -> None:
    before = everything(installed)
    diff = tmp_path / "cut.diff"
    diff.write_text("--- a/vllm/x.py\n+++ b/vllm/x.py\n@@ -1,3 +1,3 @@\n one\n")
    told = run("apply", "--patch", diff, "--target", installed)
    assert told.code == 1
    assert "cut.diff:4: " in told.err
    assert everything(installed) == before
