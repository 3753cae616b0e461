"""Open what `--source` and the index options name: a catalog of releases and their trees."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_series.errors import EnvironmentRefusedError, UsageError, VllmSeriesError

if TYPE_CHECKING:
    from vllm_series.upstream.catalog import Catalog, Release
    from vllm_series.upstream.wheel import WheelTree


@dataclass(frozen=True, slots=True)
class UpstreamOptions:
    """Where releases come from, as the options of a command say it."""

    source: str = "index"
    index_url: str | None = None
    find_links: tuple[Path, ...] = ()
    distribution: str = "vllm"


def open_catalog(options: UpstreamOptions | None = None) -> Catalog:
    """The releases that the options name. Nothing is fetched yet."""
    return _IndexCatalog(options or UpstreamOptions())


class _IndexCatalog:
    def __init__(self, options: UpstreamOptions) -> None:
        self._options = options
        self._files: dict[str, tuple[Release, str]] = {}
        self._trees: dict[str, WheelTree] = {}

    def releases(self) -> tuple[Release, ...]:
        import requests
        from packaging.utils import parse_wheel_filename
        from packaging.version import Version

        from vllm_series.upstream.catalog import Release

        if not self._files:
            url = f"{self._options.index_url or 'https://pypi.org/simple'}/vllm/"
            try:
                page = requests.get(
                    url, headers={"Accept": "application/vnd.pypi.simple.v1+json"}, timeout=30
                )
                page.raise_for_status()
            except requests.RequestException as error:
                raise EnvironmentRefusedError(
                    f"the index is out of reach: {url}: {error}. Check the network."
                ) from error
            found: dict[Version, tuple[tuple[()] | tuple[int, str], Release, str]] = {}
            for file in page.json()["files"]:
                name = file["filename"]
                if not name.endswith(".whl") or "x86_64" not in name:
                    continue
                _, version, build, _ = parse_wheel_filename(name)
                release = Release(
                    str(version),
                    "vllm",
                    name,
                    file["upload-time"][:10],
                    file["size"],
                    file["hashes"]["sha256"],
                    bool(file.get("yanked")),
                    version.is_prerelease,
                )
                old = found.get(version)
                if old is None or old[0] < build:
                    found[version] = (build, release, file["url"])
            self._files = {
                str(version): (found[version][1], found[version][2]) for version in sorted(found)
            }
        return tuple(release for release, _ in self._files.values())

    def tree(self, version: str) -> WheelTree:
        from vllm_series.upstream.wheel import WheelTree

        self.releases()
        if version not in self._files:
            raise UsageError(f"there is no release {version}. See vllm-series releases.")
        if version not in self._trees:
            self._trees[version] = WheelTree(*self._files[version])
        return self._trees[version]

    def prefetch(
        self, wanted: Mapping[str, Collection[str]], say: Callable[[str], None] = lambda _step: None
    ) -> Mapping[str, VllmSeriesError]:
        from concurrent.futures import ThreadPoolExecutor

        failed: dict[str, VllmSeriesError] = {}

        def fetch(version: str) -> None:
            try:
                tree = self.tree(version)
                for path in wanted[version]:
                    tree.read(path)
                say(version)
            except VllmSeriesError as error:
                failed[version] = error

        self.releases()
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(fetch, wanted))
        return failed
