"""Every verdict and every rule of placement, on texts small enough to check by eye.

Real releases stand in test_place_real.py.
"""

from __future__ import annotations

import time

import pytest

from diffs import git_diff
from vllm_series.diffs.parse import parse
from vllm_series.patch import FileChange, Hunk
from vllm_series.place import place
from vllm_series.placement import FilePlacement, Placement, blob_id, is_blob
from vllm_series.verdicts import Verdict

PATH = "vllm/x.py"
BASE = b"""\
import os


class First:
    def run(self, value):
        start = value
        step = 1
        total = start + step
        return total

    def stop(self):
        first = os.getpid()
        second = first + 1
        return second


class Second:
    def run(self, value):
        begin = value
        width = 2
        area = begin * width
        return area
"""
CHANGED = BASE.replace(b"        step = 1\n", b"        step = 10\n")


def change_of(before: bytes, after: bytes, *options: str, path: str = PATH) -> FileChange:
    """The change that git's diff holds, without blob ids, so that only the text can place it."""
    diff = git_diff({path: before}, {path: after}, *options)
    kept = [line for line in diff.split(b"\n") if not line.startswith(b"index ")]
    (change,) = parse(b"\n".join(kept), "p").files
    return change


def ours(before: bytes, after: bytes, *headings: str, context: int = 3) -> FileChange:
    """The same with headings of this tool, one for each hunk."""
    from dataclasses import replace

    change = change_of(before, after, f"-U{context}")
    assert len(change.hunks) == len(headings)
    hunks = (
        replace(hunk, heading=heading.encode())
        for hunk, heading in zip(change.hunks, headings, strict=True)
    )
    return replace(change, hunks=tuple(hunks))


def put(
    change: FileChange, text: bytes, path: str = PATH, *, binding: bool = False
) -> FilePlacement:
    return place(change, text, path, binding=binding)


def one(change: FileChange, text: bytes, path: str = PATH, *, binding: bool = False) -> Placement:
    (placement,) = put(change, text, path, binding=binding).placements
    return placement


def shifted(text: bytes, lines: int = 3) -> bytes:
    return b"# above\n" * lines + text


# -- by blob id ----------------------------------------------------------------------------------


def test_recorded_pre_image_takes_every_hunk_at_its_line() -> None:
    diff = git_diff({PATH: BASE}, {PATH: CHANGED}, "--full-index")
    placed = put(parse(diff, "p").files[0], BASE)
    assert placed.pristine
    assert placed.verdict is Verdict.EXACT
    assert placed.result == CHANGED


def test_recorded_pre_image_places_even_what_stands_twice_and_has_no_context() -> None:
    before = b"pass\n" * 9
    diff = git_diff({PATH: before}, {PATH: b"pass\n" * 4 + b"new\n" + b"pass\n" * 5}, "-U0")
    placed = put(parse(diff, "p").files[0], before)
    assert placed.result == b"pass\n" * 4 + b"new\n" + b"pass\n" * 5


def test_recorded_post_image_is_applied() -> None:
    diff = git_diff({PATH: BASE}, {PATH: CHANGED}, "--full-index")
    placed = put(parse(diff, "p").files[0], CHANGED)
    assert placed.verdict is Verdict.APPLIED
    assert placed.result == CHANGED


def test_blob_ids_under_seven_digits_are_not_believed() -> None:
    full = blob_id(BASE)
    assert is_blob(BASE, full)
    assert is_blob(BASE, full[:7])
    assert not is_blob(BASE, full[:6])
    assert not is_blob(BASE, "0" * 40)
    assert not is_blob(BASE, None)
    assert not is_blob(CHANGED, full)


def test_blob_id_is_that_of_git() -> None:
    assert blob_id(b"") == "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"


def lying(old: bytes, new: bytes, before: bytes, after: bytes) -> FileChange:
    """A diff from `before` to `after` whose index line speaks of `old` and `new`."""
    diff = git_diff({PATH: before}, {PATH: after}, "--full-index")
    diff = diff.replace(blob_id(before).encode(), blob_id(old).encode())
    (change,) = parse(diff.replace(blob_id(after).encode(), blob_id(new).encode()), "p").files
    return change


