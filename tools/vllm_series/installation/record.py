"""RECORD: the installer's list of installed files, kept true while files change.

pip and uv uninstall by this list, so whatever is written is listed in it, and rows that have
nothing to do with a patch keep their bytes (pip ends rows with CRLF, uv with LF). Rows are read
and made with `installer.records`, the packaging project's own model of the file
(https://packaging.python.org/en/latest/specifications/recording-installed-packages/). Importing
that takes longer than a whole no-op run, hence inside the functions that write.
"""

from __future__ import annotations

import io
from base64 import urlsafe_b64encode
from hashlib import sha256
from typing import TYPE_CHECKING

from vllm_series.errors import EnvironmentRefusedError, RefusedError
from vllm_series.installation.stack import FileState, saved_files

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from vllm_series.installation.stack import Stack

Fields = tuple[str, str]
"""The hash (`sha256=…`) and size columns of a row; either may be empty."""
_FEW = 64


def rows(data: bytes, place: Path) -> dict[str, Fields]:
    """Path to hash and size of every row. Light: for reading only.

    Raises EnvironmentRefusedError naming `place` where a row does not have three fields.
    """
    import csv

    found = {}
    for row in csv.reader(io.StringIO(_text(data), newline="")):
        if len(row) != 3:
            raise _damaged(place, f"a row has {len(row)} fields: {','.join(row)[:80]!r}")
        found[row[0].replace("\\", "/")] = (row[1], row[2])
    return found


def holds(data: bytes, wanted: Mapping[str, Fields | None]) -> bool:
    """Whether RECORD plainly says what is wanted, each path once; a quick look, not a parse.

    False may also mean that a row is written in another way or that there are too many to look
    for one by one; `rows` tells.
    """
    if len(wanted) > _FEW:
        return False
    text = b"\n" + data
    for path, columns in wanted.items():
        name = b"\n" + path.encode("utf-8", "surrogateescape") + b","
        if text.count(name) != (columns is not None):
            return False
        if columns is not None:
            row = name + ",".join(columns).encode()
            if row + b"\n" not in text and row + b"\r\n" not in text:
                return False
    return True


def fields(state: FileState) -> Fields:
    """The hash and size columns for a file; the hash is unpadded url-safe base64."""
    raw = urlsafe_b64encode(bytes.fromhex(state.sha256)).decode("ascii").rstrip("=")
    return f"sha256={raw}", str(state.size)


def stack_rows(state: str, stack: Stack, listing: bytes) -> dict[str, Fields | None]:
    """What RECORD must say because of a stack: changed, new and dropped (None) rows.

    `state` is the state folder relative to the tree, `listing` the bytes of its `stack.json`.
    """
    wanted: dict[str, Fields | None] = {}
    for path, (_, file) in stack.current().items():
        wanted[path] = fields(file.after) if file.after else None
        if file.after is None:
            wanted.update({saved.path: None for saved in file.bytecode})
    for path, saved_state in saved_files(state, stack):
        wanted[path] = fields(saved_state)
    digest = sha256(listing).hexdigest()
    wanted[f"{state}/stack.json"] = fields(FileState(digest, len(listing), 0o644, 0))
    return wanted


def restated(
    data: bytes,
    before: bytes,
    place: Path,
    old: Mapping[str, Fields | None],
    new: Mapping[str, Fields | None],
) -> bytes:
    """RECORD for a stack of `new` rows, from one (`data`) for a stack of `old` rows.

    `before` is the pristine RECORD. Where `data` is exactly what `old` makes of it, so is the
    result, to the byte. Where someone edited RECORD meanwhile, the edit stays and only rows that
    belong to a stack are touched.
    """
    if data == rewritten(before, place, old):
        return rewritten(before, place, new) if new else before
    release = {row[0]: (row[1], row[2]) for row, _ in lines(before, place)}
    changes: dict[str, Fields | None] = {path: release.get(path) for path in old}
    changes.update(new)
    return rewritten(data, place, changes)


def rewritten(data: bytes, place: Path, changes: Mapping[str, Fields | None]) -> bytes:
    """RECORD with rows replaced in place, rows of None dropped, and what has no row yet appended.

    All other rows keep their bytes; new rows come in the order of `changes` and end as the first
    row does.
    """
    ending = "\r\n" if data.split(b"\n", 1)[0].endswith(b"\r") else "\n"
    out: list[bytes] = []
    left = dict(changes)
    for row, line in lines(data, place):
        path = row[0]
        if path not in changes:
            out.append(line)
            continue
        left.pop(path, None)
        changed = changes[path]
        if changed == row[1:]:
            out.append(line)
        elif changed is not None:
            out.append(_line(path, changed, "\r\n" if line.endswith(b"\r\n") else ending))
    if out and not out[-1].endswith(b"\n"):
        out[-1] += ending.encode()
    out += [_line(path, added, ending) for path, added in left.items() if added is not None]
    return b"".join(out)


def lines(data: bytes, place: Path) -> list[tuple[tuple[str, str, str], bytes]]:
    """The three columns of every row with the exact bytes of its line.

    Raises EnvironmentRefusedError naming `place` where a row cannot be read with certainty.
    """
    from installer.records import InvalidRecordEntry, parse_record_file

    whole = data.splitlines(keepends=True)
    try:
        parsed = list(parse_record_file(_text(line).rstrip("\r\n") for line in whole))
    except InvalidRecordEntry as error:
        raise _damaged(place, "; ".join(error.issues)) from error
    if len(parsed) != len(whole):
        raise _damaged(place, "a path holds a line break")
    return list(zip(parsed, whole, strict=True))


def _line(path: str, columns: Fields, ending: str) -> bytes:
    import csv

    from installer.records import RecordEntry

    if any(mark in path for mark in "\n\r\\"):
        raise RefusedError(
            f"{path!r} cannot be listed in RECORD, so no uninstall would find it. "
            "Leave it out of the patch."
        )
    text = io.StringIO()
    row = RecordEntry.from_elements(path, *columns).to_row()
    csv.writer(text, lineterminator=ending).writerow(row)
    return text.getvalue().encode("utf-8", "surrogateescape")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _damaged(place: Path, reason: str) -> EnvironmentRefusedError:
    return EnvironmentRefusedError(
        f"{place} is damaged: {reason}. Reinstall vLLM, so that its list of files can be trusted."
    )
