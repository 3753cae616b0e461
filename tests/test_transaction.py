"""Apply and revert on a real release: what changes, what comes back, what is refused."""

from __future__ import annotations

import csv
import hashlib
import io
import os
import py_compile
import sys
import time
from importlib.machinery import SourceFileLoader
from importlib.util import spec_from_loader
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from installed import CRLF, SCHEDULER, UTILS, one_step, part_of, run, snapshot, steps, texts
from vllm_series.errors import EnvironmentRefusedError, RefusedError, UsageError
from vllm_series.installation.stack import patch_text, read_stack, state_path
from vllm_series.installation.transaction import apply, revert
from vllm_series.installation.verify import verify
from vllm_series.steps import FileStep, PatchStep
from vllm_series.trees import DiskTree

if TYPE_CHECKING:
    from conftest import Stock


@pytest.fixture
def tree(stock: Stock, tmp_path: Path) -> DiskTree:
    return part_of(stock("0.33.0"), tmp_path / "tree")


@pytest.fixture
def bare(tree: DiskTree, tmp_path: Path) -> DiskTree:
    """The same files as a folder that nobody installed."""
    (tree.root / "vllm").rename(tmp_path / "vllm")
    return DiskTree(tmp_path)


def record(tree: DiskTree) -> bytes:
    assert tree.distribution
    return tree.distribution.record.read_bytes()


def rows(tree: DiskTree) -> dict[str, tuple[str, str]]:
    listed = csv.reader(io.StringIO(record(tree).decode()))
    return {path: (digest, size) for path, digest, size in listed}


def second_of(tree: DiskTree, path: str) -> int:
    return int((tree.root / path).stat().st_mtime)


def test_apply_writes_every_file_and_says_what_is_on_top(tree: DiskTree) -> None:
    todo = steps(tree)
    stack = apply(tree, todo)
    assert [patch.name for patch in stack.patches] == ["first.patch", "second.patch", "third.patch"]
    assert tree.read(SCHEDULER) == todo[2].files[0].after
    assert tree.read("vllm/v1/core/sched/added/width.py") == b"WIDTH = 3\n"
    assert tree.mode("vllm/v1/core/sched/added/width.py") == 0o644
    assert tree.mode("vllm/envs.py") == 0o755
    assert tree.read(UTILS) is None
    assert read_stack(tree) == stack
    assert patch_text(tree, stack.patches[1]) == todo[1].text


def test_full_revert_brings_everything_back_to_the_byte(tree: DiskTree) -> None:
    before = snapshot(tree.root)
    apply(tree, steps(tree))
    gone = revert(tree)
    assert [patch.name for patch in gone] == ["third.patch", "second.patch", "first.patch"]
    assert snapshot(tree.root) == before


@pytest.mark.parametrize(
    "path",
    [
        f"vllm/{'n' * 240}.py",
        "vllm/__init__.py/under_a_file.py",
        "vllm/a\nb.py",
        "vllm/a\\b.py",
        "vllm/.envs.py.vllm-series-new",
        "vllm/.envs.py.vllm-series-old",
    ],
)
def test_a_name_that_cannot_be_had_leaves_everything_as_it_was(tree: DiskTree, path: str) -> None:
    before = snapshot(tree.root)
    wanted = FileStep("vllm/envs.py", tree.read("vllm/envs.py"), b"x = 1\n")
    with pytest.raises((RefusedError, EnvironmentRefusedError)):
        apply(tree, [PatchStep("name.patch", b"text", (wanted, FileStep(path, None, b"x = 1\n")))])
    assert snapshot(tree.root) == before


def test_full_revert_of_a_bare_folder_leaves_no_trace(bare: DiskTree) -> None:
    before = snapshot(bare.root)
    apply(bare, steps(bare))
    assert (bare.root / ".vllm-series" / "stack.json").is_file()
    assert verify(bare, everything=True) == []
    revert(bare)
    assert snapshot(bare.root) == before


def test_reverting_the_top_is_the_same_as_never_having_applied_it(
    tree: DiskTree, stock: Stock, tmp_path: Path
) -> None:
    other = part_of(stock("0.33.0"), tmp_path / "other")
    apply(tree, steps(tree))
    revert(tree, 1)
    apply(other, steps(other)[:2])
    assert read_stack(tree).patches[0].name == "first.patch"
    assert tree.read(SCHEDULER) == other.read(SCHEDULER)
    assert tree.read(UTILS) == other.read(UTILS)
    assert rows(tree).keys() == rows(other).keys()
    assert verify(tree) == []


