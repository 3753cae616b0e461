"""Patches of a series put on the files that they now stand on: their ids, lines and headings anew.

A series is a chain: what one patch makes of a file is what the next one starts from. So a change in
the middle moves everything behind it. Here each patch is placed again, by the rules of placement
and with the text that it was made on at hand, and written again in its one form. One that finds no
place is told, and then nothing of it all is taken. Pure: texts in, patches out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from vllm_series.compose import refreshed
from vllm_series.errors import RefusedError
from vllm_series.fileplan import Mode, Overlay, Read
from vllm_series.patch import FileChange, Kind, Patch
from vllm_series.placement import blob_id, is_blob
from vllm_series.plan import PatchPlan, make_plan
from vllm_series.steps import PatchStep
from vllm_series.verdicts import Verdict


@dataclass(frozen=True, slots=True)
class Renewed:
    """The patches as they are now, in order. `notes` say what is to be looked at: a patch that only
    the alignment with its old base has placed."""

    patches: tuple[Patch, ...]
    notes: tuple[str, ...] = ()


class Layers:
    """The files of a release with patches on top of each other, as far as they have been added."""

    def __init__(self, read: Read, mode: Mode, base: str) -> None:
        self.base = base
        self._overlay = Overlay(read, mode)
        self.names: list[str] = []

    def read(self, path: str) -> bytes | None:
        """The file as the patches so far leave it."""
        return self._overlay.read(path)

    def mode(self, path: str) -> int | None:
        """Its permission bits."""
        return self._overlay.mode(path)

    def git_mode(self, path: str) -> str:
        """git's word for its mode."""
        return _git_mode(self.mode(path))

    def plan(self, patch: Patch, base: Read | None = None) -> PatchPlan:
        """A patch planned on top; nothing is taken."""
        return make_plan([patch], self.read, self.mode, present=self.names, base=base).patches[0]

    def take(self, name: str, step: PatchStep) -> None:
        """Put what a patch makes of its files on top."""
        self._overlay.take(step)
        self.names.append(name)

    def add(self, patch: Patch) -> PatchStep:
        """Put a patch on top. Raises RefusedError where it does not fit there."""
        plan = self.plan(patch)
        if plan.step is None or not plan.fits:
            raise RefusedError(
                f"{patch.name} does not fit vllm {self.base}, its base: {why(plan)}. "
                f"vllm-series refresh {patch.name} may put it right."
            )
        self.take(patch.name, plan.step)
        return plan.step


Make = Callable[[Patch, Layers], PatchStep]
"""What a patch makes of the files below it."""


def on_top(
    patch: Patch, layers: Layers, step: PatchStep, *, last_update: str | None = None
) -> Patch:
    """The patch in its one form, as what makes the files of `step` of those in `layers`; where that
    is the text it has, with its own `Last-Update:`."""
    before = {file.path: file.before for file in step.files}
    after = {file.path: file.after for file in step.files}
    modes = {path: layers.git_mode(path) for path in before}
    given = {
        file.path: _git_mode(file.mode) if file.mode is not None else modes[file.path]
        for file in step.files
    }
    made = refreshed(patch, before, after, layers.base, modes=(modes, given))
    if last_update is not None and made.text != patch.text:
        return refreshed(
            patch, before, after, layers.base, modes=(modes, given), last_update=last_update
        )
    return made


