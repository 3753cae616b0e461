"""`vllm-series check`: where each hunk stands on each release, with nothing installed."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vllm_series.commands.options import (
    complete_release,
    complete_releases,
    complete_series,
    json_option,
    loudness_options,
    series_dir_option,
)
from vllm_series.commands.progress import Progress
from vllm_series.commands.upstream_options import upstream_options
from vllm_series.errors import EnvironmentRefusedError, RefusedError, SeriesError, UsageError
from vllm_series.series import Entry, series_folder

if TYPE_CHECKING:
    from vllm_series.checking.answers import ReleaseAnswer
    from vllm_series.checking.jobs import Job
    from vllm_series.upstream.open import UpstreamOptions

_STDOUT = "-"
_NARROWEST = 40


@click.command("check")
@series_dir_option
@click.option(
    "--series",
    "series_name",
    metavar="NAME",
    shell_complete=complete_series,
    help="Hold this series, such as vllm-0.32, against every release.",
)
@click.option(
    "--patch",
    "patch_files",
    metavar="FILE",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    help="Hold this diff against the releases instead; repeat for several, `-` reads stdin.",
)
@click.option(
    "--base",
    metavar="RELEASE",
    shell_complete=complete_release,
    help="The release that a --patch was made on; default: found by its blob ids.",
)
@click.option(
    "--exclude",
    metavar="PATTERN",
    multiple=True,
    help="With --patch: leave out the files that match, as apply does.",
)
@click.option(
    "--releases",
    "spec",
    metavar="WHICH",
    shell_complete=complete_releases,
    help="all, 0.30..0.33, 0.33, 0.33.0, or several with commas; default: those with a series.",
)
@upstream_options
@json_option
@click.option(
    "--junit",
    metavar="FILE",
    is_flag=False,
    flag_value=_STDOUT,
    help="Write JUnit XML for a CI service; without FILE on stdout.",
)
@click.option(
    "--markdown",
    metavar="FILE",
    is_flag=False,
    flag_value=_STDOUT,
    help="Write Markdown for a summary page; without FILE on stdout.",
)
@loudness_options
def command(
    series_dir: Path | None,
    series_name: str | None,
    patch_files: tuple[Path, ...],
    base: str | None,
    exclude: tuple[str, ...],
    spec: str | None,
    upstream: UpstreamOptions,
    as_json: bool,
    junit: str | None,
    markdown: str | None,
    quiet: bool,
    verbose: bool,
) -> int:
    """Where each patch stands on each release, with nothing installed.

    By default every line's series is held against each of its releases. A cell of the table is one
    patch on one release; -v shows every hunk, with reasons and the nearest place. Exit code 1 when
    a supported release is not clean, 3 when no release could be judged.

    \b
      vllm-series check                                  every series on its releases
      vllm-series check --releases all                   every release on the index
      vllm-series check --series vllm-0.33 --releases 0.34.0rc1
      vllm-series check --patch fix.diff --base 0.32.0   any diff
      vllm-series check --junit check.xml --markdown >> "$GITHUB_STEP_SUMMARY"
    """
    _refuse(patch_files, series_name, exclude, quiet, as_json, junit, markdown)
    progress = Progress(quiet)
    with progress:
        jobs, answers = _judged(
            upstream, series_dir, series_name, patch_files, base, exclude, spec, progress
        )
    if all(answer.error for answer in answers):
        _refuse_unreadable(jobs)
    _print(answers, as_json, junit, markdown, quiet, verbose)
    return _exit_code(answers)


def _refuse(
    patch_files: Sequence[Path],
    series_name: str | None,
    exclude: Sequence[str],
    quiet: bool,
    as_json: bool,
    junit: str | None,
    markdown: str | None,
) -> None:
    """Raise UsageError for words that cannot go together, before anything is fetched."""
    if patch_files and series_name is not None:
        raise UsageError("--patch and --series are two sources of patches. Give one of them.")
    if exclude and not patch_files:
        raise UsageError("--exclude goes with --patch. Give the diff with it.")
    printed = [
        word
        for word, is_printed in (
            ("--json", as_json),
            ("--junit", junit == _STDOUT),
            ("--markdown", markdown == _STDOUT),
        )
        if is_printed
    ]
    if len(printed) > 1:
        raise UsageError(f"{' and '.join(printed)} would both print. Give one of them a file.")
    files = [file for file in (junit, markdown) if file not in (None, _STDOUT)]
    if len(set(files)) < len(files):
        raise UsageError(f"--junit and --markdown name one file: {files[0]}. Name two.")
    for file in files:
        assert file is not None
        place = Path(file)
        if place.is_dir() or not place.parent.is_dir():
            raise UsageError(f"{file} cannot be written: there is no such folder, or it is one.")


def _judged(
    upstream: UpstreamOptions,
    series_dir: Path | None,
    series_name: str | None,
    patch_files: Sequence[Path],
    base: str | None,
    exclude: Sequence[str],
    spec: str | None,
    progress: Progress,
) -> tuple[Sequence[Job], list[ReleaseAnswer]]:
    from vllm_series.checking.check import check, jobs
    from vllm_series.upstream.open import INDEX, open_catalog, told
    from vllm_series.upstream.ranges import select
    from vllm_series.upstream.store import Store, open_store

    def remark(message: str) -> None:
        progress.clear()
        told(message)

    entries = _given(patch_files)
    try:
        folder = series_folder(series_dir)
    except SeriesError:
        if not entries or series_dir is not None:
            raise
        folder = None
    catalog = open_catalog(upstream, remark)
    progress.say("listing releases")
    releases = catalog.releases()
    versions = select(releases, spec) if spec is not None else None
    if spec is None and upstream.source != INDEX and len(releases) == 1:
        # Who names one folder, archive or commit means it, be it a release or not.
        versions = (releases[0].version,)
    todo = jobs(
        folder,
        releases,
        versions=versions,
        series=series_name,
        patches=entries,
    )
    if not todo:
        raise EnvironmentRefusedError(
            "there is no final release to judge. Name what there is with --releases; "
            "vllm-series releases lists it."
        )
    if not any(job.entries or job.fault for job in todo):
        raise RefusedError(
            "no series here lists a patch: nothing to check. Write names of patches into one."
        )
    judged = {job.release for job in todo}
    there = {release.wheel for release in releases if release.version in judged}
    for name in upstream.wheels:
        if name not in there:
            remark(f"--wheel {name} is of a release that is not judged here. See --releases.")
    # The catalog has said by now what is to be said of the cache.
    store = Store(None) if upstream.no_cache else open_store(lambda _message: None)
    answers: list[ReleaseAnswer] = []
    for answer in check(todo, catalog, store=store, base=base, exclude=exclude, say=progress.say):
        answers.append(answer)
        progress.say(f"judged {answer.release}, {len(answers)} of {len(todo)} releases")
    return todo, answers


def _given(files: Sequence[Path]) -> list[Entry]:
    """The diffs that `--patch` names, by their file names; by their paths where those are equal."""
    names = ["stdin.patch" if str(file) == "-" else file.name for file in files]
    entries: list[Entry] = []
    for file, name in zip(files, names, strict=True):
        is_stdin = str(file) == "-"
        own = name if names.count(name) == 1 or is_stdin else str(file)
        if any(entry.name == own for entry in entries):
            raise UsageError(f"--patch {file} is given twice. Give it once.")
        entries.append(Entry(own, sys.stdin.buffer.read() if is_stdin else file.read_bytes()))
    return entries


def _print(
    answers: Sequence[ReleaseAnswer],
    as_json: bool,
    junit: str | None,
    markdown: str | None,
    quiet: bool,
    verbose: bool,
) -> None:
    """Files first, so that they are there whoever reads standard output."""
    if junit is not None:
        from vllm_series.reports.junit import junit as as_junit

        _put(junit, as_junit(answers))
    if markdown is not None:
        from vllm_series.reports.markdown import markdown as as_markdown

        _put(markdown, as_markdown(answers).encode("utf-8"))
    if as_json:
        from vllm_series.reports.as_json import rendered

        click.echo(rendered(answers))
    elif _STDOUT not in (junit, markdown):
        _show(answers, quiet, verbose)


def _put(file: str, data: bytes) -> None:
    if file == _STDOUT:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    else:
        Path(file).write_bytes(data)


def _show(answers: Sequence[ReleaseAnswer], quiet: bool, verbose: bool) -> None:
    """For people: the table, or with -q nothing but what counts and is not clean."""
    from vllm_series.reports.findings import findings
    from vllm_series.reports.marks import UNJUDGED
    from vllm_series.reports.printable import wrapped
    from vllm_series.reports.table import WIDTH, closing, lines, table

    width = max(_NARROWEST, shutil.get_terminal_size((WIDTH, 24)).columns)
    if quiet:
        counting = [one for one in findings(answers) if one.counts or one.mark is UNJUDGED]
        if counting:
            click.echo(lines(counting, width))
        return
    click.echo(table(answers, width))
    if verbose:
        from vllm_series.reports.details import details

        click.echo(f"\n{details(answers)}")
    click.echo(f"\n{wrapped(closing(answers), min(width, WIDTH), '    ')}")


def _exit_code(answers: Sequence[ReleaseAnswer]) -> int:
    """0 where every supported release is clean, 1 where one is not or could not be judged, 3 where
    none at all could be judged."""
    if all(answer.error for answer in answers):
        return 3
    return int(any(answer.is_supported and not answer.is_clean for answer in answers))


def _refuse_unreadable(jobs: Sequence[Job]) -> None:
    """Raise the error of a patch that cannot be read: then no release is to blame."""
    from vllm_series.diffs.parse import parse

    for entry in dict.fromkeys(entry for job in jobs for entry in job.entries):
        parse(entry.text, entry.name)
