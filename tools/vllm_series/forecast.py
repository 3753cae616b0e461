"""How likely a hunk is to survive the next release, by what became of its place in past ones.

A step from one release to the next breaks a hunk where a line that it shows is changed, or lines
are put between them. The rate of that is estimated as smoothed shares (a Beta-binomial model,
"additive smoothing" with a prior of known strength), from the general to the particular: what
happened to stretches as long as the hunk anywhere in its file, drawn towards the rate of all files;
then in its scope, drawn towards the file's; then to its own lines, drawn towards the scope's. A
later step weighs more. Steps to a new minor line and to a patch release are two matters.

The constants were chosen on steps up to 0.24 and tested on later ones: docs/drift.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from vllm_series.align import Alignment, align
from vllm_series.drift import HunkDrift
from vllm_series.following import Place, Text
from vllm_series.upstream.catalog import Release

HALF_LIFE = 8.0
"""After how many steps of its kind one weighs half."""
OVERALL = {True: 0.10, False: 0.01}
"""The share of stretches that a step breaks in all files, for a minor line and a patch release."""
FILE_PRIOR, SCOPE_PRIOR, PLACE_PRIOR = 2.0, 4.0, 6.0
"""How many steps the more general rate counts for."""
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
    known = [release.version for release in releases]
    if until is not None:
        known = known[: known.index(until) + 1]
    if not known or known[-1] not in places:
        return None
    seen = [(version, places[version]) for version in known if version in places]
    pairs = list(pairwise(seen))
    aligned = [_aligned(old[1].text, new[1].text) for old, new in pairs]
    steps = tuple(
        _step(hunk, old, new, alignment)
        for (old, new), alignment in zip(pairs, aligned, strict=True)
    )
    return Forecast(
        known[-1],
        any(stand.release == known[-1] and stand.fits for stand in hunk.stands),
        _survival(steps, minor=True),
        _survival(steps, minor=False),
        steps,
        _calm(hunk, seen, aligned),
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
    own = [step for step in steps if step.is_minor is minor]
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


def _step(
    hunk: HunkDrift, old: tuple[str, Place], new: tuple[str, Place], alignment: Alignment
) -> Step:
    (past, place), (release, there) = old, new
    is_minor = _line(past) != _line(release)
    if place.text.text == there.text.text:
        return Step(release, is_minor, False, 0.0, 0.0, False)
    first, end = stretch(hunk, place)
    size = max(end - first, 1)
    moved = place.text.path != there.text.path
    whole = [
        alignment.run(start, size) is None
        for start in range(max(len(place.text.lines) - size + 1, 0))
    ]
    span = place.text.range_of(place.scope) or (0, len(place.text.lines))
    inner = whole[max(span[0] - size // 2, 0) : max(span[1] - size // 2, 1)]
    return Step(
        release,
        is_minor,
        moved or alignment.run(first, size) is None,
        1.0 if moved else _share(inner),
        1.0 if moved else _share(whole),
        place.text.own(place.scope) != there.text.own(there.scope),
    )


def stretch(hunk: HunkDrift, place: Place) -> tuple[int, int]:
    """First line and end (0-based, not included) of what the hunk would show at a place: its spots
    with as much context as it has."""
    first = max(place.spots[0].start - hunk.hunk.leading, 0)
    end = min(place.spots[-1].end + hunk.hunk.trailing, len(place.text.lines))
    return first, end


def _calm(
    hunk: HunkDrift, seen: Sequence[tuple[str, Place]], aligned: Sequence[Alignment]
) -> Calm | None:
    """The stretch of the scope that has stood longest, where that is longer than the hunk's own by
    a few minor lines."""
    release, place = seen[-1]
    span = place.text.range_of(place.scope) or (0, len(place.text.lines))
    first, end = stretch(hunk, place)
    size = max(end - first, 1)
    starts = {start: start for start in range(span[0], span[1] - size + 1)}
    since = release
    own: str | None = None
    standing, oldest = dict(starts), release
    for (past, _older), alignment in zip(reversed(seen[:-1]), reversed(aligned), strict=True):
        back = alignment.back()
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


def _aligned(old: Text, new: Text) -> Alignment:
    if old.text == new.text:
        count = len(old.lines)
        return Alignment(list(range(count)), count)
    return align(old.lines, new.lines)


def _share(broken: Sequence[bool]) -> float:
    return sum(broken) / len(broken) if broken else 0.0


def _line(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _percent(value: float) -> str:
    return f"{100 * value:.0f} %"
