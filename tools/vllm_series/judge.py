"""One series on one release: from the plan to an answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from vllm_series.answers import FileAnswer, HunkAnswer, PatchAnswer, ReleaseAnswer
from vllm_series.errors import VllmSeriesError
from vllm_series.fileplan import FilePlan
from vllm_series.plan import PatchPlan, make_plan
from vllm_series.series import Entry
from vllm_series.subject import Subject

if TYPE_CHECKING:
    from vllm_series.check import Store
    from vllm_series.jobs import Job
    from vllm_series.upstream.catalog import Catalog


class Judge:
    """Judges jobs on the releases of one catalog."""

    def __init__(
        self,
        catalog: Catalog,
        *,
        store: Store | None,
        base: str | None,
        exclude: tuple[str, ...],
        say: Callable[[str], None],
    ) -> None:
        self._catalog, self._store, self._base = catalog, store, base
        self._exclude, self._say = exclude, say
        self._subjects: dict[tuple[Entry, ...], Subject] = {}

    def prepare(self, jobs: Sequence[Job]) -> Mapping[str, VllmSeriesError]:
        """Fetch what the jobs touch; the error of each release that cannot be read."""
        wanted: dict[str, set[str]] = {}
        for job in jobs:
            subject = self._subject(job.entries)
            wanted.setdefault(job.release, set()).update(subject.touched)
            if subject.base:
                wanted.setdefault(subject.base, set()).update(subject.touched)
        known = {release.version for release in self._catalog.releases()}
        return self._catalog.prefetch({v: p for v, p in wanted.items() if v in known}, self._say)

    def answer(
        self, job: Job, shown: ReleaseAnswer, error: VllmSeriesError | None
    ) -> ReleaseAnswer:
        """The answer of one job."""
        if error:
            return replace(shown, error=str(error))
        try:
            tree = self._catalog.tree(job.release)
            subject = self._subject(job.entries)
            base = self._catalog.tree(subject.base).read if subject.base else None
            plan = make_plan(
                subject.patches, tree.read, tree.mode, exclude=self._exclude, base=base
            )
        except VllmSeriesError as fault:
            return replace(shown, error=str(fault))
        return replace(
            shown, label=tree.label, patches=tuple(_patch(judged) for judged in plan.patches)
        )

    def _subject(self, entries: tuple[Entry, ...]) -> Subject:
        if entries not in self._subjects:
            self._subjects[entries] = Subject(entries, self._exclude)
        return self._subjects[entries]


def _patch(planned: PatchPlan) -> PatchAnswer:
    return PatchAnswer(
        planned.patch.name,
        planned.verdict,
        tuple(_file(file) for file in planned.files),
        planned.reason,
        base=planned.patch.base,
    )


def _file(file: FilePlan) -> FileAnswer:
    hunks = tuple(
        HunkAnswer(file.path, number, p.verdict, p.line, p.offset, p.scope, p.reason, p.candidate)
        for number, p in enumerate(file.placements, 1)
    )
    return FileAnswer(file.path, file.verdict, hunks, file.reason)
