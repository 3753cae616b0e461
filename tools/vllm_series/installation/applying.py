"""Patches laid over a tree in memory: what the disk must hold, and what must be remembered.

Each file starts as it is on disk now, not as the plan believed it to be, and every patch that
touches it is one layer more. The files before each layer are kept, so that any number of patches
can be taken off again.
"""

from __future__ import annotations

import hashlib
import stat
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from vllm_series.errors import RefusedError
from vllm_series.installation.bytecode import SECOND, compiled_from, fresh_second
from vllm_series.installation.content import FILE_MODE, Content, state_of
from vllm_series.installation.edits import refuse_edits
from vllm_series.installation.journal import Work
from vllm_series.installation.listing import complete, parents, record_state
from vllm_series.installation.stack import (
    AppliedFile,
    AppliedPatch,
    FileState,
    SavedBytecode,
    Stack,
    before_path,
    patch_path,
    read_stack,
    state_path,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from vllm_series.steps import FileStep, PatchStep
    from vllm_series.trees import DiskTree


def plan_apply(tree: DiskTree, steps: Sequence[PatchStep]) -> tuple[Stack, Work]:
    """The stack with `steps` on top, and what the disk must be told. Raises as
    `transaction.apply`."""
    stack = read_stack(tree)
    if not steps:
        raise RefusedError("there is no patch to apply.")
    layers = Layers(tree, stack)
    patches = [
        layers.add(step, number) for number, step in enumerate(steps, start=len(stack.patches) + 1)
    ]
    record = stack.record or record_state(tree)
    new = Stack((*stack.patches, *patches), record, tree.version)
    work = layers.work(zip(patches, steps, strict=True))
    complete(tree, stack, new, work, [path for patch in patches for path in patch.directories])
    return new, work


def ends_with(stack: Stack, steps: Sequence[PatchStep]) -> bool:
    """Whether the top of the stack is exactly these patches, by name and text."""
    top = [(patch.name, patch.sha256) for patch in stack.patches[-len(steps) :]] if steps else []
    return bool(top) and top == [
        (step.name, hashlib.sha256(step.text).hexdigest()) for step in steps
    ]


@dataclass(slots=True)
class _Now:
    """A file while layers are put on it.

    `seconds` are those that its versions bear; `alone` is the file on disk that holds `data` and
    has no other name, if there is one.
    """

    data: bytes | None
    state: FileState | None
    changed: int
    bytecode: tuple[SavedBytecode, ...] = ()
    seconds: set[int] = field(default_factory=set)
    alone: Path | None = None


class Layers:
    """Patches laid over a tree in memory, from the files as they are on disk now."""

    def __init__(self, tree: DiskTree, stack: Stack) -> None:
        self._tree = tree
        self._stack = stack
        self._current = stack.current()
        self._files: dict[str, _Now] = {}
        self._first: dict[str, _Now] = {}
        self._made: set[str] = set()
        self._saved: list[tuple[str, bytes, Path | None]] = []
        self._second = int(time.time())

    def add(self, step: PatchStep, number: int) -> AppliedPatch:
        """One patch more, as it will be recorded."""
        before: dict[str, _Now] = {}
        for file in step.files:
            now = self._files.get(file.path) or self._look(file.path)
            if file.before != now.data:
                raise RefusedError(
                    f"{file.path} is not the file that {step.name} was planned for: it changed "
                    f"meanwhile in {self._tree.root}. Run the command again."
                )
            before.setdefault(file.path, now)
            self._files[file.path] = self._next(now, file)
        directories: list[str] = []
        files = []
        for path, old in before.items():
            new = self._files[path]
            if old.data == new.data and _mode(old) == _mode(new):
                raise RefusedError(f"{step.name} leaves {path} unchanged. Drop it from the patch.")
            if new.state:
                directories += self._missing_folders(path)
            files.append(AppliedFile(path, old.state, new.state, old.bytecode))
        if not files:
            raise RefusedError(f"{step.name} changes no file. Drop it from the series.")
        patch = AppliedPatch(
            number,
            step.name,
            hashlib.sha256(step.text).hexdigest(),
            len(step.text),
            tuple(files),
            tuple(directories),
        )
        state = state_path(self._tree)
        for path, old in before.items():
            if old.data is not None:
                self._saved.append((before_path(state, patch, path), old.data, old.alone))
        return patch

    def work(self, patches: Iterable[tuple[AppliedPatch, PatchStep]]) -> Work:
        """What the disk has to be told."""
        work = Work()
        root, state = self._tree.root, state_path(self._tree)
        keeper = (root / state).parent
        for patch, step in patches:
            work.creates[patch_path(state, patch)] = Content(step.text, FILE_MODE, keeper)
            for file in patch.files:
                for saved in file.bytecode:
                    source = root / saved.path
                    work.creates[before_path(state, patch, saved.path)] = Content(
                        source, FILE_MODE, keeper, sha256=saved.state.sha256
                    )
                    work.removes.append(saved.path)
        for path, data, twin in self._saved:
            work.creates[path] = Content(data, FILE_MODE, keeper, twin=twin)
        for path, now in self._files.items():
            place = root / path
            existed = self._first[path].data is not None
            if now.data is not None and now.state:
                owner = place if existed else place.parent
                work.puts[path] = Content(now.data, now.state.mode, owner, now.state.mtime_ns)
            elif existed:
                work.removes.append(path)
        return work

    def _look(self, path: str) -> _Now:
        tree = self._tree
        status = tree.status(path)
        if path in self._current:
            refuse_edits(tree, {path: self._current[path]})
        bytecode = tuple(
            SavedBytecode(compiled, state_of(tree.root / compiled))
            for compiled in compiled_from(tree.root, path)
        )
        seconds = (
            {
                state.mtime_ns // SECOND
                for patch in self._stack.patches
                for file in patch.files
                if file.path == path
                for state in (file.before, file.after)
                if state
            }
            if path in self._current
            else set()
        )
        if status is None:
            now = _Now(None, None, 0, bytecode, seconds)
        else:
            data = (tree.root / path).read_bytes()
            state = FileState(
                hashlib.sha256(data).hexdigest(),
                len(data),
                stat.S_IMODE(status.st_mode),
                status.st_mtime_ns,
            )
            seconds.add(status.st_mtime_ns // SECOND)
            alone = tree.root / path if status.st_nlink == 1 else None
            now = _Now(data, state, int(status.st_ctime), bytecode, seconds, alone)
        self._first[path] = now
        return now

    def _next(self, now: _Now, file: FileStep) -> _Now:
        if file.after is None:
            return _Now(None, None, now.changed, seconds=now.seconds)
        second = fresh_second(self._second, now.changed, now.seconds)
        mode = file.mode if file.mode is not None else _mode(now)
        state = FileState(
            hashlib.sha256(file.after).hexdigest(),
            len(file.after),
            FILE_MODE if mode is None else mode,
            second * SECOND,
        )
        return _Now(file.after, state, now.changed, seconds=now.seconds | {second})

    def _missing_folders(self, path: str) -> list[str]:
        missing = [
            folder
            for folder in parents(path)
            if folder not in self._made and not (self._tree.root / folder).is_dir()
        ]
        self._made.update(missing)
        return missing


def _mode(now: _Now) -> int | None:
    return now.state.mode if now.state else None
