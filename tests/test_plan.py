"""Plans: patches on top of each other, all or nothing; git says what renames and copies mean."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from diffs import Files, git_apply, git_diff, ours, ours_reversed, plan
from vllm_series.diffs.parse import parse
from vllm_series.errors import PatchFormatError
from vllm_series.plan import Plan, make_plan
from vllm_series.verdicts import Verdict

X = b"".join(b"line %d\n" % n for n in range(30))
Y = b"".join(b"other %d\n" % n for n in range(30))
TREE = {"vllm/a.py": X, "vllm/b.py": Y}


def edit(text: bytes, *numbers: int) -> bytes:
    for number in numbers:
        text = text.replace(b" %d\n" % number, b" %d!\n" % number)
    return text


def diff(before: Files, after: Files, *options: str) -> bytes:
    return git_diff(before, after, "--full-index", *options)


def change(before: bytes, after: bytes, path: str = "vllm/a.py") -> bytes:
    return diff({path: before}, {path: after})


def rename(old: str, new: str) -> bytes:
    text = (
        f"diff --git a/{old} b/{new}\nsimilarity index 100%\nrename from {old}\nrename to {new}\n"
    )
    return text.encode()


def copy(old: str, new: str) -> bytes:
    return rename(old, new).replace(b"rename", b"copy")


def verdicts(planned: Plan) -> list[str]:
    return [patch.verdict.value for patch in planned.patches]


# -- with the base -------------------------------------------------------------------------------

UP = X.replace(b"line 3\n", b"line three\n").replace(b"line 20\n", b"line twenty\n")
"""The release's file: upstream has changed two lines of the base."""


def with_base(tree: Files, *patches: bytes, base: Files = TREE) -> Plan:
    parsed = [parse(patch, f"{number}.patch") for number, patch in enumerate(patches)]
    return make_plan(parsed, tree.get, base=base.get)


def test_merged_patch_has_a_step_and_later_ones_are_planned_on_it_but_the_plan_does_not_fit() -> (
    None
):
    steps = [X, edit(X, 5), edit(X, 5, 7), edit(X, 5, 7, 28)]
    patches = [change(*pair) for pair in pairwise(steps)]
    planned = with_base({"vllm/a.py": UP}, *patches)
    assert verdicts(planned) == ["merged", "exact", "exact"]
    assert not planned.fits
    assert not planned.patches[0].fits
    assert not planned.patches[0].refused
    assert planned.results()["vllm/a.py"][1] == edit(UP, 5, 7, 28)


def test_patch_on_top_of_others_is_aligned_with_what_they_made_of_the_base() -> None:
    """The second patch stands between lines that the first one adds."""
    first = X.replace(b"line 5\n", b"line 5\nnew 1\nnew 2\n")
    second = first.replace(b"new 1\n", b"new 1\nnew 1b\n")
    patches = [change(X, first), change(first, second)]
    tree = X.replace(b"line 4\n", b"line four\n")
    planned = with_base({"vllm/a.py": tree}, *patches)
    assert verdicts(planned) == ["merged", "merged"]
    result = planned.results()["vllm/a.py"][1]
    assert result == tree.replace(b"line 5\n", b"line 5\nnew 1\nnew 1b\nnew 2\n")


def test_failed_patch_stays_in_the_base_so_that_later_ones_are_still_aligned() -> None:
    steps = [X, edit(X, 3), edit(X, 3, 4, 9), edit(X, 3, 4, 9, 18)]
    patches = [change(*pair) for pair in pairwise(steps)]
    planned = with_base({"vllm/a.py": UP}, *patches)
    assert verdicts(planned) == ["drifted", "drifted", "merged"]
    assert planned.results()["vllm/a.py"][1] == edit(UP, 18)


def test_blocked_patch_stays_in_the_base_too() -> None:
    needs = b"From: a <a@b>\nSubject: b\n\nwhy\n\nNeeds: 0.patch\n\n"
    first, second, third = X, edit(X, 3), edit(X, 3, 10)
    patches = [change(first, second), needs + change(second, third), change(third, edit(third, 18))]
    planned = with_base({"vllm/a.py": UP}, *patches)
    assert verdicts(planned) == ["drifted", "blocked", "merged"]
    assert planned.results()["vllm/a.py"][1] == edit(UP, 18)


