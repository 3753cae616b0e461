"""What a person needs to decide a conflict: which hunks, what the patch does, what upstream did.

Named by hunk and scope, with both diffs: the markers in the file show lines, but not why they are
there.
"""

from __future__ import annotations

from collections.abc import Sequence

from vllm_series.drifting.following import Text
from vllm_series.drifting.scopediff import Side, scope_diff
from vllm_series.fileplan import Read
from vllm_series.patch import FileChange, Kind, Patch
from vllm_series.place import place
from vllm_series.rebase import Where, located
from vllm_series.scope import MODULE
from vllm_series.search import bound_scope
from vllm_series.workspace.state import Hunk

_LONG = 80
"""Lines of a scope's diff above which only what is beside the hunk is shown."""


def hunks_of(patch: Patch, paths: dict[str, str], old: Read, new: Read) -> tuple[Where, ...]:
    """Where the hunks of the files in `paths` (new name by old) stand, as far as our rules say."""
    found: list[Where] = []
    for change in patch.files:
        name = change.paths(1)[0]
        if change.kind not in (Kind.MODIFY, Kind.RENAME) or name is None or name not in paths:
            continue
        text = new(paths[name])
        if text is not None:
            placed = place(change, text, paths[name], binding=patch.is_ours, base=old(name))
            found += located(change, paths[name], placed)
    return tuple(found)


def kept(where: Sequence[Where]) -> tuple[Hunk, ...]:
    """The same for the state file."""
    return tuple(
        Hunk(each.path, each.number, each.verdict.value, each.line, each.scope, each.reason)
        for each in where
    )


def shown(
    patch: Patch,
    paths: dict[str, str],
    where: Sequence[Where],
    old: Read,
    new: Read,
    titles: tuple[str, str],
) -> tuple[str, str]:
    """Two diffs: what upstream did to the scopes of the hunks that are not placed (to those of all
    hunks, where all are), and those hunks. `old` and `new` are the files before the patch."""
    lost = {(each.path, each.number) for each in where if each.line is None}
    upstream: list[str] = []
    ours: list[str] = []
    for change in patch.files:
        name = change.paths(1)[0] or change.paths(1)[1] or ""
        if name not in paths:
            continue
        here = paths[name]
        numbers = [
            number
            for number in range(1, len(change.hunks) + 1)
            if (here, number) in lost or not any(path == here for path, _ in lost)
        ]
        before, after = old(name), new(here)
        if before is not None and after is not None:
            upstream += _upstream(change, numbers, (name, before), (here, after), titles)
        ours.append(f"--- a/{name}\n+++ b/{change.paths(1)[1] or name}\n")
        ours += [change.hunks[n - 1].to_bytes().decode("utf-8", "replace") for n in numbers]
    return "".join(upstream), "".join(ours)


def _upstream(
    change: FileChange,
    numbers: Sequence[int],
    old: tuple[str, bytes],
    new: tuple[str, bytes],
    titles: tuple[str, str],
) -> list[str]:
    before, after = Text(*old), Text(*new)
    out: list[str] = []
    for number in numbers:
        hunk = change.hunks[number - 1]
        scope = bound_scope(hunk, binding=True)
        first = hunk.first_line - 1
        spot = (first, first + hunk.old_count)
        known = scope if before.scopes and after.scopes and scope != MODULE else None
        difference = scope_diff(
            Side(f"{titles[0]}/{old[0]}", before, known, spot),
            Side(f"{titles[1]}/{new[0]}", after, known),
        )
        text = difference.whole if known and difference.size <= _LONG else difference.beside
        if text and text not in out:
            out.append(text)
    return out
