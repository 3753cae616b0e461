"""One way to ask a server for bytes: with retries, limits, and errors that a person can use.

A session serves many threads at once, so that ranges of several wheels come in parallel over few
connections. It keeps no cookies. What requests would take from the environment against the settings
(certificates, a proxy) is put right here, so that `PIP_CERT` means for us what it means for pip.
"""

from __future__ import annotations

import socket
import ssl
import time
from dataclasses import dataclass
from http.cookiejar import DefaultCookiePolicy
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3.exceptions import HTTPError, IncompleteRead, MaxRetryError, ReadTimeoutError
from urllib3.exceptions import SSLError as TLSError
from urllib3.util.retry import Retry

from vllm_series import __version__
from vllm_series.errors import EnvironmentRefusedError
from vllm_series.upstream.settings import IndexSettings, local_path, redacted, without_user

if TYPE_CHECKING:
    from typing_extensions import Self

CONNECTIONS = 32
"""To one host, kept open; more threads than that would wait for nothing."""

_RETRIED = (408, 429, 500, 502, 503, 504, 520, 522, 524, 527)
"""Answers that a later try may mend: the server's own, and those of the large content networks."""
_REDIRECTS = 10
_LONGEST_WAIT = 30
_BLOCK = 1 << 16
_LOCAL = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Fetched:
    """One answer: its body, its headers by lower-case name, the status (200 for a file of this
    machine), and the address that gave it, without credentials."""

    body: bytes
    headers: dict[str, str]
    status: int
    url: str


class _Retry(Retry):
    """Does not try again where nothing can change: a certificate that is not trusted."""

    def increment(
        self,
        method: str | None = None,
        url: str | None = None,
        response: Any = None,
        error: Exception | None = None,
        _pool: Any = None,
        _stacktrace: Any = None,
    ) -> Self:
        if isinstance(error, TLSError) and _certificate(error):
            raise MaxRetryError(_pool, url or "", error)
        return super().increment(method, url, response, error, _pool, _stacktrace)

    def get_retry_after(self, response: Any) -> float | None:
        seconds = super().get_retry_after(response)
        return None if seconds is None else min(seconds, _LONGEST_WAIT)


class IndexSession(requests.Session):
    """A session that goes by the settings alone; safe to share between threads."""

    def __init__(self, settings: IndexSettings) -> None:
        super().__init__()
        self.settings = settings
        self.max_redirects = _REDIRECTS
        self.headers["User-Agent"] = f"vllm-series/{__version__} requests/{requests.__version__}"
        self.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        retry = _Retry(
            total=settings.retries,
            redirect=False,
            status_forcelist=_RETRIED,
            allowed_methods=("GET", "HEAD"),
            backoff_factor=0.25,
            backoff_max=_LONGEST_WAIT,
            raise_on_status=False,
        )
        adapter = HTTPAdapter(
            pool_connections=8, pool_maxsize=CONNECTIONS, max_retries=retry, pool_block=True
        )
        self.mount("https://", adapter)
        self.mount("http://", adapter)
        self._credentials = {
            _origin(address): _user(address)
            for address in (*settings.indexes, *settings.find_links)
            if "@" in urlsplit(address).netloc
        }

    def merge_environment_settings(  # type: ignore[override]  # as requests calls it
        self, url: str, proxies: Any, stream: Any, verify: Any, cert: Any
    ) -> dict[str, Any]:
        settings = self.settings
        merged: dict[str, Any] = dict(
            super().merge_environment_settings(url, proxies, stream, verify, cert)
        )
        if settings.cert:
            merged["verify"] = settings.cert
        if _is_trusted(url, settings):
            merged["verify"] = False
        if settings.client_cert:
            merged["cert"] = settings.client_cert
        if settings.proxy:
            merged["proxies"] = {"http": settings.proxy, "https": settings.proxy}
        return merged

    def prepare_request(self, request: requests.Request) -> requests.PreparedRequest:
        # The files of an index often lie on its own host, under addresses without credentials.
        address = str(request.url)
        if request.auth is None and "@" not in urlsplit(address).netloc:
            request.auth = self._credentials.get(_origin(address))
        return super().prepare_request(request)

    def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:
        # Redirects come by here too.
        address = request.url or ""
        parts = urlsplit(address)
        if (
            parts.scheme == "http"
            and parts.hostname not in _LOCAL
            and not _is_trusted(address, self.settings)
        ):
            raise EnvironmentRefusedError(
                f"{redacted(address)} is not encrypted: anyone on the way could change what it "
                f"serves. Use https, or name the host in PIP_TRUSTED_HOST ({parts.hostname})."
            )
        kwargs.setdefault("timeout", None)
        if kwargs["timeout"] is None:
            kwargs["timeout"] = self.settings.timeout
        return super().send(request, **kwargs)


def open_session(settings: IndexSettings) -> IndexSession:
    """A session for these settings; close it when done.

    Every GET made with it is retried on what may pass (no connection, 429, 5xx), with growing waits
    and as long as `Retry-After` says, at most half a minute each. `failure` makes of what it raises
    an error that can be shown.
    """
    session = IndexSession(settings)
    if settings.trusted_hosts:
        import urllib3

        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
    return session


