"""dynwidth-metrics on real schedulers and loggers: what is counted, and where it goes.

The widths in these tests are those of the tests of dynwidth: with one accepted draft a step, five
requests and more are verified three wide, after a first step at the full depth of seven.
"""

from __future__ import annotations

import ast
import math
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from hunks.fakes import DEPTH, QUIET, SCHED, engine
from hunks.test_dynwidth import accept_one, both_modes, module, policy
from vllm_series.testing import lift, lift_class, load_module

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

    from hunks.fakes import Engine

METRICS = "vllm/v1/spec_decode/dynamic_width_metrics.py"
LOGGERS = "vllm/v1/metrics/loggers.py"
SPECULATIVE = SimpleNamespace(speculative_config=SimpleNamespace(num_speculative_tokens=DEPTH))
PLAIN = SimpleNamespace(speculative_config=None)
HISTOGRAMS = ["vllm:spec_decode_verify_width", "vllm:spec_decode_verify_width_cap"]
COUNTERS = ["vllm:spec_decode_num_capped_drafts", "vllm:spec_decode_num_capped_draft_tokens"]


def metrics(tree: Path, *, is_on: bool = True) -> ModuleType:
    """The module of the metrics, beside a policy that is on or off."""
    beside = "vllm.v1.core.sched.dynamic_width"
    found = module(tree) if is_on else load_module(tree, f"{SCHED}/dynamic_width.py", environ={})
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, beside, found)
        return load_module(tree, METRICS)


def metered(tree: Path, count: int, *, asynchronous: bool) -> tuple[Engine, Any]:
    """An engine whose scheduler counts, and what it counts with."""
    meter = metrics(tree).DynamicWidthMeter.create(SPECULATIVE, log_stats=True)
    running = engine(tree, policy(tree), count, asynchronous=asynchronous)
    running.scheduler.dynamic_width_meter = meter
    return running, meter


def some_stats(tree: Path) -> Any:
    return metrics(tree).DynamicWidthStats({3: 6, 7: 2}, {2: 1, 3: 5}, 6, 24)


class FakeMetric:
    """A histogram or a counter of any client: what it was made with, and what it was told."""

    made: list[FakeMetric]

    def __init__(self, **given: Any) -> None:
        self.given = given
        self.told: dict[tuple[object, ...], list[float]] = {}
        type(self).made.append(self)

    def labels(self, *values: object) -> SimpleNamespace:
        told = self.told.setdefault(values, [])
        return SimpleNamespace(observe=told.append, inc=told.append)


@pytest.fixture
def clients() -> tuple[type[FakeMetric], type[FakeMetric]]:
    """Classes of histograms and counters."""
    return type("Histogram", (FakeMetric,), {"made": []}), type(
        "Counter", (FakeMetric,), {"made": []}
    )


# Counting


@both_modes
def test_widths_and_caps_are_counted_as_they_are_planned(patched: Path, asynchronous: bool) -> None:
    running, meter = metered(patched, 6, asynchronous=asynchronous)
    widths = [running.step(accept_one)["r0"] for _ in range(6)]
    assert widths == ([0, 7, 7, 3, 3, 3] if asynchronous else [0, 7, 3, 3, 3, 3])
    full, capped = (12, 18) if asynchronous else (6, 24)
    stats = meter.take()
    assert stats.num_drafts_by_width == {7: full, 3: capped}
    assert stats.num_drafts_by_cap == {3: capped}
    assert stats.num_capped_drafts == capped
    assert stats.num_capped_draft_tokens == 4 * capped


@both_modes
def test_what_is_verified_and_what_is_not_is_all_that_was_drafted(
    patched: Path, asynchronous: bool
) -> None:
    running, meter = metered(patched, 5, asynchronous=asynchronous)
    accepted = {"r0": 0, "r1": 1, "r2": 2, "r3": 4, "r4": 7}
    widths = [running.step(lambda request_id, _: accepted[request_id]) for _ in range(8)]
    stats = meter.take()
    drafts = [width for step in widths for width in step.values() if width]
    assert sum(stats.num_drafts_by_width.values()) == len(drafts)
    assert sum(width * count for width, count in stats.num_drafts_by_width.items()) == sum(drafts)
    assert sum(drafts) + stats.num_capped_draft_tokens == DEPTH * len(drafts)


