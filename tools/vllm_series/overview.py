"""What the command `releases` tells of each release: its files, its support here, its record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vllm_series.known import Wheel
from vllm_series.support import Support
from vllm_series.upstream.catalog import Release
from vllm_series.upstream.choice import Choice, by_release
from vllm_series.upstream.index import IndexFile
from vllm_series.upstream.recorded import Held, held, other_bytes


@dataclass(frozen=True, slots=True)
class Row:
    """One release. `files` are all that is served of it and empty where the source lists none,
    `series` is the folder that serves it, `note` says why the choice is not pip's, `why` why it was
    withdrawn, `faults` what is wrong with its bytes."""

    release: Release
    files: tuple[IndexFile, ...] = ()
    series: str | None = None
    held: Held = Held.UNKNOWN
    note: str = ""
    why: str = ""
    faults: tuple[str, ...] = ()

    @property
    def state(self) -> str:
        """`yanked`, `pre` or `final`."""
        if self.release.yanked:
            return "yanked"
        return "pre" if self.release.prerelease else "final"

    def as_json(self) -> dict[str, Any]:
        """As docs/json.md has it."""
        release = self.release
        return {
            "release": release.version,
            "distribution": release.distribution,
            "date": release.date,
            "size": release.size,
            "wheel": release.wheel,
            "sha256": release.sha256,
            "state": self.state,
            "yanked_reason": self.why or None,
            "series": self.series,
            "record": self.held.value,
            "note": self.note or None,
            "files": [
                {
                    "name": file.filename,
                    "date": file.date,
                    "size": file.size,
                    "sha256": file.sha256,
                    "yanked": file.yanked is not None,
                    "requires_python": file.requires_python,
                }
                for file in self.files
            ],
        }


def rows(
    chosen: Sequence[Choice],
    files: Sequence[IndexFile],
    distribution: str,
    support: Support,
    known: Sequence[Wheel],
) -> tuple[Row, ...]:
    """A row for every choice, in the same order."""
    groups = by_release(files)
    return tuple(
        _row(choice, groups[choice.release], distribution, support, known) for choice in chosen
    )


def _row(
    choice: Choice,
    files: Sequence[IndexFile],
    distribution: str,
    support: Support,
    known: Sequence[Wheel],
) -> Row:
    changed = [file for file in files if held(known, file) is Held.OTHER_BYTES]
    faults = [other_bytes(known, file) for file in changed]
    state = Held.UNKNOWN
    if changed:
        state = Held.OTHER_BYTES
    elif choice.file is not None:
        state = held(known, choice.file)
        if state is Held.NEW_BUILD:
            faults.append(
                f"{choice.file.filename} is a build of {choice.release} that is not recorded, and "
                "it is the one that pip takes now. Look at it, then run vllm-series releases "
                "--update."
            )
    return Row(
        choice.as_release(distribution),
        tuple(files),
        support.folder_name(choice.release),
        state,
        choice.note or choice.reason,
        (choice.file.yanked or "") if choice.file else "",
        tuple(dict.fromkeys(faults)),
    )
