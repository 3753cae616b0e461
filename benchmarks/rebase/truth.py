"""What is known of a carried file without asking a tool that carries.

`git diff --histogram` between the two stock files says which lines are kept. Where all lines that a
change takes out, and the lines on both sides of it, are kept and stand together, there is one
right place for it; where that holds for each change of a patch, there is one right file. Elsewhere
each line that is added or taken out must be one of the patch's own, in the function or class that
it was in.
"""

from __future__ import annotations

import ast
import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from drift.truth import Alignment, Alignments

from rebase.cases import Case
from vllm_series.patch import Hunk


class Mark(Enum):
    """What a result is worth."""

    RIGHT = "right"
    """The right file is known, and this is it."""
    RENAMED = "right, other name"
    """The same, but a line is in a function or class of another name than it was made in: upstream
    has renamed that, or moved the lines."""
    WRONG = "wrong"
    """The right file is known, and this is another one."""
    SAME_SCOPES = "same scopes"
    """The right file is not known; every line is in the function or class that it was made in."""
    OTHER_SCOPE = "other scope"
    """The right file is not known, and a line is in another function or class."""
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Truth:
    """`right` is the file that must come out, None where that is not known; `disputed` says that
    another alignment knows another one."""

    right: bytes | None
    disputed: bool


def truth(case: Case, runs: Sequence[Hunk], alignments: Alignments) -> Truth:
    """What must come out; `runs` are the patch's changes, without context."""
    found = [_right(case, runs, alignment) for alignment in alignments]
    return Truth(found[0], len({text for text in found if text is not None}) > 1)


def _right(case: Case, runs: Sequence[Hunk], alignment: Alignment) -> bytes | None:
    lines = split(case.target)
    out: list[bytes] = []
    at = 0
    for run in runs:
        first = run.first_line
        above, below = alignment.kept(first - 1), alignment.kept(first + run.old_count)
        if above is None or below is None:
            return None
        start, end = above, below - 1
        if start < at:
            return None
        if lines[start:end] == list(run.post) and run.post != run.pre:
            continue
        if lines[start:end] != list(run.pre):
            return None
        kept = [alignment.kept(line) for line in range(first, first + run.old_count)]
        if kept != list(range(start + 1, end + 1)):
            return None
        out += lines[at:start]
        out += run.post
        at = end
    return b"".join([*out, *lines[at:]])


def mark(case: Case, known: Truth, mine: Sequence[Hunk], made: bytes | None,
         theirs: Sequence[Hunk]) -> Mark:  # fmt: skip
    """Judge a result by its bytes. `mine` are the patch's changes of the base, `theirs` those that
    the tool made of the target."""
    if made is None:
        return Mark.REFUSED
    if known.right is not None and made != known.right:
        return Mark.WRONG
    wanted = _lines(mine, case.base, case.patched)
    got = _lines(theirs, case.target, made)
    if wanted is not None and got is not None and not got - wanted:
        return Mark.SAME_SCOPES if known.right is None else Mark.RIGHT
    return Mark.OTHER_SCOPE if known.right is None else Mark.RENAMED


def _lines(
    runs: Sequence[Hunk], before: bytes, after: bytes
) -> Counter[tuple[str, str, bytes]] | None:
    """Every line that goes and comes, with the scope that it is in; None where a text does not
    parse."""
    old, new = _Scopes.of(before), _Scopes.of(after)
    if old is None or new is None:
        return None
    found: Counter[tuple[str, str, bytes]] = Counter()
    for run in runs:
        for number, line in enumerate(run.pre, run.first_line):
            found["-", old.at(number), line.strip()] += bool(line.strip())
        for number, line in enumerate(run.post, run.reversed().first_line):
            found["+", new.at(number), line.strip()] += bool(line.strip())
    return +found


class _Scopes:
    """The innermost function or class of a line, by its dotted name; own work, so that what is
    judged does not judge itself."""

    def __init__(self, tree: ast.Module) -> None:
        self.found: list[tuple[int, int, str]] = []
        self.walk(tree, "")

    @staticmethod
    def of(text: bytes) -> _Scopes | None:
        try:
            return _Scopes(ast.parse(text))
        except (SyntaxError, ValueError):
            return None

    def walk(self, node: ast.AST, name: str) -> None:
        for child in ast.iter_child_nodes(node):
            own = name
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                own = f"{name}.{child.name}"
                first = min([child.lineno, *(one.lineno for one in child.decorator_list)])
                self.found.append((first, child.end_lineno or first, own))
            self.walk(child, own)

    def at(self, line: int) -> str:
        around = [one for one in self.found if one[0] <= line <= one[1]]
        return max(around, key=lambda one: (one[0], -one[1]))[2] if around else ""


def split(text: bytes) -> list[bytes]:
    """The lines of a file as git counts them."""
    return io.BytesIO(text).readlines()
