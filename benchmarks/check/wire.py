"""Bytes over the wire: a mirror of the index that counts, and what no reader can do without.

The mirror stands between the tool and the index as any proxy would: it serves the project's page
with its own addresses for the files, passes ranges on, and counts the bodies of its answers. What
cannot be done without is read here by other means than the tool's own, from the same wheels: their
central directories, RECORD (the tool holds every member against it), and the touched members.
"""

from __future__ import annotations

import io
import json
import threading
import zipfile
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import requests

INDEX = "https://pypi.org/simple"
_JSON = "application/vnd.pypi.simple.v1+json"
_TAIL = 1 << 16
_LOCAL_HEADER = 30
"""Bytes in front of a member, without its name and extra field (APPNOTE.TXT, 4.3.7)."""


@dataclass
class Counter:
    """What the mirror has sent: requests and bytes of bodies, page and files apart.

    `files` are the names of those that were asked for.
    """

    requests: int = 0
    page_bytes: int = 0
    file_bytes: int = 0
    files: set[str] = field(default_factory=set)


@contextmanager
def mirror() -> Iterator[tuple[str, Counter]]:
    """A counting mirror of the index on a free port; its address and its counter."""
    counter, lock, local = Counter(), threading.Lock(), threading.local()
    page = requests.get(f"{INDEX}/vllm/", headers={"Accept": _JSON}, timeout=60)
    page.raise_for_status()
    project = page.json()
    files = {file["filename"]: file["url"] for file in project["files"]}

    def session() -> requests.Session:
        if not hasattr(local, "session"):
            local.session = requests.Session()
        opened: requests.Session = local.session
        return opened

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            where, _, name = self.path.rstrip("/").rpartition("/")
            if name == "vllm":
                body = json.dumps(project).encode()
                with lock:
                    counter.page_bytes += len(body)
                self.answer(200, body, {"Content-Type": _JSON})
            elif where == "/files" and name in files:
                self.forward(name)
            else:
                self.answer(404, b"", {})

        do_HEAD = do_GET  # noqa: N815

        def forward(self, name: str) -> None:
            asked = self.headers.get("Range")
            got = session().request(
                self.command,
                files[name],
                headers={"Accept-Encoding": "identity", **({"Range": asked} if asked else {})},
                timeout=60,
            )
            with lock:
                counter.files.add(name)
                counter.file_bytes += len(got.content)
            kept = ("Content-Range", "Accept-Ranges", "ETag", "Last-Modified")
            headers = {key: got.headers[key] for key in kept if key in got.headers}
            self.answer(got.status_code, got.content, headers)

        def answer(self, code: int, body: bytes, headers: Mapping[str, str]) -> None:
            with lock:
                counter.requests += 1
            self.send_response(code)
            for key, value in headers.items():
                self.send_header(key, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    address = f"http://127.0.0.1:{server.server_address[1]}"
    for file in project["files"]:
        file["url"] = f"{address}/files/{file['filename']}"
        for key in ("core-metadata", "data-dist-info-metadata"):
            file.pop(key, None)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"{address}/simple", counter
    finally:
        server.shutdown()
        server.server_close()


@dataclass(frozen=True, slots=True)
class Needed:
    """Bytes that a reader of some wheels cannot do without."""

    directories: int
    records: int
    members: int
    archives: int

    @property
    def total(self) -> int:
        """All of it."""
        return self.directories + self.records + self.members + self.archives


def needed(names: Collection[str], paths: Collection[str]) -> Needed:
    """Central directories, RECORD and the members at `paths`, compressed, of the wheels among these
    files; of source archives, which the first releases have only, the whole file."""
    page = requests.get(f"{INDEX}/vllm/", headers={"Accept": _JSON}, timeout=60)
    page.raise_for_status()
    files = [file for file in page.json()["files"] if file["filename"] in names]
    urls = [file["url"] for file in files if file["filename"].endswith(".whl")]
    archives = sum(file["size"] for file in files if not file["filename"].endswith(".whl"))
    with ThreadPoolExecutor(8) as pool:
        each = list(pool.map(lambda url: _of_wheel(url, paths), urls))
    directories, records, members = (sum(column) for column in zip(*each, strict=True))
    return Needed(directories, records, members, archives)


def _of_wheel(url: str, paths: Collection[str]) -> tuple[int, int, int]:
    with zipfile.ZipFile(_Remote(url)) as wheel:
        infos = wheel.infolist()
        end = wheel.fp.size if isinstance(wheel.fp, _Remote) else 0
        records = [info for info in infos if info.filename.endswith(".dist-info/RECORD")]
        touched = [info for info in infos if info.filename in paths]
        return end - wheel.start_dir, sum(map(_stored, records)), sum(map(_stored, touched))


def _stored(info: zipfile.ZipInfo) -> int:
    return _LOCAL_HEADER + len(info.filename.encode()) + info.compress_size


class _Remote(io.RawIOBase):
    """A file behind an address, read by ranges; as much as `zipfile` needs."""

    def __init__(self, url: str) -> None:
        self._session = requests.Session()
        self._url = url
        tail = self._session.get(url, headers={"Range": f"bytes=-{_TAIL}"}, timeout=60)
        tail.raise_for_status()
        self.size = int(tail.headers["Content-Range"].rpartition("/")[2])
        self._tail = tail.content
        self._at = 0

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + (0, self._at, self.size)[whence]
        return self._at

    def read(self, size: int = -1) -> bytes:
        start, stop = self._at, self.size if size < 0 else min(self.size, self._at + size)
        self._at = stop
        if start >= stop:
            return b""
        first = self.size - len(self._tail)
        if start >= first:
            return self._tail[start - first : stop - first]
        got = self._session.get(
            self._url, headers={"Range": f"bytes={start}-{stop - 1}"}, timeout=60
        )
        got.raise_for_status()
        return got.content
