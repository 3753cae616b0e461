"""One series carried to one release: git rebases, each result is judged, and it goes on or stops.

As many patches as possible are given to one `git rebase`. What git has made is then judged commit
by commit; the first that is not taken ends that run, and the rest is done again on top of what was
decided. Every decision is in the state file before the next is looked for, and commits depend on
nothing but the texts, so that a rebase that was killed ends with the same commits as one that was
not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from vllm_series.checking.answers import PatchAnswer
from vllm_series.checking.check import Store, check
from vllm_series.checking.declared import TRAILER
from vllm_series.checking.jobs import Job
from vllm_series.compilecheck import check_compiles
from vllm_series.contracts import broken
from vllm_series.diffs.parse import parse
from vllm_series.errors import RefusedError, UsageError
from vllm_series.patch import Hunk as PatchHunk
from vllm_series.patch import Patch
from vllm_series.rebase import Judged, Outcome, Sides, judge
from vllm_series.series import Entry
from vllm_series.trees import DiskTree, ReleaseTree
from vllm_series.upstream.catalog import Catalog
from vllm_series.verdicts import Verdict
from vllm_series.workspace import chain, markers
from vllm_series.workspace.conflict import hunks_of, kept, shown
from vllm_series.workspace.repository import Scratch
from vllm_series.workspace.state import (
    REFUSED,
    RESOLVING,
    RUNNING,
    STOPPED,
    Open,
    Settled,
    State,
)
from vllm_series.workspace.unbound import unbound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from vllm_series.structure.resolve import Resolution

NOTHING_LEFT = "nothing of it was left"

Merge = Callable[[bytes, bytes, bytes, str], "Resolution | None"]
"""Base, patched base, new release and path to what the syntax tree makes of the three
(`structure.resolve`); None where it cannot tell."""


@dataclass(frozen=True, slots=True)
class Tools:
    """What a rebase works with. `merge` is asked where git's merge has a conflict."""

    catalog: Catalog
    store: Store | None
    say: Callable[[str], None]
    merge: Merge | None = None


