"""What a series folder has already, and what it gets from another on top.

A new patch of one line is wanted in all lines, and the patches below it are there. They were
decided on, by hand where it had to be, and are not decided on again: they are the ground that the
new one is rebased onto.
"""

from __future__ import annotations

from dataclasses import dataclass

from vllm_series.series import SERIES_FILE, Entry, Series


@dataclass(frozen=True, slots=True)
class Together:
    """Two series as one: the entries that stay, those that are carried over on top of them, and the
    text of the `series` file that lists both."""

    staying: tuple[Entry, ...]
    carried: tuple[Entry, ...]
    listing: bytes

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All of them, in their order."""
        return (*self.staying, *self.carried)


def together(source: Series, there: Series | None) -> Together:
    """All of `source` where nothing is `there`, else what that lacks, by name."""
    if there is None:
        return Together((), source.entries, (source.folder / SERIES_FILE).read_bytes())
    names = {entry.name for entry in there.entries}
    carried = tuple(entry for entry in source.entries if entry.name not in names)
    listing = (there.folder / SERIES_FILE).read_bytes()
    if listing and not listing.endswith(b"\n"):
        listing += b"\n"
    listing += b"".join(entry.name.encode() + b"\n" for entry in carried)
    return Together(there.entries, carried, listing)
