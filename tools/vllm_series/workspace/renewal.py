"""Patches of a series written anew in their one form, on the stock files of their base.

It is what `lint` asks for: blob ids, line numbers and scopes as the base has them, and the form of
git. A patch that was edited by hand is taken as it stands, its line counts put right where that
cannot be wrong; its author, dates, why-text and trailers stay what they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vllm_series.compose import with_trailer
from vllm_series.diffs.parse import parse
from vllm_series.diffs.recount import recounted
from vllm_series.errors import PatchFormatError, RefusedError
from vllm_series.insertion import fetch, lint_problems
from vllm_series.patch import Patch
from vllm_series.reanchor import Layers, renewed, settled
from vllm_series.series import names, public_release

if TYPE_CHECKING:
    from vllm_series.upstream.catalog import Catalog
    from vllm_series.workspace.rewriting import Held

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Anew:
    """The files of the folder, the patches that were asked for, and notes."""

    files: Mapping[str, bytes]
    named: tuple[str, ...]
    notes: tuple[str, ...]


def written_anew(
    held: Held, wanted: Sequence[str], base: str | None, catalog: Catalog, say: Say
) -> Anew:
    """Write patches of a series (all for none named) anew; those behind them follow.

    Raises PatchFormatError for one that cannot be read, RefusedError for one that does not fit
    `base`, its release.
    """
    known = names(held.folder)
    named = tuple(name for name in known if not wanted or name in wanted)
    notes: list[str] = []
    patches = [_read(held.files[name], name, name in named, notes) for name in known]
    release = _base(patches, named, base)
    if base is not None:
        patches = [_rebased(patch, release) if patch.name in named else patch for patch in patches]
    tree = catalog.tree(release)
    fetch(catalog, release, patches, say)
    say(f"placing {', '.join(named)}")
    made = renewed(
        patches,
        Layers(tree.read, tree.mode, release),
        Layers(tree.read, tree.mode, release),
        dict.fromkeys(named, settled),
    )
    files = {**held.files, **{patch.name: patch.text for patch in made.patches}}
    notes += made.notes
    left = lint_problems(held, files, named, tree, release)
    notes += [f"lint has still something to say: {problem}" for problem in left]
    return Anew(files, named, tuple(notes))


def _read(text: bytes, name: str, may_recount: bool, notes: list[str]) -> Patch:
    try:
        return parse(text, name)
    except PatchFormatError as error:
        if not may_recount:
            raise
        try:
            patch = parse(recounted(text, name), name)
        except PatchFormatError as other:
            if str(other) == str(error):
                raise error from None
            raise PatchFormatError(
                name, error.line, f"{error.reason} Its counts cannot be put right: {other}"
            ) from other
        notes.append(f"{name}: the line counts of its hunks were put right.")
        return patch


def _base(patches: Sequence[Patch], named: Sequence[str], base: str | None) -> str:
    if base is not None:
        return public_release(base)
    found = {patch.base for patch in patches if patch.name in named}
    if None in found:
        missing = next(patch.name for patch in patches if patch.name in named and not patch.base)
        raise RefusedError(f"{missing} does not name its base. Name the release with --base.")
    if len(found) != 1:
        releases = " and ".join(sorted(each for each in found if each))
        raise RefusedError(
            f"these patches are made on {releases or 'nothing'}. Refresh those of one release at a "
            "time."
        )
    return next(each for each in found if each)


def _rebased(patch: Patch, release: str) -> Patch:
    from dataclasses import replace

    return replace(patch, trailers=with_trailer(patch.trailers, "Base", f"vllm {release}"))
