"""Where a hunk belongs in a file: the rules of placement, pure, with no way to guess.

A file whose blob id is the recorded pre-image takes every hunk at its recorded line. Any other file
takes a hunk only where its context and removed lines stand to the byte, once inside the hunk's
scope, in order and without overlap (`search`); there is no fuzz and no white space rule. With the
base's file at hand that file's lines must lead to the same place (`threeway`). Where that fails the
answer is a verdict with a reason and the nearest place as a diff, and the file stays as it is.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace

from vllm_series.candidate import shown
from vllm_series.patch import FileChange, Hunk
from vllm_series.placement import FilePlacement, Placement, is_blob
from vllm_series.search import Search, bound_scope
from vllm_series.verdicts import Verdict


def place(
    change: FileChange, text: bytes, path: str, *, binding: bool, base: bytes | None = None
) -> FilePlacement:
    """Place every hunk of `change` in `text`, the file at `path` as it is now.

    `binding` says that the hunks' headings are scopes written by this tool. `base` is the file on
    which the change was made, where it is at hand. With it a hunk may be `merged`, or `moved` with
    a line, and the result holds it; without it never. The change's kind is not looked at: `text`
    is what the hunks speak of, empty for a file to be created.
    """
    lines = io.BytesIO(text).readlines()
    if is_blob(text, change.old_id):
        return _place_pristine(change.hunks, lines, binding)
    if change.hunks and is_blob(text, change.new_id) and _stand(change.hunks, lines):
        already = tuple(
            Placement(hunk, Verdict.APPLIED, hunk.new_start, 0, bound_scope(hunk, binding))
            for hunk in change.hunks
        )
        return FilePlacement(already, text, pristine=False)
    search = Search(lines, text, path, binding)
    if base is None or base == text or not change.hunks:
        return _by_text(change, search)
    starts = _in_base(change, base, path, binding)
    if starts is None:
        note = f"it does not fit {path} of its base either, so the base tells nothing of its place"
        return replace(_by_text(change, search), note=note)
    from vllm_series.threeway import ThreeWay

    return ThreeWay(search, io.BytesIO(base).readlines(), change.hunks, starts).place()


def _by_text(change: FileChange, search: Search) -> FilePlacement:
    """Place every hunk by its text and its scope alone."""
    placed = _in_order([search.place(hunk) for hunk in change.hunks])
    if all(placement.verdict is Verdict.APPLIED for placement in placed) and placed:
        return FilePlacement(tuple(placed), search.text, pristine=False)
    if not all(p.verdict in (Verdict.EXACT, Verdict.OFFSET) for p in placed):
        return FilePlacement(tuple(placed), None, pristine=False)
    result = splice(search.lines, placed)
    checked = search.confirm(result, placed)
    if any(not p.verdict.fits for p in checked):
        return FilePlacement(checked, None, pristine=False)
    return FilePlacement(checked, result, pristine=False)


def _in_base(change: FileChange, base: bytes, path: str, binding: bool) -> list[int] | None:
    """The 0-based lines of the base where the hunks' pre-images start; None where they do not all
    fit there."""
    starts = []
    for placement in place(change, base, path, binding=binding).placements:
        if placement.line is None or placement.verdict is Verdict.APPLIED:
            return None
        starts.append(placement.line - 1)
    return starts


def splice(lines: Sequence[bytes], placements: Sequence[Placement]) -> bytes:
    """The text after putting every placed hunk's post-image where its pre-image stands."""
    out: list[bytes] = []
    position = 0
    for placement in placements:
        assert placement.line is not None
        start = placement.line - 1
        out.extend(lines[position:start])
        out.extend(placement.hunk.post)
        position = start + placement.hunk.old_count
    out.extend(lines[position:])
    return b"".join(out)


def _place_pristine(hunks: Sequence[Hunk], lines: list[bytes], binding: bool) -> FilePlacement:
    """The file is the recorded pre-image: recorded places, and the text must agree with them."""
    placements = []
    for hunk in hunks:
        start = hunk.first_line - 1
        if lines[start : start + hunk.old_count] == hunk.pre and _joins(hunk, lines, start):
            placements.append(
                Placement(hunk, Verdict.EXACT, start + 1, 0, bound_scope(hunk, binding))
            )
        else:
            reason = (
                f"the file is the recorded pre-image, but its line {start + 1} is not what the "
                "hunk says: the patch was edited by hand"
            )
            candidate = shown(hunk.pre, lines[start : start + hunk.old_count], start)
            placements.append(Placement(hunk, Verdict.DRIFTED, reason=reason, candidate=candidate))
    fits = all(placement.verdict is Verdict.EXACT for placement in placements)
    result = splice(lines, placements) if fits else None
    return FilePlacement(tuple(placements), result, pristine=True)


def _joins(hunk: Hunk, lines: list[bytes], start: int) -> bool:
    """Whether the post-image can stand at 0-based `start` without gluing two lines together."""
    end = start + hunk.old_count
    if start > len(lines) or (start and hunk.new_count and not lines[start - 1].endswith(b"\n")):
        return False
    return end == len(lines) or not hunk.new_count or hunk.post[-1].endswith(b"\n")


def _stand(hunks: Sequence[Hunk], lines: list[bytes]) -> bool:
    """Whether every hunk's post-image stands at its recorded line, as the blob id promises."""
    undone = [hunk.reversed() for hunk in hunks]
    return all(
        lines[hunk.first_line - 1 : hunk.first_line - 1 + hunk.old_count] == hunk.pre
        for hunk in undone
    )


def _in_order(placements: list[Placement]) -> list[Placement]:
    """Refuse a hunk that stands before the end of the one in front of it."""
    end = 1
    result = []
    for placement in placements:
        if placement.line is not None:
            if placement.line < end:
                result.append(
                    replace(
                        placement,
                        verdict=Verdict.DRIFTED,
                        line=None,
                        offset=None,
                        reason=f"its text stands at line {placement.line}, before the end of the "
                        "hunk in front of it: the order of the two has changed",
                    )
                )
                continue
            count = (
                placement.hunk.new_count
                if placement.verdict is Verdict.APPLIED
                else placement.hunk.old_count
            )
            end = placement.line + count
        result.append(placement)
    return result
