"""Compiled files that would run in place of a changed source.

Python takes a `.pyc` as current when the source's size and whole second of modification match
(https://docs.python.org/3/reference/import.html#cached-bytecode-invalidation). So the compiled
files beside a changed source are dropped, of every interpreter and optimization level, and a
changed source gets a second that no version of it at this path has had, because compiled files
may also lie where nobody can find them (PYTHONPYCACHEPREFIX).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

SECOND = 1_000_000_000


def compiled_from(root: Path, path: str) -> list[str]:
    """The compiled files of one source, `path` and results relative to `root`; sorted."""
    if not path.endswith(".py"):
        return []
    folder, _, name = path.rpartition("/")
    stem = name.removesuffix(".py")
    found = []
    if (root / folder / f"{stem}.pyc").is_file():
        found.append(f"{folder}/{stem}.pyc")
    try:
        names = os.listdir(root / folder / "__pycache__")  # noqa: PTH208 (one call a source)
    except (FileNotFoundError, NotADirectoryError):
        names = []
    for cached in sorted(names):
        # A tag has no dot, an optimization mark follows it: scheduler.cpython-311.opt-1.pyc.
        parts = cached.split(".")
        if parts[0] == stem and len(parts) in (3, 4) and parts[-1] == "pyc":
            found.append(f"{folder}/__pycache__/{cached}")
    return found


def source_of(path: str) -> str | None:
    """The source that a compiled file belongs to, None for a path that is not compiled."""
    if not path.endswith((".pyc", ".pyo")):
        return None
    folder, _, name = path.rpartition("/")
    stem = name.split(".", 1)[0]
    parent = folder.removesuffix("__pycache__").rstrip("/")
    return f"{parent}/{stem}.py" if parent else f"{stem}.py"


def fresh_second(now: int, changed: int, taken: Collection[int]) -> int:
    """The second to stamp a changed source with.

    `changed` is the second in which the file now at the path was put there (its ctime, which no
    tool can set back): whatever was there before it was stamped no later. `taken` are seconds
    that other versions of the file are known to bear.
    """
    second = max(now, changed + 1)
    while second in taken:
        second += 1
    return second
