"""Speed and memory of whole processes, side by side in one run: `nox -s bench`.

Every command runs warm, the rows of a table take turns so that a slow minute of the machine hits
all of them, and the table shows medians. Before each run the tree is put back, outside the clock.
Memory is the largest resident set of the process itself, not of what it starts.

    python benchmarks/bench.py [--runs N] [--anchor-script FILE] [--only apply|replay]
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

import stock  # noqa: E402

RELEASE = "0.33.0"
PAIR = ("0.32.0", "0.33.0")
_WARM = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
"""Warm means with bytecode, for whatever is written in Python."""
SCHEDULER = "vllm/v1/core/sched/scheduler.py"


@dataclass
class Case:
    """One row: a command, what puts its tree back before each run, and what was measured."""

    name: str
    command: Sequence[str]
    cwd: Path
    prepare: Callable[[], object]
    seconds: list[float] = field(default_factory=list)
    megabytes: list[float] = field(default_factory=list)

    def run(self) -> None:
        self.prepare()
        with tempfile.TemporaryFile() as output:
            started = time.perf_counter()
            process = subprocess.Popen(
                self.command, cwd=self.cwd, stdout=output, stderr=subprocess.STDOUT, env=_WARM
            )
            _, status, usage = os.wait4(process.pid, 0)
            elapsed = time.perf_counter() - started
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode:
                output.seek(0)
                sys.exit(f"{self.name}: exit {process.returncode}\n{output.read().decode()}")
        self.seconds.append(elapsed)
        self.megabytes.append(usage.ru_maxrss / 1024)


def measured(cases: Sequence[Case], runs: int) -> None:
    """One warm-up each, then `runs` rounds in which every case takes a turn."""
    for case in cases:
        case.run()
        case.seconds.clear()
        case.megabytes.clear()
    for _ in range(runs):
        for case in cases:
            case.run()


def table(title: str, cases: Sequence[Case]) -> None:
    print(f"\n{title}\n")
    width = max(len(case.name) for case in cases)
    print(f"{'':<{width}}  {'median ms':>10}  {'min ms':>8}  {'MB':>6}")
    for case in cases:
        print(
            f"{case.name:<{width}}  {statistics.median(case.seconds) * 1000:>10.1f}"
            f"  {min(case.seconds) * 1000:>8.1f}  {statistics.median(case.megabytes):>6.0f}"
        )


def environment(folder: Path) -> Path:
    """A real environment with one installed release; gives its site-packages."""
    target = folder / "target"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(target)], check=True)
    python = target / "bin" / "python"
    site = subprocess.run(
        [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    stock.install_into(Path(site), f"vllm=={RELEASE}")
    return Path(site)


def apply_cases(folder: Path, anchor_script: Path | None) -> list[Case]:
    """The series on an installed release, beside the other ways to do the same."""
    site = environment(folder)
    python = site.parents[2] / "bin" / "python"
    tool = shutil.which("vllm-series") or str(Path(sysconfig.get_path("scripts")) / "vllm-series")
    ours = [tool, "apply", "--quiet", "--target", str(site)]
    revert = [tool, "revert", "--quiet", "--target", str(site)]
    patch = ROOT / "series" / f"vllm-{RELEASE.rpartition('.')[0]}" / "dynwidth.patch"
    pristine = (site / SCHEDULER).read_bytes()
    added = site / "vllm/v1/core/sched/dynamic_width.py"

    def call(*words: str) -> None:
        subprocess.run(words, cwd=ROOT, check=True, capture_output=True)

    def by_hand() -> None:
        call(*revert)
        (site / SCHEDULER).write_bytes(pristine)
        added.unlink(missing_ok=True)

    def patched() -> None:
        by_hand()
        call(*ours)

    cases = [
        Case("vllm-series apply", ours, ROOT, by_hand),
        Case("vllm-series apply, again (no-op)", ours, ROOT, patched),
        Case("vllm-series status, patched", [tool, "status", "--target", str(site)], ROOT, patched),
        Case("vllm-series revert", revert, ROOT, patched),
        Case("git apply", ["git", "apply", "--whitespace=nowarn", str(patch)], site, by_hand),
        Case("patch -p1 -F0", ["patch", "-p1", "-F0", "-s", "-i", str(patch)], site, by_hand),
    ]
    if anchor_script:
        cases.append(
            Case(
                "anchor script (search and replace)",
                [str(python), str(anchor_script)],
                ROOT,
                by_hand,
            )
        )
    return cases


def replay_cases(folder: Path) -> list[Case]:
    """Upstream's own diff between two releases."""
    old, new = (stock.release(version) for version in PAIR)
    repository = folder / "repository"
    repository.mkdir()
    git = ["git", "-c", "user.name=bench", "-c", "user.email=bench@example.com"]
    subprocess.run([*git, "init", "-q"], cwd=repository, check=True)
    for tree in (old, new):
        shutil.rmtree(repository / "vllm", ignore_errors=True)
        shutil.copytree(tree / "vllm", repository / "vllm")
        subprocess.run([*git, "add", "-A"], cwd=repository, check=True)
        subprocess.run([*git, "commit", "-qm", tree.name], cwd=repository, check=True)
    diff = folder / "upstream.patch"
    with diff.open("wb") as stream:
        subprocess.run(
            [*git, "diff", "--full-index", "-M", "HEAD~", "HEAD"],
            cwd=repository,
            stdout=stream,
            check=True,
        )
    tree = folder / "tree"

    def fresh() -> None:
        shutil.rmtree(tree, ignore_errors=True)
        shutil.copytree(old / "vllm", tree / "vllm")

    tool = shutil.which("vllm-series") or str(Path(sysconfig.get_path("scripts")) / "vllm-series")
    ours = [tool, "apply", "--quiet", "--patch", str(diff), "--target", str(tree)]
    fresh()
    return [
        Case("vllm-series apply --patch", ours, folder, fresh),
        Case("git apply", ["git", "apply", "--whitespace=nowarn", str(diff)], tree, fresh),
        Case("patch -p1 -F0", ["patch", "-p1", "-F0", "-s", "-i", str(diff)], tree, fresh),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--replay-runs", type=int, default=5)
    parser.add_argument("--only", choices=["apply", "replay"])
    parser.add_argument(
        "--anchor-script",
        type=Path,
        default=os.environ.get("VLLM_SERIES_ANCHOR_SCRIPT"),
        help="a script that patches the site-packages of the Python that runs it",
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.only != "replay":
            cases = apply_cases(folder, options.anchor_script)
            measured(cases, options.runs)
            table(f"dynwidth on an installed vllm {RELEASE}, {options.runs} runs", cases)
            if not options.anchor_script:
                print("\nanchor script: not run (name one with --anchor-script)")
        if options.only != "apply":
            cases = replay_cases(folder)
            measured(cases, options.replay_runs)
            table(f"the diff {PAIR[0]} to {PAIR[1]}, {options.replay_runs} runs", cases)


if __name__ == "__main__":
    main()
