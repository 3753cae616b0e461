"""vLLM's own scheduling code on requests and engines of a few lines.

`engine()` lifts the schedulers out of a tree and drives them as the engine core does: planned
steps, outputs, drafts, in both scheduling modes. What they ask of the rest of vLLM is answered by
fakes; what the tests count on (tokens, drafts, placeholders) is done by the lifted code.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import dataclasses
import enum
import functools
import re
import time
from collections import defaultdict, deque
from functools import cached_property
from types import FunctionType, SimpleNamespace
from typing import TYPE_CHECKING, Any

from vllm_series.testing import lift, lift_class

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SCHED = "vllm/v1/core/sched"
DEPTH = 7
"""Tokens that the fake drafter proposes, always."""


METHODS = (
    "schedule",
    "_preempt_request",
    "_update_after_schedule",
    "_update_request_with_output",
    "update_draft_token_ids",
    "update_draft_token_ids_in_output",
    "update_from_output",
    "reset_prefix_cache",
)
"""What is lifted of the scheduler, as far as the release has it."""


class Quiet(int):
    """Stands in for what a test has no opinion on: nothing, none of it, zero."""

    def __call__(self, *args: object, **kwargs: object) -> Quiet:
        return self

    def __getattr__(self, name: str) -> Quiet:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __getitem__(self, key: object) -> Quiet:
        return self


QUIET = Quiet()


class Absent:
    """An object of which every attribute that was not set is None."""

    def __init__(self, **known: object) -> None:
        self.__dict__.update(known)

    def __getattr__(self, name: str) -> None:
        return None


class Grammar:
    """Accepts tokens below 1000; `allowed` tokens of a draft at most."""

    def __init__(self, allowed: int) -> None:
        self.allowed = allowed

    def validate_tokens(self, tokens: list[int]) -> list[int]:
        return tokens[: self.allowed]

    def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
        return True

    def is_terminated(self) -> bool:
        return False


class Tokens(list[int]):
    """The sampled tokens of a request: a list, and up to 0.11.2 what numpy has made of one."""

    def tolist(self) -> list[int]:
        return list(self)


class StructuredOutput:
    """The manager as releases up to 0.29 (`should_advance`) and from 0.30 on ask it."""

    def should_advance(self, request: FakeRequest, **_: object) -> bool:
        return request.use_structured_output

    def trim_reasoning_for_advance(self, request: FakeRequest, tokens: list[int]) -> list[int]:
        return tokens

    def validate_tokens(self, request: FakeRequest, tokens: list[int]) -> list[int]:
        grammar = request.structured_output_request.grammar
        return grammar.validate_tokens(tokens) if grammar else tokens

    def accept_tokens(self, request: FakeRequest, tokens: list[int]) -> bool:
        return True


class FakeRequest:
    """A request whose prompt is computed and whose first output token is known.

    Sets what the schedulers read, as far as the release's own requests have it. Anything else
    raises AttributeError, as it must for what a patch itself keeps on a request.
    """

    known: Callable[[str], bool] = staticmethod(lambda name: True)
    """Whether requests of the release have an attribute of that name."""
    num_tokens: int
    num_tokens_with_spec: int
    num_output_tokens: int

    def __init__(self, request_id: str, *, allowed: int | None = None) -> None:
        self.request_id = request_id
        self.num_prompt_tokens = 10
        self._output_token_ids = [1]
        self._all_token_ids = [*range(self.num_prompt_tokens), 1]
        self.num_computed_tokens = self.num_prompt_tokens
        self.spec_token_ids: list[int] = []
        self.max_tokens = 100_000
        self.num_output_placeholders = 0
        self.num_cached_tokens = self.num_prompt_tokens
        self.num_external_computed_tokens = 0
        self.num_in_flight_tokens = 0
        self.discard_latest_async_tokens = False
        self.async_tokens_to_discard = 0
        self.num_stale_output_tokens = 0
        self.drop_stale_output = False
        self.next_decode_eligible_step = 0
        self.last_sched_seq = 0
        self.num_preemptions = 0
        self.is_prefill_chunk = False
        self.use_structured_output = allowed is not None
        self.structured_output_request = SimpleNamespace(
            grammar=None if allowed is None else Grammar(allowed)
        )
        self.status: Any = None
        self.has_encoder_inputs = False
        self.mm_features = ()
        self.lora_request = None
        self.pooling_params = None
        self.sampling_params = None
        self.spec_decode_metrics = None
        self.resumable = False
        self.client_index = 0
        self.stop_reason = None
        self.trace_headers = None
        self.num_nans_in_logits = 0
        for name in [name for name in vars(self) if not self.known(name)]:
            delattr(self, name)

    def is_finished(self) -> bool:
        return False

    def get_finished_reason(self) -> None:
        return None

    def append_output_token_ids(self, token: int) -> None:
        self._output_token_ids.append(token)
        self._all_token_ids.append(token)

    def take_events(self) -> None:
        return None

    def take_prefill_stats(self) -> None:
        return None


class FakeScheduler:
    """The state of a scheduler; what is not named here is quiet."""

    asynchronous = False

    def __init__(self, num_sampled: int = 1) -> None:
        self.num_spec_tokens = DEPTH
        self.num_sampled_tokens_per_step = num_sampled
        self.requests: dict[str, Any] = {}
        self.running: list[Any] = []
        self.max_num_scheduled_tokens = 8192
        self.max_num_encoder_input_tokens = 0
        self.max_num_running_reqs = self.max_num_active_reqs = 256
        self.max_model_len = 100_000
        self.current_step = 0
        self.scheduler_config = SimpleNamespace(
            max_num_batched_tokens=8192,
            long_prefill_token_threshold=0,
            async_scheduling=self.asynchronous,
        )
        self.parallel_config = SimpleNamespace(pipeline_parallel_size=1)
        self.kv_cache_manager = KVCacheManager()
        self.structured_output_manager = StructuredOutput()
        self.dynamic_sd_lookup = None
        self.dynamic_width_meter: Any = None
        self.connector = self.ec_connector = self.aux_output_connector = None
        self.perf_metrics = None
        self.prev_step_scheduled_req_ids: set[str] = set()
        self.finished_req_ids_dict: dict[int, set[str]] = {}
        self._inflight_prefills: set[Any] = set()
        self.verified: list[tuple[int, int]] = []
        """Draft tokens and accepted tokens of each verified step."""

    def __getattr__(self, name: str) -> Quiet:
        if name.startswith("__"):
            raise AttributeError(name)
        return QUIET

    def get_request_counts(self) -> tuple[int, int]:
        return len(self.running), 0

    def make_spec_decoding_stats(self, stats: object, **counts: Any) -> None:
        self.verified.append((counts["num_draft_tokens"], counts["num_accepted_tokens"]))

    def get_grammar_bitmask(self, *args: object) -> tuple[dict[str, int], None]:
        return {}, None

    def make_stats(self, *args: object, **kwargs: object) -> None:
        return None

    def _reserve_prefill_lookahead(self, request: object, computed: int, new: int) -> int:
        return new


class FakeAsyncScheduler(FakeScheduler):
    """What the asynchronous scheduler stands on."""

    asynchronous = True


class KVCacheManager(Quiet):
    """Room for everything."""

    def reset_prefix_cache(self) -> bool:
        return True

    def take_kv_cache_block_copies(self) -> tuple[list[Any], list[Any]]:
        return [], []


class Engine:
    """What the engine core does with a scheduler, for requests that only decode.

    Under asynchronous scheduling a step is planned while the one before it is still computed.
    """

    def __init__(self, scheduler: Any, requests: list[Any], *, asynchronous: bool) -> None:
        self.scheduler = scheduler
        self.asynchronous = asynchronous
        self.planned: deque[Any] = deque()
        for request in requests:
            self.add(request)

    def add(self, request: Any) -> None:
        self.scheduler.requests[request.request_id] = request
        self.scheduler.running.append(request)

    def plan(self) -> Any:
        """Plan one step and put its drafts into it, as the engine core does with a grammar."""
        output = self.scheduler.schedule()
        if self.asynchronous and any(r.use_structured_output for r in self.scheduler.running):
            self.scheduler.update_draft_token_ids_in_output(self._drafts(output), output)
        self.planned.append(output)
        return output

    def finish(
        self, accepts: Callable[[str, int], int], *, sampled_tokens: int | None = None
    ) -> None:
        """Compute the oldest planned step; `accepts` is asked for each verified request and width
        how many drafts are accepted. `sampled_tokens` is what a request gets in their place."""
        output = self.planned.popleft()
        request_ids = list(output.num_scheduled_tokens)
        sampled = []
        for request_id in request_ids:
            width = len(output.scheduled_spec_decode_tokens.get(request_id, ()))
            accepted = min(accepts(request_id, width), width) if width else 0
            tokens = accepted + self.scheduler.num_sampled_tokens_per_step
            sampled.append(Tokens([5] * (tokens if sampled_tokens is None else sampled_tokens)))
        self.scheduler.update_from_output(
            output,
            Absent(
                sampled_token_ids=sampled,
                req_ids=request_ids,
                req_id_to_index={request_id: i for i, request_id in enumerate(request_ids)},
                prompt_logprobs_dict={},
                prompt_token_id_logprobs_dict={},
            ),
        )
        if not self.asynchronous:
            self.scheduler.update_draft_token_ids(self._drafts(output))

    def step(self, accepts: Callable[[str, int], int]) -> dict[str, int]:
        """Plan a step, finish the one that is due, return the planned width of each request."""
        output = self.plan()
        widths = {
            request_id: len(output.scheduled_spec_decode_tokens.get(request_id, ()))
            for request_id in output.num_scheduled_tokens
        }
        # One row for the token before the drafts, whatever the width.
        rows = self.scheduler.num_sampled_tokens_per_step
        assert output.num_scheduled_tokens == {
            request_id: width + rows for request_id, width in widths.items()
        }
        if len(self.planned) > self.asynchronous:
            self.finish(accepts)
        return widths

    def _drafts(self, output: Any) -> Any:
        request_ids = list(output.num_scheduled_tokens)
        return SimpleNamespace(
            req_ids=request_ids, draft_token_ids=[[*range(100, 100 + DEPTH)] for _ in request_ids]
        )


@functools.cache
def request_class(tree: Path) -> type[Any]:
    """The fake request, counting its tokens by the release's own properties."""
    path = "vllm/v1/request.py"
    found = re.findall(r"\b(?:self\.|def )(\w+)", (tree / path).read_text())
    lifted = lift_class(
        tree,
        path,
        "Request",
        methods=["num_tokens", "num_tokens_with_spec", "num_output_tokens"],
        bases=(FakeRequest,),
    )
    lifted.known = staticmethod(frozenset(found).__contains__)
    return lifted