def test_base_is_not_read_where_the_file_is_the_recorded_one() -> None:
    asked: list[str] = []

    def base(path: str) -> bytes | None:
        asked.append(path)
        return TREE.get(path)

    steps = [X, edit(X, 5), edit(X, 5, 6)]
    patches = [parse(change(*pair), "p") for pair in pairwise(steps)]
    assert make_plan(patches, {"vllm/a.py": X}.get, base=base).fits
    assert asked == []


def test_base_that_is_another_is_noted() -> None:
    other = {"vllm/a.py": X.replace(b"line 5\n", b"line five\n")}
    planned = with_base({"vllm/a.py": UP}, change(X, edit(X, 6)), base=other)
    assert verdicts(planned) == ["drifted"]
    assert any(
        "does not fit vllm/a.py of its base either" in note for note in planned.patches[0].notes
    )


def test_renamed_file_is_merged_by_its_old_name() -> None:
    moved = diff({"vllm/a.py": X}, {"vllm/c.py": edit(X, 5)}, "-M")
    planned = with_base({"vllm/a.py": UP}, moved)
    assert verdicts(planned) == ["merged"]
    assert planned.results() == {"vllm/a.py": (UP, None), "vllm/c.py": (None, edit(UP, 5))}


# -- on top of each other ------------------------------------------------------------------------


def test_patches_are_planned_on_what_those_before_leave() -> None:
    steps = [X, edit(X, 5), edit(X, 5, 6), edit(X, 5, 6, 25)]
    patches = [change(*pair) for pair in pairwise(steps)]
    planned = plan(TREE, *patches)
    assert verdicts(planned) == ["exact"] * 3
    assert all(patch.files[0].pristine for patch in planned.patches)
    assert planned.results() == {"vllm/a.py": (X, steps[-1])}
    assert [step.files[0].before for step in planned.steps] == steps[:3]


def test_three_deep_on_one_file_in_the_wrong_order_is_refused() -> None:
    steps = [X, edit(X, 5), edit(X, 5, 6), edit(X, 5, 6, 7)]
    patches = [change(*pair) for pair in pairwise(steps)]
    planned = plan(TREE, patches[0], patches[2], patches[1])
    assert verdicts(planned) == ["exact", "drifted", "exact"]
    assert not planned.fits


def test_file_created_by_one_patch_is_changed_by_the_next_and_deleted_by_the_last() -> None:
    made = diff({}, {"vllm/new.py": X})
    changed = change(X, edit(X, 9), "vllm/new.py")
    gone = diff({"vllm/new.py": edit(X, 9)}, {})
    assert ours({}, made, changed) == {"vllm/new.py": edit(X, 9)}
    planned = plan({}, made, changed, gone)
    assert verdicts(planned) == ["exact"] * 3
    assert planned.results() == {"vllm/new.py": (None, None)}


def test_failed_patch_leaves_the_texts_as_they_were_and_the_next_is_judged() -> None:
    broken = diff(
        {"vllm/a.py": edit(X, 1), "vllm/b.py": Y},
        {"vllm/a.py": edit(X, 1, 2), "vllm/b.py": edit(Y, 2)},
    )
    planned = plan(TREE, broken, change(Y, edit(Y, 20), "vllm/b.py"))
    assert verdicts(planned) == ["drifted", "exact"]
    assert [file.verdict for file in planned.patches[0].files] == [Verdict.DRIFTED, Verdict.EXACT]
    assert not planned.fits
    assert planned.results() == {"vllm/b.py": (Y, edit(Y, 20))}


def test_applied_patch_is_no_step_and_no_failure() -> None:
    planned = plan({"vllm/a.py": edit(X, 5)}, change(X, edit(X, 5)))
    assert verdicts(planned) == ["applied"]
    assert planned.fits
    assert planned.steps == ()


# -- Needs ---------------------------------------------------------------------------------------


def needing(need: str, text: bytes) -> bytes:
    return f"why\n\nNeeds: {need}\n\n".encode() + text


@pytest.mark.parametrize("need", ["0.patch", "0"])
def test_needed_patch_in_front_is_enough_with_or_without_its_ending(need: str) -> None:
    planned = plan(TREE, change(X, edit(X, 5)), needing(need, change(Y, edit(Y, 5), "vllm/b.py")))
    assert planned.fits


