"""The command `vllm-series`: words in, tables and exit codes out.

Each command lives in a module of `commands` that is imported when it is asked for, since reading
the state of a tree must not wait for a parser that only other commands need.
"""

from __future__ import annotations

import gc
import os
import sys
from importlib import import_module
from keyword import iskeyword
from typing import Any

import click

from vllm_series import __version__
from vllm_series.errors import VllmSeriesError
from vllm_series.output import stand

COMMANDS = {
    "status": "What is applied in a tree, and what its series would add.",
    "list": "The patches of a series, in order.",
    "show": "One patch: why, what it touches, and its diff.",
    "apply": "Put a series, or any diff, into a tree: all of it or nothing.",
    "revert": "Take patches out again, to the byte.",
    "verify": "Hold a tree against its release and its applied patches, by hash.",
    "releases": "What the index holds, and what of it a series covers.",
    "check": "Where each patch stands on each release, with nothing installed.",
    "drift": "When a patch stopped fitting, and what upstream did there.",
    "rebase": "Carry a series over to another release.",
    "new": "Make a patch of what was edited: an installation, a folder, commits.",
    "edit": "Open a patch for editing, in a folder with its files.",
    "refresh": "Take edits back into a patch, or write patches anew in their one form.",
    "import": "Make patches of a diff, mails, a quilt folder, commits or a script.",
    "export": "Write patches for quilt, for git am, onto a branch, or as one diff.",
    "range-diff": "Two series side by side, as git shows it.",
    "bisect": "Find the patch of a series that makes a command fail.",
    "rehearse": "Drive vLLM's own scheduler with a simulated model, in every mode.",
    "cherry": "Which patches of a series upstream has, release by release.",
    "smoke": "Decode with the real engine, with a series and without it.",
    "lint": "Check series folders: complete, in their one form, true.",
    "matrix": "The jobs of a CI service: each release on each device.",
    "summary": "The reports of many smoke jobs, joined into one page.",
    "doctor": "Look for what may go wrong in an environment.",
    "cache": "What is kept of upstream: where, how much, and how to be rid of it.",
    "completion": "Print the shell code that completes this command.",
}
"""Every command with its one line of help."""

GROUPS = {
    "Commands on a tree": ("status", "apply", "revert", "verify"),
    "Commands on releases of vLLM": ("releases", "check", "cherry", "drift", "rebase"),
    "Commands on a series": (
        *("list", "show", "new", "edit", "refresh", "import", "export", "range-diff", "bisect"),
        *("rehearse", "smoke", "lint"),
    ),
    "Commands for CI services": ("matrix", "summary"),
}
"""The help page: what belongs together, in the order in which people need it."""


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        name = f"{cmd_name}_" if iskeyword(cmd_name) else cmd_name.replace("-", "_")
        module = import_module(f"vllm_series.commands.{name}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, COMMANDS))
        grouped = {name for names in GROUPS.values() for name in names}
        others = tuple(name for name in COMMANDS if name not in grouped)
        for heading, names in (*GROUPS.items(), ("Others", others)):
            with formatter.section(heading):
                # Names of one width, so that the texts of all groups stand in one column.
                rows = [(name.ljust(width), COMMANDS[name]) for name in names if name in COMMANDS]
                formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            import difflib

            close = difflib.get_close_matches(args[0], COMMANDS, n=1) if args else []
            if not close:
                raise
            raise click.UsageError(f"{error.message} Did you mean {close[0]}?", ctx) from None


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="vllm-series")
def program() -> None:
    """Patch series for vLLM: placed exactly or refused, applied all or nothing, undone to the byte.

    Without --target or --python a command works on the vLLM of the environment that runs it.

    Exit codes: 0 all is well, 1 a verdict or a verification says no, 2 wrong usage, 3 the
    environment does not allow it.
    """


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; ends the process with the exit code of the outcome."""
    # The process is short and its data has no cycles: collecting costs 5 ms and frees nothing.
    gc.disable()
    stand()
    code = run(arguments)
    sys.stdout.flush()
    sys.stderr.flush()
    # All is written and flushed; taking the interpreter down in order would cost another 8 ms.
    os._exit(code)


def run(arguments: list[str] | None = None) -> int:
    """Run the command line and give its exit code; errors are said on stderr, one a line."""
    colour: dict[str, Any] = {"color": False} if os.environ.get("NO_COLOR") else {}
    try:
        outcome = program.main(
            args=arguments, prog_name="vllm-series", standalone_mode=False, **colour
        )
    except VllmSeriesError as error:
        click.echo(f"vllm-series: {error}", err=True)
        return error.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 0
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        click.echo("vllm-series: interrupted; nothing is left half changed", err=True)
        return 130
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        click.echo(f"vllm-series: {error.strerror or error}{where}", err=True)
        return 3
    return outcome if isinstance(outcome, int) else 0
