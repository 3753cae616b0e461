"""Digests of a folder's files: of every file, and never one that is out of date."""

from __future__ import annotations

import json
import os
import time
from hashlib import sha256
from pathlib import Path

import pytest

from vllm_series.cli import program
from vllm_series.upstream.digests import digests
from vllm_series.upstream.store import LISTS, Store

CONFIG = "vllm/config/tuned.json"
FILES = {
    "vllm/__init__.py": b"",
    "vllm/_version.py": b"__version__ = '0.33.0'\n",
    "vllm/engine.py": b"def run():\n    return 1\n",
    CONFIG: b'{\n  "width": 1\n}\n',
    "vllm/_C.abi3.so": b"\x7fELF one",
}
MINUTE = 60_000_000_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "site-packages"
    for path, text in FILES.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_bytes(text)
    return place


def later() -> int:
    """A time at which all that is on disk by now counts as settled."""
    return time.time_ns() + MINUTE


def of(text: bytes) -> str:
    return sha256(text).hexdigest()


def rewritten(file: Path, text: bytes) -> None:
    """Other bytes in the same file, under the time stamp of before."""
    before = file.stat()
    with file.open("r+b") as opened:
        opened.truncate(0)
        opened.write(text)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_every_regular_file_has_its_digest(folder: Path) -> None:
    (folder / "vllm/__pycache__").mkdir()
    (folder / "vllm/__pycache__/engine.cpython-311.pyc").write_bytes(b"x")
    (folder / "vllm/link.py").symlink_to(folder / "vllm/engine.py")
    (folder / "vllm/linked").symlink_to(folder / "vllm/config")
    os.mkfifo(folder / "vllm/pipe.py")
    (folder / "other.py").write_bytes(b"x")
    assert digests(str(folder), Store(None)) == {path: of(text) for path, text in FILES.items()}


def test_a_file_that_is_as_it_was_is_not_read_again(folder: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "cache")
    first = digests(str(folder), store, later())
    key = next((tmp_path / "cache" / LISTS).rglob("[0-9a-f]*/[0-9a-f]*")).name
    kept = store.get(LISTS, key)
    assert kept is not None
    # What the cache holds is what is answered, so nothing else was asked.
    store.put(LISTS, key, kept.replace(first["vllm/engine.py"].encode(), b"0" * 64))
    assert digests(str(folder), store, later()) == {**first, "vllm/engine.py": "0" * 64}


@pytest.mark.parametrize("path", ["vllm/engine.py", CONFIG, "vllm/_C.abi3.so"])
def test_a_changed_file_has_another_digest(folder: Path, tmp_path: Path, path: str) -> None:
    store = Store(tmp_path / "cache")
    first = digests(str(folder), store, later())
    rewritten(folder / path, FILES[path].replace(b"1", b"2").replace(b"one", b"two"))
    second = digests(str(folder), store, later())
    assert {name for name in first if first[name] != second[name]} == {path}
    (folder / path).unlink()
    assert path not in digests(str(folder), store, later())


@pytest.mark.parametrize("path", ["vllm/engine.py", "vllm/_C.abi3.so"])
def test_what_was_just_changed_is_read_again(folder: Path, tmp_path: Path, path: str) -> None:
    store = Store(tmp_path / "cache")
    for number in range(20):
        # As often as the clock of the disk may stand still.
        text = b"%02d" % number
        rewritten(folder / path, text)
        assert digests(str(folder), store)[path] == of(text)


def test_a_damaged_list_of_digests_is_made_anew(folder: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "cache")
    first = digests(str(folder), store, later())
    file = next((tmp_path / "cache" / LISTS).rglob("[0-9a-f]*/[0-9a-f]*"))
    file.write_bytes(file.read_bytes()[:-5])
    assert digests(str(folder), store, later()) == first


def test_check_sees_that_a_file_of_another_kind_was_changed(
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("VLLM_SERIES_CACHE", str(tmp_path / "cache"))
    patch = tmp_path / "width.diff"
    patch.write_bytes(
        b"diff --git a/%(path)s b/%(path)s\n--- a/%(path)s\n+++ b/%(path)s\n"
        b'@@ -1,3 +1,3 @@\n {\n-  "width": 1\n+  "width": 2\n }\n' % {b"path": CONFIG.encode()}
    )
    words = ["check", "--patch", str(patch), "--source", f"dir:{folder}", "--json", "-q"]

    def verdict() -> str:
        program.main(words, standalone_mode=False)
        answer = json.loads(capsys.readouterr().out)
        return str(answer["releases"][0]["patches"][0]["verdict"])

    assert verdict() == "exact"
    (folder / CONFIG).write_bytes(b'{\n  "width": 8\n}\n')
    assert verdict() == "drifted"
