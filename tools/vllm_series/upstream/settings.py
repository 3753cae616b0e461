"""Where the package index is and how to reach it, as pip and uv are told it.

Who can install vLLM here has told pip or uv of the mirror, the proxy and the certificates already,
and must not have to say it a third time. A setting is taken from the first place that has it:

1. the command's own option,
2. the environment: `PIP_*`, then `UV_*`, then what requests reads (`REQUESTS_CA_BUNDLE`, …),
3. the configuration files: pip's, then uv's.

Lists (extra indexes, links) are taken whole from one place; an option adds to them, as it does for
pip. uv's settings of a project (`pyproject.toml`, a `uv.toml` beside it) are not read: this tool
runs in the folder of a series, which is no project that installs vLLM.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

from vllm_series.errors import EnvironmentRefusedError, UsageError
from vllm_series.upstream.configured import pip_values, uv_values

PYPI = "https://pypi.org/simple"


@dataclass(frozen=True, slots=True)
class IndexSettings:
    """How to reach the releases. Addresses may hold credentials: print them by `redacted` only.

    `indexes` are the addresses of PEP 503 indexes, the main one first, none with `--no-index`;
    `find_links` are folders, archives or pages that list archives. Folders are `file:` addresses.
    `cert` is a file or folder of certificates to trust, None for those that requests brings;
    `client_cert` one PEM file with certificate and key. `timeout` is in seconds and counts for each
    wait on the network; `retries` is the number of further tries. `origins` says by field where it
    was found; a field that is a default has no entry.
    """

    indexes: tuple[str, ...] = (PYPI,)
    find_links: tuple[str, ...] = ()
    cert: str | None = None
    client_cert: str | None = None
    proxy: str | None = None
    trusted_hosts: tuple[str, ...] = ()
    timeout: float = 15.0
    retries: int = 5
    origins: Mapping[str, str] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """What was found and where, a line a setting, without credentials."""
        shown = {
            "indexes": " ".join(map(redacted, self.indexes)) or "none",
            "find_links": " ".join(map(redacted, self.find_links)),
            "cert": self.cert or "",
            "client_cert": self.client_cert or "",
            "proxy": redacted(self.proxy or ""),
            "trusted_hosts": " ".join(self.trusted_hosts),
            "timeout": f"{self.timeout:g} s",
            "retries": str(self.retries),
        }
        return [
            f"{name.replace('_', '-')} {shown[name]} ({where})"
            for name, where in self.origins.items()
        ]


@dataclass(frozen=True, slots=True)
class _Found:
    """A raw value and the place that has it."""

    value: str
    where: str


class _Places:
    """What the environment and the files say, in the order in which they win."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._pip = pip_values(environ)
        self._uv = uv_values(environ)

    def first(
        self,
        pip: Sequence[str] = (),
        uv_env: Sequence[str] = (),
        uv_key: str = "",
        other_env: Sequence[str] = (),
    ) -> _Found | None:
        """The first place that has one of these: option names of pip, variables and a key of uv."""
        names = [f"PIP_{name.upper().replace('-', '_')}" for name in pip]
        for name in (*names, *uv_env):
            if self._environ.get(name):
                return _Found(self._environ[name], name)
        for name in pip:
            if name in self._pip:
                return _Found(*self._pip[name])
        if uv_key in self._uv:
            return _Found(*self._uv[uv_key])
        for name in other_env:
            if self._environ.get(name):
                return _Found(self._environ[name], name)
        return None


def index_settings(
    *,
    index_url: str | None = None,
    extra_index_urls: Sequence[str] = (),
    find_links: Sequence[str] = (),
    no_index: bool = False,
    environ: Mapping[str, str] | None = None,
) -> IndexSettings:
    """The settings of this process; the arguments are the command's options and win.

    Raises UsageError for an option or variable that has no meaning, EnvironmentRefusedError for a
    configuration file or a certificate that cannot be read.
    """
    places = _Places(os.environ if environ is None else environ)
    origins: dict[str, str] = {}

    def noted(field_name: str, found: _Found | None) -> str | None:
        if found is None:
            return None
        origins[field_name] = found.where
        return found.value

    indexes: list[str] = []
    for link in find_links:
        path = local_path(_address(link))
        if path is not None and not path.exists():
            raise UsageError(f"--find-links: there is no {path}. Name a folder of wheels.")
    quiet = places.first(pip=("no-index",), uv_env=("UV_NO_INDEX",), uv_key="no-index")
    if index_url is None and (no_index or (quiet and _truth(quiet))):
        origins["indexes"] = quiet.where if quiet and not no_index else "--no-index"
    else:
        indexes = _indexes(places, index_url, extra_index_urls, origins)
    listed = places.first(pip=("find-links",), uv_env=("UV_FIND_LINKS",), uv_key="find-links")
    noted("find_links", listed)
    links = [*find_links, *_words(listed)]
    if find_links:
        origins["find_links"] = "--find-links" + (f", {listed.where}" if listed else "")
    timeout = places.first(
        pip=("default-timeout", "timeout"), uv_env=("UV_HTTP_TIMEOUT", "UV_REQUEST_TIMEOUT")
    )
    retries = places.first(pip=("retries",), uv_env=("UV_HTTP_RETRIES",))
    cert = places.first(
        pip=("cert",), other_env=("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE")
    )
    client_cert = places.first(pip=("client-cert",), other_env=("SSL_CLIENT_CERT",))
    trusted = places.first(
        pip=("trusted-host",), uv_env=("UV_INSECURE_HOST",), uv_key="allow-insecure-host"
    )
    noted("trusted_hosts", trusted)
    for found in (cert, client_cert):
        if found and not Path(found.value).expanduser().exists():
            raise EnvironmentRefusedError(
                f"{found.where} names a certificate that is not there: {found.value}. "
                "Set it to a PEM file."
            )
    settings = IndexSettings(
        indexes=tuple(dict.fromkeys(indexes)),
        find_links=tuple(dict.fromkeys(_address(item) for item in links)),
        cert=_file(noted("cert", cert)),
        client_cert=_file(noted("client_cert", client_cert)),
        proxy=noted("proxy", places.first(pip=("proxy",))),
        trusted_hosts=tuple(_words(trusted)),
        timeout=max(_number(timeout), 0.1) if timeout else 15.0,
        retries=max(int(_number(retries)), 0) if retries else 5,
        origins=origins,
    )
    noted("timeout", timeout)
    noted("retries", retries)
    return settings


