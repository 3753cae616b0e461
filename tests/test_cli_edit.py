"""A patch opened for editing, and its edits taken back into the series."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from authoring import ENVS, call, edit, held, lint, three
from commandline import SCHEDULER, SERIES, Ran
from conftest import Stock
from vllm_series.diffs.parse import parse

Call = Callable[..., Ran]
LINE = "vllm-0.33"


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def made(cache: Path, stock: Stock, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("three")
    shutil.copytree(SERIES, place / "series")
    three(cache, place / "series", stock("0.33.0"), place)
    return place / "series"


@pytest.fixture
def of_three(made: Path, tmp_path: Path) -> Path:
    """A series of three patches: dynwidth, second on the same file, third on another."""
    shutil.copytree(made, tmp_path / "of-three" / "series")
    return tmp_path / "of-three" / "series"


@pytest.fixture
def tool(cache: Path, of_three: Path) -> Call:
    def call_tool(*words: str | Path, cwd: Path | None = None) -> Ran:
        return call(cache, of_three, *words, cwd=cwd)

    return call_tool


def opened(tool: Call, name: str, tmp_path: Path, *words: str | Path) -> Path:
    told = tool("edit", name, "--workdir", tmp_path / "work", *words)
    assert told.code == 0, told.err
    return Path(told.out.strip())


def git(work: Path, *words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=work, check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def texts(series: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (series / LINE).iterdir()}


def test_the_folder_shows_the_patch_on_those_in_front(
    tool: Call, of_three: Path, stock: Stock, tmp_path: Path
) -> None:
    was = held(of_three)
    work = opened(tool, "second", tmp_path)
    assert git(work, "log", "--format=%s").split("\n")[:3] == [
        "second: x", "dynwidth: cap each request's verify width by what it accepts", "vllm 0.33.0",
    ]  # fmt: skip
    assert git(work, "status", "--porcelain") == ""
    shown = git(work, "show", "HEAD", "--format=%B")
    assert "+    def has_second(self):" in shown
    assert "Base: vllm 0.33.0" in shown
    stocked = subprocess.run(
        ["git", "show", f"HEAD~2:{SCHEDULER}"], cwd=work, check=True, capture_output=True
    ).stdout
    assert stocked == (stock("0.33.0") / SCHEDULER).read_bytes()
    assert held(of_three) == was
    again = tool("edit", "second", "--workdir", work)
    assert again.code == 0
    assert Path(again.out.strip()) == work
    default = tool("edit", "second", "--json").json()
    assert (default["outcome"], default["base"]) == ("opened", "0.33.0")
    assert str(default["workdir"]).endswith("/second")
    assert tool("edit", "second", "--abort").code == 0
    assert not Path(str(default["workdir"])).exists()


def test_edits_are_taken_back_and_those_behind_follow(
    tool: Call, cache: Path, of_three: Path, stock: Stock, tmp_path: Path
) -> None:
    was = texts(of_three)
    work = opened(tool, "dynwidth", tmp_path)
    edit(work, SCHEDULER, "import time\n", "import time\nimport io as _io\n")
    (work / "vllm/v1/core/sched/more.py").write_text("MORE = 1\n")
    (work / "vllm/v1/core/sched/more.py.orig").write_text("leftover\n")
    (work / "notes.txt").write_text("mine\n")
    told = tool("refresh", cwd=work)
    assert told.code == 0, told.err
    assert "notes.txt is left out" in told.err
    assert "more.py.orig is left out" in told.err
    assert "placed anew behind it: second.patch." in told.err
    now = texts(of_three)
    assert now["third.patch"] == was["third.patch"]
    assert now["series"] == was["series"]
    patch = parse(now["dynwidth.patch"], "dynwidth.patch")
    assert {change.new_raw for change in patch.files} >= {"b/vllm/v1/core/sched/more.py"}
    assert parse(now["second.patch"], "second.patch").files[0].old_id == next(
        change.new_id for change in patch.files if change.new_raw == f"b/{SCHEDULER}"
    )
    assert lint(cache, of_three, stock("0.33.0")) == ""
    assert git(work, "diff", "HEAD") == ""
    once_more = tool("refresh", cwd=work / "vllm")
    assert once_more.out == "nothing to do: dynwidth.patch is as it should be\n"
    assert texts(of_three) == now
    edit(work, SCHEDULER, "import io as _io\n", "")
    (work / "vllm/v1/core/sched/more.py").unlink()
    assert tool("refresh", "--workdir", work, "--drop").code == 0
    assert not work.exists()
    undone = texts(of_three)
    strip = b"Last-Update: "
    for name in ("second.patch", "third.patch"):
        assert undone[name] == was[name]
    assert [row for row in undone["dynwidth.patch"].split(b"\n") if strip not in row] == [
        row for row in was["dynwidth.patch"].split(b"\n") if strip not in row
    ]


def test_a_patch_behind_that_loses_its_place_is_named_and_nothing_is_written(
    tool: Call, of_three: Path, tmp_path: Path
) -> None:
    work = opened(tool, "dynwidth", tmp_path)
    edit(work, SCHEDULER, "    def reset_prefix_cache(", "    def reset_all(")
    was = held(of_three)
    told = tool("refresh", cwd=work)
    assert told.code == 1
    assert "second.patch: drifted" in told.err
    assert "third.patch" not in told.err
    assert held(of_three) == was
    assert "reset_all" in git(work, "diff")
    edit(work, SCHEDULER, "    def reset_all(", "    def reset_prefix_cache(")
    assert tool("refresh", cwd=work).code == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def broken(:\n", "dynamic_width.py does not parse"),
        ("<<<<<<< ours\na = 1\n=======\na = 2\n>>>>>>> theirs\n", "holds markers of a conflict"),
    ],
)
def test_unfinished_files_are_not_taken(
    tool: Call, of_three: Path, tmp_path: Path, text: str, said: str
) -> None:
    work = opened(tool, "dynwidth", tmp_path)
    place = work / "vllm/v1/core/sched/dynamic_width.py"
    place.write_text(text + place.read_text())
    was = held(of_three)
    told = tool("refresh", cwd=work)
    assert told.code == 1
    assert said in told.err
    assert held(of_three) == was


def test_more_files_of_the_release_come_beside(
    tool: Call, cache: Path, of_three: Path, stock: Stock, tmp_path: Path
) -> None:
    work = opened(tool, "dynwidth", tmp_path)
    edit(work, SCHEDULER, "import time\n", "import time\nimport io as _io\n")
    told = tool("edit", "--with", ENVS, cwd=work)
    assert told.code == 0, told.err
    assert git(work, "status", "--porcelain") == f" M {SCHEDULER}\n"
    assert "has no vllm/nothing.py" in tool("edit", "--with", "vllm/nothing.py", cwd=work).err
    edit(work, ENVS, "import uuid\n", "import uuid as uuid\n")
    # A file that is put there by hand counts as the release's too.
    taken = work / "vllm/version.py"
    taken.write_bytes((stock("0.33.0") / "vllm/version.py").read_bytes() + b"\nMORE = 1\n")
    assert tool("refresh", cwd=work).code == 0
    patch = parse(texts(of_three)["dynwidth.patch"], "dynwidth.patch")
    kinds = {change.new_raw: change.kind.value for change in patch.files}
    assert kinds["b/vllm/version.py"] == "modify"
    assert kinds[f"b/{ENVS}"] == "modify"
    assert lint(cache, of_three, stock("0.33.0")) == ""


def test_an_amended_message_is_the_patch_s(tool: Call, of_three: Path, tmp_path: Path) -> None:
    work = opened(tool, "second", tmp_path)
    message = git(work, "log", "-1", "--format=%B")
    fresh = message.replace("second: x", "second: better").replace("Why.", "A better why.")
    git(work, "commit", "-q", "--amend", "-m", fresh)
    assert tool("refresh", cwd=work).code == 0
    patch = parse(texts(of_three)["second.patch"], "second.patch")
    assert (patch.subject, patch.message) == ("second: better", "A better why.")
    edit(
        work,
        SCHEDULER,
        "        return True\n\n    def reset_p",
        "        return False\n\n    def reset_p",
    )
    git(work, "commit", "-qam", "work in progress")
    assert tool("refresh", cwd=work).code == 0
    patch = parse(texts(of_three)["second.patch"], "second.patch")
    assert patch.subject == "second: better"
    assert b"+        return False\n" in patch.text


def test_a_series_that_someone_changed_meanwhile_is_not_overwritten(
    tool: Call, of_three: Path, tmp_path: Path
) -> None:
    work = opened(tool, "second", tmp_path)
    place = of_three / LINE / "dynwidth.patch"
    place.write_bytes(place.read_bytes().replace(b"Origin: vendor", b"Origin: upstream"))
    edit(work, SCHEDULER, "        return True\n", "        return False\n")
    was = held(of_three)
    told = tool("refresh", cwd=work)
    assert told.code == 1
    assert "dynwidth.patch in" in told.err
    assert "was changed since second.patch was opened" in told.err
    assert held(of_three) == was
    assert tool("edit", "second", "--workdir", work, "--abort").code == 0
    assert not work.exists()


def test_nothing_of_the_user_s_is_overwritten_or_lost(
    tool: Call, of_three: Path, tmp_path: Path
) -> None:
    full = tmp_path / "full"
    full.mkdir()
    (full / "mine").write_text("mine\n")
    told = tool("edit", "second", "--workdir", full)
    assert told.code == 2
    assert "is not empty" in told.err
    assert tool("edit", cwd=full).code == 2
    assert tool("refresh", cwd=full).code == 2
    assert tool("refresh", "--workdir", full).code == 2
    assert "no patch nothing" in tool("edit", "nothing").err
    assert [path.name for path in full.iterdir()] == ["mine"]


KILLED = """
import os, sys
from killed import dies_at
from vllm_series import cli
step = int(sys.argv[1])
cli.import_module("vllm_series.commands." + sys.argv[2])
import vllm_series.workspace.editing, vllm_series.workspace.writing, vllm_series.upstream.open
dies_at(step)
cli.main(sys.argv[2:])
"""


def test_a_kill_at_any_step_of_refresh_leaves_the_old_series_or_the_new_one(
    tool: Call, cache: Path, of_three: Path, tmp_path: Path
) -> None:
    work = opened(tool, "dynwidth", tmp_path)
    edit(work, SCHEDULER, "import time\n", "import time\nimport io as _io\n")
    spare, line = tmp_path / "spare", of_three / LINE
    shutil.copytree(work, spare, symlinks=True)
    old = texts(of_three)
    assert tool("refresh", cwd=work).code == 0
    new = texts(of_three)
    assert new != old
    seen = set()
    step = 1
    ended = False
    while not ended:
        shutil.rmtree(work)
        shutil.copytree(spare, work, symlinks=True)
        shutil.rmtree(line)
        line.mkdir()
        for name, data in old.items():
            (line / name).write_bytes(data)
        done = subprocess.run(
            [sys.executable, "-c", KILLED, str(step), "refresh", "--workdir", str(work)],
            cwd=Path(__file__).parent,
            capture_output=True,
            check=False,
            env={**_environment(), "VLLM_SERIES_DIR": str(of_three),
                 "VLLM_SERIES_CACHE": str(cache)},
        )  # fmt: skip
        ended = done.returncode == 0
        assert ended or done.returncode == 9, done.stderr.decode()
        found = texts(of_three)
        assert found in (old, new), step
        seen.add(found == new)
        # Whatever was left: the same command ends it.
        again = tool("refresh", "--workdir", work)
        assert again.code == 0, (step, again.err)
        assert texts(of_three) == new
        assert git(work, "diff", "HEAD") == ""
        assert json.loads((work / ".git/vllm-series-edit.json").read_text())["coming"] is None
        step += 2 if step < 6 else 11
    assert seen == {False, True}


def _environment() -> dict[str, str]:
    import os

    return {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
