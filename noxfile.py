"""What this project runs, one session a thing: `nox -s apply` is the main one.

Sessions make their environments with uv where it is on the path, and with virtualenv and pip where
it is not. Releases and pairs are parameters, so that `nox -s "apply(0.33.0)"` runs one and a CI
service can fan out over `nox --list`.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import nox

ROOT = Path(__file__).parent
LISTED = json.loads((ROOT / "tests" / "releases.json").read_text())
RELEASES = LISTED["releases"]
PAIRS = [f"{old}-{new}" for old, new in itertools.pairwise(LISTED["whole"])]

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.sessions = ["lint", "types", "tests"]
nox.options.error_on_missing_interpreters = True


@dataclass
class Row:
    """One release in the closing table of `apply`."""

    release: str
    outcome: str
    verdicts: str
    seconds: float


@dataclass
class SmokeRow:
    """One release in the closing table of `smoke`."""

    release: str
    outcome: str
    seconds: float


ROWS: list[Row] = []
SMOKED: list[SmokeRow] = []
REHEARSED: dict[str, int] = {}
"""The exit code of each release."""
NOTHING_RAN = 3
"""The exit code of a run in which nothing could be run: no wheel, no torch for it."""


@nox.session
@nox.parametrize("release", RELEASES, ids=RELEASES)
def apply(session: nox.Session, release: str) -> None:
    """Install a real vLLM, put the series in, test the hunks, take it out, compare every byte."""
    apply_one(session, release)


@nox.session(default=False)
@nox.parametrize("release", RELEASES, ids=RELEASES)
def matrix(session: nox.Session, release: str) -> None:
    """All that a CI job does for one release, apply and then smoke; `vllm-series matrix` prints
    the jobs. A release that cannot be decoded here has its report say so."""
    apply_one(session, release)
    smoke_one(session, release)


@nox.session(default=False)
@nox.parametrize("release", RELEASES, ids=RELEASES)
def smoke(session: nox.Session, release: str) -> None:
    """Decode with the real engine, stock, patched and off, patched and on, and compare.

    Options of `vllm-series smoke` go behind `--`: `nox -s "smoke(0.32.0)" -- --scenario ngram`.
    """
    install_project(session)
    if smoke_one(session, release) == NOTHING_RAN:
        session.skip(f"{release} was not run here, see above")


def smoke_one(session: nox.Session, release: str) -> int:
    """The exit code of smoke for one release: 0, or NOTHING_RAN; every other one is an error."""
    started = time.monotonic()
    row = SmokeRow(release, "failed", 0.0)
    SMOKED.append(row)
    session.notify("smoke_table")
    try:
        code = exit_code(session, "smoke", release)
    finally:
        row.seconds = time.monotonic() - started
    if code not in (0, NOTHING_RAN):
        session.error(f"smoke of {release} ended with exit code {code}")
    row.outcome = "not run" if code else "ok"
    return code


def exit_code(session: nox.Session, *words: str) -> int:
    """Run a command of this project with the options behind `--`; session.run would keep the exit
    code to itself."""
    path = os.pathsep.join([*(session.bin_paths or ()), os.environ.get("PATH", "")])
    command = shutil.which("vllm-series", path=path) or "vllm-series"
    environ = {**os.environ, "PATH": path}
    done = subprocess.run([command, *words, *session.posargs], check=False, cwd=ROOT, env=environ)
    return done.returncode


@nox.session(default=False, venv_backend="none")
def smoke_table(session: nox.Session) -> None:
    """The table that closes `smoke`; where nothing ran at all, nox exits 3."""
    if not SMOKED:
        session.skip("it closes `nox -s smoke`")
    print(f"\n{'release':<10}{'smoke':<10}{'seconds':>7}")
    for row in SMOKED:
        print(f"{row.release:<10}{row.outcome:<10}{row.seconds:7.1f}")
    if not ROWS and all(row.outcome == "not run" for row in SMOKED):
        raise SystemExit(NOTHING_RAN)


def apply_one(session: nox.Session, release: str) -> None:
    """`apply` for one release, with its row in the closing table."""
    started = time.monotonic()
    row = Row(release, "failed", "", 0.0)
    ROWS.append(row)
    session.notify("apply_table")
    try:
        _apply(session, row)
        row.outcome = "ok"
    finally:
        row.seconds = time.monotonic() - started


def _apply(session: nox.Session, row: Row) -> None:
    """The steps of `apply`; notes the verdict of each patch as soon as it is known."""
    install_project(session, "test")
    target = fresh_environment(session, f"vllm=={row.release}")
    try:
        snapshot = ROOT / "tests" / "snapshot.py"
        before = Path(session.create_tmp()) / "before.json"
        session.run("python", str(snapshot), "take", str(target), str(before), silent=True)
        tool = ("vllm-series",)
        python = ("--python", str(target / "bin" / "python"))
        session.run(*tool, "status", *python)
        # Whatever the exit code, so that the verdicts of a refusal are in the table.
        printed = session.run(
            *tool, "apply", "--json", *python, silent=True, stderr=None, success_codes=[0, 1]
        )
        report = json.loads(printed or "{}")
        row.verdicts = ", ".join(
            f"{patch['name']} {patch['verdict']}" for patch in report.get("patches", [])
        )
        if report.get("outcome") != "applied":
            session.error(f"not applied: {printed}")
        session.log(f"applied: {row.verdicts}")
        session.run(*tool, "verify", *python)
        site = session.run(
            str(target / "bin" / "python"),
            "-c",
            "import sysconfig; print(sysconfig.get_path('purelib'))",
            external=True,
            silent=True,
        )
        session.run(
            "pytest",
            "-q",
            "tests/hunks",
            "--vllm-tree",
            str(site).strip(),
            "-p",
            "no:cacheprovider",
        )
        again = session.run(*tool, "apply", *python, silent=True)
        if "nothing to do" not in (again or ""):
            session.error(f"a second apply was no no-op: {again}")
        session.log((again or "").strip())
        session.run(*tool, "revert", *python)
        session.run("python", str(snapshot), "compare", str(target), str(before))
    finally:
        shutil.rmtree(target, ignore_errors=True)


@nox.session(default=False, venv_backend="none")
def apply_table(session: nox.Session) -> None:
    """The table that closes `apply`; runs by itself behind the last release."""
    if not ROWS:
        session.skip("it closes `nox -s apply`")
    width = max(len(row.verdicts) for row in ROWS)
    print(f"\n{'release':<10}{'outcome':<10}{'verdicts':<{max(width, 8) + 2}}{'seconds':>7}")
    for row in ROWS:
        print(
            f"{row.release:<10}{row.outcome:<10}{row.verdicts:<{max(width, 8) + 2}}"
            f"{row.seconds:7.1f}"
        )


@nox.session(default=False)
@nox.parametrize("release", RELEASES, ids=RELEASES)
def rehearse(session: nox.Session, release: str) -> None:
    """Drive the real scheduler with the series and without it, in both modes, on the CPU.

    Options of `vllm-series rehearse` go behind `--`.
    """
    install_project(session)
    session.notify("rehearse_end")
    code = REHEARSED[release] = exit_code(session, "rehearse", "--release", release)
    if code == NOTHING_RAN:
        session.skip(f"{release} was not run here, see above")
    if code:
        session.error(f"rehearse of {release} ended with exit code {code}")


@nox.session(default=False, venv_backend="none")
def rehearse_end(session: nox.Session) -> None:
    """Runs by itself behind the last release: where nothing ran at all, nox exits 3."""
    if not REHEARSED:
        session.skip("it closes `nox -s rehearse`")
    if all(code == NOTHING_RAN for code in REHEARSED.values()):
        raise SystemExit(NOTHING_RAN)


@nox.session(default=False)
def check(session: nox.Session) -> None:
    """Where every series stands on every release of the index, with nothing installed."""
    install_project(session)
    session.run("vllm-series", "check", *(session.posargs or ["--releases", "all"]))


@nox.session
def tests(session: nox.Session) -> None:
    """The whole test suite, on real releases and real tools."""
    install_project(session, "test")
    arguments = session.posargs or ["-n", "auto", "--dist", "worksteal"]
    session.run("pytest", *arguments)


@nox.session
def lint(session: nox.Session) -> None:
    """Actionlint on the workflows, ruff, and this project's own lint on its own series."""
    install_project(session, "lint")
    workflows = sorted(map(str, (ROOT / ".github" / "workflows").glob("*.yml")))
    # Without the checkers of shells and Python that one machine has and another has not.
    session.run("actionlint", "-shellcheck=", "-pyflakes=", *workflows)
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("vllm-series", "lint")


