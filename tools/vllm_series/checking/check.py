"""Every patch on every release: where each hunk stands, with nothing installed.

The runner. It fetches what all jobs touch at once, judges one job after the other, asks the other
releases about what does not fit, and lets the error of one release not hide the others. Answers are
kept by content twice: for the very wheel, so that a second run reads no wheel at all, and for the
bytes of the files that a part of a series touches, so that what a release leaves alone is not
judged again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from vllm_series.checking.answers import Judged, Overlap, PatchAnswer, ReleaseAnswer
from vllm_series.checking.jobs import Job, jobs
from vllm_series.checking.remembered import Answers, packed, unpacked
from vllm_series.errors import UsageError, VllmSeriesError
from vllm_series.series import Entry
from vllm_series.trees import ReleaseTree
from vllm_series.upstream.catalog import Catalog
from vllm_series.verdicts import Verdict

if TYPE_CHECKING:
    from vllm_series.checking.blocked import Dependencies
    from vllm_series.checking.history import History
    from vllm_series.checking.subject import Subject

# What judges is loaded where the first answer is not remembered: a second run needs none of it.

__all__ = ["Job", "Store", "check", "jobs"]

_BASE = re.compile(rb"(?mi)^Base:[ \t]+(?:\S+[ \t]+)?(\S+)[ \t]*\r?$")
"""Every release that may be named as a base, also one that only the message speaks of."""


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
    trailer); without it the releases at hand are searched for their blob ids. `exclude` takes path
    patterns whose changes are left out, as for `apply`. `store` keeps answers by the content they
    depend on. `say` is told what goes on.

    Raises EnvironmentRefusedError where the list of releases is out of reach, UsageError for a
    `base` that is none of them; the fault of a single release is in its answer.
    """
    run = _Run(catalog, Answers(store), base, tuple(exclude), say)
    run.prepare(jobs)
    try:
        for job in jobs:
            yield run.answer(job)
    finally:
        run.close()


