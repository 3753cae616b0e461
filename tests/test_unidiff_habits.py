"""unidiff's habits that would change what a patch means, each beside this project's answer.

Every test first shows the habit with unidiff alone, so that a release without it is noticed, and
then that `parse` is right.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from unidiff.errors import UnidiffParseError
from unidiff.patch import PatchSet

from vllm_series.diffs.parse import parse
from vllm_series.errors import PatchFormatError
from vllm_series.patch import FileChange, Kind

NAMES = "--- a/vllm/x.py\n+++ b/vllm/x.py\n"
HUNK = "@@ -1,3 +1,3 @@\n one\n-two\n+zwei\n three\n"


def only(text: str) -> FileChange:
    (change,) = parse(text.encode(), "p").files
    return change


def test_body_lines_beyond_the_counts_are_dropped() -> None:
    text = NAMES + HUNK + "+vier\n"
    assert "vier" not in str(PatchSet(text)[0][0])
    with pytest.raises(PatchFormatError, match="more lines than its header counts"):
        parse(text.encode(), "p")


def test_garbage_gives_an_empty_set() -> None:
    text = "this is no patch\n"
    assert list(PatchSet(text)) == []
    with pytest.raises(PatchFormatError, match="no unified diff"):
        parse(text.encode(), "p")


def test_text_between_files_is_dropped() -> None:
    text = NAMES + HUNK + "hello\n" + NAMES.replace("x.py", "y.py") + HUNK
    assert [file.path for file in PatchSet(text)] == ["vllm/x.py", "vllm/y.py"]
    with pytest.raises(PatchFormatError, match="stray text"):
        parse(text.encode(), "p")


def test_insertion_into_an_empty_file_is_taken_for_a_new_file() -> None:
    text = (
        "diff --git a/vllm/x.py b/vllm/x.py\nindex e69de29..7898192 100644\n"
        + NAMES
        + "@@ -0,0 +1 @@\n+a\n"
    )
    assert PatchSet(text)[0].is_added_file
    assert only(text).kind is Kind.MODIFY


def test_emptied_file_is_taken_for_a_removed_one() -> None:
    text = (
        "diff --git a/vllm/x.py b/vllm/x.py\nindex 7898192..e69de29 100644\n"
        + NAMES
        + "@@ -1 +0,0 @@\n-a\n"
    )
    assert PatchSet(text)[0].is_removed_file
    assert only(text).kind is Kind.MODIFY


@pytest.mark.parametrize("separator", ["\x0c", "\x0b", "\x1c", "\x85", "\u2028", "\r"])
def test_lines_are_split_on_form_feeds_where_someone_uses_splitlines(separator: str) -> None:
    text = NAMES + f"@@ -1,2 +1,2 @@\n one{separator}two\n-three\n+drei\n"
    with pytest.raises(UnidiffParseError):
        PatchSet(text.splitlines(keepends=True))
    (hunk,) = only(text).hunks
    assert hunk.pre == [f"one{separator}two\n".encode(), b"three\n"]


def test_from_filename_turns_crlf_into_lf(tmp_path: Path) -> None:
    text = NAMES + "@@ -1 +1 @@\n-one\r\n+eins\r\n"
    path = tmp_path / "p.patch"
    path.write_bytes(text.encode())
    assert [line.value for line in PatchSet.from_filename(str(path))[0][0]] == ["one\n", "eins\n"]
    (hunk,) = parse(path.read_bytes(), "p").files[0].hunks
    assert (hunk.pre, hunk.post) == ([b"one\r\n"], [b"eins\r\n"])


def test_bytes_that_are_not_utf8_are_an_error() -> None:
    text = NAMES.encode() + b"@@ -1 +1 @@\n-caf\xe9\n+caf\xe8\n"
    with pytest.raises(UnicodeDecodeError):
        PatchSet(text)
    (hunk,) = parse(text, "p").files[0].hunks
    assert (hunk.pre, hunk.post) == ([b"caf\xe9\n"], [b"caf\xe8\n"])


def test_quoted_paths_stay_quoted() -> None:
    name = '"b/vllm/na\\303\\257ve.py"'
    text = f'--- "a/vllm/na\\303\\257ve.py"\n+++ {name}\n' + HUNK
    assert PatchSet(text)[0].path == '"vllm/na\\303\\257ve.py"'
    assert only(text).paths(1)[1] == "vllm/naïve.py"


def test_one_letter_top_folders_are_stripped() -> None:
    text = "--- c/x.py\n+++ c/x.py\n" + HUNK
    assert PatchSet(text)[0].path == "x.py"
    assert only(text).paths(0) == ("c/x.py", "c/x.py")


def test_names_with_spaces_are_cut_at_the_wrong_one() -> None:
    text = "diff --git a/vllm/x b/y.py b/vllm/x b/y.py\nnew file mode 100644\n"
    assert PatchSet(text)[0].target_file != "b/vllm/x b/y.py"
    assert only(text).new_raw == "b/vllm/x b/y.py"


def test_diff_inside_a_commit_message_is_read() -> None:
    quoted = NAMES.replace("x.py", "quoted.py") + HUNK
    head = "From: a\nSubject: s\n\nLike this:\n\n"
    real = "diff --git a/vllm/x.py b/vllm/x.py\n" + NAMES + HUNK
    text = head + quoted + "\nbut better.\n---\n\n" + real
    assert [file.path for file in PatchSet(text)] == ["vllm/quoted.py", "vllm/x.py"]
    with pytest.raises(PatchFormatError, match="indent it: git am and patch would apply it"):
        parse(text.encode(), "p")
    indented = "".join("    " + line for line in quoted.splitlines(keepends=True))
    assert only(head + indented + "---\n\n" + real).new_raw == "b/vllm/x.py"


def test_str_does_not_round_trip() -> None:
    text = (
        "why\n\ndiff --git a/vllm/x.py b/vllm/x.py\nold mode 100644\nnew mode 100755\n"
        + NAMES
        + "@@ -1 +1 @@\n-one\n+eins\n-- \n2.39.5\n"
    )
    assert str(PatchSet(text)) != text
    assert parse(text.encode(), "p").text == text.encode()


def test_blank_line_behind_a_hunk_becomes_a_line_of_it() -> None:
    text = NAMES + HUNK + "\n"
    assert str(PatchSet(text)[0][0]).endswith(" three\n\n")
    (hunk,) = only(text).hunks
    assert hunk.lines[-1] == b"three\n"


def test_context_diff_headers_and_binary_files_are_passed_over() -> None:
    text = "*** a/x.py\n--- b/x.py\n***************\n*** 1 ****\n! a\n--- 1 ----\n! b\n"
    assert all(not file for file in PatchSet(text))
    with pytest.raises(PatchFormatError, match="context diff"):
        parse(text.encode(), "p")


def test_later_hunk_may_overlap() -> None:
    text = NAMES + HUNK + HUNK
    assert len(PatchSet(text)[0]) == 2
    with pytest.raises(PatchFormatError, match="overlap"):
        parse(text.encode(), "p")
