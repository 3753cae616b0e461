"""The patches that are applied in a tree, as data that a person can open.

Laid out like quilt's `.pc/`: beside the dist-info's own files (or in `.vllm-series/` of a bare
folder) lie the texts of the applied patches and each file before each of them.
`stack.json` says what they are, with hashes, so that revert and verify need neither the series
folder nor the network:

    vllm-series/stack.json
    vllm-series/RECORD.before
    vllm-series/patches/0001-dynwidth.patch
    vllm-series/before/0001-dynwidth/vllm/v1/core/sched/scheduler.py

Reading it is on the path of every command, so this module imports little.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vllm_series.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vllm_series.trees import DiskTree

SCHEMA = 1
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST_NAME = 80


@dataclass(frozen=True, slots=True)
class FileState:
    """One file at one time: hex digest, bytes, permission bits, modification time in ns."""

    sha256: str
    size: int
    mode: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class SavedBytecode:
    """A compiled file that a patch made stale; `path` is relative to the tree."""

    path: str
    state: FileState


@dataclass(frozen=True, slots=True)
class AppliedFile:
    """What one patch did to one file; None stands for no file."""

    path: str
    before: FileState | None
    after: FileState | None
    bytecode: tuple[SavedBytecode, ...] = ()


@dataclass(frozen=True, slots=True)
class AppliedPatch:
    """One patch of the stack. `number` is 1-based; `sha256` and `size` are of its text;
    `directories` are those that it made, parents first."""

    number: int
    name: str
    sha256: str
    size: int
    files: tuple[AppliedFile, ...]
    directories: tuple[str, ...] = ()

    @property
    def folder(self) -> str:
        """The name of its folders in the state, `0001-dynwidth`."""
        slug = _UNSAFE.sub("-", self.name.removesuffix(".patch")).strip("-.")[:_LONGEST_NAME]
        return f"{self.number:04d}-{slug}"


@dataclass(frozen=True, slots=True)
class Stack:
    """The applied patches, first applied first; `record` is the pristine RECORD."""

    patches: tuple[AppliedPatch, ...] = ()
    record: FileState | None = None
    release: str | None = None

    def __bool__(self) -> bool:
        return bool(self.patches)

    def pristine(self) -> dict[str, FileState | None]:
        """Each touched path as the release has it; None where the release has no such file."""
        states: dict[str, FileState | None] = {}
        for patch in self.patches:
            for file in patch.files:
                states.setdefault(file.path, file.before)
        return states

    def current(self) -> dict[str, tuple[AppliedPatch, AppliedFile]]:
        """Each touched path with the last patch that touched it."""
        return {file.path: (patch, file) for patch in self.patches for file in patch.files}


def state_path(tree: DiskTree) -> str:
    """The state folder, relative to the tree's root."""
    if tree.distribution:
        return f"{tree.distribution.dist_info.name}/vllm-series"
    return ".vllm-series"


def patch_path(state: str, patch: AppliedPatch) -> str:
    """Where the text of an applied patch is kept, relative to the tree."""
    return f"{state}/patches/{patch.folder}.patch"


def before_path(state: str, patch: AppliedPatch, path: str) -> str:
    """Where a file is kept as it was before a patch, relative to the tree."""
    return f"{state}/before/{patch.folder}/{path}"


def saved_files(state: str, stack: Stack) -> Iterator[tuple[str, FileState]]:
    """Every file of the state but stack.json: its path in the tree and what it must be."""
    if stack.record:
        yield f"{state}/RECORD.before", stack.record
    for patch in stack.patches:
        yield patch_path(state, patch), FileState(patch.sha256, patch.size, 0o644, 0)
        for file in patch.files:
            if file.before:
                yield before_path(state, patch, file.path), file.before
            for saved in file.bytecode:
                yield before_path(state, patch, saved.path), saved.state


def read_stack(tree: DiskTree) -> Stack:
    """What is applied; an empty stack where nothing is.

    Raises RefusedError where `stack.json` cannot be read with certainty.
    """
    place = tree.root / state_path(tree) / "stack.json"
    try:
        data = place.read_bytes()
    except FileNotFoundError:
        return Stack()
    try:
        return _decoded(json.loads(data))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RefusedError(
            f"{place} is damaged ({error}), so what is applied is not known. Reinstall vLLM."
        ) from error


def patch_text(tree: DiskTree, patch: AppliedPatch) -> bytes:
    """The text of an applied patch, as it was when it was applied."""
    return (tree.root / patch_path(state_path(tree), patch)).read_bytes()


def encoded(stack: Stack) -> bytes:
    """`stack.json`: one line a patch, file and compiled file, to be read and compared."""
    patches = []
    for patch in stack.patches:
        files = []
        for file in patch.files:
            item: dict[str, Any] = {
                "path": file.path,
                "before": _state(file.before),
                "after": _state(file.after),
            }
            if file.bytecode:
                item["bytecode"] = [{"path": s.path, **_state_of(s.state)} for s in file.bytecode]
            files.append(item)
        patches.append(
            {
                "number": patch.number,
                "name": patch.name,
                "sha256": patch.sha256,
                "size": patch.size,
                "directories": list(patch.directories),
                "files": files,
            }
        )
    data = {
        "schema": SCHEMA,
        "release": stack.release,
        "record": _state(stack.record),
        "patches": patches,
    }
    return json.dumps(data, indent=1).encode() + b"\n"


def _state(state: FileState | None) -> dict[str, Any] | None:
    return None if state is None else _state_of(state)


def _state_of(state: FileState) -> dict[str, Any]:
    return {
        "sha256": state.sha256,
        "size": state.size,
        "mode": f"{state.mode:04o}",
        "mtime_ns": state.mtime_ns,
    }


def _decoded(data: Any) -> Stack:
    if data["schema"] != SCHEMA:
        raise RefusedError(
            f"the stack was written in form {data['schema']}, this vllm-series reads {SCHEMA}. "
            "Use the vllm-series that applied it."
        )
    return Stack(
        tuple(
            AppliedPatch(
                number=int(patch["number"]),
                name=str(patch["name"]),
                sha256=str(patch["sha256"]),
                size=int(patch["size"]),
                directories=tuple(map(str, patch["directories"])),
                files=tuple(_file(file) for file in patch["files"]),
            )
            for patch in data["patches"]
        ),
        _read_state(data["record"]),
        data["release"],
    )


def _file(data: Any) -> AppliedFile:
    return AppliedFile(
        path=str(data["path"]),
        before=_read_state(data["before"]),
        after=_read_state(data["after"]),
        bytecode=tuple(
            SavedBytecode(str(item["path"]), _some_state(item)) for item in data.get("bytecode", ())
        ),
    )


def _read_state(data: Any) -> FileState | None:
    return None if data is None else _some_state(data)


def _some_state(data: Any) -> FileState:
    return FileState(
        str(data["sha256"]), int(data["size"]), int(data["mode"], 8), int(data["mtime_ns"])
    )
