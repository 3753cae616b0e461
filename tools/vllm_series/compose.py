"""From a file's texts before and after to a patch of ours, in its one form.

The hunks are git's own (its diff is what `git format-patch` writes); the section headings are ours,
looked up in the texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from vllm_series.canonical import written
from vllm_series.heading import heading_of
from vllm_series.parse import parse
from vllm_series.patch import FileChange, Kind, Patch

Texts = Mapping[str, "bytes | None"]
"""Files by path, None (or no entry) where there is none."""


@dataclass(frozen=True, slots=True)
class PatchMeta:
    """What a patch says beside its diff. `author` is `Name <mail>`, `date` a mail's."""

    name: str
    author: str
    date: str
    subject: str
    message: str
    trailers: tuple[tuple[str, str], ...] = ()


def compose(
    meta: PatchMeta, before: Texts, after: Texts, base: str, *, diff: bytes | None = None
) -> Patch:
    """A patch that makes `after` of `before`, the files of release `base`.

    `diff` is git's diff of the two, where the caller has it.
    """
    headers = (
        ("From", meta.author),
        ("Date", meta.date),
        ("Subject", f"[PATCH] {meta.subject}"),
    )
    bare = Patch(meta.name, b"", headers, meta.message, meta.trailers, ())
    return refreshed(bare, before, after, base, diff=diff)


def refreshed(
    patch: Patch, before: Texts, after: Texts, base: str, *, diff: bytes | None = None
) -> Patch:
    """The same patch with the changes that make `after` of `before`, on release `base`."""
    if diff is None:
        diff = _diff(before, after)
    files = tuple(_headed(change, before, after) for change in parse(diff, patch.name).files)
    value = f"vllm {base}"
    trailers = patch.trailers
    if patch.trailer("Base"):
        trailers = tuple(
            (key, value) if key.lower() == "base" else (key, old) for key, old in trailers
        )
    else:
        trailers = (("Base", value), *trailers)
    text = written(replace(patch, trailers=trailers, files=files))
    return parse(text, patch.name)


def _headed(change: FileChange, before: Texts, after: Texts) -> FileChange:
    old, new = change.paths(1)
    if change.kind in (Kind.CREATE, Kind.DELETE) or old is None or new is None:
        return replace(change, hunks=tuple(replace(hunk, heading=b"") for hunk in change.hunks))
    was, now = before.get(old) or b"", after.get(new) or b""
    return replace(
        change,
        hunks=tuple(
            replace(hunk, heading=heading_of(hunk, was, now, new)) for hunk in change.hunks
        ),
    )


def _diff(before: Texts, after: Texts) -> bytes:
    import tempfile
    from pathlib import Path

    from vllm_series.workspace.repository import Commit, Scratch

    def commit(texts: Texts, parent: int | None) -> Commit:
        files = {path: (text, "100644") for path, text in texts.items() if text is not None}
        return Commit(files, parent, b"", b"vllm-series <vllm-series@localhost>", "0 +0000")

    with tempfile.TemporaryDirectory() as folder, Scratch(Path(folder)) as scratch:
        old, new = scratch.make([commit(before, None), commit(after, 0)])
        return scratch.diff(old, new)
