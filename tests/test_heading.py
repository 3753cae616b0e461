"""The heading of a hunk of ours: the scope, and which copy of the hunk's text in it is meant."""

from __future__ import annotations

from dataclasses import replace

import pytest

from diffs import git_apply, git_diff, gnu_patch
from vllm_series.heading import Heading, heading_of, read_heading
from vllm_series.parse import parse
from vllm_series.patch import FileChange
from vllm_series.place import place
from vllm_series.placement import Placement
from vllm_series.verdicts import Verdict

PATH = "vllm/x.py"
BLOCK = b"""\
        if self.a:
            x = 1
            y = 2
            z = 3
            return
"""
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
        (b"C.run (2 of 3)", Heading("C.run", 2, 3)),
        (b"C.f#2 (1 of 2)", Heading("C.f#2", 1, 2)),
        (b"", None),
    ],
)
def test_heading_is_read_and_written_back(text: bytes, heading: Heading | None) -> None:
    assert read_heading(text) == heading
    assert heading is None or str(heading).encode() == text


@pytest.mark.parametrize(
    "text", [b"C.run (3 of 2)", b"C.run (0 of 2)", b"C.run (1 of 1)", b"f (x)"]
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


def test_text_that_stands_once_in_its_scope_has_no_count() -> None:
    after = BASE.replace(b"done = 1", b"done = 2")
    (change,) = parse(git_diff({PATH: BASE}, {PATH: after}), "p").files
    assert heading_of(change.hunks[0], BASE, after, PATH) == b"C.run"
    twice = BASE + BASE.replace(b"class C", b"class D")
    after = twice.replace(b"done = 1", b"done = 2", 1)
    (change,) = parse(git_diff({PATH: twice}, {PATH: after}), "p").files
    assert heading_of(change.hunks[0], twice, after, PATH) == b"C.run"


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
