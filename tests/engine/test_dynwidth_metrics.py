"""dynwidth-metrics on a running engine: `/metrics`, the periodic log, and `LLM.get_metrics()`.

Six requests run at once, so that caps are taken, and n-gram drafts of a random model are mostly
rejected, so that they are far below the depth.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from commandline import PROJECT_SERIES
from vllm_series.environments import find_tree
from vllm_series.mirror import Mirror

if TYPE_CHECKING:
    from engine.conftest import Engines

RELEASE = "0.32.0"
DEPTH = 7
SPECULATIVE = {
    "method": "ngram",
    "num_speculative_tokens": DEPTH,
    "prompt_lookup_max": 3,
    "prompt_lookup_min": 1,
}
MODEL_SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "vllm_series" / "inside" / "model.py"
START = 300.0
"""Seconds that an engine has to come up on a busy machine."""
WIDTH, CAP = "vllm:spec_decode_verify_width", "vllm:spec_decode_verify_width_cap"
CAPPED = "vllm:spec_decode_num_capped_drafts"
LEFT = "vllm:spec_decode_num_capped_draft_tokens"
OURS = {WIDTH, CAP, CAPPED, LEFT}
SAMPLE = re.compile(r"^(?P<name>[\w:]+)\{(?P<labels>[^}]*)\} (?P<value>\S+)$")

GENERATE = f"""
import json, sys
from vllm import LLM, SamplingParams

def main():
    llm = LLM(
        model=sys.argv[1], max_model_len=512, max_num_seqs=8, enforce_eager=True,
        disable_log_stats=False, speculative_config={SPECULATIVE!r},
    )
    prompts = [f"the quick brown fox jumps over {{number}}" for number in range(6)]
    llm.generate(prompts, SamplingParams(temperature=0, max_tokens=64, ignore_eos=True))
    llm.llm_engine.do_log_stats()
    found = [[type(one).__name__, one.name, vars(one)] for one in llm.get_metrics()]
    open(sys.argv[2], "w").write(json.dumps(found))

if __name__ == "__main__":
    main()
"""


@dataclass(frozen=True)
class Scraped:
    """What a server showed: the kinds of its metrics by name, its samples by name, its log."""

    kinds: dict[str, str]
    samples: dict[str, float]
    labels: dict[str, str]
    log: str


@pytest.fixture(scope="module")
def python(engine: Engines) -> Path:
    return engine(RELEASE)


@pytest.fixture(scope="module")
def model(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "model"
    subprocess.run([python, MODEL_SCRIPT, folder], check=True)
    return folder


@pytest.fixture(scope="module")
def patched(python: Path) -> Iterator[Mirror]:
    """A copy of the installed package with the series in it; the environment stays stock."""
    with Mirror(find_tree(python=str(python))) as mirror:
        subprocess.run(
            [sys.executable, "-m", "vllm_series", "apply", "--quiet",
             "--series-dir", PROJECT_SERIES, "--target", mirror.root],
            check=True,
        )  # fmt: skip
        yield mirror


def environment(mirror: Mirror | None, *, is_on: bool) -> dict[str, str]:
    given = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("RADIANCE_", "PROMETHEUS_", "PYTHONDONTWRITE"))
    }
    given |= {
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_LOG_STATS_INTERVAL": "1",
    }
    if is_on:
        given["RADIANCE_DYNAMIC_WIDTH"] = "1"
    return given if mirror is None else mirror.environment(given)


@contextmanager
def serving(python: Path, model: Path, env: dict[str, str], log: Path) -> Iterator[str]:
    """A server that answers, and is ended; gives its address. It is started as a module, since the
    command `vllm` ends at once in an environment that has another build than `vllm`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [
        str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(model),
        "--port", str(port),
        "--host", "127.0.0.1", "--max-model-len", "512", "--max-num-seqs", "8", "--enforce-eager",
        "--served-model-name", "small", "--speculative-config", json.dumps(SPECULATIVE),
    ]  # fmt: skip
    with log.open("wb") as out:
        server = subprocess.Popen(words, env=env, stdout=out, stderr=subprocess.STDOUT)
        try:
            address = f"http://127.0.0.1:{port}"
            until = time.monotonic() + START
            while True:
                assert server.poll() is None, log.read_text()[-4000:]
                assert time.monotonic() < until, log.read_text()[-4000:]
                try:
                    asked(f"{address}/health")
                    break
                except OSError:
                    time.sleep(0.5)
            yield address
        finally:
            server.terminate()
            server.wait(60)


def asked(address: str, body: dict[str, Any] | None = None) -> str:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return str(answer.read().decode())


