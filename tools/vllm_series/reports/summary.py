"""Joined smoke reports for people: a table for a terminal, and a page for GitHub's job summary.

What is wrong comes first. The page has one row a release and device, one column a scenario; a cell
is one word where all modes agree, and names the modes that do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vllm_series.joined import FAILED, NOT_RUN, PASSED, TIE, Joined, Run, Scenario
from vllm_series.report import table as columns
from vllm_series.reports.markdown import LIMIT, code, escaped, folded, plain
from vllm_series.reports.printable import printable


def as_json(joined: Joined) -> dict[str, Any]:
    """As docs/json.md has it."""
    return {
        "command": "summary",
        "outcome": joined.outcome,
        "faults": list(joined.faults),
        "runs": [
            {
                "release": run.release,
                "device": run.device,
                "outcome": run.outcome,
                "reason": run.reason,
                "seconds": run.seconds,
                "disk_bytes": run.disk_bytes,
                "patches": list(run.patches),
                "report": None if run.source is None else str(run.source),
                "scenarios": [
                    {
                        "scenario": one.name,
                        "mode": one.mode,
                        "outcome": one.outcome,
                        "reason": one.reason,
                        "seconds": one.seconds,
                        "drafted": one.drafted,
                        "accepted": one.accepted,
                        "broken": list(one.broken),
                    }
                    for one in run.scenarios
                ],
                "broken": list(run.broken),
                "blame": list(run.blame),
            }
            for run in joined.runs
        ],
    }


def closing(joined: Joined) -> str:
    """`36 runs: 1 failed, 2 not run, 33 passed`."""
    counts = ", ".join(f"{number} {word}" for word, number in joined.counts.items())
    number = len(joined.runs)
    return f"{number} {'run' if number == 1 else 'runs'}{': ' if counts else ''}{counts}"


def table(joined: Joined, *, is_long: bool = False) -> str:
    """For a terminal: a row a run, and where `is_long` a row each scenario and mode below it."""
    rows: list[Sequence[str]] = []
    for run in joined.runs:
        rows.append(
            (
                run.release,
                run.device,
                run.outcome,
                _scenario_counts(run),
                _seconds(run.seconds),
                printable(run.reason or ""),
            )
        )
        for one in run.scenarios if is_long else ():
            tokens = f"{one.drafted} drafted, {one.accepted} accepted" if one.drafted else ""
            why = "; ".join(filter(None, (tokens, one.reason, *one.broken)))
            rows.append(
                ("", one.mode, one.outcome, one.name, _seconds(one.seconds), printable(why))
            )
    return columns(rows, ("release", "device", "outcome", "scenarios", "seconds", ""))


def markdown(joined: Joined, limit: int = LIMIT) -> str:
    """The page, in at most `limit` bytes: details are left out where there would be more."""
    parts = ["### vllm-series smoke", f"{plain(closing(joined))}."]
    wrong = [f"- {plain(fault)}" for fault in joined.faults]
    wrong += [line for run in joined.runs if run.is_bad for line in _trouble(run)]
    if wrong:
        parts.append("\n".join(wrong))
    skipped = [run for run in joined.runs if run.outcome == NOT_RUN]
    if skipped:
        parts.append("\n".join(_reasons(skipped)))
    parts.append(_grid(joined.runs))
    text = "\n\n".join(parts)
    size, left = len(text.encode()), 0
    for run in joined.runs:
        if not run.scenarios:
            continue
        part = folded(escaped(f"{run.release} on {run.device}: {run.outcome}"), _details(run))
        if left or size + len(part.encode()) + 100 > limit:
            left += 1
            continue
        size += len(part.encode()) + 2
        text += f"\n\n{part}"
    if left:
        text += f"\n\n{left} more details are left out, since this page has a limit."
    return text + "\n"


def _trouble(run: Run) -> list[str]:
    head = f"- **{plain(run.release)} on {plain(run.device)}: {run.outcome}**"
    lines = [head + (f": {plain(run.reason)}" if run.reason else "")]
    lines += [
        f"  - {code(one.name)}, {plain(one.mode)}: {plain('; '.join(_why(one)) or one.outcome)}"
        for one in run.scenarios
        if one.outcome == FAILED
    ]
    lines += [f"  - a promise is broken: {plain(broken)}" for broken in run.broken]
    return lines + [f"  - to blame: {plain(blamed)}" for blamed in run.blame]


def _why(one: Scenario) -> list[str]:
    return [word for word in (one.reason, *one.broken) if word]


def _reasons(skipped: Sequence[Run]) -> list[str]:
    """One line a reason, with the runs that it holds for."""
    by_reason: dict[str, list[str]] = {}
    for run in skipped:
        by_reason.setdefault(run.reason or "no reason is given", []).append(
            f"{run.release} on {run.device}"
        )
    return [
        f"- **not run**: {plain(reason)}: {plain(', '.join(names))}"
        for reason, names in by_reason.items()
    ]


def _grid(runs: Sequence[Run]) -> str:
    names = list(dict.fromkeys(one.name for run in runs for one in run.scenarios))
    head = ["release", "device", "outcome", *(code(name, in_table=True) for name in names)]
    body = [
        [
            code(run.release, in_table=True),
            plain(run.device),
            _word(run.outcome),
            *(_cell([one for one in run.scenarios if one.name == name]) for name in names),
        ]
        for run in runs
    ]
    return _rows(head, body)


def _cell(modes: Sequence[Scenario]) -> str:
    """One word where all modes agree; else each outcome with its modes, passed ones unnamed."""
    outcomes = {one.outcome for one in modes}
    if len(outcomes) <= 1:
        return _word(*outcomes) if outcomes else ""
    return "; ".join(
        f"{plain(one.mode)} {_word(one.outcome)}" for one in modes if one.outcome != PASSED
    )


def _details(run: Run) -> str:
    head = ["scenario", "mode", "outcome", "seconds", "drafted", "accepted", "why"]
    body = [
        [
            code(one.name, in_table=True),
            plain(one.mode),
            _word(one.outcome),
            _seconds(one.seconds),
            "" if one.drafted is None else str(one.drafted),
            "" if one.accepted is None else str(one.accepted),
            plain("; ".join(_why(one))),
        ]
        for one in run.scenarios
    ]
    took = [f"{run.seconds:.0f} seconds"] if run.seconds is not None else []
    took += [f"{run.disk_bytes / 1e9:.1f} GB of disk"] if run.disk_bytes is not None else []
    patches = f"Patches: {', '.join(map(code, run.patches)) or 'none'}."
    return "\n\n".join(
        [patches + (f" It took {', '.join(took)}." if took else ""), _rows(head, body)]
    )


def _rows(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    rule = ["---"] * len(head)
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, rule, *body))


def _word(outcome: str) -> str:
    return plain(outcome) if outcome in (PASSED, TIE) else f"**{plain(outcome)}**"


def _seconds(seconds: float | None) -> str:
    """To a hundredth where it is the time of a small decode."""
    return "" if seconds is None else f"{seconds:.{2 if seconds < 10 else 1}f}"


def _scenario_counts(run: Run) -> str:
    every = [one.outcome for one in run.scenarios]
    return ", ".join(f"{every.count(word)} {word}" for word in dict.fromkeys(sorted(every)))
