"""How likely a hunk is to survive the next release, by what became of its place in past ones.

A step from one release to the next breaks a hunk where a line that it shows is changed, or lines
are put between them. The rate of that is estimated as smoothed shares (a Beta-binomial model,
"additive smoothing" with a prior of known strength), from the general to the particular: what
happened to stretches as long as the hunk anywhere in its file, drawn towards the rate of all files;
then in its scope, drawn towards the file's; then to its own lines, drawn towards the scope's. A
later step weighs more. Steps to a new minor line and to a patch release are two matters.

The constants were chosen on hunks made up to 0.24 and tested on later ones: docs/drift.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

from vllm_series.align import Alignment, align
from vllm_series.drifting.following import Place, Text
from vllm_series.drifting.stands import HunkDrift
from vllm_series.scope import MODULE
from vllm_series.upstream.catalog import Release

HALF_LIFE = 16.0
"""After how many steps of its kind one weighs half."""
OVERALL = {True: 0.1, False: 0.005}
"""The share of stretches that a step breaks where nothing else is known, for a minor line and a
patch release."""
FILE_PRIOR, SCOPE_PRIOR, PLACE_PRIOR = 8.0, 64.0, 64.0
"""How many steps the more general rate counts for. The last two are large because they are that
little worth: what happened to a file says more of a place in it than what happened there before."""
REWRITTEN = 0.5
"""A step that breaks more of a file than this share is left out. It formats or rewrites the whole
(0.11.1 formatted all of vLLM anew), and says nothing of one place in it."""
_INTERVAL = 0.8
_GRID = 2000


@dataclass(frozen=True, slots=True)
class Step:
    """What one step between two releases did: whether a stretch at the hunk's place was `broken`,
    which share of the stretches of its scope and of its file were, whether the scope was changed at
    all. `is_minor` says that it leads to another minor line."""

    release: str
    is_minor: bool
    broken: bool
    scope_share: float
    file_share: float
    scope_changed: bool


@dataclass(frozen=True, slots=True)
class Chance:
    """A probability to survive, and the interval that holds the true rate four times in five."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Calm:
    """A stretch of the hunk's scope (1-based lines of `release`) that has stood since `since`."""

    release: str
    lines: tuple[int, int]
    since: str


@dataclass(frozen=True, slots=True)
class Forecast:
    """The chance of one hunk to survive the next minor line and the next patch release after
    `release`. Where it does not fit that (`fits`), the chance is that of a hunk made there."""

    release: str
    fits: bool
    minor: Chance
    patch: Chance
    steps: tuple[Step, ...]
    calm: Calm | None = None

    def told(self) -> str:
        """In a few sentences."""
        who = "" if self.fits else f"it does not fit {self.release}; one that is made there has "
        lines = [
            f"Forecast: {who}{_percent(self.minor.value)} to survive the next minor release "
            f"(80 % interval {_percent(self.minor.low)} to {_percent(self.minor.high)}), "
            f"{_percent(self.patch.value)} a patch release."
        ]
        minor = [step for step in self.steps if step.is_minor]
        patch = [step for step in self.steps if not step.is_minor]
        for steps, name in ((minor, "minor"), (patch, "patch")):
            if steps:
                broken = [step for step in steps if step.broken]
                last = f", last in {broken[-1].release}" if broken else ""
                scope = sum(step.scope_changed for step in steps)
                lines.append(
                    f"In {len(steps)} {name} {'step' if len(steps) == 1 else 'steps'} its lines "
                    f"changed in {len(broken)}{last}, its scope in {scope}."
                )
        if self.calm:
            first, end = self.calm.lines
            lines.append(
                f"Calmer in its scope: lines {first} to {end} of {self.calm.release} have stood "
                f"since {self.calm.since}."
            )
        return " ".join(lines)

    def as_value(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "release": self.release,
            "fits": self.fits,
            **{
                name: {"survives": chance.value, "low": chance.low, "high": chance.high}
                for name, chance in (("minor", self.minor), ("patch", self.patch))
            },
            "steps": [
                {
                    "release": step.release,
                    "minor": step.is_minor,
                    "lines_changed": step.broken,
                    "scope_changed": step.scope_changed,
                    "scope_share": round(step.scope_share, 4),
                    "file_share": round(step.file_share, 4),
                }
                for step in self.steps
            ],
            "calmer": {
                "release": self.calm.release,
                "lines": list(self.calm.lines),
                "since": self.calm.since,
            }
            if self.calm
            else None,
        }


