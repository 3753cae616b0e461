"""Writing `series/releases.json`: the wheels that this project has seen, and what is in them.

The file is written as a whole, in one order, so that an update changes only the lines of what is
new. An entry is never replaced by other bytes under the same name: that is a person's decision.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from packaging.version import Version

from vllm_series.errors import EnvironmentRefusedError, RefusedError
from vllm_series.known import FILE, SCHEMA, Wheel, wheels
from vllm_series.upstream.index import IndexFile
from vllm_series.upstream.recorded import Held, held, other_bytes

Fingerprints = Callable[[Sequence[IndexFile]], Mapping[str, str]]
"""Gives the fingerprint of each wheel's Python files, by file name."""


@dataclass(frozen=True, slots=True)
class Update:
    """What an update did: the wheels it added, and those whose date or withdrawal it corrected."""

    added: tuple[Wheel, ...]
    changed: tuple[Wheel, ...]


def update(
    series_dir: Path, files: Collection[IndexFile], wanted: Collection[str], prints: Fingerprints
) -> Update:
    """Record every wheel of the wanted releases, and refresh what is recorded of the others.

    `files` are all files of one distribution as the index has them. What is no longer served stays.
    Nothing is written where nothing changes. Raises RefusedError, with the file untouched, where a
    wheel is served in other bytes than recorded, and EnvironmentRefusedError where the file cannot
    be written.
    """
    known = {wheel.name: wheel for wheel in wheels(series_dir)}
    record = tuple(known.values())
    bad = [other_bytes(record, file) for file in files if held(record, file) is Held.OTHER_BYTES]
    if bad:
        raise RefusedError("\n".join(dict.fromkeys(bad)))
    served = {file.filename: file for file in files if file.is_wheel}
    new = [file for name, file in served.items() if name not in known and file.release in wanted]
    found = prints(new) if new else {}
    added = [_wheel(file, found[file.filename]) for file in new]
    changed = []
    for name, wheel in known.items():
        if name in served:
            fresh = _refreshed(wheel, served[name])
            if fresh != wheel:
                changed.append(fresh)
    if added or changed:
        known |= {wheel.name: wheel for wheel in (*added, *changed)}
        _write(series_dir / FILE, _text(known.values()))
    return Update(tuple(sorted(added, key=_order)), tuple(sorted(changed, key=_order)))


def _wheel(file: IndexFile, fingerprint: str) -> Wheel:
    return Wheel(
        file.release,
        file.distribution,
        file.filename,
        fingerprint,
        file.sha256,
        file.size,
        file.date,
        file.yanked is not None,
    )


def _refreshed(wheel: Wheel, file: IndexFile) -> Wheel:
    """With what this index knows better; what it does not tell stays."""
    return replace(
        wheel,
        sha256=wheel.sha256 or file.sha256,
        size=wheel.size or file.size,
        date=file.date or wheel.date,
        # A folder of wheels does not know what was withdrawn.
        yanked=wheel.yanked if file.url.startswith("file:") else file.yanked is not None,
    )


def _order(wheel: Wheel) -> tuple[str, Version, str]:
    return wheel.distribution, Version(wheel.release), wheel.name


def _text(known: Collection[Wheel]) -> str:
    listed: list[dict[str, Any]] = [
        {
            "release": wheel.release,
            "distribution": wheel.distribution,
            "wheel": wheel.name,
            "sha256": wheel.sha256,
            "size": wheel.size,
            "date": wheel.date,
            "yanked": wheel.yanked,
            "python_files": wheel.fingerprint,
        }
        for wheel in sorted(known, key=_order)
    ]
    return json.dumps({"schema": SCHEMA, "wheels": listed}, indent=1) + "\n"


def _write(place: Path, text: str) -> None:
    """Replace the file as a whole: a reader sees the old one or the new one."""
    try:
        mode = place.stat().st_mode & 0o777 if place.exists() else 0o644
        descriptor, name = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}.")
        scratch = Path(name)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            scratch.chmod(mode)
            scratch.replace(place)
        except BaseException:
            scratch.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise EnvironmentRefusedError(
            f"{place} cannot be written: {error.strerror}. Check the rights of the folder."
        ) from error
