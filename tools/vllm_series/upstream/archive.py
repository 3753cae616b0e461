"""A zip archive read by ranges: its end record, its central directory, and the members asked for.

An archive from elsewhere may be made to cost memory, or to mean one thing to one reader and another
to the next. So everything that two readers could take in two ways is refused, not interpreted: the
central directory ends where the end record begins, members do not overlap, names are unique, plain
and relative, a local header says what the central one does, and a member inflates to the size that
it declares and no further. The entries themselves are read by `zipfile`; the rest follows APPNOTE
(https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT, sections 4.3 and 4.4).
"""

from __future__ import annotations

import io
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from vllm_series.errors import EnvironmentRefusedError
from vllm_series.upstream.fetch import Range, Source, merged
from vllm_series.upstream.member import LARGEST, Member, is_plain

_LARGEST_DIRECTORY = 64 << 20
_MOST_MEMBERS = 200_000
_STEEPEST = 1040
"""Deflate makes at most 1032 bytes of one (https://zlib.net/zlib_tech.html)."""

_FIRST_TAIL = 1024
_LONGEST_TAIL = 22 + 0xFFFF
_SLACK = 64
"""Bytes for the extra field of a local header, which the central directory does not tell."""

_END = struct.Struct("<4s4H2IH")
_END64 = struct.Struct("<4sQ2H2I4Q")
_LOCATOR = struct.Struct("<4sIQI")
_LOCAL = struct.Struct("<4s5H3I2H")
_ENCRYPTED = 0x1 | 0x40 | 0x2000
_PATCHED = 0x20
_DESCRIPTOR = 0x8
_UTF8 = 0x800
Run = Callable[[Callable[[Range], bytes], Sequence[Range]], Iterable[bytes]]
"""How several ranges are read: `map`, or a thread pool's."""


@dataclass(frozen=True, slots=True)
class Held:
    """Bytes of an archive that are at hand, from `start` on."""

    start: int
    data: bytes

    def part(self, start: int, stop: int) -> bytes | None:
        """These bytes, None where some of them are not at hand."""
        if start < self.start or stop > self.start + len(self.data):
            return None
        return self.data[start - self.start : stop - self.start]


@dataclass(frozen=True, slots=True)
class Directory:
    """The files of an archive by name, in the order of the central directory. `held` is what was
    fetched with it: the end of the archive, from the last members on."""

    members: Mapping[str, Member]
    held: Held


def read_directory(source: Source, label: str) -> Directory:
    """The central directory of an archive that `label` names in messages.

    Takes two requests: the end record, which tells how long the directory is, then the directory
    with about as much in front of it as RECORD, the last member of a wheel, takes (of the wheels of
    vLLM: 38 to 40 % of the directory, 54 % in small ones).

    Raises EnvironmentRefusedError for an archive that is damaged or could be read in two ways.
    """
    tail = source.tail(_FIRST_TAIL)
    place = _end_record(tail)
    if place is None and len(tail) < source.length:
        tail = source.tail(_LONGEST_TAIL)
        place = _end_record(tail)
    if place is None:
        raise _refused(label, "it has no end record, or more than one, or bytes behind it")
    length = source.length
    held = Held(length - len(tail), tail)
    count, size, start, end = _directory_place(source, held, held.start + place, label)
    if size > _LARGEST_DIRECTORY or count > _MOST_MEMBERS:
        raise _refused(label, f"its directory takes {size} bytes for {count} members")
    if start + size != end:
        raise _refused(label, "its directory does not end where its end record begins")
    guess = size * (42 if size > 80_000 else 56) // 100 + 1024
    begin = max(0, start - guess)
    if begin < held.start:
        held = Held(begin, source.read(begin, held.start) + held.data)
    raw = held.part(start, end)
    assert raw is not None
    return Directory(_members(raw, count, start, label), held)


def read_members(
    source: Source, label: str, members: Iterable[Member], held: Held, run: Run = map
) -> Iterator[tuple[Member, bytes]]:
    """The files themselves, inflated and held against their sizes and CRCs, in any order.

    Those that lie close are fetched with one request.
    """
    wanted = list(members)
    for member in wanted:
        if member.size > LARGEST:
            raise _refused(label, f"{member.name} has {member.size} bytes, more than any source")
    near = [member for member in wanted if held.part(*_span(member)) is not None]
    far = [member for member in wanted if held.part(*_span(member)) is None]
    for member in near:
        yield member, _text(source, label, member, held)
    ranges = merged([_span(member) for member in far])
    far.sort(key=lambda member: member.offset)
    at = 0
    for (start, stop), data in zip(
        ranges, run(lambda part: source.read(*part), ranges), strict=True
    ):
        got = Held(start, data)
        while at < len(far) and far[at].offset < stop:
            yield far[at], _text(source, label, far[at], got)
            at += 1


