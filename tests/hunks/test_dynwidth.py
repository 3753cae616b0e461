"""dynwidth on real schedulers: what is learned of a request, and how wide it is verified next.

The averages in these tests are worked by hand with the default weight of 0.35; a width is the
average rounded up plus the margin of 2.
"""

from __future__ import annotations

import ast
import logging
from collections import Counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from packaging.version import Version

from hunks.fakes import (
    DEPTH,
    SCHED,
    Engine,
    engine,
    request_class,
    request_status,
    scheduler_class,
)
from vllm_series.testing import lift, load_module

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import ModuleType

POLICY = f"{SCHED}/dynamic_width.py"
ON = {"RADIANCE_DYNAMIC_WIDTH": "1"}

since, before = pytest.mark.since, pytest.mark.before
DRAFTS_ASYNCHRONOUSLY = "0.11.1"
"""Before it, vLLM refuses to start with speculative decoding and asynchronous scheduling."""

both_modes = pytest.mark.parametrize(
    "asynchronous",
    [
        pytest.param(False, id="synchronous"),
        pytest.param(True, id="asynchronous", marks=since(DRAFTS_ASYNCHRONOUSLY)),
    ],
)


def module(tree: Path, **knobs: str) -> ModuleType:
    """The policy's module, switched on, with `RADIANCE_DYNW_` knobs."""
    return load_module(
        tree, POLICY, environ=ON | {f"RADIANCE_DYNW_{name}": text for name, text in knobs.items()}
    )


def policy(tree: Path, **knobs: str) -> Any:
    return module(tree, **knobs).dynamic_width


def a_request(drafts: int = DEPTH) -> Any:
    return SimpleNamespace(num_output_tokens=1, spec_token_ids=[*range(100, 100 + drafts)])


def average(request: Any) -> float | None:
    value = getattr(request, "dynamic_width_average", None)
    assert value is None or isinstance(value, float)
    return value


def width_after(dynamic_width: Any, request: Any, batch: int = 5) -> int:
    """The request's width in a batch, when the drafter has proposed its full depth."""
    request.spec_token_ids = [*range(100, 100 + DEPTH)]
    dynamic_width.cap([request, *(a_request() for _ in range(batch - 1))])
    return len(request.spec_token_ids)


def accept_one(request_id: str, width: int) -> int:
    return 1


def one_then_all() -> Callable[[str, int], int]:
    """The first verified step of a request accepts one draft, each later one all of them."""
    steps: Counter[str] = Counter()

    def accepts(request_id: str, width: int) -> int:
        steps[request_id] += 1
        return 1 if steps[request_id] == 1 else width

    return accepts


# The policy


def test_the_average_of_a_sequence(patched: Path) -> None:
    dynamic_width = policy(patched)
    request = a_request()
    for accepted, expected, width in [
        (4, 4.0, 6),  # the first count is the average
        (0, 2.6, 5),  # 4 + 0.35 * (0 - 4)
        (7, 4.49, 7),  # all 7 of 7 count as 8: 2.6 + 0.35 * (8 - 2.6)
        (1, 3.2685, 6),  # 4.49 + 0.35 * (1 - 4.49)
    ]:
        dynamic_width.observe(request, accepted, DEPTH)
        assert average(request) == pytest.approx(expected)
        assert width_after(dynamic_width, request) == width


def test_a_fully_accepted_cap_is_climbed_out_of(patched: Path) -> None:
    dynamic_width = policy(patched)
    request = a_request()
    dynamic_width.observe(request, 1, DEPTH)
    widths = []
    while (width := width_after(dynamic_width, request)) < DEPTH:
        widths.append(width)
        dynamic_width.observe(request, width, width)
    assert widths == [3, 5, 6]  # averages 1, 2.05, 3.4325 and then 4.681125


def test_a_steady_count_stays_exactly_where_it_is(patched: Path) -> None:
    assert 0.2 * 3 + (1 - 0.2) * 3 > 3
    dynamic_width = policy(patched, ALPHA="0.2")
    request = a_request()
    for _ in range(100):
        dynamic_width.observe(request, 3, DEPTH)
    assert average(request) == 3.0


