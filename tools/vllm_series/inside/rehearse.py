"""Drive vLLM's own scheduler and engine core for some hundred steps, with a model that is a script.

Run inside a vLLM environment: `python rehearse.py JOB RESULT`. The job (JSON) lists modes and
scenarios, the result (JSON) what the scheduler did in each step. vLLM's own in-process client steps
its own engine core, which calls its own scheduler; only the worker is ours (`simulated.py`). So
what is not called here is not called in an engine either.

No device is touched: the platform is the CPU's, also where vLLM was built for another one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import hashlib
import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

STEPS = 4000
"""No scenario takes a tenth of this; one that does is stuck."""
GRAMMAR_SECONDS = 60
STOP = 2
"""The token that ends a request early; END of `model.py`."""
FIRST_WORD = 10
WORDS = 200
"""Ordinary tokens: WORDS of them from FIRST_WORD on. Others are special or wrong."""
OPEN_LIST = {"type": "array", "items": {"type": "integer"}}


def main(job_path: str, result_path: str) -> None:
    job = json.loads(Path(job_path).read_text())
    result: dict[str, Any] = {"schema": 1, "version": None, "not_run": None, "runs": []}
    try:
        result["version"] = _ready()
    except Exception as error:
        result["not_run"] = f"{type(error).__name__}: {_first_line(error)}"
        result["trace"] = traceback.format_exc()
    else:
        with tempfile.TemporaryDirectory(prefix="rehearse-") as scratch:
            folder = Path(scratch) / "model"
            folder.mkdir()
            import model

            model.write_config(folder, model.write_tokenizer(folder))
            for mode in job["modes"]:
                for scenario in job["scenarios"]:
                    result["runs"].append(_one(folder, job, mode, scenario))
    Path(result_path).write_text(json.dumps(result))


def _ready() -> str:
    """Import what is needed, on the CPU's platform; the version of vLLM."""
    # One process, so that the scheduler is at hand; no report of usage, no look at a hub.
    os.environ |= {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",
    }
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    # A play is over in seconds; what engines collect and freeze at their start and end costs more.
    gc.disable()
    gc.collect = lambda generation=2: 0
    import vllm.platforms
    from vllm.platforms.cpu import CpuPlatform

    class NoDevice(CpuPlatform):  # type: ignore[misc]
        """The CPU's platform, with no kernels to replace: none is called."""

        @classmethod
        def register_triton_kernel_overrides(cls) -> None:
            pass

    vllm.platforms._current_platform = NoDevice()
    import simulated
    import vllm
    import vllm.v1.core.sched.async_scheduler
    import vllm.v1.engine.core_client
    from vllm.model_executor.models.registry import ModelRegistry

    ModelRegistry.register_model("LlamaForCausalLM", simulated.Unused)
    return str(vllm.__version__)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [""])[0]


def _one(folder: Path, job: dict[str, Any], mode: str, scenario: dict[str, Any]) -> dict[str, Any]:
    """One scenario in one mode; an error of the engine is a result."""
    run: dict[str, Any] = {
        "scenario": scenario["name"],
        "mode": mode,
        "scheduler": None,
        "ended": "crashed",
        "error": None,
        "trace": None,
        "seconds": 0.0,
    }
    started = time.monotonic()
    play = None
    try:
        play = Play(folder, job["draft"], mode, scenario)
        run["scheduler"] = type(play.scheduler).__qualname__
        run["ended"] = "finished" if play.to_the_end() else "stuck"
    except Exception as error:
        run["error"] = f"{type(error).__name__}: {_first_line(error)}"
        run["trace"] = traceback.format_exc()
    finally:
        run["seconds"] = round(time.monotonic() - started, 3)
        if play is not None:
            run |= {
                "events": play.events,
                "emitted": play.emitted,
                "finished": play.finished,
                "calls": play.calls,
                "stats": play.stats,
            }
            with contextlib.suppress(Exception):
                play.client.shutdown()
    return run


