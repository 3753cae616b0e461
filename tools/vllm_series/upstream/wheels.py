"""The releases of the package index, or of a folder of wheels, as a catalog.

Choosing among all files of an index takes the libraries that know versions and tags. The outcome is
therefore kept beside the list itself, so that a command that finds everything in the cache imports
none of them and asks nobody.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from vllm_series.errors import EnvironmentRefusedError, SeriesError, UsageError, VllmSeriesError
from vllm_series.known import wheels as recorded_wheels
from vllm_series.series import series_folder
from vllm_series.upstream.catalog import Release
from vllm_series.upstream.settings import index_settings, local_path
from vllm_series.upstream.store import LISTS
from vllm_series.upstream.wheel import Served, WheelTree

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from vllm_series.known import Wheel
    from vllm_series.trees import ReleaseTree
    from vllm_series.upstream.fetch import Range, Source
    from vllm_series.upstream.http import IndexSession
    from vllm_series.upstream.open import UpstreamOptions
    from vllm_series.upstream.settings import IndexSettings
    from vllm_series.upstream.store import Store

FRESH = 600
"""Seconds for which a choice is believed without looking at the index again."""

_FORM = 1
_RANGES = 8
"""Requests at a time for one release that is asked for many files."""


@dataclass(frozen=True, slots=True)
class _Listed:
    """One release, where its file is, and why there is none, or not the one that pip would take
    (empty where it is)."""

    release: Release
    url: str
    reason: str


class WheelCatalog:
    """What an index serves, one wheel a release. Safe for threads.

    `fetched` counts the bytes of wheels that came over the network.
    """

    def __init__(self, options: UpstreamOptions, store: Store, say: Callable[[str], None]) -> None:
        self._options = options
        self._store = store
        self._say = say
        self._stop = threading.Event()
        self._lock = threading.RLock()
        self._listed: dict[str, _Listed] | None = None
        self._old: dict[str, _Listed] | None = None
        self._known: tuple[Wheel, ...] | None = None
        self._resolved: IndexSettings | None = None
        self._session: IndexSession | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._trees: dict[str, ReleaseTree] = {}
        self._said: set[str] = set()
        self.fetched = 0

    def releases(self) -> tuple[Release, ...]:
        """Every release, oldest first."""
        return tuple(listed.release for listed in self._list().values())

    def tree(self, version: str) -> ReleaseTree:
        """The wheel of one release."""
        with self._lock:
            if version not in self._trees:
                self._trees[version] = self._tree(version)
            return self._trees[version]

    def prefetch(
        self, wanted: Mapping[str, Collection[str]], say: Callable[[str], None] = lambda _step: None
    ) -> Mapping[str, VllmSeriesError]:
        """Fetch files of several releases at once; the errors by release."""
        failed: dict[str, VllmSeriesError] = {}
        missing: dict[str, Collection[str]] = {}
        for version, paths in wanted.items():
            try:
                tree = self.tree(version)
                if not isinstance(tree, WheelTree) or not tree.is_at_hand(paths):
                    missing[version] = paths
            except VllmSeriesError as error:
                failed[version] = error
        if missing:
            from vllm_series.upstream.fetching import each

            failed.update(each(missing, self._prefetched, self._stop, say))
        return failed

    def _prefetched(self, version: str, paths: Collection[str]) -> None:
        tree = self.tree(version)
        if isinstance(tree, WheelTree):
            try:
                tree.prefetch(paths)
            finally:
                tree.close()
        else:
            tree.listing()

    # -- which wheels -----------------------------------------------------------------------------

    @property
    def _settings(self) -> IndexSettings:
        if self._resolved is None:
            options = self._options
            found = index_settings(
                index_url=options.index_url,
                extra_index_urls=options.extra_index_urls,
                find_links=options.find_links,
                no_index=options.no_index,
            )
            self._resolved = found
        return self._resolved

    def _list(self) -> dict[str, _Listed]:
        with self._lock:
            if self._listed is None:
                kept = self._kept(None if self._options.is_offline else FRESH)
                self._listed = self._chosen() if kept is None else kept
            return self._listed

    def _chosen(self) -> dict[str, _Listed]:
        from vllm_series.upstream.choice import choices
        from vllm_series.upstream.listing import list_files
        from vllm_series.upstream.target import target

        options = self._options
        files = list_files(
            self._settings,
            options.distribution,
            self._store,
            refresh=options.refresh,
            is_offline=options.is_offline,
            say=self._say,
        )
        wanted = target(options.python_version, options.platform)
        found = {}
        for choice in choices(files, wanted, options.wheels):
            url = choice.file.url if choice.file else ""
            release = choice.as_release(options.distribution)
            found[choice.release] = _Listed(release, url, choice.note or choice.reason)
        rows = [[*_fields(listed.release), listed.url, listed.reason] for listed in found.values()]
        if not options.is_offline:
            data = json.dumps([_FORM, time.time(), rows]).encode()
            self._store.put(LISTS, self._key(), data)
        return found

    def _kept(self, age: int | None) -> dict[str, _Listed] | None:
        """An earlier choice, no older than `age` seconds (any where None)."""
        if self._options.refresh:
            return None
        try:
            data = self._store.get(LISTS, self._key()) or b"null"
            form, moment, rows = json.loads(data)
            if form != _FORM or (age is not None and not 0 <= time.time() - moment < age):
                return None
            return {row[0]: _Listed(Release(*row[:8]), row[8], row[9]) for row in rows}
        except (ValueError, TypeError, IndexError):
            return None

    def _key(self) -> str:
        """Of what a choice depends on, but for what the network says."""
        options, settings = self._options, self._settings
        machine: list[object] = []
        if options.python_version is None or options.platform is None:
            import platform
            import sys

            machine = [sys.implementation.cache_tag, platform.machine(), *platform.libc_ver()]
        folders = [
            path.stat().st_mtime_ns if path.exists() else 0
            for address in (*settings.indexes, *settings.find_links)
            if (root := local_path(address)) is not None
            for path in (root, root / options.distribution)
        ]
        words = [
            "choice",
            settings.indexes,
            settings.find_links,
            options.distribution,
            options.wheels,
            options.python_version,
            options.platform,
            machine,
            folders,
        ]
        return sha256(json.dumps(words).encode()).hexdigest()

    def _recorded(self) -> tuple[Wheel, ...]:
        if self._known is None:
            try:
                self._known = recorded_wheels(series_folder(self._options.series_dir))
            except SeriesError:
                if self._options.series_dir is not None:
                    raise
                self._known = ()
        return self._known

    # -- their files ------------------------------------------------------------------------------

    def _tree(self, version: str) -> ReleaseTree:
        listed = self._found(version)
        release = listed.release
        if release.wheel is None:
            raise EnvironmentRefusedError(
                f"{release.distribution} {version} cannot be judged: {listed.reason}. "
                "Name another platform or Python (--platform, --python-version)."
            )
        if listed.reason and listed.reason not in self._said:
            self._said.add(listed.reason)
            self._say(f"{release.distribution} {version}: {listed.reason}.")
        if not release.wheel.endswith(".whl"):
            from vllm_series.upstream.sources import fetched_sdist

            return fetched_sdist(release, lambda: self._source(listed), self._store)
        known = self._record_of(listed)
        served = Served(
            version,
            release.distribution,
            release.wheel,
            urlsplit(listed.url).netloc or listed.url,
            release.sha256,
            release.size,
            known.fingerprint if known else None,
        )
        return WheelTree(served, lambda: self._source(listed), self._store, self._run)

    def _found(self, version: str) -> _Listed:
        """What the list has of a release. A recorded wheel is known by its bytes, however old the
        list is that names it."""
        if self._listed is None:
            if self._old is None:
                self._old = self._kept(None) or {}
            old = self._old.get(version)
            if old is not None and self._is_recorded(old.release):
                return old
        listed = self._list()
        if version not in listed:
            raise UsageError(
                f"{self._options.distribution} {version} is not served. See vllm-series releases."
            )
        return listed[version]

    def _is_recorded(self, release: Release) -> bool:
        return any(
            (wheel.name, wheel.sha256) == (release.wheel, release.sha256)
            for wheel in self._recorded()
        )

    def _record_of(self, listed: _Listed) -> Wheel | None:
        """The record of a wheel; raises EnvironmentRefusedError where it is of other bytes."""
        release = listed.release
        known = self._recorded()
        of_it = (release.distribution, release.version)
        if not self._is_recorded(release) and any(
            (wheel.distribution, wheel.release) == of_it for wheel in known
        ):
            from vllm_series.upstream.index import IndexFile
            from vllm_series.upstream.recorded import refuse_other_bytes

            file = IndexFile(
                release.distribution,
                release.version,
                release.wheel or "",
                listed.url,
                release.sha256,
                release.size,
            )
            word = refuse_other_bytes(known, file)
            if word and release.wheel not in self._options.wheels:
                self._say(word)
        return next((wheel for wheel in known if wheel.name == release.wheel), None)

    def _opened_session(self) -> IndexSession:
        from vllm_series.upstream.http import open_session

        with self._lock:
            if self._session is None:
                self._session = open_session(self._settings)
            return self._session

    def _source(self, listed: _Listed) -> Source:
        from vllm_series.upstream.fetch import FileSource, HttpSource, Remote

        release = listed.release
        name = f"{release.distribution} {release.version} ({release.wheel})"
        path = local_path(listed.url)
        if path is not None:
            return FileSource(path, name)
        if self._options.is_offline:
            raise EnvironmentRefusedError(
                f"{name} is not in the cache, or not all of what is asked for. "
                "Run the same without --offline once."
            )
        return HttpSource(
            Remote(listed.url, name, release.size, release.sha256),
            self._opened_session(),
            say=self._say,
            count=self._counted,
            stop=self._stop,
        )

    def _counted(self, size: int) -> None:
        with self._lock:
            self.fetched += size

    def _run(self, read: Callable[[Range], bytes], ranges: Sequence[Range]) -> Iterable[bytes]:
        if len(ranges) < 2:
            return map(read, ranges)
        with self._lock:
            if self._pool is None:
                from concurrent.futures import ThreadPoolExecutor

                self._pool = ThreadPoolExecutor(_RANGES)
        return self._pool.map(read, ranges)


def _fields(release: Release) -> tuple[str | int | bool | None, ...]:
    return (
        release.version,
        release.distribution,
        release.wheel,
        release.date,
        release.size,
        release.sha256,
        release.yanked,
        release.prerelease,
    )