def test_patches_come_off_one_at_a_time(tree: DiskTree) -> None:
    before = snapshot(tree.root)
    for step in steps(tree):
        apply(tree, [step])
    for count in (3, 2, 1):
        assert len(read_stack(tree).patches) == count
        assert verify(tree) == []
        revert(tree, 1)
    assert snapshot(tree.root) == before


def test_layers_applied_at_once_come_off_in_parts_and_go_on_again(tree: DiskTree) -> None:
    before = snapshot(tree.root)
    todo = steps(tree)
    apply(tree, todo)
    revert(tree, 2)
    assert tree.read(SCHEDULER) == todo[0].files[0].after
    apply(tree, todo[1:])
    assert tree.read(SCHEDULER) == todo[2].files[0].after
    assert verify(tree) == []
    revert(tree)
    assert snapshot(tree.root) == before


def test_revert_needs_neither_series_nor_plan(tree: DiskTree) -> None:
    before = snapshot(tree.root)
    apply(tree, steps(tree))
    code = (
        "import sys; from pathlib import Path; from vllm_series.environments import find_tree;"
        "from vllm_series.installation.transaction import revert;"
        "print(len(revert(find_tree(Path(sys.argv[1])))))"
    )
    tools = str(Path(__file__).parent.parent / "tools")
    assert run(sys.executable, "-c", code, tree.root, PYTHONPATH=tools).strip() == "3"
    assert snapshot(tree.root) == before


def test_revert_with_nothing_applied_says_so(tree: DiskTree) -> None:
    assert revert(tree) == ()


@pytest.mark.parametrize("count", [0, -1])
def test_revert_of_no_patches_is_a_usage_error(tree: DiskTree, count: int) -> None:
    apply(tree, [one_step(tree)])
    with pytest.raises(UsageError):
        revert(tree, count)


def test_revert_of_more_patches_than_there_are_is_refused(tree: DiskTree) -> None:
    apply(tree, [one_step(tree)])
    with pytest.raises(RefusedError, match="1 are applied"):
        revert(tree, 2)


def test_line_endings_empty_files_and_binary_bytes_are_kept(tree: DiskTree) -> None:
    before = snapshot(tree.root)
    (crlf,) = texts(tree, CRLF)
    assert b"\r\n" in crlf
    changed = crlf.replace(b"import", b"import ", 1)
    apply(
        tree,
        [
            PatchStep(
                "endings.patch",
                b"x",
                (
                    FileStep(CRLF, crlf, changed),
                    FileStep("vllm/v1/empty.py", None, b""),
                    FileStep("vllm/v1/__init__.py", b"", b"\xff\xfe no end of line"),
                ),
            )
        ],
    )
    assert (tree.root / CRLF).read_bytes() == changed
    assert tree.read("vllm/v1/empty.py") == b""
    assert tree.read("vllm/v1/__init__.py") == b"\xff\xfe no end of line"
    revert(tree)
    assert snapshot(tree.root) == before


def test_a_rename_keeps_the_mode_that_the_plan_gives(tree: DiskTree) -> None:
    before = snapshot(tree.root)
    (text,) = texts(tree, UTILS)
    moved = "vllm/v1/core/sched/moved/utils.py"
    step = PatchStep("r", b"x", (FileStep(UTILS, text, None), FileStep(moved, None, text, 0o755)))
    apply(tree, [step])
    assert tree.read(UTILS) is None
    assert (tree.read(moved), tree.mode(moved)) == (text, 0o755)
    revert(tree)
    assert snapshot(tree.root) == before


def test_a_file_deleted_by_one_patch_may_come_back_in_the_next(tree: DiskTree) -> None:
    before = snapshot(tree.root)
    (text,) = texts(tree, UTILS)
    apply(
        tree,
        [
            PatchStep("a", b"a", (FileStep(UTILS, text, None),)),
            PatchStep("b", b"b", (FileStep(UTILS, None, b"NEW = 1\n"),)),
        ],
    )
    assert tree.read(UTILS) == b"NEW = 1\n"
    revert(tree, 1)
    assert tree.read(UTILS) is None
    assert UTILS not in rows(tree)
    revert(tree)
    assert snapshot(tree.root) == before


def test_read_only_files_stay_read_only(tree: DiskTree) -> None:
    (tree.root / SCHEDULER).chmod(0o444)
    before = snapshot(tree.root)
    apply(tree, [one_step(tree)])
    assert tree.mode(SCHEDULER) == 0o444
    revert(tree)
    assert snapshot(tree.root) == before


