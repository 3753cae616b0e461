"""Every patch on every release: where each hunk stands, with nothing installed.

The runner only. It fetches what all jobs touch at once, judges one job after the other and lets the
error of one release not hide the others. What is true of one series on one release is `judge`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from vllm_series.answers import ReleaseAnswer
from vllm_series.jobs import Job, jobs
from vllm_series.judge import Judge
from vllm_series.upstream.catalog import Catalog

__all__ = ["Job", "Store", "check", "jobs"]


class Store(Protocol):
    """Bytes kept between runs, by kind and hex digest."""

    def get(self, kind: str, key: str) -> bytes | None:
        """What was put there, None where it is not or no longer kept."""

    def put(self, kind: str, key: str, data: bytes) -> None:
        """Keep it; a failure to do so is not one of the caller."""


def check(
    jobs: Sequence[Job],
    catalog: Catalog,
    *,
    store: Store | None = None,
    base: str | None = None,
    exclude: Sequence[str] = (),
    say: Callable[[str], None] = lambda _step: None,
) -> Iterator[ReleaseAnswer]:
    """Judge `jobs` in order, an answer as soon as it is known.

    `base` is the release on which patches were made that do not say so themselves (no `Base:`
    trailer). `exclude` takes path patterns whose changes are left out, as for `apply`. `store`
    keeps answers by the content they depend on. `say` is told what goes on.

    Raises EnvironmentRefusedError where the list of releases is out of reach; the fault of a single
    release is in its answer.
    """
    dates = {release.version: release.date for release in catalog.releases()}
    judge = Judge(catalog, store=store, base=base, exclude=tuple(exclude), say=say)
    failed = judge.prepare(jobs)
    for job in jobs:
        shown = ReleaseAnswer(
            job.release, job.release, dates.get(job.release), job.series, job.is_supported
        )
        yield judge.answer(job, shown, failed.get(job.release))
