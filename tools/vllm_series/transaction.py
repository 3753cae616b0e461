"""From a plan to the disk and back: the only writer of a tree.

`apply` and `revert` decide, under the lock, what every file has to hold; `journal` makes it happen
all at once. Both go by what is on disk at that moment: a plan whose starting point is gone is
refused, and so is a revert that would lose an edit made by hand. What they need later is kept in
the tree itself (`stack`), so that neither the series folder nor the network is asked again.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from vllm_series.bytecode import SECOND, compiled_from, fresh_second
from vllm_series.errors import EnvironmentRefusedError, RefusedError, UsageError
from vllm_series.journal import Content, Journal, Work, digest_of
from vllm_series.lock import exclusive
from vllm_series.record import restated, rewritten, stack_rows
from vllm_series.stack import (
    AppliedFile,
    AppliedPatch,
    FileState,
    SavedBytecode,
    Stack,
    after_path,
    before_path,
    encoded,
    patch_path,
    read_stack,
    state_path,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from vllm_series.steps import FileStep, PatchStep
    from vllm_series.trees import DiskTree

_FILE_MODE = 0o644
_FOLDER_MODE = 0o755


@dataclass(frozen=True, slots=True)
class OpenTree:
    """A tree that this process alone may change; only `opened` makes one."""

    tree: DiskTree


@contextmanager
def opened(tree: DiskTree, waiting: Callable[[str], None] | None = None) -> Iterator[OpenTree]:
    """Hold a tree, with whatever an interrupted process left behind brought to an end first.

    Plan inside: what is read there is what `apply` finds. `waiting` gets one message where
    another process holds the tree.
    """
    with exclusive(tree, waiting):
        _journal(tree).recover()
        yield OpenTree(tree)


def recover(tree: DiskTree, waiting: Callable[[str], None] | None = None) -> bool:
    """Bring an interrupted change to its end or its beginning; True if there was one.

    For commands that only look: without a journal it costs four calls of `lstat` and no lock.
    """
    journal = _journal(tree)
    if not journal.is_open():
        return False
    with exclusive(tree, waiting):
        return journal.recover()


def apply(held: OpenTree, steps: Sequence[PatchStep]) -> Stack:
    """Put patches on top of the stack, all or none; the new stack.

    Raises RefusedError where a file is not what the plan started from or a patch changes nothing,
    EnvironmentRefusedError where the disk does not allow it. The tree is then as it was.
    """
    tree = held.tree
    stack = read_stack(tree)
    if not steps:
        raise RefusedError("there is no patch to apply.")
    layers = _Layers(tree, stack)
    patches = [
        layers.add(step, number) for number, step in enumerate(steps, start=len(stack.patches) + 1)
    ]
    record = stack.record or _record_state(tree)
    new = Stack((*stack.patches, *patches), record, tree.version)
    work = layers.work(zip(patches, steps, strict=True))
    _restate(tree, stack, new, work)
    _make_parents(tree.root, work, [*(path for patch in patches for path in patch.directories)])
    _journal(tree).run(work)
    return new


def revert(held: OpenTree, count: int | None = None) -> tuple[AppliedPatch, ...]:
    """Take the top `count` patches off (None: all), top first in the result; empty if none is on.

    Bytes, modes, times, RECORD and the compiled files come back as they were. Raises RefusedError,
    with a diff, where a file was edited since, UsageError for a count below 1.
    """
    tree = held.tree
    stack = read_stack(tree)
    if count is not None and count < 1:
        raise UsageError(f"{count} patches cannot be reverted. Give a number from 1 on.")
    if count is not None and count > len(stack.patches):
        raise RefusedError(
            f"{count} patches cannot be reverted, {len(stack.patches)} are applied to {tree.label}."
        )
    if not stack:
        return ()
    keep = 0 if count is None else len(stack.patches) - count
    gone = stack.patches[keep:]
    new = Stack(stack.patches[:keep], stack.record, stack.release)
    work = Work()
    state = state_path(tree)
    current = stack.current()
    lowest: dict[str, tuple[AppliedPatch, AppliedFile]] = {}
    for patch in gone:
        for file in patch.files:
            lowest.setdefault(file.path, (patch, file))
    _refuse_edits(tree, {path: current[path] for path in lowest})
    for path, (patch, file) in lowest.items():
        for compiled in compiled_from(tree.root, path):
            work.removes.append(compiled)
        if file.before:
            work.puts[path] = _saved(tree, patch, path, file.before)
        elif current[path][1].after:
            work.removes.append(path)
        for saved in file.bytecode:
            work.puts[saved.path] = _saved(tree, patch, saved.path, saved.state)
    work.removes = [path for path in work.removes if path not in work.puts]
    for patch in reversed(gone):
        for folder in reversed(patch.directories):
            work.clears += [f"{folder}/__pycache__", folder]
        work.removes.append(patch_path(state, patch))
        work.discards += [f"{state}/{kind}/{patch.folder}" for kind in ("before", "after")]
    if not new:
        work.removes.append(f"{state}/stack.json")
        work.discards = [state]
    _restate(tree, stack, new, work)
    _make_parents(tree.root, work, [])
    _journal(tree).run(work)
    return tuple(reversed(gone))


@dataclass(slots=True)
class _Now:
    """A file while layers are put on it; `seconds` are those that its versions bear."""

    data: bytes | None
    state: FileState | None
    changed: int
    bytecode: tuple[SavedBytecode, ...] = ()
    seconds: set[int] = field(default_factory=set)


class _Layers:
    """Patches laid over a tree in memory, from the files as they are on disk now."""

    def __init__(self, tree: DiskTree, stack: Stack) -> None:
        self._tree = tree
        self._stack = stack
        self._current = stack.current()
        self._files: dict[str, _Now] = {}
        self._first: dict[str, _Now] = {}
        self._made: set[str] = set()
        self._saved: list[tuple[AppliedPatch, str, bytes]] = []
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
        for path, old in before.items():
            new = self._files[path]
            state = state_path(self._tree)
            if old.data is not None:
                self._saved.append((patch, before_path(state, patch, path), old.data))
            if new.data is not None:
                self._saved.append((patch, after_path(state, patch, path), new.data))
        return patch

    def work(self, patches: Iterable[tuple[AppliedPatch, PatchStep]]) -> Work:
        """What the disk has to be told."""
        work = Work()
        root, state = self._tree.root, state_path(self._tree)
        keeper = (root / state).parent
        for patch, step in patches:
            work.creates[patch_path(state, patch)] = Content(step.text, _FILE_MODE, keeper)
            for file in patch.files:
                for saved in file.bytecode:
                    source = root / saved.path
                    work.creates[before_path(state, patch, saved.path)] = Content(
                        source, _FILE_MODE, keeper, sha256=saved.state.sha256
                    )
                    work.removes.append(saved.path)
        for _, path, data in self._saved:
            work.creates[path] = Content(data, _FILE_MODE, keeper)
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
            _refuse_edits(tree, {path: self._current[path]})
        bytecode = tuple(
            SavedBytecode(compiled, _state(tree.root / compiled))
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
            now = _Now(data, state, int(status.st_ctime), bytecode, seconds)
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
            _FILE_MODE if mode is None else mode,
            second * SECOND,
        )
        return _Now(file.after, state, now.changed, seconds=now.seconds | {second})

    def _missing_folders(self, path: str) -> list[str]:
        missing = [
            folder
            for folder in _parents(path)
            if folder not in self._made and not (self._tree.root / folder).is_dir()
        ]
        self._made.update(missing)
        return missing


def _mode(now: _Now) -> int | None:
    return now.state.mode if now.state else None


def _parents(path: str) -> list[str]:
    """The folders above a path, outermost first."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[: end + 1]) for end in range(len(parts))]


