"""What `check`, `drift` and `rebase` ask of upstream: which releases there are, and their files.

Two makers: the package index (or a folder of wheels), and what `--source` names. A release that
cannot be read does not hide the others: `prefetch` gives the errors by release.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from vllm_series.errors import VllmSeriesError
from vllm_series.trees import ReleaseTree


@dataclass(frozen=True, slots=True)
class Release:
    """One release upstream, by the wheel that is judged.

    `date` is the day of the upload (`2026-11-20`), `size` in bytes, `sha256` in hex; each is None
    where the source does not tell it. `wheel` is the file's name.
    """

    version: str
    distribution: str = "vllm"
    wheel: str | None = None
    date: str | None = None
    size: int | None = None
    sha256: str | None = None
    yanked: bool = False
    prerelease: bool = False


class Catalog(Protocol):
    """Releases and their trees."""

    def releases(self) -> tuple[Release, ...]:
        """Every release, oldest first by version, yanked and pre-releases included.

        Raises EnvironmentRefusedError where the source is out of reach.
        """

    def tree(self, version: str) -> ReleaseTree:
        """The files of one release; nothing is fetched before something is read.

        Raises UsageError for a release that there is not, EnvironmentRefusedError where its bytes
        cannot be had or are not those that were recorded.
        """

    def prefetch(
        self, wanted: Mapping[str, Collection[str]], say: Callable[[str], None] = lambda _step: None
    ) -> Mapping[str, VllmSeriesError]:
        """Fetch files of several releases at once: paths by version; a path that a release does
        not have is passed over. `say` is told what goes on. Gives the error of each release that
        failed."""
