"""`vllm-series new`: a patch from what was edited."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vllm_series.commands.message import Said, message_options
from vllm_series.commands.options import (
    json_option,
    looked_at,
    loudness_options,
    series_options,
    tree_options,
    waiting,
)
from vllm_series.commands.upstream_options import upstream_options
from vllm_series.errors import RefusedError, UsageError
from vllm_series.series import folder_to_fill, public_release
from vllm_series.upstream.open import UpstreamOptions

if TYPE_CHECKING:
    from vllm_series.compose import PatchMeta
    from vllm_series.upstream.catalog import Catalog
    from vllm_series.workspace.edited import Edited


@click.command("new")
@click.argument("name", metavar="NAME")
@click.argument("paths", metavar="[PATH]...", nargs=-1)
@tree_options
@click.option(
    "--git",
    "checkout",
    metavar="REPO A..B",
    nargs=2,
    help="Take what commits of a checkout of vLLM change: a range, or a single commit.",
)
@click.option(
    "--base",
    metavar="RELEASE",
    help="The release that was edited; default: the version of the tree, or the tag of a commit.",
)
@click.option("--after", metavar="PATCH", help="Put it behind this patch; default: at the end.")
@series_options
@message_options
@click.option("-n", "--dry-run", is_flag=True, help="Print the patch; write nothing.")
@upstream_options
@json_option
@loudness_options
def command(
    name: str,
    paths: tuple[str, ...],
    target: Path | None,
    python: str | None,
    checkout: tuple[str, str] | None,
    base: str | None,
    after: str | None,
    series_dir: Path | None,
    series_name: str | None,
    paragraphs: tuple[str, ...],
    message_file: Path | None,
    author: str | None,
    date: str | None,
    trailers: tuple[str, ...],
    dry_run: bool,
    upstream: UpstreamOptions,
    as_json: bool,
    quiet: bool,
    verbose: bool,
) -> int:
    """Make a patch of what was edited, and put it into the series.

    The edits are those of an installed vLLM, of a folder (--target), or of commits (--git). What
    they are edits of, the release says: its stock files come from the index. Patches that are
    applied in the tree are below the new one: it holds what was edited on top of them. PATHs, such
    as vllm/v1 or vllm/envs.py, leave out everything else.

    \b
      vllm-series new wider -m 'wider: take more' -m 'Because ...'
      vllm-series new wider --python .venv/bin/python vllm/v1
      vllm-series new wider --git ~/src/vllm v0.33.0..my-branch
    """
    from vllm_series.commands.progress import Progress
    from vllm_series.report import counted
    from vllm_series.upstream.open import open_catalog
    from vllm_series.workspace.rewriting import patch_name

    if checkout and (target or python):
        raise UsageError("--git and --target or --python are two places. Give one of them.")
    full = patch_name(name)
    with Progress(quiet or as_json) as progress:
        said = Said(paragraphs, message_file, author, date, trailers)
        if checkout:
            release, edited, said = _of_commits(checkout, base, paths, said)
            catalog = open_catalog(upstream)
        else:
            tree = looked_at(target, python)
            release = _released(base, tree.version, tree.label)
            catalog = open_catalog(upstream)
            from vllm_series.workspace.edited import in_tree

            edited = in_tree(tree, catalog, release, paths, progress.say)
        progress.clear()
        for path, why in edited.passed.items():
            click.echo(f"vllm-series: {path} is left out: {why}", err=True)
        if not edited.after:
            raise RefusedError(
                f"nothing is edited: vllm {release}"
                + (f" with {', '.join(edited.below)}" if edited.below else "")
                + " is what is there. Edit a file of vllm/ first."
            )
        folder = folder_to_fill(series_dir, series_name, release)
        _refuse_early(folder, full, after)
        _refuse_unparsable(edited)
        about = [f"It is made on vllm {release}, for {folder.name}, and changes:"]
        about += [f"  {path}" for path in edited.after]
        meta = said.meta(full, "\n".join(about))
        made = _Made(full, release, folder, after, catalog, progress.say)
        text = made.text(edited, meta, dry_run)
    for note in made.notes:
        click.echo(f"vllm-series: {note}", err=True)
    if as_json:
        from vllm_series.report import as_json as rendered

        click.echo(
            rendered(
                {
                    "command": "new",
                    "outcome": "dry run" if dry_run else "written",
                    "series": folder.name,
                    "patch": full,
                    "path": str(folder / full),
                    "base": release,
                    "files": sorted(edited.after),
                    "passed": dict(edited.passed),
                    "notes": list(made.notes),
                    "text": text.decode("utf-8", "replace"),
                }
            )
        )
    elif dry_run:
        click.echo(text, nl=False)
    elif not quiet:
        click.echo(str(folder / full))
        files = counted(len(edited.after), "file")
        told = f"vllm-series: {full} changes {files} of vllm {release}. What was edited stays there"
        if not checkout:
            told += (
                ", and no record says that it is this patch: put the stock files back (reinstall "
                "vLLM) and run vllm-series apply before you edit on"
            )
        click.echo(f"{told}.", err=True)
    return 0


class _Made:
    """The patch in its place in the series."""

    def __init__(
        self,
        name: str,
        release: str,
        folder: Path,
        after: str | None,
        catalog: Catalog,
        say: Callable[[str], None],
    ) -> None:
        self.name, self.release, self.folder, self.after = name, release, folder, after
        self.catalog, self.say = catalog, say
        self.notes: tuple[str, ...] = ()

    def text(self, edited: Edited, meta: PatchMeta, dry_run: bool) -> bytes:
        """Write it into the series, unless that is not to be done; its text."""
        from vllm_series.compose import compose
        from vllm_series.insertion import inserted
        from vllm_series.workspace.rewriting import held

        patch = compose(meta, edited.before, edited.after, self.release, modes=edited.modes)
        with held(self.folder, waiting) as series:
            files, self.notes = inserted(
                series, patch, self.catalog, self.release, after=self.after, say=self.say
            )
            if not dry_run:
                series.write(files)
        return files[self.name]


def _released(base: str | None, version: str | None, label: str) -> str:
    """The release that was edited. Raises UsageError where nothing says it."""
    if base is not None:
        return public_release(base)
    if version is None or ".dev" in version:
        raise UsageError(
            f"{label} does not say which release it is"
            + (f", but {version}" if version else "")
            + ". Name the release that it comes from with --base."
        )
    return public_release(version)


def _of_commits(
    checkout: tuple[str, str], base: str | None, paths: Sequence[str], said: Said
) -> tuple[str, Edited, Said]:
    from vllm_series.upstream.commit import Repository
    from vllm_series.workspace.edited import between, commits_of

    repository = Repository(Path(checkout[0]).expanduser())
    try:
        old, new, is_one = commits_of(repository, checkout[1])
        version = repository.resolve(old).release
        if base is None and ".dev" in version:
            raise UsageError(
                f"{checkout[1]} does not start at the tag of a release, but at {version}. "
                "Name the release that the patch is for with --base."
            )
        edited = between(repository, old, new, paths)
        commit = repository.written(new) if is_one else None
        if commit:
            said = Said(
                said.paragraphs, said.message_file, said.author, said.date, said.trailers, commit
            )
        return public_release(base or version), edited, said
    finally:
        repository.close()


def _refuse_early(folder: Path, name: str, after: str | None) -> None:
    """Say what speaks against it before anyone writes a message."""
    from vllm_series.workspace.rewriting import held, listed, refuse_taken

    with held(folder, waiting) as series:
        refuse_taken(series, name)
        listed(series, name, after)


def _refuse_unparsable(edited: Edited) -> None:
    from vllm_series.reanchor import unparsable

    errors = unparsable((path, edited.before[path], edited.after[path]) for path in edited.after)
    if errors:
        raise RefusedError("; ".join(errors) + ". Correct it first; nothing was written.")
