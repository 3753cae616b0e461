"""Series folders: which one serves a version, and its patches in order.

`series` files are quilt's (quilt(1), "series file"): a patch a line, `#` starts a comment. Strip
levels other than quilt's default and reverse application (`-R`) are refused, since a patch here has
one form.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from posixpath import normpath

from vllm_series.errors import SeriesError, UsageError

SERIES_FILE = "series"
_LINE = re.compile(r"^vllm-(\d+\.\d+)$")
_EXACT = re.compile(r"^vllm-(\d+\.\d+\.\d+(?:\.\d+)?(?:(?:a|b|rc)\d+)?(?:\.post\d+)?)$")
_VERSION = re.compile(
    r"v?(?P<release>(?P<line>\d+\.\d+)(?:\.\d+)*(?:(?:a|b|rc)\d+)?(?:\.post\d+)?)"
    r"(?:\.dev\d+)?(?:\+[A-Za-z0-9._-]+)?",
    re.ASCII,
)
_COMMENT = re.compile(r"(^|[ \t]+)#.*")


@dataclass(frozen=True, slots=True)
class Entry:
    """One patch of a series: its file name as the series lists it, and the file's bytes."""

    name: str
    text: bytes

    @property
    def sha256(self) -> str:
        """The hex digest of the text, by which the stack knows an applied patch."""
        return hashlib.sha256(self.text).hexdigest()


@dataclass(frozen=True, slots=True)
class Series:
    """An ordered list of patches. `serves` is a line (`0.33`) or one release (`0.33.0`)."""

    folder: Path
    serves: str
    entries: tuple[Entry, ...]

    @property
    def is_exact(self) -> bool:
        """Whether it is for one release alone."""
        return bool(_EXACT.match(self.folder.name))


def public_release(version: str) -> str:
    """`0.33.0` of `0.33.0+cu130`; a development version loses its `.dev` part too.

    Raises SeriesError for what is not a version.
    """
    found = _VERSION.fullmatch(version)
    if not found:
        raise SeriesError(f"{version!r} is not a vLLM version. Name one such as 0.33.0.")
    return found["release"]


def line_of(version: str) -> str:
    """The minor line of a version: `0.33` of `0.33.0+cu130`."""
    found = _VERSION.fullmatch(version)
    if not found:
        raise SeriesError(f"{version!r} is not a vLLM version. Name one such as 0.33.0.")
    return found["line"]


def folders(series_dir: Path) -> list[Path]:
    """Every series folder, oldest line first, a line before its single releases."""
    if not series_dir.is_dir():
        raise SeriesError(
            f"no series folder: {series_dir}. Name one with --series-dir or VLLM_SERIES_DIR."
        )
    found = [
        path
        for path in series_dir.iterdir()
        if path.is_dir() and (_LINE.match(path.name) or _EXACT.match(path.name))
    ]
    return sorted(found, key=lambda path: [int(n) for n in re.findall(r"\d+", path.name)])


def folder_for(series_dir: Path, version: str) -> Path:
    """The folder that serves a version: that of the exact release, else that of its line.

    Raises SeriesError where there is neither; that is never a success.
    """
    for name in (f"vllm-{public_release(version)}", f"vllm-{line_of(version)}"):
        if (series_dir / name).is_dir():
            return series_dir / name
    known = ", ".join(path.name.removeprefix("vllm-") for path in folders(series_dir)) or "none"
    raise SeriesError(
        f"no series for vllm {version}: {series_dir} covers {known}. "
        f"Make {series_dir / ('vllm-' + line_of(version))} or name another folder with "
        "--series-dir."
    )


def series_folder(series_dir: Path | None) -> Path:
    """The folder of the series: as given, else the nearest `series/` here or above."""
    if series_dir is not None:
        if not series_dir.is_dir():
            raise SeriesError(f"no series folder: {series_dir}. Name one with --series-dir.")
        return series_dir
    here = Path.cwd()
    for folder in (here, *here.parents):
        candidate = folder / "series"
        if candidate.is_dir() and any(path.is_dir() for path in candidate.glob("vllm-*")):
            return candidate
    raise SeriesError(f"no series folder: none in {here} or above. Name one with --series-dir.")


def every_folder(series_dir: Path | None) -> list[Path]:
    """All series of the folder of the series, or the one that it is itself; never none."""
    base = series_folder(series_dir)
    found = [base] if (base / SERIES_FILE).is_file() else folders(base)
    if not found:
        raise SeriesError(
            f"{base} holds no series: no vllm-0.33 or the like. "
            "Name another folder with --series-dir."
        )
    return found


