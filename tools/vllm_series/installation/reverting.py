"""Patches taken off a tree again, to the byte, from what was kept when they were put on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_series.errors import RefusedError, UsageError
from vllm_series.installation.bytecode import compiled_from
from vllm_series.installation.content import Content
from vllm_series.installation.edits import refuse_edits
from vllm_series.installation.journal import Work
from vllm_series.installation.listing import complete
from vllm_series.installation.stack import (
    AppliedFile,
    AppliedPatch,
    FileState,
    Stack,
    before_path,
    patch_path,
    read_stack,
    state_path,
)

if TYPE_CHECKING:
    from vllm_series.trees import DiskTree


def plan_revert(tree: DiskTree, count: int | None) -> tuple[tuple[AppliedPatch, ...], Work]:
    """The top `count` patches (None: all), top first, and what the disk must be told to lose them.

    Raises as `transaction.revert`.
    """
    stack = read_stack(tree)
    if count is not None and count < 1:
        raise UsageError(f"{count} patches cannot be reverted. Give a number from 1 on.")
    if count is not None and count > len(stack.patches):
        raise RefusedError(
            f"{count} patches cannot be reverted, {len(stack.patches)} are applied to {tree.label}."
        )
    if not stack:
        return (), Work()
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
    refuse_edits(tree, {path: current[path] for path in lowest})
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
        work.discards.append(f"{state}/before/{patch.folder}")
    if not new:
        work.removes.append(f"{state}/stack.json")
        work.discards = [state]
    complete(tree, stack, new, work)
    return tuple(reversed(gone)), work


def _saved(tree: DiskTree, patch: AppliedPatch, path: str, state: FileState) -> Content:
    source = tree.root / before_path(state_path(tree), patch, path)
    if not source.is_file():
        raise RefusedError(f"{source} is gone, so {path} cannot be put back. Reinstall vLLM.")
    place = tree.root / path
    owner = place if place.exists() else place.parent
    return Content(source, state.mode, owner, state.mtime_ns, state.sha256)
