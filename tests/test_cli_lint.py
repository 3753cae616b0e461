"""Looking at a series: show, lint, and a folder without any."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commandline import SERIES, run
from conftest import Stock


def test_show_prints_why_and_diff(tmp_path: Path) -> None:
    told = run("show", "dynwidth")
    assert told.code == 0
    assert "Base: vllm 0.33.0" in told.out
    assert "@@ Scheduler.schedule" in told.out
    value = run("show", "dynwidth.patch", "--series", "0.30", "--json").json()
    assert value["patch"]["base"] == "0.30.0"  # type: ignore[index]
    missing = run("show", "nothing")
    assert missing.code == 1
    assert "vllm-series list" in missing.err


def test_lint_holds_the_series_of_this_project_against_their_bases(
    stock: Stock, tmp_path: Path
) -> None:
    for folder in sorted(SERIES.glob("vllm-*")):
        base = json.loads(run("show", "dynwidth", "--series", folder.name, "--json").out)["patch"][
            "base"
        ]
        told = run("lint", "--series", folder.name, "--target", stock(base))
        assert told.code == 0, told.out
        assert f"held against vllm {base}" in told.out


def test_lint_names_file_line_and_reason(series: Path, stock: Stock) -> None:
    folder = series / "vllm-0.33"
    patch = folder / "dynwidth.patch"
    good = patch.read_bytes()
    (folder / "orphan.patch").write_bytes(good)
    assert "no line of the series file names it" in lint(series)
    (folder / "orphan.patch").unlink()
    for old, new, expected in (
        (b"Base: vllm 0.33.0\n", b"", "such as `Base: vllm 0.33.0`."),
        (b"Base: vllm 0.33.0\n", b"Base: vllm 0.32.0\n", "is not of the line"),
        (b"Activate: ", b"Activates: ", "Is Activate: meant?"),
        (b"@@ Scheduler.schedule\n", b"@@ def schedule(self):\n", "it changes Scheduler.schedule"),
        (b"@@ Scheduler.schedule\n", b"@@ Scheduler.update_from_output\n", "but it changes"),
        (b"index d35b7dfac4", b"index d35b7dfac5", "is not that of the base"),
        (b"Scheduler.schedule(self, ", b"Scheduler.schedule(self, more, ", "Contract:"),
        (b"Date: Tue, 1 Dec", b"Date:  Tue, 1 Dec", "written again"),
        (b"Last-Update: 2026-12-01", b"Last-Update: today", "is not a date"),
    ):
        assert old in good
        patch.write_bytes(good.replace(old, new, 1))
        assert expected in lint(series, stock("0.33.0"))
    patch.write_bytes(good.replace(b"@@ Scheduler.schedule\n", b"@@ def schedule(self):\n", 1))
    assert "is not the hunk's scope" in lint(series)


@pytest.mark.parametrize("command", ["list", "lint"])
def test_a_folder_without_any_series_is_no_success(tmp_path: Path, command: str) -> None:
    told = run(command, "--series-dir", tmp_path)
    assert told.code == 1
    assert "holds no series" in told.err


def lint(series: Path, base: Path | None = None) -> str:
    target = ("--target", base) if base else ()
    told = run("lint", "--series-dir", series, "--series", "vllm-0.33", *target)
    assert told.code == 1
    return told.out