class _Run:
    """The jobs of one call, and what they share."""

    def __init__(
        self,
        catalog: Catalog,
        answers: Answers,
        base: str | None,
        exclude: tuple[str, ...],
        say: Callable[[str], None],
    ) -> None:
        self._catalog, self._answers, self._say = catalog, answers, say
        self._exclude = exclude
        self._releases = catalog.releases()
        self._order = {release.version: at for at, release in enumerate(self._releases)}
        if base is not None and base not in self._order:
            raise UsageError(f"there is no release {base} for --base. See vllm-series releases.")
        self._base = base
        self._failed: dict[str, VllmSeriesError] = {}
        self._broken: dict[tuple[Entry, ...], VllmSeriesError] = {}
        self._subjects: dict[tuple[Entry, ...], Subject] = {}
        self._dependencies: dict[tuple[Entry, ...], Dependencies] = {}
        self._found: dict[tuple[Entry, ...], str | None] = {}
        self._read: dict[tuple[Entry, ...], _Words] = {}
        self._known: dict[str, Judged] = {}
        self._shelves: dict[tuple[Entry, ...], dict[str, Any]] = {}
        self._kept: dict[tuple[Entry, ...], int] = {}
        self._history: History | None = None

    # -- what is read ---------------------------------------------------------------------------

    def prepare(self, jobs: Sequence[Job]) -> None:
        """Fetch, all at once, what the jobs without a known answer touch."""
        self._find_known_bases(jobs)
        wanted: dict[str, set[str]] = {}
        for job in jobs:
            if job.fault or self._failed_to_open(job.release) or self._recall(job) is not None:
                continue
            subject = self._subject(job.entries)
            if subject is None:
                continue
            for version in {job.release, *self._bases(job.entries)}:
                if version in self._order:
                    wanted.setdefault(version, set()).update(subject.touched)
        if not wanted:
            return
        self._failed.update(self._catalog.prefetch(wanted, self._say))
        self._find_bases(jobs)

    def _failed_to_open(self, release: str) -> bool:
        if release not in self._failed:
            try:
                self._catalog.tree(release)
            except VllmSeriesError as error:
                self._failed[release] = error
        return release in self._failed

    def _subject(self, entries: tuple[Entry, ...]) -> Subject | None:
        """The patches, read once; None where they cannot be."""
        if entries not in self._subjects and entries not in self._broken:
            from vllm_series.checking.blocked import Dependencies
            from vllm_series.checking.subject import Subject

            try:
                subject = Subject.of(entries, self._exclude)
            except VllmSeriesError as error:
                self._broken[entries] = error
                return None
            self._subjects[entries] = subject
            self._dependencies[entries] = Dependencies(subject)
        return self._subjects.get(entries)

    # -- bases ----------------------------------------------------------------------------------

    def _bases(self, entries: tuple[Entry, ...]) -> list[str]:
        """Every release that the patches may have been made on, oldest first."""
        found = set(self._words(entries).bases)
        for extra in (self._base, self._found.get(entries)):
            if extra is not None:
                found.add(extra)
        return sorted(found, key=lambda one: self._order.get(one, -1))

    def _searched(self, entries: tuple[Entry, ...]) -> bool:
        """Whether the base of a patch has to be found by its blob ids."""
        return self._base is None and not self._words(entries).all_based

    def _words(self, entries: tuple[Entry, ...]) -> _Words:
        if entries not in self._read:
            self._read[entries] = _Words.of(entries)
        return self._read[entries]

    def _search_key(self, jobs: Sequence[Job], entries: tuple[Entry, ...]) -> str:
        return self._answers.key(
            "base", self._words(entries).names, [self._identity(job.release) for job in jobs]
        )

    def _find_known_bases(self, jobs: Sequence[Job]) -> None:
        for entries in dict.fromkeys(job.entries for job in jobs):
            if self._searched(entries):
                known = self._answers.get(self._search_key(jobs, entries))
                if known is not None:
                    self._found[entries] = known[0]

    def _find_bases(self, jobs: Sequence[Job]) -> None:
        """Find the base of foreign patches among the releases that are judged, the newest first."""
        for entries in dict.fromkeys(job.entries for job in jobs):
            subject = self._subjects.get(entries)
            if subject is None or entries in self._found or not self._searched(entries):
                continue
            newest_first = sorted(
                {job.release for job in jobs} - set(self._failed),
                key=lambda one: -self._order.get(one, -1),
            )
            home = subject.found_base(self._catalog.tree(version) for version in newest_first)
            self._found[entries] = home
            if not self._failed:
                self._answers.put(self._search_key(jobs, entries), [home])

    def _put_on_base(self, entries: tuple[Entry, ...], subject: Subject) -> str:
        """Give the subject its base; why there is none, where one is named but cannot be read."""
        if subject.read is not None:
            return ""
        fallback = self._base or self._found.get(entries)
        bases = {patch.name: base for patch in subject.patches if (base := patch.base or fallback)}
        subject.put_on(bases, None)
        base = subject.base
        if base is None:
            return ""
        if base not in self._order:
            return f"the base {base} is not upstream, so the patches are judged without it"
        error = self._failed.get(base)
        if error is None:
            try:
                subject.put_on(bases, self._catalog.tree(base).read)
                return ""
            except VllmSeriesError as fault:
                error = self._failed[base] = fault
        return f"the base {base} cannot be read, so the patches are judged without it: {error}"

    # -- keys -----------------------------------------------------------------------------------

    def _identity(self, version: str) -> str:
        at = self._order.get(version)
        recorded = self._releases[at].sha256 if at is not None else None
        try:
            return recorded or self._catalog.tree(version).identity
        except VllmSeriesError:
            return "unread"

    def _key(self, job: Job) -> str:
        """Of everything that the answer of a job hangs on, as long as all of it can be read: the
        patches, the release, its patches' bases and all releases between."""
        places = [
            self._order[one]
            for one in (*self._bases(job.entries), job.release)
            if one in self._order
        ]
        first, last = min(places, default=0), max(places, default=-1)
        return self._answers.key(
            "release",
            self._exclude,
            self._words(job.entries).names,
            (self._base, self._found.get(job.entries)),
            self._catalog.tree(job.release).identity,
            [
                (one.version, self._identity(one.version), one.yanked)
                for one in self._releases[first : last + 1]
            ],
        )

    def _recall(self, job: Job) -> Judged | None:
        key = self._key(job)
        if key not in self._known:
            value = self._answers.get(key)
            if value is None:
                return None
            try:
                self._known[key] = Judged(*unpacked(value))
            except (ValueError, TypeError, KeyError):
                return None
        return self._known[key]

    # -- answers --------------------------------------------------------------------------------

    def answer(self, job: Job) -> ReleaseAnswer:
        """The answer of one job; a fault is told in it."""
        at = self._order.get(job.release)
        shown = ReleaseAnswer(
            job.release,
            job.release,
            self._releases[at].date if at is not None else None,
            job.series,
            job.is_supported,
        )
        try:
            if job.fault is not None:
                raise job.fault
            if (error := self._failed.get(job.release)) is not None:
                raise error
            tree = self._catalog.tree(job.release)
            known = self._recall(job)
            if known is None:
                return self._judged(job, tree, replace(shown, label=tree.label))
            return replace(shown, label=tree.label, patches=known.patches, overlaps=known.overlaps)
        except VllmSeriesError as error:
            return replace(shown, error=str(error))

    def _judged(self, job: Job, tree: ReleaseTree, shown: ReleaseAnswer) -> ReleaseAnswer:
        from vllm_series.checking.declared import declared
        from vllm_series.checking.history import History
        from vllm_series.checking.judge import blocked, is_lost
        from vllm_series.checking.renames import renamed
        from vllm_series.plan import among

        subject = self._subject(job.entries)
        if subject is None:
            raise self._broken[job.entries]
        lacking = self._put_on_base(job.entries, subject)
        if self._history is None:
            self._history = History(self._catalog, self._say)
        history = self._history
        present: tuple[str, ...] = ()
        while True:
            judged = self._looked_at(job, subject, tree, present)
            patches = [
                declared(subject, one, tree.read, lambda base: history.after(base, job.release))
                for one in history.told(subject, job.release, judged.patches)
            ]
            gone = {
                one.name
                for one in patches
                if one.verdict is Verdict.UPSTREAMED and not is_lost(one)
            }
            again = [
                need
                for one in patches
                for need in one.blocked_by
                if among(need, gone) and need not in present
            ]
            if not again:
                break
            present += tuple(again)
        patches = blocked(subject, self._dependencies[job.entries], patches)
        base = self._catalog.tree(subject.base) if subject.base and subject.read else None
        patches = renamed(subject, patches, tree, base, self._catalog.prefetch)
        result = Judged(tuple(patches), judged.overlaps)
        notes = [lacking] if lacking else []
        notes += history.not_asked(subject.base, job.release)
        if not notes:
            self._answers.put(self._key(job), packed(result.patches, result.overlaps))
        return replace(shown, patches=result.patches, overlaps=result.overlaps, notes=tuple(notes))

    def _looked_at(
        self, job: Job, subject: Subject, tree: ReleaseTree, present: tuple[str, ...]
    ) -> Judged:
        """What the release's own files say, once for each set of them."""
        from vllm_series.checking.judge import judge

        listing = tree.listing()
        before: Mapping[str, str] = {}
        if subject.base is not None and subject.read is not None:
            before = self._catalog.tree(subject.base).listing()
        shelf = self._shelf(job.entries)
        answers: dict[str, PatchAnswer] = {}
        overlaps: list[Overlap] = []
        for part in subject.parts:
            key = self._answers.key(
                [(patch.name, subject.bases.get(patch.name)) for patch in part.patches],
                subject.read is not None,
                present,
                [(path, listing.get(path), before.get(path)) for path in part.touched],
                None if part.is_plain else tree.identity,
            )
            if key not in shelf:
                judged = judge(part, tree, present)
                shelf[key] = packed(judged.patches, judged.overlaps)
            else:
                judged = Judged(*unpacked(shelf[key]))
            answers |= {answer.name: answer for answer in judged.patches}
            overlaps += judged.overlaps
        order = {patch.name: at for at, patch in enumerate(subject.patches)}
        overlaps.sort(key=lambda one: (order[one.second], order[one.first]))
        return Judged(tuple(answers[patch.name] for patch in subject.patches), tuple(overlaps))

    def _shelf(self, entries: tuple[Entry, ...]) -> dict[str, Any]:
        """What is known of the parts of a series, by the bytes that they touch."""
        if entries not in self._shelves:
            kept = self._answers.get(self._shelf_key(entries))
            self._shelves[entries] = dict(kept) if isinstance(kept, dict) else {}
            self._kept[entries] = len(self._shelves[entries])
        return self._shelves[entries]

    def _shelf_key(self, entries: tuple[Entry, ...]) -> str:
        return self._answers.key("shelf", self._exclude, self._words(entries).names)

    def close(self) -> None:
        """Keep what became known of parts."""
        for entries, shelf in self._shelves.items():
            if len(shelf) > self._kept[entries]:
                self._answers.put(self._shelf_key(entries), shelf)


@dataclass(frozen=True, slots=True)
class _Words:
    """What the texts of patches tell before they are parsed: their names and digests, the bases
    that they may name, and whether each names one."""

    names: tuple[tuple[str, str], ...]
    bases: frozenset[str]
    all_based: bool

    @classmethod
    def of(cls, entries: tuple[Entry, ...]) -> _Words:
        found = [_BASE.findall(entry.text) for entry in entries]
        return cls(
            tuple((entry.name, entry.sha256) for entry in entries),
            frozenset(base.decode("ascii", "replace") for bases in found for base in bases),
            all(found),
        )
