"""Runs a workflow of GitHub Actions here, as its runner would: jobs in order, each `run:` by bash.

Of the language it knows what this project's workflows use, and fails on anything else. The actions
that are used are done by hand: a checkout is a copy of the working tree, artifacts are folders.
`Machine` says what is not done for real.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / ".github" / "workflows"

_TOKEN = re.compile(
    r"\s*(?:(?P<text>'(?:[^']|'')*')|(?P<sign>&&|\|\||==|!=|[!(),])|(?P<name>[\w.*-]+))"
)
_EXPRESSION = re.compile(r"\$\{\{(.*?)\}\}", re.DOTALL)
_STATUS = {"success", "always", "cancelled", "failure"}


def load(name: str) -> dict[str, Any]:
    """One workflow file as it stands."""
    value: dict[str, Any] = yaml.safe_load((FOLDER / name).read_text())
    return value


def steps(workflow: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Every step of every job."""
    for job in workflow["jobs"].values():
        yield from job["steps"]


# -- expressions ----------------------------------------------------------------------------------


class Expression:
    """GitHub's expressions, as far as they are used: names, texts, `!`, `==`, `!=`, `&&`, `||`,
    `fromJSON` and the functions that ask how the jobs before went. A name that is not there is
    empty."""

    def __init__(self, text: str, contexts: Mapping[str, Any], *, is_well: bool = True) -> None:
        self._tokens = [match.group().strip() for match in _TOKEN.finditer(text)]
        assert "".join(self._tokens) == re.sub(r"\s+(?=(?:[^']*'[^']*')*[^']*$)", "", text), text
        self._contexts = contexts
        self._is_well = is_well
        self._at = 0

    def value(self) -> Any:
        found = self._either()
        assert self._at == len(self._tokens), self._tokens
        return found

    def _next(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self) -> str:
        self._at += 1
        return self._tokens[self._at - 1]

    def _either(self) -> Any:
        left = self._both()
        while self._next() == "||":
            self._take()
            right = self._both()
            left = left or right
        return left

    def _both(self) -> Any:
        left = self._equal()
        while self._next() == "&&":
            self._take()
            right = self._equal()
            left = left and right
        return left

    def _equal(self) -> Any:
        left = self._one()
        while self._next() in ("==", "!="):
            sign, right = self._take(), self._one()
            left = (left == right) is (sign == "==")
        return left

    def _one(self) -> Any:
        word = self._take()
        if word == "!":
            return not self._one()
        if word == "(":
            found = self._either()
            assert self._take() == ")"
            return found
        if word.startswith("'"):
            return word[1:-1].replace("''", "'")
        if self._next() != "(":
            return self._looked_up(word)
        self._take()
        argument = None if self._next() == ")" else self._either()
        assert self._take() == ")"
        if word == "fromJSON":
            return json.loads(str(argument))
        assert word in _STATUS, f"a function that is not known here: {word}"
        return {"success": self._is_well, "failure": not self._is_well, "always": True}.get(
            word, False
        )

    def _looked_up(self, name: str) -> Any:
        first, *rest = name.split(".")
        found = self._contexts[first]
        for part in rest:
            found = found.get(part, "") if isinstance(found, Mapping) else ""
        return found


def filled(value: Any, contexts: Mapping[str, Any]) -> Any:
    """A value of the file with its expressions worked out; a text that is one expression becomes
    what it gives, be it a list or an object."""
    if isinstance(value, list):
        return [filled(one, contexts) for one in value]
    if not isinstance(value, str):
        return value
    whole = _EXPRESSION.fullmatch(value.strip())
    if whole:
        return Expression(whole[1], contexts).value()
    return _EXPRESSION.sub(lambda match: str(Expression(match[1], contexts).value()), value)


# -- the machine ----------------------------------------------------------------------------------


