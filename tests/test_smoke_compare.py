"""What is said of two decodes that are alike, or not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from vllm_series.reports.smoke import cost
from vllm_series.smoke.compare import (
    check_off,
    check_off_again,
    check_on,
    counter_differences,
    first_difference,
    promises,
    row,
    stand_in,
)
from vllm_series.smoke.results import Decode, Failure, Mode, Outcome

DRAFTED = "vllm:spec_decode_num_draft_tokens"
STOCK = Decode(
    "ngram",
    Mode.STOCK,
    tokens=((1, 2, 3), (4, 5, 6)),
    prompts=((9,), (8,)),
    texts=("abc", "def"),
    metrics={
        DRAFTED: 40,
        "vllm:e2e_request_latency_seconds": {"count": 2, "sum": 1.5, "buckets": {}},
        "vllm:iteration_tokens_total": {"count": 3, "sum": 9.0, "buckets": {"8": 3}},
    },
)
CRASHED = Failure("RuntimeError", "no luck", (), ("last line",))


def test_equal_decodes_have_no_difference() -> None:
    off = replace(STOCK, mode=Mode.OFF)
    assert first_difference(STOCK, off) is None
    assert [check.outcome for check in check_off(STOCK, off)] == [Outcome.PASSED, Outcome.PASSED]


def test_the_first_difference_is_that_of_the_first_request_that_has_one() -> None:
    other = replace(STOCK, tokens=((1, 2, 3), (4, 7, 7)))
    found = first_difference(STOCK, other)
    assert found is not None
    assert (found.request, found.position, found.stock, found.patched) == (1, 1, 5, 7)


def test_a_request_that_ends_early_differs_where_it_ends() -> None:
    found = first_difference(STOCK, replace(STOCK, tokens=((1, 2), (4, 5, 6))))
    assert found is not None
    assert (found.request, found.position, found.stock, found.patched) == (0, 2, 3, None)


def test_a_missing_request_differs() -> None:
    assert first_difference(STOCK, replace(STOCK, tokens=((1, 2, 3),))) is not None


def test_text_is_compared_where_tokens_are_not_known() -> None:
    stock = replace(STOCK, tokens=None)
    found = first_difference(stock, replace(stock, texts=("abc", "dxf")))
    assert found is not None
    assert (found.request, found.position, found.stock, found.patched) == (1, 1, "e", "x")


def test_a_counter_and_a_histogram_of_counts_are_compared_and_seconds_are_not() -> None:
    other = replace(
        STOCK,
        metrics={
            DRAFTED: 41,
            "vllm:e2e_request_latency_seconds": {"count": 2, "sum": 9.9, "buckets": {}},
            "vllm:iteration_tokens_total": {"count": 3, "sum": 9.0, "buckets": {"8": 2}},
        },
    )
    found = counter_differences(STOCK, other)
    assert len(found) == 2
    assert f"{DRAFTED} 40 became 41" in found


def test_a_metric_that_is_new_while_off_is_a_difference() -> None:
    other = replace(STOCK, mode=Mode.OFF, metrics={**STOCK.metrics, "vllm:new": 0})
    assert check_off(STOCK, other)[1].outcome is Outcome.FAILED
    assert "vllm:new (not there) became 0" in check_off(STOCK, other)[1].detail


@pytest.mark.parametrize(
    ("scenario", "gap", "outcome"),
    [
        ("ngram", 0.0005, Outcome.TIE),
        ("ngram", 0.01, Outcome.FAILED),
        ("ngram", None, Outcome.FAILED),
        ("sampling", None, Outcome.INFO),
    ],
)
def test_a_difference_while_on_is_a_tie_only_by_its_gap(
    scenario: str, gap: float | None, outcome: Outcome
) -> None:
    stock = replace(STOCK, scenario=scenario)
    on = replace(stock, mode=Mode.ON, tokens=((1, 2, 3), (4, 5, 7)))
    checks = check_on(stock, on, gap, 0.001)
    assert [check.outcome for check in checks] == [outcome]
    wanted = Outcome.PASSED if outcome is Outcome.INFO else outcome
    assert row(on, stock, checks).outcome is wanted


def test_a_scenario_that_fails_as_it_does_in_stock_is_not_the_series_fault() -> None:
    stock = replace(STOCK, failure=CRASHED)
    on = replace(STOCK, mode=Mode.ON, failure=CRASHED)
    assert row(on, stock, ()).outcome is Outcome.STOCK_FAILED
    assert row(stock, None, ()).outcome is Outcome.STOCK_FAILED
    assert row(on, STOCK, ()).outcome is Outcome.FAILED


def test_a_crash_of_what_is_on_is_the_series_fault_where_it_has_mended_stock_while_off() -> None:
    stock = replace(STOCK, failure=CRASHED)
    off = replace(STOCK, mode=Mode.OFF)
    on = replace(off, mode=Mode.ON, failure=replace(CRASHED, message="another thing"))
    assert stand_in(on, stock, off) is off
    assert row(on, stand_in(on, stock, off), ()).outcome is Outcome.FAILED
    # Without the patch that mends it, as a try of the search for blame may be.
    unmended = replace(on, failure=CRASHED)
    assert row(unmended, stand_in(unmended, stock, off), ()).outcome is Outcome.STOCK_FAILED
    assert stand_in(on, stock, replace(off, failure=CRASHED)) is stock
    assert stand_in(on, STOCK, off) is STOCK
    assert stand_in(on, stock, None) is stock


def test_off_stands_for_stock_where_stock_cannot_run_a_scenario() -> None:
    from vllm_series.diffs.parse import parse

    patch = parse(
        b"From: A <a@example.org>\nSubject: [PATCH] x: y\n\nWhy.\n\n"
        b"Expect: tokens equal\nExpect: metric " + DRAFTED.encode() + b" falls\n---\n"
        b"diff --git a/vllm/a.py b/vllm/a.py\n--- a/vllm/a.py\n+++ b/vllm/a.py\n"
        b"@@ -1 +1 @@\n-a = 1\n+a = 2\n",
        "x.patch",
    )
    stock = replace(STOCK, failure=CRASHED)
    off = replace(STOCK, mode=Mode.OFF)
    on = replace(STOCK, mode=Mode.ON, metrics={DRAFTED: 30})
    rows = [row(stock, None, ()), row(off, stock, ()), row(on, off, check_on(off, on, None, 0.0))]
    found = promises([patch], {"ngram": stock}, rows)
    assert [(check.name, check.outcome) for check in found] == [
        ("tokens equal", Outcome.PASSED),
        (f"metric {DRAFTED} falls", Outcome.PASSED),
    ]


def test_a_cost_is_told_only_where_the_times_do_not_meet() -> None:
    assert cost([0.30, 0.32, 0.31], [0.32, 0.33, 0.34]).endswith("no measurable difference")
    assert cost([0.30, 0.30, 0.30], [0.36, 0.36, 0.39]).endswith("20% slower")


def test_what_stock_does_not_do_alike_twice_is_no_fault_of_a_patch_that_is_off() -> None:
    off = replace(STOCK, mode=Mode.OFF, metrics={**STOCK.metrics, DRAFTED: 41})
    again = replace(STOCK, metrics={**STOCK.metrics, DRAFTED: 39})
    tokens, counters = check_off_again(STOCK, off, again)
    assert (tokens.outcome, counters.outcome) == (Outcome.PASSED, Outcome.INFO)
    assert "stock differs from itself" in counters.detail
    assert row(off, STOCK, [tokens, counters]).outcome is Outcome.PASSED
    other = replace(off, metrics={**off.metrics, "vllm:num_preemptions": 1})
    left = check_off_again(STOCK, other, again)[1]
    assert left.outcome is Outcome.FAILED
    assert DRAFTED not in left.detail
    changed = replace(off, tokens=((1, 2, 3), (4, 5, 7)))
    assert check_off_again(STOCK, changed, again)[0].outcome is Outcome.FAILED
    assert check_off_again(STOCK, changed, changed)[0].outcome is Outcome.INFO
