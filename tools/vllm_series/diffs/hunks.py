"""The hunks of one file, with unidiff as their reader and every line held against the counts.

What unidiff would take on trust is settled here first, on bytes: which lines belong to a hunk by
its counts, and which are too many or too few. unidiff is then fed one file at a time, line by line
and one character a byte (so that no form feed or carriage return splits a line and no encoding is
guessed), and its answer must agree.
"""

from __future__ import annotations

import re

from vllm_series.errors import PatchFormatError
from vllm_series.patch import Hunk

HUNK = re.compile(
    rb"@@ +- *(\d{1,9})(?: *, *(\d{1,9}))? +\+ *(\d{1,9})(?: *, *(\d{1,9}))? +@@ ?([^\n]*)\n?$"
)
"""A hunk header. Some tools pad the numbers; ten digits and more are no line of a file."""

_MARKER = b"\\ "
_NO_NEWLINE = "\\ No newline at end of file\n"


class Source:
    """The lines of a patch file, each with its ending, and the name that messages give it."""

    def __init__(self, lines: list[bytes], name: str) -> None:
        self.lines = lines
        self.name = name

    def at(self, index: int) -> bytes:
        """The line at a 0-based index; empty behind the last one."""
        return self.lines[index] if index < len(self.lines) else b""

    def fail(self, index: int, reason: str) -> PatchFormatError:
        """The error for a 0-based line, to be raised by the caller."""
        return PatchFormatError(self.name, index + 1, reason)

    def starts_file(self, index: int) -> bool:
        """Whether a `---` line stands here with its `+++` line."""
        return self.at(index).startswith(b"--- ") and self.at(index + 1).startswith(b"+++ ")


def read_hunks(source: Source, index: int) -> tuple[tuple[Hunk, ...], int]:
    """Every hunk from a 0-based index on, and the index of the first line behind them.

    Raises PatchFormatError for a hunk that is not exactly what its header counts, and for hunks
    that overlap or are out of order.
    """
    headers: list[tuple[int, list[int], bytes]] = []
    fed: list[str] = ["--- a\n", "+++ b\n"]
    while source.at(index).startswith(b"@@"):
        matched = HUNK.match(source.lines[index])
        if not matched:
            raise source.fail(index, "this hunk header is malformed. Make the patch again.")
        counts = [int(group) if group is not None else 1 for group in matched.groups()[:4]]
        fed.append("@@ -{},{} +{},{} @@\n".format(*counts))
        headers.append((index, counts, matched[5].rstrip(b"\r")))
        index = _body(source, index, counts, fed)
    return (_built(source, headers, fed) if headers else ()), index


def _body(source: Source, header: int, counts: list[int], fed: list[str]) -> int:
    """Take the lines that the counts ask for, and add them to what unidiff is fed."""
    old, new = counts[1], counts[3]
    if not old and not new:
        raise source.fail(header, "a hunk without lines. Take the hunk out.")
    if (old and not counts[0]) or (new and not counts[2]):
        raise source.fail(
            header,
            "this hunk header counts lines from line 0; the first line is 1. Make the patch again.",
        )
    index = header + 1
    lines, size = source.lines, len(source.lines)
    changed = False
    if taken := _plain(lines, index, old, new):
        # Nearly every hunk: there is nothing to look at line by line.
        fed.extend([line.decode("latin-1") for line in lines[index : index + taken]])
        index += taken
        old, new, changed = 0, 0, True
    while old or new:
        line = lines[index] if index < size else b""
        op = line[:1]
        if line in (b"\n", b"\r\n"):
            # A blank context line whose space an editor or a mailer took: git reads it so.
            line, op = b" " + line, b" "
        if op == b"\\":
            _check_marker(source, index, header)
            fed.append(_NO_NEWLINE)
            index += 1
            continue
        if op not in (b" ", b"-", b"+"):
            what = "ends early" if line else "is cut off"
            raise source.fail(
                index if line else index - 1,
                f"the hunk of line {header + 1} {what}: {old} old and {new} new lines are still "
                "to come. Make the patch again.",
            )
        old -= op != b"+"
        new -= op != b"-"
        changed |= op != b" "
        if old < 0 or new < 0:
            raise source.fail(
                index,
                f"the hunk of line {header + 1} holds other lines than its header counts. "
                "Make the patch again.",
            )
        if not line.endswith(b"\n"):
            raise source.fail(
                index,
                "the last line does not end: the patch may be cut off. Add the newline if it is "
                "whole.",
            )
        fed.append(line.decode("latin-1"))
        index += 1
    if source.at(index).startswith(b"\\"):
        _check_marker(source, index, header)
        fed.append(_NO_NEWLINE)
        index += 1
    if not changed:
        raise source.fail(header, "a hunk that changes nothing. Take the hunk out.")
    _refuse_overlong(source, index, header)
    return index


