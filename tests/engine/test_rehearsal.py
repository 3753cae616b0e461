"""Rehearsals on real vLLM: the dynwidth series in both modes, and patches that break promises."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from commandline import PROJECT_SERIES, SCHEDULER, SERIES, Ran, run
from diffs import git_diff
from vllm_series.diffs.parse import parse
from vllm_series.environments import find_tree
from vllm_series.plan import make_plan
from vllm_series.rehearsal.runs import Result, Run, play_all
from vllm_series.rehearsal.scenarios import DRAFT, MODES, SCENARIOS, named
from vllm_series.rehearsal.states import State, states_of
from vllm_series.series import chosen_series

NEWEST, OLDEST = "0.32.0", "0.27.0"
"""The newest with a CPU build, and the first in which any preempted output turns stale. What the
second shows of the scheduler's other ways the first shows too, so it plays less."""
ALPHA, MARGIN, NARROWEST, GATE = 0.35, 2, 2, 5
"""The defaults of docs/dynwidth.md, written down again: a test of a number needs a second one."""

Engine = Callable[[str], Path]


@dataclass(frozen=True)
class Plays:
    """What the first patch of the series does."""

    on: Result
    ungated: Result
    """With RADIANCE_DYNW_MIN_BATCH=1."""


@pytest.fixture(scope="module")
def plays(engine: Engine) -> Plays:
    return Plays(*_played(engine(NEWEST), {}, {"RADIANCE_DYNW_MIN_BATCH": "1"}))


def _played(python: Path, *knobs: Mapping[str, str], names: tuple[str, ...] = ()) -> list[Result]:
    """The patch on, played in both modes, once with each set of knobs."""
    tree = find_tree(None, str(python))
    series = chosen_series(SERIES, None, tree.version)
    patches = [parse(entry.text, entry.name) for entry in series.entries]
    states = states_of(patches, make_plan(patches, tree.read, tree.mode), {})
    ((patch, on),) = states.on
    assert patch.name == "dynwidth.patch"
    to_play = [State("on", on.texts, on.modes, {**on.switches, **set_}) for set_ in knobs]
    known = ("RADIANCE_DYNAMIC_WIDTH", "RADIANCE_DYNW_MIN_BATCH")
    results = play_all(tree, to_play, known, MODES, named(names))
    for result in results:
        assert result.not_run is None
        assert all(run.is_whole for run in result.runs.values())
    return results


@pytest.mark.parametrize("mode", MODES)
def test_every_width_is_what_the_average_says(plays: Plays, mode: str) -> None:
    checked, capped = _checked(plays.on, mode)
    assert checked > 3000
    assert capped > 1000


def test_it_is_so_where_preempted_output_turns_stale(engine: Engine) -> None:
    (played,) = _played(engine(OLDEST), {}, names=("preempt", "abort"))
    for mode in MODES:
        events = played.runs[mode, "preempt"].events
        assert any(event["preempted"] for event in events if event["event"] == "scheduled")
        checked, capped = _checked(played, mode)
        assert checked > 500
        assert capped > 300


def _checked(result: Result, mode: str) -> tuple[int, int]:
    """Hold the widths of a mode against the formula: how many, and how many with a cap that cuts
    something off."""
    checked = capped = 0
    for run_ in _of(result, mode):
        for width, cap, is_listed in _widths(run_, GATE):
            # A grammar may allow less than was drafted; what it allows is not known here.
            if is_listed:
                assert width <= min(DRAFT, cap)
            else:
                assert width == min(DRAFT, cap)
            checked += 1
            capped += cap < DRAFT
    return checked, capped


@pytest.mark.parametrize("mode", MODES)
def test_with_another_gate_the_widths_are_others(plays: Plays, mode: str) -> None:
    """What the tests above ask is not so by itself: it is of these very knobs."""
    for name in ("alone", "many"):
        ungated = plays.ungated.runs[mode, name]
        parted = [width for width, cap, _ in _widths(ungated, GATE) if width < min(DRAFT, cap)]
        assert len(parted) > 20
        assert all(width == min(DRAFT, cap) for width, cap, _ in _widths(ungated, 1))


