"""What a tool's answer to a sample is worth, and the sample in full where it is worth reading."""

from __future__ import annotations

import difflib
import itertools
from dataclasses import dataclass
from enum import Enum

from drift.forms import Task
from drift.samples import Kind, Sample, split
from drift.tools import Answer
from drift.truth import Standing, Truth
from vllm_series.scope import Scopes, of_change


class Mark(Enum):
    """The judgement. Where the place is known: right, wrong, refused. Where it is lost: placed or
    unplaced. Where only the scope is judged: same, other, or left."""

    RIGHT = "right"
    WRONG = "wrong"
    REFUSED = "refused"
    PLACED_THOUGH_LOST = "placed_though_lost"
    UNPLACED = "unplaced"
    SAME_SCOPE = "same_scope"
    OTHER_SCOPE = "other_scope"
    LEFT = "left"


BAD = (Mark.WRONG, Mark.PLACED_THOUGH_LOST, Mark.OTHER_SCOPE)
"""The tool said that all is well, and it is not."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One tool on one sample. `by_name` says of a wrong one that it stands in the scope that the
    sample was made in, by name, while the alignment has that code in another scope: a function that
    was renamed beside a new one of its old name. `case` is the whole story of a bad mark, empty for
    the others."""

    tool: str
    sample: str
    standing: Standing
    disputed: bool
    mark: Mark
    note: str
    by_name: bool = False
    case: str = ""


def outcome(task: Task, truth: Truth, answer: Answer, tool: str) -> Outcome:
    """Judge one answer, and tell it in full where it is bad."""
    judged = mark(task.sample, truth, answer)
    by_name = (
        judged is Mark.WRONG
        and answer.text is not None
        and truth.right is not None
        and _scope_held(task.sample, answer.text)
        and not _scope_held(task.sample, truth.right)
    )
    case = ""
    if judged in BAD:
        case = told(task, truth, answer, tool, judged)
        if by_name:
            case += "\nit went by the name of the scope, which the alignment has elsewhere\n"
    return Outcome(
        tool=tool,
        sample=sample_name(task.sample),
        standing=truth.standing,
        disputed=truth.disputed,
        mark=judged,
        note=answer.note,
        by_name=by_name,
        case=case,
    )


def mark(sample: Sample, truth: Truth, answer: Answer) -> Mark:
    """Judge an answer by its bytes; the tool's own words count for nothing.

    An answer that leaves the file as it is and claims success says that the change is there
    already. That is right for a deletion whose line is lost, and false wherever the line stands.
    """
    there = answer.text
    if truth.standing is Standing.KNOWN:
        if there is None:
            return Mark.REFUSED
        return Mark.RIGHT if there == truth.right else Mark.WRONG
    if truth.standing is Standing.LOST:
        done = there == sample.target and sample.kind is Kind.DELETE
        return Mark.UNPLACED if there is None or done else Mark.PLACED_THOUGH_LOST
    if there is None:
        return Mark.LEFT
    return Mark.SAME_SCOPE if _scope_held(sample, there) else Mark.OTHER_SCOPE


def _scope_held(sample: Sample, result: bytes) -> bool:
    base = _scope(sample.before, sample.edited, sample)
    return base is not None and base == _scope(sample.target, result, sample)


def _scope(before: bytes, after: bytes, sample: Sample) -> str | None:
    """The scope in which two texts differ; None where they do not differ by this edit alone."""
    line = landed(before, after, sample)
    old, new = Scopes.of(before, sample.path), Scopes.of(after, sample.path)
    if line is None or old is None or new is None:
        return None
    if sample.kind is Kind.INSERT:
        return of_change(old, new, [], [line + 1], [line])
    return of_change(old, new, [line], [line] if sample.kind is Kind.CHANGE else [])


def landed(before: bytes, after: bytes, sample: Sample) -> int | None:
    """The line, counted as in `Sample`, at which `after` is `before` with the edit; None where it
    is not. A deletion among equal lines may name any of them."""
    lines, made = split(before), split(after)
    same = next(
        (at for at, (one, other) in enumerate(zip(lines, made, strict=False)) if one != other),
        min(len(lines), len(made)),
    )
    gone = 0 if sample.kind is Kind.INSERT else 1
    new = [sample.new_text] if sample.new_text else []
    if lines[:same] + new + lines[same + gone :] != made:
        return None
    return same if sample.kind is Kind.INSERT else same + 1


def told(task: Task, truth: Truth, answer: Answer, tool: str, judged: Mark) -> str:
    """The sample in full: the diff, where it went, where it belongs."""
    sample = task.sample
    title = f"{judged.value.replace('_', ' ')}: {tool}: {sample_name(sample)}"
    parts = [
        title,
        f"file {sample.path}, line {sample.line} of {sample.pair.old}"
        + (", disputed by another alignment" if truth.disputed else ""),
        "",
        task.foreign.decode("utf-8", "replace"),
        "our heading: "
        + next(line for line in task.own.split(b"\n") if line.startswith(b"@@ ")).decode(),
    ]
    went = None if answer.text is None else landed(sample.target, answer.text, sample)
    if answer.text is not None:
        if answer.text == sample.target:
            parts += ["", f"in {sample.pair.new} it changed nothing, and called it applied"]
        elif went is not None:
            parts += ["", f"in {sample.pair.new} it changed line {went}:"]
            parts.append(_excerpt(answer.text, went))
        else:
            parts += ["", f"in {sample.pair.new} it changed more than the line:"]
            parts.append(_difference(sample.target, answer.text))
    if truth.right is not None:
        parts += ["", f"it belongs to line {truth.line}:", _excerpt(truth.right, truth.line or 0)]
    elif truth.standing is Standing.LOST:
        parts += ["", "it belongs nowhere: the alignment keeps nothing of its place"]
    else:
        parts += ["", f"it belongs into {_scope(sample.before, sample.edited, sample)}"]
    return "\n".join(parts).rstrip() + "\n"


def sample_name(sample: Sample) -> str:
    """What draws this very sample again."""
    pair = sample.pair
    return f"{pair.old} → {pair.new} {sample.kind.value} {sample.number} seed {sample.seed}"


def _difference(before: bytes, after: bytes) -> str:
    old, new = (text.decode("utf-8", "replace").split("\n") for text in (before, after))
    return "\n".join(itertools.islice(difflib.unified_diff(old, new, lineterm="", n=2), 2, 30))


def _excerpt(text: bytes, line: int) -> str:
    lines = text.decode("utf-8", "replace").split("\n")
    low, high = max(0, line - 8), line + 8
    return "\n".join(f"{low + at + 1:6}  {row}" for at, row in enumerate(lines[low:high]))
