"""Processes, their wall time and the memory of all of them together.

The rows of a table take turns, so that a slow minute of the machine hits all of them. What a row
needs before each run (a fresh tree, an empty cache) is made outside the clock. A tool may say no to
some patches, so an exit code of 1 is an outcome; any other stops the benchmark.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ENVIRONMENT = {
    key: value
    for key, value in os.environ.items()
    if key != "PYTHONDONTWRITEBYTECODE" and not key.startswith(("GIT_", "QUILT"))
}
"""Warm means with bytecode, for whatever is written in Python."""
_LOOK = 0.004
"""Seconds between two looks at the memory."""


@dataclass(frozen=True, slots=True)
class Aim:
    """What a row is to reach: `factor` times its median is at most that of every row of `ahead_of`,
    or its median is below `seconds`."""

    words: str
    ahead_of: tuple[str, ...] = ()
    factor: float = 1.0
    seconds: float | None = None

    def is_met(self, median: float, others: Mapping[str, float]) -> bool:
        """Held against the medians of one table, by the names of its rows."""
        if self.seconds is not None:
            return median < self.seconds
        return all(self.factor * median <= others[name] for name in self.ahead_of)


@dataclass
class Case:
    """One row: a command, what it needs before each run, and the seconds that it took."""

    name: str
    command: Sequence[str]
    cwd: Path
    prepare: Callable[[], object] = lambda: None
    extra: Mapping[str, str] = field(default_factory=dict)
    aim: Aim | None = None
    seconds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """Seconds."""
        return statistics.median(self.seconds)

    def run(self) -> None:
        """Once, with the clock on."""
        self.prepare()
        with tempfile.TemporaryFile() as output:
            started = time.perf_counter()
            done = subprocess.run(
                self.command,
                cwd=self.cwd,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**ENVIRONMENT, **self.extra},
                check=False,
            )
            elapsed = time.perf_counter() - started
            if done.returncode not in (0, 1):
                output.seek(0)
                sys.exit(f"{self.name}: exit {done.returncode}\n{output.read().decode()}")
        self.seconds.append(elapsed)


def measured(cases: Sequence[Case], runs: int) -> None:
    """One warm-up each, then `runs` rounds in which every case takes a turn."""
    for case in cases:
        case.run()
        case.seconds.clear()
    for _ in range(runs):
        for case in cases:
            case.run()


def peak_megabytes(
    command: Sequence[str], cwd: Path, extra: Mapping[str, str] | None = None
) -> float:
    """The most memory that a command and all its children hold at one time, in MB.

    A process is counted by its proportional set (PSS), so that what a fork shares with its parent
    counts once. Looked at every few milliseconds, so the figure is a floor; a process that ends
    between two looks was too short to hold much.
    """
    process = subprocess.Popen(
        command,
        cwd=cwd,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**ENVIRONMENT, **(extra or {})},
    )
    peak = 0
    while process.poll() is None:
        peak = max(peak, sum(map(_kilobytes, _family(process.pid))))
        time.sleep(_LOOK)
    if process.returncode not in (0, 1):
        sys.exit(f"{' '.join(command)}: exit {process.returncode}")
    return peak / 1024


def _family(pid: int) -> list[int]:
    found = [pid]
    for parent in found:
        with contextlib.suppress(OSError):
            for thread in Path(f"/proc/{parent}/task").iterdir():
                found += map(int, (thread / "children").read_text().split())
    return found


def _kilobytes(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    return 0
