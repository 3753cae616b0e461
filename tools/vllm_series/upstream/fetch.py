"""Bytes of a file on a server or a disk, by ranges: the one place that trusts no answer.

What a range request brings is held against what was asked for and against every answer before it:
the place, the length of the whole file, its entity tag. A server that does not know ranges is read
as a whole, once, and held against the digest that the index names
(https://www.rfc-editor.org/rfc/rfc9110.html#name-range-requests). Ranges are half open, in bytes
from 0.
"""

from __future__ import annotations

import os
import re
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol

from vllm_series.errors import EnvironmentRefusedError

if TYPE_CHECKING:
    import requests

    from vllm_series.upstream.http import IndexSession

Range = tuple[int, int]
"""Start and stop."""

GAP = 8 * 1024
"""Bytes that are fetched for nothing rather than asking once more: about what one more request and
its answer cost on the wire and in waiting."""

_CHUNK = 256 * 1024
_LONGEST_WAIT = 30.0
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)$")


class Source(Protocol):
    """One file that can be read by ranges; safe for threads."""

    @property
    def length(self) -> int:
        """Bytes of the whole file."""

    def tail(self, size: int) -> bytes:
        """The last `size` bytes, the whole of a shorter file."""

    def read(self, start: int, stop: int) -> bytes:
        """Exactly these bytes. Raises EnvironmentRefusedError where they cannot be had."""

    def close(self) -> None:
        """Give back what the source holds open; a later `read` opens it anew."""


def merged(ranges: Sequence[Range], gap: int = GAP) -> list[Range]:
    """The ranges in order, those joined that lie no further apart than `gap` bytes."""
    out: list[Range] = []
    for start, stop in sorted(ranges):
        if out and start <= out[-1][1] + gap:
            out[-1] = (out[-1][0], max(out[-1][1], stop))
        else:
            out.append((start, stop))
    return out


class FileSource:
    """A file on this machine. `name` is what messages call it."""

    def __init__(self, path: Path, name: str) -> None:
        self._path = path
        self._name = name
        self._state: tuple[int, int, int] | None = None

    @property
    def length(self) -> int:
        """Bytes of the file."""
        with self._opened() as file:
            return os.fstat(file.fileno()).st_size

    def tail(self, size: int) -> bytes:
        """The last bytes."""
        length = self.length
        return self.read(max(0, length - size), length)

    def read(self, start: int, stop: int) -> bytes:
        """These bytes; notices a file that another took the place of meanwhile."""
        with self._opened() as file:
            file.seek(start)
            data = file.read(stop - start)
        if len(data) != stop - start:
            raise EnvironmentRefusedError(
                f"{self._name} ends before byte {stop}. Get the file again."
            )
        return data

    def _opened(self) -> IO[bytes]:
        try:
            file = self._path.open("rb")
        except OSError as error:
            raise EnvironmentRefusedError(
                f"{self._path} cannot be read: {error.strerror}. Check the folder of wheels."
            ) from error
        found = os.fstat(file.fileno())
        state = (found.st_ino, found.st_size, found.st_mtime_ns)
        if self._state not in (None, state):
            file.close()
            raise EnvironmentRefusedError(f"{self._path} was changed meanwhile. Try again.")
        self._state = state
        return file

    def close(self) -> None:
        """Nothing is held open."""


@dataclass(frozen=True, slots=True)
class Remote:
    """A file on a server as the index lists it. `length` in bytes and `sha256` in hex are None
    where the index does not tell."""

    url: str
    name: str
    length: int | None = None
    sha256: str | None = None


