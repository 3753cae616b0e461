"""Patches made of texts: in the one form, taken by every tool, and refused where none could."""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

import diffs
from commandline import SERIES
from conftest import Stock
from stock import RELEASES
from vllm_series.compose import PatchMeta, compose, refreshed, split_message
from vllm_series.diffs.canonical import written
from vllm_series.diffs.parse import parse
from vllm_series.errors import RefusedError
from vllm_series.lint import lint
from vllm_series.patch import Kind
from vllm_series.plan import make_plan
from vllm_series.series import line_of

Files = dict[str, bytes]
TRAILERS = (("Origin", "vendor"), ("Forwarded", "no"), ("Last-Update", "2026-12-01"))
META = PatchMeta(
    "made.patch",
    "A Tester <tester@example.com>",
    "Tue, 1 Dec 2026 00:00:00 +0000",
    "made: of two trees",
    "Why it was made.",
    TRAILERS,
)
LONG = b"".join(b"x%d = %d\n" % (number, number) for number in range(40))
A = "vllm/a.py"


@pytest.mark.parametrize("release", RELEASES)
def test_the_patches_of_this_project_come_out_byte_for_byte(release: str, stock: Stock) -> None:
    folder = SERIES / f"vllm-{release}"
    if not folder.is_dir():
        folder = SERIES / f"vllm-{line_of(release)}"
    patch = parse((folder / "dynwidth.patch").read_bytes(), "dynwidth.patch")
    tree = stock(release)
    (step,) = make_plan([patch], lambda path: content(tree / path)).steps
    before = {file.path: file.before for file in step.files}
    after = {file.path: file.after for file in step.files}
    if patch.base == release:
        assert refreshed(patch, before, after, release).text == patch.text
        headers = dict(patch.headers)
        meta = PatchMeta(
            patch.name, headers["From"], headers["Date"], patch.subject, patch.message,
            patch.trailers,
        )  # fmt: skip
        assert compose(meta, before, after, release).text == patch.text
    else:
        made = refreshed(patch, before, after, release)
        assert made.base == release
        assert diffs.ours(present(before), made.text) == present(after)


@pytest.mark.parametrize(
    ("old", "new", "count"), [("0.27.0", "0.27.1", 0), ("0.32.0", "0.33.0", 150)]
)
def test_upstreams_own_changes_go_through_every_tool(
    old: str, new: str, count: int, stock: Stock, tmp_path: Path, oracle: Callable[[str], str]
) -> None:
    one, two = files(stock(old)), files(stock(new))
    changed = sorted(path for path in one.keys() | two.keys() if one.get(path) != two.get(path))
    if count:
        # With all that only one of the two has, so that there are renames among them.
        single = [path for path in changed if path not in one or path not in two]
        changed = sorted({*single, *random.Random(1).sample(changed, count)})
    before = {path: one[path] for path in changed if path in one}
    after = {path: two[path] for path in changed if path in two}
    patch = compose(META, before, after, old)
    kinds = {change.kind for change in patch.files}
    assert kinds >= ({Kind.RENAME, Kind.CREATE, Kind.DELETE} if count else {Kind.MODIFY})
    assert written(parse(patch.text, patch.name)) == patch.text
    assert diffs.ours(before, patch.text) == after
    assert diffs.gnu_patch(before, patch.text) == after
    assert git_am(before, patch.text, tmp_path / "am") == after
    assert quilt_push(before, patch.text, tmp_path / "quilt", oracle("quilt")) == after
    assert problems(patch.text, before, old, tmp_path) == []


