"""`vllm-series rebase`: carry a series over to another release."""

from __future__ import annotations

import shutil
import stat
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vllm_series.commands.options import (
    complete_releases,
    complete_series,
    json_option,
    loudness_options,
    series_dir_option,
    waiting,
)
from vllm_series.commands.progress import Progress
from vllm_series.commands.upstream_options import upstream_options
from vllm_series.errors import SeriesError, UsageError
from vllm_series.series import folders, line_of, load, public_release, series_folder

if TYPE_CHECKING:
    from vllm_series.upstream.catalog import Release
    from vllm_series.upstream.open import UpstreamOptions
    from vllm_series.workspace.carrying import Carrying
    from vllm_series.workspace.rebasing import Rebasing
    from vllm_series.workspace.state import Batch, Home, Line


@click.command("rebase")
@click.argument("release", required=False, shell_complete=complete_releases)
@click.option(
    "--from",
    "start",
    metavar="LINE",
    shell_complete=complete_series,
    help="The series to carry over, such as 0.33; default: the nearest.",
)
@click.option(
    "--onto-dir",
    metavar="NAME",
    help="The folder to make, vllm-0.34 or, for that release alone, vllm-0.34.1; default: that of "
    "the line.",
)
@click.option(
    "--releases",
    "spec",
    metavar="WHICH",
    shell_complete=complete_releases,
    help="Many lines at once, each from its neighbour's result: 0.10..0.26.",
)
@click.option("--continue", "action", flag_value="continue", help="Go on after a conflict or kill.")
@click.option("--skip", "action", flag_value="skip", help="Leave the patch that waits out; go on.")
@click.option("--abort", "action", flag_value="abort", help="Give up; the series stays as it is.")
@click.option("--status", "action", flag_value="status", help="Say what is open and what is done.")
@click.option("-n", "--dry-run", is_flag=True, help="Say all that would be done; write nothing.")
@click.option("--replace", is_flag=True, help="Let a folder that is there be replaced.")
@click.option(
    "--add",
    is_flag=True,
    help="Let the patches that are there stay, and put on top of them those that are missing.",
)
@click.option(
    "--renew-contracts",
    "renew",
    is_flag=True,
    help="Where a Contract: is broken, write what the release has; for review.",
)
@click.option(
    "--tests",
    metavar="PATH",
    multiple=True,
    type=click.Path(exists=True, path_type=Path),
    help="Hunk tests to run; default: those of the patches in tests/hunks beside the series.",
)
@click.option("--no-tests", is_flag=True, help="Run no hunk tests.")
@click.option(
    "--workdir",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the repository is made; default: a folder of the cache.",
)
@series_dir_option
@upstream_options
@json_option
@loudness_options
def command(
    release: str | None,
    start: str | None,
    onto_dir: str | None,
    spec: str | None,
    action: str | None,
    dry_run: bool,
    replace: bool,
    add: bool,
    renew: bool,
    tests: tuple[Path, ...],
    no_tests: bool,
    workdir: Path | None,
    series_dir: Path | None,
    upstream: UpstreamOptions,
    as_json: bool,
    quiet: bool,
    verbose: bool,
) -> int:
    """Carry a series over to another release, newer or older.

    What can be placed is placed, what upstream has is left out, and what conflicts is opened in a
    Git repository: resolve it there with any tool, then --continue. The series folder changes only
    at the end, all at once, and only where the result compiles, passes lint and passes the hunk
    tests.

    \b
      vllm-series rebase 0.34.0                   from the nearest line
      vllm-series rebase 0.32.0 --from 0.33       back to an older line
      vllm-series rebase --releases 0.10..0.26    many lines, nearest first
      vllm-series rebase 0.31.0 --from 0.32 --add what the line does not have yet
      vllm-series rebase --continue               after resolving a conflict
    """
    from dataclasses import replace as changed

    from vllm_series.structure.resolve import resolve
    from vllm_series.upstream.open import open_catalog, told
    from vllm_series.upstream.store import Store, open_store
    from vllm_series.workspace.carrying import Carrying
    from vllm_series.workspace.rebasing import Tools
    from vllm_series.workspace.state import Home

    _refuse(release, spec, action, start, onto_dir, workdir, dry_run, no_tests, tests)
    _refuse_add(add, action, start, replace)
    folder = series_folder(series_dir)
    if (folder / "series").is_file():
        raise UsageError(f"{folder} is a series itself. Name the folder around it.")
    home = Home(folder)
    progress = Progress(quiet or as_json)
    with progress, home.locked(waiting) as lock:
        if action == "abort":
            return _abort(home, quiet)
        if action == "status":
            return _status(home, as_json, verbose)
        if action is None and (there := home.workdir()) is not None:
            raise UsageError(
                f"a rebase of {home.series_dir} is open in {there}. Go on with --continue, or "
                "give it up with --abort; --status says where it stands."
            )

        def remark(message: str) -> None:
            progress.clear()
            told(message)

        catalog = open_catalog(upstream, remark)
        store = Store(None) if upstream.no_cache else open_store(lambda _message: None)
        tools = Tools(catalog, store, progress.say, resolve)
        chosen = () if no_tests else tuple(str(path.resolve()) for path in tests) or None
        if action is not None:
            batch = home.opened()
            batch = changed(
                batch,
                replace=batch.replace or replace,
                renew=batch.renew or renew,
                tests=chosen if no_tests or tests else batch.tests,
            )
            home.save(batch)
            carrying = Carrying(home, batch, tools, lock)
            is_done = carrying.resume(_skip if action == "skip" else _take)
            return _told(carrying, is_done, as_json, quiet, verbose)
        progress.say("listing releases")
        lines = _lines(home.series_dir, catalog.releases(), release, spec, start, onto_dir)
        batch = changed(
            _batch(home, lines, workdir, chosen, replace, renew, spec is not None), add=add
        )
        if not dry_run:
            carrying = Carrying(home, batch, tools, lock)
            return _told(carrying, carrying.go(), as_json, quiet, verbose)
        with tempfile.TemporaryDirectory(prefix="vllm-series-") as scratch:
            copy = Path(scratch) / "copy" / "series"
            shutil.copytree(home.series_dir, copy)
            # The modes are copied too, and the series may be one that nobody may write to.
            for place in (copy, *copy.rglob("*")):
                place.chmod(place.stat().st_mode | stat.S_IWUSR)
            trial = Home(copy, Path(scratch) / "home")
            batch = changed(
                batch,
                series_dir=str(trial.series_dir),
                workdir=str(trial.default_workdir),
                replace=True,
            )
            carrying = Carrying(trial, batch, tools, lock)
            return _told(carrying, carrying.go(), as_json, quiet, verbose, dry_run=True)