def chosen_folder(series_dir: Path | None, name: str | None, version: str | None) -> Path:
    """The series that `--series` names, else the one that fits the version of the tree.

    A `--series-dir` that holds a `series` file itself is that series.
    """
    base = series_folder(series_dir)
    if (base / SERIES_FILE).is_file():
        if name is not None:
            raise UsageError(f"{base} is a series itself. Leave --series out.")
        return base
    if name is not None:
        for folder in (base / name, base / f"vllm-{name}"):
            if folder.is_dir():
                return folder
        known = ", ".join(path.name for path in folders(base)) or "none"
        raise SeriesError(f"no series {name} in {base}: it has {known}. Name one that it has.")
    if version is None:
        raise SeriesError(
            "the version of this tree is not known, so no series fits. Name one with --series."
        )
    return folder_for(base, version)


def folder_to_fill(series_dir: Path | None, name: str | None, release: str) -> Path:
    """The series that a new patch made on `release` goes into; one that is not there yet is made
    with its first patch."""
    try:
        return chosen_folder(series_dir, name, release)
    except SeriesError:
        serves = (name or line_of(release)).removeprefix("vllm-")
        if serves not in (release, line_of(release)):
            raise
        return series_folder(series_dir) / f"vllm-{serves}"


def chosen_series(series_dir: Path | None, name: str | None, version: str | None) -> Series:
    """The same, read. Raises SeriesError as `load` does."""
    return load(chosen_folder(series_dir, name, version))


def called(name: str) -> tuple[str, str]:
    """What a person or a trailer may call a patch: its file's name, with or without its ending."""
    return name, name.rsplit(".", 1)[0]


def find(series_dir: Path | None, series_name: str | None, name: str) -> tuple[Series, int]:
    """The series that has a patch, by its name with or without its ending, and the patch's index;
    the newest such series unless one is named. Raises SeriesError where none has it."""
    chosen = searched(series_dir, series_name)
    found = first_with(chosen, name)
    if found is None:
        listed = ", ".join(folder.name for folder in chosen)
        raise SeriesError(f"no patch {name} in {listed}. See vllm-series list.")
    return found


def searched(series_dir: Path | None, series_name: str | None) -> list[Path]:
    """Where a patch is looked for: in the series that is named, else in all, newest first."""
    if series_name is not None:
        return [chosen_folder(series_dir, series_name, None)]
    return every_folder(series_dir)[::-1]


def first_with(chosen: Sequence[Path], name: str) -> tuple[Series, int] | None:
    """The first series that has the patch, and the patch's index; None where none has it."""
    for folder in chosen:
        series = load(folder)
        for at, entry in enumerate(series.entries):
            if name in called(entry.name):
                return series, at
    return None


def load(folder: Path) -> Series:
    """Read a series folder. Raises SeriesError for missing or doubled patches."""
    entries = []
    for name in names(folder):
        try:
            entries.append(Entry(name, (folder / name).read_bytes()))
        except FileNotFoundError:
            raise SeriesError(
                f"{folder / SERIES_FILE} lists {name}, which is not there. "
                "Add the file or take the line out."
            ) from None
        except IsADirectoryError:
            raise SeriesError(
                f"{folder / SERIES_FILE} lists {name}, which is no file. Take the line out."
            ) from None
    return Series(folder, folder.name.removeprefix("vllm-"), tuple(entries))


def names(folder: Path) -> list[str]:
    """The patch names that a `series` file lists, in order."""
    path = folder / SERIES_FILE
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        raise SeriesError(
            f"{path} is missing: a series folder lists its patches there, one a line. Write it."
        ) from None
    except UnicodeDecodeError as error:
        raise SeriesError(
            f"{path} is not UTF-8: {error.reason} at byte {error.start}. Save it as UTF-8."
        ) from None
    listed: list[str] = []
    for number, line in enumerate(text.split("\n"), 1):
        words = _COMMENT.sub("", line).split()
        if not words:
            continue
        name, options = words[0], words[1:]
        if any(option not in ("-p1",) for option in options):
            raise SeriesError(
                f"{path}:{number}: {' '.join(options)} is not supported; patches apply with -p1. "
                "Make the patch so and take the option out."
            )
        if not name.isprintable():
            raise SeriesError(
                f"{path}:{number}: {name!a} is not a file name. "
                "Write the name of a patch in this folder."
            )
        if name.startswith("/") or ".." in name.split("/"):
            raise SeriesError(
                f"{path}:{number}: {name} lies outside the series folder. "
                "Move the patch into the folder."
            )
        if name != normpath(name):
            raise SeriesError(
                f"{path}:{number}: {name} is not written as a plain path. Write {normpath(name)}."
            )
        if name == SERIES_FILE:
            raise SeriesError(
                f"{path}:{number}: {name} cannot be a patch of itself. Take the line out."
            )
        if name in listed:
            raise SeriesError(
                f"{path}:{number}: {name} is listed twice. Take one of the lines out."
            )
        listed.append(name)
    return listed


def orphans(folder: Path) -> list[str]:
    """Patch files of the folder that its `series` does not list."""
    listed = set(names(folder))
    return sorted(
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.suffix in (".patch", ".diff") and path.relative_to(folder).as_posix() not in listed
    )