def scraped(python: Path, model: Path, mirror: Mirror | None, log: Path, *, is_on: bool) -> Scraped:
    """Ask a server for six completions at once, then for its metrics."""
    with serving(python, model, environment(mirror, is_on=is_on), log) as address:
        bodies = [
            {
                "model": "small",
                "prompt": f"the quick brown fox jumps over {number}",
                "max_tokens": 128,
                "temperature": 0,
                "ignore_eos": True,
            }
            for number in range(6)
        ]
        with ThreadPoolExecutor(len(bodies)) as pool:
            list(pool.map(lambda body: asked(f"{address}/v1/completions", body), bodies))
        # The line of the interval in which the last tokens came.
        time.sleep(3)
        text = asked(f"{address}/metrics")
    kinds, samples, labels = {}, {}, {}
    for line in text.splitlines():
        if line.startswith("# TYPE vllm:"):
            _, _, name, kind = line.split()
            kinds[name] = kind
        elif (found := SAMPLE.match(line)) and "le=" not in found["labels"]:
            samples[found["name"]] = float(found["value"])
            labels[found["name"]] = found["labels"]
    return Scraped(kinds, samples, labels, log.read_text())


@pytest.fixture(scope="module")
def on(
    python: Path, model: Path, patched: Mirror, tmp_path_factory: pytest.TempPathFactory
) -> Scraped:
    log = tmp_path_factory.mktemp("on") / "log"
    return scraped(python, model, patched, log, is_on=True)


@pytest.fixture(scope="module")
def off(
    python: Path, model: Path, patched: Mirror, tmp_path_factory: pytest.TempPathFactory
) -> Scraped:
    log = tmp_path_factory.mktemp("off") / "log"
    return scraped(python, model, patched, log, is_on=False)


@pytest.fixture(scope="module")
def stock(python: Path, model: Path, tmp_path_factory: pytest.TempPathFactory) -> Scraped:
    """Stock vLLM; the variable means nothing to it."""
    log = tmp_path_factory.mktemp("stock") / "log"
    return scraped(python, model, None, log, is_on=True)


def test_a_server_shows_widths_that_add_up_with_its_own_counters(on: Scraped) -> None:
    drafts = on.samples["vllm:spec_decode_num_drafts_total"]
    tokens = on.samples["vllm:spec_decode_num_draft_tokens_total"]
    assert drafts > 0
    assert on.samples[f"{WIDTH}_count"] == drafts
    assert on.samples[f"{WIDTH}_sum"] == tokens
    assert 0 < on.samples[f"{CAP}_count"] <= drafts
    assert 2 <= on.samples[f"{CAP}_sum"] / on.samples[f"{CAP}_count"] <= DEPTH
    assert 0 < on.samples[f"{CAPPED}_total"] <= on.samples[f"{CAP}_count"]
    assert on.samples[f"{LEFT}_total"] >= on.samples[f"{CAPPED}_total"]


def test_the_metrics_have_the_labels_of_all_others(on: Scraped) -> None:
    other = on.labels["vllm:spec_decode_num_drafts_total"]
    assert 'engine="0"' in other
    for name in (f"{WIDTH}_sum", f"{CAP}_count", f"{CAPPED}_total", f"{LEFT}_total"):
        assert on.labels[name] == other


def test_a_server_that_is_on_has_these_metrics_more_and_one_that_is_off_none(
    on: Scraped, off: Scraped, stock: Scraped
) -> None:
    assert off.kinds == stock.kinds
    more = on.kinds.keys() - stock.kinds.keys()
    families = {name.removesuffix("_total").removesuffix("_created") for name in more}
    assert families == OURS
    assert on.kinds[WIDTH] == on.kinds[CAP] == "histogram"
    assert stock.kinds.keys() <= on.kinds.keys()


def test_the_periodic_log_has_a_line_of_its_own(on: Scraped, off: Scraped) -> None:
    assert "SpecDecoding metrics: " in off.log
    lines = re.findall(r"DynamicWidth metrics: Mean verify width: ([\d.]+), ", on.log)
    assert lines
    assert all(1 <= float(width) <= DEPTH for width in lines)
    assert "DynamicWidth metrics" not in off.log
    assert "Dynamic verify width" not in off.log


def test_the_snapshot_of_an_llm_has_the_same(
    python: Path, model: Path, patched: Mirror, tmp_path: Path
) -> None:
    script, result = tmp_path / "generate.py", tmp_path / "result.json"
    script.write_text(GENERATE)
    ran = subprocess.run(
        [python, script, model, result],
        env=environment(patched, is_on=True),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    found = {name: (kind, value) for kind, name, value in json.loads(result.read_text())}
    drafts = found["vllm:spec_decode_num_drafts"][1]["value"]
    kind, width = found[WIDTH]
    assert kind == "Histogram"
    assert width["count"] == drafts > 0
    assert width["buckets"]["+Inf"] == width["buckets"][f"{DEPTH}.0"] == drafts
    assert width["sum"] == found["vllm:spec_decode_num_draft_tokens"][1]["value"]
    assert found[CAPPED][1]["value"] > 0
    assert "DynamicWidth metrics: " in ran.stdout + ran.stderr
