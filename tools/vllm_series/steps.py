"""What a plan hands to the transaction: whole files before and after, nothing left to decide.

The types stand apart from `plan` so that the transaction, which only moves bytes, does not import
the parser and the placement rules.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FileStep:
    """One file in one patch, whole texts as bytes.

    `path` is posix and relative to the tree (`vllm/v1/core/sched/scheduler.py`). `before` is None
    where the file does not exist before, `after` is None where it does not exist afterwards; a
    rename is one step that deletes and one that creates. `mode` holds the permission bits to set
    (0o755); None keeps those of the file, and a created file gets 0o644.
    """

    path: str
    before: bytes | None
    after: bytes | None
    mode: int | None = None


@dataclass(frozen=True, slots=True)
class PatchStep:
    """One patch ready to be written: its name, its own text, and the files it changes in order."""

    name: str
    text: bytes
    files: tuple[FileStep, ...]
