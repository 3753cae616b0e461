"""The heading of a hunk of ours: the scope, and which copy of the hunk's text in it is meant."""

from __future__ import annotations

from dataclasses import replace

import pytest

from diffs import git_apply, git_diff, gnu_patch
from vllm_series.diffs.parse import parse
from vllm_series.heading import Heading, heading_of, read_heading
from vllm_series.patch import FileChange
from vllm_series.place import place
from vllm_series.placement import FilePlacement, Placement
from vllm_series.verdicts import Verdict

PATH = "vllm/x.py"
BLOCK = b"""\
        if self.a:
            x = 1
            y = 2
            z = 3
            return
"""
END = b"        again = 1\n        last = 1\n        over = 1\n"
BASE = b"class C:\n    def run(self):\n" + BLOCK * 3 + b"        done = 1\n"
ADDED = b"            y2 = 2\n"


def edited(text: bytes, number: int) -> bytes:
    """The text with the line added to its block of that number, from 1."""
    parts = text.split(b"            y = 2\n")
    parts[number] = ADDED + parts[number]
    return b"            y = 2\n".join(parts)


def patch(number: int) -> FileChange:
    after = edited(BASE, number)
    (change,) = parse(git_diff({PATH: BASE}, {PATH: after}, "-U2"), "p").files
    (hunk,) = change.hunks
    heading = heading_of(hunk, BASE, after, PATH)
    return replace(change, hunks=(replace(hunk, heading=heading),), old_id=None, new_id=None)


def one(number: int, text: bytes) -> Placement:
    (placement,) = place(patch(number), text, PATH, binding=True).placements
    return placement


@pytest.mark.parametrize(
    ("text", "heading"),
    [
        (b"C.run", Heading("C.run")),
        (b"<module>", Heading("<module>")),
        (b"C.run (2 of 3)", Heading("C.run", 2, 3, alone=False)),
        (b"C.f#2 (1 of 2)", Heading("C.f#2", 1, 2, alone=False)),
        (b"C.run (1 of 1)", Heading("C.run", alone=False)),
        (b"", None),
    ],
)
def test_heading_is_read_and_written_back(text: bytes, heading: Heading | None) -> None:
    assert read_heading(text) == heading
    assert heading is None or str(heading).encode() == text


@pytest.mark.parametrize(
    "text", [b"C.run (3 of 2)", b"C.run (0 of 2)", b"C.run (2 of 1)", b"f (x)"]
)
def test_count_that_makes_no_sense_is_no_count(text: bytes) -> None:
    assert read_heading(text) == Heading(text.decode())


@pytest.mark.parametrize("number", [1, 2, 3])
def test_copy_is_named_and_found_again_at_other_lines(number: int) -> None:
    assert patch(number).hunks[0].heading == b"C.run (%d of 3)" % number
    text = b"import os\n\n\n" + BASE
    placed = place(patch(number), text, PATH, binding=True)
    assert placed.result == edited(text, number)
    assert placed.placements[0].scope == "C.run"


def test_text_that_stands_once_in_its_file_has_no_count() -> None:
    after = BASE.replace(b"done = 1", b"done = 2")
    (change,) = parse(git_diff({PATH: BASE}, {PATH: after}), "p").files
    assert heading_of(change.hunks[0], BASE, after, PATH) == b"C.run"


def test_text_that_stands_once_in_its_scope_and_elsewhere_says_so() -> None:
    twice = TWICE + b"\nEND = 1\n"
    after = twice.replace(b"done = 1", b"done = 2", 1)
    (change,) = parse(git_diff({PATH: twice}, {PATH: after}, "-U1"), "p").files
    assert heading_of(change.hunks[0], twice, after, PATH) == b"C.run (1 of 1)"


# A scope that has another name in the target.

TWICE = BASE + b"\n\n" + BASE.replace(b"class C", b"class D")


def in_c(base: bytes, target: bytes, context: int = 3) -> FilePlacement:
    """Where the change of the last line of `C.run`, made on `base`, goes in `target`."""
    after = base.replace(b"done = 1", b"done = 2", 1)
    (change,) = parse(git_diff({PATH: base}, {PATH: after}, f"-U{context}"), "p").files
    (hunk,) = change.hunks
    hunk = replace(hunk, heading=heading_of(hunk, base, after, PATH))
    return place(replace(change, hunks=(hunk,), old_id=None), target, PATH, binding=True)


