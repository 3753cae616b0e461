"""Diffs and mails as they come out of a mailbox, a tracker or a folder of patches.

A mailbox is taken apart where git mailsplit does (git-mailsplit(1)), and a mail is read as
git mailinfo reads it: transfer encodings and parts decoded, headers in the body before those of the
envelope, carriage returns of the transport dropped.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator

from vllm_series.diffs.mail import MBOX_FROM, readable, starts_mail
from vllm_series.diffs.parse import parse
from vllm_series.errors import PatchFormatError
from vllm_series.importing.incoming import Incoming, in_package, named, subject_of, told_apart
from vllm_series.patch import Patch

_MARKS = re.compile(r"^(?:re:\s*|\[[^\]]*\]\s*)+", re.IGNORECASE)
_IN_BODY = re.compile(r"(From|Subject|Date): *(\S.*)")
_DESCRIBED = re.compile(r"(Description|Subject|From|Author|Last-Update|Origin|Forwarded): ")
_HUNK = re.compile(rb"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")


def read_mails(text: bytes, source: str) -> list[Incoming]:
    """The patches of a bare diff, of a mail or of an mbox, in order. `source` is a file's name.

    Raises PatchFormatError where one of them is not understood.
    """
    parts = list(_split(text))
    found = []
    for number, part in enumerate(parts, 1):
        label = source if len(parts) == 1 else f"{source} ({number} of {len(parts)})"
        if len(parts) > 1 and _is_letter(part):
            continue
        found.append(read_mail(part, label))
    if not found:
        raise PatchFormatError(source, 0, "none of its mails holds a diff. Name another file.")
    return told_apart(found)


def read_mail(
    text: bytes, label: str, *, level: int | None = None, reverse: bool = False
) -> Incoming:
    """One patch, whatever its form. `level` is its strip level, None to find out; `reverse` takes
    the patch that undoes it."""
    name, text = _file_name(text), _decoded(text, label)
    read = parse(text, label)
    patch, passed = in_package(read, level)
    if reverse:
        patch = patch.reversed()
    if not read.headers:
        return _bare(name or _of_file(label), patch, passed)
    headers = {key.lower(): value for key, value in read.headers}
    body, inner = _in_body(read.message)
    raw = inner.get("subject", headers.get("subject", ""))
    subject = _MARKS.sub("", readable(raw)).strip()
    kept = [(key, value) for key, value in read.headers if key in ("From", "Date", "Subject")]
    if inner or [key for key, _ in kept] != ["From", "Date", "Subject"]:
        kept = []
    return Incoming(
        name or named(subject),
        patch,
        _author(inner.get("from", headers.get("from"))),
        inner.get("date", headers.get("date")),
        _message(subject, body, read.trailers),
        tuple((key, _plain_mark(value) if key == "Subject" else value) for key, value in kept),
        passed,
        read.base,
    )


def _split(text: bytes) -> Iterator[bytes]:
    """The mails of an mbox; a line that looks like a mail's first one, inside of a hunk, is the
    hunk's."""
    lines = io.BytesIO(text).readlines()
    if not lines or not MBOX_FROM.match(lines[0]):
        yield text
        return
    start = old = new = 0
    for number, line in enumerate(lines):
        if old > 0 or new > 0:
            old -= line[:1] != b"+" and line[:1] != b"\\"
            new -= line[:1] != b"-" and line[:1] != b"\\"
            continue
        if found := _HUNK.match(line):
            old, new = (1 if count is None else int(count) for count in found.groups())
        elif number and MBOX_FROM.match(line):
            yield b"".join(lines[start:number])
            start = number
    yield b"".join(lines[start:])


def _is_letter(text: bytes) -> bool:
    """Whether a mail of an mbox holds no diff at all, such as a cover letter."""
    return not re.search(rb"^(diff --git |--- |Content-Transfer-Encoding: *base64)", text, re.M)


def _decoded(text: bytes, label: str) -> bytes:
    """The mail with its text as it was before the transport."""
    lines = io.BytesIO(text).readlines()
    if not lines or not starts_mail(lines):
        return text
    head, gap = _head(lines)
    if lines[0].endswith(b"\r\n"):
        # The transport's; git am drops them too, unless it is told to keep them.
        text = b"".join(line[:-2] + b"\n" if line.endswith(b"\r\n") else line for line in lines)
        head, gap = _head(io.BytesIO(text).readlines())
    lowered = head.lower()
    if not re.search(
        rb"^content-transfer-encoding: *(base64|quoted-printable)", lowered, re.M
    ) and (b"\ncontent-type: multipart/" not in b"\n" + lowered):
        return text
    from email import message_from_bytes

    mbox = head if MBOX_FROM.match(head) else b""
    mail = message_from_bytes(text[len(mbox.split(b"\n", 1)[0]) + 1 :] if mbox else text)
    parts = [part for part in mail.walk() if part.get_content_maintype() == "text"]
    texts = []
    for part in parts:
        if part.get_content_subtype() == "html":
            continue
        payload = part.get_payload(decode=True)
        if isinstance(payload, bytes):
            texts.append(payload.replace(b"\r\n", b"\n"))
    if not texts:
        raise PatchFormatError(label, 1, "the mail has no part that is text. Name another file.")
    kept = [
        line
        for line in _unfolded(head)
        if not line.lower().startswith((b"content-", b"mime-version"))
    ]
    return b"".join(kept) + gap + b"\n".join(part.rstrip(b"\n") + b"\n" for part in texts)


def _head(lines: list[bytes]) -> tuple[bytes, bytes]:
    """The headers of a mail, and the blank line behind them."""
    end = next((n for n, line in enumerate(lines) if not line.strip()), len(lines))
    return b"".join(lines[:end]), b"".join(lines[end : end + 1])


