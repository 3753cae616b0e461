"""`vllm-series show`: one patch, for reading."""

from __future__ import annotations

from pathlib import Path

import click

from vllm_series.commands.options import (
    complete_patch,
    json_option,
    series_options,
)
from vllm_series.series import find


@click.command("show")
@click.argument("name", metavar="PATCH", shell_complete=complete_patch)
@series_options
@json_option
def command(name: str, series_dir: Path | None, series_name: str | None, as_json: bool) -> int:
    """One patch: why, what it touches, and its diff.

    PATCH is a name in a series, with or without its ending, or the path of a file. Without
    --series the newest series that has the patch is shown.
    """
    from vllm_series.diffs.parse import parse
    from vllm_series.report import as_json as rendered
    from vllm_series.report import counted, diff, patch_json

    text, label = _find(name, series_dir, series_name)
    patch = parse(text, label)
    if as_json:
        click.echo(rendered({"command": "show", "patch": patch_json(patch)}))
        return 0
    click.echo(click.style(f"{label}: {patch.subject}", bold=True))
    for key, value in patch.trailers:
        click.echo(f"    {key}: {value}")
    if patch.message:
        click.echo(f"\n{patch.message}\n")
    for change in patch.files:
        path = change.new_raw or change.old_raw
        click.echo(f"{path}  {change.kind.value}, {counted(len(change.hunks), 'hunk')}")
    start = patch.text.find(b"diff --git ")
    body = patch.text[max(start, 0) :].decode("utf-8", "replace")
    click.echo("\n" + diff(body))
    return 0


def _find(name: str, series_dir: Path | None, series_name: str | None) -> tuple[bytes, str]:
    if series_name is None and Path(name).is_file():
        return Path(name).read_bytes(), name
    series, at = find(series_dir, series_name, name)
    entry = series.entries[at]
    return entry.text, f"{series.folder.name}/{entry.name}"
