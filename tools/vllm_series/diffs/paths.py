"""The file names in a diff: git's quoting, the pair on a `diff --git` line, dates, what is refused.

Names are posix strings, UTF-8 with surrogate escapes for other bytes. Nothing here knows of lines:
a name that cannot be read is a ValueError with the reason, and `unified` says where it stands.
"""

from __future__ import annotations

import re

DEV_NULL = "/dev/null"

_LONGEST = 4096
"""Bytes in a path (Linux's PATH_MAX); a limit keeps hostile names from costing time."""
_ESCAPES = {
    ord("a"): 7, ord("b"): 8, ord("t"): 9, ord("n"): 10, ord("v"): 11, ord("f"): 12, ord("r"): 13,
    ord('"'): 34, ord("\\"): 92,
}  # fmt: skip
_OCTAL = re.compile(rb"[0-3][0-7]{2}")
_DATE = re.compile(
    rb" +\d{4}-\d\d-\d\d[ T]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?: ?(?:Z|[-+]\d\d:?\d\d))?$"
)
_EPOCH = re.compile(
    rb"(?P<day>1970-01-01|1969-12-31)[ T](?P<hour>\d\d):(?P<minute>\d\d):00(?:\.0+)?"
    rb" (?P<sign>[-+])(?P<zone_hour>\d\d):?(?P<zone_minute>\d\d)$"
)
_DRIVE = re.compile(r"^[A-Za-z]:[\\/]")


def decoded(raw: bytes) -> str:
    """UTF-8 as text; other bytes become surrogates and come back as they were (PEP 383)."""
    return raw.decode("utf-8", "surrogateescape")


def plain(raw: bytes) -> str:
    """A name that runs to the end of its line, in git's quotes or as it is (`rename to`)."""
    raw = raw.rstrip(b"\r\n")
    if raw.startswith(b'"'):
        if quoted_end(raw) != len(raw):
            raise ValueError(
                "a quoted path does not end where its line ends. Make the patch again."
            )
        raw = unquoted(raw)
    if not raw:
        raise ValueError("a file without a name. Make the patch again.")
    return decoded(raw)


def of_file_line(line: bytes, *, dated: bool) -> tuple[str, bytes]:
    """Name of a `---` or `+++` line, and the time stamp that a tab parts from it.

    git adds the tab alone behind a name with spaces so that no date is read into it. `dated` takes
    a date behind spaces off as well, which tabs become on their way through a terminal (git's
    diff_timestamp_len does so).
    """
    raw = line[4:].rstrip(b"\r\n")
    if raw.startswith(b'"'):
        end = quoted_end(raw)
        if raw[end : end + 1] not in (b"", b"\t", b" "):
            raise ValueError("text behind a quoted path. Make the patch again.")
        return plain(raw[:end]), raw[end:].strip()
    name, tab, stamp = raw.partition(b"\t")
    if dated and not tab:
        found = _DATE.search(name)
        name = name[: found.start()] if found else name.rstrip()
    return plain(name), stamp


def is_epoch(stamp: bytes) -> bool:
    """Whether GNU `diff -N` means by this time stamp that there is no file: 0 seconds after
    1970-01-01 00:00 UTC, in any time zone."""
    found = _EPOCH.match(stamp)
    if not found:
        return False
    minutes = int(found["hour"]) * 60 + int(found["minute"])
    if found["day"].startswith(b"1969"):
        minutes -= 24 * 60
    zone = int(found["zone_hour"]) * 60 + int(found["zone_minute"])
    return minutes == (zone if found["sign"] == b"+" else -zone)


def quoted_end(raw: bytes) -> int:
    """Index behind the closing quote of the C string that `raw` starts with; -1 where none is."""
    position = 1
    while position < len(raw):
        if raw[position] == ord("\\"):
            position += 2
            continue
        if raw[position] == ord('"'):
            return position + 1
        position += 1
    return -1


def unquoted(raw: bytes) -> bytes:
    """Undo git's C-style quoting (git-config(1), core.quotePath); `raw` includes the quotes."""
    out = bytearray()
    position, end = 1, len(raw) - 1
    while position < end:
        byte = raw[position]
        position += 1
        if byte != ord("\\"):
            out.append(byte)
            continue
        octal = _OCTAL.match(raw, position, end)
        if octal:
            out.append(int(octal[0], 8))
            position += 3
        elif position < end and raw[position] in _ESCAPES:
            out.append(_ESCAPES[raw[position]])
            position += 1
        else:
            raise ValueError(
                "a quoted path holds an escape that git does not write. Make the patch again."
            )
    return bytes(out)


