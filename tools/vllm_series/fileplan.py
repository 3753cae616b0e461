"""One file change in a tree: where its hunks go, what the file becomes, or why it does not fit.

The tree is seen through an overlay of what the patches so far have made of it. A planner lays what
one patch makes of it on top, and the overlay takes that only when the whole patch is placed. Where
the base is at hand, a second planner does the same on its files, in step with the first: a hunk's
place in the base is looked for in what the patches in front of it have made of the base.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vllm_series.errors import PatchFormatError
from vllm_series.patch import FileChange, Kind, Patch
from vllm_series.place import place
from vllm_series.placement import FilePlacement, Placement, blob_id, is_blob
from vllm_series.steps import FileStep, PatchStep
from vllm_series.verdicts import Verdict

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
    `pristine` says that the file is the recorded pre-image, byte for byte. `by_base` says that only
    the base has placed it (`merged`, `moved`): there is a result, but not one to apply.
    """

    change: FileChange
    path: str
    verdict: Verdict
    placements: tuple[Placement, ...]
    reason: str = ""
    pristine: bool = False
    by_base: bool = False

    @property
    def is_placed(self) -> bool:
        """Whether there is a result, or nothing left to do."""
        return self.verdict.fits or self.by_base


class Overlay:
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
        """The permission bits as they are now, None where they are not known."""
        return self._modes.get(path, self._mode(path))

    def know(self, path: str, text: bytes) -> None:
        """Take the file's text from elsewhere, so that the tree is not asked."""
        self._texts.setdefault(path, text)

    def take(self, step: PatchStep) -> None:
        """Let what a patch makes of its files be what later patches see."""
        for file in step.files:
            self._texts[file.path] = file.after
            if file.mode is not None:
                self._modes[file.path] = file.mode