def test_a_small_batch_has_widths_and_no_caps(patched: Path) -> None:
    running, meter = metered(patched, 4, asynchronous=False)
    for _ in range(3):
        running.step(accept_one)
    stats = meter.take()
    assert stats.num_drafts_by_width == {7: 8}
    assert stats.num_drafts_by_cap == {}
    assert stats.num_capped_drafts == stats.num_capped_draft_tokens == 0


def test_a_cap_beyond_the_depth_counts_as_the_depth(patched: Path) -> None:
    running, meter = metered(patched, 5, asynchronous=False)
    for _ in range(4):
        running.step(lambda _, width: width)
    stats = meter.take()
    assert stats.num_drafts_by_width == {7: 15}
    assert stats.num_drafts_by_cap == {7: 10}
    assert stats.num_capped_drafts == 0


def test_a_cap_of_a_request_that_is_not_verified_is_not_counted(patched: Path) -> None:
    meter = metrics(patched).DynamicWidthMeter(DEPTH)
    request = SimpleNamespace(request_id="r0", spec_token_ids=[*range(5)])
    meter.note_cap(request, 3)
    meter.count({"r1": [1, 2]})
    meter.count({"r0": [1, 2, 3]})
    stats = meter.take()
    assert stats.num_drafts_by_width == {2: 1, 3: 1}
    assert stats.num_drafts_by_cap == {}
    assert (stats.num_capped_drafts, stats.num_capped_draft_tokens) == (1, 2)


def test_what_was_sent_is_not_sent_again(patched: Path) -> None:
    running, meter = metered(patched, 5, asynchronous=False)
    assert meter.take() is None
    for _ in range(2):
        running.step(accept_one)
    assert meter.take().num_drafts_by_width == {7: 5}
    assert meter.take() is None


def test_it_counts_only_where_somebody_sees_it(patched: Path) -> None:
    made = metrics(patched).DynamicWidthMeter.create(SPECULATIVE, log_stats=True)
    assert made.num_spec_tokens == DEPTH
    assert metrics(patched).DynamicWidthMeter.create(SPECULATIVE, log_stats=False) is None
    assert metrics(patched).DynamicWidthMeter.create(PLAIN, log_stats=True) is None
    off = metrics(patched, is_on=False).DynamicWidthMeter
    assert off.create(SPECULATIVE, log_stats=True) is None


def test_widths_are_the_same_whether_or_not_they_are_counted(patched: Path) -> None:
    running, _ = metered(patched, 6, asynchronous=False)
    alone = engine(patched, policy(patched), 6, asynchronous=False)
    assert [running.step(accept_one) for _ in range(6)] == [
        alone.step(accept_one) for _ in range(6)
    ]


# The way to the frontend


def test_the_scheduler_makes_its_meter_at_the_start(patched: Path) -> None:
    """Not by a run: the start of a scheduler makes half of an engine."""
    tree = ast.parse((patched / SCHED / "scheduler.py").read_bytes())
    made = {
        ast.unparse(node)
        for scheduler in tree.body
        if isinstance(scheduler, ast.ClassDef) and scheduler.name == "Scheduler"
        for method in scheduler.body
        if isinstance(method, ast.FunctionDef) and method.name == "__init__"
        for node in method.body
    }
    meter = "self.dynamic_width_meter = DynamicWidthMeter.create(vllm_config, log_stats)"
    assert meter in made
    imported = "from vllm.v1.spec_decode.dynamic_width_metrics import DynamicWidthMeter"
    assert imported in {ast.unparse(node) for node in tree.body}


