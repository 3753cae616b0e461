"""One patch on top of those in front of it, in its base and in any other release, hunk by hunk.

A patch of a series may stand on what earlier ones leave. Its hunks are then placed, here as there,
on the stock file with those laid on top that fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vllm_series.checking.subject import Subject
from vllm_series.diffs.parse import parse
from vllm_series.drifting.following import Place, Spot, Text
from vllm_series.errors import UsageError
from vllm_series.patch import FileChange, Hunk, Kind, Patch
from vllm_series.place import place, splice
from vllm_series.placement import FilePlacement, Placement, is_blob
from vllm_series.plan import make_plan
from vllm_series.scope import Scopes
from vllm_series.search import bound_scope, change_scope
from vllm_series.series import Entry
from vllm_series.threeway import edits_of
from vllm_series.trees import PACKAGE, ReleaseTree
from vllm_series.verdicts import Verdict


@dataclass(frozen=True, slots=True)
class _Followed:
    """A file change whose hunks are followed, with the file's path in the base."""

    change: FileChange
    path: str


class Stacked:
    """The last of `entries` on the others. Raises PatchFormatError for one that cannot be read,
    UsageError for a patch without a hunk to follow."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._subject = Subject([parse(entry.text, entry.name) for entry in entries])
        self.patch: Patch = self._subject.patches[-1]
        self._front = self._subject.patches[:-1]
        self.name = self.patch.name
        self.notes: list[str] = []
        self._base: ReleaseTree | None = None
        self._files: dict[str, _Followed] = {}
        self._texts: dict[str, bytes | None] = {}
        self._placed: dict[tuple[str, bytes | None], FilePlacement | None] = {}

    @property
    def touched(self) -> tuple[str, ...]:
        """Every path that the patch or one in front may mean."""
        return self._subject.touched

    def is_made_on(self, tree: ReleaseTree) -> bool:
        """Whether all files that the patch changes are its pre-images there, by blob id."""
        followed = self._changes(tree)
        return bool(followed) and all(
            (text := tree.read(each.path)) is not None and is_blob(text, each.change.old_id)
            for each in followed
        )

    def fit(self, tree: ReleaseTree) -> tuple[int, int, int]:
        """How many hunks stand in a release, how many of them at their recorded line, and how many
        there are to stand. Raises UsageError where there are none."""
        files = self._changes(tree)
        if not files:
            raise self._nothing()
        found = [
            placement
            for each in files
            if (text := tree.read(each.path)) is not None
            for placement in self._place(each, text, None).placements
            if placement.verdict in (Verdict.EXACT, Verdict.OFFSET)
        ]
        exact = sum(1 for placement in found if placement.verdict is Verdict.EXACT)
        return len(found), exact, sum(len(each.change.hunks) for each in files)

    def _nothing(self) -> UsageError:
        return UsageError(
            f"{self.name} has no hunk that could drift: it changes no file of {PACKAGE}/ that is "
            "there before. See vllm-series check."
        )

    def put_on(self, base: ReleaseTree) -> None:
        """Take a release as the base; its files must be fetched."""
        self._base = base
        self._subject.read = base.read
        self._files = {each.path: each for each in self._changes(base)}
        strange = [path for _change, path in self._subject.paths(self.patch) if not _ships(path)]
        if strange:
            self.notes.append(f"{', '.join(strange)}: never part of a wheel, so left out")
        if not self._files:
            raise self._nothing()
        self._texts = {path: self._under(path, base) for path in self._files}
        created = [
            path
            for change, path in self._subject.paths(self.patch)
            if change.kind is Kind.CREATE and path not in self._files
        ]
        if created:
            self.notes.append(
                f"{', '.join(created)}: made by the patch, so nothing of it can drift"
            )
        if any(self._texts[path] != base.read(path) for path in self._files):
            names = ", ".join(patch.name for patch in self._front)
            self.notes.append(f"it is placed on top of {names}, where they fit")

    def hunks(self) -> list[tuple[str, int, Hunk]]:
        """Path, number within its file change and hunk, in the order of the patch."""
        return [
            (path, number, hunk)
            for path, each in self._files.items()
            for number, hunk in enumerate(each.change.hunks, 1)
        ]

    def seat(self, path: str, number: int) -> Place | None:
        """The place of a hunk in the base, under the patches in front; None where it is not placed
        there."""
        text = self._texts[path]
        if text is None:
            return None
        found = self._place(self._files[path], text, None).placements[number - 1]
        if found.line is None or found.verdict not in (Verdict.EXACT, Verdict.OFFSET):
            return None
        spots = tuple(
            Spot(edit.start, edit.removed) for edit in edits_of(found.hunk, found.line - 1)
        )
        return Place(Text(path, text), spots, self._scope(path, text, found)) if spots else None

    def _scope(self, path: str, text: bytes, found: Placement) -> str | None:
        bound = bound_scope(found.hunk, self.patch.is_ours)
        if bound is not None:
            return bound
        own = Text(path, text)
        before = own.scopes
        after = Scopes.of(splice(own.lines, [found]), path)
        if before is None or after is None or found.line is None:
            return None
        return change_scope(found.hunk, before, after, found.line, found.line)

    def judged(self, path: str, number: int, tree: ReleaseTree) -> tuple[Verdict, str]:
        """Where a hunk stands in a release, in the words of `check`, and why it is not placed."""
        each = self._files[path]
        text = self._under(path, tree)
        if text is None:
            return Verdict.MISSING, f"there is no {path}"
        key = (path, text)
        if key not in self._placed:
            self._placed[key] = self._place(each, text, self._texts[path])
        placed = self._placed[key]
        assert placed is not None
        found = placed.placements[number - 1]
        if found.verdict is Verdict.APPLIED:
            return Verdict.UPSTREAMED, "the release has its result already"
        return found.verdict, found.reason

    # -- files ----------------------------------------------------------------------------------

    def _changes(self, tree: ReleaseTree) -> list[_Followed]:
        self._subject.read = tree.read
        return [
            _Followed(change, path)
            for change, new in self._subject.paths(self.patch)
            if change.kind is not Kind.CREATE and change.hunks
            for path in [self._old(change, new)]
            if _ships(path)
        ]

    def _old(self, change: FileChange, new: str) -> str:
        """The path before the change, given the one after."""
        if change.old_raw is None or change.new_raw is None or change.kind is Kind.MODIFY:
            return new
        strip = len(change.new_raw.split("/")) - len(new.split("/"))
        return change.paths(strip)[0] or new

    def _under(self, path: str, tree: ReleaseTree) -> bytes | None:
        """A release's file with the patches in front on it, as far as they fit."""
        stock = tree.read(path)
        front = [
            patch
            for patch in self._front
            if any(there == path for _change, there in self._subject.paths(patch))
        ]
        if not front:
            return stock
        base = self._base.read if self._base is not None else None
        results = make_plan(front, tree.read, tree.mode, base=base).results()
        return results[path][1] if path in results else stock

    def _place(self, each: _Followed, text: bytes, base: bytes | None) -> FilePlacement:
        return place(each.change, text, each.path, binding=self.patch.is_ours, base=base)


def _ships(path: str) -> bool:
    return path.startswith(f"{PACKAGE}/")
