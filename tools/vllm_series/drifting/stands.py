"""What `drift` answers: each hunk in each release, the forms of its place, what came between.

Values only. `drift` makes them, `forecast` reads them, `reports.drift` shows them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vllm_series.drifting.following import Place
from vllm_series.drifting.scopediff import ScopeDiff
from vllm_series.patch import Hunk
from vllm_series.upstream.catalog import Release
from vllm_series.verdicts import Verdict

_FITS = (Verdict.EXACT, Verdict.OFFSET)


@dataclass(frozen=True, slots=True)
class Stand:
    """One hunk in one release.

    `verdict` is that of the hunk on the stock file, `reason` why it is not placed. `form` counts
    from 1, oldest first; 0 where the place is not there. `path`, `scope` and the 1-based `line` are
    those of the place; None with form 0. `scope_changed` says that the scope's text is not that of
    the release in front, somewhere.
    """

    release: str
    verdict: Verdict
    reason: str = ""
    form: int = 0
    path: str | None = None
    scope: str | None = None
    line: int | None = None
    scope_changed: bool = False

    @property
    def fits(self) -> bool:
        """Whether `apply` would place it."""
        return self.verdict in _FITS


@dataclass(frozen=True, slots=True)
class Form:
    """One text of the place. `number` counts from 1, oldest first; `text` is the statements on both
    sides of each change and the lines that the hunk takes out."""

    number: int
    text: str


@dataclass(frozen=True, slots=True)
class Transition:
    """What upstream did to the place of a hunk between two releases, `before` the older one.

    `what` are words such as `form` (the text of the place), `appears`, `gone`, `renamed`, `moved`,
    `fits` (it fits in `after`, not in `before`) and `drifts` (the other way round); `told` says it
    in a sentence. `forms` are the numbers of the forms, 0 for none. `diff` is the diff of the
    scope.
    """

    before: str
    after: str
    forms: tuple[int, int]
    what: tuple[str, ...]
    told: str
    diff: ScopeDiff


@dataclass(frozen=True, slots=True)
class HunkDrift:
    """One hunk through the releases, oldest first.

    `number` counts from 1 within its file change. `path` and `scope` are those of the base.
    `reason` says why the place is not known at all: the hunk does not fit its base.
    """

    path: str
    number: int
    hunk: Hunk
    scope: str | None
    stands: tuple[Stand, ...]
    forms: tuple[Form, ...] = ()
    transitions: tuple[Transition, ...] = ()
    places: Mapping[str, Place] | None = None
    reason: str = ""

    def drifted(self, base: str) -> tuple[Stand | None, Stand | None]:
        """The nearest release before the base and after it in which the hunk does not fit."""
        at = next((n for n, stand in enumerate(self.stands) if stand.release == base), None)
        if at is None:
            return None, None
        older = next((s for s in reversed(self.stands[:at]) if not s.fits), None)
        newer = next((s for s in self.stands[at + 1 :] if not s.fits), None)
        return older, newer


@dataclass(frozen=True, slots=True)
class Drift:
    """The answer for one patch. `found` says how the base was found where the patch does not name
    it. `unread` are the releases that could not be read, with the reason; `notes` are warnings."""

    patch: str
    base: str
    found: str
    releases: tuple[Release, ...]
    hunks: tuple[HunkDrift, ...]
    unread: Mapping[str, str]
    notes: tuple[str, ...]
