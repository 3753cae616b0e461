"""`vllm-series revert`: take applied patches out again."""

from __future__ import annotations

from pathlib import Path

import click

from vllm_series.commands.options import (
    dry_run_options,
    json_option,
    loudness_options,
    opened,
    refuse_two_forms,
    tree_options,
    waiting,
)
from vllm_series.errors import UsageError
from vllm_series.installation.stack import read_stack
from vllm_series.trees import DiskTree


@click.command("revert")
@tree_options
@click.option(
    "--top",
    metavar="N",
    type=click.IntRange(min=1),
    help="Take out the last N patches; default: all of them.",
)
@dry_run_options
@json_option
@loudness_options
def command(
    target: Path | None,
    python: str | None,
    top: int | None,
    dry_run: bool,
    show_diff: bool,
    as_json: bool,
    quiet: bool,
    verbose: bool,
) -> int:
    """Take patches out again, to the byte: all of them, or the top N.

    It goes by what was kept when they were applied, so the series may have changed since. A file
    that was edited by hand since is never overwritten: the edit is shown and nothing is done.
    """
    refuse_two_forms(as_json, show_diff)
    tree = opened(target, python)
    stack = read_stack(tree)
    if top is not None and top > len(stack.patches):
        raise UsageError(_too_many(top, len(stack.patches), tree.label))
    leaving = stack.patches[-top:] if top else stack.patches
    if not leaving:
        outcome = "nothing to do"
    elif dry_run or show_diff:
        outcome = "dry run"
        if show_diff:
            _show(tree, len(leaving))
            return 0
    else:
        from vllm_series.installation.transaction import revert

        # What was taken out, which another process may have made less since the stack was read.
        leaving = revert(tree, top, waiting=waiting)[::-1]
        outcome = "reverted" if leaving else "nothing to do"
    if as_json:
        from vllm_series.report import as_json as rendered

        click.echo(
            rendered(
                {
                    "command": "revert",
                    "tree": str(tree.root),
                    "version": tree.version,
                    "outcome": outcome,
                    "patches": [patch.name for patch in reversed(leaving)],
                }
            )
        )
    elif not quiet:
        if not leaving:
            click.echo(f"nothing to do: no patch is applied in {tree.label}")
        word = "would be reverted" if dry_run else "reverted"
        for patch in reversed(leaving):
            click.echo(f"{patch.name}  {word}")
            if verbose:
                for file in patch.files:
                    click.echo(f"  {file.path}")
    return 0


def _too_many(top: int, applied: int, label: str) -> str:
    """What to answer to a `--top` above the number of patches that are applied."""
    there, advice = {
        0: ("no patch is", "There is nothing to revert"),
        1: ("1 patch is", "Leave --top out to take it out"),
    }.get(
        applied,
        (f"{applied} patches are", "Give a smaller number, or leave --top out to take out all"),
    )
    return f"--top {top} is too large: {there} applied in {label}. {advice}."


def _show(tree: DiskTree, count: int) -> None:
    from vllm_series.installation.stack import before_path, state_path
    from vllm_series.report import diff, file_diff

    stack = read_stack(tree)
    state = state_path(tree)
    earliest = {}
    for patch in reversed(stack.patches[len(stack.patches) - count :]):
        for file in patch.files:
            earliest[file.path] = (patch, file)
    for path, (patch, file) in earliest.items():
        after = (tree.root / before_path(state, patch, path)).read_bytes() if file.before else None
        text = file_diff(path, tree.read(path), after)
        if text:
            click.echo(diff(text))
