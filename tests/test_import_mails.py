"""Diffs and mails read as git and quilt read them."""

from __future__ import annotations

import base64
import quopri
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from commandline import SERIES
from vllm_series.errors import PatchFormatError, RefusedError, SeriesError
from vllm_series.importing.incoming import Incoming
from vllm_series.importing.mails import read_mails
from vllm_series.importing.quilt import read_quilt

HUNK = b"@@ -1,2 +1,2 @@\n import os\n-x = 1\n+x = 2\n"
DIFF = b"--- a/vllm/envs.py\n+++ b/vllm/envs.py\n" + HUNK
MAIL = (
    b"From: A Tester <tester@example.com>\n"
    b"Date: Tue, 1 Dec 2026 10:00:00 +0100\n"
    b"Subject: [PATCH v2 1/2] envs: count from two\n\n"
    b"Because one was wrong.\n\nOrigin: vendor\n---\n vllm/envs.py | 2 +-\n\n"
    + DIFF
    + b"-- \n2.39\n"
)
DYNWIDTH = (SERIES / "vllm-0.33" / "dynwidth.patch").read_bytes()


def one(text: bytes, source: str = "given.patch") -> Incoming:
    (found,) = read_mails(text, source)
    return found


def git_says(git: str, text: bytes, folder: Path) -> dict[str, str]:
    """What git mailinfo makes of a mail."""
    done = subprocess.run(
        [git, "mailinfo", "-u", folder / "message", folder / "patch"],
        input=text, capture_output=True, check=True, cwd=folder,
    )  # fmt: skip
    told = dict(line.split(": ", 1) for line in done.stdout.decode().splitlines() if line)
    told["message"] = (folder / "message").read_text()
    return told


def test_a_mail_says_who_when_and_why() -> None:
    found = one(MAIL)
    assert found.name == "envs.patch"
    assert found.author == "A Tester <tester@example.com>"
    assert found.date == "Tue, 1 Dec 2026 10:00:00 +0100"
    assert found.message == "envs: count from two\n\nBecause one was wrong.\n\nOrigin: vendor"
    assert ("Subject", "[PATCH] envs: count from two") in found.headers


@pytest.mark.parametrize(
    "form", ["plain", "crlf", "quoted-printable", "base64", "multipart", "inner"]
)
def test_a_mail_is_read_as_git_reads_it(
    form: str, tmp_path: Path, oracle: Callable[[str], str]
) -> None:
    head, _, body = MAIL.partition(b"\n\n")
    body = body.replace(b"was wrong", "was falſch".encode())
    utf8 = b"Content-Type: text/plain; charset=utf-8\nMIME-Version: 1.0\n"
    match form:
        case "crlf":
            text = (head + b"\n" + utf8 + b"\n" + body).replace(b"\n", b"\r\n")
        case "quoted-printable":
            encoding = b"Content-Transfer-Encoding: quoted-printable\n\n"
            text = head + b"\n" + utf8 + encoding + quopri.encodestring(body)
        case "base64":
            encoding = b"Content-Transfer-Encoding: base64\n\n"
            text = head + b"\n" + utf8 + encoding + base64.encodebytes(body)
        case "multipart":
            above, mark, below = body.partition(b"---\n")
            text = (
                head + b'\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="b"\n\n'
                b"--b\n" + utf8 + b"\n" + above + mark + b"\n--b\n"
                b"Content-Type: text/x-patch; charset=utf-8\n\n" + below + b"\n--b--\n"
            )
        case "inner":
            inner = b"From: Else Where <else@example.com>\nSubject: envs: another\n\n"
            text = head + b"\n" + utf8 + b"\n" + inner + body
        case _:
            text = head + b"\n" + utf8 + b"\n" + body
    found = one(text)
    says = git_says(oracle("git"), text.replace(b"\r\n", b"\n"), tmp_path)
    assert found.author == f"{says['Author']} <{says['Email']}>"
    assert found.date == says["Date"]
    subject, _, why = found.message.partition("\n\n")
    assert subject == says["Subject"]
    assert why.split() == says["message"].split()
    assert found.patch.files[0].hunks[0].to_bytes() == HUNK


def test_an_mbox_is_taken_apart_and_a_letter_in_it_passed_over() -> None:
    letter = (
        b"From 0 Mon Sep 17 00:00:00 2001\nFrom: A <a@b.c>\nSubject: [PATCH 0/2] both\n\nHello.\n"
    )
    letter = letter.replace(b"From 0 ", b"From " + b"0" * 40 + b" ")
    envelope = b"From " + b"0" * 40 + b" Mon Sep 17 00:00:00 2001\n"
    found = read_mails(letter + b"\n" + envelope + MAIL + b"\n" + DYNWIDTH, "both.mbox")
    assert [each.name for each in found] == ["envs.patch", "dynwidth.patch"]
    assert [each.base for each in found] == [None, "0.33.0"]


def test_a_line_of_a_hunk_ends_no_mail() -> None:
    envelope = b"From " + b"0" * 40 + b" Mon Sep 17 00:00:00 2001\n"
    text = b"--- a/vllm/x.txt\n+++ b/vllm/x.txt\n@@ -0,0 +1,2 @@\n+a\n+" + envelope
    found = one(envelope + MAIL.partition(b"---\n")[0] + b"---\n\n" + text)
    assert found.patch.files[0].hunks[0].lines[1] == envelope


