"""Whose bytes a tree holds, as `status` and `verify` say it."""

from __future__ import annotations

from pathlib import Path

from vllm_series.errors import SeriesError
from vllm_series.series import SERIES_FILE, series_folder
from vllm_series.trees import DiskTree


def origin_of(tree: DiskTree, series_dir: Path | None, fingerprint: str) -> str:
    """Which wheel the tree was made from; empty where nothing is known to hold it against.

    No series need fit the tree: the list of wheels lies beside all of them.
    """
    from vllm_series.known import origin, wheels

    try:
        base = series_folder(series_dir)
    except SeriesError:
        if series_dir is not None:
            raise
        return ""
    known = wheels(base.parent if (base / SERIES_FILE).is_file() else base)
    if not known or tree.version is None:
        return ""
    distribution = tree.distribution.name if tree.distribution else "vllm"
    return origin(known, distribution, tree.version.partition("+")[0], fingerprint)
