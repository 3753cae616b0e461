"""Which patches a failed one takes with it.

A patch is blocked where its `Needs:` names the failed one, and a hunk where it stands on lines that
the failed one writes. The latter is tried on the base, which has an answer for sure: without the
failed patch the hunk does not go in, with it it does. Without a base, or where the failed patch
does not go in there either, the recorded lines decide.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import cached_property

from vllm_series.checking.overlaps import Meeting, Written, meetings
from vllm_series.checking.subject import Subject
from vllm_series.fileplan import FilePlan
from vllm_series.patch import FileChange, Patch
from vllm_series.plan import PatchPlan, make_plan


class Dependencies:
    """What the hunks of one subject stand on; the same for every release."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._tried: dict[tuple[str, str], frozenset[tuple[str, int]]] = {}

    def of(self, patch: str, path: str, number: int, failed: Collection[str]) -> tuple[str, ...]:
        """Those of the `failed` patches without which hunk `number` of a file change cannot go in,
        in the order of the series."""
        near = [
            meeting.first
            for meeting in self._meetings
            if (meeting.second, meeting.path, meeting.number) == (patch, path, number)
            and meeting.first in failed
        ]
        return tuple(
            first
            for first in dict.fromkeys(near)
            if not self._goes_in(first) or (path, number) in self._fails(patch, first)
        )

    def _goes_in(self, patch: str) -> bool:
        """Whether a patch goes in on the base, so that trying without it tells something."""
        if self._subject.read is None:
            return False
        planned = self._subject.planned(patch)
        return planned is not None and not planned.refused

    @cached_property
    def _meetings(self) -> tuple[Meeting, ...]:
        planned = self._subject.on_base
        if planned is not None:
            return meetings(
                [written(file, judged) for judged in planned.patches for file in judged.files]
            )
        return meetings(
            [
                recorded(change, path, patch.name)
                for patch in self._subject.patches
                for change, path in self._subject.paths(patch)
            ]
        )

    def _fails(self, patch: str, without: str) -> frozenset[tuple[str, int]]:
        """The hunks of `patch` that go in on the base, but not without `without` in front."""
        if (patch, without) not in self._tried:
            subject = self._subject
            names = [one.name for one in subject.patches]
            judged = subject.patches[names.index(patch)]
            touched = {path for _, path in subject.paths(judged)}
            front = [
                one
                for one in subject.patches[: names.index(patch)]
                if one.name != without and any(path in touched for _, path in subject.paths(one))
            ]
            assert subject.read is not None
            # What it needs by name is not the question here.
            free = [replace(one, trailers=_without_needs(one)) for one in (*front, judged)]
            alone = make_plan(free, subject.read, exclude=subject.exclude).patches[-1]
            stands = {
                (file.path, number): placement.verdict.fits
                for file in (subject.planned(patch) or alone).files
                for number, placement in enumerate(file.placements, 1)
            }
            self._tried[patch, without] = frozenset(
                (file.path, number)
                for file in alone.files
                for number, placement in enumerate(file.placements, 1)
                if not placement.verdict.fits and stands.get((file.path, number))
            )
        return self._tried[patch, without]


def written(file: FilePlan, judged: PatchPlan) -> Written:
    """A planned change for `overlaps`: its lines as placed, as recorded where it is not."""
    return Written(
        judged.patch.name,
        file.path,
        tuple(
            (p.hunk, p.line if p.line is not None else p.hunk.first_line) for p in file.placements
        ),
        placed=judged.step is not None,
        old_id=file.change.old_id,
        new_id=file.change.new_id,
    )


def recorded(change: FileChange, path: str, patch: str) -> Written:
    """A change for `overlaps` by the lines that its diff names."""
    hunks = tuple((hunk, hunk.first_line) for hunk in change.hunks)
    return Written(patch, path, hunks, False, change.old_id, change.new_id)


def _without_needs(patch: Patch) -> tuple[tuple[str, str], ...]:
    return tuple((key, value) for key, value in patch.trailers if key.lower() != "needs")
