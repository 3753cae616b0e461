"""The unified diff of a patch, section by section: one file each, understood to its last byte.

Every line is used for exactly one purpose or refused; names are read by `paths`, hunks by `hunks`.
Extended headers are those of git-diff(1), "Generating patch text with -p".
"""

from __future__ import annotations

import re

from vllm_series.diffs import paths
from vllm_series.diffs.hunks import HUNK, Source, read_hunks, starts_signature
from vllm_series.diffs.mail import MBOX_FROM
from vllm_series.diffs.paths import DEV_NULL, decoded
from vllm_series.errors import PatchFormatError
from vllm_series.patch import FileChange, Kind

ED_COMMAND = re.compile(rb"\d+(,\d+)?[acd]\d*(,\d+)?\r?$")
BINARY = re.compile(rb"GIT binary patch\r?$|Binary files? .+ (differ|has changed)\r?$")
_INDEX = re.compile(rb"index ([0-9a-f]{4,64})\.\.([0-9a-f]{4,64})(?: (\d+))?$")
_NOISE = re.compile(
    rb"Index: |=====|diff -|\r?$|(base-commit|prerequisite-patch-id): [0-9a-f]{40,64}\r?$"
)
"""What tools write between files: svn's and quilt's `Index:`, diff's own command, blank lines, and
the lines of git format-patch --base."""
_ONLY_IN = re.compile(rb"Only in .+: .+")
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
_KIND_KEYS = {
    "new file mode": Kind.CREATE,
    "deleted file mode": Kind.DELETE,
    "rename from": Kind.RENAME,
    "rename to": Kind.RENAME,
    "copy from": Kind.COPY,
    "copy to": Kind.COPY,
}
_REGULAR_MODES = {"100644", "100755"}


