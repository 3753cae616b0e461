"""The two lists that say what is in a tree: our `stack.json` and the installer's RECORD.

Both change with every patch, and RECORD lists everything else that is written, so the work of a
transaction is completed here, when all the rest of it is known.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from vllm_series.errors import RefusedError
from vllm_series.installation.content import FILE_MODE, FOLDER_MODE, Content, state_of
from vllm_series.installation.journal import Work
from vllm_series.installation.record import restated, rewritten, stack_rows
from vllm_series.installation.stack import FileState, Stack, encoded, state_path

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from vllm_series.trees import DiskTree


def complete(
    tree: DiskTree, old: Stack, new: Stack, work: Work, folders: Iterable[str] = ()
) -> None:
    """Add to `work` what the lists must say once the stack is `new` instead of `old`.

    Also makes the folders that are missing, `folders` first.
    """
    _list(tree, old, new, work)
    wanted = dict.fromkeys(folders)
    for path in [*work.creates, *work.puts]:
        wanted.update(dict.fromkeys(parents(path)))
    work.makes = [(path, FOLDER_MODE) for path in wanted if not (tree.root / path).is_dir()]


def parents(path: str) -> list[str]:
    """The folders above a path, outermost first."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[: end + 1]) for end in range(len(parts))]


def record_state(tree: DiskTree) -> FileState | None:
    """What RECORD is now; None where there is none, in a bare folder."""
    return state_of(tree.distribution.record) if tree.distribution else None


def _list(tree: DiskTree, old: Stack, new: Stack, work: Work) -> None:
    state = state_path(tree)
    root = tree.root
    listing = encoded(new)
    if new:
        keeper = (root / state).parent
        work.puts[f"{state}/stack.json"] = Content(listing, FILE_MODE, keeper)
    if tree.distribution is None:
        return
    place = tree.distribution.record
    data = place.read_bytes()
    saved = f"{state}/RECORD.before"
    wanted = stack_rows(state, new, listing) if new else {}
    now = state_of(place)
    if old:
        before = _saved_record(root / saved, old)
        had = stack_rows(state, old, (root / state / "stack.json").read_bytes())
        text = restated(data, before, place, had, wanted)
    else:
        text = rewritten(data, place, wanted)
        work.creates[saved] = Content(data, FILE_MODE, place.parent)
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
