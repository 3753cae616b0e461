"""The patch that makes a command fail, on a copy of a real release."""

from __future__ import annotations

import itertools
import os
import sys
from pathlib import Path

import pytest

from authoring import ENVS, edit, site
from commandline import ADDED, SCHEDULER, SERIES, Ran, run
from conftest import Stock
from installed import snapshot
from vllm_series.bisect import Answer, Outcome, Step, most_runs, next_try, outcome, suspects
from vllm_series.compose import PatchMeta, compose
from vllm_series.diffs.parse import parse
from vllm_series.plan import make_plan
from vllm_series.trees import DiskTree

LOAD = """
import importlib.util, os, sys
from pathlib import Path

root = Path(os.environ["VLLM_SERIES_TREE"])
found = importlib.util.find_spec("vllm")
assert Path(found.origin) == root / "vllm" / "__init__.py", found
place = root / "vllm/v1/core/sched/dynamic_width.py"
if not place.exists():
    sys.exit(0)
spec = importlib.util.spec_from_file_location("dynamic_width", place)
module = importlib.util.module_from_spec(spec)
sys.modules["dynamic_width"] = module
spec.loader.exec_module(module)
print("margin", module.DynamicWidth().margin)
"""
"""Loads the module of the first patch as Python does, bytecode and all."""
FAILS = LOAD + "sys.exit(module.DynamicWidth().margin == 3)\n"


@pytest.fixture(scope="module")
def tree(stock: Stock, tmp_path_factory: pytest.TempPathFactory) -> DiskTree:
    """For all tests here: a search leaves it as it is."""
    return site(stock("0.33.0"), tmp_path_factory.mktemp("tree") / "site-packages")


@pytest.fixture
def own(stock: Stock, tmp_path: Path) -> DiskTree:
    """A tree to be changed."""
    return site(stock("0.33.0"), tmp_path / "site-packages")


