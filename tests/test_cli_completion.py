"""Completion of words by the shells."""

from __future__ import annotations

import pytest

from commandline import run


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
