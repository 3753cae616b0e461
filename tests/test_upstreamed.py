"""Which side of a hunk a stock release has, and since when."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from diffs import git_diff
from vllm_series.checking.upstreamed import Merged, Standing, merged, standing, whole_standing
from vllm_series.diffs.parse import parse
from vllm_series.patch import Hunk

PATH = "vllm/a.py"
OLD = """\
class A:
    def f(self):
        one = 1
        two = 2
        return one

    def g(self):
        three = 3
        four = 4
        return three
"""
NEW = OLD.replace("        two = 2\n", "        two = 2\n        more = 3\n")


def hunk_of(old: str, new: str) -> Hunk:
    (change,) = parse(git_diff({PATH: old.encode()}, {PATH: new.encode()}), "p").files
    (hunk,) = change.hunks
    return hunk


def stands(text: str, scope: str | None = "A.f", *, binding: bool = True) -> Standing:
    return standing(hunk_of(OLD, NEW), text.encode(), PATH, lambda: scope, binding=binding)


def test_each_side_is_told_by_its_text_in_its_scope() -> None:
    assert stands(OLD) is Standing.BEFORE
    assert stands(NEW) is Standing.RESULT
    assert stands(NEW.replace("one = 1", "one = 11")) is Standing.NEITHER
    assert stands("# above\n" + NEW) is Standing.RESULT


def test_the_result_in_another_scope_is_not_upstream() -> None:
    assert stands(NEW.replace("def f", "def h")) is Standing.NEITHER
    assert stands(NEW, "A.g") is Standing.NEITHER


def test_the_result_beside_the_old_text_is_not_upstream() -> None:
    both = NEW + "\n" + OLD.replace("class A", "class B")
    assert stands(both) is Standing.RESULT
    assert stands(both, None, binding=False) is Standing.BEFORE


def test_a_heading_of_git_must_not_name_another_function() -> None:
    hunk = hunk_of("x = 1\n" * 9 + OLD, "x = 1\n" * 9 + OLD.replace("four = 4", "four = 5"))
    text = ("x = 1\n" * 9 + OLD.replace("four = 4", "four = 5")).encode()
    assert hunk.heading
    assert standing(hunk, text, PATH, lambda: None, binding=False) is Standing.RESULT
    other = text.replace(b"class A", b"class B").replace(b"def f", b"def h")
    assert standing(hunk, other, PATH, lambda: None, binding=False) is Standing.NEITHER


def test_a_single_line_outside_of_functions_is_no_proof() -> None:
    hunk = hunk_of("a = 1\nb = 2\n", "b = 2\n")
    for scope in (dict[str, str]().get, {"a": "<module>"}.get):
        found = standing(hunk, b"b = 2\n", PATH, partial(scope, "a"), binding=True)
        assert found is Standing.NEITHER


def test_one_of_several_copies_must_have_become_the_result() -> None:
    twice = "def f():\n    a = 1\n    b = 2\n    c = 3\n    a = 1\n    b = 2\n"
    twice += "    c = 3\n    return a\n"
    new = twice.replace(
        "    b = 2\n    c = 3\n    return", "    b = 2\n    x = 9\n    c = 3\n    return"
    )
    diff = git_diff({PATH: twice.encode()}, {PATH: new.encode()}, "-U1")
    (change,) = parse(diff, "p").files
    hunk = replace(change.hunks[0], heading=b"f (2 of 2)")
    other = twice.replace("    c = 3\n    a", "    c = 4\n    a")
    both = new.replace("    b = 2\n    c = 3\n    a", "    b = 2\n    x = 9\n    c = 3\n    a")
    expected = {
        twice: Standing.BEFORE,
        new: Standing.RESULT,
        other: Standing.BEFORE,
        both: Standing.RESULT,
    }
    for text, side in expected.items():
        found = standing(hunk, text.encode(), PATH, lambda: "f", binding=True)
        assert found is side, text


def test_the_recorded_result_needs_no_other_proof() -> None:
    diff = git_diff({PATH: OLD.encode()}, {PATH: NEW.encode()}, "--full-index")
    (change,) = parse(diff, "p").files
    found = standing(
        change.hunks[0],
        NEW.encode(),
        PATH,
        lambda: "B.nowhere",
        binding=True,
        result_id=change.new_id,
    )
    assert found is Standing.RESULT


@pytest.mark.parametrize(
    ("sides", "answer"),
    [
        ("b b", None),
        ("b r", Merged("2", hidden=False)),
        ("r r", Merged("1", hidden=False)),
        ("r n n", Merged("1", hidden=True)),
        ("n n", None),
        ("r n b", None),
        ("r b n", None),
        ("r b r n", Merged("3", hidden=True)),
        ("r n r", Merged("1", hidden=False)),
        ("", None),
    ],
)
def test_what_was_upstream_stays_so_until_the_old_text_is_back(
    sides: str, answer: Merged | None
) -> None:
    words = {"b": Standing.BEFORE, "r": Standing.RESULT, "n": Standing.NEITHER}
    assert merged((str(n), words[side]) for n, side in enumerate(sides.split(), 1)) == answer


def test_whole_files_stand_or_do_not() -> None:
    diffs = {
        "create": git_diff({}, {PATH: b"x = 1\n"}),
        "delete": git_diff({PATH: b"x = 1\n"}, {}),
        "rename": git_diff({PATH: OLD.encode()}, {"vllm/b.py": OLD.encode()}, "-M"),
    }
    sides = {"create": (None, PATH), "delete": (PATH, None), "rename": (PATH, "vllm/b.py")}
    expected = {
        "create": [Standing.BEFORE, Standing.RESULT, Standing.NEITHER, Standing.BEFORE],
        "delete": [Standing.RESULT, Standing.BEFORE, Standing.BEFORE, Standing.RESULT],
        "rename": [Standing.NEITHER, Standing.BEFORE, Standing.BEFORE, Standing.RESULT],
    }
    trees: tuple[dict[str, bytes], ...] = (
        {},
        {PATH: b"x = 1\n"},
        {PATH: b"other\n"},
        {"vllm/b.py": b"x\n"},
    )
    for kind, diff in diffs.items():
        (change,) = parse(diff, "p").files
        assert change.kind.value == kind
        found = [whole_standing(change, *sides[kind], tree.get) for tree in trees]
        assert found == expected[kind]
