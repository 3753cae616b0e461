"""The scenarios of a smoke decode: what each is for, and where it can run.

How they are done is in `inside/decode.py` and `inside/serve.py`, which know nothing of this tool.
"""

from __future__ import annotations

from dataclasses import dataclass

from vllm_series.smoke.device import Device


@dataclass(frozen=True, slots=True)
class Scenario:
    """One way to use the engine. `is_greedy` says that its tokens hang on nothing but the model,
    `needs_gpu` that the CPU has no such thing, `is_timed` that it is repeated for its time."""

    name: str
    what: str
    is_greedy: bool = True
    needs_gpu: bool = False
    is_timed: bool = False
    script: str = "decode.py"
    process: str = "plain"
    """Scenarios with the same word share a process."""
    like: str | None = None
    """The scenario whose tokens these are too: the same prompts, decoded another way."""


SCENARIOS = (
    Scenario("greedy", "one prompt, greedy"),
    Scenario("batch", "eight prompts at once", is_timed=True),
    Scenario("prefix", "a second prompt that hits the prefix cache"),
    Scenario("structured", "output by a JSON schema"),
    Scenario("sampling", "sampling with a seed", is_greedy=False),
    Scenario("abort", "one of four requests is aborted midway"),
    Scenario("chunked", "prompts that are cut over several steps"),
    Scenario(
        "ngram", "speculation with an n-gram drafter, eight prompts", is_timed=True, like="batch"
    ),
    Scenario("draft", "speculation with a draft model", like="batch"),
    Scenario("graphs", "CUDA graphs", needs_gpu=True, is_timed=True, process="graphs"),
    Scenario(
        "async",
        "asynchronous scheduling with a draft model",
        needs_gpu=True,
        is_timed=True,
        process="async",
        like="batch",
    ),
    Scenario("serve", "vllm serve, a streamed chat completion", script="serve.py", process="serve"),
)
PROCESSES = tuple(dict.fromkeys(scenario.process for scenario in SCENARIOS))
NAMES = tuple(scenario.name for scenario in SCENARIOS)
REPEATS = 5
"""How often a timed scenario is repeated for its time."""


def unavailable(scenario: Scenario, device: Device) -> str | None:
    """Why a scenario is not tried on a device; None where it is."""
    if scenario.needs_gpu and not device.is_gpu:
        return "needs a GPU"
    return None
