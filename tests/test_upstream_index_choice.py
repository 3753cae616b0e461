"""The wheel of a release is the one that pip takes, by pip's own word."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from indexes import JSON, entry, html_page, installable, json_page, sealed
from ranged import Served, server
from vllm_series.errors import UsageError
from vllm_series.upstream.choice import Choice, choices
from vllm_series.upstream.index import IndexFile
from vllm_series.upstream.listing import list_files
from vllm_series.upstream.settings import IndexSettings, index_settings
from vllm_series.upstream.store import Store
from vllm_series.upstream.target import Target, platforms_of, target


@pytest.fixture(scope="module")
def real() -> tuple[IndexFile, ...]:
    """What the real index holds."""
    return list_files(index_settings(), "vllm", Store(None))


@pytest.fixture
def served() -> Iterator[Served]:
    with server() as running:
        running.types["/simple/vllm/"] = JSON
        yield running


def chosen(files: tuple[IndexFile, ...], release: str, goal: Target, *wheels: str) -> Choice:
    return next(c for c in choices(files, goal, wheels) if c.release == release)


def name_of(choice: Choice) -> str:
    assert choice.file is not None
    return choice.file.filename


def pip_takes(home: Path, requirement: str, *words: str, reads: tuple[str, ...]) -> str:
    """What pip would install, by its report; empty where it finds nothing."""
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--dry-run", "--no-deps", "--quiet", "--no-cache",
         "--target", str(home / "target"), "--report", "-", "--disable-pip-version-check", *reads,
         *words, requirement],
        env=sealed(home, PIP_CONFIG_FILE="/dev/null"),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        assert "No matching distribution" in done.stderr, done.stderr
        return ""
    url: str = json.loads(done.stdout)["install"][0]["download_info"]["url"]
    return url.rpartition("/")[2]


def mirrored(served: Served, files: tuple[IndexFile, ...], releases: tuple[str, ...]) -> None:
    """The real index's names, Pythons and withdrawals, with the smallest wheels that there are."""
    listed = []
    for file in files:
        if file.release in releases and file.is_wheel:
            data = installable(file.filename)
            served.files[f"/files/{file.filename}"] = data
            more: dict[str, Any] = {"yanked": file.yanked if file.yanked is not None else False}
            if file.requires_python:
                more["requires-python"] = file.requires_python
            listed.append(entry(file.filename, data, **more))
    served.files["/simple/vllm/"] = json_page(listed)


@pytest.mark.parametrize(
    ("python", "tag", "expected"),
    [
        ("3.12", "manylinux_2_35_x86_64", {
            "0.20.1": "vllm-0.20.1-1-cp38-abi3-manylinux_2_35_x86_64.whl",
            "0.21.0": "", "0.23.0": "", "0.33.0": "",
        }),
        ("3.12", "manylinux_2_28_x86_64", {
            "0.20.1": "",
            "0.23.0": "vllm-0.23.0-2-cp38-abi3-manylinux_2_28_x86_64.whl",
            "0.33.0": "vllm-0.33.0-cp38-abi3-manylinux_2_28_x86_64.whl",
        }),
        ("3.10", "manylinux_2_24_aarch64", {
            "0.21.0": "vllm-0.21.0-1-cp38-abi3-manylinux_2_24_aarch64.whl",
        }),
        ("3.10", "manylinux_2_28_x86_64", {"0.33.0": ""}),
        ("3.9", "manylinux1_x86_64", {
            "0.2.1": "vllm-0.2.1-cp39-cp39-manylinux1_x86_64.whl",
            "0.8.5": "vllm-0.8.5-cp38-abi3-manylinux1_x86_64.whl",
        }),
    ],
    ids=lambda value: "" if isinstance(value, dict) else value,
)  # fmt: skip
def test_every_choice_is_that_of_pip(
    served: Served,
    real: tuple[IndexFile, ...],
    tmp_path: Path,
    python: str,
    tag: str,
    expected: dict[str, str],
) -> None:
    """pip's --platform is this one tag; ours stands for older ones too, so only it is tried."""
    mirrored(served, real, tuple(expected))
    words = ("--only-binary=:all:", "--python-version", python, "--platform", tag)
    goal = Target(target(python).python, (tag,))
    for release, wheel in expected.items():
        ours = chosen(real, release, goal)
        theirs = pip_takes(
            tmp_path, f"vllm=={release}", *words, reads=("--index-url", f"{served.url}/simple")
        )
        assert (ours.file.filename if ours.file else "") == theirs == wheel


