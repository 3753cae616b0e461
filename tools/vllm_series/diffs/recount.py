"""Line counts of a diff that was edited by hand, put right where that cannot be wrong.

An editor that takes a line out of a hunk leaves its header as it was. As `git apply --recount` does
(git-apply(1)), the counts are taken from the body; but where a line could belong to the hunk or to
what follows it, git's answer is a guess, and here it is a refusal.
"""

from __future__ import annotations

import io
import re

from vllm_series.errors import PatchFormatError

_HEADER = re.compile(rb"@@ -(\d+)(?:,\d+)? \+\d+(?:,\d+)? @@(.*\n?)", re.DOTALL)
_ADVICE = "Make the diff again with git diff."


def recounted(text: bytes, name: str) -> bytes:
    """The patch with counts and new line numbers as its hunks' bodies have them.

    The old line numbers stay: they say where each hunk starts. Raises PatchFormatError where it
    cannot be told how far a hunk goes: in a diff without `diff --git` lines, and at a line that is
    neither of a hunk nor the start of what may follow one.
    """
    lines = io.BytesIO(text).readlines()
    start = next((n for n, line in enumerate(lines) if line.startswith(b"diff --git ")), None)
    if start is None:
        raise PatchFormatError(
            name, 0, "without diff --git lines it cannot be told where a hunk ends. " + _ADVICE
        )
    out = lines[:start]
    at = start
    shift = 0
    while at < len(lines):
        line = lines[at]
        if line.startswith(b"diff --git "):
            shift = 0
        header = _HEADER.fullmatch(line)
        if not header:
            out.append(line)
            at += 1
            continue
        end = _end(lines, at + 1, name)
        old, new = _counts(lines[at + 1 : end])
        first = int(header[1])
        second = first + shift + (old == 0) - (new == 0)
        shift += new - old
        out.append(b"@@ -%s +%s @@%s" % (_span(first, old), _span(second, new), header[2]))
        out += [line if line.strip(b"\r\n") else b" " + line for line in lines[at + 1 : end]]
        at = end
    return b"".join(out)


def _end(lines: list[bytes], at: int, name: str) -> int:
    """The index behind the last line of the hunk whose body starts at index `at`."""
    while at < len(lines):
        line = lines[at]
        if line.startswith((b"@@ -", b"diff --git ")):
            return at
        if line[:1] not in b" +-\\\n\r" or line == b"":
            raise PatchFormatError(
                name,
                at + 1,
                "this line has no sign, so it cannot be told whether it belongs to the hunk. "
                "Put a space, + or - in front of it, or take it out.",
            )
        if not line.strip(b"\r\n") and not _goes_on(lines, at):
            return at
        if line == b"-- \n" and not any(
            follower.startswith((b"@@ -", b"diff --git ")) for follower in lines[at + 1 :]
        ):
            raise PatchFormatError(
                name,
                at + 1,
                "this line may be the last of the hunk or the signature of a mail. "
                "Take the signature out (git format-patch --no-signature).",
            )
        at += 1
    return at


def _goes_on(lines: list[bytes], at: int) -> bool:
    """Whether an empty line, which an editor may have stripped, stands between lines of a hunk."""
    following = next((line for line in lines[at:] if line.strip(b"\r\n")), b"")
    return following[:1] in (b" ", b"+", b"-", b"\\")


def _counts(body: list[bytes]) -> tuple[int, int]:
    signs = [line[:1] for line in body]
    context = sum(sign not in (b"+", b"-", b"\\") for sign in signs)
    return context + signs.count(b"-"), context + signs.count(b"+")


def _span(start: int, count: int) -> bytes:
    return b"%d" % start if count == 1 else b"%d,%d" % (start, count)