@pytest.mark.parametrize(
    ("old", "new", "scope"),
    [
        pytest.param(b"class C", b"class Other", "Other.run", id="class"),
        pytest.param(b"def run", b"def _run", "C._run", id="method"),
    ],
)
def test_text_that_stood_once_in_the_base_follows_its_scope_to_a_new_name(
    old: bytes, new: bytes, scope: str
) -> None:
    base = BASE + END
    target = base.replace(old, new)
    placed = in_c(base, b"import os\n" + target)
    assert placed.verdict is Verdict.OFFSET
    assert placed.placements[0].scope == scope
    assert placed.result == b"import os\n" + target.replace(b"done = 1", b"done = 2")


def test_text_that_had_a_twin_in_the_base_is_not_followed_to_another_scope() -> None:
    # C is gone; what is left is the twin, and not another name of C.
    base = TWICE.replace(b"\n\nclass D", END + b"\n\nclass D") + END
    placed = in_c(base, base[base.index(b"class D") :])
    assert placed.verdict is Verdict.MOVED
    assert placed.result is None


RENAMED = (BASE + END).replace(b"class C", b"class B")


@pytest.mark.parametrize(
    "target",
    [
        pytest.param(RENAMED.replace(b"def run", b"def go"), id="both names differ"),
        pytest.param(
            RENAMED + b"\n\nclass C:\n    def run(self):\n        return 0\n",
            id="the scope is there without the text",
        ),
        pytest.param(
            RENAMED + b"\n\nclass D:\n    def run(self):\n" + BLOCK + b"        done = 1\n" + END,
            id="the text stands twice",
        ),
        pytest.param(
            RENAMED + b"\n\nclass D:\n    def run(self):\n" + BLOCK + b"        done = 2\n" + END,
            id="the result stands too",
        ),
    ],
)
def test_scope_that_is_no_other_name_is_not_followed(target: bytes) -> None:
    assert in_c(BASE + END, RENAMED).result is not None
    assert in_c(BASE + END, target).result is None


def test_few_lines_are_not_followed_to_another_scope() -> None:
    assert in_c(BASE + END, RENAMED, context=1).verdict is Verdict.MOVED


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(BASE.replace(BLOCK, b"", 1), id="one less"),
        pytest.param(BASE.replace(BLOCK, BLOCK * 2, 1), id="one more"),
        pytest.param(BASE.replace(b"x = 1", b"x = 11", 1), id="one drifted"),
        pytest.param(BASE.replace(b"x = 1", b"x = 11", 2), id="two drifted"),
    ],
)
def test_other_number_of_copies_than_in_the_base_is_refused(text: bytes) -> None:
    placement = one(2, text)
    assert placement.verdict is Verdict.AMBIGUOUS
    assert "its text stood 3 times in C.run, and it is for number 2" in placement.reason


def test_no_copy_left_is_drifted() -> None:
    placement = one(2, BASE.replace(b"x = 1", b"x = 11"))
    assert placement.verdict is Verdict.DRIFTED
    assert "here it stands nowhere" in placement.reason


def test_result_at_the_copy_that_is_meant_is_applied_and_at_another_refused() -> None:
    assert one(2, b"import os\n" + edited(BASE, 2)).verdict is Verdict.APPLIED
    assert one(2, b"import os\n" + edited(BASE, 1)).verdict is Verdict.AMBIGUOUS


def test_twin_in_another_scope_is_not_counted() -> None:
    text = BASE.replace(b"class C", b"class B") + b"\n\n" + BASE
    assert one(3, text).line == one(3, BASE).line + len(BASE.splitlines()) + 2  # type: ignore[operator]


def test_file_that_is_not_python_has_no_heading() -> None:
    (change,) = parse(git_diff({"vllm/x.txt": b"a\n"}, {"vllm/x.txt": b"b\n"}), "p").files
    assert heading_of(change.hunks[0], b"a\n", b"b\n", "vllm/x.txt") == b""


def test_git_and_patch_take_a_heading_with_a_count() -> None:
    after = edited(BASE, 2)
    diff = git_diff({PATH: BASE}, {PATH: after})
    head, mark, rest = diff.partition(b" @@")
    heading, newline, body = rest.partition(b"\n")
    counted = head + mark + b" C.run (2 of 3)" + newline + body
    assert heading != b" C.run (2 of 3)"
    assert git_apply({PATH: BASE}, counted) == {PATH: after}
    assert gnu_patch({PATH: BASE}, counted) == {PATH: after}


@pytest.mark.parametrize(("above", "verdict"), [(290, Verdict.OFFSET), (310, Verdict.MOVED)])
def test_far_away_another_name_is_not_followed(above: int, verdict: Verdict) -> None:
    assert in_c(BASE + END, b"import os\n" * above + RENAMED).verdict is verdict
