"""One play of all scenarios with one state of the package: start the script, read what it says.

The script runs in the interpreter of the vLLM environment, with a copy of the package in front
(`Mirror`); an environment is never changed. Variables that switch a patch on are set for the runs
that want them, and taken away for all others.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from vllm_series.mirror import Mirror
from vllm_series.rehearsal.scenarios import DRAFT, Scenario
from vllm_series.rehearsal.states import State
from vllm_series.trees import DiskTree

SCRIPT = Path(__file__).parent.parent / "inside" / "rehearse.py"
SECONDS = 1800
"""A play takes seconds, and an import of vLLM with no bytecode yet a minute."""


@dataclass(frozen=True, slots=True)
class Run:
    """One scenario in one mode; see `inside/rehearse.py` for what the events hold."""

    scenario: str
    mode: str
    scheduler: str | None
    """The class that vLLM chose, None where it did not come to that."""
    ended: str
    """`finished`, `crashed` or `stuck`."""
    error: str | None
    trace: str | None
    seconds: float
    events: tuple[Mapping[str, Any], ...]
    emitted: Mapping[str, Sequence[int]]
    finished: Mapping[str, str]
    calls: Mapping[str, int]
    stats: Mapping[str, int]

    @property
    def key(self) -> tuple[str, str]:
        return self.mode, self.scenario

    @property
    def is_whole(self) -> bool:
        """Whether it came to its end."""
        return self.ended == "finished"

    @property
    def steps(self) -> int:
        """How often the scheduler was asked."""
        return sum(event["event"] == "scheduled" for event in self.events)


@dataclass(frozen=True, slots=True)
class Result:
    """What one play gave; `not_run` says why there are no runs, None where there are."""

    version: str | None
    not_run: str | None
    runs: Mapping[tuple[str, str], Run]
    trace: str = ""


def play_all(
    tree: DiskTree,
    states: Sequence[State],
    known: Sequence[str],
    modes: Sequence[str],
    scenarios: Sequence[Scenario],
    say: Callable[[str], None] = lambda _step: None,
) -> list[Result]:
    """Play each state, with the interpreter of the tree and in copies of it; the first alone where
    it is not run. `say` is told what begins.

    Most of a play is one import. So those behind the first are played as many at once as there are
    processors, in copies of its copy, which has all bytecode by then.
    """
    python = str(tree.python)
    with contextlib.ExitStack() as copies:
        idle: SimpleQueue[Mirror] = SimpleQueue()

        def played(state: State) -> Result:
            mirror = idle.get()
            try:
                say(f"playing {state.name}")
                return play(mirror, python, state, known, modes, scenarios)
            finally:
                idle.put(mirror)

        first = copies.enter_context(Mirror(tree, keeps_bytecode=True))
        idle.put(first)
        results = [played(states[0])]
        if results[0].not_run is not None or len(states) == 1:
            return results
        workers = min(len(states) - 1, len(os.sched_getaffinity(0)))
        for _ in range(workers - 1):
            again = replace(tree, root=first.root)
            idle.put(copies.enter_context(Mirror(again, keeps_bytecode=True)))
        with ThreadPoolExecutor(workers) as pool:
            return [*results, *pool.map(played, states[1:])]


def play(
    mirror: Mirror,
    python: str,
    state: State,
    known: Sequence[str],
    modes: Sequence[str],
    scenarios: Sequence[Scenario],
) -> Result:
    """Play the scenarios in every mode in this state; `known` are all switches there are."""
    mirror.put(state.texts, state.modes)
    given = {name: value for name, value in os.environ.items() if name not in known}
    # Sets of names are walked in one order then.
    variables = {**mirror.environment(given), **state.switches, "PYTHONHASHSEED": "0"}
    job = {
        "modes": list(modes),
        "draft": DRAFT,
        "scenarios": [scenario.as_job() for scenario in scenarios],
    }
    with tempfile.TemporaryDirectory(prefix="vllm-series-rehearsal-") as scratch:
        folder = Path(scratch)
        asked, answer, log = (folder / name for name in ("job.json", "result.json", "log"))
        asked.write_text(json.dumps(job))
        with log.open("wb") as output:
            try:
                code = subprocess.run(
                    [python, str(SCRIPT), str(asked), str(answer)],
                    check=False,
                    cwd=folder,
                    env=variables,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    timeout=SECONDS,
                ).returncode
            except subprocess.TimeoutExpired:
                return Result(None, f"no end after {SECONDS} s", {})
        told = log.read_text("utf-8", "replace")
        if not answer.is_file():
            lines = [line.strip() for line in told.splitlines() if line.strip()]
            last = lines[-1] if lines else "nothing was printed"
            return Result(None, f"the interpreter ended with {code}: {last}", {}, told)
        return _read(json.loads(answer.read_text()))


def _read(value: dict[str, Any]) -> Result:
    runs = {}
    for one in value["runs"]:
        run = Run(
            scenario=one["scenario"],
            mode=one["mode"],
            scheduler=one["scheduler"],
            ended=one["ended"],
            error=one["error"],
            trace=one["trace"],
            seconds=one["seconds"],
            events=tuple(one.get("events", ())),
            emitted=one.get("emitted", {}),
            finished=one.get("finished", {}),
            calls=one.get("calls", {}),
            stats=one.get("stats", {}),
        )
        runs[run.key] = run
    return Result(value["version"], value["not_run"], runs, value.get("trace", ""))
