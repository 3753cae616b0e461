"""A series as people keep it, carried over one line at a time, beside what people made of it.

Every step starts from what stands for the older line, so that one step tells nothing of the others.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rebase.hand import PATHS, Patches, ported
from rebase.roundtrip import Walk
from vllm_series.compose import PatchMeta, compose
from vllm_series.series import SERIES_FILE, line_of
from vllm_series.upstream.catalog import Catalog
from vllm_series.workspace.repository import Commit, Scratch


@dataclass(frozen=True, slots=True)
class Outcome:
    """One tool at one step: the patches that stop it (empty for a step without conflict), those
    that only the syntax tree has merged, and how many come out as people made them."""

    stopped: tuple[str, ...]
    by_structure: tuple[str, ...]
    equal: int


@dataclass(frozen=True, slots=True)
class Step:
    """From one release's line to the next; `git` is a three-way merge without anything beside."""

    old: str
    new: str
    patches: int
    git: Outcome
    ours: Outcome


def steps(
    patches: Patches,
    releases: Sequence[str],
    folder: Path,
    catalog: Catalog,
    say: Callable[[str], None],
) -> list[Step]:
    """Every step of a series between neighbours of `releases`."""
    for error in catalog.prefetch(dict.fromkeys(releases, PATHS), say).values():
        raise error
    kept = folder / "kept"
    for release in releases:
        write(kept / f"vllm-{line_of(release)}", release, patches, catalog)
    found = []
    for old, new in itertools.pairwise(releases):
        say(f"{old} to {new}")
        start, end = (ported(_stock(one, catalog), patches) for one in (old, new))
        git = _git(_stock(old, catalog), start, _stock(new, catalog), end, folder / f"git-{new}")
        ours = _ours(kept, old, new, folder / f"ours-{new}", catalog, say)
        found.append(Step(old, new, len(start), git, ours))
    return found


def write(folder: Path, release: str, patches: Patches, catalog: Catalog) -> None:
    """The series of a release as a folder of ours."""
    folder.mkdir(parents=True)
    files: dict[str, bytes] = dict(_stock(release, catalog))
    names = []
    for name, changed in ported(files, patches).items():
        meta = PatchMeta(
            name,
            "A Tester <tester@example.com>",
            "Tue, 1 Dec 2026 00:00:00 +0000",
            name.removesuffix(".patch").replace("-", " "),
            "As people keep it.",
            (
                ("Base", f"vllm {release}"),
                ("Origin", "vendor"),
                ("Forwarded", "no"),
                ("Last-Update", "2026-12-01"),
            ),
        )
        before = {path: files.get(path) for path in changed}
        (folder / name).write_bytes(compose(meta, before, changed, release).text)
        files |= changed
        names.append(name)
    (folder / SERIES_FILE).write_text("".join(f"{name}\n" for name in names))


def _stock(release: str, catalog: Catalog) -> dict[str, bytes]:
    tree = catalog.tree(release)
    return {path: tree.read(path) or b"" for path in PATHS}


Patched = Mapping[str, Mapping[str, bytes]]


def _git(
    base: Mapping[str, bytes], start: Patched, target: Mapping[str, bytes], end: Patched,
    folder: Path,
) -> Outcome:  # fmt: skip
    """git's own rebase; where it stops, people's files of that patch are the answer."""
    with Scratch(folder) as scratch:
        commits = [_commit(base, None), _commit(target, 0)]
        files = dict(base)
        for number, changed in enumerate(start.values()):
            files |= changed
            commits.append(_commit(files, number + 1 if number else 0))
        first, onto, *chain = scratch.make(commits)
        stopped: list[str] = []
        equal, at, after = 0, 0, first
        wanted = dict(target)
        names = list(start)
        while at < len(chain):
            scratch.reset(onto)
            scratch.rebase(onto, after, chain[-1])
            made = scratch.since(onto, scratch.head())
            for commit in made:
                before = dict(wanted)
                wanted |= end[names[at]]
                one, two = scratch.make([_commit(before, None), _commit(wanted, 0)])
                equal += _bare(scratch.diff(one, two)) == _bare(scratch.diff(onto, commit))
                onto = commit
                at += 1
            if at < len(chain):
                stopped.append(names[at])
                wanted |= end[names[at]]
                after = chain[at]
                at += 1
                (solved,) = scratch.make([_commit(wanted, None)])
                onto = scratch.commit(scratch.tree_of(solved), onto, after)
    return Outcome(tuple(stopped), (), equal)


def _ours(
    kept: Path, old: str, new: str, folder: Path, catalog: Catalog, say: Callable[[str], None]
) -> Outcome:
    """The command; where it stops, people's files of that patch are the answer."""
    walk = Walk(kept, folder, catalog, say)
    walk.start(kept / f"vllm-{line_of(old)}")
    onto = f"vllm-{line_of(new)}"
    step = walk.step(old, new)
    report = walk.said
    by_structure = tuple(
        one["name"]
        for line in report["done"]
        for one in line["patches"]
        if one["outcome"] == "merged-by-structure"
    )
    names = [path.name for path in (kept / onto).glob("*.patch")]
    equal = sum(
        _bare(_text(walk.series / onto / name)) == _bare(_text(kept / onto / name))
        for name in names
        if name not in step.outcomes
    )
    return Outcome(tuple(step.outcomes), by_structure, equal)


def _text(place: Path) -> bytes:
    return place.read_bytes() if place.is_file() else b""


def _bare(diff: bytes) -> list[bytes]:
    """A diff without blob ids and line numbers, which another patch may have changed."""
    return [
        line.rpartition(b"@@")[2] if line.startswith(b"@@ ") else line
        for line in diff.split(b"\n")
        if not line.startswith(b"index ")
    ]


def _commit(files: Mapping[str, bytes], parent: int | None) -> Commit:
    plain = {path: (text, "100644") for path, text in files.items()}
    return Commit(plain, parent, b"a commit\n", b"A <a@example.com>", "0 +0000")
