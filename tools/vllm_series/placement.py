"""What placing gives: one hunk's place or refusal, and the file that all of them make."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from vllm_series.patch import Hunk
from vllm_series.verdicts import Verdict, worst


@dataclass(frozen=True, slots=True)
class Placement:
    """One hunk in one file.

    `line` is the 1-based line of the old text where the pre-image starts, `offset` how far that is
    from the recorded line; both are None where the hunk is not placed. A hunk that only the base
    can place (`merged`, `moved`) has no pre-image there: `line` is that of its first change, and
    `offset` how far that has come. `scope` is the qualified
    name, None where no syntax tree was needed or there is none. `reason` is a sentence for every
    verdict that is not a placement, `candidate` the nearest place as a diff.
    """

    hunk: Hunk
    verdict: Verdict
    line: int | None = None
    offset: int | None = None
    scope: str | None = None
    reason: str = ""
    candidate: str = ""


@dataclass(frozen=True, slots=True)
class FilePlacement:
    """Every hunk of one file change, and the text that results when all of them are placed.

    `result` is None when any hunk is refused, and when some hunks stand already and others do not.
    `pristine` says that the file's blob id is the recorded pre-image. `note` says why the base,
    though at hand, was no help.
    """

    placements: tuple[Placement, ...]
    result: bytes | None
    pristine: bool
    note: str = ""

    @property
    def verdict(self) -> Verdict:
        """The worst of the hunks', `AMBIGUOUS` where some stand already and others do not."""
        whole = worst([placement.verdict for placement in self.placements])
        return Verdict.AMBIGUOUS if _placed(whole) and self.result is None else whole

    @property
    def by_base(self) -> bool:
        """Whether there is a result that only the base has led to, which is not for `apply`."""
        return self.result is not None and not self.verdict.fits

    @property
    def reason(self) -> str:
        """Why the file is refused though no single hunk is."""
        verdicts = [placement.verdict for placement in self.placements]
        if self.result is not None or not _placed(worst(verdicts)):
            return ""
        done = verdicts.count(Verdict.APPLIED)
        return (
            f"{done} of its {len(verdicts)} hunks stand in the file already, the rest do not. Put "
            "the stock file back before applying it"
        )


def _placed(verdict: Verdict) -> bool:
    """Whether a hunk is placed, or stands already."""
    return verdict.fits or verdict is Verdict.MERGED


def blob_id(text: bytes) -> str:
    """Git's object id of a file's bytes (SHA-1)."""
    return hashlib.sha1(b"blob %d\0" % len(text) + text, usedforsecurity=False).hexdigest()


def is_blob(text: bytes, recorded: str | None) -> bool:
    """Whether `recorded`, a blob id or its first seven or more digits, is that of `text`."""
    if recorded is None or len(recorded) < 7 or not recorded.strip("0"):
        return False
    return blob_id(text).startswith(recorded)
