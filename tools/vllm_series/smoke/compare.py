"""One decode held against another: tokens, counters, promises. Pure.

Switched off, a patch must not be seen: the same tokens, the same counters. Switched on it may
count otherwise, but greedy decoding must give the same tokens, and what its `Expect:` lines promise
must hold. Another number of rows may take another kernel, whose sums differ in their last bits;
where two logits are as good as equal that turns one token into the other. Such a difference is a
`tie`, and is told with the gap.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from vllm_series.patch import Patch
from vllm_series.smoke import expect
from vllm_series.smoke.results import Check, Decode, Difference, Mode, Outcome, Row
from vllm_series.smoke.scenarios import SCENARIOS, Scenario

TIES = {"float32": 1e-3, "float16": 2e-2, "bfloat16": 1.5e-1}
"""Gap of two logits up to which their order is left to rounding, by the weights' type: a few
hundred times the rounding of one product, of logits up to about ten."""

TOKENS = "tokens as stock"
COUNTERS = "counters as stock"


def by_name(name: str) -> Scenario:
    """The scenario of that name."""
    return next(scenario for scenario in SCENARIOS if scenario.name == name)


def first_difference(stock: Decode, other: Decode) -> Difference | None:
    """Where the first request that differs does so first; None where all is equal."""
    if stock.tokens is not None and other.tokens is not None:
        return _first(stock.tokens, other.tokens)
    return _first(stock.texts, other.texts)


def _first(one: Sequence[Sequence[Any]], other: Sequence[Sequence[Any]]) -> Difference | None:
    for request in range(max(len(one), len(other))):
        a = one[request] if request < len(one) else ()
        b = other[request] if request < len(other) else ()
        for position in range(max(len(a), len(b))):
            left = a[position] if position < len(a) else None
            right = b[position] if position < len(b) else None
            if left != right:
                return Difference(request, position, left, right)
    return None


def counted(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """What is the same in each run of the same work: counters, and histograms of counts.

    What measures time is left out: metrics of seconds, and the buckets they fill.
    """
    return {
        name: value
        for name, value in metrics.items()
        if "_seconds" not in name and "_time_" not in name
    }


def counter_differences(stock: Decode, other: Decode) -> list[str]:
    """A line for each metric that counted otherwise."""
    one, two = counted(stock.metrics), counted(other.metrics)
    return [
        f"{name} {_shown(one.get(name))} became {_shown(two.get(name))}"
        for name in sorted(one.keys() | two.keys())
        if one.get(name) != two.get(name)
    ]


def _shown(value: Any) -> str:
    if value is None:
        return "(not there)"
    if isinstance(value, Mapping):
        return f"{value['count']:g} observations with sum {value['sum']:g}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def check_off(stock: Decode, off: Decode) -> list[Check]:
    """A patch that is off is not there."""
    difference = first_difference(stock, off)
    tokens = Check(
        TOKENS,
        Outcome.FAILED if difference else Outcome.PASSED,
        difference.words if difference else "",
        difference=difference,
    )
    lines = counter_differences(stock, off)
    counters = Check(COUNTERS, Outcome.FAILED if lines else Outcome.PASSED, "; ".join(lines[:3]))
    return [tokens, counters]


def check_off_again(stock: Decode, off: Decode, again: Decode) -> list[Check]:
    """The same, where stock was run once more since off differs from it: what stock does not do
    alike twice says nothing of a patch."""
    checks = check_off(stock, off)
    here, there = first_difference(stock, off), first_difference(stock, again)
    if here and there and (here.request, here.position) == (there.request, there.position):
        checks[0] = _unsteady(checks[0])
    lines = counter_differences(stock, off)
    unsteady = {line.split()[0] for line in counter_differences(stock, again)}
    left = [line for line in lines if line.split()[0] not in unsteady]
    if left:
        checks[1] = replace(checks[1], detail="; ".join(left[:3]))
    elif lines:
        checks[1] = _unsteady(checks[1])
    return checks


def _unsteady(check: Check) -> Check:
    if check.outcome is not Outcome.FAILED:
        return check
    return replace(
        check, outcome=Outcome.INFO, detail=f"stock differs from itself as well: {check.detail}"
    )


def check_on(stock: Decode, on: Decode, gap: float | None, tie: float) -> list[Check]:
    """A patch that is on leaves greedy decoding alone. `gap` is that of the two logits at the first
    difference, where it was asked for; up to `tie` it explains the difference."""
    difference = first_difference(stock, on)
    if difference is None:
        return [Check(TOKENS, Outcome.PASSED)]
    difference = replace(difference, gap=gap)
    if not by_name(on.scenario).is_greedy:
        outcome = Outcome.INFO
    elif gap is not None and gap <= tie:
        outcome = Outcome.TIE
    else:
        outcome = Outcome.FAILED
    return [Check(TOKENS, outcome, difference.words, difference=difference)]


def stand_in(on: Decode, stock: Decode | None, off: Decode | None) -> Decode | None:
    """What a run with the patches on is held against: stock, or where stock fails and the series
    has mended that, the run with the patches off. A run that fails just as stock does lacks the
    patch that mends it, as a try of the search for blame may."""
    if stock is None or stock.failure is None or off is None or off.failure or off.skipped:
        return stock
    failure = on.failure
    if failure and (failure.kind, failure.message) == (stock.failure.kind, stock.failure.message):
        return stock
    return off


def row(decode: Decode, stock: Decode | None, checks: Iterable[Check]) -> Row:
    """The line of a report. `stock` is the same scenario on stock code, None for that itself."""
    if decode.skipped is not None:
        return Row(decode, Outcome.NOT_RUN, reason=decode.skipped)
    if decode.failure is not None:
        told = f"{decode.failure.kind}: {decode.failure.message}".splitlines()[0]
        stock_failed = decode.mode is Mode.STOCK or (stock is not None and stock.failure)
        return Row(decode, Outcome.STOCK_FAILED if stock_failed else Outcome.FAILED, reason=told)
    done = tuple(checks)
    bad = [check for check in done if check.outcome in (Outcome.FAILED, Outcome.TIE)]
    worst = next((check for check in bad if check.outcome is Outcome.FAILED), None)
    if worst is not None:
        return Row(decode, Outcome.FAILED, done, f"{worst.name}: {worst.detail}")
    if bad:
        return Row(decode, Outcome.TIE, done, bad[0].detail)
    noted = [check for check in done if check.outcome is Outcome.INFO]
    reason = f"not promised, {noted[0].name}: {noted[0].detail}" if noted else ""
    return Row(decode, Outcome.PASSED, done, reason)


def promises(
    patches: Sequence[Patch],
    stock: Mapping[str, Decode],
    rows: Sequence[Row],
    is_whole: bool = True,
) -> list[Check]:
    """What each patch promises by its `Expect:` lines.

    Where stock cannot run a scenario, the run with the patches off stands for it. A promise that
    no scenario could show is `not run`, and so is one that none has shown where only some scenarios
    were asked for (`is_whole` is false).
    """
    base: dict[str, expect.Observation] = {}
    on: dict[str, expect.Observation] = {}
    for one in rows:
        decode = one.decode
        if decode.failure is not None or decode.skipped is not None:
            continue
        if decode.mode is Mode.ON:
            on[decode.scenario] = _observed(decode, _tokens(one))
        elif decode.mode is Mode.OFF and decode.scenario not in base:
            base[decode.scenario] = _observed(decode, None)
    for name, decode in stock.items():
        if decode.failure is None and decode.skipped is None:
            base[name] = _observed(decode, None)
    found = []
    for patch in patches:
        for text in patch.trailer("Expect"):
            verdict = expect.judge(expect.parse(text), base, on, is_whole)
            outcome = {
                expect.Outcome.HOLDS: Outcome.PASSED,
                expect.Outcome.BROKEN: Outcome.FAILED,
                expect.Outcome.UNPROVEN: Outcome.NOT_RUN,
            }[verdict.outcome]
            found.append(Check(text, outcome, verdict.detail, patch.name))
    return found


def _tokens(one: Row) -> expect.Tokens | None:
    check = next((check for check in one.checks if check.name == TOKENS), None)
    if check is None or not by_name(one.decode.scenario).is_greedy:
        return None
    return {
        Outcome.PASSED: expect.Tokens.EQUAL,
        Outcome.TIE: expect.Tokens.TIE,
        Outcome.FAILED: expect.Tokens.DIFFER,
    }.get(check.outcome)


def _observed(decode: Decode, tokens: expect.Tokens | None) -> expect.Observation:
    metrics: dict[str, float | expect.Spread] = {}
    for name, value in counted(decode.metrics).items():
        if isinstance(value, Mapping):
            metrics[name] = expect.Spread(value["count"], value["sum"])
        elif isinstance(value, list):
            metrics[name] = expect.Spread(len(value), sum(value))
        else:
            metrics[name] = value
    return expect.Observation(metrics, decode.log, tokens)
