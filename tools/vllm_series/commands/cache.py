"""`vllm-series cache`: what is kept of upstream, and how to be rid of it."""

from __future__ import annotations

import click

from vllm_series.commands.options import json_option
from vllm_series.errors import UsageError
from vllm_series.smoke.environment import FOLDER as ENVIRONMENTS
from vllm_series.upstream.store import KINDS, STOCK

REBASE = "rebase"
_WORDS = {
    "blobs": "files of releases",
    "wheels": "tables of wheels",
    "lists": "lists of releases",
    "answers": "answers of earlier checks",
    REBASE: "repositories of rebases",
    ENVIRONMENTS: "real environments, removed by vllm-series smoke --clean",
    STOCK: "unpacked releases, kept by the tests of this project",
}


@click.command("cache")
@click.option("--dir", "only_place", is_flag=True, help="Print the folder and nothing else.")
@click.option("--clear", is_flag=True, help="Remove every entry, or those of --kind.")
@click.option(
    "--kind",
    "kinds",
    type=click.Choice((*KINDS, REBASE)),
    multiple=True,
    help="Only this kind of entries; may be given several times.",
)
@click.option(
    "--prune",
    is_flag=True,
    help="Remove what was not used for longest until the cache fits its size again.",
)
@click.option("-n", "--dry-run", is_flag=True, help="Say what would be removed; do not.")
@json_option
@click.option("-q", "--quiet", is_flag=True, help="Say nothing but errors.")
def command(
    only_place: bool,
    clear: bool,
    kinds: tuple[str, ...],
    prune: bool,
    dry_run: bool,
    as_json: bool,
    quiet: bool,
) -> int:
    """What is kept of upstream: where, and how much of each kind.

    Everything in it can be fetched or worked out again, but for the repository of a rebase that is
    open, which --clear keeps. VLLM_SERIES_CACHE moves the folder and
    VLLM_SERIES_CACHE_SIZE (1G) bounds it; what was not used for longest goes first.
    """
    if sum((only_place, clear, prune)) > 1:
        raise UsageError("--dir, --clear and --prune are three things to do. Give one of them.")
    if kinds and (prune or only_place):
        raise UsageError("--kind goes with --clear or with a plain look. Leave it out.")
    if dry_run and not (clear or prune):
        raise UsageError("--dry-run removes nothing, and nothing was to be removed.")
    from vllm_series.report import as_json as rendered
    from vllm_series.report import counted, table
    from vllm_series.smoke.environment import usage as kept
    from vllm_series.upstream.store import open_store, stock_usage
    from vllm_series.workspace.state import leftovers
    from vllm_series.workspace.state import usage as rebases

    store = open_store()
    assert store.root is not None
    if only_place and not as_json:
        click.echo(str(store.root))
        return 0
    before = [usage for usage in store.usage() if not kinds or usage.kind in kinds]
    taken = sum(usage.size for usage in before)
    removed = 0
    is_open = 0
    if clear:
        removed = taken if dry_run else sum(store.clear(usage.kind) for usage in before)
        if not kinds or REBASE in kinds:
            left, is_open = leftovers(store.root, remove=not dry_run)
            removed += left
    elif prune:
        removed = max(0, taken - store.limit) if dry_run else store.prune(store.limit)
    after = before
    if (clear or prune) and not dry_run:
        after = [usage for usage in store.usage() if not kinds or usage.kind in kinds]
    stock = stock_usage(store.root)
    rebase = rebases(store.root)
    environments = kept(store.root)
    shown = [
        *after,
        *([rebase] if rebase.entries and (not kinds or REBASE in kinds) else []),
        *([environments] if environments.entries and not kinds else []),
        *([stock] if stock.entries and not kinds else []),
    ]
    if as_json:
        click.echo(
            rendered(
                {
                    "command": "cache",
                    "place": str(store.root),
                    "limit": store.limit,
                    "removed": removed,
                    "dry_run": dry_run,
                    "kinds": [
                        {"kind": usage.kind, "entries": usage.entries, "bytes": usage.size}
                        for usage in shown
                    ],
                }
            )
        )
    elif quiet:
        pass
    elif clear or prune:
        click.echo(f"{'would remove' if dry_run else 'removed'} {size(removed)}: {store.root}")
        if is_open:
            click.echo(
                f"vllm-series: {counted(is_open, 'rebase')} open: kept. Finish or give up each "
                "with vllm-series rebase.",
                err=True,
            )
    else:
        click.echo(str(store.root))
        rows = [
            (usage.kind, counted(usage.entries, "file"), size(usage.size), _WORDS[usage.kind])
            for usage in shown
        ]
        click.echo(table(rows))
        click.echo(f"{size(taken)} of {size(store.limit)}")
    return 0


def size(count: int) -> str:
    """Bytes as people read them, `18.7 MB`."""
    value = float(count)
    for unit in ("bytes", "kB", "MB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} GB"
