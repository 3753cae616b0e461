"""The command check: on the real index, on wheels made by hand, and where all goes wrong."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest
from junitparser import JUnitXml

from answers import RELEASES
from archives import named, wheel
from commandline import PROJECT, run

SCHEMA = json.loads((PROJECT / "docs" / "schemas" / "check.json").read_text("utf-8"))
DIFF = (
    b"--- a/vllm/engine.py\n+++ b/vllm/engine.py\n@@ -10,3 +10,4 @@\n"
    b" line 9\n line 10\n+added\n line 11\n"
)
"""Fits the engine of the wheels made by hand."""
LATER = "vllm-9.10.0-py3-none-any.whl"


# -- the real index -------------------------------------------------------------------------------


def test_every_series_of_this_project_is_clean_on_its_releases() -> None:
    told = run("check")
    assert (told.code, told.err) == (0, "")
    assert "clean on all 36 supported releases" in told.out


@pytest.mark.parametrize(("series", "drifted"), [(None, 0), ("vllm-0.32", 28)])
def test_thirty_six_releases_stand_in_one_table_of_a_hundred_columns(
    series: str | None, drifted: int
) -> None:
    named = ("--series", series) if series else ()
    told = run("check", "--releases", "0.10.2..0.33.0", *named)
    assert told.code == 0
    lines = told.out.split("\n")
    assert max(map(len, lines)) <= 100
    (row,) = (line for line in lines if line.startswith("dynwidth.patch  "))
    assert len(row.removeprefix("dynwidth.patch").replace(" ", "")) == len(RELEASES)
    assert row.removeprefix("dynwidth.patch").count("d") == drifted
    said = "dynwidth.patch: drifted on 0.10.2 to 0.26.0 (28 releases, not supported)."
    assert (said in told.out) == bool(drifted)


def test_details_name_hunks_and_wheels() -> None:
    told = run("check", "--series", "vllm-0.33", "--releases", "0.26.0,0.33", "-v")
    assert "hunk 3  drifted in Scheduler.update_from_output\n      " in told.out
    assert "--- the hunk expects" in told.out
    assert "dynwidth.patch on 0.33.0 (vllm-0.33, base 0.33.0): exact" in told.out
    assert re.search(r"0\.33\.0 +2026-11-02 +vllm-0\.33 +vllm 0\.33\.0 \(vllm-.*\.whl\)", told.out)


def test_several_forms_in_one_run_say_the_same(tmp_path: Path) -> None:
    xml, page = tmp_path / "check.xml", tmp_path / "check.md"
    told = run(
        "check", "--series", "vllm-0.27", "--releases", "0.26..0.27",
        "--json", "--junit", xml, "--markdown", page,
    )  # fmt: skip
    value = told.json()
    jsonschema.Draft202012Validator(SCHEMA).validate(value)
    assert told.code == 0
    assert value["supported"] == 2
    releases = value["releases"]
    assert isinstance(releases, list)
    assert [one["release"] for one in releases] == ["0.26.0", "0.27.0", "0.27.1"]
    report = JUnitXml.fromfile(str(xml))
    assert (report.tests, report.skipped, report.failures) == (3, 1, 0)
    assert "| `0.26.0` | no | **drifted** |" in page.read_text("utf-8")


def test_a_series_that_does_not_fit_a_supported_release_is_a_failure(series: Path) -> None:
    patch = series / "vllm-0.33" / "dynwidth.patch"
    text = patch.read_bytes()
    context = next(line for line in text.splitlines() if line.startswith(b"         # "))
    patch.write_bytes(text.replace(context, context + b" (not so)"))
    told = run("check", "--series-dir", series)
    assert told.code == 1
    assert "not clean on 1 of 36 supported releases: 0.33.0" in told.out
    quiet = run("check", "--series-dir", series, "-q")
    assert quiet.code == 1
    assert quiet.out.startswith("dynwidth.patch: drifted on 0.33.0. ")
    assert "supported" not in quiet.out
    failed = JUnitXml.fromstring(run("check", "--series-dir", series, "--junit").out.encode())
    assert (failed.tests, failed.failures) == (36, 1)


def test_quiet_says_nothing_where_all_is_clean() -> None:
    told = run("check", "-q", "--releases", "0.33")
    assert (told.code, told.out, told.err) == (0, "", "")


# -- wheels made by hand --------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with two wheels, a series for the line 9.9, and a diff that fits."""
    (tmp_path / "fix.diff").write_bytes(DIFF)
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    (wheels / "vllm-9.9.9-py3-none-any.whl").write_bytes(wheel())
    (wheels / "vllm-9.9.8-py3-none-any.whl").write_bytes(b"no archive")
    folder = tmp_path / "series" / "vllm-9.9"
    folder.mkdir(parents=True)
    (folder / "series").write_text("fix.diff\n")
    (folder / "fix.diff").write_bytes(DIFF)
    return tmp_path


