"""A patch on top of another, `dynwidth-metrics` on `dynwidth`, on the series as they are."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from commandline import ADDED, PROJECT_SERIES, SCHEDULER, copied, everything, run
from conftest import Stock
from vllm_series.diffs.parse import parse
from vllm_series.series import folders, load

LOWER, UPPER = "dynwidth.patch", "dynwidth-metrics.patch"
METRICS = "vllm/v1/spec_decode/dynamic_width_metrics.py"


def tree_of(stock: Stock, release: str, tmp_path: Path) -> Path:
    """What both patches touch of a release."""
    source = stock(release)
    site = copied(source, tmp_path / f"site-{release}")
    shutil.copytree(source / "vllm/v1/metrics", site / "vllm/v1/metrics")
    return site


@pytest.fixture
def tree(stock: Stock, tmp_path: Path) -> Path:
    return tree_of(stock, "0.33.0", tmp_path)


def test_every_line_has_both_in_order_with_one_switch() -> None:
    for folder in folders(PROJECT_SERIES):
        patches = [parse(entry.text, entry.name) for entry in load(folder).entries]
        names = [patch.name for patch in patches]
        assert names.index(LOWER) < names.index(UPPER)
        lower, upper = (patches[names.index(name)] for name in (LOWER, UPPER))
        assert ("Needs", "dynwidth") in upper.trailers
        switch = ("Activate", "RADIANCE_DYNAMIC_WIDTH=1")
        assert switch in lower.trailers
        assert switch in upper.trailers


def test_the_new_file_is_the_same_in_all_lines() -> None:
    texts = {
        b"".join(line for hunk in change.hunks for line in hunk.post)
        for folder in folders(PROJECT_SERIES)
        for entry in load(folder).entries
        if entry.name == UPPER
        for change in parse(entry.text, entry.name).files
        if change.paths(1)[1] == METRICS
    }
    assert len(texts) == 1


def test_both_go_in_and_out_to_the_byte(tree: Path) -> None:
    before = everything(tree)
    series = ("--series-dir", PROJECT_SERIES, "--target", tree)
    assert run("apply", *series).code == 0
    assert (tree / METRICS).is_file()
    assert run("verify", "--target", tree).code == 0
    assert run("revert", "--target", tree).code == 0
    assert everything(tree) == before


def test_the_upper_one_comes_out_alone_and_goes_in_again(tree: Path) -> None:
    series = ("--series-dir", PROJECT_SERIES, "--target", tree)
    run("apply", *series)
    both = everything(tree)
    assert run("revert", "--top", "1", "--target", tree).code == 0
    assert not (tree / METRICS).exists()
    assert b"meter" not in (tree / ADDED).read_bytes()
    assert b"dynamic_width.cap(self.running)" in (tree / SCHEDULER).read_bytes()
    assert run("verify", "--target", tree).code == 0
    assert run("apply", *series).code == 0
    after = everything(tree)
    vllm = {path for path in both if path.startswith("vllm/")}
    assert {path: after[path] for path in vllm} == {path: both[path] for path in vllm}


def test_where_the_lower_one_does_not_fit_the_upper_one_is_blocked(
    stock: Stock, tmp_path: Path
) -> None:
    tree = tree_of(stock, "0.26.0", tmp_path)
    before = everything(tree)
    ran = run("apply", "--series-dir", PROJECT_SERIES, "--series", "vllm-0.32", "--target", tree)
    assert ran.code == 1
    assert "dynwidth.patch          drifted" in ran.out
    assert "dynwidth-metrics.patch  blocked" in ran.out
    assert "blocked: it needs dynwidth, which does not fit" in ran.err
    assert everything(tree) == before


def test_the_lower_one_may_stand_alone_and_the_upper_one_not(tmp_path: Path) -> None:
    series = tmp_path / "series"
    shutil.copytree(PROJECT_SERIES / "vllm-0.33", series / "vllm-0.33")
    place = series / "vllm-0.33" / "series"
    for listed, code in ((f"{LOWER}\n", 0), (f"{UPPER}\n", 1), (f"{UPPER}\n{LOWER}\n", 1)):
        place.write_text(listed)
        for name in (LOWER, UPPER):
            shutil.copy2(PROJECT_SERIES / "vllm-0.33" / name, series / "vllm-0.33" / name)
            if name not in listed:
                (series / "vllm-0.33" / name).unlink()
        ran = run("lint", "--series-dir", series)
        assert ran.code == code, ran.out
        assert code == 0 or "needs" in (ran.out + ran.err).lower()


def test_every_series_is_clean_on_what_it_serves() -> None:
    told = run("check", "--series-dir", PROJECT_SERIES)
    assert told.code == 0, told.err
    assert "clean on all 36 supported releases" in told.out
    assert run("lint", "--series-dir", PROJECT_SERIES).code == 0
