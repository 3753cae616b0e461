"""The table that a person reads: a row a patch, a cell a release, then what to do about it."""

from __future__ import annotations

from collections.abc import Sequence

import click

from vllm_series.checking.answers import ReleaseAnswer
from vllm_series.report import counted
from vllm_series.reports.findings import Finding, findings, steps
from vllm_series.reports.grid import blocks
from vllm_series.reports.marks import ABSENT, ALL, UNJUDGED, Mark, mark
from vllm_series.reports.printable import columns, printable, wrapped
from vllm_series.reports.spans import spans

WIDTH = 100
"""Columns of a table that is not for a terminal, and of a line of words in any case."""
_SUPPORTED = "supported"


def table(answers: Sequence[ReleaseAnswer], width: int = WIDTH) -> str:
    """Everything: caption, cells, legend, and a line for all that is not clean.

    No line is wider than `width` columns, which are at least 40.
    """
    parts = [
        wrapped(caption(answers), min(width, WIDTH), "    "),
        grid(answers, width),
        legend(answers, width),
    ]
    found = findings(answers)
    parts += [lines(found, width), next_steps(found, width)]
    return "\n\n".join(part for part in parts if part)


def caption(answers: Sequence[ReleaseAnswer]) -> str:
    """What was held against which releases, in one line."""
    names = {answer.series for answer in answers}
    judged = [answer.release for answer in answers]
    where = spans(judged, judged)
    if len(judged) > 2:
        where += f" ({len(judged)} releases)"
    if None in names:
        patches = {patch.name for answer in answers for patch in answer.patches}
        what = counted(len(patches), "patch") if patches else "patches"
        return f"{what} on {where}"
    if len(names) == 1:
        return f"series {printable(names.pop() or '')} on {where}"
    own = "each line's series"
    if not all(answer.is_supported for answer in answers):
        own += ", the nearest one where a line has none,"
    return f"{own} on {where}"


def grid(answers: Sequence[ReleaseAnswer], width: int = WIDTH) -> str:
    """The cells, in as many blocks as the width asks for."""
    releases = [answer.release for answer in answers]
    # Without any answer there is no name either, but there is something to tell.
    kinds = rows(answers) or {"": [UNJUDGED if one.error else ABSENT for one in answers]}
    some = {answer.is_supported for answer in answers} == {True, False}
    support = [("*", "*") if answer.is_supported else ("", "") for answer in answers]
    parts = []
    for block in blocks(releases, [*kinds, _SUPPORTED] if some else list(kinds), width):
        told = list(block.head)
        for name, marks in kinds.items():
            told.append(block.row(name, [(_coloured(one), one.sign) for one in marks]))
        if any(answers[column.at].is_supported for column in block.columns) and some:
            told.append(block.row(_SUPPORTED, support))
        parts.append("\n".join(told))
    return "\n\n".join(parts)


def rows(answers: Sequence[ReleaseAnswer]) -> dict[str, list[Mark]]:
    """The marks of each patch, one a release, in the order in which the series first name them."""
    names = dict.fromkeys(patch.name for answer in answers for patch in answer.patches)
    made: dict[str, list[Mark]] = {name: [] for name in names}
    for answer in answers:
        there = {patch.name: mark(patch) for patch in answer.patches}
        rest = UNJUDGED if answer.error else ABSENT
        for name, marks in made.items():
            marks.append(there.get(name, rest))
    return made


def legend(answers: Sequence[ReleaseAnswer], width: int = WIDTH) -> str:
    """The signs that the cells use, and no others."""
    used = {one for marks in rows(answers).values() for one in marks}
    used |= {UNJUDGED for answer in answers if answer.error}
    used |= {ABSENT for answer in answers if not answer.error and not answer.patches}
    words = [f"{one.sign} {one.word}: {one.meaning}" for one in ALL if one in used]
    if {answer.is_supported for answer in answers} == {True, False}:
        words.append("* supported: a series serves that release, so it counts")
    told: list[str] = []
    for word in (wrapped(one, min(width, WIDTH), "    ") for one in words):
        if (
            told
            and "\n" not in told[-1] + word
            and columns(told[-1]) + columns(word) + 3 <= min(width, WIDTH)
        ):
            told[-1] += f"   {word}"
        else:
            told.append(word)
    return "\n".join(told)


def lines(found: Sequence[Finding], width: int = WIDTH) -> str:
    """A paragraph for each finding."""
    return "\n".join(wrapped(str(one), min(width, WIDTH), "    ") for one in found)


def next_steps(found: Sequence[Finding], width: int = WIDTH) -> str:
    """A paragraph for each kind of trouble."""
    told = (f"next for {word}: {step}" for word, step in steps(found).items())
    return "\n".join(wrapped(one, min(width, WIDTH), "    ") for one in told)


def closing(answers: Sequence[ReleaseAnswer]) -> str:
    """One line for the end: how many of the releases that count are clean."""
    judged = [answer.release for answer in answers]
    supported = [answer for answer in answers if answer.is_supported]
    if all(answer.error for answer in answers):
        return f"{counted(len(answers), 'release')} could not be judged, and no other was asked for"
    if not supported:
        clean = sum(answer.is_clean for answer in answers)
        return f"none of these releases is supported, so none counts; clean on {clean}"
    wrong = [answer.release for answer in supported if not answer.is_clean]
    if not wrong:
        return f"clean on {_all(len(supported), 'supported release')}"
    share = f"{len(wrong)} of {counted(len(supported), 'supported release')}"
    return f"not clean on {share}: {spans(wrong, judged)}"


def _all(number: int, word: str) -> str:
    if number < 3:
        return f"the one {word}" if number == 1 else f"both {word}s"
    return f"all {counted(number, word)}"


def _coloured(one: Mark) -> str:
    return click.style(one.sign, fg=one.colour)
