"""What a smoke run costs: seconds and disk for one release, and for six that share one torch.

The cache of vllm-series is a new one, so environments are made, modules compiled and models
inspected; uv's own cache is the user's, so after a first run nothing is downloaded. The aims are
60 s and 4 GB for one release, 240 s and 6 GB for six. Disk counts a file with several names once.

    python benchmarks/smoke.py                 # the six newest releases that run here
    python benchmarks/smoke.py 0.31.0 0.32.0
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from vllm_series.smoke.device import find_device
from vllm_series.smoke.environment import FOLDER, NotRunError, Sources, disk, resolve
from vllm_series.upstream.store import cache_root

ROOT = Path(__file__).resolve().parents[1]
NUMBER = 6
AIMS = {1: (60.0, 4.0), NUMBER: (240.0, 6.0)}
"""Seconds and gigabytes (10^9 bytes), by the number of releases."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("releases", nargs="*", help="releases, in the order of the run")
    given: list[str] = parser.parse_args().releases
    chosen = given or newest()
    if not chosen:
        print("no release can be run here")
        return 3
    base = cache_root()
    base.mkdir(parents=True, exist_ok=True)
    # Beside the user's cache, so that uv links instead of copying.
    with tempfile.TemporaryDirectory(prefix="bench-smoke-", dir=base) as scratch:
        measure(chosen, Path(scratch))
    return 0


def newest() -> list[str]:
    """The newest releases that can be had for this device, newest first."""
    device = find_device().device
    listed: list[str] = json.loads((ROOT / "tests" / "releases.json").read_text())["releases"]
    found: list[str] = []
    for release in reversed(listed):
        try:
            resolve(release, device, Sources())
        except NotRunError as error:
            print(f"{release} not run: {error}")
            if found:
                break
            continue
        found.append(release)
        if len(found) == NUMBER:
            break
    return found


def measure(releases: list[str], cache: Path) -> None:
    load = " ".join(f"{one:.1f}" for one in os.getloadavg())
    print(f"{os.cpu_count()} cores, load before {load}\n")
    print(f"{'release':<10}{'outcome':<10}{'install s':>10}{'smoke s':>10}{'all s':>8}{'GB':>7}")
    whole = 0.0
    for number, release in enumerate(releases, 1):
        started = time.monotonic()
        words = [sys.executable, "-m", "vllm_series", "smoke", release, "--json"]
        words += ["--output", str(cache / "reports"), "--series-dir", str(ROOT / "series")]
        done = subprocess.run(
            words,
            env={**os.environ, "VLLM_SERIES_CACHE": str(cache)},
            capture_output=True,
            text=True,
            check=False,
        )
        whole += time.monotonic() - started
        if done.returncode not in (0, 1):
            print(f"{release}: exit code {done.returncode}\n{done.stderr[-2000:]}")
            continue
        [report] = json.loads(done.stdout)["releases"]
        taken = disk([cache / FOLDER]) / 1e9
        print(
            f"{release:<10}{report['outcome']:<10}{report['install_seconds']:>10.1f}"
            f"{report['seconds']:>10.1f}{whole:>8.0f}{taken:>7.2f}"
        )
        if number in AIMS:
            seconds, size = AIMS[number]
            print(
                f"  {number}: {whole:.0f} s ({verdict(whole, seconds)} {seconds:.0f}), "
                f"{taken:.2f} GB ({verdict(taken, size)} {size:.0f})"
            )


def verdict(value: float, aim: float) -> str:
    return "within" if value <= aim else "MISSES"


if __name__ == "__main__":
    raise SystemExit(main())
