"""The alignment of two texts: what it promises of any texts, and what git says of real ones."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import Stock
from vllm_series.align import GONE, Alignment, align

LINES = st.lists(st.sampled_from([b"a\n", b"b\n", b"c\n", b"\n", b"    d\n", b"    )\n", b"e"]))


def kept(before: list[bytes], after: list[bytes]) -> list[tuple[int, int]]:
    return [(old, new) for old, new in enumerate(align(before, after).kept) if new >= 0]


@given(LINES, LINES)
@settings(max_examples=500)
def test_only_equal_lines_are_kept_and_in_order(before: list[bytes], after: list[bytes]) -> None:
    pairs = kept(before, after)
    assert all(before[old] == after[new] for old, new in pairs)
    assert [new for _, new in pairs] == sorted({new for _, new in pairs})


@given(LINES)
def test_a_text_is_aligned_with_itself_line_by_line(lines: list[bytes]) -> None:
    assert align(lines, lines).kept == list(range(len(lines)))


@given(LINES, st.integers(0, 30))
def test_lines_of_their_own_are_all_kept(noise: list[bytes], count: int) -> None:
    unique = [b"unique %d\n" % number for number in range(count)]
    stays = {new for _, new in kept([*noise, *unique, *noise], unique)}
    assert stays == set(range(count))


@given(LINES, LINES)
def test_back_is_the_way_back(before: list[bytes], after: list[bytes]) -> None:
    aligned = align(before, after)
    back = aligned.back()
    assert len(back) == len(after)
    assert [(back[new], new) for new in range(len(after)) if back[new] >= 0] == sorted(
        kept(before, after), key=lambda pair: pair[1]
    )


def test_the_edges_of_the_files_are_kept() -> None:
    aligned = align([b"a\n"], [b"b\n", b"c\n"])
    assert (aligned[-1], aligned[0], aligned[1]) == (-1, GONE, 2)


def test_a_run_stands_together_or_not_at_all() -> None:
    aligned = Alignment([0, 1, 3, -1, 4], 5)
    assert aligned.run(0, 2) == 0
    assert aligned.run(1, 2) is None
    assert aligned.run(2, 2) is None
    assert aligned.run(4, 1) == 4
    assert aligned.run(4, 2) is None
    assert aligned.run(2, 0) is None


def test_a_new_function_takes_the_blank_lines_below_it() -> None:
    before = b"def a():\n    return 1\n\n\ndef c():\n    return 3\n".splitlines(keepends=True)
    new = b"def b():\n    return 2\n\n\n".splitlines(keepends=True)
    assert align(before, before[:4] + new + before[4:]).kept == [0, 1, 2, 3, 8, 9]


def test_what_is_new_on_one_side_goes_beside_what_is_gone_from_the_other() -> None:
    before = [b"x\n", b"old\n", b"\n", b"y\n"]
    after = [b"x\n", b"new\n", b"\n", b"more\n", b"\n", b"y\n"]
    assert align(before, after).kept == [0, -1, 4, 5]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param([b"pass\n"] * 20_000, [b"pass\n"] * 19_000, id="one line"),
        pytest.param([b"a\n", b"b\n"] * 10_000, [b"b\n", b"a\n"] * 10_000, id="two lines"),
        pytest.param(
            [b"%d\n" % (number % 200) for number in range(20_000)],
            [b"%d\n" % (number * 7 % 200) for number in range(20_000)],
            id="shuffled",
        ),
        pytest.param(
            [b"%d\n" % number for number in range(5_000)],
            [b"%d\n" % number for number in range(5_000, 0, -1)],
            id="reversed",
        ),
    ],
)
def test_the_work_on_lines_that_repeat_or_cross_is_bounded(
    before: list[bytes], after: list[bytes]
) -> None:
    """How much of it is aligned does not matter; it ends, well within the suite's patience."""
    pairs = kept(before, after)
    assert all(before[old] == after[new] for old, new in pairs)


@pytest.mark.parametrize(("older", "newer"), [("0.32.0", "0.33.0"), ("0.12.0", "0.33.0")])
def test_on_real_files_it_says_what_git_says(stock: Stock, older: str, newer: str) -> None:
    lines = differing = 0
    for path, hunks in histogram(stock(older), stock(newer), "vllm/v1").items():
        before = (stock(older) / path).read_bytes().splitlines(keepends=True)
        after = (stock(newer) / path).read_bytes().splitlines(keepends=True)
        ours = align(before, after).kept
        theirs = whole(hunks, len(before))
        lines += len(before)
        differing += sum(one != other for one, other in zip(ours, theirs, strict=True))
    print(f"{differing} of {lines} lines differ")
    assert lines > 10_000
    assert differing <= lines / 10_000


Hunks = list[tuple[int, int, int, int]]


def histogram(older: Path, newer: Path, part: str) -> dict[str, Hunks]:
    """What `git diff --histogram` says of every Python file that both releases have."""
    command = ["git", "diff", "--no-index", "--histogram", "--no-renames", "-U0"]
    found: dict[str, Hunks] = {}
    for place in sorted((older / part).rglob("*.py")):
        path = place.relative_to(older).as_posix()
        if not (newer / path).is_file() or b"\r" in place.read_bytes():
            continue
        done = subprocess.run(
            [*command, str(place), str(newer / path)], capture_output=True, check=False
        )
        heads = re.findall(rb"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@", done.stdout, re.M)
        if heads:
            found[path] = [
                (int(old), int(many or 1), int(new), int(more or 1))
                for old, many, new, more in heads
            ]
    return found


def whole(hunks: Hunks, size: int) -> list[int]:
    """From hunks without context to the line that each line became."""
    result: list[int] = []
    shift = 0
    for old, many, _, more in hunks:
        start = old - 1 if many else old
        result += [at + shift for at in range(len(result), start)]
        result += [-1] * many
        shift += more - many
    return result + [at + shift for at in range(len(result), size)]
