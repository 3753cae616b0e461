"""`vllm-series summary`: the reports of many smoke jobs, joined into one page."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from vllm_series.commands.options import json_option, loudness_options
from vllm_series.errors import EnvironmentRefusedError, UsageError


@click.command("summary")
@click.argument("reports", nargs=-1, metavar="REPORT...", type=click.Path(path_type=Path))
@click.option(
    "--matrix",
    "matrices",
    metavar="JSON",
    multiple=True,
    help="What was to run, as matrix --for github printed it; repeat for several.",
)
@click.option(
    "--not-run",
    "not_run",
    metavar="DEVICE=REASON",
    multiple=True,
    help="Why a device has no jobs; repeat for several, an empty one says nothing.",
)
@json_option
@click.option("--markdown", "is_markdown", is_flag=True, help="Print a page for a job summary.")
@loudness_options
def command(
    reports: tuple[Path, ...],
    matrices: tuple[str, ...],
    not_run: tuple[str, ...],
    as_json: bool,
    is_markdown: bool,
    quiet: bool,
    verbose: bool,
) -> int:
    """Join the reports of smoke: files, or folders that hold smoke-*.json at any depth.

    With --matrix, a release and device whose report is missing is `no report`, which counts as a
    failure, unless --not-run says why that device has none. Exit code 1 when anything failed, 3
    when nothing ran.

    \b
      vllm-series summary reports
      vllm-series summary reports --matrix "$CPU" --markdown >> "$GITHUB_STEP_SUMMARY"
    """
    if as_json and is_markdown:
        raise UsageError("--json and --markdown would both print. Give one of them.")
    if not reports and not matrices:
        raise UsageError("no report is named. Give files or folders that smoke wrote.")
    from vllm_series.joined import NOT_RUN, PASSED, expected_jobs, join
    from vllm_series.report import as_json as rendered
    from vllm_series.reports import summary

    expected = [job for text in matrices for job in expected_jobs(text)]
    joined = join(reports, expected, dict(filter(None, map(_reason, not_run))))
    if not joined.runs and not joined.faults:
        raise EnvironmentRefusedError(
            f"no report of smoke: {', '.join(map(str, reports))}. Run vllm-series smoke first."
        )
    if as_json:
        click.echo(rendered(summary.as_json(joined)))
    elif is_markdown:
        sys.stdout.flush()
        sys.stdout.buffer.write(summary.markdown(joined).encode())
        sys.stdout.buffer.flush()
    elif not quiet:
        click.echo(summary.table(joined, is_long=verbose))
        click.echo(f"\n{summary.closing(joined)}")
    if not as_json:
        for fault in joined.faults:
            click.echo(f"vllm-series: {fault}", err=True)
    return {PASSED: 0, NOT_RUN: 3}.get(joined.outcome, 1)


def _reason(text: str) -> tuple[str, str] | None:
    """Device and reason; None for an empty text, which an expression of a workflow may leave."""
    if not text:
        return None
    device, equals, reason = text.partition("=")
    if not (device and equals and reason.strip()):
        raise UsageError(f"--not-run {text!r} gives no reason. Write DEVICE=REASON.")
    return device, reason.strip()