@pytest.mark.parametrize("is_on", [True, False])
def test_the_stats_of_a_step_take_along_what_was_counted(patched: Path, is_on: bool) -> None:
    make_stats = lift(
        patched,
        f"{SCHED}/scheduler.py",
        "Scheduler.make_stats",
        names={"SchedulerStats": SimpleNamespace},
        missing=lambda _: QUIET,
    )
    meter = metrics(patched).DynamicWidthMeter(DEPTH)
    meter.count({"r0": [1, 2, 3]})
    scheduler = engine(patched, None, 0, asynchronous=False).scheduler
    scheduler.log_stats = True
    scheduler.dynamic_width_meter = meter if is_on else None
    sent = [make_stats(scheduler).dynamic_width_stats for _ in range(2)]
    if is_on:
        assert sent[0].num_drafts_by_width == {3: 1}
        assert sent[1] is None
    else:
        assert sent == [None, None]


def test_stats_of_a_scheduler_have_none_of_these_unless_it_counts(patched: Path) -> None:
    tree = ast.parse((patched / "vllm/v1/metrics/stats.py").read_bytes())
    (stats,) = (
        node
        for node in tree.body
        if isinstance(node, ast.ClassDef) and node.name == "SchedulerStats"
    )
    (field,) = (
        node
        for node in stats.body
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "dynamic_width_stats"
    )
    assert field.value is not None
    assert ast.literal_eval(field.value) is None
    # The type is what the frontend decodes by.
    assert "DynamicWidthStats" in ast.unparse(field.annotation)
    imported = "from vllm.v1.spec_decode.dynamic_width_metrics import DynamicWidthStats"
    assert imported in {ast.unparse(node) for node in tree.body}


# vLLM's loggers


class Recorder:
    """Takes what one of vLLM's loggers is told."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def observe(self, *args: Any) -> None:
        self.told.append(args)

    def log(self, log_fn: Any) -> None:
        self.told.append((log_fn,))


class Quietly:
    """An object of which every attribute that was not set is quiet."""

    def __init__(self, **known: object) -> None:
        self.__dict__.update(known)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return QUIET


class Clients(Quietly):
    """What the classes of a logger's metrics are told apart by."""

    @staticmethod
    def _histogram_cls(*_: object, **__: object) -> Any:
        return QUIET

    @staticmethod
    def _counter_cls(*_: object, **__: object) -> Any:
        return QUIET


def logger(
    tree: Path, name: str, method: str, names: dict[str, Any] | None = None, *given: Any
) -> Any:
    """A logger of vLLM with one method lifted; what it asks of the rest is quiet."""
    lifted = lift_class(
        tree,
        LOGGERS,
        name,
        methods=[method],
        bases=(Clients,),
        names=names,
        missing=lambda _: QUIET,
    )
    return lifted(*given)


def recorded(tree: Path, name: str, stats: object) -> list[tuple[Any, ...]]:
    """What reaches our part of a logger when a step's stats reach the logger."""
    made = logger(tree, name, "record")
    made.dynamic_width_prom = made.dynamic_width_logging = told = Recorder()
    made.engine_indexes, made.gauge_lora_info = [0, 3], None
    made.record(Quietly(dynamic_width_stats=stats), None, engine_idx=3)
    return told.told


def test_the_stats_reach_the_log(patched: Path) -> None:
    stats = some_stats(patched)
    assert recorded(patched, "LoggingStatLogger", stats) == [(stats,)]
    assert recorded(patched, "LoggingStatLogger", None) == []


def test_the_stats_reach_prometheus_with_their_engine(patched: Path) -> None:
    stats = some_stats(patched)
    assert recorded(patched, "PrometheusStatLogger", stats) == [(stats, 3)]
    assert recorded(patched, "PrometheusStatLogger", None) == []


def test_the_line_comes_with_that_of_speculative_decoding(patched: Path) -> None:
    made = logger(patched, "LoggingStatLogger", "log")
    made.log_prefix = ""
    made.spec_decoding_logging, made.dynamic_width_logging = Recorder(), Recorder()
    made.log()
    assert len(made.dynamic_width_logging.told) == 1
    assert made.dynamic_width_logging.told == made.spec_decoding_logging.told


