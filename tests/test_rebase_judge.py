"""What is taken of git's merges, and what is not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from vllm_series.compose import PatchMeta, compose
from vllm_series.diffs.parse import parse
from vllm_series.patch import Hunk, Patch
from vllm_series.rebase import Judged, Outcome, Sides, judge
from vllm_series.workspace.repository import Commit, Scratch

PATH = "vllm/model.py"
OLD = "".join(f"def f{n}():\n    a = {n}\n    b = 2\n    return a\n\n\n" for n in range(5))
Texts = Mapping[str, "bytes | None"]


def made(before: str, after: str) -> Patch:
    meta = PatchMeta("p.patch", "A <a@b>", "Tue, 1 Dec 2026 00:00:00 +0000", "s", "why")
    return compose(meta, {PATH: before.encode()}, {PATH: after.encode()}, "0.1.0")


def runs(tmp: Path, before: str, after: str) -> Callable[[str, str], Sequence[Hunk]]:
    def commit(text: str, parent: int | None) -> Commit:
        return Commit({PATH: (text.encode(), "100644")}, parent, b"x", b"A <a@b>", "0 +0000")

    with Scratch(tmp) as scratch:
        old, new = scratch.make([commit(before, None), commit(after, 0)])
        text = scratch.diff(old, new, context=0)
    hunks = parse(text, "x").files[0].hunks if text else ()
    return lambda _old, _new: hunks


def judged(tmp: Path, patched: str, target: str, result: str) -> Judged:
    def sides(name: str, before: str, after: str) -> Sides:
        return Sides(
            {PATH: before.encode()}.get, {PATH: after.encode()}.get,
            runs(tmp / name, before, after),
        )  # fmt: skip

    patch = made(OLD, patched)
    return judge(patch, sides("old", OLD, patched), sides("new", target, result), {})


def change(text: str, number: int) -> str:
    return text.replace(f"    a = {number}\n    b = 2\n", f"    a = {number}\n    b = 3\n")


def test_the_same_place_is_clean(tmp_path: Path) -> None:
    assert judged(tmp_path, change(OLD, 2), OLD, change(OLD, 2)).outcome is Outcome.CLEAN


def test_lines_above_make_an_offset(tmp_path: Path) -> None:
    target = "import os\n\n\n" + OLD
    assert judged(tmp_path, change(OLD, 2), target, change(target, 2)).outcome is Outcome.OFFSET


def test_a_result_elsewhere_than_text_and_scope_lead_is_refused(tmp_path: Path) -> None:
    target = "import os\n\n\n" + OLD
    answer = judged(tmp_path, change(OLD, 2), target, change(target, 3))
    assert answer.outcome is Outcome.CONFLICTED
    assert answer.misplaced == (PATH,)


def test_a_merge_into_another_scope_is_refused(tmp_path: Path) -> None:
    target = OLD.replace("def f2():", "def g2():").replace("    a = 2\n", "    a = 22\n")
    result = target.replace("    a = 22\n    b = 2\n", "    a = 22\n    b = 3\n")
    answer = judged(tmp_path, change(OLD, 2), target, result)
    assert answer.outcome is Outcome.CONFLICTED
    assert "f2" in answer.problem


def test_a_changed_neighbour_is_a_merge(tmp_path: Path) -> None:
    target = OLD.replace("def f2():", "def f2(x=1):")
    assert judged(tmp_path, change(OLD, 2), target, change(target, 2)).outcome is Outcome.MERGED


def test_no_change_left_is_upstream(tmp_path: Path) -> None:
    target = "import os\n\n\n" + change(OLD, 2)
    assert judged(tmp_path, change(OLD, 2), target, target).outcome is Outcome.UPSTREAMED


def test_one_of_two_changes_left_is_partly_upstream(tmp_path: Path) -> None:
    target = "import os\n\n\n" + change(OLD, 1)
    both = change(change(OLD, 1), 4)
    answer = judged(tmp_path, both, target, change(target, 4))
    assert answer.outcome is Outcome.PARTLY


def test_a_change_that_is_not_the_patchs_own_is_refused(tmp_path: Path) -> None:
    target = OLD.replace("def f2():", "def f2(x=1):")
    result = change(target, 2).replace("return a", "return b", 1)
    assert judged(tmp_path, change(OLD, 2), target, result).outcome is Outcome.CONFLICTED
