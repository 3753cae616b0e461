"""Which series is held against which release."""

from __future__ import annotations

from pathlib import Path

import pytest

from vllm_series.checking.jobs import Job, jobs
from vllm_series.errors import SeriesError, UsageError
from vllm_series.series import Entry
from vllm_series.upstream.catalog import Release

RELEASES = (
    Release("0.31.0"),
    Release("0.32.0"),
    Release("0.32.1", yanked=True),
    Release("0.33.0rc1", prerelease=True),
    Release("0.33.0"),
    Release("0.33.1"),
    Release("0.35.0"),
)
PATCH = Entry("mine.patch", b"")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("vllm-0.32", "vllm-0.33", "vllm-0.33.1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "series").write_text("a.patch\n")
        (tmp_path / name / "a.patch").write_text(name)
    return tmp_path


def shown(made: tuple[Job, ...]) -> list[tuple[str, str | None, bool]]:
    return [(job.release, job.series, job.is_supported) for job in made]


def test_every_folder_is_held_against_the_final_releases_that_it_serves(folder: Path) -> None:
    assert shown(jobs(folder, RELEASES)) == [
        ("0.32.0", "vllm-0.32", True),
        ("0.33.0", "vllm-0.33", True),
        ("0.33.1", "vllm-0.33.1", True),
    ]


def test_a_withdrawn_release_counts_where_a_folder_is_made_for_it(folder: Path) -> None:
    (folder / "vllm-0.33").rename(folder / "vllm-0.32.1")
    assert ("0.32.1", "vllm-0.32.1", True) in shown(jobs(folder, RELEASES))


def test_a_release_without_a_series_is_held_against_the_nearest_line(folder: Path) -> None:
    asked = ("0.35.0", "0.31.0", "0.33.0rc1", "0.33.0")
    assert shown(jobs(folder, RELEASES, versions=asked)) == [
        ("0.31.0", "vllm-0.32", False),
        ("0.33.0rc1", "vllm-0.33", True),
        ("0.33.0", "vllm-0.33", True),
        ("0.35.0", "vllm-0.33", False),
    ]


def test_one_series_everywhere_is_supported_only_where_it_serves(folder: Path) -> None:
    for name in ("0.33", "vllm-0.33"):
        assert shown(jobs(folder, RELEASES, series=name)) == [
            ("0.31.0", "vllm-0.33", False),
            ("0.32.0", "vllm-0.33", False),
            ("0.33.0", "vllm-0.33", True),
            ("0.33.1", "vllm-0.33", False),
            ("0.35.0", "vllm-0.33", False),
        ]


def test_a_folder_that_is_a_series_itself_is_held_against_its_line(folder: Path) -> None:
    assert shown(jobs(folder / "vllm-0.32", RELEASES)) == [("0.32.0", "vllm-0.32", True)]


def test_patches_by_file_count_on_every_release_that_is_supported(folder: Path) -> None:
    made = jobs(folder, RELEASES, versions=("0.31.0", "0.33.0"), patches=(PATCH,))
    assert shown(made) == [("0.31.0", None, False), ("0.33.0", None, True)]
    assert all(job.entries == (PATCH,) for job in made)


def test_patches_by_file_need_no_series_folder() -> None:
    made = jobs(None, RELEASES, patches=(PATCH,))
    assert [job.release for job in made] == ["0.31.0", "0.32.0", "0.33.0", "0.33.1", "0.35.0"]
    assert not any(job.is_supported for job in made)


def test_a_release_named_twice_is_judged_once(folder: Path) -> None:
    assert len(jobs(folder, RELEASES, versions=("0.33.0", "0.33.0"))) == 1


def test_a_folder_that_cannot_be_read_is_the_fault_of_its_own_releases(folder: Path) -> None:
    (folder / "vllm-0.33" / "a.patch").unlink()
    made = jobs(folder, RELEASES)
    assert shown(made) == [
        ("0.32.0", "vllm-0.32", True),
        ("0.33.0", "vllm-0.33", True),
        ("0.33.1", "vllm-0.33.1", True),
    ]
    assert [bool(job.entries) for job in made] == [True, False, True]
    assert [job.release for job in made if job.fault and "a.patch" in str(job.fault)] == ["0.33.0"]
    with pytest.raises(SeriesError, match=r"a\.patch, which is not there"):
        jobs(folder, RELEASES, series="vllm-0.33")


def test_what_cannot_be_asked_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--series and --patch"):
        jobs(folder, RELEASES, series="0.33", patches=(PATCH,))
    with pytest.raises(SeriesError, match=r"no series 0\.40: there is vllm-0\.32"):
        jobs(folder, RELEASES, series="0.40")
    with pytest.raises(UsageError, match="nothing to judge"):
        jobs(None, RELEASES)
    (tmp_path / "empty").mkdir()
    with pytest.raises(SeriesError, match="holds no series"):
        jobs(tmp_path / "empty", RELEASES)
