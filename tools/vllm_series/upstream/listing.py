"""All files of one distribution, from every index and folder that the settings name.

What an index said is kept for as long as it allows (ten minutes where it does not say), so that
commands one after the other ask once, and longer for the day on which it cannot be reached; then it
is used with a word on its age. Sources are merged as pip merges them: all count, find-links first.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import astuple, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from vllm_series.errors import EnvironmentRefusedError
from vllm_series.upstream.index import ACCEPT, IndexFile, named, page_files
from vllm_series.upstream.settings import IndexSettings, local_path, redacted, without_user
from vllm_series.upstream.store import LISTS, Store

if TYPE_CHECKING:
    from vllm_series.upstream.http import IndexSession

LIFE = 600
"""Seconds for which a list is taken from the cache where the index does not say; PyPI says 600."""

_LONGEST_LIFE = 3600
_LIMIT = 4 << 20
"""Bytes of one page: 30 times that of vLLM today; the worst of this size costs a minute."""
_FORM = 1
_MAX_AGE = re.compile(r"(?:^|[,\s])max-age=(\d{1,9})")
_FORBIDDEN = re.compile(r"(?:^|[,\s])no-(?:store|cache)\b")

Say = Callable[[str], None]


class _Listings:
    """One look at every source."""

    def __init__(
        self,
        settings: IndexSettings,
        distribution: str,
        store: Store,
        refresh: bool,
        is_offline: bool,
        say: Say,
        session: IndexSession | None,
    ) -> None:
        self._settings = settings
        self._distribution = distribution
        self._store = store
        self._refresh = refresh
        self._is_offline = is_offline
        self._say = say
        self._session = session
        self.failures: list[EnvironmentRefusedError] = []
        self.was_cached = False

    def all(self) -> list[IndexFile]:
        found: list[IndexFile] = []
        for link in self._settings.find_links:
            found += self._attempt(lambda link=link: self._linked(link))  # type: ignore[misc]
        for index in self._settings.indexes:
            page = f"{index.rstrip('/')}/{canonicalize_name(self._distribution)}/"
            found += self._attempt(lambda page=page: self._page(page))  # type: ignore[misc]
        return found

    def _attempt(self, look: Callable[[], Iterable[IndexFile]]) -> Iterable[IndexFile]:
        try:
            return look()
        except EnvironmentRefusedError as error:
            self.failures.append(error)
            return ()

    # -- find-links -------------------------------------------------------------------------------

    def _linked(self, link: str) -> Iterable[IndexFile]:
        path = local_path(link)
        direct = named(self._distribution, link)
        if path is None:
            return (direct,) if direct and not self._is_offline else self._page(link)
        if path.is_dir():
            return self._folder(path)
        if not path.is_file():
            self._say(f"{path} of find-links is not there; going on without it.")
            return ()
        if direct:
            return (self._hashed(direct, path),)
        return self._page(link)

    def _folder(self, folder: Path) -> Iterable[IndexFile]:
        try:
            paths = sorted(folder.iterdir())
        except OSError as error:
            raise EnvironmentRefusedError(
                f"{folder} of find-links cannot be read: {error.strerror}. Check its rights."
            ) from error
        for path in paths:
            file = named(self._distribution, path.absolute().as_uri())
            if file and path.is_file():
                yield self._hashed(file, path)

    def _hashed(self, file: IndexFile, path: Path) -> IndexFile:
        """With size and digest; the digest of a file that has not changed is worked out once."""
        state = path.stat()
        mark = f"{path.resolve()}\0{state.st_size}\0{state.st_mtime_ns}\0{state.st_ino}"
        key = sha256(mark.encode("utf-8", "surrogateescape")).hexdigest()
        known = self._store.get(LISTS, key)
        if known is None:
            digest = sha256()
            try:
                with path.open("rb") as stream:
                    while block := stream.read(1 << 20):
                        digest.update(block)
            except OSError as error:
                raise EnvironmentRefusedError(
                    f"{path} cannot be read: {error.strerror}. Check its rights."
                ) from error
            known = digest.hexdigest().encode()
            self._store.put(LISTS, key, known)
        return replace(file, sha256=known.decode(), size=state.st_size)

    # -- pages ------------------------------------------------------------------------------------

    def _page(self, page: str) -> Iterable[IndexFile]:
        path = local_path(page)
        if path is not None:
            if not path.exists():
                return ()
            return self._read(page, {})[0] or ()
        key = sha256(f"{without_user(page)}\0{self._distribution}".encode()).hexdigest()
        kept = _Kept.read(self._store.get(LISTS, key))
        if self._is_offline:
            return kept.files if kept else ()
        if kept and kept.is_fresh and not self._refresh:
            self.was_cached = True
            return kept.files
        headers = {"If-None-Match": kept.tag} if kept and kept.tag else {}
        try:
            files, answered = self._read(page, headers, hurry=kept is not None)
        except EnvironmentRefusedError as error:
            if kept is None or self._refresh:
                raise
            self._say(f"{error} Using the list of {_day(kept.time)}.")
            return kept.files
        if files is None:
            files = kept.files if kept else ()
        fresh = _Kept(
            time.time(),
            _life(answered.get("cache-control")),
            answered.get("etag", kept.tag if kept else ""),
            tuple(files),
        )
        self._store.put(LISTS, key, fresh.written())
        return files

    def _read(
        self, page: str, headers: dict[str, str], hurry: bool = False
    ) -> tuple[Iterable[IndexFile] | None, dict[str, str]]:
        """The files of a page and the answer's headers; no files where they are as before."""
        from vllm_series.upstream.http import fetch

        answer = fetch(
            self._opened(hurry),
            page,
            f"the list of {self._distribution} releases",
            limit=_LIMIT,
            headers={"Accept": ACCEPT, "Cache-Control": "max-age=0", **headers},
            accepted=(200, 304, 404) if headers else (200, 404),
        )
        if answer.status == 304:
            return None, answer.headers
        if answer.status == 404:
            return (), answer.headers
        kind = answer.headers.get("content-type", "text/html")
        return page_files(answer.body, kind, answer.url, self._distribution), answer.headers

    def _opened(self, hurry: bool) -> IndexSession:
        from vllm_series.upstream.http import open_session

        if self._session is None:
            settings = self._settings
            if hurry:
                # There is an answer already; who is offline must not wait for it.
                settings = replace(
                    settings, retries=min(settings.retries, 1), timeout=min(settings.timeout, 10)
                )
            return open_session(settings)
        return self._session


