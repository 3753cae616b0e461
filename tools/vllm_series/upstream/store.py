"""The content cache: what was read or worked out once, on disk, for every process of this user.

A cache may be deleted, damaged, full or shared at any moment and must never be the reason why an
answer is wrong or missing: every entry is held against its digest when it is read, what does not
hold is dropped, a file that vanished was never there, and a folder that cannot be written makes the
tool slower, not useless. Entries are written beside their place and renamed into it, so that no
reader sees half of one. The least recently used go first once there is too much.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from vllm_series.errors import EnvironmentRefusedError, UsageError

BLOBS = "blobs"
"""Files of releases, by the SHA-256 of their bytes."""
WHEELS = "wheels"
"""Tables of wheels (`table`)."""
ANSWERS = "answers"
"""What `check` worked out of a patch and the blobs that it touches."""
LISTS = "lists"
"""What an index, a folder, an archive or a repository holds."""
KINDS = (BLOBS, WHEELS, LISTS, ANSWERS)
STOCK = "stock"
"""A folder of the same cache that the tests of this project keep; counted, never touched."""

LIMIT = 1 << 30
"""Bytes, unless `VLLM_SERIES_CACHE_SIZE` says otherwise."""

_FRESH = 3600
"""Seconds for which an entry counts as just used, so that reading rarely writes a time."""
_ABANDONED = 3600
"""Seconds after which a temporary file belongs to a process that died."""
_SCAN_AFTER = 64 << 20
_KEY = re.compile(r"[0-9a-f]{8,128}$")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?$", re.IGNORECASE)
_FACTORS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


@dataclass(frozen=True, slots=True)
class Usage:
    """What one kind of entries takes: how many, and their bytes."""

    kind: str
    entries: int
    size: int


def cache_root() -> Path:
    """The folder of the cache: `VLLM_SERIES_CACHE`, else the platform's for this user."""
    override = os.environ.get("VLLM_SERIES_CACHE")
    if override:
        return Path(override).expanduser()
    import platformdirs

    return Path(platformdirs.user_cache_dir("vllm-series"))


def cache_limit() -> int:
    """Bytes that the cache may take: `VLLM_SERIES_CACHE_SIZE` (`500M`, `2G`, or bytes), else 1 GiB.

    Raises UsageError for a size that cannot be read.
    """
    text = os.environ.get("VLLM_SERIES_CACHE_SIZE", "").strip()
    if not text:
        return LIMIT
    found = _SIZE.match(text)
    if not found:
        raise UsageError(
            f"VLLM_SERIES_CACHE_SIZE is not a size: {text!r}. Set it to one such as 500M or 2G."
        )
    return int(float(found[1]) * _FACTORS[found[2].lower()])


