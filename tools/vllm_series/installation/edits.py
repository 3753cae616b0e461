"""Edits made by hand in files that a patch had changed, shown so that nobody loses them."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING

from vllm_series.errors import RefusedError
from vllm_series.installation.stack import before_path, patch_text, state_path

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_series.installation.stack import AppliedFile, AppliedPatch, FileState
    from vllm_series.trees import DiskTree


def edit_of(
    tree: DiskTree, patch: AppliedPatch, path: str, recorded: FileState | None
) -> str | None:
    """What differs between a file and what `patch` left there, as a message; None if nothing."""
    mode = tree.mode(path)
    data = tree.read(path)
    if data is None:
        if recorded is None:
            return None
        return f"{path} was deleted by hand since {patch.name} was applied. Put it back first."
    if recorded is None:
        return (
            f"{path} was deleted by {patch.name} and is there again. Move it away first.\n"
            f"{_diff(b'', data, path)}"
        )
    if hashlib.sha256(data).hexdigest() != recorded.sha256:
        left = _left_by(tree, patch, path, recorded.sha256)
        if left is not None:
            return (
                f"{path} was edited by hand since {patch.name} was applied. "
                "Keep the edit elsewhere and undo it first; it is:\n"
                f"{_diff(left, data, path)}"
            )
        before = _before(tree, patch, path) or b""
        return (
            f"{path} was edited by hand since {patch.name} was applied. "
            "Keep the edit elsewhere and undo it first; with the patch itself it is:\n"
            f"{_diff(before, data, path)}"
        )
    if mode != recorded.mode:
        return (
            f"{path} has mode {mode:04o} and {patch.name} left {recorded.mode:04o}. "
            f"Set it back first: chmod {recorded.mode:o} {tree.root / path}"
        )
    return None


def _before(tree: DiskTree, patch: AppliedPatch, path: str) -> bytes | None:
    """A file as it was before a patch; None where there was none."""
    if not any(file.path == path and file.before for file in patch.files):
        return None
    return (tree.root / before_path(state_path(tree), patch, path)).read_bytes()


def _left_by(tree: DiskTree, patch: AppliedPatch, path: str, sha256: str) -> bytes | None:
    """The text that a patch left at `path`, made again from what is kept; None where that fails.

    Keeping it too would double what an apply writes, for a question that is rarely asked.
    """
    from vllm_series.diffs.parse import parse
    from vllm_series.errors import VllmSeriesError
    from vllm_series.plan import make_plan

    paths = [file.path for file in patch.files]
    try:
        whole = parse(patch_text(tree, patch), patch.name)
        kept = [
            change
            for change in whole.files
            if any(
                raw and (raw == known or raw.endswith("/" + known))
                for raw in (change.old_raw, change.new_raw)
                for known in paths
            )
        ]
        trailers = tuple(item for item in whole.trailers if item[0].lower() != "needs")
        again = replace(whole, files=tuple(kept), trailers=trailers)
        plan = make_plan([again], lambda name: _before(tree, patch, name))
    except (VllmSeriesError, OSError):
        return None
    for step in plan.steps:
        for file in step.files:
            if file.path == path and file.after is not None:
                made = hashlib.sha256(file.after).hexdigest()
                return file.after if made == sha256 else None
    return None


def refuse_edits(tree: DiskTree, files: Mapping[str, tuple[AppliedPatch, AppliedFile]]) -> None:
    """Refuse where a file is not what its patch left; all such files in one message, with diffs."""
    edits = [
        edit
        for path, (patch, file) in files.items()
        if (edit := edit_of(tree, patch, path, file.after)) is not None
    ]
    if edits:
        raise RefusedError("\n".join(edits))


def _diff(old: bytes, new: bytes, path: str) -> str:
    """A unified diff as text; bytes that are not UTF-8 are shown escaped."""
    import difflib

    return "\n".join(
        difflib.unified_diff(_lines(old), _lines(new), f"a/{path}", f"b/{path}", lineterm="")
    )


def _lines(text: bytes) -> list[str]:
    lines = text.decode("utf-8", "backslashreplace").split("\n")
    if lines[-1]:
        lines[-1] += "\n\\ No newline at end of file"
    else:
        del lines[-1]
    return lines
