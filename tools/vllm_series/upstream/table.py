"""The files of one wheel in one text: what RECORD and the central directory say, checked once.

Reading both takes some hundred kilobytes from the index and 50 ms of parsing. A table holds what
later questions need in a form in which one row is found without parsing the others, since a warm
check looks up three paths in each of dozens of releases.
"""

from __future__ import annotations

import io
import json
import re
from base64 import urlsafe_b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256

from vllm_series.errors import EnvironmentRefusedError
from vllm_series.trees import PACKAGE
from vllm_series.upstream.member import Member, is_plain

SCHEMA = 1

_SHA256 = re.compile(r"sha256=[A-Za-z0-9_-]{43}$")
_UNHASHED = ("RECORD", "RECORD.jws", "RECORD.p7s")


@dataclass(frozen=True, slots=True)
class Row:
    """One file: where it lies in the wheel, and its hex SHA-256."""

    member: Member
    sha256: str


class Table:
    """The files under `vllm/` of one wheel. `data` is the whole table as a cache keeps it.

    Its first line is a JSON object, every other line one file, tabs between the columns.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data
        head, _, _ = data.partition(b"\n")
        self._head: dict[str, str] = json.loads(head)
        if self._head["schema"] != SCHEMA:
            raise ValueError(f"table of form {self._head['schema']}")

    @property
    def fingerprint(self) -> str:
        """Of the Python files, as `release.fingerprint` counts it."""
        return self._head["fingerprint"]

    @property
    def origin(self) -> str:
        """The host that served the wheel, or the folder that holds it."""
        return self._head["origin"]

    def find(self, path: str) -> Row | None:
        """The row of one file."""
        mark = b"\n" + path.encode("utf-8", "surrogateescape") + b"\t"
        at = self.data.find(mark)
        if at < 0 or b"\t" in mark[:-1] or b"\n" in mark[1:]:
            return None
        stop = self.data.find(b"\n", at + len(mark))
        digest, *numbers = self.data[at + len(mark) : stop].split(b"\t")
        return Row(Member(path, *map(int, numbers)), digest.decode("ascii"))

    def listing(self) -> dict[str, str]:
        """Every file with its hex SHA-256."""
        found = {}
        for line in self.data.decode("utf-8").split("\n")[1:-1]:
            path, digest, _ = line.split("\t", 2)
            found[path] = digest
        return found


def make_table(members: Mapping[str, Member], record: bytes, origin: str, label: str) -> Table:
    """The table of a wheel from its central directory and its RECORD.

    Raises EnvironmentRefusedError where the two do not list the same files, where RECORD names one
    twice, without a SHA-256 or with another size, or is not UTF-8
    (https://packaging.python.org/en/latest/specifications/recording-installed-packages/).
    """
    digests = _digests(members, record, label)
    hashed = [
        f"{path},sha256={digest}"
        for path, digest in digests.items()
        if path.startswith(f"{PACKAGE}/") and path.endswith(".py")
    ]
    head = {
        "schema": SCHEMA,
        "origin": origin,
        "fingerprint": sha256("\n".join(sorted(hashed)).encode()).hexdigest(),
    }
    lines = [json.dumps(head)]
    for path in sorted(digests):
        if path.startswith(f"{PACKAGE}/"):
            m = members[path]
            numbers = (m.offset, m.end, m.compressed, m.size, m.crc, m.method, m.mode)
            digest = urlsafe_b64decode(digests[path] + "=").hex()
            lines.append("\t".join((path, digest, *map(str, numbers))))
    return Table(("\n".join(lines) + "\n").encode())


def record_of(members: Mapping[str, Member], label: str) -> Member:
    """The one RECORD of a wheel."""
    found = [
        member
        for name, member in members.items()
        if name.endswith(".dist-info/RECORD") and name.count("/") == 1
    ]
    if len(found) != 1:
        raise _refused(label, f"it has {len(found)} RECORD files instead of one")
    return found[0]


def refuse_another(record: str, wheel: str, label: str) -> None:
    """Raise EnvironmentRefusedError where the folder of RECORD names another distribution or
    version than the wheel's file name, as pip does: a file by a wrong name would answer for a
    release that it is not
    (https://packaging.python.org/en/latest/specifications/binary-distribution-format/).
    """
    from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
    from packaging.version import InvalidVersion, Version

    inner = record.partition(".dist-info/")[0]
    name, _, version = inner.partition("-")
    try:
        project, release, _, _ = parse_wheel_filename(wheel)
        if (canonicalize_name(name), Version(version)) == (project, release):
            return
    except (InvalidWheelFilename, InvalidVersion):
        pass
    raise _refused(label, f"it says that it is {inner}")


def _digests(members: Mapping[str, Member], record: bytes, label: str) -> dict[str, str]:
    """Unpadded url-safe base64 of the SHA-256 by path, of every file that RECORD hashes."""
    folder = record_of(members, label).name.rpartition("/")[0]
    unhashed = {f"{folder}/{name}" for name in _UNHASHED}
    import csv

    found: dict[str, str] = {}
    try:
        text = record.decode("utf-8")
        for row in csv.reader(io.StringIO(text, newline=""), strict=True):
            path, digest, size = row
            if path in found or not is_plain(path):
                raise ValueError(f"{path[:200]!r} is listed twice or is no plain path")
            if path in unhashed:
                continue
            member = members.get(path)
            if member is None:
                raise ValueError(f"{path} is listed and not there")
            if size not in ("", str(member.size)):
                raise ValueError(f"{path} is listed with {size} bytes and has {member.size}")
            if not _SHA256.match(digest):
                raise ValueError(f"{path} is listed without a SHA-256")
            found[path] = digest[len("sha256=") :]
    except (ValueError, csv.Error) as error:
        raise _refused(label, f"its RECORD cannot be used: {error}") from error
    for name in members:
        if name not in found and name not in unhashed:
            raise _refused(label, f"{name} is in it and not in its RECORD")
    return found


def _refused(label: str, reason: str) -> EnvironmentRefusedError:
    return EnvironmentRefusedError(
        f"{label} is not a wheel to be trusted: {reason}. Nothing of it is used; report it to the "
        "index that serves it."
    )
