"""Why a patch is not clean, in a sentence or two, and what to do about each kind of trouble."""

from __future__ import annotations

from collections.abc import Sequence

from vllm_series.checking.answers import HunkAnswer, PatchAnswer
from vllm_series.report import counted
from vllm_series.reports.marks import OF_VERDICT, REVIEW, mark
from vllm_series.reports.printable import printable
from vllm_series.verdicts import Verdict

STEPS = {
    REVIEW: "read the places, and correct the patch for that release",
    OF_VERDICT[Verdict.APPLIED]: "keep one of the two patches that write these lines",
    OF_VERDICT[Verdict.UPSTREAMED]: "leave out what upstream has, on those releases",
    OF_VERDICT[Verdict.MERGED]: "look at the merge (-v), and take it into the patch",
    OF_VERDICT[Verdict.MOVED]: "look at the other place (-v), and make the hunk anew for it",
    OF_VERDICT[Verdict.AMBIGUOUS]: "look at the places (-v), and make the hunk with more context",
    OF_VERDICT[Verdict.DRIFTED]: "look at the nearest place (-v), and make the hunk anew; "
    "vllm-series drift PATCH shows what upstream did",
    OF_VERDICT[Verdict.MISSING]: "look what the file may have become (-v), and change that",
    OF_VERDICT[Verdict.NOT_SHIPPED]: "take the file out of the patch, or leave it out with "
    "--exclude",
    OF_VERDICT[Verdict.BLOCKED]: "bring the patch that it needs in order first",
}
"""The next step for each mark that is not clean, to go on behind its word."""


def problem(patch: PatchAnswer) -> str:
    """Why one patch is not clean, empty where it is: its mark's word, then the reason."""
    if patch.is_clean:
        return ""
    return ". ".join(part for part in (mark(patch).word, why([patch])) if part)


def why(patches: Sequence[PatchAnswer]) -> str:
    """Sentences on one patch that has the same mark on several releases, the last one without its
    full stop: how much of it is in that state, and the reason where all have but one."""
    if patches[0].blocked_by:
        return f"It needs {' and '.join(map(printable, patches[0].blocked_by))}"
    since = patches[0].since
    if patches[0].verdict is Verdict.UPSTREAMED and (since or all(map(_is_whole, patches))):
        return f"Upstream has it since {printable(since)}" if since else "Upstream has it"
    reasons = {_reason(patch) for patch in patches}
    reason = printable(reasons.pop()) if len(reasons) == 1 else ""
    parts = []
    if mark(patches[0]) is not REVIEW:
        # A reason says where, so that the scopes would be said twice.
        parts += _share(patches, patches[0].verdict, with_places=not reason)
    return ". ".join([*parts, _sentence(reason)] if reason else parts)


def _share(patches: Sequence[PatchAnswer], verdict: Verdict, *, with_places: bool) -> list[str]:
    shares = []
    for patch in patches:
        hunks = [hunk for file in patch.files for hunk in file.hunks]
        shares.append((sum(hunk.verdict is verdict for hunk in hunks), len(hunks)))
    few, most = min(share for share, _ in shares), max(share for share, _ in shares)
    sizes = {size for _, size in shares}
    if most == 0 or len(sizes) > 1:
        return []
    size = sizes.pop()
    share = str(few) if few == most else f"{few} to {most}"
    places = {_scopes(patch, verdict) for patch in patches} if with_places else set()
    where = places.pop() if len(places) == 1 else ""
    if few == size and verdict in (Verdict.MISSING, Verdict.NOT_SHIPPED):
        return []
    if few == size:
        return [(f"All {size} hunks" if size > 1 else "Its one hunk") + where]
    return [f"{share} of its {counted(size, 'hunk')}{where}"]


def _is_whole(patch: PatchAnswer) -> bool:
    """Whether each part of it has the verdict of the whole."""
    parts = [file.verdict for file in patch.files]
    parts += [hunk.verdict for file in patch.files for hunk in file.hunks]
    return all(part is patch.verdict for part in parts)


def _scopes(patch: PatchAnswer, verdict: Verdict) -> str:
    """Where the hunks of a verdict are, if it can be said in few words."""
    hunks = [hunk for file in patch.files for hunk in file.hunks if hunk.verdict is verdict]
    named = list(dict.fromkeys(_place(hunk) for hunk in hunks))
    return f", in {' and '.join(named)}" if 0 < len(named) <= 2 else ""


def _place(hunk: HunkAnswer) -> str:
    return printable(hunk.scope if hunk.scope and hunk.scope != "<module>" else hunk.path)


def _reason(patch: PatchAnswer) -> str:
    """The one reason of a patch, empty where it has several."""
    if mark(patch) is REVIEW:
        found = list(dict.fromkeys(patch.reviews))
        more = f", and {len(found) - 1} more" if len(found) > 1 else ""
        return f"{found[0]}{more}"
    parts = [(patch.verdict, patch.reason)]
    for file in patch.files:
        parts += [(file.verdict, file.reason)]
        parts += [(hunk.verdict, hunk.reason) for hunk in file.hunks]
    found = list(
        dict.fromkeys(reason for verdict, reason in parts if verdict is patch.verdict and reason)
    )
    return found[0] if len(found) == 1 else ""


def _sentence(text: str) -> str:
    """With a capital, unless it starts with a path or a name."""
    first = text.partition(" ")[0]
    return text[:1].upper() + text[1:] if first.isalpha() else text