def test_the_loggers_make_what_they_hand_the_stats_to(patched: Path) -> None:
    config = Quietly(
        speculative_config=SPECULATIVE.speculative_config,
        model_config=Quietly(served_model_name="small", max_model_len=512),
    )
    made: list[tuple[Any, ...]] = []
    names = {"DynamicWidthProm": lambda *args: made.append(args), "DynamicWidthLogging": Recorder}
    logger(patched, "PrometheusStatLogger", "__init__", names, config, [3])
    ((given, labelnames, labelvalues, *classes),) = made
    assert given is config
    assert labelnames == ["model_name", "engine"]
    assert labelvalues == {3: ["small", "3"]}
    assert classes == [Clients._histogram_cls, Clients._counter_cls]
    logging = logger(patched, "LoggingStatLogger", "__init__", names, config, 3)
    assert isinstance(logging.dynamic_width_logging, Recorder)


# The log line


def test_the_line_of_an_interval(patched: Path) -> None:
    logging = metrics(patched).DynamicWidthLogging()
    lines: list[str] = []
    logging.observe(some_stats(patched))
    logging.observe(some_stats(patched))
    logging.log(lambda text, *args: lines.append(text % args))
    assert lines == [
        "DynamicWidth metrics: Mean verify width: 4.00, Mean width cap: 2.83, "
        "Capped: 12 of 16 drafts, Not verified: 48 draft tokens"
    ]
    logging.log(lambda text, *args: lines.append(text % args))
    assert len(lines) == 1


def test_a_line_without_caps(patched: Path) -> None:
    lines: list[tuple[Any, ...]] = []
    found = metrics(patched)
    logging = found.DynamicWidthLogging()
    logging.observe(found.DynamicWidthStats({7: 4}))
    logging.log(lambda text, *args: lines.append(args))
    ((width, cap, capped, drafts, left),) = lines
    assert (width, capped, drafts, left) == (7.0, 0, 4, 0)
    assert math.isnan(cap)


# Prometheus


def test_metrics_by_engine(
    patched: Path, clients: tuple[type[FakeMetric], type[FakeMetric]]
) -> None:
    histogram, counter = clients
    prom = metrics(patched).DynamicWidthProm(
        SPECULATIVE,
        ["model_name", "engine"],
        {0: ["m", "0"], 1: ["m", "1"]},
        histogram,
        counter,
    )
    assert [one.given["name"] for one in histogram.made] == HISTOGRAMS
    assert [one.given["name"] for one in counter.made] == COUNTERS
    for one in (*histogram.made, *counter.made):
        assert one.given["labelnames"] == ["model_name", "engine"]
        assert one.given["documentation"].endswith(".")
    assert [one.given["buckets"] for one in histogram.made] == [[1, 2, 3, 4, 5, 6, 7]] * 2
    prom.observe(some_stats(patched), 1)
    assert [sorted(one.told["m", "1"]) for one in histogram.made] == [
        [3, 3, 3, 3, 3, 3, 7, 7],
        [2, 3, 3, 3, 3, 3],
    ]
    assert [one.told["m", "1"] for one in counter.made] == [[6], [24]]
    assert all(not one.told["m", "0"] for one in (*histogram.made, *counter.made))


@pytest.mark.parametrize(("is_on", "config"), [(False, SPECULATIVE), (True, PLAIN)])
def test_nothing_is_registered_where_nothing_is_counted(
    patched: Path,
    clients: tuple[type[FakeMetric], type[FakeMetric]],
    is_on: bool,
    config: SimpleNamespace,
) -> None:
    histogram, counter = clients
    prom = metrics(patched, is_on=is_on).DynamicWidthProm(
        config, ["model_name", "engine"], {0: ["m", "0"]}, histogram, counter
    )
    assert histogram.made == counter.made == []
    prom.observe(some_stats(patched), 0)
