"""For whom a wheel is chosen: a Python and the platforms that it takes wheels for.

The order of preference is that of pip, which takes it from `packaging.tags`. A platform that is
named stands for all that came before it too: glibc 2.28 runs what was built for 2.17
(https://packaging.python.org/en/latest/specifications/platform-compatibility-tags/).
"""

from __future__ import annotations

import platform as machine
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from packaging import tags

from vllm_series.errors import UsageError

_MANYLINUX = re.compile(r"manylinux_2_(\d+)_(\w+)")
_MUSLLINUX = re.compile(r"musllinux_1_(\d+)_(\w+)")
_MACOS = re.compile(r"macosx_(\d+)_(\d+)_(\w+)")
_LEGACY = {"manylinux1": 5, "manylinux2010": 12, "manylinux2014": 17}
_NEWEST_GLIBC = 99
"""Beyond any that there is: takes wheels for every glibc."""
_PLAIN = re.compile(r"(linux|win|any)(_\w+)?")


@dataclass(frozen=True, slots=True)
class Target:
    """A Python and platforms; what is None was not asked for, and is that of this process.

    `python` is (major, minor) or with the third number; `platforms` are best first.
    """

    python: tuple[int, ...] | None = None
    platforms: tuple[str, ...] | None = None

    @property
    def full_python(self) -> str:
        """The version that Requires-Python is held against, as pip does: 3.12 counts as 3.12.0."""
        numbers = self.python or tuple(sys.version_info[:3])
        return ".".join(map(str, (*numbers, 0, 0)[:3]))

    @property
    def words(self) -> str:
        """What messages call it: `Python 3.12 on manylinux_2_28_x86_64`."""
        numbers = (self.python or sys.version_info[:2])[:2]
        python = f"Python {'.'.join(map(str, numbers))}"
        if self.platforms is None:
            return f"{python} on {machine.system()} {machine.machine()}"
        return f"{python} on {self.platforms[0]}"

    def tags(self) -> list[str]:
        """Every tag that it takes, best first."""
        if self.python is None and self.platforms is None:
            return [str(tag) for tag in tags.sys_tags()]
        python = (self.python or sys.version_info[:2])[:2]
        platforms = list(self.platforms) if self.platforms is not None else None
        short = f"{python[0]}{python[1]}"
        found = [
            *tags.cpython_tags(python, [f"cp{short}"], platforms),
            *tags.compatible_tags(python, f"cp{short}", platforms),
        ]
        return [str(tag) for tag in found]


def target(python_version: str | None = None, platform: str | None = None) -> Target:
    """What `--python-version` (`3.12`, `312`, `3.12.4`) and `--platform` mean.

    Raises UsageError for what is no version or no platform.
    """
    return Target(
        _python(python_version) if python_version else None,
        tuple(platforms_of(platform)) if platform else None,
    )


def _python(word: str) -> tuple[int, ...]:
    dotted = re.fullmatch(r"(\d+)\.(\d+)(?:\.(\d+))?", word)
    short = re.fullmatch(r"(\d)(\d{1,2})", word)
    found = dotted or short
    if not found or int(found[1]) != 3:
        raise UsageError(f"{word!r} is no version of Python 3. Give one such as 3.12.")
    return tuple(int(number) for number in found.groups() if number is not None)


def platforms_of(name: str) -> Iterator[str]:
    """A platform tag and what it also runs, best first; `linux_x86_64` means any glibc.

    Raises UsageError for what is no platform tag.
    """
    name = name.lower().replace("-", "_").replace(".", "_")
    legacy, _, arch = name.partition("_")
    if found := _MANYLINUX.fullmatch(name):
        yield from _glibc(int(found[1]), found[2])
    elif legacy in _LEGACY and arch:
        yield from _glibc(_LEGACY[legacy], arch)
    elif legacy == "linux" and arch:
        yield from _glibc(_NEWEST_GLIBC, arch)
    elif found := _MUSLLINUX.fullmatch(name):
        for minor in range(int(found[1]), 0, -1):
            yield f"musllinux_1_{minor}_{found[2]}"
        yield f"linux_{found[2]}"
    elif found := _MACOS.fullmatch(name):
        yield from tags.mac_platforms((int(found[1]), int(found[2])), found[3])
    elif _PLAIN.fullmatch(name):
        yield name
    else:
        raise UsageError(
            f"{name!r} is no platform. Give a tag such as manylinux_2_28_x86_64, linux_aarch64 or "
            "macosx_14_0_arm64."
        )


def _glibc(minor: int, arch: str) -> Iterator[str]:
    oldest = 5 if arch in ("x86_64", "i686") else 17
    names = {level: name for name, level in _LEGACY.items()}
    for level in range(max(minor, oldest), oldest - 1, -1):
        yield f"manylinux_2_{level}_{arch}"
        if level in names:
            yield f"{names[level]}_{arch}"
    yield f"linux_{arch}"
