"""What `rebase` says: a table of the patches, and below it what a person must look at."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from vllm_series.patch import Patch
from vllm_series.rebase import Outcome
from vllm_series.report import counted, diff, table
from vllm_series.reports.printable import printable
from vllm_series.workspace.carrying import EQUAL, Carried
from vllm_series.workspace.state import REFUSED, RUNNING, STOPPED, Batch, Settled, State, Written
from vllm_series.workspace.tested import tests_of

_KEPT = "\n\t"
_COLOURS = {
    "clean": "green",
    "offset": "green",
    "upstreamed": "cyan",
    "conflicted": "red",
}


def told(
    batch: Batch, results: Mapping[str, Carried], verbose: bool, *, dry_run: bool = False
) -> str:
    """The whole report of a batch, for a person."""
    parts = [_finished(one, results.get(one.line.onto), verbose, dry_run) for one in batch.done]
    parts.append(_missing(batch, dry_run))
    if batch.now is not None:
        parts.append(_under_way(batch, batch.now, verbose, dry_run))
    if batch.queue:
        parts.append("to come: " + ", ".join(line.onto for line in batch.queue))
    return "\n\n".join(part for part in parts if part)


def _finished(one: Written, carried: Carried | None, verbose: bool, dry_run: bool) -> str:
    line = one.line
    if one.outcome == EQUAL and not one.patches:
        return f"{line.onto}: made for vllm {line.target} already: nothing to do"
    head = f"{line.onto}: vllm {one.base} -> {line.target}"
    left = all(patch.commit is None for patch in one.patches)
    if one.outcome == EQUAL:
        end = f"{line.onto} holds just this already: nothing was changed"
    elif left:
        end = f"no patch is left, so there is no {line.onto}"
    else:
        end = f"{line.onto} {'would be' if dry_run else 'was'} written"
    parts = [
        head,
        _rows(one.patches),
        *_details(one.patches, carried, verbose),
        end,
        _unserved(one),
    ]
    return "\n".join(part for part in parts if part)


def _missing(batch: Batch, dry_run: bool) -> str:
    """What could not be done for what is written, since the project does not have it."""
    written = [one for one in batch.done if one.outcome != EQUAL]
    names = [patch.name for one in written for patch in one.patches if patch.commit]
    if not names:
        return ""
    parts = []
    if batch.tests is None and not tests_of(Path(batch.project), names):
        parts.append("no hunk tests are in tests/hunks beside the series, so none were run")
    if not Path(batch.project, "CHANGELOG.md").is_file():
        end = "would be" if dry_run else "was"
        parts.append(f"no CHANGELOG.md is beside the series, so no entry {end} written")
    return "\n".join(parts)


def _unserved(one: Written) -> str:
    """Which releases of the line the folder does not fit, and what comes of that."""
    if not one.misfits:
        return ""
    text = f"it does not fit vllm {', '.join(one.misfits)}, also of this line: "
    if one.fill:
        return text + "each gets a folder of its own"
    version = one.misfits[0]
    return (
        f"{text}give each a folder of its own, vllm-series rebase {version} "
        f"--from {one.line.onto} --onto-dir vllm-{version}"
    )


def _rows(patches: tuple[Settled, ...]) -> str:
    return table((f"  {one.name}", _word(one.outcome), _deed(one)) for one in patches)


def _word(outcome: str) -> str:
    return click.style(outcome, fg=_COLOURS.get(outcome, "yellow"))


def _deed(one: Settled) -> str:
    """What was done with a patch."""
    if one.outcome == Outcome.UPSTREAMED.value:
        return f"left out: upstream since vllm {one.since}"
    hunks = counted(len(one.hunks), "hunk") if one.hunks else ""
    if one.outcome == Outcome.OFFSET.value and not one.how:
        moved = sum(1 for hunk in one.hunks if hunk.verdict == "offset")
        return f"carried: {moved} of {hunks} at another line"
    if one.outcome == Outcome.PARTLY.value and not one.how:
        return "carried: what upstream does not have"
    return one.how or f"carried: {hunks}" if one.how or hunks else "carried"


def _details(patches: tuple[Settled, ...], carried: Carried | None, verbose: bool) -> list[str]:
    out: list[str] = []
    pairs = {new.name: (old, new) for old, new in carried.patches} if carried else {}
    for one in patches:
        lines = [f"  upstream: {text}" for text in one.evidence]
        if one.outcome == Outcome.UPSTREAMED.value:
            lines.append(f"  Applied-Upstream: {one.since}")
        lines += [f"  review: {text}" for text in one.notes]
        looked_at = one.commit and (one.how or one.outcome not in ("clean", "offset"))
        if one.name in pairs and (looked_at or verbose):
            lines += [f"  {line}" for line in _changed(*pairs[one.name])]
        if lines:
            out.append("\n".join([f"{one.name}", *lines]))
    return [printable(text, _KEPT) for text in out]


def _changed(old: Patch, new: Patch) -> list[str]:
    """What the patch itself has become, as a diff of the two patches without their line numbers."""
    before, after = _body(old), _body(new)
    lines = list(
        difflib.unified_diff(before, after, f"{old.name} before", f"{new.name} after", lineterm="")
    )
    return lines or ["its lines are unchanged"]


def _body(patch: Patch) -> list[str]:
    out = [f"{key}: {value}" for key, value in patch.trailers]
    for change in patch.files:
        out.append(f"{change.kind.value} {change.new_raw or change.old_raw}")
        for hunk in change.hunks:
            out.append("@@ " + hunk.heading.decode("utf-8", "replace"))
            out += [
                chr(op) + line.decode("utf-8", "replace").rstrip("\n")
                for op, line in zip(hunk.ops, hunk.lines, strict=True)
            ]
    return out


def _under_way(batch: Batch, state: State, verbose: bool, dry_run: bool) -> str:
    line = state.line
    parts = [f"{line.onto}: vllm {state.base} -> {line.target}"]
    if state.settled:
        parts += [_rows(state.settled), *_details(state.settled, None, verbose)]
    waits = state.open
    if state.phase == STOPPED and waits is not None:
        rest = state.names[len(state.settled) + 1 :]
        parts.append(table([(f"  {waits.name}", _word("conflicted"), printable(waits.reason))]))
        parts += [f"  {name}: not yet" for name in rest]
        for hunk in waits.hunks:
            scope = f" in {hunk.scope}" if hunk.scope else ""
            at = f"line {hunk.line}" if hunk.line else "no place"
            why = f": {hunk.reason}" if hunk.reason else ""
            parts.append(
                printable(f"  {hunk.path}: hunk {hunk.number}{scope}: {hunk.verdict}, {at}{why}")
            )
        if waits.upstream:
            parts += [
                "",
                "upstream did this there:",
                diff(printable(waits.upstream, _KEPT)).rstrip(),
            ]
        if waits.patch:
            parts += ["", "the patch does this:", diff(printable(waits.patch, _KEPT)).rstrip()]
        if not dry_run:
            parts += [
                "",
                f"Resolve it in {batch.workdir} with an editor or git mergetool, then run",
                "vllm-series rebase --continue; or --skip to leave the patch out, or --abort.",
            ]
    elif state.phase == REFUSED:
        parts += ["the result is not taken:", *(f"  {text}" for text in state.problems)]
        if not dry_run:
            parts += [
                f"Change the files in {batch.workdir} (they go into the last patch), or amend",
                "the commits there, then run vllm-series rebase --continue; or give up with "
                "--abort.",
            ]
    elif state.phase == RUNNING:
        parts.append("it was cut off. Go on with vllm-series rebase --continue, or --abort.")
    else:
        parts.append("it was cut off near its end. vllm-series rebase --continue finishes it.")
    return "\n".join(parts)


def as_value(
    batch: Batch | None, results: Mapping[str, Carried], *, dry_run: bool = False
) -> dict[str, Any]:
    """The same as JSON."""
    value: dict[str, Any] = {"command": "rebase", "dry_run": dry_run, "outcome": "none open"}
    if batch is None:
        return {**value, "done": [], "open": None, "queue": []}
    now = batch.now
    if now is not None:
        value["outcome"] = {STOPPED: "conflict", REFUSED: "refused"}.get(now.phase, "cut off")
    else:
        value["outcome"] = "done"
    value["done"] = [
        {
            "from": one.line.source,
            "folder": one.line.onto,
            "release": one.line.target,
            "base": one.base,
            "outcome": one.outcome,
            "misfits": list(one.misfits),
            "patches": [_patch(each, results.get(one.line.onto)) for each in one.patches],
        }
        for one in batch.done
    ]
    value["queue"] = [line.onto for line in batch.queue]
    value["open"] = None
    if now is not None:
        waits = now.open
        value["open"] = {
            "from": now.line.source,
            "folder": now.line.onto,
            "release": now.line.target,
            "base": now.base,
            "workdir": batch.workdir,
            "patches": [_patch(each, None) for each in now.settled],
            "waiting": waits.name if waits else None,
            "reason": waits.reason if waits else None,
            "paths": list(waits.paths) if waits else [],
            "hunks": [_hunk(each) for each in waits.hunks] if waits else [],
            "upstream": waits.upstream if waits else "",
            "patch": waits.patch if waits else "",
            "problems": list(now.problems),
        }
    return value


def _patch(one: Settled, carried: Carried | None) -> dict[str, Any]:
    pairs = {new.name: (old, new) for old, new in carried.patches} if carried else {}
    return {
        "name": one.name,
        "outcome": one.outcome,
        "how": one.how,
        "since": one.since,
        "hunks": [_hunk(each) for each in one.hunks],
        "evidence": list(one.evidence),
        "review": list(one.notes),
        "diff": "\n".join(_changed(*pairs[one.name])) if one.name in pairs else "",
    }


def _hunk(one: Any) -> dict[str, Any]:
    return {
        "path": one.path,
        "number": one.number,
        "verdict": one.verdict,
        "line": one.line,
        "scope": one.scope,
        "reason": one.reason,
    }
