"""The markers of a conflict: whose side is whose, and whether any are left.

git names the sides by commits of the scratch repository, which tell nobody anything. Here they are
named by what they are: the two releases and the patch.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence

from vllm_series.patch import Hunk

_ONTO = re.compile(rb"^<{7} (?:HEAD|Updated upstream)(:.*)?$", re.M)
_BASE = re.compile(rb"^\|{7} (?:parent of )?[0-9a-f]{7,40}(?: \([^\n]*\))?(:[^\n]*)?$", re.M)
_PATCH = re.compile(rb"^>{7} [0-9a-f]{7,40}(?: \([^\n]*\))?(:[^\n]*)?$", re.M)
_ANY = (b"<<<<<<< ", b"||||||| ", b">>>>>>> ")


def labelled(text: bytes, base: str, onto: str, patch: str) -> bytes:
    """A text as git left it, its markers with the names of both releases and the patch."""
    for pattern, label in (
        (_ONTO, f"<<<<<<< vllm {onto}"),
        (_BASE, f"||||||| vllm {base} (base)"),
        (_PATCH, f">>>>>>> {patch}"),
    ):
        raw = label.encode("utf-8", "surrogateescape")
        text = pattern.sub(lambda found, raw=raw: raw + (found[1] or b""), text)  # type: ignore[misc]
    return text


def left(text: bytes) -> list[int]:
    """The 1-based lines that hold a marker still."""
    return [
        number
        for number, line in enumerate(io.BytesIO(text), 1)
        if line.startswith(_ANY) and len(line.split(b" ", 1)[1].strip()) > 0
    ]


def proposed(text: bytes, runs: Sequence[Hunk], onto: str, patch: str, why: str) -> bytes:
    """`text` with every run of changed lines as a conflict: what a merge would have done, for a
    person to decide. `runs` are hunks without context on `text`, in order."""
    lines = io.BytesIO(text).readlines()
    out: list[bytes] = []
    at = 0
    for run in runs:
        start = run.first_line - 1
        out += lines[at:start]
        ours, theirs = run.pre, run.post
        out.append(f"<<<<<<< vllm {onto}\n".encode())
        out += [*map(_ended, ours), b"=======\n", *map(_ended, theirs)]
        out.append(f">>>>>>> {patch} ({why})\n".encode("utf-8", "surrogateescape"))
        at = start + run.old_count
    return b"".join([*out, *lines[at:]])


def _ended(line: bytes) -> bytes:
    return line if line.endswith(b"\n") else line + b"\n"