def renewed(
    patches: Sequence[Patch],
    old: Layers,
    new: Layers,
    made: Mapping[str, Make],
    *,
    inserted: str | None = None,
    last_update: str | None = None,
) -> Renewed:
    """A series in order, with some of its patches made anew and the others following.

    `old` and `new` are both the release, without a patch; `made` says by name what a patch makes of
    the files below it now. `inserted` names the one among them that was not in the series. What
    comes behind is placed again with the texts that it was made on at hand; a patch whose files are
    the same as before keeps its text to the byte.

    Raises RefusedError where a patch in front does not fit, and where one behind would have no
    place any more; it names each of those and why.
    """
    found: list[Patch] = []
    notes: list[str] = []
    lost: list[str] = []
    for patch in patches:
        if patch.name in made:
            step = made[patch.name](patch, new)
            lost += _broken(patch, step)
            found.append(on_top(patch, new, step, last_update=last_update))
            if patch.name != inserted:
                old.take(patch.name, old.plan(patch).step or step)
            new.take(patch.name, step)
            continue
        if not made.keys() & set(new.names):
            # In front of all that is made anew: both are the same there.
            found.append(patch)
            new.take(patch.name, old.add(patch))
            continue
        was = old.plan(patch)
        if was.step is None:
            notes.append(f"{patch.name} does not fit its base, as before: {why(was)}.")
            found.append(patch)
            continue
        if all(new.read(file.path) == file.before for file in was.step.files):
            found.append(patch)
            new.take(patch.name, was.step)
        else:
            plan = new.plan(patch, base=old.read)
            if plan.step is None or plan.verdict is Verdict.MOVED:
                lost.append(f"  {patch.name}: {plan.verdict.value}: {why(plan)}")
                new.names.append(patch.name)  # so that what needs it is not told for that alone
            else:
                lost += _broken(patch, plan.step)
                found.append(on_top(patch, new, plan.step))
                new.take(patch.name, plan.step)
                if not plan.verdict.fits:
                    notes.append(f"{patch.name} was merged with what is new: look at its diff.")
        old.take(patch.name, was.step)
    if lost:
        raise RefusedError(
            "the series would not hold any more:\n" + "\n".join(lost) + "\n"
            "Nothing was written. Leave the lines that these patches stand on, or take them out of "
            "the series first."
        )
    return Renewed(tuple(found), tuple(notes))


def settled(patch: Patch, layers: Layers) -> PatchStep:
    """What a patch makes of the files below it, whatever its ids and headings say.

    Hunks that stand at their recorded lines are taken there, where the old id is that of the file
    or there is none: that is how a diff on these very files looks, edited by hand or not. Else they
    are placed by their text and headings, ours or git's.
    Raises RefusedError where neither fits.
    """
    exact = replace(patch, files=tuple(_as_recorded(change, layers) for change in patch.files))
    plan = layers.plan(exact)
    if plan.step is not None and plan.fits:
        return plan.step
    bare = replace(patch, files=tuple(_without_ids(change) for change in patch.files))
    plan = layers.plan(bare)
    if plan.step is not None and plan.fits:
        return plan.step
    hints = replace(bare, trailers=tuple(t for t in bare.trailers if t[0].lower() != "base"))
    by_hints = layers.plan(hints)
    if by_hints.step is not None and by_hints.fits:
        return by_hints.step
    if plan.verdict is Verdict.APPLIED:
        raise RefusedError(
            f"{patch.name} changes nothing: vllm {layers.base} with the patches in front of it has "
            "all of it. Is it in the series under another name?"
        )
    raise RefusedError(
        f"{patch.name} does not fit vllm {layers.base} with the patches in front of it: "
        f"{why(plan)}. Correct its lines, or open it with vllm-series edit after taking them out."
    )


def _broken(patch: Patch, step: PatchStep) -> list[str]:
    errors = unparsable((file.path, file.before, file.after) for file in step.files)
    return [f"  {patch.name}: {error}" for error in errors]


def unparsable(files: Iterable[tuple[str, bytes | None, bytes | None]]) -> list[str]:
    """Python files (path, text before and after) that do not parse and did before, with why."""
    from vllm_series.scope import is_python, parse_error

    found = []
    for path, before, after in files:
        if after is None or not is_python(path):
            continue
        error = parse_error(after)
        if error and not (before is not None and parse_error(before)):
            found.append(f"{path} does not parse: {error}")
    return found


def why(plan: PatchPlan) -> str:
    """Why a patch has no place, in one line."""
    reasons = [plan.reason] if plan.reason else []
    for file in plan.files:
        reasons += [f"{file.path}: {file.reason}"] if file.reason else []
        reasons += [
            f"{file.path}: hunk {number}: {each.reason}"
            for number, each in enumerate(file.placements, 1)
            if each.reason
        ]
    return "; ".join(reasons) or plan.verdict.value


def _as_recorded(change: FileChange, layers: Layers) -> FileChange:
    """The change with the ids of the files that are there, so that recorded lines count."""
    old = change.paths(1)[0]
    text = layers.read(old) if old and change.kind is not Kind.CREATE else None
    if text is None or not (change.old_id is None or is_blob(text, change.old_id)):
        return _without_ids(change)
    return replace(change, old_id=blob_id(text), new_id=None)


def _without_ids(change: FileChange) -> FileChange:
    return replace(change, old_id=None, new_id=None)


def _git_mode(bits: int | None) -> str:
    return "100755" if bits is not None and bits & 0o100 else "100644"
