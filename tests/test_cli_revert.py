"""Taking patches out again: shown first, and never over an edit by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from commandline import ADDED, SCHEDULER, everything, run


def test_an_edit_by_hand_is_shown_by_revert_and_kept(installed: Path) -> None:
    run("apply", "--target", installed)
    path = installed / SCHEDULER
    path.write_bytes(path.read_bytes() + b"# by hand\n")
    edited = everything(installed)
    told = run("revert", "--target", installed)
    assert told.code == 1
    assert "+# by hand" in told.err
    assert "dynamic_width" not in told.err
    assert everything(installed) == edited


def test_more_than_is_applied_is_wrong_usage(installed: Path, tmp_path: Path) -> None:
    def told() -> str:
        ran = run("revert", "--top", "3", "--target", installed)
        assert ran.code == 2
        return ran.err

    assert "--top 3 is too large: no patch is applied in " in told()
    run("apply", "--target", installed)
    assert "--top 3 is too large: 1 patch is applied in " in told()
    assert told().endswith(". Leave --top out to take it out.\n")
    more = tmp_path / "more.diff"
    more.write_text("--- /dev/null\n+++ b/vllm/more.py\n@@ -0,0 +1 @@\n+MORE = 1\n")
    run("apply", "--patch", more, "--target", installed)
    assert "--top 3 is too large: 2 patches are applied in " in told()
    assert told().endswith("Give a smaller number, or leave --top out to take out all.\n")


@pytest.mark.parametrize("option", ["--dry-run", "--diff"])
def test_dry_run_and_diff_of_revert_write_nothing(installed: Path, option: str) -> None:
    run("apply", "--target", installed)
    before = everything(installed)
    told = run("revert", option, "--target", installed)
    assert told.code == 0
    assert everything(installed) == before
    if option == "--dry-run":
        assert told.out == "dynwidth.patch  would be reverted\n"
    else:
        taken_out = [line for line in told.out.splitlines() if line.startswith("-")]
        assert "-            dynamic_width.cap(self.running)" in taken_out
        assert f"--- a/{ADDED}" in taken_out
        assert not [line for line in told.out.splitlines() if line[:1] == "+" and "+++" not in line]