@nox.session
def types(session: nox.Session) -> None:
    """The strict type checker on everything that is Python here."""
    install_project(session, "types", "test", "nox")
    session.run("mypy")


@nox.session(default=False)
@nox.parametrize("pair", PAIRS, ids=PAIRS)
def proof(session: nox.Session, pair: str) -> None:
    """The diff between two releases as a patch: it makes the newer of the older, and back."""
    install_project(session, "test")
    session.run("pytest", "-q", "tests/replay", "--replay-pair", pair, *session.posargs)


@nox.session(default=False)
def bench(session: nox.Session) -> None:
    """Speed and memory beside git apply, patch and an anchor script, in one table."""
    install_project(session, "test")
    session.run("python", "benchmarks/bench.py", *session.posargs)


@nox.session(default=False)
def bench_smoke(session: nox.Session) -> None:
    """Seconds and disk of a smoke run: one release, and six that share one torch."""
    install_project(session)
    session.run("python", "benchmarks/smoke.py", *session.posargs)


@nox.session(default=False)
def bench_check(session: nox.Session) -> None:
    """Speed, memory and bytes of check beside loops of git apply and patch, git am and quilt."""
    install_project(session, "test")
    session.run("python", "benchmarks/check", *session.posargs)


@nox.session(default=False)
def drift_bench(session: nox.Session) -> None:
    """Where one-line patches land in later releases, beside git, GNU patch and wiggle."""
    install_project(session, "test")
    session.run("python", "benchmarks/drift", *session.posargs)