def test_needed_patch_that_fails_blocks_and_is_named() -> None:
    planned = plan(TREE, change(Y, edit(Y, 5)), needing("0", change(Y, edit(Y, 5), "vllm/b.py")))
    assert verdicts(planned) == ["drifted", "blocked"]
    assert planned.patches[1].reason == "it needs 0, which does not fit"


def test_needed_patch_behind_is_a_wrong_order() -> None:
    planned = plan(TREE, needing("1", change(X, edit(X, 5))), change(Y, edit(Y, 5), "vllm/b.py"))
    assert verdicts(planned) == ["blocked", "exact"]
    assert "Put 1 before 0.patch in the series file" in planned.patches[0].reason


def test_needed_patch_that_the_tree_holds_is_there() -> None:
    patch = parse(needing("first", change(X, edit(X, 5))), "p")
    assert make_plan([patch], TREE.get, present=["first.patch"]).fits


# -- nothing to do, or a part --------------------------------------------------------------------


def test_patch_that_changes_nothing_is_refused() -> None:
    text = (
        b"--- a/vllm/a.py\n+++ b/vllm/a.py\n@@ -1,3 +1,3 @@\n line 0\n-line 1\n+line 1\n line 2\n"
    )
    planned = plan(TREE, text)
    assert not planned.fits


def test_patch_that_is_applied_in_one_file_alone_is_refused() -> None:
    after = {"vllm/a.py": edit(X, 5), "vllm/b.py": edit(Y, 5)}
    planned = plan({**TREE, "vllm/a.py": edit(X, 5)}, diff(TREE, after))
    (patch,) = planned.patches
    assert patch.verdict is Verdict.AMBIGUOUS
    assert "holds a part of it already (vllm/a.py)" in patch.reason


def test_patch_that_is_applied_in_one_hunk_alone_is_refused() -> None:
    planned = plan({"vllm/a.py": edit(X, 5)}, change(X, edit(X, 5, 25)))
    (patch,) = planned.patches
    assert patch.verdict is Verdict.AMBIGUOUS
    assert "1 of its 2 hunks stand in the file already" in patch.files[0].reason
    assert not planned.fits


# -- files that are there or not -----------------------------------------------------------------


def test_missing_file_is_said() -> None:
    planned = plan({}, change(X, edit(X, 5)))
    (patch,) = planned.patches
    assert patch.verdict is Verdict.MISSING
    assert patch.files[0].reason == "there is no vllm/a.py in this tree"


def test_file_to_be_created_that_exists_is_applied_only_with_the_same_text() -> None:
    made = diff({}, {"vllm/a.py": X})
    assert verdicts(plan({"vllm/a.py": X}, made)) == ["applied"]
    planned = plan({"vllm/a.py": Y}, made)
    assert verdicts(planned) == ["drifted"]
    assert planned.patches[0].files[0].reason == "a file of that name exists with other content"


def test_file_to_be_deleted_must_hold_what_the_patch_takes_out() -> None:
    gone = diff({"vllm/a.py": X}, {})
    assert ours({"vllm/a.py": X}, gone) == {}
    assert verdicts(plan({}, gone)) == ["applied"]
    planned = plan({"vllm/a.py": X + b"more\n"}, gone)
    assert verdicts(planned) == ["drifted"]
    assert "holds other text" in planned.patches[0].files[0].reason


def test_empty_file_is_created_and_deleted() -> None:
    made = diff({}, {"vllm/e.py": b""})
    assert ours({}, made) == {"vllm/e.py": b""}
    assert ours_reversed({"vllm/e.py": b""}, made) == {}
    assert ours({"vllm/e.py": b"now full\n"}, diff({"vllm/e.py": b""}, {})) is None


def test_plain_diff_of_everything_creates_a_missing_file_as_git_does() -> None:
    text = b"--- a/vllm/n.py\n+++ b/vllm/n.py\n@@ -0,0 +1,2 @@\n+a\n+b\n"
    assert ours({}, text) == git_apply({}, text) == {"vllm/n.py": b"a\nb\n"}
    empty = {"vllm/n.py": b""}
    assert ours(empty, text) == git_apply(empty, text) == {"vllm/n.py": b"a\nb\n"}
    headed = b"diff --git a/vllm/n.py b/vllm/n.py\n" + text
    assert ours({}, headed) == git_apply({}, headed) is None


