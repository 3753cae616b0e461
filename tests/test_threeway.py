"""Placing with the base at hand: the alignment must agree with the text, and can do more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from conftest import Stock
from diffs import git_diff
from vllm_series.diffs.parse import parse
from vllm_series.heading import heading_of
from vllm_series.patch import FileChange
from vllm_series.place import place
from vllm_series.placement import FilePlacement, Placement
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
        start = value
        step = 1
        total = start + step
        return total

    def halt(self):
        return None
"""
INSERTED = b"        print(step)\n"
AT = b"        step = 1\n"
EDITED = BASE.replace(AT, AT + INSERTED, 1)
"""The change is in `First.run`; `Second.run` is its twin."""


def change(before: bytes = BASE, after: bytes = EDITED, *, own: bool = False) -> FileChange:
    (found,) = parse(git_diff({PATH: before}, {PATH: after}, "--full-index"), "p").files
    if own:
        hunks = tuple(
            replace(hunk, heading=heading_of(hunk, before, after, PATH)) for hunk in found.hunks
        )
        found = replace(found, hunks=hunks)
    return found


def put(text: bytes, given: FileChange | None = None, base: bytes = BASE) -> FilePlacement:
    return place(given or change(), text, PATH, binding=False, base=base)


def one(text: bytes, given: FileChange | None = None) -> Placement:
    (placement,) = put(text, given).placements
    return placement


# -- where text and alignment agree --------------------------------------------------------------


def test_text_that_stands_where_the_base_leads_is_placed_as_without_it() -> None:
    given = change(BASE, BASE.replace(b"first + 1", b"first + 2"))
    text = b"# above\n" + BASE
    placed = put(text, given)
    assert placed.verdict is Verdict.OFFSET
    assert placed == place(given, text, PATH, binding=False)


def test_edge_of_the_context_may_be_aligned_elsewhere() -> None:
    """A method in front ends like the one before it; the change and its neighbours are kept."""
    given = change(BASE, BASE.replace(b"first = os", b"first = 1 + os"))
    new = b"    def pause(self):\n        total = 0\n        return total\n\n"
    text = BASE.replace(b"    def stop", new + b"    def stop")
    placed = put(text, given)
    assert placed.verdict is Verdict.OFFSET
    assert placed.result == text.replace(b"first = os", b"first = 1 + os")


# -- what the alignment alone can place ----------------------------------------------------------


def test_changed_context_is_merged_where_the_neighbours_are_kept() -> None:
    text = BASE.replace(b"start = value", b"start = int(value)", 1)
    placed = put(text)
    assert placed.verdict is Verdict.MERGED
    assert placed.result == text.replace(AT, AT + INSERTED, 1)
    assert placed.placements[0].line == BASE[: BASE.index(AT)].count(b"\n") + 2
    assert "only the base tells its place, line 8" in placed.placements[0].reason
    assert placed.placements[0].scope == "First.run"


def test_twin_that_did_not_drift_is_not_taken_for_the_true_place() -> None:
    """Without the base the text stands once, in the wrong class."""
    text = BASE.replace(b"start = value", b"start = int(value)", 1)
    without = replace(change(), hunks=(replace(change().hunks[0], heading=b""),))
    assert place(without, text, PATH, binding=False).verdict is Verdict.OFFSET
    assert "stands at line 18 as a copy that the base has too" in one(text, without).reason
    assert put(text, without).result == text.replace(AT, AT + INSERTED, 1)


def test_copy_that_the_text_cannot_tell_from_its_twin_is_merged() -> None:
    without = replace(change(), hunks=(replace(change().hunks[0], heading=b""),))
    placed = put(b"# above\n" + BASE, without)
    assert placed.verdict is Verdict.MERGED
    assert placed.result == b"# above\n" + EDITED
    assert "its text stands 2 times" in placed.placements[0].reason


def test_hunk_without_context_is_merged() -> None:
    (given,) = parse(git_diff({PATH: BASE}, {PATH: EDITED}, "--full-index", "-U0"), "p").files
    placed = put(b"# above\n" + BASE, given)
    assert placed.verdict is Verdict.MERGED
    assert placed.result == b"# above\n" + EDITED


def test_text_at_the_end_of_the_file_is_merged_only_if_it_is_still_the_end() -> None:
    given = change(BASE, BASE + b"LAST = 1\n")
    changed = BASE.replace(b"    def run", b"    def go")
    assert put(changed, given).result == changed + b"LAST = 1\n"
    assert put(changed + b"OTHER = 1\n", given).result is None