def _refuse(
    release: str | None,
    spec: str | None,
    action: str | None,
    source: str | None,
    onto_dir: str | None,
    workdir: Path | None,
    dry_run: bool,
    no_tests: bool,
    tests: Sequence[Path],
) -> None:
    """Raise UsageError for words that cannot go together, before anything is done."""
    if no_tests and tests:
        raise UsageError("--tests and --no-tests contradict each other. Leave one out.")
    if action is not None:
        started = {
            "RELEASE": release,
            "--releases": spec,
            "--from": source,
            "--onto-dir": onto_dir,
            "--workdir": workdir,
            "--dry-run": dry_run,
        }
        strange = [word for word, value in started.items() if value]
        if strange:
            raise UsageError(
                f"--{action} is about the rebase that is open. Leave out {', '.join(strange)}."
            )
        return
    if (release is None) == (spec is None):
        raise UsageError("name the release to carry the series to, or lines with --releases.")
    if spec is not None and onto_dir is not None:
        raise UsageError("--onto-dir names one folder, --releases many lines. Leave one out.")


def _refuse_add(add: bool, action: str | None, source: str | None, replace: bool) -> None:
    """Raise UsageError for an --add that cannot be meant."""
    if not add:
        return
    if action is not None:
        raise UsageError(f"--{action} is about the rebase that is open. Leave out --add.")
    if replace:
        raise UsageError(
            "--add lets the patches of a folder stay, --replace does not. Leave one out."
        )
    if source is None:
        raise UsageError("--add needs the series that has what the others lack. Name it: --from.")


