"""One series on one release: what the plan says, in the words of an answer, and what it means.

Only the files of the release and of the base are looked at. What other releases have to say about
a hunk that does not fit comes afterwards (`history`), and then which patches fell with which.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from vllm_series.checking.answers import FileAnswer, HunkAnswer, Judged, PatchAnswer
from vllm_series.checking.bindings import Source
from vllm_series.checking.blocked import Dependencies, written
from vllm_series.checking.imports import imports, is_there
from vllm_series.checking.overlaps import overlaps
from vllm_series.checking.review import facts, review
from vllm_series.checking.subject import Subject, fitted
from vllm_series.checking.upstreamed import Standing, standing, whole_standing
from vllm_series.contracts import broken
from vllm_series.fileplan import FilePlan, Read
from vllm_series.patch import FileChange, Kind, Patch
from vllm_series.plan import PatchPlan, among, make_plan
from vllm_series.scope import is_python, parse_error
from vllm_series.steps import FileStep
from vllm_series.verdicts import Verdict, worst

_PLACED = (Verdict.EXACT, Verdict.OFFSET)


class Files(Protocol):
    """What is asked of a release's tree."""

    def read(self, path: str) -> bytes | None:
        """The whole file, None where there is none."""

    def mode(self, path: str) -> int | None:
        """The permission bits."""


def judge(subject: Subject, tree: Files, present: Sequence[str] = ()) -> Judged:
    """Judge every patch on top of those in front that fit. `present` names patches that the stock
    release has in another form, so that those that need them are not blocked."""
    plan = make_plan(
        subject.patches,
        tree.read,
        tree.mode,
        present=present,
        exclude=subject.exclude,
        base=subject.read,
    )
    done = set(present)
    changed: dict[str, bytes | None] = {}
    answers = []
    for planned in plan.patches:
        answers.append(_patch(subject, planned, tree.read, done, changed))
        if not planned.refused:
            done.add(planned.patch.name)
        if planned.step is not None:
            changed |= {file.path: file.after for file in planned.step.files}
    here = [
        written(file, planned)
        for planned in plan.patches
        for file in planned.files
        if file.change.hunks
    ]
    return Judged(tuple(answers), overlaps(here))


def is_lost(answer: PatchAnswer) -> bool:
    """Whether a patch leaves nothing behind that later ones could stand on: it does not fit, and
    the release does not have all of it either."""
    if answer.verdict is Verdict.UPSTREAMED:
        return any(file.verdict is not Verdict.UPSTREAMED for file in answer.files) or any(
            hunk.verdict is not Verdict.UPSTREAMED for file in answer.files for hunk in file.hunks
        )
    return answer.verdict not in (*_PLACED, Verdict.APPLIED, Verdict.MERGED)


def settled(file: FileAnswer, planned: Verdict | None = None) -> FileAnswer:
    """The file's verdict after its hunks' were looked at again."""
    words = [hunk.verdict for hunk in file.hunks]
    if Verdict.UPSTREAMED not in words:
        return file if planned is None else replace(file, verdict=planned)
    done = words.count(Verdict.UPSTREAMED)
    reason = ""
    if done < len(words):
        reason = f"upstream has {done} of its {len(words)} hunks"
    return replace(file, verdict=worst(words), reason=reason)


def settled_patch(answer: PatchAnswer) -> PatchAnswer:
    """The patch's verdict after its files' were looked at again."""
    words = [file.verdict for file in answer.files]
    parts = [hunk.verdict for file in answer.files for hunk in file.hunks] or words
    if Verdict.UPSTREAMED not in (*words, *parts):
        return answer
    verdict = worst(words)
    reason = ""
    if verdict is Verdict.UPSTREAMED and any(word is not verdict for word in (*words, *parts)):
        reason = f"upstream has {parts.count(verdict)} of its {len(parts)} hunks, not the rest"
    return replace(answer, verdict=verdict, reason=reason)


