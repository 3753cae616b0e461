"""Counts of judgements, as tables to read and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from drift.judge import BAD, Mark, Outcome
from drift.samples import Kind, Pair

SCHEMA = 1

_COLUMNS = (
    ("known", 6), ("right", 6), ("%", 7), ("wrong", 6), ("by name", 8), ("refused", 8),
    ("lost", 6), ("placed", 7), ("partly", 7), ("same", 6), ("other", 6), ("left", 6),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cell:
    """What one tool did with the samples of one pair, kind and seed."""

    pair: Pair
    kind: Kind
    seed: int
    outcomes: tuple[Outcome, ...]


def table(title: str, cells: Sequence[Cell], tools: Sequence[str]) -> str:
    """One row a tool over all of `cells`; below it, where the truth is disputed, the same without
    the disputed samples for the tools for which that makes a difference in what is bad."""
    outcomes = [outcome for cell in cells for outcome in cell.outcomes]
    width = max(len(tool) for tool in tools) + 2
    head = "".join(f"{name:>{size}}" for name, size in _COLUMNS)
    lines = [title, f"{'':<{width}}{head}"]
    lines += [_row(tool, width, outcomes) for tool in tools]
    sure = [outcome for outcome in outcomes if not outcome.disputed]
    named = {outcome.tool for outcome in outcomes if outcome.disputed and outcome.mark in BAD}
    if named:
        lines.append("without the samples that another alignment disputes:")
        lines += [_row(tool, width, sure) for tool in tools if tool in named]
    return "\n".join(lines) + "\n"


def _row(tool: str, width: int, outcomes: Sequence[Outcome]) -> str:
    own = [outcome for outcome in outcomes if outcome.tool == tool]
    counts = Counter(outcome.mark for outcome in own)
    by_name = sum(outcome.by_name for outcome in own)
    known = counts[Mark.RIGHT] + counts[Mark.WRONG] + counts[Mark.REFUSED]
    lost = counts[Mark.PLACED_THOUGH_LOST] + counts[Mark.UNPLACED]
    partly = counts[Mark.SAME_SCOPE] + counts[Mark.OTHER_SCOPE] + counts[Mark.LEFT]
    share = f"{100 * counts[Mark.RIGHT] / known:.2f}" if known else "-"
    values: tuple[int | str, ...] = (
        known, counts[Mark.RIGHT], share, counts[Mark.WRONG], by_name, counts[Mark.REFUSED],
        lost, counts[Mark.PLACED_THOUGH_LOST],
        partly, counts[Mark.SAME_SCOPE], counts[Mark.OTHER_SCOPE], counts[Mark.LEFT],
    )  # fmt: skip
    row = "".join(f"{value:>{size}}" for value, (_, size) in zip(values, _COLUMNS, strict=True))
    return f"{tool:<{width}}{row}"


def tables(cells: Sequence[Cell], tools: Sequence[str], details: bool) -> Iterator[str]:
    """By pair, by kind, by seed and over all; with `details` also each of them crossed."""
    if details:
        for cell in cells:
            yield table(f"{cell.pair}, {cell.kind.value}, seed {cell.seed}", [cell], tools)
    for pair in dict.fromkeys(cell.pair for cell in cells):
        yield table(str(pair), [cell for cell in cells if cell.pair == pair], tools)
    for kind in Kind:
        yield table(kind.value, [cell for cell in cells if cell.kind is kind], tools)
    seeds = sorted({cell.seed for cell in cells})
    for seed in seeds if len(seeds) > 1 else ():
        yield table(f"seed {seed}", [cell for cell in cells if cell.seed == seed], tools)
    samples = len({outcome.sample for cell in cells for outcome in cell.outcomes})
    pairs = len({cell.pair for cell in cells})
    yield table(f"all {samples:,} samples, {pairs} pairs", cells, tools)


LEGEND = """\
known: the place is known by the alignment (right, wrong, refused). lost: nothing of the place is
kept; placed counts what went somewhere nevertheless. partly: only the scope is judged (same, other,
left alone). wrong, placed and other are what a person would have to find out by himself.
by name: of the wrong ones, those in the scope of the same name, where the alignment has that code
in another scope.
"""


def worst(cells: Sequence[Cell], tools: Sequence[str], limit: int) -> Iterator[str]:
    """Up to `limit` bad cases of every tool in full: wrong first, then lost, then scope, and in
    each of them the undisputed ones first."""
    for tool in tools:
        bad = [
            outcome
            for cell in cells
            for outcome in cell.outcomes
            if outcome.tool == tool and outcome.mark in BAD
        ]
        bad.sort(key=lambda outcome: (BAD.index(outcome.mark), outcome.disputed))
        yield from (outcome.case for outcome in bad[:limit])


def crashes(cells: Sequence[Cell]) -> list[str]:
    """What broke, with its sample."""
    return [
        f"{outcome.tool}: {outcome.sample}: {outcome.note}"
        for cell in cells
        for outcome in cell.outcomes
        if outcome.note.startswith("crash")
    ]


def as_json(cells: Sequence[Cell], tools: Sequence[str]) -> list[dict[str, object]]:
    """One object a cell and tool, with and without the disputed samples."""
    rows: list[dict[str, object]] = []
    for cell in cells:
        for tool in tools:
            own = [outcome for outcome in cell.outcomes if outcome.tool == tool]
            sure = [outcome for outcome in own if not outcome.disputed]
            rows.append(
                {
                    "old": cell.pair.old,
                    "new": cell.pair.new,
                    "kind": cell.kind.value,
                    "seed": cell.seed,
                    "tool": tool,
                    "samples": len(own),
                    **_named(own),
                    "by_name": sum(outcome.by_name for outcome in own),
                    "notes": dict(sorted(Counter(_noted(own)).items())),
                    "crashed": sum(outcome.note.startswith("crash") for outcome in own),
                    "undisputed": {"samples": len(sure), **_named(sure)},
                }
            )
    return rows


def _noted(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """What ours said of its answers, beside each: `right merged`, `refused ambiguous`."""
    for outcome in outcomes:
        if outcome.note and not outcome.note.startswith("crash"):
            yield f"{outcome.mark.value} {outcome.note}"


def words(cells: Sequence[Cell], tools: Sequence[str]) -> str:
    """The notes of each tool over all cells, one row a tool that has any."""
    lines = []
    for tool in tools:
        counts = Counter(
            _noted([one for cell in cells for one in cell.outcomes if one.tool == tool])
        )
        if counts:
            said = ", ".join(f"{word} {count}" for word, count in sorted(counts.items()))
            lines.append(f"{tool}: {said}")
    return "\n".join(lines) + "\n"


def _named(outcomes: Sequence[Outcome]) -> dict[str, int]:
    counts = Counter(outcome.mark for outcome in outcomes)
    return {mark.value: counts[mark] for mark in Mark}
