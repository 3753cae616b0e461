"""One sign for where a patch stands on a release: what a cell of a table holds.

A sign is one printable ASCII letter, told apart without any colour. What apply takes is a quiet
sign, what a person has to look at is a letter.
"""

from __future__ import annotations

from dataclasses import dataclass

from vllm_series.checking.answers import PatchAnswer
from vllm_series.verdicts import Verdict


@dataclass(frozen=True, slots=True)
class Mark:
    """A sign, its word (a verdict's, or `review`), what a legend says of it, and its colour."""

    sign: str
    word: str
    meaning: str
    colour: str


OF_VERDICT = {
    Verdict.EXACT: Mark("=", "exact", "fits as recorded", "green"),
    Verdict.OFFSET: Mark("+", "offset", "fits at another line", "green"),
    Verdict.APPLIED: Mark("a", "applied", "stands there already", "cyan"),
    Verdict.UPSTREAMED: Mark("u", "upstreamed", "upstream has it", "cyan"),
    Verdict.MERGED: Mark("m", "merged", "only a merge places it", "yellow"),
    Verdict.MOVED: Mark(">", "moved", "its text is in another scope", "red"),
    Verdict.AMBIGUOUS: Mark("?", "ambiguous", "it could go to several places", "red"),
    Verdict.DRIFTED: Mark("d", "drifted", "its lines changed", "red"),
    Verdict.MISSING: Mark("x", "missing", "a file is gone", "red"),
    Verdict.NOT_SHIPPED: Mark("n", "not-shipped", "no wheel has its file", "yellow"),
    Verdict.BLOCKED: Mark("b", "blocked", "a patch that it needs does not fit", "red"),
}
REVIEW = Mark("r", "review", "fits, but may mean something else", "yellow")
UNJUDGED = Mark("!", "not judged", "the release could not be judged", "red")
ABSENT = Mark("-", "not listed", "not in the series of that release", "bright_black")

ALL = (*OF_VERDICT.values(), REVIEW, UNJUDGED, ABSENT)
"""Every mark, in the order of a legend."""


def mark(patch: PatchAnswer) -> Mark:
    """Where a patch stands; one that fits and is left to look at is in `REVIEW`."""
    if patch.verdict in (Verdict.EXACT, Verdict.OFFSET) and patch.reviews:
        return REVIEW
    return OF_VERDICT[patch.verdict]
