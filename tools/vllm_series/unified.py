"""The unified diff of a patch, line by line, with unidiff as the reader of its hunks.

What unidiff would take on trust is settled here first, on bytes: which lines are headers, which
belong to a hunk by its counts, and which are stray. unidiff is then fed one file at a time, line by
line and one character a byte (so that no form feed or carriage return splits a line and no encoding
is guessed), and its answer is held against the text. A diff is understood to its last byte or
refused. Extended headers are those of git-diff(1), "Generating patch text with -p".
"""

from __future__ import annotations

import re

from vllm_series.errors import PatchFormatError
from vllm_series.mail import MBOX_FROM
from vllm_series.patch import FileChange, Hunk, Kind

DEV_NULL = "/dev/null"

_HUNK = re.compile(
    rb"^@@ +- *(\d+)(?: *, *(\d+))? +\+ *(\d+)(?: *, *(\d+))? +@@(?: (.*?)|)(\r?\n|$)", re.DOTALL
)
ED_COMMAND = re.compile(rb"^\d+(,\d+)?[acd]\d*(,\d+)?\r?$")
_EPOCH = re.compile(rb"^19(69-12-31|70-01-01)[ T]")
_INDEX = re.compile(rb"^index ([0-9a-f]{4,64})\.\.([0-9a-f]{4,64})(?: (\d+))?\r?$")
_NOISE = (b"Index: ", b"=====", b"Only in ", b"diff -", b"\n", b"\r\n")
_REGULAR_MODES = {"100644", "100755"}
_ESCAPES = {
    ord("a"): 7, ord("b"): 8, ord("t"): 9, ord("n"): 10, ord("v"): 11, ord("f"): 12, ord("r"): 13,
    ord('"'): 34, ord("\\"): 92,
}  # fmt: skip


