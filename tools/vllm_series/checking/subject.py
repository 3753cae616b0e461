"""The patches of one series as `check` judges them: parsed once, with what they make of their base.

Most questions about a hunk that does not fit are answered on the release that it was made on: which
scope it changes, what the names in it meant there, which patch in front it cannot do without. All
of that is the same for every release that is judged, so it is worked out once, and only when the
first hunk asks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from vllm_series.checking.bindings import Source
from vllm_series.checking.imports import Import, imports, is_there
from vllm_series.checking.review import Facts, Fitted, facts
from vllm_series.contracts import contract_paths
from vllm_series.diffs.parse import parse
from vllm_series.fileplan import FilePlan, Read
from vllm_series.patch import FileChange, Hunk, Kind, Patch, strip_level
from vllm_series.placement import blob_id
from vllm_series.plan import PatchPlan, Plan, make_plan
from vllm_series.scope import Scopes
from vllm_series.search import bound_scope, change_scope
from vllm_series.series import Entry
from vllm_series.steps import FileStep
from vllm_series.trees import PACKAGE, ReleaseTree


class Subject:
    """A stack of patches.

    `bases` names the base of each patch by its name, where it is known. `read` gives the files of
    `base`, None where they are not at hand; `put_on` sets both, before the first question.
    """

    def __init__(self, patches: Sequence[Patch], exclude: Sequence[str] = ()) -> None:
        self.patches = tuple(patches)
        self.exclude = tuple(exclude)
        self.bases: Mapping[str, str] = {
            patch.name: patch.base for patch in self.patches if patch.base
        }
        self.read: Read | None = None
        self._reached: dict[str, _Reach] = {}
        self._facts: dict[tuple[str, str], Facts | None] = {}
        self._imports: dict[Import, bool] = {}
        self._scopes: dict[tuple[str, str], tuple[str, ...]] = {}

    @classmethod
    def of(cls, entries: Sequence[Entry], exclude: Sequence[str] = ()) -> Subject:
        """Read the patches of a series. Raises PatchFormatError for one that cannot be read."""
        return cls([parse(entry.text, entry.name) for entry in entries], exclude)

    @cached_property
    def parts(self) -> tuple[Subject, ...]:
        """The stack in parts that share no file and need nothing of each other, so that each can be
        judged, and its answer kept, alone."""
        part_of: dict[str, int] = {}
        parts: dict[int, list[Patch]] = {}
        for number, patch in enumerate(self.patches):
            reach = self._reach(patch)
            marks = {*reach.paths, f"\0{patch.name}", f"\0{patch.name.rsplit('.', 1)[0]}"}
            marks |= {f"\0{need}" for need in patch.trailer("Needs")}
            marks |= {path for one in reach.imports for path in one.paths()} & self._made
            joined = {part_of[mark] for mark in marks if mark in part_of}
            patches = [one for old in sorted(joined) for one in parts.pop(old)]
            parts[number] = [*patches, patch]
            for mark, old in part_of.items():
                if old in joined:
                    part_of[mark] = number
            part_of |= dict.fromkeys(marks, number)
        if len(parts) == 1:
            return (self,)
        order = {patch.name: at for at, patch in enumerate(self.patches)}
        found: list[Subject] = []
        for patches in parts.values():
            part = Subject(sorted(patches, key=lambda one: order[one.name]), self.exclude)
            part.bases = {
                patch.name: self.bases[patch.name] for patch in patches if patch.name in self.bases
            }
            part.read = self.read
            part._reached = self._reached
            found.append(part)
        return tuple(found)

    def put_on(self, bases: Mapping[str, str], read: Read | None) -> None:
        """Name the base of each patch and say where the files of `base` are read."""
        self.bases, self.read = bases, read

    @cached_property
    def touched(self) -> tuple[str, ...]:
        """Every path that judging may read, whatever the strip level, sorted."""
        paths: set[str] = set()
        for patch in self.patches:
            paths.update(contract_paths(patch))
            reach = self._reach(patch)
            paths.update(reach.paths)
            for one in reach.imports:
                # What the series brings along need not be fetched from anywhere.
                if not self._made.intersection(one.paths()):
                    paths.update(one.paths())
        return tuple(sorted(paths))

    def imported(self, patch: Patch) -> frozenset[Import]:
        """Everything that added lines of a patch import from the package."""
        return self._reach(patch).imports

    def _reach(self, patch: Patch) -> _Reach:
        if patch.name not in self._reached:
            self._reached[patch.name] = _Reach.of(patch)
        return self._reached[patch.name]

    @cached_property
    def _made(self) -> frozenset[str]:
        """The files that the patches create."""
        return frozenset(
            path
            for patch in self.patches
            for change in patch.files
            if change.kind is Kind.CREATE
            for path in _possible(change)
        )

    @property
    def base(self) -> str | None:
        """The release on which most of the patches were made."""
        return Counter(self.bases.values()).most_common(1)[0][0] if self.bases else None

    @property
    def is_plain(self) -> bool:
        """Whether the text of files is all that matters: no renames, copies or changes of mode."""
        return all(
            change.kind not in (Kind.RENAME, Kind.COPY)
            and (change.kind is not Kind.MODIFY or change.old_mode == change.new_mode)
            for patch in self.patches
            for change in patch.files
        )

    def found_base(self, trees: Iterable[ReleaseTree]) -> str | None:
        """The one of several releases on which most of the patches that name no base were made, by
        the blob ids of their pre-images; the first of several, None where none fits any."""
        ids: dict[str, str] = {}
        best: tuple[int, str | None] = (0, None)
        for tree in trees:
            listing = tree.listing()

            def is_pre_image(
                change: FileChange, tree: ReleaseTree = tree, listing: Mapping[str, str] = listing
            ) -> bool:
                for path in _possible(change):
                    digest = listing.get(path)
                    if digest is None:
                        continue
                    if digest not in ids:
                        ids[digest] = blob_id(tree.read(path) or b"")
                    if ids[digest].startswith(change.old_id or "-"):
                        return True
                return False

            made = sum(
                all(is_pre_image(change) for change in changes)
                for patch in self.patches
                if not patch.base
                and (changes := [one for one in patch.files if one.kind is not Kind.CREATE])
            )
            best = max(best, (made, tree.release), key=lambda one: one[0])
        return best[1]

    def paths(self, patch: Patch) -> tuple[tuple[FileChange, str], ...]:
        """Every change of a patch with its path in the tree, the new one for a rename."""
        strip = 1
        if not patch.is_ours:
            read = self.read
            strip = strip_level(patch.files, lambda path: bool(read and read(path) is not None))
        sides = [(change, *change.paths(strip)) for change in patch.files]
        return tuple((change, path) for change, old, new in sides if (path := new or old))

    # -- on the base ----------------------------------------------------------------------------

    @cached_property
    def on_base(self) -> Plan | None:
        """All patches on their base, on top of each other; None where it is not at hand."""
        if self.read is None:
            return None
        return make_plan(self.patches, self.read, exclude=self.exclude)

    @cached_property
    def _steps(self) -> dict[tuple[str, str], FileStep]:
        return {
            (planned.patch.name, file.path): file
            for planned in (self.on_base.patches if self.on_base else ())
            if planned.step
            for file in planned.step.files
        }

    @cached_property
    def _on_base(self) -> dict[str, PatchPlan]:
        return {p.patch.name: p for p in (self.on_base.patches if self.on_base else ())}

    def planned(self, name: str) -> PatchPlan | None:
        """A patch on its base, None where that is not at hand."""
        return self._on_base.get(name)

    def step(self, name: str, path: str) -> FileStep | None:
        """What a patch makes of a file of the base, None where it does not fit there."""
        return self._steps.get((name, path))

    def imports_on_base(self, one: Import) -> bool:
        """Whether the base, with the patches, has what is imported; True where it is not known."""
        if self.read is None:
            return True
        if one not in self._imports:
            self._imports[one] = is_there(one, self._patched)
        return self._imports[one]

    def _patched(self, path: str) -> bytes | None:
        text = self.read(path) if self.read else None
        if not any(path in self._reach(patch).paths for patch in self.patches):
            return text
        for (_, where), step in self._steps.items():
            if where == path:
                text = step.after
        return text

    def facts(self, name: str, path: str) -> Facts | None:
        """What a review knows of a patched file of the base, None where the patch does not fit."""
        if (name, path) not in self._facts:
            self._facts[name, path] = self._seen_facts(name, path)
        return self._facts[name, path]

    def _seen_facts(self, name: str, path: str) -> Facts | None:
        planned, step = self.planned(name), self.step(name, path)
        if planned is None or step is None or step.after is None:
            return None
        file = next((file for file in planned.files if file.path == path), None)
        after = Source.of(step.after, path)
        return facts(fitted(file), after) if file is not None and after is not None else None

    def scope(self, patch: Patch, path: str, number: int, hunk: Hunk) -> str | None:
        """The scope that a hunk changes: its heading's where we wrote it, else as the base shows;
        None where neither tells. `number` is 1-based in its file change."""
        if patch.is_ours:
            return bound_scope(hunk, binding=True)
        key = (patch.name, path)
        if key not in self._scopes:
            self._scopes[key] = self._seen_scopes(patch, path)
        scopes = self._scopes[key]
        return scopes[number - 1] if number <= len(scopes) else None

    def _seen_scopes(self, patch: Patch, path: str) -> tuple[str, ...]:
        step = self.step(patch.name, path)
        planned = self._on_base.get(patch.name)
        if step is None or planned is None or step.before is None or step.after is None:
            return ()
        before, after = Scopes.of(step.before, path), Scopes.of(step.after, path)
        file = next((file for file in planned.files if file.path == path), None)
        if before is None or after is None or file is None:
            return ()
        found = []
        shift = 0
        for placement in file.placements:
            if placement.line is None:
                return ()
            line = placement.line
            found.append(change_scope(placement.hunk, before, after, line, line + shift))
            shift += placement.hunk.new_count - placement.hunk.old_count
        return tuple(found)


@dataclass(frozen=True, slots=True)
class _Reach:
    """What one patch has to do with: every path that its changes may mean, and everything that its
    added lines import from the package."""

    paths: frozenset[str]
    imports: frozenset[Import]

    @classmethod
    def of(cls, patch: Patch) -> _Reach:
        pairs = [(change, path) for change in patch.files for path in _possible(change)]
        return cls(
            frozenset(path for _, path in pairs),
            frozenset(
                one
                for change, path in pairs
                for hunk in change.hunks
                for one in imports(hunk, path)
            ),
        )


def fitted(file: FilePlan) -> list[Fitted]:
    """The hunks of a file change that is placed, for a review."""
    return [Fitted(p.hunk, p.line) for p in file.placements if p.line is not None]


def _possible(change: FileChange) -> Collection[str]:
    """Every path of the package that a change may mean."""
    found = []
    for raw in dict.fromkeys((change.old_raw, change.new_raw)):
        parts = raw.split("/") if raw else []
        found += [
            "/".join(parts[at:])
            for at, part in enumerate(parts[:-1])
            if part == PACKAGE and ".." not in parts[at:] and "" not in parts[at:]
        ]
    return found
