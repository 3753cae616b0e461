"""The mail around a diff: headers, why-text and trailers, as `git format-patch` writes them.

Rules are git's: a header block ends at the first blank line (RFC 5322), and trailers are the last
paragraph where all its lines are trailers, or some are and git wrote one of them
(git-interpret-trailers(1)).
"""

from __future__ import annotations

import re

MBOX_FROM = re.compile(rb"From \S+ +[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d ")
"""The line in front of every mail of an mbox; git writes a commit id and a fixed date."""

_HEADER = re.compile(r"([!-9;-~]+):[ \t]*(.*)$", re.DOTALL)
_TRAILER = re.compile(r"([A-Za-z0-9-]+)[ \t]*:[ \t]*(.*)$", re.DOTALL)
_BY_GIT = ("Signed-off-by: ", "(cherry picked from commit ")

Pairs = tuple[tuple[str, str], ...]


def starts_mail(lines: list[bytes]) -> bool:
    """Whether the file is a mail: an mbox line, or a block of headers that names who or what."""
    if MBOX_FROM.match(lines[0]):
        return True
    keys = set()
    for line in lines:
        if not line.strip():
            break
        found = _HEADER.match(line.decode("latin-1"))
        if found:
            keys.add(found[1].lower())
        elif line[:1] not in (b" ", b"\t"):
            return False
    return bool(keys & {"from", "subject"})


def split_mail(lines: list[bytes], is_mail: bool) -> tuple[Pairs, str]:
    """Mail headers, unfolded, and the body text; a bare diff's preamble is all body."""
    texts = [line.decode("utf-8", "surrogateescape").rstrip("\r\n") for line in lines]
    if not is_mail:
        return (), "\n".join(texts).strip("\n")
    headers: list[tuple[str, str]] = []
    index = 1 if MBOX_FROM.match(lines[0]) else 0
    while index < len(texts) and texts[index].strip():
        line = texts[index]
        found = _HEADER.match(line)
        if line[:1] in " \t" and headers:
            key, value = headers[-1]
            headers[-1] = (key, f"{value} {line.strip()}".strip())
        elif found:
            headers.append((found[1], found[2].strip()))
        else:
            break
        index += 1
    return tuple(headers), "\n".join(texts[index:]).strip("\n")


def encoding_refusal(headers: Pairs) -> str | None:
    """Why the bytes below these headers are not the diff itself; None where they are.

    git am would decode them first, so read as they stand they would change other text.
    """
    for key, value in headers:
        word = value.lower()
        if key.lower() == "content-transfer-encoding" and word not in ("7bit", "8bit", "binary"):
            return f"the mail is sent as {value}. Decode it with git mailinfo."
        if key.lower() == "content-type" and word.startswith("multipart/"):
            return "the mail has several parts. Take the patch out with git mailinfo."
    return None


def readable(value: str) -> str:
    """A header's text with its encoded words decoded (RFC 2047); git writes non-ASCII text so."""
    if "=?" not in value:
        return value
    from email.errors import HeaderParseError
    from email.header import decode_header, make_header

    try:
        return str(make_header(decode_header(value)))
    except (HeaderParseError, LookupError, UnicodeError, ValueError):
        return value


def split_trailers(body: str) -> tuple[str, Pairs]:
    """The body without its trailers, and the trailers in order, unfolded."""
    lines = body.rstrip().split("\n")
    start = len(lines)
    while start and lines[start - 1].strip():
        start -= 1
    trailers: list[tuple[str, str]] = []
    known = others = 0
    by_git = False
    for line in lines[start:]:
        found = _TRAILER.match(line)
        by_git = by_git or line.startswith(_BY_GIT)
        if found:
            trailers.append((found[1], found[2].strip()))
            known += 1
        elif line.startswith(_BY_GIT):
            known += 1
        elif line[:1] in (" ", "\t") and trailers:
            key, value = trailers[-1]
            trailers[-1] = (key, f"{value} {line.strip()}".strip())
        else:
            others += 1
    if not trailers or (others and not (by_git and known * 3 >= others)):
        return body.strip("\n"), ()
    return "\n".join(lines[:start]).strip("\n"), tuple(trailers)
