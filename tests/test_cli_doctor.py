"""What doctor finds, and that it changes nothing."""

from __future__ import annotations

from pathlib import Path

from commandline import SCHEDULER, interrupted, run


def test_doctor_finds_nothing_wrong_and_then_what_is(installed: Path) -> None:
    run("apply", "--target", installed)
    assert run("doctor", "--target", installed).code == 0
    path = installed / SCHEDULER
    path.write_bytes(path.read_bytes() + b"#\n")
    told = run("doctor", "--json", "--target", installed)
    assert told.code == 1
    failed = [c for c in told.json()["checks"] if c["outcome"] == "fail"]  # type: ignore[attr-defined]
    assert [check["name"] for check in failed] == ["files"]


def test_doctor_tells_of_what_was_cut_off_and_leaves_it(installed: Path) -> None:
    journal = interrupted(installed)
    told = run("doctor", "--target", installed)
    assert told.code == 1
    assert "a change was cut off" in told.out
    assert journal.exists()