@pytest.mark.skipif(
    (platform.system(), platform.machine()) != ("Linux", "x86_64"), reason="pip's choice for here"
)
def test_the_choice_for_this_machine_is_that_of_pip(
    served: Served, real: tuple[IndexFile, ...], tmp_path: Path
) -> None:
    releases = ("0.20.1", "0.21.0", "0.23.0", "0.31.0")
    mirrored(served, real, releases)
    reads = ("--index-url", f"{served.url}/simple")
    for release in releases:
        ours = chosen(real, release, target())
        theirs = pip_takes(tmp_path, f"vllm=={release}", "--only-binary=:all:", reads=reads)
        assert theirs == (name_of(ours) if not ours.note else "")


@pytest.mark.parametrize("case", ["build number", "withdrawn", "tag before build", "two indexes"])
def test_rules_of_pip_that_vllm_has_not_needed_yet(
    served: Served, store: Store, tmp_path: Path, case: str
) -> None:
    any_, abi3 = "vllm-1.0.0-{}py3-none-any.whl", "vllm-1.0.0-{}cp38-abi3-{}.whl"
    here = platforms_of(f"linux_{platform.machine()}") if sys.platform == "linux" else ["any"]
    tag = list(here)[-3]
    names = {
        "build number": [any_.format("10-"), any_.format("9-"), any_.format("")],
        "withdrawn": [any_.format("2-"), any_.format("1-")],
        "tag before build": [any_.format("7-"), abi3.format("", tag)],
        "two indexes": [any_.format("")],
    }[case]
    for place in ("simple", "second"):
        listed = []
        for name in names:
            data = installable(name, place.encode())
            served.files[f"/files/{place}/{name}"] = data
            is_yanked = case == "withdrawn" and name == names[0]
            listed.append(
                entry(
                    name, data, url=f"/files/{place}/{name}", yanked="why" if is_yanked else False
                )
            )
        served.files[f"/{place}/vllm/"] = json_page(listed)
        served.types[f"/{place}/vllm/"] = JSON
    urls = (f"{served.url}/simple", f"{served.url}/second")
    files = list_files(IndexSettings(indexes=urls), "vllm", store)
    (choice,) = choices(files, target())
    assert choice.file is not None
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--dry-run", "--no-deps", "--quiet", "--report",
         "-", "--target", str(tmp_path / "t"), "--no-cache", "--index-url", urls[0],
         "--extra-index-url", urls[1], "vllm==1.0.0"],
        env=sealed(tmp_path, PIP_CONFIG_FILE="/dev/null"), capture_output=True, check=True,
    )  # fmt: skip
    report = json.loads(done.stdout)["install"][0]["download_info"]
    assert choice.file.url == report["url"]


def test_only_withdrawn_files_are_taken_by_name_and_marked(real: tuple[IndexFile, ...]) -> None:
    choice = chosen(real, "0.2.1", target("3.11", "linux_x86_64"))
    assert name_of(choice) == "vllm-0.2.1-cp311-cp311-manylinux1_x86_64.whl"
    assert choice.as_release("vllm").yanked


def test_where_pip_takes_nothing_another_wheel_stands_in_and_it_is_said(
    real: tuple[IndexFile, ...],
) -> None:
    old = chosen(real, "0.4.1", Target((3, 12), tuple(platforms_of("linux_x86_64"))))
    assert old.file is None
    assert "no wheel for Python 3.12" in old.reason
    here = chosen(real, "0.4.1", Target(None, tuple(platforms_of("linux_x86_64"))))
    minor = sys.version_info.minor
    short = f"cp3{min(minor, 11)}"
    assert name_of(here) == f"vllm-0.4.1-{short}-{short}-manylinux1_x86_64.whl"
    assert ("judged by that for Python 3.11" in here.note) == (minor > 11)
    sdist = chosen(real, "0.0.1", target())
    assert name_of(sdist) == "vllm-0.0.1.tar.gz"
    assert "its sdist is judged" in sdist.note


@pytest.mark.parametrize(
    "system", [("Darwin", "arm64"), ("Windows", "AMD64"), ("Linux", "ppc64le")]
)
def test_on_a_machine_without_wheels_those_of_linux_stand_in(
    real: tuple[IndexFile, ...], monkeypatch: pytest.MonkeyPatch, system: tuple[str, str]
) -> None:
    from packaging import tags

    name = {"Darwin": "macosx_14_0_arm64", "Windows": "win_amd64"}.get(system[0], "linux_ppc64le")
    monkeypatch.setattr(tags, "platform_tags", lambda: iter([name]))
    monkeypatch.setattr(platform, "system", lambda: system[0])
    monkeypatch.setattr(platform, "machine", lambda: system[1])
    choice = chosen(real, "0.33.0", target())
    assert name_of(choice) == "vllm-0.33.0-cp38-abi3-manylinux_2_28_x86_64.whl"
    assert f"pip has no wheel for Python 3.{sys.version_info.minor} on {system[0]}" in choice.note
    # A platform that was asked for is kept to.
    assert chosen(real, "0.33.0", target(platform="win_amd64")).file is None