def test_index_line_that_lies_of_the_pre_image_is_found_out() -> None:
    other = shifted(BASE)
    placed = put(lying(other, CHANGED, BASE, CHANGED), other)
    assert placed.verdict is Verdict.DRIFTED
    assert placed.result is None
    assert "the patch was edited by hand" in placed.placements[0].reason


def test_index_line_that_lies_of_the_post_image_is_not_applied() -> None:
    placed = put(lying(BASE, BASE, BASE, CHANGED), BASE)
    assert placed.result == CHANGED
    other = shifted(BASE)
    placed = put(lying(BASE, other, BASE, CHANGED), other)
    assert placed.verdict is Verdict.OFFSET
    assert placed.result == shifted(CHANGED)


@pytest.mark.parametrize(
    "hunk",
    [
        pytest.param(Hunk(99, 0, 100, 1, b"", b"+", (b"z\n",), 1), id="past the end"),
        pytest.param(Hunk(2, 0, 3, 1, b"", b"+", (b"z\n",), 1), id="glued to the line above"),
        pytest.param(Hunk(1, 1, 1, 1, b"", b"-+", (b"a\n", b"z"), 1), id="glued to the one below"),
    ],
)
def test_pristine_file_takes_no_hunk_that_would_glue_lines(hunk: Hunk) -> None:
    from vllm_series.patch import Kind

    text = b"a\nb"
    change = FileChange(Kind.MODIFY, "a/" + PATH, "b/" + PATH, (hunk,), old_id=blob_id(text))
    assert put(change, text).result is None


# -- by text -------------------------------------------------------------------------------------


def test_text_at_its_line_is_exact_and_elsewhere_offset() -> None:
    change = change_of(BASE, CHANGED)
    exact, offset = one(change, BASE), one(change, shifted(BASE))
    assert (exact.verdict, exact.offset) == (Verdict.EXACT, 0)
    assert (offset.verdict, offset.offset) == (Verdict.OFFSET, 3)
    assert offset.line == change.hunks[0].first_line + 3
    assert put(change, shifted(BASE)).result == shifted(CHANGED)


def test_text_that_stands_twice_is_ambiguous() -> None:
    placed = put(change_of(BASE, CHANGED), BASE + BASE)
    assert placed.verdict is Verdict.AMBIGUOUS
    assert placed.result is None
    assert "stands 2 times" in placed.placements[0].reason


def test_changed_context_is_drifted_and_shows_the_nearest_place() -> None:
    text = BASE.replace(b"start = value", b"start = int(value)")
    placement = one(change_of(BASE, CHANGED), text)
    assert placement.verdict is Verdict.DRIFTED
    assert placement.line is None
    assert "-        start = value\n+        start = int(value)" in placement.candidate
    assert "the hunk expects" in placement.candidate


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (BASE.replace(b"\n", b"\r\n"), "line endings"),
        (BASE.replace(b"        step", b"\tstep"), "white space"),
    ],
)
def test_difference_in_line_endings_or_white_space_alone_is_said(text: bytes, word: str) -> None:
    placement = one(change_of(BASE, CHANGED), text)
    assert placement.verdict is Verdict.DRIFTED
    assert f"the only difference is in {word}" in placement.reason


def test_post_image_that_stands_is_applied_also_by_text() -> None:
    placed = put(change_of(BASE, CHANGED), shifted(CHANGED))
    assert placed.verdict is Verdict.APPLIED
    assert placed.result == shifted(CHANGED)


def test_post_image_that_stands_twice_is_ambiguous() -> None:
    placement = one(change_of(BASE, CHANGED), CHANGED + CHANGED)
    assert placement.verdict is Verdict.AMBIGUOUS
    assert "stands already 2 times" in placement.reason


def test_old_and_new_text_in_one_place_are_ambiguous() -> None:
    before = b"start\nalpha\nbeta\nend\n"
    after = b"start\nalpha\nalpha\nbeta\nend\n"
    change = change_of(before, after, "-U1")
    # Applied once, the old text (alpha, beta) stands still: a second time must not double it.
    placement = one(change, after)
    assert placement.verdict is Verdict.AMBIGUOUS
    assert "both its old text (line 3) and its new text (line 2) stand" in placement.reason


