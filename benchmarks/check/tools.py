"""The other tools, each as it would be used for a whole series: the command and its tree."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from collections.abc import Callable, Sequence
from pathlib import Path
from shlex import quote

from check.measure import ENVIRONMENT, Case

OURS = shutil.which("vllm-series") or str(Path(sysconfig.get_path("scripts")) / "vllm-series")
GIT_APPLY = "git apply --check"
WRITE = "patch -p1 -s -i"
PATCH = "patch -p1 -s -f --dry-run -i"


def loop(command: str, series: Path, trees: Sequence[Path]) -> list[str]:
    """A shell that runs `command` for every patch in every tree, and goes on where one fails."""
    patches = quote(str(series)) + "/*.patch"
    inner = f'for patch in {patches}; do {command} "$patch" >/dev/null 2>&1 || :; done'
    folders = " ".join(quote(str(tree)) for tree in trees)
    return ["sh", "-c", f'for tree in {folders}; do cd "$tree" && {inner}; done']


def judging(series: Path, trees: Sequence[Path], cwd: Path) -> list[Case]:
    """The loops that say whether each patch fits and write nothing."""
    return [
        Case("git apply --check, a loop", loop(GIT_APPLY, series, trees), cwd),
        Case("patch --dry-run, a loop", loop(PATCH, series, trees), cwd),
    ]


def writing(series: Path, stock: Path, folder: Path) -> list[Case]:
    """The tools that put the series into a tree; each gets a fresh one before every run."""
    plain, repository, quilted = (folder / name for name in ("plain", "repository", "quilted"))
    shutil.copytree(stock / "vllm", repository / "vllm")
    git = ["git", "-c", "user.name=bench", "-c", "user.email=bench@example.invalid"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "stock"], ["tag", "stock"]):
        _call([*git, *words], repository)
    mails = " ".join(quote(str(mail)) for mail in sorted(series.glob("*.patch")))
    return [
        Case("git apply, a loop", loop("git apply", series, [plain]), folder, _fresh(stock, plain)),
        Case(
            "patch, a loop", loop("patch -p1 -s -i", series, [plain]), folder, _fresh(stock, plain)
        ),
        Case(
            "git am -3",
            ["sh", "-c", f"{' '.join(map(quote, git))} am -3 -q {mails}"],
            repository,
            lambda: _call([*git, "reset", "-q", "--hard", "stock"], repository),
        ),
        Case(
            "quilt push -a",
            ["quilt", "--quiltrc", "-", "push", "-q", "-a"],
            quilted,
            _fresh(stock, quilted),
            {"QUILT_PATCHES": str(series)},
        ),
    ]


def _fresh(stock: Path, tree: Path) -> Callable[[], None]:
    def make() -> None:
        shutil.rmtree(tree, ignore_errors=True)
        shutil.copytree(stock / "vllm", tree / "vllm")

    make()
    return make


def _call(words: Sequence[str], cwd: Path) -> None:
    subprocess.run(words, cwd=cwd, check=True, capture_output=True, env=ENVIRONMENT)