def test_every_kind_of_change_is_git_s(tmp_path: Path) -> None:
    before = {
        "vllm/changed.py": LONG,
        "vllm/crlf.py": LONG.replace(b"\n", b"\r\n"),
        "vllm/deleted.py": b"gone = 1\n",
        "vllm/moved.py": LONG + b"moved = 1\n",
        "vllm/script.py": b"#!/usr/bin/env python\n" + LONG,
        "vllm/ending.py": LONG + b"last = 1",
        "vllm/a name.py": LONG,
    }
    after = {
        "vllm/changed.py": LONG.replace(b"x9 = 9\n", b"x9 = 10\n"),
        "vllm/crlf.py": LONG.replace(b"\n", b"\r\n") + b"y = 1\r\n",
        "vllm/new.py": b"new = 1\n",
        "vllm/there.py": LONG + b"moved = 2\n",
        "vllm/script.py": b"#!/usr/bin/env python\n" + LONG,
        "vllm/ending.py": LONG + b"last = 1\n",
        "vllm/a name.py": b"",
    }
    modes: tuple[Mapping[str, str], Mapping[str, str]] = ({}, {"vllm/script.py": "100755"})
    patch = compose(META, before, after, "0.33.0", modes=modes)
    assert {change.kind for change in patch.files} == set(Kind) - {Kind.COPY}
    assert git_am(before, patch.text, tmp_path / "am") == after
    assert (tmp_path / "am/vllm/script.py").stat().st_mode & 0o111
    assert diffs.ours(before, patch.text) == after
    assert problems(patch.text, before, "0.33.0", tmp_path) == []


def test_headings_are_scopes_with_the_number_of_a_twin() -> None:
    body = b"        if self.x:\n            self.y()\n            self.z()\n        self.w()\n"
    head = b"class C:\n    def run(self):\n"
    before = head + body + b"        one()\n" + body + b"        two()\n"
    at = before.rindex(b"            self.z()\n")
    after = before[:at] + b"            self.new()\n" + before[at:]
    (change,) = compose(META, {A: before}, {A: after}, "0.33.0").files
    assert change.hunks[0].heading == b"C.run"  # `one()` and `two()` tell them apart
    both = head + body * 2
    at = both.index(b"            self.z()\n")
    after = both[:at] + b"            self.new()\n" + both[at:]
    patch = compose(META, {A: b"import a\n" * 9 + both}, {A: b"import a\n" * 9 + after}, "0.33.0")
    assert patch.files[0].hunks[0].heading.startswith(b"C.run")


def test_the_same_change_is_the_same_bytes_whatever_git_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before, after = {A: LONG}, {A: LONG.replace(b"x9 = 9\n", b"x9 = 1\nx9 = 2\n")}
    plain = compose(META, before, after, "0.33.0").text
    config = tmp_path / "gitconfig"
    config.write_text(
        "[diff]\n\tnoprefix = true\n\tcontext = 9\n\talgorithm = patience\n\texternal = false\n"
        "[core]\n\tautocrlf = true\n\tabbrev = 7\n[color]\n\tui = always\n"
    )
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", "false")
    monkeypatch.setenv("GIT_DIFF_OPTS", "-u0")
    assert compose(META, before, after, "0.33.0").text == plain


def test_names_and_words_of_any_language_reach_git(tmp_path: Path) -> None:
    before, after = {A: LONG}, {A: LONG + b"y = 1\n"}
    meta = PatchMeta(
        "made.patch", "Zoë J. Müller <zoe@example.com>", META.date,
        "breite: größer, und zwar so viel größer, dass der Betreff nicht in eine Zeile passt",
        "Weil es mehr Plätze gibt.", TRAILERS,
    )  # fmt: skip
    patch = compose(meta, before, after, "0.33.0")
    assert patch.subject == meta.subject
    assert git_am(before, patch.text, tmp_path / "am") == after
    told = git(tmp_path / "am", "log", "-1", "--format=%an <%ae>%n%s%n%b").decode()
    assert told.startswith(f"{meta.author}\n{meta.subject}\n{meta.message}\n\nBase: vllm 0.33.0\n")


def test_trailers_are_set_in_their_place(tmp_path: Path) -> None:
    before, after = {A: LONG}, {A: LONG + b"y = 1\n"}
    trailers = (("Activate", "X=1"), ("Base", "vllm 0.32.0"), *TRAILERS)
    patch = compose(PatchMeta(*plain(META)[:5], trailers), before, after, "0.33.0")
    assert patch.trailers == (("Activate", "X=1"), ("Base", "vllm 0.33.0"), *TRAILERS)
    assert refreshed(patch, before, after, "0.33.0").text == patch.text
    later = refreshed(patch, before, after, "0.33.0", last_update="2026-12-09")
    assert later.trailer("Last-Update") == ["2026-12-09"]


