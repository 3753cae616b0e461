"""The new line folder, all at once: whoever looks finds the old one or the new one, whole.

It is prepared beside its place and flushed, then exchanged with what stands there (renameat2(2)),
or renamed where nothing does. The changelog and the store of resolutions follow. What is to be
written is in the state before the first of these steps, and each of them can be done again.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

from vllm_series.errors import EnvironmentRefusedError
from vllm_series.workspace.repository import resolutions
from vllm_series.workspace.state import flush, put

_EXCHANGE = 2
_HERE = -100
STORE = ".rerere"
"""The folder beside the series in which resolutions of conflicts are kept."""
_PREPARED = ".vllm-series-rebase"


def prepare(series_dir: Path, onto: str, files: Mapping[str, bytes]) -> Path:
    """Write the folder `onto` beside its place, flushed; gives where."""
    forget(series_dir)
    place = series_dir / _PREPARED / onto
    for name, data in files.items():
        put(place / name, data)
    flush(place)
    flush(place.parent)
    flush(series_dir)
    return place


def forget(series_dir: Path) -> None:
    """Take away what was prepared."""
    shutil.rmtree(series_dir / _PREPARED, ignore_errors=True)


def move_in(series_dir: Path, onto: str, files: Mapping[str, bytes]) -> None:
    """Put the prepared folder in its place; nothing is left to do where it is there already."""
    place, fresh = series_dir / onto, series_dir / _PREPARED / onto
    if holds(place, files):
        forget(series_dir)
        return
    if not holds(fresh, files):
        fresh = prepare(series_dir, onto, files)
    if not place.exists():
        fresh.rename(place)
    elif not _exchanged(fresh, place):
        old = fresh.with_name("old")
        place.rename(old)
        fresh.rename(place)
    flush(series_dir)
    forget(series_dir)


def holds(folder: Path, files: Mapping[str, bytes]) -> bool:
    """Whether a folder holds these files, and no other."""
    if not folder.is_dir():
        return False
    there = {
        path.relative_to(folder).as_posix(): path
        for path in folder.rglob("*")
        if not path.is_dir() or path.is_symlink()
    }
    return there.keys() == files.keys() and all(
        path.is_file() and path.read_bytes() == files[name] for name, path in there.items()
    )


def _exchanged(one: Path, two: Path) -> bool:
    """Swap two folders in one step; False where the system cannot."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    return bool(
        rename(_HERE, os.fsencode(one), _HERE, os.fsencode(two), ctypes.c_uint(_EXCHANGE)) == 0
    )


def changelog_of(series_dir: Path) -> Path | None:
    """The changelog beside the folder of the series; None where there is none."""
    place = series_dir.parent / "CHANGELOG.md"
    return place if place.is_file() else None


def enter(place: Path, heading: str, entry: str, old: str | None, alone: str) -> None:
    """Put an entry under a heading of the unreleased changes, or in place of the `old` one; where
    that is not there any more, `alone`. Once, however often it is asked."""
    try:
        text = place.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise EnvironmentRefusedError(f"{place} is not UTF-8. Save it as UTF-8.") from error
    if entry in text or alone in text:
        return
    if old is not None and old in text:
        fresh = text.replace(old, entry, 1)
    else:
        fresh = entered(text, heading, alone)
    put(place, fresh.encode("utf-8"))


def entered(text: str, heading: str, entry: str) -> str:
    """A changelog (keepachangelog.com) with one more entry, last under its heading."""
    lines = text.split("\n")
    start = next((n for n, line in enumerate(lines) if line.lower() == "## [unreleased]"), None)
    if start is None:
        start = next((n for n, line in enumerate(lines) if line.startswith("## ")), len(lines))
        lines[start:start] = ["## [Unreleased]", ""]
    end = next((n for n in range(start + 1, len(lines)) if lines[n].startswith("## ")), len(lines))
    under = next((n for n in range(start, end) if lines[n] == f"### {heading}"), None)
    if under is None:
        at = start + 1
        # The order of keepachangelog.com: what was added comes first.
        first = ("### Added",) if heading != "Added" else ()
        while at < end and (not lines[at].startswith("### ") or lines[at] in first):
            at += 1
        while at > start + 1 and not lines[at - 1].strip():
            at -= 1
        lines[at:at] = ["", f"### {heading}", "", *entry.split("\n")]
        if at + 4 < len(lines) and lines[at + 3 + entry.count("\n") + 1 :][:1] not in ([""], []):
            lines.insert(at + 4 + entry.count("\n"), "")
        return "\n".join(lines)
    stop = next((n for n in range(under + 1, end) if lines[n].startswith("### ")), end)
    while stop > under + 1 and not lines[stop - 1].strip():
        stop -= 1
    fresh = entry.split("\n")
    lines[stop:stop] = fresh if stop > under + 1 else ["", *fresh]
    return "\n".join(lines)


def sentence(words: str) -> str:
    """An entry of a changelog, folded."""
    return textwrap.fill(
        words, 105, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False,
        break_long_words=False,
    )  # fmt: skip


def take_store(series_dir: Path, into: Path) -> None:
    """Give a repository the resolutions that are kept beside the series."""
    for pair in resolutions(series_dir / STORE):
        for place in pair:
            target = into / place.parent.name / place.name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(place, target)


def give_store(recorded: Path, series_dir: Path) -> None:
    """Keep a repository's resolutions beside the series."""
    for pair in resolutions(recorded):
        for place in pair:
            target = series_dir / STORE / place.parent.name / place.name
            data = place.read_bytes()
            if not target.is_file() or target.read_bytes() != data:
                put(target, data)


def listing(text: bytes, left_out: Mapping[str, str], names: Sequence[str]) -> bytes:
    """The `series` file of the new line: that of the old one, with a comment in place of a patch
    that is left out."""
    out = []
    for line in text.decode("utf-8", "surrogateescape").split("\n"):
        words = line.split("#", 1)[0].split() if line.strip() else []
        name = words[0] if words else None
        if name is not None and name in left_out:
            out.append(f"# {name}: {left_out[name]}")
        else:
            out.append(line)
    return "\n".join(out).encode("utf-8", "surrogateescape")
