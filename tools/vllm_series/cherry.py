"""Which patches of a series upstream has, release by release: git-cherry(1) for releases.

git knows a patch by the digest of its diff and sees one that upstream has changed on its way in no
more. Here it is what `check` answers: hunk by hunk, by text and scope, remembered where a later
change hides it, and forgotten where upstream took it back. Pure: answers in, values out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from vllm_series.checking.answers import PatchAnswer, ReleaseAnswer
from vllm_series.checking.judge import is_lost
from vllm_series.verdicts import Verdict

_HAS = (Verdict.UPSTREAMED, Verdict.APPLIED)


class Share(Enum):
    """How much of a patch a release has; `-` and `+` are git cherry's signs."""

    ALL = "-"
    PART = "~"
    NONE = "+"
    UNKNOWN = "!"
    """The release, or the patch on it, could not be judged."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One patch in one release. `since` is the first release that has all of it; `has` of the `of`
    hunks (a change of a whole file counts for one) are upstream."""

    release: str
    share: Share
    since: str | None = None
    has: int = 0
    of: int = 0


@dataclass(frozen=True, slots=True)
class Row:
    """One patch, a cell a release, in their order."""

    name: str
    cells: tuple[Cell, ...]

    @property
    def last(self) -> Cell:
        """What is known of the newest release that could be judged, else of the newest."""
        known = [cell for cell in self.cells if cell.share is not Share.UNKNOWN]
        return (known or list(self.cells))[-1]


def rows(names: Iterable[str], answers: Sequence[ReleaseAnswer]) -> tuple[Row, ...]:
    """The patches `names` in their order, with what `check` answered of one series on releases,
    oldest first."""
    return tuple(Row(name, tuple(_cell(name, answer) for answer in answers)) for name in names)


def share(patch: PatchAnswer) -> Share:
    """How much of a patch stands in the release."""
    has, of = counted(patch)
    if patch.verdict in _HAS and not is_lost(patch):
        return Share.ALL
    if has == 0:
        return Share.NONE
    return Share.PART if has < of or patch.verdict not in _HAS else Share.ALL


def counted(patch: PatchAnswer) -> tuple[int, int]:
    """How many of the hunks stand in the release, and how many there are."""
    words = [
        word
        for file in patch.files
        for word in ([hunk.verdict for hunk in file.hunks] or [file.verdict])
    ]
    return sum(word in _HAS for word in words), len(words)


def _cell(name: str, answer: ReleaseAnswer) -> Cell:
    patch = next((patch for patch in answer.patches if patch.name == name), None)
    if answer.error or patch is None:
        return Cell(answer.release, Share.UNKNOWN)
    found = share(patch)
    has, of = counted(patch)
    return Cell(answer.release, found, patch.since if found is Share.ALL else None, has, of)
