"""A patch as a value: mail headers, why-text, trailers, and the file changes of its unified diff.

Texts are bytes, paths are posix strings (UTF-8 with surrogate escapes for other bytes), line
numbers are 1-based. Nothing here reads a patch (`parse` does) or a tree.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import compress

from vllm_series.diffs.mail import readable
from vllm_series.errors import PatchFormatError

NO_BLOB = "0" * 40
"""The id that an `index` line gives for no file."""


class Kind(Enum):
    """What a file change does to its path, in git's words."""

    MODIFY = "modify"
    CREATE = "create"
    DELETE = "delete"
    RENAME = "rename"
    COPY = "copy"


@dataclass(frozen=True, slots=True)
class Hunk:
    """One hunk: `ops` has one of b" ", b"-", b"+" for each of `lines`, which keep their endings.

    Starts and counts are those of the header; `heading` is the free text after the second `@@`;
    `lineno` is where the header stands in the patch file. Only the last line of either side may
    lack its newline.
    """

    old_start: int
    old_count: int
    new_start: int
    new_count: int
    heading: bytes
    ops: bytes
    lines: tuple[bytes, ...]
    lineno: int

    @property
    def pre(self) -> list[bytes]:
        """The pre-image: context and removed lines."""
        return list(compress(self.lines, self.ops.translate(_NOT_ADDED)))

    @property
    def post(self) -> list[bytes]:
        """The post-image: context and added lines."""
        return list(compress(self.lines, self.ops.translate(_NOT_REMOVED)))

    @property
    def first_line(self) -> int:
        """The 1-based line of the old file where the pre-image starts.

        A header that counts no old lines names the line *before* the insertion
        (POSIX, `diff -u` output format).
        """
        return self.old_start if self.old_count else self.old_start + 1

    @property
    def leading(self) -> int:
        """How many context lines come before the first change."""
        return len(self.ops) - len(self.ops.lstrip(b" "))

    @property
    def trailing(self) -> int:
        """How many context lines come after the last change."""
        return len(self.ops) - len(self.ops.rstrip(b" "))

    @property
    def has_context(self) -> bool:
        """Whether any line stays; without one, only the blob id can tell the place."""
        return b" " in self.ops

    def reversed(self) -> Hunk:
        """The hunk that undoes this one; removed lines come before added ones, as in git's."""
        ops, lines = _reversed_body(self.ops, self.lines)
        return replace(
            self,
            old_start=self.new_start,
            old_count=self.new_count,
            new_start=self.old_start,
            new_count=self.old_count,
            ops=ops,
            lines=lines,
        )

    def to_bytes(self) -> bytes:
        """The hunk as git writes it."""
        return self.header() + b"".join(self.body())

    def header(self) -> bytes:
        """The `@@` line with its newline; a count of 1 is left out, as git does."""
        old = b"%d" % self.old_start + (b"" if self.old_count == 1 else b",%d" % self.old_count)
        new = b"%d" % self.new_start + (b"" if self.new_count == 1 else b",%d" % self.new_count)
        heading = b" " + self.heading if self.heading else b""
        return b"@@ -%s +%s @@%s\n" % (old, new, heading)

    def body(self) -> Iterator[bytes]:
        """Every line behind the `@@` line, each with its sign, its newline and, where the file has
        none, the marker that says so."""
        for op, line in zip(self.ops, self.lines, strict=True):
            if line.endswith(b"\n"):
                yield b"%c%s" % (op, line)
            else:
                yield b"%c%s\n\\ No newline at end of file\n" % (op, line)


_ADDED, _REMOVED = ord("+"), ord("-")
_NOT_ADDED, _NOT_REMOVED = bytes.maketrans(b"+", b"\0"), bytes.maketrans(b"-", b"\0")
_SWAP = bytes.maketrans(b"+-", b"-+")
_CHANGE = re.compile(rb"[+-]+")


def _reversed_body(ops: bytes, lines: Sequence[bytes]) -> tuple[bytes, tuple[bytes, ...]]:
    swapped = ops.translate(_SWAP)
    result = list(lines)
    order = bytearray(swapped)
    for block in _CHANGE.finditer(swapped):
        start, end = block.span()
        removed = [i for i in range(start, end) if swapped[i] == _REMOVED]
        added = [i for i in range(start, end) if swapped[i] == _ADDED]
        result[start:end] = [lines[i] for i in (*removed, *added)]
        order[start:end] = b"-" * len(removed) + b"+" * len(added)
    return bytes(order), tuple(result)


_NO_REVERSE = (
    "a copy cannot be reversed without the copied file's text. Make the diff the other way round "
    "with git diff -R."
)