@pytest.mark.parametrize(
    ("after", "old", "new"),
    [
        pytest.param(EDITED, AT, AT + b"        step += 1\n", id="new line between"),
        pytest.param(EDITED, AT, b"        step = 2\n", id="line above changed"),
        pytest.param(EDITED, b"total = start + step", b"total = start", id="line below changed"),
        pytest.param(EDITED, AT + b"        total = start + step\n", b"", id="both gone"),
        pytest.param(BASE.replace(AT, b"", 1), AT, b"        step = 2\n", id="line itself changed"),
        pytest.param(
            BASE.replace(AT, b"        step = 3\n", 1),
            b"        start = value\n",
            b"        start = 1\n",
            id="line beside a change changed",
        ),
    ],
)
def test_what_upstream_touched_at_the_place_itself_is_a_conflict(
    after: bytes, old: bytes, new: bytes
) -> None:
    placement = one(BASE.replace(old, new, 1), change(BASE, after))
    assert placement.verdict is Verdict.DRIFTED
    assert placement.line is None
    assert "of the base" in placement.reason


# -- where they do not agree ---------------------------------------------------------------------


def test_text_that_stands_where_the_base_does_not_lead_is_refused_with_both_places() -> None:
    """The method is copied to another class, and drifts where it was."""
    base = BASE.partition(b"\n\nclass Second")[0]
    given = change(base, base.replace(AT, AT + INSERTED))
    copied = base.replace(b"start = value", b"start = int(value)")
    copied += b"\n\nclass Third:\n" + base[base.index(b"    def run") : base.index(b"    def stop")]
    (placement,) = place(given, copied, PATH, binding=False, base=base).placements
    assert placement.verdict in (Verdict.DRIFTED, Verdict.MERGED)
    without = replace(given, hunks=(replace(given.hunks[0], heading=b""),))
    (placement,) = place(without, copied, PATH, binding=False, base=base).placements
    assert placement.verdict is Verdict.DRIFTED
    assert "its text stands at line 18, but the base leads to line 8" in placement.reason


def test_lost_place_is_refused_though_its_text_stands_elsewhere() -> None:
    """A short method goes below a long one, which the alignment keeps instead."""
    base = BASE.partition(b"\n\nclass Second")[0]
    method = base[base.index(b"    def run") : base.index(b"    def stop")]
    long = b"".join(b"        line_%d = %d\n" % (number, number) for number in range(20))
    base = base.replace(b"        return second\n", long + b"        return second\n")
    moved = base.replace(method, b"") + b"\n" + method + b"    last = 1\n"
    base = base + b"\n    last = 1\n"
    given = change(base, base.replace(AT, AT + INSERTED), own=True)
    assert place(given, moved, PATH, binding=True).verdict is Verdict.OFFSET
    (placement,) = place(given, moved, PATH, binding=True, base=base).placements
    assert placement.verdict is Verdict.DRIFTED
    assert "its text stands at line" in placement.reason
    assert "of the base is gone" in placement.reason


# -- scopes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("own", [True, False])
def test_place_in_another_scope_is_moved_and_has_a_result(own: bool) -> None:
    text = BASE.replace(b"class First", b"class Other")
    placed = place(change(own=own), text, PATH, binding=own, base=BASE)
    assert place(change(own=own), text, PATH, binding=own).result is None
    assert placed.verdict is Verdict.MOVED
    assert placed.by_base
    assert placed.result == text.replace(AT, AT + INSERTED, 1)
    assert placed.placements[0].scope == "Other.run"
    assert "it would change Other.run there, not First.run" in placed.placements[0].reason


def test_merge_that_does_not_parse_is_refused() -> None:
    base = b"def f(a, b):\n    x = 1\n    -a\n    -b\n    return a\n"
    text = base.replace(b"1\n", b"(1\n").replace(b"-b\n", b"-b\n    )\n")
    given = change(base, base.replace(b"-a\n", b"-a\n    pass\n"))
    (placement,) = put(text, given, base=base).placements
    assert placement.verdict is Verdict.DRIFTED
    assert placement.reason == "the result does not parse"


