"""Wrong words and wrong places: a clear error and its exit code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from commandline import run
from vllm_series.cli import COMMANDS


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


def test_what_the_system_refuses_is_exit_3(series: Path) -> None:
    patch = series / "vllm-0.33" / "dynwidth.patch"
    patch.unlink()
    patch.symlink_to(patch)
    told = run("show", "dynwidth", "--series", "vllm-0.33", "--series-dir", series)
    assert told.code == 3
    assert str(patch) in told.err
    assert "Traceback" not in told.err


def test_no_command_prints_the_help() -> None:
    told = run()
    shown = told.out + told.err
    for heading in (
        "Commands on a tree:",
        "Commands on releases of vLLM:",
        "Commands on a series:",
    ):
        assert heading in shown
    listed = [line.split()[0] for line in shown.splitlines() if re.match(r"  [a-z]", line)]
    assert set(COMMANDS) <= set(listed)
    assert len([name for name in listed if name in COMMANDS]) == len(COMMANDS)
    for command in ("status", "apply", "revert", "verify", "lint", "doctor", "completion"):
        assert run(command, "--help").code == 0
