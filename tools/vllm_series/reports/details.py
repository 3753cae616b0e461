"""Hunk by hunk: where each one is, why one does not fit, and what stands there instead.

Releases on which a patch has the very same answer are told together, so that thirty releases with
one file between them are read once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from vllm_series.checking.answers import FileAnswer, HunkAnswer, PatchAnswer, ReleaseAnswer
from vllm_series.report import counted, diff
from vllm_series.report import table as aligned
from vllm_series.report import verdict as coloured
from vllm_series.reports.marks import REVIEW, mark
from vllm_series.reports.printable import printable, wrapped
from vllm_series.reports.spans import spans
from vllm_series.verdicts import Verdict

_WORDS = 94
"""Columns of a sentence below a hunk."""


def details(answers: Sequence[ReleaseAnswer]) -> str:
    """Every patch on every release, and which wheel was judged."""
    parts = [f"{head}\n{body}" for head, body in passages(answers, coloured=True)]
    return "\n\n".join([*parts, sources(answers)])


def passages(
    answers: Sequence[ReleaseAnswer], *, coloured: bool = False, clean: bool = True
) -> Iterator[tuple[str, str]]:
    """A heading and a text for each patch and each of its answers, in the order of the patches.

    Without `clean` those that leave nothing to do are left out.
    """
    judged = [answer.release for answer in answers]
    told: dict[str, dict[tuple[PatchAnswer, str | None, tuple[str, ...]], list[str]]] = {}
    for answer in answers:
        for patch in answer.patches:
            meets = tuple(_overlaps(answer, patch.name))
            if clean or meets or not patch.is_clean:
                same = told.setdefault(patch.name, {})
                same.setdefault((patch, answer.series, meets), []).append(answer.release)
    for cases in told.values():
        for (patch, series, meets), releases in cases.items():
            of = [series] if series else []
            of += [f"base {patch.base}"] if patch.base else []
            remark = f" ({', '.join(map(printable, of))})" if of else ""
            where = spans(releases, judged)
            head = f"{printable(patch.name)} on {where}{remark}: {_word(patch, coloured)}"
            yield head, "\n".join(_patch(patch, meets, coloured))


def sources(answers: Sequence[ReleaseAnswer]) -> str:
    """Which wheel, archive or commit was judged for each release, or why none could be."""
    rows = [
        (
            printable(answer.release),
            answer.date or "",
            printable(answer.series or ""),
            printable(answer.error or answer.label),
        )
        for answer in answers
    ]
    return aligned(rows, ("release", "date", "series", "judged"))


def _word(patch: PatchAnswer, colours: bool) -> str:
    kind = mark(patch)
    if kind is REVIEW:
        words = f"{patch.verdict.value}, to be reviewed"
        return click.style(words, fg=kind.colour) if colours else words
    return coloured(patch.verdict) if colours else patch.verdict.value


def _patch(patch: PatchAnswer, meets: Sequence[str], colours: bool) -> Iterator[str]:
    if patch.blocked_by:
        yield f"  blocked by {', '.join(map(printable, patch.blocked_by))}"
    if patch.reason:
        yield f"  {printable(patch.reason)}"
    if patch.since:
        yield f"  upstream has all of it since {printable(patch.since)}"
    for text in patch.review:
        yield f"  review: {printable(text)}"
    for text in meets:
        yield f"  {printable(text)}"
    for text in patch.notes:
        yield f"  note: {printable(text)}"
    for file in patch.files:
        yield from _file(file, colours)


def _overlaps(answer: ReleaseAnswer, name: str) -> Iterator[str]:
    """Where this patch writes what one in front of it wrote."""
    for one in answer.overlaps:
        if one.second == name:
            first, last = one.lines
            lines = f"line {first}" if first == last else f"lines {first} to {last}"
            yield f"writes {lines} of {one.path}, as {one.first} does"


def _file(file: FileAnswer, colours: bool) -> Iterator[str]:
    word = "" if file.hunks else f": {coloured(file.verdict) if colours else file.verdict.value}"
    yield f"  {printable(file.path)}{word}"
    if file.reason and file.reason not in {hunk.reason for hunk in file.hunks}:
        yield f"    {printable(file.reason)}"
    for rename in file.renames:
        yield f"    may be {printable(rename.path)} now, {rename.similarity} % alike"
    if file.since:
        yield f"    upstream has all of it since {printable(file.since)}"
    for text in file.review:
        yield f"    review: {printable(text)}"
    width = len(str(len(file.hunks)))
    gone = file.verdict in (Verdict.MISSING, Verdict.NOT_SHIPPED)
    if gone and len({(hunk.verdict, hunk.reason) for hunk in file.hunks}) == 1:
        word = coloured(file.verdict) if colours else file.verdict.value
        yield f"    {counted(len(file.hunks), 'hunk')}  {word}"
        yield from _said(file.hunks[0].reason)
        return
    for hunk in file.hunks:
        yield from _hunk(hunk, width, colours)


def _hunk(hunk: HunkAnswer, width: int, colours: bool) -> Iterator[str]:
    word = coloured(hunk.verdict) if colours else hunk.verdict.value
    parts = [f"    hunk {hunk.number:>{width}}  {word}"]
    if hunk.line is not None:
        moved = f" ({hunk.offset:+d})" if hunk.offset else ""
        parts.append(f" at line {hunk.line}{moved}")
    if hunk.scope:
        parts.append(f" in {printable(hunk.scope)}")
    yield "".join(parts)
    yield from _said(hunk.reason)
    if hunk.since:
        yield f"      upstream has it since {printable(hunk.since)}"
    for text in hunk.review:
        yield from _said(f"review: {text}")
    if hunk.candidate:
        # Other people's code: tabs are content, anything else without a shape is not printed.
        text = printable(hunk.candidate, keep="\t\n")
        shown = diff(text) if colours else text
        yield from (f"      {line}".rstrip() for line in shown.splitlines())


def _said(text: str) -> Iterator[str]:
    """Words below a hunk, in lines that fit a page."""
    if text:
        yield from (f"      {line}" for line in wrapped(printable(text), _WORDS, "  ").split("\n"))
