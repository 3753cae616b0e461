"""Which patch of a series makes a command fail: what to try next, and what is known by then.

The words are git's (git-bisect(1), "bisect run"). Patches are tried in the order of the series,
always from the first one on, so that whatever a patch needs is in front of it. A try is known by
the number of patches that were in. Pure: the command is run elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

_SKIP = 125
_STOP = 128


class Answer(Enum):
    """What a command's exit code says of the patches that were in."""

    GOOD = "good"
    BAD = "bad"
    SKIP = "skip"
    """It cannot be told."""
    STOP = "stop"
    """The search has no sense: the command was killed, or asks for an end."""


class Outcome(Enum):
    """How a search ended; the values are words of a report."""

    FOUND = "found"
    UNDECIDED = "undecided"
    """One of several, since those between could only be skipped."""
    BAD_WITH_NONE = "bad with none"
    GOOD_WITH_ALL = "good with all"
    UNKNOWN_END = "unknown end"
    """With no patch, or with all of them, the command could not tell."""
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Step:
    """One run of the command with the first `patches` of a series in; `code` is its exit code,
    below 0 for a signal."""

    patches: int
    code: int

    @property
    def answer(self) -> Answer:
        """The exit code, read as git reads it."""
        return answer(self.code)


def answer(code: int) -> Answer:
    """0 is good, 1 to 127 are bad but for 125, which skips; everything else stops."""
    if code == 0:
        return Answer.GOOD
    if code == _SKIP:
        return Answer.SKIP
    return Answer.BAD if 0 < code < _STOP else Answer.STOP


def next_try(steps: Sequence[Step], number: int) -> int | None:
    """How many patches to try next of a series of `number`, None where the search has ended.

    Both ends come first: a command that fails without any patch, or passes with all of them, is
    not about the patches.
    """
    known = {step.patches: step.answer for step in steps}
    if Answer.STOP in known.values():
        return None
    for end, wanted in ((0, Answer.GOOD), (number, Answer.BAD)):
        if end not in known:
            return end
        if known[end] is not wanted:
            return None
    good, bad = _between(known)
    middle = (good + bad) // 2
    left = [at for at in range(good + 1, bad) if at not in known]
    # What is skipped has neighbours that are as good a question, the nearest one before all.
    return min(left, key=lambda at: (abs(at - middle), at), default=None)


def outcome(steps: Sequence[Step], number: int) -> Outcome:
    """How a search of `number` patches ended that has nothing left to try."""
    known = {step.patches: step.answer for step in steps}
    if Answer.STOP in known.values():
        return Outcome.STOPPED
    if Answer.SKIP in (known.get(0), known.get(number)):
        return Outcome.UNKNOWN_END
    if known.get(0) is Answer.BAD:
        return Outcome.BAD_WITH_NONE
    if known.get(number) is Answer.GOOD:
        return Outcome.GOOD_WITH_ALL
    return Outcome.FOUND if len(suspects(steps)) == 1 else Outcome.UNDECIDED


def suspects(steps: Sequence[Step]) -> range:
    """The places (from 0) of the patches of which one makes the command fail; none before both
    ends are known."""
    known = {step.patches: step.answer for step in steps}
    if Answer.GOOD not in known.values() or Answer.BAD not in known.values():
        return range(0)
    good, bad = _between(known)
    return range(good, bad)


def most_runs(number: int) -> int:
    """How often the command is run at most for `number` patches where nothing is skipped."""
    return 2 + max(0, number - 1).bit_length()


def _between(known: Mapping[int, Answer]) -> tuple[int, int]:
    """The last number that is good in front of the first that is bad."""
    bad = min(at for at, told in known.items() if told is Answer.BAD)
    return max((at for at, told in known.items() if told is Answer.GOOD and at < bad)), bad