def of_git_line(
    words: bytes, old: str | None, new: str | None, moved: tuple[str, str] | None
) -> tuple[str, str]:
    """Both names of a `diff --git` line, held against all that its section says.

    `words` is the rest of the line, which git does not quote for spaces. `old` and `new` are the
    names of the `---` and `+++` lines (None: there is none, or it is /dev/null), `moved` those of
    the `rename` or `copy` lines, which have no prefix. Where nothing names them, the line is split
    where its two halves are one file but for their prefixes (git's rule, git_header_name).
    """
    if len(words) > 2 * _LONGEST + 64:
        raise ValueError(f"a path is longer than {_LONGEST} bytes. Leave that file out.")
    if words.startswith(b'"') or words.endswith(b'"'):
        pairs = [_quoted_pair(words)]
    else:
        text = decoded(words)
        pairs = [(text[:i], text[i + 1 :]) for i in _cuts(text, old, new, moved)]
    if not pairs:
        raise ValueError("diff --git does not name one file twice. Make the patch again.")
    for side, (name, sign) in enumerate(((old, "---"), (new, "+++"))):
        fitting = [pair for pair in pairs if name in (None, pair[side])]
        if not fitting:
            raise ValueError(
                f"diff --git names {pairs[0][side]}, the {sign} line {name}. "
                "Make both name one file."
            )
        pairs = fitting
    if moved:
        pairs = [pair for pair in pairs if _ends(pair[0], moved[0]) and _ends(pair[1], moved[1])]
        if not pairs:
            raise ValueError(
                f"diff --git does not name {moved[0]} and {moved[1]}. Make the patch again."
            )
    else:
        depths = [_prefix_depth(left, right) for left, right in pairs]
        least = min((depth for depth in depths if depth is not None), default=None)
        if least is None:
            raise ValueError("diff --git does not name one file twice. Make the patch again.")
        pairs = [pair for pair, depth in zip(pairs, depths, strict=True) if depth == least]
    if len(pairs) != 1:
        raise ValueError("diff --git can be read in more than one way. Make the patch again.")
    return pairs[0]


def _cuts(text: str, old: str | None, new: str | None, moved: tuple[str, str] | None) -> list[int]:
    """Where the spaces are that could part two names; those that nothing speaks for are left out
    early, so that a name full of spaces costs little."""
    ends = "/" + text.rpartition("/")[2]
    found = []
    position = text.find(" ")
    while position >= 0:
        left = text[:position]
        if (
            left in (old, ends[1:])
            or text[position + 1 :] == new
            or (moved is not None and left.endswith(moved[0]))
            or left.endswith(ends)
        ):
            found.append(position)
        position = text.find(" ", position + 1)
    return found


def _quoted_pair(words: bytes) -> tuple[str, str]:
    if words.startswith(b'"'):
        end = quoted_end(words)
        if end < 0 or words[end : end + 1] != b" ":
            raise ValueError("a quoted path does not end. Make the patch again.")
        left, right = words[:end], words[end + 1 :]
    else:
        left, _, right = words.partition(b' "')
        right = b'"' + right
    return plain(left), plain(right)


def _ends(name: str, path: str) -> bool:
    return name == path or name.endswith("/" + path)


def _prefix_depth(left: str, right: str) -> int | None:
    """How many leading folders to take off both names to make them equal; None where none do."""
    one, other = left.split("/"), right.split("/")
    if len(one) != len(other) or one[-1] != other[-1]:
        return None
    return next(depth for depth in range(len(one)) if one[depth:] == other[depth:])


def refusal(path: str) -> str | None:
    """Why no change to `path`, as the patch writes it, is accepted from anyone; None for a name
    that is fine."""
    if path.startswith("/") or _DRIVE.match(path):
        return f"{path} is an absolute path. Make the diff relative."
    if len(path) > _LONGEST:
        return f"a path is longer than {_LONGEST} bytes. Leave that file out."
    parts = path.split("/")
    if ".." in parts:
        return f"{path} leads outside the tree. Make the diff from the folder that holds vllm/."
    if "\0" in path or "" in parts or "." in parts[1:] or path == ".":
        return f"{path!r} is not a file name. Correct the path."
    return None
