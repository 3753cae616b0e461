"""From patches and a tree to a plan: every result in memory, every verdict said, nothing written.

Patches are planned on top of each other. One that fails leaves the texts as they were, so that the
later ones are still judged; a patch that `Needs:` it is blocked. A plan is good only as a whole.

With the base's files at hand the patches are planned on those too, so that a patch on top of others
is aligned with the file it was made on. What only a merge can place is a step like any other, and
later patches are planned on it, but it makes the plan unfit: `apply` gives no base and never sees
one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from vllm_series.fileplan import FilePlan, FilePlanner, Mode, Overlay, Read
from vllm_series.patch import Patch, strip_level
from vllm_series.series import called
from vllm_series.steps import PatchStep
from vllm_series.verdicts import Verdict, worst


@dataclass(frozen=True, slots=True)
class PatchPlan:
    """One patch in one tree. `step` is what would be written, None unless the patch is placed; for
    a patch that only its base can place (`merged`, `moved`) it is what rebase may take.

    `notes` are warnings that do not stop it.
    """

    patch: Patch
    verdict: Verdict
    files: tuple[FilePlan, ...]
    step: PatchStep | None
    reason: str = ""
    notes: tuple[str, ...] = ()

    @property
    def refused(self) -> bool:
        """Whether there is nothing to write although the tree does not hold the patch."""
        return self.step is None and self.verdict is not Verdict.APPLIED

    @property
    def fits(self) -> bool:
        """Whether it may be written, or the tree holds it: placed by its text, not by a merge."""
        return not self.refused and self.verdict.fits


Layer = tuple[dict[str, bytes | None], dict[str, int]]
"""Texts (None: no such file) and new modes, by path, of all files that are not the tree's own."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Every patch in order."""

    patches: tuple[PatchPlan, ...]

    @property
    def fits(self) -> bool:
        """Whether all of it may be written."""
        return all(patch.fits for patch in self.patches)

    @property
    def steps(self) -> tuple[PatchStep, ...]:
        """What to write, in order; patches that the tree already holds are not among them."""
        return tuple(patch.step for patch in self.patches if patch.step is not None)

    def compile_items(self) -> list[tuple[str, bytes | None, bytes | None]]:
        """Path, text before and after, for every file of every patch: each result must compile,
        also one that a later patch changes again, since revert may stop there."""
        return [(file.path, file.before, file.after) for step in self.steps for file in step.files]

    def results(self) -> dict[str, tuple[bytes | None, bytes | None]]:
        """Every file's text before the first patch and after the last; None: no such file."""
        texts: dict[str, tuple[bytes | None, bytes | None]] = {}
        for step in self.steps:
            for file in step.files:
                first = texts[file.path][0] if file.path in texts else file.before
                texts[file.path] = (first, file.after)
        return texts

    def layers(self, pristine: Mapping[str, bytes | None]) -> tuple[Layer, ...]:
        """What the first 0, 1, 2… patches make of the tree, for a copy of it. `pristine` are the
        stock texts of the files that are patched in the tree itself."""
        layers: list[Layer] = [(dict(pristine), {})]
        for patch in self.patches:
            files = patch.step.files if patch.step is not None else ()
            texts, modes = layers[-1]
            given = {file.path: file.mode for file in files if file.mode is not None}
            after = {file.path: file.after for file in files}
            layers.append(({**texts, **after}, {**modes, **given}))
        return tuple(layers)


def make_plan(
    patches: Sequence[Patch],
    read: Read,
    mode: Mode = lambda _path: None,
    *,
    present: Sequence[str] = (),
    exclude: Sequence[str] = (),
    base: Read | None = None,
) -> Plan:
    """Plan `patches` in order on the files that `read` gives.

    `mode` gives their permission bits, for renames, copies and changes of mode. `present` names the
    patches that the tree holds already, for `Needs:`. `exclude` takes path patterns (as `git apply
    --exclude`) whose changes are left out. `base` gives the files of the release that the patches
    were made on.
    """
    overlay = Overlay(read, mode)
    base_overlay = Overlay(base, mode) if base is not None else None
    plans: list[PatchPlan] = []
    done = set(present)
    for patch in patches:
        missing = [need for need in patch.trailer("Needs") if not among(need, done)]
        if missing:
            if base_overlay is not None:
                _advance(base_overlay, patch, exclude)
            plans.append(_blocked(patch, missing[0], [plan.patch.name for plan in plans]))
            continue
        plan = _planned(patch, overlay, exclude, base_overlay)
        if plan.step is not None:
            overlay.take(plan.step)
        if not plan.refused:
            done.add(patch.name)
        plans.append(plan)
    return Plan(tuple(plans))


def among(need: str, names: Iterable[str]) -> bool:
    """Whether a `Needs:` trailer names one of `names`, with or without its ending."""
    return any(need in called(name) for name in names)


def _blocked(patch: Patch, need: str, before: list[str]) -> PatchPlan:
    if among(need, set(before)):
        reason = f"it needs {need}, which does not fit"
    else:
        reason = (
            f"it needs {need}, which is not in front of it. Put {need} before {patch.name} in "
            "the series file"
        )
    return PatchPlan(patch, Verdict.BLOCKED, (), None, reason)


def _advance(base: Overlay, patch: Patch, exclude: Sequence[str]) -> None:
    """Let the base hold what the patch makes of it, if it fits there."""
    plan = _planned(patch, base, exclude)
    if plan.step is not None:
        base.take(plan.step)


def _planned(
    patch: Patch, overlay: Overlay, exclude: Sequence[str], base: Overlay | None = None
) -> PatchPlan:
    """Plan one patch; the overlay stays as it is, that of the base takes what fits there."""
    strip = 1
    if not patch.is_ours:
        strip = strip_level(patch.files, lambda path: overlay.read(path) is not None)
    changes = [(change, *change.paths(strip)) for change in patch.files]
    on_base = FilePlanner(patch, base, changes) if base is not None else None
    planner = FilePlanner(patch, overlay, changes, on_base)
    files = tuple(
        planner.plan(change, old, new)
        for change, old, new in changes
        if not _left_out(old, new, exclude)
    )
    if base is not None and on_base is not None:
        base.take(PatchStep(patch.name, patch.text, on_base.steps()))
    notes = (*patch.warnings, *planner.notes)

    def outcome(verdict: Verdict, step: PatchStep | None = None, reason: str = "") -> PatchPlan:
        return PatchPlan(patch, verdict, files, step, reason, notes)

    if not files:
        return outcome(Verdict.NOT_SHIPPED, reason="--exclude leaves out all of its files")
    verdict = worst([file.verdict for file in files])
    if not all(file.is_placed for file in files):
        return outcome(verdict)
    done = [file.path for file in files if file.verdict is Verdict.APPLIED]
    if len(done) == len(files):
        return outcome(Verdict.APPLIED)
    if done:
        return outcome(
            Verdict.AMBIGUOUS,
            reason=f"the tree holds a part of it already ({done[0]}). Put the stock files back "
            "before applying it",
        )
    steps = planner.steps()
    if not steps:
        return outcome(Verdict.AMBIGUOUS, reason="it leaves every file as it is")
    return outcome(verdict, PatchStep(patch.name, patch.text, steps))


def _left_out(old: str | None, new: str | None, exclude: Sequence[str]) -> bool:
    return any(fnmatchcase(path, pattern) for path in (old, new) if path for pattern in exclude)