def check(place: Path, *words: str | Path, stdin: bytes = b"") -> tuple[int, str, str]:
    told = run(
        "check", "--no-index", "--find-links", place / "wheels", *words,
        cwd=place, stdin=stdin, VLLM_SERIES_CACHE=str(place / "cache"),
    )  # fmt: skip
    return told.code, told.out, told.err


def test_a_damaged_wheel_hides_no_other_answer(place: Path) -> None:
    code, out, err = check(place)
    assert (code, err) == (1, "")
    assert "fix.diff  !=" in out
    assert "9.9.8: not judged. vllm 9.9.8 (vllm-9.9.8-py3-none-any.whl) is not an archive" in out
    code, out, _ = check(place, "--json")
    value = json.loads(out)
    jsonschema.Draft202012Validator(SCHEMA).validate(value)
    assert (code, value["not_judged"], value["not_clean"]) == (1, ["9.9.8"], ["9.9.8"])
    assert [len(one["patches"]) for one in value["releases"]] == [0, 1]


def test_what_is_not_supported_does_not_count(place: Path) -> None:
    shutil.rmtree(place / "series")
    code, out, _ = check(place, "--patch", "fix.diff")
    assert (code, "fix.diff  !=" in out) == (0, True)
    (place / "fix.diff").write_bytes(DIFF.replace(b" line 9\n", b" line nine\n"))
    code, out, _ = check(place, "--patch", "fix.diff")
    assert (code, "fix.diff  !d" in out) == (0, True)
    assert "none of these releases is supported, so none counts" in out


def test_where_nothing_can_be_judged_the_code_is_3(place: Path) -> None:
    code, out, _ = check(place, "--releases", "9.9.8")
    assert code == 3
    assert "1 release could not be judged" in out
    code, out, _ = check(place, "--releases", "9.9.8", "-q")
    assert code == 3
    assert out.startswith("9.9.8: not judged. ")


def test_nothing_to_judge_is_no_success(place: Path) -> None:
    (place / "series" / "vllm-9.9" / "series").write_text("# none yet\n")
    code, out, err = check(place, "--releases", "9.9.9")
    assert (code, out) == (1, "")
    assert "no series here lists a patch" in err
    for file in (place / "wheels").iterdir():
        file.rename(file.with_name("vllm-9.9.9rc1-py3-none-any.whl"))
    code, out, err = check(place, "--patch", "fix.diff")
    assert (code, out) == (3, "")
    assert "no final release to judge" in err


def test_an_index_out_of_reach_is_said_once(tmp_path: Path) -> None:
    told = run(
        "check", "--index-url", "http://127.0.0.1:9/simple", "--no-cache", "--json"
    )  # fmt: skip
    assert (told.code, told.out) == (3, "")
    assert told.err.count("vllm-series: ") == 1


def test_a_patch_that_cannot_be_read_is_refused_and_no_release_blamed(place: Path) -> None:
    code, out, err = check(place, "--patch", "-", "--releases", "9.9.9", stdin=b"no diff\n")
    assert (code, out) == (1, "")
    assert err.startswith("vllm-series: stdin.patch: ")


def test_diffs_are_told_apart_by_their_folders_and_given_once(place: Path) -> None:
    other = place / "other"
    other.mkdir()
    (other / "fix.diff").write_bytes(DIFF.replace(b"added", b"more"))
    _, out, _ = check(place, "--patch", "fix.diff", "--patch", "other/fix.diff")
    rows = [line.split()[0] for line in out.split("\n") if re.search("  !.$", line)]
    assert rows == ["fix.diff", "other/fix.diff"]
    code, out, err = check(place, "--patch", "fix.diff", "--patch", "fix.diff")
    assert (code, out) == (2, "")
    assert "given twice" in err


def test_no_file_name_and_no_locale_breaks_the_answer(place: Path) -> None:
    name = os.fsdecode(b"\x1b[31m\xff\n|n\xc3\xa9w`.diff")
    (place / name).write_bytes(DIFF)
    for words in ((), ("-v",), ("--json",), ("--junit",), ("--markdown",)):
        done = subprocess.run(
            [
                *(sys.executable, "-m", "vllm_series", "check", "--patch", name, *words),
                *("--no-index", "--find-links", "wheels", "--releases", "9.9.9"),
            ],
            cwd=place,
            capture_output=True,
            check=False,
            env={
                **os.environ,
                "PYTHONIOENCODING": "ascii",
                "VLLM_SERIES_CACHE": str(place / "cache"),
            },
        )
        assert (done.returncode, done.stderr) == (0, b"")
        assert b"\x1b" not in done.stdout
        assert b"9.9.9" in done.stdout


