"""This project's own commands as cases, each with a cache folder of its own and a state to start
from: nothing kept, the files of the releases kept, or the answers too."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from check.measure import Case, measured
from check.tools import OURS


@dataclass(frozen=True, slots=True)
class Cache:
    """A cache folder for one kind of runs."""

    folder: Path

    @property
    def environment(self) -> Mapping[str, str]:
        """What tells the command to use it."""
        return {"VLLM_SERIES_CACHE": str(self.folder)}

    def empty(self) -> None:
        """Nothing is kept."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def forget_answers(self) -> None:
        """The files of the releases stay."""
        shutil.rmtree(self.folder / "answers", ignore_errors=True)


def check(
    name: str,
    words: Sequence[str],
    cwd: Path,
    cache: Cache,
    prepare: Callable[[], object] = lambda: None,
) -> Case:
    """`vllm-series check` with these options."""
    return Case(name, [OURS, "check", *words], cwd, prepare, cache.environment)


def first_and_again(words: Sequence[str], cwd: Path, folder: Path) -> list[Case]:
    """A check without kept answers and one with; they have caches of their own, so that the rows
    can take turns. Files of releases are kept for both."""
    first, again = Cache(folder / "first"), Cache(folder / "again")
    return [
        check("vllm-series check, first run", words, cwd, first, first.forget_answers),
        check("vllm-series check, again", words, cwd, again),
    ]


def dry_run(series: Path, tree: Path, cwd: Path) -> Case:
    """`apply --dry-run`, which also compiles every result."""
    words = ["apply", "--quiet", "--dry-run", "--target", str(tree), "--series-dir", str(series)]
    return Case("vllm-series apply --dry-run", [OURS, *words], cwd)


def median_of(case: Case, runs: int) -> float:
    """Seconds."""
    measured([case], runs)
    return case.median