class FilePlanner:
    """Plans the file changes of one patch, which see each other's results.

    `changes` are those changes with their paths, old and new, None for a side without a file.
    `base` plans the same patch on the files of its base; every change is planned there too.
    """

    def __init__(
        self,
        patch: Patch,
        overlay: Overlay,
        changes: Sequence[tuple[FileChange, str | None, str | None]],
        base: FilePlanner | None = None,
    ) -> None:
        self.notes: list[str] = []
        self._base = base
        self._patch = patch
        self._overlay = overlay
        self._binding = patch.is_ours
        self._texts: dict[str, bytes | None] = {}
        self._modes: dict[str, int] = {}
        self._taken: dict[int, tuple[bytes, FilePlacement]] = {}
        self._leaving = set[str]()
        self._arriving = set[str]()
        for change, old, new in changes:
            if old and change.kind in (Kind.RENAME, Kind.DELETE):
                self._leaving.add(old)
            if new and change.kind in (Kind.CREATE, Kind.RENAME, Kind.COPY):
                self._arriving.add(new)

    def steps(self) -> tuple[FileStep, ...]:
        """What all changes planned so far make of their files; none for one that stays as it is."""
        return tuple(
            FileStep(path, self._overlay.read(path), text, self._modes.get(path))
            for path, text in self._texts.items()
            if text != self._overlay.read(path) or path in self._modes
        )

    def plan(self, change: FileChange, old: str | None, new: str | None) -> FilePlan:
        """Plan one change on top of the ones before it.

        Raises PatchFormatError where the paths are shorter than those of the rest of the patch.
        """
        plan = self._plan(change, old, new)
        if self._base is not None:
            self._base.plan(change, old, new)
        return plan

    def _plan(self, change: FileChange, old: str | None, new: str | None) -> FilePlan:
        path = new or old
        if path is None:
            raise PatchFormatError(
                self._patch.name,
                change.lineno,
                f"{change.new_raw or change.old_raw} has fewer folders than the other paths. "
                "Make the diff from the folder that holds vllm/.",
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
                return self._create(change, path)
        match change.kind:
            case Kind.CREATE:
                return self._create(change, path)
            case Kind.DELETE:
                return self._delete(change, path)
            case Kind.RENAME | Kind.COPY:
                assert old is not None
                assert new is not None
                return self._transfer(change, old, new)
            case Kind.MODIFY:
                return self._modify(change, path)

    def _modify(self, change: FileChange, path: str) -> FilePlan:
        text = self.now(path)
        if text is None:
            return self._missing(change, path)
        placed = self._place(change, text, path)
        if placed.result is not None and placed.verdict is not Verdict.APPLIED:
            if placed.result == text and change.hunks:
                return FilePlan(
                    change,
                    path,
                    Verdict.AMBIGUOUS,
                    placed.placements,
                    "it leaves the file as it is",
                )
            mode = self._changed_mode(change, path)
            if not change.hunks and mode is not None and mode == self._overlay.mode(path):
                return self._whole(change, path, Verdict.APPLIED)
            self._put(change, path, placed.result, placed.pristine)
            if mode is not None:
                self._modes[path] = mode
        return FilePlan(
            change,
            path,
            placed.verdict,
            placed.placements,
            placed.reason,
            placed.pristine,
            placed.by_base,
        )

    def _create(self, change: FileChange, path: str) -> FilePlan:
        text = b"".join(change.hunks[0].post) if change.hunks else b""
        there = self.now(path)
        if there is not None and there == text:
            return self._whole(change, path, Verdict.APPLIED)
        if there is not None and path not in self._leaving:
            return FilePlan(
                change, path, Verdict.DRIFTED, (), "a file of that name exists with other content"
            )
        self._put(change, path, text, pristine=True)
        if change.new_mode == "100755":
            self._modes[path] = _MODES[change.new_mode]
        return self._whole(change, path, Verdict.EXACT)

    def _delete(self, change: FileChange, path: str) -> FilePlan:
        there = self.now(path)
        if there is None:
            return self._whole(change, path, Verdict.APPLIED)
        text = b"".join(change.hunks[0].pre) if change.hunks else b""
        if there != text and path in self._arriving:
            # What this patch puts in its place may stand already; the change that does so says.
            return self._whole(change, path, Verdict.APPLIED)
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
        self._texts[path] = None
        return self._whole(change, path, Verdict.EXACT)

    def _transfer(self, change: FileChange, old: str, new: str) -> FilePlan:
        """A rename or a copy; its source is the file as it was before this patch, as in git."""
        text = self._overlay.read(old)
        taken = self.now(new)
        if text is None:
            if taken is not None and self._is_result(change, taken, new):
                return self._whole(change, new, Verdict.APPLIED)
            return self._missing(change, old)
        if taken is not None and new not in self._leaving:
            if change.kind is Kind.COPY and (
                self._is_result(change, taken, new) if change.hunks else taken == text
            ):
                return self._whole(change, new, Verdict.APPLIED)
            return FilePlan(change, new, Verdict.DRIFTED, (), "a file of that name exists already")
        placed = self._place(change, text, old, before=True)
        if placed.result is None or placed.verdict is Verdict.APPLIED:
            verdict, reason = placed.verdict, placed.reason
            if placed.result is not None:
                verdict = Verdict.AMBIGUOUS
                reason = "its hunks stand already, but the file has its old name"
            return FilePlan(change, new, verdict, placed.placements, reason)
        self._put(change, new, placed.result, placed.pristine)
        if change.kind is Kind.RENAME and old not in self._texts:
            self._texts[old] = None
        mode = self._changed_mode(change, old) or self._overlay.mode(old)
        if mode is None and change.new_mode is not None:
            mode = _MODES[change.new_mode]
        if mode is not None:
            self._modes[new] = mode
        return FilePlan(
            change,
            new,
            placed.verdict,
            placed.placements,
            pristine=placed.pristine,
            by_base=placed.by_base,
        )

    def _place(
        self, change: FileChange, text: bytes, path: str, *, before: bool = False
    ) -> FilePlacement:
        """Place the hunks in the file at `path`, by the base's file too where it is of use; with
        `before` by that as it is before this patch."""
        base = None
        if self._base is not None:
            if is_blob(text, change.old_id):
                # The recorded pre-image is the base's file: no need to read that.
                self._base.know(path, text)
            else:
                base = self._base.was(path) if before else self._base.now(path)
        if id(change) in self._taken and self._taken[id(change)][0] == text:
            return self._taken[id(change)][1]
        placed = place(change, text, path, binding=self._binding, base=base)
        if self._base is not None and placed.pristine:
            self._base.take_over(change, text, placed)
        if placed.note:
            self.notes.append(f"{self._patch.name}: {placed.note}.")
        return placed

    def know(self, path: str, text: bytes) -> None:
        """As `Overlay.know`."""
        self._overlay.know(path, text)

    def take_over(self, change: FileChange, text: bytes, placed: FilePlacement) -> None:
        """Take from another tree where the hunks of a change stand in its pre-image, so that they
        are placed, and their result is held against its blob id, once."""
        self._taken[id(change)] = text, placed

    def was(self, path: str) -> bytes | None:
        """The file's text before this patch; None where there is no such file."""
        return self._overlay.read(path)

    def _is_result(self, change: FileChange, taken: bytes, new: str) -> bool:
        """Whether `taken` is what this rename or copy leaves; without hunks the name says it."""
        if not change.hunks or is_blob(taken, change.new_id):
            return True
        return place(change, taken, new, binding=self._binding).verdict is Verdict.APPLIED

    def _missing(self, change: FileChange, path: str) -> FilePlan:
        placements = tuple(
            Placement(hunk, Verdict.MISSING, reason=f"there is no {path} in this tree")
            for hunk in change.hunks
        )
        return FilePlan(
            change, path, Verdict.MISSING, placements, f"there is no {path} in this tree"
        )

    def _whole(self, change: FileChange, path: str, verdict: Verdict) -> FilePlan:
        placements = tuple(Placement(hunk, verdict, 1, 0) for hunk in change.hunks)
        return FilePlan(change, path, verdict, placements, pristine=verdict is Verdict.EXACT)

    def _put(self, change: FileChange, path: str, text: bytes, pristine: bool) -> None:
        self._texts[path] = text
        if (
            pristine
            and id(change) not in self._taken
            and change.new_id
            and len(change.new_id) >= 7
            and not is_blob(text, change.new_id)
        ):
            self.notes.append(
                f"{self._patch.name}: {path} becomes {blob_id(text)[:12]}, its index line says "
                f"{change.new_id[:12]}: the patch was edited by hand."
            )

    def _changed_mode(self, change: FileChange, path: str) -> int | None:
        """The permission bits that a change of git's mode gives the file; None where it has none.

        git knows executable or not; whoever may read the file may then execute it.
        """
        if change.new_mode is None or change.new_mode == change.old_mode:
            return None
        now = self._overlay.mode(path)
        if now is None:
            return _MODES[change.new_mode]
        plain = now & ~0o111
        return plain | (plain & 0o444) >> 2 if change.new_mode == "100755" else plain

    def now(self, path: str) -> bytes | None:
        """The file's text after the changes planned so far; None where there is no such file."""
        return self._texts[path] if path in self._texts else self._overlay.read(path)


def _is_backup(old: str, new: str) -> bool:
    """Whether one name is the other's with an ending, as in `x.py.orig` and `x.py~`."""
    return old.startswith(new) or new.startswith(old)


def _fills_empty(change: FileChange) -> bool:
    """Whether the change turns no lines at all into the whole file."""
    return len(change.hunks) == 1 and not change.hunks[0].old_start and not change.hunks[0].pre
