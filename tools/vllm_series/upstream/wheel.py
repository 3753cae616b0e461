"""A release as its wheel on the index holds it, read without fetching the whole wheel."""

from __future__ import annotations

import io
import threading
import zipfile
from base64 import urlsafe_b64decode
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_series.errors import EnvironmentRefusedError
from vllm_series.record import rows
from vllm_series.trees import PACKAGE

if TYPE_CHECKING:
    from vllm_series.upstream.catalog import Release

_TAIL = 800_000


class _Ranged(io.RawIOBase):
    def __init__(self, url: str, size: int) -> None:
        import requests

        self._session, self._url, self._size, self._at = requests.Session(), url, size, 0
        self._start = max(0, size - _TAIL)
        self._tail = self._fetch(self._start, size)

    def _fetch(self, start: int, stop: int) -> bytes:
        import requests

        try:
            answer = self._session.get(
                self._url, headers={"Range": f"bytes={start}-{stop - 1}"}, timeout=60
            )
            answer.raise_for_status()
        except requests.RequestException as error:
            raise EnvironmentRefusedError(f"{self._url} cannot be read: {error}.") from error
        return answer.content

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> bytes:
        stop = self._size if size < 0 else min(self._size, self._at + size)
        start, self._at = self._at, max(stop, self._at)
        if start >= stop:
            return b""
        if start >= self._start:
            return self._tail[start - self._start : stop - self._start]
        # A local header and its member in one request.
        return self._fetch(start, stop)


class WheelTree:
    """The files of one wheel."""

    def __init__(self, release: Release, url: str) -> None:
        self._release = release
        self._url = url
        self._lock = threading.RLock()
        self._zip: zipfile.ZipFile | None = None
        self._listing: dict[str, str] = {}
        self._texts: dict[str, bytes] = {}

    @property
    def label(self) -> str:
        """The wheel's name."""
        return f"vllm {self._release.version} ({self._release.wheel})"

    @property
    def version(self) -> str | None:
        """The release."""
        return self._release.version

    @property
    def release(self) -> str:
        """The release."""
        return self._release.version

    @property
    def identity(self) -> str:
        """The wheel's SHA-256."""
        return self._release.sha256 or ""

    def _open(self) -> zipfile.ZipFile:
        with self._lock:
            if self._zip is None:
                file = _Ranged(self._url, self._release.size or 0)
                self._zip = zipfile.ZipFile(file)
                name = next(n for n in self._zip.namelist() if n.endswith(".dist-info/RECORD"))
                for path, (digest, _) in rows(self._zip.read(name), Path(name)).items():
                    if path.startswith(f"{PACKAGE}/"):
                        raw = urlsafe_b64decode(digest.partition("=")[2] + "==")
                        self._listing[path] = raw.hex()
            return self._zip

    def read(self, path: str) -> bytes | None:
        """The whole file, None where there is none."""
        with self._lock:
            if path not in self.listing():
                return None
            if path not in self._texts:
                text = self._open().read(path)
                if sha256(text).hexdigest() != self._listing[path]:
                    raise EnvironmentRefusedError(f"{path} of {self.label} is not as RECORD says.")
                self._texts[path] = text
            return self._texts[path]

    def mode(self, path: str) -> int | None:
        """The permission bits."""
        if path not in self.listing():
            return None
        return (self._open().getinfo(path).external_attr >> 16) & 0o777 or 0o644

    def listing(self) -> Mapping[str, str]:
        """Every file under `vllm/` with its SHA-256, as RECORD says."""
        self._open()
        return self._listing
