"""Which series is held against which release.

By default every line's series is held against each of its releases; that is what this project
promises to support. Any other pair is a question that a maintainer asks ahead of time ("would the
series of 0.32 fit 0.34.0rc1?"), and its answer does not count as a failure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vllm_series.errors import SeriesError, UsageError
from vllm_series.series import SERIES_FILE, Entry, folders, line_of, load, public_release
from vllm_series.upstream.catalog import Release


@dataclass(frozen=True, slots=True)
class Job:
    """One series (or patches given by file, `series` None) and one release, `0.33.0`.

    `is_supported` says that a series folder serves the release, and that it is the one judged.
    `fault` says why the folder could not be read; there are no entries then.
    """

    release: str
    series: str | None
    entries: tuple[Entry, ...]
    is_supported: bool
    fault: SeriesError | None = None


def jobs(
    series_dir: Path | None,
    releases: Sequence[Release],
    *,
    versions: Sequence[str] | None = None,
    series: str | None = None,
    patches: Sequence[Entry] = (),
) -> tuple[Job, ...]:
    """What to judge, in the order of the releases.

    `series_dir` holds the series folders or is one itself; None, where there is none, is allowed
    with `patches` only. `releases` is the catalog's list. `versions` are those asked for, None for
    the default: every final release that is not withdrawn and that a folder serves, and with
    `series` every such release. `series` names the folder (`vllm-0.32` or `0.32`) to hold against
    all of them; `patches` are held against them instead of any series.

    Raises UsageError for what cannot be asked, SeriesError where no folder can be read; one of
    several that cannot is the `fault` of its jobs, and the others are judged.
    """
    if series is not None and patches:
        raise UsageError("--series and --patch name two things to judge. Leave one of them out.")
    there = _folders(series_dir, required=not patches)
    alone = there[0] if series_dir is not None and there == [series_dir] else None
    fixed = _named(there, series) if series is not None else alone
    if versions is None:
        everywhere = fixed is not None and series is not None
        wanted = [
            release.version
            for release in releases
            if (not release.yanked and not release.prerelease)
            or _serving(there, release.version, exact=True)
        ]
        served = [version for version in wanted if _serving(there, version)]
        versions = wanted if everywhere or not served else served
    order = {release.version: at for at, release in enumerate(releases)}
    versions = sorted(dict.fromkeys(versions), key=lambda version: order.get(version, len(order)))
    loaded: dict[Path, tuple[tuple[Entry, ...], SeriesError | None]] = {}
    made = []
    for version in versions:
        serving = _serving(there, version)
        if patches:
            made.append(Job(version, None, tuple(patches), serving is not None))
            continue
        folder = fixed or serving or _nearest(there, version)
        if folder not in loaded:
            loaded[folder] = _loaded(folder)
        entries, fault = loaded[folder]
        made.append(Job(version, folder.name, entries, folder == serving, fault))
    if made and all(job.fault for job in made):
        assert made[0].fault is not None
        raise made[0].fault
    return tuple(made)


def _loaded(folder: Path) -> tuple[tuple[Entry, ...], SeriesError | None]:
    try:
        return load(folder).entries, None
    except SeriesError as fault:
        return (), fault


def _folders(series_dir: Path | None, *, required: bool) -> list[Path]:
    if series_dir is None:
        if required:
            raise UsageError("there is nothing to judge. Name a folder with --series-dir.")
        return []
    if (series_dir / SERIES_FILE).is_file():
        return [series_dir]
    found = folders(series_dir)
    if not found and required:
        raise SeriesError(
            f"{series_dir} holds no series: no vllm-0.33 or the like. "
            "Name another folder with --series-dir."
        )
    return found


def _named(there: Sequence[Path], name: str) -> Path:
    for folder in there:
        if folder.name in (name, f"vllm-{name}"):
            return folder
    known = ", ".join(folder.name for folder in there)
    raise SeriesError(f"no series {name}: there is {known}. Name one of them.")


def _serving(there: Sequence[Path], version: str, *, exact: bool = False) -> Path | None:
    """The folder of this very release, else (unless `exact`) that of its line."""
    names = [f"vllm-{public_release(version)}"]
    if not exact:
        names.append(f"vllm-{line_of(version)}")
    by_name = {folder.name: folder for folder in there}
    return next((by_name[name] for name in names if name in by_name), None)


def _nearest(there: Sequence[Path], version: str) -> Path:
    """The series of the line that is fewest lines away, the newer one of two; a folder for a single
    release counts where there is no other."""

    def line(name: str) -> tuple[int, int]:
        major, minor = line_of(name).split(".")
        return int(major), int(minor)

    def serves(folder: Path) -> str | None:
        name = folder.name.removeprefix("vllm-")
        return name if name[:1].isdigit() else None

    at = line(version)
    lines = [folder for folder in there if (name := serves(folder)) and name.count(".") == 1]
    known = lines or [folder for folder in there if serves(folder)]
    if not known:
        return there[0]

    def distance(folder: Path) -> tuple[int, int, int]:
        other = line(str(serves(folder)))
        return abs(other[0] - at[0]), abs(other[1] - at[1]), -other[1]

    return min(known, key=distance)
