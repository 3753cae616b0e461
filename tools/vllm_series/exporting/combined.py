"""All changes of some patches as one diff, from a release's stock files to what they make of them.

It has no message. `git apply`, `patch -p1` and `vllm-series apply --patch` take it on stock files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vllm_series.compose import PatchMeta, compose
from vllm_series.diffs.canonical import diff
from vllm_series.reanchor import Layers

if TYPE_CHECKING:
    from vllm_series.patch import Patch
    from vllm_series.trees import ReleaseTree


def combined(patches: Sequence[Patch], tree: ReleaseTree) -> bytes:
    """The diff. Raises RefusedError where a patch does not fit on the ones in front of it, and
    where all of them together change nothing."""
    layers = Layers(tree.read, tree.mode, tree.release)
    touched: dict[str, bytes | None] = {}
    for patch in patches:
        for file in layers.add(patch).files:
            touched.setdefault(file.path, file.before)
    after = {path: layers.read(path) for path in touched}
    old = Layers(tree.read, tree.mode, tree.release)
    modes = (
        {path: old.git_mode(path) for path, text in touched.items() if text is not None},
        {path: layers.git_mode(path) for path, text in after.items() if text is not None},
    )
    meta = PatchMeta("the diff", "x <x@localhost>", "Thu, 1 Jan 1970 00:00:00 +0000", "x", "")
    whole = compose(meta, touched, after, tree.release, modes=modes)
    return b"".join(diff(change) for change in whole.files)