def blocked(
    subject: Subject, on: Dependencies, answers: Sequence[PatchAnswer]
) -> list[PatchAnswer]:
    """Say of every hunk that does not fit whether a lost patch in front is to blame."""
    result: list[PatchAnswer] = []
    lost: set[str] = set()
    for answer in answers:
        by: list[str] = list(answer.blocked_by)
        files = []
        for file in answer.files:
            hunks = []
            for hunk in file.hunks:
                stands_on = (
                    on.of(answer.name, hunk.path, hunk.number, lost)
                    if lost and hunk.verdict in (Verdict.DRIFTED, Verdict.AMBIGUOUS, Verdict.MOVED)
                    else ()
                )
                if stands_on:
                    by += stands_on
                    reason = f"it stands on lines of {' and '.join(stands_on)}, which do not fit"
                    if len(stands_on) == 1:
                        reason = f"it stands on lines of {stands_on[0]}, which does not fit"
                    hunk = replace(hunk, verdict=Verdict.BLOCKED, reason=reason)
                hunks.append(hunk)
            if any(hunk.verdict is Verdict.BLOCKED for hunk in hunks):
                file = replace(file, verdict=Verdict.BLOCKED, hunks=tuple(hunks))
            files.append(file)
        if by:
            answer = replace(
                answer,
                verdict=Verdict.BLOCKED,
                files=tuple(files),
                blocked_by=tuple(dict.fromkeys(by)),
            )
        if is_lost(answer):
            lost.add(answer.name)
        result.append(answer)
    return result


def _patch(
    subject: Subject,
    planned: PatchPlan,
    read: Read,
    done: set[str],
    changed: Mapping[str, bytes | None],
) -> PatchAnswer:
    """`done` names the patches in front that are there, `changed` holds the files that they
    changed."""
    patch = planned.patch
    needs = [need for need in patch.trailer("Needs") if not among(need, done)]
    files = [
        _file(subject, patch, file, read, stock=file.path not in changed) for file in planned.files
    ]
    notes = list(planned.notes)
    lines: list[str] = []
    if planned.step is not None and planned.verdict in _PLACED:
        by_path = {step.path: step for step in planned.step.files}
        files = [
            _reviewed(subject, patch, file, answer, by_path.get(file.path), notes)
            for file, answer in zip(planned.files, files, strict=True)
        ]
        texts = {**changed, **{path: step.after for path, step in by_path.items()}}
        files = [
            _imports(subject, patch, file, answer, texts, read)
            for file, answer in zip(planned.files, files, strict=True)
        ]
        for contract in broken(patch, read):
            text = f"contract {contract.value}: {contract.found}"
            if contract.unread:
                notes.append(f"{patch.name}: not reviewed: {text}")
            else:
                lines.append(text)
    answer = PatchAnswer(
        patch.name,
        planned.verdict,
        tuple(files),
        planned.reason,
        tuple(needs) if planned.verdict is Verdict.BLOCKED else (),
        tuple(lines),
        base=subject.bases.get(patch.name),
        notes=tuple(notes),
    )
    return settled_patch(answer)


def _file(subject: Subject, patch: Patch, file: FilePlan, read: Read, *, stock: bool) -> FileAnswer:
    hunks = [
        HunkAnswer(file.path, number, p.verdict, p.line, p.offset, p.scope, p.reason, p.candidate)
        for number, p in enumerate(file.placements, 1)
    ]
    change = file.change
    if change.kind is not Kind.MODIFY and file.verdict is Verdict.APPLIED:
        old, new = sides(change, file.path)
        stock = whole_standing(change, old, new, read) is Standing.RESULT
        verdict = Verdict.UPSTREAMED if stock else Verdict.APPLIED
        whole = tuple(replace(hunk, verdict=verdict) for hunk in hunks)
        return FileAnswer(file.path, verdict, whole, file.reason)
    text = read(file.path)
    hunks = [
        _applied(subject, patch, file, hunk, text, stock)
        if hunk.verdict is Verdict.APPLIED
        else hunk
        for hunk in hunks
    ]
    answer = FileAnswer(file.path, file.verdict, tuple(hunks), file.reason)
    if all(hunk.verdict is Verdict.APPLIED for hunk in hunks) and file.verdict is Verdict.APPLIED:
        return answer
    words = [hunk.verdict for hunk in hunks]
    if file.verdict is Verdict.APPLIED and Verdict.UPSTREAMED not in words:
        return replace(answer, verdict=worst(words) if words else file.verdict)
    return settled(answer)


