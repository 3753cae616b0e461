"""What is rehearsed: small plays for the scheduler, each about one thing that happens to requests.

Lengths are in tokens, `arrives` is a step of the engine. Nothing here is random, so two runs differ
only where the code differs. Names of requests seed what they say (`inside/rehearse.py`).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

DRAFT = 7
"""Tokens that the drafter proposes for each request and step."""
MODES = ("sync", "async")
"""vLLM's two ways of scheduling: step by step, or one step ahead of the model."""

Accepts = tuple[tuple[int, int], ...]
LITTLE: Accepts = ((0, 1),)
SOME: Accepts = ((0, 3),)
ALL: Accepts = ((0, DRAFT),)
NONE: Accepts = ((0, 0),)
MIXED = (LITTLE, SOME, ALL, NONE)


@dataclass(frozen=True)
class Asked:
    """One request."""

    name: str
    accepts: Accepts
    """(from this output place on, so many of the drafts are right), in order, from place 0."""
    arrives: int = 0
    prompt: int = 20
    shared_prompt: int = 0
    """Tokens before the prompt that all requests have in common."""
    max_tokens: int = 120
    stop_after: int | None = None
    """The output place at which the model says its stop token."""
    abort_after: int | None = None
    """Aborted as soon as so many tokens have come."""
    abort_when: str = "between"
    """`between` two steps, or `during` one."""
    grammar: bool = False
    """Whether its output must be a list of whole numbers in JSON."""


@dataclass(frozen=True)
class Scenario:
    """A few requests and the engine that they meet."""

    name: str
    about: str
    requests: tuple[Asked, ...]
    blocks: int = 600
    """Size of the KV cache."""
    block_size: int = 16
    prefix_caching: bool = False
    max_model_len: int = 512
    max_running: int = 32
    max_step_tokens: int = 2048

    def as_job(self) -> dict[str, Any]:
        return asdict(self)


def _group(
    number: int, prefix: str, accepts: Accepts | None = None, **alike: Any
) -> tuple[Asked, ...]:
    """Requests that differ in how well they are guessed, where `accepts` does not say it."""
    return tuple(
        replace(Asked(f"{prefix}{at}", accepts or MIXED[at % len(MIXED)]), **alike)
        for at in range(number)
    )


SCENARIOS = (
    Scenario("alone", "one request", _group(1, "only", accepts=((0, 1), (60, DRAFT)))),
    Scenario("batch", "eight requests, guessed well and badly", _group(8, "batch")),
    Scenario(
        "many",
        "32 requests that come and end at different times",
        tuple(
            replace(one, arrives=2 * at, max_tokens=40 + 7 * (at % 13))
            for at, one in enumerate(_group(32, "many"))
        ),
    ),
    Scenario(
        "change",
        "six requests whose text becomes easy, and hard again",
        _group(6, "change", accepts=((0, 1), (60, DRAFT), (150, 0)), max_tokens=220),
    ),
    Scenario(
        "preempt",
        "ten requests in a cache that holds half of them",
        _group(10, "preempt", max_tokens=150),
        blocks=50,
    ),
    Scenario(
        "abort",
        "eight requests, half of them given up, between steps and during one",
        tuple(
            replace(one, abort_after=30 + 5 * at, abort_when="during" if at % 4 else "between")
            if at % 2 == 0
            else one
            for at, one in enumerate(_group(8, "abort"))
        ),
    ),
    Scenario(
        "stop",
        "eight requests that end by a stop token, most of them inside a verified row",
        tuple(replace(one, stop_after=40 + 9 * at) for at, one in enumerate(_group(8, "stop"))),
    ),
    Scenario(
        "chunked",
        "long prompts that are computed in pieces, beside requests that decode",
        (*_group(6, "short"), *_group(3, "long", prompt=300, arrives=5, max_tokens=80)),
        max_step_tokens=128,
    ),
    Scenario(
        "cached",
        "requests whose prompt is in the prefix cache, all but the token that starts a decode",
        tuple(
            replace(one, prompt=0, shared_prompt=65, arrives=0 if at < 5 else 10 + at)
            for at, one in enumerate(_group(10, "cached"))
        ),
        prefix_caching=True,
    ),
    Scenario(
        "grammar",
        "six requests with a grammar, and three without",
        (*_group(6, "list", grammar=True), *_group(3, "free")),
    ),
)


def named(names: tuple[str, ...]) -> tuple[Scenario, ...]:
    """The scenarios of these names, all where there are none; raises KeyError with the odd name."""
    known = {one.name: one for one in SCENARIOS}
    return tuple(known[name] for name in names) if names else SCENARIOS