def _lines(
    series_dir: Path,
    releases: Sequence[Release],
    release: str | None,
    spec: str | None,
    source: str | None,
    onto_dir: str | None,
) -> list[Line]:
    """What to carry where, in order."""
    from vllm_series.upstream.ranges import select
    from vllm_series.workspace.lines import many, one

    there = [path.name for path in folders(series_dir)]
    if spec is not None:
        return many(there, select(releases, spec), _name(there, source))
    assert release is not None
    version = select(releases, release)[-1]
    onto = onto_dir or f"vllm-{line_of(version)}"
    if onto not in (f"vllm-{line_of(version)}", f"vllm-{public_release(version)}"):
        raise UsageError(
            f"--onto-dir {onto} does not serve vllm {version}. Name vllm-{line_of(version)} or "
            f"vllm-{public_release(version)}."
        )
    return [one(there, version, onto, _name(there, source))]


def _name(there: Sequence[str], source: str | None) -> str | None:
    if source is None:
        if not there:
            raise SeriesError("there is no series to carry over. Make one first.")
        return None
    for name in (source, f"vllm-{source}"):
        if name in there:
            return name
    raise SeriesError(f"no series {source}: there is {', '.join(there) or 'none'}.")


def _batch(
    home: Home,
    lines: Sequence[Line],
    workdir: Path | None,
    tests: tuple[str, ...] | None,
    replace: bool,
    renew: bool,
    fill: bool,
) -> Batch:
    from vllm_series.workspace.state import Batch

    place = workdir.resolve() if workdir else home.default_workdir
    if place.is_relative_to(home.series_dir) or home.series_dir.is_relative_to(place):
        raise UsageError(f"--workdir {place} holds the series. Name a folder outside of it.")
    for name in {line.source for line in lines}:
        if (home.series_dir / name).is_dir():
            load(home.series_dir / name)
    return Batch(
        str(home.series_dir),
        str(place),
        str(home.series_dir.parent),
        None,
        tuple(lines),
        (),
        tests,
        replace,
        renew,
        fill,
    )


def _take(rebasing: Rebasing) -> None:
    rebasing.resume()


def _skip(rebasing: Rebasing) -> None:
    rebasing.skip()


def _abort(home: Home, quiet: bool) -> int:
    from vllm_series.workspace.carrying import give_up

    if home.workdir() is None:
        raise UsageError(f"no rebase of {home.series_dir} is open, so there is nothing to give up.")
    for sentence in give_up(home):
        click.echo(f"vllm-series: {sentence}.", err=True)
    if not quiet:
        click.echo("given up; what was not finished is as it was", err=True)
    return 0


def _status(home: Home, as_json: bool, verbose: bool) -> int:
    from vllm_series.report import as_json as rendered
    from vllm_series.reports.rebase import as_value, told

    batch = home.load()
    if as_json:
        click.echo(rendered(as_value(batch, {})))
    elif batch is None:
        click.echo("no rebase is open")
    else:
        click.echo(told(batch, {}, verbose))
    return 0


def _told(
    carrying: Carrying,
    is_done: bool,
    as_json: bool,
    quiet: bool,
    verbose: bool,
    *,
    dry_run: bool = False,
) -> int:
    from vllm_series.report import as_json as rendered
    from vllm_series.reports.rebase import as_value, told

    if as_json:
        click.echo(rendered(as_value(carrying.batch, carrying.results, dry_run=dry_run)))
    elif not quiet:
        click.echo(told(carrying.batch, carrying.results, verbose, dry_run=dry_run))
    elif not is_done:
        end = (
            "would stop; leave out -q to see where"
            if dry_run
            else "has stopped; see rebase --status"
        )
        click.echo(f"vllm-series: the rebase {end}.", err=True)
    return 0 if is_done else 1