@nox.session(default=False)
def structure_bench(session: nox.Session) -> None:
    """How many conflicts the syntax tree takes away, and how often it is wrong."""
    install_project(session, "test")
    session.run("python", "benchmarks/structure.py", *session.posargs)


@nox.session(default=False)
def bench_rebase(session: nox.Session) -> None:
    """What rebase carries of real history and of kept series, beside git, and how fast."""
    install_project(session, "test")
    session.run("python", "benchmarks/rebase", *session.posargs)


def install_project(session: nox.Session, *groups: str) -> None:
    """The project and its dependency groups from pyproject.toml (PEP 735)."""
    project = nox.project.load_toml(ROOT / "pyproject.toml")
    session.install("-e", ".", *nox.project.dependency_groups(project, *groups), silent=True)


def fresh_environment(session: nox.Session, requirement: str) -> Path:
    """A new environment that holds one wheel and nothing else.

    vLLM from 0.32 on asks for Python 3.11; none of it is imported here, so 3.10 does too.
    """
    target = Path(session.create_tmp()) / "target"
    shutil.rmtree(target, ignore_errors=True)
    if session.venv_backend == "uv":
        session.run("uv", "venv", "--quiet", "--python", sys.executable, str(target), external=True)
        session.run(
            "uv", "pip", "install", "--quiet", "--no-deps", "--python", str(target / "bin/python"),
            *(() if sys.version_info >= (3, 11) else ("--python-version", "3.11")),
            requirement, external=True,
        )  # fmt: skip
    else:
        session.run("python", "-m", "venv", "--without-pip", str(target))
        session.run(
            "python", "-m", "pip", "--python", str(target / "bin/python"), "install", "--quiet",
            "--no-deps", "--ignore-requires-python", "--disable-pip-version-check", requirement,
        )  # fmt: skip
    return target
