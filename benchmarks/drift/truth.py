"""Where a sample belongs, by a whole-file alignment that none of the tools has made.

`git diff --histogram` between the two stock files tells which lines are kept and where they are.
Two neighbours that are kept and adjacent say where a line between them belongs. The alignments by
git's other algorithms, patience and myers, tell how sure that is: where the three do not agree, the
truth is `disputed`, and the report gives its numbers with and without those samples.
"""

from __future__ import annotations

import os
import re
import subprocess
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from drift.samples import Kind, Sample, spliced, split

ALGORITHMS = ("histogram", "patience", "myers")
"""The first one is the truth; the others may dispute it."""

_HUNK = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


class Standing(Enum):
    """What the alignment knows of a sample's place."""

    KNOWN = "known"
    """The edited line (of a change or a deletion) and both its neighbours are kept and adjacent."""
    PARTLY = "partly"
    """Not all of them are: only the scope can be judged."""
    LOST = "lost"
    """For an insertion neither neighbour is kept, else the edited line is not: no place is right.
    """


@dataclass(frozen=True, slots=True)
class Truth:
    """`line` is the place in the newer file, counted as in `Sample`, and `right` the file with the
    edit there; both None where the place is not known."""

    standing: Standing
    line: int | None
    right: bytes | None
    disputed: bool


class Alignment:
    """Which lines of an older text are kept in a newer one; lines are 1-based.

    The start (0) and the end (one past the last line) are kept in every alignment.
    """

    def __init__(
        self, hunks: Sequence[tuple[int, int, int, int]], old_lines: int, new_lines: int
    ) -> None:
        """`hunks` are (old start, old count, new start, new count) as `git diff -U0` has them."""
        self._old_lines = old_lines
        self._new_lines = new_lines
        self._first: list[int] = []
        self._hunks = []
        for old, old_count, new, new_count in hunks:
            # A side without lines is named by the line in front of it.
            first = old if old_count else old + 1
            after = (new if new_count else new + 1) + new_count
            self._first.append(first)
            self._hunks.append((first + old_count, after))

    def kept(self, line: int) -> int | None:
        """The line's number in the newer text, None where it is not kept."""
        if line == self._old_lines + 1:
            return self._new_lines + 1
        at = bisect_right(self._first, line) - 1
        if at < 0:
            return line
        old_after, new_after = self._hunks[at]
        return None if line < old_after else line - old_after + new_after

    def place(self, kind: Kind, line: int) -> tuple[Standing, int | None]:
        """What is known of a sample's place, and its line in the newer text."""
        if kind is Kind.INSERT:
            above, below = self.kept(line), self.kept(line + 1)
            if above is None and below is None:
                return Standing.LOST, None
            if above is not None and below == above + 1:
                return Standing.KNOWN, above
            return Standing.PARTLY, None
        itself = self.kept(line)
        if itself is None:
            return Standing.LOST, None
        if self.kept(line - 1) == itself - 1 and self.kept(line + 1) == itself + 1:
            return Standing.KNOWN, itself
        return Standing.PARTLY, None


Alignments = tuple[Alignment, ...]
"""One for each of `ALGORITHMS`."""


def truth(sample: Sample, alignments: Alignments) -> Truth:
    """Where the sample belongs by the first alignment, and whether the others say the same."""
    said = [alignment.place(sample.kind, sample.line) for alignment in alignments]
    standing, line = said[0]
    right = None
    if line is not None:
        right = spliced(sample.target, line, sample.kind, sample.new_text)
    return Truth(standing, line, right, disputed=len(set(said)) > 1)


def align(
    old: Mapping[str, bytes], new: Mapping[str, bytes], folder: Path
) -> dict[str, Alignments]:
    """The alignments of every path of `old`, all of them in one call of git an algorithm.

    `folder` is a scratch folder; both mappings have the same paths.
    """
    paths = sorted(old)
    for name, texts in (("old", old), ("new", new)):
        (folder / name).mkdir(parents=True)
        for number, path in enumerate(paths):
            (folder / name / f"{number}.py").write_bytes(texts[path])
    by_algorithm = [_hunks(folder, algorithm) for algorithm in ALGORITHMS]
    result = {}
    for number, path in enumerate(paths):
        sizes = len(split(old[path])), len(split(new[path]))
        result[path] = tuple(
            Alignment(hunks.get(b"%d.py" % number, []), *sizes) for hunks in by_algorithm
        )
    return result


def _hunks(folder: Path, algorithm: str) -> dict[bytes, list[tuple[int, int, int, int]]]:
    """The hunks of each file between `folder/old` and `folder/new`."""
    diff = git(
        folder, "diff", "--no-index", "-U0", "--no-renames", f"--diff-algorithm={algorithm}",
        "old", "new",
    )  # fmt: skip
    files: dict[bytes, list[tuple[int, int, int, int]]] = {}
    here: list[tuple[int, int, int, int]] = []
    for line in diff.split(b"\n"):
        if line.startswith(b"diff --git "):
            here = files.setdefault(line.rpartition(b"/")[2], [])
        elif found := _HUNK.match(line):
            old, old_count, new, new_count = found.groups()
            here.append((int(old), int(old_count or 1), int(new), int(new_count or 1)))
    return files


def sealed(folder: Path) -> dict[str, str]:
    """An environment in which git and patch see no configuration of the user's, and no repository
    around `folder`."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    return {
        **kept,
        "HOME": str(folder),
        "XDG_CONFIG_HOME": str(folder),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CEILING_DIRECTORIES": str(folder.resolve().parent),
        "LC_ALL": "C",
    }


def git(folder: Path, *words: str) -> bytes:
    """What git prints; exit code 1 of a diff only says that there are differences."""
    done = subprocess.run(
        ["git", *words], cwd=folder, env=sealed(folder), capture_output=True, check=False
    )
    if done.returncode not in (0, 1):
        raise RuntimeError(f"git {words[0]}: {done.stderr.decode('utf-8', 'replace')}")
    return done.stdout
