"""The command as a process, and the series and trees that its tests give it.

Most tests are about what the tool does with a patch, and have one: `SERIES` are the project's
series with `dynwidth` alone, a real patch on all lines. What a second one on top brings is in
`test_stacked.py`, on the series as they are.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
PROJECT_SERIES = PROJECT / "series"
ALONE = "dynwidth.patch"


def _alone() -> Path:
    """A copy of the project's series that have one patch each."""
    root = Path(tempfile.mkdtemp(prefix="vllm-series-tests-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    shutil.copytree(PROJECT_SERIES, root / "series")
    for folder in (root / "series").glob("vllm-*"):
        for patch in folder.glob("*.patch"):
            if patch.name != ALONE:
                patch.unlink()
        (folder / "series").write_text(f"{ALONE}\n")
    return root / "series"


SERIES = _alone()
SCHEDULER = "vllm/v1/core/sched/scheduler.py"
ADDED = "vllm/v1/core/sched/dynamic_width.py"


@dataclass
class Ran:
    """One run of the command."""

    code: int
    out: str
    err: str

    def json(self) -> dict[str, object]:
        value: dict[str, object] = json.loads(self.out)
        assert value["schema"] == 1
        return value


def run(
    *words: str | Path,
    cwd: Path | None = None,
    stdin: bytes = b"",
    inside: tuple[str, ...] = (),
    **env: str,
) -> Ran:
    """Run the command; `inside` is the start of a command line that runs it in turn."""
    done = subprocess.run(
        [*inside, sys.executable, "-m", "vllm_series", *map(str, words)],
        cwd=cwd or SERIES.parent,
        input=stdin,
        capture_output=True,
        check=False,
        env={**os.environ, **env},
    )
    return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())


def everything(tree: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(tree)): path.read_bytes() for path in tree.rglob("*") if path.is_file()
    }


def copied(source: Path, site: Path) -> Path:
    """What the tool touches of an unpacked release: the scheduler's folder and the dist-info."""
    shutil.copytree(source / "vllm/v1/core/sched", site / "vllm/v1/core/sched")
    for name in ("vllm/__init__.py", "vllm/_version.py"):
        shutil.copy2(source / name, site / name)
    info = next(source.glob("*.dist-info"))
    shutil.copytree(info, site / info.name)
    return site


def interrupted(site: Path) -> Path:
    """A journal as a command leaves it that is killed while it prepares."""
    place = site / "vllm-0.33.0.dist-info" / "vllm-series.prepare"
    keys = ("makes", "creates", "puts", "fresh", "removes", "clears", "discards")
    place.write_text(json.dumps({"schema": 1, **{key: [] for key in keys}}))
    return place
