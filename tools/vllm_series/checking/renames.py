"""What a file that a release does not have may have become there.

As git finds renames: first a file with the very same bytes, then the files that only this release
has, the likeliest names first, each with the share of text that it kept (git's similarity index,
`git diff -M`: bytes of common lines by the size of the larger file). Only so many are read, since
each is a member of a wheel on the index. Older and newer releases are asked alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from pathlib import PurePosixPath

from vllm_series.checking.answers import PatchAnswer, Rename
from vllm_series.checking.subject import Subject
from vllm_series.trees import ReleaseTree
from vllm_series.verdicts import Verdict

SHOWN = 3
READ = 20
"""Files read for each missing one."""
LEAST = 20
"""Per cent below which a file is not named."""


def likely(
    path: str, listing: Mapping[str, str], before: Mapping[str, str] | None
) -> tuple[str, ...]:
    """The files of `listing` that are worth a look for `path`, the likeliest first, at most `READ`.

    `listing` and `before` (the release that has `path`; None where that is not known) give content
    digests by path. A file that `before` has, with the same bytes, is no new name of anything.
    """
    ending, same_name = PurePosixPath(path).suffix, f"/{PurePosixPath(path).name}"
    near = _Nearness(path)
    own = before.get(path) if before else None
    if before is not None and own is not None:
        same = [
            (-near.of(other, known=False), other)
            for other, digest in listing.items()
            if digest == own and before.get(other) != own
        ]
        if same:
            return tuple(other for _, other in sorted(same)[:SHOWN])
    found = []
    for other, digest in listing.items():
        if not other.endswith(ending) or (before and before.get(other) == digest):
            continue
        known = before is not None and other in before
        if not known or other.endswith(same_name):
            # A file of another name that both releases have is what it was.
            found.append((near.of(other, known=known), other))
    found.sort(key=lambda item: (-item[0], item[1]))
    return tuple(other for _, other in found[:READ])


def changed(listing: Mapping[str, str], before: Mapping[str, str] | None) -> Mapping[str, str]:
    """The files of `listing` that `before` does not have with the same bytes: all that `likely`
    looks at, for whichever path; all of `listing` where nothing is known of before."""
    if before is None:
        return listing
    return {path: digest for path, digest in listing.items() if before.get(path) != digest}


def renames(wanted: bytes, texts: Mapping[str, bytes]) -> tuple[Rename, ...]:
    """The best of `texts` by similarity to `wanted`, the text of the missing file."""
    size = len(wanted)
    lines = Counter(wanted.splitlines(keepends=True))
    rated = [Rename(path, _similarity(lines, size, text)) for path, text in texts.items()]
    rated = [rename for rename in rated if rename.similarity >= LEAST]
    return tuple(sorted(rated, key=lambda one: (-one.similarity, one.path))[:SHOWN])


def kept(wanted: Collection[bytes], texts: Mapping[str, bytes]) -> tuple[Rename, ...]:
    """The same where only some lines of the missing file are known, those that a patch shows: the
    share of them that a file holds."""
    lines = Counter(line for line in wanted if line.strip())
    size = sum(len(line) * count for line, count in lines.items())
    rated = []
    for path, text in texts.items():
        there = Counter(text.splitlines(keepends=True))
        rated.append(Rename(path, 100 * _common(lines, there) // size if size else 0))
    rated = [rename for rename in rated if rename.similarity >= LEAST]
    return tuple(sorted(rated, key=lambda one: (-one.similarity, one.path))[:SHOWN])


def renamed(
    subject: Subject,
    answers: Sequence[PatchAnswer],
    tree: ReleaseTree,
    base: ReleaseTree | None,
    prefetch: Callable[[Mapping[str, Collection[str]]], object],
) -> list[PatchAnswer]:
    """The answers of one release, their missing files with what they may have become in `tree`.

    `base` is the release that has them, None where it is not at hand. `prefetch` is the catalog's;
    it is asked once, for all of them.
    """
    missing = {
        file.path for answer in answers for file in answer.files if file.verdict is Verdict.MISSING
    }
    if not missing:
        return list(answers)
    listing, before = tree.listing(), base.listing() if base else None
    listing = changed(listing, before)
    wanted = {path: likely(path, listing, before) for path in sorted(missing)}
    prefetch({tree.release: sorted({path for paths in wanted.values() for path in paths})})
    lines: dict[str, list[bytes]] = {}
    for patch in subject.patches:
        for change, path in subject.paths(patch):
            if path in missing:
                lines.setdefault(path, []).extend(
                    line for hunk in change.hunks for line in hunk.pre
                )
    found: dict[str, tuple[Rename, ...]] = {}
    for path, others in wanted.items():
        texts = {other: tree.read(other) or b"" for other in others}
        text = base.read(path) if base else None
        found[path] = renames(text, texts) if text is not None else kept(lines.get(path, ()), texts)
    return [
        replace(
            answer,
            files=tuple(
                replace(file, renames=found[file.path]) if file.verdict is Verdict.MISSING else file
                for file in answer.files
            ),
        )
        for answer in answers
    ]


def _similarity(lines: Counter[bytes], size: int, text: bytes) -> int:
    larger = max(size, len(text))
    if not larger:
        return 100
    there = Counter(text.splitlines(keepends=True))
    share = 100 * _common(lines, there) // larger
    # Git keeps 100 for the very same bytes, too.
    return min(share, 99) if lines != there or size != len(text) else share


def _common(lines: Counter[bytes], there: Counter[bytes]) -> int:
    return sum(len(line) * min(lines[line], there[line]) for line in lines.keys() & there.keys())


class _Nearness:
    """How likely files are the new name of one, by names alone."""

    def __init__(self, path: str) -> None:
        self._path = PurePosixPath(path)
        self._folders: dict[tuple[str, ...], float] = {}

    def of(self, other: str, *, known: bool) -> float:
        """Of one file; one that the release with the old name has as well, under that name, comes
        after all new ones of a like name."""
        one = self._path
        *folders, last = other.split("/")
        stem = PurePosixPath(last).stem
        name = 1.0 if one.name == last else SequenceMatcher(None, one.stem, stem).ratio()
        if one.name == "__init__.py" and last == one.name:
            name = 0.3
        # `vllm/worker/model_runner.py` may become the package `vllm/worker/model_runner/`.
        inside = one.stem in folders or one.stem == last or stem in one.parts
        return 2 * name + self._of_folder(tuple(folders)) + 0.7 * inside - 1.2 * known

    def _of_folder(self, folders: tuple[str, ...]) -> float:
        """Many files lie in one folder, so it is compared once."""
        if folders not in self._folders:
            self._folders[folders] = SequenceMatcher(None, self._path.parts[:-1], folders).ratio()
        return self._folders[folders]