class Rebasing:
    """One series on its way. `save` is told every new state."""

    def __init__(
        self,
        scratch: Scratch,
        entries: Sequence[Entry],
        state: State,
        tools: Tools,
        save: Callable[[State], None],
        renew: bool = False,
    ) -> None:
        self.scratch, self.tools, self._save, self.renew = scratch, tools, save, renew
        self.entries = tuple(entries)
        self.patches = {entry.name: parse(entry.text, entry.name) for entry in entries}
        self.state = state
        self._answers: Mapping[str, PatchAnswer] | None = None
        last = [self.state.chain[name][1] for name in self.state.names if name in self.state.chain]
        if last:
            scratch.since(state.base_commit, last[-1])
        self._moved: dict[str, str] | None = None

    def note(self, **changes: object) -> None:
        """Take over a new state and write it down."""
        self.state = replace(self.state, **changes)  # type: ignore[arg-type]
        self._save(self.state)

    # -- going on -------------------------------------------------------------------------------

    def advance(self) -> bool:
        """Carry patches over until all are settled (True) or a person is needed (False)."""
        while len(self.state.settled) < len(self.state.names):
            at = len(self.state.settled)
            name = self.state.names[at]
            if name not in self.state.chain:
                self.settle(self.upstreamed(name))
                continue
            group = self.together(at)
            if not self.carry(group):
                return False
        return True

    def together(self, at: int) -> list[str]:
        """The patches from one on that git can be given at once: each made on the one before."""
        names = self.state.names
        group = [names[at]]
        for name in names[at + 1 :]:
            if name not in self.state.chain:
                break
            if self.state.chain[name][0] != self.state.chain[group[-1]][1]:
                break
            group.append(name)
        return group

    def carry(self, group: Sequence[str]) -> bool:
        """Rebase some patches onto the tip; False where a person is needed. What was settled before
        that is settled."""
        chain_of, tip = self.state.chain, self.state.tip
        self.tools.say(f"rebasing {group[0]}" if len(group) == 1 else f"rebasing {len(group)}")
        self.scratch.reset(tip)
        whole = self.scratch.rebase(tip, chain_of[group[0]][0], chain_of[group[-1]][1])
        made = self.scratch.since(tip, self.scratch.head())
        found: list[Settled] = []
        for name, commit in zip(group, made, strict=False):
            self.tools.say(f"judging {name}")
            judged = self.judged(name, tip, commit)
            problem = judged.problem or self.fault(name, tip, commit)
            if problem:
                self.settle(*found)
                return self.refuse(name, commit, replace(judged, problem=problem))
            found.append(self.settled(name, judged, tip, commit))
            tip = found[-1].tip
        self.settle(*found)
        if whole:
            return True
        return self.stop(group[len(made)])

    def settle(self, *found: Settled) -> None:
        """Note patches that are done."""
        if found:
            self.note(settled=(*self.state.settled, *found), phase=RUNNING, open=None)

    def settled(self, name: str, judged: Judged, tip: str, commit: str, how: str = "") -> Settled:
        """A patch that git has carried over."""
        outcome = judged.outcome
        answer = self.answers.get(name)
        if name in self.state.chain and self.parted(name) and outcome is not Outcome.UPSTREAMED:
            outcome = Outcome.PARTLY
        evidence = self.evidence(name) if outcome in (Outcome.PARTLY, Outcome.UPSTREAMED) else ()
        since = None
        if outcome is Outcome.UPSTREAMED:
            since = (answer.since if answer else None) or self.state.line.target
            how = how or "left out"
            evidence = evidence or (f"git's merge leaves nothing: vllm {since} has all of it",)
            return Settled(
                name, outcome.value, commit, None, how, since, kept(judged.hunks), evidence
            )
        notes = answer.reviews if answer else ()
        if outcome.is_reviewed or outcome is Outcome.CONFLICTED:
            notes = (*notes, *self.unbound(name, tip, commit))
        return Settled(
            name,
            outcome.value,
            commit,
            commit,
            how,
            since,
            kept(judged.hunks),
            evidence,
            tuple(dict.fromkeys(notes)),
        )

    def unbound(self, name: str, tip: str, commit: str) -> list[str]:
        """Names that a merged patch uses and that nothing binds any more."""
        before, after = self.state.chain[name]
        names = {new: old for old, new in self.moved.items()}
        found: list[str] = []
        for path in self.scratch.changed(tip, commit):
            text = self.read(commit, path)
            if text is None:
                continue
            old = names.get(path, path)
            there = self.read(after, old)
            base = None if there is None else (there, self.runs(before, after, old, old))
            found += unbound(path, (text, self.runs(tip, commit, path, path)), base)
        return found

    # -- what upstream has ----------------------------------------------------------------------

    @property
    def answers(self) -> Mapping[str, PatchAnswer]:
        """What `check` says of every patch on the new release, by name."""
        if self._answers is None:
            self._answers = asked(self.entries, self.state.line.target, self.tools)
        return self._answers

    def parted(self, name: str) -> bool:
        """Whether hunks of a patch were left to upstream before git was asked."""
        ends = {commit for _, commit in self.state.chain.values()} | {self.state.base_commit}
        answer = self.answers.get(name)
        has = answer is not None and any(
            hunk.verdict is Verdict.UPSTREAMED for file in answer.files for hunk in file.hunks
        )
        return has and self.state.chain[name][0] not in ends

    def upstreamed(self, name: str) -> Settled:
        """A patch that upstream has as a whole."""
        answer = self.answers.get(name)
        since = answer.since if answer else None
        return Settled(
            name,
            Outcome.UPSTREAMED.value,
            self.state.tip,
            None,
            "left out",
            since or self.state.line.target,
            (),
            self.evidence(name),
        )

    def evidence(self, name: str) -> tuple[str, ...]:
        """Where upstream has what, a sentence each."""
        answer = self.answers.get(name)
        found = []
        for file in answer.files if answer else ():
            if not file.hunks and file.verdict is Verdict.UPSTREAMED:
                found.append(f"{file.path}: as a whole, since {file.since or 'this release'}")
            for hunk in file.hunks:
                if hunk.verdict is not Verdict.UPSTREAMED:
                    continue
                if hunk.reason.startswith(TRAILER):
                    found.append(f"{file.path}: hunk {hunk.number}: {hunk.reason}")
                    continue
                place = f" line {hunk.line}" if hunk.line else ""
                scope = f" in {hunk.scope}" if hunk.scope else ""
                since = hunk.since or self.state.line.target
                why = f"; {hunk.reason}" if hunk.reason else ""
                found.append(
                    f"{file.path}{place}: hunk {hunk.number} stands{scope} since vllm {since}{why}"
                )
        return tuple(found)

    # -- judging --------------------------------------------------------------------------------

    def read(self, commit: str, path: str) -> bytes | None:
        """A file of a commit."""
        entry = self.scratch.files(commit).get(path)
        return self.scratch.blob(entry[1]) if entry else None

    @property
    def moved(self) -> dict[str, str]:
        """New names by old ones of files that upstream has renamed, as git sees it."""
        if self._moved is None:
            there = self.scratch.files(self.state.target_commit)
            base = self.scratch.files(self.state.base_commit)
            missing = {
                path
                for patch in self.patches.values()
                for change in patch.files
                if (path := change.paths(1)[0]) in base and path not in there
            }
            found = (
                self.scratch.renamed(self.state.base_commit, self.state.target_commit)
                if missing
                else {}
            )
            self._moved = {old: new for old, new in found.items() if old in missing}
        return self._moved

    def runs(self, old: str, new: str, before: str, after: str) -> Sequence[PatchHunk]:
        """The runs of changed lines between two commits in one file."""
        text = self.scratch.diff(old, new, *dict.fromkeys((before, after)), context=0)
        if not text:
            return ()
        return [
            hunk
            for change in parse(text, after).files
            if (change.paths(1)[1] or change.paths(1)[0]) == after
            for hunk in change.hunks
        ]

    def sides(self, old: str, new: str) -> Sides:
        """A patch as two commits."""
        return Sides(partial(self.read, old), partial(self.read, new), partial(self.runs, old, new))

    def judged(
        self, name: str, tip: str, commit: str, but: Collection[str] = frozenset()
    ) -> Judged:
        """Hold what git has made of a patch against the patch, `but` for some files of the release.
        Of one that upstream has in part, the rest is judged."""
        before, after = self.state.chain[name]
        patch = self.patches[name]
        if self.scratch.tree_of(tip) == self.scratch.tree_of(commit):
            return Judged(Outcome.UPSTREAMED)
        if self.parted(name):
            rest = self.scratch.diff(before, after)
            patch = replace(patch, files=parse(rest, name).files, trailers=())
        if but:
            files = [one for one in patch.files if not self.named(one.paths(1)) & set(but)]
            patch = replace(patch, files=tuple(files))
        return judge(patch, self.sides(before, after), self.sides(tip, commit), self.moved)

    def named(self, paths: Sequence[str | None]) -> set[str]:
        """What files of the base are called in the new release."""
        return {self.moved.get(path, path) for path in paths if path}

    def fault(self, name: str, tip: str, commit: str) -> str:
        """What is wrong with a result that git and the judge agree on; empty for nothing."""
        if self.scratch.tree_of(tip) == self.scratch.tree_of(commit):
            return ""
        paths = self.scratch.changed(tip, commit)
        items = [(path, self.read(tip, path), self.read(commit, path)) for path in paths]
        failed = [one for one in check_compiles(DiskTree(Path()), items) if not one.exempt]
        if failed:
            return "; ".join(map(str, failed))
        if self.renew:
            return ""
        trees = partial(self.tree_read, tip)
        found = [
            f"Contract: {one.value}: {one.found}"
            for one in broken(self.described(name, commit), trees)
            if not one.unread
        ]
        if found:
            return (
                "; ".join(found) + ". If the patch is right all the same, continue with "
                "--renew-contracts"
            )
        return ""

    def tree_read(self, commit: str, path: str) -> bytes | None:
        """A file of the new release as a commit leaves it."""
        if path in self.scratch.files(commit):
            return self.read(commit, path)
        if path in self.scratch.files(self.state.target_commit):
            return None
        return self.target.read(path)

    @property
    def target(self) -> ReleaseTree:
        """The new release."""
        return self.tools.catalog.tree(self.state.line.target)

    def described(self, name: str, commit: str) -> Patch:
        """The patch, with the message of its commit where a person has changed that."""
        patch = self.patches[name]
        message = self.scratch.message(commit)
        if plain(message) == plain(chain.message_of(patch)):
            return patch
        return reworded(patch, message.decode("utf-8", "surrogateescape"))

    # -- stopping -------------------------------------------------------------------------------

    def refuse(self, name: str, commit: str, judged: Judged) -> bool:
        """Open a patch that git has merged, but that is not taken; always False."""
        tip = self.state.tip
        before, after = self.state.chain[name]
        self.scratch.reset(tip)
        self.scratch.lay(commit)
        label = self.state.line.target
        for path in judged.misplaced:
            ours, got = self.read(tip, path), self.read(commit, path)
            old = next((was for was, now in self.moved.items() if now == path), path)
            if ours is None or got is None or ours == got:
                continue
            text = markers.proposed(
                ours, self.runs(tip, commit, path, path), label, name, "as git would merge it"
            )
            (self.scratch.folder / path).write_bytes(text)
            self.scratch.put_unmerged(path, self.read(before, old), ours, self.read(after, old))
        return self.wait(
            name, judged.problem, judged.misplaced or self.scratch.changed(tip, commit)
        )

    def stop(self, name: str) -> bool:
        """git's merge of a patch has a conflict. Resolve it as it was resolved before, or by the
        syntax tree, or open it (False)."""
        tip, line = self.state.tip, self.state.line
        unmerged = self.scratch.unmerged()
        outcome, how = Outcome.CONFLICTED, "resolved as before"
        left: dict[str, str] = {}
        notes: dict[str, tuple[str, ...]] = {}
        known: list[str] = []
        for one in unmerged:
            place = self.scratch.folder / one.path
            if one.ours is None or one.theirs is None or not place.is_file():
                left[one.path] = one.theirs or one.ours or ""
                continue
            text = place.read_bytes()
            if not markers.left(text):
                known.append(one.path)
                continue
            if one.base is not None and self.tools.merge is not None:
                base, ours, there = map(self.scratch.blob, (one.base, one.theirs, one.ours))
                merged = self.tools.merge(base, ours, there, one.path)
                if merged is not None:
                    place.write_bytes(merged.text)
                    outcome, how = Outcome.STRUCTURE, ""
                    notes[one.path] = merged.notes(one.path)
                    continue
            left[one.path] = ""
            place.write_bytes(markers.labelled(text, self.state.base, line.target, name))
        if unmerged and not left:
            if notes:
                notes |= dict.fromkeys(known, ())
            return self.take(name, tip, outcome, how, notes)
        paths = sorted(left) or [one.path for one in unmerged]
        kinds = [one for one in unmerged if one.path in left]
        reason = f"git's merge conflicts in {', '.join(paths)}"
        # git names a file that the patch renames by its new name, which no release has.
        sides = [change.paths(1) for change in self.patches[name].files]
        names = {new: old for old, new in sides if old and new}
        gone = [names.get(one.path, one.path) for one in kinds if one.ours is None]
        if gone:
            reason += f"; vllm {line.target} does not have {', '.join(gone)}"
        return self.wait(name, reason, paths, {path: blob for path, blob in left.items() if blob})

    def take(
        self,
        name: str,
        tip: str,
        outcome: Outcome,
        how: str,
        notes: Mapping[str, tuple[str, ...]],
    ) -> bool:
        """Take the files in the folder as a patch's result; False where they are not taken. `notes`
        are for the review of those that the syntax tree has merged, where there are any; the files
        that they do not name are judged as git's."""
        commit = self.scratch.commit(self.scratch.work_tree(), tip, self.state.chain[name][1])
        problem = self.fault(name, tip, commit)
        judged = Judged(Outcome.CONFLICTED, problem=problem)
        if notes and not problem:
            judged = self.judged(name, tip, commit, but=notes)
        if judged.problem:
            return self.refuse(name, commit, judged)
        if not notes:
            # What no person has decided is no resolution to remember.
            self.scratch.note_resolution()
        settled = self.resolved(name, tip, commit, outcome, how)
        review = (*settled.notes, *(note for each in notes.values() for note in each))
        self.settle(replace(settled, notes=review))
        return True

    def wait(
        self, name: str, reason: str, paths: Sequence[str], left: Mapping[str, str] | None = None
    ) -> bool:
        """Note that a patch waits for a person; always False."""
        tip = self.state.tip
        before = self.state.chain[name][0]
        names = {
            old: self.moved.get(old, old)
            for change in self.patches[name].files
            if (old := change.paths(1)[0] or change.paths(1)[1])
        }
        names = {old: new for old, new in names.items() if new in paths or old in paths}
        was, now = partial(self.read, before), partial(self.read, tip)
        where = hunks_of(self.patches[name], names, was, now)
        titles = (f"vllm-{self.state.base}", f"vllm-{self.state.line.target}")
        upstream, ours = shown(self.patches[name], names, where, was, now, titles)
        self.note(
            phase=STOPPED,
            open=Open(name, reason, tuple(paths), kept(where), dict(left or {}), upstream, ours),
        )
        return False

    # -- a person's answer ----------------------------------------------------------------------

    def resume(self) -> None:
        """Take a person's work for the patch that waits, or raise RefusedError where it is not
        done."""
        waits = self.state.open
        if waits is None:
            return
        name, tip = waits.name, self.state.tip
        if self.state.phase == RESOLVING:
            self.scratch.unlock()
        head = self.scratch.head()
        later: list[str] = []
        if head != tip:
            commit, *later = self.committed(name, tip, head)
        else:
            self.look(waits)
            self.note(phase=RESOLVING)
            commit = self.scratch.commit(self.scratch.work_tree(), tip, self.state.chain[name][1])
        problem = self.fault(name, tip, commit)
        if problem:
            self.note(phase=STOPPED, open=replace(waits, reason=problem))
            raise RefusedError(f"{name}: {problem}.")
        self.scratch.note_resolution()
        if self.scratch.tree_of(tip) == self.scratch.tree_of(commit):
            self.settle(Settled(name, Outcome.SKIPPED.value, tip, how=NOTHING_LEFT))
            return
        first = self.resolved(name, tip, commit, Outcome.CONFLICTED, "resolved by hand")
        found, left = self.followed(commit, later)
        self.settle(first, *found)
        if left is not None:
            self.refuse(*left)

    def followed(
        self, tip: str, made: Sequence[str]
    ) -> tuple[list[Settled], tuple[str, str, Judged] | None]:
        """The patches behind the one that waited, as git and a person have carried them over by
        going on in the repository; and the first that is to be looked at, since what git merges
        there without a question is no answer. Raises RefusedError for commits of other things."""
        found: list[Settled] = []
        names = list(self.state.names[len(self.state.settled) + 1 :])
        for commit in made:
            while names and names[0] not in self.state.chain:
                found.append(replace(self.upstreamed(names.pop(0)), tip=tip))
            name = names.pop(0) if names else ""
            text = plain(self.scratch.message(commit))
            if not name or text != plain(chain.message_of(self.patches[name])):
                subject = self.scratch.message(commit).decode("utf-8", "replace").split("\n")[0]
                raise RefusedError(
                    f"{self.scratch.folder}: the commit {commit[:12]} ({subject}) is not "
                    f"{name or 'that of a patch'}, which is next. Go back with "
                    f"git checkout --detach {tip[:12]}, then vllm-series rebase --continue; what "
                    "you leave is in git reflog."
                )
            judged = self.judged(name, tip, commit)
            problem = judged.problem or self.fault(name, tip, commit)
            if problem:
                return found, (name, commit, replace(judged, problem=problem))
            found.append(self.settled(name, judged, tip, commit))
            tip = found[-1].tip
        return found, None

    def resolved(self, name: str, tip: str, commit: str, outcome: Outcome, how: str) -> Settled:
        """A patch that was merged otherwise than by git alone."""
        if self.scratch.tree_of(tip) == self.scratch.tree_of(commit):
            return self.settled(name, Judged(Outcome.UPSTREAMED), tip, commit, how)
        return self.settled(name, Judged(outcome), tip, commit, how)

    def look(self, waits: Open) -> None:
        """Raise RefusedError where a conflict is not resolved yet."""
        open_files = {one.path for one in self.scratch.unmerged()}
        for path in sorted({*waits.paths, *open_files}):
            place = self.scratch.folder / path
            data = place.read_bytes() if place.is_file() else None
            if data is not None and (lines := markers.left(data)):
                raise RefusedError(
                    f"{place}:{lines[0]}: a marker of the conflict is still there. "
                    "Resolve it, then vllm-series rebase --continue."
                )
            if path in open_files and path in waits.left and data is not None:
                raise RefusedError(
                    f"{place}: one side has this file and the other has not. Say which is right "
                    f"with git add or git rm in {self.scratch.folder}, then continue."
                )

    def committed(self, name: str, tip: str, head: str) -> list[str]:
        """The commit that a person has made for the patch that waits, and those of later patches
        that git has made behind it."""
        folder = self.scratch.folder
        if not self.scratch.is_ancestor(tip, head):
            raise RefusedError(
                f"{folder}: what is checked out is not on top of the patches before {name}. "
                f"Run git reset --soft {tip[:12]} there, which keeps the files as they are, then "
                "continue; or give up with --abort."
            )
        made = self.scratch.since(tip, head)
        names = self.state.names[len(self.state.settled) :]
        texts = {plain(chain.message_of(self.patches[one])): one for one in names}
        first = texts.get(plain(self.scratch.message(made[0])), name)
        rest = [texts.get(plain(self.scratch.message(one))) for one in made[1:]]
        if first != name:
            raise RefusedError(
                f"{folder}: {name} has no commit there. To leave it out, run "
                f"git checkout --detach {tip[:12]} there and then vllm-series rebase --skip."
            )
        if rest and None in rest:
            raise RefusedError(
                f"{folder}: there is more than one commit for {name}. Make them one "
                f"(git reset --soft {tip[:12]}, git commit), then continue."
            )
        at = self.scratch.stopped_at()
        if at in (None, self.state.chain[name][1]):
            if self.scratch.is_changed():
                raise RefusedError(
                    f"{folder} has changes that are not committed. Add them to the commit "
                    "(git commit --amend), or drop them (git stash), then continue."
                )
        elif self.scratch.is_touched():
            raise RefusedError(
                f"{folder}: git has gone on to the next conflict, and files were changed there. "
                "Finish it with git add and git rebase --continue, then continue here."
            )
        return made

    def skip(self) -> None:
        """Leave the patch that waits out."""
        waits = self.state.open
        if waits is None:
            raise UsageError("no patch waits to be skipped. See vllm-series rebase --status.")
        tip = self.state.tip
        self.settle(Settled(waits.name, Outcome.SKIPPED.value, tip, how="left out by hand"))

    # -- results --------------------------------------------------------------------------------

    def texts(self, one: Settled) -> tuple[dict[str, bytes | None], dict[str, bytes | None], bytes]:
        """The files before and after a carried patch, and git's diff of them."""
        assert one.commit is not None
        before = self.parent(one)
        paths = self.scratch.changed(before, one.commit)
        return (
            {path: self.read(before, path) for path in paths},
            {path: self.read(one.commit, path) for path in paths},
            self.scratch.diff(before, one.commit),
        )

    def parent(self, one: Settled) -> str:
        """What a carried patch is on top of."""
        at = self.state.settled.index(one)
        return self.state.settled[at - 1].tip if at else self.state.target_commit

    # -- a result that was refused ----------------------------------------------------------------

    @property
    def last(self) -> str:
        """The commit of the last patch that is carried: what a person changes after a refusal."""
        carried = [one.commit for one in self.state.settled if one.commit]
        return carried[-1] if carried else self.state.tip

    def refused(self, problems: Sequence[str]) -> None:
        """Open the result for a person. Where it is open already, what may have been changed in
        the folder meanwhile stays."""
        if self.state.phase != REFUSED:
            self.scratch.reset(self.last)
        self.note(phase=REFUSED, problems=tuple(problems))


def asked(entries: Sequence[Entry], target: str, tools: Tools) -> Mapping[str, PatchAnswer]:
    """What `check` says of every patch on a release, by name."""
    job = Job(target, None, tuple(entries), is_supported=False)
    answer = next(iter(check([job], tools.catalog, store=tools.store, say=tools.say)))
    if answer.error:
        raise RefusedError(answer.error)
    return {patch.name: patch for patch in answer.patches}


def reworded(patch: Patch, message: str) -> Patch:
    """The patch with another commit message: subject, why-text and trailers. A message that has no
    trailer, or no why-text, takes none away."""
    from vllm_series.diffs.mail import split_trailers

    subject, _, body = message.strip("\n").partition("\n")
    why, trailers = split_trailers(body.strip("\n"))
    headers = tuple(
        (key, f"[PATCH] {subject}") if key.lower() == "subject" else (key, value)
        for key, value in patch.headers
    )
    return replace(
        patch,
        headers=headers,
        message=why or patch.message,
        trailers=trailers or patch.trailers,
    )


def plain(message: bytes) -> bytes:
    """A message without what git's clean-up may have changed."""
    text = re.sub(rb"(?m)^#.*\n?", b"", message)
    return re.sub(rb"\s+", b" ", text).strip()
