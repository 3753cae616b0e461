"""The command import: changes of others at the end of a series, all of them or none."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import diffs
from commandline import SCHEDULER, Ran, copied, everything, run
from conftest import Stock
from vllm_series.diffs.parse import parse
from vllm_series.patch import Kind

WHO = ("--author", "A Tester <tester@example.com>")
WHY = ("-m", "one: what it does", "-m", "Why it does so.")

Import = Callable[..., Ran]


@pytest.fixture
def imported(installed: Path, series: Path) -> Import:
    """Import into the 0.33 line of a copy of this project's series."""

    def call(*words: str | Path, stdin: bytes = b"") -> Ran:
        source = ("--source", f"dir:{installed}", "--series-dir", str(series))
        at = list(words).index("--") if "--" in words else len(words)
        return run("import", *words[:at], *source, *words[at:], stdin=stdin)

    return call


def edited(root: Path, old: str, new: str, path: str = SCHEDULER) -> bytes:
    """The diff of one change of a file, by git; the file stays as it is."""
    place = root / path
    before = place.read_bytes()
    assert before.count(old.encode()) >= 1
    after = before.replace(old.encode(), new.encode(), 1)
    return diffs.git_diff({path: before}, {path: after}, "--full-index")


def lint(series: Path, release: Path) -> str:
    told = run("lint", "--series-dir", series, "--series", "vllm-0.33", "--target", release, "-q")
    return told.out + (told.err if told.code else "")


IMPORT = ("import itertools\n", "import io\nimport itertools\n")
RESET = ("    def reset_prefix_cache(", "    def nothing(self):\n        return\n\n"
         "    def reset_prefix_cache(")  # fmt: skip


def test_a_bare_diff_becomes_the_last_patch(
    imported: Import, series: Path, installed: Path, stock: Stock, tmp_path: Path
) -> None:
    diff = tmp_path / "one.diff"
    diff.write_bytes(edited(installed, *IMPORT))
    told = imported(diff, "--base", "0.33.0", *WHO, *WHY)
    assert told.code == 0, told.err
    assert told.out == f"{series / 'vllm-0.33/one.patch'}\n"
    assert (series / "vllm-0.33/series").read_text() == "dynwidth.patch\none.patch\n"
    patch = parse((series / "vllm-0.33/one.patch").read_bytes(), "one.patch")
    assert (patch.base, patch.subject, patch.message) == ("0.33.0", WHY[1], WHY[3])
    assert patch.trailer("Needs") == []
    assert lint(series, stock("0.33.0")) == ""
    site = copied(stock("0.33.0"), tmp_path / "again")
    assert run("apply", "--target", site, "--series-dir", series).code == 0
    assert b"import io\nimport itertools\n" in (site / SCHEDULER).read_bytes()


def test_a_diff_without_a_word_says_so(
    imported: Import, series: Path, installed: Path, stock: Stock
) -> None:
    told = imported("-", "--base", "0.33.0", *WHO, stdin=edited(installed, *IMPORT))
    assert told.code == 0, told.err
    assert "does not say why" in told.err
    patch = parse((series / "vllm-0.33/stdin.patch").read_bytes(), "stdin.patch")
    assert patch.subject == "stdin: imported from stdin"
    assert lint(series, stock("0.33.0")) == ""


def test_a_diff_on_older_files_is_placed(
    imported: Import, series: Path, stock: Stock, installed: Path
) -> None:
    """The same edit made in 0.32.0, at other lines of the file."""
    diff = edited(stock("0.32.0"), *RESET)
    told = imported("-", "--base", "0.33.0", *WHO, *WHY, stdin=diff)
    assert told.code == 0, told.err
    patch = parse((series / "vllm-0.33/stdin.patch").read_bytes(), "stdin.patch")
    assert [hunk.heading for hunk in patch.files[0].hunks] == [b"Scheduler"]
    assert patch.files[0].hunks[0].old_start != parse(diff, "one").files[0].hunks[0].old_start
    assert run("apply", "--target", installed, "--series-dir", series).code == 0
    assert RESET[1] in (installed / SCHEDULER).read_text()


