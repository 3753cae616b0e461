"""`vllm-series completion`: code that a shell reads to complete this command."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> int:
    """Print the shell code that completes this command.

    \b
      bash   eval "$(vllm-series completion bash)"            in ~/.bashrc
      zsh    eval "$(vllm-series completion zsh)"             in ~/.zshrc
      fish   vllm-series completion fish | source             in config.fish
    """
    from vllm_series.cli import program

    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(program, {}, "vllm-series", "_VLLM_SERIES_COMPLETE").source())
    return 0