@pytest.fixture(scope="module")
def three(tree: DiskTree, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """dynwidth, a patch on top of it that changes one digit, and one of another file."""
    folder = tmp_path_factory.mktemp("three") / "series" / "vllm-0.33"
    folder.mkdir(parents=True)
    first = (SERIES / "vllm-0.33/dynwidth.patch").read_bytes()
    (folder / "dynwidth.patch").write_bytes(first)
    plan = make_plan([parse(first, "dynwidth.patch")], tree.read, tree.mode)
    added = plan.results()[ADDED][1]
    envs = tree.read(ENVS)
    assert added is not None
    assert envs is not None
    for name, path, before, after, needs in (
        ("second", ADDED, added, added.replace(b"margin: int = 2", b"margin: int = 3"), "dynwidth"),
        ("third", ENVS, envs, envs.replace(b"import os\n", b"import os\n\nTHIRD = 3\n", 1), None),
    ):
        assert before != after
        trailers = [("Base", "vllm 0.33.0")] + ([("Needs", needs)] if needs else [])
        meta = PatchMeta(
            f"{name}.patch",
            "A Tester <tester@example.com>",
            "Tue, 1 Dec 2026 00:00:00 +0000",
            f"{name}: x",
            "Why.",
            tuple(trailers),
        )
        patch = compose(meta, {path: before}, {path: after}, "0.33.0")
        (folder / patch.name).write_bytes(patch.text)
    (folder / "series").write_text("dynwidth.patch\nsecond.patch\nthird.patch\n")
    return folder


def bisect(
    tree: DiskTree, series: Path, *words: str | Path, cwd: Path | None = None, **env: str
) -> Ran:
    return run(
        *("bisect", "--target", tree.root, "--series-dir", series, *words),
        cwd=cwd or series,
        stdin=b"",
        inside=(),
        **env,
    )


# -- the search ---------------------------------------------------------------------------------


def searched(number: int, first: int, skips: frozenset[int] = frozenset()) -> list[Step]:
    """All steps of a search where the command fails from `first` patches on."""
    steps: list[Step] = []
    while (at := next_try(steps, number)) is not None:
        assert at not in {step.patches for step in steps}
        steps.append(Step(at, 125 if at in skips else int(at >= first)))
    return steps


def test_every_patch_of_every_short_series_is_found_in_few_runs() -> None:
    for number in range(1, 18):
        for first in range(1, number + 1):
            steps = searched(number, first)
            assert outcome(steps, number) is Outcome.FOUND
            assert suspects(steps) == range(first - 1, first)
            assert len(steps) <= most_runs(number)
    assert most_runs(171) == 10


def test_what_is_skipped_leaves_the_culprit_among_the_suspects() -> None:
    for number, first in itertools.product(range(1, 7), range(1, 7)):
        for skips in itertools.product((True, False), repeat=max(0, number - 1)):
            skipped = frozenset(at for at, is_skipped in enumerate(skips, 1) if is_skipped)
            if first > number:
                continue
            steps = searched(number, first, skipped)
            found = suspects(steps)
            assert first - 1 in found
            assert len(found) == 1 or all(at in skipped for at in found[1:])
            expected = Outcome.FOUND if len(found) == 1 else Outcome.UNDECIDED
            assert outcome(steps, number) is expected


@pytest.mark.parametrize(
    ("code", "answer"),
    [
        *((0, "good"), (1, "bad"), (124, "bad"), (125, "skip"), (126, "bad"), (127, "bad")),
        *((128, "stop"), (255, "stop"), (-9, "stop")),
    ],
)
def test_an_exit_code_is_read_as_git_bisect_run_reads_it(code: int, answer: str) -> None:
    assert Step(1, code).answer is Answer(answer)


# -- on a real release --------------------------------------------------------------------------


def test_the_second_of_three_patches_is_found_and_the_tree_is_not_touched(
    tree: DiskTree, three: Path, tmp_path: Path
) -> None:
    """Both versions of the module have one size and are written within a second: bytecode of one
    must not run as the other."""
    was = snapshot(tree.root)
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    logs = tmp_path / "logs"
    words = ("--keep", logs, "--", sys.executable, "-c", FAILS)
    told = bisect(tree, three, *words, TMPDIR=str(scratch), PYTHONDONTWRITEBYTECODE="")
    assert (told.code, told.out.splitlines()) == (
        0,
        [
            "  0 of 3  good  exit 0",
            "  3 of 3  bad   exit 1    up to third.patch",
            "  1 of 3  good  exit 0    up to dynwidth.patch",
            "  2 of 3  bad   exit 1    up to second.patch",
            "second.patch makes it fail",
        ],
    )
    assert {log.name: log.read_text() for log in logs.iterdir()} == {
        "01-none.log": "",
        "02-third.patch.log": "margin 3\n",
        "03-dynwidth.patch.log": "margin 2\n",
        "04-second.patch.log": "margin 3\n",
    }
    assert snapshot(tree.root) == was
    assert not list(scratch.iterdir())


def test_json_holds_every_step(tree: DiskTree, three: Path) -> None:
    value = bisect(tree, three, "--json", "--", sys.executable, "-c", FAILS).json()
    assert value["outcome"] == "found"
    assert value["patch"] == "second.patch"
    assert value["patches"] == ["dynwidth.patch", "second.patch", "third.patch"]
    assert value["steps"] == [
        {"patches": patches, "code": code, "answer": answer, "log": None}
        for patches, code, answer in ((0, 0, "good"), (3, 1, "bad"), (1, 0, "good"), (2, 1, "bad"))
    ]


def test_an_applied_series_is_searched_from_the_stock_files(own: DiskTree, three: Path) -> None:
    applied = run("apply", "--target", own.root, "--series-dir", three)
    assert applied.code == 0, applied.err
    was = snapshot(own.root)
    told = bisect(own, three, "--", sys.executable, "-c", FAILS)
    assert (told.code, told.out.splitlines()[-1]) == (0, "second.patch makes it fail")
    assert "the search starts from the stock files" in told.err
    assert snapshot(own.root) == was


def test_a_command_that_edits_the_copy_does_not_edit_the_tree(tree: DiskTree, three: Path) -> None:
    was = snapshot(tree.root)
    spoil = f'echo "spoilt = 1" >> "$VLLM_SERIES_TREE/{SCHEDULER}"; test ! -e .'
    assert bisect(tree, three, "--", "sh", "-c", spoil).code == 1
    assert snapshot(tree.root) == was


def test_an_interrupted_search_leaves_nothing(tree: DiskTree, three: Path, tmp_path: Path) -> None:
    words = ("--", "sh", "-c", "kill -INT $PPID; sleep 60")
    told = bisect(tree, three, *words, TMPDIR=str(tmp_path))
    assert told.code == 130
    assert not list(tmp_path.iterdir())


def test_a_step_that_cannot_be_judged_is_skipped(tree: DiskTree, three: Path) -> None:
    skip = (
        f'test -e "$VLLM_SERIES_TREE/{ADDED}" || exit 0; grep -q THIRD "$VLLM_SERIES_TREE/{ENVS}"'
    )
    told = bisect(tree, three, "--", "sh", "-c", f"{skip} && exit 1; exit 125")
    assert told.code == 1
    assert told.out.splitlines()[-1] == (
        "one of these makes it fail: dynwidth.patch, second.patch, third.patch"
    )


@pytest.mark.parametrize(
    ("command", "runs", "said"),
    [
        ("echo it is broken; exit 3", 1, "without any patch"),
        ("exit 0", 2, "passes with all patches"),
        ("exit 125", 1, "could not tell (125) with no patch"),
        (f'test -e "$VLLM_SERIES_TREE/{ADDED}" && kill -9 $$; exit 0', 2, "ended by a signal"),
    ],
)
def test_ends_that_are_not_as_they_should_be_are_said(
    tree: DiskTree, three: Path, command: str, runs: int, said: str
) -> None:
    told = bisect(tree, three, "--", "sh", "-c", command)
    assert told.code == 1
    assert len(told.out.splitlines()) == runs
    assert said in told.err
    assert ("| it is broken" in told.err) == command.startswith("echo")


def test_the_interpreter_that_is_named_is_the_commands_python(tree: DiskTree, three: Path) -> None:
    fails = f'test "$(command -v python)" = "{Path(sys.executable).parent}/python" || exit 9; '
    fails += f'test ! -e "$VLLM_SERIES_TREE/{ADDED}"'
    paths = os.pathsep.join(
        part for part in os.environ["PATH"].split(os.pathsep) if not Path(part, "python").exists()
    )
    told = bisect(tree, three, "--python", sys.executable, "--", "sh", "-c", fails, PATH=paths)
    assert told.out.splitlines()[-1] == "dynwidth.patch makes it fail", told.err


def test_a_dry_run_runs_nothing(tree: DiskTree, three: Path, tmp_path: Path) -> None:
    told = bisect(tree, three, "-n", "--", "touch", tmp_path / "ran")
    assert (told.code, told.out.splitlines()) == (
        0,
        [
            "3 patches of vllm-0.33, at most 4 runs of the command:",
            *("  1  dynwidth.patch", "  2  second.patch", "  3  third.patch"),
        ],
    )
    assert not (tmp_path / "ran").exists()


def test_a_package_in_the_folder_of_the_command_is_warned_of(tree: DiskTree, three: Path) -> None:
    told = bisect(tree, three, "--", "true", cwd=tree.root)
    assert f"{tree.root} holds a vllm/ of its own" in told.err


def test_a_series_that_does_not_fit_is_refused(own: DiskTree, three: Path) -> None:
    edit(own.root, SCHEDULER, "self.kv_cache_manager.new_step_starts()", "pass")
    told = bisect(own, three, "--", "true")
    assert (told.code, told.out) == (1, "")
    assert "does not fit" in told.err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), "no command to run"),
        (("--", "/nowhere/at/all"), "/nowhere/at/all cannot be run"),
        (("--keep", ".", "--", "true"), "is not empty"),
    ],
)
def test_wrong_words_get_a_clear_error(
    tree: DiskTree, three: Path, words: tuple[str, ...], expected: str
) -> None:
    told = bisect(tree, three, *words)
    assert (told.code, told.out) == (2, "")
    assert expected in told.err