def _applied(
    subject: Subject,
    patch: Patch,
    file: FilePlan,
    hunk: HunkAnswer,
    text: bytes | None,
    stock: bool,
) -> HunkAnswer:
    """A hunk whose result stands: upstream's own, that of a patch in front, or text like it.
    `stock` says that no patch in front has changed the file."""
    placed = file.placements[hunk.number - 1].hunk
    scope = partial(subject.scope, patch, file.path, hunk.number, placed)
    stands = Standing.NEITHER
    if text is not None:
        stands = standing(
            placed,
            text,
            file.path,
            scope,
            binding=patch.is_ours,
            result_id=file.change.new_id,
        )
    by_base = stock and subject.step(patch.name, file.path) is not None
    if stands is Standing.RESULT or by_base:
        # With the base, the whole file has told that its lines stand where they belong.
        return replace(hunk, verdict=Verdict.UPSTREAMED)
    if not stock:
        return replace(hunk, reason="a patch in front of it writes the same lines")
    where = f"not in {scope()}" if scope() else "where nothing proves that it is the place"
    return replace(
        hunk, verdict=Verdict.MOVED, reason=f"its result stands in the file, but {where}"
    )


def _imports(
    subject: Subject,
    patch: Patch,
    file: FilePlan,
    answer: FileAnswer,
    texts: Mapping[str, bytes | None],
    read: Read,
) -> FileAnswer:
    """Say what added lines import that the release, with the patches, does not have."""
    if not subject.imported(patch):
        return answer

    def now(path: str) -> bytes | None:
        return texts[path] if path in texts else read(path)

    hunks = []
    for hunk, placement in zip(answer.hunks, file.placements, strict=True):
        lost = [
            f"{file.path} imports {one.name}, which is not in {one.dotted} here"
            if one.name
            else f"{file.path} imports {one.dotted}, which is not here"
            for one in imports(placement.hunk, file.path)
            if not is_there(one, now) and subject.imports_on_base(one)
        ]
        hunks.append(replace(hunk, review=(*hunk.review, *lost)) if lost else hunk)
    return replace(answer, hunks=tuple(hunks))


def sides(change: FileChange, path: str) -> tuple[str | None, str | None]:
    """Old and new path of a change in the tree, as the strip level of `path` has it."""
    raw = change.new_raw or change.old_raw or ""
    return change.paths(raw.count("/") - path.count("/"))


def _reviewed(
    subject: Subject,
    patch: Patch,
    file: FilePlan,
    answer: FileAnswer,
    step: FileStep | None,
    notes: list[str],
) -> FileAnswer:
    if step is None or step.before is None or step.after is None or not is_python(file.path):
        return answer
    if file.pristine:
        # The same text as on its base, so it means the same.
        return answer
    on_base = subject.step(patch.name, file.path)
    if on_base is not None and on_base.before == step.before:
        return answer
    after = Source.of(step.after, file.path)
    if after is None:
        why = parse_error(step.after)
        if parse_error(step.before) is None:
            return replace(answer, review=(f"{file.path} does not parse with it: {why}",))
        notes.append(f"{patch.name}: {file.path} is not reviewed, it does not parse here: {why}")
        return answer
    found = review(
        file.path,
        facts(fitted(file), after),
        subject.facts(patch.name, file.path),
    )
    return replace(
        answer,
        hunks=tuple(
            replace(hunk, review=reasons) for hunk, reasons in zip(answer.hunks, found, strict=True)
        ),
    )