def test_applied_to_one_of_two_like_places_it_does_not_go_to_the_other() -> None:
    block = b"one()\ntwo()\nthree()\n"
    before = block + block + b"end()\n"
    after = before.replace(b"two", b"2", 1)
    change = change_of(before, after, "-U1")
    placement = one(change, after)
    assert placement.verdict is Verdict.AMBIGUOUS
    assert "both its old text (line 4) and its new text (line 1) stand" in placement.reason


def test_file_of_which_a_part_is_applied_is_neither() -> None:
    after = CHANGED.replace(b"width = 2", b"width = 20")
    placed = put(change_of(BASE, after), CHANGED)
    assert [p.verdict for p in placed.placements] == [Verdict.APPLIED, Verdict.EXACT]
    assert placed.verdict is Verdict.AMBIGUOUS
    assert placed.result is None
    assert "1 of its 2 hunks stand in the file already" in placed.reason


def test_hunk_without_context_needs_the_recorded_file() -> None:
    placement = one(change_of(BASE, CHANGED, "-U0"), BASE)
    assert placement.verdict is Verdict.DRIFTED
    assert "no context lines" in placement.reason


def test_one_line_of_context_is_no_proof() -> None:
    before, after = b"alpha\nbeta\n", b"alpha\nbeta\ngamma\n"
    placement = one(change_of(before, after, "-U1"), b"other\nbeta\n")
    assert placement.verdict is Verdict.AMBIGUOUS
    assert "a single line is no proof" in placement.reason


@pytest.mark.parametrize("new", [b"    int,\n" + b"    Tensor,\n" * 2, b"    int,\n    Tensor,\n"])
@pytest.mark.parametrize(("more", "verdict"), [(0, Verdict.OFFSET), (1, Verdict.AMBIGUOUS)])
def test_place_in_a_run_of_equal_lines_is_not_counted_from_one_end_of_it(
    new: bytes, more: int, verdict: Verdict
) -> None:
    before = b"def f() -> tuple[\n" + b"    Tensor,\n" * 5 + b"]:\n    return g()\n"
    last = b"    Tensor,\n" * 2 + b"]:"
    change = change_of(before, before.replace(last, new + b"]:"))
    grown = before.replace(b"    Tensor,\n", b"    Tensor,\n" * (1 + more), 1)
    assert one(change, shifted(grown)).verdict is verdict


def test_hunks_whose_order_has_changed_are_refused() -> None:
    after = CHANGED.replace(b"width = 2", b"width = 20")
    head, _, second = BASE.partition(b"class Second")
    start, _, first = head.partition(b"class First")
    swapped = start + b"class Second" + second + b"\n\nclass First" + first
    placed = put(change_of(BASE, after, "-U2"), swapped)
    assert placed.verdict is Verdict.DRIFTED
    assert "the order of the two has changed" in placed.placements[1].reason


def test_overlapping_places_are_refused() -> None:
    before = b"".join(b"line %d\n" % n for n in range(20))
    after = before.replace(b"line 5\n", b"x\n").replace(b"line 15\n", b"y\n")
    closer = b"".join(b"line %d\n" % n for n in [*range(9), *range(12, 20)])
    placed = put(change_of(before, after, "-U4"), closer)
    assert placed.result is None


# -- both ends of the file -----------------------------------------------------------------------


def test_hunk_that_ends_without_context_belongs_to_the_end_of_the_file() -> None:
    change = change_of(BASE, BASE + b"# end\n")
    assert put(change, shifted(BASE)).result == shifted(BASE) + b"# end\n"
    longer = BASE + b"more = 1\n"
    placement = one(change, longer)
    assert placement.verdict is Verdict.DRIFTED


def test_hunk_that_starts_without_context_belongs_to_the_beginning() -> None:
    change = change_of(LONG, b"# start\n" + LONG)
    assert put(change, LONG + b"# below\n").result == b"# start\n" + LONG + b"# below\n"
    assert one(change, shifted(LONG)).verdict is Verdict.DRIFTED


