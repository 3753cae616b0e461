"""Open what `--source` and the index options name: a catalog of releases and their trees."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vllm_series.upstream.catalog import Catalog

INDEX = "index"


@dataclass(frozen=True, slots=True)
class UpstreamOptions:
    """Where releases come from, as the options of a command say it; every default is what pip
    would do here.

    `source` is `index`, `dir:PATH`, `sdist:FILE` or `git:PATH[@TAG]`. `wheels` are file names that
    go before the choice. `is_offline` asks for nothing but what is in the cache, `refresh` asks
    again for what is, `no_cache` keeps nothing. `series_dir` is the folder whose `releases.json`
    the wheels are held against, None for the nearest one.
    """

    source: str = INDEX
    index_url: str | None = None
    extra_index_urls: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    no_index: bool = False
    wheels: tuple[str, ...] = ()
    python_version: str | None = None
    platform: str | None = None
    distribution: str = "vllm"
    is_offline: bool = False
    refresh: bool = False
    no_cache: bool = False
    series_dir: Path | None = None


def told(message: str) -> None:
    """Say something on stderr, as the command line does."""
    sys.stderr.write(f"vllm-series: {message}\n")
    sys.stderr.flush()


def open_catalog(
    options: UpstreamOptions | None = None, say: Callable[[str], None] = told
) -> Catalog:
    """The releases that the options name. Nothing is fetched yet.

    `say` is told what a user should know: a server without ranges, a cache that cannot be written.
    Raises UsageError for a source that cannot be meant.
    """
    from vllm_series.upstream.store import Store, open_store

    options = options or UpstreamOptions()
    store = Store(None) if options.no_cache else open_store(say)
    if options.source == INDEX:
        from vllm_series.upstream.wheels import WheelCatalog

        return WheelCatalog(options, store, say)
    from vllm_series.upstream.sources import open_source

    return open_source(options.source, store)
