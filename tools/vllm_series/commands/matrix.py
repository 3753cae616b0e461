"""`vllm-series matrix`: the jobs of a CI service, one a release and device."""

from __future__ import annotations

import re
from pathlib import Path

import click

from vllm_series.commands.options import (
    complete_releases,
    json_option,
    loudness_options,
    series_dir_option,
)
from vllm_series.errors import UsageError

_OUTPUT = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
"""What GitHub takes as the name of an output; a `=` or a line break in it would write another."""


@click.command("matrix")
@series_dir_option
@click.option(
    "--releases",
    "spec",
    metavar="WHICH",
    shell_complete=complete_releases,
    help="all, 0.30..0.33, 0.33, 0.33.0, or several with commas; default: those with a series.",
)
@click.option(
    "--lines",
    metavar="N",
    type=click.IntRange(min=1),
    help="Only the newest N minor lines, as a pull request wants them.",
)
@click.option(
    "--devices",
    metavar="WHICH",
    default="cpu,gpu",
    show_default=True,
    help="What to decode on, with commas.",
)
@click.option(
    "--for",
    "service",
    type=click.Choice(["github"]),
    help="Print it as this CI service takes it, in one line.",
)
@click.option(
    "--output-name",
    metavar="NAME",
    help="With --for github: print NAME={…}, a line for $GITHUB_OUTPUT.",
)
@json_option
@loudness_options
def command(
    series_dir: Path | None,
    spec: str | None,
    lines: int | None,
    devices: str,
    service: str | None,
    output_name: str | None,
    as_json: bool,
    quiet: bool,
    verbose: bool,
) -> int:
    """The fan-out of a CI service: each release that a series serves, on each device, newest first.

    Releases are those of releases.json beside the series: nothing is asked of the network. `wheel`
    is the distribution that decodes on the device, with a note where releases.json has none of that
    release; such a release is a job too, since its apply can run.

    \b
      vllm-series matrix --lines 3
      vllm-series matrix --for github --devices cpu --output-name cpu >> "$GITHUB_OUTPUT"
    """
    if as_json and service:
        raise UsageError("--json and --for are two forms of output. Give one of them.")
    if output_name is not None and service is None:
        raise UsageError("--output-name goes with --for github. Give that too.")
    if output_name is not None and not _OUTPUT.fullmatch(output_name):
        raise UsageError(f"{output_name!r} is no name of an output. Take letters, digits, - and _.")
    from vllm_series.fanout import FanoutJob, devices_of, fan_out, github
    from vllm_series.report import as_json as rendered
    from vllm_series.report import counted, table
    from vllm_series.support import record_folder

    jobs = fan_out(record_folder(series_dir), spec=spec, lines=lines, devices=devices_of(devices))
    if service is not None:
        click.echo((f"{output_name}=" if output_name else "") + github(jobs))
        return 0
    if as_json:
        click.echo(rendered({"command": "matrix", "jobs": [job.as_json() for job in jobs]}))
        return 0
    if quiet:
        return 0

    def wheel(job: FanoutJob) -> str:
        return job.distribution if job.is_recorded else f"{job.distribution} (none recorded)"

    cells = [(job.release, job.device, job.series, wheel(job), job.session) for job in jobs]
    click.echo(table(cells, ("release", "device", "series", "wheel", "session")))
    if verbose:
        click.echo(f"\n{counted(len(jobs), 'job')}")
    return 0