@pytest.mark.parametrize(
    ("knobs", "width"),
    [
        ({}, 3),
        ({"MARGIN": "0"}, 2),
        ({"MARGIN": "0", "MIN": "1"}, 1),
        ({"MARGIN": "4"}, 5),
        ({"MIN": "4"}, 4),
        ({"MIN": "9"}, DEPTH),
        ({"MARGIN": "99"}, DEPTH),
    ],
)
def test_margin_and_floor(patched: Path, knobs: dict[str, str], width: int) -> None:
    dynamic_width = policy(patched, **knobs)
    request = a_request()
    dynamic_width.observe(request, 1, DEPTH)
    assert width_after(dynamic_width, request) == width


def test_the_weight_of_the_newest_count(patched: Path) -> None:
    dynamic_width = policy(patched, ALPHA="1")
    request = a_request()
    for accepted in (5, 0, 3):
        dynamic_width.observe(request, accepted, DEPTH)
        assert average(request) == accepted


def test_no_cap_below_the_batch_gate_though_history_is_kept(patched: Path) -> None:
    dynamic_width = policy(patched)
    request = a_request()
    dynamic_width.observe(request, 1, DEPTH)
    assert width_after(dynamic_width, request, batch=4) == DEPTH
    assert width_after(dynamic_width, request, batch=5) == 3
    assert width_after(policy(patched, MIN_BATCH="1"), request, batch=1) == 3


def test_without_history_the_width_is_full(patched: Path) -> None:
    request = a_request()
    drafts = request.spec_token_ids
    policy(patched).cap([request] * 5)
    assert request.spec_token_ids is drafts
    assert len(drafts) == DEPTH


def test_a_cap_keeps_the_first_drafts_in_a_list_of_their_own(patched: Path) -> None:
    dynamic_width = policy(patched)
    shared = [-1] * DEPTH
    running = [SimpleNamespace(num_output_tokens=1, spec_token_ids=shared) for _ in range(5)]
    dynamic_width.observe(running[0], 1, DEPTH)
    dynamic_width.cap(running)
    assert [len(request.spec_token_ids) for request in running] == [3, 7, 7, 7, 7]
    assert shared == [-1] * DEPTH
    assert all(request.spec_token_ids is shared for request in running[1:])

    running[0].spec_token_ids = short = [100, 101, 102]
    dynamic_width.cap(running)
    assert running[0].spec_token_ids is short


def test_a_padded_first_step_is_no_evidence(patched: Path) -> None:
    request = a_request()
    request.num_output_tokens = 0
    policy(patched).observe(request, 0, DEPTH)
    assert average(request) is None


def test_a_step_without_drafts_is_no_evidence(patched: Path) -> None:
    request = a_request()
    policy(patched).observe(request, 0, 0)
    assert average(request) is None


# The knobs


@pytest.mark.parametrize(
    "switch", [{}, {"RADIANCE_DYNAMIC_WIDTH": "0"}, {"RADIANCE_DYNW_MIN": "3"}]
)
def test_off_reads_no_knob(patched: Path, switch: dict[str, str]) -> None:
    environ = {"RADIANCE_DYNW_ALPHA": "abc", "RADIANCE_DYNW_MIN_BATCH": "-1"} | switch
    assert load_module(patched, POLICY, environ=environ).dynamic_width is None


def test_knobs_and_their_defaults(patched: Path) -> None:
    loaded = module(patched)
    assert loaded.dynamic_width == loaded.DynamicWidth(
        alpha=0.35, margin=2, min_width=2, min_batch=5
    )
    loaded = module(patched, ALPHA="1e-3", MARGIN="0", MIN="1", MIN_BATCH="64")
    assert loaded.dynamic_width == loaded.DynamicWidth(
        alpha=0.001, margin=0, min_width=1, min_batch=64
    )


