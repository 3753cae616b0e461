"""Options that several commands share, and what they open."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from vllm_series.environments import find_tree
from vllm_series.errors import SeriesError, UsageError
from vllm_series.series import folders, names, series_folder
from vllm_series.trees import DiskTree

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_F = TypeVar("_F", bound=Callable[..., Any])

_TARGET = click.option(
    "--target",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A folder with vllm/ in it: a site-packages, an unpacked wheel, a checkout.",
)
_PYTHON = click.option(
    "--python",
    metavar="EXE",
    help="Work on the environment of this interpreter; with --target, compile results with it.",
)
_SERIES_DIR = click.option(
    "--series-dir",
    metavar="DIR",
    envvar="VLLM_SERIES_DIR",
    show_envvar=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="The folder of the series; default: the nearest series/ here or above.",
)


def tree_options(function: _F) -> _F:
    """`--target` and `--python`."""
    return _TARGET(_PYTHON(function))


def series_options(function: _F) -> _F:
    """`--series-dir` and `--series`."""
    return _SERIES_DIR(
        click.option(
            "--series",
            "series_name",
            metavar="NAME",
            shell_complete=complete_series,
            help="Work with this series, such as vllm-0.33; default: what fits the tree's version.",
        )(function)
    )


def series_dir_option(function: _F) -> _F:
    """`--series-dir` alone, for a command that looks at every series."""
    return _SERIES_DIR(function)


def json_option(function: _F) -> _F:
    """`--json`, as `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON (schema 1).")(function)


def loudness_options(function: _F) -> _F:
    """`-q` and `-v`, as the flags `quiet` and `verbose`."""
    quiet = click.option("-q", "--quiet", is_flag=True, help="Say nothing but errors.")
    verbose = click.option("-v", "--verbose", is_flag=True, help="Say more, such as every hunk.")
    return quiet(verbose(function))


def dry_run_options(function: _F) -> _F:
    """`--dry-run` and `--diff`."""
    dry_run = click.option("-n", "--dry-run", is_flag=True, help="Say what would be done; do not.")
    diff = click.option(
        "--diff", "show_diff", is_flag=True, help="Show what would change, as a diff; do not do it."
    )
    return dry_run(diff(function))


def refuse_two_forms(as_json: bool, show_diff: bool) -> None:
    """Output is JSON or a diff; raises UsageError where both are asked for."""
    if as_json and show_diff:
        raise UsageError("--json and --diff are two forms of output. Give one of them.")


def opened(target: Path | None, python: str | None) -> DiskTree:
    """The tree that the options mean; what an interrupted command left there is settled first,
    whatever the command is."""
    from vllm_series.installation.transaction import recover

    tree = find_tree(target, python)
    if recover(tree, waiting):
        click.echo(
            f"vllm-series: an interrupted change of {tree.root} was brought to its end or undone.",
            err=True,
        )
    return tree


def looked_at(target: Path | None, python: str | None) -> DiskTree:
    """The same for a command that only looks: no other process changes the tree until it ends."""
    from vllm_series.installation.lock import shared
    from vllm_series.installation.transaction import is_interrupted

    tree = opened(target, python)
    release = shared(tree, waiting)
    if is_interrupted(tree):
        # By a process that was cut off between the two lines above.
        release()
        tree = opened(target, python)
        release = shared(tree, waiting)
    click.get_current_context().call_on_close(release)
    return tree


def waiting(message: str) -> None:
    """Said once when another process holds the tree."""
    click.echo(f"vllm-series: {message}", err=True)


def complete_series(_context: click.Context, _option: click.Parameter, word: str) -> list[str]:
    """The names of the series at hand that start with `word`."""
    return [path.name for path in _series_at_hand() if path.name.startswith(word)]


def complete_releases(_context: click.Context, _option: click.Parameter, word: str) -> list[str]:
    """Words for the last part of `--releases`: lines, releases, and `all` where it is the first.

    Nothing is fetched; what is known is which series there are, and `releases.json` beside them.
    """
    from vllm_series.known import wheels

    there = _series_at_hand()
    typed = re.split(r",|\.\.", word)[-1]
    start = word.removesuffix(typed)
    names = [] if start else ["all"]
    try:
        listed = [wheel.release for wheel in wheels(there[0].parent)] if there else []
    except SeriesError:
        listed = []
    names += [folder.name.removeprefix("vllm-") for folder in there] + listed
    return [start + name for name in dict.fromkeys(names) if name.startswith(typed)]


def complete_release(_context: click.Context, _option: click.Parameter, word: str) -> list[str]:
    """Single releases, as `releases.json` beside the series has them."""
    from vllm_series.known import wheels

    there = _series_at_hand()
    try:
        listed = [wheel.release for wheel in wheels(there[0].parent)] if there else []
    except SeriesError:
        return []
    return [name for name in dict.fromkeys(listed) if name.startswith(word)]


def complete_patch(
    _context: click.Context, _option: click.Parameter, word: str
) -> list[CompletionItem]:
    """Names of patches in the series at hand; where none begins so, the shell's own file names."""
    from click.shell_completion import CompletionItem

    found: dict[str, None] = {}
    for folder in _series_at_hand():
        try:
            found |= dict.fromkeys(name for name in names(folder) if name.startswith(word))
        except (SeriesError, OSError):
            continue
    return [CompletionItem(name) for name in found] or [CompletionItem(word, type="file")]


def _series_at_hand() -> list[Path]:
    try:
        given = os.environ.get("VLLM_SERIES_DIR")
        return folders(series_folder(Path(given) if given else None))
    except SeriesError:
        return []
