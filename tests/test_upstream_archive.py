"""An archive on a server: few requests, every answer doubted, every trick of an archive refused."""

from __future__ import annotations

import io
import random
import struct
import threading
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from archives import FILES, INFO, record, wheel
from ranged import (
    Handler,
    Served,
    dropped,
    elsewhere,
    passed,
    server,
    status,
    without_ranges,
)
from vllm_series.errors import EnvironmentRefusedError
from vllm_series.upstream.archive import Held, read_directory, read_members
from vllm_series.upstream.fetch import FileSource, HttpSource, Remote, merged
from vllm_series.upstream.http import open_session
from vllm_series.upstream.settings import IndexSettings

ENGINE = "vllm/engine.py"


@pytest.fixture
def served() -> Iterator[Served]:
    with server() as running:
        yield running


class Opened:
    """A file of a server, and what was said about reading it."""

    def __init__(self, served: Served, data: bytes, length: int | None, digest: str | None) -> None:
        self.said: list[str] = []
        self.stop = threading.Event()
        self.served = served
        served.files["/a.whl"] = data
        self.source = HttpSource(
            Remote(f"{served.url}/a.whl", "a.whl", length, digest),
            open_session(IndexSettings(retries=2, timeout=5)),
            say=self.said.append,
            stop=self.stop,
        )

    def read(self, *names: str) -> dict[str, bytes]:
        directory = read_directory(self.source, "a.whl")
        wanted = [directory.members[name] for name in names]
        found = read_members(self.source, "a.whl", wanted, directory.held)
        return {member.name: text for member, text in found}


Open = Callable[..., Opened]


@pytest.fixture
def opened(served: Served) -> Open:
    def make(data: bytes, length: int | None = -1, digest: str | None = None) -> Opened:
        return Opened(served, data, len(data) if length == -1 else length, digest)

    return make


def large() -> bytes:
    """A wheel whose members lie far apart: 3 MB that cannot be compressed between them."""
    noise = random.Random(5)
    return wheel(
        {
            "vllm/a.py": FILES[ENGINE],
            "vllm/_1.so": noise.randbytes(1_000_000),
            "vllm/b.py": b"b = 1\n",
            "vllm/c.py": b"c = 1\n",
            "vllm/_2.so": noise.randbytes(2_000_000),
        }
    )


# -- what is asked of the server ------------------------------------------------------------------


def test_a_member_takes_three_requests_and_little_more_than_its_bytes(opened: Open) -> None:
    made = opened(large())
    assert made.read("vllm/b.py") == {"vllm/b.py": b"b = 1\n"}
    assert len(made.served.requests) <= 3
    assert made.served.sent < 4000


def test_members_that_lie_close_come_with_one_request(opened: Open) -> None:
    made = opened(large())
    found = made.read("vllm/b.py", "vllm/c.py")
    assert found == {"vllm/b.py": b"b = 1\n", "vllm/c.py": b"c = 1\n"}
    assert len(made.served.requests) == 3


def test_ranges_are_merged_over_small_gaps_only() -> None:
    assert merged([(50, 60), (0, 10), (12, 20), (5, 8)], gap=2) == [(0, 20), (50, 60)]


def test_a_length_that_the_index_does_not_tell_comes_from_the_server(opened: Open) -> None:
    made = opened(wheel(), length=None)
    assert made.read(ENGINE)[ENGINE] == FILES[ENGINE]


def test_every_file_is_what_zipfile_reads(opened: Open) -> None:
    for stored in (False, True):
        made = opened(wheel(stored=stored))
        assert made.read(*FILES) == dict(FILES)