class Play:
    """One engine and the requests that it is given."""

    def __init__(self, folder: Path, draft: int, mode: str, scenario: dict[str, Any]) -> None:
        from simulated import STAGE

        self.stage = STAGE
        self.events: list[dict[str, Any]] = []
        self.emitted: dict[str, list[int]] = {}
        self.finished: dict[str, str] = {}
        self.stats = {"drafts": 0, "draft_tokens": 0, "accepted_tokens": 0}
        self.calls: dict[str, int] = {}
        self.output_of: dict[str, Any] | None = None
        self.executed = 0
        self.to_come = sorted(scenario["requests"], key=lambda one: one["arrives"])
        self.requests = {one["name"]: one for one in self.to_come}
        self.to_abort = {one["name"]: one for one in self.to_come if one["abort_after"] is not None}
        STAGE.scripts = {one["name"]: _script(folder, one) for one in self.to_come}
        STAGE.blocks = scenario["blocks"]
        STAGE.on_schedule, STAGE.on_output = self._scheduled, self._taken
        self.client = _client(folder, draft, mode, scenario)
        self.core = self.client.engine_core
        self.scheduler = self.core.scheduler
        for name in ("update_draft_token_ids", "update_draft_token_ids_in_output"):
            self._count_calls(name)

    def _count_calls(self, name: str) -> None:
        """Count the calls of a method that the engine core makes."""
        method = getattr(self.scheduler, name, None)
        if method is None:
            return
        self.calls[name] = 0

        def counted(*arguments: Any, **named: Any) -> Any:
            self.calls[name] += 1
            return method(*arguments, **named)

        setattr(self.scheduler, name, counted)

    def to_the_end(self) -> bool:
        """Step until every request is finished; False where that does not come."""
        for turn in range(STEPS):
            while self.to_come and self.to_come[0]["arrives"] <= turn:
                self._add(self.to_come.pop(0))
            if not self.to_come and not self._is_busy():
                return True
            self._abort("between")
            self.running = [one.request_id for one in self.scheduler.running]
            self._note(self.client.get_output())
        return False

    def _is_busy(self) -> bool:
        return self.scheduler.has_requests() or bool(getattr(self.core, "batch_queue", None))

    def _add(self, one: dict[str, Any]) -> None:
        self.client.add_request(_request(one))
        self.emitted[one["name"]] = []
        # A grammar is compiled in a thread. Waiting for it makes each run take the same steps.
        asked = self.scheduler.requests[one["name"]].structured_output_request
        until = time.monotonic() + GRAMMAR_SECONDS
        while asked is not None and not asked.is_grammar_ready:
            if time.monotonic() > until:
                raise TimeoutError(f"no grammar after {GRAMMAR_SECONDS} s")
            time.sleep(0.001)

    def _abort(self, when: str) -> None:
        """Abort the requests that have said enough: between two steps, as a client in the same
        process does, or while a step is executed, as one that is gone does."""
        due = [
            name
            for name, one in self.to_abort.items()
            if one["abort_when"] == when
            and name in self.emitted
            and len(self.emitted[name]) >= one["abort_after"]
        ]
        for name in due:
            del self.to_abort[name]
        if not due:
            return
        queue = getattr(self.core, "aborts_queue", None)
        if when == "during" and queue is not None:
            queue.put(due)
        else:
            self.client.abort_requests(due)
        self.finished |= dict.fromkeys(due, "abort")

    # -- what is seen ------------------------------------------------------------------------------

    def _scheduled(self, output: Any) -> int:
        number = self.executed
        self.executed += 1
        drafts = output.scheduled_spec_decode_tokens
        self.events.append(
            {
                "event": "scheduled",
                "step": number,
                "running": self.running,
                "tokens": dict(output.num_scheduled_tokens),
                "widths": {name: len(drafts.get(name, ())) for name in output.num_scheduled_tokens},
                "preempted": sorted(getattr(output, "preempted_req_ids", None) or ()),
                "digests": _digests(output),
            }
        )
        self._abort("during")
        return number

    def _taken(self, verified: Any) -> None:
        self.output_of = {
            "event": "output",
            "step": verified.step,
            "drafted": dict(verified.drafted),
            "accepted": dict(verified.accepted),
        }

    def _note(self, outputs: Any) -> None:
        emitted: dict[str, list[int]] = {}
        for one in getattr(outputs, "outputs", None) or ():
            tokens = [int(token) for token in one.new_token_ids]
            emitted[one.request_id] = tokens
            self.emitted[one.request_id] += tokens
            if one.finish_reason is not None:
                self.finished.setdefault(one.request_id, str(one.finish_reason))
        stats = getattr(outputs, "scheduler_stats", None)
        drafting = getattr(stats, "spec_decoding_stats", None)
        if drafting is not None:
            self.stats["drafts"] += drafting.num_drafts
            self.stats["draft_tokens"] += drafting.num_draft_tokens
            self.stats["accepted_tokens"] += drafting.num_accepted_tokens
        if self.output_of is not None:
            self.events.append({**self.output_of, "emitted": emitted})
            self.output_of = None


def _digests(output: Any) -> dict[str, str]:
    """A digest of each field of a scheduler output, so that two runs can be held side by side."""
    return {
        field.name: hashlib.sha256(
            json.dumps(_plain(getattr(output, field.name)), sort_keys=True).encode()
        ).hexdigest()[:16]
        for field in dataclasses.fields(output)
    }