def test_plain_diff_between_two_files_of_the_tree_is_refused() -> None:
    text = diff({"vllm/a.py": X}, {"vllm/a.py": edit(X, 5)}).split(b"\n", 2)[2]
    text = text.replace(b"+++ b/vllm/a.py", b"+++ b/vllm/b.py")
    (patch,) = plan(TREE, text).patches
    assert patch.verdict is Verdict.AMBIGUOUS
    assert "names two files, vllm/a.py and vllm/b.py" in patch.files[0].reason


# -- renames and copies, as git reads them --------------------------------------------------------

MOVES: dict[str, Callable[[], bytes]] = {
    "rename": lambda: rename("vllm/a.py", "vllm/c.py"),
    "rename with a change": lambda: diff({"vllm/a.py": X}, {"vllm/c.py": edit(X, 5)}, "-M"),
    "rename into a folder": lambda: rename("vllm/a.py", "vllm/deep/er/a.py"),
    "copy": lambda: copy("vllm/a.py", "vllm/c.py"),
    "two copies": lambda: copy("vllm/a.py", "vllm/c.py") + copy("vllm/a.py", "vllm/d.py"),
    "swap": lambda: rename("vllm/a.py", "vllm/b.py") + rename("vllm/b.py", "vllm/a.py"),
    "chain": lambda: rename("vllm/a.py", "vllm/c.py") + rename("vllm/b.py", "vllm/a.py"),
    "chain, the other way round": lambda: (
        rename("vllm/b.py", "vllm/a.py") + rename("vllm/a.py", "vllm/c.py")
    ),
    "onto a deleted name": lambda: diff({"vllm/b.py": Y}, {}) + rename("vllm/a.py", "vllm/b.py"),
    "change, then rename": lambda: change(X, edit(X, 5)) + rename("vllm/a.py", "vllm/c.py"),
    "change, then copy": lambda: change(X, edit(X, 5)) + copy("vllm/a.py", "vllm/c.py"),
    "copy, then change": lambda: copy("vllm/a.py", "vllm/c.py") + change(X, edit(X, 5)),
    "rename, then change": lambda: (
        rename("vllm/a.py", "vllm/c.py") + change(X, edit(X, 5), "vllm/c.py")
    ),
    "rename, then change the old": lambda: rename("vllm/a.py", "vllm/c.py") + change(X, edit(X, 5)),
    "delete, then create": lambda: diff({"vllm/a.py": X}, {}) + diff({}, {"vllm/a.py": Y}),
    "create, then change": lambda: diff({}, {"vllm/c.py": X}) + change(X, edit(X, 5), "vllm/c.py"),
    "onto an existing name": lambda: rename("vllm/a.py", "vllm/b.py"),
    "copy onto an existing name": lambda: copy("vllm/a.py", "vllm/b.py"),
    "of a missing file": lambda: rename("vllm/none.py", "vllm/c.py"),
    "onto a name deleted later": lambda: (
        rename("vllm/a.py", "vllm/b.py") + diff({"vllm/b.py": Y}, {})
    ),
    "create, then delete the old": lambda: diff({}, {"vllm/a.py": Y}) + diff({"vllm/a.py": X}, {}),
}


@pytest.mark.parametrize("name", MOVES)
def test_renames_and_copies_mean_what_git_takes_them_for(name: str) -> None:
    text = MOVES[name]()
    assert ours(TREE, text) == git_apply(TREE, text)


@pytest.mark.parametrize(
    "name",
    [
        "rename",
        "rename with a change",
        "copy",
        "onto a deleted name",
        "two copies",
        "delete, then create",
    ],
)
def test_second_plan_of_a_move_is_applied(name: str) -> None:
    after = ours(TREE, MOVES[name]())
    assert after is not None
    assert verdicts(plan(after, MOVES[name]())) == ["applied"]


def test_renamed_and_changed_file_of_another_release_is_recognised_as_applied() -> None:
    after = {"vllm/c.py": b"above\n" + edit(X, 5)}
    assert verdicts(plan(after, MOVES["rename with a change"]())) == ["applied"]


