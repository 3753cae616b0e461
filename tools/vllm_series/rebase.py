"""Whether what git has made of a patch on another release is what the patch is.

git's merge knows lines. It is held here against what this project knows beside them: where the
hunk's text and scope, or the base's lines, lead, every change must stand; a change that git has
merged without a conflict but into another function is a conflict all the same. Pure: texts in,
a judgement out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from vllm_series.fileplan import Read
from vllm_series.patch import FileChange, Hunk, Kind, Patch
from vllm_series.place import place
from vllm_series.placement import FilePlacement
from vllm_series.scope import Scopes, is_python
from vllm_series.search import change_scope
from vllm_series.verdicts import Verdict

Runs = Callable[[str, str], "Sequence[Hunk]"]
"""The runs of changed lines of a file (its path before and after), as hunks without context."""


class Outcome(Enum):
    """What became of one patch; members are ordered, worst last."""

    CLEAN = "clean"
    """Every hunk stands at its recorded line."""
    OFFSET = "offset"
    """Every hunk stands in its scope, some at another line."""
    MERGED = "merged"
    """git's three-way merge places it; for review."""
    STRUCTURE = "merged-by-structure"
    """The syntax tree places what git could not; for review."""
    UPSTREAMED = "upstreamed"
    """The release has it: left out."""
    PARTLY = "partly-upstreamed"
    """The release has some of it, the rest is carried."""
    CONFLICTED = "conflicted"
    """A person decides, or has decided."""
    SKIPPED = "skipped"
    """A person left it out."""

    @property
    def is_reviewed(self) -> bool:
        """Whether it is for review though nobody had to decide."""
        return self in (Outcome.MERGED, Outcome.STRUCTURE, Outcome.PARTLY)


@dataclass(frozen=True, slots=True)
class Sides:
    """A patch on one release: the files before it and after it."""

    before: Read
    after: Read
    runs: Runs


@dataclass(frozen=True, slots=True)
class Where:
    """One hunk of the patch on the new release; `line` is None where our rules do not place it."""

    path: str
    number: int
    verdict: Verdict
    line: int | None
    scope: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class Judged:
    """`problem` says why git's result is not taken, empty where it is. `misplaced` are the paths
    that it is about."""

    outcome: Outcome
    hunks: tuple[Where, ...] = ()
    problem: str = ""
    misplaced: tuple[str, ...] = ()


def judge(patch: Patch, old: Sides, new: Sides, moved: Mapping[str, str]) -> Judged:
    """Judge git's result for `patch`: `old` are its own files, `new` what git has made on the other
    release, `moved` gives the new names of files that upstream has renamed."""
    outcomes: list[Outcome] = []
    hunks: list[Where] = []
    problems: list[str] = []
    misplaced: list[str] = []
    for change in patch.files:
        judged = _Change(patch, change, old, new, moved).judge()
        outcomes.append(judged.outcome)
        hunks += judged.hunks
        if judged.problem:
            problems.append(judged.problem)
            misplaced += judged.misplaced
    if problems:
        return Judged(Outcome.CONFLICTED, tuple(hunks), "; ".join(problems), tuple(misplaced))
    if all(outcome is Outcome.UPSTREAMED for outcome in outcomes):
        return Judged(Outcome.UPSTREAMED, tuple(hunks))
    if Outcome.UPSTREAMED in outcomes or Outcome.PARTLY in outcomes:
        return Judged(Outcome.PARTLY, tuple(hunks))
    order = list(Outcome)
    return Judged(max(outcomes, key=order.index), tuple(hunks))


def located(change: FileChange, path: str, placed: FilePlacement) -> tuple[Where, ...]:
    """The hunks of a placed file change, for a report."""
    return tuple(
        Where(path, number, each.verdict, each.line, each.scope, each.reason)
        for number, each in enumerate(placed.placements, 1)
    )