def _plain(lines: list[bytes], index: int, old: int, new: int) -> int:
    """How many lines a hunk body takes that is what its header counts and holds a change; 0 where
    it is not, or where it has blank or unended lines or markers, which need to be looked at."""
    ops = b"".join([line[:1] for line in lines[index : index + old + new]])
    # The body ends where neither side has lines to come; each side's end comes closer from below.
    taken = max(old, new)
    while True:
        window = ops[:taken]
        added, removed = window.count(b"+"), window.count(b"-")
        further = max(old + added, new + removed)
        if further == taken:
            break
        taken = further
    return (
        taken
        if old + added == new + removed == taken == len(window)
        and added + removed
        and added + removed + window.count(b" ") == taken
        and lines[index + taken - 1].endswith(b"\n")
        else 0
    )


def _check_marker(source: Source, index: int, header: int) -> None:
    """The words behind the backslash depend on the language of the tool that wrote them; git takes
    any dozen bytes."""
    line = source.lines[index]
    if not line.startswith(_MARKER) or len(line) <= 12:
        raise source.fail(
            index, "a line that starts with a backslash is no line of a hunk. Make the patch again."
        )
    if index == header + 1 or source.lines[index - 1].startswith(b"\\"):
        raise source.fail(
            index,
            "a marker for a missing newline without the line it speaks of. Make the patch again.",
        )


def _refuse_overlong(source: Source, index: int, header: int) -> None:
    line = source.at(index)
    if (
        line[:1] in (b" ", b"+", b"-", b"\\")
        and not source.starts_file(index)
        and not starts_signature(source, index)
    ):
        raise source.fail(
            index,
            f"the hunk of line {header + 1} has more lines than its header counts. "
            "Make the patch again.",
        )


_VERSION = re.compile(rb"\d+\.\d+[\w.+-]*( \(.*\))?\r?\n?$")


def starts_signature(source: Source, index: int) -> bool:
    """Whether a mail signature starts here: `-- `, or what is left of it when an editor took the
    space and git's version follows."""
    line = source.at(index).rstrip(b"\r\n")
    return line == b"-- " or (line == b"--" and bool(_VERSION.match(source.at(index + 1))))


def _built(
    source: Source, headers: list[tuple[int, list[int], bytes]], fed: list[str]
) -> tuple[Hunk, ...]:
    """Hunks from unidiff's reading of the lines, held against what was counted here."""
    from unidiff.errors import UnidiffParseError
    from unidiff.patch import PatchSet

    try:
        parsed = PatchSet(fed)
    except UnidiffParseError as error:
        raise source.fail(
            headers[0][0], f"unidiff refuses it: {error}. Make the patch again."
        ) from error
    hunks = list(parsed[0]) if len(parsed) == 1 else []
    if len(hunks) != len(headers):
        raise source.fail(
            headers[0][0],
            f"unidiff reads {len(hunks)} hunks of {len(headers)}. Make the patch again.",
        )
    built: list[Hunk] = []
    marked = False
    for (index, counts, heading), hunk in zip(headers, hunks, strict=True):
        ops = "".join([line.line_type for line in hunk]).encode("latin-1")
        lines = [line.value.encode("latin-1") for line in hunk]
        if b"\\" in ops:
            marked = True
            ops, lines = _unmarked(ops, lines)
        read = [
            hunk.source_start,
            len(ops) - ops.count(b"+"),
            hunk.target_start,
            len(ops) - ops.count(b"-"),
        ]
        if read != counts:
            raise source.fail(
                index, f"unidiff reads {read} where the header says {counts}. Make the patch again."
            )
        built.append(
            Hunk(
                old_start=counts[0],
                old_count=counts[1],
                new_start=counts[2],
                new_count=counts[3],
                heading=heading,
                ops=ops,
                lines=tuple(lines),
                lineno=index + 1,
            )
        )
    _check_order(source, built)
    if marked:
        _check_ends(source, built)
    return tuple(built)


def _unmarked(ops: bytes, lines: list[bytes]) -> tuple[bytes, list[bytes]]:
    """A hunk's body without its markers; the lines that they speak of lose their newlines."""
    kept: list[bytes] = []
    for op, line in zip(ops, lines, strict=True):
        if op == ord("\\"):
            kept[-1] = kept[-1][:-1]
        else:
            kept.append(line)
    return ops.replace(b"\\", b""), kept


def _check_order(source: Source, hunks: list[Hunk]) -> None:
    end = 0
    for hunk in hunks:
        if hunk.first_line < end:
            raise source.fail(
                hunk.lineno - 1, "its hunks overlap or are out of order. Make the patch again."
            )
        end = hunk.first_line + hunk.old_count


def _check_ends(source: Source, hunks: list[Hunk]) -> None:
    """Only the last line of a side may lack its newline."""
    for hunk in hunks:
        for side in (hunk.pre, hunk.post):
            inner = side[:-1] if hunk is hunks[-1] else side
            if any(not line.endswith(b"\n") for line in inner):
                raise source.fail(
                    hunk.lineno - 1,
                    "a line in the middle of the file has no newline. Make the patch again.",
                )
