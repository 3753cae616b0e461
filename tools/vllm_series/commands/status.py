"""`vllm-series status`: what is applied, and what the series would add."""

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
from vllm_series.commands.origin import origin_of
from vllm_series.errors import SeriesError
from vllm_series.installation.stack import Stack, read_stack
from vllm_series.series import Entry, Series, chosen_series
from vllm_series.trees import DiskTree


@click.command("status")
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
    """What is applied in a tree, and what its series would add.

    A release is its bytes: the stock files that the series touches are held against the blob ids
    of its base, and the whole of the Python files is named by a fingerprint. Exit code 1 when a
    patched file is not as it was written, or the series is not the one that was applied.
    """
    from vllm_series.installation.verify import verify
    from vllm_series.release import fingerprint

    tree = looked_at(target, python)
    stack = read_stack(tree)
    differences = verify(tree)
    series, unserved = _series(series_dir, series_name, tree)
    rows, stale = _rows(stack, series)
    print_of = fingerprint(tree)
    value: dict[str, Any] = {
        "command": "status",
        "tree": str(tree.root),
        "distribution": tree.distribution.name if tree.distribution else None,
        "version": tree.version,
        "python": str(tree.python) if tree.python else None,
        "series": str(series.folder) if series else None,
        "fingerprint": print_of,
        "origin": origin_of(tree, series_dir, print_of),
        "bytes": _bytes(tree, stack, series),
        "patches": [{"name": name, "state": state} for name, state in rows],
        "differences": [str(item) for item in differences],
    }
    if as_json:
        from vllm_series.report import as_json as rendered

        click.echo(rendered(value))
    elif not quiet:
        click.echo(tree.label)
        if value["origin"]:
            click.echo(f"  wheel   {value['origin']}")
        if verbose:
            click.echo(f"  sha256  {print_of}")
            click.echo(f"  python  {tree.python or 'not known'}")
        if series:
            click.echo(f"  series  {series.folder}")
            click.echo(f"  bytes   {value['bytes']}")
        else:
            click.echo(f"  series  {unserved}")
        width = max((len(name) for name, _ in rows), default=0)
        for name, state in rows:
            mark = "+" if state.startswith("applied") else " "
            click.echo(f"  {mark} {name:<{width}}  {state}")
        for item in differences:
            click.echo(f"  ! {item}")
    return 1 if differences or stale else 0


def _series(series_dir: Path | None, name: str | None, tree: DiskTree) -> tuple[Series | None, str]:
    try:
        return chosen_series(series_dir, name, tree.version), ""
    except SeriesError as error:
        if name is not None or series_dir is not None:
            raise
        return None, str(error)


def _rows(stack: Stack, series: Series | None) -> tuple[list[tuple[str, str]], bool]:
    """Every patch with its state, and whether what is applied is not what the series has."""
    entries: list[Entry] = list(series.entries) if series else []
    texts = {entry.name: entry.sha256 for entry in entries}
    rows = []
    stale = False
    for number, patch in enumerate(stack.patches):
        state = "applied"
        expected = texts[entries[number].name] if number < len(entries) else None
        if series and patch.sha256 != expected:
            stale = True
            if patch.name not in texts:
                state = "applied, but not in the series"
            elif texts[patch.name] == patch.sha256:
                state = "applied, but in another order than the series"
            else:
                state = "applied, but the series has another text of it"
        rows.append((patch.name, state))
    rows += [(entry.name, "not applied") for entry in entries[len(stack.patches) :]]
    return rows, stale


def _bytes(tree: DiskTree, stack: Stack, series: Series | None) -> str:
    """Whether the stock files that the series touches are those of its base."""
    if series is None:
        return ""
    from vllm_series.diffs.parse import parse
    from vllm_series.installation.stack import before_path, state_path
    from vllm_series.placement import is_blob

    pristine = {
        file.path: (patch, file) for patch in reversed(stack.patches) for file in patch.files
    }
    same: list[str] = []
    other: list[str] = []
    bases: set[str] = set()
    created: set[str | None] = set()
    """What patches bring is no stock file, also where a later patch changes it."""
    for entry in series.entries:
        patch = parse(entry.text, entry.name)
        bases.add(patch.base or "?")
        for change in patch.files:
            path, after = change.paths(1)
            if path is None:
                created.add(after)
            if path is None or path in {*created, *same, *other} or not change.old_id:
                continue
            text = tree.read(path)
            if path in pristine:
                owner, file = pristine[path]
                place = tree.root / before_path(state_path(tree), owner, path)
                text = place.read_bytes() if file.before else None
            found = text is not None and is_blob(text, change.old_id)
            (same if found else other).append(path)
    base = "vllm " + " and ".join(sorted(bases))
    if not other:
        return f"the files that the series touches are those of {base}"
    return f"not those of {base}: {', '.join(other)}"