def _unfolded(head: bytes) -> list[bytes]:
    out: list[bytes] = []
    for line in io.BytesIO(head).readlines():
        if line[:1] in (b" ", b"\t") and out:
            out[-1] += line
        else:
            out.append(line)
    return out


def _file_name(text: bytes) -> str | None:
    """The name that an exported mail carries in its Content-Disposition (RFC 2183)."""
    head = _head(io.BytesIO(text).readlines())[0]
    found = re.search(
        rb'^Content-Disposition: inline; filename="?([A-Za-z0-9._/-]+\.(?:patch|diff))"?\r?$',
        head,
        re.MULTILINE,
    )
    return found[1].decode("ascii") if found else None


def _of_file(label: str) -> str:
    stem = label.rpartition("/")[2]
    for ending in (".patch", ".diff", ".txt", ".mbox", ".eml"):
        stem = stem.removesuffix(ending)
    return named(stem)


def _in_body(message: str) -> tuple[str, dict[str, str]]:
    """The message without the headers that its first lines hold, and these
    (git-format-patch(1), "in-body header")."""
    lines = message.split("\n")
    found = {}
    at = 0
    while at < len(lines) and (match := _IN_BODY.fullmatch(lines[at])):
        found[match[1].lower()] = match[2].strip()
        at += 1
    if not found or (at < len(lines) and lines[at].strip()):
        return message, {}
    return "\n".join(lines[at:]).strip("\n"), found


def _author(header: str | None) -> str | None:
    """`Name <mail>` of a From header, quoted and encoded as it came."""
    if header is None:
        return None
    if re.fullmatch(r"\S.* <[^<>]+>", header):
        return header
    from email.utils import parseaddr

    name, mail = parseaddr(header)
    return f"{name or mail} <{mail}>" if mail else None


def _plain_mark(subject: str) -> str:
    """The subject as it came, with a plain `[PATCH]` in place of any marks."""
    if _MARKS.match(readable(subject)) and not _MARKS.match(subject):
        return subject  # the marks are within an encoded word
    return f"[PATCH] {_MARKS.sub('', subject)}"


def _message(subject: str, body: str, trailers: tuple[tuple[str, str], ...]) -> str:
    told = "\n".join(f"{key}: {value}" for key, value in trailers)
    return "\n\n".join(part for part in (subject, body, told) if part)


def _bare(name: str, patch: Patch, passed: tuple[str, ...]) -> Incoming:
    """A diff without a mail's head; the text above it may be DEP-3's (dep-team.debian.net)."""
    above = patch.text.decode("utf-8", "surrogateescape").split("\n")
    lines = [line.rstrip() for line in above[: max(0, patch.files[0].lineno - 1)]]
    if "---" in lines:
        lines = lines[: lines.index("---")]
    text = "\n".join(line for line in lines if not _DIFF_COMMAND.match(line)).strip("\n")
    if shown := _SHOWN.match(text + "\n"):
        author, when, message = shown.groups()
        return Incoming(name, patch, author, _mail_date(when), _dedented(message), (), passed)
    head, _, rest = text.partition("\n\n")
    fields = _fields(head)
    if not fields:
        subject, body = subject_of(text)
        message = _message(subject, body, ()) if subject else ""
        return Incoming(name, patch, None, None, message, (), passed, patch.base)
    described = fields.pop("description", "") or fields.pop("subject", "")
    author = fields.pop("author", None) or fields.pop("from", None)
    for key in ("subject", "from"):
        fields.pop(key, None)
    # The first line of a description is its synopsis, what follows the long one.
    synopsis, _, long = described.partition("\n")
    body = "\n\n".join(part for part in (long.strip("\n"), rest.strip("\n")) if part)
    subject = " ".join(synopsis.split())
    trailers = tuple(
        ("-".join(map(str.capitalize, key.split("-"))), value)
        for key, value in fields.items()
        if value and "\n" not in value
    )
    message = _message(subject, body, trailers) if subject else ""
    return Incoming(name, patch, _author(author), None, message, (), passed, patch.base)


_SHOWN = re.compile(
    r"commit [0-9a-f]{7,40}.*\n(?:Merge: .*\n)?Author: +(\S.* <.*>)\nDate: +(.*)\n\n"
    r"((?:    .*\n|\n)+)"
)
"""The head of what `git show` and `git log -p` print (git-log(1), "medium")."""


def _mail_date(text: str) -> str | None:
    """The date of a mail by git's own way of writing one (`Tue Dec 1 10:00:00 2026 +0100`)."""
    from datetime import datetime

    try:
        when = datetime.strptime(text, "%a %b %d %H:%M:%S %Y %z")
    except ValueError:
        return None
    return when.strftime(f"%a, {when.day} %b %Y %H:%M:%S %z")


def _dedented(text: str) -> str:
    return "\n".join(line.removeprefix("    ") for line in text.split("\n")).strip("\n")


def _fields(paragraph: str) -> dict[str, str]:
    """The fields of a DEP-3 header by their names in lower case; none where it is other text."""
    if not _DESCRIBED.match(paragraph):
        return {}
    fields: dict[str, str] = {}
    last = ""
    for line in paragraph.split("\n"):
        key, colon, value = line.partition(":")
        if line[:1] in " \t" and last:
            fields[last] += "\n" + ("" if line.strip() == "." else line.strip())
        elif colon and re.fullmatch(r"[A-Za-z-]+", key):
            last = key.lower()
            fields[last] = value.strip()
        else:
            return {}
    return fields


_DIFF_COMMAND = re.compile(r"(diff|Only in|Index:|Binary files) ")
