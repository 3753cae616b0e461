"""What `check` answers: for every release and every patch, where each hunk stands.

Values only. `check` makes them, `report` and the writers of JSON, JUnit and Markdown show them.
"""

from __future__ import annotations

from dataclasses import dataclass

from vllm_series.verdicts import Verdict


@dataclass(frozen=True, slots=True)
class Rename:
    """A file of the release that may be what a missing one became; `similarity` is 0 to 100."""

    path: str
    similarity: int


@dataclass(frozen=True, slots=True)
class HunkAnswer:
    """One hunk in one release.

    `number` counts from 1 within its file change. `line` is the 1-based line of the release's file
    (as the patches in front leave it), None unless it is placed. `review` says, a sentence each,
    why a hunk that fits may mean something else. `since` is the first release that has an
    upstreamed hunk. `candidate` is the nearest place, or for a merged hunk the merge, as a diff.
    """

    path: str
    number: int
    verdict: Verdict
    line: int | None = None
    offset: int | None = None
    scope: str | None = None
    reason: str = ""
    candidate: str = ""
    review: tuple[str, ...] = ()
    since: str | None = None


@dataclass(frozen=True, slots=True)
class FileAnswer:
    """One file change: its hunks (none for a change of a whole file) and, where the file is
    missing, what it may have become.

    `since` is the first release in which all of an upstreamed change stands, None for a part of it.
    """

    path: str
    verdict: Verdict
    hunks: tuple[HunkAnswer, ...] = ()
    reason: str = ""
    renames: tuple[Rename, ...] = ()
    review: tuple[str, ...] = ()
    since: str | None = None


@dataclass(frozen=True, slots=True)
class PatchAnswer:
    """One patch. `blocked_by` names the patches that it needs and that do not fit.

    `base` is the release on which it was made, None where that is not known. `since` is the first
    release that has all of an upstreamed patch, None where it has only a part. `notes` are
    warnings that leave it clean: what could not be looked at, and why.
    """

    name: str
    verdict: Verdict
    files: tuple[FileAnswer, ...] = ()
    reason: str = ""
    blocked_by: tuple[str, ...] = ()
    review: tuple[str, ...] = ()
    since: str | None = None
    base: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def reviews(self) -> tuple[str, ...]:
        """Every reason for a review, of the patch, its files and its hunks."""
        return (
            *self.review,
            *(text for file in self.files for text in file.review),
            *(text for file in self.files for hunk in file.hunks for text in hunk.review),
        )

    @property
    def is_clean(self) -> bool:
        """Whether `apply` would write it and nothing is left to look at."""
        return self.verdict in (Verdict.EXACT, Verdict.OFFSET) and not self.reviews


@dataclass(frozen=True, slots=True)
class Overlap:
    """Two patches that write the same lines of one file, 1-based, as the second one finds it."""

    first: str
    second: str
    path: str
    lines: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Judged:
    """What is known of every patch of a series on one release."""

    patches: tuple[PatchAnswer, ...]
    overlaps: tuple[Overlap, ...]


@dataclass(frozen=True, slots=True)
class ReleaseAnswer:
    """Every patch in one release.

    `series` is the folder's name, None for patches given by file. `is_supported` says that the
    series covers the release, so that what is not clean there counts. `error` is why there is no
    answer (the index is out of reach); `patches` is empty then. `notes` are warnings that hold for
    all patches, such as a base that could not be read.
    """

    release: str
    label: str
    date: str | None
    series: str | None
    is_supported: bool
    patches: tuple[PatchAnswer, ...] = ()
    overlaps: tuple[Overlap, ...] = ()
    error: str = ""
    notes: tuple[str, ...] = ()

    @property
    def is_clean(self) -> bool:
        """Whether every patch is clean."""
        return not self.error and all(patch.is_clean for patch in self.patches)
