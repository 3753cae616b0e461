"""An installation held against its release and its stack, by hash.

What a release's files must be, the installer wrote into RECORD; what the stack's files must be,
`stack.json` says. Reading costs what is asked for: the stack alone takes a moment, everything is a
gigabyte. Nothing is written and nothing of the package is imported.
"""

from __future__ import annotations

import hashlib
import os
import stat
from base64 import urlsafe_b64encode
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from vllm_series.installation.bytecode import source_of
from vllm_series.installation.stack import FileState, Stack, read_stack, saved_files, state_path
from vllm_series.trees import PACKAGE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from vllm_series.installation.record import Fields
    from vllm_series.trees import DiskTree

Kind = Literal["changed", "missing", "extra", "mode", "link", "record", "state"]
_CHUNK = 1 << 20
_THREADS = 4


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not as release and stack say; `path` is relative to the tree."""

    kind: Kind
    path: str
    detail: str

    def __str__(self) -> str:
        return f"{self.path}: {self.detail}"


def verify(tree: DiskTree, everything: bool = False) -> list[Difference]:
    """Every difference, in the order of paths.

    Looks at the stack's files, its saved state and their rows in RECORD; `everything` adds all
    files that RECORD lists and those in `vllm/` that it does not list. A bare folder has no list of
    its release's files, so only the stack can be held against it.
    """
    stack = read_stack(tree)
    found = [*_stack_files(tree, stack), *_saved_state(tree, stack)]
    if tree.distribution and (stack or everything):
        from vllm_series.installation.record import holds, rows, stack_rows

        place = tree.distribution.record
        data = place.read_bytes()
        wanted: Mapping[str, Fields | None] = {}
        if stack:
            state = state_path(tree)
            wanted = stack_rows(state, stack, (tree.root / state / "stack.json").read_bytes())
        if everything or not holds(data, wanted):
            listed = rows(data, place)
            found += _stack_rows(wanted, listed)
            if everything:
                found += _others(tree, stack, listed)
    return sorted(found, key=lambda difference: (difference.path, difference.kind))


def _stack_files(tree: DiskTree, stack: Stack) -> Iterator[Difference]:
    for path, (patch, file) in stack.current().items():
        place = tree.root / path
        if file.after is None:
            if os.path.lexists(place):
                yield Difference("extra", path, f"is there again, {patch.name} deleted it")
            continue
        yield from _held(tree.root, path, file.after, f"is not what {patch.name} left")


def _held(root: Path, path: str, wanted: FileState, changed: str) -> Iterator[Difference]:
    """One file whose whole state is recorded."""
    link = _link_above(root, path)
    if link:
        yield Difference("link", path, f"{link} is a link")
        return
    try:
        status = os.lstat(root / path)
    except (FileNotFoundError, NotADirectoryError):
        yield Difference("missing", path, "is gone")
        return
    if not stat.S_ISREG(status.st_mode):
        yield Difference("changed", path, "is not a regular file")
    elif status.st_size != wanted.size or _digest(root / path) != bytes.fromhex(wanted.sha256):
        yield Difference("changed", path, changed)
    elif stat.S_IMODE(status.st_mode) != wanted.mode:
        mode = stat.S_IMODE(status.st_mode)
        yield Difference("mode", path, f"has mode {mode:04o}, not {wanted.mode:04o}")


def _saved_state(tree: DiskTree, stack: Stack) -> Iterator[Difference]:
    if not stack:
        return
    for path, wanted in saved_files(state_path(tree), stack):
        place = tree.root / path
        if not place.is_file():
            yield Difference("state", path, "is gone; revert needs it")
        elif place.stat().st_size != wanted.size or _digest(place) != bytes.fromhex(wanted.sha256):
            yield Difference("state", path, "is damaged; revert needs it")


def _stack_rows(
    expected: Mapping[str, Fields | None], listed: Mapping[str, Fields]
) -> Iterator[Difference]:
    for path, wanted in expected.items():
        has = listed.get(path)
        if has == wanted:
            continue
        if has is None:
            yield Difference("record", path, "is not listed in RECORD")
        elif wanted is None:
            yield Difference("record", path, "is still listed in RECORD")
        else:
            yield Difference("record", path, "has another hash or size in RECORD")


def _others(tree: DiskTree, stack: Stack, listed: Mapping[str, Fields]) -> Iterator[Difference]:
    """Files that no patch touches: listed ones by hash, and unlisted ones in the package."""
    from concurrent.futures import ThreadPoolExecutor

    known = {path for path, _ in saved_files(state_path(tree), stack)} | set(stack.current())
    rest = [(path, columns) for path, columns in listed.items() if path not in known]
    with ThreadPoolExecutor(_THREADS) as pool:
        # Hashing lets other threads run, and the disk answers several reads at once.
        for difference in pool.map(lambda row: _listed(tree.root, *row), rest):
            if difference:
                yield difference
    touched = {path for path, (_, file) in stack.current().items() if file.after is None}
    for folder, names, files in os.walk(tree.root / PACKAGE):
        inside = os.path.relpath(folder, tree.root)
        for name in [*files, *(n for n in names if os.path.islink(f"{folder}/{n}"))]:  # noqa: PTH114
            path = f"{inside}/{name}"
            source = source_of(path)
            bytecode = source is not None and (source in listed or source in stack.current())
            if path not in listed and path not in touched and not bytecode:
                yield Difference("extra", path, "is not listed in RECORD")


def _listed(root: Path, path: str, columns: Fields) -> Difference | None:
    digest, size = columns
    place = root / path
    try:
        status = os.lstat(place)
    except (FileNotFoundError, NotADirectoryError):
        # Compiled files come and go as Python likes.
        return None if source_of(path) else Difference("missing", path, "is gone")
    if stat.S_ISLNK(status.st_mode):
        return Difference("link", path, "is a link")
    if not digest:
        return None
    name, _, value = digest.partition("=")
    changed = Difference("changed", path, "is not what was installed")
    if size and int(size) != status.st_size:
        return changed
    raw = urlsafe_b64encode(_digest(place, name)).decode("ascii").rstrip("=")
    return None if raw == value.rstrip("=") else changed


def _link_above(root: Path, path: str) -> str | None:
    parts = path.split("/")
    for end in range(1, len(parts) + 1):
        part = "/".join(parts[:end])
        if (root / part).is_symlink():
            return part
    return None


def _digest(place: Path, name: str = "sha256") -> bytes:
    digest = hashlib.new(name)
    with place.open("rb", buffering=0) as file:
        while piece := file.read(_CHUNK):
            digest.update(piece)
    return digest.digest()