def _span(member: Member) -> Range:
    name = len(member.name.encode("utf-8", "surrogateescape"))
    return member.offset, min(
        member.end, member.offset + _LOCAL.size + name + member.compressed + _SLACK
    )


def _end_record(tail: bytes) -> int | None:
    """Where the end record begins in the last bytes of an archive, None where none or several do.

    Its comment, mostly empty, runs to the end of the file.
    """
    found = []
    at = tail.find(b"PK\5\6")
    while at >= 0:
        if at + _END.size <= len(tail):
            comment = _END.unpack_from(tail, at)[7]
            if at + _END.size + comment == len(tail):
                found.append(at)
        at = tail.find(b"PK\5\6", at + 1)
    return found[0] if len(found) == 1 else None


def _directory_place(
    source: Source, held: Held, place: int, label: str
) -> tuple[int, int, int, int]:
    """Number of members, size and start of the directory, and where what follows it begins."""
    data = held.part(place, place + _END.size)
    assert data is not None
    _, disk, first_disk, here, count, size, start, _ = _END.unpack(data)
    plain = (disk, first_disk, here, count, size, start)
    before = max(0, place - _LOCATOR.size)
    locator = held.part(before, place) or source.read(before, place)
    if not locator.startswith(b"PK\6\7"):
        if (disk, first_disk) != (0, 0) or here != count:
            raise _refused(label, "it is one part of several")
        if 0xFFFFFFFF in (size, start):
            raise _refused(label, "its zip64 end record is missing")
        return count, size, start, place
    _, disk64, where, disks = _LOCATOR.unpack(locator)
    stop = where + _END64.size
    if disk64 != 0 or disks > 1 or stop > before:
        raise _refused(label, "its zip64 end record is not where it is said to be")
    data = held.part(where, stop) or source.read(where, stop)
    mark, rest, _, _, *large = _END64.unpack(data)
    if mark != b"PK\6\6" or where + 12 + rest != before:
        raise _refused(label, "its zip64 end record is not where it is said to be")
    limits = (0xFFFF, 0xFFFF, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF)
    for small, wide, limit in zip(plain, large, limits, strict=True):
        if small not in (wide, limit):
            raise _refused(label, "its two end records contradict each other")
    disk, first_disk, here, count, size, start = large
    if (disk, first_disk) != (0, 0) or here != count:
        raise _refused(label, "it is one part of several")
    return count, size, start, where


def _members(raw: bytes, count: int, start: int, label: str) -> dict[str, Member]:
    """The entries of a central directory that begins at `start` of its archive."""
    # An archive of nothing but the directory: zipfile reads no more of it, and what it would
    # forgive in an end record (bytes in front, a wrong count) was refused before.
    alone = raw + _END.pack(b"PK\5\6", 0, 0, 0, 0, len(raw), 0, 0)
    try:
        with zipfile.ZipFile(io.BytesIO(alone)) as archive:
            entries = archive.infolist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError, struct.error) as error:
        raise _refused(label, f"its directory is damaged: {error}") from error
    if len(entries) != count:
        raise _refused(label, f"it has {len(entries)} members and says that it has {count}")
    found: dict[str, Member] = {}
    for entry in entries:
        _check(entry, label)
        if entry.filename in found:
            raise _refused(label, f"{entry.filename} is in it twice")
        found[entry.filename] = Member(
            entry.filename,
            entry.header_offset,
            start,
            entry.compress_size,
            entry.file_size,
            entry.CRC,
            entry.compress_type,
            stat.S_IMODE(entry.external_attr >> 16),
        )
    ordered = sorted(found.values(), key=lambda member: member.offset)
    for member, following in zip(ordered, [*ordered[1:], None], strict=True):
        end = following.offset if following else start
        least = member.offset + _LOCAL.size + len(member.name) + member.compressed
        if least > end:
            raise _refused(label, f"{member.name} overlaps what follows it")
        if following:
            found[member.name] = replace(member, end=end)
    return {name: member for name, member in found.items() if not name.endswith("/")}


