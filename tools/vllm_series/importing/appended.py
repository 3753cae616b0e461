"""Imported changes put at the end of a series: all of them or none.

A diff was made on whatever its author had. It is placed on the release with the patches in front of
it, by the rules of placement, and written anew in its one form. A patch of ours that fits as it is
keeps its bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from vllm_series.compose import PatchMeta, blank
from vllm_series.diffs.parse import parse
from vllm_series.errors import RefusedError
from vllm_series.importing.incoming import Incoming
from vllm_series.insertion import fetch, refuse_problems, with_needs
from vllm_series.patch import Patch
from vllm_series.reanchor import Layers, on_top, settled, unparsable, why
from vllm_series.series import SERIES_FILE, names

if TYPE_CHECKING:
    from vllm_series.upstream.catalog import Catalog
    from vllm_series.workspace.rewriting import Held


@dataclass(frozen=True, slots=True)
class Appended:
    """The files of the series folder as they are to be, the new patches, and what to tell."""

    files: dict[str, bytes]
    patches: tuple[Patch, ...]
    notes: tuple[str, ...]


def appended(
    held: Held,
    found: Sequence[tuple[Incoming, PatchMeta]],
    catalog: Catalog,
    release: str,
    say: Callable[[str], None] = lambda _step: None,
) -> Appended:
    """The series with these changes behind its patches, on `release`; nothing is written.

    Raises SeriesError where a name is taken, RefusedError where one does not fit, does not parse
    any more or would not pass `lint`.
    """
    from vllm_series.workspace.rewriting import refuse_taken

    known = names(held.folder) if SERIES_FILE in held.files else []
    there = [parse(held.files[name], name) for name in known]
    for one, _ in found:
        refuse_taken(held, one.name)
    tree = catalog.tree(release)
    fetch(catalog, release, [*there, *(one.patch for one, _ in found)], say)
    layers = Layers(tree.read, tree.mode, release)
    notes = []
    for patch in there:
        plan = layers.plan(patch)
        if plan.step is None or not plan.fits:
            notes.append(f"{patch.name} does not fit vllm {release}, as before: {why(plan)}")
            continue
        layers.take(patch.name, plan.step)
    made: list[Patch] = []
    for one, meta in found:
        say(f"placing {one.name}")
        step = settled(replace(one.patch, name=one.name), layers)
        broken = unparsable((file.path, file.before, file.after) for file in step.files)
        if broken:
            raise RefusedError(
                f"{one.name} does not leave Python behind: {'; '.join(broken)}. Correct it first; "
                "nothing was written."
            )
        patch = on_top(_said(one, meta), layers, step)
        if one.base is None and not patch.trailer("Needs"):
            patch = with_needs(patch, [*there, *made], tree, release)
        layers.take(patch.name, step)
        made.append(patch)
    listing = held.files.get(SERIES_FILE, b"")
    gap = b"" if not listing or listing.endswith(b"\n") else b"\n"
    listing += gap + b"".join(patch.name.encode() + b"\n" for patch in made)
    files = {**held.files, **{patch.name: patch.text for patch in made}, SERIES_FILE: listing}
    refuse_problems(held, files, [patch.name for patch in made], tree, release)
    return Appended(files, tuple(made), tuple(notes))


def _said(one: Incoming, meta: PatchMeta) -> Patch:
    """The patch without its diff; a mail's own headers stay as they are where they say the same."""
    patch = blank(meta)
    if one.headers and (meta.author, meta.date) == (one.author, one.date):
        given = dict(one.headers)
        same = replace(patch, headers=one.headers).subject == patch.subject
        headers = tuple((key, given.get(key, value)) for key, value in patch.headers)
        return replace(patch, headers=headers) if same else patch
    return patch
