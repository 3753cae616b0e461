"""Every malformed patch is refused whole, with the file, the line and the reason."""

from __future__ import annotations

import contextlib
import re
import time

import pytest

from diffs import git_apply, git_diff, ours_or_refusal
from vllm_series.diffs.parse import parse
from vllm_series.errors import PatchFormatError

NAMES = b"--- a/vllm/x.py\n+++ b/vllm/x.py\n"
HUNK = b"@@ -1,3 +1,3 @@\n one\n-two\n+zwei\n three\n"
BARE = NAMES + HUNK
GIT = b"diff --git a/vllm/x.py b/vllm/x.py\n"
MAIL = b"From: a <a@b>\nSubject: s\n\nwhy\n---\n\n"
MBOX = b"From 0123456789abcdef0123456789abcdef01234567 Mon Sep 17 00:00:00 2001\n"


def refused(patch: bytes) -> PatchFormatError:
    with pytest.raises(PatchFormatError) as caught:
        parse(patch, "series/p.patch")
    assert str(caught.value).startswith("series/p.patch:")
    assert re.search(r"\w.*\. [A-Z].*[^.]\.$", caught.value.reason, re.DOTALL), "what to do?"
    return caught.value


def names(old: str, new: str) -> bytes:
    return f"--- {old}\n+++ {new}\n".encode() + HUNK


