"""Completion of words by the shells: the protocol, and the real shells that speak it."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from commandline import SERIES, run

Oracle = Callable[[str], str]


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


def test_patches_and_releases_complete_where_one_is_asked_for() -> None:
    def completed(words: str, index: int) -> list[str]:
        told = run(
            _VLLM_SERIES_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=str(index)
        )  # fmt: skip
        return told.out.splitlines()

    for command in ("drift", "show"):
        assert completed(f"vllm-series {command} dyn", 2) == ["plain,dynwidth.patch"]
        assert completed(f"vllm-series {command} ./x", 2) == ["file,./x"]
    for option in ("--since", "--until", "--base"):
        assert completed(f"vllm-series drift dynwidth {option} 0.27", 4) == [
            "plain,0.27.0", "plain,0.27.1",
        ]  # fmt: skip


# -- real shells ----------------------------------------------------------------------------------

TYPED = [
    ("vllm-series app", ["apply"]),
    ("vllm-series apply --dry", ["--dry-run"]),
    ("vllm-series list --series v", ["vllm-0.33"]),
]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A home of its own, one series, and the command by its name on the path."""
    (tmp_path / "series" / "vllm-0.33").mkdir(parents=True)
    command = tmp_path / "bin" / "vllm-series"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m vllm_series "$@"\n')
    command.chmod(0o755)
    return {
        **{key: value for key, value in os.environ.items() if not key.startswith("XDG_")},
        "HOME": str(tmp_path),
        "VLLM_SERIES_DIR": str(tmp_path / "series"),
        "ZDOTDIR": str(tmp_path),
        "PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}",
        "TERM": "dumb",
    }


@pytest.mark.parametrize(("typed", "words"), TYPED)
def test_bash_itself_completes(
    oracle: Oracle, environment: dict[str, str], typed: str, words: list[str]
) -> None:
    code = (
        'eval "$(vllm-series completion bash)"\n'
        'COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))\n'
        "complete -p vllm-series >&2\n"
        "_vllm_series_completion vllm-series\n"
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    shell = [oracle("bash"), "--norc", "-c", code, "bash", *typed.split()]
    assert completed(shell, environment) == words


@pytest.mark.parametrize(("typed", "words"), TYPED)
def test_fish_itself_completes(
    oracle: Oracle, environment: dict[str, str], typed: str, words: list[str]
) -> None:
    code = f"vllm-series completion fish | source; complete --do-complete '{typed}'"
    shell = [oracle("fish"), "--no-config", "-c", code]
    assert completed(shell, environment) == words


def completed(shell: list[str], environment: dict[str, str]) -> list[str]:
    done = subprocess.run(
        shell, cwd=SERIES.parent, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    # fish puts a tab and a description behind a word.
    return [line.partition("\t")[0] for line in done.stdout.splitlines()]


@pytest.mark.parametrize(("typed", "words"), TYPED)
def test_zsh_itself_completes(
    oracle: Oracle, environment: dict[str, str], tmp_path: Path, typed: str, words: list[str]
) -> None:
    """zsh completes only in its line editor, so it gets a terminal; a key behind Tab writes down
    the line as it is then."""
    said = tmp_path / "line"
    (tmp_path / ".zshrc").write_text(
        "autoload -Uz compinit && compinit -u -D\n"
        'eval "$(vllm-series completion zsh)"\n'
        f"told() {{ print -r -- $BUFFER > {said}.part; mv {said}.part {said}; exit }}\n"
        "zle -N told && bindkey '^X' told\n"
    )
    ours, theirs = pty.openpty()
    shell = subprocess.Popen(
        [oracle("zsh"), "--no-globalrcs", "-i"],
        cwd=SERIES.parent,
        env=environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    try:
        os.write(ours, f"{typed}\t\x18".encode())
        give_up = time.monotonic() + 30
        while not said.exists() and time.monotonic() < give_up:
            time.sleep(0.05)
    finally:
        shell.kill()
        shell.wait()
        os.close(theirs)
        os.close(ours)
    assert said.read_text().split() == [*typed.split()[:-1], *words]
