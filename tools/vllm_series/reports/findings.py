"""What is not clean, a line for each patch and kind, with the next step.

The table says where, this says what to do. Releases with the same trouble are told together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vllm_series.answers import HunkAnswer, PatchAnswer, ReleaseAnswer
from vllm_series.report import counted
from vllm_series.reports.marks import REVIEW, UNJUDGED, Mark, mark
from vllm_series.reports.printable import printable
from vllm_series.reports.spans import spans
from vllm_series.verdicts import Verdict


@dataclass(frozen=True, slots=True)
class Finding:
    """One kind of trouble: `subject`, a patch, is `mark` on some `releases`. Both are empty where
    something is said of the releases themselves.

    `counts` says whether one of the releases is supported, so that the outcome is not clean.
    `where` is the releases in words, `why` and `step` are sentences, either may be empty.
    """

    subject: str
    mark: Mark | None
    releases: tuple[str, ...]
    counts: bool
    where: str
    why: str = ""
    step: str = ""

    @property
    def head(self) -> str:
        """Who, what, where: `fix.patch: drifted on 0.33.0`, or `0.33.0: not judged`."""
        word = self.mark.word if self.mark else ""
        if self.subject:
            return f"{self.subject}: {word} on {self.where}"
        return f"{self.where}: {word}".removesuffix(": ")

    @property
    def rest(self) -> str:
        """The sentences behind it, none of them with its full stop doubled."""
        return " ".join(f"{part.rstrip('.')}." for part in (self.why, self.step) if part)

    def __str__(self) -> str:
        stop = "." if self.mark else ":"
        return f"{self.head}{stop} {self.rest}" if self.rest else f"{self.head}."


def findings(answers: Sequence[ReleaseAnswer]) -> tuple[Finding, ...]:
    """Everything that is not clean, patches in the order of their series; then what was noted."""
    judged = [answer.release for answer in answers]
    order = {
        name: at
        for at, name in enumerate(
            dict.fromkeys(patch.name for answer in answers for patch in answer.patches)
        )
    }
    groups: dict[tuple[int, str, str, bool, str], list[tuple[ReleaseAnswer, PatchAnswer]]] = {}
    for answer in answers:
        for patch in answer.patches:
            if not patch.is_clean:
                # What tells two cases of one verdict apart is in the key, what may differ is not.
                apart = ", ".join(patch.blocked_by) or patch.since or ""
                key = (
                    order[patch.name],
                    patch.name,
                    mark(patch).word,
                    answer.is_supported,
                    apart,
                )
                groups.setdefault(key, []).append((answer, patch))
    found = [
        _patch(judged, [one for one, _ in cases], [patch for _, patch in cases])
        for _, cases in sorted(groups.items(), key=lambda item: item[0][0])
    ]
    found += _released(answers, judged, UNJUDGED, lambda answer: [answer.error])
    found += _released(answers, judged, None, lambda answer: answer.notes)
    found += _released(answers, judged, None, _overlapping)
    found += _released(
        answers, judged, None, lambda answer: [note for one in answer.patches for note in one.notes]
    )
    return tuple(found)


def problem(patch: PatchAnswer) -> str:
    """A sentence of why one patch is not clean, without the step; empty where it is."""
    if patch.is_clean:
        return ""
    return ". ".join(part for part in (mark(patch).word, _why([patch])) if part)


def _patch(
    judged: Sequence[str], answers: Sequence[ReleaseAnswer], patches: Sequence[PatchAnswer]
) -> Finding:
    name = printable(patches[0].name)
    supported = answers[0].is_supported
    releases = tuple(answer.release for answer in answers)
    where = spans(releases, judged)
    remarks = [counted(len(releases), "release")] if len(releases) > 2 else []
    remarks += [] if supported else ["not supported"]
    if remarks:
        where += f" ({', '.join(remarks)})"
    return Finding(
        name,
        mark(patches[0]),
        releases,
        supported,
        where,
        _why(patches),
        _step(patches[-1], answers[-1].series),
    )


def _why(patches: Sequence[PatchAnswer]) -> str:
    """How much of the patch is in that state, over all releases of a finding; its reason where it
    is but one."""
    if patches[0].blocked_by:
        return f"It needs {' and '.join(map(printable, patches[0].blocked_by))}"
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
    if few == size:
        return [(f"All {size} hunks" if size > 1 else "Its one hunk") + where]
    return [f"{share} of its {counted(size, 'hunk')}{where}"]


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


def _step(patch: PatchAnswer, series: str | None) -> str:
    """What to do about it, in one sentence."""
    if patch.verdict is Verdict.UPSTREAMED:
        since = f" since {printable(patch.since)}" if patch.since else ""
        parts = [file.verdict for file in patch.files]
        parts += [hunk.verdict for file in patch.files for hunk in file.hunks]
        if since or all(part is Verdict.UPSTREAMED for part in parts):
            return f"Upstream has it{since}: leave it out there"
        return "Take out of the patch what upstream has"
    if mark(patch) is REVIEW:
        return "Read the places, and correct the patch for that release"
    step = _STEPS[patch.verdict]
    if patch.verdict is Verdict.DRIFTED and series is not None:
        step += f"; vllm-series drift {printable(patch.name)} shows what upstream did"
    return step


_STEPS = {
    Verdict.APPLIED: "Keep one of the two patches that write these lines",
    Verdict.MERGED: "Look at the merge (-v), and take it into the patch",
    Verdict.MOVED: "Look at the other place (-v), and make the hunk anew for it",
    Verdict.AMBIGUOUS: "Look at the places (-v), and make the hunk anew with more context",
    Verdict.DRIFTED: "Look at the nearest place (-v), and make the hunk anew",
    Verdict.MISSING: "Look what the file may have become (-v), and make the change there",
    Verdict.NOT_SHIPPED: "Take the file out of the patch, or leave it out with --exclude",
    Verdict.BLOCKED: "Bring that patch in order first",
}


def _overlapping(answer: ReleaseAnswer) -> list[str]:
    return [
        f"{one.first} and {one.second} write the same lines of {one.path}, see -v"
        for one in answer.overlaps
    ]


def _released(
    answers: Sequence[ReleaseAnswer],
    judged: Sequence[str],
    kind: Mark | None,
    said: Callable[[ReleaseAnswer], Sequence[str]],
) -> list[Finding]:
    """What is said of whole releases, each text once."""
    groups: dict[str, list[ReleaseAnswer]] = {}
    for answer in answers:
        for text in dict.fromkeys(filter(None, said(answer))):
            groups.setdefault(text, []).append(answer)
    found = []
    for text, those in groups.items():
        releases = tuple(answer.release for answer in those)
        counts = kind is UNJUDGED and any(answer.is_supported for answer in those)
        where = spans(releases, judged)
        found.append(Finding("", kind, releases, counts, where, printable(text)))
    return found
