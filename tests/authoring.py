"""What the tests of new, edit and refresh share: a tree to edit, a series of three, the cache."""

from __future__ import annotations

import shutil
from pathlib import Path

from commandline import SCHEDULER, Ran, run
from installed import part_of
from vllm_series.trees import DiskTree

ASYNC = "vllm/v1/core/sched/async_scheduler.py"
ENVS = "vllm/envs.py"
WHY = ("-m", "one: what it does", "-m", "Why it does so.")


def site(release: Path, folder: Path) -> DiskTree:
    """A part of an installed release whose RECORD lists just that part."""
    return part_of(release, folder, "vllm/v1/core/sched", "vllm/config")


def edit(root: Path, path: str, old: str, new: str) -> None:
    """Change the first place in a file; the file is replaced, as installers share files."""
    place = root / path
    text = place.read_text()
    assert old in text, (path, old)
    mode = place.stat().st_mode
    place.unlink()
    place.write_text(text.replace(old, new, 1))
    place.chmod(mode)


def call(
    cache: Path,
    series: Path,
    *words: str | Path,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
) -> Ran:
    """Run the command on a series with a cache of wheels of its own."""
    variables = {"VLLM_SERIES_DIR": str(series), "VLLM_SERIES_CACHE": str(cache), **(env or {})}
    return run(*words, cwd=cwd, stdin=b"", inside=(), **variables)


def held(series: Path) -> dict[str, bytes]:
    """All files of the folder of the series, but the store of resolutions."""
    return {
        path.relative_to(series).as_posix(): path.read_bytes()
        for path in sorted(series.rglob("*"))
        if path.is_file()
    }


def lint(cache: Path, series: Path, release: Path) -> str:
    """What lint says of the 0.33 line on its stock files; empty where it is content."""
    told = call(cache, series, "lint", "--series", "vllm-0.33", "--target", release, "-q")
    return told.out + (told.err if told.code else "")


def three(cache: Path, series: Path, release: Path, tmp_path: Path) -> None:
    """Put two patches behind dynwidth: one on the same file, one on another."""
    tree = site(release, tmp_path / "three")
    for name, path, old, new in (
        ("second", SCHEDULER, "def reset_prefix_cache(", "def has_second(self):\n        "
         "return True\n\n    def reset_prefix_cache("),
        ("third", ENVS, "import functools\n", "import functools\nimport sys as _sys\n"),
    ):  # fmt: skip
        edit(tree.root, path, old, new)
        told = call(
            cache,
            series,
            "new",
            name,
            path,
            "--target",
            tree.root,
            "-m",
            f"{name}: x",
            "-m",
            "Why.",
        )
        assert told.code == 0, told.err
    assert lint(cache, series, release) == ""
    shutil.rmtree(tree.root)