def _check(entry: zipfile.ZipInfo, label: str) -> None:
    """Refuse an entry that could do harm, whether or not it is ever read."""
    name, is_folder = entry.orig_filename, entry.orig_filename.endswith("/")
    if not is_plain(name[:-1] if is_folder else name) or name != entry.filename:
        raise _refused(label, f"{name[:200]!r} is no plain relative path")
    kind = stat.S_IFMT(entry.external_attr >> 16)
    if kind == stat.S_IFLNK:
        raise _refused(label, f"{name} is a link")
    if kind not in (0, stat.S_IFDIR if is_folder else stat.S_IFREG):
        raise _refused(label, f"{name} is no regular file")
    if entry.flag_bits & _ENCRYPTED:
        raise _refused(label, f"{name} is encrypted")
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise _refused(label, f"{name} is compressed by method {entry.compress_type}")
    if entry.flag_bits & _PATCHED or entry.volume:
        raise _refused(label, f"{name} is one part of several")
    most = entry.compress_size * _STEEPEST if entry.compress_type else entry.compress_size
    if entry.file_size > most or (is_folder and entry.file_size):
        raise _refused(
            label,
            f"{name} declares {entry.file_size} bytes and holds {entry.compress_size} for them",
        )


def _text(source: Source, label: str, member: Member, held: Held) -> bytes:
    """One member, from bytes at hand, or fetched where its local header is longer than usual."""

    def part(start: int, stop: int) -> bytes:
        if stop > member.end:
            raise _refused(label, f"{member.name} runs into what follows it")
        return held.part(start, stop) or source.read(start, stop)

    begin = member.offset + _LOCAL.size
    header = part(member.offset, begin)
    mark, _, flags, method, _, _, crc, compressed, size, name_size, extra_size = _LOCAL.unpack(
        header
    )
    data_at = begin + name_size + extra_size
    rest = part(begin, data_at)
    name = rest[:name_size].decode("utf-8" if flags & _UTF8 else "cp437", "replace")
    if compressed == 0xFFFFFFFF or size == 0xFFFFFFFF:
        size, compressed = _wide(rest[name_size:], size, compressed)
    declared = (member.crc, member.compressed, member.size)
    # A header written ahead of its member holds zeros; the true values follow the member.
    is_true = all(
        told == true or (told == 0 and flags & _DESCRIPTOR)
        for told, true in zip((crc, compressed, size), declared, strict=True)
    )
    if (
        mark != b"PK\3\4"
        or flags & (_ENCRYPTED | _PATCHED)
        or (name, method) != (member.name, member.method)
        or not is_true
    ):
        raise _refused(label, f"the header of {member.name} contradicts the directory")
    data = part(data_at, data_at + member.compressed) if member.compressed else b""
    if member.method == zipfile.ZIP_DEFLATED:
        data = _inflated(data, label, member)
    if len(data) != member.size or zlib.crc32(data) != member.crc:
        raise _refused(label, f"{member.name} does not have the size and CRC that it declares")
    return data


def _inflated(data: bytes, label: str, member: Member) -> bytes:
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        text = inflater.decompress(data, member.size + 1)
    except zlib.error as error:
        raise _refused(label, f"{member.name} cannot be inflated: {error}") from error
    if len(text) > member.size:
        raise _refused(label, f"{member.name} inflates beyond the {member.size} bytes it declares")
    if not inflater.eof or inflater.unused_data or inflater.unconsumed_tail:
        raise _refused(label, f"{member.name} does not end where it says")
    return text


def _wide(extra: bytes, size: int, compressed: int) -> tuple[int, int]:
    """Sizes from the zip64 field of a local header; there it always holds both, size first."""
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<HH", extra, at)
        if kind == 1 and length >= 16 and at + 20 <= len(extra):
            wide: tuple[int, int] = struct.unpack_from("<QQ", extra, at + 4)
            return wide
        at += 4 + length
    return size, compressed


def _refused(label: str, reason: str) -> EnvironmentRefusedError:
    return EnvironmentRefusedError(
        f"{label} is not an archive to be trusted: {reason}. Nothing of it is used; report it to "
        "the index that serves it."
    )
