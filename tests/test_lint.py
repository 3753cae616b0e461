"""What lint says of a patch that someone broke: one sentence, at its line, for each fault."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from commandline import SERIES
from diffs import git_diff
from vllm_series.environments import find_tree
from vllm_series.lint import Report, lint

if TYPE_CHECKING:
    from conftest import Stock

LINE = SERIES / "vllm-0.33"
NAME = "dynwidth.patch"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the series for 0.33, to be broken."""
    target = tmp_path / "vllm-0.33"
    shutil.copytree(LINE, target)
    return target


def edit(folder: Path, old: bytes, new: bytes) -> None:
    text = (folder / NAME).read_bytes()
    assert old in text
    (folder / NAME).write_bytes(text.replace(old, new, 1))


def said(report: Report) -> list[str]:
    found = [str(problem) for problem in report.problems]
    assert all(re.search(r"[^.][.?]$", problem) for problem in found), found
    return found


def test_the_series_itself_has_no_fault(folder: Path) -> None:
    report = lint(folder)
    assert (report.problems, report.patches, report.hunks) == ((), 1, 4)
    assert report.base is None


@pytest.mark.parametrize(
    ("old", "new", "line", "text"),
    [
        (b"From: vllm", b"X-From: vllm", 0, "no From: header"),
        (b"Date: ", b"X-Date: ", 0, "no Date: header"),
        (b"Subject: ", b"X-Subject: ", 0, "no Subject: header"),
        (b"Origin: vendor\n", b"", 0, "no Origin: trailer. Write where it comes from"),
        (b"Forwarded: no\n", b"", 0, "no Forwarded: trailer. Write `Forwarded: no`"),
        (b"Last-Update: 2026-12-01\n", b"", 0, "no Last-Update: trailer. Write the day"),
        (b"Forwarded: no\n", b"Forwarded:\n", 0, "trailer Forwarded: has no value"),
        (b"Base: vllm 0.33.0", b"Base: 0.33", 0, "is not of the form `vllm 0.33.0`"),
        (b"WIDTH=1\n", b"WIDTH\n", 0, "is not of the form NAME=value"),
        (b"Origin: ", b"Needs: other\nOrigin: ", 0, "Needs: other is not in front of it"),
        (b"Contract: vllm.", b"Contract: vllm/", 0, "module:Class.name(parameters)"),
        (b"Expect: tokens equal\n", b"Expect: tokens same\n", 0, "Expect: tokens same is not a st"),
        (b"tokens falls\n", b"tokens drops\n", 0, "`falls`, `rises`, `unchanged`, `appears` and"),
        (b"d35b7dfac42abd1335c827eff9f3c05728f3f248..", b"d35b7dfac4..", 190, "is shortened"),
        (b"index d35b7dfac42abd1335c8", b"x d35b7dfac42abd1335c8", 190, "it changes nothing"),
        (b"index " + b"0" * 40, b"index " + b"1" * 40, 57, "does not go with a create"),
        (b"+1,127 @@", b"+1,127 @@ from_env", 62, "where no scope can be meant"),
        (b"@@ <module>", b"@@", 194, "is not the hunk's scope"),
        (
            b"+            dynamic_width.cap(self.running)\n",
            b"",
            210,
            "the hunk of line 202 ends early",
        ),
    ],
)
def test_a_fault_is_named_at_its_line(
    folder: Path, old: bytes, new: bytes, line: int, text: str
) -> None:
    edit(folder, old, new)
    place = f"{folder / NAME}:{line}: " if line else f"{folder / NAME}: "
    problems = said(lint(folder))
    assert any(one.startswith(place) and text in one for one in problems), problems
    assert all(one.count(NAME) == 1 for one in problems)


def test_a_patch_without_why_text(folder: Path) -> None:
    text = (folder / NAME).read_bytes()
    head, _, rest = text.partition(b"\n\n")
    (folder / NAME).write_bytes(head + b"\n\nBase: " + rest.partition(b"\n\nBase: ")[2])
    assert [one for one in said(lint(folder)) if "why-text" in one]


def test_a_patch_is_listed_once_is_there_and_is_not_left_over(folder: Path) -> None:
    listed = folder / "series"
    for text, expected in (
        (f"{NAME}\n{NAME}\n", "is listed twice"),
        (f"{NAME}\nnone.patch\n", "lists none.patch, which is not there"),
        ("", "it lists no patch"),
        ("# nothing\n", f"{NAME}: no line of the series file names it"),
    ):
        listed.write_text(text)
        assert any(expected in one for one in said(lint(folder))), text
    listed.unlink()
    assert any("series is missing" in one for one in said(lint(folder)))


