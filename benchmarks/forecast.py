"""Forecasts held against what came: how likely a hunk was to survive, and whether it did.

Real places of real files: half of the hunks stand where upstream had just changed something (a
change of the step before, taken back), half anywhere in a file. Each is a one-line insertion with
three lines of context in a release A; the forecast sees the releases up to A alone, and the outcome
is whether the hunk is placed in the next minor release by the rules of `apply`. What is printed is
the Brier score (the mean squared error of the probability, less is better) beside that of the base
rate, the one number that fits the whole sample best, and how forecasts and outcomes agree in bands.

`python benchmarks/forecast.py [--files N] [--seed N]` reads the index; `--fit` also searches the
constants of the model on the older half of the steps.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise, product
from typing import TYPE_CHECKING

from vllm_series.align import align
from vllm_series.drift import Drift, drift
from vllm_series.errors import RefusedError, UsageError
from vllm_series.following import Text
from vllm_series.forecast import Step, broken_rate, forecast
from vllm_series.series import Entry
from vllm_series.upstream.open import open_catalog

if TYPE_CHECKING:
    from vllm_series.upstream.catalog import Catalog

FIRST = "0.10.0"
"""The oldest release that a history may begin with."""
FROM = (0, 15)
"""The first minor line in which a hunk is made, so that there is a history to judge by."""
TRAINED = (0, 24)
"""The last minor line whose hunks the constants were chosen on."""
A_FILE = 8
"""Hunks in one file of one release."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One hunk: the minor line it was made in, whether its place was hot, the steps up to there,
    and whether the next minor release takes it."""

    line: tuple[int, int]
    hot: bool
    steps: tuple[Step, ...]
    survived: bool


def line_of(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def finals(catalog: Catalog) -> list[str]:
    """The final release that each minor line began with, oldest first."""
    known = [one.version for one in catalog.releases() if not one.yanked and not one.prerelease]
    known = known[known.index(FIRST) :]
    return [next(versions) for _line, versions in groupby(known, key=line_of)]


def samples(catalog: Catalog, files: int, seed: int) -> Iterator[Sample]:
    chance = random.Random(seed)
    minors = finals(catalog)
    starts = [at for at, version in enumerate(minors[:-1]) if line_of(version) >= FROM]
    for _ in range(files):
        at = chance.choice(starts)
        past, home, then = minors[at - 1], minors[at], minors[at + 1]
        old, new = catalog.tree(past).listing(), catalog.tree(home).listing()
        changed = sorted(
            path
            for path, digest in new.items()
            if path.endswith(".py") and path in old and old[path] != digest
        )
        path = chance.choice(changed)
        catalog.prefetch({past: [path], home: [path], then: [path]})
        before, now = catalog.tree(past).read(path), catalog.tree(home).read(path)
        if before is None or now is None:
            continue
        spots = _spots(Text(path, before), Text(path, now), chance)
        if not spots:
            continue
        diff = _diff(path, Text(path, now).lines, sorted(spots))
        try:
            answer = drift(
                [Entry("sample.diff", diff)], catalog, base=home, since=FIRST, until=then
            )
        except (RefusedError, UsageError):
            continue
        yield from _judged(answer, home, then, [spots[gap] for gap in sorted(spots)])


def _spots(before: Text, now: Text, chance: random.Random) -> dict[int, bool]:
    """Gaps of a file, 0-based, far enough from each other for hunks of their own, with whether
    upstream changed something there in the step before."""
    kept = set(align(before.lines, now.lines).kept)
    hot = [line for line in range(1, len(now.lines)) if (line in kept) != (line - 1 in kept)]
    found: dict[int, bool] = {}
    for is_hot in (True, False) * (A_FILE // 2):
        among = hot if is_hot else range(1, len(now.lines))
        for gap in chance.sample(among, min(4, len(among))):
            if all(abs(gap - other) > 8 for other in found):
                found[gap] = is_hot
                break
    return found


def _diff(path: str, lines: Sequence[bytes], gaps: Sequence[int]) -> bytes:
    """An insertion of one line at each gap, as a diff with three lines of context."""
    out = [f"--- a/{path}\n+++ b/{path}\n".encode()]
    for number, gap in enumerate(gaps):
        first, end = max(gap - 3, 0), min(gap + 3, len(lines))
        size = end - first
        out.append(b"@@ -%d,%d +%d,%d @@\n" % (first + 1, size, first + 1 + number, size + 1))
        out += [b" " + line for line in lines[first:gap]]
        # A comment, which parses wherever it stands.
        out.append(b"+# drift sample\n")
        out += [b" " + line for line in lines[gap:end]]
    return b"".join(line if line.endswith(b"\n") else line + b"\n" for line in out)


def _judged(answer: Drift, home: str, then: str, hot: Sequence[bool]) -> Iterator[Sample]:
    for hunk, is_hot in zip(answer.hunks, hot, strict=True):
        seen = forecast(hunk, answer.releases, until=home)
        if seen is None or hunk.reason:
            continue
        there = next((stand for stand in hunk.stands if stand.release == then), None)
        if there is not None:
            yield Sample(line_of(home), is_hot, seen.steps, there.fits)


# -- scores ---------------------------------------------------------------------------------------


def chances(drawn: Sequence[Sample], **constants: object) -> list[float]:
    """The forecast of every sample."""
    found = []
    for sample in drawn:
        first, second = broken_rate(sample.steps, minor=True, **constants)  # type: ignore[arg-type]
        found.append(second / (first + second))
    return found


def brier(values: Sequence[float], drawn: Sequence[Sample]) -> float:
    """The mean squared error."""
    return sum((v - s.survived) ** 2 for v, s in zip(values, drawn, strict=True)) / len(drawn)


def told(name: str, drawn: Sequence[Sample]) -> None:
    """Print the scores of one group of samples."""
    if not drawn:
        return
    rate = sum(sample.survived for sample in drawn) / len(drawn)
    values = chances(drawn)
    ours, flat = brier(values, drawn), brier([rate] * len(drawn), drawn)
    print(
        f"{name:28} {len(drawn):5} hunks, {100 * rate:5.1f} % survived: "
        f"Brier {ours:.4f}, base rate {flat:.4f}, skill {1 - ours / flat if flat else 0:+.3f}"
    )


def bands(drawn: Sequence[Sample]) -> None:
    """Print how forecasts and outcomes agree."""
    values = chances(drawn)
    edges = (0.0, 0.7, 0.8, 0.85, 0.9, 0.95, 1.01)
    for low, high in pairwise(edges):
        inside = [
            (value, sample.survived)
            for value, sample in zip(values, drawn, strict=True)
            if low <= value < high
        ]
        if inside:
            mean = sum(value for value, _ in inside) / len(inside)
            came = sum(survived for _, survived in inside) / len(inside)
            print(
                f"  told {100 * low:3.0f} to {min(100 * high, 100):3.0f} %: {len(inside):5} hunks, "
                f"mean {100 * mean:5.1f} %, came {100 * came:5.1f} %"
            )


def fitted(drawn: Sequence[Sample]) -> None:
    """Search the constants on `drawn` and print the best."""
    trials = product(
        (4.0, 8.0, 16.0, 32.0),
        (0.06, 0.1, 0.15),
        product((0.5, 1.0, 2.0, 4.0), (1.0, 2.0, 4.0, 8.0), (4.0, 8.0, 16.0, 32.0)),
    )
    rated = sorted(
        (brier(chances(drawn, half_life=half, overall=rate, priors=own), drawn), half, rate, *own)
        for half, rate, own in trials
    )
    for row in rated[:5]:
        print("  " + " ".join(f"{value:.4f}" for value in row))


def main() -> None:
    parser = argparse.ArgumentParser(description="Hold forecasts against what came.")
    parser.add_argument("--files", type=int, default=150, help="files to draw")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fit", action="store_true", help="search the model's constants")
    given = parser.parse_args()
    drawn = list(samples(open_catalog(), given.files, given.seed))
    later = [sample for sample in drawn if sample.line > TRAINED]
    earlier = [sample for sample in drawn if sample.line <= TRAINED]
    told("all", drawn)
    told("made up to 0.24 (trained)", earlier)
    told("made after 0.24 (tested)", later)
    told("  tested, just changed", [sample for sample in later if sample.hot])
    told("  tested, anywhere", [sample for sample in later if not sample.hot])
    bands(later)
    if given.fit:
        fitted(earlier)


if __name__ == "__main__":
    main()
