"""Every form of patch that is read, and what is in it; git makes the diffs and says what they mean.

What is refused stands in test_parse_malformed.py.
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from diffs import git_apply, git_diff, gnu_patch, ours, plan
from vllm_series.diffs.parse import parse
from vllm_series.errors import PatchFormatError
from vllm_series.patch import FileChange, Kind, Patch, strip_level

if TYPE_CHECKING:
    from conftest import Stock

PATCHES = Path(__file__).parent / "data" / "patches"
THREE = b"one\ntwo\nthree\n"
ZWEI = b"one\nzwei\nthree\n"
HUNK = b"@@ -1,3 +1,3 @@\n one\n-two\n+zwei\n three\n"
BARE = b"--- a/vllm/x.py\n+++ b/vllm/x.py\n" + HUNK


def read(name: str) -> Patch:
    return parse((PATCHES / name).read_bytes(), name)


def only(patch: bytes) -> FileChange:
    """The one file that a patch changes."""
    (change,) = parse(patch, "p").files
    return change


# -- the mail ------------------------------------------------------------------------------------


def test_mail_gives_its_headers_unfolded() -> None:
    headers = dict(read("mail.patch").headers)
    assert headers["Date"] == "Tue, 1 Dec 2026 00:00:00 +0000"
    assert headers["Subject"].startswith("[PATCH v2 3/7] =?UTF-8?q?sched:")
    assert "\n" not in headers["Subject"]


def test_subject_loses_its_tag_and_its_encoding() -> None:
    subject = read("mail.patch").subject
    assert subject == "sched: naïve widths are cut where they cost more than they bring"


def test_trailers_keep_order_and_repetition_and_are_unfolded() -> None:
    patch = read("mail.patch")
    assert [key for key, _ in patch.trailers] == [
        "Base", "Needs", "Needs", "Contract", "Signed-off-by",
    ]  # fmt: skip
    assert patch.trailer("needs") == ["first-patch", "second-patch"]
    assert patch.trailer("Contract") == [
        "vllm.v1.core.sched.scheduler:Scheduler.schedule(self, throttle_prefills)"
    ]
    assert patch.base == "0.33.0"
    assert patch.is_ours


def test_why_text_ends_at_the_trailers_and_keeps_an_indented_diff() -> None:
    message = read("mail.patch").message
    assert message.startswith("The width follows the request.")
    assert message.endswith("    @@ -1 +1 @@\n    -a\n    +b")


def test_mail_is_applied_as_git_applies_it() -> None:
    text = (PATCHES / "mail.patch").read_bytes()
    text = b"".join(line for line in text.splitlines(True) if not line.startswith(b"Needs:"))
    files = {"vllm/x.py": THREE, "vllm/other.py": b"a\n"}
    assert ours(files, text) == git_apply(files, text) == {**files, "vllm/x.py": ZWEI}


@pytest.mark.parametrize(
    "body",
    [
        "why\n\nBase: vllm 0.33.0\nNeeds: a\nNeeds: b",
        "why\n\nKey: folded\n over\n\tlines\nOther: x",
        "why\n\nKey : a space before the colon\n",
        "why\n\nSigned-off-by: A <a@b>\n(cherry picked from commit abc)\nBase: vllm 0.33.0",
        "why\n\nnot a trailer\nKey: value",
        "why\n\nsome text\nSigned-off-by: A <a@b>\nBase: vllm 0.33.0",
        "why\n\nBase: vllm 0.33.0\n\nand then more text",
        "why\n\nhttps://example.com/page",
        "why\n\nKey: value with\u2028a separator and a \x0cform feed",
        "why\n\n1Key: starts with a digit\n-Key: with a hyphen",
        "why\n  \nBlank: line with spaces in front",
        "why",
    ],
)
def test_trailers_are_those_that_git_finds(body: str, tmp_path: Path) -> None:
    done = subprocess.run(
        ["git", "interpret-trailers", "--parse", "--unfold"],
        input=f"subject\n\n{body}\n".encode(),
        cwd=tmp_path,
        capture_output=True,
        check=True,
    )
    gits = [line for line in done.stdout.decode().split("\n") if ": " in line]
    patch = parse(b"From: a\nSubject: subject\n\n" + body.encode() + b"\n\n" + BARE, "p")
    assert [f"{key}: {value}" for key, value in patch.trailers] == gits


def test_format_patch_without_a_stat_has_no_separator() -> None:
    patch = parse(b"From: a\nSubject: s\n\nwhy\n\nBase: vllm 0.33.0\n\n" + BARE, "p")
    assert (patch.subject, patch.message, patch.base) == ("s", "why", "0.33.0")


def test_git_format_patch_of_any_kind_is_read(tmp_path: Path) -> None:
    def git(*words: str) -> bytes:
        return subprocess.run(
            ["git", *words], cwd=tmp_path, check=True, stdout=subprocess.PIPE
        ).stdout

    git("init", "-q")
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm/x.py").write_bytes(THREE)
    git("add", "-A")
    git("commit", "-qm", "base")
    (tmp_path / "vllm/x.py").write_bytes(ZWEI)
    git("commit", "-qam", "Zoë's change\n\nwhy\n\nBase: vllm 0.33.0")
    for options in (
        ("--zero-commit", "--full-index", "--no-signature", "--no-stat"),
        ("--base=HEAD~",),
        ("--signature=- a list\nof people",),
        ("--stat=40", "--numstat", "-p"),
        ("-k",),
    ):
        text = git("format-patch", "--stdout", "-1", *options)
        if options[0].startswith("--signature"):
            text = text.replace(b"\n- a list", b"\n* a list")
        patch = parse(text, "p")
        assert patch.subject == "Zoë's change"
        assert (patch.message, patch.base) == ("why", "0.33.0")
        assert ours({"vllm/x.py": THREE}, text) == {"vllm/x.py": ZWEI}


def test_signature_whose_space_was_trimmed_is_no_removed_line() -> None:
    assert len(parse(BARE + b"--\n2.39.5\n\n", "p").files) == 1


def test_subject_that_is_wrongly_encoded_is_shown_as_it_is() -> None:
    for value in ("=?nonsense?q?=FF?=", "=?UTF-8?b?%%%?= x"):
        assert parse(f"Subject: {value}\n\n".encode() + BARE, "p").subject


def test_reversed_copy_of_one_file_is_refused() -> None:
    change = only(b"diff --git a/x b/y\ncopy from x\ncopy to y\n")
    with pytest.raises(PatchFormatError, match="a copy cannot be reversed"):
        change.reversed()


def test_saved_mail_may_start_with_any_header() -> None:
    head = b"Received: by x\n by y\nX-Spam: no\nFrom: a\nSubject: [PATCH] s\n"
    head += b"Content-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: 7bit\n\nwhy\n"
    patch = parse(head + b"---\n\n" + BARE, "p")
    assert (patch.subject, patch.message) == ("s", "why")


def test_patch_in_crlf_throughout_fits_a_file_in_crlf_alone() -> None:
    text = (PATCHES / "mail.patch").read_bytes().replace(b"Needs", b"Bug")
    text = text.replace(b"\n", b"\r\n")
    patch = parse(text, "p")
    assert (patch.base, patch.subject[:6]) == ("0.33.0", "sched:")
    crlf = THREE.replace(b"\n", b"\r\n")
    assert ours({"vllm/x.py": crlf}, text) == {"vllm/x.py": ZWEI.replace(b"\n", b"\r\n")}
    assert ours({"vllm/x.py": THREE}, text) is None


def test_bare_diff_keeps_the_text_above_it_as_message() -> None:
    patch = parse(b"Why this is done.\n\nBase: vllm 0.33.0\n\n" + BARE, "p")
    assert patch.headers == ()
    assert (patch.subject, patch.base) == ("Why this is done.", "0.33.0")


def test_dep3_header_of_a_quilt_patch_gives_trailers() -> None:
    patch = read("quilt-dep3.patch")
    assert patch.trailer("Forwarded") == ["not-needed"]
    assert patch.trailer("Description") == ["Cut naive widths They cost more than they bring."]


# -- the kinds of change --------------------------------------------------------------------------

LONG = b"".join(b"line %d\n" % number for number in range(40))
CHANGED = LONG.replace(b"line 20\n", b"LINE 20\n")


def test_create_delete_rename_copy_and_mode_are_what_git_calls_them() -> None:
    before = {"vllm/gone.py": THREE, "vllm/old.py": LONG, "vllm/source.py": b"#\n" + LONG}
    after = {
        "vllm/made.py": b"made\n",
        "vllm/new.py": CHANGED,
        "vllm/source.py": b"#\n" + LONG,
        "vllm/copy.py": b"#\n" + CHANGED,
    }
    text = git_diff(
        before, after, "-M", "-C", "--find-copies-harder", "--full-index",
        executable=("vllm/source.py", "vllm/made.py"),
    )  # fmt: skip
    kinds = {(c.new_raw or c.old_raw or "")[2:]: c for c in parse(text, "p").files}
    assert {path: change.kind for path, change in kinds.items()} == {
        "vllm/gone.py": Kind.DELETE,
        "vllm/made.py": Kind.CREATE,
        "vllm/new.py": Kind.RENAME,
        "vllm/copy.py": Kind.COPY,
        "vllm/source.py": Kind.MODIFY,
    }
    assert kinds["vllm/made.py"].new_mode == "100755"
    assert kinds["vllm/source.py"].old_mode == "100644"
    assert kinds["vllm/source.py"].new_mode == "100755"
    assert kinds["vllm/source.py"].hunks == ()
    assert kinds["vllm/new.py"].old_raw == "a/vllm/old.py"
    assert kinds["vllm/new.py"].similarity == 97
    assert ours(before, text) == git_apply(before, text) == after


def test_reversed_patch_puts_everything_back() -> None:
    before = {"vllm/gone.py": THREE, "vllm/old.py": LONG, "vllm/x.py": b"a\nb"}
    after = {"vllm/made.py": ZWEI, "vllm/new.py": CHANGED, "vllm/x.py": b"a\nB\n"}
    text = git_diff(before, after, "-M", "--full-index")
    back = parse(text, "p").reversed()
    from vllm_series.plan import make_plan

    results = make_plan([back], after.get).results()
    assert {path: new for path, (_, new) in results.items()} == {
        **before, "vllm/made.py": None, "vllm/new.py": None,
    }  # fmt: skip


def test_reversed_hunk_is_what_git_writes_for_the_opposite_diff() -> None:
    before, after = {"vllm/x.py": THREE + b"a\nb"}, {"vllm/x.py": ZWEI + b"a\nc\nd\n"}
    forward = only(git_diff(before, after)).hunks
    backward = only(git_diff(after, before)).hunks
    assert [h.reversed().to_bytes() for h in forward] == [h.to_bytes() for h in backward]


def test_empty_files_are_made_and_deleted_without_hunks() -> None:
    before, after = {"vllm/gone.py": b""}, {"vllm/made.py": b"", "vllm/with space.py": b""}
    text = git_diff(before, after, "--no-renames")
    assert {(c.kind, c.hunks) for c in parse(text, "p").files} == {
        (Kind.CREATE, ()), (Kind.DELETE, ()),
    }  # fmt: skip
    assert ours(before, text) == git_apply(before, text) == after


def test_insertion_into_an_empty_file_that_exists_is_no_creation() -> None:
    before, after = {"vllm/x.py": b""}, {"vllm/x.py": THREE}
    text = git_diff(before, after)
    assert only(text).kind is Kind.MODIFY
    assert ours(before, text) == git_apply(before, text) == after
    back = git_diff(after, before)
    assert only(back).kind is Kind.MODIFY
    assert ours(after, back) == git_apply(after, back) == before


def test_several_diffs_of_one_file_in_one_patch_add_up() -> None:
    end = ZWEI.replace(b"three", b"drei")
    text = git_diff({"vllm/x.py": THREE}, {"vllm/x.py": ZWEI})
    text += git_diff({"vllm/x.py": ZWEI}, {"vllm/x.py": end})
    before = {"vllm/x.py": THREE}
    assert len(parse(text, "p").files) == 2
    assert ours(before, text) == git_apply(before, text) == {"vllm/x.py": end}


# -- bytes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(b"a\r\nb\r\nc\r\n", b"a\r\nB\r\nc\r\n", id="CRLF"),
        pytest.param(b"a\r\nb\nc\r\n", b"a\r\nB\r\nc\r\n", id="mixed endings"),
        pytest.param(b"a\nb\n", b"a\r\nb\r\n", id="LF to CRLF"),
        pytest.param(b"a\n\x0c\nb\x0cc\n", b"a\n\x0c\nb\x0cC\n", id="form feeds"),
        pytest.param(b"a\rb\rc\nd\n", b"a\rB\rc\nd\n", id="lone carriage returns"),
        pytest.param(b"a\xc2\x85b\n", b"a\xc2\x85B\n", id="NEL"),
        pytest.param(b"a\xe2\x80\xa8b\nc\n", b"a\xe2\x80\xa8B\nc\n", id="line separator"),
        pytest.param(b"a\x0b\x1c\x1d\x1eb\n", b"a\x0b\x1c\x1d\x1eB\n", id="other separators"),
        pytest.param(b"caf\xe9\n", b"caf\xe8\n", id="Latin-1"),
        pytest.param(b"\xff\xfe\x80\n", b"\xff\xfe\x81\n", id="not UTF-8"),
        pytest.param(b"\xef\xbb\xbfa\n", b"\xef\xbb\xbfb\n", id="byte order mark"),
        pytest.param(b"a\nb", b"a\nc", id="no newline on either side"),
        pytest.param(b"a\nb", b"a\nb\n", id="newline added"),
        pytest.param(b"a\nb\n", b"a\nb", id="newline taken"),
        pytest.param(b"a\nb\nc", b"x\nb\nc", id="no newline in the context"),
        pytest.param(b"a\r", b"b\r", id="carriage return at the end"),
        pytest.param(b"\n\n\n", b"\n\n", id="blank lines alone"),
        pytest.param(b"-- \n--- a\n+++ b\n", b"-- \n--- a\n+++ c\n", id="text like a header"),
        pytest.param(b"-- x\n@@ -1 +1 @@\n", b"@@ -1 +1 @@\n", id="text like a hunk"),
        pytest.param(b"\\ x\n", b"\\ y\n", id="text like a marker"),
        pytest.param(b"a" * 100_000 + b"\n", b"b" * 100_000 + b"\n", id="a long line"),
    ],
)
@pytest.mark.parametrize("context", [0, 1, 3])
def test_every_byte_of_a_file_survives(before: bytes, after: bytes, context: int) -> None:
    old, new = {"vllm/x.py": before}, {"vllm/x.py": after}
    text = git_diff(old, new, f"-U{context}", "--text", "--full-index")
    assert ours(old, text) == new
    options = ("--unidiff-zero",) if context == 0 else ()
    assert git_apply(old, text, *options) == new
    assert b"".join(h.to_bytes() for h in only(text).hunks) == text[text.index(b"@@ ") :]


def test_patch_text_is_kept_byte_for_byte() -> None:
    for path in PATCHES.iterdir():
        assert read(path.name).text == path.read_bytes()


@pytest.mark.parametrize("blank", [b"\n", b"\r\n"])
def test_blank_context_line_may_have_lost_its_space(blank: bytes) -> None:
    text = b"--- a/vllm/x.py\n+++ b/vllm/x.py\n@@ -1,3 +1,3 @@\n one\n" + blank + b"-two\n+zwei\n"
    before = {"vllm/x.py": b"one\n" + blank + b"two\n"}
    assert ours(before, text) == {"vllm/x.py": b"one\n" + blank + b"zwei\n"}
    if blank == b"\n":
        assert git_apply(before, text) == ours(before, text)


@pytest.mark.parametrize(
    "header", [b"@@ -1,3 +1,3 @@", b"@@ -  1,  3 +  1,  3 @@", b"@@ -1 ,3 +1 ,3 @@one"]
)
def test_hunk_counts_may_be_padded(header: bytes) -> None:
    text = BARE.replace(b"@@ -1,3 +1,3 @@", header)
    assert ours({"vllm/x.py": THREE}, text) == {"vllm/x.py": ZWEI}


def test_hunk_without_context_is_read() -> None:
    (hunk,) = only(b"--- a/vllm/x.py\n+++ b/vllm/x.py\n@@ -2,0 +3 @@\n+new\n").hunks
    assert (hunk.first_line, hunk.pre, hunk.post) == (3, [], [b"new\n"])
    assert not hunk.has_context


def test_marker_may_speak_any_language() -> None:
    (hunk,) = only(
        b"--- a/vllm/x.py\n+++ b/vllm/x.py\n@@ -1 +1 @@\n-a\n"
        b"\\ Kein Zeilenumbruch am Dateiende.\n+b\n"
    ).hunks
    assert (hunk.pre, hunk.post) == ([b"a"], [b"b\n"])


# -- names ---------------------------------------------------------------------------------------

NAMES = [
    "vllm/plain.py", "vllm/with space.py", "vllm/two  spaces b/two  spaces.py",
    "vllm/tab\there.py", 'vllm/quo"te.py', "vllm/back\\slash.py", "vllm/naïve.py",
    "vllm/日本.py", "vllm/new\nline.py", "vllm/ends with space ", "vllm/ b/x.py",
    "vllm/x (copy).py", "vllm/a -> b.py", "vllm/2026-12-01 10:00",
]  # fmt: skip


@pytest.mark.parametrize("quote", ["true", "false"])
@pytest.mark.parametrize(
    "options",
    [(), ("--no-prefix",), ("--src-prefix=old/", "--dst-prefix=newer/"), ("-R",)],
    ids=" ".join,
)
def test_any_file_name_is_read(
    quote: str, options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "core.quotePath")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", quote)
    nothing: dict[str, bytes] = {}
    empty, long, changed = (dict.fromkeys(NAMES, text) for text in (b"", LONG, CHANGED))
    for before, after in ((nothing, empty), (empty, nothing), (nothing, long), (long, changed)):
        text = git_diff(before, after, *options)
        if "-R" in options:
            before, after = after, before
        assert ours(before, text) == after


@pytest.mark.parametrize("shift", range(1, len(NAMES)))
def test_renames_between_any_names_are_read(shift: int) -> None:
    before, after = {}, {}
    for number, old in enumerate(NAMES):
        new = NAMES[(number + shift) % len(NAMES)]
        text = b"file %d\n" % number * 40
        before[old] = text
        after[new.replace("vllm/", "vllm/moved/", 1)] = text + b"more\n" * (number % 2)
    diff = git_diff(before, after, "-M")
    assert {change.kind for change in parse(diff, "p").files} == {Kind.RENAME}
    assert ours(before, diff) == git_apply(before, diff) == after


def test_octal_escapes_give_bytes_that_need_not_be_text() -> None:
    text = (
        b'diff --git "a/vllm/\\377\\t.py" "b/vllm/\\377\\t.py"\n'
        b'--- "a/vllm/\\377\\t.py"\n+++ "b/vllm/\\377\\t.py"\n' + HUNK
    )
    assert only(text).new_raw == "b/vllm/\udcff\t.py"


@pytest.mark.parametrize("prefixes", ["ab", "iw", "cw", "ci", "oi", "12"])
def test_mnemonic_prefixes_are_folders_like_any_other(prefixes: str) -> None:
    old, new = (f"{letter}/vllm/x.py".encode() for letter in prefixes)
    text = b"diff --git %s %s\n--- %s\n+++ %s\n%s" % (old, new, old, new, HUNK)
    assert ours({"vllm/x.py": THREE}, text) == {"vllm/x.py": ZWEI}


def test_one_letter_folder_of_the_tree_is_not_taken_for_a_prefix() -> None:
    text = BARE.replace(b"a/vllm", b"vllm/c").replace(b"b/vllm", b"vllm/c")
    assert ours({"vllm/c/x.py": THREE}, text) == {"vllm/c/x.py": ZWEI}


@pytest.mark.parametrize("prefix", ["deep/er/", "/abs/"[1:], "./"])
def test_deep_prefixes_are_read_too(prefix: str) -> None:
    for before, after in (({}, {"vllm/e.py": b""}), ({"vllm/x.py": THREE}, {"vllm/x.py": ZWEI})):
        text = git_diff(before, after, f"--src-prefix=a{prefix}", f"--dst-prefix=b{prefix}")
        assert ours(before, text) == after


def test_diff_ru_of_two_folders_with_dates_is_read() -> None:
    patch = read("diff-ru.patch")
    (change,) = patch.files
    assert (change.old_raw, change.new_raw) == ("old/vllm/with space.py", "new/vllm/with space.py")
    assert ours({"vllm/with space.py": THREE}, patch.text) == {"vllm/with space.py": ZWEI}


def test_file_that_diff_left_out_is_warned_of() -> None:
    (warning,) = read("diff-ru.patch").warnings
    assert warning.startswith("diff-ru.patch:9: 'Only in new/vllm: forgotten.py'")


@pytest.mark.parametrize("name", ["quilt-dep3.patch", "svn.patch"])
def test_patches_of_quilt_and_svn_are_read(name: str) -> None:
    text = (PATCHES / name).read_bytes()
    assert ours({"vllm/x.py": THREE}, text) == {"vllm/x.py": ZWEI}


@pytest.mark.parametrize("backup", [b".orig", b"~", b".bak"])
def test_backup_beside_its_file_names_that_file(backup: bytes) -> None:
    text = b"--- vllm/x.py" + backup + b"\n+++ vllm/x.py\n" + HUNK
    assert ours({"vllm/x.py": THREE}, text) == {"vllm/x.py": ZWEI}
    both = {"vllm/x.py": THREE, f"vllm/x.py{backup.decode()}": THREE}
    assert ours(both, text) == {**both, "vllm/x.py": ZWEI}


@pytest.mark.parametrize(
    "stamp",
    [
        b"\t1970-01-01 00:00:00.000000000 +0000",
        b"\t1970-01-01 01:00:00.000000000 +0100",
        b"\t1969-12-31 19:00:00.000000000 -0500",
    ],
)
def test_epoch_of_gnu_diff_means_no_file(stamp: bytes) -> None:
    made = b"--- old/vllm/x.py" + stamp + b"\n+++ new/vllm/x.py\n@@ -0,0 +1 @@\n+a\n"
    gone = b"--- old/vllm/x.py\n+++ new/vllm/x.py" + stamp + b"\n@@ -1 +0,0 @@\n-a\n"
    assert only(made).kind is Kind.CREATE
    assert only(gone).kind is Kind.DELETE
    assert ours({"vllm/x.py": b"a\n"}, gone) == {} == git_apply({"vllm/x.py": b"a\n"}, gone)


@pytest.mark.parametrize(
    "stamp",
    [
        b"\t1970-01-01 00:00:01.000000000 +0000",
        b"\t1970-01-01 12:00:00.000000000 +0000",
        b"\t1970-01-01 00:00:00.000000000 +0100",
        b"\t1970-01-01 00:00:00",
        b"  1970-01-01 00:00:00.000000000 +0000",
    ],
)
def test_date_near_the_epoch_is_a_date(stamp: bytes) -> None:
    text = b"--- old/vllm/x.py" + stamp + b"\n+++ new/vllm/x.py\n@@ -0,0 +1 @@\n+a\n"
    assert only(text).kind is Kind.MODIFY


def test_dates_behind_spaces_are_no_part_of_a_name() -> None:
    text = (
        b"--- old/vllm/x.py 2026-12-01 10:00:00.000000000 +0100\n"
        b"+++ new/vllm/x.py 2026-12-01 10:00:00\n" + HUNK
    )
    before = {"vllm/x.py": THREE}
    assert ours(before, text) == git_apply(before, text) == {"vllm/x.py": ZWEI}


@pytest.mark.parametrize("ending", [".orig", ".rej"])
def test_whole_leftover_of_patch_is_warned_of(ending: str) -> None:
    text = git_diff({}, {f"vllm/x.py{ending}": THREE})
    (warning,) = parse(text, "p").warnings
    assert f"b/vllm/x.py{ending} looks like a leftover" in warning
    assert plan({}, text).patches[0].notes == (warning.replace("p:", "0.patch:", 1),)


# -- strip levels --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "there", "level"),
    [
        ("vllm/x.py", {"vllm/x.py"}, 0),
        ("a/vllm/x.py", {"vllm/x.py"}, 1),
        ("src/lib/vllm/x.py", {"vllm/x.py"}, 2),
        ("a/vllm/vllm/x.py", {"vllm/x.py"}, 2),
        ("a/vllm/vllm/x.py", {"vllm/vllm/x.py"}, 1),
        ("a/csrc/x.cu", set(), 1),
        ("csrc/x.cu", set(), 0),
    ],
)
def test_strip_level_is_the_one_that_finds_the_files(
    path: str, there: set[str], level: int
) -> None:
    change = FileChange(Kind.MODIFY, path, path, ())
    assert strip_level([change], there.__contains__) == level


# -- at scale ------------------------------------------------------------------------------------


def test_every_hunk_between_two_releases_is_written_back_to_the_byte(stock: Stock) -> None:
    old, new = stock("0.32.0"), stock("0.33.0")
    done = subprocess.run(
        ["git", "diff", "--no-index", "--no-renames", f"{old}/vllm", f"{new}/vllm"],
        stdout=subprocess.PIPE,
        check=False,
    )
    text = done.stdout
    started = time.process_time()
    patch = parse(text, "p")
    assert time.process_time() - started < 5
    assert len(patch.files) > 1000
    lines = text.split(b"\n")
    for change in patch.files:
        hunks = b"".join(hunk.to_bytes() for hunk in change.hunks)
        first = change.hunks[0].lineno - 1 if change.hunks else len(lines)
        assert hunks == b"\n".join([*lines[first : first + hunks.count(b"\n")], b""])


def test_gnu_patch_agrees_on_a_patch_of_every_kind() -> None:
    before = {"vllm/x.py": THREE, "vllm/gone.py": b"a\n", "vllm/y.py": b"a\nb"}
    after = {"vllm/x.py": ZWEI, "vllm/made.py": b"a\n", "vllm/y.py": b"a\nc\n"}
    text = git_diff(before, after, "--no-renames")
    assert ours(before, text) == gnu_patch(before, text) == after