def test_a_patch_that_stands_on_another_says_so(
    imported: Import, series: Path, installed: Path, stock: Stock, tmp_path: Path
) -> None:
    site = copied(stock("0.33.0"), tmp_path / "patched")
    assert run("apply", "--target", site, "--series-dir", series).code == 0
    added = "vllm/v1/core/sched/dynamic_width.py"
    diff = edited(site, "\nimport ", "\n# one more\nimport ", added)
    told = imported("-", "--base", "0.33.0", *WHO, *WHY, "--name", "two", stdin=diff)
    assert told.code == 0, told.err
    patch = parse((series / "vllm-0.33/two.patch").read_bytes(), "two.patch")
    assert patch.trailer("Needs") == ["dynwidth.patch"]
    assert lint(series, stock("0.33.0")) == ""


def mail(diff: bytes, subject: str) -> bytes:
    head = f"From: B <b@example.com>\nDate: Tue, 1 Dec 2026 00:00:00 +0000\nSubject: {subject}\n"
    envelope = b"From " + b"0" * 40 + b" Mon Sep 17 00:00:00 2001\n"
    return envelope + head.encode() + b"\nWhy.\n---\n\n" + diff


def test_of_an_mbox_all_patches_come_or_none(
    imported: Import, series: Path, installed: Path
) -> None:
    before = everything(series)
    first = mail(edited(installed, *IMPORT), "[PATCH 1/2] first: x")
    second = mail(edited(installed, *RESET), "[PATCH 2/2] second: x")
    wrong = second.replace(b" def reset_prefix_cache", b" def reset_prefix_catch")
    told = imported("-", "--base", "0.33.0", stdin=first + wrong)
    assert told.code == 1
    assert "second.patch does not fit vllm 0.33.0" in told.err
    assert everything(series) == before
    told = imported("-", "--base", "0.33.0", stdin=first + second)
    assert told.code == 0, told.err
    listed = (series / "vllm-0.33/series").read_text()
    assert listed == "dynwidth.patch\nfirst.patch\nsecond.patch\n"
    patch = parse((series / "vllm-0.33/second.patch").read_bytes(), "second.patch")
    assert dict(patch.headers)["From"] == "B <b@example.com>"
    assert patch.subject == "second: x"


def test_a_mail_keeps_its_author_and_may_be_told_why(
    imported: Import, series: Path, installed: Path
) -> None:
    text = mail(edited(installed, *IMPORT), "[PATCH] first: x").replace(b"\nWhy.\n", b"")
    told = imported("-", "--base", "0.33.0", "-n", stdin=text)
    assert told.code == 0, told.err
    assert "first.patch does not say why" in told.err
    assert (
        parse(told.out.encode(), "first").message == "Imported from stdin, which does not say why."
    )
    told = imported("-", "--base", "0.33.0", "-n", "-m", "first: y", "-m", "So.", stdin=text)
    assert told.code == 0, told.err
    patch = parse(told.out.encode(), "first")
    assert (patch.subject, patch.message) == ("first: y", "So.")
    assert dict(patch.headers)["From"] == "B <b@example.com>"


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        (("import itertools\n", "import itertools as (\n"), 1, "does not leave Python behind"),
        (("no such line at all", ""), 1, "does not fit"),
    ],
)
def test_what_would_be_no_patch_is_refused(
    change: tuple[str, str], code: int, said: str, imported: Import, series: Path, installed: Path
) -> None:
    before = everything(series)
    if code and change[0].startswith("no"):
        diff = edited(installed, *IMPORT).replace(b" import itertools", b" import no_such")
    else:
        diff = edited(installed, *change)
    told = imported("-", "--base", "0.33.0", *WHO, *WHY, stdin=diff)
    assert (told.code, told.out) == (code, "")
    assert said in told.err
    assert everything(series) == before


