"""Which releases a command works on: `--releases all`, `0.30..0.33`, `0.33.0,0.32`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from packaging.version import InvalidVersion, Version

from vllm_series.errors import UsageError
from vllm_series.upstream.catalog import Release

ALL = "all"
_HOW = (
    "Give all, a release (0.33.0), a line (0.33), a range (0.30..0.33, ..0.30, 0.30..), or several."
)


@dataclass(frozen=True, slots=True)
class _Named:
    """A release or a line as a person writes it."""

    text: str
    version: Version

    @property
    def is_line(self) -> bool:
        """Whether it means all releases of a minor line: two numbers and nothing else."""
        return len(self.version.release) == 2 and str(self.version) == self.version.base_version

    def has(self, version: Version) -> bool:
        """Whether it is this release or the line of it; `0.33.0` is `0.33.0+cu130` too."""
        if self.is_line:
            return version.release[:2] == self.version.release
        if self.version.local is None:
            return Version(version.public) == self.version
        return version == self.version

    def before(self, version: Version) -> bool:
        """Whether it is, or starts, no later than this release."""
        return self.has(version) or self.version <= version

    def after(self, version: Version) -> bool:
        """Whether it is, or ends, no earlier than this release."""
        return self.has(version) or version <= self.version


def select(releases: Sequence[Release], spec: str) -> tuple[str, ...]:
    """The versions that a specification means, oldest first, each once.

    A line or a range means final releases that were not withdrawn; any other must be named. Ends of
    a range belong to it. Raises UsageError for a part that has no meaning or that no release meets.
    """
    known = {Version(release.version): release for release in releases}
    chosen: set[Version] = set()
    parts = [part.strip() for part in spec.split(",")]
    if not any(parts):
        raise UsageError(f"no release is named: {spec!r}. {_HOW}")
    for part in filter(None, parts):
        found = _part(known, part)
        if not found:
            raise UsageError(_nothing(known, part))
        chosen |= found
    return tuple(known[version].version for version in sorted(chosen))


def _part(known: dict[Version, Release], part: str) -> set[Version]:
    plain = {
        version
        for version, release in known.items()
        if not release.yanked and not release.prerelease
    }
    if part == ALL:
        return plain
    low, dots, high = part.partition("..")
    if not dots:
        one = _named(part)
        return {v for v in (plain if one.is_line else known) if one.has(v)}
    if not low and not high:
        raise UsageError(f"a range without an end: {part!r}. {_HOW}")
    first, last = (_named(word) if word else None for word in (low, high))
    if first and last and first.version > last.version and not last.has(first.version):
        raise UsageError(f"the range runs backwards: {part}. Write {high}..{low}.")
    within = {v for v in plain if (not first or first.before(v)) and (not last or last.after(v))}
    ends = [end for end in (first, last) if end and not end.is_line]
    for end in ends:
        exact = {v for v in known if end.has(v)}
        if not exact and end.text.count(".") > 1 and not within:
            return set()
        within |= exact
    return within


def _named(word: str) -> _Named:
    word = word.strip()
    try:
        return _Named(word, Version(word))
    except InvalidVersion:
        raise UsageError(f"{word!r} is no release, line or range. {_HOW}") from None


def _nothing(known: dict[Version, Release], part: str) -> str:
    names = [str(version) for version in sorted(known)]
    lines = list(dict.fromkeys(".".join(map(str, v.release[:2])) for v in sorted(known)))
    words = [word for word in part.split("..") if word]
    import difflib

    close = [
        name
        for word in words
        for name in difflib.get_close_matches(word, names if word.count(".") > 1 else lines, n=3)
    ]
    near = f" Near it: {', '.join(dict.fromkeys(close))}." if close else ""
    newest = f" The newest is {names[-1]}." if names else ""
    return f"no release is meant by {part}.{near}{newest} See vllm-series releases."