def forecast(
    hunk: HunkDrift, releases: Sequence[Release], *, until: str | None = None
) -> Forecast | None:
    """Judge a hunk by `releases`, oldest first, up to `until`; None where its place is not there in
    the last of them."""
    places = hunk.places or {}
    shape = Shape(hunk.hunk.leading, hunk.hunk.trailing)
    known = [release.version for release in releases]
    if until is not None:
        known = known[: known.index(until) + 1]
    if not known or known[-1] not in places:
        return None
    seen = [(version, places[version]) for version in known if version in places]
    wear = Wear()
    steps = steps_of(seen, shape, wear)
    return Forecast(
        known[-1],
        any(stand.release == known[-1] and stand.fits for stand in hunk.stands),
        _survival(steps, minor=True),
        _survival(steps, minor=False),
        steps,
        _calm(seen, shape, wear),
    )


def broken_rate(
    steps: Sequence[Step],
    *,
    minor: bool,
    half_life: float = HALF_LIFE,
    overall: float | None = None,
    priors: tuple[float, float, float] = (FILE_PRIOR, SCOPE_PRIOR, PLACE_PRIOR),
) -> tuple[float, float]:
    """The two parameters of the Beta distribution of the rate at which a step of one kind breaks
    the hunk; its mean is the estimate. The rest are the model's constants."""
    own = [step for step in steps if step.is_minor is minor and step.file_share <= REWRITTEN]
    weights = [0.5 ** (age / half_life) for age in range(len(own) - 1, -1, -1)]
    total = sum(weights)
    rate = OVERALL[minor] if overall is None else overall
    for prior, shares in zip(
        priors,
        (
            [step.file_share for step in own],
            [step.scope_share for step in own],
            [float(step.broken) for step in own],
        ),
        strict=True,
    ):
        hits = sum(weight * share for weight, share in zip(weights, shares, strict=True))
        first, second = prior * rate + hits, prior * (1 - rate) + total - hits
        rate = first / (first + second)
    return first, second


def _survival(steps: Sequence[Step], *, minor: bool) -> Chance:
    first, second = broken_rate(steps, minor=minor)
    low, high = _interval(first, second)
    return Chance(1 - first / (first + second), 1 - high, 1 - low)


def _interval(first: float, second: float) -> tuple[float, float]:
    """The middle part of a Beta distribution, summed on a grid: the tails are of equal weight."""
    from math import exp, log

    points = [(n + 0.5) / _GRID for n in range(_GRID)]
    logs = [(first - 1) * log(x) + (second - 1) * log(1 - x) for x in points]
    top = max(logs)
    weights = [exp(value - top) for value in logs]
    total, tail = sum(weights), (1 - _INTERVAL) / 2
    passed, low, high = 0.0, points[0], points[-1]
    for x, weight in zip(points, weights, strict=True):
        before, passed = passed, passed + weight / total
        if before < tail <= passed:
            low = x
        if before < 1 - tail <= passed:
            high = x
            break
    return low, high


@dataclass(frozen=True, slots=True)
class Shape:
    """How many lines of context a hunk shows in front of its first change and behind its last."""

    leading: int
    trailing: int

    def stretch(self, place: Place) -> tuple[int, int]:
        """First line and end (0-based, not included) of what the hunk would show at a place."""
        first = max(place.spots[0].start - self.leading, 0)
        end = min(place.spots[-1].end + self.trailing, len(place.text.lines))
        return first, max(end, first + 1)