def test_missing_newline_at_the_end_is_a_part_of_the_text() -> None:
    change = change_of(b"top\nmid\nalpha\nbeta", b"top\nmid\nalpha\ngamma", "-U2")
    assert put(change, b"new\ntop\nmid\nalpha\nbeta").result == b"new\ntop\nmid\nalpha\ngamma"
    assert put(change, b"top\nmid\nalpha\nbeta\n").result is None


def test_text_is_put_into_an_empty_file_and_only_there() -> None:
    change = change_of(b"", b"alpha\nbeta\n")
    assert put(change, b"").result == b"alpha\nbeta\n"
    assert put(change, b"other\n").result is None


# -- headings of this tool -----------------------------------------------------------------------


def test_binding_heading_tells_twins_in_one_file_apart() -> None:
    twins = (
        BASE[: BASE.index(b"class Second")]
        + b"class Twin"
        + BASE[BASE.index(b"class First") + 11 : BASE.index(b"    def stop")].rstrip()
        + b"\n"
    )
    assert twins.count(b"        step = 1\n") == 2
    head, _, tail = twins.rpartition(b"step = 1\n")
    for scope, result in (
        ("Twin.run", head + b"step = 9\n" + tail),
        ("First.run", twins.replace(b"step = 1\n", b"step = 9\n", 1)),
    ):
        change = ours(BASE, BASE.replace(b"step = 1\n", b"step = 9\n"), scope, context=1)
        placed = put(change, twins, binding=True)
        assert placed.result == result
        assert placed.placements[0].scope == scope
        assert not put(change, twins, binding=False).result


def test_text_in_another_scope_is_moved() -> None:
    text = BASE.replace(
        b"    def run(self, value):\n        start", b"    def go(self, value):\n        start"
    )
    change = ours(BASE, CHANGED, "First.run", context=1)
    placement = one(change, text.replace(b"    def stop(self)", b"    def run(self)"), binding=True)
    assert placement.verdict is Verdict.MOVED
    assert "in First.go" in placement.reason
    assert "not in First.run" in placement.reason
    assert placement.candidate == ""


def test_scope_that_is_gone_is_said() -> None:
    text = BASE.replace(b"class First", b"class Renamed").replace(b"step = 1", b"step = 7")
    placement = one(ours(BASE, CHANGED, "First.run"), text, binding=True)
    assert placement.verdict is Verdict.DRIFTED
    assert placement.reason == "there is no First.run in this file"


def test_drifted_scope_is_named_with_its_lines() -> None:
    text = BASE.replace(b"step = 1", b"step = 7")
    placement = one(ours(BASE, CHANGED, "First.run"), text, binding=True)
    assert placement.verdict is Verdict.DRIFTED
    assert "does not stand in First.run (lines 5 to 9)" in placement.reason


def test_result_that_would_change_another_scope_than_the_heading_is_refused() -> None:
    placement = one(ours(BASE, CHANGED, "First"), BASE, binding=True)
    assert placement.verdict is Verdict.MOVED
    assert placement.reason.endswith("it would change First.run, not First")


def test_result_that_does_not_parse_is_refused() -> None:
    after = BASE.replace(b"        step = 1\n", b"        step = (\n")
    placement = one(ours(BASE, after, "First.run"), BASE, binding=True)
    assert placement.verdict is Verdict.DRIFTED
    assert placement.reason == "the result does not parse"


def test_file_that_does_not_parse_cannot_bind() -> None:
    text = BASE + b"def broken(:\n"
    placement = one(ours(BASE, CHANGED, "First.run"), text, binding=True)
    assert placement.verdict is Verdict.DRIFTED
    assert "does not parse, so First.run cannot be looked up" in placement.reason
    # Without a binding heading the text alone decides.
    assert one(change_of(BASE, CHANGED), text).verdict is Verdict.EXACT


def test_file_that_is_not_python_is_placed_by_its_text() -> None:
    change = ours(BASE, CHANGED, "First.run")
    assert one(change, shifted(BASE), "vllm/x.cu", binding=True).verdict is Verdict.OFFSET
    assert one(change, BASE + BASE, "vllm/x.cu", binding=True).verdict is Verdict.AMBIGUOUS