class DiffParser:
    """Reads the files of a diff; `warnings` gathers what is odd and yet understood."""

    def __init__(self, lines: list[bytes], name: str) -> None:
        self.source = Source(lines, name)
        self.lines = lines
        self.warnings: list[str] = []

    def fail(self, index: int, reason: str) -> PatchFormatError:
        """The error for a 0-based line, to be raised by the caller."""
        return self.source.fail(index, reason)

    def read(self, start: int) -> list[FileChange]:
        """Every file from a 0-based line on, to the end of the patch."""
        files: list[FileChange] = []
        index = start
        while index < len(self.lines):
            if self.lines[index].startswith(b"diff --git "):
                change, index = self.git_section(index)
                files.append(change)
            elif self.source.starts_file(index):
                change, index = self.plain_section(index)
                files.append(change)
            elif starts_signature(self.source, index):
                index = self.signature(index)
            else:
                self.refuse_or_pass(index, bool(files))
                index += 1
        return files

    def signature(self, index: int) -> int:
        """A mail signature runs to the end of the file; what looks like a diff is none."""
        for later in range(index + 1, len(self.lines)):
            line = self.lines[later]
            if MBOX_FROM.match(line):
                raise self.several(later)
            if line.startswith((b"+", b"-", b"@@", b"\\", b"diff ", b"Index: ")) or (
                line.startswith(b" ") and later == index + 1
            ):
                raise self.fail(
                    later, f"text of a diff behind the signature of line {index + 1}. Take it out."
                )
        return len(self.lines)

    def several(self, index: int) -> PatchFormatError:
        """The error for a second mail at a 0-based line."""
        return self.fail(index, "a second mail starts here. Split the mbox with git mailsplit.")

    def refuse_or_pass(self, index: int, after_file: bool) -> None:
        """Refuse a line that no file claims; pass what tools write between files."""
        line = self.lines[index]
        if MBOX_FROM.match(line):
            raise self.several(index)
        if line.startswith(b"*** ") and self.source.at(index + 1).startswith(b"--- "):
            raise self.fail(index, "this is a context diff. Make a unified one with diff -u.")
        if line.startswith((b"@@@ ", b"diff --cc ", b"diff --combined ")):
            raise self.fail(index, "this is a merge's combined diff. Use git diff A B.")
        if BINARY.match(line):
            raise self.fail(index, "binary changes are not supported. Leave the file out.")
        if HUNK.match(line):
            raise self.fail(
                index, "a hunk without the --- and +++ lines of its file. Make the patch again."
            )
        if ED_COMMAND.match(line.rstrip(b"\n")):
            raise self.fail(
                index, "this is an ed script or a normal diff. Make a unified one with diff -u."
            )
        if _ONLY_IN.match(line):
            self.warnings.append(
                f"{self.source.name}:{index + 1}: {_quote(line)}: diff left that file out. "
                "Make the diff with -N."
            )
        elif not _NOISE.match(line):
            where = "after a hunk" if after_file else "where a diff should start"
            raise self.fail(index, f"stray text {where}: {_quote(line)}. Take it out.")

    # -- sections -------------------------------------------------------------------------------

    def git_section(self, index: int) -> tuple[FileChange, int]:
        """The file change whose `diff --git` line stands here, and the index behind it."""
        first = index
        words = self.lines[index][len(b"diff --git ") :].rstrip(b"\r\n")
        extended, index = self.extended_headers(index + 1)
        line = self.source.at(index)
        if BINARY.match(line):
            raise self.fail(index, "binary changes are not supported. Leave the file out.")
        has_lines = line.startswith(b"--- ")
        old_raw: str | None = None
        new_raw: str | None = None
        if has_lines:
            if not self.source.starts_file(index):
                raise self.fail(index + 1, "a --- line without its +++ line. Make the patch again.")
            old_raw, _ = self.file_line(index, dated=False)
            new_raw, _ = self.file_line(index + 1, dated=False)
            index += 2
        elif HUNK.match(line):
            raise self.fail(
                index, "a hunk without the --- and +++ lines of its file. Make the patch again."
            )
        kind = self.git_kind(first, extended, old_raw, new_raw)
        try:
            head_old, head_new = paths.of_git_line(
                words,
                None if old_raw == DEV_NULL else old_raw,
                None if new_raw == DEV_NULL else new_raw,
                _moved(extended),
            )
        except ValueError as error:
            raise self.fail(first, str(error)) from None
        hunks, index = read_hunks(self.source, index) if has_lines else ((), index)
        if has_lines and not hunks:
            raise self.fail(index, "no hunk follows the --- and +++ lines. Make the patch again.")
        change = FileChange(
            kind=kind,
            old_raw=None if kind is Kind.CREATE else head_old,
            new_raw=None if kind is Kind.DELETE else head_new,
            hunks=hunks,
            old_id=extended.get("old id"),
            new_id=extended.get("new id"),
            old_mode=extended.get("deleted file mode", extended.get("old mode")),
            new_mode=extended.get("new file mode", extended.get("new mode")),
            lineno=first + 1,
            similarity=self.percentage(first, extended.get("similarity index")),
        )
        self.check(change, first)
        return change, index

    def extended_headers(self, index: int) -> tuple[dict[str, str], int]:
        """git's lines between `diff --git` and `---`, by their keys."""
        extended: dict[str, str] = {}
        while index < len(self.lines):
            line = self.lines[index].rstrip(b"\r\n")
            found: dict[str, str] = {}
            if matched := _INDEX.match(line):
                found = {"old id": matched[1].decode(), "new id": matched[2].decode()}
                if matched[3] and "old mode" not in extended:
                    found |= dict.fromkeys(("old mode", "new mode"), matched[3].decode())
            elif (key := _extended_key(line)) is not None:
                rest = line[len(key) + 1 :]
                if key.startswith(("rename ", "copy ")):
                    found = {key: self.name(index, rest)}
                else:
                    found = {key: decoded(rest).strip()}
            else:
                break
            for key in found:
                if key in extended:
                    raise self.fail(
                        index, f"this file has two lines that give its {key}. Make the patch again."
                    )
            if not self.lines[index].endswith(b"\n"):
                raise self.fail(
                    index,
                    "the last line does not end: the patch may be cut off. Make the patch again.",
                )
            extended |= found
            index += 1
        return extended, index

    def percentage(self, index: int, text: str | None) -> int | None:
        """A similarity of 0 to 100, None where none is given."""
        if text is None:
            return None
        if not re.fullmatch(r"(\d{1,2}|100)%", text, re.ASCII):
            raise self.fail(
                index, f"similarity index {text} is no percentage. Make the patch again."
            )
        return int(text[:-1])

    def git_kind(
        self, first: int, extended: dict[str, str], old_raw: str | None, new_raw: str | None
    ) -> Kind:
        """What the extended headers and the /dev/null names say, all of which must agree."""
        kinds = {kind for key, kind in _KIND_KEYS.items() if key in extended}
        if len(kinds) > 1:
            words = " and ".join(sorted(kind.value for kind in kinds))
            raise self.fail(
                first, f"its headers contradict each other: {words}. Make the patch again."
            )
        if old_raw == new_raw == DEV_NULL:
            raise self.fail(first, "both sides are /dev/null. Make the patch again.")
        implied = (
            Kind.CREATE if old_raw == DEV_NULL else Kind.DELETE if new_raw == DEV_NULL else None
        )
        kind = next(iter(kinds), implied or Kind.MODIFY)
        if implied not in (None, kind):
            side = "old" if implied is Kind.CREATE else "new"
            raise self.fail(
                first,
                f"the {side} side is /dev/null, yet the file is not {_PAST[implied]}. "
                "Make the patch again.",
            )
        if kind is Kind.CREATE and old_raw not in (None, DEV_NULL):
            raise self.fail(
                first, "a created file has an old side other than /dev/null. Make the patch again."
            )
        if kind is Kind.DELETE and new_raw not in (None, DEV_NULL):
            raise self.fail(
                first, "a deleted file has a new side other than /dev/null. Make the patch again."
            )
        if kind in (Kind.RENAME, Kind.COPY):
            moved = _moved(extended)
            if moved is None:
                raise self.fail(
                    first,
                    f"a {kind.value} needs both its names, from and to. Make the patch again.",
                )
            if moved[0] == moved[1]:
                raise self.fail(
                    first,
                    f"a {kind.value} of {moved[0]} to itself. Take the file out of the patch.",
                )
        if ("old mode" in extended) != ("new mode" in extended):
            raise self.fail(
                first, "a mode change needs both modes, old and new. Make the patch again."
            )
        return kind

    def plain_section(self, index: int) -> tuple[FileChange, int]:
        """A file without a `diff --git` line, as diff, svn and quilt write it."""
        first = index
        before = self.lines[index - 1].rstrip(b"\r\n") if index else b""
        if _INDEX.match(before) or _extended_key(before):
            raise self.fail(
                index - 1, "a header of git without its diff --git line. Make the patch again."
            )
        (old_raw, old_stamp), (new_raw, new_stamp) = (
            self.file_line(index, dated=True),
            self.file_line(index + 1, dated=True),
        )
        if old_raw == new_raw == DEV_NULL:
            raise self.fail(first, "both sides are /dev/null. Make the patch again.")
        hunks, index = read_hunks(self.source, index + 2)
        if not hunks:
            raise self.fail(index, "no hunk follows the --- and +++ lines. Make the patch again.")
        kind = Kind.MODIFY
        only = hunks[0] if len(hunks) == 1 else None
        if old_raw == DEV_NULL or (paths.is_epoch(old_stamp) and only and not only.old_count):
            kind = Kind.CREATE
        elif new_raw == DEV_NULL or (paths.is_epoch(new_stamp) and only and not only.new_count):
            kind = Kind.DELETE
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
        """Refuse names, modes and hunks that no change of its kind can have."""
        for raw in (change.old_raw, change.new_raw):
            if raw is not None and (reason := paths.refusal(raw)):
                raise self.fail(index, reason)
        for mode in (change.old_mode, change.new_mode):
            if mode == "120000":
                raise self.fail(index, "symbolic links are not supported. Leave the link out.")
            if mode == "160000":
                raise self.fail(index, "submodules are not supported. Leave it out.")
            if mode is not None and mode not in _REGULAR_MODES:
                raise self.fail(
                    index, f"mode {mode} is not that of a regular file. Leave the file out."
                )
        match change.kind:
            case Kind.CREATE | Kind.DELETE if len(change.hunks) > 1:
                raise self.fail(
                    index, "a created or deleted file has more than one hunk. Make the patch again."
                )
            case Kind.CREATE if change.hunks and change.hunks[0].old_count:
                raise self.fail(
                    index, "a created file has lines on its old side. Make the patch again."
                )
            case Kind.DELETE if change.hunks and change.hunks[0].new_count:
                raise self.fail(
                    index, "a deleted file has lines on its new side. Make the patch again."
                )
            case Kind.MODIFY if not change.hunks and change.old_mode == change.new_mode:
                raise self.fail(
                    index, "it changes nothing in this file. Take the file out of the patch."
                )

    # -- names ----------------------------------------------------------------------------------

    def name(self, index: int, raw: bytes) -> str:
        """A path of an extended header, unquoted. Raises PatchFormatError for a malformed one."""
        try:
            return paths.plain(raw)
        except ValueError as error:
            raise self.fail(index, str(error)) from None

    def file_line(self, index: int, *, dated: bool) -> tuple[str, bytes]:
        """The path and time stamp of a `---` or `+++` line. Raises PatchFormatError."""
        try:
            return paths.of_file_line(self.lines[index], dated=dated)
        except ValueError as error:
            raise self.fail(index, str(error)) from None


_PAST = {Kind.CREATE: "created", Kind.DELETE: "deleted"}


def _moved(extended: dict[str, str]) -> tuple[str, str] | None:
    """The names of the `rename` or `copy` lines; None where one is missing."""
    for verb in ("rename", "copy"):
        old, new = extended.get(f"{verb} from"), extended.get(f"{verb} to")
        if old is not None and new is not None:
            return old, new
    return None


def _extended_key(line: bytes) -> str | None:
    for key in _EXTENDED:
        if line.startswith(key.encode() + b" "):
            return key
    return None


def _quote(line: bytes) -> str:
    return repr(line.rstrip().decode("utf-8", "backslashreplace")[:60])