@dataclass
class Machine:
    """Where jobs run: a copy of the working tree, one environment for each line that installs.

    Two commands are stood in for. `sudo` notes its words and does nothing. `nox` lets the real nox
    work out which sessions the words mean, which fails for one that there is not, notes them, and
    runs them for real where all are in `real`; the others take minutes to hours, or would run this
    test in turn. With `outcome`, a session `matrix(RELEASE)` that is not run leaves a report with
    that outcome.
    """

    home: Path
    real: frozenset[str] = frozenset()
    outcome: str | None = None
    checkout: Path = field(init=False)

    def __post_init__(self) -> None:
        self.checkout = self.home / "checkout"
        listed = subprocess.run(
            ["git", "-c", "safe.directory=*", "ls-files", "-z"],
            cwd=ROOT,
            capture_output=True,
            check=True,
        ).stdout
        for name in filter(None, listed.decode().split("\0")):
            if (ROOT / name).is_file():
                (self.checkout / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.checkout / name)
        stand_ins = self.home / "stand-ins"
        stand_ins.mkdir()
        for name in ("nox", "sudo"):
            (stand_ins / name).write_text(f"#!{sys.executable}\n{_STAND_INS[name]}")
            (stand_ins / name).chmod(0o755)

    def noted(self, name: str) -> list[Any]:
        """What a command that is stood in for was asked: sessions for `nox`, words for `sudo`."""
        place = self.home / f"{name}.noted"
        return (
            [json.loads(line) for line in place.read_text().splitlines()] if place.exists() else []
        )

    def ready(self, job: Mapping[str, Any]) -> dict[str, str]:
        """The variables of a job once its lines that install have run."""
        env = self.environment(job)
        for step in job["steps"]:
            if " pip install " in step.get("run", ""):
                ran = self.shell(step["run"], env)
                assert ran.returncode == 0, ran.stderr.decode()
        return env

    def environment(self, job: Mapping[str, Any]) -> dict[str, str]:
        """The variables of a job: this process's, less those that its own runner has set."""
        installs = [step["run"] for step in job["steps"] if " pip install " in step.get("run", "")]
        venv = self.home / ("venv-" + re.sub(r"\W+", "-", " ".join(installs)))
        if not venv.exists():
            subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        strange = ("NOX_", "PYTEST_", "GITHUB_", "VIRTUAL_ENV", "PYTHONPATH", "COLUMNS")
        kept = {key: value for key, value in os.environ.items() if not key.startswith(strange)}
        path = [self.home / "stand-ins", venv / "bin", kept["PATH"]]
        return {
            **kept,
            "CI": "true",
            "GITHUB_ACTIONS": "true",
            "PATH": os.pathsep.join(map(str, path)),
            "WORKFLOW_HOME": str(self.home),
            "WORKFLOW_NOX": str(venv / "bin" / "nox"),
            "WORKFLOW_REAL": json.dumps(sorted(self.real)),
            "WORKFLOW_OUTCOME": self.outcome or "",
        }

    def shell(self, line: str, env: Mapping[str, str]) -> subprocess.CompletedProcess[bytes]:
        """Run one `run:` as GitHub does where no shell is named: `bash -e FILE`.

        An installation that is there already, from an earlier job, is not done again.
        """
        done = Path(env["PATH"].split(os.pathsep)[1]).parent / "installed.json"
        earlier: list[str] = json.loads(done.read_text()) if done.exists() else []
        if line in earlier:
            return subprocess.CompletedProcess([], 0, b"", b"")
        script = self.home / "step.sh"
        script.write_text(line)
        ran = subprocess.run(
            ["bash", "-e", script], cwd=self.checkout, env=env, capture_output=True, check=False
        )
        if " pip install " in line and ran.returncode == 0:
            done.write_text(json.dumps([*earlier, line]))
        return ran


_STAND_INS = {
    "sudo": """
import json, os, sys
with open(os.environ["WORKFLOW_HOME"] + "/sudo.noted", "a") as file:
    file.write(json.dumps(sys.argv[1:]) + "\\n")
""",
    "nox": """
import json, os, subprocess, sys
nox, words = os.environ["WORKFLOW_NOX"], sys.argv[1:]
listed = subprocess.run([nox, "--list", "--json", *words], stdout=subprocess.PIPE)
if listed.returncode:
    sys.exit(listed.returncode)
sessions = json.loads(listed.stdout)
is_real = all(one["name"] in json.loads(os.environ["WORKFLOW_REAL"]) for one in sessions)
with open(os.environ["WORKFLOW_HOME"] + "/nox.noted", "a") as file:
    for one in sessions:
        file.write(json.dumps({"session": one["session"], "is_real": is_real}) + "\\n")
if is_real:
    os.execv(nox, [nox, *words])
for one in sessions:
    release = one["call_spec"].get("release")
    if one["name"] == "matrix" and os.environ["WORKFLOW_OUTCOME"]:
        os.makedirs("reports", exist_ok=True)
        report = {"schema": 1, "release": release, "device": os.environ["WORKFLOW_DEVICE"],
                  "outcome": os.environ["WORKFLOW_OUTCOME"], "scenarios": []}
        with open(f"reports/smoke-{release}.json", "w") as file:
            json.dump(report, file)
""",
}


# -- jobs -----------------------------------------------------------------------------------------


@dataclass
class Job:
    """What became of a job: `success`, `failure` or `skipped`; over all of its matrix."""

    result: str
    outputs: dict[str, str] = field(default_factory=dict)
    matrices: list[dict[str, Any]] = field(default_factory=list)
    runs_on: Any = None
    summary: str = ""
    log: str = ""


