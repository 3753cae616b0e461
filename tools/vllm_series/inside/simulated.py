"""A vLLM worker whose model is a script: it says what it would have said, and accepts as told.

vLLM takes the class of its worker from its configuration (`worker_cls`), so the engine core, the
executor and the scheduler above this one are vLLM's own, and so is each call between them. There is
no network here: every request has one fixed stream of tokens, and the drafter proposes the next of
them, right as often as the request's script says. What is emitted is thus known beforehand, however
many drafts a step verifies, and a step takes microseconds.

The worker keeps books as vLLM's model runner does: how many tokens of a request there are, and how
many of them are computed. A scheduler that asks for a token that is not there yet has lost count,
and is told so by an error.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import torch
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.kv_cache_interface import FullAttentionSpec
from vllm.v1.outputs import (
    EMPTY_MODEL_RUNNER_OUTPUT,
    AsyncModelRunnerOutput,
    DraftTokenIds,
    ModelRunnerOutput,
)
from vllm.v1.worker.worker_base import WorkerBase

PLACEHOLDER = -1
"""What vLLM schedules for a draft that the scheduler has not seen."""


class LostCountError(AssertionError):
    """The scheduler and the tokens that exist do not agree."""


@dataclasses.dataclass(frozen=True)
class Script:
    """What one request says, and how well it is guessed."""

    stream: tuple[int, ...]
    """Its output tokens, more than it may emit."""
    wrong: tuple[int, ...]
    """At each place a token that is not the one of the stream."""
    accepts: tuple[tuple[int, int], ...]
    """(from this output place on, so many drafts are right), in order, starting at place 0."""

    def drafts(self, place: int, number: int) -> list[int]:
        """What the drafter proposes for the tokens from `place` on."""
        right = [count for start, count in self.accepts if start <= place][-1]
        return [
            (self.stream if at < right else self.wrong)[place + at]
            for at in range(min(number, len(self.stream) - place))
        ]


@dataclasses.dataclass
class Held:
    """The worker's books on a request, in tokens."""

    prompt: int
    known: int
    """Prompt and output that exist."""
    computed: int
    drafts: list[int] = dataclasses.field(default_factory=list)
    unheard: int = 0
    """Rejected drafts that the scheduler cannot know of yet, since their step is in flight."""
    step: int = -1
    """The last step that sampled it."""


@dataclasses.dataclass(frozen=True)
class Verified:
    """The outcome of one step: for each request that was sampled, drafts and accepted drafts."""

    step: int
    drafted: Mapping[str, int]
    accepted: Mapping[str, int]


class Stage:
    """What the driver gives to the worker, and what the worker tells it. There is one, since vLLM
    makes the worker itself."""

    def __init__(self) -> None:
        self.scripts: dict[str, Script] = {}
        self.blocks = 0
        self.on_schedule: Callable[[SchedulerOutput], int] = lambda _output: 0
        """Told each scheduler output as it arrives; the number of the step."""
        self.on_output: Callable[[Verified], None] = lambda _verified: None
        """Told each output at the moment when the engine core takes it."""


STAGE = Stage()


class Late(AsyncModelRunnerOutput):  # type: ignore[misc]
    """An output that is not there until it is asked for, as from a device."""

    def __init__(self, output: Any, taken: Callable[[], None]) -> None:
        self._output, self._taken = output, taken

    def get_output(self) -> Any:
        self._taken()
        return self._output

    def get_kv_connector_output(self) -> None:
        """Asked for from 0.33 on."""


class Asked(Future[Any]):
    """A result that is worked out when it is asked for."""

    def __init__(self, work: Callable[[], Any]) -> None:
        super().__init__()
        self._work = work

    def result(self, timeout: float | None = None) -> Any:
        if not self.done():
            try:
                self.set_result(self._work())
            except BaseException as error:
                self.set_exception(error)
        return super().result(timeout)


class OnDemand:
    """What takes outputs in place of the executor's thread, which releases up to 0.20 have: at the
    moment when the engine core asks, as later releases do, and so in the same order every time."""

    def submit(self, work: Callable[[], Any]) -> Asked:
        return Asked(work)

    def shutdown(self, **_named: Any) -> None:
        pass


class Unused(torch.nn.Module):  # type: ignore[misc]
    """What vLLM looks at to learn what the architecture can do. Never made: nothing is computed.

    Without it, vLLM asks a process of its own that imports the real one, which takes longer than
    the whole rehearsal.
    """

    def __init__(self, vllm_config: Any, prefix: str = "") -> None:
        raise NotImplementedError

    def embed_input_ids(self, input_ids: Any) -> Any:
        raise NotImplementedError

    get_input_embeddings = embed_input_ids  # its name before 0.12

    def forward(self, input_ids: Any, positions: Any, **more: Any) -> Any:
        raise NotImplementedError

    def compute_logits(self, hidden_states: Any, *more: Any) -> Any:
        raise NotImplementedError


