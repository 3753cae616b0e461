"""`vllm-series cache`: what is kept, how much, and how it goes."""

from __future__ import annotations

from pathlib import Path

import pytest

from commandline import Ran, run
from vllm_series.upstream.store import ANSWERS, Store

KEYS = [f"{number:064x}" for number in range(10)]


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache with ten answers of 1,000 bytes (1,032 on disk), a blob, and a stock folder."""
    store = Store(tmp_path / "cache")
    for key in KEYS:
        store.put(ANSWERS, key, bytes(1000))
    store.put_blob(b"text")
    (tmp_path / "cache" / "stock").mkdir()
    (tmp_path / "cache" / "stock" / "a.py").write_bytes(b"stock")
    return tmp_path / "cache"


def asked(cache: Path, *words: str, size: str = "") -> Ran:
    return run("cache", *words, VLLM_SERIES_CACHE=str(cache), VLLM_SERIES_CACHE_SIZE=size)


def entries(cache: Path) -> dict[str, tuple[int, int]]:
    value = asked(cache, "--json").json()
    assert value["command"] == "cache"
    assert value["place"] == str(cache)
    kinds = value["kinds"]
    assert isinstance(kinds, list)
    return {kind["kind"]: (kind["entries"], kind["bytes"]) for kind in kinds}


def test_it_says_where_the_cache_is_and_what_each_kind_takes(cache: Path) -> None:
    ran = asked(cache)
    assert ran.code == 0
    assert ran.out.splitlines()[0] == str(cache)
    assert "answers  10 files  10.3 kB" in ran.out
    assert "stock" in ran.out
    assert entries(cache) == {
        "blobs": (1, 4),
        "wheels": (0, 0),
        "lists": (0, 0),
        "answers": (10, 10320),
        "stock": (1, 5),
    }


def test_the_folder_alone_is_printed_for_scripts(cache: Path) -> None:
    assert asked(cache, "--dir").out == f"{cache}\n"


def test_an_empty_cache_is_no_error(tmp_path: Path) -> None:
    ran = asked(tmp_path / "none")
    assert ran.code == 0
    assert "0 files" in ran.out
    assert not (tmp_path / "none").exists()


def test_clearing_removes_all_but_the_stock_of_the_tests(cache: Path) -> None:
    assert asked(cache, "--clear", "--dry-run").out == f"would remove 10.3 kB: {cache}\n"
    assert entries(cache)["answers"][0] == 10
    assert asked(cache, "--clear").out == f"removed 10.3 kB: {cache}\n"
    assert {kind: number for kind, (number, _) in entries(cache).items() if number} == {"stock": 1}
    assert (cache / "stock" / "a.py").read_bytes() == b"stock"


def test_clearing_takes_what_rebases_left_but_not_one_that_is_open(cache: Path) -> None:
    over, under_way = cache / "rebase" / "a1", cache / "rebase" / "b2"
    for place in (over, under_way):
        (place / "repository" / ".git").mkdir(parents=True)
        (place / "repository" / "model.py").write_bytes(bytes(700))
    (under_way / "open").write_bytes(b"somewhere")
    assert entries(cache)["rebase"] == (3, 1409)
    assert asked(cache, "--clear", "--kind", "rebase", "-n").out.startswith("would remove 700 b")
    assert over.is_dir()
    ran = asked(cache, "--clear")
    assert "1 rebase open: kept" in ran.err
    assert not over.exists()
    assert (under_way / "repository" / "model.py").is_file()
    assert entries(cache)["rebase"] == (2, 709)
    assert asked(cache, "--clear", "--kind", "blobs").err == ""


def test_clearing_a_kind_leaves_the_others(cache: Path) -> None:
    assert asked(cache, "--clear", "--kind", "blobs", "-q").out == ""
    assert entries(cache)["answers"][0] == 10
    assert entries(cache)["blobs"] == (0, 0)


def test_pruning_keeps_to_the_size_that_is_set(cache: Path) -> None:
    value = asked(cache, "--prune", "--dry-run", "--json", size="5000").json()
    assert value["removed"] == 10324 - 5000
    assert value["dry_run"] is True
    assert asked(cache, "--prune", size="5000").code == 0
    assert sum(number for kind, (_, number) in entries(cache).items() if kind != "stock") <= 5000
    assert asked(cache, "--prune", size="5000").out == f"removed 0 bytes: {cache}\n"


@pytest.mark.parametrize(
    "words",
    [
        ("--clear", "--prune"),
        ("--dir", "--clear"),
        ("--kind", "blobs", "--prune"),
        ("--dry-run",),
        ("--kind", "stock"),
    ],
)
def test_words_that_contradict_each_other_are_wrong_usage(
    cache: Path, words: tuple[str, ...]
) -> None:
    ran = asked(cache, *words)
    assert ran.code == 2
    assert ran.out == ""


def test_a_size_that_cannot_be_read_is_wrong_usage(cache: Path) -> None:
    ran = asked(cache, size="plenty")
    assert ran.code == 2
    assert "plenty" in ran.err
