"""One file of an archive: which names are taken, how large it may be, and where it lies."""

from __future__ import annotations

import re
from dataclasses import dataclass

LARGEST = 64 << 20
"""Bytes of a member that is read; sources are kilobytes, and nobody patches what is larger."""

_LONGEST_NAME = 4096
_UNPLAIN = re.compile(r"^[A-Za-z]:|\\|[\x00-\x1f\x7f]|(?:^|/)\.{0,2}(?:/|$)")
"""A drive, a backslash, a control character, an absolute path, or an empty, `.` or `..` part."""


@dataclass(frozen=True, slots=True)
class Member:
    """One file of an archive. `offset` is where its local header begins, `end` where whatever
    follows does; `size` and `compressed` are in bytes, `mode` is the permission bits (0 where the
    archive does not tell), `method` 0 (stored) or 8 (deflated)."""

    name: str
    offset: int
    end: int
    compressed: int
    size: int
    crc: int
    method: int
    mode: int


def is_plain(name: str) -> bool:
    """Whether a name is a relative posix path that stays where it is put."""
    return len(name) <= _LONGEST_NAME and not _UNPLAIN.search(name)
