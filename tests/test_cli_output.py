"""What is printed, where it goes, and that it never decides what happens to a tree."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from commandline import ADDED, SERIES, run


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


def piped(line: str) -> subprocess.CompletedProcess[bytes]:
    """A line of bash that starts with words of the command."""
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {sys.executable} -m vllm_series {line}"],
        cwd=SERIES.parent,
        capture_output=True,
        check=False,
    )
