"""Read a patch file: where its message ends, where its diff begins, and what is in both.

unidiff would read a diff anywhere, also one that a commit message quotes. So the mail is cut off
first, and only what follows is handed to `unified`.
"""

from __future__ import annotations

import io

from vllm_series.diffs.hunks import HUNK
from vllm_series.diffs.mail import encoding_refusal, split_mail, split_trailers, starts_mail
from vllm_series.diffs.unified import BINARY, ED_COMMAND, DiffParser
from vllm_series.errors import PatchFormatError
from vllm_series.patch import FileChange, Kind, Patch

_BYTE_ORDER_MARKS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")


def parse(text: bytes, name: str) -> Patch:
    """Read a mail-form patch or a bare unified diff.

    Raises PatchFormatError, with the line, for anything that is not understood to the last byte.
    """
    if not text.strip():
        raise PatchFormatError(
            name, 0, "the patch is empty. Make it with git diff or git format-patch."
        )
    if text.startswith(_BYTE_ORDER_MARKS):
        raise PatchFormatError(
            name,
            1,
            "the patch starts with a byte order mark, as PowerShell and some editors write it. "
            "Make it with git diff --output=FILE.",
        )
    lines = io.BytesIO(text).readlines()
    is_mail = starts_mail(lines)
    body_end, start = _find_diff(lines)
    headers, body = split_mail(lines[:body_end], is_mail)
    if reason := encoding_refusal(headers):
        raise PatchFormatError(name, 1, reason)
    message, trailers = split_trailers(body)
    diff = DiffParser(lines, name)
    try:
        files = diff.read(start)
    except PatchFormatError as error:
        if not is_mail or _separator(lines, range(start, len(lines))) is None:
            raise
        raise PatchFormatError(
            name,
            error.line,
            f"{error.reason} If the diff from line {start + 1} on is a part of the message, "
            "indent it: git am and patch would apply it.",
        ) from None
    if not files:
        raise PatchFormatError(name, 0, _why_no_diff(text, lines))
    return Patch(
        name=name,
        text=text,
        headers=headers,
        message=message,
        trailers=trailers,
        files=tuple(files),
        warnings=(*diff.warnings, *_leftovers(files, name)),
    )


def _leftovers(files: list[FileChange], name: str) -> list[str]:
    return [
        f"{name}:{change.lineno}: {change.new_raw} looks like a leftover of patch, and this patch "
        "brings it in. Leave it out with --exclude or make the patch again."
        for change in files
        if change.kind in (Kind.CREATE, Kind.COPY, Kind.RENAME)
        and (change.new_raw or "").endswith((".orig", ".rej"))
    ]


def _find_diff(lines: list[bytes]) -> tuple[int, int]:
    """Index behind the last line of the message, and index of the first line of the diff.

    A line `---` ends the message where it stands before the diff; behind it, up to the diff, is
    commentary that git drops.
    """
    first = next((i for i in range(len(lines)) if _starts_diff(lines, i)), len(lines))
    separator = _separator(lines, range(first))
    return first if separator is None else separator, first


def _separator(lines: list[bytes], among: range) -> int | None:
    """Index of the first line `among` these that ends a message."""
    return next((i for i in among if lines[i].rstrip() == b"---"), None)


def _starts_diff(lines: list[bytes], index: int) -> bool:
    """Whether a diff of any kind starts here; those that are not unified are refused later."""
    line = lines[index]
    head = line[:4]
    if head == b"diff":
        return line.startswith((b"diff --git ", b"diff --cc ", b"diff --combined ")) or (
            line.startswith(b"diff -") and _goes_on(lines, index)
        )
    if head == b"Inde":
        return line.startswith(b"Index: ") and _goes_on(lines, index)
    follower = lines[index + 1] if index + 1 < len(lines) else b""
    if head == b"--- ":
        return follower.startswith(b"+++ ")
    if head == b"*** ":
        return follower.startswith(b"--- ")
    if head[:2] == b"@@":
        return bool(HUNK.match(line)) or line.startswith(b"@@@ -")
    return bool(BINARY.match(line)) or (
        follower.startswith((b"< ", b"> ")) and bool(ED_COMMAND.match(line.rstrip(b"\n")))
    )


def _goes_on(lines: list[bytes], index: int) -> bool:
    """Whether a `diff -u …` or `Index: …` line is followed by what such a line introduces."""
    return any(
        following.startswith((b"--- ", b"*** ", b"===="))
        or ED_COMMAND.match(following.rstrip(b"\n"))
        or BINARY.match(following)
        for following in lines[index + 1 : index + 4]
    )


def _why_no_diff(text: bytes, lines: list[bytes]) -> str:
    if b"\0" in text:
        return "it holds no unified diff but binary data. Make it with git diff --output=FILE."
    if b"\x1b[" in text:
        return "it holds no plain diff but a coloured one. Make it with git diff --no-color."
    if ED_COMMAND.match(lines[0].rstrip(b"\n")):
        return "this is an ed script or a normal diff. Make a unified one with diff -u."
    return "it holds no unified diff. Make one with git diff or git format-patch."
