"""What a person has changed in the repository after a result was refused.

The files, an amended commit of any patch, commits on top: all of it is taken over or refused with a
reason, and what is refused stays as it is in the folder. Nothing that a person made is dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from vllm_series.errors import RefusedError
from vllm_series.rebase import Outcome
from vllm_series.workspace.rebasing import NOTHING_LEFT, Rebasing, plain
from vllm_series.workspace.state import REFUSED, RESOLVING, RUNNING, Settled

BY_HAND = "changed by hand"


def fold(rebasing: Rebasing) -> None:
    """Take over what a person has changed after a refusal: files, an amended commit of any
    patch, or commits on top, which go into the last patch like changed files. It may be done
    again at any time. Raises RefusedError for what cannot be taken, and leaves it alone."""
    if rebasing.state.phase == RESOLVING and rebasing.state.open is None:
        rebasing.scratch.unlock()
    elif rebasing.state.phase != REFUSED:
        return
    owners: dict[str, str] = {}
    for one in rebasing.state.settled:
        owners.setdefault(one.tip, one.name)
    head, last = rebasing.scratch.head(), rebasing.last
    if head == last and not rebasing.scratch.is_changed():
        return
    old = rebasing.scratch.since(rebasing.state.target_commit, last)
    made = _made(rebasing, head, old, owners)
    rebasing.note(phase=RESOLVING)
    files = rebasing.scratch.work_tree()
    tips: dict[str, tuple[str, bool]] = {}
    was, tip = rebasing.state.target_commit, rebasing.state.target_commit
    for before, after in zip(old, made, strict=True):
        tree = files if before == last else rebasing.scratch.tree_of(after)
        commit = before
        if after != before or tip != was or tree != rebasing.scratch.tree_of(before):
            commit = rebasing.scratch.commit(tree, tip, after)
        is_changed = commit != before and _reads(rebasing, was, before) != _reads(
            rebasing, tip, commit
        )
        problem = rebasing.fault(owners[before], tip, commit) if is_changed else ""
        if problem:
            rebasing.note(phase=REFUSED)
            raise RefusedError(f"{owners[before]}: {problem}.")
        tips[before] = commit, is_changed
        was, tip = before, commit
    settled: list[Settled] = []
    for one in rebasing.state.settled:
        below = settled[-1].tip if settled else rebasing.state.target_commit
        commit, is_changed = tips.get(one.tip, (below, False))
        if one.commit is None:
            settled.append(replace(one, tip=commit))
        elif rebasing.scratch.tree_of(commit) == rebasing.scratch.tree_of(below):
            settled.append(Settled(one.name, Outcome.SKIPPED.value, commit, how=NOTHING_LEFT))
        else:
            how = BY_HAND if is_changed else one.how
            settled.append(replace(one, tip=commit, commit=commit, how=how))
    rebasing.note(settled=tuple(settled), phase=RUNNING)
    rebasing.scratch.reset(rebasing.last)
    rebasing.note(phase=REFUSED)


def _made(
    rebasing: Rebasing, head: str, old: Sequence[str], owners: Mapping[str, str]
) -> list[str]:
    """A person's commits for those of a refused result, one for one."""
    folder, target = rebasing.scratch.folder, rebasing.state.target_commit
    if rebasing.scratch.stopped_at() is not None or rebasing.scratch.unmerged():
        raise RefusedError(
            f"{folder}: a rebase or merge is not finished there. Finish it with git, then "
            "vllm-series rebase --continue."
        )
    if not rebasing.scratch.is_ancestor(target, head):
        raise RefusedError(
            f"{folder}: what is checked out is not on top of vllm {rebasing.state.line.target}. "
            f"Run git reset --soft {rebasing.last[:12]} there, which keeps the files as they are, "
            "then continue."
        )
    new = rebasing.scratch.since(target, head)
    if new[: len(old)] == old:
        return list(old)
    texts = [plain(rebasing.scratch.message(one)) for one in old]
    said = [plain(rebasing.scratch.message(one)) for one in new]
    is_moved = any(text in texts and text != own for text, own in zip(said, texts, strict=False))
    if len(new) != len(old) or is_moved:
        raise RefusedError(
            f"{folder} has {len(new)} commits for {len(old)} patches, or another order of "
            f"them: {', '.join(owners[one] for one in old)}. Make it one commit a patch again "
            f"(git rebase -i {target[:12]}, or git reset --soft {rebasing.last[:12]} for changes "
            "of the last one), then continue."
        )
    for before, after in zip(old, new, strict=True):
        one = next(each for each in rebasing.state.settled if each.tip == before)
        below = rebasing.scratch.parent(after)
        if one.commit is None and rebasing.scratch.tree_of(after) != rebasing.scratch.tree_of(
            below
        ):
            raise RefusedError(
                f"{folder}: {one.name} is left out, so its commit must stay empty. Move "
                "the change to another commit, then continue."
            )
    return new


def _reads(rebasing: Rebasing, old: str, new: str) -> list[object]:
    """What a commit changes and says, wherever it stands."""
    found: list[object] = [plain(rebasing.scratch.message(new))]
    for path in rebasing.scratch.changed(old, new):
        entry = rebasing.scratch.files(new).get(path)
        found.append((path, entry and entry[0]))
        found += [(run.pre, run.post) for run in rebasing.runs(old, new, path, path)]
    return found
