"""`vllm-series drift`: since when a patch does not fit, and what upstream did there."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from vllm_series.commands.options import (
    complete_patch,
    complete_release,
    json_option,
    series_options,
)
from vllm_series.commands.upstream_options import upstream_options
from vllm_series.errors import SeriesError
from vllm_series.series import Entry, first_with, searched
from vllm_series.upstream.open import UpstreamOptions


@click.command("drift")
@click.argument("name", metavar="PATCH", shell_complete=complete_patch)
@click.option(
    "--since",
    metavar="RELEASE",
    shell_complete=complete_release,
    help="The oldest release to look at.",
)
@click.option(
    "--until",
    metavar="RELEASE",
    shell_complete=complete_release,
    help="The newest release to look at.",
)
@click.option(
    "--base",
    metavar="RELEASE",
    shell_complete=complete_release,
    help="The release that the patch was made on; default: its Base: trailer, its blob ids, or the "
    "newest release in which most of it stands.",
)
@click.option(
    "--hunk",
    "number",
    metavar="N",
    type=int,
    help="Only this hunk, counted through the patch from 1.",
)
@click.option(
    "--forecast",
    "wants_forecast",
    is_flag=True,
    help="Say from history how likely each hunk is to survive the next release.",
)
@click.option("--full", is_flag=True, help="Show long diffs whole.")
@series_options
@upstream_options
@json_option
def command(
    name: str,
    since: str | None,
    until: str | None,
    base: str | None,
    number: int | None,
    wants_forecast: bool,
    full: bool,
    series_dir: Path | None,
    series_name: str | None,
    as_json: bool,
    upstream: UpstreamOptions,
) -> int:
    """Where a patch fits, release by release, and what upstream did where it does not.

    PATCH is the path of a file, `-` for standard input, or a name in a series, with or without its
    ending; without --series the newest series that has it is taken. From the release that it was
    made on the releases are walked in both directions, hunk by hunk.

    The answer is information: exit code 0, whether the patch fits or not. Releases that could not
    be read are named, and the others are answered.
    """
    from vllm_series.commands.progress import Progress
    from vllm_series.drifting.drift import drift
    from vllm_series.drifting.forecast import forecast
    from vllm_series.report import as_json as rendered
    from vllm_series.reports.drift import as_value, told
    from vllm_series.upstream.open import open_catalog

    entries = _entries(name, series_dir, series_name)
    with Progress(as_json) as progress:
        catalog = open_catalog(upstream)
        answer = drift(
            entries,
            catalog,
            base=base,
            since=since,
            until=until,
            number=number,
            say=progress.say,
        )
        forecasts = None
        if wants_forecast:
            forecasts = [forecast(hunk, answer.releases) for hunk in answer.hunks]
    for release, reason in answer.unread.items():
        click.echo(f"vllm-series: {release} is left out: {reason}", err=True)
    for note in answer.notes:
        click.echo(f"vllm-series: {note}.", err=True)
    if as_json:
        click.echo(rendered(as_value(answer, forecasts)))
    else:
        click.echo(told(answer, forecasts, full=full))
    return 0


def _entries(name: str, series_dir: Path | None, series_name: str | None) -> list[Entry]:
    """The patch, last, and those of its series in front of it."""
    if name == "-":
        return [Entry("stdin.patch", sys.stdin.buffer.read())]
    if series_name is None and Path(name).is_file():
        return [Entry(Path(name).name, Path(name).read_bytes())]
    try:
        chosen = searched(series_dir, series_name)
    except SeriesError as error:
        if series_name is not None:
            raise
        raise SeriesError(f"no patch {name}: there is no such file, and {error}") from None
    found = first_with(chosen, name)
    if found is not None:
        series, at = found
        return list(series.entries[: at + 1])
    listed = ", ".join(folder.name for folder in chosen)
    raise SeriesError(
        f"no patch {name}: neither a file nor in {listed}. See vllm-series list, or give a path."
    )