@dataclass(frozen=True, slots=True)
class FileChange:
    """One file in one patch, with its paths as the patch writes them (see `strip_level`).

    `old_raw` is None for a created file, `new_raw` for a deleted one. `old_id` and `new_id` are git
    blob ids, possibly abbreviated, None where the patch has no `index` line. Modes are git's
    ("100644"), None where the patch does not say. `similarity` is git's percentage for a rename or
    a copy.
    """

    kind: Kind
    old_raw: str | None
    new_raw: str | None
    hunks: tuple[Hunk, ...]
    old_id: str | None = None
    new_id: str | None = None
    old_mode: str | None = None
    new_mode: str | None = None
    from_git: bool = True
    lineno: int = 0
    similarity: int | None = None

    def paths(self, strip: int) -> tuple[str | None, str | None]:
        """Old and new path with `strip` leading folders taken off."""
        return _strip(self.old_raw, strip), _strip(self.new_raw, strip)

    def reversed(self) -> FileChange:
        """The change that undoes this one. Raises PatchFormatError for a copy."""
        if self.kind is Kind.COPY:
            raise PatchFormatError(self.new_raw or "", 0, _NO_REVERSE)
        kind = {Kind.CREATE: Kind.DELETE, Kind.DELETE: Kind.CREATE}.get(self.kind, self.kind)
        return replace(
            self,
            kind=kind,
            old_raw=self.new_raw,
            new_raw=self.old_raw,
            hunks=tuple(hunk.reversed() for hunk in self.hunks),
            old_id=self.new_id,
            new_id=self.old_id,
            old_mode=self.new_mode,
            new_mode=self.old_mode,
        )


@dataclass(frozen=True, slots=True)
class Patch:
    """A patch file, read. `text` is the file byte for byte, which is also how it is written back.

    `name` is the file's name in its series. `headers` are the mail's, unfolded; `message` is the
    why-text without its trailers; `trailers` keep order and repetition (git-interpret-trailers).
    """

    name: str
    text: bytes
    headers: tuple[tuple[str, str], ...]
    message: str
    trailers: tuple[tuple[str, str], ...]
    files: tuple[FileChange, ...]
    warnings: tuple[str, ...] = field(default=())

    @property
    def subject(self) -> str:
        """The subject without `[PATCH …]`, or the first line of the message."""
        for key, value in self.headers:
            if key.lower() == "subject":
                return re.sub(r"^(\[[^\]]*\]\s*)+", "", readable(value))
        return self.message.strip().partition("\n")[0]

    def trailer(self, key: str) -> list[str]:
        """Every value of a trailer, in order; keys compare without case."""
        return [value for name, value in self.trailers if name.lower() == key.lower()]

    def switches(self) -> dict[str, str]:
        """The variables that switch it on: name and value of each `Activate:` line.

        Raises PatchFormatError for a line that sets nothing.
        """
        found: dict[str, str] = {}
        for text in self.trailer("Activate"):
            name, mark, value = text.partition("=")
            if not mark or not name.strip():
                reason = f"Activate: {text} sets nothing. Write NAME=value."
                raise PatchFormatError(self.name, 0, reason)
            found[name.strip()] = value.strip()
        return found

    @property
    def base(self) -> str | None:
        """The release whose files are the pre-images: `0.33.0` of `Base: vllm 0.33.0`."""
        values = self.trailer("Base")
        return values[-1].split()[-1] if values and values[-1].split() else None

    @property
    def is_ours(self) -> bool:
        """Whether its headings are scopes written by this tool: it names its base."""
        return self.base is not None

    def reversed(self) -> Patch:
        """The patch that undoes this one, changes in the opposite order.

        Raises PatchFormatError for a copy, whose reverse holds text that the patch does not.
        """
        for change in self.files:
            if change.kind is Kind.COPY:
                raise PatchFormatError(self.name, change.lineno, _NO_REVERSE)
        return replace(self, files=tuple(change.reversed() for change in reversed(self.files)))


def strip_level(
    changes: Sequence[FileChange], exists: Callable[[str], bool], package: str = "vllm"
) -> int:
    """How many leading folders to take off every path (what `patch -p` would be told).

    The level that turns most paths into files of `package`; files that exist in the tree (or are
    created) count before those that only look right. Where no path leads into the package, and
    where several levels are equally good, 1 is the answer for git's own `a/` and `b/`. Other paths
    that do not lead there keep all their folders. Raises PatchFormatError where levels are equally
    good and nothing tells them apart.
    """
    scores: dict[int, tuple[int, int]] = {}
    for change in changes:
        for raw in (change.old_raw, change.new_raw):
            parts = raw.split("/") if raw else []
            for level, part in enumerate(parts[:-1]):
                if part == package:
                    found, inside = scores.get(level, (0, 0))
                    there = change.kind is Kind.CREATE or exists("/".join(parts[level:]))
                    scores[level] = (found + there, inside + 1)
    if not scores:
        return 1 if all(_has_git_prefix(change) for change in changes) else 0
    best = max(scores.values())
    levels = [level for level, score in scores.items() if score == best]
    if 1 in levels and all(change.from_git and _has_git_prefix(change) for change in changes):
        return 1
    if len(levels) > 1:
        raise PatchFormatError(
            changes[0].new_raw or changes[0].old_raw or "",
            changes[0].lineno,
            f"its paths fit the tree at strip levels {' and '.join(map(str, levels))}. "
            "Make the diff from the folder that holds vllm/.",
        )
    return levels[0]


def _has_git_prefix(change: FileChange) -> bool:
    raws = [raw for raw in (change.old_raw, change.new_raw) if raw]
    return all(re.match(r"[abciow12]/", raw) for raw in raws)


def _strip(raw: str | None, level: int) -> str | None:
    if raw is None:
        return None
    parts = raw.split("/")
    return "/".join(parts[level:]) if len(parts) > level else None
