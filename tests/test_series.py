"""Series folders: which one serves a version, and what a `series` file may say."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from vllm_series.errors import SeriesError
from vllm_series.series import folder_for, folders, line_of, load, names, orphans, public_release


def folder(root: Path, name: str, series: str = "", *patches: str) -> Path:
    """A series folder with these patch files in it."""
    made = root / name
    made.mkdir(parents=True)
    (made / "series").write_text(series)
    for patch in patches:
        (made / patch).parent.mkdir(exist_ok=True)
        (made / patch).write_text(f"patch {patch}\n")
    return made


# -- which folder --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "served"),
    [
        ("0.15.0", "vllm-0.15"),
        ("0.15.1", "vllm-0.15.1"),
        ("0.15.1+cu130", "vllm-0.15.1"),
        ("0.15.1.post1", "vllm-0.15"),
        ("0.15.2", "vllm-0.15"),
        ("0.15.2rc1", "vllm-0.15.2rc1"),
        ("0.15.2rc2", "vllm-0.15"),
        ("0.15.10", "vllm-0.15"),
        ("v0.15.1", "vllm-0.15.1"),
        ("0.16.0.post2", "vllm-0.16.0.post2"),
        ("0.16.0.post2+cpu", "vllm-0.16.0.post2"),
        ("0.16.0", "vllm-0.16"),
        ("0.16.1.dev7+gabcdef0", "vllm-0.16"),
    ],
)
def test_exact_release_comes_before_its_line(tmp_path: Path, version: str, served: str) -> None:
    for name in ("0.15", "0.15.1", "0.15.2rc1", "0.16", "0.16.0.post2"):
        folder(tmp_path, f"vllm-{name}")
    assert folder_for(tmp_path, version).name == served


def test_version_that_no_folder_serves_is_never_a_success(tmp_path: Path) -> None:
    folder(tmp_path, "vllm-0.15")
    folder(tmp_path, "vllm-0.16.1")
    with pytest.raises(SeriesError) as caught:
        folder_for(tmp_path, "0.16.0")
    message = str(caught.value)
    assert "no series for vllm 0.16.0" in message
    assert "covers 0.15, 0.16.1" in message
    assert message.endswith("vllm-0.16 or name another folder with --series-dir.")


def test_missing_series_dir_is_said(tmp_path: Path) -> None:
    with pytest.raises(SeriesError, match=r"no series folder: .*nowhere"):
        folder_for(tmp_path / "nowhere", "0.33.0")


@pytest.mark.parametrize(
    "version", ["", "latest", "dev", "../0.33", "0", "x0.33.0", "0.33.0foo", "0.33.0+", "٠.٣"]
)
def test_what_is_no_version_is_refused(version: str) -> None:
    with pytest.raises(SeriesError, match="is not a vLLM version"):
        public_release(version)
    with pytest.raises(SeriesError, match="is not a vLLM version"):
        line_of(version)


@pytest.mark.parametrize(
    ("version", "release", "line"),
    [
        ("0.33.0", "0.33.0", "0.33"),
        ("0.33.0+cu130", "0.33.0", "0.33"),
        ("0.33.0.post1+cpu", "0.33.0.post1", "0.33"),
        ("0.33.0rc2", "0.33.0rc2", "0.33"),
        ("0.33.0rc2.dev1+g123", "0.33.0rc2", "0.33"),
        ("0.33.1.dev1+g123", "0.33.1", "0.33"),
        ("1.2", "1.2", "1.2"),
    ],
)
def test_local_and_development_parts_do_not_count(version: str, release: str, line: str) -> None:
    assert (public_release(version), line_of(version)) == (release, line)


def test_folders_are_in_order_of_their_versions(tmp_path: Path) -> None:
    for name in ("0.9", "0.33", "0.15.1", "0.15", "0.10"):
        folder(tmp_path, f"vllm-{name}")
    for other in ("notes", "vllm-", "vllm-main", "vllm-0.33.old", "0.33"):
        (tmp_path / other).mkdir()
    (tmp_path / "vllm-0.34").write_text("a file\n")
    assert [path.name.removeprefix("vllm-") for path in folders(tmp_path)] == [
        "0.9", "0.10", "0.15", "0.15.1", "0.33",
    ]  # fmt: skip


# -- the series file -----------------------------------------------------------------------------


def test_patches_are_listed_in_order_with_their_bytes(tmp_path: Path) -> None:
    made = folder(
        tmp_path, "vllm-0.33", "b.patch\na.patch\nsub/c.diff\n", "a.patch", "b.patch", "sub/c.diff"
    )
    series = load(made)
    assert [entry.name for entry in series.entries] == ["b.patch", "a.patch", "sub/c.diff"]
    assert series.entries[0].text == b"patch b.patch\n"
    assert (series.serves, series.is_exact) == ("0.33", False)
    assert load(folder(tmp_path, "vllm-0.33.1")).is_exact


LISTS = [
    "a.patch\n",
    "# comment\n\n  a.patch  \n\t\nb.patch # why\n",
    "a.patch -p1\nb.patch\t-p1 # both\n",
    "a.patch\r\nb.patch\r\n",
    "a.patch#1\nb.patch\n",
    "a.patch\nb.patch",
    "#a.patch\nb.patch\n",
]


@pytest.mark.parametrize("text", LISTS)
def test_series_file_lists_what_quilt_lists(tmp_path: Path, text: str) -> None:
    made = folder(tmp_path, "vllm-0.33", text)
    if "\r" not in text:  # quilt takes the carriage return into the name
        done = subprocess.run(
            ["quilt", "--quiltrc=-", "series"],
            cwd=made,
            env={"PATH": "/usr/bin:/bin", "QUILT_PATCHES": ".", "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert names(made) == [Path(line).name for line in done.stdout.split()]
    assert names(made)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a.patch\na.patch\n", "series:2: a.patch is listed twice"),
        ("a.patch -p0\n", "series:1: -p0 is not supported; patches apply with -p1"),
        ("a.patch -R\n", "series:1: -R is not supported"),
        ("a.patch -p1 -R\n", "-R is not supported"),
        ("/etc/a.patch\n", "series:1: /etc/a.patch lies outside the series folder"),
        ("sub/../../a.patch\n", "lies outside the series folder"),
        ("./a.patch\n", "series:1: ./a.patch is not written as a plain path"),
        ("sub//a.patch\n", "is not written as a plain path"),
        ("a\0.patch\n", "series:1: 'a\\x00.patch' is not a file name"),
        ("\ufeffa.patch\n", "series:1: '\\ufeffa.patch' is not a file name"),
        ("series\n", "series:1: series cannot be a patch of itself"),
    ],
)
def test_line_that_cannot_be_meant_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    made = folder(tmp_path, "vllm-0.33", text, "a.patch")
    with pytest.raises(SeriesError) as caught:
        names(made)
    assert reason in str(caught.value)
    assert re.search(r"\. [A-Z].*[^.]\.$", str(caught.value)), "what to do?"


def test_listed_patch_that_is_not_there_is_said(tmp_path: Path) -> None:
    made = folder(tmp_path, "vllm-0.33", "a.patch\n")
    with pytest.raises(SeriesError, match=r"lists a\.patch, which is not there"):
        load(made)


def test_listed_folder_is_no_patch(tmp_path: Path) -> None:
    made = folder(tmp_path, "vllm-0.33", "sub\n", "sub/a.patch")
    with pytest.raises(SeriesError, match="lists sub, which is no file"):
        load(made)


def test_folder_without_a_series_file_is_said(tmp_path: Path) -> None:
    made = folder(tmp_path, "vllm-0.33")
    (made / "series").unlink()
    with pytest.raises(SeriesError, match="is missing: a series folder lists its patches there"):
        load(made)


def test_series_file_that_is_no_text_is_said(tmp_path: Path) -> None:
    made = folder(tmp_path, "vllm-0.33")
    (made / "series").write_bytes(b"a\xff.patch\n")
    with pytest.raises(SeriesError, match=r"is not UTF-8: .* at byte 1"):
        load(made)


def test_form_feed_ends_no_line(tmp_path: Path) -> None:
    made = folder(tmp_path, "vllm-0.33", "a.patch # page\x0cb.patch\n")
    assert names(made) == ["a.patch"]


def test_patch_that_is_not_listed_is_an_orphan(tmp_path: Path) -> None:
    made = folder(
        tmp_path, "vllm-0.33", "a.patch\n",
        "a.patch", "b.patch", "c.diff", "sub/d.patch", "README.md", "e.patch.orig",
    )  # fmt: skip
    assert orphans(made) == ["b.patch", "c.diff", "sub/d.patch"]
