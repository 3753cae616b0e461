"""The workflows: every line is one of this project's, and they are run here as GitHub would.

Run for real are all installations by pip, `matrix`, `summary`, and the sessions in `REAL`. The real
nox says of every other session that it is there and what it stands for; what it does is the matter
of other tests, or of a run by hand.
"""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

import pytest
import yaml
from markdown_it import MarkdownIt

import workflow as actions
from vllm_series.cli import COMMANDS

NAMES = sorted(path.name for path in actions.FOLDER.glob("*.yml"))
REAL = frozenset({"lint", "check"})
LISTED: list[str] = json.loads((actions.ROOT / "tests/releases.json").read_text())["releases"]
INSTALLATIONS = {
    "python -m pip install nox uv",
    "python -m pip install .",
    "sudo apt-get update --quiet",
    "sudo apt-get install --yes --no-install-recommends fish patch quilt zsh",
}


@pytest.fixture(params=NAMES)
def workflow(request: pytest.FixtureRequest) -> dict[str, Any]:
    return actions.load(request.param)


# -- as they stand --------------------------------------------------------------------------------


def test_there_are_two() -> None:
    assert NAMES == ["ci.yml", "matrix.yml"]


def test_every_line_is_a_session_or_a_command_of_this_project(workflow: dict[str, Any]) -> None:
    for step in actions.steps(workflow):
        if "run" not in step:
            continue
        line = step["run"]
        assert "\n" not in line
        words = shlex.split(line)
        is_session = words[:2] == ["nox", "-s"]
        is_command = words[0] == "vllm-series" and words[1] in COMMANDS
        assert is_session or is_command or line in INSTALLATIONS, line