def test_files_are_replaced_and_never_written_into(tree: DiskTree, tmp_path: Path) -> None:
    shared = tmp_path / "shared.py"
    os.link(tree.root / SCHEDULER, shared)
    before = shared.read_bytes()
    apply(tree, [one_step(tree)])
    assert shared.read_bytes() == before
    assert shared.stat().st_nlink == 1


# RECORD


def test_record_lists_what_is_there(tree: DiskTree) -> None:
    pristine = record(tree)
    stack = apply(tree, steps(tree))
    listed = rows(tree)
    assert UTILS not in listed
    state = state_path(tree)
    kept = {
        place.relative_to(tree.root).as_posix()
        for place in (tree.root / state).rglob("*")
        if place.is_file()
    }
    assert kept <= listed.keys()
    for path in [*kept, SCHEDULER, "vllm/v1/core/sched/added/width.py"]:
        data = (tree.root / path).read_bytes()
        assert listed[path][1] == str(len(data)), path
    assert stack.record
    assert stack.record.sha256 == hashlib.sha256(pristine).hexdigest()


@pytest.mark.parametrize("ending", [b"\n", b"\r\n"])
def test_rows_of_other_files_keep_their_bytes(tree: DiskTree, ending: bytes) -> None:
    assert tree.distribution
    place = tree.distribution.record
    odd = b'"vllm/odd, name.py",sha256=abc,3'
    lines = [*record(tree).splitlines(), odd, b"vllm/no-hash.txt,,"]
    place.write_bytes(b"".join(line + ending for line in lines))
    apply(tree, [one_step(tree)])
    after = record(tree).splitlines(keepends=True)
    assert all(line.endswith(ending) for line in after)
    untouched = [line + ending for line in lines if not line.startswith(SCHEDULER.encode())]
    assert [line for line in after if line in set(untouched)] == untouched
    revert(tree)
    assert record(tree) == b"".join(line + ending for line in lines)


def test_edits_of_record_outlive_the_revert(tree: DiskTree) -> None:
    assert tree.distribution
    place = tree.distribution.record
    pristine = record(tree)
    apply(tree, steps(tree))
    place.write_bytes(record(tree) + b"vllm/mine.txt,,\n")
    revert(tree, 1)
    assert rows(tree)["vllm/mine.txt"] == ("", "")
    assert verify(tree) == []
    revert(tree)
    assert set(record(tree).splitlines()) == {*pristine.splitlines(), b"vllm/mine.txt,,"}


def test_a_record_that_cannot_be_read_stops_everything(tree: DiskTree) -> None:
    assert tree.distribution
    place = tree.distribution.record
    place.write_bytes(record(tree) + b"vllm/short,row\n")
    before = snapshot(tree.root)
    with pytest.raises(EnvironmentRefusedError, match="damaged"):
        apply(tree, [one_step(tree)])
    assert snapshot(tree.root) == before


# What is on disk decides


def test_a_plan_from_other_bytes_is_refused(tree: DiskTree) -> None:
    todo = [one_step(tree), PatchStep("b", b"b", (FileStep(UTILS, b"not this\n", b"x\n"),))]
    before = snapshot(tree.root)
    with pytest.raises(RefusedError, match=UTILS):
        apply(tree, todo)
    assert snapshot(tree.root) == before


def test_a_plan_for_a_missing_file_and_one_for_a_new_file_that_exists_are_refused(
    tree: DiskTree,
) -> None:
    with pytest.raises(RefusedError):
        apply(tree, [PatchStep("a", b"a", (FileStep("vllm/none.py", b"", b"x"),))])
    with pytest.raises(RefusedError):
        apply(tree, [PatchStep("a", b"a", (FileStep(UTILS, None, b"x"),))])


def test_patches_that_change_nothing_are_errors(tree: DiskTree) -> None:
    (text,) = texts(tree, UTILS)
    for files in [
        (FileStep(UTILS, text, text),),
        (FileStep(UTILS, text, b"x"), FileStep(UTILS, b"x", text)),
        (FileStep("vllm/n.py", None, b"x"), FileStep("vllm/n.py", b"x", None)),
        (),
    ]:
        with pytest.raises(RefusedError, match=r"unchanged|no file"):
            apply(tree, [PatchStep("idle", b"a", files)])
    with pytest.raises(RefusedError):
        apply(tree, [])


