"""Whether a stock release holds a hunk's result, and since which release.

It does where the post-image stands in the hunk's scope of the stock file and the pre-image is gone
from it. Real patches stand so in one release only, the first after their merge: the next one moves
a line nearby. So what was there once stays upstream until the pre-image comes back (a revert), and
the releases between base and target are asked in order.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum

from vllm_series.fileplan import Read
from vllm_series.heading import read_heading
from vllm_series.hint import contradiction
from vllm_series.patch import FileChange, Hunk, Kind
from vllm_series.placement import is_blob
from vllm_series.scope import MODULE
from vllm_series.search import Search


class Standing(Enum):
    """Which side of a hunk (or of a change of a whole file) a stock release has."""

    RESULT = "result"
    """The post-image, and the pre-image is gone."""
    BEFORE = "before"
    """The pre-image."""
    NEITHER = "neither"
    """Other text."""


@dataclass(frozen=True, slots=True)
class Merged:
    """The release `since` which a change is upstream, without a revert up to the one asked for.

    `hidden` says that the one asked for has neither side: a later change upstream is on top.
    """

    since: str
    hidden: bool


def standing(
    hunk: Hunk,
    text: bytes,
    path: str,
    scope: Callable[[], str | None],
    *,
    binding: bool,
    result_id: str | None = None,
) -> Standing:
    """Which side of `hunk` stands in the stock file `text`, inside its `scope` where that is known
    (it is asked for only where it matters).

    Without a scope git's heading (unless `binding`) must not name another definition. Outside of
    all functions the result must show two lines that are not blank: a single line is no proof of
    a place. `result_id` is the blob id that the patch recorded for its result: a file that is that
    to the byte needs no other proof. Where the hunk is for one of several copies of its text, that
    one must be gone.
    """
    if is_blob(text, result_id):
        return Standing.RESULT
    pre, post = b"".join(hunk.pre), b"".join(hunk.post)
    has_pre, has_post = bool(pre) and pre in text, bool(post) and post in text
    if not has_pre and not has_post:
        return Standing.NEITHER
    inside = scope()
    search = Search(io.BytesIO(text).readlines(), text, path, binding)
    before = [line for line in search.matches(hunk.pre, hunk) if search.admits(hunk, line, inside)]
    heading = read_heading(hunk.heading) if binding else None
    if has_pre and len(before) >= (heading.count if heading else 1):
        return Standing.BEFORE
    undo = hunk.reversed()
    after = [
        line for line in search.matches(hunk.post, undo) if search.admits_post(hunk, line, inside)
    ]
    if before and len(after) != 1:
        # One of several copies is gone, and nothing shows that it became the result.
        return Standing.BEFORE
    if inside in (None, MODULE) and sum(1 for line in hunk.post if line.strip()) < 2:
        return Standing.NEITHER
    if inside is None and not binding:
        after = [
            line
            for line in after
            if not contradiction(hunk.heading, search.lines, search.scopes, line)
        ]
    return Standing.RESULT if after else Standing.NEITHER


def whole_standing(change: FileChange, old: str | None, new: str | None, read: Read) -> Standing:
    """The same for a change of a whole file: created, deleted, renamed or copied."""
    before = read(old) if old else None
    after = read(new) if new else None
    match change.kind:
        case Kind.CREATE:
            text = b"".join(change.hunks[0].post) if change.hunks else b""
            if after is None:
                return Standing.BEFORE
            return Standing.RESULT if after == text else Standing.NEITHER
        case Kind.DELETE:
            return Standing.RESULT if before is None else Standing.BEFORE
        case Kind.RENAME:
            if before is not None:
                return Standing.BEFORE
            return Standing.NEITHER if after is None else Standing.RESULT
        case Kind.COPY:
            return Standing.BEFORE if after is None else Standing.NEITHER
        case Kind.MODIFY:
            return Standing.NEITHER


def merged(stands: Iterable[tuple[str, Standing]]) -> Merged | None:
    """Since when a change is upstream in the last of several releases, given in order; None where
    none has it or where the pre-image came back."""
    since: str | None = None
    last = Standing.NEITHER
    for release, last in stands:
        if last is Standing.RESULT and since is None:
            since = release
        elif last is Standing.BEFORE:
            since = None
    return None if since is None else Merged(since, last is not Standing.RESULT)