def _make_parents(root: Path, work: Work, first: Iterable[str]) -> None:
    wanted = dict.fromkeys(first)
    for path in [*work.creates, *work.puts]:
        wanted.update(dict.fromkeys(_parents(path)))
    work.makes = [(path, _FOLDER_MODE) for path in wanted if not (root / path).is_dir()]


def _restate(tree: DiskTree, old: Stack, new: Stack, work: Work) -> None:
    """Add stack.json and RECORD, which both say what is in the tree, to the work."""
    state = state_path(tree)
    root = tree.root
    listing = encoded(new)
    if new:
        keeper = (root / state).parent
        work.puts[f"{state}/stack.json"] = Content(listing, _FILE_MODE, keeper)
    if tree.distribution is None:
        return
    place = tree.distribution.record
    data = place.read_bytes()
    saved = f"{state}/RECORD.before"
    wanted = stack_rows(state, new, listing) if new else {}
    now = _state(place)
    if old:
        before = _saved_record(root / saved, old)
        had = stack_rows(state, old, (root / state / "stack.json").read_bytes())
        text = restated(data, before, place, had, wanted)
    else:
        text = rewritten(data, place, wanted)
        work.creates[saved] = Content(data, _FILE_MODE, place.parent)
    restored = old.record if not new and old.record and text == before else None
    work.puts[f"{place.parent.name}/RECORD"] = Content(
        text,
        (restored or now).mode,
        place,
        restored.mtime_ns if restored else None,
    )


def _saved_record(place: Path, stack: Stack) -> bytes:
    try:
        before = place.read_bytes()
    except FileNotFoundError:
        before = b""
    if stack.record is None or hashlib.sha256(before).hexdigest() != stack.record.sha256:
        raise RefusedError(
            f"{place} is not the list of files that was saved, so RECORD cannot be kept true. "
            "Reinstall vLLM."
        )
    return before


def _saved(tree: DiskTree, patch: AppliedPatch, path: str, state: FileState) -> Content:
    source = tree.root / before_path(state_path(tree), patch, path)
    if not source.is_file():
        raise RefusedError(f"{source} is gone, so {path} cannot be put back. Reinstall vLLM.")
    place = tree.root / path
    owner = place if place.exists() else place.parent
    return Content(source, state.mode, owner, state.mtime_ns, state.sha256)


def _refuse_edits(tree: DiskTree, files: dict[str, tuple[AppliedPatch, AppliedFile]]) -> None:
    """Refuse where a file is not what its patch left; all such files in one message, with diffs."""
    from vllm_series.edits import edit_of

    edits = [
        edit
        for path, (patch, file) in files.items()
        if (edit := edit_of(tree, patch, path, file.after)) is not None
    ]
    if edits:
        raise RefusedError("\n".join(edits))


def _state(place: Path) -> FileState:
    status = os.lstat(place)
    if not stat.S_ISREG(status.st_mode):
        raise EnvironmentRefusedError(
            f"{place} is not a regular file. Install vLLM with real files: uv with "
            "--link-mode=copy or hardlink, pip as it is."
        )
    return FileState(
        digest_of(place), status.st_size, stat.S_IMODE(status.st_mode), status.st_mtime_ns
    )


def _record_state(tree: DiskTree) -> FileState | None:
    return _state(tree.distribution.record) if tree.distribution else None


def _journal(tree: DiskTree) -> Journal:
    return Journal(tree.root, state_path(tree))