@pytest.mark.parametrize("path", ["vllm", "/vllm/a.py", "vllm/../a.py", "other/a.py", "vllm//a.py"])
def test_paths_outside_the_package_are_refused(tree: DiskTree, path: str) -> None:
    before = snapshot(tree.root)
    with pytest.raises(RefusedError):
        apply(tree, [PatchStep("a", b"a", (FileStep(path, None, b"x"),))])
    assert snapshot(tree.root) == before


def test_a_link_in_the_way_is_refused(tree: DiskTree, tmp_path: Path) -> None:
    outside = tmp_path / "outside.py"
    (tree.root / UTILS).rename(outside)
    (tree.root / UTILS).symlink_to(outside)
    with pytest.raises(EnvironmentRefusedError, match="link"):
        apply(tree, [PatchStep("a", b"a", (FileStep(UTILS, outside.read_bytes(), b"x"),))])
    (tree.root / "vllm" / "linked").symlink_to(tmp_path)
    with pytest.raises(EnvironmentRefusedError, match="link"):
        apply(tree, [PatchStep("a", b"a", (FileStep("vllm/linked/new.py", None, b"x"),))])
    assert outside.exists()


def test_an_edit_by_hand_is_shown_and_never_overwritten(tree: DiskTree) -> None:
    apply(tree, steps(tree))
    place = tree.root / SCHEDULER
    edited = place.read_bytes().replace(b"THIRD = 3\n", b"THIRD = 3\nMINE = 1\n")
    place.write_bytes(edited)
    before = snapshot(tree.root)
    with pytest.raises(RefusedError) as refused:
        revert(tree)
    assert "\n+MINE = 1" in str(refused.value)
    assert "\n-" not in str(refused.value).split("+++", 1)[1]
    with pytest.raises(RefusedError, match=r"\+MINE = 1"):
        apply(tree, [PatchStep("a", b"a", (FileStep(SCHEDULER, edited, b"x"),))])
    assert snapshot(tree.root) == before


def test_revert_of_patches_that_an_edit_does_not_touch_goes_on(tree: DiskTree) -> None:
    todo = steps(tree)
    pool = "vllm/v1/core/block_pool.py"
    (core,) = texts(tree, pool)
    apply(tree, [*todo, PatchStep("pool", b"p", (FileStep(pool, core, b"x"),))])
    (tree.root / SCHEDULER).write_bytes(b"edited\n")
    revert(tree, 1)
    assert tree.read(pool) == core
    assert tree.read(SCHEDULER) == b"edited\n"


def test_created_deleted_and_re_moded_files_count_as_edited_too(tree: DiskTree) -> None:
    apply(tree, steps(tree))
    new = tree.root / "vllm/v1/core/sched/added/width.py"
    new.write_bytes(b"mine\n")
    with pytest.raises(RefusedError, match=r"width\.py was edited"):
        revert(tree)
    new.write_bytes(b"WIDTH = 3\n")
    (tree.root / UTILS).write_bytes(b"mine\n")
    with pytest.raises(RefusedError, match=r"utils\.py was deleted by third\.patch"):
        revert(tree)
    (tree.root / UTILS).unlink()
    (tree.root / SCHEDULER).chmod(0o600)
    with pytest.raises(RefusedError, match="mode 0600"):
        revert(tree)
    (tree.root / SCHEDULER).chmod(0o644)
    new.unlink()
    with pytest.raises(RefusedError, match=r"width\.py was deleted by hand"):
        revert(tree)


def test_a_damaged_copy_is_not_put_back(tree: DiskTree) -> None:
    stack = apply(tree, [one_step(tree)])
    kept = tree.root / state_path(tree) / "before" / stack.patches[0].folder / SCHEDULER
    kept.write_bytes(b"not the original\n")
    before = snapshot(tree.root)
    with pytest.raises(Exception, match="not what was saved"):
        revert(tree)
    assert snapshot(tree.root) == before
    kept.unlink()
    with pytest.raises(RefusedError, match="is gone"):
        revert(tree)


def test_a_stack_that_cannot_be_read_is_refused(tree: DiskTree) -> None:
    apply(tree, [one_step(tree)])
    listing = tree.root / state_path(tree) / "stack.json"
    for damage in (b"{", b"[]", b'{"schema": 9}', listing.read_bytes()[:-40]):
        listing.write_bytes(damage)
        with pytest.raises(RefusedError):
            read_stack(tree)