def _decode(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


class DiffParser:
    """Walks the lines of a diff; every line is used for exactly one purpose or refused."""

    def __init__(self, lines: list[bytes], name: str) -> None:
        self.lines = lines
        self.name = name

    def fail(self, index: int, reason: str) -> PatchFormatError:
        return PatchFormatError(self.name, index + 1, reason)

    def read(self, start: int) -> list[FileChange]:
        files: list[FileChange] = []
        index = start
        while index < len(self.lines):
            line = self.lines[index]
            if line.startswith(b"diff --git "):
                change, index = self.git_section(index)
                files.append(change)
            elif line.startswith(b"--- ") and self.at(index + 1).startswith(b"+++ "):
                change, index = self.plain_section(index)
                files.append(change)
            elif line.rstrip(b"\r\n") == b"-- ":
                index = self.signature(index)
            else:
                self.refuse_or_pass(index, bool(files))
                index += 1
        return files

    def at(self, index: int) -> bytes:
        return self.lines[index] if index < len(self.lines) else b""

    def signature(self, index: int) -> int:
        """A mail signature runs to the end of the file; a diff behind it is another mail."""
        for later in range(index + 1, len(self.lines)):
            if MBOX_FROM.match(self.lines[later]) or self.lines[later].startswith(b"diff --git "):
                raise self.several(later)
        return len(self.lines)

    def several(self, index: int) -> PatchFormatError:
        return self.fail(index, "a second mail starts here. Split the mbox with git mailsplit")

    def refuse_or_pass(self, index: int, after_file: bool) -> None:
        line = self.lines[index]
        if MBOX_FROM.match(line):
            raise self.several(index)
        if line.startswith(b"*** ") and self.at(index + 1).startswith(b"--- "):
            raise self.fail(index, "this is a context diff. Make a unified one with diff -u")
        if line.startswith(b"@@@ "):
            raise self.fail(index, "this is a merge's combined diff. Use git diff A B")
        if line.startswith((b"GIT binary patch", b"Binary files ")):
            raise self.fail(index, "binary changes are not supported. Leave the file out")
        if line.startswith(b"@@ -"):
            raise self.fail(index, "a hunk without the --- and +++ lines of its file")
        if ED_COMMAND.match(line.rstrip(b"\n")):
            raise self.fail(
                index, "this is an ed script or a normal diff. Make a unified one with diff -u"
            )
        if not line.startswith(_NOISE):
            where = "after a hunk" if after_file else "where a diff should start"
            raise self.fail(
                index, f"stray text {where}: {_decode(line.rstrip())[:60]!r}. Take it out"
            )

    # -- sections -------------------------------------------------------------------------------

    def git_section(self, index: int) -> tuple[FileChange, int]:
        first = index
        words = self.lines[index][len(b"diff --git ") :].rstrip(b"\r\n")
        extended: dict[str, str] = {}
        index += 1
        while index < len(self.lines):
            line = self.lines[index].rstrip(b"\r\n")
            matched = _INDEX.match(line)
            if matched:
                extended["old id"], extended["new id"] = matched[1].decode(), matched[2].decode()
                if matched[3]:
                    extended.setdefault("old mode", matched[3].decode())
                    extended.setdefault("new mode", matched[3].decode())
            elif (key := _extended_key(line)) is not None:
                extended[key] = (
                    self.path(index, line[len(key) + 1 :])
                    if (key.startswith(("rename ", "copy ")))
                    else _decode(line[len(key) + 1 :]).strip()
                )
            else:
                break
            index += 1
        line = self.at(index)
        if line.startswith((b"GIT binary patch", b"Binary files ")):
            raise self.fail(index, "binary changes are not supported. Leave the file out")
        old_raw: str | None = None
        new_raw: str | None = None
        old_named = new_named = False
        if line.startswith(b"--- "):
            if not self.at(index + 1).startswith(b"+++ "):
                raise self.fail(index + 1, "a --- line without its +++ line")
            old_raw = self.file_name(index)
            new_raw = self.file_name(index + 1)
            old_named = new_named = True
            index += 2
        elif line.startswith(b"@@ -"):
            raise self.fail(index, "a hunk without the --- and +++ lines of its file")
        head_old, head_new = self.git_names(first, words, extended)
        if old_named and old_raw not in (head_old, DEV_NULL):
            raise self.fail(first, f"diff --git names {head_old}, the --- line {old_raw}")
        if new_named and new_raw not in (head_new, DEV_NULL):
            raise self.fail(first, f"diff --git names {head_new}, the +++ line {new_raw}")
        kind = self.git_kind(first, extended, old_raw, new_raw)
        hunks, index = self.hunks(index, old_raw is not None)
        change = FileChange(
            kind=kind,
            old_raw=None if kind is Kind.CREATE else head_old,
            new_raw=None if kind is Kind.DELETE else head_new,
            hunks=hunks,
            old_id=extended.get("old id"),
            new_id=extended.get("new id"),
            old_mode=extended.get("deleted file mode") or extended.get("old mode"),
            new_mode=extended.get("new file mode") or extended.get("new mode"),
            lineno=first + 1,
            similarity=self.percentage(first, extended.get("similarity index")),
        )
        self.check(change, first)
        return change, index

    def percentage(self, index: int, text: str | None) -> int | None:
        if text is None:
            return None
        digits = text.removesuffix("%")
        if not digits.isdigit() or int(digits) > 100:
            raise self.fail(index, f"similarity index {text} is no percentage")
        return int(digits)

    def git_kind(
        self, first: int, extended: dict[str, str], old_raw: str | None, new_raw: str | None
    ) -> Kind:
        if "new file mode" in extended:
            kind = Kind.CREATE
        elif "deleted file mode" in extended:
            kind = Kind.DELETE
        elif "rename to" in extended:
            kind = Kind.RENAME
        elif "copy to" in extended:
            kind = Kind.COPY
        elif old_raw == DEV_NULL:
            kind = Kind.CREATE
        elif new_raw == DEV_NULL:
            kind = Kind.DELETE
        else:
            kind = Kind.MODIFY
        if old_raw == DEV_NULL and kind is not Kind.CREATE:
            raise self.fail(first, "the old side is /dev/null, yet the file is not created")
        if new_raw == DEV_NULL and kind is not Kind.DELETE:
            raise self.fail(first, "the new side is /dev/null, yet the file is not deleted")
        if kind is Kind.CREATE and old_raw not in (None, DEV_NULL):
            raise self.fail(first, "a created file has an old side other than /dev/null")
        if kind is Kind.DELETE and new_raw not in (None, DEV_NULL):
            raise self.fail(first, "a deleted file has a new side other than /dev/null")
        return kind

    def git_names(self, index: int, words: bytes, extended: dict[str, str]) -> tuple[str, str]:
        """Both names of a `diff --git` line, which git does not quote for spaces.

        With `rename`/`copy` lines the names are known; otherwise both are the same but for their
        prefix, so the line is split where the two halves agree (git's own rule, git_header_name).
        """
        if words.startswith(b'"') or words.endswith(b'"'):
            return self.quoted_names(index, words)
        text = _decode(words)
        for verb in ("rename", "copy"):
            if f"{verb} from" in extended and f"{verb} to" in extended:
                old, new = extended[f"{verb} from"], extended[f"{verb} to"]
                for cut in _spaces(text):
                    left, right = text[:cut], text[cut + 1 :]
                    if (left == old or left.endswith("/" + old)) and (
                        right == new or right.endswith("/" + new)
                    ):
                        return left, right
                raise self.fail(index, f"diff --git does not name {old} and {new}")
        for cut in _spaces(text):
            left, right = text[:cut], text[cut + 1 :]
            if left == right or (
                "/" in left and "/" in right and left.split("/", 1)[1] == right.split("/", 1)[1]
            ):
                return left, right
        raise self.fail(index, "diff --git does not name one file twice")

    def quoted_names(self, index: int, words: bytes) -> tuple[str, str]:
        if words.startswith(b'"'):
            end = _quoted_end(words)
            left, rest = words[:end], words[end:].lstrip(b" ")
        else:
            left, _, rest = words.partition(b' "')
            rest = b'"' + rest
        return self.path(index, left), self.path(index, rest)

    def plain_section(self, index: int) -> tuple[FileChange, int]:
        first = index
        old_raw, new_raw = self.file_name(index), self.file_name(index + 1)
        hunks, index = self.hunks(index + 2, True)
        kind = Kind.MODIFY
        only = hunks[0] if len(hunks) == 1 else None
        if old_raw == DEV_NULL or (self.is_epoch(first) and only and only.old_count == 0):
            kind = Kind.CREATE
        elif new_raw == DEV_NULL or (self.is_epoch(first + 1) and only and only.new_count == 0):
            kind = Kind.DELETE
        if old_raw == new_raw == DEV_NULL:
            raise self.fail(first, "both sides are /dev/null")
        change = FileChange(
            kind=kind,
            old_raw=None if kind is Kind.CREATE else old_raw,
            new_raw=None if kind is Kind.DELETE else new_raw,
            hunks=hunks,
            from_git=False,
            lineno=first + 1,
        )
        self.check(change, first)
        return change, index

    def check(self, change: FileChange, index: int) -> None:
        for raw in (change.old_raw, change.new_raw):
            if raw is None:
                continue
            if raw.startswith("/") or re.match(r"^[A-Za-z]:[\\/]", raw):
                raise self.fail(index, f"{raw} is an absolute path. Make the diff relative")
            if ".." in raw.split("/"):
                raise self.fail(index, f"{raw} leads outside the tree")
            if "\0" in raw or raw.endswith("/") or "" in raw.split("/"):
                raise self.fail(index, f"{raw!r} is not a file name")
        for mode in (change.old_mode, change.new_mode):
            if mode == "120000":
                raise self.fail(index, "symbolic links are not supported. Leave the link out")
            if mode == "160000":
                raise self.fail(index, "submodules are not supported. Leave it out")
            if mode is not None and mode not in _REGULAR_MODES:
                raise self.fail(index, f"mode {mode} is not that of a regular file")
        created_or_deleted = change.kind in (Kind.CREATE, Kind.DELETE)
        if created_or_deleted and len(change.hunks) > 1:
            raise self.fail(index, "a created or deleted file has more than one hunk")
        if change.kind is Kind.CREATE and change.hunks and change.hunks[0].old_count:
            raise self.fail(index, "a created file has lines on its old side")
        if change.kind is Kind.DELETE and change.hunks and change.hunks[0].new_count:
            raise self.fail(index, "a deleted file has lines on its new side")
        if change.kind is Kind.MODIFY and not change.hunks and change.old_mode == change.new_mode:
            raise self.fail(index, "it changes nothing in this file")

    # -- names ----------------------------------------------------------------------------------

    def file_name(self, index: int) -> str:
        """The name on a `---` or `+++` line, without the timestamp that a tab parts from it."""
        raw = self.lines[index][4:].rstrip(b"\r\n")
        if raw.startswith(b'"'):
            return self.path(index, raw[: _quoted_end(raw)])
        return self.path(index, raw.partition(b"\t")[0].rstrip(b" "))

    def is_epoch(self, index: int) -> bool:
        """GNU diff -N dates a file that is not there at the epoch."""
        stamp = self.lines[index].partition(b"\t")[2]
        return bool(_EPOCH.match(stamp))

    def path(self, index: int, raw: bytes) -> str:
        raw = raw.rstrip(b"\r\n")
        if raw.startswith(b'"'):
            if len(raw) < 2 or not raw.endswith(b'"'):
                raise self.fail(index, "a quoted path does not end")
            raw = self.unquoted(index, raw[1:-1])
        if not raw:
            raise self.fail(index, "a file without a name")
        return _decode(raw)

    def unquoted(self, index: int, raw: bytes) -> bytes:
        """Undo git's C-style quoting (core.quotePath)."""
        out = bytearray()
        position = 0
        while position < len(raw):
            byte = raw[position]
            position += 1
            if byte != ord("\\"):
                out.append(byte)
                continue
            octal = re.match(rb"[0-3][0-7]{2}", raw[position : position + 3])
            if octal:
                out.append(int(octal[0], 8))
                position += 3
            elif position < len(raw) and raw[position] in _ESCAPES:
                out.append(_ESCAPES[raw[position]])
                position += 1
            else:
                raise self.fail(index, "a quoted path holds an escape that git does not write")
        return bytes(out)

    # -- hunks ----------------------------------------------------------------------------------

    def hunks(self, index: int, expected: bool) -> tuple[tuple[Hunk, ...], int]:
        """Every hunk of a file, and the index of the first line behind them."""
        first = index
        headers: list[tuple[int, list[int], bytes]] = []
        fed: list[str] = ["--- a\n", "+++ b\n"]
        while self.at(index).startswith(b"@@ "):
            matched = _HUNK.match(self.lines[index])
            if not matched:
                raise self.fail(index, "this hunk header is malformed")
            counts = [int(group) if group is not None else 1 for group in matched.groups()[:4]]
            fed.append("@@ -{},{} +{},{} @@\n".format(*counts))
            headers.append((index, counts, matched[5] or b""))
            index = self.body(index, counts, fed)
        if expected and index == first:
            raise self.fail(index, "no hunk follows the --- and +++ lines")
        if not headers:
            return (), index
        return self.built(headers, fed), index

    def body(self, header: int, counts: list[int], fed: list[str]) -> int:
        """Take the lines that the counts ask for; add them to what unidiff is fed."""
        old, new = counts[1], counts[3]
        index = header + 1
        changed = False
        if not old and not new:
            raise self.fail(header, "a hunk without lines")
        while old or new:
            if index >= len(self.lines):
                raise self.fail(
                    index - 1,
                    f"the hunk of line {header + 1} is cut off: {old} old and {new} new "
                    "lines are still to come",
                )
            line = self.lines[index]
            op = line[:1]
            if line in (b"\n", b"\r\n"):
                # A blank context line whose space an editor or a mailer took: git reads it so.
                line, op = b" " + line, b" "
            if op == b"\\":
                self.marker(index, header)
                fed.append("\\ No newline at end of file\n")
                index += 1
                continue
            if op not in (b" ", b"-", b"+"):
                raise self.fail(
                    index,
                    f"the hunk of line {header + 1} ends early: {old} old and {new} new "
                    "lines are still to come",
                )
            old -= op != b"+"
            new -= op != b"-"
            changed |= op != b" "
            if old < 0 or new < 0:
                raise self.fail(
                    index, f"the hunk of line {header + 1} holds other lines than its header counts"
                )
            if not line.endswith(b"\n"):
                raise self.fail(
                    index,
                    "the last line does not end: the patch may be cut off. Add the newline "
                    "if it is whole",
                )
            fed.append(line.decode("latin-1"))
            index += 1
        if self.at(index).startswith(b"\\"):
            self.marker(index, header)
            fed.append("\\ No newline at end of file\n")
            index += 1
        if not changed:
            raise self.fail(header, "a hunk that changes nothing")
        self.refuse_overlong(index, header)
        return index

    def marker(self, index: int, header: int) -> None:
        if index == header + 1 or self.lines[index - 1].startswith(b"\\"):
            raise self.fail(index, "a marker for a missing newline without the line it speaks of")

    def refuse_overlong(self, index: int, header: int) -> None:
        line = self.at(index)
        is_header = line.startswith(b"--- ") and self.at(index + 1).startswith(b"+++ ")
        if (
            line[:1] in (b" ", b"+", b"-", b"\\")
            and not is_header
            and (line.rstrip(b"\r\n") != b"-- ")
        ):
            raise self.fail(
                index, f"the hunk of line {header + 1} has more lines than its header counts"
            )

    def built(
        self, headers: list[tuple[int, list[int], bytes]], fed: list[str]
    ) -> tuple[Hunk, ...]:
        """Hunks from unidiff's reading of the lines, held against what was counted here."""
        from unidiff.errors import UnidiffParseError
        from unidiff.patch import PatchSet

        try:
            parsed = PatchSet(fed)
        except UnidiffParseError as error:
            raise self.fail(headers[0][0], f"unidiff refuses it: {error}") from error
        hunks = list(parsed[0]) if len(parsed) == 1 else []
        if len(hunks) != len(headers):
            raise self.fail(headers[0][0], f"unidiff reads {len(hunks)} hunks of {len(headers)}")
        built: list[Hunk] = []
        for (index, counts, heading), hunk in zip(headers, hunks, strict=True):
            ops = bytearray()
            lines: list[bytes] = []
            for line in hunk:
                if line.line_type == "\\":
                    lines[-1] = lines[-1][:-1]
                    continue
                ops.append(ord(line.line_type))
                lines.append(line.value.encode("latin-1"))
            read = [
                hunk.source_start,
                len(ops) - ops.count(b"+"),
                hunk.target_start,
                len(ops) - ops.count(b"-"),
            ]
            if read != counts:
                raise self.fail(index, f"unidiff reads {read} where the header says {counts}")
            built.append(
                Hunk(
                    old_start=counts[0],
                    old_count=counts[1],
                    new_start=counts[2],
                    new_count=counts[3],
                    heading=heading.rstrip(),
                    ops=bytes(ops),
                    lines=tuple(lines),
                    lineno=index + 1,
                )
            )
            self.check_ends(built[-1], index)
        self.check_order(built)
        return tuple(built)

    def check_ends(self, hunk: Hunk, index: int) -> None:
        for side in (hunk.pre, hunk.post):
            if any(not line.endswith(b"\n") for line in side[:-1]):
                raise self.fail(index, "a line in the middle of the file has no newline")

    def check_order(self, hunks: list[Hunk]) -> None:
        end = 0
        for hunk in hunks:
            if hunk.first_line < end:
                raise self.fail(hunk.lineno - 1, "its hunks overlap or are out of order")
            end = hunk.first_line + hunk.old_count


_EXTENDED = (
    "old mode",
    "new mode",
    "deleted file mode",
    "new file mode",
    "copy from",
    "copy to",
    "rename from",
    "rename to",
    "similarity index",
    "dissimilarity index",
)


def _extended_key(line: bytes) -> str | None:
    for key in _EXTENDED:
        if line.startswith(key.encode() + b" "):
            return key
    return None


def _spaces(text: str) -> list[int]:
    return [i for i, character in enumerate(text) if character == " "]


def _quoted_end(raw: bytes) -> int:
    """Index behind the closing quote of the C string that `raw` starts with."""
    position = 1
    while position < len(raw):
        if raw[position : position + 1] == b"\\":
            position += 2
            continue
        if raw[position : position + 1] == b'"':
            return position + 1
        position += 1
    return len(raw)
