"""The checks of `vllm-series doctor`: each looks at one thing that has gone wrong for someone.

Nothing is written, not even a recovery; a check that cannot look says so instead of passing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from vllm_series import __version__
from vllm_series.environments import find_tree
from vllm_series.errors import VllmSeriesError
from vllm_series.installation.stack import Stack, read_stack
from vllm_series.installation.transaction import is_interrupted
from vllm_series.series import Series, chosen_series
from vllm_series.trees import PACKAGE, DiskTree


class Outcome(Enum):
    """`NOTE` is worth knowing and stops nothing."""

    OK = "ok"
    NOTE = "note"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report."""

    name: str
    outcome: Outcome
    text: str


def examine(
    target: Path | None, python: str | None, series_dir: Path | None, series_name: str | None
) -> list[Check]:
    """Every check that can be made; those that need a tree are left out where there is none."""
    checks = [
        Check("tool", Outcome.OK, f"vllm-series {__version__} on Python {sys.version.split()[0]}")
    ]
    try:
        tree = find_tree(target, python)
    except VllmSeriesError as error:
        return [*checks, Check("vllm", Outcome.FAIL, str(error))]
    checks.append(Check("vllm", Outcome.OK, tree.label))
    checks += _interpreter(tree)
    checks += _journal(tree)
    checks += _writable(tree)
    stack = Stack()
    try:
        stack = read_stack(tree)
        names = ", ".join(patch.name for patch in stack.patches) or "no patch is applied"
        checks.append(Check("stack", Outcome.OK, names))
    except VllmSeriesError as error:
        checks.append(Check("stack", Outcome.FAIL, str(error)))
    checks += _differences(tree)
    checks += _series(tree, stack, series_dir, series_name)
    checks += _bytecode()
    return checks


def _interpreter(tree: DiskTree) -> Iterator[Check]:
    if tree.python is None:
        yield Check(
            "python",
            Outcome.NOTE,
            "whose environment this is cannot be seen; results are compiled with the Python that "
            "runs vllm-series. Name the interpreter with --python",
        )
    else:
        yield Check("python", Outcome.OK, str(tree.python))


def _journal(tree: DiskTree) -> Iterator[Check]:
    if is_interrupted(tree):
        yield Check(
            "journal",
            Outcome.FAIL,
            "a change was cut off; vllm-series status brings it to its end or undoes it",
        )
    else:
        yield Check("journal", Outcome.OK, "no change was cut off")


def _writable(tree: DiskTree) -> Iterator[Check]:
    places = [tree.root / PACKAGE]
    if tree.distribution:
        places.append(tree.distribution.dist_info)
    closed = [place for place in places if not os.access(place, os.W_OK)]
    read_only = [place for place in places if os.statvfs(place).f_flag & os.ST_RDONLY]
    if read_only or closed:
        what = (read_only or closed)[0]
        reason = "is on a read-only file system" if read_only else "is not writable for this user"
        yield Check("writable", Outcome.FAIL, f"{what} {reason}: apply and revert cannot work here")
    else:
        yield Check("writable", Outcome.OK, "apply and revert can write")


def _differences(tree: DiskTree) -> Iterator[Check]:
    from vllm_series.installation.verify import verify

    try:
        found = verify(tree)
    except VllmSeriesError as error:
        yield Check("files", Outcome.FAIL, str(error))
        return
    for difference in found:
        yield Check("files", Outcome.FAIL, str(difference))
    if not found:
        yield Check("files", Outcome.OK, "every patched file and its record is as it was written")


def _series(
    tree: DiskTree, stack: Stack, series_dir: Path | None, name: str | None
) -> Iterator[Check]:
    from vllm_series.diffs.parse import parse

    try:
        series: Series = chosen_series(series_dir, name, tree.version)
        patches = [parse(entry.text, entry.name) for entry in series.entries]
    except VllmSeriesError as error:
        # What is applied needs no series; a finished container may have none.
        was_named = series_dir is not None or name is not None
        yield Check("series", Outcome.FAIL if was_named else Outcome.NOTE, str(error))
        return
    count = len(series.entries)
    patches_word = "1 patch" if count == 1 else f"{count} patches"
    yield Check("series", Outcome.OK, f"{series.folder}, {patches_word}")
    applied = {patch.name for patch in stack.patches}
    for patch in patches:
        for key, wanted in patch.switches().items() if patch.name in applied else ():
            if os.environ.get(key) != wanted:
                told = f"{patch.name} is inert until {key}={wanted} is set"
                yield Check("activate", Outcome.NOTE, told)


def _bytecode() -> Iterator[Check]:
    prefix = os.environ.get("PYTHONPYCACHEPREFIX")
    if prefix:
        yield Check(
            "bytecode",
            Outcome.NOTE,
            f"PYTHONPYCACHEPREFIX={prefix}: bytecode there is outdone by newer time stamps alone",
        )