def test_what_is_in_the_way_of_the_state_is_refused_and_kept(tree: DiskTree) -> None:
    mine = tree.root / state_path(tree) / "patches" / "0001-one.patch"
    mine.parent.mkdir(parents=True)
    mine.write_bytes(b"mine\n")
    with pytest.raises(EnvironmentRefusedError, match="in the way"):
        apply(tree, [one_step(tree)])
    assert mine.read_bytes() == b"mine\n"


def test_names_of_patches_become_safe_names_of_files(tree: DiskTree) -> None:
    step = one_step(tree, "../fixes/a b\n" + "x" * 300 + ".patch")
    stack = apply(tree, [step])
    assert stack.patches[0].name == step.name
    (kept,) = (tree.root / state_path(tree) / "patches").iterdir()
    assert kept.name.startswith("0001-fixes-a-b-xxx")
    assert verify(tree) == []


# Bytecode


def compiled(tree: DiskTree, path: str) -> Path:
    return Path(str(py_compile.compile(str(tree.root / path), doraise=True)))


def test_stale_bytecode_goes_and_comes_back(tree: DiskTree) -> None:
    ours = compiled(tree, SCHEDULER)
    others = [
        ours.with_name("scheduler.cpython-39.pyc"),
        ours.with_name("scheduler.cpython-311.opt-1.pyc"),
        ours.with_name("scheduler.pypy310.pyc"),
        ours.parent.parent / "scheduler.pyc",
    ]
    for other in others:
        other.write_bytes(ours.read_bytes())
        other.chmod(0o640)
        os.utime(other, (1, 1))
    neighbour = compiled(tree, "vllm/v1/core/sched/request_queue.py")
    unrelated = ours.with_name("scheduler_test.cpython-311.pyc")
    unrelated.write_bytes(b"x")
    before = snapshot(tree.root)
    apply(tree, steps(tree))
    assert not any(place.exists() for place in [ours, *others])
    assert neighbour.exists()
    assert unrelated.exists()
    compiled(tree, SCHEDULER)
    compiled(tree, "vllm/v1/core/sched/added/width.py")
    revert(tree)
    after = snapshot(tree.root)
    assert after == before


def test_bytecode_kept_elsewhere_never_runs_stale(tree: DiskTree, tmp_path: Path) -> None:
    """Same size, same second: what PYTHONPYCACHEPREFIX keeps is out of our reach."""

    def width() -> int:
        code = (
            "import sys; from importlib.machinery import SourceFileLoader as L;"
            "m = {}; exec(L('width', sys.argv[1]).get_code('width'), m); print(m['WIDTH'])"
        )
        elsewhere = str(tmp_path / "pyc")
        place = tree.root / "vllm/width.py"
        return int(run(sys.executable, "-c", code, place, PYTHONPYCACHEPREFIX=elsewhere))

    def change(name: str, before: bytes, after: bytes) -> None:
        file = FileStep("vllm/width.py", before, after)
        apply(tree, [PatchStep(name, name.encode(), (file,))])

    (tree.root / "vllm/width.py").write_bytes(b"WIDTH = 1\n")
    assert width() == 1
    for value in (2, 3):
        change(f"{value}", b"WIDTH = %d\n" % (value - 1), b"WIDTH = %d\n" % value)
        assert width() == value
    revert(tree, 1)
    assert width() == 2
    revert(tree)
    assert width() == 1
    change("4", b"WIDTH = 1\n", b"WIDTH = 4\n")
    assert width() == 4


def test_every_version_of_a_file_bears_its_own_second(tree: DiskTree) -> None:
    seen = [second_of(tree, SCHEDULER)]
    apply(tree, steps(tree))
    for _ in range(3):
        seen.append(second_of(tree, SCHEDULER))
        revert(tree, 1)
    assert seen[0] == second_of(tree, SCHEDULER)
    assert len(set(seen)) == 4
    assert max(seen) <= time.time() + 5


def test_a_loader_reads_the_new_source(tree: DiskTree) -> None:
    (tree.root / "vllm/w.py").write_bytes(b"W = 1\n")
    cached = compiled(tree, "vllm/w.py")
    apply(tree, [PatchStep("w", b"w", (FileStep("vllm/w.py", b"W = 1\n", b"W = 2\n"),))])
    assert not cached.exists()
    loader = SourceFileLoader("w", str(tree.root / "vllm/w.py"))
    assert spec_from_loader("w", loader)
    found: dict[str, object] = {}
    code = loader.get_code("w")
    assert code
    exec(code, found)
    assert found["W"] == 2
