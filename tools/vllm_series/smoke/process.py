"""Run a script inside a vLLM environment, and read what it left: also of one that crashed or hung.

The script writes a line for each thing that happens and stops behind the first failure; what it had
not come to is then run in a new process. Its output is the engine's log, a file a process.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vllm_series.errors import EnvironmentRefusedError
from vllm_series.smoke.results import Decode, Failure, Frame, Mode
from vllm_series.smoke.scenarios import SCENARIOS

INSIDE = Path(__file__).resolve().parent.parent / "inside"
SILENCE = 600
"""Seconds without a line of the log, nor of the result, after which a process counts as hung."""
TAIL = 20
"""Last lines of a log that a report shows."""

_MARK = "@@ vllm-series scenario"
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)')
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True, slots=True)
class Runner:
    """How scripts are run: with which interpreter and variables, where logs go, for which model."""

    python: Path
    variables: Mapping[str, str]
    logs: Path
    job: Mapping[str, Any]
    silence: float = SILENCE
    stop: threading.Event = field(default_factory=threading.Event)
    """Set by whoever wants all of it to end: what runs is then killed."""

    def decode(self, mode: Mode, names: Sequence[str], label: str = "") -> dict[str, Decode]:
        """Run scenarios of one process; each of them is in the answer."""
        first = next(one for one in SCENARIOS if one.name in names)
        script = first.script
        left = list(names)
        found: dict[str, Decode] = {}
        number = 0
        while left:
            if self.stop.is_set():
                raise InterruptedError
            stem = f"{label or mode.value}-{first.process}{number or ''}"
            ended = self._once(script, mode, left, stem)
            found |= ended
            left = [name for name in left if name not in ended]
            number += 1
        return {name: found[name] for name in names}

    def probe(self, probes: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """How far apart two tokens' logits are, for each probe (see `inside/decode.py`)."""
        log = self.logs / "probes.log"
        events = list(self._events("decode.py", {"scenarios": [], "probes": probes}, log))
        return [event for event in events if event["event"] == "probed"]

    def _once(self, script: str, mode: Mode, names: Sequence[str], stem: str) -> dict[str, Decode]:
        """One process; the scenarios that it came to. At least one, so that there is an end."""
        log = self.logs / f"{stem}.log"
        found: dict[str, Decode] = {}
        current: str | None = None
        ending = _Ending()
        for event in self._events(script, {"scenarios": list(names)}, log, ending):
            kind, name = event["event"], event.get("scenario")
            if kind == "scenario":
                current = name
            elif kind == "ended":
                current = None
                found[event["scenario"]] = _decode(event, mode, log)
            elif kind == "failed":
                current = None
                found[event["scenario"]] = _failed(event, mode, log)
        missing = current if current is not None else None
        if missing is None and not found:
            missing = names[0]
        if missing is not None:
            found[missing] = _crashed(missing, mode, log, ending)
        return found

    def _events(
        self, script: str, more: Mapping[str, Any], log: Path, ending: _Ending | None = None
    ) -> Iterator[dict[str, Any]]:
        with tempfile.TemporaryDirectory(prefix="vllm-series-smoke-") as scratch:
            job, result = Path(scratch) / "job.json", Path(scratch) / "result.jsonl"
            job.write_text(json.dumps({**self.job, **more, "parent": os.getpid()}), "utf-8")
            result.touch()
            words = [str(self.python), "-u", str(INSIDE / script), str(job), str(result)]
            told = self._run(words, log, result, Path(scratch))
            if ending is not None:
                ending.words = told
            for line in result.read_text("utf-8").splitlines():
                with contextlib.suppress(ValueError):  # half a line, of a process that was killed
                    yield json.loads(line)

    def _run(self, words: Sequence[str], log: Path, result: Path, scratch: Path) -> str:
        """Run to the end; in words how it ended. What it has started is gone with it."""
        with log.open("wb") as output:
            try:
                process = subprocess.Popen(
                    words,
                    env={**self.variables, "TMPDIR": str(scratch)},
                    cwd=scratch,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                raise EnvironmentRefusedError(
                    f"{words[0]} cannot be started: {error.strerror}. Name another environment "
                    "with --reuse, or remove the kept one with --clean."
                ) from error
            try:
                return self._waited(process, (log, result))
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def _waited(self, process: subprocess.Popen[bytes], files: Sequence[Path]) -> str:
        seen, since = 0, time.monotonic()
        while True:
            try:
                code = process.wait(1)
            except subprocess.TimeoutExpired:
                if self.stop.is_set():
                    return "it was stopped"
                size = sum(file.stat().st_size for file in files)
                if size != seen:
                    seen, since = size, time.monotonic()
                elif time.monotonic() - since > self.silence:
                    return f"it said nothing for {self.silence:.0f} s and was ended"
                continue
            if code < 0:
                with contextlib.suppress(ValueError):
                    return f"it was ended by {signal.Signals(-code).name}"
            return f"it ended with exit code {code}"


class _Ending:
    """How a process ended, known behind its last event."""

    words = ""


def _decode(event: Mapping[str, Any], mode: Mode, log: Path) -> Decode:
    return Decode(
        event["scenario"],
        mode,
        _tuples(event["tokens"]),
        _tuples(event["prompts"]),
        tuple(event["texts"]),
        event["metrics"],
        event["facts"],
        tuple(event["seconds"]),
        event["engine_seconds"],
        section(log.read_text("utf-8", "replace"), event["scenario"]),
        str(log),
    )


def _tuples(rows: list[list[int]] | None) -> tuple[tuple[int, ...], ...] | None:
    return None if rows is None else tuple(tuple(row) for row in rows)


def _failed(event: Mapping[str, Any], mode: Mode, log: Path) -> Decode:
    text = section(log.read_text("utf-8", "replace"), event["scenario"])
    frames = [Frame(one["file"], one["line"], one["function"]) for one in event["frames"]]
    if all(Path(frame.file).is_relative_to(INSIDE) for frame in frames):
        frames += frames_in(text)  # an engine of its own process: its traceback is in the log
    failure = Failure(event["type"], event["message"], tuple(frames), last_lines(text))
    return Decode(event["scenario"], mode, log=text, log_file=str(log), failure=failure)


def _crashed(name: str, mode: Mode, log: Path, ending: _Ending) -> Decode:
    text = section(log.read_text("utf-8", "replace"), name)
    failure = Failure("crash", ending.words, frames_in(text), last_lines(text))
    return Decode(name, mode, log=text, log_file=str(log), failure=failure)


def section(log: str, scenario: str) -> str:
    """The part of a log between a scenario's marks; all of it where the marks are not there."""
    start = log.find(f"{_MARK} {scenario} starts")
    if start < 0:
        return log
    end = log.find(_MARK, start + len(_MARK))
    return log[start : end if end >= 0 else len(log)]


def frames_in(log: str) -> tuple[Frame, ...]:
    """The frames of all tracebacks in a log, in its order."""
    return tuple(
        Frame(found["file"], int(found["line"]), found["function"])
        for found in _FRAME.finditer(log)
    )


def last_lines(log: str) -> tuple[str, ...]:
    """The end of a log, without colours, empty lines and marks."""
    lines = [_COLOUR.sub("", line).rstrip() for line in log.splitlines()]
    return tuple([line for line in lines if line and not line.startswith(_MARK)][-TAIL:])


def at_once(
    works: Sequence[Callable[[], None]], number: int, stop: threading.Event | None = None
) -> None:
    """Do all of these, `number` at a time. The first error is raised when all have ended.

    An interrupt sets `stop`, waits for what that ends, and goes on its way.
    """
    left = list(works)
    errors: list[BaseException] = []
    lock = threading.Lock()

    def one_after_the_other() -> None:
        while True:
            with lock:
                if not left or errors:
                    return
                work = left.pop(0)
            try:
                work()
            except BaseException as error:
                errors.append(error)
                if stop is not None:
                    stop.set()

    threads = [threading.Thread(target=one_after_the_other) for _ in range(number)]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except BaseException:
        if stop is not None:
            stop.set()
        with lock:
            left.clear()
        for thread in threads:
            thread.join()
        raise
    if errors:
        raise errors[0]


def engine_variables(given: Mapping[str, str], cache: Path, is_gpu: bool) -> dict[str, str]:
    """Variables of an engine that is to do the same each time, and to leave the network alone."""
    kept = {name: value for name, value in given.items() if not name.startswith("PYTHON")}
    more = {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_DO_NOT_TRACK": "1",
        "VLLM_CACHE_ROOT": str(cache),
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONUNBUFFERED": "1",
        "NO_COLOR": "1",
    }
    if not is_gpu:
        # One thread each: sums in one order, and two engines side by side on a small machine.
        more |= {
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "OMP_NUM_THREADS": "1",
            "NUMBA_NUM_THREADS": "1",
        }
    return {**kept, **more}


def side_by_side(is_gpu: bool) -> int:
    """How many engines run at once: one on a GPU, which they would share, else two."""
    return 1 if is_gpu or (os.cpu_count() or 1) < 2 else 2
