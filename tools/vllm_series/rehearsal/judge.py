"""Hold plays side by side: is a patch that is off not there, is one that is on at work, and where.

Pure. A finding says what was seen, in which mode and scenario, and whether that breaks a promise:

- off must be stock: the same scheduler outputs, to the last field;
- on must emit the same tokens for every request, and end it for the same reason (of a request that
  is aborted midway, as many tokens as both have);
- a patch whose `Expect:` says that a metric of drafting falls or rises must move it that way, in
  each mode, over all scenarios together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from vllm_series.patch import Patch
from vllm_series.rehearsal.runs import Result, Run
from vllm_series.smoke import expect

METRICS = {
    "vllm:spec_decode_num_drafts": "drafts",
    "vllm:spec_decode_num_draft_tokens": "draft_tokens",
    "vllm:spec_decode_num_accepted_tokens": "accepted_tokens",
}
"""What of vLLM's metrics the scheduler's own statistics count."""


class Seen(Enum):
    """What a finding is about; the values are words of a report."""

    STOCK_FAILS = "stock fails"
    FAILS = "fails"
    OFF_DIFFERS = "off is not stock"
    TOKENS_DIFFER = "tokens differ"
    EFFECT = "effect"
    NO_EFFECT = "no effect"
    NOT_KEPT = "not kept"
    UNPROVEN = "unproven"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was seen. `patch` and `scenario` are None where it is about all of them."""

    seen: Seen
    mode: str
    scenario: str | None
    patch: str | None
    text: str
    is_broken: bool


@dataclass(frozen=True, slots=True)
class Stage:
    """The play of a patch that is on, and what it is held against: the play without it."""

    patch: Patch
    before: Result
    after: Result


def findings(
    modes: Sequence[str],
    stock: Result,
    off: Result,
    stages: Sequence[Stage],
    always_on: Sequence[str] = (),
) -> list[Finding]:
    """All that there is to say, mode by mode. `always_on` names the patches that have no switch:
    what they change is seen in `off` too, and is no broken promise there."""
    found: list[Finding] = []
    for mode in modes:
        found += _stock(mode, stock)
        found += _off(mode, stock, off, always_on)
        for stage in stages:
            found += _tokens(mode, stock, stage)
            found.append(_effect(mode, stage))
            found += _metrics(mode, stage)
    return found


def _whole(mode: str, *results: Result) -> Iterator[tuple[Run, ...]]:
    """The scenarios of a mode that came to their end in all of these plays."""
    for key, run in results[0].runs.items():
        others = [result.runs.get(key) for result in results]
        runs = tuple(one for one in others if one is not None and one.is_whole)
        if run.mode == mode and len(runs) == len(results):
            yield runs


def _stock(mode: str, stock: Result) -> Iterator[Finding]:
    for run in stock.runs.values():
        if run.mode == mode and not run.is_whole:
            text = f"stock vLLM {_failure(run)}; this scenario judges no patch"
            yield Finding(Seen.STOCK_FAILS, mode, run.scenario, None, text, False)


def _failure(run: Run | None) -> str:
    if run is None:
        return "did not run"
    return f"crashed: {run.error}" if run.ended == "crashed" else "came to no end"


def _failures(
    mode: str, stock: Result, result: Result, patch: str | None, state: str
) -> Iterator[Finding]:
    """Scenarios that come to their end in stock vLLM and not in this play."""
    if result.not_run is not None:
        yield Finding(Seen.FAILS, mode, None, patch, f"{state}: {result.not_run}", True)
        return
    for key, run in stock.runs.items():
        other = result.runs.get(key)
        if run.mode == mode and run.is_whole and (other is None or not other.is_whole):
            text = f"{state} {_failure(other)}"
            yield Finding(Seen.FAILS, mode, run.scenario, patch, text, True)


def _off(mode: str, stock: Result, off: Result, always_on: Sequence[str]) -> Iterator[Finding]:
    yield from _failures(mode, stock, off, None, "patched, off:")
    for plain, patched in _whole(mode, stock, off):
        difference = first_difference(plain, patched)
        if difference is None:
            continue
        text = f"patched, off: {difference}"
        if always_on:
            text += f"; {', '.join(always_on)} cannot be switched off"
        yield Finding(Seen.OFF_DIFFERS, mode, plain.scenario, None, text, not always_on)


