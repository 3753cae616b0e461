"""Who carries: this project's rebase, git's own, and git merge-file, all on the same input.

The cases of one base and one target are one series of one commit a case, each of another file, so
that one `git rebase` carries many; where it stops, the case is refused and the rest goes on.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from drift.truth import sealed

from rebase.cases import Case
from vllm_series.compilecheck import check_compiles
from vllm_series.compose import PatchMeta, compose
from vllm_series.diffs.parse import parse
from vllm_series.patch import Hunk, Patch
from vllm_series.rebase import Judged, Outcome, Sides, judge
from vllm_series.structure.resolve import resolve
from vllm_series.trees import DiskTree
from vllm_series.workspace.repository import Commit, Scratch

_WHO = b"A Tester <tester@example.com>"
_DATE = "1796083200 +0000"
STRUCTURE = Outcome.STRUCTURE.value


@dataclass(frozen=True, slots=True)
class Answer:
    """A tool's result for a case: the file, None where it refused; its changes of the target."""

    text: bytes | None
    runs: tuple[Hunk, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class Asked:
    """A case with what every tool made of it, by the tool's name."""

    case: Case
    patch: Patch
    runs: tuple[Hunk, ...]
    """The patch's changes, without context."""
    answers: dict[str, Answer]


OURS, LINES, REBASE, MERGE_FILE = "rebase", "rebase, by lines", "git rebase", "git merge-file"
"""`rebase, by lines` is ours without what the syntax tree can merge."""
TOOLS = (OURS, LINES, REBASE, MERGE_FILE)
_CHUNK = 50


def ask(cases: Sequence[Case], folder: Path) -> list[Asked]:
    """Let every tool carry all cases, whose base and target releases are the same."""
    found: list[Asked] = []
    # git checks out all files of the tree wherever it stops.
    for at in range(0, len(cases), _CHUNK):
        found += _ask(cases[at : at + _CHUNK], folder / str(at))
    return found


def _ask(cases: Sequence[Case], folder: Path) -> list[Asked]:
    folder.mkdir(parents=True)
    with Scratch(folder / "scratch") as scratch:
        base = {case.place: (case.base, "100644") for case in cases}
        target = {case.place: (case.target, "100644") for case in cases}
        commits = [_commit(base, None), _commit(target, 0)]
        files = base
        for number, case in enumerate(cases):
            files = {**files, case.place: (case.patched, "100644")}
            commits.append(_commit(files, number + 1 if number else 0))
        first, onto, *chain = scratch.make(commits)
        runs = runs_of(scratch, first, chain[-1])
        parts = parts_of(scratch.diff(first, chain[-1]))
        patches = [_patch(case, parts[case.place]) for case in cases]
        rebased = _rebased(scratch, onto, first, chain, cases)
        merged = _merged(cases, folder)
        made = {REBASE: rebased, MERGE_FILE: merged}
        ran = {name: _made_runs(scratch, cases, texts) for name, texts in made.items()}
        ours = [
            _ours(case, patch, runs[case.place], rebased[n], ran[REBASE][n])
            for n, (case, patch) in enumerate(zip(cases, patches, strict=True))
        ]
        made[LINES] = [text if note != STRUCTURE else None for text, note in ours]
        made[OURS] = [text for text, _ in ours]
        for name in (LINES, OURS):
            ran[name] = _made_runs(scratch, cases, made[name])
    return [
        Asked(
            case,
            patches[n],
            runs[case.place],
            {
                name: Answer(
                    made[name][n], ran[name][n], ours[n][1] if name in (OURS, LINES) else ""
                )
                for name in TOOLS
            },
        )
        for n, case in enumerate(cases)
    ]


def _commit(files: dict[str, tuple[bytes, str]], parent: int | None) -> Commit:
    return Commit(files, parent, b"a commit\n", _WHO, _DATE)


def _patch(case: Case, diff: bytes) -> Patch:
    meta = PatchMeta(
        "p.patch", "A Tester <tester@example.com>", "Tue, 1 Dec 2026 00:00:00 +0000", "p", ""
    )
    return compose(
        meta, {case.place: case.base}, {case.place: case.patched}, case.triple.middle, diff=diff
    )


def parts_of(diff: bytes) -> dict[str, bytes]:
    """git's diff of many files, by path."""
    found = {}
    for part in (b"\n" + diff).split(b"\ndiff --git ")[1:]:
        text = b"diff --git " + part.rstrip(b"\n") + b"\n"
        found[parse(text, "p").files[0].paths(1)[1] or ""] = text
    return found


def runs_of(scratch: Scratch, old: str, new: str, context: int = 0) -> dict[str, tuple[Hunk, ...]]:
    """The hunks of each file between two commits; without context, the runs of changed lines."""
    diff = scratch.diff(old, new, context=context)
    if not diff:
        return {}
    return {change.paths(1)[1] or "": change.hunks for change in parse(diff, "p").files}


def _made_runs(
    scratch: Scratch, cases: Sequence[Case], texts: Sequence[bytes | None]
) -> list[tuple[Hunk, ...]]:
    files = {
        case.place: (case.target if text is None else text, "100644")
        for case, text in zip(cases, texts, strict=True)
    }
    target = {case.place: (case.target, "100644") for case in cases}
    one, two = scratch.make([_commit(target, None), _commit(files, 0)])
    found = runs_of(scratch, one, two)
    return [found.get(case.place, ()) for case in cases]


def _rebased(
    scratch: Scratch, onto: str, base: str, chain: Sequence[str], cases: Sequence[Case]
) -> list[bytes | None]:
    """git's own rebase, one result a case."""
    found: list[bytes | None] = []
    after = base
    while len(found) < len(chain):
        scratch.reset(onto)
        scratch.rebase(onto, after, chain[-1])
        head = scratch.head()
        for commit in scratch.since(onto, head):
            found.append(scratch.read(commit, cases[len(found)].place))
        if len(found) < len(chain):
            after = chain[len(found)]
            found.append(None)
        onto = head
    return found


def _merged(cases: Sequence[Case], folder: Path) -> list[bytes | None]:
    """git merge-file, one process a case, all from one shell."""
    for number, case in enumerate(cases):
        for name, text in (("b", case.base), ("p", case.patched), ("t", case.target)):
            (folder / f"{name}{number}").write_bytes(text)
    done = subprocess.run(
        ["sh", "-c", 'while read -r n; do git merge-file -q "t$n" "b$n" "p$n"; echo "$?"; done'],
        cwd=folder,
        env=sealed(folder),
        input="".join(f"{n}\n" for n in range(len(cases))).encode(),
        capture_output=True,
        check=True,
    )
    codes = [int(word) for word in done.stdout.split()]
    return [
        None if code else (folder / f"t{number}").read_bytes() for number, code in enumerate(codes)
    ]


def _ours(
    case: Case,
    patch: Patch,
    runs: tuple[Hunk, ...],
    git: bytes | None,
    git_runs: tuple[Hunk, ...],
) -> tuple[bytes | None, str]:
    """What rebase makes of a case, and in what way; or why it refuses."""
    if git is None:
        merged = resolve(case.base, case.patched, case.target, case.place)
        if merged is None:
            return None, "git conflicts"
        if not _compiles(case.place, merged.text):
            return None, "git conflicts, the syntax tree's merge does not compile"
        return merged.text, STRUCTURE
    old = Sides({case.place: case.base}.get, {case.place: case.patched}.get, lambda _a, _b: runs)
    new = Sides({case.place: case.target}.get, {case.place: git}.get, lambda _a, _b: git_runs)
    judged: Judged = judge(patch, old, new, {})
    if judged.outcome is Outcome.CONFLICTED:
        return None, judged.problem.replace(case.place, "the file")
    if not _compiles(case.place, git):
        return None, "does not compile"
    is_placed = all(where.line is not None for where in judged.hunks)
    return git, f"{judged.outcome.value}{'' if is_placed else ', by scopes'}"


def _compiles(path: str, text: bytes) -> bool:
    return all(one.exempt for one in check_compiles(DiskTree(Path()), [(path, b"", text)]))
