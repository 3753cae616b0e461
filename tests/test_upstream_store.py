"""The cache: true or not there, shared by processes, bounded, and never in the way."""

from __future__ import annotations

import multiprocessing
import os
import stat
import threading
import time
from hashlib import sha256
from pathlib import Path

import pytest

from vllm_series.errors import UsageError
from vllm_series.upstream.store import (
    ANSWERS,
    BLOBS,
    KINDS,
    WHEELS,
    Store,
    cache_limit,
    cache_root,
    open_store,
    stock_usage,
)

KEY = "0123456789abcdef"


def files(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file() and path.name != "lock"]


def age(root: Path, key: str, seconds: float) -> None:
    """Let an entry look as if it was used so long ago."""
    (path,) = root.rglob(key)
    then = time.time() - seconds
    os.utime(path, (then, then))


def test_what_is_put_is_there_for_the_next_process(tmp_path: Path) -> None:
    first = Store(tmp_path)
    digest = first.put_blob(b"text")
    first.put(ANSWERS, KEY, b"answer")
    second = Store(tmp_path)
    assert digest == sha256(b"text").hexdigest()
    assert second.blob(digest) == b"text"
    assert second.has_blob(digest)
    assert second.get(ANSWERS, KEY) == b"answer"
    assert second.get(WHEELS, KEY) is None
    assert second.blob("f" * 64) is None