def _plain(value: Any) -> Any:
    """The value in JSON's types, without an order where it has none."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)
        }
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted((_plain(one) for one in value), key=repr)
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return repr(value)


def _script(folder: Path, one: dict[str, Any]) -> Any:
    from simulated import Script

    number = one["max_tokens"] + 64
    seed = int(hashlib.sha256(one["name"].encode()).hexdigest(), 16)
    if one["grammar"]:
        from tokenizers import Tokenizer

        words = Tokenizer.from_file(str(folder / "tokenizer.json"))
        text = list(_list_text(seed, number))
        stream = [words.token_to_id(letter) for letter in text]
        # Some wrong guesses break the grammar, some only guess another digit.
        other, letter = words.token_to_id("7"), words.token_to_id("x")
        wrong = [other if at % 3 and text[at] in "123" else letter for at in range(number)]
    else:
        stream = [FIRST_WORD + (seed >> (at % 97)) % 89 + at % 100 for at in range(number)]
        wrong = [token + 1 for token in stream]
        if one["stop_after"] is not None:
            stream[one["stop_after"]] = STOP
    return Script(tuple(stream), tuple(wrong), tuple((at, n) for at, n in one["accepts"]))


def _list_text(seed: int, number: int) -> Iterator[str]:
    """A list of whole numbers in JSON, longer than is asked for."""
    yield "["
    for at in range(number - 1):
        yield "," if at % 4 == 3 else str(1 + (seed >> at % 91) % 6)


def _request(one: dict[str, Any]) -> Any:
    from vllm.sampling_params import SamplingParams
    from vllm.v1.engine import EngineCoreRequest

    named: dict[str, Any] = {}
    if one["grammar"]:
        named = _grammar()
    sampling = SamplingParams(
        temperature=0.0,
        max_tokens=one["max_tokens"],
        ignore_eos=True,
        stop_token_ids=[STOP],
        **named,
    )
    shared = [FIRST_WORD + at % 31 for at in range(one["shared_prompt"])]
    start = int(hashlib.sha256(one["name"].encode()).hexdigest(), 16) % WORDS
    own = [FIRST_WORD + (start + 7 * at) % WORDS for at in range(one["prompt"])]
    known = {
        "request_id": one["name"],
        "prompt_token_ids": shared + own,
        "sampling_params": sampling,
        "arrival_time": 0.0,
    }
    fields = EngineCoreRequest.__struct_fields__
    required = fields[: len(fields) - len(EngineCoreRequest.__struct_defaults__)]
    return EngineCoreRequest(**{**dict.fromkeys(required), **known})


def _grammar() -> dict[str, Any]:
    """Sampling parameters for a list of whole numbers."""
    try:
        from vllm.sampling_params import StructuredOutputsParams
    except ImportError:
        from vllm.sampling_params import GuidedDecodingParams

        asked = GuidedDecodingParams(json=OPEN_LIST)
        asked.backend = "xgrammar"
        return {"guided_decoding": asked}
    asked = StructuredOutputsParams(json=OPEN_LIST)
    asked._backend = "xgrammar"  # what vLLM's input processor would choose
    return {"structured_outputs": asked}


def _client(folder: Path, draft: int, mode: str, scenario: dict[str, Any]) -> Any:
    """vLLM's in-process client of a new engine core."""
    from simulated import OnDemand
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.engine.core_client import InprocClient
    from vllm.v1.executor.uniproc_executor import UniProcExecutor

    is_async = mode == "async"
    arguments = EngineArgs(
        model=str(folder),
        dtype="float32",
        load_format="dummy",
        enforce_eager=True,
        worker_cls="simulated.SimulatedWorker",
        distributed_executor_backend="uni",
        block_size=scenario["block_size"],
        num_gpu_blocks_override=scenario["blocks"],
        enable_prefix_caching=scenario["prefix_caching"],
        max_model_len=scenario["max_model_len"],
        max_num_seqs=scenario["max_running"],
        max_num_batched_tokens=scenario["max_step_tokens"],
        async_scheduling=is_async,
        speculative_config={
            "method": "draft_model",
            "model": str(folder),
            "num_speculative_tokens": draft,
        },
        disable_log_stats=False,
    )
    config = arguments.create_engine_config()
    # The CPU's platform turns it off behind vLLM's own check, since a CPU gains nothing by it.
    config.scheduler_config.async_scheduling = is_async
    client = InprocClient(config, UniProcExecutor, log_stats=True)
    executor = client.engine_core.model_executor
    if getattr(executor, "async_output_thread", None) is not None:
        executor.async_output_thread.shutdown()
        executor.async_output_thread = OnDemand()
    return client


if __name__ == "__main__":
    main(*sys.argv[1:])
