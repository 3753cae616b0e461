"""From a file's texts before and after to a patch of ours, in its one form.

The hunks are git's own (its diff is what `git format-patch` writes); the section headings are ours,
looked up in the texts. What a mail cannot carry as it stands is refused here rather than read
differently by whoever applies it: a message with a diff in it, a line that ends it, binary files.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from vllm_series.diffs.canonical import written
from vllm_series.diffs.mail import MBOX_FROM, split_trailers
from vllm_series.diffs.parse import parse
from vllm_series.errors import PatchFormatError, RefusedError
from vllm_series.heading import headings_of
from vllm_series.patch import FileChange, Kind, Patch

Texts = Mapping[str, "bytes | None"]
"""Files by path, None (or no entry) where there is none."""
Modes = Mapping[str, str]
"""git's modes ("100755") by path; a file that is not among them is a plain one ("100644")."""

_PLAIN = "100644"
_NO_MODES: Modes = {}
_TRAILER_KEY = re.compile(r"[A-Za-z0-9-]+")
_IN_BODY = re.compile(r"(>?From|Subject|Date|MIME-Version|Content-[A-Za-z-]+)\b *:", re.IGNORECASE)
"""What git-mailinfo(1) would take for a header when it is the message's first line."""
_MIME = (
    ("MIME-Version", "1.0"),
    ("Content-Type", "text/plain; charset=UTF-8"),
    ("Content-Transfer-Encoding", "8bit"),
)
"""What git format-patch says of a mail that is not ASCII."""


@dataclass(frozen=True, slots=True)
class PatchMeta:
    """What a patch says beside its diff. `author` is `Name <mail>`, `date` a mail's; `subject` is
    one line without `[PATCH]`, `message` the why-text without subject and trailers."""

    name: str
    author: str
    date: str
    subject: str
    message: str
    trailers: tuple[tuple[str, str], ...] = ()


def compose(
    meta: PatchMeta,
    before: Texts,
    after: Texts,
    base: str,
    *,
    diff: bytes | None = None,
    modes: tuple[Modes, Modes] = (_NO_MODES, _NO_MODES),
) -> Patch:
    """A patch that makes `after` of `before`, the files of release `base`.

    `diff` is git's diff of the two, where the caller has it; `modes` are those before and after.
    The message is cleaned as git cleans one (git-stripspace(1)). Raises RefusedError where nothing
    is changed, and where a text cannot be carried by a patch; it says which.
    """
    return refreshed(blank(meta), before, after, base, diff=diff, modes=modes)


def blank(meta: PatchMeta) -> Patch:
    """A patch that says what it is to say and changes nothing yet; `refreshed` gives it its text.

    Raises RefusedError as `compose` does.
    """
    subject = " ".join(meta.subject.split())
    message = _cleaned(meta.message)
    _refuse_message(meta.name, subject, message, meta.trailers)
    headers = [
        ("From", _address(meta.author)),
        ("Date", meta.date),
        ("Subject", f"[PATCH] {_word(subject)}"),
    ]
    if not (message + "".join(value for _, value in meta.trailers)).isascii():
        headers += _MIME
    return Patch(meta.name, b"", tuple(headers), message, meta.trailers, ())


def refreshed(
    patch: Patch,
    before: Texts,
    after: Texts,
    base: str,
    *,
    diff: bytes | None = None,
    modes: tuple[Modes, Modes] = (_NO_MODES, _NO_MODES),
    last_update: str | None = None,
) -> Patch:
    """The same patch with the changes that make `after` of `before`, on release `base`.

    Headers, message and trailers stay, but for `Base:` and, where `last_update` gives a day
    (`2026-12-01`), `Last-Update:`. Raises RefusedError as `compose` does.
    """
    if diff is None:
        diff = _diff(before, after, modes)
    if not diff:
        raise RefusedError(f"nothing is changed: {patch.name} would be empty. Edit a file first.")
    try:
        changes = parse(diff, patch.name).files
    except PatchFormatError as error:
        raise RefusedError(
            f"what {patch.name} is to hold cannot be a patch: {error.reason}"
        ) from error
    trailers = with_trailer(patch.trailers, "Base", f"vllm {base}")
    if last_update is not None:
        trailers = with_trailer(trailers, "Last-Update", last_update)
    files = tuple(_headed(change, before, after) for change in changes)
    text = written(replace(patch, trailers=trailers, files=files))
    return parse(text, patch.name)


def retold(patch: Patch, meta: PatchMeta) -> Patch:
    """The patch with another subject, why-text and trailers; author and date stay. `text` is that
    of before until it is `refreshed`. Raises RefusedError as `compose` does."""
    subject, message = " ".join(meta.subject.split()), _cleaned(meta.message)
    _refuse_message(patch.name, subject, message, meta.trailers)
    headers = tuple(
        (key, f"[PATCH] {_word(subject)}" if key.lower() == "subject" else value)
        for key, value in patch.headers
    )
    return replace(patch, headers=headers, message=message, trailers=meta.trailers)