@pytest.mark.parametrize(
    ("old", "new", "scope"),
    [
        pytest.param(
            b"        return total\n", b"        return total\n        # tail\n", "First",
            id="a comment behind the last statement",
        ),
        pytest.param(
            b"return total\n\n", b"return total\n\n        print(1)\n\n", "First.run",
            id="behind the blank line at the end",
        ),
        pytest.param(
            b"    def stop(self):\n", b"    def stop(self, now):\n", "First.stop",
            id="the def line itself",
        ),
        pytest.param(
            b"    def stop(self):\n", b"    @property\n    def stop(self):\n", "First",
            id="a decorator",
        ),
        pytest.param(
            b"    def stop(self):\n", b"    def go(self):\n        pass\n\n    def stop(self):\n",
            "First", id="a new method",
        ),
        pytest.param(b"import os\n", b"import os\nimport re\n", "<module>", id="an import"),
        pytest.param(b"        return area\n", b"        return area\n\n\nx = 1\n", "<module>",
            id="at the end of the file"),
        pytest.param(b"        step = 1\n        total = start + step\n", b"", "First.run",
            id="a removal"),
        pytest.param(b"        return total\n\n", b"        return 1\n", "First.run",
            id="a removed blank line behind the scope"),
    ],
)  # fmt: skip
def test_scope_that_this_tool_writes_is_found_again(old: bytes, new: bytes, scope: str) -> None:
    from vllm_series.scope import Scopes
    from vllm_series.search import change_scope

    after = BASE.replace(old, new, 1)
    (hunk,) = change_of(BASE, after).hunks
    before_scopes, after_scopes = Scopes.of(BASE, PATH), Scopes.of(after, PATH)
    assert before_scopes
    assert after_scopes
    written = change_scope(hunk, before_scopes, after_scopes, hunk.first_line, hunk.new_start)
    assert written == scope
    change = ours(BASE, after, scope)
    above = b"import sys\n"
    if hunk.leading and hunk.first_line > 1:
        assert put(change, above + BASE, binding=True).result == above + after
        assert put(change, above + after, binding=True).verdict is Verdict.APPLIED
    else:
        assert put(change, BASE, binding=True).result == after
        assert put(change, after, binding=True).verdict is Verdict.APPLIED


# -- headings of git -----------------------------------------------------------------------------

LONG = b"""\
def alpha(value):
    one = 1
    two = 2
    three = 3
    four = 4
    five = 5
    return one


def beta(value):
    six = 6
    seven = 7
    return six
"""
LONG_CHANGED = LONG.replace(b"    four = 4\n", b"    four = 44\n")


def test_heading_of_git_agrees_and_the_hunk_is_placed() -> None:
    change = change_of(LONG, LONG_CHANGED, "-U2")
    assert change.hunks[0].heading == b"def alpha(value):"
    assert one(change, shifted(LONG)).verdict is Verdict.OFFSET


def test_heading_of_git_can_refuse_a_place() -> None:
    change = change_of(LONG, LONG_CHANGED, "-U2")
    placement = one(change, LONG.replace(b"def alpha", b"def other"))
    assert placement.verdict is Verdict.MOVED
    assert "below other, not below alpha" in placement.reason


def test_heading_of_git_tells_two_places_apart_that_stand_below_different_definitions() -> None:
    change = change_of(LONG, LONG_CHANGED, "-U2")
    twice = LONG.replace(b"def alpha", b"def other") + b"\n\n" + LONG
    placement = one(change, twice)
    assert placement.line == len(LONG.splitlines()) + 2 + change.hunks[0].first_line


def test_heading_of_git_cannot_choose_between_two_places_below_it() -> None:
    change = change_of(BASE, BASE.replace(b"= begin *", b"= 2 *"), "-U1")
    assert change.hunks[0].heading == b"class Second:"
    twice = BASE + BASE.partition(b"class Second:\n")[2].replace(b"run", b"go")
    assert one(change, twice).verdict is Verdict.AMBIGUOUS