def run(
    workflow: Mapping[str, Any],
    machine: Machine,
    *,
    variables: Mapping[str, str] | None = None,
    inputs: Mapping[str, str] | None = None,
) -> dict[str, Job]:
    """Run every job once its needs are done; give what became of each."""
    done: dict[str, Job] = {}
    artifacts = machine.home / "artifacts"
    shutil.rmtree(artifacts, ignore_errors=True)
    for note in machine.home.glob("*.noted"):
        note.unlink()
    left = dict(workflow["jobs"])
    while left:
        name = next(key for key, job in left.items() if set(_needs(job)) <= set(done))
        job = left.pop(name)
        needs = {
            one: {"result": done[one].result, "outputs": done[one].outputs} for one in _needs(job)
        }
        contexts = {
            "needs": needs,
            "vars": variables or {},
            "inputs": inputs or {},
            "github": {"ref": "refs/heads/main", "event_name": "push"},
            "matrix": {},
            "steps": {},
        }
        done[name] = _job(job, machine, contexts, artifacts)
    return done


def _needs(job: Mapping[str, Any]) -> list[str]:
    needs: str | list[str] = job.get("needs", [])
    return [needs] if isinstance(needs, str) else needs


def _job(
    job: Mapping[str, Any], machine: Machine, contexts: dict[str, Any], artifacts: Path
) -> Job:
    is_well = all(need["result"] == "success" for need in contexts["needs"].values())
    condition = str(job.get("if", "success()"))
    condition = re.sub(r"^\$\{\{|\}\}$", "", condition.strip()).strip()
    if not any(f"{word}()" in condition for word in _STATUS):
        condition = f"success() && ({condition})"  # as GitHub adds it
    if not Expression(condition, contexts, is_well=is_well).value():
        return Job("skipped")
    matrix = filled(job.get("strategy", {}).get("matrix"), contexts)
    made: list[dict[str, Any]] = [{}] if matrix is None else matrix["include"]
    result = Job("success", matrices=made)
    for values in made:
        contexts = {**contexts, "matrix": values, "steps": {}}
        result.runs_on = filled(job["runs-on"], contexts)
        shutil.rmtree(machine.checkout / "reports", ignore_errors=True)
        if not _steps(job, machine, contexts, artifacts, result):
            result.result = "failure"
    result.outputs = {key: filled(text, contexts) for key, text in job.get("outputs", {}).items()}
    return result


def _steps(
    job: Mapping[str, Any],
    machine: Machine,
    contexts: dict[str, Any],
    artifacts: Path,
    result: Job,
) -> bool:
    """Whether all steps of one job went well; what is behind a failure runs `if: always()` only."""
    base = machine.environment(job)
    device = contexts["matrix"].get("device", "")
    base["WORKFLOW_DEVICE"] = {"gpu": "nvidia"}.get(device, device)
    is_well = True
    for step in job["steps"]:
        if not is_well and step.get("if") != "always()":
            continue
        if "uses" in step:
            _action(step, machine, contexts, artifacts)
            continue
        files = {key: machine.home / key for key in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
        for file in files.values():
            file.write_bytes(b"")
        own = {**job.get("env", {}), **step.get("env", {})}
        env = {key: str(filled(value, contexts)) for key, value in own.items()}
        assert not _EXPRESSION.search(step["run"]), "an expression in a shell line"
        ran = machine.shell(step["run"], {**base, **{k: str(v) for k, v in files.items()}, **env})
        result.log += f"$ {step['run']}\n{ran.stdout.decode()}{ran.stderr.decode()}"
        result.summary += files["GITHUB_STEP_SUMMARY"].read_text()
        is_well = is_well and ran.returncode == 0
        lines = files["GITHUB_OUTPUT"].read_text().splitlines()
        outputs = dict(line.split("=", 1) for line in lines)
        if "id" in step:
            contexts["steps"][step["id"]] = {"outputs": outputs}
    return is_well


def _action(
    step: Mapping[str, Any], machine: Machine, contexts: Mapping[str, Any], artifacts: Path
) -> None:
    name = step["uses"].partition("@")[0]
    given = step.get("with", {})
    if name == "actions/upload-artifact":
        source = machine.checkout / given["path"]
        if source.is_dir():
            shutil.copytree(source, artifacts / filled(given["name"], contexts))
    elif name == "actions/download-artifact":
        for artifact in artifacts.glob(given["pattern"]):
            shutil.copytree(artifact, machine.checkout / given["path"] / artifact.name)
    else:
        assert name in ("actions/checkout", "actions/setup-python", "actions/cache"), name