def with_trailer(
    trailers: Sequence[tuple[str, str]], key: str, value: str
) -> tuple[tuple[str, str], ...]:
    """The trailers with one set: in its place where it is there, else `Base` first and any other
    last."""
    if any(name.lower() == key.lower() for name, _ in trailers):
        return tuple(
            (name, value if name.lower() == key.lower() else old) for name, old in trailers
        )
    return ((key, value), *trailers) if key == "Base" else (*trailers, (key, value))


def _headed(change: FileChange, before: Texts, after: Texts) -> FileChange:
    old, new = change.paths(1)
    if change.kind in (Kind.CREATE, Kind.DELETE) or old is None or new is None:
        return replace(change, hunks=tuple(replace(hunk, heading=b"") for hunk in change.hunks))
    headings = headings_of(change.hunks, before.get(old) or b"", after.get(new) or b"", new)
    return replace(
        change,
        hunks=tuple(
            replace(hunk, heading=heading)
            for hunk, heading in zip(change.hunks, headings, strict=True)
        ),
    )


def _cleaned(message: str) -> str:
    """Without white space at line ends, blank lines at both ends, and all but one between."""
    lines = [line.rstrip() for line in message.splitlines()]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n")


def _refuse_message(
    name: str, subject: str, message: str, trailers: Sequence[tuple[str, str]]
) -> None:
    """Refuse what git am or a reader of the patch would take for something else than it is."""
    if not subject:
        raise RefusedError(f"{name} has no subject. Say in one line what it does.")
    for key, value in trailers:
        if not _TRAILER_KEY.fullmatch(key) or "\n" in value or value != value.strip():
            raise RefusedError(
                f"{key}: {value!r} is not a trailer. Write a word, a colon and one line."
            )
    first = message.partition("\n")[0]
    if _IN_BODY.match(first) or first.startswith("[PATCH"):
        raise RefusedError(
            f"the why-text of {name} starts with {first!r}, which git am would take for a header. "
            "Start it with other words."
        )
    for line in message.split("\n"):
        if MBOX_FROM.match(line.encode("utf-8", "surrogateescape")):
            raise RefusedError(
                f"the why-text of {name} holds {line!r}, at which git am would start another mail. "
                "Indent that line."
            )
    diff = b"diff --git a/vllm/x b/vllm/x\nold mode 100644\nnew mode 100755\n"
    wanted = (*trailers, ("Base", "vllm 0"))
    blank = Patch(name, b"", (("From", "x <x@x>"),), message, wanted, ())
    try:
        read = parse(written(blank) + diff, name)
    except PatchFormatError as error:
        raise RefusedError(
            f"the why-text of {name} cannot be told from a diff: {error.reason} Indent that part."
        ) from error
    if read.message != message or read.trailers != wanted or len(read.files) != 1:
        raise RefusedError(
            f"the why-text of {name} has a line that ends it early (`---`, or the start of a diff)."
            " Indent that line."
        )


def split_message(text: str) -> tuple[str, str, tuple[tuple[str, str], ...]]:
    """Subject, why-text and trailers of a commit message, as git tells them apart: the subject is
    the first paragraph, in one line."""
    head, _, body = _cleaned(text).partition("\n\n")
    message, trailers = split_trailers(body)
    return " ".join(head.split()), message, trailers


def _address(author: str) -> str:
    """`Name <mail>` as a header has it, quoted or encoded where that is needed (RFC 5322)."""
    from email.utils import formataddr

    name, mark, mail = author.rpartition(" <")
    if not mark or not mail.endswith(">") or not mail.isascii() or "\n" in author:
        raise RefusedError(f"{author!r} is not an author. Write it as `Name <mail>`.")
    if name.startswith(('"', "=?")):
        return author
    return formataddr((name, mail[:-1]))


def _word(text: str) -> str:
    """A header's text; encoded where it is not ASCII (RFC 2047), as git format-patch does."""
    if text.isascii():
        return text
    from email.header import Header

    return " ".join(Header(text, "utf-8", maxlinelen=70).encode(linesep="\n").split())


def _diff(before: Texts, after: Texts, modes: tuple[Modes, Modes]) -> bytes:
    import tempfile
    from pathlib import Path

    from vllm_series.workspace.repository import Commit, Scratch

    def commit(texts: Texts, modes: Modes, parent: int | None) -> Commit:
        files = {
            path: (text, modes.get(path, _PLAIN))
            for path, text in texts.items()
            if text is not None
        }
        return Commit(files, parent, b"", b"vllm-series <vllm-series@localhost>", "0 +0000")

    with tempfile.TemporaryDirectory() as folder, Scratch(Path(folder)) as scratch:
        old, new = scratch.make([commit(before, modes[0], None), commit(after, modes[1], 0)])
        return scratch.diff(old, new)
