"""Which wheel of the index a tree was made from, by the fingerprint of its Python files.

`series/releases.json` lists the wheels that this project has seen: release, distribution, file
name, sha256, size in bytes, date of upload, whether it was yanked, and the fingerprint (`release`).
Wheels of one release for several platforms share a fingerprint; a second build of a release, or the
build of another distribution, does not.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from vllm_series.errors import SeriesError

FILE = "releases.json"
SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Wheel:
    """One wheel of the index. `sha256` in hex, `size` in bytes, `date` is the day of the upload;
    None where the list does not tell it."""

    release: str
    distribution: str
    name: str
    fingerprint: str
    sha256: str | None = None
    size: int | None = None
    date: str | None = None
    yanked: bool = False


def wheels(series_dir: Path) -> tuple[Wheel, ...]:
    """The wheels that `releases.json` of a series folder lists; none where there is no such file.

    Raises SeriesError for a file that cannot be read.
    """
    place = series_dir / FILE
    try:
        value = json.loads(place.read_bytes())
        if value["schema"] != SCHEMA:
            raise ValueError(f"form {value['schema']}, this vllm-series reads {SCHEMA}")
        return tuple(
            Wheel(
                item["release"],
                item["distribution"],
                item["wheel"],
                item["python_files"],
                item.get("sha256"),
                item.get("size"),
                item.get("date"),
                item.get("yanked") is True,
            )
            for item in value["wheels"]
        )
    except FileNotFoundError:
        return ()
    except (ValueError, KeyError, TypeError) as error:
        raise SeriesError(f"{place} is damaged: {error}. Restore it from git.") from error


def origin(known: tuple[Wheel, ...], distribution: str, version: str, fingerprint: str) -> str:
    """A sentence on whose bytes a tree holds; `version` is what it calls itself.

    Other wheels of that version whose Python files are not these are named.
    """
    release = [wheel for wheel in known if wheel.release == version]
    same = [wheel for wheel in known if wheel.fingerprint == fingerprint]
    own = [
        wheel for wheel in same if (wheel.distribution, wheel.release) == (distribution, version)
    ]
    if own:
        others = sorted({_any_platform(w.name) for w in release if w.fingerprint != fingerprint})
        told = f"the Python files of {_any_platform(own[0].name)}"
        return f"{told}, which are not those of {' or '.join(others)}" if others else told
    if same:
        return (
            f"the Python files of {_any_platform(same[0].name)}, though it calls itself "
            f"{distribution} {version}"
        )
    if any(wheel.distribution == distribution for wheel in release):
        return (
            f"the Python files of no known wheel of {distribution} {version}: changed or built anew"
        )
    return f"the Python files of a wheel that {FILE} does not list"


def _any_platform(name: str) -> str:
    return name.rpartition("-")[0] + "-*.whl"
