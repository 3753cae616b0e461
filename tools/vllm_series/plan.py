"""From patches and a tree to a plan: every result in memory, every verdict said, nothing written.

Patches are planned on top of each other. One that fails leaves the texts as they were, so that the
later ones are still judged; a patch that `Needs:` it is blocked. A plan is good only as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from vllm_series.errors import PatchFormatError
from vllm_series.patch import FileChange, Kind, Patch, strip_level
from vllm_series.place import place
from vllm_series.placement import Placement, blob_id, is_blob
from vllm_series.steps import FileStep, PatchStep
from vllm_series.verdicts import Verdict, worst

PACKAGE = "vllm"
_MODES = {"100644": 0o644, "100755": 0o755}

Read = Callable[[str], "bytes | None"]
"""A file's bytes by its path, None where there is no such file."""
Mode = Callable[[str], "int | None"]
"""A file's permission bits by its path, None where they are not known."""


@dataclass(frozen=True, slots=True)
class FilePlan:
    """One file change in one tree. `path` is relative to the tree; the new one for a rename.

    `reason` explains a verdict that no single hunk explains (a missing file, a name that is taken).
    `pristine` says that the file is the recorded pre-image, byte for byte.
    """

    change: FileChange
    path: str
    verdict: Verdict
    placements: tuple[Placement, ...]
    reason: str = ""
    pristine: bool = False


