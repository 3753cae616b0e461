"""A patch from what was edited: in an installation, a folder, or commits."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import diffs
from authoring import ASYNC, ENVS, WHY, call, edit, held, lint, site
from commandline import SCHEDULER, Ran, run
from conftest import Stock
from vllm_series.diffs.parse import parse

New = Callable[..., Ran]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def new(cache: Path, series: Path) -> New:
    def call_new(*words: str | Path, **more: str) -> Ran:
        return call(cache, series, "new", *words, env=more)

    return call_new


def text(series: Path, name: str = "one.patch", line: str = "vllm-0.33") -> bytes:
    return (series / line / name).read_bytes()


def test_edits_of_an_installation_become_the_last_patch(
    new: New, cache: Path, series: Path, stock: Stock, tmp_path: Path
) -> None:
    tree = site(stock("0.33.0"), tmp_path / "site")
    edit(tree.root, SCHEDULER, "import itertools\n", "import io\nimport itertools\n")
    (tree.root / "vllm/v1/core/sched/fresh.py").write_text("FRESH = 1\n")
    (tree.root / "vllm/v1/core/sched/fresh.py.orig").write_text("leftover\n")
    (tree.root / "vllm/config/pooler.py").unlink()
    told = new("one", "--target", tree.root, *WHY)
    assert told.code == 0, told.err
    assert told.out == f"{series / 'vllm-0.33/one.patch'}\n"
    assert "fresh.py.orig is left out" in told.err
    assert (series / "vllm-0.33/series").read_text() == "dynwidth.patch\none.patch\n"
    patch = parse(text(series), "one.patch")
    assert [change.kind.value for change in patch.files] == ["delete", "create", "modify"]
    assert (patch.base, patch.subject, patch.message) == ("0.33.0", "one: what it does", WHY[3])
    assert lint(cache, series, stock("0.33.0")) == ""
    again = site(stock("0.33.0"), tmp_path / "again")
    assert run("apply", "--target", again.root, "--series-dir", series).code == 0
    assert run("verify", "--target", again.root).code == 0
    assert b"import io\n" in (again.read(SCHEDULER) or b"")
    assert again.read("vllm/config/pooler.py") is None


def test_applied_patches_are_below_and_their_lines_are_not_in_it(
    new: New, cache: Path, series: Path, stock: Stock, tmp_path: Path
) -> None:
    tree = site(stock("0.33.0"), tmp_path / "site")
    assert run("apply", "--target", tree.root, "--series-dir", series).code == 0
    untouched = new("one", "--target", tree.root, *WHY)
    assert untouched.code == 1
    assert "nothing is edited: vllm 0.33.0 with dynwidth.patch" in untouched.err
    edit(tree.root, SCHEDULER, "dynamic_width.observe(", "dynamic_width.observe(  # here\n"
         "                            ")  # fmt: skip
    told = new("one", "--target", tree.root, *WHY)
    assert told.code == 0, told.err
    patch = parse(text(series), "one.patch")
    (change,) = patch.files
    assert change.hunks[0].heading == b"Scheduler.update_from_output"
    assert patch.trailer("Needs") == ["dynwidth.patch"]
    assert lint(cache, series, stock("0.33.0")) == ""


def test_edits_of_stock_files_stand_on_the_series_and_need_none_of_it(
    new: New, cache: Path, series: Path, stock: Stock, tmp_path: Path
) -> None:
    tree = site(stock("0.33.0"), tmp_path / "site")
    edit(tree.root, SCHEDULER, "    def reset_prefix_cache(", "    ONE = 1\n\n"
         "    def reset_prefix_cache(")  # fmt: skip
    assert new("one", "--target", tree.root, *WHY).code == 0
    after = parse(text(series), "one.patch")
    assert after.trailer("Needs") == []
    assert lint(cache, series, stock("0.33.0")) == ""
    twice = new("twice", "--target", tree.root, *WHY)
    assert twice.code == 1
    assert "twice.patch changes nothing" in twice.err


def test_a_patch_in_front_moves_those_behind_it(
    new: New, cache: Path, series: Path, stock: Stock, tmp_path: Path
) -> None:
    tree = site(stock("0.33.0"), tmp_path / "site")
    edit(tree.root, ENVS, "import functools\n", "import functools\nimport sys as one\n")
    assert new("one", ENVS, "--target", tree.root, *WHY).code == 0
    edit(tree.root, ENVS, "import uuid\n", "import uuid as uuid\n")
    before = parse(text(series), "one.patch").files[0].old_id
    told = new("two", "--target", tree.root, "--after", "dynwidth", *WHY)
    # What one.patch does is edited in the tree, too, so nothing of it is left to do behind it.
    assert told.code == 1
    assert "one.patch" in told.err
    again = site(stock("0.33.0"), tmp_path / "again")
    edit(again.root, ENVS, "import uuid\n", "import uuid as uuid\n")
    assert new("two", "--target", again.root, "--after", "dynwidth", *WHY).code == 0
    assert (series / "vllm-0.33/series").read_text().split() == [
        "dynwidth.patch", "two.patch", "one.patch",
    ]  # fmt: skip
    assert parse(text(series), "one.patch").files[0].old_id != before
    assert lint(cache, series, stock("0.33.0")) == ""


def test_a_bare_folder_is_held_against_the_wheel(
    new: New, series: Path, stock: Stock, tmp_path: Path
) -> None:
    bare = tmp_path / "bare"
    shutil.copytree(stock("0.33.0") / "vllm", bare / "vllm")
    edit(bare, ASYNC, "import", "import io\nimport")
    told = new("one", "--target", bare, *WHY)
    assert told.code == 0, told.err
    assert [change.new_raw for change in parse(text(series), "one.patch").files] == [f"b/{ASYNC}"]


def test_a_part_of_a_release_deletes_nothing_by_mistake(
    new: New, series: Path, installed: Path
) -> None:
    edit(installed, SCHEDULER, "import itertools\n", "import io\nimport itertools\n")
    was = held(series)
    told = new("one", "--target", installed, *WHY)
    assert told.code == 1
    assert "A patch would delete them. Name the files" in told.err
    assert held(series) == was
    assert new("one", "vllm/v1", "--target", installed, *WHY).code == 0
    other = new("two", "vllm/envs.py", "--target", installed, *WHY)
    assert other.code == 0 or "is not edited" in other.err or "nothing" in other.err


@pytest.mark.parametrize(
    ("words", "said", "code"),
    [
        (("dynwidth", *WHY), "lists dynwidth.patch already", 1),
        (("one", "-m", "one: no why"), "no why-text", 1),
        (("one", *WHY, "-F", "-"), "-m and -F are two messages", 2),
        (("one", *WHY, "--after", "nothing"), "lists no nothing", 1),
        (("one", *WHY, "--trailer", "Activate"), "'Key: value'", 2),
        (("../one", *WHY), "cannot name a patch", 2),
        (("one", *WHY, "--date", "soon"), "--date cannot be 'soon'", 2),
        (("one", "vllm/v1/nothing.py", *WHY), "is not edited", 1),
        (("one",), "there is no message", 2),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_written(
    new: New, series: Path, stock: Stock, tmp_path: Path, words: tuple[str, ...], said: str,
    code: int,
) -> None:  # fmt: skip
    tree = site(stock("0.33.0"), tmp_path / "site")
    edit(tree.root, SCHEDULER, "import itertools\n", "import io\nimport itertools\n")
    was = held(series)
    told = new(*words, "--target", tree.root, EDITOR="", VISUAL="")
    assert told.code == code, told.err
    assert said in told.err
    assert told.out == ""
    assert held(series) == was


def test_what_does_not_parse_is_no_patch(
    new: New, series: Path, stock: Stock, tmp_path: Path
) -> None:
    tree = site(stock("0.33.0"), tmp_path / "site")
    edit(tree.root, SCHEDULER, "import itertools\n", "import itertools)\n")
    was = held(series)
    told = new("one", "--target", tree.root, *WHY)
    assert told.code == 1
    assert f"{SCHEDULER} does not parse" in told.err
    assert held(series) == was


def test_dry_run_prints_the_patch_and_writes_nothing(
    new: New, series: Path, stock: Stock, tmp_path: Path
) -> None:
    tree = site(stock("0.33.0"), tmp_path / "site")
    edit(tree.root, SCHEDULER, "import itertools\n", "import io\nimport itertools\n")
    was = held(series)
    day = ("--date", "2026-12-01", "--author", "B Tester <b@example.com>")
    shown = new("one", "--target", tree.root, *WHY, *day, "-n", "--trailer", "Activate: X=1")
    value = new("one", "--target", tree.root, *WHY, "-n", "--json").json()
    assert (value["outcome"], value["files"]) == ("dry run", [SCHEDULER])
    assert held(series) == was
    assert new("one", "--target", tree.root, *WHY, *day, "--trailer", "Activate: X=1").code == 0
    assert shown.out.encode() == text(series)
    assert "From: B Tester <b@example.com>\nDate: Tue, 1 Dec 2026" in shown.out
    assert "Base: vllm 0.33.0\nActivate: X=1\nOrigin: vendor\nForwarded: no\n" in shown.out


def test_the_editor_gets_a_template_and_its_text_is_the_message(
    new: New, series: Path, stock: Stock, tmp_path: Path
) -> None:
    tree = site(stock("0.33.0"), tmp_path / "site")
    edit(tree.root, SCHEDULER, "import itertools\n", "import io\nimport itertools\n")
    editor = tmp_path / "editor"
    editor.write_text(
        f'#!/bin/sh\ncp "$1" {tmp_path}/seen\n'
        "{ echo 'one: by hand'; echo; echo 'Because.'; sed 1,2d \"$1\"; } > \"$1.new\"\n"
        'mv "$1.new" "$1"\n'
    )
    editor.chmod(0o755)
    told = new("one", "--target", tree.root, EDITOR=str(editor), VISUAL="")
    assert told.code == 0, told.err
    seen = (tmp_path / "seen").read_text()
    assert "Origin: vendor\nForwarded: no\nLast-Update: " in seen
    assert f"#   {SCHEDULER}" in seen
    patch = parse(text(series), "one.patch")
    assert (patch.subject, patch.message) == ("one: by hand", "Because.")
    left = new("two", "--target", tree.root, EDITOR="true", VISUAL="")
    assert left.code == 2
    assert "the message was not written" in left.err


def test_commits_of_a_checkout_become_a_patch(
    new: New, cache: Path, series: Path, stock: Stock, tmp_path: Path
) -> None:
    checkout = tmp_path / "checkout"
    shutil.copytree(stock("0.33.0") / "vllm/v1", checkout / "vllm/v1")
    shutil.copy2(stock("0.33.0") / "vllm/__init__.py", checkout / "vllm")
    git = ("git", "-C", str(checkout))

    def commit(message: str) -> None:
        subprocess.run([*git, "add", "-A", "-f"], check=True)
        subprocess.run([*git, "commit", "-qm", message], check=True)

    subprocess.run(["git", "init", "-q", str(checkout)], check=True)
    commit("stock")
    subprocess.run([*git, "tag", "v0.33.0"], check=True)
    edit(checkout, ASYNC, "import", "import io\nimport")
    (checkout / "tests").mkdir()
    (checkout / "tests/test_one.py").write_text("def test(): ...\n")
    commit("async: import io\n\nIt is needed.\n\nActivate: X=1\nSigned-off-by: T <t@example.com>")
    told = new("one", "--git", checkout, "HEAD")
    assert told.code == 0, told.err
    assert "tests/test_one.py is left out: it is not part of the installed package" in told.err
    patch = parse(text(series), "one.patch")
    assert (patch.subject, patch.message) == ("async: import io", "It is needed.")
    assert patch.trailers[:3] == (
        ("Base", "vllm 0.33.0"), ("Activate", "X=1"), ("Signed-off-by", "T <t@example.com>"),
    )  # fmt: skip
    assert dict(patch.headers)["From"] == "A Tester <tester@example.com>"
    edit(checkout, SCHEDULER, "import itertools\n", "import io\nimport itertools\n")
    commit("more")
    assert "--base" in new("two", "--git", checkout, "HEAD", *WHY).err
    both = new("two", "--git", checkout, "v0.33.0..", SCHEDULER, *WHY)
    assert both.code == 0, both.err
    assert lint(cache, series, stock("0.33.0")) == ""
    assert "names no commit" in new("three", "--git", checkout, "--upload-pack=x..HEAD", *WHY).err


def test_another_release_than_the_base_is_not_taken_for_edits(
    new: New, series: Path, stock: Stock, tmp_path: Path
) -> None:
    bare = tmp_path / "bare"
    shutil.copytree(stock("0.32.0") / "vllm/v1", bare / "vllm/v1")
    shutil.copy2(stock("0.32.0") / "vllm/__init__.py", bare / "vllm")
    was = held(series)
    told = new("one", "--target", bare, *WHY)
    assert told.code == 2
    assert "does not say which release it is" in told.err
    assert new("one", "--target", bare, "--base", "0.33.0", *WHY).code == 1
    assert held(series) == was


def test_the_first_patch_of_a_line_makes_its_folder(
    new: New, cache: Path, series: Path, stock: Stock, tmp_path: Path
) -> None:
    shutil.rmtree(series / "vllm-0.33")
    tree = site(stock("0.33.0"), tmp_path / "site")
    edit(tree.root, SCHEDULER, "import itertools\n", "import io\nimport itertools\n")
    assert new("one", "--target", tree.root, *WHY).code == 0
    assert (series / "vllm-0.33/series").read_text() == "one.patch\n"
    assert lint(cache, series, stock("0.33.0")) == ""
    before = {SCHEDULER: (stock("0.33.0") / SCHEDULER).read_bytes()}
    assert diffs.gnu_patch(before, text(series)) == {SCHEDULER: tree.read(SCHEDULER)}