class _Kept:
    """What the cache holds of a page."""

    def __init__(self, moment: float, life: int, tag: str, files: tuple[IndexFile, ...]) -> None:
        self.time = moment
        self.life = life
        self.tag = tag
        self.files = files

    @property
    def is_fresh(self) -> bool:
        return 0 <= time.time() - self.time < self.life

    def written(self) -> bytes:
        rows = [astuple(file) for file in self.files]
        return json.dumps([_FORM, self.time, self.life, self.tag, rows]).encode()

    @classmethod
    def read(cls, data: bytes | None) -> _Kept | None:
        """What was written; None for nothing, or what another version wrote."""
        try:
            form, moment, life, tag, rows = json.loads(data or b"null")
            if form != _FORM:
                return None
            return cls(moment, life, tag, tuple(IndexFile(*row) for row in rows))
        except (ValueError, TypeError):
            return None


def list_files(
    settings: IndexSettings,
    distribution: str,
    store: Store,
    *,
    refresh: bool = False,
    is_offline: bool = False,
    say: Say = lambda _message: None,
    session: IndexSession | None = None,
) -> tuple[IndexFile, ...]:
    """Every wheel and sdist of a distribution, as pip would find them: find-links first, then each
    index; the same bytes under the same name are listed once, from this machine if they lie there.

    `refresh` asks the indexes even where a list is kept, `is_offline` asks none. `say` is told what
    a user should know: a source that is passed over, a list that is old. Raises
    EnvironmentRefusedError where nothing is found, with the reason of the first source that failed.
    """

    def look(again: bool) -> _Listings:
        return _Listings(settings, distribution, store, again, is_offline, say, session)

    once = look(refresh)
    found = once.all()
    if not found and once.was_cached:
        once = look(True)
        found = once.all()
    if not found:
        raise once.failures[0] if once.failures else _nowhere(settings, distribution, is_offline)
    for error in once.failures:
        say(f"{error} Going on with what the other sources have.")
    return tuple(_once_each(found))


def _once_each(files: Iterable[IndexFile]) -> list[IndexFile]:
    kept: dict[tuple[str, str | None], IndexFile] = {}
    for number, file in enumerate(files):
        key = (file.filename, file.sha256 or str(number))
        old = kept.pop(key, None)
        is_local = old is not None and old.url.startswith("file:")
        kept[key] = replace(file, url=old.url) if old and is_local else file
    return list(kept.values())


def _nowhere(
    settings: IndexSettings, distribution: str, is_offline: bool
) -> EnvironmentRefusedError:
    if is_offline:
        return EnvironmentRefusedError(
            f"no list of {distribution} releases is in the cache. Run the same without --offline "
            "once, or name a folder of wheels with --find-links."
        )
    asked = ", ".join(map(redacted, (*settings.indexes, *settings.find_links))) or "nothing"
    return EnvironmentRefusedError(
        f"no release of {distribution} is found: asked {asked}. Name another index with "
        "--index-url or PIP_INDEX_URL, or a folder of wheels with --find-links."
    )


def _life(control: str | None) -> int:
    """Seconds that an answer may be used for, by its Cache-Control."""
    if control and _FORBIDDEN.search(control.lower()):
        return 0
    found = _MAX_AGE.search((control or "").lower())
    return min(int(found[1]), _LONGEST_LIFE) if found else LIFE


def _day(moment: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(moment))
