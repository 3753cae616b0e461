"""`vllm-series verify`: the tree against its release and its applied patches."""

from __future__ import annotations

from pathlib import Path

import click

from vllm_series.commands.options import (
    json_option,
    looked_at,
    loudness_options,
    series_dir_option,
    tree_options,
)
from vllm_series.commands.origin import origin_of
from vllm_series.installation.stack import read_stack


@click.command("verify")
@tree_options
@series_dir_option
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Hash every file of the installation, not only those that patches touch.",
)
@json_option
@loudness_options
def command(
    target: Path | None,
    python: str | None,
    series_dir: Path | None,
    everything: bool,
    as_json: bool,
    quiet: bool,
    verbose: bool,
) -> int:
    """Hold a tree against its release and its applied patches, by hash, and name every difference.

    The files that patches touch are always read; --all reads every file that the installation
    lists. Exit code 1 when anything differs.
    """
    from vllm_series.installation.verify import verify
    from vllm_series.release import fingerprint

    tree = looked_at(target, python)
    stack = read_stack(tree)
    differences = verify(tree, everything)
    print_of = fingerprint(tree)
    made_from = origin_of(tree, series_dir, print_of)
    if as_json:
        from vllm_series.report import as_json as rendered

        click.echo(
            rendered(
                {
                    "command": "verify",
                    "tree": str(tree.root),
                    "version": tree.version,
                    "fingerprint": print_of,
                    "origin": made_from,
                    "patches": [patch.name for patch in stack.patches],
                    "differences": [
                        {"path": item.path, "kind": item.kind, "text": str(item)}
                        for item in differences
                    ],
                }
            )
        )
    else:
        for item in differences:
            click.echo(str(item))
        if not quiet and not differences:
            what = "every file" if everything else "every patched file and its record"
            applied = ", ".join(patch.name for patch in stack.patches) or "no patch"
            click.echo(tree.label)
            click.echo(f"  {what} is as recorded, with {applied} applied")
            if made_from:
                click.echo(f"  the release: {made_from}")
            click.echo(f"  the release: sha256 {print_of[: None if verbose else 16]}")
    return 1 if differences else 0
