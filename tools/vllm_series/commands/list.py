"""`vllm-series list`: the patches of a series."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from vllm_series.commands.options import (
    json_option,
    looked_at,
    loudness_options,
    series_options,
    tree_options,
)
from vllm_series.errors import EnvironmentRefusedError
from vllm_series.installation.stack import Stack, read_stack
from vllm_series.series import chosen_folder, every_folder, load


@click.command("list")
@tree_options
@series_options
@json_option
@loudness_options
def command(
    target: Path | None,
    python: str | None,
    series_dir: Path | None,
    series_name: str | None,
    as_json: bool,
    quiet: bool,
    verbose: bool,
) -> int:
    """The patches of a series, in order; `+` marks those that are applied with this very text.

    With a tree, the series that fits it. Without one, and without --series, every series.
    """
    from vllm_series.diffs.parse import parse
    from vllm_series.report import as_json as rendered
    from vllm_series.report import table

    stack, version = Stack(), None
    try:
        tree = looked_at(target, python)
        stack, version = read_stack(tree), tree.version
    except EnvironmentRefusedError:
        if target is not None or python is not None:
            raise
    if series_name is not None or version is not None:
        chosen = [chosen_folder(series_dir, series_name, version)]
    else:
        chosen = every_folder(series_dir)
    applied = {(patch.name, patch.sha256) for patch in stack.patches}
    value: list[dict[str, Any]] = []
    rows = []
    for folder in chosen:
        for entry in load(folder).entries:
            patch = parse(entry.text, entry.name)
            is_applied = (entry.name, entry.sha256) in applied
            value.append(
                {
                    "series": folder.name,
                    "name": entry.name,
                    "subject": patch.subject,
                    "base": patch.base,
                    "applied": is_applied,
                }
            )
            rows.append(
                (
                    "+" if is_applied else " ",
                    folder.name,
                    entry.name,
                    "" if quiet else patch.subject,
                )
            )
            if verbose:
                rows += [
                    ("", "", "", change.new_raw or change.old_raw or "") for change in patch.files
                ]
    click.echo(rendered({"command": "list", "patches": value}) if as_json else table(rows))
    return 0
