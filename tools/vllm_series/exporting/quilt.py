"""A quilt folder: the patches as they are, and the `series` file that lists them (quilt(1))."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from vllm_series.errors import UsageError
from vllm_series.series import SERIES_FILE, Entry


def write_quilt(entries: Sequence[Entry], folder: Path) -> None:
    """Make the folder, all at once. Raises UsageError where it is there and not empty."""
    if folder.is_symlink() or (folder.exists() and (not folder.is_dir() or any(folder.iterdir()))):
        raise UsageError(
            f"{folder} is there already. Name a folder that is not, or an empty one; quilt import "
            "adds patches to a folder of quilt's."
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as scratch:
        made = Path(scratch, "patches")
        for entry in entries:
            place = made / entry.name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(entry.text)
        (made / SERIES_FILE).write_text("".join(f"{entry.name}\n" for entry in entries))
        # An empty folder is replaced (rename(2)), a filled one never.
        made.rename(folder)