class Store:
    """The cache in one folder; safe for threads and for concurrent processes.

    A `root` of None is a cache that keeps nothing. `say` is told once if the folder cannot be
    written.
    """

    def __init__(
        self,
        root: Path | None,
        limit: int = LIMIT,
        say: Callable[[str], None] = lambda _message: None,
    ) -> None:
        self._root = root
        self._limit = limit
        self._say = say
        self._is_written = root is not None
        self._lock = threading.Lock()
        self._written: int | None = None

    @property
    def root(self) -> Path | None:
        """The folder."""
        return self._root

    @property
    def limit(self) -> int:
        """Bytes that it may take."""
        return self._limit

    @property
    def keeps(self) -> bool:
        """Whether what is put can be expected to be there later."""
        return self._is_written

    # -- entries ----------------------------------------------------------------------------------

    def blob(self, digest: str) -> bytes | None:
        """The bytes with this hex SHA-256, None where they are not kept."""
        data = self._read(BLOBS, digest)
        if data is not None and sha256(data).hexdigest() != digest:
            self._drop(BLOBS, digest)
            return None
        return data

    def has_blob(self, digest: str) -> bool:
        """Whether a blob is kept, without reading it."""
        return self._root is not None and Path(self._place(BLOBS, digest)).exists()

    def put_blob(self, data: bytes) -> str:
        """Keep bytes by their hex SHA-256, which is returned."""
        digest = sha256(data).hexdigest()
        self._write(BLOBS, digest, data)
        return digest

    def get(self, kind: str, key: str) -> bytes | None:
        """The bytes put under a kind and a key in hex; None where there are none."""
        raw = self._read(kind, key)
        if raw is None:
            return None
        data = raw[32:]
        if sha256(data).digest() != raw[:32]:
            self._drop(kind, key)
            return None
        return data

    def put(self, kind: str, key: str, data: bytes) -> None:
        """Keep bytes under a kind and a key in hex (8 to 128 digits); the last one wins."""
        self._write(kind, key, sha256(data).digest() + data)

    def _place(self, kind: str, key: str) -> str:
        assert self._root is not None
        if kind not in KINDS or not _KEY.match(key):
            raise ValueError(f"no place for {kind} {key!r}")
        return f"{self._root}/{kind}/{key[:2]}/{key}"

    def _read(self, kind: str, key: str) -> bytes | None:
        if self._root is None:
            return None
        try:
            descriptor = os.open(self._place(kind, key), os.O_RDONLY | os.O_NOFOLLOW)
        except OSError:
            return None
        try:
            found = os.fstat(descriptor)
            data = b"".join(iter(lambda: os.read(descriptor, found.st_size + 1), b""))
            if time.time() - found.st_mtime > _FRESH:
                with contextlib.suppress(OSError):
                    os.utime(descriptor)
            return data
        except OSError:
            return None
        finally:
            os.close(descriptor)

    def _drop(self, kind: str, key: str) -> None:
        with contextlib.suppress(OSError):
            Path(self._place(kind, key)).unlink()

    def _write(self, kind: str, key: str, data: bytes) -> None:
        if not self._is_written or len(data) > self._limit:
            return
        import tempfile

        place = Path(self._place(kind, key))
        try:
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor, name = tempfile.mkstemp(dir=place.parent, prefix=".")
            scratch = Path(name)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(data)
                scratch.replace(place)
            except BaseException:
                scratch.unlink(missing_ok=True)
                raise
        except OSError as error:
            with self._lock:
                told, self._is_written = not self._is_written, False
            if not told:
                self._say(
                    f"the cache cannot be written: {self._root}: {error.strerror}. "
                    "Going on without it; VLLM_SERIES_CACHE moves it."
                )
            return
        self._bound(len(data))

    # -- size -------------------------------------------------------------------------------------

    def _bound(self, size: int) -> None:
        """Count what was written; look at the folder at the first entry and then now and again."""
        with self._lock:
            is_first = self._written is None
            self._written = (self._written or 0) + size
            if not is_first and self._written < min(_SCAN_AFTER, self._limit // 8):
                return
            self._written = 0
        self.prune()

    def prune(self, limit: int | None = None) -> int:
        """Remove the least recently used entries until no more than `limit` bytes are left (the
        store's own where None), and what dead processes left. Gives the bytes removed."""
        most = self._limit if limit is None else limit
        with self._locked() as is_mine:
            if not is_mine:
                return 0
            entries = list(self._entries())
            total = sum(entry.size for entry in entries)
            removed = 0
            now = time.time()
            for entry in entries:
                if entry.is_scratch and now - entry.used > _ABANDONED:
                    removed += _removed(entry)
            if total - removed > most:
                # A little more than needed, so that the next entry does not bring this back.
                goal = most * 9 // 10 if limit is None else most
                for entry in sorted(entries, key=lambda entry: entry.used):
                    if total - removed <= goal:
                        break
                    if not entry.is_scratch:
                        removed += _removed(entry)
            return removed

    def usage(self) -> tuple[Usage, ...]:
        """What each kind takes, in the order of `KINDS`."""
        entries = [entry for entry in self._entries() if not entry.is_scratch]
        return tuple(
            Usage(
                kind,
                sum(entry.kind == kind for entry in entries),
                sum(entry.size for entry in entries if entry.kind == kind),
            )
            for kind in KINDS
        )

    def clear(self, kind: str) -> int:
        """Remove every entry of a kind. Gives the bytes removed.

        Raises EnvironmentRefusedError where the folder does not let them go.
        """
        removed = 0
        with self._locked(wait=True):
            for entry in self._entries():
                if entry.kind == kind:
                    try:
                        Path(entry.path).unlink()
                        removed += entry.size
                    except FileNotFoundError:
                        pass
                    except OSError as error:
                        raise EnvironmentRefusedError(
                            f"the cache cannot be emptied: {entry.path}: {error.strerror}. "
                            "Check who owns the folder."
                        ) from error
        return removed

    def _entries(self) -> Iterator[_Entry]:
        for kind in KINDS if self._root is not None else ():
            for shard in _scanned(f"{self._root}/{kind}"):
                if shard.is_dir(follow_symlinks=False):
                    for file in _scanned(shard.path):
                        with contextlib.suppress(OSError):
                            found = file.stat(follow_symlinks=False)
                            yield _Entry(
                                kind,
                                file.path,
                                found.st_size,
                                found.st_mtime,
                                file.name.startswith("."),
                            )

    @contextlib.contextmanager
    def _locked(self, wait: bool = False) -> Iterator[bool]:
        """Hold the cache's lock; False where another process prunes at this moment."""
        try:
            if self._root is None:
                raise FileNotFoundError
            descriptor = os.open(self._root / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError:
            yield False
            return
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                yield False
            else:
                yield True
        finally:
            os.close(descriptor)


def open_store(say: Callable[[str], None] = lambda _message: None) -> Store:
    """The cache of this user, as the environment places and bounds it."""
    return Store(cache_root(), cache_limit(), say)


def stock_usage(root: Path) -> Usage:
    """What the unpacked releases of the tests take; the store itself leaves them alone."""
    sizes = [
        (Path(folder) / name).lstat().st_size
        for folder, _, names in os.walk(root / STOCK)
        for name in names
    ]
    return Usage(STOCK, len(sizes), sum(sizes))


@dataclass(frozen=True, slots=True)
class _Entry:
    kind: str
    path: str
    size: int
    used: float
    is_scratch: bool


def _removed(entry: _Entry) -> int:
    try:
        Path(entry.path).unlink()
    except OSError:
        return 0
    return entry.size


def _scanned(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []
