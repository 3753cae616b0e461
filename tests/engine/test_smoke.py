"""Smoke decodes on a real engine: a series that keeps its promises, and patches that do not."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from commandline import PROJECT, PROJECT_SERIES, Ran, run
from diffs import git_diff
from vllm_series.environments import find_tree

RELEASE = "0.32.0"
SAMPLER = "vllm/v1/sample/sampler.py"
Engine = Callable[[str], Path]

START = "    def greedy_sample(logits: torch.Tensor) -> torch.Tensor:\n"
SECOND_BEST = (
    '        if os.environ.get("SECOND_BEST") == "1":\n'
    "            return logits.topk(2, dim=-1).indices[:, 1]\n"
)
CRASH = (
    '        if os.environ.get("NO_LUCK") == "1":\n'
    '            raise RuntimeError("no luck today")\n'
)


@pytest.fixture(scope="module")
def python(engine: Engine) -> Path:
    return engine(RELEASE)


def smoke(python: Path, series: Path, folder: Path, *words: str) -> Ran:
    """Run the command in the environment, with logs and report in a folder."""
    places: tuple[str | Path, ...] = ("--reuse", python, "--series-dir", series)
    return run("smoke", *places, "--output", folder, *words)


def report(folder: Path) -> dict[str, Any]:
    """What was written, which the schema describes."""
    value: dict[str, Any] = json.loads((folder / f"smoke-{RELEASE}.json").read_text())
    schema = json.loads((PROJECT / "docs" / "schemas" / "smoke.json").read_text("utf-8"))
    jsonschema.Draft202012Validator(schema).validate(value)
    return value


def row(value: Mapping[str, Any], scenario: str, mode: str) -> dict[str, Any]:
    [found] = [
        one for one in value["scenarios"] if (one["scenario"], one["mode"]) == (scenario, mode)
    ]
    return dict(found)


def series_of(folder: Path, python: Path, *patches: tuple[str, str, list[tuple[str, str]]]) -> Path:
    """A series folder with patches of the sampler: name, trailers, and what is written behind which
    line."""
    text = (find_tree(None, str(python)).root / SAMPLER).read_bytes()
    at = folder / "vllm-0.32"
    at.mkdir(parents=True)
    for name, trailers, places in patches:
        after = text.decode()
        for anchor, added in places:
            assert after.count(anchor) == 1, anchor
            after = after.replace(anchor, anchor + added)
        mail = (
            f"From: A Person <person@example.org>\nSubject: [PATCH] {name}: for a test\n\n"
            f"Why it is so.\n\n{trailers}\n---\n"
        )
        diff = git_diff({SAMPLER: text}, {SAMPLER: after.encode()})
        (at / f"{name}.patch").write_bytes(mail.encode() + diff)
        text = after.encode()
    (at / "series").write_text("".join(f"{name}.patch\n" for name, _, _ in patches))
    return folder


def test_the_series_keeps_its_promises_in_a_real_decode(python: Path, tmp_path: Path) -> None:
    done = smoke(python, PROJECT_SERIES, tmp_path, "--scenario", "ngram", "--scenario", "greedy")
    assert done.code == 0, done.err + done.out
    value = report(tmp_path)
    assert value["outcome"] == "passed"
    stock, off, on = (row(value, "ngram", mode) for mode in ("stock", "off", "on"))
    assert stock["accepted"] > 100
    assert (off["drafted"], off["accepted"]) == (stock["drafted"], stock["accepted"])
    assert on["drafted"] < stock["drafted"]
    assert on["texts"] == off["texts"] == stock["texts"]
    assert [len(one["times"]) for one in (stock, off, on)] == [5, 5, 5]
    assert all(one["outcome"] == "passed" for one in value["promises"])
    assert {one["patch"] for one in value["promises"]} == {
        "dynwidth.patch",
        "dynwidth-metrics.patch",
    }
    assert Path(stock["log"]).is_file()
    assert "ngram" in done.out
    assert "holds" in done.out


def test_the_patch_that_changes_a_token_is_named(python: Path, tmp_path: Path) -> None:
    series = series_of(
        tmp_path / "series",
        python,
        ("imports", "", [("import torch\n", "import os\n")]),
        ("second-best", "Activate: SECOND_BEST=1\nNeeds: imports", [(START, SECOND_BEST)]),
        ("remark", "Needs: second-best", [(SECOND_BEST, "        # Nothing is done here.\n")]),
    )
    done = smoke(python, series, tmp_path / "out", "--scenario", "greedy", "--mode", "on")
    assert done.code == 1, done.err + done.out
    value = report(tmp_path / "out")
    assert row(value, "greedy", "stock")["outcome"] == "passed"
    assert row(value, "greedy", "on")["outcome"] == "failed"
    [blame] = value["blame"]
    assert (blame["patch"], blame["scenario"], blame["mode"]) == (
        "second-best.patch",
        "greedy",
        "on",
    )
    first = blame["difference"]
    assert (first["request"], first["position"]) == (0, 0)
    assert first["stock"] != first["patched"]
    assert first["gap"] > 0.001
    assert "second-best.patch is to blame" in done.out


def test_a_crash_shows_its_last_lines_and_the_frame_in_patched_code(
    python: Path, tmp_path: Path
) -> None:
    series = series_of(
        tmp_path / "series",
        python,
        ("remark", "", [("import torch\n", "import os\n")]),
        ("no-luck", "Activate: NO_LUCK=1", [(START, CRASH)]),
    )
    done = smoke(python, series, tmp_path / "out", "--scenario", "greedy")
    assert done.code == 1, done.err + done.out
    value = report(tmp_path / "out")
    assert row(value, "greedy", "off")["outcome"] == "passed"
    assert row(value, "greedy", "on")["reason"] == "RuntimeError: no luck today"
    [blame] = value["blame"]
    assert blame["patch"] == "no-luck.patch"
    assert blame["frame"].startswith(f"{SAMPLER}:")
    assert blame["frame"].endswith("in greedy_sample")
    assert any("no luck today" in line for line in blame["log"])
    assert "in greedy_sample, vllm/v1/sample/sampler.py" in done.out


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize(("scenario", "processes"), [("greedy", 1), ("serve", 3)])
def test_no_engine_outlives_the_command(
    python: Path, tmp_path: Path, scenario: str, processes: int, number: int
) -> None:
    """Of `serve`, two scripts run side by side, so that the third process is a server."""
    words = [sys.executable, "-m", "vllm_series", "smoke", "--reuse", str(python)]
    words += ["--series-dir", str(PROJECT_SERIES), "--output", str(tmp_path / "out")]
    words += ["--scenario", scenario]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 120
        while len(engines(tmp_path)) < processes and time.monotonic() < until:
            time.sleep(0.2)
        assert len(engines(tmp_path)) >= processes, "no engine was started"
        process.send_signal(number)
        assert process.wait(30) != 0
        until = time.monotonic() + 15
        while engines(tmp_path) and time.monotonic() < until:
            time.sleep(0.2)
        assert not engines(tmp_path)
    finally:
        process.kill()
        process.wait()


def engines(folder: Path) -> list[int]:
    """Processes whose standard output is a log in this folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if str((process / "fd" / "1").readlink()).startswith(f"{folder}/"):
                found.append(int(process.name))
    return found


def test_what_a_series_mends_is_held_against_what_stock_can_do(
    engine: Engine, tmp_path: Path
) -> None:
    """0.30.0 cannot speculate on a CPU; the series has the fix."""
    words = ("--scenario", "ngram", "--scenario", "batch")
    done = smoke(engine("0.30.0"), PROJECT_SERIES, tmp_path, *words)
    assert done.code == 0, done.err + done.out
    value: dict[str, Any] = json.loads((tmp_path / "smoke-0.30.0.json").read_text())
    assert row(value, "ngram", "stock")["outcome"] == "stock fails"
    off = row(value, "ngram", "off")
    assert off["accepted"] > 100
    assert off["texts"] == row(value, "batch", "stock")["texts"]
    assert [(check["check"], check["outcome"]) for check in off["checks"]] == [
        ("tokens as stock's batch", "passed")
    ]
    assert row(value, "ngram", "on")["drafted"] < off["drafted"]
    assert value["blame"] == []
    assert "cpu-rejection-sampler.patch" in {one["patch"] for one in value["promises"]}
