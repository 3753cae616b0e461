"""What is served, held against what `series/releases.json` has recorded of it.

The same version may be served in other bytes one day: a file replaced, another build that pip now
prefers, an index that was tampered with. Answers of the day before would then be about something
else, so nothing of the kind is taken without a word.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from pathlib import Path

from vllm_series.errors import EnvironmentRefusedError
from vllm_series.known import FILE, Wheel, wheels
from vllm_series.upstream.index import IndexFile


class Held(Enum):
    """How a served file stands to the record."""

    SAME = "recorded"
    """These bytes are recorded."""
    UNKNOWN = "not recorded"
    """Nothing of this release is recorded, or the file is an sdist."""
    NEW_BUILD = "new build"
    """The release is recorded, but by other wheels than this one."""
    OTHER_BYTES = "other bytes"
    """A wheel of this name is recorded with other bytes."""


def recorded(series_dir: Path | None) -> tuple[Wheel, ...]:
    """The record beside the series; nothing where there is no folder or no record.

    Raises SeriesError for a record that cannot be read.
    """
    return wheels(series_dir) if series_dir is not None else ()


def held(known: Sequence[Wheel], file: IndexFile) -> Held:
    """How this file stands to the record.

    Bytes go by the SHA-256; where the index does not tell it, by the size.
    """
    if not file.is_wheel:
        return Held.UNKNOWN
    release = [
        wheel
        for wheel in known
        if (wheel.distribution, wheel.release) == (file.distribution, file.release)
    ]
    for wheel in release:
        if wheel.name != file.filename:
            continue
        if file.sha256 and wheel.sha256:
            return Held.SAME if file.sha256 == wheel.sha256 else Held.OTHER_BYTES
        if file.size and wheel.size and file.size != wheel.size:
            return Held.OTHER_BYTES
        return Held.SAME
    return Held.NEW_BUILD if release else Held.UNKNOWN


def refuse_other_bytes(known: Sequence[Wheel], file: IndexFile) -> str:
    """A word on a build that is not recorded, empty for what is as recorded or not known at all.

    Raises EnvironmentRefusedError for a wheel that is recorded with other bytes.
    """
    state = held(known, file)
    if state is Held.OTHER_BYTES:
        raise EnvironmentRefusedError(other_bytes(known, file))
    if state is Held.NEW_BUILD:
        return (
            f"{file.filename} is not among the wheels of {file.release} in {FILE}: a new build. "
            "vllm-series releases --update records it."
        )
    return ""


def other_bytes(known: Sequence[Wheel], file: IndexFile) -> str:
    """What is wrong with a wheel that is served in other bytes than those recorded."""
    wheel = next(wheel for wheel in known if wheel.name == file.filename)
    served = f"sha256 {file.sha256}" if file.sha256 else f"{file.size} bytes"
    expected = f"sha256 {wheel.sha256}" if file.sha256 else f"{wheel.size} bytes"
    return (
        f"{file.filename} is served with {served}, but {FILE} has recorded {expected}. "
        "Find out why before you trust it; to take it, remove its entry there and run "
        "vllm-series releases --update."
    )
