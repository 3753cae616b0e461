"""`vllm-series rebase --add`: what a line lacks goes on top of what it has, which stays."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from commandline import PROJECT_SERIES, everything, run
from rebased import Project, project
from vllm_series.trees import DiskTree

MODEL = "vllm/model.py"
OLD = '''"""A model."""


def load(path):
    handle = open(path)
    data = handle.read()
    return data


def save(path, data):
    handle = open(path, "w")
    handle.write(data)
    return handle
'''
NEW = OLD.replace('"""A model."""\n', '"""A model, newer."""\n\nimport os\n').replace(
    "handle = open(path)", "handle = os.fdopen(path)"
)


def stripped(text: str) -> str:
    return text.replace("data = handle.read()\n", "data = handle.read().strip()\n")


def counted(text: str) -> str:
    """On top of `stripped`: its line, changed once more."""
    return text.replace(".strip()\n", ".strip()\n    count(data)\n")


def by_hand(text: str) -> str:
    """What a person has made of `stripped` on the newer release."""
    return text.replace(
        "    data = handle.read()\n", "    # A descriptor.\n    data = handle.read().strip()\n"
    )


@pytest.fixture
def made(tmp_path: Path) -> Project:
    """Two patches for 0.1, the second on the first; 0.2 has the first alone, as made by hand."""
    work = project(tmp_path)
    work.release("0.1.0", {MODEL: OLD})
    work.release("0.2.0", {MODEL: NEW})
    work.line(
        "0.1.0",
        {
            "strip.patch": ({MODEL: OLD}, {MODEL: stripped(OLD)}),
            "count.patch": ({MODEL: stripped(OLD)}, {MODEL: counted(stripped(OLD))}),
        },
    )
    work.line("0.2.0", {"strip.patch": ({MODEL: NEW}, {MODEL: by_hand(NEW)})})
    return work


def applied(work: Project, line: str, release: str, tmp_path: Path) -> str:
    """The release's file with the line's series in it."""
    tree = tmp_path / f"applied-{line}"
    shutil.copytree(work.root / "releases" / release, tree)
    ran = run("apply", "--target", str(tree), "--series-dir", str(work.series / f"vllm-{line}"))
    assert ran.code == 0, ran.err
    text = DiskTree(tree).read(MODEL)
    assert text is not None
    return text.decode()


def test_what_a_line_lacks_goes_on_top_and_the_rest_stays(made: Project, tmp_path: Path) -> None:
    before = everything(made.series / "vllm-0.2")
    ran = made.rebase("0.2.0", "--from", "0.1", "--add")
    assert ran.code == 0, ran.out + ran.err
    assert "count.patch" in ran.out
    assert "strip.patch" not in ran.out
    after = everything(made.series / "vllm-0.2")
    assert after["strip.patch"] == before["strip.patch"]
    assert (made.series / "vllm-0.2" / "series").read_text() == "strip.patch\ncount.patch\n"
    assert applied(made, "0.2", "0.2.0", tmp_path) == counted(by_hand(NEW))
    assert "Base: vllm 0.2.0" in (made.series / "vllm-0.2" / "count.patch").read_text()
    assert "`count.patch`" in made.changelog
    assert made.leftovers == []


def test_a_patch_that_only_the_line_has_stays_as_well(made: Project, tmp_path: Path) -> None:
    shutil.rmtree(made.series / "vllm-0.2")
    own = NEW.replace("    return handle\n", "    handle.flush()\n    return handle\n")
    made.line(
        "0.2.0",
        {
            "flush.patch": ({MODEL: NEW}, {MODEL: own}),
            "strip.patch": ({MODEL: own}, {MODEL: by_hand(own)}),
        },
    )
    ran = made.rebase("0.2.0", "--from", "0.1", "--add")
    assert ran.code == 0, ran.out + ran.err
    listing = (made.series / "vllm-0.2" / "series").read_text()
    assert listing == "flush.patch\nstrip.patch\ncount.patch\n"
    assert applied(made, "0.2", "0.2.0", tmp_path) == counted(by_hand(own))


def test_nothing_to_add_changes_nothing(made: Project) -> None:
    assert made.rebase("0.2.0", "--from", "0.1", "--add").code == 0
    before = everything(made.series)
    again = made.rebase("0.2.0", "--from", "0.1", "--add")
    assert again.code == 0, again.err
    assert "nothing to do" in again.out
    assert everything(made.series) == before


def test_a_conflict_is_about_the_new_patch_alone(made: Project, tmp_path: Path) -> None:
    shutil.rmtree(made.series / "vllm-0.2")
    other = NEW.replace("    data = handle.read()\n    return data\n", "    return handle.read()\n")
    made.line("0.2.0", {"strip.patch": ({MODEL: NEW}, {MODEL: other})})
    before = everything(made.series / "vllm-0.2")
    ran = made.rebase("0.2.0", "--from", "0.1", "--add", "--json")
    assert ran.code == 1
    assert json.loads(ran.out)["open"]["waiting"] == "count.patch"
    assert everything(made.series / "vllm-0.2") == before
    place = made.workdir / MODEL
    resolved = other.replace("return handle.read()", "return count(handle.read())")
    place.write_text(resolved)
    went = made.rebase("--continue")
    assert went.code == 0, went.out + went.err
    assert everything(made.series / "vllm-0.2")["strip.patch"] == before["strip.patch"]
    assert applied(made, "0.2", "0.2.0", tmp_path) == resolved


def test_a_line_without_a_series_gets_all_of_it(made: Project) -> None:
    shutil.rmtree(made.series / "vllm-0.2")
    ran = made.rebase("0.2.0", "--from", "0.1", "--add")
    assert ran.code == 0, ran.out + ran.err
    assert (made.series / "vllm-0.2" / "series").read_text() == "strip.patch\ncount.patch\n"


def test_a_dry_run_adds_nothing(made: Project) -> None:
    before = everything(made.series)
    ran = made.rebase("0.2.0", "--from", "0.1", "--add", "--dry-run")
    assert ran.code == 0, ran.err
    assert "vllm-0.2 would be written" in ran.out
    assert everything(made.series) == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("0.2.0", "--add"), "--from"),
        (("0.2.0", "--from", "0.1", "--add", "--replace"), "Leave one out"),
        (("--continue", "--add"), "Leave out --add"),
    ],
)
def test_what_cannot_be_meant_is_refused(made: Project, words: tuple[str, ...], said: str) -> None:
    ran = made.rebase(*words)
    assert ran.code == 2
    assert said in ran.err


def test_the_metrics_go_back_over_a_line_onto_the_dynwidth_that_is_there(tmp_path: Path) -> None:
    """0.24 and 0.23 count under different conditions, which were decided on by hand."""
    series = tmp_path / "series"
    for line in ("0.24", "0.23"):
        shutil.copytree(PROJECT_SERIES / f"vllm-{line}", series / f"vllm-{line}")
    before = everything(series / "vllm-0.23")
    (series / "vllm-0.23" / "dynwidth-metrics.patch").unlink()
    (series / "vllm-0.23" / "series").write_text("dynwidth.patch\n")
    ran = run(
        "rebase", "0.23.0", "--from", "0.24", "--add", "--no-tests", "--renew-contracts",
        VLLM_SERIES_DIR=str(series),
    )  # fmt: skip
    assert ran.code == 0, ran.out + ran.err
    assert everything(series / "vllm-0.23") == before