def test_one_connection_serves_all_requests(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    connections = []
    setup = Handler.setup

    def counted(self: Handler) -> None:
        connections.append(1)
        setup(self)

    monkeypatch.setattr(Handler, "setup", counted)
    opened(large()).read("vllm/a.py", "vllm/b.py")
    assert len(connections) == 1


# -- faults of the network ------------------------------------------------------------------------


def test_a_connection_that_drops_midway_is_tried_again(opened: Open) -> None:
    made = opened(large())
    made.served.faults = [passed, dropped, dropped]
    assert made.read("vllm/b.py")["vllm/b.py"] == b"b = 1\n"


def test_an_answer_that_always_breaks_off_is_an_error_that_names_the_file(opened: Open) -> None:
    made = opened(large())
    made.served.always = dropped
    with pytest.raises(EnvironmentRefusedError, match=r"a\.whl cannot be .*[Tt]ry again"):
        made.read("vllm/b.py")
    assert len(made.served.requests) == 3


@pytest.mark.parametrize("code", [429, 500, 503])
def test_a_server_that_is_busy_is_asked_again(opened: Open, code: int) -> None:
    made = opened(large())
    made.served.faults = [status(code, Retry_After="0"), passed, status(code)]
    assert made.read("vllm/b.py")["vllm/b.py"] == b"b = 1\n"


@pytest.mark.parametrize("code", [403, 404])
def test_a_refusal_of_the_server_is_final(opened: Open, code: int) -> None:
    made = opened(wheel())
    made.served.always = status(code)
    with pytest.raises(EnvironmentRefusedError, match=rf"a\.whl .* {code}"):
        made.read(ENGINE)
    assert len(made.served.requests) == 1


def test_other_bytes_than_those_asked_for_are_not_taken(opened: Open) -> None:
    made = opened(large())
    made.served.always = elsewhere
    with pytest.raises(EnvironmentRefusedError, match="instead of"):
        made.read("vllm/b.py")


def test_an_answer_that_does_not_say_its_place_is_not_taken(opened: Open) -> None:
    def placeless(handler: Handler, data: bytes, part: tuple[int, int] | None) -> bool:
        start, stop = part or (0, len(data))
        handler.answer(206, data[start:stop])
        return True

    made = opened(large())
    made.served.always = placeless
    with pytest.raises(EnvironmentRefusedError, match="does not say what part"):
        made.read("vllm/b.py")


@pytest.mark.parametrize("length", [10, -10])
def test_a_file_of_another_length_than_the_index_says_is_not_taken(
    opened: Open, length: int
) -> None:
    data = wheel()
    made = opened(data, length=len(data) + length)
    with pytest.raises(EnvironmentRefusedError, match=r"a\.whl .*(the index|than the index)"):
        made.read(ENGINE)


def test_a_file_that_changes_while_it_is_read_is_noticed(opened: Open) -> None:
    made = opened(large())
    directory = read_directory(made.source, "a.whl")
    made.served.tag = '"two"'
    wanted = [directory.members["vllm/a.py"]]
    with pytest.raises(EnvironmentRefusedError, match="changed it while"):
        list(read_members(made.source, "a.whl", wanted, directory.held))


def test_what_is_stopped_asks_no_more(opened: Open) -> None:
    made = opened(wheel())
    made.stop.set()
    with pytest.raises(EnvironmentRefusedError, match="interrupted"):
        made.read(ENGINE)
    assert not made.served.requests


# -- a server without ranges ----------------------------------------------------------------------


def test_a_server_without_ranges_is_read_whole_once_and_said_so(opened: Open) -> None:
    data = large()
    made = opened(data, digest=_sha256(data))
    made.served.always = without_ranges
    assert made.read("vllm/a.py", "vllm/b.py")["vllm/b.py"] == b"b = 1\n"
    assert len(made.served.requests) == 1
    assert len(made.said) == 1
    assert "does not give parts" in made.said[0]
    made.source.close()


def test_a_whole_file_must_have_the_digest_of_the_index(opened: Open) -> None:
    made = opened(wheel(), digest="0" * 64)
    made.served.always = without_ranges
    with pytest.raises(EnvironmentRefusedError, match="not those that the index names"):
        made.read(ENGINE)


def test_a_whole_file_is_read_no_further_than_the_index_says(opened: Open) -> None:
    made = opened(wheel(), length=100)
    made.served.always = without_ranges
    with pytest.raises(EnvironmentRefusedError, match="the index 100"):
        made.read(ENGINE)
    assert not made.said


# -- hostile archives -----------------------------------------------------------------------------


def changed(data: bytes, name: str, field: str, value: int, where: str = "central") -> bytes:
    """An archive with one number of one header changed."""
    offsets = {
        "central": {"version": 6, "flags": 8, "method": 10, "crc": 16, "compressed": 20,
                    "size": 24, "disk": 34, "attributes": 38, "offset": 42},
        "local": {"flags": 6, "method": 8, "crc": 14, "compressed": 18, "size": 22},
    }  # fmt: skip
    mark = {"central": b"PK\1\2", "local": b"PK\3\4"}[where]
    name_at = {"central": 46, "local": 30}[where]
    at = data.find(mark)
    while data[at + name_at : at + name_at + len(name)] != name.encode():
        at = data.find(mark, at + 1)
        assert at >= 0
    at += offsets[where][field]
    form = "<I" if field in ("crc", "compressed", "size", "attributes", "offset") else "<H"
    return data[:at] + struct.pack(form, value) + data[at + struct.calcsize(form) :]


def ended(data: bytes, **numbers: int) -> bytes:
    """An archive with numbers of its end record changed."""
    places = {"disk": 4, "here": 8, "count": 10, "size": 12, "start": 16, "comment": 20}
    end = data.rfind(b"PK\5\6")
    out = bytearray(data)
    for name, value in numbers.items():
        struct.pack_into(
            "<I" if name in ("size", "start") else "<H", out, end + places[name], value
        )
    return bytes(out)


def with_bomb() -> bytes:
    """A member that declares 100 bytes and inflates to ten million."""
    data = wheel({**FILES, ENGINE: bytes(10_000_000)})
    for where in ("central", "local"):
        data = changed(data, ENGINE, "size", 100, where)
    return data


def overlapping() -> bytes:
    data = wheel()
    return changed(data, ENGINE, "offset", 4)


def duplicated() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(ENGINE, "one")
        archive.writestr("vllm/engina.py", "two")
    return out.getvalue().replace(b"vllm/engina.py", b"vllm/engine.py")


def named(name: str) -> bytes:
    return wheel({**FILES, name: b"x"})


def linked() -> bytes:
    return changed(wheel(), ENGINE, "attributes", 0o120777 << 16)


def zip64(lie: int = 0, mark: bytes = b"PK\6\6") -> bytes:
    """An archive with a zip64 end record, whose number of members may be wrong."""
    data = wheel()
    end = data.rfind(b"PK\5\6")
    _, _, _, _, count, size, start, _ = struct.unpack_from("<4s4H2IH", data, end)
    wide = struct.pack("<4sQ2H2I4Q", mark, 44, 45, 45, 0, 0, count + lie, count + lie, size, start)
    locator = struct.pack("<4sIQI", b"PK\6\7", 0, end, 1)
    plain = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 0xFFFF, count, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    return data[:end] + wide + locator + plain


HOSTILE: dict[str, tuple[Callable[[], bytes], str]] = {
    "garbage": (lambda: b"no archive at all" * 100, "no end record"),
    "empty": (lambda: b"", "no end record"),
    "bytes behind the end": (lambda: wheel() + b"more", "no end record"),
    "truncated": (lambda: wheel()[:-1], "no end record"),
    "two end records": (
        lambda: wheel(comment=b"PK\5\6" + bytes(16) + b"\0\0"),
        "more than one",
    ),
    "count too high": (lambda: ended(wheel(), here=99, count=99), "says that it has 99"),
    "parts": (lambda: ended(wheel(), disk=1), "one part of several"),
    "directory too large": (lambda: ended(wheel(), size=0x7FFFFFFF), "its directory takes"),
    "directory elsewhere": (lambda: ended(wheel(), start=10), "does not end where"),
    "bytes in front": (lambda: b"#!/bin/sh\n" + wheel(), "does not end where"),
    "zip64 without its record": (lambda: ended(wheel(), start=0xFFFFFFFF), "zip64 end record"),
    "zip64 that lies": (lambda: zip64(lie=3), "contradict each other|says that it has"),
    "zip64 without mark": (lambda: zip64(mark=b"PK\0\0"), "zip64 end record is not where"),
    "duplicate": (duplicated, "is in it twice"),
    "overlap": (overlapping, "overlaps"),
    "link": (linked, "is a link"),
    "device": (lambda: changed(wheel(), ENGINE, "attributes", 0o020666 << 16), "no regular file"),
    "encrypted": (lambda: changed(wheel(), ENGINE, "flags", 1), "is encrypted"),
    "unknown method": (lambda: changed(wheel(), ENGINE, "method", 93), "by method 93"),
    "another disk": (lambda: changed(wheel(), ENGINE, "disk", 2), "one part of several"),
    "absurd size": (lambda: changed(wheel(), ENGINE, "size", 0xFFFFFFF0), "declares 4294967280"),
    "absurd compressed size": (
        lambda: changed(wheel(), ENGINE, "compressed", 0x7FFFFFFF),
        "overlaps",
    ),
    "inflates on": (with_bomb, "inflates beyond the 100 bytes"),
    "wrong crc": (
        lambda: changed(changed(wheel(), ENGINE, "crc", 1), ENGINE, "crc", 1, "local"),
        "size and CRC",
    ),
    "local header differs": (
        lambda: changed(wheel(), ENGINE, "size", 5, "local"),
        "contradicts the directory",
    ),
    "local method differs": (
        lambda: changed(wheel(), ENGINE, "method", 0, "local"),
        "contradicts the directory",
    ),
    "local name differs": (
        lambda: wheel().replace(b"vllm/engine.py", b"vllm/engina.py", 1),
        "contradicts the directory",
    ),
    **{
        f"path {path!r}": (lambda path=path: named(path), "no plain relative path")  # type: ignore[misc]
        for path in (
            "/etc/passwd",
            "../x.py",
            "vllm/../../x.py",
            "vllm//x.py",
            "./x.py",
            "C:/x.py",
            "vllm\\x.py",
            "vllm/a\nb.py",
            "x" * 5000,
        )
    },
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_archive_is_refused(opened: Open, kind: str) -> None:
    make, reason = HOSTILE[kind]
    with pytest.raises(EnvironmentRefusedError, match=reason) as caught:
        opened(make()).read(ENGINE)
    assert "a.whl" in str(caught.value)


def test_an_archive_with_a_truthful_zip64_end_record_is_read(opened: Open) -> None:
    assert opened(zip64()).read(ENGINE)[ENGINE] == FILES[ENGINE]


def test_a_comment_at_the_end_does_not_hide_the_directory(opened: Open) -> None:
    assert opened(wheel(comment=b"made by hand" * 4000)).read(ENGINE)[ENGINE] == FILES[ENGINE]


def test_a_header_whose_sizes_follow_the_member_is_read(opened: Open) -> None:
    class OneWay(io.RawIOBase):
        def __init__(self) -> None:
            self.out = bytearray()

        def writable(self) -> bool:
            return True

        def write(self, data: object) -> int:
            text = bytes(memoryview(data))  # type: ignore[arg-type]
            self.out += text
            return len(text)

    stream = OneWay()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, text in FILES.items():
            archive.writestr(path, text)
        archive.writestr(f"{INFO}/RECORD", record(FILES))
    assert opened(bytes(stream.out)).read(*FILES) == dict(FILES)


def test_a_member_larger_than_any_source_is_not_read(opened: Open) -> None:
    made = opened(wheel({**FILES, "vllm/big.bin": bytes(70 << 20)}))
    assert ENGINE in made.read(ENGINE)
    with pytest.raises(EnvironmentRefusedError, match="more than any source"):
        made.read("vllm/big.bin")


def test_any_flipped_byte_is_refused_or_changes_nothing(opened: Open) -> None:
    data = wheel({"vllm/a.py": b"a = 1\n" * 50})
    made = opened(data)
    dice = random.Random(3)
    outcomes: set[type] = set()
    for _ in range(300):
        at = dice.randrange(len(data))
        made.served.files["/a.whl"] = data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]
        try:
            text = made.read("vllm/a.py")["vllm/a.py"]
        except (EnvironmentRefusedError, KeyError) as error:
            outcomes.add(type(error))
        else:
            assert text == b"a = 1\n" * 50
            outcomes.add(bytes)
    assert EnvironmentRefusedError in outcomes


# -- files of this machine ------------------------------------------------------------------------


def test_a_wheel_on_this_machine_is_read_like_one_on_a_server(tmp_path: Path) -> None:
    (tmp_path / "a.whl").write_bytes(large())
    source = FileSource(tmp_path / "a.whl", "a.whl")
    directory = read_directory(source, "a.whl")
    wanted = [directory.members["vllm/a.py"]]
    ((_, text),) = read_members(source, "a.whl", wanted, Held(0, b""))
    assert zlib.crc32(text) == zlib.crc32(FILES[ENGINE])


def test_a_wheel_on_this_machine_that_is_replaced_is_noticed(tmp_path: Path) -> None:
    place = tmp_path / "a.whl"
    place.write_bytes(wheel())
    source = FileSource(place, "a.whl")
    read_directory(source, "a.whl")
    place.write_bytes(large())
    with pytest.raises(EnvironmentRefusedError, match="changed meanwhile"):
        source.read(0, 10)


def _sha256(data: bytes) -> str:
    from hashlib import sha256

    return sha256(data).hexdigest()
