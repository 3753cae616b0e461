"""A new patch in its place in a series: on top of those in front, with those behind following.

What it was made on need not be what it stands on: edits in a stock release become the last patch
of a series that touches the same file. So it is placed by the rules of placement, and where it
cannot do without one of the others, it says so (`Needs:`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from vllm_series.diffs.canonical import written
from vllm_series.diffs.parse import parse
from vllm_series.errors import RefusedError
from vllm_series.patch import Patch
from vllm_series.reanchor import Layers, renewed, settled
from vllm_series.series import SERIES_FILE, names

if TYPE_CHECKING:
    from vllm_series.trees import ReleaseTree
    from vllm_series.upstream.catalog import Catalog
    from vllm_series.workspace.rewriting import Held

Say = Callable[[str], None]


def inserted(
    held: Held,
    patch: Patch,
    catalog: Catalog,
    release: str,
    *,
    after: str | None = None,
    say: Say = lambda _step: None,
) -> tuple[dict[str, bytes], tuple[str, ...]]:
    """The files of the series folder with `patch` in it, made on `release`; and notes.

    Raises SeriesError where the name is taken, RefusedError where it does not fit there, where a
    patch behind it would not, and where it would not pass `lint`.
    """
    from vllm_series.workspace.rewriting import listed, refuse_taken

    refuse_taken(held, patch.name)
    listing, at = listed(held, patch.name, after)
    known = names(held.folder) if SERIES_FILE in held.files else []
    patches = [parse(held.files[name], name) for name in known]
    tree = catalog.tree(release)
    fetch(catalog, release, [*patches, patch], say)
    order = [*patches[:at], patch, *patches[at:]]
    say(f"placing {patch.name}")
    made = renewed(
        order,
        Layers(tree.read, tree.mode, release),
        Layers(tree.read, tree.mode, release),
        {patch.name: settled},
        inserted=patch.name,
    )
    texts = {each.name: each.text for each in made.patches}
    placed = made.patches[at]
    if not patch.trailer("Needs"):
        texts[patch.name] = with_needs(placed, made.patches[:at], tree, release).text
    files = {**held.files, **texts, SERIES_FILE: listing}
    refuse_problems(held, files, [patch.name], tree, release)
    return files, made.notes


def fetch(catalog: Catalog, release: str, patches: Sequence[Patch], say: Say) -> None:
    """Fetch the files that patches of a release touch, or rely on, at once."""
    from vllm_series.contracts import contract_paths

    paths = {path for patch in patches for path in contract_paths(patch)}
    for patch in patches:
        for change in patch.files:
            paths.update(path for path in change.paths(1) if path)
    say(f"reading vllm {release}")
    for error in catalog.prefetch({release: sorted(paths)}, say).values():
        raise error


def refuse_problems(
    held: Held, files: Mapping[str, bytes], made: Sequence[str], tree: ReleaseTree, release: str
) -> None:
    """Raises RefusedError where `lint` would complain of one of the patches that were made, on the
    stock files of their release, and would not of what the folder holds now."""
    problems = lint_problems(held, files, made, tree, release)
    known = set(lint_problems(held, held.files, made, tree, release)) if problems else set()
    fresh = [problem for problem in problems if problem not in known]
    if fresh:
        raise RefusedError(
            "the patch would not be one of a series:\n"
            + "\n".join(f"  {problem}" for problem in fresh)
            + "\nNothing was written."
        )


def lint_problems(
    held: Held, files: Mapping[str, bytes], made: Sequence[str], tree: ReleaseTree, release: str
) -> list[str]:
    """What `lint` says of some patches of a folder with these files, each with the patch's name."""
    import tempfile
    from pathlib import Path

    from vllm_series.lint import lint

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, held.folder.name)
        folder.mkdir()
        for name, data in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
        return [
            f"{each.path.relative_to(folder).as_posix()}: {each.text}"
            for each in lint(folder, tree.read, release).problems
            if each.path.relative_to(folder).as_posix() in made
        ]


def with_needs(patch: Patch, before: Sequence[Patch], tree: ReleaseTree, release: str) -> Patch:
    """The patch with `Needs:` for each of those in front without which it does not fit."""
    if not before or _fits(patch, (), tree, release):
        return patch
    touched = _paths(patch)
    needed = [
        other.name
        for other in before
        if touched & _paths(other)
        and not _fits(patch, [each for each in before if each is not other], tree, release)
    ]
    needed = needed or [other.name for other in before if touched & _paths(other)]
    at = next((n for n, (key, _) in enumerate(patch.trailers) if key.lower() == "base"), -1) + 1
    needs = tuple(("Needs", name) for name in needed)
    trailers = (*patch.trailers[:at], *needs, *patch.trailers[at:])
    return parse(written(replace(patch, trailers=trailers)), patch.name)


def _fits(patch: Patch, before: Sequence[Patch], tree: ReleaseTree, release: str) -> bool:
    layers = Layers(tree.read, tree.mode, release)
    for other in before:
        plan = layers.plan(other)
        if plan.step is not None and plan.fits:
            layers.take(other.name, plan.step)
    return layers.plan(patch).fits


def _paths(patch: Patch) -> set[str]:
    return {path for change in patch.files for path in change.paths(1) if path}