@pytest.mark.parametrize("mode", MODES)
def test_a_request_climbs_out_of_its_own_cap(plays: Plays, mode: str) -> None:
    widths = [
        event["widths"]["change0"]
        for event in plays.on.runs[mode, "change"].events
        if event["event"] == "scheduled" and event["widths"].get("change0")
    ]
    narrow = widths.index(3)
    assert DRAFT in widths[narrow:]
    full = widths.index(DRAFT, narrow)
    # The easy text only ever widens it. The hard text at the end narrows it to the margin above
    # an average that falls towards 0 without reaching it.
    climb = widths[narrow:full]
    assert climb == sorted(climb)
    assert widths[-1] == 1 + MARGIN


@pytest.mark.parametrize("mode", MODES)
def test_no_cap_is_taken_below_the_gate_and_one_is_from_it_on(plays: Plays, mode: str) -> None:
    sizes = {True: set(), False: set()}  # type: dict[bool, set[int]]
    for event in plays.on.runs[mode, "many"].events:
        if event["event"] != "scheduled":
            continue
        is_narrow = any(
            0 < width < DRAFT for name, width in event["widths"].items() if name in event["running"]
        )
        sizes[is_narrow].add(len(event["running"]))
    assert min(sizes[True]) == GATE
    assert {1, 2, 3, 4} <= sizes[False]


CLIMB = {"sync": [7, *[3] * 30, 5, 6, *[7] * 6], "async": [7, 7, *[3] * 30, 5, 5, 6, *[7] * 5]}
"""The widths of a request by itself, with no gate, worked out by hand.

It says 120 tokens, the first with its prompt; of the drafts up to output place 60 one is right,
from there on all are. Until then each step accepts one: the average is 1, the width 3, and 2
tokens come. So from place 1 on there are 30 steps, the first at full width for want of an average,
and a last one of width 3 at place 61. There (the table of docs/dynwidth.md) 3 of 3 make 2.05 and a
width of 5, 5 of 5 make 3.4325 and 6, 6 of 6 make 4.68 and 7; 4, 6 and 7 tokens come, and from
place 78 on 8 each.

Under asynchronous scheduling a step is planned one step before its average is there. So two are at
full width, and two of width 3 come from place 61 on: 2.05 and 2.7325, which are two of width 5,
which make 3.876 and 4.619, widths 6 and 7, at the places 61, 65, 69, 75, 81 and 88. The last step
is planned in vain, since that the one before it ends the request is not known yet.
"""


@pytest.mark.parametrize("mode", MODES)
def test_the_gate_is_a_knob(plays: Plays, mode: str) -> None:
    gated, ungated = (
        [
            event["widths"]["only0"]
            for event in result.runs[mode, "alone"].events
            if event["event"] == "scheduled" and event["widths"].get("only0")
        ]
        for result in (plays.on, plays.ungated)
    )
    assert set(gated) == {DRAFT}
    assert ungated == CLIMB[mode]


def _of(result: Result, mode: str) -> Iterator[Run]:
    for run_ in result.runs.values():
        if run_.mode == mode:
            yield run_


def _widths(run_: Run, gate: int) -> Iterator[tuple[int, float, bool]]:
    """For each running request of each step that decodes it: its width, the cap that the accepted
    counts before the step give (infinite for none), and whether it has a grammar."""
    averages: dict[str, float] = {}
    emitted: dict[str, int] = {}
    away: set[str] = set()
    for event in run_.events:
        if event["event"] == "output":
            _count(event, averages, emitted)
            continue
        away |= set(event["preempted"])
        for name, width in event["widths"].items():
            is_decode = event["tokens"][name] == 1 + width and emitted.get(name)
            if name not in event["running"] or name in away or not is_decode:
                # What comes back is computed anew first, and is not capped while it waits.
                away.discard(name)
                continue
            cap = math.inf
            if name in averages and len(event["running"]) >= gate:
                cap = max(math.ceil(averages[name]) + MARGIN, NARROWEST)
            yield width, cap, name.startswith("list")


