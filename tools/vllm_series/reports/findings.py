"""What is not clean, a line for each patch and kind of trouble, and the next steps.

The table says where, this says why and what to do. Releases with the same trouble are told
together, and so are patches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from vllm_series.checking.answers import PatchAnswer, ReleaseAnswer
from vllm_series.report import counted
from vllm_series.reports.marks import UNJUDGED, Mark, mark
from vllm_series.reports.printable import printable
from vllm_series.reports.reasons import STEPS, why
from vllm_series.reports.spans import spans

_NAMED = 4
"""Patches that are named one by one."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One kind of trouble: `subjects`, patches, are `mark` on some releases. There are none, and no
    mark, where something is said of the releases themselves.

    `counts` says whether one of the releases is supported, so that the outcome is not clean.
    `where` is the releases in words, `why` is sentences without the last full stop.
    """

    subjects: tuple[str, ...]
    mark: Mark | None
    counts: bool
    where: str
    why: str = ""

    def __str__(self) -> str:
        word = self.mark.word if self.mark else ""
        why = f" {self.why.rstrip('.')}." if self.why else ""
        if self.subjects:
            return f"{', '.join(self.subjects)}: {word} on {self.where}.{why}"
        return f"{self.where}: {word}.{why}" if word else f"{self.where}:{why}"


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
    found = _together(
        _patch(judged, [one for one, _ in cases], [patch for _, patch in cases])
        for _, cases in sorted(groups.items(), key=lambda item: item[0][0])
    )
    found = [replace(one, subjects=_named(one.subjects, list(order))) for one in found]
    found += _released(answers, judged, UNJUDGED, lambda answer: [answer.error])
    found += _released(answers, judged, None, lambda answer: answer.notes)
    found += _released(answers, judged, None, _overlapping)
    found += _released(
        answers, judged, None, lambda answer: [note for one in answer.patches for note in one.notes]
    )
    return tuple(found)


def _patch(
    judged: Sequence[str], answers: Sequence[ReleaseAnswer], patches: Sequence[PatchAnswer]
) -> Finding:
    supported = answers[0].is_supported
    releases = [answer.release for answer in answers]
    where = spans(releases, judged)
    remarks = [counted(len(releases), "release")] if len(releases) > 2 else []
    remarks += [] if supported else ["not supported"]
    if remarks:
        where += f" ({', '.join(remarks)})"
    return Finding((patches[0].name,), mark(patches[0]), supported, where, why(patches))


def _together(found: Iterable[Finding]) -> list[Finding]:
    """Patches of which the very same is to be said, said once."""
    names: dict[Finding, list[str]] = {}
    for one in found:
        names.setdefault(replace(one, subjects=()), []).extend(one.subjects)
    return [replace(one, subjects=tuple(subjects)) for one, subjects in names.items()]


def _named(subjects: tuple[str, ...], names: Sequence[str]) -> tuple[str, ...]:
    """Patches as they are printed: many of them by their runs in the order of the series."""
    if len(subjects) <= _NAMED:
        return tuple(map(printable, subjects))
    return (f"{spans(subjects, names)} ({counted(len(subjects), 'patch')})",)


def steps(found: Sequence[Finding]) -> dict[str, str]:
    """What to do next, by the word of the trouble."""
    used = {one.mark for one in found}
    return {kind.word: step for kind, step in STEPS.items() if kind in used}


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
        counts = kind is UNJUDGED and any(answer.is_supported for answer in those)
        where = spans([answer.release for answer in those], judged)
        found.append(Finding((), kind, counts, where, printable(text)))
    return found
