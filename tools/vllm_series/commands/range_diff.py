"""`vllm-series range-diff`: two series side by side, as git shows it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from vllm_series.commands.options import (
    complete_series,
    json_option,
    loudness_options,
    series_dir_option,
)
from vllm_series.commands.progress import Progress
from vllm_series.commands.upstream_options import upstream_options
from vllm_series.errors import UsageError
from vllm_series.series import SERIES_FILE, Series, chosen_series, load

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm_series.range_diff import Pair
    from vllm_series.upstream.open import UpstreamOptions
    from vllm_series.workspace.ranges import Side


@click.command("range-diff")
@click.argument("left", metavar="A", shell_complete=complete_series)
@click.argument("right", metavar="B", shell_complete=complete_series)
@click.option(
    "--creation-factor",
    metavar="PERCENT",
    type=click.IntRange(min=0),
    help="From which size of their difference on two patches are no pair; default: git's, 60.",
)
@click.option(
    "-s", "--no-patch", "is_short", is_flag=True, help="Show the pairs, not how they differ."
)
@click.option("--stat", "is_stat", is_flag=True, help="Show how much differs instead of what.")
@click.option(
    "--full",
    is_flag=True,
    help="Compare all trailers, also Base: and Last-Update:, which always differ.",
)
@click.option(
    "--color/--no-color", "colour", default=None, help="Default: colours on a terminal alone."
)
@series_dir_option
@upstream_options
@json_option
@loudness_options
def command(
    left: str,
    right: str,
    creation_factor: int | None,
    is_short: bool,
    is_stat: bool,
    full: bool,
    colour: bool | None,
    series_dir: Path | None,
    upstream: UpstreamOptions,
    as_json: bool,
    quiet: bool,
    verbose: bool,
) -> int:
    """Set the patches of the series A against those of the series B.

    A and B are names (0.32, vllm-0.33) or folders. The output is that of git range-diff: a line a
    pair, with = for equal patches, ! for those that differ, < and > for those of one side alone,
    and below each ! a diff of the two diffs. Exit code 0 whatever differs.

    \b
      vllm-series range-diff 0.32 0.33
      vllm-series range-diff -s vllm-0.33 ../other/series/vllm-0.33
    """
    from vllm_series.upstream.open import open_catalog
    from vllm_series.workspace.ranges import range_diff, side

    if is_short and is_stat:
        raise UsageError("-s shows nothing of what --stat counts. Give one of them.")
    if as_json and (is_stat or colour):
        raise UsageError(f"--json has no {'sums' if is_stat else 'colours'}. Leave them out.")
    sides = (side(_series(series_dir, left)), side(_series(series_dir, right)))
    show: Literal["patch", "stat", "no-patch"] = "patch"
    if is_stat or is_short:
        show = "stat" if is_stat else "no-patch"
    with Progress(quiet or as_json) as progress:
        told = range_diff(
            sides,
            open_catalog(upstream),
            full=full,
            creation_factor=creation_factor,
            show=show,
            colour=_coloured(colour) and not as_json,
            say=progress.say,
        )
    if as_json:
        from vllm_series.range_diff import pairs
        from vllm_series.report import as_json as rendered

        click.echo(rendered(_value(sides, pairs(told))))
    elif not quiet:
        sys.stdout.flush()
        sys.stdout.buffer.write(told)
        sys.stdout.buffer.flush()
    return 0


def _series(series_dir: Path | None, word: str) -> Series:
    """The series that a word names: a folder that holds one, else one of the series at hand."""
    folder = Path(word).expanduser()
    if (folder / SERIES_FILE).is_file():
        return load(folder)
    if os.sep in word:
        raise UsageError(f"{word} is no series: it holds no file {SERIES_FILE}. Name a folder.")
    return chosen_series(series_dir, word, None)


def _coloured(asked: bool | None) -> bool:
    if asked is not None:
        return asked
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def _value(sides: tuple[Side, Side], found: Sequence[Pair]) -> dict[str, Any]:
    def patch(one: Side, at: int | None) -> dict[str, str] | None:
        if at is None:
            return None
        return {"name": one.patches[at].name, "subject": one.patches[at].subject}

    return {
        "command": "range-diff",
        **{
            name: {"series": str(one.series.folder), "base": one.base}
            for name, one in zip(("left", "right"), sides, strict=True)
        },
        "pairs": [
            {
                "relation": pair.relation.value,
                "left": patch(sides[0], pair.left),
                "right": patch(sides[1], pair.right),
                "diff": pair.diff,
            }
            for pair in found
        ],
    }
