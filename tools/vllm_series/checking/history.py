"""What the releases between a patch's base and the one judged have to say about a hunk.

They are asked only for hunks that do not fit or that the release has already, in order, and every
file only once: most releases hold most files as the one before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial

from vllm_series.checking.answers import FileAnswer, HunkAnswer, PatchAnswer
from vllm_series.checking.judge import settled, settled_patch, sides
from vllm_series.checking.subject import Subject
from vllm_series.checking.upstreamed import Merged, Standing, merged, standing, whole_standing
from vllm_series.errors import VllmSeriesError
from vllm_series.patch import FileChange, Kind, Patch
from vllm_series.trees import ReleaseTree
from vllm_series.upstream.catalog import Catalog
from vllm_series.verdicts import Verdict

_ASKED = (Verdict.MOVED, Verdict.AMBIGUOUS, Verdict.DRIFTED, Verdict.MISSING, Verdict.UPSTREAMED)
"""What the releases between may know better."""


class History:
    """The releases of one catalog and which side of a hunk each of them has."""

    def __init__(self, catalog: Catalog, say: Callable[[str], None]) -> None:
        self._catalog, self._say = catalog, say
        self._releases = catalog.releases()
        self._order = {release.version: at for at, release in enumerate(self._releases)}
        self._known: dict[tuple[object, ...], Standing] = {}
        self._fetched: set[tuple[str, str]] = set()
        self.unread: dict[str, VllmSeriesError] = {}
        """Releases that could not be asked."""

    def not_asked(self, base: str | None, release: str) -> list[str]:
        """A note for each release from `base` up to `release` that could not be asked."""
        asked = self.after(base, release) if base is not None else ()
        return [
            f"{version} cannot be asked whether a hunk is upstream: {self.unread[version]}"
            for version in asked
            if version in self.unread
        ]

    def told(
        self, subject: Subject, release: str, answers: Sequence[PatchAnswer]
    ) -> list[PatchAnswer]:
        """The answers for patches in `release`, after the releases since their bases were asked.
        What has to be read for that is fetched at once."""
        since = {
            answer.name: self.after(answer.base, release)
            for answer in answers
            if answer.base is not None and any(_is_asked(file) for file in answer.files)
        }
        wanted: dict[str, set[str]] = {}
        for answer in answers:
            paths = {file.path for file in answer.files if _is_asked(file)}
            for version in since.get(answer.name, ()):
                wanted.setdefault(version, set()).update(paths)
        self._prepare(wanted)
        return [
            self._patch(subject, answer, since[answer.name]) if since.get(answer.name) else answer
            for answer in answers
        ]

    def _prepare(self, wanted: Mapping[str, Collection[str]]) -> None:
        missing = {
            version: [path for path in paths if (version, path) not in self._fetched]
            for version, paths in wanted.items()
            if version not in self.unread
        }
        missing = {version: paths for version, paths in missing.items() if paths}
        if missing:
            self.unread.update(self._catalog.prefetch(missing, self._say))
            self._fetched |= {(version, path) for version in missing for path in missing[version]}

    def _patch(self, subject: Subject, answer: PatchAnswer, releases: Sequence[str]) -> PatchAnswer:
        patch = next(one for one in subject.patches if one.name == answer.name)
        changes = {path: change for change, path in subject.paths(patch)}
        files = tuple(
            self._file(subject, patch, changes[file.path], file, releases)
            if file.path in changes and _is_asked(file)
            else file
            for file in answer.files
        )
        answer = settled_patch(replace(answer, files=files))
        return replace(answer, since=self._last(answer.verdict, [file.since for file in files]))

    def _file(
        self,
        subject: Subject,
        patch: Patch,
        change: FileChange,
        file: FileAnswer,
        releases: Sequence[str],
    ) -> FileAnswer:
        if change.kind is not Kind.MODIFY:
            found = None
            if file.verdict in _ASKED:
                found = self.merged(subject, patch, change, file.path, 0, releases)
            if found is None:
                return file
            reason = _hidden(found.since) if found.hidden else file.reason
            hunks = tuple(
                replace(hunk, verdict=Verdict.UPSTREAMED, since=found.since, reason=reason)
                for hunk in file.hunks
            )
            return replace(
                file, verdict=Verdict.UPSTREAMED, hunks=hunks, since=found.since, reason=reason
            )
        asked: list[HunkAnswer] = []
        for hunk in file.hunks:
            found = None
            if hunk.verdict in _ASKED:
                found = self.merged(subject, patch, change, file.path, hunk.number, releases)
            if found is not None:
                reason = _hidden(found.since) if found.hidden else ""
                hunk = replace(hunk, verdict=Verdict.UPSTREAMED, since=found.since, reason=reason)
            asked.append(hunk)
        file = settled(replace(file, hunks=tuple(asked)))
        return replace(file, since=self._last(file.verdict, [hunk.since for hunk in asked]))

    def _last(self, verdict: Verdict, sinces: Sequence[str | None]) -> str | None:
        """Since when all parts are upstream; None where one is not."""
        known = [since for since in sinces if since is not None]
        if verdict is not Verdict.UPSTREAMED or not known or len(known) < len(sinces):
            return None
        return max(known, key=lambda one: self._order[one])

    def after(self, base: str, release: str) -> tuple[str, ...]:
        """Every final release that is not withdrawn after `base` up to `release`, which is always
        among them; none where `release` is not the later one or either is unknown."""
        first, last = self._order.get(base), self._order.get(release)
        if first is None or last is None or last <= first:
            return ()
        between = self._releases[first + 1 : last]
        return (
            *(one.version for one in between if not one.yanked and not one.prerelease),
            release,
        )

    def merged(
        self,
        subject: Subject,
        patch: Patch,
        change: FileChange,
        path: str,
        number: int,
        releases: Sequence[str],
    ) -> Merged | None:
        """Since when a hunk (1-based `number`; 0 for the whole file) is upstream in the last of
        `releases`; None where it is not."""
        stands = []
        for release in releases:
            if release in self.unread:
                continue
            try:
                tree = self._catalog.tree(release)
                stands.append((release, self._standing(subject, patch, change, path, number, tree)))
            except VllmSeriesError as error:
                self.unread[release] = error
        return merged(stands)

    def _standing(
        self,
        subject: Subject,
        patch: Patch,
        change: FileChange,
        path: str,
        number: int,
        tree: ReleaseTree,
    ) -> Standing:
        old, new = sides(change, path)
        listing = tree.listing()
        key = (
            patch.text,
            path,
            number,
            *(listing.get(side) if side else None for side in (old, new, path)),
        )
        if key not in self._known:
            if change.kind is not Kind.MODIFY:
                found = whole_standing(change, old, new, tree.read)
            else:
                text = tree.read(path) if number else None
                found = Standing.NEITHER
                if text is not None:
                    hunk = change.hunks[number - 1]
                    found = standing(
                        hunk,
                        text,
                        path,
                        partial(subject.scope, patch, path, number, hunk),
                        binding=patch.is_ours,
                        result_id=change.new_id,
                    )
            self._known[key] = found
        return self._known[key]


def _is_asked(file: FileAnswer) -> bool:
    return file.verdict in _ASKED or any(hunk.verdict in _ASKED for hunk in file.hunks)


def _hidden(since: str) -> str:
    return f"upstream has had it since {since}, under a later change of the same lines"
