"""A smoke run for people (a table of scenario × mode) and for programs (JSON, a file a release)."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

import click

from vllm_series.report import table
from vllm_series.reports.printable import printable
from vllm_series.smoke.results import (
    Blame,
    Check,
    Decode,
    Difference,
    Mode,
    Outcome,
    Row,
    Smoke,
)

SCHEMA = 1
_LOG_LINES = 6
"""Last lines of a failed scenario's log that are shown; a blame shows more."""
_WORDS = {
    Outcome.PASSED: ("ok", "green"),
    Outcome.TIE: ("tie", "yellow"),
    Outcome.FAILED: ("FAILED", "red"),
    Outcome.STOCK_FAILED: ("stock fails", "yellow"),
    Outcome.NOT_RUN: ("not run", "yellow"),
    Outcome.INFO: ("not promised", None),
}


def word(outcome: Outcome) -> str:
    """The outcome's word in its colour."""
    text, colour = _WORDS[outcome]
    return click.style(text, fg=colour) if colour else text


# -- for people -----------------------------------------------------------------------------------


def as_text(smoke: Smoke) -> str:
    """All of one release: what ran, the table, what is wrong and whose doing it is."""
    parts = [_head(smoke)]
    if smoke.rows:
        parts.append(_table(smoke.rows))
        parts.append("\n".join(_cost(smoke.rows)))
    parts.append("\n".join(_remarks(smoke)))
    parts.append("\n".join(_promises(smoke.promises)))
    parts.append("\n".join(line for blame in smoke.blames for line in _blamed(blame)))
    parts.append(_end(smoke))
    return "\n\n".join(part for part in parts if part)


def _head(smoke: Smoke) -> str:
    series = f"{smoke.series} ({', '.join(smoke.patches)})" if smoke.series else "no series"
    torch = f", torch {smoke.torch}" if smoke.torch else ""
    head = click.style(f"vllm {smoke.release} on {smoke.device}{torch}, {series}", bold=True)
    return f"{head}\n{smoke.wheel}" if smoke.wheel else head


def _table(rows: Sequence[Row]) -> str:
    modes = [mode for mode in Mode if any(row.decode.mode is mode for row in rows)]
    names = list(dict.fromkeys(row.decode.scenario for row in rows))
    cells = {(row.decode.scenario, row.decode.mode): row for row in rows}
    body = []
    for name in names:
        line = [name]
        line += [word(cells[name, mode].outcome) for mode in modes]
        line += [_seconds(cells[name, mode].decode) for mode in modes]
        line += [_number(cells[name, mode].decode.drafted) for mode in modes]
        line += [_number(cells[name, mode].decode.accepted) for mode in modes]
        body.append(line)
    head = ["scenario", *(mode.value for mode in modes)]
    for what in ("s", "drafted", "accepted"):
        head += [what, *(mode.value for mode in modes[1:])] if len(modes) > 1 else [what]
    return table(body, head)


def _seconds(decode: Decode) -> str:
    return f"{statistics.median(decode.seconds):.2f}" if decode.seconds else ""


def _number(value: int | None) -> str:
    return str(value) if value else ""


def _cost(rows: Sequence[Row]) -> list[str]:
    """What a patch that is off costs, in the scenarios that were timed."""
    timed = {
        (row.decode.scenario, row.decode.mode): row.decode.seconds
        for row in rows
        if len(row.decode.seconds) > 1
    }
    return [
        f"switched off, {name}: {cost(timed[name, Mode.STOCK], seconds)}"
        for (name, mode), seconds in timed.items()
        if mode is Mode.OFF and (name, Mode.STOCK) in timed
    ]


def cost(stock: Sequence[float], off: Sequence[float]) -> str:
    """Whether times of the same work can be told apart: only where the ranges do not meet."""
    shown = f"{_range(stock)} stock, {_range(off)} off"
    if min(off) <= max(stock):
        return f"{shown}: no measurable difference"
    slower = statistics.median(off) / statistics.median(stock) - 1
    return f"{shown}: {slower:.0%} slower"


def _range(seconds: Sequence[float]) -> str:
    middle = statistics.median(seconds)
    return f"{middle:.3f} s ({min(seconds):.3f} to {max(seconds):.3f})"


def _remarks(smoke: Smoke) -> list[str]:
    """What is not simply good: a line for the modes in which it is the same, the end of the log
    once, and where all of it is."""
    alike: dict[tuple[str, Outcome, str], list[Row]] = {}
    for row in smoke.rows:
        if row.reason:
            alike.setdefault((row.decode.scenario, row.outcome, row.reason), []).append(row)
    lines = []
    for (scenario, outcome, reason), rows in alike.items():
        modes = ", ".join(row.decode.mode.value for row in rows)
        lines.append(f"{scenario} ({modes}): {word(outcome)}: {printable(reason)}")
        failure = rows[0].decode.failure
        if failure is not None:
            lines += [f"  | {printable(line, chr(9))}" for line in failure.log[-_LOG_LINES:]]
            lines.append(f"  the whole log: {rows[0].decode.log_file}")
    return lines


