"""Everything that `check` answers as one JSON object; `docs/schemas/check.json` describes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from vllm_series.checking.answers import FileAnswer, HunkAnswer, PatchAnswer, ReleaseAnswer
from vllm_series.report import as_json
from vllm_series.reports.marks import mark


def rendered(answers: Sequence[ReleaseAnswer]) -> str:
    """The object as text, with the number of its schema."""
    supported = [answer for answer in answers if answer.is_supported]
    return as_json(
        {
            "command": "check",
            "supported": len(supported),
            "not_clean": [answer.release for answer in supported if not answer.is_clean],
            "not_judged": [answer.release for answer in answers if answer.error],
            "releases": [_release(answer) for answer in answers],
        }
    )


def _release(answer: ReleaseAnswer) -> dict[str, Any]:
    return {
        "release": answer.release,
        "judged": None if answer.error else answer.label,
        "date": answer.date,
        "series": answer.series,
        "supported": answer.is_supported,
        "clean": answer.is_clean,
        "error": answer.error or None,
        "notes": list(answer.notes),
        "patches": [_patch(patch) for patch in answer.patches],
        "overlaps": [
            {"first": one.first, "second": one.second, "path": one.path, "lines": list(one.lines)}
            for one in answer.overlaps
        ],
    }


def _patch(patch: PatchAnswer) -> dict[str, Any]:
    return {
        "name": patch.name,
        "verdict": patch.verdict.value,
        "clean": patch.is_clean,
        "mark": mark(patch).word,
        "reason": patch.reason,
        "base": patch.base,
        "since": patch.since,
        "blocked_by": list(patch.blocked_by),
        "review": list(patch.review),
        "notes": list(patch.notes),
        "files": [_file(file) for file in patch.files],
    }


def _file(file: FileAnswer) -> dict[str, Any]:
    return {
        "path": file.path,
        "verdict": file.verdict.value,
        "reason": file.reason,
        "since": file.since,
        "renames": [asdict(rename) for rename in file.renames],
        "review": list(file.review),
        "hunks": [_hunk(hunk) for hunk in file.hunks],
    }


def _hunk(hunk: HunkAnswer) -> dict[str, Any]:
    return {
        "number": hunk.number,
        "path": hunk.path,
        "verdict": hunk.verdict.value,
        "line": hunk.line,
        "offset": hunk.offset,
        "scope": hunk.scope,
        "reason": hunk.reason,
        "candidate": hunk.candidate,
        "since": hunk.since,
        "review": list(hunk.review),
    }
