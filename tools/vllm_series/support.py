"""Which releases this project's series cover, and which they do not yet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from packaging.version import Version

from vllm_series.series import SERIES_FILE, folders, series_folder
from vllm_series.upstream.catalog import Release


class Support:
    """The series of one folder, by what they serve. A `folder` of None has none."""

    def __init__(self, folder: Path | None) -> None:
        found = folders(folder) if folder is not None else []
        self._by_name = {path.name.removeprefix("vllm-"): path.name for path in found}

    @property
    def newest_line(self) -> str | None:
        """The line of the newest series, `0.33`; None where there is none.

        A series for one release alone counts only where no series is for a line: that of a
        candidate, `vllm-0.34.0rc1`, does not serve what comes after it.
        """
        newest = self._newest()
        return _text(newest) if newest else None

    def _newest(self) -> tuple[int, int] | None:
        every = [(_line(Version(name)), name.count(".") == 1) for name in self._by_name]
        lines = [line for line, is_line in every if is_line] or [line for line, _ in every]
        return max(lines, default=None)

    def folder_name(self, release: str) -> str | None:
        """The series that serves a release, `vllm-0.33`; that for it alone before its line's; None
        for a release that none serves."""
        version = Version(release)
        for name in (version.public, _text(_line(version))):
            if name in self._by_name:
                return self._by_name[name]
        return None

    def newer(self, releases: Iterable[Release]) -> tuple[Release, ...]:
        """The final releases, not withdrawn, of lines after the newest line, that no series
        serves."""
        newest = self._newest() or (-1, -1)
        return tuple(
            release
            for release in releases
            if not (release.yanked or release.prerelease)
            and _line(Version(release.version)) > newest
            and self.folder_name(release.version) is None
        )


def record_folder(series_dir: Path | None) -> Path:
    """The folder that holds `releases.json`: that of the series, also where one series is named.

    Raises SeriesError where there is none.
    """
    base = series_folder(series_dir)
    return base.parent if (base / SERIES_FILE).is_file() else base


def _line(version: Version) -> tuple[int, int]:
    return version.major, version.minor


def _text(numbers: Sequence[int]) -> str:
    return ".".join(map(str, numbers))
