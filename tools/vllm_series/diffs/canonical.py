"""The one form in which a patch of ours is written, so that the same change is the same bytes.

It is what `git format-patch --zero-commit --full-index --no-signature --no-stat` makes of a commit
with a fixed date, but for the section headings, which hold each hunk's scope. Writing a parsed
patch again gives its own bytes; `lint` holds every patch of a series to that.
"""

from __future__ import annotations

import textwrap

from vllm_series.patch import NO_BLOB, FileChange, Kind, Patch

ZERO_COMMIT = b"From " + b"0" * 40 + b" Mon Sep 17 00:00:00 2001\n"
_PLAIN = frozenset(range(0x20, 0x7F)) - {ord('"'), ord("\\")}
_ESCAPED = {7: "a", 8: "b", 9: "t", 10: "n", 11: "v", 12: "f", 13: "r", 34: '"', 92: "\\"}


def written(patch: Patch) -> bytes:
    """The patch as this project writes it: mail headers, why-text, trailers, diff."""
    parts = [ZERO_COMMIT]
    parts += [_header(key, value) for key, value in patch.headers]
    parts.append(b"\n")
    if patch.message:
        parts.append(_encoded(patch.message) + b"\n\n")
    if patch.trailers:
        parts += [_encoded(f"{key}: {value}\n") for key, value in patch.trailers]
        parts.append(b"\n")
    parts += [diff(change) for change in sorted(patch.files, key=_place)]
    return b"".join(parts)


def diff(change: FileChange) -> bytes:
    """One file's part of the diff, as git writes it; a change that came without git's headers is
    written without them."""
    if not change.from_git:
        head = f"--- {_named(change.old_raw)}\n+++ {_named(change.new_raw)}\n"
        return _encoded(head) + b"".join(hunk.to_bytes() for hunk in change.hunks)
    old, new = change.old_raw or change.new_raw, change.new_raw or change.old_raw
    assert old is not None
    assert new is not None
    old = old if change.old_raw is not None else _with_prefix(old, "b/", "a/")
    new = new if change.new_raw is not None else _with_prefix(new, "a/", "b/")
    out = [f"diff --git {quoted(old)} {quoted(new)}\n"]
    mode = f" {change.new_mode}" if change.new_mode else ""
    match change.kind:
        case Kind.CREATE:
            out.append(f"new file mode {change.new_mode or '100644'}\n")
            mode = ""
        case Kind.DELETE:
            out.append(f"deleted file mode {change.old_mode or '100644'}\n")
            mode = ""
        case _ if change.old_mode != change.new_mode:
            out += [f"old mode {change.old_mode}\n", f"new mode {change.new_mode}\n"]
            mode = ""
    if change.kind in (Kind.RENAME, Kind.COPY):
        verb = change.kind.value
        out.append(f"similarity index {100 if change.similarity is None else change.similarity}%\n")
        out.append(f"{verb} from {quoted(old.partition('/')[2])}\n")
        out.append(f"{verb} to {quoted(new.partition('/')[2])}\n")
    if change.old_id is not None or change.new_id is not None:
        out.append(f"index {change.old_id or NO_BLOB}..{change.new_id or NO_BLOB}{mode}\n")
    if change.hunks:
        out.append(f"--- {_named(old if change.old_raw is not None else None)}\n")
        out.append(f"+++ {_named(new if change.new_raw is not None else None)}\n")
    return _encoded("".join(out)) + b"".join(hunk.to_bytes() for hunk in change.hunks)


def _place(change: FileChange) -> bytes:
    """git's order: by the bytes of the path, the new one of a rename, without its prefix."""
    path = (change.new_raw or change.old_raw or "").partition("/")
    return _encoded(path[2] or path[0])


def quoted(path: str) -> str:
    """A path in git's C-style quotes where it holds bytes that need them (core.quotePath)."""
    raw = _encoded(path)
    if all(byte in _PLAIN for byte in raw):
        return path
    return '"' + "".join(_escape(byte) for byte in raw) + '"'


def _escape(byte: int) -> str:
    if byte in _PLAIN:
        return chr(byte)
    return "\\" + _ESCAPED.get(byte, f"{byte:03o}")


def _named(path: str | None) -> str:
    """git ends a name that holds a space with a tab, so that no date is read in it."""
    if path is None:
        return "/dev/null"
    return quoted(path) + ("\t" if " " in path else "")


def _with_prefix(path: str, old: str, new: str) -> str:
    return new + path.removeprefix(old) if path.startswith(old) else path


def _header(key: str, value: str) -> bytes:
    """A mail header, folded as git folds a subject."""
    lines = textwrap.wrap(
        f"{key}: {value}",
        78,
        subsequent_indent=" ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return _encoded("\n".join(lines) + "\n")


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
