"""Which patches write the same lines, by line numbers alone, against `git apply` in any order."""

from __future__ import annotations

import random

import pytest

from diffs import git_apply, git_diff
from vllm_series.checking.overlaps import Written, meetings, overlaps
from vllm_series.diffs.parse import parse

PATH = "vllm/a.py"


def text(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


LINES = [f"line {number}" for number in range(1, 31)]


def written(name: str, before: list[str], after: list[str], *, placed: bool = True) -> Written:
    diff = git_diff({PATH: text(before)}, {PATH: text(after)}, "--full-index")
    (change,) = parse(diff, name).files
    hunks = tuple((hunk, hunk.first_line) for hunk in change.hunks)
    return Written(name, PATH, hunks, placed, change.old_id, change.new_id)


def changed(lines: list[str], at: int, *new: str, removed: int = 0) -> list[str]:
    return [*lines[:at], *new, *lines[at + removed :]]


def test_changes_far_apart_do_not_meet() -> None:
    one = changed(LINES, 4, "one")
    two = changed(one, 20, "two")
    assert meetings([written("a", LINES, one), written("b", one, two)]) == ()


def test_changes_of_two_files_do_not_meet() -> None:
    one = changed(LINES, 4, "one")
    other = written("b", LINES, one)
    elsewhere = Written("b", "vllm/b.py", other.hunks, True, other.old_id, other.new_id)
    assert overlaps([written("a", LINES, one), elsewhere]) == ()


def test_a_line_changed_again_is_named_as_the_second_finds_it() -> None:
    one = changed(changed(LINES, 20, "x", removed=1), 2, "above", "above")
    two = changed(one, 22, "y", removed=1)
    (found,) = overlaps([written("a", LINES, one), written("b", one, two)])
    assert (found.first, found.second, found.lines) == ("a", "b", (23, 23))


def test_an_insertion_beside_an_insertion_is_the_same_place() -> None:
    one = changed(LINES, 10, "one")
    for at in (10, 11):
        two = changed(one, at, "two")
        (found,) = overlaps([written("a", LINES, one), written("b", one, two)])
        assert found.lines == (at + 1, at + 1)


def test_lines_in_between_keep_the_first_change_in_sight() -> None:
    one = changed(LINES, 20, "one")
    two = changed(one, 2, "two", "two")
    three = changed(two, 22, "three", removed=1)
    assert two[22] == "one"
    found = overlaps([written("a", LINES, one), written("b", one, two), written("c", two, three)])
    assert [(each.first, each.second) for each in found] == [("a", "c")]


def test_a_hunk_that_only_shows_lines_of_another_depends_on_it_without_an_overlap() -> None:
    one = changed(LINES, 10, "one")
    two = changed(one, 13, "two")
    steps = [written("a", LINES, one), written("b", one, two)]
    assert overlaps(steps) == ()
    (found,) = meetings(steps)
    assert (found.first, found.second, found.number, found.writes) == ("a", "b", 1, False)


def test_diffs_made_beside_each_other_are_held_together_on_their_common_file() -> None:
    one = changed(LINES, 3, *(["above"] * 9))
    far = changed(LINES, 20, "far")
    same = changed(LINES, 3, "same")
    first = written("a", LINES, one, placed=False)
    assert overlaps([first, written("b", LINES, far, placed=False)]) == ()
    (found,) = overlaps([first, written("b", LINES, same, placed=False)])
    assert (found.first, found.second) == ("a", "b")


@pytest.mark.parametrize("seed", range(30))
def test_what_does_not_meet_goes_in_without_the_first(seed: int) -> None:
    """Two random changes: `git apply` takes the second alone exactly where they do not meet."""
    chance = random.Random(seed)
    one = changed(LINES, chance.randint(4, 24), "one", removed=chance.randint(0, 1))
    at = chance.randint(4, 24)
    two = changed(one, at, "two", removed=chance.randint(0, 1))
    found = meetings([written("a", LINES, one), written("b", one, two)])
    alone = git_apply(
        {PATH: text(LINES)}, git_diff({PATH: text(one)}, {PATH: text(two)}), "--unidiff-zero"
    )
    if found and not all(meeting.writes for meeting in found):
        assert alone is None
    if not found:
        assert alone is not None
