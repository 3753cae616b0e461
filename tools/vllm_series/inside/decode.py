"""Decode with the real engine, and write down all that can be compared.

Run inside a vLLM environment: `python decode.py JOB RESULT`. The job (JSON) names the model, the
device, the scenarios, and how often each is repeated for its time. The result has a line of JSON
for each thing that happens (a scenario starts, ends, fails), written at once, so that a crash of
the process leaves what was known before it. Standard error has a line before and after each
scenario, which parts the log.

The engine runs in this process, so that the order of its steps, and with it every counter, is the
same each time. A scenario that does not do what its name says (no cache hit, no drafts) fails.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

MARK = "@@ vllm-series scenario"
WIDTH = 7
"""Tokens that the n-gram drafter proposes."""
DRAFT_WIDTH = 4
TOKENS = 64
"""How many tokens a request decodes."""
BLOCKS = 256
"""Of the key-value cache, on a CPU too: filling more with zeros is half the start of an engine."""
SMALL_STEP = 32
"""Tokens a step where long prompts are to be cut."""
PROMPTS = (
    "the sun rose and the sun set and the sun rose and the sun set and the",
    "one two three one two three one two three one two three one two",
    "a list: red, green, blue, red, green, blue, red, green, blue, red,",
    "def f(x): return x + 1; def g(x): return x + 1; def h(x): return",
    "we went up the hill and down the hill and up the hill and down",
    "if it rains then it pours; if it rains then it pours; if it",
    "in the beginning was the word and the word was in the beginning",
    "0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4",
)
LONG = "the quick brown fox jumps over the lazy dog, and the lazy dog does not mind at all. " * 4
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "colour": {"enum": ["red", "green", "blue"]},
        "size": {"enum": [1, 2, 3]},
        "is_round": {"type": "boolean"},
    },
    "required": ["colour", "size", "is_round"],
    "additionalProperties": False,
}


@dataclass
class Seen:
    """What one run of a scenario gave: tokens and text of each request, and remarks."""

    tokens: list[list[int]]
    texts: list[str]
    prompts: list[list[int]]
    facts: dict[str, Any]


class ScenarioError(Exception):
    """A scenario that ran, but did not do what its name says."""


def engine_arguments(kind: str, job: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of `vllm.LLM` for one kind of engine."""
    arguments: dict[str, Any] = {
        "model": job["model"],
        "dtype": job["dtype"],
        "max_model_len": 1024,
        "max_num_seqs": 16,
        "num_gpu_blocks_override": BLOCKS,
        "enforce_eager": True,
        "enable_prefix_caching": True,
        "disable_log_stats": False,
        "seed": 0,
        **_compact_json(),
    }
    if job["device"] != "cpu":
        arguments["gpu_memory_utilization"] = 0.4
    more: dict[str, dict[str, Any]] = {
        "plain": {},
        "chunked": {"max_num_batched_tokens": SMALL_STEP, "enable_chunked_prefill": True},
        "ngram": {
            "speculative_config": {
                "method": "ngram",
                "num_speculative_tokens": WIDTH,
                "prompt_lookup_max": 4,
                "prompt_lookup_min": 1,
            }
        },
        "draft": {"speculative_config": _draft(job)},
        "graphs": {"enforce_eager": False},
        "async": {
            "enforce_eager": False,
            "async_scheduling": True,
            "speculative_config": _draft(job),
        },
    }
    return {**arguments, **more[kind]}


def _compact_json() -> dict[str, Any]:
    """No white space that a schema does not ask for: random weights would write nothing else."""
    from vllm import EngineArgs

    if "structured_outputs_config" in EngineArgs.__dataclass_fields__:
        config = {"backend": "xgrammar", "disable_any_whitespace": True}
        return {"structured_outputs_config": config}
    return {
        "guided_decoding_backend": "xgrammar",
        "guided_decoding_disable_any_whitespace": True,
    }


