"""What a rehearsal says of two plays, on plays made by hand; real ones are in `engine/`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from commandline import run
from vllm_series.diffs.parse import parse
from vllm_series.patch import Patch
from vllm_series.rehearsal.judge import (
    Finding,
    Seen,
    Stage,
    findings,
    first_difference,
    promises,
    token_difference,
)
from vllm_series.rehearsal.runs import Result, Run
from vllm_series.rehearsal.scenarios import MODES, SCENARIOS, named

BODY = "--- a/vllm/one.py\n+++ b/vllm/one.py\n@@ -1 +1 @@\n-a = 1\n+a = 2\n"
FALLS = "Expect: metric vllm:spec_decode_num_draft_tokens falls"


def patch(*trailers: str) -> Patch:
    head = "From: A Tester <tester@example.com>\nSubject: [PATCH] one: it\n\nWhy.\n\n"
    return parse((head + "\n".join(trailers) + "\n\n" + BODY).encode(), "one.patch")


def step(number: int, width: int, **digests: str) -> dict[str, Any]:
    return {
        "event": "scheduled",
        "step": number,
        "running": ["r"],
        "widths": {"r": width},
        "digests": digests,
    }


def play(mode: str, width: int = 7, scenario: str = "batch", **other: Any) -> Run:
    made = Run(
        scenario=scenario,
        mode=mode,
        scheduler="Scheduler",
        ended="finished",
        error=None,
        trace=None,
        seconds=0.1,
        events=(step(0, 0), step(1, width)),
        emitted={"r": (5, 6, 7)},
        finished={"r": "length"},
        calls={},
        stats={"drafts": 1, "draft_tokens": width, "accepted_tokens": 2},
    )
    return replace(made, **other)


def plays(*runs: Run) -> Result:
    return Result("0.32.0", None, {one.key: one for one in runs})


def judged(on: Mapping[str, int], *trailers: str) -> list[Finding]:
    """Findings where each mode has this width with the patch on, and 7 without it."""
    stock = plays(*map(play, MODES))
    after = plays(*(play(mode, on[mode]) for mode in MODES))
    stages = [Stage(patch("Activate: ONE=1", *trailers), stock, after)]
    return findings(MODES, stock, stock, stages)


def test_an_effect_in_one_mode_alone_breaks_the_promise_of_one() -> None:
    found = judged({"sync": 3, "async": 7}, FALLS)
    assert [(one.seen, one.mode, one.is_broken) for one in found] == [
        (Seen.EFFECT, "sync", False),
        (Seen.NO_EFFECT, "async", True),
        (Seen.NOT_KEPT, "async", True),
    ]
    assert found[1].text == "no effect under async scheduling"


def test_no_effect_breaks_nothing_where_none_is_promised() -> None:
    found = judged({"sync": 7, "async": 7}, "Expect: tokens equal")
    assert {(one.seen, one.is_broken) for one in found} == {(Seen.NO_EFFECT, False)}


def test_a_metric_that_moves_the_other_way_is_a_broken_promise() -> None:
    found = judged({"sync": 9, "async": 3}, FALLS)
    assert [(one.seen, one.mode) for one in found if one.is_broken] == [(Seen.NOT_KEPT, "sync")]
    assert "7 without it and 9 with it" in next(one.text for one in found if one.is_broken)


def test_only_a_patch_with_a_switch_promises_an_effect() -> None:
    assert promises(patch(FALLS)) == []
    assert len(promises(patch("Activate: ONE=1", FALLS))) == 1
    unchanged = "Expect: metric vllm:spec_decode_num_draft_tokens unchanged"
    assert promises(patch("Activate: ONE=1", unchanged)) == []


def test_off_must_be_stock_unless_a_patch_cannot_be_switched_off() -> None:
    stock, off = plays(play("sync")), plays(play("sync", 3))
    (found,) = findings(("sync",), stock, off, [])
    assert (found.seen, found.is_broken) == (Seen.OFF_DIFFERS, True)
    assert "step 1: widths of r: 7, then 3" in found.text
    (allowed,) = findings(("sync",), stock, off, [], ["fix.patch"])
    assert not allowed.is_broken
    assert "fix.patch cannot be switched off" in allowed.text


def test_a_scenario_that_stock_does_not_survive_judges_nobody() -> None:
    broken = play("sync", ended="crashed", error="KeyError: 'x'")
    stages = [Stage(patch("Activate: ONE=1", FALLS), plays(broken), plays(broken))]
    found = findings(("sync",), plays(broken), plays(broken), stages)
    assert [one.seen for one in found] == [Seen.STOCK_FAILS, Seen.UNPROVEN]
    assert not any(one.is_broken for one in found)
    assert "KeyError: 'x'" in found[0].text


def test_a_scenario_that_only_the_patch_does_not_survive_is_its_fault() -> None:
    stock = plays(play("sync"), play("sync", scenario="abort"))
    after = plays(play("sync", 3), play("sync", scenario="abort", ended="stuck"))
    stages = [Stage(patch("Activate: ONE=1"), stock, after)]
    fails = [one for one in findings(("sync",), stock, stock, stages) if one.seen is Seen.FAILS]
    assert [(one.patch, one.scenario, one.is_broken) for one in fails] == [
        ("one.patch", "abort", True)
    ]


def test_a_package_that_is_not_imported_with_the_patch_is_its_fault() -> None:
    stock = plays(play("sync"))
    after = Result(None, "SyntaxError: x", {})
    found = findings(("sync",), stock, stock, [Stage(patch("Activate: ONE=1"), stock, after)])
    assert Seen.FAILS in [one.seen for one in found if one.is_broken]


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"emitted": {"r": (5, 8, 7)}}, "output token 1 of r is 6, then 8"),
        ({"emitted": {"r": (5, 6)}}, "r has 3 output tokens, then 2"),
        ({"finished": {"r": "stop"}}, "r ends by length, then by stop"),
        ({}, None),
    ],
)
def test_tokens_are_compared_to_the_last(other: dict[str, Any], said: str | None) -> None:
    assert token_difference(play("sync"), play("sync", **other)) == said


def test_an_aborted_request_may_have_said_more_but_nothing_else() -> None:
    mine = play("sync", finished={"r": "abort"})
    longer = replace(mine, emitted={"r": (5, 6, 7, 8)})
    assert token_difference(mine, longer) is None
    assert token_difference(mine, replace(mine, emitted={"r": (5, 6, 9, 8)})) is not None


def test_every_field_of_a_scheduler_output_counts_but_those_that_a_patch_adds() -> None:
    mine = play("sync", events=(step(0, 7, blocks="aa"),))
    other = play("sync", events=(step(0, 7, blocks="bb"),))
    more = play("sync", events=(step(0, 7, blocks="aa", mine="cc"),))
    assert first_difference(mine, other) == "step 0: SchedulerOutput.blocks is another"
    assert first_difference(mine, more) is None
    assert first_difference(mine, replace(mine, events=())) == "1 steps, then 0"


def test_switches_are_read_from_every_trailer() -> None:
    assert patch("Activate: ONE=1", "Activate: TWO=a=b").switches() == {"ONE": "1", "TWO": "a=b"}


def test_scenarios_are_listed_and_an_unknown_one_is_wrong_usage() -> None:
    listed = run("rehearse", "--list")
    assert listed.code == 0
    assert [line.split()[0] for line in listed.out.splitlines()] == [one.name for one in SCENARIOS]
    assert named(("abort",))[0].name == "abort"
    told = run("rehearse", "--scenario", "none-such")
    assert told.code == 2
    assert "there is no scenario none-such. --list shows" in told.err


def test_names_of_requests_are_their_own() -> None:
    for scenario in SCENARIOS:
        names = [one.name for one in scenario.requests]
        assert len(set(names)) == len(names)