def _tokens(mode: str, stock: Result, stage: Stage) -> Iterator[Finding]:
    name = stage.patch.name
    yield from _failures(mode, stock, stage.after, name, "patched, on:")
    for plain, patched in _whole(mode, stock, stage.after):
        difference = token_difference(plain, patched)
        if difference is not None:
            text = f"patched, on: {difference}"
            yield Finding(Seen.TOKENS_DIFFER, mode, plain.scenario, name, text, True)


def _effect(mode: str, stage: Stage) -> Finding:
    """Whether the scheduler does anything else with the patch than without it."""
    name = stage.patch.name
    pairs = list(_whole(mode, stage.before, stage.after))
    if not pairs:
        text = f"no scenario came to its end under {mode} scheduling"
        return Finding(Seen.UNPROVEN, mode, None, name, text, False)
    changed = [one.scenario for one, other in pairs if first_difference(one, other) is not None]
    if changed:
        text = f"effect under {mode} scheduling in {', '.join(changed)}"
        return Finding(Seen.EFFECT, mode, None, name, text, False)
    text = f"no effect under {mode} scheduling"
    return Finding(Seen.NO_EFFECT, mode, None, name, text, bool(promises(stage.patch)))


def promises(patch: Patch) -> list[expect.Metric]:
    """What a patch with a switch says of the metrics that a rehearsal counts: that they move."""
    if not patch.trailer("Activate"):
        return []
    read = [expect.parse(text).statement for text in patch.trailer("Expect")]
    return [
        one
        for one in read
        if isinstance(one, expect.Metric)
        and one.name in METRICS
        and one.change in (expect.Change.FALLS, expect.Change.RISES)
    ]


def _metrics(mode: str, stage: Stage) -> Iterator[Finding]:
    pairs = list(_whole(mode, stage.before, stage.after))
    for promise in promises(stage.patch):
        before, after = (
            sum(pair[side].stats[METRICS[promise.name]] for pair in pairs) for side in (0, 1)
        )
        is_kept = after < before if promise.change is expect.Change.FALLS else after > before
        if pairs and not is_kept:
            text = (
                f"{promise.name} is {before:,} without it and {after:,} with it under {mode} "
                f"scheduling; it should be {'less' if promise.change.value == 'falls' else 'more'}"
            )
            yield Finding(Seen.NOT_KEPT, mode, None, stage.patch.name, text, True)


def first_difference(one: Run, other: Run) -> str | None:
    """Where two runs part, in words; None where they do not.

    Fields of a scheduler output that only the second has are its own and say nothing.
    """
    for mine, theirs in zip(one.events, other.events, strict=False):
        where = f"step {mine['step']}"
        if mine["event"] != theirs["event"]:
            return f"{where} is {mine['event']}, then {theirs['event']}"
        for key, value in mine.items():
            if key == "digests":
                continue
            if (told := _told(key, value, theirs[key])) is not None:
                return f"{where}: {told}"
        for field, digest in mine.get("digests", {}).items():
            if theirs["digests"].get(field, digest) != digest:
                return f"{where}: SchedulerOutput.{field} is another"
    if len(one.events) != len(other.events):
        return f"{one.steps} steps, then {other.steps}"
    for key in ("emitted", "finished", "stats", "calls"):
        if (told := _told(key, getattr(one, key), getattr(other, key))) is not None:
            return told
    return None


def _told(key: str, mine: object, theirs: object) -> str | None:
    """The first entry in which two values of one kind differ."""
    if mine == theirs:
        return None
    if isinstance(mine, Mapping) and isinstance(theirs, Mapping):
        for name in (*mine, *theirs):
            if mine.get(name) != theirs.get(name):
                return f"{key} of {name}: {mine.get(name)}, then {theirs.get(name)}"
    return f"{key}: {mine}, then {theirs}"


def token_difference(one: Run, other: Run) -> str | None:
    """The first token that a request was given in one run and not in the other."""
    for name, tokens in one.emitted.items():
        others = other.emitted.get(name, ())
        for place, (mine, theirs) in enumerate(zip(tokens, others, strict=False)):
            if mine != theirs:
                return f"output token {place} of {name} is {mine}, then {theirs}"
        ends = one.finished.get(name), other.finished.get(name)
        if ends == ("abort", "abort"):
            continue
        if ends[0] != ends[1]:
            return f"{name} ends by {ends[0]}, then by {ends[1]}"
        if len(tokens) != len(others):
            return f"{name} has {len(tokens)} output tokens, then {len(others)}"
    return None