def _count(event: Mapping[str, Any], averages: dict[str, float], emitted: dict[str, int]) -> None:
    for name, drafted in event["drafted"].items():
        if name not in event["emitted"]:
            continue  # stale, or of a request that is gone
        if drafted and emitted.get(name):
            seen = event["accepted"][name] + (event["accepted"][name] >= drafted)
            before = averages.get(name, seen)
            averages[name] = before + ALPHA * (seen - before)
        emitted[name] = emitted.get(name, 0) + len(event["emitted"][name])


# -- the command -----------------------------------------------------------------------------------


def rehearse(python: Path, series: Path, *words: str) -> Ran:
    return run("rehearse", "--python", python, "--series-dir", series, "--json", *words)


def test_the_series_keeps_its_promises_in_both_modes(engine: Engine) -> None:
    """The two patches on top of each other, each played by itself."""
    ran = rehearse(engine(NEWEST), PROJECT_SERIES)
    told: dict[str, Any] = ran.json()
    assert (ran.code, told["outcome"], told["not_run"]) == (0, "kept", None)
    assert told["patches"] == ["dynwidth.patch", "dynwidth-metrics.patch"]
    assert len(told["rows"]) == len(MODES) * len(SCENARIOS)
    for row in told["rows"]:
        assert row["off_is_stock"] is True
        assert row["scheduler"] == {"sync": "Scheduler", "async": "AsyncScheduler"}[row["mode"]]
        assert row["steps"]["stock"] > 30
        # Which of the two functions for drafts the engine core calls, as it is documented.
        calls = row["calls"]
        assert (calls["update_draft_token_ids"] > 0) is (row["mode"] == "sync")
        is_late = row["mode"] == "async" and row["scenario"] == "grammar"
        assert (calls["update_draft_token_ids_in_output"] > 0) is is_late
        # One request is below the gate.
        drafted = row["draft_tokens"]
        assert (drafted["on"] < drafted["stock"]) is (row["scenario"] != "alone")
    # What is measured leaves the scheduler's work as it is.
    assert [(one["patch"], one["mode"], one["seen"]) for one in told["findings"]] == [
        (patch, mode, seen)
        for mode in MODES
        for patch, seen in (("dynwidth.patch", "effect"), ("dynwidth-metrics.patch", "no effect"))
    ]


SWITCH = "REHEARSED_WIDTH"
COUNTED = "                num_rejected = num_draft_tokens - num_accepted\n"
TAKEN = (
    "            request.spec_token_ids = self.structured_output_manager.validate_tokens(\n"
    "                request, spec_token_ids\n"
    "            )\n"
)
ON = f'__import__("os").environ.get("{SWITCH}") == "1"'


@pytest.fixture
def patched_by(tmp_path: Path, engine: Engine) -> Callable[..., Ran]:
    """Rehearses 0.32.0 with a patch that puts lines behind others in its scheduler."""

    def given(edits: Mapping[str, str], *words: str) -> Ran:
        python = engine(NEWEST)
        tree = find_tree(None, str(python))
        before = tree.read(SCHEDULER)
        assert before is not None
        text = before.decode()
        for place, added in edits.items():
            assert text.count(place) == 1, place
            text = text.replace(place, place + added)
        folder = tmp_path / "series" / "vllm-0.32"
        folder.mkdir(parents=True)
        head = (
            "From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001\n"
            "From: A Tester <tester@example.com>\nDate: Tue, 1 Dec 2026 00:00:00 +0000\n"
            "Subject: [PATCH] width: cap where drafts arrive\n\nFor a test.\n\n"
            f"Base: vllm 0.32.0\nActivate: {SWITCH}=1\n"
            "Expect: metric vllm:spec_decode_num_draft_tokens falls\n\n"
        )
        diff = git_diff({SCHEDULER: before}, {SCHEDULER: text.encode()}, "--full-index")
        (folder / "width.patch").write_bytes(head.encode() + diff)
        (folder / "series").write_text("width.patch\n")
        return rehearse(python, folder.parent, *words)

    return given


