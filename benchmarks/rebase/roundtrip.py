"""A series carried line by line to an old release and back to where it started.

What comes out must be what went in, but for what upstream forces. At a conflict a person decides:
here it is the series that people keep for that line, whose file is taken as the answer, and
counted.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vllm_series.diffs.parse import parse
from vllm_series.fileplan import Overlay
from vllm_series.plan import make_plan
from vllm_series.series import folders, line_of, load
from vllm_series.upstream.catalog import Catalog
from vllm_series.workspace.chain import touched
from vllm_series.workspace.state import Home

RELEASES = (
    "0.33.0", "0.32.0", "0.31.0", "0.30.0", "0.29.0", "0.28.0", "0.27.1", "0.26.0",
    "0.25.1", "0.24.0", "0.23.0", "0.22.1", "0.21.0", "0.20.2", "0.19.1", "0.18.1",
    "0.17.1", "0.16.0", "0.15.1", "0.14.1", "0.13.0", "0.12.0", "0.11.2", "0.10.2",
)  # fmt: skip
"""The last of each line, newest first."""


@dataclass(frozen=True, slots=True)
class Step:
    """One line's step: outcomes by patch name, whether a person was needed and had to change a
    file that had no conflict, and whether the patches are those that people keep for the line."""

    source: str
    onto: str
    outcomes: dict[str, str]
    by_hand: bool
    is_kept: bool


@dataclass(frozen=True, slots=True)
class Trip:
    """`back` and `forth` are the steps, `start` and `end` the patches of the first line."""

    back: tuple[Step, ...]
    forth: tuple[Step, ...]
    start: dict[str, bytes]
    end: dict[str, bytes]
    alike: tuple[str, ...]
    """The lines whose patches were the same on both ways."""


def trip(
    series: Path,
    releases: Sequence[str],
    folder: Path,
    catalog: Catalog,
    say: Callable[[str], None],
) -> Trip:
    """Carry `series/vllm-<line of the first release>` along the releases to the last one, and back
    again. `series` holds the folders that people keep."""
    there = Walk(series, folder / "back", catalog, say)
    home = Walk(series, folder / "forth", catalog, say)
    there.start(series / f"vllm-{line_of(releases[0])}")
    back = [there.step(one, two) for one, two in itertools.pairwise(releases)]
    last = f"vllm-{line_of(releases[-1])}"
    home.start(there.series / last)
    way = tuple(reversed(releases))
    forth = [home.step(one, two) for one, two in itertools.pairwise(way)]
    names = [path.name for path in folders(there.series)]
    alike = [one for one in names if _patches(there.series / one) == _patches(home.series / one)]
    first = f"vllm-{line_of(releases[0])}"
    return Trip(
        tuple(back), tuple(forth), _patches(there.series / first), _patches(home.series / first),
        tuple(alike),
    )  # fmt: skip


class Walk:
    """One way through the lines, in a project of its own."""

    def __init__(
        self, kept: Path, project: Path, catalog: Catalog, say: Callable[[str], None]
    ) -> None:
        self.kept, self.catalog, self.say = kept, catalog, say
        self.series = project / "series"
        self.said: dict[str, Any] = {}
        """What the last rebase said, as JSON."""
        self.environ = {**os.environ, "VLLM_SERIES_DIR": str(self.series)}

    def start(self, source: Path) -> None:
        """Begin with one line's folder."""
        self.series.mkdir(parents=True)
        (self.series.parent / "CHANGELOG.md").write_text("# Changelog\n\n## [Unreleased]\n")
        shutil.copytree(source, self.series / source.name)

    def step(self, old: str, new: str) -> Step:
        """Carry from one release's line to another's."""
        source, onto = f"vllm-{line_of(old)}", f"vllm-{line_of(new)}"
        self.say(f"{source} to {onto}")
        outcomes: dict[str, str] = {}
        words: tuple[str, ...] = (new, "--from", source)
        asked = 0
        while self.rebase(*words):
            asked += 1
            if asked > _PATIENCE:
                raise RuntimeError(f"{source} to {onto} does not come to an end")
            self.decide(new, outcomes)
            words = ("--continue",)
        kept = _patches(kept_for(self.kept, new))
        return Step(source, onto, outcomes, bool(asked), _patches(self.series / onto) == kept)

    def rebase(self, *words: str) -> bool:
        """Run the command; True where it waits for a person."""
        done = subprocess.run(
            [
                sys.executable, "-m", "vllm_series", "rebase", *words, "--no-tests",
                "--renew-contracts", "--json",
            ],
            env=self.environ,
            cwd=self.series.parent,
            capture_output=True,
            text=True,
            check=False,
        )  # fmt: skip
        self.said = json.loads(done.stdout or "{}")
        if done.returncode == 0:
            return False
        if done.returncode == 1 and Home(self.series).workdir() is not None:
            return True
        raise RuntimeError(f"rebase {' '.join(words)} failed: {done.stderr}{done.stdout}")

    def decide(self, release: str, outcomes: dict[str, str]) -> None:
        """Answer a conflict with the files as the kept series of that line has them."""
        batch = Home(self.series).opened()
        assert batch.now is not None
        assert batch.now.open is not None, batch.now.problems
        waits = batch.now.open
        outcomes[waits.name] = waits.reason
        files = patched(kept_for(self.kept, release), release, waits.name, self.catalog)
        for path in waits.paths:
            (Path(batch.workdir) / path).write_bytes(files[path])


_PATIENCE = 20


def kept_for(series: Path, release: str) -> Path:
    """The folder that people keep for a release: its own, or that of its line."""
    own = series / f"vllm-{release}"
    return own if own.is_dir() else series / f"vllm-{line_of(release)}"


def patched(folder: Path, release: str, name: str, catalog: Catalog) -> dict[str, bytes]:
    """The files of a release after a series' patches up to one of them."""
    entries = load(folder).entries
    patches = [parse(entry.text, entry.name) for entry in entries]
    paths = touched(patches)
    for error in catalog.prefetch({release: paths}, lambda _said: None).values():
        raise error
    tree = catalog.tree(release)
    overlay = Overlay(tree.read, tree.mode)
    found: dict[str, bytes] = {}
    for plan in make_plan(patches, tree.read, tree.mode).patches:
        assert plan.step is not None, f"{folder.name}: {plan.patch.name} does not fit {release}"
        overlay.take(plan.step)
        found |= {file.path: file.after or b"" for file in plan.step.files}
        if plan.patch.name == name:
            break
    return found


def _patches(folder: Path) -> dict[str, bytes]:
    return {entry.name: entry.text for entry in load(folder).entries}