def fetch(
    session: IndexSession,
    url: str,
    what: str,
    *,
    limit: int,
    headers: dict[str, str] | None = None,
    accepted: tuple[int, ...] = (200,),
) -> Fetched:
    """The whole body at an address, `file:` addresses included (a folder gives its index.html).

    `what` names for errors what is asked for (`the list of vllm releases`); `limit` is in bytes. A
    body that breaks off is asked for again. Raises EnvironmentRefusedError for any status that is
    not accepted, a body beyond the limit, and all that keeps the server from answering.
    """
    path = local_path(url)
    if path is not None:
        return _read(path, url, what, limit)
    tries = session.settings.retries
    for attempt in range(tries + 1):
        try:
            with session.get(url, headers=headers, stream=True) as response:
                if response.status_code not in accepted:
                    raise refusal(response, what)
                body = _body(response, what, limit)
                names = {name.lower(): value for name, value in response.headers.items()}
                return Fetched(body, names, response.status_code, without_user(response.url))
        except (requests.exceptions.ChunkedEncodingError, IncompleteRead) as error:
            if attempt == tries:
                raise failure(error, url, what) from error
            time.sleep(min(0.25 * 2**attempt, _LONGEST_WAIT))
        except (requests.RequestException, HTTPError, OSError) as error:
            raise failure(error, url, what) from error
    raise AssertionError("the last attempt returns or raises")


def _read(path: Path, url: str, what: str, limit: int) -> Fetched:
    place = path / "index.html" if path.is_dir() else path
    try:
        if place.stat().st_size > limit:
            raise _too_large(url, what, limit)
        kind = "application/json" if place.suffix == ".json" else "text/html"
        return Fetched(place.read_bytes(), {"content-type": kind}, 200, place.as_uri())
    except OSError as error:
        raise EnvironmentRefusedError(
            f"{what} cannot be read: {place}: {error.strerror}. Check the address."
        ) from error


def _body(response: requests.Response, what: str, limit: int) -> bytes:
    parts = []
    size = 0
    for block in response.iter_content(_BLOCK):
        size += len(block)
        if size > limit:
            raise _too_large(response.url, what, limit)
        parts.append(block)
    return b"".join(parts)


def _too_large(url: str, what: str, limit: int) -> EnvironmentRefusedError:
    return EnvironmentRefusedError(
        f"{what} is larger than {limit >> 20} MiB: {redacted(url)}. No index serves so much; "
        "check the address."
    )


def refusal(response: requests.Response, what: str) -> EnvironmentRefusedError:
    """What an answer with an unwanted status means, and what to do about it."""
    status = response.status_code
    advice = {
        401: "Put user and password into the address, into netrc or into pip's configuration.",
        403: "Check the user and password in the address or netrc.",
        404: "Check the address (--index-url, PIP_INDEX_URL).",
        407: "Check the proxy's user and password (PIP_PROXY, HTTPS_PROXY).",
        429: "The server asks for fewer requests; try again later.",
    }.get(status, "Try again later." if status >= 500 else "Check the address.")
    reason = f" {response.reason}" if response.reason else ""
    return EnvironmentRefusedError(
        f"{what} cannot be had: {redacted(response.url)} answers {status}{reason}. {advice}"
    )


def failure(error: Exception, url: str, what: str) -> EnvironmentRefusedError:
    """An error of the network as one that can be shown: no credentials, a reason, a next step."""
    if isinstance(error, EnvironmentRefusedError):
        return error
    reason, advice = _reason(error)
    return EnvironmentRefusedError(f"{what} cannot be had: {redacted(url)}: {reason}. {advice}")


def _reason(error: Exception) -> tuple[str, str]:
    causes = _causes(error)
    for cause in causes:
        if isinstance(cause, requests.TooManyRedirects):
            return f"more than {_REDIRECTS} redirects", "Check the address."
        if isinstance(cause, ssl.SSLCertVerificationError):
            return (
                f"its certificate is not trusted ({cause.verify_message})",
                "Name the certificates to trust in PIP_CERT or SSL_CERT_FILE.",
            )
        if isinstance(cause, socket.gaierror):
            return "the host is not known", "Check the address and the network."
    for cause in causes:
        if isinstance(cause, requests.exceptions.ProxyError):
            return "the proxy does not let it through", "Check PIP_PROXY or HTTPS_PROXY."
        if isinstance(cause, (requests.Timeout, ReadTimeoutError)):
            return "no answer in time", "Try again, or raise PIP_DEFAULT_TIMEOUT."
        if isinstance(cause, (requests.exceptions.ChunkedEncodingError, IncompleteRead)):
            return "the answer broke off", "Try again."
        if isinstance(cause, (requests.exceptions.InvalidURL, requests.exceptions.InvalidSchema)):
            return "it is no address", "Check --index-url or PIP_INDEX_URL."
    for cause in reversed(causes):
        if isinstance(cause, OSError) and cause.strerror and not isinstance(cause, HTTPError):
            return cause.strerror[0].lower() + cause.strerror[
                1:
            ], "Check the network and try again."
    return type(error).__name__, "Check the address and the network."


def _causes(error: BaseException) -> list[BaseException]:
    """The error, then what led to it, outermost first."""
    found: list[BaseException] = []
    todo: list[object] = [error]
    while todo and len(found) < 20:
        item = todo.pop(0)
        if isinstance(item, BaseException) and not any(item is known for known in found):
            found.append(item)
            todo += [item.__cause__, item.__context__, getattr(item, "reason", None), *item.args]
    return found


def _certificate(error: BaseException) -> bool:
    return any(isinstance(cause, ssl.SSLCertVerificationError) for cause in _causes(error))


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc.rpartition("@")[2].lower()


def _user(url: str) -> tuple[str, str]:
    user, _, password = urlsplit(url).netloc.rpartition("@")[0].partition(":")
    return unquote(user), unquote(password)


def _is_trusted(url: str, settings: IndexSettings) -> bool:
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return any(trusted in (host, parts.hostname) for trusted in settings.trusted_hosts)