@dataclass(frozen=True, slots=True)
class PatchPlan:
    """One patch in one tree. `step` is what would be written, None unless the patch is placed.

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
        return self.step is None and self.verdict is not Verdict.APPLIED


@dataclass(frozen=True, slots=True)
class Plan:
    """Every patch in order."""

    patches: tuple[PatchPlan, ...]

    @property
    def fits(self) -> bool:
        """Whether all of it may be written."""
        return not any(patch.refused for patch in self.patches)

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


def make_plan(
    patches: Sequence[Patch],
    read: Read,
    mode: Mode = lambda _path: None,
    *,
    present: Sequence[str] = (),
    exclude: Sequence[str] = (),
) -> Plan:
    """Plan `patches` in order on the files that `read` gives.

    `mode` gives their permission bits, for renames, copies and changes of mode. `present` names the
    patches that the tree holds already, for `Needs:`. `exclude` takes path patterns (as `git apply
    --exclude`) whose changes are left out.
    """
    overlay = _Overlay(read, mode)
    plans: list[PatchPlan] = []
    done = set(present)
    for patch in patches:
        missing = [need for need in patch.trailer("Needs") if not _among(need, done)]
        if missing:
            plans.append(_blocked(patch, missing[0], [plan.patch.name for plan in plans]))
            continue
        plan = _PatchPlanner(patch, overlay, exclude).plan()
        if plan.step is not None:
            overlay.take(plan.step)
        if not plan.refused:
            done.add(patch.name)
        plans.append(plan)
    return Plan(tuple(plans))


def _among(need: str, names: set[str]) -> bool:
    """A trailer may name a patch with or without its ending."""
    return any(need in (name, name.rsplit(".", 1)[0]) for name in names)


def _blocked(patch: Patch, need: str, before: list[str]) -> PatchPlan:
    if _among(need, set(before)):
        reason = f"it needs {need}, which does not fit"
    else:
        reason = (
            f"it needs {need}, which is not in front of it. Put {need} before {patch.name} in "
            "the series file"
        )
    return PatchPlan(patch, Verdict.BLOCKED, (), None, reason)


class _Overlay:
    """The tree as the patches so far leave it."""

    def __init__(self, read: Read, mode: Mode) -> None:
        self._read = read
        self._mode = mode
        self._texts: dict[str, bytes | None] = {}
        self._modes: dict[str, int] = {}

    def read(self, path: str) -> bytes | None:
        """The file as it is now; the tree is asked once for each path."""
        if path not in self._texts:
            self._texts[path] = self._read(path)
        return self._texts[path]

    def mode(self, path: str) -> int | None:
        return self._modes.get(path, self._mode(path))

    def take(self, step: PatchStep) -> None:
        for file in step.files:
            self._texts[file.path] = file.after
            if file.mode is not None:
                self._modes[file.path] = file.mode


class _PatchPlanner:
    """Plans one patch; what it changes stays in `texts` until the whole patch is placed."""

    def __init__(self, patch: Patch, overlay: _Overlay, exclude: Sequence[str]) -> None:
        self.patch = patch
        self.overlay = overlay
        self.exclude = exclude
        self.texts: dict[str, bytes | None] = {}
        self.modes: dict[str, int] = {}
        self.notes: list[str] = list(patch.warnings)
        self.binding = patch.is_ours
        self.leaving = set[str]()
        self.arriving = set[str]()

    def now(self, path: str) -> bytes | None:
        return self.texts[path] if path in self.texts else self.overlay.read(path)

    def plan(self) -> PatchPlan:
        changes = self.patch.files
        strip = 1
        if not self.binding:
            strip = strip_level(changes, lambda path: self.overlay.read(path) is not None)
        pairs = [(change, *change.paths(strip)) for change in changes]
        self.leaving = {
            old for change, old, _ in pairs if old and change.kind in (Kind.RENAME, Kind.DELETE)
        }
        self.arriving = {
            new
            for change, _, new in pairs
            if new and change.kind in (Kind.CREATE, Kind.RENAME, Kind.COPY)
        }
        files = [
            self.file(change, old, new) for change, old, new in pairs if not self.left_out(old, new)
        ]
        if not files:
            return self.refused(files, Verdict.NOT_SHIPPED, "--exclude leaves out all of its files")
        verdict = worst([file.verdict for file in files])
        if not verdict.fits:
            return self.refused(files, verdict, "")
        applied = [file.verdict is Verdict.APPLIED for file in files]
        if all(applied):
            return PatchPlan(
                self.patch, Verdict.APPLIED, tuple(files), None, notes=tuple(self.notes)
            )
        if any(applied):
            done = next(file for file in files if file.verdict is Verdict.APPLIED)
            return self.refused(
                files,
                Verdict.AMBIGUOUS,
                f"the tree holds a part of it already ({done.path}). Put the stock files back "
                "before applying it",
            )
        step = self.step()
        if not step.files:
            return self.refused(files, Verdict.AMBIGUOUS, "it leaves every file as it is")
        return PatchPlan(self.patch, verdict, tuple(files), step, notes=tuple(self.notes))

    def refused(self, files: list[FilePlan], verdict: Verdict, reason: str) -> PatchPlan:
        return PatchPlan(self.patch, verdict, tuple(files), None, reason, notes=tuple(self.notes))

    def left_out(self, old: str | None, new: str | None) -> bool:
        return any(
            fnmatchcase(path, pattern) for path in (old, new) if path for pattern in self.exclude
        )

    def step(self) -> PatchStep:
        files = tuple(
            FileStep(path, self.overlay.read(path), text, self.modes.get(path))
            for path, text in self.texts.items()
            if text != self.overlay.read(path) or path in self.modes
        )
        return PatchStep(self.patch.name, self.patch.text, files)

    # -- one file -------------------------------------------------------------------------------

    def file(self, change: FileChange, old: str | None, new: str | None) -> FilePlan:
        path = new or old
        if path is None:
            raise PatchFormatError(
                self.patch.name,
                change.lineno,
                f"{change.new_raw or change.old_raw} has fewer folders than the other paths",
            )
        for side in (old, new):
            if side and not side.startswith(PACKAGE + "/"):
                return FilePlan(
                    change,
                    path,
                    Verdict.NOT_SHIPPED,
                    (),
                    f"{side} is not part of the installed package. Leave it out with "
                    f"--exclude '{side.split('/', 1)[0]}/*'"
                    if "/" in side
                    else f"{side} is not part of the installed package. Leave it out with "
                    f"--exclude '{side}'",
                )
        if not change.from_git and change.kind is Kind.MODIFY:
            assert old is not None
            assert new is not None
            there = [name for name in (new, old) if self.now(name) is not None]
            if old != new and len(there) == 2 and not _is_backup(old, new):
                return FilePlan(
                    change,
                    path,
                    Verdict.AMBIGUOUS,
                    (),
                    f"it names two files, {old} and {new}, and the tree has both",
                )
            # diff -u x.orig x: the file is the one that exists, the new name first.
            path = there[0] if there else new
            if not there and _fills_empty(change):
                # Without git's headers a file that is all new looks like one that was empty.
                return self.create(change, path)
        match change.kind:
            case Kind.CREATE:
                return self.create(change, path)
            case Kind.DELETE:
                return self.delete(change, path)
            case Kind.RENAME | Kind.COPY:
                assert old is not None
                assert new is not None
                return self.transfer(change, old, new)
            case Kind.MODIFY:
                return self.modify(change, path)

    def modify(self, change: FileChange, path: str) -> FilePlan:
        text = self.now(path)
        if text is None:
            return self.missing(change, path)
        placed = place(change, text, path, binding=self.binding)
        if placed.result is not None and placed.verdict is not Verdict.APPLIED:
            if placed.result == text and change.hunks:
                return FilePlan(
                    change,
                    path,
                    Verdict.AMBIGUOUS,
                    placed.placements,
                    "it leaves the file as it is",
                )
            mode = self.changed_mode(change, path)
            if not change.hunks and mode is not None and mode == self.overlay.mode(path):
                return self.whole(change, path, Verdict.APPLIED)
            self.put(change, path, placed.result, placed.pristine)
            if mode is not None:
                self.modes[path] = mode
        return FilePlan(
            change, path, placed.verdict, placed.placements, placed.reason, placed.pristine
        )

    def create(self, change: FileChange, path: str) -> FilePlan:
        text = b"".join(change.hunks[0].post) if change.hunks else b""
        there = self.now(path)
        if there is not None and there == text:
            return self.whole(change, path, Verdict.APPLIED)
        if there is not None and path not in self.leaving:
            return FilePlan(
                change, path, Verdict.DRIFTED, (), "a file of that name exists with other content"
            )
        self.put(change, path, text, pristine=True)
        if change.new_mode == "100755":
            self.modes[path] = _MODES[change.new_mode]
        return self.whole(change, path, Verdict.EXACT)

    def delete(self, change: FileChange, path: str) -> FilePlan:
        there = self.now(path)
        if there is None:
            return self.whole(change, path, Verdict.APPLIED)
        text = b"".join(change.hunks[0].pre) if change.hunks else b""
        if there != text and path in self.arriving:
            # What this patch puts in its place may stand already; the change that does so says.
            return self.whole(change, path, Verdict.APPLIED)
        if there != text:
            placed = place(change, there, path, binding=False)
            refused = next((p for p in placed.placements if not p.verdict.fits), None)
            return FilePlan(
                change,
                path,
                Verdict.DRIFTED,
                (refused,) if refused else (),
                "the file to be deleted holds other text than the patch takes out",
            )
        self.texts[path] = None
        return self.whole(change, path, Verdict.EXACT)

    def transfer(self, change: FileChange, old: str, new: str) -> FilePlan:
        """A rename or a copy; its source is the file as it was before this patch, as in git."""
        text = self.overlay.read(old)
        taken = self.now(new)
        if text is None:
            if taken is not None and self.is_result(change, taken, new):
                return self.whole(change, new, Verdict.APPLIED)
            return self.missing(change, old)
        if taken is not None and new not in self.leaving:
            if change.kind is Kind.COPY and (
                self.is_result(change, taken, new) if change.hunks else taken == text
            ):
                return self.whole(change, new, Verdict.APPLIED)
            return FilePlan(change, new, Verdict.DRIFTED, (), "a file of that name exists already")
        placed = place(change, text, old, binding=self.binding)
        if placed.result is None or placed.verdict is Verdict.APPLIED:
            verdict, reason = placed.verdict, placed.reason
            if placed.result is not None:
                verdict = Verdict.AMBIGUOUS
                reason = "its hunks stand already, but the file has its old name"
            return FilePlan(change, new, verdict, placed.placements, reason)
        self.put(change, new, placed.result, placed.pristine)
        if change.kind is Kind.RENAME and old not in self.texts:
            self.texts[old] = None
        mode = self.changed_mode(change, old) or self.overlay.mode(old)
        if mode is None and change.new_mode is not None:
            mode = _MODES[change.new_mode]
        if mode is not None:
            self.modes[new] = mode
        return FilePlan(change, new, placed.verdict, placed.placements, pristine=placed.pristine)

    def is_result(self, change: FileChange, taken: bytes, new: str) -> bool:
        """Whether `taken` is what this rename or copy leaves; without hunks the name says it."""
        if not change.hunks or is_blob(taken, change.new_id):
            return True
        return place(change, taken, new, binding=self.binding).verdict is Verdict.APPLIED

    def missing(self, change: FileChange, path: str) -> FilePlan:
        placements = tuple(
            Placement(hunk, Verdict.MISSING, reason=f"there is no {path} in this tree")
            for hunk in change.hunks
        )
        return FilePlan(
            change, path, Verdict.MISSING, placements, f"there is no {path} in this tree"
        )

    def whole(self, change: FileChange, path: str, verdict: Verdict) -> FilePlan:
        placements = tuple(Placement(hunk, verdict, 1, 0) for hunk in change.hunks)
        return FilePlan(change, path, verdict, placements, pristine=verdict is Verdict.EXACT)

    def put(self, change: FileChange, path: str, text: bytes, pristine: bool) -> None:
        self.texts[path] = text
        if (
            pristine
            and change.new_id
            and len(change.new_id) >= 7
            and not is_blob(text, change.new_id)
        ):
            self.notes.append(
                f"{self.patch.name}: {path} becomes {blob_id(text)[:12]}, its index line says "
                f"{change.new_id[:12]}: the patch was edited by hand"
            )

    def changed_mode(self, change: FileChange, path: str) -> int | None:
        """The permission bits that a change of git's mode gives the file; None where it has none.

        git knows executable or not; whoever may read the file may then execute it.
        """
        if change.new_mode is None or change.new_mode == change.old_mode:
            return None
        now = self.overlay.mode(path)
        if now is None:
            return _MODES[change.new_mode]
        plain = now & ~0o111
        return plain | (plain & 0o444) >> 2 if change.new_mode == "100755" else plain


def _is_backup(old: str, new: str) -> bool:
    """Whether one name is the other's with an ending, as in `x.py.orig` and `x.py~`."""
    return old.startswith(new) or new.startswith(old)


def _fills_empty(change: FileChange) -> bool:
    """Whether the change turns no lines at all into the whole file."""
    return len(change.hunks) == 1 and not change.hunks[0].old_start and not change.hunks[0].pre