class SimulatedWorker(WorkerBase):  # type: ignore[misc]
    """The worker of one engine."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        named.pop("shared_worker_lock", None)
        super().__init__(*arguments, **named)
        self.held: dict[str, Held] = {}
        self.width = self.speculative_config.num_speculative_tokens
        self.is_async = bool(self.scheduler_config.async_scheduling)
        self.waiting: tuple[int, SchedulerOutput] | None = None
        self.drafted: list[str] = []

    # -- what the engine asks for at its start -----------------------------------------------------

    def init_device(self) -> None:
        self.device = torch.device("cpu")

    def load_model(self, **_named: Any) -> None:
        pass

    def get_kv_cache_spec(self) -> dict[str, Any]:
        asked = {
            "block_size": self.cache_config.block_size,
            "num_kv_heads": 1,
            "head_size": 32,
            "dtype": torch.float32,
            "use_mla": False,
        }
        there = {field.name for field in dataclasses.fields(FullAttentionSpec)}
        given = {name: value for name, value in asked.items() if name in there}
        return {"simulated": FullAttentionSpec(**given)}

    def determine_available_memory(self) -> int:
        spec = self.get_kv_cache_spec()["simulated"]
        return int(spec.page_size_bytes * STAGE.blocks)

    def initialize_from_config(self, _config: Any) -> None:
        pass

    def initialize_cache(self, *_numbers: int) -> None:
        pass

    def compile_or_warm_up_model(self) -> Any:
        try:
            from vllm.v1.worker.worker_base import CompilationTimes
        except ImportError:
            return 0.0
        return CompilationTimes(0.0, 0.0)

    def get_supported_tasks(self) -> tuple[str, ...]:
        return ("generate",)

    # -- the steps ---------------------------------------------------------------------------------

    def execute_model(self, scheduled: SchedulerOutput, *_more: Any) -> Any:
        step = STAGE.on_schedule(scheduled)
        self._take_note(scheduled)
        if not scheduled.total_num_scheduled_tokens:
            empty = EMPTY_MODEL_RUNNER_OUTPUT
            return self._handed(empty, Verified(step, {}, {}))
        self.waiting = (step, scheduled)
        if not hasattr(WorkerBase, "sample_tokens"):
            return self.sample_tokens(scheduled)
        return None

    def _take_note(self, scheduled: SchedulerOutput) -> None:
        for name in scheduled.finished_req_ids:
            self.held.pop(name, None)
        for new in scheduled.scheduled_new_reqs:
            prompt = len(new.prompt_token_ids)
            known = len(getattr(new, "prefill_token_ids", None) or new.prompt_token_ids)
            self.held[new.req_id] = Held(prompt, known, new.num_computed_tokens)
        cached = scheduled.scheduled_cached_reqs
        resumed = _resumed(cached)
        outputs = getattr(cached, "num_output_tokens", None)
        for at, name in enumerate(cached.req_ids):
            if name in resumed:
                held = self.held[name]
                if outputs is not None:
                    # Output that was in flight when the request was preempted may be void.
                    held.known = held.prompt + outputs[at]
                held.computed = cached.num_computed_tokens[at]
                held.drafts, held.unheard = [], 0
            elif (
                cached.num_computed_tokens[at] != self.held[name].computed + self.held[name].unheard
            ):
                raise LostCountError(
                    f"the scheduler takes {cached.num_computed_tokens[at]} tokens of {name} as "
                    f"computed, of which {self.held[name].unheard} may turn out as rejected, but "
                    f"{self.held[name].computed} are"
                )

    def sample_tokens(self, grammar: Any) -> Any:
        """Verify the drafts of the step that was executed last, and draft anew."""
        if self.waiting is None:
            raise LostCountError("sampling was asked for with nothing executed")
        (step, scheduled), self.waiting = self.waiting, None
        allowed = _Allowed.of(grammar, scheduled)
        names = list(scheduled.num_scheduled_tokens)
        sampled: list[list[int]] = []
        drafted: dict[str, int] = {}
        accepted: dict[str, int] = {}
        self.drafted = []
        for name in names:
            held = self.held[name]
            rows = scheduled.scheduled_spec_decode_tokens.get(name, [])
            held.computed += scheduled.num_scheduled_tokens[name] - len(rows)
            if held.computed > held.known:
                raise LostCountError(
                    f"step {step} computes {held.computed} tokens of {name}, which has {held.known}"
                )
            if held.computed < held.known:
                sampled.append([])
                held.drafts = []
                continue
            tokens = self._verified(name, held, rows, allowed)
            sampled.append(tokens)
            drafted[name], accepted[name] = len(rows), len(tokens) - 1
            held.step, held.unheard = step, len(rows) - accepted[name]
            held.known += len(tokens)
            held.computed = held.known - 1
            held.drafts = STAGE.scripts[name].drafts(held.known - held.prompt, self.width)
            self.drafted.append(name)
        output = _runner_output(names, sampled)
        return self._handed(output, Verified(step, drafted, accepted))

    def _verified(self, name: str, held: Held, rows: Sequence[int], allowed: _Allowed) -> list[int]:
        """The accepted drafts and the token behind them."""
        script = STAGE.scripts[name]
        place = held.known - held.prompt
        # The scheduler may only know how many there are; those of the grammar it knows.
        drafts = held.drafts[: len(rows)] if self.is_async else list(rows)
        drafts = drafts[: allowed.acceptable.get(name, len(drafts))]
        right = 0
        while right < len(drafts) and drafts[right] == script.stream[place + right]:
            right += 1
        tokens = list(script.stream[place : place + right + 1])
        for at, token in enumerate(tokens):
            if not allowed.allows(name, at, token):
                raise LostCountError(
                    f"the grammar of {name} refuses token {token} at output place {place + at}, "
                    "which it allows"
                )
        return tokens

    def _handed(self, output: Any, verified: Verified) -> Any:
        if self.is_async:
            return Late(output, lambda: self._taken(verified))
        self._taken(verified)
        return output

    def _taken(self, verified: Verified) -> None:
        for name in verified.drafted:
            if name in self.held and self.held[name].step == verified.step:
                self.held[name].unheard = 0
        STAGE.on_output(verified)

    def take_draft_token_ids(self) -> Any:
        # Copies, since the scheduler shortens and pads what it is given.
        return DraftTokenIds(
            list(self.drafted),
            [list(self.held[name].drafts) if name in self.held else [] for name in self.drafted],
        )


@dataclasses.dataclass(frozen=True)
class _Allowed:
    """The tokens that grammars allow in a step, a bit each, a row for each token to sample."""

    first_row: Mapping[str, int]
    bits: Any
    acceptable: Mapping[str, int]
    """How many leading drafts may be accepted, where vLLM says so."""

    @classmethod
    def of(cls, grammar: Any, scheduled: SchedulerOutput) -> _Allowed:
        bits = getattr(grammar, "grammar_bitmask", None)
        if bits is None:
            return cls({}, None, {})
        names = grammar.structured_output_request_ids
        names = sorted(names, key=lambda name: names[name]) if isinstance(names, dict) else names
        needed = [1 + len(scheduled.scheduled_spec_decode_tokens.get(name, ())) for name in names]
        if len(bits) != sum(needed):
            # From 0.33 on each request has as many rows as it could need.
            needed = [len(bits) // len(names)] * len(names)
        first = {name: sum(needed[:at]) for at, name in enumerate(names)}
        acceptable: dict[str, int] = {}
        if hasattr(grammar, "num_acceptable_drafts"):
            numbers = grammar.num_acceptable_drafts or [0] * len(names)
            acceptable = dict(zip(names, numbers, strict=True))
        return cls(first, bits, acceptable)

    def allows(self, name: str, at: int, token: int) -> bool:
        if name not in self.first_row:
            return True
        word = int(self.bits[self.first_row[name] + at][token // 32])
        return bool(word >> (token % 32) & 1)


def _resumed(cached: Any) -> set[str]:
    """The requests that come back from a preemption; releases have said so in two ways."""
    named = getattr(cached, "resumed_req_ids", None)
    if named is not None:
        return set(named)
    flags = cached.resumed_from_preemption
    return {name for name, flag in zip(cached.req_ids, flags, strict=True) if flag}


def _runner_output(names: list[str], sampled: list[list[int]]) -> Any:
    given: dict[str, Any] = {
        "req_ids": names,
        "req_id_to_index": {name: at for at, name in enumerate(names)},
        "sampled_token_ids": sampled,
    }
    late: dict[str, Any] = {"logprobs": None, "prompt_logprobs_dict": {}, "pooler_output": []}
    for field in dataclasses.fields(ModelRunnerOutput):
        if field.name == "sampled_token_ids" and "ndarray" in str(field.type):
            import numpy

            given[field.name] = [numpy.array(tokens, dtype=numpy.int64) for tokens in sampled]
        is_required = (
            field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        )
        if is_required and field.name not in given:
            given[field.name] = late[field.name]
    return ModelRunnerOutput(**given)
