"""One way to ask a server: what is tried again, what is refused, what is never shown."""

from __future__ import annotations

import os
import ssl
import subprocess
import threading
from base64 import b64decode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ranged import Fault, Handler, Served, server, status
from vllm_series.errors import EnvironmentRefusedError
from vllm_series.upstream.http import Fetched, fetch, open_session
from vllm_series.upstream.settings import IndexSettings


@pytest.fixture
def served() -> Iterator[Served]:
    with server() as running:
        running.files["/page"] = b"<html></html>"
        yield running


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No proxy and no netrc of this user."""
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))


def get(url: str, limit: int = 1 << 20, **settings: object) -> Fetched:
    with open_session(IndexSettings(**{"retries": 2, **settings})) as session:  # type: ignore[arg-type]
        return fetch(session, url, "the page", limit=limit)


def heard(headers: list[dict[str, str]]) -> Fault:
    """Notes the headers of every request."""

    def fault(handler: Handler, _data: bytes, _part: tuple[int, int] | None) -> bool:
        headers.append(dict(handler.headers.items()))
        return False

    return fault


def test_the_tool_names_itself_and_keeps_no_cookies(served: Served) -> None:
    seen: list[dict[str, str]] = []
    served.always = heard(seen)
    with open_session(IndexSettings()) as session:
        for _ in range(2):
            assert fetch(session, f"{served.url}/page", "it", limit=99).body == b"<html></html>"
        assert not session.cookies
    assert all(each["User-Agent"].startswith("vllm-series/") for each in seen)


@pytest.mark.parametrize("code", [429, 500, 503])
def test_what_may_pass_is_tried_again(served: Served, code: int) -> None:
    served.faults = [status(code, Retry_After="0"), status(code)]
    assert get(f"{served.url}/page").status == 200
    assert len(served.requests) == 3


def test_an_answer_that_breaks_off_is_asked_for_again(served: Served) -> None:
    def cut(handler: Handler, data: bytes, _part: tuple[int, int] | None) -> bool:
        handler.answer(200, data, cut=5)
        return True

    served.faults = [cut, cut]
    assert get(f"{served.url}/page").body == b"<html></html>"
    served.faults = [cut, cut, cut]
    with pytest.raises(EnvironmentRefusedError, match="the answer broke off"):
        get(f"{served.url}/page")


@pytest.mark.parametrize(
    ("code", "word"),
    [(401, "netrc"), (403, "user and password"), (404, "PIP_INDEX_URL"), (503, "Try again later")],
)
def test_a_status_that_is_no_answer_comes_with_a_next_step(
    served: Served, code: int, word: str
) -> None:
    served.always = status(code)
    with pytest.raises(EnvironmentRefusedError, match=rf"the page cannot be had.*{code}.*{word}"):
        get(f"{served.url}/page", retries=0)


def test_a_body_beyond_its_limit_is_not_read(served: Served) -> None:
    served.files["/page"] = b"x" * (3 << 20)
    with pytest.raises(EnvironmentRefusedError, match="larger than 1 MiB"):
        get(f"{served.url}/page")
    # Also where the server packs it: what counts is what comes out.
    import gzip

    def packed(handler: Handler, data: bytes, _part: tuple[int, int] | None) -> bool:
        handler.answer(200, gzip.compress(data), {"Content-Encoding": "gzip"})
        return True

    served.always = packed
    with pytest.raises(EnvironmentRefusedError, match="larger than 1 MiB"):
        get(f"{served.url}/page")


def test_redirects_end(served: Served) -> None:
    served.always = status(302, Location="/page")
    with pytest.raises(EnvironmentRefusedError, match="more than 10 redirects"):
        get(f"{served.url}/page")


def test_a_redirect_to_a_host_that_is_not_encrypted_is_not_followed(served: Served) -> None:
    served.always = status(302, Location="http://mirror.example/page")
    with pytest.raises(EnvironmentRefusedError, match=r"http://mirror\.example/page is not encr"):
        get(f"{served.url}/page")


def test_a_server_that_is_not_there_is_named_without_secrets() -> None:
    with server() as gone:
        url = gone.url
    secret = url.replace("//", "//me:secret@")
    with pytest.raises(EnvironmentRefusedError, match="connection refused") as caught:
        get(f"{secret}/simple?key=secret", retries=0)
    assert "secret" not in str(caught.value)


def test_no_answer_in_time_is_an_error(served: Served) -> None:
    ready = threading.Event()

    def slow(_handler: Handler, _data: bytes, _part: tuple[int, int] | None) -> bool:
        ready.wait(20)
        return True

    served.always = slow
    try:
        with pytest.raises(EnvironmentRefusedError, match="no answer in time"):
            get(f"{served.url}/page", timeout=0.2, retries=0)
    finally:
        ready.set()


# -- credentials ----------------------------------------------------------------------------------


def user_of(headers: dict[str, str]) -> str:
    return b64decode(headers.get("Authorization", "").removeprefix("Basic ")).decode()


def test_credentials_of_an_index_count_for_all_of_its_host(served: Served) -> None:
    seen: list[dict[str, str]] = []
    served.always = heard(seen)
    index = served.url.replace("//", "//me:p%40ss@") + "/simple"
    with open_session(IndexSettings(indexes=(index,))) as session:
        answer = fetch(session, f"{served.url}/page", "it", limit=99)
    assert user_of(seen[0]) == "me:p@ss"
    assert "p%40ss" not in answer.url
    with server() as other:
        other.files["/page"] = b""
        other.always = heard(seen)
        with open_session(IndexSettings(indexes=(index,))) as session:
            fetch(session, f"{other.url}/page", "it", limit=99)
    assert user_of(seen[1]) == ""


def test_netrc_has_the_credentials_of_a_host(served: Served, tmp_path: Path) -> None:
    seen: list[dict[str, str]] = []
    served.always = heard(seen)
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password secret\n")
    (tmp_path / "netrc").chmod(0o600)
    get(f"{served.url}/page")
    assert user_of(seen[0]) == "me:secret"


# -- certificates and proxies ---------------------------------------------------------------------


@pytest.fixture
def encrypted(tmp_path: Path) -> Iterator[tuple[Served, Path]]:
    """A server with a certificate that it signed itself, and the file to trust it by."""
    from http.server import ThreadingHTTPServer

    cert = tmp_path / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
         "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout",
         tmp_path / "key.pem", "-out", cert],
        check=True, capture_output=True,
    )  # fmt: skip
    served = Served(files={"/page": b"<html></html>"})
    running = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"served": served}))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, tmp_path / "key.pem")
    running.socket = context.wrap_socket(running.socket, server_side=True)
    running.daemon_threads = True
    thread = threading.Thread(target=running.serve_forever, args=(0.05,))
    thread.start()
    served.url = f"https://localhost:{running.server_address[1]}"
    yield served, cert
    running.shutdown()
    thread.join()
    running.server_close()


def test_the_certificates_of_pip_go_before_those_of_the_environment(
    encrypted: tuple[Served, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    served, cert = encrypted
    certifi = pytest.importorskip("certifi").where()
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", certifi)
    assert get(f"{served.url}/page", cert=str(cert)).status == 200
    with pytest.raises(EnvironmentRefusedError, match=r"certificate is not trusted.*PIP_CERT"):
        get(f"{served.url}/page", cert=certifi)


def test_a_trusted_host_needs_no_certificate(encrypted: tuple[Served, Path]) -> None:
    served, _ = encrypted
    assert get(f"{served.url}/page", trusted_hosts=("localhost",)).status == 200


def test_a_proxy_is_asked_in_place_of_the_host(served: Served) -> None:
    served.files["http://index.example/page"] = b"by the proxy"
    answer = get("http://index.example/page", proxy=served.url, trusted_hosts=("index.example",))
    assert answer.body == b"by the proxy"


# -- files and threads ----------------------------------------------------------------------------


def test_addresses_of_files_are_read_from_the_disk(tmp_path: Path) -> None:
    (tmp_path / "a b").mkdir()
    (tmp_path / "a b" / "index.html").write_bytes(b"page")
    assert get((tmp_path / "a b").as_uri()).body == b"page"
    with pytest.raises(EnvironmentRefusedError, match="cannot be read"):
        get((tmp_path / "nothing").as_uri())
    with pytest.raises(EnvironmentRefusedError, match="larger than"):
        get((tmp_path / "a b").as_uri(), limit=3)


def test_threads_share_a_session(served: Served) -> None:
    served.files |= {f"/{number}": b"%d" % number for number in range(200)}
    with open_session(IndexSettings()) as session, ThreadPoolExecutor(16) as pool:
        bodies = list(
            pool.map(
                lambda number: fetch(session, f"{served.url}/{number}", "it", limit=99).body,
                range(200),
            )
        )
    assert bodies == [b"%d" % number for number in range(200)]