def _indexes(
    places: _Places, index_url: str | None, extra: Sequence[str], origins: dict[str, str]
) -> list[str]:
    main = (
        _Found(index_url, "--index-url")
        if index_url is not None
        else places.first(
            pip=("index-url", "pypi-url"),
            uv_env=("UV_DEFAULT_INDEX", "UV_INDEX_URL"),
            uv_key="index-url",
        )
    )
    more = places.first(
        pip=("extra-index-url",),
        uv_env=("UV_INDEX", "UV_EXTRA_INDEX_URL"),
        uv_key="extra-index-url",
    )
    where = [found.where for found in (main, more) if found]
    if extra:
        where.append("--extra-index-url")
    if where:
        origins["indexes"] = ", ".join(where)
    addresses = [main.value if main else PYPI, *_words(more), *extra]
    return [_with_name(address, places) for address in addresses]


def _with_name(address: str, places: _Places) -> str:
    """uv's `name=address`, with the credentials that `UV_INDEX_<NAME>_USERNAME` holds."""
    name, mark, rest = address.partition("=")
    if not mark or not name.replace("-", "").replace("_", "").isalnum():
        return _address(address)
    known = "".join(c if c.isalnum() else "_" for c in name.upper())
    user = places.first(uv_env=(f"UV_INDEX_{known}_USERNAME",))
    password = places.first(uv_env=(f"UV_INDEX_{known}_PASSWORD",))
    parts = urlsplit(_address(rest))
    if not (user or password) or "@" in parts.netloc:
        return _address(rest)
    pair = ":".join(quote(item.value if item else "", safe="") for item in (user, password))
    return urlunsplit(parts._replace(netloc=f"{pair}@{parts.netloc}"))


def _address(word: str) -> str:
    """An address; a folder or file of this machine becomes a `file:` address."""
    scheme = urlsplit(word).scheme.lower()
    if scheme in ("http", "https", "file"):
        return word
    if "://" in word:
        raise UsageError(
            f"{redacted(word)} is no address of an index. Give one that starts with https://, or a "
            "folder."
        )
    return Path(word).expanduser().absolute().as_uri()


def _words(found: _Found | None) -> list[str]:
    """A list: parted by white space, in a variable of uv by commas too."""
    words = found.value.split() if found else []
    if found and found.where.startswith("UV_"):
        words = [part for word in words for part in word.split(",") if part]
    return words


def _file(value: str | None) -> str | None:
    return None if value is None else str(Path(value).expanduser())


def _truth(found: _Found) -> bool:
    word = found.value.strip().lower()
    if word in ("1", "y", "yes", "t", "true", "on"):
        return True
    if word in ("0", "n", "no", "f", "false", "off"):
        return False
    raise UsageError(f"{found.where} is neither yes nor no: {found.value!r}. Set it to 1 or 0.")


def _number(found: _Found) -> float:
    try:
        return float(found.value)
    except ValueError:
        raise UsageError(
            f"{found.where} is no number: {found.value!r}. Set it to one, such as 15."
        ) from None


def redacted(address: str) -> str:
    """An address as it may be printed: no password, no token, no query."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return "an address that cannot be read"
    if "@" in parts.netloc:
        user, _, host = parts.netloc.rpartition("@")
        name = f"{user.partition(':')[0]}:****" if ":" in user else "****"
        parts = parts._replace(netloc=f"{name}@{host}")
    return urlunsplit(parts._replace(query="…" if parts.query else "", fragment=""))


def without_user(address: str) -> str:
    """The address without user, password and fragment, as it may be stored."""
    parts = urlsplit(address)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], fragment=""))


def local_path(url: str) -> Path | None:
    """The file or folder that a `file:` address means, None for any other address."""
    parts = urlsplit(url)
    if parts.scheme != "file":
        return None
    # Brings http.client and the mail parser along, for the few that name a folder.
    from urllib.request import url2pathname

    return Path(url2pathname(parts.path))