def engine(
    tree: Path, policy: object, count: int, *, asynchronous: bool, num_sampled: int = 1
) -> Engine:
    """An engine on the tree's schedulers with `count` requests, named r0, r1 and so on."""
    request = request_class(tree)
    requests = [request(f"r{number}") for number in range(count)]
    scheduler = scheduler_class(tree, policy, asynchronous=asynchronous)(num_sampled)
    return Engine(scheduler, requests, asynchronous=asynchronous)


def scheduler_class(tree: Path, policy: object, *, asynchronous: bool) -> type[Any]:
    """The tree's scheduler, with `policy` for the name `dynamic_width`."""
    scheduler = _with_policy(_scheduler(tree, asynchronous=asynchronous), policy)
    if not asynchronous:
        return scheduler
    return lift_class(
        tree,
        f"{SCHED}/async_scheduler.py",
        "AsyncScheduler",
        bases=(scheduler,),
        missing=lambda _: QUIET,
    )


@functools.cache
def _scheduler(tree: Path, *, asynchronous: bool) -> type[Any]:
    """Lifted once for all tests of a tree: the file is long, and most of a test's time."""
    path = f"{SCHED}/scheduler.py"
    defined = definitions(tree, path, "Scheduler")
    return lift_class(
        tree,
        path,
        "Scheduler",
        methods=[method for method in METHODS if method in defined],
        bases=(FakeAsyncScheduler if asynchronous else FakeScheduler,),
        names={
            "EngineCoreOutput": SimpleNamespace,
            "EngineCoreOutputs": SimpleNamespace,
            "PauseState": _enum(tree, f"{SCHED}/interface.py", "PauseState"),
            "RequestStatus": request_status(tree),
            "SchedulerOutput": _scheduler_output(tree),
            "StructuredOutputGrammar": Grammar,
            "SchedulingPolicy": _enum(tree, f"{SCHED}/request_queue.py", "SchedulingPolicy"),
            "check_stop": lambda *_: False,
            "defaultdict": defaultdict,
            "deque": deque,
            "record_function_or_nullcontext": contextlib.nullcontext,
            "remove_all": lift(tree, f"{SCHED}/utils.py", "remove_all"),
            "time": time,
        },
        missing=lambda _: QUIET,
    )