class _Change:
    """One file change on both sides."""

    def __init__(
        self, patch: Patch, change: FileChange, old: Sides, new: Sides, moved: Mapping[str, str]
    ) -> None:
        self.patch, self.change, self.old, self.new = patch, change, old, new
        before, after = change.paths(1)
        self.was, self.becomes = before, after
        self.here = moved.get(before, before) if before else None
        self.result = moved.get(after, after) if after and change.kind is Kind.MODIFY else after

    def judge(self) -> Judged:
        match self.change.kind:
            case Kind.CREATE:
                return self.created()
            case Kind.DELETE:
                return self.deleted()
            case _:
                return self.modified()

    def created(self) -> Judged:
        assert self.becomes is not None
        path = self.becomes
        wanted, there, got = (
            self.old.after(path),
            self.new.before(path),
            self.new.after(path),
        )
        if there == wanted:
            return self.whole(Outcome.UPSTREAMED, Verdict.UPSTREAMED, path)
        if got == wanted and there is None:
            return self.whole(Outcome.CLEAN, Verdict.EXACT, path)
        return self.refused(path, f"{path} exists in the release with other content")

    def deleted(self) -> Judged:
        assert self.was is not None
        path = self.here or self.was
        if self.new.before(path) is None:
            return self.whole(Outcome.UPSTREAMED, Verdict.UPSTREAMED, path)
        if self.new.after(path) is not None:
            return self.refused(path, f"{path} is still there")
        same = self.new.before(path) == self.old.before(self.was)
        return self.whole(Outcome.CLEAN if same else Outcome.MERGED, Verdict.EXACT, path)

    def modified(self) -> Judged:
        assert self.was is not None
        assert self.here is not None
        assert self.result is not None
        text, got = self.new.before(self.here), self.new.after(self.result)
        if text is None or got is None:
            return self.refused(self.here, f"there is no {self.here} in the release")
        base = self.old.before(self.was)
        if not self.change.hunks:
            outcome = Outcome.UPSTREAMED if self.result == self.here else Outcome.CLEAN
            return Judged(outcome if text == got else Outcome.MERGED)
        placed = place(self.change, text, self.here, binding=self.patch.is_ours, base=base)
        where = located(self.change, self.here, placed)
        verdict = placed.verdict
        if placed.result is not None and (verdict.fits or verdict is Verdict.MERGED):
            if placed.result != got:
                return Judged(
                    Outcome.CONFLICTED,
                    where,
                    f"git's merge of {self.here} is not what its text, its scope and the base's "
                    "lines lead to",
                    (self.here,),
                )
            outcome = {
                Verdict.EXACT: Outcome.CLEAN,
                Verdict.OFFSET: Outcome.OFFSET,
                Verdict.APPLIED: Outcome.UPSTREAMED,
            }.get(verdict, Outcome.MERGED)
            return Judged(outcome, where)
        if text == got:
            return Judged(Outcome.UPSTREAMED, where)
        return self.compared(where, base or b"", text, got)

    def compared(self, where: tuple[Where, ...], base: bytes, text: bytes, got: bytes) -> Judged:
        """Hold git's changes one by one against the patch's own: each must be one of them, in its
        scope. Those that are missing stand in the release already, or git would not have merged."""
        assert self.was is not None
        assert self.here is not None
        assert self.becomes is not None
        assert self.result is not None
        theirs = _scoped(
            self.old.runs(self.was, self.becomes),
            base,
            self.old.after(self.becomes) or b"",
            self.was,
        )
        ours = _scoped(self.new.runs(self.here, self.result), text, got, self.here)
        at = 0
        for run, scope in ours:
            same = [n for n in range(at, len(theirs)) if _alike(run, theirs[n][0])]
            fitting = [n for n in same if theirs[n][1] == scope]
            if not fitting:
                meant = theirs[same[0]][1] if same else None
                if meant is not None and scope is not None:
                    problem = f"git's merge puts a change of {meant} into {scope}"
                else:
                    problem = (
                        f"git's merge changes {self.here} at line {run.first_line} in a way that "
                        "the patch does not"
                    )
                return Judged(Outcome.CONFLICTED, where, problem, (self.here,))
            at = fitting[0] + 1
        outcome = Outcome.MERGED if len(ours) == len(theirs) else Outcome.PARTLY
        return Judged(outcome, where)

    def whole(self, outcome: Outcome, verdict: Verdict, path: str) -> Judged:
        return Judged(outcome, (Where(path, 1, verdict, 1, None, ""),))

    def refused(self, path: str, problem: str) -> Judged:
        return Judged(
            Outcome.CONFLICTED,
            (Where(path, 1, Verdict.DRIFTED, None, None, problem),),
            problem,
            (path,),
        )


def _scoped(
    runs: Sequence[Hunk], before: bytes, after: bytes, path: str
) -> list[tuple[Hunk, str | None]]:
    """Every run with the scope that it changes; None where that cannot be known."""
    pre = Scopes.of(before, path) if is_python(path) else None
    post = Scopes.of(after, path) if is_python(path) else None
    if pre is None or post is None:
        return [(run, None) for run in runs]
    return [
        (run, change_scope(run, pre, post, run.first_line, run.reversed().first_line))
        for run in runs
    ]


def _alike(one: Hunk, two: Hunk) -> bool:
    """Whether two runs take out and add the same lines. Where equal lines stand beside a run, a
    diff may show it one line up or down, with its lines in another order."""
    return _turned(one.pre, two.pre) and _turned(one.post, two.post)


def _turned(one: Sequence[bytes], two: Sequence[bytes]) -> bool:
    if len(one) != len(two):
        return False
    if one == two:
        return True
    return any(list(one[at:]) + list(one[:at]) == list(two) for at in range(1, len(one)))