def test_the_last_entry_of_a_key_wins_and_an_empty_one_is_one(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.put(ANSWERS, KEY, b"one")
    store.put(ANSWERS, KEY, b"")
    assert store.get(ANSWERS, KEY) == b""
    assert store.blob(store.put_blob(b"")) == b""


@pytest.mark.parametrize("cut", [slice(0, 0), slice(0, 5), slice(None, -1), slice(1, None)])
def test_a_damaged_entry_is_dropped(tmp_path: Path, cut: slice) -> None:
    store = Store(tmp_path)
    digest = store.put_blob(b"some text")
    store.put(ANSWERS, KEY, b"answer")
    for path in files(tmp_path):
        path.write_bytes(path.read_bytes()[cut])
    assert store.blob(digest) is None
    assert store.get(ANSWERS, KEY) is None
    assert not store.has_blob(digest)
    store.put_blob(b"some text")
    assert store.blob(digest) == b"some text"


def test_a_link_in_place_of_an_entry_is_not_followed(tmp_path: Path) -> None:
    store = Store(tmp_path / "cache")
    digest = store.put_blob(b"text")
    (place,) = files(tmp_path / "cache")
    (tmp_path / "outside").write_bytes(b"text")
    place.unlink()
    place.symlink_to(tmp_path / "outside")
    assert store.blob(digest) is None


@pytest.mark.parametrize("key", ["", "short", "../../x", "ABCDEF0123", "0" * 200, "0123456789/x"])
def test_a_key_that_is_not_hex_has_no_place(tmp_path: Path, key: str) -> None:
    store = Store(tmp_path)
    with pytest.raises(ValueError, match="no place"):
        store.put(ANSWERS, key, b"x")
    assert not files(tmp_path)


def test_entries_of_a_user_are_for_that_user_alone(tmp_path: Path) -> None:
    Store(tmp_path).put_blob(b"text")
    (place,) = files(tmp_path)
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    assert stat.S_IMODE(place.parent.stat().st_mode) == 0o700


def test_least_recently_used_entries_go_first(tmp_path: Path) -> None:
    store = Store(tmp_path, limit=10_000)
    digests = [store.put_blob(bytes([number]) * 1000) for number in range(8)]
    for number, digest in enumerate(digests):
        age(tmp_path, digest, 100_000 - number * 1000)
    store.blob(digests[0])
    removed = store.prune(4000)
    assert removed == 4000
    left = [number for number, digest in enumerate(digests) if store.has_blob(digest)]
    assert left == [0, 5, 6, 7]


def test_writing_keeps_the_cache_within_its_size(tmp_path: Path) -> None:
    store = Store(tmp_path, limit=100_000)
    for number in range(400):
        store.put_blob(number.to_bytes(4, "big") * 500)
    assert 50_000 < sum(path.stat().st_size for path in files(tmp_path)) <= 115_000
    assert store.blob(sha256((399).to_bytes(4, "big") * 500).hexdigest())


def test_a_process_that_only_adds_a_little_bounds_the_cache_too(tmp_path: Path) -> None:
    Store(tmp_path).put_blob(bytes(50_000))
    Store(tmp_path, limit=20_000).put(ANSWERS, KEY, b"x")
    assert sum(path.stat().st_size for path in files(tmp_path)) < 20_000
    assert Store(tmp_path).get(ANSWERS, KEY) == b"x"


def test_what_is_larger_than_the_cache_is_not_kept(tmp_path: Path) -> None:
    store = Store(tmp_path, limit=1000)
    assert not store.has_blob(store.put_blob(bytes(2000)))


def test_temporary_files_of_dead_processes_go_and_those_of_live_ones_stay(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.put_blob(b"text")
    (place,) = files(tmp_path)
    dead, live = place.with_name(".dead"), place.with_name(".live")
    for path in (dead, live):
        path.write_bytes(b"half")
    os.utime(dead, (1, 1))
    store.prune()
    assert not dead.exists()
    assert live.exists()
    assert [usage.entries for usage in store.usage() if usage.kind == BLOBS] == [1]


def test_clearing_a_kind_leaves_the_others(tmp_path: Path) -> None:
    store = Store(tmp_path)
    digest = store.put_blob(b"text")
    store.put(ANSWERS, KEY, b"answer")
    assert store.clear(BLOBS) == 4
    assert not store.has_blob(digest)
    assert store.get(ANSWERS, KEY) == b"answer"
    assert {usage.kind: usage.entries for usage in store.usage()} == {
        kind: int(kind == ANSWERS) for kind in KINDS
    }


def test_a_folder_that_cannot_be_written_is_said_once_and_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    said: list[str] = []
    store = Store(tmp_path / "file" / "cache", say=said.append)
    for number in range(3):
        store.put(ANSWERS, KEY, bytes([number]))
        assert store.get(ANSWERS, KEY) is None
    assert not store.has_blob(store.put_blob(b"x"))
    assert len(said) == 1
    assert "Going on without it" in said[0]
    assert not store.keeps
    assert store.prune() == 0
    assert sum(usage.entries for usage in store.usage()) == 0


def test_a_cache_that_is_off_keeps_nothing() -> None:
    store = Store(None)
    digest = store.put_blob(b"x")
    store.put(ANSWERS, KEY, b"x")
    assert store.blob(digest) is store.get(ANSWERS, KEY) is None
    assert not store.has_blob(digest)
    assert store.prune() == store.clear(BLOBS) == 0


def _work(root: str, seed: int, failures: multiprocessing.SimpleQueue[str]) -> None:
    store = Store(Path(root), limit=60_000)
    for number in range(150):
        text = (number % 40).to_bytes(2, "big") * 1000
        found = store.blob(store.put_blob(text))
        if found not in (None, text):
            failures.put(f"blob {number} of {seed}")
        store.put(ANSWERS, KEY, bytes([seed]) * 3000)
        answer = store.get(ANSWERS, KEY)
        if answer is not None and (len(answer) != 3000 or len(set(answer)) != 1):
            failures.put(f"answer {number} of {seed}")
        if number % 30 == 0:
            store.clear(BLOBS)
    failures.put("")


def test_processes_that_write_read_and_prune_at_once_see_only_whole_entries(
    tmp_path: Path,
) -> None:
    context = multiprocessing.get_context("spawn")
    failures: multiprocessing.SimpleQueue[str] = context.SimpleQueue()
    workers = [
        context.Process(target=_work, args=(str(tmp_path), seed, failures)) for seed in range(3)
    ]
    for worker in workers:
        worker.start()
    told = [failures.get() for _ in workers]
    for worker in workers:
        worker.join()
    assert told == ["", "", ""]
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    assert not [path for path in files(tmp_path) if path.name.startswith(".")]


def test_threads_share_one_store(tmp_path: Path) -> None:
    store = Store(tmp_path, limit=200_000)
    wrong: list[int] = []

    def work(seed: int) -> None:
        for number in range(100):
            text = bytes([seed]) * (1000 + number)
            if store.blob(store.put_blob(text)) not in (None, text):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_the_environment_places_and_bounds_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_SERIES_CACHE", str(tmp_path))
    assert open_store().root == tmp_path
    for text, size in (
        ("", 1 << 30),
        ("5000", 5000),
        ("2k", 2048),
        ("1.5 GiB", 3 << 29),
        ("10MB", 10 << 20),
    ):
        monkeypatch.setenv("VLLM_SERIES_CACHE_SIZE", text)
        assert cache_limit() == size
    monkeypatch.setenv("VLLM_SERIES_CACHE_SIZE", "plenty")
    with pytest.raises(UsageError, match="plenty"):
        cache_limit()
    monkeypatch.delenv("VLLM_SERIES_CACHE")
    assert cache_root().name == "vllm-series"


def test_unpacked_releases_of_the_tests_are_counted_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "stock" / "abc").mkdir(parents=True)
    (tmp_path / "stock" / "abc" / "a.py").write_bytes(bytes(5000))
    store = Store(tmp_path, limit=100)
    store.put(ANSWERS, KEY, b"x")
    for kind in KINDS:
        store.clear(kind)
    usage = stock_usage(tmp_path)
    assert (usage.entries, usage.size) == (1, 5000)
