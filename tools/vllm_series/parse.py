"""Read a patch file: where its message ends, where its diff begins, and what is in both.

unidiff would read a diff anywhere, also one that a commit message quotes. So the mail is cut off
first, and only what follows is handed to `unified`.
"""

from __future__ import annotations

import io

from vllm_series.errors import PatchFormatError
from vllm_series.mail import MAIL_START, split_mail, split_trailers
from vllm_series.patch import Kind, Patch
from vllm_series.unified import ED_COMMAND, DiffParser


def parse(text: bytes, name: str) -> Patch:
    """Read a mail-form patch or a bare unified diff.

    Raises PatchFormatError, with the line, for anything that is not understood to the last byte.
    """
    lines = io.BytesIO(text).readlines()
    if not text.strip():
        raise PatchFormatError(name, 0, "the patch is empty")
    is_mail = bool(MAIL_START.match(lines[0]))
    start, body_start, warnings = _find_diff(lines, name, is_mail)
    headers, body = split_mail(lines[:body_start], is_mail)
    message, trailers = split_trailers(body)
    files = DiffParser(lines, name).read(start)
    if not files:
        raise PatchFormatError(
            name, 0, "it holds no unified diff. Make one with git diff or git format-patch"
        )
    for change in files:
        path = change.new_raw or change.old_raw or ""
        if change.kind is Kind.CREATE and path.endswith((".orig", ".rej")):
            warnings.append(f"{name}: {path} looks like a leftover of patch; it is a whole file")
    return Patch(
        name=name,
        text=text,
        headers=headers,
        message=message,
        trailers=trailers,
        files=tuple(files),
        warnings=tuple(warnings),
    )


def _find_diff(lines: list[bytes], name: str, is_mail: bool) -> tuple[int, int, list[str]]:
    """Index of the first line of the diff, index of the end of the message, warnings."""
    warnings: list[str] = []
    separator = None
    if is_mail:
        separator = next((i for i, line in enumerate(lines) if line.rstrip() == b"---"), None)
    first = next((i for i, line in enumerate(lines) if _starts_diff(lines, i)), None)
    if separator is None:
        end = len(lines) if first is None else first
        return end, end, warnings
    if first is not None and first < separator:
        if _parses(lines, first):
            # A diff right behind the mail header; the `---` is a line `--` that it removes.
            return first, first, warnings
        warnings.append(
            f"{name}:{first + 1}: the message holds a diff, which git am and patch would apply. "
            "Indent it"
        )
    start = separator + 1
    while start < len(lines) and not _starts_diff(lines, start):
        start += 1
    return start, separator, warnings


def _parses(lines: list[bytes], start: int) -> bool:
    try:
        DiffParser(lines, "").read(start)
    except PatchFormatError:
        return False
    return True


def _starts_diff(lines: list[bytes], index: int) -> bool:
    line = lines[index]
    if line.startswith((b"diff --git ", b"diff -", b"Index: ")):
        return line.startswith(b"diff --git ") or any(
            following.startswith((b"--- ", b"*** ", b"===")) or ED_COMMAND.match(following.rstrip())
            for following in lines[index + 1 : index + 3]
        )
    follower = lines[index + 1] if index + 1 < len(lines) else b""
    if line.startswith(b"--- "):
        return follower.startswith(b"+++ ")
    if line.startswith(b"*** "):
        return follower.startswith(b"--- ")
    return line.startswith((b"@@ -", b"GIT binary patch", b"Binary files "))