def test_a_cap_where_drafts_arrive_is_found_dead_under_async_scheduling(
    patched_by: Callable[..., Ran],
) -> None:
    """The two places of the script that dynwidth began as; the lines are this test's own."""
    ran = patched_by(
        {
            COUNTED: "                request.seen_accepted = num_accepted\n",
            TAKEN: f"            if {ON}:\n"
            '                most = getattr(request, "seen_accepted", 7) + 2\n'
            "                del request.spec_token_ids[most:]\n",
        },
        *(word for name in ("batch", "change", "grammar") for word in ("--scenario", name)),
    )
    told: dict[str, Any] = ran.json()
    assert (ran.code, told["outcome"]) == (1, "broken")
    words = {one["mode"]: one for one in told["findings"] if one["seen"] != "not kept"}
    assert words["sync"]["seen"] == "effect"
    assert not words["sync"]["broken"]
    assert words["async"]["text"] == "no effect under async scheduling"
    assert words["async"]["broken"]
    for row in told["rows"]:
        assert row["off_is_stock"] is True
        if row["mode"] == "async":
            assert row["draft_tokens"]["on"] == row["draft_tokens"]["stock"]


def test_a_patch_that_acts_while_it_is_off_and_loses_count_while_on_is_found_at_both(
    patched_by: Callable[..., Ran],
) -> None:
    ran = patched_by(
        {
            COUNTED: f"                num_rejected += {ON}\n",
            TAKEN: "            del request.spec_token_ids[3:]\n",
        },
        *("--scenario", "batch"),
    )
    told: dict[str, Any] = ran.json()
    assert ran.code == 1
    broken = [one for one in told["findings"] if one["seen"] == "off is not stock"]
    assert [(one["mode"], one["scenario"], one["broken"]) for one in broken] == [
        ("sync", "batch", True)
    ]
    assert "tokens of batch0: 8, then 4" in broken[0]["text"]
    failed = {one["mode"]: one for one in told["findings"] if one["seen"] == "fails"}
    assert set(failed) == set(MODES)
    assert failed["sync"]["patch"] == "width.patch"
    assert {row["mode"]: row["off_is_stock"] for row in told["rows"]} == {
        "sync": False,
        "async": True,
    }


def test_a_vllm_that_cannot_be_imported_is_not_run(engine: Engine, tmp_path: Path) -> None:
    tree = find_tree(None, str(engine(NEWEST)))
    site = tmp_path / "site"
    (site / "vllm").mkdir(parents=True)
    for path in ("vllm/_version.py", SCHEDULER):
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(tree.root / path, site / path)
    (site / "vllm/__init__.py").write_text("raise ImportError('no libcuda here')\n")
    series = tmp_path / "series" / "vllm-0.32"
    series.mkdir(parents=True)
    shutil.copy2(SERIES / "vllm-0.32" / "dynwidth.patch", series)
    (series / "series").write_text("dynwidth.patch\n")
    ran = rehearse(engine(NEWEST), series.parent, "--target", str(site))
    assert (ran.code, ran.json()["outcome"]) == (3, "not run")
    assert "no libcuda here" in str(ran.json()["not_run"])


WHEEL_PLAYS = ("batch", "preempt", "stop", "cached", "grammar")


def test_a_release_with_wheels_for_gpus_alone_is_rehearsed_without_one() -> None:
    words = [word for name in WHEEL_PLAYS for word in ("--scenario", name)]
    ran = run("rehearse", "--release", "0.33.0", "--json", *words)
    told: dict[str, Any] = ran.json()
    assert (ran.code, told["outcome"], told["version"]) == (0, "kept", "0.33.0")
    assert len(told["rows"]) == len(MODES) * len(WHEEL_PLAYS)
    assert all(row["off_is_stock"] for row in told["rows"])
    effects = {one["mode"] for one in told["findings"] if one["seen"] == "effect"}
    assert effects == set(MODES)