def test_heading_of_git_names_what_stands_above_and_others_may_come_between() -> None:
    text = LONG.replace(b"seven = 7\n    return six", b"seven = 7\n    eight = 8\n    return six")
    change = change_of(text, text.replace(b"six = 6", b"six = 66"), "-U3")
    assert change.hunks[0].heading == b"def alpha(value):"
    between = text.replace(b"\n\ndef beta", b"\n\ndef gamma(value):\n    return 3\n\n\ndef beta")
    between = between.replace(b"    return one\n\n\ndef gamma", b"    return 1\n\n\ndef gamma")
    moved = between.replace(b"    return 3\n\n\ndef beta", b"    return one\n\n\ndef beta")
    assert one(change, moved).verdict is Verdict.OFFSET
    head, alpha, rest = text.partition(b"def alpha(value):\n")
    above = change.hunks[0].pre
    assert (
        one(change, b"".join(above) + b"    return six\n\n\n" + head + alpha).verdict
        is Verdict.MOVED
    )
    assert rest


def test_heading_of_git_that_defines_nothing_speaks_of_no_scope() -> None:
    from dataclasses import replace

    change = change_of(LONG, LONG_CHANGED, "-U2")
    change = replace(change, hunks=(replace(change.hunks[0], heading=b"import os"),))
    assert one(change, shifted(LONG)).verdict is Verdict.OFFSET


def test_changed_signature_under_the_same_name_is_fine() -> None:
    change = change_of(LONG, LONG_CHANGED, "-U2")
    text = shifted(LONG.replace(b"def alpha(value)", b"def alpha(value, more=None)"))
    assert one(change, text).verdict is Verdict.OFFSET


@pytest.mark.parametrize("driver", ["default", "python"])
def test_either_driver_of_git_may_have_written_the_heading(driver: str) -> None:
    from dataclasses import replace

    heading = {"default": b"class Second:", "python": b"def run(self, value):"}[driver]
    change = change_of(BASE, BASE.replace(b"width = 2", b"width = 3"), "-U1")
    change = replace(change, hunks=(replace(change.hunks[0], heading=heading),))
    assert one(change, shifted(BASE)).verdict is Verdict.OFFSET
    renamed = BASE.replace(b"class Second", b"class Other").replace(
        b"def run(self, value):\n        begin", b"def go(self, value):\n        begin"
    )
    assert one(change, renamed).verdict is Verdict.MOVED


def test_missing_heading_binds_nothing() -> None:
    from dataclasses import replace

    change = change_of(LONG, LONG_CHANGED, "-U2")
    change = replace(change, hunks=(replace(change.hunks[0], heading=b""),))
    assert one(change, LONG.replace(b"def alpha", b"def other")).verdict is Verdict.EXACT


# -- at scale ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("above", "verdict"), [(b"\n", Verdict.AMBIGUOUS), (b"pass\n", Verdict.OFFSET)]
)
def test_file_of_equal_lines_is_searched_in_a_moment(above: bytes, verdict: Verdict) -> None:
    block = above * 20_000
    change = change_of(block + b"end = 1\n" + block, block + b"end = 2\n" + block, "-U20000")
    started = time.process_time()
    assert one(change, above * 60_000).verdict is Verdict.DRIFTED
    assert put(change, above * 100 + block + b"end = 1\n" + block).verdict is verdict
    assert time.process_time() - started < 5


def test_every_bound_hunk_of_a_long_file_is_confirmed_in_a_moment() -> None:
    functions = [
        b"def f%d():\n    a = %d\n    b = a\n    return b\n\n\n" % (n, n) for n in range(1000)
    ]
    before = b"".join(functions)
    after = before.replace(b"    b = a\n", b"    b = a + 1\n")
    change = ours(before, after, *(f"f{n}" for n in range(1000)), context=1)
    started = time.process_time()
    assert put(change, b"import os\n" + before, binding=True).result == b"import os\n" + after
    drifted = before.replace(b"return b\n", b"return  b\n")
    assert put(change, drifted, binding=True).verdict is Verdict.DRIFTED
    assert time.process_time() - started < 20
