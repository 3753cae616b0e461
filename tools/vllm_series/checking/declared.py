"""What a patch says of itself: `Applied-Upstream: 0.31.0`, where the text alone cannot tell.

Upstream may fix a fault in a form that has nothing of the patch in it. Only a person can know
that, and says so in a trailer. From the release that it names on, the trailer counts where the
release bears it out: every line that the patch takes out must be gone from its file. Lines that it
only adds prove nothing while their place is there, and something once the function that they go
into is gone. Where a release contradicts the trailer, the patch is carried as ever, and the
contradiction is for review.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from itertools import groupby

from vllm_series.checking.answers import FileAnswer, PatchAnswer
from vllm_series.checking.subject import Subject
from vllm_series.fileplan import Read
from vllm_series.heading import read_heading
from vllm_series.patch import FileChange, Hunk, Kind, Patch
from vllm_series.scope import MODULE, Scopes
from vllm_series.verdicts import Verdict

TRAILER = "Applied-Upstream"
_RELEASE = re.compile(r"\d+(\.\d+)+\S*")
"""A release and nothing else; what `rebase` writes for a part of a patch says more."""


@dataclass(frozen=True, slots=True)
class _Sign:
    """What one hunk, or the change of a whole file, shows: a clause for either side, both empty
    where it shows nothing."""

    bears_out: str = ""
    contradicts: str = ""


def declared(
    subject: Subject,
    answer: PatchAnswer,
    read: Read,
    after: Callable[[str], Collection[str]],
) -> PatchAnswer:
    """The answer for a patch in the release of `read`, with what its trailer says taken in; `after`
    gives the releases after one up to this one."""
    patch = next(one for one in subject.patches if one.name == answer.name)
    named = [value for value in patch.trailer(TRAILER) if _RELEASE.fullmatch(value)]
    if not named or answer.base is None or answer.verdict is Verdict.BLOCKED or answer.since:
        return answer
    since = next((value for value in named if value in after(answer.base)), None)
    if since is None:
        return answer
    changes = {path: change for change, path in subject.paths(patch)}
    signs = [list(_signs(patch, changes[file.path], file, read)) for file in answer.files]
    every = [sign for of_file in signs for sign in of_file]
    against = [sign.contradicts for sign in every if sign.contradicts]
    if not against and not any(sign.bears_out for sign in every):
        against = ["nothing that it relies on is gone"]
    if against:
        # All of it or nothing: a part that is left out by a word that is wrong would not be missed.
        told = [f"{TRAILER}: {since} says that upstream has it, but {why}" for why in against]
        return replace(answer, review=(*answer.review, *told))
    return replace(
        answer,
        verdict=Verdict.UPSTREAMED,
        files=tuple(
            _upstream(file, of_file, since)
            for file, of_file in zip(answer.files, signs, strict=True)
        ),
        reason="",
        review=(),
        since=since,
    )


def _signs(patch: Patch, change: FileChange, file: FileAnswer, read: Read) -> Iterator[_Sign]:
    """What each hunk of a file shows; for a change of a whole file one sign, once for every hunk
    of it."""
    if change.kind is Kind.MODIFY and file.hunks:
        text = read(file.path)
        for answer, hunk in zip(file.hunks, change.hunks, strict=True):
            if answer.verdict is Verdict.UPSTREAMED:
                yield _Sign(bears_out="its result stands there")
            elif text is None:
                yield _Sign(contradicts=f"{file.path} is not there to show it")
            else:
                where = f"hunk {answer.number} of {file.path}"
                yield _of_hunk(patch, hunk, text, file.path, where)
        return
    sign = _Sign()
    if file.verdict is Verdict.UPSTREAMED:
        sign = _Sign(bears_out="upstream has it as a whole")
    elif change.kind is not Kind.CREATE:
        sign = _Sign(contradicts=f"{file.path} is {file.verdict.value}")
    for _ in range(max(1, len(file.hunks))):
        yield sign


def _of_hunk(patch: Patch, hunk: Hunk, text: bytes, path: str, where: str) -> _Sign:
    runs = list(_removed(hunk))
    if runs:
        if any(run in text for run in runs):
            return _Sign(contradicts=f"what {where} takes out is still there")
        return _Sign(bears_out="what it takes out is gone")
    heading = read_heading(hunk.heading) if patch.is_ours else None
    scopes = Scopes.of(text, path)
    if heading is None or heading.scope == MODULE or scopes is None:
        return _Sign()
    gone = heading.scope not in scopes.names()
    return _Sign(bears_out=f"there is no {heading.scope} any more" if gone else "")


def _removed(hunk: Hunk) -> Iterator[bytes]:
    """The runs of removed lines, as they stand in a file."""
    rows = zip(hunk.ops, hunk.lines, strict=True)
    for op, run in groupby(rows, key=lambda row: row[0]):
        if op == ord("-"):
            yield b"".join(line for _, line in run)


def _upstream(file: FileAnswer, signs: list[_Sign], since: str) -> FileAnswer:
    hunks = tuple(
        hunk
        if hunk.verdict is Verdict.UPSTREAMED
        else replace(
            hunk,
            verdict=Verdict.UPSTREAMED,
            line=None,
            offset=None,
            reason=f"{TRAILER}: {since}; {sign.bears_out or 'it only adds lines'}",
            candidate="",
            review=(),
            since=since,
        )
        for hunk, sign in zip(file.hunks, signs, strict=False)
    )
    return replace(file, verdict=Verdict.UPSTREAMED, hunks=hunks, reason="", review=(), since=since)