def test_move_is_undone_by_its_reverse_and_a_copy_says_that_it_cannot_be() -> None:
    for name in ("rename", "rename with a change", "swap", "onto a deleted name"):
        after = ours(TREE, MOVES[name]())
        assert after is not None
        assert ours_reversed(after, MOVES[name]()) == TREE
    with pytest.raises(PatchFormatError, match=r"0\.patch:1: a copy cannot be reversed"):
        ours_reversed(TREE, MOVES["copy"]())


def test_rename_whose_hunks_stand_under_the_old_name_is_refused() -> None:
    (patch,) = plan({"vllm/a.py": edit(X, 5)}, MOVES["rename with a change"]()).patches
    assert patch.verdict is Verdict.AMBIGUOUS
    assert "the file has its old name" in patch.files[0].reason


# -- modes ---------------------------------------------------------------------------------------


def test_mode_alone_is_a_step_that_keeps_the_bytes() -> None:
    text = git_diff(TREE, TREE, executable=("vllm/a.py",))
    (step,) = plan(TREE, text).steps
    (file,) = step.files
    assert (file.before, file.after, file.mode) == (X, X, 0o755)


@pytest.mark.parametrize(
    ("before", "after"),
    [({}, {"vllm/c.py": X}), ({"vllm/c.py": X}, {"vllm/c.py": edit(X, 5)})],
    ids=["created", "changed"],
)
def test_mode_comes_with_the_text(before: Files, after: Files) -> None:
    (step,) = plan(before, git_diff(before, after, executable=("vllm/c.py",))).steps
    assert [file.mode for file in step.files] == [0o755]


def test_rename_keeps_the_mode_that_the_patch_names() -> None:
    text = diff({"vllm/a.py": X}, {"vllm/c.py": edit(X, 5)}, "-M").replace(b"100644", b"100755")
    (step,) = plan(TREE, text).steps
    assert {file.path: file.mode for file in step.files}["vllm/c.py"] == 0o755


def test_rename_keeps_the_mode_that_the_file_has() -> None:
    text = diff({"vllm/a.py": X}, {"vllm/c.py": X}, "-M")
    (step,) = make_plan([parse(text, "p")], TREE.get, {"vllm/a.py": 0o755}.get).steps
    assert {file.path: file.mode for file in step.files}["vllm/c.py"] == 0o755


@pytest.mark.parametrize(
    ("before", "new", "after"),
    [(0o644, "755", 0o755), (0o640, "755", 0o750), (0o775, "644", 0o664)],
)
def test_change_of_mode_is_of_the_executable_bits_and_is_made_once(
    before: int, new: str, after: int
) -> None:
    old = "644" if new == "755" else "755"
    text = f"diff --git a/vllm/a.py b/vllm/a.py\nold mode 100{old}\nnew mode 100{new}\n".encode()
    (step,) = make_plan([parse(text, "p")], TREE.get, {"vllm/a.py": before}.get).steps
    assert [(file.path, file.mode) for file in step.files] == [("vllm/a.py", after)]
    again = make_plan([parse(text, "p")], TREE.get, {"vllm/a.py": after}.get)
    assert [patch.verdict for patch in again.patches] == [Verdict.APPLIED]


# -- which paths ---------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["csrc/x.cu", "tests/test_x.py", "setup.py", "vllm_extra/x.py"])
def test_path_outside_the_package_is_not_shipped(path: str) -> None:
    before = {path: X, "vllm/a.py": X}
    text = diff(before, {path: edit(X, 5), "vllm/a.py": edit(X, 5)})
    (patch,) = plan(before, text).patches
    assert patch.verdict is Verdict.NOT_SHIPPED
    (reason,) = [file.reason for file in patch.files if file.reason]
    pattern = reason.split("--exclude ")[1].strip("'")
    parsed = parse(text, "p")
    planned = make_plan([parsed], before.get, exclude=[pattern])
    assert planned.results() == {"vllm/a.py": (X, edit(X, 5))}