def _promises(promises: Sequence[Check]) -> list[str]:
    words = {Outcome.PASSED: "holds", Outcome.FAILED: "BROKEN", Outcome.NOT_RUN: "not shown"}
    rows = [
        (
            check.patch or "",
            check.name,
            click.style(words[check.outcome], fg=_WORDS[check.outcome][1]),
            printable(check.detail),
        )
        for check in promises
    ]
    return [table(rows, ("patch", "promise", "", ""))] if rows else []


def _blamed(blame: Blame) -> list[str]:
    head = f"{blame.patch} is to blame: {blame.scenario}, {blame.mode.value}: {blame.what}"
    lines = [click.style(printable(head), fg="red")]
    if blame.difference is not None:
        lines.append(f"  first difference: {blame.difference.words}")
    if blame.frame is not None:
        lines.append(f"  in {blame.frame.function}, {blame.frame.file}:{blame.frame.line}")
    lines += [f"  | {printable(line, chr(9))}" for line in blame.log]
    return lines


def _end(smoke: Smoke) -> str:
    took = f"{smoke.seconds:.0f} s"
    if smoke.install_seconds:
        took += f" and {smoke.install_seconds:.0f} s to install"
    disk = f", {smoke.disk / (1 << 30):.1f} GiB of disk" if smoke.disk else ""
    # What an installer or an interpreter has said is in lines of its own.
    first, *more = smoke.reason.splitlines() or [""]
    reason = f" ({printable(first)})" if first else ""
    logs = f"; logs in {smoke.logs}" if smoke.logs else ""
    end = f"{smoke.release}: {word(smoke.outcome)}{reason}, {took}{disk}{logs}"
    return "\n".join([end, *(f"  | {printable(line, chr(9))}" for line in more)])


# -- for programs ---------------------------------------------------------------------------------


def as_value(smoke: Smoke) -> dict[str, Any]:
    """The report of one release (docs/smoke.md, "The report")."""
    return {
        "schema": SCHEMA,
        "release": smoke.release,
        "device": smoke.device,
        "outcome": smoke.outcome.value,
        "reason": smoke.reason or None,
        "wheel": smoke.wheel or None,
        "torch": smoke.torch,
        "series": smoke.series,
        "patches": list(smoke.patches),
        "seconds": round(smoke.seconds, 1),
        "install_seconds": round(smoke.install_seconds, 1),
        "disk_bytes": smoke.disk,
        "logs": smoke.logs,
        "scenarios": [_row(row) for row in smoke.rows],
        "promises": [_check(check) for check in smoke.promises],
        "blame": [_blame(blame) for blame in smoke.blames],
    }


def _row(row: Row) -> dict[str, Any]:
    decode = row.decode
    return {
        "scenario": decode.scenario,
        "mode": decode.mode.value,
        "outcome": row.outcome.value,
        "reason": row.reason or None,
        "seconds": round(statistics.median(decode.seconds), 4) if decode.seconds else None,
        "times": [round(one, 4) for one in decode.seconds],
        "engine_seconds": round(decode.engine_seconds, 2),
        "drafted": decode.drafted,
        "accepted": decode.accepted,
        "texts": list(decode.texts),
        "facts": dict(decode.facts),
        "metrics": dict(decode.metrics),
        "checks": [_check(check) for check in row.checks],
        "failure": _failure(decode),
        "log": decode.log_file,
    }


def _failure(decode: Decode) -> dict[str, Any] | None:
    if decode.failure is None:
        return None
    return {
        "kind": decode.failure.kind,
        "message": decode.failure.message,
        "frames": [
            {"file": frame.file, "line": frame.line, "function": frame.function}
            for frame in decode.failure.frames
        ],
        "log": list(decode.failure.log),
    }


def _check(check: Check) -> dict[str, Any]:
    return {
        "check": check.name,
        "outcome": check.outcome.value,
        "detail": check.detail or None,
        "patch": check.patch,
        "difference": _difference(check.difference),
    }


def _difference(difference: Difference | None) -> dict[str, Any] | None:
    if difference is None:
        return None
    return {
        "request": difference.request,
        "position": difference.position,
        "stock": difference.stock,
        "patched": difference.patched,
        "gap": difference.gap,
    }


def _blame(blame: Blame) -> dict[str, Any]:
    frame = blame.frame
    return {
        "patch": blame.patch,
        "scenario": blame.scenario,
        "mode": blame.mode.value,
        "what": blame.what,
        "difference": _difference(blame.difference),
        "frame": f"{frame.file}:{frame.line} in {frame.function}" if frame else None,
        "log": list(blame.log),
        "runs": blame.runs,
    }