def _draft(job: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "method": "draft_model",
        "model": job["draft"],
        "num_speculative_tokens": DRAFT_WIDTH,
        "max_model_len": 1024,
    }


# -- scenarios ------------------------------------------------------------------------------------


def greedy(llm: Any) -> Seen:
    return generate(llm, PROMPTS[:1])


def batch(llm: Any) -> Seen:
    return generate(llm, PROMPTS)


def chunked(llm: Any) -> Seen:
    seen = generate(llm, [word + LONG for word in ("a ", "b ", "c ", "d ")])
    shortest = min(len(prompt) for prompt in seen.prompts)
    if shortest <= 2 * SMALL_STEP:
        raise ScenarioError(f"a prompt of {shortest} tokens needs no third step")
    return seen


def prefix(llm: Any) -> Seen:
    first = generate(llm, [LONG * 2 + "first"])
    before = counters(llm).get("vllm:prefix_cache_hits", 0)
    again = generate(llm, [LONG * 2 + "again"])
    hits = counters(llm).get("vllm:prefix_cache_hits", 0) - before
    if not hits:
        raise ScenarioError("the second prompt hit nothing in the prefix cache")
    return joined(first, again, {"hits": hits})


def structured(llm: Any) -> Seen:
    # One by one: a thread compiles the grammar, so two would join in the same step, or not.
    first, second = (generate(llm, [prompt], **_guided(SCHEMA)) for prompt in PROMPTS[:2])
    seen = joined(first, second, {})
    for text in seen.texts:
        value = json.loads(text)
        if set(value) != set(SCHEMA["required"]):
            raise ScenarioError(f"{text!r} is not what the schema asks for")
    return seen


