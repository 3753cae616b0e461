"""`vllm-series doctor`: what may go wrong in an environment, before it does."""

from __future__ import annotations

from pathlib import Path

import click

from vllm_series.commands.options import json_option, loudness_options, series_options, tree_options


@click.command("doctor")
@tree_options
@series_options
@json_option
@loudness_options
def command(
    target: Path | None,
    python: str | None,
    series_dir: Path | None,
    series_name: str | None,
    as_json: bool,
    quiet: bool,
    verbose: bool,
) -> int:
    """Look for what may go wrong in an environment: one line a check, and what to do.

    Nothing is written. Exit code 1 when a check fails, 3 when there is no vLLM to look at.
    """
    from vllm_series.doctor import Outcome, examine
    from vllm_series.report import as_json as rendered
    from vllm_series.report import table

    checks = examine(target, python, series_dir, series_name)
    if as_json:
        click.echo(
            rendered(
                {
                    "command": "doctor",
                    "checks": [
                        {"name": c.name, "outcome": c.outcome.value, "text": c.text} for c in checks
                    ],
                }
            )
        )
    else:
        colours = {Outcome.OK: "green", Outcome.NOTE: "yellow", Outcome.FAIL: "red"}
        click.echo(
            table(
                (
                    click.style(check.outcome.value, fg=colours[check.outcome]),
                    check.name,
                    check.text,
                )
                for check in checks
                if not quiet or check.outcome is not Outcome.OK
            )
        )
    if any(check.name == "vllm" and check.outcome is Outcome.FAIL for check in checks):
        return 3
    return 1 if any(check.outcome is Outcome.FAIL for check in checks) else 0