@pytest.mark.parametrize(
    ("pattern", "left"),
    [
        ("vllm/a.py", {"vllm/B.py", "vllm/sub/c.py"}),
        ("vllm/*", set()),
        ("*.py", set()),
        ("vllm/sub/*", {"vllm/a.py", "vllm/B.py"}),
        ("vllm/[ab].py", {"vllm/B.py", "vllm/sub/c.py"}),
        ("vllm/?.py", {"vllm/sub/c.py"}),
        ("vllm/b.py", {"vllm/a.py", "vllm/B.py", "vllm/sub/c.py"}),
        ("a.py", {"vllm/a.py", "vllm/B.py", "vllm/sub/c.py"}),
    ],
)
def test_exclude_takes_the_patterns_of_git_apply(pattern: str, left: set[str]) -> None:
    before = dict.fromkeys(["vllm/a.py", "vllm/B.py", "vllm/sub/c.py"], X)
    text = diff(before, dict.fromkeys(before, edit(X, 5)))
    planned = make_plan([parse(text, "p")], before.get, exclude=[pattern])
    assert set(planned.results()) == left
    assert planned.fits is bool(left)
    gits = git_apply(before, text, f"--exclude={pattern}")
    assert gits is not None
    assert {path for path in before if gits[path] != X} == left


@pytest.mark.parametrize(
    ("prefix", "tree"),
    [
        ("a/", {"vllm/x.py": X}),
        ("", {"vllm/x.py": X}),
        ("some/where/else/", {"vllm/x.py": X}),
        ("vllm/", {"vllm/x.py": X}),
        ("vllm/", {"vllm/vllm/x.py": X}),
    ],
)
def test_strip_level_is_found_by_what_the_tree_holds(prefix: str, tree: Files) -> None:
    text = f"--- {prefix}vllm/x.py\n+++ {prefix}vllm/x.py\n".encode()
    text += change(X, edit(X, 5)).split(b"\n", 4)[4]
    planned = plan(tree, text)
    assert planned.fits
    assert set(planned.results()) == set(tree)


def test_two_strip_levels_that_fit_are_refused() -> None:
    text = b"--- vllm/vllm/x.py\n+++ vllm/vllm/x.py\n" + change(X, edit(X, 5)).split(b"\n", 4)[4]
    with pytest.raises(PatchFormatError, match="fit the tree at strip levels 0 and 1"):
        plan({"vllm/x.py": X, "vllm/vllm/x.py": X}, text)


def test_new_file_without_git_prefix_may_be_meant_in_two_places() -> None:
    text = b"--- /dev/null\n+++ vllm/vllm/new.py\n@@ -0,0 +1 @@\n+a\n"
    with pytest.raises(PatchFormatError, match="fit the tree at strip levels 0 and 1"):
        plan({}, text)
    git = b"diff --git a/vllm/vllm/new.py b/vllm/vllm/new.py\nnew file mode 100644\n"
    git += text.replace(b"+++ ", b"+++ b/")
    assert ours({}, git) == git_apply({}, git) == {"vllm/vllm/new.py": b"a\n"}


def test_path_with_fewer_folders_than_the_strip_level_is_said() -> None:
    text = change(X, edit(X, 5)) + b"--- setup.py\n+++ setup.py\n@@ -1 +1 @@\n-a\n+b\n"
    with pytest.raises(PatchFormatError, match=r"setup\.py has fewer folders than the other paths"):
        plan(TREE, text)


def test_everything_excluded_is_no_success() -> None:
    planned = make_plan([parse(change(X, edit(X, 5)), "p")], TREE.get, exclude=["vllm/*"])
    assert not planned.fits
    assert planned.patches[0].reason == "--exclude leaves out all of its files"


def test_edited_index_line_is_noted_and_does_not_stop() -> None:
    text = change(X, edit(X, 5))
    old = text.split(b"index ")[1][:40]
    new = text.split(b"..")[1][:40]
    (patch,) = plan(TREE, text.replace(new, old[::-1])).patches
    assert patch.step is not None
    assert "the patch was edited by hand" in patch.notes[0]


def test_tree_is_read_once_a_path() -> None:
    reads: list[str] = []

    def read(path: str) -> bytes | None:
        reads.append(path)
        return TREE.get(path)

    text = change(X, edit(X, 5))
    make_plan([parse(text, "0"), parse(change(edit(X, 5), edit(X, 5, 6)), "1")], read)
    assert reads == ["vllm/a.py"]


def test_two_diffs_of_a_file_that_undo_each_other_are_an_error() -> None:
    there, back = change(X, edit(X, 5)), change(edit(X, 5), X)
    (planned,) = plan(TREE, there + back).patches
    assert planned.refused
    assert planned.reason == "it leaves every file as it is"
