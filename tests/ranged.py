"""A real HTTP server on this machine that serves files by ranges, well or with a chosen fault."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Fault = Callable[["Handler", bytes, "tuple[int, int] | None"], bool]
"""Told the handler, the whole file and the range that is asked for; True once it has answered."""


@dataclass
class Served:
    """What a server has and what was asked of it. `faults` are used up one a request."""

    files: dict[str, bytes] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    always: Fault | None = None
    tag: str | None = '"one"'
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    sent: int = 0
    url: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)


class Handler(BaseHTTPRequestHandler):
    """Answers GET with or without one range."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    served: Served

    def do_GET(self) -> None:
        served = self.served
        wanted = self.headers.get("Range")
        with served.lock:
            served.requests.append((self.path, wanted))
            fault = served.faults.pop(0) if served.faults else served.always
        data = served.files.get(self.path)
        if data is None:
            self.answer(404, b"")
            return
        part = _part(wanted, len(data))
        if fault and fault(self, data, part):
            return
        if self.headers.get("If-Range") not in (None, served.tag):
            part = None
        if part is None:
            self.answer(200, data, {"Content-Type": served.types.get(self.path, "text/html")})
        else:
            self.partial(data, part)

    def partial(self, data: bytes, part: tuple[int, int]) -> None:
        """These bytes, as a server does that knows ranges."""
        start, stop = part
        told = {"Content-Range": f"bytes {start}-{stop - 1}/{len(data)}"}
        self.answer(206, data[start:stop], told)

    def answer(
        self,
        status: int,
        body: bytes,
        headers: dict[str, str] | None = None,
        cut: int | None = None,
    ) -> None:
        """One answer; with `cut`, no more than so many bytes of it and then nothing."""
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        if self.served.tag:
            self.send_header("ETag", self.served.tag)
        self.end_headers()
        body = body[:cut]
        self.wfile.write(body)
        with self.served.lock:
            self.served.sent += len(body)
        if cut is not None:
            self.close_connection = True

    def log_message(self, *_words: object) -> None:
        """Silence."""


def _part(wanted: str | None, length: int) -> tuple[int, int] | None:
    found = re.match(r"bytes=(\d*)-(\d*)$", wanted or "")
    if not found:
        return None
    if not found[1]:
        return max(0, length - int(found[2])), length
    return int(found[1]), min(int(found[2] or length - 1) + 1, length)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_words: object) -> None:
        """A client that leaves midway is what some tests are about."""


@contextmanager
def server() -> Iterator[Served]:
    """A server on a free port until the block ends."""
    served = Served()
    handler = type("Bound", (Handler,), {"served": served})
    running = _Server(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=running.serve_forever, args=(0.05,))
    thread.start()
    served.url = f"http://127.0.0.1:{running.server_address[1]}"
    try:
        yield served
    finally:
        running.shutdown()
        thread.join()
        running.server_close()


def without_ranges(handler: Handler, data: bytes, _part: tuple[int, int] | None) -> bool:
    """The whole file, whatever was asked for."""
    handler.answer(200, data)
    return True


def status(code: int, **headers: str) -> Fault:
    """An answer of this status and no body."""

    def fault(handler: Handler, _data: bytes, _part: tuple[int, int] | None) -> bool:
        handler.answer(code, b"", {name.replace("_", "-"): word for name, word in headers.items()})
        return True

    return fault


def dropped(handler: Handler, data: bytes, part: tuple[int, int] | None) -> bool:
    """Half of the answer, then the connection ends."""
    start, stop = part or (0, len(data))
    told = {"Content-Range": f"bytes {start}-{stop - 1}/{len(data)}"}
    handler.answer(206, data[start:stop], told, cut=(stop - start) // 2)
    return True


def elsewhere(handler: Handler, data: bytes, part: tuple[int, int] | None) -> bool:
    """Other bytes than those asked for, honestly labelled."""
    start, stop = part or (0, len(data))
    handler.partial(data, (start - 1, stop - 1))
    return True


def passed(_handler: Handler, _data: bytes, _part: tuple[int, int] | None) -> bool:
    """No fault this time."""
    return False
