"""The words for where a hunk stands in a tree, best first.

A patch takes its worst hunk's verdict, so the order of the members is part of the meaning.
"""

from __future__ import annotations

from enum import Enum
from operator import attrgetter


class Verdict(Enum):
    """What is true of one hunk (or patch) in one tree; members are ordered, worst last."""

    EXACT = "exact"
    """The file is the recorded pre-image, or the hunk fits at its recorded line."""
    OFFSET = "offset"
    """The hunk fits in its scope at another line."""
    APPLIED = "applied"
    """The tree already holds the post-image."""
    UPSTREAMED = "upstreamed"
    """The stock release already holds the post-image."""
    MERGED = "merged"
    """Only a three-way merge places it; apply never does."""
    MOVED = "moved"
    """The text stands once, but in another scope."""
    AMBIGUOUS = "ambiguous"
    """The text stands more than once where it may stand only once."""
    DRIFTED = "drifted"
    """The text does not stand there any more."""
    MISSING = "missing"
    """The file does not exist in the tree."""
    NOT_SHIPPED = "not-shipped"
    """The path is never part of a wheel (`csrc/`, `tests/`)."""
    BLOCKED = "blocked"
    """A patch that this one needs has failed."""

    def __init__(self, _word: str) -> None:
        self.rank: int = len(type(self).__members__)
        """0 is best."""

    @property
    def fits(self) -> bool:
        """Whether apply may go on with it: placed, or nothing left to do."""
        return self in (Verdict.EXACT, Verdict.OFFSET, Verdict.APPLIED)

    def __lt__(self, other: Verdict) -> bool:
        return self.rank < other.rank


def worst(verdicts: list[Verdict]) -> Verdict:
    """The verdict that a whole takes from its parts; `EXACT` for no parts at all."""
    return max(verdicts, key=attrgetter("rank"), default=Verdict.EXACT)
