"""The mail around a diff: headers, why-text and trailers, as `git format-patch` writes them.

Rules are git's: a header block ends at the first blank line (RFC 5322), trailers are the last
paragraph when every line of it is `Key: value` or folds the one before (git-interpret-trailers).
"""

from __future__ import annotations

import re

MAIL_START = re.compile(rb"^(From [0-9a-f]{40} |(From|Subject|Date|Message-ID|MIME-Version): )")
MBOX_FROM = re.compile(rb"^From [0-9a-f]{40} ")
_HEADER = re.compile(r"^([A-Za-z][A-Za-z0-9-]*):[ \t]*(.*)$")
_TRAILER = re.compile(r"^([A-Za-z][A-Za-z0-9-]*)[ \t]*:[ \t]*(.*)$")


def split_mail(lines: list[bytes], is_mail: bool) -> tuple[tuple[tuple[str, str], ...], str]:
    """Mail headers, unfolded, and the body text; a bare diff's preamble is all body."""
    texts = [line.decode("utf-8", "surrogateescape").rstrip("\r\n") for line in lines]
    if not is_mail:
        return (), "\n".join(texts)
    headers: list[tuple[str, str]] = []
    index = 1 if texts[0].startswith("From ") else 0
    while index < len(texts) and texts[index].strip():
        line = texts[index]
        found = _HEADER.match(line)
        if line[:1] in " \t" and headers:
            key, value = headers[-1]
            headers[-1] = (key, f"{value} {line.strip()}")
        elif found:
            headers.append((found[1], found[2].strip()))
        else:
            break
        index += 1
    return tuple(headers), "\n".join(texts[index:]).strip("\n")


def split_trailers(body: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """The last paragraph is trailers when every line of it is one (or folds the one before)."""
    paragraphs = body.rstrip().rsplit("\n\n", 1)
    last = paragraphs[-1].splitlines()
    trailers: list[tuple[str, str]] = []
    for line in last:
        found = _TRAILER.match(line)
        if found:
            trailers.append((found[1], found[2].strip()))
        elif line[:1] in (" ", "\t") and trailers:
            key, value = trailers[-1]
            trailers[-1] = (key, f"{value} {line.strip()}")
        else:
            return body.strip("\n"), ()
    if not trailers:
        return body.strip("\n"), ()
    message = paragraphs[0] if len(paragraphs) == 2 else ""
    return message.strip("\n"), tuple(trailers)