def test_a_catalog_says_once_that_other_wheels_stand_in(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from packaging import tags

    from vllm_series.upstream.open import UpstreamOptions, open_catalog

    monkeypatch.setenv("VLLM_SERIES_CACHE", str(tmp_path))
    monkeypatch.setattr(tags, "platform_tags", lambda: iter(["macosx_14_0_arm64"]))
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    said: list[str] = []
    catalog = open_catalog(UpstreamOptions(), said.append)
    for release in ("0.33.0", "0.32.0"):
        assert "manylinux_2_28_x86_64" in catalog.tree(release).label
    assert len(said) == 1
    assert said[0].startswith("vllm 0.33.0: pip has no wheel for Python 3.")


def test_a_wheel_by_name_goes_before_the_rule(real: tuple[IndexFile, ...]) -> None:
    first = "vllm-0.20.1-cp38-abi3-manylinux_2_35_aarch64.whl"
    assert name_of(chosen(real, "0.20.1", target(), first)) == first
    with pytest.raises(UsageError, match=r"Near it: vllm-0\.20\.1-"):
        choices(real, target(), [first.replace("aarch64", "arm64")])
    with pytest.raises(UsageError, match="are of one release"):
        choices(real, target(), [first, first.replace("aarch64", "x86_64")])


def test_a_platform_stands_for_older_ones(real: tuple[IndexFile, ...]) -> None:
    listed = list(platforms_of("manylinux_2_28_x86_64"))
    assert listed[:2] == ["manylinux_2_28_x86_64", "manylinux_2_27_x86_64"]
    assert listed[-3:] == ["manylinux_2_5_x86_64", "manylinux1_x86_64", "linux_x86_64"]
    assert list(platforms_of("manylinux2014_aarch64")) == [
        "manylinux_2_17_aarch64", "manylinux2014_aarch64", "linux_aarch64",
    ]  # fmt: skip
    assert "macosx_11_0_universal2" in list(platforms_of("macosx_14_0_arm64"))
    assert list(platforms_of("musllinux_1_2_x86_64"))[:2] == [
        "musllinux_1_2_x86_64", "musllinux_1_1_x86_64",
    ]  # fmt: skip
    goal = target("3.12", "manylinux_2_31_x86_64")
    assert name_of(chosen(real, "0.19.0", goal)).endswith("manylinux_2_31_x86_64.whl")
    assert chosen(real, "0.20.0", goal).file is None


def test_the_tags_of_this_machine_are_those_of_packaging() -> None:
    from packaging.tags import sys_tags

    assert target().tags() == list(map(str, sys_tags()))
    python = ".".join(map(str, sys.version_info[:2]))
    assert set(target(python).tags()) >= {
        str(tag) for tag in sys_tags() if tag.abi in ("abi3", "none")
    }


@pytest.mark.parametrize("word", ["3", "2.7", "312x", "py3", "3.x", "4.0"])
def test_what_is_no_python_is_wrong_usage(word: str) -> None:
    with pytest.raises(UsageError, match="is no version of Python 3"):
        target(word)


@pytest.mark.parametrize("word", ["x86_64", "manylinux", "manylinux_2_28", "amiga_68k", ""])
def test_what_is_no_platform_is_wrong_usage(word: str) -> None:
    with pytest.raises(UsageError, match="is no platform"):
        list(platforms_of(word))


def test_a_python_is_written_in_three_ways() -> None:
    assert target("3.12").python == target("312").python == (3, 12)
    assert target("3.12.4").full_python == "3.12.4"
    assert target("3.12").full_python == "3.12.0"


def test_a_requirement_of_python_that_cannot_be_read_lets_all_in(
    served: Served, store: Store
) -> None:
    name = "vllm-1.0.0-py3-none-any.whl"
    served.files["/simple/vllm/"] = html_page([f'<a href="{name}" data-requires-python="3+">x</a>'])
    served.types["/simple/vllm/"] = "text/html"
    files = list_files(IndexSettings(indexes=(f"{served.url}/simple",)), "vllm", store)
    assert name_of(choices(files, target())[0]) == name


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "cache")
