"""`vllm-series export`: patches as others take them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vllm_series.commands.options import json_option, loudness_options, series_options
from vllm_series.commands.progress import Progress
from vllm_series.commands.upstream_options import upstream_options
from vllm_series.errors import SeriesError, UsageError
from vllm_series.series import Entry, Series, called, every_folder, load
from vllm_series.upstream.open import UpstreamOptions

if TYPE_CHECKING:
    from vllm_series.patch import Patch


@click.command("export")
@click.argument("names", metavar="[PATCH]...", nargs=-1)
@click.option(
    "--quilt",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Make a quilt folder: the patches and their series file.",
)
@click.option("--mbox", metavar="FILE", help="Write a mailbox for git am; `-` is stdout.")
@click.option(
    "--git",
    "checkout",
    metavar="REPO[@BRANCH]",
    help="Make a branch of a checkout of vLLM, a commit a patch; default: named after the series.",
)
@click.option(
    "--onto",
    metavar="COMMIT",
    help="With --git: start from this commit; default: the tag of the base release.",
)
@click.option(
    "--diff", "diff", metavar="FILE", help="Write all changes as one diff; `-` is stdout."
)
@series_options
@upstream_options
@json_option
@loudness_options
def command(
    names: tuple[str, ...],
    quilt: Path | None,
    mbox: str | None,
    checkout: str | None,
    onto: str | None,
    diff: str | None,
    series_dir: Path | None,
    series_name: str | None,
    upstream: UpstreamOptions,
    as_json: bool,
    quiet: bool,
    verbose: bool,
) -> int:
    """Write patches of a series for other tools: all of them, or the PATCHes that are named.

    A quilt folder and an mbox hold the patches to the byte, and import takes them back as they
    were. A branch has a commit for each, made without touching the work tree. A single diff is
    what they make of the release's stock files together; git apply takes it.

    \b
      vllm-series export --series vllm-0.33 --quilt patches
      vllm-series export --series vllm-0.33 --mbox series.mbox
      vllm-series export --series vllm-0.33 --git ~/src/vllm@my-branch
      vllm-series export --series vllm-0.33 --diff - | git apply
    """
    from vllm_series.diffs.parse import parse
    from vllm_series.exporting.branch import write_branch
    from vllm_series.exporting.mbox import as_mbox
    from vllm_series.exporting.quilt import write_quilt
    from vllm_series.workspace.chain import read_series

    forms = {"quilt": quilt, "mbox": mbox, "git": checkout, "diff": diff}
    given = [name for name, value in forms.items() if value is not None]
    if len(given) != 1:
        raise UsageError("say where to: one of --quilt, --mbox, --git and --diff.")
    if onto is not None and checkout is None:
        raise UsageError("--onto is for --git. Leave it out.")
    if as_json and "-" in (mbox, diff):
        raise UsageError("stdout takes the patches or the JSON. Name a file, or leave out --json.")
    series = _series(series_dir, series_name)
    entries = _chosen(series, names)
    patches = [parse(entry.text, entry.name) for entry in entries]
    value: dict[str, object] = {
        "command": "export",
        "form": given[0],
        "series": series.folder.name,
        "patches": [patch.name for patch in patches],
    }
    with Progress(quiet or as_json) as progress:
        if quilt is not None:
            write_quilt(entries, quilt)
            value["path"] = told = str(quilt)
        elif mbox is not None:
            told = _put(mbox, as_mbox(patches))
            value["path"] = told
        elif checkout is not None:
            folder, name = _place(checkout, series)
            _, base = read_series(entries, series.folder.name)
            made = write_branch(patches, folder, name, onto or f"v{base}")
            value |= {"path": str(folder), "branch": name, "base": made.base, "tip": made.tip}
            told = f"{name} {made.tip}"
        else:
            assert diff is not None
            _, base = read_series(entries, series.folder.name)
            told = _put(diff, _combined(patches, base, upstream, progress))
            value["path"] = told
    if as_json:
        from vllm_series.report import as_json as rendered

        click.echo(rendered(value))
    elif told != "-" and not quiet:
        click.echo(told)
    return 0


def _series(series_dir: Path | None, name: str | None) -> Series:
    """The series that is meant; where there is just one, that needs no name."""
    from vllm_series.series import chosen_series

    if name is not None:
        return chosen_series(series_dir, name, None)
    folders = every_folder(series_dir)
    if len(folders) > 1:
        known = ", ".join(folder.name for folder in folders)
        raise UsageError(f"there are several series. Name one with --series: {known}.")
    return load(folders[0])


def _chosen(series: Series, names: Sequence[str]) -> list[Entry]:
    """The entries that are named, in the order of the series; all of them where none is."""
    if not series.entries:
        raise SeriesError(f"{series.folder} lists no patch, so there is nothing to export.")
    if not names:
        return list(series.entries)
    found = [e for e in series.entries if set(called(e.name)) & set(names)]
    known = {each for e in found for each in called(e.name)}
    strange = [name for name in names if name not in known]
    if strange:
        listed = ", ".join(entry.name for entry in series.entries)
        raise SeriesError(f"no patch {strange[0]} in {series.folder.name}: it has {listed}.")
    return found


def _combined(
    patches: Sequence[Patch], base: str, upstream: UpstreamOptions, progress: Progress
) -> bytes:
    from vllm_series.exporting.combined import combined
    from vllm_series.insertion import fetch
    from vllm_series.upstream.open import open_catalog

    catalog = open_catalog(upstream)
    fetch(catalog, base, patches, progress.say)
    return combined(patches, catalog.tree(base))


def _place(text: str, series: Series) -> tuple[Path, str]:
    """The repository, and the name of the branch."""
    whole = Path(text).expanduser()
    folder, mark, name = text.rpartition("@")
    if whole.is_dir() or not mark:
        return whole, series.folder.name
    return Path(folder).expanduser(), name


def _put(place: str, data: bytes) -> str:
    if place == "-":
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        return place
    from vllm_series.workspace.state import put

    put(Path(place), data)
    return place
