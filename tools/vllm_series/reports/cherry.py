"""What `cherry` prints: a row a patch, a sign a release, then since when, and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from vllm_series.cherry import Cell, Row, Share
from vllm_series.report import counted
from vllm_series.reports.grid import blocks
from vllm_series.reports.marks import Mark
from vllm_series.reports.printable import printable, wrapped
from vllm_series.reports.spans import spans
from vllm_series.reports.table import WIDTH

_MARKS = {
    Share.ALL: Mark("-", "upstream", "the release has it", "cyan"),
    Share.PART: Mark("~", "partly", "the release has a part of it", "yellow"),
    Share.NONE: Mark("+", "not upstream", "the release has nothing of it", "green"),
    Share.UNKNOWN: Mark("!", "not judged", "the release could not be judged", "red"),
}


def table(series: str, rows: Sequence[Row], errors: dict[str, str], width: int = WIDTH) -> str:
    """Caption, cells, legend, and a line a patch; no line is wider than `width` columns.

    `errors` says by release why one could not be judged.
    """
    releases = [cell.release for cell in rows[0].cells]
    within = min(width, WIDTH)
    where = spans(releases, releases)
    if len(releases) > 2:
        where += f" ({counted(len(releases), 'release')})"
    parts = [wrapped(f"series {printable(series)} on {where}", within, "    ")]
    for block in blocks(releases, [row.name for row in rows], width):
        told = list(block.head)
        for row in rows:
            marks = [_MARKS[cell.share] for cell in row.cells]
            told.append(
                block.row(row.name, [(click.style(m.sign, fg=m.colour), m.sign) for m in marks])
            )
        parts.append("\n".join(told))
    used = {cell.share for row in rows for cell in row.cells}
    legend = [f"{m.sign} {m.word}: {m.meaning}" for each, m in _MARKS.items() if each in used]
    parts.append(_beside(legend, within))
    parts.append("\n".join(wrapped(_line(row), within, "    ") for row in rows))
    if errors:
        parts.append(
            "\n".join(
                wrapped(f"{printable(release)}: {printable(why)}", within, "    ")
                for release, why in errors.items()
            )
        )
    return "\n\n".join(parts)


def closing(rows: Sequence[Row]) -> str:
    """One line for the end: how many the newest judged release has, and what to do about them."""
    known = [cell for row in rows for cell in row.cells if cell.share is not Share.UNKNOWN]
    if not known:
        return "no release could be judged"
    whole = sum(row.last.share is Share.ALL for row in rows)
    part = sum(row.last.share is Share.PART for row in rows)
    newest = rows[0].last.release
    told = f"upstream in {newest}: {whole} of {counted(len(rows), 'patch')}"
    if part:
        told += f", and {part} in part"
    if whole or part:
        told += "; vllm-series rebase leaves out what a release has"
    return told


def as_json(
    series: str, base: str | None, rows: Sequence[Row], errors: dict[str, str]
) -> dict[str, Any]:
    """The object that `--json` prints, without its schema number."""
    return {
        "command": "cherry",
        "series": series,
        "base": base,
        "not_judged": errors,
        "patches": [
            {
                "name": row.name,
                "releases": [
                    {
                        "release": cell.release,
                        "sign": cell.share.value,
                        "upstream": _WORDS[cell.share],
                        "since": cell.since,
                        "hunks": cell.of,
                        "hunks_upstream": cell.has,
                    }
                    for cell in row.cells
                ],
            }
            for row in rows
        ],
    }


_WORDS = {Share.ALL: "all", Share.PART: "part", Share.NONE: "none", Share.UNKNOWN: None}


def _line(row: Row) -> str:
    """What became of a patch, from the newest release that is known."""
    cell = row.last
    name = printable(row.name)
    if cell.share is Share.ALL:
        since = cell.since or _first(row.cells)
        told = f"{name}: upstream since {since}"
    elif cell.share is Share.PART:
        told = f"{name}: {cell.has} of its {counted(cell.of, 'hunk')} upstream in {cell.release}"
    elif cell.share is Share.NONE:
        told = f"{name}: not upstream"
        gone = [one.release for one in row.cells if one.share is Share.ALL]
        if gone:
            told += f" in {cell.release}, but {spans(gone, [one.release for one in row.cells])}"
            told += " had it: upstream took it back"
    else:
        told = f"{name}: not judged"
    return told


def _first(cells: Sequence[Cell]) -> str:
    return next(cell.release for cell in cells if cell.share is Share.ALL)


def _beside(words: Sequence[str], width: int) -> str:
    """Short texts side by side where they fit."""
    lines: list[str] = []
    for word in words:
        if lines and len(lines[-1]) + 3 + len(word) <= width:
            lines[-1] += f"   {word}"
        else:
            lines.append(word)
    return "\n".join(lines)
