"""Tests on the real engine: environments that hold a whole vLLM and the torch it wants.

An environment is made once and kept in the user's cache, 3 GiB for the first and half a gibibyte
for each further one. Where it cannot be had, the tests fail: a proof that did not run is no pass.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

import pytest

from vllm_series.smoke.device import Device
from vllm_series.smoke.environment import Sources, make, resolve


@cache
def engine_of(release: str) -> Path:
    sources = Sources()
    lock = resolve(release, Device.CPU, sources)
    return make(lock, sources, say).python


def say(told: str) -> None:
    sys.stderr.write(f"{told}\n")


class Engines:
    """The interpreter of an environment with a release's CPU build; shared, never changed."""

    def __call__(self, release: str) -> Path:
        return engine_of(release)


@pytest.fixture(scope="session")
def engine() -> Engines:
    return Engines()