def test_file_that_is_not_python_is_merged_too() -> None:
    path = "vllm/x.txt"
    base = b"".join(b"%d\n" % number for number in range(20))
    diff = git_diff({path: base}, {path: base.replace(b"9\n10\n", b"9\n+\n10\n")})
    text = base.replace(b"8\n", b"eight\n", 1)
    placed = place(parse(diff, "p").files[0], text, path, binding=False, base=base)
    assert placed.verdict is Verdict.MERGED
    assert placed.result == text.replace(b"9\n10\n", b"9\n+\n10\n")


# -- what stands already -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "after",
    [
        pytest.param(EDITED, id="insertion"),
        pytest.param(BASE.replace(AT, b"", 1), id="deletion"),
    ],
)
def test_result_that_stands_where_the_base_leads_is_applied_though_the_context_changed(
    after: bytes,
) -> None:
    text = after.replace(b"return total", b"return int(total)", 1)
    given = change(BASE, after)
    assert place(given, text, PATH, binding=False).verdict is not Verdict.APPLIED
    placed = put(text, given)
    assert placed.verdict is Verdict.APPLIED
    assert placed.result == text


def test_result_that_stands_where_the_base_does_not_lead_is_no_proof() -> None:
    """Upstream has the line in the twin alone."""
    head, mark, tail = BASE.partition(b"class Second")
    text = head.replace(AT, b"        step = 2\n", 1) + mark + tail.replace(AT, AT + INSERTED)
    without = replace(change(), hunks=(replace(change().hunks[0], heading=b""),))
    assert place(without, text, PATH, binding=False).verdict is Verdict.APPLIED
    placement = one(text, without)
    assert placement.verdict is Verdict.DRIFTED
    assert "its result stands at line 18, but" in placement.reason


def test_file_of_which_a_part_stands_and_a_part_is_merged_is_ambiguous() -> None:
    after = EDITED.replace(b"first + 1", b"first + 2")
    given = change(BASE, after)
    if len(given.hunks) == 1:
        (given,) = parse(git_diff({PATH: BASE}, {PATH: after}, "-U1"), "p").files
    text = BASE.replace(b"first + 1", b"first + 2").replace(b"start = value", b"start = 1", 1)
    placed = put(text, given)
    assert placed.result is None
    assert placed.verdict is Verdict.AMBIGUOUS
    assert "stand in the file already" in placed.reason


# -- a base that is none -------------------------------------------------------------------------


def test_base_in_which_the_hunks_do_not_stand_is_no_help_and_that_is_said() -> None:
    given = replace(change(), old_id=None)
    other = BASE.replace(AT, b"        step = 9\n")
    placed = place(given, BASE, PATH, binding=False, base=other)
    assert "does not fit" in placed.note
    assert replace(placed, note="") == place(given, BASE, PATH, binding=False)


def test_base_without_a_recorded_id_places_by_its_text() -> None:
    given = replace(change(BASE, BASE.replace(b"first + 1", b"first + 2")), old_id=None)
    text = BASE.replace(b"        first = os", b"        first = 1 + os")
    text = text.replace(b"def stop", b"def halt")
    assert place(given, text, PATH, binding=False, base=b"# above\n" + BASE).result is None
    text = BASE.replace(b"def stop", b"def halt")
    placed = place(given, text, PATH, binding=False, base=b"# above\n" + BASE)
    assert placed.result == text.replace(b"first + 1", b"first + 2")


def test_pristine_file_needs_no_base() -> None:
    placed = put(BASE, change(), base=b"nothing of it\n")
    assert placed.pristine
    assert placed.result == EDITED


# -- on real files -------------------------------------------------------------------------------


def test_the_series_for_0_32_is_merged_or_refused_on_0_29_and_never_misplaced(stock: Stock) -> None:
    """What GNU patch puts into `reset_prefix_cache` there stays out of it."""
    from commandline import SERIES

    path = "vllm/v1/core/sched/scheduler.py"
    patch = parse((SERIES / "vllm-0.32" / "dynwidth.patch").read_bytes(), "dynwidth.patch")
    base, text = ((stock(version) / path).read_bytes() for version in ("0.32.0", "0.29.0"))
    (given,) = (each for each in patch.files if each.old_raw and each.old_raw.endswith(path))
    with_base = place(given, text, path, binding=True, base=base)
    placed = [placement for placement in with_base.placements if placement.line is not None]
    assert placed
    assert all(placement.scope == placement.hunk.heading.decode() for placement in placed)
