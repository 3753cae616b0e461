"""`vllm-series cherry`: which patches of a series upstream has, release by release."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vllm_series.commands.options import (
    complete_releases,
    json_option,
    loudness_options,
    series_options,
)
from vllm_series.commands.progress import Progress
from vllm_series.commands.upstream_options import upstream_options
from vllm_series.errors import EnvironmentRefusedError, SeriesError, UsageError
from vllm_series.series import Series, every_folder, load

if TYPE_CHECKING:
    from vllm_series.upstream.catalog import Release
    from vllm_series.upstream.open import UpstreamOptions

_NARROWEST = 40


@click.command("cherry")
@series_options
@click.option(
    "--releases",
    "spec",
    metavar="WHICH",
    shell_complete=complete_releases,
    help="all, 0.30..0.33, 0.33, 0.33.0, or several with commas; default: from the base on.",
)
@upstream_options
@json_option
@loudness_options
def command(
    series_dir: Path | None,
    series_name: str | None,
    spec: str | None,
    upstream: UpstreamOptions,
    as_json: bool,
    quiet: bool,
    verbose: bool,
) -> int:
    """Say which patches of a series upstream has, release by release.

    A sign a release, as git cherry's: - for a patch that the release has, + for one that it has
    not, ~ for one of which it has a part. Without --series it is the newest line's. Exit code 0
    whatever the answer, 3 when no release could be judged.

    \b
      vllm-series cherry --series 0.30
      vllm-series cherry --series 0.32 --releases 0.33.0,0.34.0rc1
    """
    from vllm_series.checking.check import check
    from vllm_series.checking.jobs import Job
    from vllm_series.cherry import rows
    from vllm_series.reports.cherry import as_json as valued
    from vllm_series.reports.cherry import closing, table
    from vllm_series.reports.printable import wrapped
    from vllm_series.reports.table import WIDTH
    from vllm_series.upstream.open import open_catalog
    from vllm_series.upstream.store import Store, open_store
    from vllm_series.workspace.chain import read_series

    series = _series(series_dir, series_name)
    _, base = read_series(series.entries, series.folder.name)
    with Progress(quiet or as_json) as progress:
        catalog = open_catalog(upstream)
        progress.say("listing releases")
        versions = _versions(catalog.releases(), spec, base)
        todo = [Job(version, series.folder.name, series.entries, True) for version in versions]
        store = Store(None) if upstream.no_cache else open_store(lambda _message: None)
        answers = list(check(todo, catalog, store=store, say=progress.say))
    errors = {answer.release: answer.error for answer in answers if answer.error}
    found = rows((entry.name for entry in series.entries), answers)
    if as_json:
        from vllm_series.report import as_json as rendered

        click.echo(rendered(valued(series.folder.name, base, found, errors)))
    elif not quiet:
        width = max(_NARROWEST, shutil.get_terminal_size((WIDTH, 24)).columns)
        click.echo(table(series.folder.name, found, errors, width))
        click.echo(f"\n{wrapped(closing(found), min(width, WIDTH), '    ')}")
    return 3 if len(errors) == len(answers) else 0


def _series(series_dir: Path | None, name: str | None) -> Series:
    """The series that is named, else that of the newest line."""
    from vllm_series.series import chosen_series

    series = chosen_series(series_dir, name, None) if name is not None else _newest(series_dir)
    if not series.entries:
        raise SeriesError(f"{series.folder} lists no patch: nothing to look for.")
    return series


def _newest(series_dir: Path | None) -> Series:
    found = every_folder(series_dir)
    lines = [folder for folder in found if folder.name.count(".") == 1]
    return load((lines or found)[-1])


def _versions(releases: Sequence[Release], spec: str | None, base: str) -> tuple[str, ...]:
    """The releases that are asked for; by default the base and all that came after it."""
    from vllm_series.upstream.ranges import select

    if spec is not None:
        return select(releases, spec)
    try:
        return select(releases, f"{base}..")
    except UsageError as error:
        raise EnvironmentRefusedError(
            f"there is no final release from {base} on. Name what there is with --releases; "
            "vllm-series releases lists it."
        ) from error
