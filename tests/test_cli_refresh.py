"""Patches written anew in their one form: what lint finds, and what a hand has edited."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from authoring import call, held, lint
from commandline import SCHEDULER, SERIES, Ran
from conftest import Stock
from diffs import git_diff
from vllm_series.diffs.parse import parse
from vllm_series.diffs.recount import recounted
from vllm_series.errors import PatchFormatError

Call = Callable[..., Ran]
OBSERVE = (
    b"+                        dynamic_width.observe(request, num_accepted, num_draft_tokens)\n"
)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def place(series: Path) -> Path:
    return series / "vllm-0.33/dynwidth.patch"


@pytest.fixture
def refresh(cache: Path, series: Path) -> Call:
    def call_refresh(*words: str | Path) -> Ran:
        return call(cache, series, "refresh", *words)

    return call_refresh


@pytest.mark.parametrize("folder", sorted(path.name for path in SERIES.glob("vllm-*")))
def test_a_patch_in_its_form_stays_as_it_is(refresh: Call, series: Path, folder: str) -> None:
    was = held(series)
    told = refresh("dynwidth", "--series", folder)
    assert told.code == 0, told.err
    assert told.out == "nothing to do: dynwidth.patch is as it should be\n"
    assert held(series) == was


def test_what_lint_finds_is_put_right(
    refresh: Call, cache: Path, series: Path, place: Path, stock: Stock
) -> None:
    good = place.read_bytes()
    wrong = good
    for old, new in (
        (b"@@ Scheduler.schedule\n", b"@@ class Scheduler(SchedulerInterface):\n"),
        (b"@@ Scheduler.update_from_output\n", b"@@\n"),
        (b"Date: Tue, 1 Dec", b"Date:  Tue, 1 Dec"),
        (b"index d35b7dfac42abd1335c827eff9f3c05728f3f248..", b"index d35b7dfac42a.."),
    ):
        assert old in wrong
        wrong = wrong.replace(old, new, 1)
    place.write_bytes(wrong)
    found = lint(cache, series, stock("0.33.0"))
    assert "section heading" in found
    assert "vllm-series refresh PATCH" in found
    shown = refresh("dynwidth", "--dry-run")
    assert shown.out.encode() == good
    assert place.read_bytes() == wrong
    told = refresh("dynwidth")
    assert (told.code, told.out) == (0, f"{place}\n")
    assert place.read_bytes() == good


def test_a_wrong_id_is_no_reason_to_trust_the_lines(refresh: Call, place: Path) -> None:
    good = place.read_bytes()
    place.write_bytes(good.replace(b"index d35b7dfac42a", b"index 0123456789ab"))
    assert refresh("dynwidth").code == 0
    assert place.read_bytes() == good
    # With neither an id nor a heading of the place, copies cannot be told apart.
    other = good.replace(b"index d35b7dfac42a", b"index 0123456789ab").replace(
        b"@@ Scheduler.schedule\n", b"@@ Scheduler.reset_prefix_cache\n"
    )
    place.write_bytes(other)
    told = refresh("dynwidth")
    assert told.code in (0, 1)
    assert place.read_bytes() == (good if told.code == 0 else other)


def test_a_hand_edited_patch_is_taken_with_its_counts_put_right(
    refresh: Call, cache: Path, series: Path, place: Path, stock: Stock
) -> None:
    good = place.read_bytes()
    assert OBSERVE in good
    place.write_bytes(good.replace(OBSERVE, OBSERVE + b"+                        # more\n"))
    told = refresh("dynwidth")
    assert told.code == 0, told.err
    assert "line counts of its hunks were put right" in told.err
    now = parse(place.read_bytes(), "dynwidth.patch")
    assert lint(cache, series, stock("0.33.0")) == ""
    assert now.files[-1].new_id != parse(good, "dynwidth.patch").files[-1].new_id
    place.write_bytes(place.read_bytes().replace(b"+                        # more\n", b""))
    assert refresh("dynwidth").code == 0
    assert place.read_bytes() == good


def test_what_cannot_be_told_is_refused_with_both_reasons(refresh: Call, place: Path) -> None:
    good = place.read_bytes()
    for bad, said in (
        (good.replace(OBSERVE, OBSERVE + b"stray\n"), "this line has no sign"),
        (good.replace(OBSERVE, b"+                        if:\n"), "does not parse"),
        (good.replace(b"                if not output_is_stale:", b"                if output:"),
         "does not fit vllm 0.33.0"),
    ):  # fmt: skip
        assert bad != good
        place.write_bytes(bad)
        told = refresh("dynwidth")
        assert told.code == 1
        assert said in told.err
        assert place.read_bytes() == bad


def test_a_bare_diff_needs_its_base_named(refresh: Call, place: Path, stock: Stock) -> None:
    before = {SCHEDULER: (stock("0.33.0") / SCHEDULER).read_bytes()}
    after = {SCHEDULER: before[SCHEDULER].replace(b"import time\n", b"import io\nimport time\n", 1)}
    bare = place.with_name("bare.patch")
    bare.write_bytes(git_diff(before, after))
    (place.parent / "series").write_text("bare.patch\n")
    place.unlink()
    told = refresh("bare")
    assert told.code == 1
    assert "Name the release with --base" in told.err
    told = refresh("bare", "--base", "0.33.0")
    assert told.code == 0, told.err
    assert "lint has still something to say: bare.patch: no Origin: trailer" in told.err
    patch = parse(bare.read_bytes(), "bare.patch")
    assert patch.base == "0.33.0"
    assert patch.files[0].hunks[0].heading == b"<module>"
    assert len(patch.files[0].old_id or "") == 40


def test_usage(refresh: Call, tmp_path: Path) -> None:
    assert refresh().code == 2
    assert refresh("dynwidth", "--drop").code == 2
    assert refresh("nothing").code == 1
    assert refresh("dynwidth", "--json").json()["outcome"] == "nothing to do"
    every = refresh("--all", "--series", "0.30")
    assert every.out == "nothing to do: dynwidth.patch is as it should be\n"


# -- counts ---------------------------------------------------------------------------------------

PATH = "vllm/a.py"
LONG = b"".join(b"x%d = %d\n" % (number, number) for number in range(40))
NEW = LONG.replace(b"x9 = 9\n", b"x9 = 10\nmore = 1\n").replace(b"x30 = 30\n", b"")


def test_true_counts_stay_and_wrong_ones_become_true() -> None:
    before = {PATH: LONG, "vllm/gone.py": LONG, "vllm/b.py": b"a = 1"}
    after = {PATH: NEW, "vllm/new.py": LONG, "vllm/b.py": b"b = 1"}
    diff = git_diff(before, after, "--no-renames")
    assert recounted(diff, "p") == diff
    for old, new in (
        (b"@@ -7,7 +7,8 @@", b"@@ -7,9 +7 @@"),
        (b"@@ -28,7 +29,6 @@", b"@@ -28 +2 @@"),
    ):
        assert old in diff
        assert recounted(diff.replace(old, new), "p") == diff


def test_blank_context_that_an_editor_stripped_is_context() -> None:
    text = LONG.replace(b"x8 = 8\n", b"\n")
    diff = git_diff({PATH: text}, {PATH: text.replace(b"x9 = 9\n", b"")})
    assert b"\n \n" in diff
    assert recounted(diff.replace(b"\n \n", b"\n\n"), "p") == diff


@pytest.mark.parametrize("tail", [b"stray\n", b"-- \n2.39.5\n", b"@ -1 +1 @@\n"])
def test_a_line_that_may_be_anything_is_a_refusal(tail: bytes) -> None:
    diff = git_diff({PATH: LONG}, {PATH: NEW})
    with pytest.raises(PatchFormatError):
        recounted(diff + tail, "p")


def test_without_git_s_lines_no_end_is_known() -> None:
    diff = git_diff({PATH: LONG}, {PATH: NEW})
    with pytest.raises(PatchFormatError, match="cannot be told where a hunk ends"):
        recounted(diff[diff.index(b"--- ") :], "p")


def test_a_folder_with_a_link_is_not_written(refresh: Call, series: Path, place: Path) -> None:
    shutil.move(place, series / "elsewhere.patch")
    place.symlink_to(series / "elsewhere.patch")
    told = refresh("dynwidth", "--series", "0.33")
    assert told.code == 1
    assert "is a link" in told.err
    assert place.is_symlink()