@pytest.mark.parametrize(
    "message",
    [
        "Why.\n\ndiff --git a/x b/x\n--- a/x\n+++ b/x",
        "Why.\n\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b",
        "Why.\n---\nMore.",
        "From: somebody else\nWhy.",
        "Why.\n\nFrom 0123456789012345678901234567890123456789 Mon Sep 17 00:00:00 2001",
    ],
)
def test_a_message_that_a_mail_cannot_carry_is_refused(message: str) -> None:
    meta = PatchMeta(*plain(META)[:4], message, TRAILERS)
    with pytest.raises(RefusedError, match="why-text"):
        compose(meta, {A: LONG}, {A: LONG + b"y = 1\n"}, "0.33.0")


def test_a_message_is_cleaned_as_git_does() -> None:
    meta = PatchMeta(*plain(META)[:4], "\n\nOne.  \n\n\n\nTwo.\n \n", TRAILERS)
    patch = compose(meta, {A: LONG}, {A: LONG + b"y = 1\n"}, "0.33.0")
    assert patch.message == "One.\n\nTwo."


def test_nothing_and_binary_files_are_no_patch() -> None:
    with pytest.raises(RefusedError, match="nothing is changed"):
        compose(META, {A: LONG}, {A: LONG}, "0.33.0")
    with pytest.raises(RefusedError, match="cannot be a patch"):
        compose(META, {A: LONG}, {A: b"\0\1\2"}, "0.33.0")


def test_a_commit_message_is_split_as_git_does() -> None:
    subject, message, trailers = split_message("one\nline\n\nWhy.\n\nOrigin: vendor\nNeeds: a\n")
    assert (subject, message) == ("one line", "Why.")
    assert trailers == (("Origin", "vendor"), ("Needs", "a"))


# -- the tools ------------------------------------------------------------------------------------


def content(place: Path) -> bytes | None:
    return place.read_bytes() if place.is_file() else None


def files(tree: Path) -> Files:
    return {
        path.relative_to(tree).as_posix(): path.read_bytes()
        for path in (tree / "vllm").rglob("*.py")
    }


def present(texts: Mapping[str, bytes | None]) -> Files:
    return {path: text for path, text in texts.items() if text is not None}


def plain(meta: PatchMeta) -> tuple[str, str, str, str, str]:
    return meta.name, meta.author, meta.date, meta.subject, meta.message


def laid(texts: Files, root: Path) -> Path:
    for path, text in texts.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(text)
    return root


def git(root: Path, *words: str) -> bytes:
    return subprocess.run(["git", *words], cwd=root, check=True, stdout=subprocess.PIPE).stdout


def git_am(texts: Files, patch: bytes, root: Path) -> Files:
    laid(texts, root)
    git(root, "init", "-q")
    git(root, "add", "-A", "-f")
    git(root, "commit", "-qm", "stock")
    (root.parent / "am.patch").write_bytes(patch)
    # A mail knows no CR at a line's end; git keeps it where it is told to.
    git(root, "am", "-q", "--keep-cr", str(root.parent / "am.patch"))
    return all_files(root)


def quilt_push(texts: Files, patch: bytes, root: Path, quilt: str) -> Files:
    laid(texts, root)
    (root / "patches").mkdir()
    (root / "patches/made.patch").write_bytes(patch)
    (root / "patches/series").write_text("made.patch\n")
    subprocess.run(
        [quilt, "--quiltrc", "/dev/null", "push", "-q"], cwd=root, check=True, capture_output=True
    )
    return all_files(root)


def all_files(root: Path) -> Files:
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in (root / "vllm").rglob("*")
        if path.is_file()
    }


def problems(patch: bytes, before: Files, release: str, scratch: Path) -> list[str]:
    folder = scratch / f"vllm-{line_of(release)}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "series").write_text("made.patch\n")
    (folder / "made.patch").write_bytes(patch)
    found = [*lint(folder).problems, *lint(folder, before.get, release).problems]
    return [str(problem) for problem in found]