def test_actions_are_pinned_by_commit_with_the_version_beside_it() -> None:
    for name in NAMES:
        for line in (actions.FOLDER / name).read_text().splitlines():
            if "uses:" in line:
                assert re.search(r"uses: [\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line), line


def test_the_token_may_only_read_and_every_job_has_an_end(workflow: dict[str, Any]) -> None:
    assert workflow["permissions"] == {"contents": "read"}
    assert "concurrency" in workflow
    for name, job in workflow["jobs"].items():
        assert "permissions" not in job, name
        assert job["timeout-minutes"] <= 90, name
    for step in actions.steps(workflow):
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"] == {"persist-credentials": False}
        if step.get("uses", "").startswith("actions/upload-artifact@"):
            assert step["if"] == "always()"


def test_what_the_tests_compare_with_is_what_the_check_of_a_checkout_installs() -> None:
    needed = re.findall(r"^need \w+ (\S+)", (actions.ROOT / ".ci/run").read_text(), re.MULTILINE)
    [line] = [line for line in INSTALLATIONS if "apt-get install" in line]
    assert set(needed) - {"git"} == {word for word in line.split()[3:] if word[0] != "-"}


def in_the_docs() -> str:
    """The whole workflow that docs/ci.md gives to copy."""
    [block] = [
        token.content
        for token in MarkdownIt().parse((actions.ROOT / "docs/ci.md").read_text())
        if token.info == "yaml"
    ]
    return block


# -- as they run ----------------------------------------------------------------------------------


def releases(job: actions.Job) -> list[str]:
    return [values["release"] for values in job.matrices]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> actions.Machine:
    return actions.Machine(tmp_path_factory.mktemp("machine"), real=REAL)


def test_ci(machine: actions.Machine) -> None:
    machine.outcome = None
    jobs = actions.run(actions.load("ci.yml"), machine)
    for name in ("lint", "tests", "check", "releases", "decode"):
        assert jobs[name].result == "success", jobs[name].log
    assert "0.33.0" in jobs["check"].summary
    assert releases(jobs["decode"]) == ["0.33.0", "0.32.0", "0.31.0"]
    asked = {one["session"]: one["is_real"] for one in machine.noted("nox")}
    assert asked == {
        "lint": True,
        "types": False,
        "tests": False,
        "check": True,
        **{f"matrix({release})": False for release in ("0.33.0", "0.32.0", "0.31.0")},
    }
    assert [words[:2] for words in machine.noted("sudo")] == [
        ["apt-get", "update"],
        ["apt-get", "install"],
    ]
    # No session left a report here, and the page takes none of that for a pass.
    assert jobs["summary"].result == "failure"
    assert "3 runs: 3 no report" in jobs["summary"].summary


def test_lint_finds_what_is_wrong_with_a_workflow(machine: actions.Machine) -> None:
    folder = machine.checkout / ".github/workflows"
    (folder / "docs.yml").write_text(in_the_docs())
    text = in_the_docs().replace("steps.matrix.outputs.cpu", "steps.metrix.outputs.cpu")
    (folder / "wrong.yml").write_text(text)
    try:
        job = actions.load("ci.yml")["jobs"]["lint"]
        ran = machine.shell("nox -r -s lint", machine.ready(job))
    finally:
        (folder / "docs.yml").unlink()
        (folder / "wrong.yml").unlink()
    told = ran.stdout.decode()
    assert ran.returncode == 1
    assert 'property "metrix" is not defined' in told
    assert set(re.findall(r"^\S+/(\w+\.yml):\d", told, re.MULTILINE)) == {"wrong.yml"}


def test_the_workflow_of_the_docs(machine: actions.Machine) -> None:
    machine.outcome = "passed"
    jobs = actions.run(yaml.safe_load(in_the_docs()), machine)
    assert {job.result for job in jobs.values()} == {"success"}, jobs["summary"].log
    assert "2 runs: 2 passed" in jobs["summary"].summary


def test_the_matrix_on_a_repository_without_a_gpu(machine: actions.Machine) -> None:
    machine.outcome = "passed"
    jobs = actions.run(actions.load("matrix.yml"), machine)
    assert [name for name, job in jobs.items() if job.result != "success"] == ["gpu"]
    assert jobs["gpu"].result == "skipped"
    assert sorted(releases(jobs["cpu"])) == sorted(LISTED)
    page = jobs["summary"].summary
    assert f"{len(LISTED) + 3} runs: 3 not run, {len(LISTED)} passed" in page
    assert "- **not run**: there is no runner" in page
    assert "0.33.0 on gpu" in page


def test_the_matrix_on_a_repository_with_a_gpu(machine: actions.Machine) -> None:
    machine.outcome = "passed"
    jobs = actions.run(
        actions.load("matrix.yml"),
        machine,
        variables={"GPU_RUNNER": "h200"},
        inputs={"releases": "0.31.."},
    )
    assert {job.result for job in jobs.values()} == {"success"}, jobs["summary"].log
    assert jobs["gpu"].runs_on == ["self-hosted", "h200"]
    assert releases(jobs["gpu"]) == releases(jobs["cpu"]) == ["0.33.0", "0.32.0", "0.31.0"]
    assert "6 runs: 6 passed" in jobs["summary"].summary


def test_a_release_that_fails_makes_the_matrix_fail(machine: actions.Machine) -> None:
    machine.outcome = "failed"
    jobs = actions.run(actions.load("matrix.yml"), machine, inputs={"releases": "0.32"})
    assert jobs["summary"].result == "failure"
    assert "**0.32.0 on cpu: failed**" in jobs["summary"].summary


def test_a_release_that_there_is_not_stops_it_at_once(machine: actions.Machine) -> None:
    jobs = actions.run(actions.load("matrix.yml"), machine, inputs={"releases": "9.9"})
    assert jobs["releases"].result == "failure"
    assert "no release is meant by 9.9" in jobs["releases"].log
    assert {jobs[name].result for name in ("cpu", "gpu", "summary")} == {"skipped"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("needs.gpu.result == 'skipped' && 'gpu=none' || ''", "gpu=none"),
        ("needs.cpu.result == 'skipped' && 'gpu=none' || ''", ""),
        ("!cancelled() && needs.cpu.result == 'success'", True),
        ("vars.GPU_RUNNER != ''", False),
        ("inputs.releases || 'it''s all'", "it's all"),
        ("fromJSON(needs.cpu.outputs.x)", {"include": []}),
    ],
)
def test_expressions_mean_what_github_says(text: str, expected: object) -> None:
    needs = {
        "gpu": {"result": "skipped"},
        "cpu": {"result": "success", "outputs": {"x": '{"include":[]}'}},
    }
    contexts = {"needs": needs, "vars": {}, "inputs": {}}
    assert actions.Expression(text, contexts).value() == expected


def test_the_stand_in_of_nox_knows_no_session_that_there_is_not(
    machine: actions.Machine,
) -> None:
    job = actions.load("ci.yml")["jobs"]["lint"]
    ran = machine.shell('nox -s "matrix(9.9)"', machine.ready(job))
    assert ran.returncode != 0
    assert b"not found" in ran.stderr
