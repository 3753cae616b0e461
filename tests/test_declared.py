"""A fix that upstream has made in its own words, and a trailer that says so."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from commandline import run
from rebased import Project, project

SERIES = Path(__file__).resolve().parents[1] / "series"
MODEL = "vllm/models/core.py"
OLD = '''\
"""A model."""

import os

ONE = 1
TWO = 2
THREE = 3
FOUR = 4


def load(path):
    with open(path) as handle:
        data = handle.read()
    return data


def name(model):
    return os.name
'''
FIXED = OLD.replace("    return data\n", "    return clean(data)\n").replace(
    "import os\n", "import os\n\n\ndef clean(data):\n    return data.strip()\n"
)
"""The patch: it adds a function, and takes one line of upstream's out."""
UPSTREAMS = OLD.replace(
    "        data = handle.read()\n    return data\n",
    "        return ''.join(map(str.strip, handle))\n",
)
"""Upstream's own fix: not a line of the patch is in it, and the patch's first hunk still fits."""


@pytest.fixture
def made(tmp_path: Path) -> Project:
    work = project(tmp_path)
    work.release("0.1.0", {MODEL: OLD})
    return work


def named(work: Project, value: str, after: str = FIXED) -> None:
    work.line(
        "0.1.0", {"strip.patch": ({MODEL: OLD}, {MODEL: after})}, **{"Applied-Upstream": value}
    )


def test_a_fix_in_other_words_is_left_out_from_the_release_that_the_trailer_names(
    made: Project,
) -> None:
    named(made, "0.2.0")
    made.release("0.2.0", {MODEL: UPSTREAMS})
    ran = made.rebase("0.2.0", "--json")
    assert ran.code == 0, ran.out + ran.err
    patch = json.loads(ran.out)["done"][0]["patches"][0]
    assert (patch["outcome"], patch["since"]) == ("upstreamed", "0.2.0")
    assert patch["evidence"] == [
        f"{MODEL}: hunk 1: Applied-Upstream: 0.2.0; it only adds lines",
        f"{MODEL}: hunk 2: Applied-Upstream: 0.2.0; what it takes out is gone",
    ]


def test_without_the_trailer_it_is_a_conflict(made: Project) -> None:
    made.line("0.1.0", {"strip.patch": ({MODEL: OLD}, {MODEL: FIXED})})
    made.release("0.2.0", {MODEL: UPSTREAMS})
    ran = made.rebase("0.2.0")
    assert ran.code == 1
    assert "upstreamed" not in ran.out
    assert made.rebase("--abort").code == 0


def test_before_the_release_that_it_names_the_trailer_says_nothing(made: Project) -> None:
    named(made, "0.3.0")
    made.release("0.2.0", {MODEL: OLD})
    made.release("0.3.0", {MODEL: UPSTREAMS})
    ran = made.rebase("0.2.0")
    assert ran.code == 0, ran.out + ran.err
    assert "strip.patch  clean" in ran.out
    assert "Applied-Upstream: 0.3.0" in (made.series / "vllm-0.2" / "strip.patch").read_text()
    again = made.rebase("0.3.0")
    assert again.code == 0, again.out + again.err
    assert "strip.patch  upstreamed  left out: upstream since vllm 0.3.0" in again.out


def test_a_trailer_that_the_release_contradicts_is_for_review(made: Project) -> None:
    named(made, "0.2.0")
    made.release("0.2.0", {MODEL: "# new\n" + OLD})
    ran = made.rebase("0.2.0")
    assert ran.code == 0, ran.out + ran.err
    assert "strip.patch  offset" in ran.out
    assert (
        "review: Applied-Upstream: 0.2.0 says that upstream has it, "
        f"but what hunk 2 of {MODEL} takes out is still there"
    ) in " ".join(ran.out.split())


def test_lines_that_are_only_added_prove_nothing_while_their_place_is_there(
    made: Project,
) -> None:
    adds = OLD.replace("    return data\n", "    data = data.strip()\n    return data\n")
    named(made, "0.2.0", adds)
    made.release("0.2.0", {MODEL: OLD})
    ran = made.rebase("0.2.0")
    assert "strip.patch  clean" in ran.out
    assert "but nothing that it relies on is gone" in " ".join(ran.out.split()), ran.out + ran.err


def test_lines_that_are_only_added_go_with_their_function(made: Project) -> None:
    adds = OLD.replace("    return data\n", "    data = data.strip()\n    return data\n")
    named(made, "0.2.0", adds)
    made.release(
        "0.2.0", {MODEL: OLD.partition("def load")[0] + "def name(model):\n    return 1\n"}
    )
    ran = made.rebase("0.2.0", "--json")
    assert ran.code == 0, ran.out + ran.err
    patch = json.loads(ran.out)["done"][0]["patches"][0]
    assert patch["evidence"] == [
        f"{MODEL}: hunk 1: Applied-Upstream: 0.2.0; there is no load any more"
    ]


def test_a_part_that_rebase_has_noted_is_no_word_for_the_whole(made: Project) -> None:
    named(made, "0.2.0 (1 of 2 hunks)")
    made.release("0.2.0", {MODEL: UPSTREAMS})
    assert made.rebase("0.2.0").code == 1
    assert made.rebase("--abort").code == 0


# -- the patch of this project --------------------------------------------------------------------


def test_the_fix_for_the_rejection_sampler_ends_with_0_30(tmp_path: Path) -> None:
    """0.31.0 registers the kernels in another file; nothing of the patch is in it."""
    series = tmp_path / "project" / "series"
    shutil.copytree(SERIES / "vllm-0.30", series / "vllm-0.30")
    (series / "vllm-0.30" / "series").write_text("cpu-rejection-sampler.patch\ndynwidth.patch\n")
    (series / "vllm-0.30" / "dynwidth-metrics.patch").unlink(missing_ok=True)
    (series.parent / "CHANGELOG.md").write_text("# Changelog\n\n## [Unreleased]\n")
    ran = run("rebase", "--no-tests", "0.31.0", VLLM_SERIES_DIR=str(series))
    assert ran.code == 0, ran.out + ran.err
    assert (
        "cpu-rejection-sampler.patch  upstreamed  left out: upstream since vllm 0.31.0" in ran.out
    )
    assert (series / "vllm-0.31" / "series").read_text() == (
        "# cpu-rejection-sampler.patch: Applied-Upstream: 0.31.0\ndynwidth.patch\n"
    )
    made, kept = (one / "vllm-0.31" / "dynwidth.patch" for one in (series, SERIES))
    assert made.read_bytes() == kept.read_bytes()


def test_every_later_release_has_that_fix() -> None:
    ran = run(
        "check", "--series", "vllm-0.30", "--releases", "0.30.0..0.33.0", "--json",
        VLLM_SERIES_DIR=str(SERIES),
    )  # fmt: skip
    verdicts = {
        release["release"]: patch["verdict"]
        for release in json.loads(ran.out)["releases"]
        for patch in release["patches"]
        if patch["name"] == "cpu-rejection-sampler.patch"
    }
    assert verdicts.pop("0.30.0") == "exact"
    assert set(verdicts.values()) == {"upstreamed"}, verdicts
    assert len(verdicts) >= 3
