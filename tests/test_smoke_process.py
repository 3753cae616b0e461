"""What is made of processes that crash, hang or leave half a line: with real ones, in sh."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from vllm_series.smoke.process import Runner, at_once, engine_variables, frames_in, section
from vllm_series.smoke.results import Mode


def runner(tmp_path: Path, script: str, silence: float = 60) -> Runner:
    """A runner whose interpreter is a shell script; `$4` is the file for the result."""
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\nresult=$4\n{script}")
    python.chmod(0o755)
    logs = tmp_path / "logs"
    logs.mkdir()
    return Runner(python, dict(os.environ), logs, {}, silence)


ENDED = (
    '{"event": "ended", "scenario": "greedy", "tokens": [[1]], "prompts": [[2]], "texts": ["a"], '
    '"facts": {}, "metrics": {}, "seconds": [], "engine_seconds": 1.0}'
)


def test_a_process_that_dies_costs_the_scenario_that_it_was_in(tmp_path: Path) -> None:
    run = runner(
        tmp_path,
        f"""
        case "$(cat $3)" in *greedy*)
          echo '{{"event": "scenario", "scenario": "greedy"}}' >> $result
          echo '{ENDED}' >> $result
          echo '{{"event": "scenario", "scenario": "batch"}}' >> $result
          echo '@@ vllm-series scenario batch starts' >&2
          echo '  File "/x/vllm/a.py", line 7, in step' >&2
          kill -SEGV $$ ;;
        *)
          echo '{{"event": "scenario", "scenario": "prefix"}}' >> $result
          echo '{ENDED.replace("greedy", "prefix")}' >> $result ;;
        esac
        """,
    )
    found = run.decode(Mode.STOCK, ["greedy", "batch", "prefix"])
    assert found["greedy"].failure is None
    assert found["greedy"].tokens == ((1,),)
    failure = found["batch"].failure
    assert failure is not None
    assert "SIGSEGV" in failure.message
    assert [(frame.file, frame.line) for frame in failure.frames] == [("/x/vllm/a.py", 7)]
    assert found["prefix"].failure is None


def test_a_process_that_says_nothing_is_ended(tmp_path: Path) -> None:
    run = runner(tmp_path, "sleep 1000 & wait\n", silence=1)
    started = time.monotonic()
    found = run.decode(Mode.ON, ["greedy"])
    assert time.monotonic() - started < 30
    assert found["greedy"].failure is not None
    assert "said nothing" in found["greedy"].failure.message


def test_half_a_line_is_left_out(tmp_path: Path) -> None:
    run = runner(tmp_path, """printf '{"event": "scen' >> $result\nexit 3\n""")
    failure = run.decode(Mode.OFF, ["greedy"])["greedy"].failure
    assert failure is not None
    assert "exit code 3" in failure.message


def test_a_section_of_a_log_is_that_of_its_scenario_alone() -> None:
    log = (
        "before\n@@ vllm-series scenario a starts\nin a\n@@ vllm-series scenario a ends\n"
        "@@ vllm-series scenario b starts\nin b\n"
    )
    assert "in a" in section(log, "a")
    assert "in b" not in section(log, "a")
    assert "in b" in section(log, "b")
    assert section(log, "c") == log


def test_frames_are_read_out_of_a_log_of_several_processes() -> None:
    log = '(EngineCore pid=7) ERROR   File "/x/vllm/v1/a.py", line 12, in forward\n'
    assert [(one.file, one.line, one.function) for one in frames_in(log)] == [
        ("/x/vllm/v1/a.py", 12, "forward")
    ]


def test_no_more_than_so_many_run_at_once_and_an_error_is_raised_at_the_end() -> None:
    running, most, done = 0, 0, 0
    lock = threading.Lock()

    def work() -> None:
        nonlocal running, most, done
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.05)
        with lock:
            running -= 1
            done += 1

    at_once([work] * 6, 2)
    assert (most, done) == (2, 6)

    def fail() -> None:
        raise ValueError("no")

    stop = threading.Event()
    with pytest.raises(ValueError, match="no"):
        at_once([work, fail, work], 1, stop)
    assert stop.is_set()
    assert done == 7


def test_an_engine_sees_no_python_variables_of_the_tool() -> None:
    found = engine_variables(
        {"PYTHONPATH": "/x", "PATH": "/bin", "PYTHONHASHSEED": "1"}, Path(), False
    )
    assert "PYTHONPATH" not in found
    assert found["PATH"] == "/bin"
    assert found["OMP_NUM_THREADS"] == "1"
    assert "OMP_NUM_THREADS" not in engine_variables({}, Path(), True)
