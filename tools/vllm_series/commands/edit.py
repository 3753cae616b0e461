"""`vllm-series edit`: a patch as files, to be edited with whatever a person likes."""

from __future__ import annotations

from pathlib import Path

import click

from vllm_series.commands.options import json_option, loudness_options, series_options, waiting
from vllm_series.commands.upstream_options import upstream_options
from vllm_series.errors import UsageError
from vllm_series.series import find
from vllm_series.upstream.open import UpstreamOptions


@click.command("edit")
@click.argument("name", metavar="[PATCH]", required=False)
@click.option(
    "--with",
    "more",
    metavar="PATH",
    multiple=True,
    help="Lay out this file of the release too; also for a patch that is open.",
)
@click.option(
    "--workdir",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Open it in this folder; default: one in the cache, whose path is printed.",
)
@click.option("--abort", is_flag=True, help="Give the edits up and take the folder away.")
@series_options
@upstream_options
@json_option
@loudness_options
def command(
    name: str | None,
    more: tuple[str, ...],
    workdir: Path | None,
    abort: bool,
    series_dir: Path | None,
    series_name: str | None,
    upstream: UpstreamOptions,
    as_json: bool,
    quiet: bool,
    verbose: bool,
) -> int:
    """Open a patch: its files as the patch leaves them, those in front of it applied.

    The folder is a git repository in which `git diff` shows what you edit and `git show` what the
    patch is. Edit, then run vllm-series refresh there: it takes the edits back into the patch and
    places the patches behind it anew. The series stays as it is until then.

    \b
      cd "$(vllm-series edit dynwidth)"
      $EDITOR vllm/v1/core/sched/scheduler.py
      vllm-series refresh --drop
    """
    from vllm_series.commands.progress import Progress
    from vllm_series.upstream.open import open_catalog
    from vllm_series.workspace.editing import (
        add_files,
        around,
        default_workdir,
        load,
        open_patch,
    )
    from vllm_series.workspace.rewriting import held

    if name is None:
        place = workdir.resolve() if workdir else Path.cwd()
        state = load(place) if workdir else around(place)
        if state is None:
            raise UsageError(f"no patch is open in {place}. Name the one to edit.")
        folder, full = Path(state.folder), state.patch
    else:
        series, at = find(series_dir, series_name, name)
        folder, full = series.folder.resolve(), series.entries[at].name
        place = workdir.resolve() if workdir else default_workdir(folder, full)
        state = load(place)
        if state is not None and (state.patch, state.folder) != (full, str(folder)):
            raise UsageError(
                f"{state.patch} of {state.folder} is open in {place}. Name another --workdir."
            )
    outcome = "open"
    if abort:
        if state is None:
            raise UsageError(f"{full} is not open in {place}. There is nothing to give up.")
        with held(folder, waiting):
            state.close()
        outcome = "given up"
    else:
        with Progress(quiet or as_json) as progress, held(folder, waiting) as series_held:
            if state is None:
                catalog = open_catalog(upstream)
                state = open_patch(series_held, full, catalog, place, more, progress.say)
                outcome = "opened"
            elif more:
                catalog = open_catalog(upstream)
                state = add_files(series_held, state, catalog, more, progress.say)
    if as_json:
        from vllm_series.report import as_json as rendered

        click.echo(
            rendered(
                {
                    "command": "edit",
                    "outcome": outcome,
                    "series": folder.name,
                    "patch": full,
                    "base": state.base,
                    "workdir": state.workdir,
                    "files": list(state.paths),
                }
            )
        )
    elif not abort:
        click.echo(state.workdir)
        if not quiet:
            click.echo(
                f"vllm-series: {full} on vllm {state.base} is {outcome}. Edit its files, then run "
                "vllm-series refresh in that folder; --drop leaves it, --abort gives the edits up.",
                err=True,
            )
    elif not quiet:
        click.echo(f"vllm-series: {full} is as it was; {place} is gone.", err=True)
    return 0