class HttpSource:
    """A file on a server.

    `count` is told the bytes of every answer's body, `say` what a user should know, and `stop` ends
    every wait once it is set.
    """

    def __init__(
        self,
        remote: Remote,
        session: IndexSession,
        *,
        say: Callable[[str], None],
        count: Callable[[int], None] = lambda _bytes: None,
        stop: threading.Event | None = None,
    ) -> None:
        self._remote = remote
        self._session = session
        self._say = say
        self._count = count
        self._stop = stop or threading.Event()
        self._lock = threading.RLock()
        self._length = remote.length
        self._tag: str | None = None
        self._has_ranges = False
        self._whole: IO[bytes] | None = None

    @property
    def length(self) -> int:
        """Bytes of the whole file, as the index or the server says."""
        if self._length is None:
            self.tail(1)
        assert self._length is not None
        return self._length

    def tail(self, size: int) -> bytes:
        """The last `size` bytes."""
        if self._length is not None:
            return self.read(max(0, self._length - size), self._length)
        return self._fetch(None, size)

    def read(self, start: int, stop: int) -> bytes:
        """Exactly these bytes.

        Raises EnvironmentRefusedError where the server does not give them, gives others, or serves
        another file than before.
        """
        if not 0 <= start <= stop <= self.length:
            raise EnvironmentRefusedError(
                f"{self._remote.name}: bytes {start} to {stop} lie outside the file of "
                f"{self.length}. The archive is damaged; report it to the index."
            )
        return self._fetch(start, stop) if stop > start else b""

    def close(self) -> None:
        """Drop a file that was read as a whole."""
        with self._lock:
            if self._whole:
                self._whole.close()
                self._whole = None

    def _fetch(self, start: int | None, stop: int) -> bytes:
        """Bytes from `start` on; without a start, the last `stop` bytes.

        The session tries again where the server does not answer well; here it is for an answer
        that breaks off or is not what was asked for.
        """
        for attempt in range(self._session.settings.retries + 1):
            with self._lock:
                if self._whole:
                    return _part(self._whole, start, stop)
            if attempt:
                self._stop.wait(min(0.25 * 2**attempt, _LONGEST_WAIT))
            if self._stop.is_set():
                raise self._refused("interrupted")
            try:
                return self._once(start, stop)
            except _AgainError as error:
                fault = error.fault
        raise fault

    def _once(self, start: int | None, stop: int) -> bytes:
        import requests
        import urllib3

        from vllm_series.upstream.http import failure

        wanted = f"-{stop}" if start is None else f"{start}-{stop - 1}"
        headers = {"Range": f"bytes={wanted}", "Accept-Encoding": "identity"}
        if self._tag:
            headers["If-Range"] = self._tag
        url, name = self._remote.url, self._remote.name
        try:
            answer = self._session.get(url, headers=headers, stream=True)
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
            raise failure(error, url, name) from error
        with answer:
            try:
                return self._taken(answer, start, stop)
            except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
                raise _AgainError(failure(error, url, name)) from error

    def _taken(self, answer: requests.Response, start: int | None, stop: int) -> bytes:
        from vllm_series.upstream.http import refusal

        status = answer.status_code
        if status == 416:
            raise self._refused("it is shorter than the index says")
        if status not in (200, 206):
            raise refusal(answer, self._remote.name)
        if answer.headers.get("Content-Encoding", "identity") != "identity":
            raise self._refused("the server sends it in another encoding than its own")
        tag = answer.headers.get("ETag")
        strong = tag if tag and not tag.startswith("W/") else None
        if self._tag and strong and strong != self._tag:
            raise self._changed()
        if status == 200:
            if self._has_ranges:
                raise self._changed()
            return self._all_of_it(answer, start, stop)
        first, last, total = self._answered(answer)
        with self._lock:
            if self._length is None:
                self._length = total
            if total != self._length:
                raise self._refused(f"the server has {total} bytes, the index {self._length}")
            self._tag = self._tag or strong
            self._has_ranges = True
        begin = max(0, total - stop) if start is None else start
        end = total if start is None else stop
        if (first, last + 1) != (begin, end):
            raise self._again(
                f"the server answers bytes {first}-{last} instead of {begin}-{end - 1}"
            )
        data = b"".join(self._chunks(answer, end - begin))
        if len(data) != end - begin:
            raise self._again(f"the server ended after {len(data)} of {end - begin} bytes")
        return data

    def _answered(self, answer: requests.Response) -> tuple[int, int, int]:
        found = _CONTENT_RANGE.match(answer.headers.get("Content-Range", ""))
        if not found or found[3] == "*":
            raise self._refused(
                f"the server does not say what part it sends: "
                f"{answer.headers.get('Content-Range', 'no Content-Range')[:80]!r}"
            )
        return int(found[1]), int(found[2]), int(found[3])

    def _chunks(self, answer: requests.Response, size: int) -> Iterator[bytes]:
        """The body, never more than `size` bytes of it."""
        left = size
        while left and not self._stop.is_set():
            data = answer.raw.read(min(left, _CHUNK), decode_content=False)
            if not data:
                return
            self._count(len(data))
            left -= len(data)
            yield data

    def _all_of_it(self, answer: requests.Response, start: int | None, stop: int) -> bytes:
        size = self._length
        if size is None:
            told = answer.headers.get("Content-Length", "")
            if not told.isdigit():
                raise self._refused("neither the index nor the server says how long it is")
            size = int(told)
        if answer.headers.get("Content-Length", str(size)) != str(size):
            raise self._refused(
                f"the server has {answer.headers['Content-Length']} bytes, the index {size}"
            )
        with self._lock:
            if self._whole:
                return _part(self._whole, start, stop)
            self._say(
                f"{self._remote.name}: the server does not give parts of a file; "
                f"reading all {size / 1e6:.0f} MB of it."
            )
            file = tempfile.TemporaryFile(prefix="vllm-series-")  # noqa: SIM115 (kept open)
            try:
                digest = sha256()
                for chunk in self._chunks(answer, size):
                    file.write(chunk)
                    digest.update(chunk)
                if file.tell() != size:
                    raise self._again(f"the server ended after {file.tell()} of {size} bytes")
                if self._remote.sha256 not in (None, digest.hexdigest()):
                    raise self._refused("its bytes are not those that the index names")
                file.flush()
            except BaseException:
                file.close()
                raise
            self._whole, self._length = file, size
            return _part(file, start, stop)

    def _again(self, reason: str) -> _AgainError:
        return _AgainError(self._refused(reason))

    def _changed(self) -> EnvironmentRefusedError:
        return self._refused("the server changed it while it was read")

    def _refused(self, reason: str) -> EnvironmentRefusedError:
        return EnvironmentRefusedError(
            f"{self._remote.name} cannot be read: {reason}. Try again, or another index."
        )


class _AgainError(Exception):
    """A fault that may pass; `fault` is what to raise where it does not."""

    def __init__(self, fault: EnvironmentRefusedError) -> None:
        super().__init__(str(fault))
        self.fault = fault


def _part(file: IO[bytes], start: int | None, stop: int) -> bytes:
    length = os.fstat(file.fileno()).st_size
    begin, end = (max(0, length - stop), length) if start is None else (start, stop)
    return os.pread(file.fileno(), end - begin, begin)