@pytest.mark.parametrize(
    ("knob", "texts", "permitted"),
    [
        (
            "ALPHA",
            ["abc", "", "0", "-0.5", "1.01", "nan", "inf", "-inf", "0,35"],
            "must be a number above 0 and up to 1",
        ),
        ("MARGIN", ["abc", "", "-1", "1.5", "nan"], "must be a whole number from 0 up"),
        ("MIN", ["abc", "", "0", "-2", "2.0"], "must be a whole number from 1 up"),
        ("MIN_BATCH", ["abc", "", "0", "-5", "five"], "must be a whole number from 1 up"),
    ],
)
def test_a_bad_knob_stops_the_start_and_is_named(
    patched: Path, knob: str, texts: list[str], permitted: str
) -> None:
    for text in texts:
        with pytest.raises(ValueError) as error:
            module(patched, **{knob: text})
        assert str(error.value) == f"RADIANCE_DYNW_{knob}={text!r}: {permitted}."


def test_the_start_says_that_it_is_on(patched: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="vllm")
    module(patched, MARGIN="3")
    assert [record.name for record in caplog.records] == ["vllm.v1.core.sched.dynamic_width"]
    assert "margin=3" in caplog.text


def test_the_scheduler_imports_the_policy(patched: Path) -> None:
    tree = ast.parse((patched / SCHED / "scheduler.py").read_bytes())
    imported = [
        (node.module, alias.name, alias.asname)
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]
    assert ("vllm.v1.core.sched.dynamic_width", "dynamic_width", None) in imported


# The schedulers


@both_modes
def test_widths_follow_what_is_accepted(patched: Path, asynchronous: bool) -> None:
    running = engine(patched, policy(patched), 6, asynchronous=asynchronous)
    widths = [running.step(accept_one) for _ in range(6)]
    expected = [0, 7, 7, 3, 3, 3] if asynchronous else [0, 7, 3, 3, 3, 3]
    assert [step["r0"] for step in widths] == expected
    assert all(len(set(step.values())) == 1 for step in widths)


@both_modes
def test_a_request_climbs_out_of_its_cap(patched: Path, asynchronous: bool) -> None:
    running = engine(patched, policy(patched), 5, asynchronous=asynchronous)
    accepts = one_then_all()
    widths = [running.step(accepts)["r0"] for _ in range(7)]
    # The synchronous averages are those of the policy's test. An asynchronous step is planned
    # before the one before it has been counted: 1, 3.45, 3.6425, 4.817625.
    assert widths == ([0, 7, 7, 3, 6, 6, 7] if asynchronous else [0, 7, 3, 5, 6, 7, 7])


@both_modes
def test_each_request_has_its_own_width(patched: Path, asynchronous: bool) -> None:
    running = engine(patched, policy(patched), 5, asynchronous=asynchronous)
    accepted = {"r0": 0, "r1": 1, "r2": 2, "r3": 4, "r4": 7}
    for _ in range(4):
        widths = running.step(lambda request_id, width: accepted[request_id])
    assert widths == {"r0": 2, "r1": 3, "r2": 4, "r3": 6, "r4": 7}


@both_modes
def test_the_cap_comes_the_moment_the_batch_is_large_enough(
    patched: Path, asynchronous: bool
) -> None:
    running = engine(patched, policy(patched), 4, asynchronous=asynchronous)
    widths = [running.step(accept_one)["r0"] for _ in range(5)]
    assert widths == [0, 7, 7, 7, 7]
    running.add(request_class(patched)("r4"))
    assert running.step(accept_one) == {"r0": 3, "r1": 3, "r2": 3, "r3": 3, "r4": 0}
    assert running.step(accept_one)["r4"] == DEPTH


@both_modes
def test_fewer_rows_are_verified_for_the_same_tokens(patched: Path, asynchronous: bool) -> None:
    verified = {}
    for name, dynamic_width in (("off", None), ("on", policy(patched))):
        running = engine(patched, dynamic_width, 6, asynchronous=asynchronous)
        for _ in range(10):
            running.step(accept_one)
        drafts = sum(drafts for drafts, _ in running.scheduler.verified)
        accepted = sum(accepted for _, accepted in running.scheduler.verified)
        verified[name] = (drafts, accepted)
    assert verified == (
        # Steps that verify, for six requests; the first of them, or two, at full width.
        {"off": (6 * 8 * 7, 6 * 8), "on": (6 * (2 * 7 + 6 * 3), 6 * 8)}
        if asynchronous
        else {"off": (6 * 9 * 7, 6 * 9), "on": (6 * (7 + 8 * 3), 6 * 9)}
    )


@both_modes
def test_off_leaves_the_tokens_alone(patched: Path, asynchronous: bool) -> None:
    running = engine(patched, None, 6, asynchronous=asynchronous)
    for _ in range(4):
        running.step(accept_one)
    request = running.scheduler.requests["r0"]
    drafts = request.spec_token_ids
    assert len(drafts) == DEPTH
    output = running.plan()
    assert output.scheduled_spec_decode_tokens["r0"] is drafts
    assert average(request) is None


@since("0.16.0")
def test_the_shared_placeholders_are_never_shortened(patched: Path) -> None:
    running = engine(patched, policy(patched), 5, asynchronous=True)
    for _ in range(3):
        running.step(accept_one)
    running.add(request_class(patched)("r5"))
    running.step(accept_one)
    shared = running.scheduler._spec_token_placeholders
    requests = running.scheduler.requests
    assert all(request.spec_token_ids is shared for request in requests.values())
    spec_tokens = running.plan().scheduled_spec_decode_tokens
    assert [len(spec_tokens[name]) for name in ("r0", "r4", "r5")] == [3, 3, 7]
    assert spec_tokens["r5"] is shared
    assert shared == [-1] * DEPTH


def plan_one_with_drafts(running: Engine, request: Any) -> None:
    request.spec_token_ids = [*range(100, 100 + DEPTH)]
    request.num_computed_tokens = request.num_tokens - running.scheduler.num_sampled_tokens_per_step
    running.add(request)
    assert len(running.plan().scheduled_spec_decode_tokens["r0"]) == DEPTH


def one_in_flight(tree: Path, *, asynchronous: bool) -> tuple[Engine, Any]:
    """An engine with one planned step of one request, which verifies a full width."""
    running = engine(tree, policy(tree), 0, asynchronous=asynchronous)
    request = request_class(tree)("r0")
    request.status = request_status(tree).RUNNING
    plan_one_with_drafts(running, request)
    return running, request


@both_modes
def test_a_step_in_flight_is_counted_when_it_returns(patched: Path, asynchronous: bool) -> None:
    running, request = one_in_flight(patched, asynchronous=asynchronous)
    running.finish(accept_one)
    assert running.scheduler.verified == [(DEPTH, 1)]
    assert average(request) == 1.0


@both_modes
@since("0.12.0")
def test_preemption_makes_a_step_in_flight_stale_since_0_27(
    patched: Path, asynchronous: bool, version: Version
) -> None:
    running, request = one_in_flight(patched, asynchronous=asynchronous)
    running.scheduler.running.remove(request)
    running.scheduler._preempt_request(request, 0.0)
    running.finish(accept_one)
    assert running.scheduler.verified == [(DEPTH, 1)]
    # Up to 0.26 the release takes the output as it takes any other.
    assert average(request) == (None if version >= Version("0.27.0") else 1.0)


@both_modes
@since("0.12.0")
def test_a_reset_makes_an_asynchronous_step_in_flight_stale(
    patched: Path, asynchronous: bool, version: Version
) -> None:
    running, request = one_in_flight(patched, asynchronous=asynchronous)
    assert running.scheduler.reset_prefix_cache(reset_running_requests=True)
    running.finish(accept_one)
    is_stale = asynchronous or version >= Version("0.27.0")
    assert average(request) == (None if is_stale else 1.0)


@since("0.12.0")
def test_a_reset_between_synchronous_steps_stops_no_count(patched: Path) -> None:
    running = engine(patched, policy(patched), 1, asynchronous=False)
    request = running.scheduler.running[0]
    request.status = request_status(patched).RUNNING
    assert running.scheduler.reset_prefix_cache(reset_running_requests=True)
    plan_one_with_drafts(running, request)
    running.finish(accept_one)
    assert average(request) == 1.0


@both_modes
@before("0.15.1")
def test_a_step_without_a_sampled_token_is_no_evidence(patched: Path, asynchronous: bool) -> None:
    running, request = one_in_flight(patched, asynchronous=asynchronous)
    running.finish(accept_one, sampled_tokens=0)
    assert running.scheduler.verified == [(DEPTH, -1)]
    assert average(request) is None


@both_modes
def test_padding_of_a_first_step_is_not_counted(patched: Path, asynchronous: bool) -> None:
    running = engine(patched, policy(patched), 0, asynchronous=asynchronous)
    request = request_class(patched)("r0")
    request._all_token_ids.pop()
    request._output_token_ids.pop()
    plan_one_with_drafts(running, request)
    running.finish(lambda request_id, width: 0)
    assert running.scheduler.verified == [(DEPTH, 0)]
    assert average(request) is None


@both_modes
@since("0.24.0")
def test_a_diffusion_canvas_is_neither_counted_nor_cut(patched: Path, asynchronous: bool) -> None:
    dynamic_width = policy(patched, MIN_BATCH="1")
    running = engine(patched, dynamic_width, 0, asynchronous=asynchronous, num_sampled=0)
    request = request_class(patched)("r0")
    plan_one_with_drafts(running, request)
    running.finish(lambda request_id, width: 3)
    assert average(request) is None
    assert [running.step(lambda request_id, width: 3)["r0"] for _ in range(3)] == [DEPTH] * 3


def test_grammars_shorten_drafts_before_a_synchronous_cap(patched: Path) -> None:
    scheduler = scheduler_class(patched, policy(patched, MIN_BATCH="1"), asynchronous=False)()
    running = Engine(scheduler, [request_class(patched)("r0", allowed=5)], asynchronous=False)
    widths = [running.step(accept_one)["r0"] for _ in range(4)]
    assert widths == [0, 5, 3, 3]
    assert running.plan().scheduled_spec_decode_tokens["r0"] == [100, 101, 102]


@since("0.14.0")
def test_grammars_pad_an_asynchronous_cap(patched: Path) -> None:
    scheduler = scheduler_class(patched, policy(patched, MIN_BATCH="1"), asynchronous=True)()
    running = Engine(scheduler, [request_class(patched)("r0", allowed=2)], asynchronous=True)
    widths = [running.step(accept_one)["r0"] for _ in range(5)]
    assert widths == [0, 7, 7, 3, 3]
    output = running.plan()
    assert output.scheduled_spec_decode_tokens["r0"] == [100, 101, -1]
    assert output.num_invalid_spec_tokens == {"r0": 1}
    running.finish(accept_one)
    running.finish(accept_one)
    assert average(scheduler.requests["r0"]) == 1.0


@both_modes
def test_only_synchronous_steps_reach_update_draft_token_ids(
    patched: Path, asynchronous: bool
) -> None:
    """Why the cap is not taken there."""
    called: list[object] = []
    core = SimpleNamespace(
        check_for_draft_tokens=True,
        use_spec_decode=True,
        async_scheduling=asynchronous,
        model_executor=SimpleNamespace(take_draft_token_ids=lambda: "drafts"),
        scheduler=SimpleNamespace(update_draft_token_ids=called.append),
    )
    lift(patched, "vllm/v1/engine/core.py", "EngineCore.post_step")(core, model_executed=True)
    assert called == ([] if asynchronous else ["drafts"])


@before(DRAFTS_ASYNCHRONOUSLY)
def test_without_asynchronous_drafts_there_is_nothing_to_cap(patched: Path) -> None:
    running = engine(patched, policy(patched), 6, asynchronous=True)
    widths = [running.step(accept_one) for _ in range(5)]
    assert widths == [dict.fromkeys(running.scheduler.requests, 0)] * 5
    assert running.scheduler.verified == []


def test_the_policy_needs_no_python_newer_than_its_releases(patched: Path) -> None:
    """vLLM 0.10.2 and 0.11.0 run on Python 3.9, whose dataclasses know no `slots`."""
    tree = ast.parse((patched / POLICY).read_text(), feature_version=(3, 9))
    asked = [
        keyword.arg
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for call in node.decorator_list
        if isinstance(call, ast.Call)
        for keyword in call.keywords
    ]
    assert asked == ["frozen"]
