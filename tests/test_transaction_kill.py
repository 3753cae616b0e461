"""Killed at any step, a change is found whole or not at all by the next command."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from installed import TOOLS, one_step, part_of, snapshot, steps, without_privileges
from vllm_series.errors import EnvironmentRefusedError
from vllm_series.installation.stack import read_stack, state_path
from vllm_series.installation.transaction import apply, opened, recover, revert
from vllm_series.installation.verify import verify
from vllm_series.trees import DiskTree

if TYPE_CHECKING:
    from conftest import Stock

HARNESS = Path(__file__).with_name("killed.py")


def small(stock: Stock, folder: Path) -> DiskTree:
    """A copy that is quick to look at as a whole: the scheduler's folder and the top level."""
    return part_of(stock("0.33.0"), folder, "vllm/v1/core")


@pytest.mark.parametrize("action", ["apply", "revert", "recover"])
def test_killed_at_every_step(stock: Stock, tmp_path: Path, action: str) -> None:
    tree = small(stock, tmp_path / "tree")
    (tree.root / "vllm/v1/core/sched/__pycache__").mkdir()
    for name in ("scheduler.cpython-311.pyc", "utils.cpython-311.pyc"):
        (tree.root / "vllm/v1/core/sched/__pycache__" / name).write_bytes(b"compiled " * 100)
    done = subprocess.run(
        [sys.executable, HARNESS, tree.root, action],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(TOOLS), "PATH": ""},
    )
    assert done.returncode == 0, done.stderr
    kills, before, after = map(int, done.stdout.split())
    assert kills > 90
    assert before > 10
    assert after > 10
    assert before + after == kills + 1


def test_a_process_killed_by_signal_leaves_no_lock(stock: Stock, tmp_path: Path) -> None:
    tree = small(stock, tmp_path / "tree")
    code = (
        "import os, signal, sys; from pathlib import Path;"
        "from vllm_series.environments import find_tree;"
        "from vllm_series.installation.transaction import opened\n"
        "with opened(find_tree(Path(sys.argv[1]))): os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, tree.root], check=False, env={"PYTHONPATH": str(TOOLS)}
    )
    assert done.returncode == -9
    with opened(tree, waiting=pytest.fail):
        pass


KILLED_WHILE_COMMITTING = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from installed import steps
from vllm_series.environments import find_tree
from vllm_series.installation.transaction import apply

left = int(sys.argv[2])
rename = Path.rename

def counting(self, target):
    global left
    if self.name.endswith(".vllm-series-new"):
        if not left:
            os._exit(9)
        left -= 1
    return rename(self, target)

Path.rename = counting
tree = find_tree(Path(sys.argv[1]))
apply(tree, steps(tree))
"""


def killed_while_committing(tree: DiskTree, renamed: int) -> None:
    """Apply three patches, killed when so many targets have their new content."""
    done = subprocess.run(
        [sys.executable, "-c", KILLED_WHILE_COMMITTING, tree.root, str(renamed), HARNESS.parent],
        check=False,
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(TOOLS)},
    )
    assert done.returncode == 9, done.stderr


@pytest.mark.parametrize("renamed", range(5))
def test_what_an_installer_put_there_after_a_kill_is_left_alone(
    stock: Stock, tmp_path: Path, renamed: int
) -> None:
    """A reinstall replaces the files that RECORD lists and knows nothing of a journal."""
    tree = small(stock, tmp_path / "tree")
    before = snapshot(tree.root)
    kept = tmp_path / "kept"
    shutil.copytree(tree.root, kept)
    killed_while_committing(tree, renamed)
    for path in kept.rglob("*"):
        if path.is_file():
            place = tree.root / path.relative_to(kept)
            place.unlink(missing_ok=True)
            shutil.copy2(path, place)
    assert recover(tree)
    assert not recover(tree)
    if not renamed:
        # All targets hold what they held: nothing tells a reinstall, and the end is a whole one.
        assert verify(tree) == []
        assert len(revert(tree)) == 3
    assert read_stack(tree).patches == ()
    assert snapshot(tree.root) == before


@pytest.mark.parametrize("renamed", range(5))
def test_what_a_hand_changed_after_a_kill_is_kept_and_the_rest_goes_back(
    stock: Stock, tmp_path: Path, renamed: int
) -> None:
    tree = small(stock, tmp_path / "tree")
    before = snapshot(tree.root)
    killed_while_committing(tree, renamed)
    place = tree.root / "vllm/v1/core/sched/scheduler.py"
    edited = place.read_bytes() + b"# by hand\n"
    place.write_bytes(edited)
    assert recover(tree)
    assert read_stack(tree).patches == ()
    after = snapshot(tree.root)
    assert place.read_bytes() == edited
    assert {path for path in before if after[path] != before[path]} == {
        "vllm/v1/core/sched/scheduler.py"
    }
    assert after.keys() == before.keys()


KILLED_WHILE_UNDOING = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from installed import steps
from vllm_series.environments import find_tree
from vllm_series.errors import VllmSeriesError
from vllm_series.installation.journal import Journal
from vllm_series.installation.transaction import apply

left = int(sys.argv[2])
rename = Path.rename

def counting(self, target):
    global left
    if self.name.endswith(".vllm-series-old"):
        if not left:
            os._exit(9)
        left -= 1
    return rename(self, target)

def failing(self, work, written):
    raise VllmSeriesError("what was read back differs")

Path.rename = counting
Journal._read_back = failing
tree = find_tree(Path(sys.argv[1]))
apply(tree, steps(tree))
"""