def test_a_name_that_is_taken_is_refused(imported: Import, installed: Path) -> None:
    told = imported("-", "--base", "0.33.0", *WHO, *WHY, "--name", "dynwidth",
                    stdin=edited(installed, *IMPORT))  # fmt: skip
    assert told.code == 1
    assert "lists dynwidth.patch already" in told.err


def test_the_release_is_asked_for_where_nothing_says_it(imported: Import, installed: Path) -> None:
    told = imported("-", *WHO, *WHY, stdin=edited(installed, *IMPORT))
    assert told.code == 2
    assert "Name one with --base" in told.err


def test_the_series_says_the_release_where_the_diff_does_not(
    imported: Import, installed: Path
) -> None:
    told = imported("-", "--series", "0.33", "-n", *WHO, *WHY, stdin=edited(installed, *IMPORT))
    assert told.code == 0, told.err
    assert parse(told.out.encode(), "one").base == "0.33.0"


def test_commits_become_a_patch_each(
    imported: Import, series: Path, installed: Path, stock: Stock, tmp_path: Path,
    oracle: Callable[[str], str],
) -> None:  # fmt: skip
    git = oracle("git")
    repo = tmp_path / "repo"
    copied(stock("0.33.0"), repo)

    def asked(*words: str) -> None:
        subprocess.run([git, "-C", repo, *words], check=True, capture_output=True)

    asked("init", "-q")
    asked("add", "vllm")
    asked("commit", "-qm", "stock")
    asked("tag", "v0.33.0")
    place = repo / SCHEDULER
    place.write_text(place.read_text().replace(*IMPORT, 1))
    (repo / "csrc").mkdir()
    (repo / "csrc/x.cu").write_text("x\n")
    asked("add", ".")
    asked("commit", "-qm", "first: x\n\nWhy.\n\nOrigin: upstream, https://example.com")
    (repo / "csrc/x.cu").write_text("y\n")
    asked("commit", "-qam", "csrc alone")
    (repo / "vllm/v1/core/sched/more.py").write_text("MORE = 1\n")
    asked("add", ".")
    asked("commit", "-qm", "second: x\n\nWhy.")
    told = imported(f"git:{repo}", "v0.33.0..HEAD")
    assert told.code == 0, told.err
    assert "csrc/x.cu is left out" in told.err
    assert (series / "vllm-0.33/series").read_text().split() == [
        "dynwidth.patch", "first.patch", "second.patch",
    ]  # fmt: skip
    first, second = (
        parse((series / "vllm-0.33" / name).read_bytes(), name)
        for name in ("first.patch", "second.patch")
    )
    assert first.trailer("Origin") == ["upstream, https://example.com"]
    assert dict(first.headers)["From"] == "A Tester <tester@example.com>"
    assert [change.kind for change in second.files] == [Kind.CREATE]
    assert lint(series, stock("0.33.0")) == ""


def test_json_tells_what_was_made(imported: Import, series: Path, installed: Path) -> None:
    told = imported("-", "--base", "0.33.0", "--json", *WHO, *WHY, "--name", "one",
                    stdin=edited(installed, *IMPORT))  # fmt: skip
    value = told.json()
    assert (value["command"], value["outcome"], value["series"]) == (
        "import", "written", "vllm-0.33",
    )  # fmt: skip
    patches: Any = value["patches"]
    (patch,) = patches
    assert patch["name"] == "one.patch"
    assert patch["files"] == [SCHEDULER]
    assert patch["text"].encode() == (series / "vllm-0.33/one.patch").read_bytes()
    assert value["output"] is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nothing.diff",), "there is no nothing.diff"),
        (("git:.",), "name the commits"),
        (("-", "A..B"), "takes no arguments"),
        (("-", "--yes"), "is no script"),
    ],
)
def test_words_that_cannot_be_meant_are_usage(
    words: tuple[str, ...], said: str, imported: Import
) -> None:
    told = imported(*words, "--base", "0.33.0")
    assert told.code == 2
    assert said in told.err