def test_a_leftover_of_patch_in_a_patch(folder: Path) -> None:
    leftover = (
        "diff --git a/vllm/x.py.rej b/vllm/x.py.rej\nnew file mode 100644\n"
        f"index {'0' * 40}..7898192261678b10d1438c1a8a8b7d2a2b7b3d9e\n"
        "--- /dev/null\n+++ b/vllm/x.py.rej\n@@ -0,0 +1 @@\n+a\n"
    )
    with (folder / NAME).open("a") as patch:
        patch.write(leftover)
    assert any("x.py.rej" in one for one in said(lint(folder)))


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        (b"async_scheduler:Async", b"no_scheduler:Async", "there is no vllm/v1/core/sched/no_"),
        (b":AsyncScheduler._upd", b":AsyncScheduler._no", "there is no AsyncScheduler._no"),
        (b"(self, scheduler_output)", b"(self)", "is (self, scheduler_output), not (self)"),
        (b"..ae0868a0", b"..be0868a0", "the patch was edited by hand"),
        (b"<module>", b"Scheduler", "section heading 'Scheduler', but it changes <module>"),
        (b"new_step_starts()\n", b"new_steps()\n", "drifted on its base"),
    ],
)
def test_a_lie_about_the_base_is_found_out(
    folder: Path, stock: Stock, old: bytes, new: bytes, text: str
) -> None:
    base = find_tree(stock("0.33.0"))
    assert lint(folder, base.read, "0.33.0").problems == ()
    edit(folder, old, new)
    report = lint(folder, base.read, "0.33.0")
    assert any(text in one for one in said(report)), said(report)


def test_another_release_is_no_base(folder: Path, stock: Stock) -> None:
    report = lint(folder, find_tree(stock("0.32.0")).read, "0.32.0")
    assert (report.base, report.problems) == (None, ())


TWINS = b"""\
class C:
    def run(self):
        if self.a:
            x = 1
            y = 2
            z = 3
        if self.b:
            x = 1
            y = 2
            z = 3
"""


@pytest.mark.parametrize(
    ("heading", "text"),
    [
        ("C.run (2 of 2)", ""),
        ("C.run", "where its text stands 2 times. Write 'C.run (2 of 2)'."),
        ("C.run (1 of 2)", "where its text stands 2 times. Write 'C.run (2 of 2)'."),
        ("C.run (2 of 3)", "where its text stands 2 times. Write 'C.run (2 of 2)'."),
        ("C (2 of 2)", "section heading 'C (2 of 2)', but it changes C.run"),
    ],
)
def test_a_heading_says_which_copy_of_its_text_is_meant(
    folder: Path, heading: str, text: str
) -> None:
    path = "vllm/twins.py"
    head, mark, tail = TWINS.rpartition(b"            y = 2\n")
    diff = git_diff(
        {path: TWINS}, {path: head + b"            y = 3\n" + tail}, "-U1", "--full-index"
    )
    start, _, rest = diff.partition(b" @@")
    body = rest.partition(b"\n")[2]
    own = (folder / NAME).read_bytes().partition(b"diff --git ")[0]
    contracts = [line for line in own.splitlines(True) if not line.startswith(b"Contract")]
    (folder / NAME).write_bytes(
        b"".join(contracts) + start + b" @@ " + heading.encode() + b"\n" + body
    )
    problems = said(lint(folder, {path: TWINS}.get, "0.33.0"))
    assert mark
    assert (any(text in one for one in problems) and len(problems) == 1) if text else not problems


@pytest.mark.parametrize(
    ("heading", "text"),
    [
        ("C.run (1 of 1)", ""),
        ("C.run", "its text stands elsewhere in the file too. Write 'C.run (1 of 1)'."),
        ("C.run (1 of 2)", "its text stands elsewhere in the file too. Write 'C.run (1 of 1)'."),
    ],
)
def test_a_heading_says_that_its_text_has_a_twin_in_another_scope(
    folder: Path, heading: str, text: str
) -> None:
    path = "vllm/twins.py"
    one = b"class %b:\n    def run(self):\n        x = 1\n        y = 2\n        z = 3\n"
    base = one % b"C" + b"\n\n" + one % b"D"
    diff = git_diff({path: base}, {path: base.replace(b"2", b"3", 1)}, "-U1", "--full-index")
    start, _, rest = diff.partition(b" @@")
    body = rest.partition(b"\n")[2]
    own = (folder / NAME).read_bytes().partition(b"diff --git ")[0]
    contracts = [line for line in own.splitlines(True) if not line.startswith(b"Contract")]
    (folder / NAME).write_bytes(
        b"".join(contracts) + start + b" @@ " + heading.encode() + b"\n" + body
    )
    problems = said(lint(folder, {path: base}.get, "0.33.0"))
    assert (any(text in each for each in problems) and len(problems) == 1) if text else not problems


def test_a_count_that_makes_no_sense_is_no_scope(folder: Path) -> None:
    edit(folder, b"@@ Scheduler.schedule\n", b"@@ Scheduler.schedule (3 of 2)\n")
    assert any("is not the hunk's scope" in one for one in said(lint(folder)))