def test_a_series_that_cannot_be_read_hides_no_other(place: Path) -> None:
    (place / "wheels" / LATER).write_bytes(wheel(named("vllm-9.10.0")))
    other = place / "series" / "vllm-9.10"
    other.mkdir()
    (other / "series").write_text("gone.patch\n")
    code, out, err = check(place, "--releases", "9.9.9,9.10")
    assert (code, err) == (1, "")
    assert "fix.diff  =" in out
    said = " ".join(out.split())
    assert "9.10.0: not judged. " in said
    assert "lists gone.patch, which is not there" in said
    code, out, err = check(place, "--releases", "9.10")
    assert (code, out) == (1, "")
    assert "lists gone.patch" in err


def test_one_commit_or_folder_is_judged_though_it_is_no_release(place: Path) -> None:
    (place / "tree" / "vllm").mkdir(parents=True)
    (place / "tree" / "vllm" / "_version.py").write_text("__version__ = '9.9.10.dev3+g1234567'\n")
    (place / "tree" / "vllm" / "engine.py").write_bytes(
        b"".join(b"line %d\n" % number for number in range(30))
    )
    told = run("check", "--source", f"dir:{place / 'tree'}", cwd=place)
    assert told.code == 0
    assert "fix.diff" in told.out
    assert "clean on the one supported release" in told.out


def test_a_wheel_that_stands_for_nothing_judged_is_said(place: Path) -> None:
    name = "vllm-9.9.8-py3-none-any.whl"
    code, _, err = check(place, "--releases", "9.9.9", "--wheel", name)
    assert code == 0
    assert f"--wheel {name} is of a release that is not judged here" in err


# -- words and streams ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ("--releases", "0.99"),
        ("--releases", "newest"),
        ("--patch", "fix.diff", "--series", "vllm-9.9"),
        ("--exclude", "*.py"),
        ("--patch", "not-there.diff"),
        ("--base", "0.0.0"),
        ("--json", "--junit"),
        ("--junit", "--markdown", "-"),
        ("--junit", "one", "--markdown", "one"),
        ("--junit", "no-folder/check.xml"),
        ("--markdown", "wheels"),
    ],
    ids=" ".join,
)
def test_words_that_have_no_meaning_are_refused(place: Path, words: tuple[str, ...]) -> None:
    code, out, err = check(place, *words)
    assert (code, out) == (2, "")
    assert err


def test_a_reader_that_leaves_changes_no_code(place: Path) -> None:
    line = (
        f"{sys.executable} -m vllm_series check --no-index --find-links wheels "
        "--releases 9.9.9 -v | head -n 1"
    )
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line}"], cwd=place, capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_terminal_sees_progress_and_a_narrow_one_narrow_lines(
    place: Path, oracle: Callable[[str], str]
) -> None:
    line = f"stty cols 60; {sys.executable} -m vllm_series check --no-index --find-links wheels"
    done = subprocess.run(
        [oracle("script"), "-qec", line, "/dev/null"],
        cwd=place,
        capture_output=True,
        check=False,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "TERM": "xterm", "NO_COLOR": "1", "VLLM_SERIES_CACHE": str(place / "c")},
    )
    told = done.stdout.decode()
    assert "judged 9.9.9, 2 of 2 releases …\r\x1b[K" in told
    shown = told.rpartition("\x1b[K")[2].replace("\r\n", "\n")
    assert "fix.diff  !=" in shown
    assert max(map(len, shown.split("\n"))) <= 60


def test_releases_and_series_complete() -> None:
    def completed(words: str, index: int) -> list[str]:
        told = run(
            _VLLM_SERIES_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=str(index)
        )  # fmt: skip
        return [line.partition(",")[2] for line in told.out.split()]

    assert completed("vllm-series check --series vllm-0.33", 3) == ["vllm-0.33"]
    assert completed("vllm-series check --releases a", 3) == ["all"]
    assert completed("vllm-series check --releases 0.33", 3) == ["0.33", "0.33.0"]
    assert completed("vllm-series check --releases 0.30..0.33", 3) == [
        "0.30..0.33",
        "0.30..0.33.0",
    ]
    assert completed("vllm-series check --releases 0.30,a", 3) == []
