"""Markdown for a summary page or a comment on GitHub: what is not clean, the table, the details.

Names and code come from anywhere, so they stand in code spans and fences that they cannot leave.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

from vllm_series.checking.answers import ReleaseAnswer
from vllm_series.reports.details import passages
from vllm_series.reports.findings import Finding, findings, steps
from vllm_series.reports.marks import ABSENT, UNJUDGED, Mark
from vllm_series.reports.printable import printable
from vllm_series.reports.table import caption, closing, rows

LIMIT = 1_000_000
"""Bytes; GitHub takes 1 MiB for the summary of a step."""
_WIDE = 8
"""Patches that may stand side by side; more are rows."""
_SPECIAL = re.compile(r"([\\`*_\[\]<>&|~#@])")


def markdown(answers: Sequence[ReleaseAnswer], limit: int = LIMIT) -> str:
    """The page, in at most `limit` bytes: details are left out where there would be more."""
    found = findings(answers)
    parts = ["### vllm-series check", plain(_sentence(closing(answers)))]
    if found:
        parts.append("\n".join(f"- {_finding(finding)}" for finding in found))
        next_steps = [f"- Next for {word}: {plain(step)}" for word, step in steps(found).items()]
        parts.append("\n".join(next_steps))
    parts.append(folded(escaped(_sentence(caption(answers))), _table(answers)))
    text = "\n\n".join(part for part in parts if part)
    size = len(text.encode())
    kept: list[str] = []
    left = 0
    for head, body in passages(answers, clean=False):
        part = folded(escaped(head), _fenced(body))
        if left or size + len(part.encode()) + 100 > limit:
            left += 1
            continue
        size += len(part.encode()) + 2
        kept.append(part)
    if left:
        kept.append(f"{left} more details are left out, since this page has a limit.")
    return "\n\n".join([text, *kept]) + "\n"


def code(text: str, *, in_table: bool = False) -> str:
    """A code span, with a fence that the text does not hold (CommonMark, 6.1)."""
    text = printable(text)
    runs = [len(run) for run in re.findall("`+", text)]
    fence = "`" * next(n for n in range(1, len(runs) + 2) if n not in runs)
    if in_table:
        text = text.replace("|", "\\|")
    pad = " " if text.startswith("`") or text.endswith("`") or text.strip(" ") != text else ""
    return f"{fence}{pad}{text}{pad}{fence}" if text else ""


def plain(text: str) -> str:
    """Text of which nothing is taken for markup, a link or a name to call."""
    return _SPECIAL.sub(r"\\\1", printable(text))


def _finding(finding: Finding) -> str:
    word = f"**{finding.mark.word}**" if finding.mark else ""
    why = f" {plain(finding.why.rstrip('.'))}." if finding.why else ""
    where = plain(finding.where)
    if finding.subjects:
        return f"{', '.join(map(code, finding.subjects))}: {word} on {where}.{why}"
    return f"{where}: {word}.{why}" if word else f"{where}:{why}"


def _table(answers: Sequence[ReleaseAnswer]) -> str:
    """Words instead of signs. Few patches stand side by side, many below each other."""
    kinds = rows(answers)
    names = [code(name, in_table=True) for name in kinds]
    if len(kinds) <= _WIDE:
        head = ["release", "supported", *names]
        body = [
            [
                code(answer.release, in_table=True),
                "yes" if answer.is_supported else "no",
                *(_cell(marks[at]) for marks in kinds.values()),
                *([_cell(UNJUDGED if answer.error else ABSENT)] if not kinds else []),
            ]
            for at, answer in enumerate(answers)
        ]
        if not kinds:
            head.append("")
    else:
        head = ["patch", *(code(answer.release, in_table=True) for answer in answers)]
        body = [
            [name, *map(_cell, marks)] for name, marks in zip(names, kinds.values(), strict=True)
        ]
    rule = ["---"] * len(head)
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, rule, *body))


def _cell(kind: Mark) -> str:
    if kind is ABSENT:
        return ""
    is_clean = kind.word in ("exact", "offset")
    return kind.word if is_clean else f"**{kind.word}**"


def escaped(text: str) -> str:
    """Text inside a tag."""
    return html.escape(text, quote=False)


def folded(summary: str, inside: str) -> str:
    """A part that opens at a click; `summary` is HTML, `inside` Markdown."""
    return f"<details><summary>{summary}</summary>\n\n{inside}\n\n</details>"


def _fenced(text: str) -> str:
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text}\n{fence}"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