def _guided(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The sampling parameters' argument for a schema; its name changed with 0.12."""
    try:
        from vllm.sampling_params import StructuredOutputsParams
    except ImportError:
        from vllm.sampling_params import GuidedDecodingParams

        return {"guided_decoding": GuidedDecodingParams(json=schema), "ignore_eos": False}
    return {"structured_outputs": StructuredOutputsParams(json=schema), "ignore_eos": False}


def speculative(llm: Any) -> Seen:
    seen = generate(llm, PROMPTS)
    drafted = counters(llm).get("vllm:spec_decode_num_draft_tokens", 0)
    accepted = counters(llm).get("vllm:spec_decode_num_accepted_tokens", 0)
    if not drafted or not accepted:
        raise ScenarioError(f"{drafted} tokens drafted, {accepted} accepted: nothing to compare")
    return seen


def sampling(llm: Any) -> Seen:
    return generate(llm, PROMPTS[:4], temperature=0.8, top_p=0.95, seed=7)


def abort(llm: Any) -> Seen:
    """One of four requests is aborted after some steps; the others go on as if it had not been."""
    engine = llm.llm_engine
    for at, prompt in enumerate(PROMPTS[:4]):
        engine.add_request(f"abort-{at}", prompt, parameters())
    done: dict[str, Any] = {}
    for step in range(1000):
        if not engine.has_unfinished_requests():
            break
        if step == 10:
            engine.abort_request(["abort-1"])
        for output in engine.step():
            if output.finished:
                done[output.request_id.split("abort-")[-1].split("-")[0]] = output
    left = sorted(
        name for name, output in done.items() if len(output.outputs[0].token_ids) == TOKENS
    )
    if left != ["0", "2", "3"]:
        raise ScenarioError(f"requests {left} came to their end, not 0, 2 and 3")
    return collected([done[name] for name in left], {})


ENGINE_OF: dict[str, str] = {
    "greedy": "plain",
    "batch": "plain",
    "prefix": "plain",
    "structured": "plain",
    "sampling": "plain",
    "abort": "plain",
    "chunked": "chunked",
    "ngram": "ngram",
    "draft": "draft",
    "graphs": "graphs",
    "async": "async",
}
"""Each scenario's kind of engine; those of a kind share one."""
RUN: dict[str, Callable[[Any], Seen]] = {
    "greedy": greedy,
    "batch": batch,
    "prefix": prefix,
    "structured": structured,
    "sampling": sampling,
    "abort": abort,
    "chunked": chunked,
    "ngram": speculative,
    "draft": speculative,
    "graphs": batch,
    "async": speculative,
}


def parameters(**more: Any) -> Any:
    from vllm import SamplingParams

    return SamplingParams(**{"temperature": 0.0, "max_tokens": TOKENS, "ignore_eos": True, **more})


def generate(llm: Any, prompts: Any, **more: Any) -> Seen:
    return collected(llm.generate(list(prompts), parameters(**more), use_tqdm=False), {})


def collected(outputs: Any, facts: dict[str, Any]) -> Seen:
    return Seen(
        [list(output.outputs[0].token_ids) for output in outputs],
        [output.outputs[0].text for output in outputs],
        [list(output.prompt_token_ids) for output in outputs],
        facts,
    )


def joined(one: Seen, other: Seen, facts: dict[str, Any]) -> Seen:
    return Seen(
        one.tokens + other.tokens, one.texts + other.texts, one.prompts + other.prompts, facts
    )


# -- metrics --------------------------------------------------------------------------------------


def counters(llm: Any) -> dict[str, float]:
    """`llm.get_metrics()`: every counter, summed over its labels."""
    return {name: value for name, value in snapshot(llm).items() if isinstance(value, (int, float))}


def snapshot(llm: Any) -> dict[str, Any]:
    """Counters by name as numbers, vectors as lists of them, histograms as `count`, `sum` and
    `buckets`; summed over labels. Gauges tell of a moment and are left out."""
    from vllm.v1.metrics import reader

    found: dict[str, Any] = {}
    for metric in llm.get_metrics():
        if isinstance(metric, reader.Counter):
            found[metric.name] = found.get(metric.name, 0) + metric.value
        elif isinstance(metric, reader.Vector):
            found[metric.name] = added(found.get(metric.name), list(metric.values))
        elif isinstance(metric, reader.Histogram):
            whole = {"count": metric.count, "sum": metric.sum, "buckets": dict(metric.buckets)}
            found[metric.name] = added(found.get(metric.name), whole)
    return found


def added(one: Any, other: Any) -> Any:
    """Two samples of one metric, with other labels each, as one."""
    if one is None:
        return other
    if isinstance(other, dict):
        return {key: added(one.get(key), value) for key, value in other.items()}
    if isinstance(other, list):
        return [added(a, b) for a, b in zip(one, other, strict=True)]
    return one + other


def since(after: Any, before: Any) -> Any:
    """What was counted between two snapshots of one metric."""
    if before is None:
        return after
    if isinstance(after, dict):
        return {key: since(value, before.get(key)) for key, value in after.items()}
    if isinstance(after, list):
        return [since(value, old) for value, old in zip(after, before, strict=False)]
    return after - before


# -- one job --------------------------------------------------------------------------------------


class Writer:
    """Lines of JSON, each of them on the disk before the next thing happens."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def __call__(self, event: str, **more: Any) -> None:
        self._file.write(json.dumps({"event": event, **more}) + "\n")
        self._file.flush()


def mark(scenario: str, what: str) -> None:
    sys.stdout.flush()
    sys.stderr.write(f"\n{MARK} {scenario} {what}\n")
    sys.stderr.flush()


def run(job: Mapping[str, Any], write: Writer) -> None:
    """All scenarios of a job, an engine a kind. Stops behind the first that fails: what an engine
    that crashed leaves in the process could make the next one fail."""
    import vllm

    write("start", vllm=vllm.__version__, file=vllm.__file__, pid=os.getpid())
    kinds = list(dict.fromkeys(ENGINE_OF[name] for name in job["scenarios"]))
    # 0.32 cannot load a draft model in a process that had another engine before.
    kinds.sort(key=lambda kind: kind != "draft")
    for kind in kinds:
        names = [name for name in job["scenarios"] if ENGINE_OF[name] == kind]
        llm: Any = None
        for at, name in enumerate(names):
            mark(name, "starts")
            write("scenario", scenario=name, engine=kind)
            try:
                since_start = time.perf_counter()
                if llm is None:
                    llm = started(kind, job)
                engine_seconds = time.perf_counter() - since_start if at == 0 else 0.0
                write("ended", scenario=name, engine_seconds=engine_seconds, **once(llm, name, job))
            except Exception as error:
                write("failed", scenario=name, **told(error))
                traceback.print_exc()
                mark(name, "failed")
                return
            mark(name, "ends")
        if kind != kinds[-1] or job.get("probes"):
            stop(llm)
        llm = None
    if job.get("probes"):
        llm = started("plain", job)
        for probe in job["probes"]:
            write("probed", **probed(llm, probe))


def started(kind: str, job: Mapping[str, Any]) -> Any:
    """An engine. What is there before it is set aside first: its start and its end ask for whole
    collections, and each would walk over a million objects that stay for good."""
    gc.disable()
    from vllm import LLM

    gc.freeze()
    gc.enable()
    return LLM(**engine_arguments(kind, job))


def once(llm: Any, name: str, job: Mapping[str, Any]) -> dict[str, Any]:
    """Run a scenario, then again for its time; what is compared is the first run alone."""
    llm.reset_prefix_cache()
    before = snapshot(llm)
    seen = RUN[name](llm)
    after = snapshot(llm)
    counted = {key: since(value, before.get(key)) for key, value in after.items()}
    times = []
    for _ in range(job["repeats"] if name in job["timed"] else 0):
        llm.reset_prefix_cache()
        started = time.perf_counter()
        RUN[name](llm)
        times.append(time.perf_counter() - started)
    return {
        "tokens": seen.tokens,
        "texts": seen.texts,
        "prompts": seen.prompts,
        "facts": seen.facts,
        "metrics": counted,
        "seconds": times,
    }


def probed(llm: Any, probe: Mapping[str, Any]) -> dict[str, Any]:
    """How far apart two tokens are behind a prompt: the gap of their log-probabilities, which is
    that of their logits; None where one is not among the likeliest twenty."""
    first, second = probe["tokens"]
    wanted = parameters(max_tokens=1, logprobs=20)
    [output] = llm.generate([{"prompt_token_ids": probe["prompt"]}], wanted, use_tqdm=False)
    found = output.outputs[0].logprobs[0]
    values = {token: found[token].logprob for token in (first, second) if token in found}
    gap = abs(values[first] - values[second]) if len(values) == 2 else None
    return {**probe, "gap": gap}


def told(error: BaseException) -> dict[str, Any]:
    """An exception and those that led to it: the frames of all, outermost first."""
    frames: list[dict[str, Any]] = []
    for one in _chain(error):
        frames += [
            {"file": frame.filename, "line": frame.lineno, "function": frame.name}
            for frame in traceback.extract_tb(one.__traceback__)
        ]
    return {"type": type(error).__name__, "message": str(error)[:2000], "frames": frames}


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def stop(llm: Any) -> None:
    """Give back what an engine holds, so that the next one in this process can have it."""
    core = getattr(llm.llm_engine, "engine_core", None)
    if core is not None and hasattr(core, "shutdown"):
        core.shutdown()
    del core, llm
    gc.collect()


def end_with_parent(parent: int, clean: Callable[[], None] = lambda: None) -> None:
    """Whoever started this, a process by its number, may be killed; nobody would wait for the
    result then."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        clean()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def main(job_file: str, result_file: str) -> None:
    job = json.loads(Path(job_file).read_text("utf-8"))
    end_with_parent(job["parent"])
    with Path(result_file).open("w", encoding="utf-8") as file:
        write = Writer(file)
        run(job, write)
        write("end")
        sys.stdout.flush()
        sys.stderr.flush()
        # The last engine ends with its process; taking it apart first takes longer than its start.
        os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