@pytest.mark.parametrize("restored", range(4))
def test_an_undoing_that_was_killed_is_brought_to_its_end_bytecode_included(
    stock: Stock, tmp_path: Path, restored: int
) -> None:
    tree = small(stock, tmp_path / "tree")
    compiled = tree.root / "vllm/v1/core/sched/__pycache__/scheduler.cpython-311.pyc"
    compiled.parent.mkdir()
    compiled.write_bytes(b"compiled " * 100)
    before = snapshot(tree.root)
    done = subprocess.run(
        [sys.executable, "-c", KILLED_WHILE_UNDOING, tree.root, str(restored), HARNESS.parent],
        check=False,
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(TOOLS)},
    )
    assert done.returncode == 9, done.stderr
    assert recover(tree)
    assert snapshot(tree.root) == before
    assert not recover(tree)


def leftover(tree: DiskTree) -> Path:
    """A journal as a process leaves it that is killed while it prepares."""
    place = tree.root / f"{state_path(tree)}.prepare"
    keys = ("makes", "creates", "puts", "fresh", "removes", "clears", "discards")
    place.write_text(json.dumps({"schema": 1, **{key: [] for key in keys}}))
    return place


def test_a_journal_in_a_read_only_tree_is_told_of(stock: Stock, tmp_path: Path) -> None:
    tree = small(stock, tmp_path / "tree")
    journal = leftover(tree)
    journal.parent.chmod(0o555)
    code = (
        "import sys; from pathlib import Path; from vllm_series.environments import find_tree;"
        "from vllm_series.errors import EnvironmentRefusedError;"
        "from vllm_series.installation.transaction import recover\n"
        "try: recover(find_tree(Path(sys.argv[1])))\n"
        "except EnvironmentRefusedError as error: print(error)\n"
    )
    done = without_privileges(code, tree.root)
    journal.parent.chmod(0o755)
    assert "was cut off" in done.stdout, done.stderr
    assert journal.exists()
    assert recover(tree)
    assert not journal.exists()


def test_a_damaged_journal_is_refused_and_kept(stock: Stock, tmp_path: Path) -> None:
    tree = small(stock, tmp_path / "tree")
    journal = leftover(tree)
    for damage in ("{", '{"schema": 1}', journal.read_text().replace("[]", '["../x"]')):
        journal.write_text(damage)
        with pytest.raises(EnvironmentRefusedError, match="damaged"):
            recover(tree)
        assert journal.exists()


def test_a_disk_that_lies_is_found_out_and_all_is_undone(
    stock: Stock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was written is read back from the disk before it counts as applied."""
    tree = small(stock, tmp_path / "tree")
    before = snapshot(tree.root)
    from vllm_series.installation import content, journal

    real = content.digest_of
    monkeypatch.setattr(
        journal, "digest_of", lambda p: "0" * 64 if p.name == "envs.py" else real(p)
    )
    with pytest.raises(Exception, match="does not hold what was written"):
        apply(tree, steps(tree))
    assert snapshot(tree.root) == before


@pytest.mark.parametrize("failing", ["open", "write", "link", "utime", "fsync", "fchmod"])
def test_any_failure_of_the_disk_undoes_everything(
    stock: Stock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    tree = small(stock, tmp_path / "tree")
    before = snapshot(tree.root)
    real = getattr(os, failing)
    todo = steps(tree)
    done = False
    failure = 0
    while not done:
        failure += 1
        calls = 0

        def fails(*arguments: object, failure: int = failure, **named: object) -> object:
            nonlocal calls
            calls += 1
            if calls == failure:
                raise OSError(28, "No space left on device", str(arguments[0]))
            return real(*arguments, **named)

        with monkeypatch.context() as patched:
            patched.setattr(os, failing, fails)
            try:
                apply(tree, todo)
                done = True
            except EnvironmentRefusedError as error:
                said = str(error)
        if not done:
            assert "No space left" in said
            assert snapshot(tree.root) == before
    assert failure > 3
    assert verify(tree) == []


def test_a_file_that_cannot_be_replaced_undoes_the_others(
    stock: Stock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an immutable file does: neither renamed over nor linked to, found out half way."""
    tree = small(stock, tmp_path / "tree")
    before = snapshot(tree.root)
    todo = steps(tree)
    real_replace, real_link = Path.rename, os.link

    def rename(self: Path, target: Path) -> Path:
        if Path(target).name == "envs.py":
            raise PermissionError(1, "Operation not permitted", str(target))
        return real_replace(self, target)

    def link(source: Path, target: Path, **named: bool) -> None:
        if Path(source).name == "envs.py":
            raise PermissionError(1, "Operation not permitted", str(source))
        real_link(source, target, **named)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", rename)
        patched.setattr("os.link", link)
        with pytest.raises(EnvironmentRefusedError, match="not permitted"):
            apply(tree, todo)
        assert snapshot(tree.root) == before
        assert not read_stack(tree)


def test_a_stopped_apply_is_as_if_it_had_not_begun(
    stock: Stock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = small(stock, tmp_path / "tree")
    before = snapshot(tree.root)
    from vllm_series.installation import journal

    def interrupted(place: Path) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(journal, "digest_of", interrupted)
    with opened(tree) as held, pytest.raises(KeyboardInterrupt):
        apply(held, [one_step(tree)])
    assert snapshot(tree.root) == before
