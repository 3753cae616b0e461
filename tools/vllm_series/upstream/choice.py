"""Which file of a release is judged: the wheel that pip would install.

pip prefers, in this order, files that were not withdrawn, the best tag for the platform, the
highest build number, and of equals the one it found last
(https://packaging.python.org/en/latest/specifications/binary-distribution-format/ and
pip's `package_finder`). Where pip would install nothing here, the release can still be judged: by
the wheel for another Python or platform, and the choice says so. Only what was asked for by name
(`--python-version`, `--platform`) is kept to.
"""

from __future__ import annotations

import difflib
import platform as machine
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from vllm_series.errors import UsageError
from vllm_series.upstream.catalog import Release
from vllm_series.upstream.index import IndexFile
from vllm_series.upstream.target import Target, platforms_of

_NEWEST_PYTHON = 30
_OLDEST_PYTHON = 6


@dataclass(frozen=True, slots=True)
class Choice:
    """The file that stands for a release. `note` says why it is not what pip would take here,
    empty where it is; `reason` why there is none, with `file` None."""

    release: str
    file: IndexFile | None
    note: str = ""
    reason: str = ""

    def as_release(self, distribution: str) -> Release:
        """The release as a catalog gives it."""
        file = self.file
        is_prerelease = Version(self.release).is_prerelease
        if file is None:
            return Release(self.release, distribution, prerelease=is_prerelease)
        return Release(
            self.release,
            distribution,
            file.filename,
            file.date,
            file.size,
            file.sha256,
            file.yanked is not None,
            is_prerelease,
        )


class Chooser:
    """Chooses for one target; remembers the order of its tags, which takes long to make."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._ranks: dict[Target, dict[str, int]] = {}

    def best(self, files: Sequence[IndexFile], target: Target) -> IndexFile | None:
        """The wheel of these that pip takes for a target, None where it takes none of them."""
        ranks = self._ranks.get(target)
        if ranks is None:
            ranks = {}
            for rank, tag in enumerate(target.tags()):
                ranks.setdefault(tag, rank)
            self._ranks[target] = ranks
        best: tuple[tuple[bool, int, tuple[int, str] | tuple[()]], IndexFile] | None = None
        for file in files:
            fitting = [ranks[tag] for tag in file.tags if tag in ranks]
            if not fitting or not allows(file, target.full_python):
                continue
            key = (file.yanked is None, -min(fitting), file.build)
            if best is None or key >= best[0]:
                best = (key, file)
        return best[1] if best else None

    def choose(self, release: str, files: Sequence[IndexFile]) -> Choice:
        """The file that stands for a release of which these are all."""
        wheels = [file for file in files if file.is_wheel]
        for tried in self._tried(wheels):
            file = self.best(wheels, tried)
            if file is not None:
                return Choice(release, file, self._note(tried))
        if wheels:
            names = ", ".join(file.filename for file in wheels[:4])
            return Choice(release, None, reason=f"no wheel for {self._target.words}: {names}")
        if files:
            kept = [file for file in files if file.yanked is None] or list(files)
            return Choice(release, kept[-1], "it has no wheel, so its sdist is judged")
        return Choice(release, None, reason="no file")

    def _tried(self, wheels: Sequence[IndexFile]) -> Iterable[Target]:
        """The target, then what may stand in for it: another Python before another platform."""
        target = self._target
        platforms: list[tuple[str, ...] | None] = [target.platforms]
        if target.platforms is None:
            own = machine.machine().lower().replace("amd64", "x86_64").replace("arm64", "aarch64")
            # Not on Linux, whatever the processor: what most people run.
            known = [own] if machine.system() == "Linux" else []
            for arch in dict.fromkeys((*known, "x86_64", "aarch64")):
                platforms.append(tuple(platforms_of(f"linux_{arch}")))
        for platform in platforms:
            yield Target(target.python, platform)
            if target.python is None:
                for python in _pythons(wheels):
                    yield Target(python, platform)

    def _note(self, tried: Target) -> str:
        if tried == self._target:
            return ""
        return f"pip has no wheel for {self._target.words}; judged by that for {tried.words}"


def allows(file: IndexFile, python: str) -> bool:
    """Whether Requires-Python lets this Python in; as in pip, one that cannot be read lets all."""
    if not file.requires_python:
        return True
    try:
        return SpecifierSet(file.requires_python).contains(python, prereleases=True)
    except InvalidSpecifier:
        return True


def _pythons(wheels: Sequence[IndexFile]) -> list[tuple[int, int]]:
    """The Pythons that these wheels are for, newest first."""
    exact = set()
    for file in wheels:
        for tag in file.tags:
            interpreter, abi, _ = tag.split("-", 2)
            if interpreter == abi and interpreter[:3] == "cp3" and interpreter[3:].isdecimal():
                exact.add((3, int(interpreter[3:])))
        for minor in range(_NEWEST_PYTHON, _OLDEST_PYTHON, -1):
            if "abi3" in file.filename and allows(file, f"3.{minor}.0"):
                exact.add((3, minor))
                break
    return sorted(exact, reverse=True)


def by_release(files: Iterable[IndexFile]) -> dict[str, list[IndexFile]]:
    """The files of each release, oldest release first, each in the order they were found."""
    found: dict[str, list[IndexFile]] = {}
    for file in files:
        found.setdefault(file.release, []).append(file)
    return {release: found[release] for release in sorted(found, key=Version)}


def choices(
    files: Iterable[IndexFile], target: Target, wanted: Sequence[str] = ()
) -> tuple[Choice, ...]:
    """A choice for every release, oldest first; `wanted` are file names that go before the rule.

    Raises UsageError for a name that no release has, or two names of one release.
    """
    releases = by_release(files)
    asked: dict[str, IndexFile] = {}
    for name in wanted:
        found = [file for group in releases.values() for file in group if file.filename == name]
        if not found:
            raise UsageError(_unknown(name, [f.filename for g in releases.values() for f in g]))
        if found[0].release in asked:
            raise UsageError(
                f"{name} and {asked[found[0].release].filename} are of one release. "
                "Give --wheel once for it."
            )
        asked[found[0].release] = found[-1]
    chooser = Chooser(target)
    return tuple(
        Choice(release, asked[release]) if release in asked else chooser.choose(release, group)
        for release, group in releases.items()
    )


def _unknown(name: str, names: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.8)
    near = f" Near it: {', '.join(close)}." if close else " See vllm-series releases -v."
    return f"no file of that name is served: {name}.{near}"