class Wear:
    """Which stretches of a file a step broke, worked out once for all hunks of a call."""

    def __init__(self) -> None:
        self._aligned: dict[tuple[int, int], tuple[Text, Text, Alignment, list[int]]] = {}
        self._sums: dict[tuple[int, int, int], list[int]] = {}

    def aligned(self, old: Text, new: Text) -> Alignment:
        """The lines of `old` in `new`."""
        return self._pair(old, new)[2]

    def _pair(self, old: Text, new: Text) -> tuple[Text, Text, Alignment, list[int]]:
        key = (id(old), id(new))
        if key not in self._aligned:
            if old.text == new.text:
                count = len(old.lines)
                alignment = Alignment(list(range(count)), count)
            else:
                alignment = align(old.lines, new.lines)
            # The texts are kept with it, so that no other text can get their identity.
            self._aligned[key] = (old, new, alignment, _runs(alignment.kept))
        return self._aligned[key]

    def is_broken(self, old: Text, new: Text, first: int, end: int) -> bool:
        """Whether the lines from `first` to `end` of `old` do not stand together in `new`."""
        runs = self._pair(old, new)[3]
        return first >= len(runs) or runs[first] < end - first

    def share(self, old: Text, new: Text, size: int, first: int, end: int) -> float:
        """Which share of the stretches of `size` lines is broken whose middle lies between two
        lines of `old`."""
        key = (id(old), id(new), size)
        if key not in self._sums:
            runs = self._pair(old, new)[3]
            starts = range(max(len(runs) - size + 1, 0))
            self._sums[key] = list(accumulate((runs[at] < size for at in starts), initial=0))
        sums = self._sums[key]
        low = min(max(first - size // 2, 0), len(sums) - 1)
        high = min(max(end - size // 2, low + 1), len(sums) - 1)
        return (sums[high] - sums[low]) / (high - low) if high > low else 0.0


def _runs(kept: Sequence[int]) -> list[int]:
    """For every line, how many from it on stand together in the other text."""
    runs = [0] * len(kept)
    for at in range(len(kept) - 1, -1, -1):
        if kept[at] >= 0:
            goes_on = at + 1 < len(kept) and kept[at + 1] == kept[at] + 1
            runs[at] = 1 + (runs[at + 1] if goes_on else 0)
    return runs


def steps_of(seen: Sequence[tuple[str, Place]], shape: Shape, wear: Wear) -> tuple[Step, ...]:
    """What every step between two of the releases did at a place; `seen` is oldest first."""
    return tuple(_step(old, new, shape, wear) for old, new in pairwise(seen))


def _step(old: tuple[str, Place], new: tuple[str, Place], shape: Shape, wear: Wear) -> Step:
    (past, place), (release, there) = old, new
    is_minor = _line(past) != _line(release)
    text = place.text
    if text.text == there.text.text:
        return Step(release, is_minor, False, 0.0, 0.0, False)
    changed = text.own(place.scope) != there.text.own(there.scope)
    if text.path != there.text.path:
        return Step(release, is_minor, True, 1.0, 1.0, changed)
    first, end = shape.stretch(place)
    low, high = text.range_of(place.scope) or (0, len(text.lines))
    return Step(
        release,
        is_minor,
        wear.is_broken(text, there.text, first, end),
        wear.share(text, there.text, end - first, low, high),
        wear.share(text, there.text, end - first, 0, len(text.lines)),
        changed,
    )


def _calm(seen: Sequence[tuple[str, Place]], shape: Shape, wear: Wear) -> Calm | None:
    """The stretch of the scope that has stood longest, where that is longer than the hunk's own by
    a few minor lines."""
    release, place = seen[-1]
    if place.scope is None or place.scope == MODULE:
        return None
    span = place.text.range_of(place.scope) or (0, len(place.text.lines))
    first, end = shape.stretch(place)
    size = end - first
    starts = {start: start for start in range(span[0], span[1] - size + 1)}
    since = release
    own: str | None = None
    standing, oldest = dict(starts), release
    for (past, older), (_later, newer) in reversed(list(pairwise(seen))):
        back = wear.aligned(older.text, newer.text).back()
        left = {}
        for start, at in standing.items():
            run = back[at : at + size]
            if run[0] >= 0 and run == list(range(run[0], run[0] + size)):
                left[start] = run[0]
        if own is None and first in starts and first not in left:
            own = since
        if not left:
            break
        standing, oldest, since = left, past, past
    if own is None or len(_lines_between(seen, oldest, own)) < 4:
        return None
    best = min(standing)
    last = best
    while last + 1 in standing:
        last += 1
    return Calm(release, (best + 1, last + size), oldest)


def _lines_between(seen: Sequence[tuple[str, Place]], first: str, last: str) -> set[str]:
    """The minor lines from one release to another."""
    versions = [version for version, _place in seen]
    between = versions[versions.index(first) : versions.index(last)]
    return {_line(version) for version in between}


def _line(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _percent(value: float) -> str:
    return "over 99 %" if value > 0.995 else f"{100 * value:.0f} %"
