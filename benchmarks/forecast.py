"""Forecasts held against what came: how likely a hunk was to survive, and whether it did.

Real places of real files: any file that changed at least once up to a release A. Half of the hunks
stand where upstream changed something in one of the six minor steps before A, half anywhere in the
file. Each is a one-line insertion with three lines of context in A. Its place is followed back as
`drift` does it. The forecast sees the releases up to A alone, and the outcome is whether the hunk
is placed in the next minor release by the rules of `apply`, with A at hand as its base. What is
printed is the Brier score (the mean squared error of the probability, less is better) beside that
of the base rate, the one number that fits the whole sample best, and how forecasts and outcomes
agree in bands.

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

from vllm_series.align import Alignment, align
from vllm_series.diffs.parse import parse
from vllm_series.drifting.following import Place, Spot, Text, follow, follow_scope
from vllm_series.drifting.forecast import Shape, Step, Wear, broken_rate, steps_of
from vllm_series.place import place
from vllm_series.upstream.open import open_catalog
from vllm_series.verdicts import Verdict

if TYPE_CHECKING:
    from vllm_series.upstream.catalog import Catalog

FIRST = "0.10.0"
"""The oldest release that a history may begin with."""
FROM = (0, 15)
"""The first minor line in which a hunk is made, so that there is a history to judge by."""
TRAINED = (0, 24)
"""The last minor line whose hunks the constants were chosen on."""
A_FILE = 4
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
    every = [one.version for one in catalog.releases() if not one.yanked and not one.prerelease]
    every = every[every.index(FIRST) :]
    listings = {version: catalog.tree(version).listing() for version in every}
    starts = [at for at, version in enumerate(minors[:-1]) if line_of(version) >= FROM]
    drawn = []
    for _ in range(files):
        at = chance.choice(starts)
        known = [listings[version] for version in minors[: at + 1]]
        changed = sorted(
            path
            for path in known[-1]
            if path.endswith(".py") and len({each.get(path) for each in known}) > 1
        )
        drawn.append(chance.choice(changed))
    wanted = {
        version: sorted({path for path in drawn if path in listings[version]}) for version in every
    }
    failed = catalog.prefetch(wanted)
    if failed:
        raise SystemExit(f"not all releases can be read: {failed}")
    for path in drawn:
        texts: dict[str, Text] = {}
        last: Text | None = None
        for version in every:
            text = catalog.tree(version).read(path) if path in listings[version] else None
            if text is not None:
                last = last if last is not None and last.text == text else Text(path, text)
                texts[version] = last
        wear = Wear()
        for at in starts:
            home, then = minors[at], minors[at + 1]
            past = chance.choice(minors[max(at - 6, 0) : at])
            if home in texts and then in texts and past in texts:
                spots = _spots(texts[past], texts[home], chance)
                yield from _judged(every, texts, wear, home, then, spots)


def _spots(before: Text, now: Text, chance: random.Random) -> dict[int, bool]:
    """Gaps of a file, 0-based, far enough from each other for hunks of their own, with whether
    upstream changed something there between the two."""
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


def _judged(
    every: Sequence[str],
    texts: dict[str, Text],
    wear: Wear,
    home: str,
    then: str,
    spots: dict[int, bool],
) -> Iterator[Sample]:
    text = texts[home]
    older = [version for version in every[: every.index(home)] if version in texts][::-1]
    for gap, hot in spots.items():
        patch = parse(_diff(text.path, text.lines, [gap]), "sample.diff")
        placed = place(
            patch.files[0], texts[then].text, text.path, binding=False, base=text.text
        ).placements[0]
        scopes = text.scopes
        scope = scopes.innermost(gap) if scopes else None
        seen = [(home, Place(text, (Spot(gap),), scope))]
        for version in older:
            last = seen[-1][1]
            if texts[version] is last.text:
                seen.append((version, last))
                continue
            back = wear.aligned(texts[version], last.text).back()
            alignment = Alignment(back, len(texts[version].lines))
            named = follow_scope(last, texts[version], alignment)
            if named is None and last.scope is not None:
                break
            seen.append((version, follow(last, texts[version], alignment, named)))
        shape = Shape(min(gap, 3), min(len(text.lines) - gap, 3))
        steps = steps_of(seen[::-1], shape, wear)
        survived = placed.verdict in (Verdict.EXACT, Verdict.OFFSET)
        yield Sample(line_of(home), hot, steps, survived)


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
    edges = (0.0, 0.88, 0.9, 0.92, 0.94, 0.96, 1.01)
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
        (8.0, 16.0, 32.0),
        (0.07, 0.1, 0.13),
        product((4.0, 8.0, 16.0), (32.0, 64.0, 128.0), (32.0, 64.0, 128.0)),
    )
    rated = sorted(
        (brier(chances(drawn, half_life=half, overall=rate, priors=own), drawn), half, rate, *own)
        for half, rate, own in trials
    )
    for row in rated[:5]:
        print("  " + " ".join(f"{value:.4f}" for value in row))


def main() -> None:
    parser = argparse.ArgumentParser(description="Hold forecasts against what came.")
    parser.add_argument("--files", type=int, default=100, help="files to draw")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fit", action="store_true", help="search the model's constants")
    given = parser.parse_args()
    drawn = list(samples(open_catalog(), given.files, given.seed))
    later = [sample for sample in drawn if sample.line > TRAINED]
    earlier = [sample for sample in drawn if sample.line <= TRAINED]
    told("all", drawn)
    told("made up to 0.24 (trained)", earlier)
    told("made after 0.24 (tested)", later)
    told("  tested, lately changed", [sample for sample in later if sample.hot])
    told("  tested, anywhere", [sample for sample in later if not sample.hot])
    bands(later)
    if given.fit:
        fitted(earlier)


if __name__ == "__main__":
    main()
