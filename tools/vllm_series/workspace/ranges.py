"""Two series as two rows of commits in a repository of our own, for git to compare.

Each row stands on the stock files of its base, a commit a patch, as a rebase has it. Nothing is
merged or checked out; the repository is gone at the end.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from vllm_series.errors import SeriesError
from vllm_series.range_diff import compared
from vllm_series.workspace import chain
from vllm_series.workspace.repository import Commit, Scratch

if TYPE_CHECKING:
    from vllm_series.patch import Patch
    from vllm_series.series import Series
    from vllm_series.upstream.catalog import Catalog


@dataclass(frozen=True, slots=True)
class Side:
    """A series, its patches in order, and the release that they were made on."""

    series: Series
    patches: tuple[Patch, ...]
    base: str


def side(series: Series) -> Side:
    """A series, read. Raises SeriesError where no base is known."""
    if not series.entries:
        raise SeriesError(f"{series.folder} lists no patch: nothing to compare.")
    patches, base = chain.read_series(series.entries, str(series.folder))
    return Side(series, tuple(patches), base)


def range_diff(
    sides: tuple[Side, Side],
    catalog: Catalog,
    *,
    full: bool = False,
    creation_factor: int | None = None,
    show: Literal["patch", "stat", "no-patch"] = "patch",
    colour: bool = False,
    say: chain.Say = lambda _step: None,
) -> bytes:
    """What git range-diff prints of two series; `full` compares all trailers.

    Raises RefusedError where a patch does not fit the release that it was made on.
    """
    wanted: dict[str, set[str]] = {}
    for one in sides:
        wanted.setdefault(one.base, set()).update(chain.touched(one.patches))
    say(f"reading vllm {' and '.join(wanted)}")
    for error in catalog.prefetch(wanted, say).values():
        raise error
    commits: list[Commit] = []
    rows = [_row(one, catalog, commits, full) for one in sides]
    say("comparing")
    with (
        tempfile.TemporaryDirectory(prefix="vllm-series-range-diff-") as folder,
        Scratch(Path(folder)) as scratch,
    ):
        made = scratch.make(commits)
        left, right = ((made[first], made[last]) for first, last in rows)
        return scratch.range_diff(
            left, right, creation_factor=creation_factor, show=show, colour=colour
        )


def _row(one: Side, catalog: Catalog, commits: list[Commit], full: bool) -> tuple[int, int]:
    """Add the commits of one series; the places of its base and its last one."""
    tree = catalog.tree(one.base)
    paths: Sequence[str] = chain.touched(one.patches)
    files = {path: file for path in paths if (file := chain.stock_file(tree, path))}
    # A list of commits has one root; the rows are told apart by their ranges.
    commits.append(chain.stock_of(files, 0 if commits else None, f"vllm {one.base}"))
    first = len(commits) - 1
    for plan in chain.plan_on_base(one.patches, tree):
        chain.take(files, plan)
        commits.append(chain.commit_of(files, len(commits) - 1, compared(plan.patch, full)))
    return first, len(commits) - 1
