"""`vllm-series refresh`: edits back into a patch, and patches written anew in their one form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vllm_series.commands.options import json_option, loudness_options, series_options, waiting
from vllm_series.commands.upstream_options import upstream_options
from vllm_series.errors import UsageError
from vllm_series.series import chosen_folder, find
from vllm_series.upstream.open import UpstreamOptions

if TYPE_CHECKING:
    from vllm_series.workspace.editing import Editing


@click.command("refresh")
@click.argument("patches", metavar="[PATCH]...", nargs=-1)
@click.option("--all", "every", is_flag=True, help="Every patch of the series that --series names.")
@click.option(
    "--workdir",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Take the edits of this folder back; default: the folder of an edit that this is run in.",
)
@click.option("--drop", is_flag=True, help="Leave the edit: take its folder away afterwards.")
@click.option("--abort", is_flag=True, help="Give the edits up and take the folder away.")
@click.option(
    "--base",
    metavar="RELEASE",
    help="The release that the patches are for; default: their Base: trailer.",
)
@click.option("-n", "--dry-run", is_flag=True, help="Print what the patches become; write nothing.")
@series_options
@upstream_options
@json_option
@loudness_options
def command(
    patches: tuple[str, ...],
    every: bool,
    workdir: Path | None,
    drop: bool,
    abort: bool,
    base: str | None,
    dry_run: bool,
    series_dir: Path | None,
    series_name: str | None,
    upstream: UpstreamOptions,
    as_json: bool,
    quiet: bool,
    verbose: bool,
) -> int:
    """Take what was edited back into a patch, or write patches anew.

    In the folder of vllm-series edit: the patch becomes what the folder holds, and the patches
    behind it are placed anew; where one would find no place, it is named and nothing is written.

    With PATCH: that patch of a series is placed on the stock files of its base, the patches in
    front of it applied, and written in its one form: ids, line numbers, scopes. That is what lint
    asks for, and it takes a patch that was edited by hand too.

    \b
      vllm-series refresh                    in the folder of an edit
      vllm-series refresh dynwidth           what lint has found
    """
    from vllm_series.commands.progress import Progress
    from vllm_series.workspace.editing import around, load

    here = load(workdir.resolve()) if workdir else around(Path.cwd())
    if workdir is not None and here is None:
        raise UsageError(f"no patch is open in {workdir}. Open one: vllm-series edit PATCH.")
    if workdir is not None and (patches or every):
        raise UsageError("--workdir says which patch is meant. Leave the names out.")
    told = _Told(dry_run, as_json, quiet)
    with Progress(quiet or as_json) as progress:
        if patches or every:
            if drop or abort:
                raise UsageError("--drop and --abort leave an edit. Run them in its folder.")
            return _written_anew(
                patches, base, series_dir, series_name, upstream, told, progress.say
            )
        if here is None:
            raise UsageError(
                "this is not the folder of an edit. Name the patch to write anew, or open one: "
                "vllm-series edit PATCH."
            )
        if base is not None:
            raise UsageError(f"{here.patch} is edited on {here.base}. Leave --base out.")
        if abort:
            return _given_up(here, told)
        return _taken_back(here, drop, upstream, told, progress.say)


class _Told:
    """How the outcome is to be told."""

    def __init__(self, dry_run: bool, as_json: bool, quiet: bool) -> None:
        self.dry_run, self.as_json, self.quiet = dry_run, as_json, quiet

    def outcome(
        self,
        folder: Path,
        old: dict[str, bytes],
        new: dict[str, bytes],
        named: Sequence[str],
        passed: dict[str, str],
        notes: Sequence[str],
    ) -> None:
        """Say which patches have changed, and what is to be looked at."""
        changed = [name for name in new if new[name] != old.get(name)]
        for path, why in passed.items():
            click.echo(f"vllm-series: {path} is left out: {why}", err=True)
        for note in notes:
            click.echo(f"vllm-series: {note}", err=True)
        word = "dry run" if self.dry_run else "written"
        if self.as_json:
            self.json(
                {
                    "outcome": word if changed else "nothing to do",
                    "series": folder.name,
                    "patches": [
                        {
                            "name": name,
                            "path": str(folder / name),
                            "named": name in named,
                            "text": new[name].decode("utf-8", "replace"),
                        }
                        for name in changed
                    ],
                    "passed": passed,
                    "notes": list(notes),
                }
            )
        elif not changed and not self.quiet:
            click.echo(f"nothing to do: {', '.join(named)} is as it should be")
        elif self.dry_run:
            for name in changed:
                click.echo(new[name], nl=False)
        elif not self.quiet:
            for name in changed:
                click.echo(str(folder / name))
            behind = [name for name in changed if name not in named]
            if behind:
                click.echo(f"vllm-series: placed anew behind it: {', '.join(behind)}.", err=True)

    def json(self, report: dict[str, Any]) -> None:
        """Print a report."""
        from vllm_series.report import as_json as rendered

        click.echo(rendered({"command": "refresh", **report}))


def _given_up(state: Editing, told: _Told) -> int:
    from vllm_series.workspace.rewriting import held

    folder = Path(state.folder)
    with held(folder, waiting):
        state.close()
    if told.as_json:
        told.json(
            {
                "outcome": "given up",
                "series": folder.name,
                "patches": [],
                "passed": {},
                "notes": [],
            }
        )
    elif not told.quiet:
        click.echo(f"vllm-series: {state.patch} is as it was; {state.workdir} is gone.", err=True)
    return 0


def _taken_back(
    state: Editing,
    drop: bool,
    upstream: UpstreamOptions,
    told: _Told,
    say: Callable[[str], None],
) -> int:
    from vllm_series.upstream.open import open_catalog
    from vllm_series.workspace.editing import settle, take_back
    from vllm_series.workspace.rewriting import held

    folder = Path(state.folder)
    day = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    with held(folder, waiting) as series:
        taken = take_back(series, state, open_catalog(upstream), last_update=day, say=say)
        if not told.dry_run:
            taken.state.save()
            series.write(taken.files)
            if drop:
                taken.state.close()
            else:
                settle(taken)
    told.outcome(
        folder,
        dict(series.files),
        dict(taken.files),
        [state.patch],
        dict(taken.passed),
        taken.notes,
    )
    if drop and not told.dry_run and not told.quiet:
        click.echo(f"vllm-series: {state.workdir} is gone.", err=True)
    return 0


def _written_anew(
    patches: Sequence[str],
    base: str | None,
    series_dir: Path | None,
    series_name: str | None,
    upstream: UpstreamOptions,
    told: _Told,
    say: Callable[[str], None],
) -> int:
    from vllm_series.upstream.open import open_catalog
    from vllm_series.workspace.renewal import written_anew
    from vllm_series.workspace.rewriting import held

    if patches:
        found = [find(series_dir, series_name, name) for name in patches]
        folders = {series.folder.resolve() for series, _ in found}
        if len(folders) > 1:
            raise UsageError("these patches are not of one series. Name it with --series.")
        (folder,) = folders
        names = [series.entries[at].name for series, at in found]
    else:
        folder = chosen_folder(series_dir, series_name, None).resolve()
        names = []
    with held(folder, waiting) as series:
        made = written_anew(series, names, base, open_catalog(upstream), say)
        if not told.dry_run:
            series.write(made.files)
    told.outcome(folder, dict(series.files), dict(made.files), made.named, {}, made.notes)
    return 0
