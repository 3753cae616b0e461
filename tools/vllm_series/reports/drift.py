"""How the drift of a patch is told: for reading, and as JSON.

A release is one cell, a letter for the form of the place over a sign for how the hunk fits, so that
forty releases are one line each. What a colour says a letter, a sign or a word says too.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import click

from vllm_series.drifting.forecast import Forecast
from vllm_series.drifting.scopediff import ScopeDiff
from vllm_series.drifting.stands import Drift, HunkDrift, Stand, Transition
from vllm_series.report import counted, diff
from vllm_series.reports.printable import printable
from vllm_series.upstream.catalog import Release
from vllm_series.verdicts import Verdict

_WIDTH = 100
_LONG = 60
"""Lines of a diff from which on only the hunks beside the place are shown."""
_SHOWN = 3
"""Transitions on each side of the base that are shown with their diffs; the others are told."""
_NAMED = 12
"""Releases that are named; more are counted."""
_NO_FORECAST = "Forecast: none, since its place is not there any more."
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_SIGNS = {
    Verdict.EXACT: "=",
    Verdict.OFFSET: "+",
    Verdict.MERGED: "m",
    Verdict.UPSTREAMED: "u",
}
_LEGEND = {
    "=": "at its line",
    "+": "at another line",
    "m": "by a merge with the base alone",
    "u": "upstream has it",
    "-": "does not fit",
}
_COLOURS = {"=": "green", "+": "green", "m": "yellow", "u": "cyan", "-": "red"}


def told(answer: Drift, forecasts: Sequence[Forecast | None] | None, *, full: bool) -> str:
    """The whole answer for reading. `forecasts` has one for every hunk, None where its place is
    gone; it is None itself where none was asked for. `full` shows every diff whole."""
    dates = {release.version: release for release in answer.releases}
    blocks = ["\n".join(_head(answer))]
    for at, hunk in enumerate(answer.hunks):
        lines = list(_hunk(answer, hunk, dates))
        if forecasts is not None:
            found = forecasts[at]
            lines += ["", *_wrapped(found.told() if found else _NO_FORECAST)]
        blocks.append("\n".join(lines))
        near = _near(answer, hunk)
        for each in hunk.transitions:
            blocks.append("\n".join(_transition(each, dates, full, each in near or full)))
    signs = {_sign(stand) for hunk in answer.hunks for stand in hunk.stands}
    legend = [f"{sign} {words}" for sign, words in _LEGEND.items() if sign in signs]
    if any(hunk.forms for hunk in answer.hunks):
        legend.append("a letter is one text of the place")
    if any(not stand.form for hunk in answer.hunks for stand in hunk.stands):
        legend.append(". the place is not there")
    blocks.append("\n".join(textwrap.wrap("; ".join(legend), _WIDTH)))
    return "\n\n".join(blocks)


def _head(answer: Drift) -> Iterator[str]:
    first, last = answer.releases[0].version, answer.releases[-1].version
    made = printable(f"{answer.patch}, made on {answer.base}")
    yield click.style(f"{made}: {_releases(len(answer.releases), first, last)}", bold=True)
    if answer.found:
        yield f"The base is {answer.base}, {answer.found}."


def _hunk(answer: Drift, hunk: HunkDrift, dates: Mapping[str, Release]) -> Iterator[str]:
    title, where = f"{hunk.path}, hunk {hunk.number}", f"in {hunk.scope}" if hunk.scope else ""
    if len(title) + 2 + len(where) > _WIDTH:
        where = f"\n  {where}"
    elif where:
        where = f", {where}"
    yield click.style(printable(title + where, "\n"), bold=True)
    yield from _wrapped(summary(hunk, answer.base))
    yield ""
    yield from timeline(hunk)
    for number, group in groupby(hunk.stands, key=lambda stand: stand.form):
        if number:
            stands = list(group)
            first, last = stands[0].release, stands[-1].release
            yield ""
            span = _span(dates[first], dates[last])
            count = counted(len(stands), "release")
            own = ", the base's" if any(one.release == answer.base for one in stands) else ""
            yield f"  {_letter(number)}  {span}, {count}{own}"
            text = hunk.forms[number - 1].text
            yield from (f"     {printable(line)}".rstrip() for line in text.splitlines())
    changed = _elsewhere(hunk)
    if changed:
        yield ""
        where = ", ".join(changed) if len(changed) <= _NAMED else f"{len(changed)} other releases"
        yield from _wrapped(f"The scope changed in {where} too, but not here.")


def _elsewhere(hunk: HunkDrift) -> list[str]:
    """The releases that changed the scope and left the place as it was."""
    told = {each.after for each in hunk.transitions}
    return [
        stand.release
        for stand in hunk.stands
        if stand.scope_changed and stand.form and stand.release not in told
    ]


def summary(hunk: HunkDrift, base: str) -> str:
    """Where a hunk fits and where it first drifted, in one sentence or two."""
    if hunk.reason:
        return f"Its place is not known: in {base}, {hunk.reason}."
    runs = [
        [stand.release for stand in group]
        for fits, group in groupby(hunk.stands, key=lambda stand: stand.fits)
        if fits
    ]
    fits = ", ".join(run[0] if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs)
    older, newer = hunk.drifted(base)
    parts = [f"Fits {fits}" if fits else "Fits nowhere"]
    if newer is not None:
        parts.append(f"first drifted in {newer.release}")
    elif hunk.stands and hunk.stands[-1].release != base:
        parts.append("has not drifted since its base")
    if older is not None:
        parts.append(f"{older.release} is the nearest older release that it does not fit")
    return "; ".join(parts) + "."


def timeline(hunk: HunkDrift) -> Iterator[str]:
    """Two lines of cells under the first release of each form, folded where they get too long."""
    rows: list[tuple[str, str, str]] = []
    length = 0
    for number, group in groupby(hunk.stands, key=lambda stand: stand.form):
        stands = list(group)
        while stands:
            room = _WIDTH - 4 - length
            label = stands[0].release
            if rows and room < max(len(label), min(len(stands), 8)):
                yield from _rows(rows)
                rows, length = [], 0
                continue
            part, stands = stands[:room], stands[room:]
            width = max(len(label), len(part))
            signs = "".join(map(_sign, part))
            rows.append((label.ljust(width), (_letter(number) * len(part)).ljust(width), signs))
            length += width + 2
    yield from _rows(rows)


def _rows(rows: Sequence[tuple[str, str, str]]) -> Iterator[str]:
    yield "  " + "  ".join(label for label, _letters, _signs in rows).rstrip()
    yield "  " + "  ".join(letters for _label, letters, _signs in rows).rstrip()
    cells = []
    for label, _letters, signs in rows:
        painted = "".join(
            click.style("".join(run), fg=_COLOURS[sign]) for sign, run in groupby(signs)
        )
        cells.append(painted + " " * (len(label) - len(signs)))
    yield "  " + "  ".join(cells).rstrip()


def _near(answer: Drift, hunk: HunkDrift) -> list[Transition]:
    """The transitions nearest to the base on both sides, whose diffs are shown."""
    order = [release.version for release in answer.releases]
    at = order.index(answer.base) if answer.base in order else 0
    older = [each for each in hunk.transitions if order.index(each.after) <= at]
    newer = [each for each in hunk.transitions if order.index(each.after) > at]
    return [*older[-_SHOWN:], *newer[:_SHOWN]]


def _transition(
    each: Transition, dates: Mapping[str, Release], full: bool, with_diff: bool
) -> Iterator[str]:
    where = f"{_dated(dates[each.before])} to {_dated(dates[each.after])}"
    old, new = map(_letter, each.forms)
    change = f", {old} to {new}" if old != new else ""
    yield from _wrapped(f"{where}{change}: {each.told}.", hanging="  ")
    if with_diff:
        yield from _shown(each.diff, full)
    elif each.diff.hunks:
        yield f"  (a diff of {counted(each.diff.size, 'line')}: --full shows it)"


def _shown(found: ScopeDiff, full: bool) -> Iterator[str]:
    """The diff of the scope; of a long one what reaches the place, and how much is left out."""
    if not found.hunks:
        yield "  (no line of the scope itself has changed)"
        return
    if full or found.size <= _LONG:
        yield _painted(found.whole)
        return
    near = found.near or (0,)
    lines = (found.beside or found.head + found.hunks[0]).splitlines()
    yield _painted("\n".join(lines[: 2 * _LONG]))
    left = []
    if len(lines) > 2 * _LONG:
        left.append(counted(len(lines) - 2 * _LONG, "line"))
    if len(found.hunks) > len(near):
        left.append(counted(len(found.hunks) - len(near), "change") + " elsewhere in the scope")
    if left:
        yield f"  … and {' and '.join(left)}: --full shows all"


def _painted(text: str) -> str:
    """A diff, coloured; what its lines hold cannot move the cursor."""
    return diff("\n".join(printable(line, "\t") for line in text.split("\n"))).rstrip("\n")


def _sign(stand: Stand) -> str:
    return _SIGNS.get(stand.verdict, "-")


def _letter(number: int) -> str:
    if not number:
        return "."
    return _LETTERS[number - 1] if number <= len(_LETTERS) else "*"


def _dated(release: Release) -> str:
    return f"{release.version} ({release.date})" if release.date else release.version


def _span(first: Release, last: Release) -> str:
    if first.version == last.version:
        return _dated(first)
    return f"{_dated(first)} to {_dated(last)}"


def _releases(number: int, first: str, last: str) -> str:
    if number == 1:
        return f"one release, {first}"
    return f"{number} releases, {first} to {last}"


def _wrapped(text: str, hanging: str = "") -> list[str]:
    return textwrap.wrap(
        printable(text),
        _WIDTH,
        subsequent_indent=hanging,
        break_long_words=False,
        break_on_hyphens=False,
    )


# -- JSON -----------------------------------------------------------------------------------------


def as_value(answer: Drift, forecasts: Sequence[Forecast | None] | None) -> dict[str, Any]:
    """The answer as JSON values; see docs/json.md."""
    dates = {release.version: release.date for release in answer.releases}
    return {
        "command": "drift",
        "patch": answer.patch,
        "base": answer.base,
        "base_found": answer.found,
        "releases": [
            {"release": one.version, "date": one.date, "wheel": one.wheel}
            for one in answer.releases
        ],
        "unread": dict(answer.unread),
        "notes": list(answer.notes),
        "hunks": [
            {
                **_hunk_value(hunk, dates),
                "forecast": found.as_value()
                if forecasts is not None and (found := forecasts[at])
                else None,
            }
            for at, hunk in enumerate(answer.hunks)
        ],
    }


def _hunk_value(hunk: HunkDrift, dates: Mapping[str, str | None]) -> dict[str, Any]:
    return {
        "path": hunk.path,
        "number": hunk.number,
        "scope": hunk.scope,
        "reason": hunk.reason,
        "stands": [
            {
                "release": stand.release,
                "verdict": stand.verdict.value,
                "reason": stand.reason,
                "form": stand.form or None,
                "path": stand.path,
                "scope": stand.scope,
                "line": stand.line,
                "scope_changed": stand.scope_changed,
            }
            for stand in hunk.stands
        ],
        "forms": [{"number": form.number, "text": form.text} for form in hunk.forms],
        "transitions": [
            {
                "before": each.before,
                "before_date": dates[each.before],
                "after": each.after,
                "after_date": dates[each.after],
                "forms": [number or None for number in each.forms],
                "what": list(each.what),
                "told": each.told,
                "diff": each.diff.whole,
                "beside": each.diff.beside,
            }
            for each in hunk.transitions
        ],
    }