CASES = {
    "nothing": (b"", 0, "the patch is empty"),
    "blank lines": (b"\n \n\t\n", 0, "the patch is empty"),
    "only a message": (MAIL, 0, "it holds no unified diff. Make one with git diff"),
    "garbage": (b"\x00\x01\x02garbage\n" * 9, 0, "binary data"),
    "prose": (b"Dear list,\nhere is no patch.\n", 0, "it holds no unified diff"),
    "coloured": (b"\x1b[1mdiff --git a/x b/x\x1b[m\n", 0, "coloured one. Make it with git diff"),
    "byte order mark": (b"\xef\xbb\xbf" + BARE, 1, "byte order mark"),
    "UTF-16": ("\ufeff".encode("utf-16-le") + BARE.decode().encode("utf-16-le"), 1, "byte order"),
    # Hunks
    "cut off between lines": (BARE[:-7], 6, "is cut off: 1 old and 1 new lines"),
    "cut off in a line": (BARE[:-3], 7, "the last line does not end"),
    "cut off before the hunk": (NAMES, 3, "no hunk follows"),
    "ends early": (BARE[:-7] + GIT, 7, "the hunk of line 3 ends early"),
    "one line too many": (BARE + b"+vier\n", 8, "more lines than its header counts"),
    "context too much": (BARE + b" vier\n", 8, "more lines than its header counts"),
    "removed too much": (BARE + b"-vier\n", 8, "more lines than its header counts"),
    "other lines than counted": (
        BARE.replace(b" three", b"+three"), 7, "1 old and 0 new lines are still"
    ),
    "more removed than counted": (
        NAMES + b"@@ -1 +1,2 @@\n-a\n-b\n+c\n", 5, "other lines than its header counts"
    ),
    "nothing changes": (NAMES + b"@@ -1 +1 @@\n one\n", 3, "a hunk that changes nothing"),
    "no lines": (NAMES + b"@@ -1,0 +1,0 @@\n", 3, "a hunk without lines"),
    "no header": (NAMES + b" one\n-two\n+zwei\n", 3, "no hunk follows"),
    "nonsense header": (NAMES + b"@@ nonsense @@\n-a\n+b\n", 3, "this hunk header is malformed"),
    "negative header": (NAMES + b"@@ --1 +1 @@\n-a\n+b\n", 3, "this hunk header is malformed"),
    "half a header": (NAMES + b"@@ -1,3 +1,3\n-a\n+b\n", 3, "this hunk header is malformed"),
    "huge numbers": (NAMES + b"@@ -1,%s +1 @@\n-a\n" % (b"9" * 5000), 3, "malformed"),
    "huge counts": (NAMES + b"@@ -1,999999999 +1 @@\n-a\n", 4, "999999998 old and 1 new lines"),
    "other digits": (NAMES + "@@ -١ +١ @@\n-a\n+b\n".encode(), 3, "malformed"),
    "line nought": (NAMES + b"@@ -0,1 +1 @@\n-a\n+b\n", 3, "counts lines from line 0"),
    "overlap": (BARE + HUNK.replace(b"-1,3 +1,3", b"-3,3 +3,3"), 8, "overlap or are out of order"),
    "out of order": (
        NAMES + HUNK.replace(b"-1,3 +1,3", b"-9,3 +9,3") + HUNK, 8, "overlap or are out of order"
    ),
    "marker alone": (NAMES + b"@@ -1 +1 @@\n\\ No newline at end of file\n-a\n+b\n", 4, "marker"),
    "marker twice": (
        NAMES + b"@@ -1 +1 @@\n-a\n\\ No newline\n\\ No newline\n+b\n",
        6, "a marker for a missing newline without the line",
    ),
    "marker twice at the end": (BARE + b"\\ No newline\n\\ No newline\n", 9, "more lines"),
    "marker without space": (BARE + b"\\No newline\n", 8, "starts with a backslash"),
    "newline missing within": (
        BARE.replace(b" one\n", b" one\n\\ No newline at end of file\n"),
        3, "a line in the middle of the file has no newline",
    ),
    "newline missing before another hunk": (
        BARE + b"\\ No newline at end of file\n" + HUNK.replace(b"-1,3 +1,3", b"-9,3 +9,3"),
        3, "a line in the middle of the file has no newline",
    ),
    "form feed for a blank line": (BARE.replace(b" one\n", b"\x0c\n"), 4, "ends early"),
    # Text where none belongs
    "stray text behind a hunk": (BARE + b"hello\n", 8, "stray text after a hunk: 'hello'"),
    "stray text between files": (BARE + b"hello\n" + BARE, 8, "stray text after a hunk"),
    "a hunk behind a blank line": (BARE + b"\n" + HUNK, 9, "a hunk without the --- and +++ lines"),
    "a hunk without its file": (HUNK, 1, "a hunk without the --- and +++ lines"),
    "a diff behind the signature": (BARE + b"-- \n2.39\n" + BARE, 10, "behind the signature"),
    "lines behind a removed '- '": (BARE + b"-- \n-x\n", 9, "behind the signature"),
    "context behind a removed '- '": (BARE + b"-- \n x\n", 9, "behind the signature"),
    "two mails": (MBOX + MAIL + BARE + MBOX + MAIL + BARE, 15, "a second mail starts here"),
    "two mails with signatures": (
        MBOX + MAIL + BARE + b"-- \n2.39\n" + MBOX + MAIL + BARE, 17, "a second mail"
    ),
    "a second mail without From": (MAIL + BARE + MAIL + BARE, 14, "stray text after a hunk"),
    # Other kinds of diff
    "context diff": (
        b"*** a/x\n--- b/x\n***************\n*** 1 ****\n! a\n--- 1 ----\n! b\n",
        1, "this is a context diff. Make a unified one with diff -u",
    ),
    "context diff behind a unified one": (BARE + b"*** a/x\n--- b/x\n", 8, "a context diff"),
    "context diff before a unified one": (b"*** a/x\n--- b/x\n" + BARE, 1, "a context diff"),
    "ed script": (b"2c\nzwei\n.\n", 0, "this is an ed script or a normal diff"),
    "ed script of diff -e": (b"diff -e a/x b/x\n2c\nzwei\n.\n", 2, "this is an ed script"),
    "ed script behind a diff": (BARE + b"2c\nzwei\n.\nw\n!touch /tmp/x\n", 8, "an ed script"),
    "normal diff": (b"2c2\n< two\n---\n> zwei\n", 1, "an ed script or a normal diff"),
    "normal diff before a unified one": (b"2c2\n< two\n---\n> zwei\n" + BARE, 1, "a normal diff"),
    "combined diff": (
        b"diff --cc vllm/x.py\nindex 1,2..3\n--- a/vllm/x.py\n+++ b/vllm/x.py\n@@@ -1 -1 +1 @@@\n",
        1, "a merge's combined diff. Use git diff A B",
    ),
    "combined hunk": (NAMES + b"@@@ -1,2 -1,2 +1,2 @@@\n  a\n", 3, "hunk header is malformed"),
    "binary patch": (
        GIT + b"index 1234567..89abcde 100644\nGIT binary patch\nliteral 3\n", 3, "binary changes"
    ),
    "binary files": (GIT + b"Binary files a/vllm/x.py and b/vllm/x.py differ\n", 2, "binary"),
    "binary files of diff": (BARE + b"Binary files old/a.so and new/a.so differ\n", 8, "binary"),
    # Names
    "absolute path": (names("/etc/passwd", "/etc/passwd"), 1, "/etc/passwd is an absolute path"),
    "drive letter": (names("a/x", "C:\\x"), 1, "is an absolute path"),
    "parent folder": (names("a/vllm/../x", "b/vllm/../x"), 1, "leads outside the tree"),
    "parent folder in front": (names("../old/vllm/x", "../new/vllm/x"), 1, "leads outside"),
    "parent folder in quotes": (names('"a/\\056\\056/x"', '"b/\\056./x"'), 1, "leads outside"),
    "empty component": (names("a//etc/passwd", "b//etc/passwd"), 1, "is not a file name"),
    "dot component": (names("a/vllm/./x", "b/vllm/./x"), 1, "is not a file name"),
    "folder": (names("a/vllm/", "b/vllm/"), 1, "is not a file name"),
    "NUL in a path": (names("a/vllm/x\0.py", "b/vllm/x\0.py"), 1, "is not a file name"),
    "quoted NUL in a path": (names('"a/x\\000"', '"b/x\\000"'), 1, "is not a file name"),
    "no names": (b"--- \n+++ \n" + HUNK, 1, "a file without a name"),
    "empty quotes": (names('""', '""'), 1, "a file without a name"),
    "open quotes": (names('"a/x', '"b/x'), 1, "a quoted path does not end"),
    "open quotes by an escape": (names('"a/x\\"', '"b/x\\"'), 1, "a quoted path does not end"),
    "unknown escape": (names('"a/\\x41"', '"b/\\x41"'), 1, "an escape that git does not write"),
    "escape too large": (names('"a/\\777"', '"b/\\777"'), 1, "an escape that git does not write"),
    "text behind quotes": (names('"a/x"y', '"b/x"y'), 1, "text behind a quoted path"),
    "path without end": (names("a/" + "x" * 5000, "b/x"), 1, "longer than 4096 bytes"),
    "folders without end": (names("a/" * 5000 + "x", "b/x"), 1, "longer than 4096 bytes"),
    "git path without end": (
        b"diff --git a/%b b/%b\nnew file mode 100644\n" % (b"x " * 9000, b"x " * 9000),
        1, "longer than 4096 bytes",
    ),
    # /dev/null
    "both sides /dev/null": (names("/dev/null", "/dev/null"), 1, "both sides are /dev/null"),
    "git: both sides /dev/null": (
        GIT + names("/dev/null", "/dev/null"), 1, "both sides are /dev/null"
    ),
    "created with an old side": (
        GIT + b"new file mode 100644\n" + BARE, 1, "an old side other than /dev/null"
    ),
    "deleted with a new side": (
        GIT + b"deleted file mode 100644\n" + BARE, 1, "a new side other than /dev/null"
    ),
    "created with old lines": (names("/dev/null", "b/vllm/x.py"), 1, "lines on its old side"),
    "deleted with new lines": (names("a/vllm/x.py", "/dev/null"), 1, "lines on its new side"),
    "created by two hunks": (
        b"--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+a\n@@ -0,0 +2 @@\n+b\n", 1, "more than one hunk"
    ),
    "renamed from /dev/null": (
        b"diff --git a/x b/y\nrename from x\nrename to y\n--- /dev/null\n+++ b/y\n"
        b"@@ -0,0 +1 @@\n+a\n",
        1, "the old side is /dev/null, yet the file is not created",
    ),
    "deleted yet created": (
        GIT + b"deleted file mode 100644\n--- /dev/null\n+++ b/vllm/x.py\n@@ -0,0 +1 @@\n+a\n",
        1, "the old side is /dev/null, yet the file is not created",
    ),
    # git's headers
    "header names another file": (
        b"diff --git a/vllm/y.py b/vllm/y.py\n" + BARE,
        1, "diff --git names a/vllm/y.py, the --- line a/vllm/x.py",
    ),
    "header names two files": (
        b"diff --git a/vllm/x.py b/vllm/y.py\n" + BARE, 1, "names b/vllm/y.py, the +++ line"
    ),
    "two files without rename": (
        b"diff --git a/vllm/x.py b/vllm/y.py\n" + names("a/vllm/x.py", "b/vllm/y.py"),
        1, "diff --git does not name one file twice",
    ),
    "header names nothing": (b"diff --git \nnew file mode 100644\n", 1, "does not name one file"),
    "header reads in two ways": (
        b"diff --git x x x x x\nnew file mode 100644\n", 1, "diff --git does not name one file"
    ),
    "rename without names": (
        b"diff --git a/x b/y\nsimilarity index 100%\nrename from x\n", 1, "needs both its names"
    ),
    "rename of other names": (
        b"diff --git a/x b/y\nrename from x\nrename to z\n", 1, "does not name x and z"
    ),
    "rename to nothing": (
        b'diff --git a/x b/y\nrename from x\nrename to ""\n', 3, "a file without a name"
    ),
    "header in open quotes": (
        b'diff --git "a/x b/x"\nnew file mode 100644\n', 1, "a quoted path does not end"
    ),
    "header with one quoted name": (
        b'diff --git "a/x"\nnew file mode 100644\n', 1, "a quoted path does not end"
    ),
    "rename to itself": (b"diff --git a/x b/x\nrename from x\nrename to x\n", 1, "to itself"),
    "rename and copy": (
        b"diff --git a/x b/y\nrename from x\ncopy to y\n", 1, "each other: copy and rename"
    ),
    "created and renamed": (
        b"diff --git a/x b/y\nnew file mode 100644\nrename from x\nrename to y\n",
        1, "contradict each other: create and rename",
    ),
    "two index lines": (
        GIT + b"index 1234567..89abcde\nindex 1234567..89abcde\n" + BARE, 3, "two lines that give"
    ),
    "two rename lines": (
        b"diff --git a/x b/y\nrename from x\nrename from z\nrename to y\n", 3, "two lines that give"
    ),
    "similarity beyond all": (
        b"diff --git a/x b/y\nsimilarity index 900%\nrename from x\nrename to y\n",
        1, "is no percentage",
    ),
    "index line without its header": (
        b"index 1234567..89abcde 100644\n" + BARE, 1, "a header of git without its diff --git line"
    ),
    "git hunk without names": (GIT + HUNK, 2, "a hunk without the --- and +++ lines"),
    "git --- without +++": (GIT + b"--- a/vllm/x.py\n" + HUNK, 3, "a --- line without its +++"),
    "git header alone": (GIT, 1, "it changes nothing in this file"),
    "one mode": (GIT + b"old mode 100644\n", 1, "a mode change needs both modes"),
    "same modes": (GIT + b"old mode 100644\nnew mode 100644\n", 1, "it changes nothing"),
    "symbolic link": (GIT + b"new file mode 120000\n", 1, "symbolic links are not supported"),
    "file to link": (GIT + b"old mode 100644\nnew mode 120000\n", 1, "symbolic links"),
    "submodule": (GIT + b"new file mode 160000\n", 1, "submodules are not supported"),
    "submodule by its index": (GIT + b"index 1234567..89abcde 160000\n" + BARE, 1, "submodules"),
    "set-user-id": (GIT + b"new file mode 104755\n", 1, "mode 104755 is not that of a regular"),
    "world-writable": (GIT + b"new file mode 100666\n", 1, "mode 100666 is not that of a regular"),
    "cut off in a mode": (GIT + b"new file mode 100644", 2, "the last line does not end"),
    "no mode": (GIT + b"deleted file mode \n", 1, "mode  is not that of a regular file"),
    "mode that is no number": (GIT + b"new file mode rwx\n", 1, "mode rwx is not that"),
    # Mails
    "diff in the message": (
        b"From: a\nSubject: s\n\nLike this:\n" + BARE + b"but better.\n---\n\n" + BARE,
        12, "'but better.'. Take it out. If the diff from line 5 on is a part of the message",
    ),
    "diff in the message before a blank line": (
        b"From: a\nSubject: s\n\nLike this:\n" + BARE + b"\nbut better.\n\n" + GIT + BARE,
        13, "stray text after a hunk",
    ),
    "git diff line in the message": (
        b"From: a\nSubject: s\n\ndiff --git is nice\n---\n\n" + BARE, 4, "indent it: git am"
    ),
    "hunk in the message": (
        b"From: a\nSubject: s\n\n@@ -1 +1 @@\n-a\n+b\n---\n\n" + BARE, 4, "indent it: git am"
    ),
    "broken diff that removes '--'": (
        b"From: a\nSubject: s\n\nwhy\n\n" + NAMES + b"@@ -1,2 +1 @@\n a\n---\nX\n" + GIT + BARE,
        11, "stray text after a hunk",
    ),
    "quoted-printable": (
        b"From: a\nSubject: s\nContent-Transfer-Encoding: quoted-printable\n\n" + BARE,
        1, "the mail is sent as quoted-printable. Decode it with git mailinfo",
    ),
    "base64": (
        b"From: a\nSubject: s\nContent-Transfer-Encoding:\n  BASE64\n\n" + BARE, 1, "sent as BASE64"
    ),
    "attachment": (
        b'From: a\nSubject: s\nContent-Type: multipart/mixed;\n boundary="b"\n\n--b\n' + BARE,
        1, "the mail has several parts",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("patch", "line", "reason"), CASES.values(), ids=list(CASES))
def test_malformed_patch_is_refused(patch: bytes, line: int, reason: str) -> None:
    error = refused(patch)
    assert reason in error.reason
    assert error.line == line


def test_every_refusal_reads_as_what_where_and_no_bytes() -> None:
    for patch, _, _ in CASES.values():
        message = str(refused(patch))
        assert re.match(r"series/p\.patch:( |\d+: )[A-Za-z/+.\"']", message), message
        assert not re.search(r"[\x00-\x1f]|b'", message), message


def test_file_after_a_broken_one_is_not_taken_alone() -> None:
    broken = NAMES.replace(b"x.py", b"first.py") + b"@@ -1,9 +1 @@\n a\n"
    for mail in (b"", MAIL, MBOX + MAIL):
        refused(mail + broken + GIT + BARE)


def test_cut_anywhere_it_is_refused_or_ends_at_a_file() -> None:
    before = {"vllm/x.py": b"one\ntwo\nthree\n", "vllm/y.py": b"a\nb", "vllm/gone.py": b"a\n"}
    after = {"vllm/x.py": b"one\nzwei\nthree\n", "vllm/y.py": b"a\nc\n", "vllm/made.py": b""}
    whole = git_diff(before, after, "--no-renames")
    taken = 0
    for cut in range(1, len(whole)):
        result = ours_or_refusal(before, whole[:cut])
        if result is not None:
            assert result == git_apply(before, whole[:cut])
            taken += 1
    assert taken >= 3


@pytest.mark.parametrize(
    "patch",
    [
        pytest.param(BARE.replace(b"three", b"x" * 1_000_000), id="a line of a megabyte"),
        pytest.param(
            NAMES + b"".join(b"@@ -%d +%d @@\n-a\n+b\n" % (n, n) for n in range(1, 100_001)),
            id="100,000 hunks",
        ),
        pytest.param(
            b"".join(
                b"--- a/vllm/%d.py\n+++ b/vllm/%d.py\n@@ -1 +1 @@\n-a\n+b\n" % (n, n)
                for n in range(10_000)
            ),
            id="10,000 files",
        ),
        pytest.param(b"x" * 2_000_000, id="a line without end"),
        pytest.param(b"\n" * 1_000_000 + BARE, id="a million blank lines"),
        pytest.param(b"Key: value\n" * 200_000 + b"\n" + BARE, id="200,000 headers"),
        pytest.param(b"--- a\n" * 200_000, id="200,000 old names"),
        pytest.param(b"Index: a\n" * 200_000 + BARE, id="200,000 names of svn"),
        pytest.param(b"diff --git " + b"a " * 8000, id="a name of spaces"),
        pytest.param((b"diff --git " + b"a/ " * 2500 + b"\n") * 200, id="names of slashes"),
        pytest.param(b'diff --git "' + b"\\" * 100_000 + b"\n", id="backslashes"),
        pytest.param(b"@@ -" + b" " * 500_000 + b"1", id="spaces in a header"),
        pytest.param(b"@@ -1" + b" " * 500_000 + b"\n", id="spaces behind a number"),
        pytest.param(b"Binary files " + b" and " * 200_000 + b"\n", id="binary without end"),
        pytest.param(b"From: " + b"=?" * 200_000 + b"\n\n" + BARE, id="encoded words"),
        pytest.param(b"--- a " + b" 2026" * 100_000 + b"\n+++ b\n" + HUNK, id="dates"),
    ],
)
def test_hostile_size_costs_linear_time(patch: bytes) -> None:
    started = time.process_time()
    with contextlib.suppress(PatchFormatError):
        assert parse(patch, "p").subject is not None
    assert time.process_time() - started < 5
