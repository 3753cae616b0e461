"""What a person or a program reads: aligned tables, coloured diffs, JSON with a schema number.

Nothing here decides anything. Tables are plain text that a log or a screen reader can take; a
colour never carries what no word says.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from vllm_series.verdicts import Verdict

if TYPE_CHECKING:
    from vllm_series.fileplan import FilePlan
    from vllm_series.patch import Patch
    from vllm_series.placement import Placement
    from vllm_series.plan import PatchPlan, Plan

JSON_SCHEMA = 1
"""Raised when a key is renamed or removed; new keys may appear at any time."""

_COLOURS = {
    Verdict.EXACT: "green",
    Verdict.OFFSET: "green",
    Verdict.APPLIED: "cyan",
    Verdict.UPSTREAMED: "cyan",
    Verdict.MERGED: "yellow",
    Verdict.NOT_SHIPPED: "yellow",
}


def table(rows: Iterable[Sequence[str]], head: Sequence[str] = ()) -> str:
    """Rows in columns, left-aligned, two blanks apart; `head` is printed above them."""
    body = [list(map(str, row)) for row in rows]
    every = [list(head), *body] if head else body
    widths = [
        max(len(click.unstyle(row[column])) for row in every if column < len(row))
        for column in range(max(map(len, every), default=0))
    ]
    lines = []
    for row in every:
        cells = [
            cell + " " * (width - len(click.unstyle(cell)))
            for cell, width in zip(row, widths, strict=False)
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def verdict(value: Verdict) -> str:
    """The verdict's word in its colour."""
    return click.style(value.value, fg=_COLOURS.get(value, "red"))


def counted(number: int, word: str) -> str:
    """`1 hunk`, `3 hunks`, `2 patches`."""
    plural = word + ("es" if word.endswith("ch") else "s")
    return f"{number} {word if number == 1 else plural}"


def diff(text: str) -> str:
    """A unified diff with the usual colours."""
    lines = []
    for line in text.splitlines():
        if line.startswith(("+++", "---", "diff ", "index ")):
            lines.append(click.style(line, bold=True))
        elif line.startswith("@@"):
            lines.append(click.style(line, fg="cyan"))
        elif line.startswith("+"):
            lines.append(click.style(line, fg="green"))
        elif line.startswith("-"):
            lines.append(click.style(line, fg="red"))
        else:
            lines.append(line)
    return "\n".join(lines)


def plan_table(plan: Plan, outcome: str) -> str:
    """One row a patch: name, verdict, what it touches, what became of it."""
    rows = []
    for patch in plan.patches:
        hunks = sum(len(file.placements) for file in patch.files)
        size = f"{counted(len(patch.files), 'file')}, {counted(hunks, 'hunk')}"
        became = "refused" if patch.refused else (outcome if patch.step else "there already")
        rows.append((patch.patch.name, verdict(patch.verdict), size, became))
    return table(rows)


def hunk_table(plan: Plan) -> str:
    """One row a hunk: file, verdict, line, offset, scope."""
    rows = []
    for patch in plan.patches:
        for file in patch.files:
            for placement in file.placements:
                offset = f"{placement.offset:+d}" if placement.offset else ""
                line = "" if placement.line is None else str(placement.line)
                rows.append(
                    (file.path, verdict(placement.verdict), line, offset, placement.scope or "")
                )
    return table(rows, ("file", "verdict", "line", "offset", "scope"))


def file_diff(path: str, before: bytes | None, after: bytes | None) -> str:
    """A unified diff of two texts of one file; empty where they are equal."""
    import difflib

    if before == after:
        return ""
    old = io.BytesIO(before or b"").readlines()
    new = io.BytesIO(after or b"").readlines()
    names = (
        "/dev/null" if before is None else f"a/{path}",
        "/dev/null" if after is None else f"b/{path}",
    )
    out = []
    above, below = (name.encode("utf-8", "surrogateescape") for name in names)
    for line in difflib.diff_bytes(difflib.unified_diff, old, new, above, below):
        text = line.decode("utf-8", "backslashreplace")
        out.append(text if text.endswith("\n") else text + "\n\\ No newline at end of file\n")
    return "".join(out)


def refusals(plan: Plan) -> str:
    """Every refused hunk: where, why, and the nearest place as a diff."""
    parts: list[str] = []
    for patch in plan.patches:
        if not patch.refused:
            continue
        if patch.reason:
            parts.append(f"{patch.patch.name}: {verdict(patch.verdict)}: {patch.reason}.")
        for file in patch.files:
            parts.extend(_refused_file(patch, file))
    return "\n".join(parts)


def _refused_file(patch: PatchPlan, file: FilePlan) -> Iterable[str]:
    if file.verdict.fits:
        return
    if file.reason:
        yield (
            f"{patch.patch.name}:{file.change.lineno}: {file.path}: {verdict(file.verdict)}: "
            f"{file.reason}."
        )
    for number, placement in enumerate(file.placements, 1):
        if placement.verdict.fits or placement.verdict is Verdict.MISSING:
            continue
        scope = f" in {placement.scope}" if placement.scope else ""
        yield (
            f"{patch.patch.name}:{placement.hunk.lineno}: {file.path}, hunk {number} of "
            f"{len(file.change.hunks)}{scope}: {verdict(placement.verdict)}: {placement.reason}."
        )
        if placement.candidate:
            yield _indented(diff(placement.candidate))


def _indented(text: str) -> str:
    return "\n".join("    " + line for line in text.splitlines())


def notes(plan: Plan) -> list[str]:
    """Warnings of every patch that stop nothing."""
    return [note for patch in plan.patches for note in patch.notes]


# -- JSON -----------------------------------------------------------------------------------------


def as_json(value: dict[str, Any]) -> str:
    """One JSON object with the schema's number."""
    import json

    return json.dumps({"schema": JSON_SCHEMA, **value}, indent=2, ensure_ascii=True)


def patch_json(patch: Patch) -> dict[str, Any]:
    """A patch's own words, without a tree."""
    return {
        "name": patch.name,
        "subject": patch.subject,
        "base": patch.base,
        "trailers": [[key, value] for key, value in patch.trailers],
        "files": [
            {
                "kind": change.kind.value,
                "old": change.old_raw,
                "new": change.new_raw,
                "hunks": [
                    {"line": hunk.first_line, "heading": hunk.heading.decode("utf-8", "replace")}
                    for hunk in change.hunks
                ],
            }
            for change in patch.files
        ],
    }


def plan_json(plan: Plan) -> list[dict[str, Any]]:
    """Patches, files and hunks with verdict, place and reason."""
    return [
        {
            "name": patch.patch.name,
            "verdict": patch.verdict.value,
            "refused": patch.refused,
            "reason": patch.reason,
            "notes": list(patch.notes),
            "files": [
                {
                    "path": file.path,
                    "kind": file.change.kind.value,
                    "verdict": file.verdict.value,
                    "pristine": file.pristine,
                    "reason": file.reason,
                    "hunks": [_placement_json(placement) for placement in file.placements],
                }
                for file in patch.files
            ],
        }
        for patch in plan.patches
    ]


def _placement_json(placement: Placement) -> dict[str, Any]:
    return {
        "verdict": placement.verdict.value,
        "line": placement.line,
        "offset": placement.offset,
        "scope": placement.scope,
        "reason": placement.reason,
        "candidate": placement.candidate,
    }