def _with_policy(scheduler: type[Any], policy: object) -> type[Any]:
    """A copy of a lifted class whose methods have globals of their own, with the policy in them."""
    names: dict[str, Any] = copy.copy(scheduler.schedule.__globals__)
    names["dynamic_width"] = policy
    methods = {}
    for name, method in vars(scheduler).items():
        if isinstance(method, FunctionType):
            methods[name] = own = FunctionType(method.__code__, names, name)
            own.__defaults__, own.__kwdefaults__ = method.__defaults__, method.__kwdefaults__
    return type(scheduler.__name__, scheduler.__bases__, methods)


@functools.cache
def request_status(tree: Path) -> Any:
    """The tree's `RequestStatus`, one and the same for all that is lifted from the tree."""
    return _enum(tree, "vllm/v1/request.py", "RequestStatus")


def definitions(tree: Path, path: str, name: str) -> frozenset[str]:
    """The methods of a class of a file."""
    module = ast.parse((tree / path).read_bytes())
    (found,) = (
        node for node in module.body if isinstance(node, ast.ClassDef) and node.name == name
    )
    return frozenset(node.name for node in found.body if isinstance(node, ast.FunctionDef))


def _enum(tree: Path, path: str, name: str) -> Any:
    """An enum of a file; quiet where the release has none of the name."""
    if f"class {name}(" not in (tree / path).read_text():
        return QUIET
    return lift_class(tree, path, name, names={"enum": enum, "Enum": enum.Enum})


def _scheduler_output(tree: Path) -> type[Any]:
    return lift_class(
        tree,
        f"{SCHED}/output.py",
        "SchedulerOutput",
        names={
            "bc_linter_include": lambda decorated: decorated,
            "cached_property": cached_property,
            "dataclass": dataclasses.dataclass,
            "field": dataclasses.field,
        },
        decorators=True,
    )