def test_patches_of_one_name_are_told_apart() -> None:
    envelope = b"From " + b"0" * 40 + b" Mon Sep 17 00:00:00 2001\n"
    found = read_mails((envelope + MAIL) * 3, "three.mbox")
    assert [each.name for each in found] == ["envs.patch", "envs-2.patch", "envs-3.patch"]
    assert [each.patch.name for each in found] == [each.name for each in found]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("vllm/envs.py", "vllm/envs.py"),
        ("a/vllm/envs.py", "b/vllm/envs.py"),
        ("x/lib/site-packages/vllm/envs.py", "y/lib/site-packages/vllm/envs.py"),
    ],
)
def test_a_bare_diff_is_named_after_its_file(old: str, new: str) -> None:
    found = one(f"--- {old}\n+++ {new}\n".encode() + HUNK, "Count from two.diff")
    assert (found.name, found.message, found.author) == ("Count-from-two.patch", "", None)
    assert found.patch.files[0].paths(1) == ("vllm/envs.py", "vllm/envs.py")


def test_what_git_shows_of_a_commit_is_understood(
    tmp_path: Path, oracle: Callable[[str], str]
) -> None:
    def git(*words: str) -> bytes:
        words = (oracle("git"), *words)
        return subprocess.run(words, cwd=tmp_path, capture_output=True, check=True).stdout

    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm/envs.py").write_text("import os\nx = 1\n")
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "stock")
    (tmp_path / "vllm/envs.py").write_text("import os\nx = 2\n")
    message = "envs: count from two\n\nBecause:\n\n    one was wrong.\n\nOrigin: vendor"
    git("commit", "-qam", message)
    found = one(git("show"))
    assert found.message == message
    assert found.author == "A Tester <tester@example.com>"
    assert found.date == git("log", "-1", "--format=%aD").decode().strip()


def test_files_outside_of_the_package_are_left_out_and_told() -> None:
    outside = DIFF.replace(b"vllm/envs.py", b"tests/test_envs.py")
    found = one(DIFF + outside)
    assert found.passed == ("tests/test_envs.py",)
    assert len(found.patch.files) == 1
    with pytest.raises(RefusedError, match=r"no file of the installed package"):
        read_mails(outside, "outside.diff")


def test_a_text_without_a_diff_is_refused() -> None:
    with pytest.raises(PatchFormatError, match="no unified diff"):
        read_mails(b"only words\n", "words.txt")


# -- quilt -----------------------------------------------------------------------------------------

DEP3 = (
    b"Description: count from two\n Because one\n was wrong.\n .\n Always.\n"
    b"Author: A Tester <tester@example.com>\nForwarded: https://example.com/1\n"
    b"Last-Update: 2026-11-01\n\nMore of it.\n---\n"
)


def folder(place: Path, series: str, **patches: bytes) -> Path:
    (place / "series").write_text(series)
    for name, text in patches.items():
        (place / f"{name}.diff").write_bytes(text)
    return place


def test_a_quilt_folder_is_read_in_its_order_with_its_levels(tmp_path: Path) -> None:
    bare = b"--- vllm/envs.py.orig\n+++ vllm/envs.py\n" + HUNK
    deep = b"--- a/src/vllm/envs.py\n+++ b/src/vllm/envs.py\n" + HUNK
    listed = "# all\nthree.diff -p2\n\none.diff -p 0   # why\ntwo.diff\nback.diff -R\n"
    found = read_quilt(folder(tmp_path, listed, one=bare, two=DIFF, three=deep, back=DIFF))
    assert [each.name for each in found] == ["three.diff", "one.diff", "two.diff", "back.diff"]
    assert {each.patch.files[0].paths(1)[1] for each in found} == {"vllm/envs.py"}
    assert found[3].patch.files[0].hunks[0].pre == [b"import os\n", b"x = 2\n"]


def test_the_header_of_debian_is_understood(tmp_path: Path) -> None:
    (found,) = read_quilt(folder(tmp_path, "one.diff\n", one=DEP3 + DIFF))
    assert found.author == "A Tester <tester@example.com>"
    assert found.message == (
        "count from two\n\nBecause one\nwas wrong.\n\nAlways.\n\nMore of it.\n\n"
        "Forwarded: https://example.com/1\nLast-Update: 2026-11-01"
    )


def test_the_folder_around_a_quilt_folder_will_do(tmp_path: Path) -> None:
    (tmp_path / "patches").mkdir()
    folder(tmp_path / "patches", "one.diff\n", one=DIFF)
    assert [each.name for each in read_quilt(tmp_path)] == ["one.diff"]


@pytest.mark.parametrize(
    ("series", "said"),
    [
        ("gone.diff\n", "gone.diff is not there"),
        ("../one.diff\n", "outside the folder"),
        ("one.diff --fuzz=3\n", "--fuzz=3 is not known"),
        ("one.diff -p4\n", "fewer folders than strip level 4"),
        ("# none\n", "lists no patch"),
    ],
)
def test_what_quilt_would_not_do_is_refused(series: str, said: str, tmp_path: Path) -> None:
    with pytest.raises((SeriesError, PatchFormatError), match=said):
        read_quilt(folder(tmp_path, series, one=DIFF))
