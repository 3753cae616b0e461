"""The judge of the drift benchmark, on hand-made texts and on real releases with the real tools."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

from drift import tools as drift_tools  # noqa: E402
from drift.forms import tasks  # noqa: E402
from drift.judge import Mark, landed, mark, outcome  # noqa: E402
from drift.releases import changed_files  # noqa: E402
from drift.samples import Kind, Pair, Sample, draw, pick_path, spliced  # noqa: E402
from drift.tools import Answer, Tool  # noqa: E402
from drift.truth import Alignment, Standing, Truth, align, sealed, truth  # noqa: E402

from vllm_series.diffs.parse import parse  # noqa: E402
from vllm_series.patch import FileChange  # noqa: E402
from vllm_series.scope import Scopes  # noqa: E402

if TYPE_CHECKING:
    from conftest import Stock

PAIR = Pair("0.32.0", "0.33.0")
HAND = Pair("1", "2")
PATH = "vllm/hand.py"


def made(before: str, target: str, line: int, kind: Kind, new_text: str = "") -> Sample:
    edited = spliced(before.encode(), line, kind, new_text.encode())
    return Sample(HAND, kind, 1, 0, PATH, line, before.encode(), edited, target.encode())


def known(sample: Sample, folder: Path) -> Truth:
    return truth(sample, align({PATH: sample.before}, {PATH: sample.target}, folder)[PATH])


def tool(name: str) -> Tool:
    return next(tool for tool in drift_tools.TOOLS if tool.name == name)


def asked(name: str, samples: list[Sample], folder: Path) -> list[Answer]:
    chunk = folder / "chunk"
    chunk.mkdir()
    work = chunk / "work"
    work.mkdir()
    return tool(name).run(tasks(samples, chunk), work)


def real(stock: Stock, kind: Kind, count: int) -> list[Sample]:
    """Samples of a real pair."""
    files = pair_files(stock)
    paths = sorted(files)
    found = []
    for number in range(count):
        path = pick_path(paths, PAIR, kind, 1, number)
        sample = draw(PAIR, kind, 1, number, path, *files[path])
        if sample:
            found.append(sample)
    assert len(found) > count // 2
    return found


def pair_files(stock: Stock) -> dict[str, tuple[bytes, bytes]]:
    """Some changed files of the pair, enough for every kind of place."""
    old, new = stock(PAIR.old), stock(PAIR.new)
    paths = sorted(
        path.relative_to(old).as_posix() for path in (old / "vllm/v1/worker").rglob("*.py")
    )
    texts = {
        path: ((old / path).read_bytes(), (new / path).read_bytes())
        for path in paths
        if (new / path).is_file()
    }
    return {path: both for path, both in texts.items() if all(both) and both[0] != both[1]}


# -- the alignment and the truth ----------------------------------------------------------------


def test_an_alignment_counts_past_insertions_and_deletions() -> None:
    # As git diff -U0 writes: line 3 gone, two lines new behind line 5, lines 7 and 8 become one.
    aligned = Alignment([(3, 1, 2, 0), (5, 0, 5, 2), (7, 2, 8, 1)], 9, 9)
    assert [aligned.kept(line) for line in range(11)] == [
        0, 1, 2, None, 3, 4, 7, None, None, 9, 10,
    ]  # fmt: skip


def test_an_insertion_is_known_where_both_neighbours_are_kept_and_adjacent(tmp_path: Path) -> None:
    sample = made("a\nb\nc\nd\n", "x\na\nb\nc\nd\n", 2, Kind.INSERT, "new\n")
    found = known(sample, tmp_path / "known")
    assert (found.standing, found.line, found.right) == (
        Standing.KNOWN, 3, b"x\na\nb\nnew\nc\nd\n",
    )  # fmt: skip
    apart = made("a\nb\nc\nd\n", "a\nb\nx\nc\nd\n", 2, Kind.INSERT, "new\n")
    assert known(apart, tmp_path / "apart").standing is Standing.PARTLY
    half = made("a\nb\nc\nd\n", "a\nb\nx\nd\n", 2, Kind.INSERT, "new\n")
    assert known(half, tmp_path / "half").standing is Standing.PARTLY
    lost = made("a\nb\nc\nd\n", "a\nx\nd\n", 2, Kind.INSERT, "new\n")
    assert known(lost, tmp_path / "lost").standing is Standing.LOST


@pytest.mark.parametrize("kind", [Kind.CHANGE, Kind.DELETE])
def test_a_changed_or_deleted_line_must_itself_be_kept(kind: Kind, tmp_path: Path) -> None:
    new_text = "B\n" if kind is Kind.CHANGE else ""
    found = known(made("a\nb\nc\n", "x\na\nb\nc\n", 2, kind, new_text), tmp_path / "known")
    assert (found.standing, found.line) == (Standing.KNOWN, 3)
    assert found.right == f"x\na\n{new_text}c\n".encode()
    gone = made("a\nb\nc\n", "a\nx\nc\n", 2, kind, new_text)
    assert known(gone, tmp_path / "gone").standing is Standing.LOST
    alone = made("a\nb\nc\n", "a\nx\nb\nc\n", 2, kind, new_text)
    assert known(alone, tmp_path / "alone").standing is Standing.PARTLY


def test_the_ends_of_a_file_are_neighbours_that_stay(tmp_path: Path) -> None:
    first = made("a\nb\n", "a\nc\n", 0, Kind.INSERT, "new\n")
    assert known(first, tmp_path / "first").right == b"new\na\nc\n"
    last = made("a\nb\n", "c\nb\n", 2, Kind.INSERT, "new\n")
    assert known(last, tmp_path / "last").right == b"c\nb\nnew\n"


def test_truth_is_disputed_only_where_the_alignments_differ(tmp_path: Path) -> None:
    # Two blocks change places: which of them moved is for each algorithm to say.
    block = "".join(f"    common{number % 3}()\n" for number in range(6))
    before = f"def one():\n{block}def two():\n    unique()\n"
    target = f"def two():\n    unique()\n{block}def one():\n{block}"
    found = align({PATH: before.encode()}, {PATH: target.encode()}, tmp_path / "blocks")[PATH]
    said = {
        line: [alignment.place(Kind.CHANGE, line) for alignment in found] for line in range(1, 10)
    }
    disputed = [line for line, places in said.items() if len(set(places)) > 1]
    assert disputed
    for line in said:
        sample = made(before, target, line, Kind.CHANGE, "other\n")
        judged = truth(sample, found)
        assert judged.disputed is (line in disputed)
        assert (judged.standing, judged.line) == said[line][0]


# -- the judge ----------------------------------------------------------------------------------


TWINS = """\
def first():
    load()
    if ready:
        run()
    store()


def second():
    load()
    if ready:
        run()
    store()


def third():
    load()
"""


def test_the_bytes_alone_are_judged() -> None:
    sample = made(TWINS, TWINS, 11, Kind.INSERT, "        new()\n")
    right = spliced(sample.target, 11, sample.kind, sample.new_text)
    twin = spliced(sample.target, 4, sample.kind, sample.new_text)
    at = Truth(Standing.KNOWN, 11, right, disputed=False)
    assert mark(sample, at, Answer(right)) is Mark.RIGHT
    assert mark(sample, at, Answer(twin)) is Mark.WRONG
    assert mark(sample, at, Answer(None)) is Mark.REFUSED
    assert mark(sample, at, Answer(sample.target, "already")) is Mark.WRONG
    lost = Truth(Standing.LOST, None, None, disputed=False)
    assert mark(sample, lost, Answer(twin)) is Mark.PLACED_THOUGH_LOST
    assert mark(sample, lost, Answer(None)) is Mark.UNPLACED
    partly = Truth(Standing.PARTLY, None, None, disputed=False)
    assert mark(sample, partly, Answer(right)) is Mark.SAME_SCOPE
    assert mark(sample, partly, Answer(twin)) is Mark.OTHER_SCOPE
    assert mark(sample, partly, Answer(right + b"# more\n")) is Mark.OTHER_SCOPE
    assert mark(sample, partly, Answer(None)) is Mark.LEFT


def test_a_lost_deletion_that_is_called_done_is_not_placed() -> None:
    lost = Truth(Standing.LOST, None, None, disputed=False)
    gone = made("a\nb\nc\n", "a\nc\n", 2, Kind.DELETE)
    assert mark(gone, lost, Answer(gone.target, "already")) is Mark.UNPLACED
    kept = made("a\nb\nc\n", "a\nc\n", 2, Kind.CHANGE, "B\n")
    assert mark(kept, lost, Answer(kept.target, "already")) is Mark.PLACED_THOUGH_LOST


def test_where_an_answer_put_the_edit() -> None:
    sample = made("a\nb\nc\n", "x\na\nb\nc\n", 2, Kind.CHANGE, "B\n")
    assert landed(sample.target, b"x\na\nB\nc\n", sample) == 3
    assert landed(sample.target, b"x\na\nB\nc\nd\n", sample) is None
    assert landed(sample.target, sample.target, sample) is None


def test_the_old_name_of_a_renamed_function_is_told_apart(tmp_path: Path) -> None:
    body = "".join(f"    step{number}()\n" for number in range(12))
    before = f"def work():\n{body}"
    target = f"def work_impl():\n{body}\n\ndef work():\n{body[: body.index('    step4')]}"
    sample = made(before, target, 3, Kind.INSERT, "    new()\n")
    found = known(sample, tmp_path / "truth")
    (task,) = tasks([sample], _folder(tmp_path / "task"))
    name = spliced(sample.target, target[: target.index("def work()")].count("\n") + 3,
                   sample.kind, sample.new_text)  # fmt: skip
    judged = outcome(task, found, Answer(name), "a tool")
    assert (judged.mark, judged.by_name) == (Mark.WRONG, True)
    assert "in 2 it changed line 18" in judged.case
    assert "it belongs to line 3" in judged.case
    assert task.foreign.decode() in judged.case


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


# -- the samples --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", list(Kind))
def test_samples_are_one_line_edits_that_parse_and_repeat(stock: Stock, kind: Kind) -> None:
    samples = real(stock, kind, 12)
    again = real(stock, kind, 12)
    assert samples == again
    for sample in samples:
        assert landed(sample.before, sample.edited, sample) is not None
        assert Scopes.of(sample.edited, sample.path)
        assert spliced(sample.before, sample.line, kind, sample.new_text) == sample.edited


def test_more_samples_leave_the_first_ones_as_they_are(stock: Stock) -> None:
    few, many = real(stock, Kind.INSERT, 4), real(stock, Kind.INSERT, 12)
    assert few == many[: len(few)]


def test_both_forms_are_the_same_change(stock: Stock, tmp_path: Path) -> None:
    samples = [one for kind in Kind for one in real(stock, kind, 6)]
    for task in tasks(samples, tmp_path):
        foreign, own = parse(task.foreign, "foreign"), parse(task.own, "own")
        assert (foreign.is_ours, own.is_ours) == (False, True)
        assert own.base == PAIR.old
        for one, other in zip(foreign.files, own.files, strict=True):
            assert one.paths(1) == other.paths(1) == (task.sample.path, task.sample.path)
            assert len(other.old_id or "") == 40
            assert _bodies(one) == _bodies(other)
            assert Scopes.of(task.sample.before, task.sample.path)


def _bodies(change: FileChange) -> list[tuple[bytes, tuple[bytes, ...]]]:
    return [(hunk.ops, hunk.lines) for hunk in change.hunks]


# -- the tools ----------------------------------------------------------------------------------

BATCHED = {
    "git apply": ["git", "apply", "-"],
    "patch": ["patch", "-p1", "-f"],
    "patch -F0": ["patch", "-p1", "-f", "-F0"],
}


@pytest.mark.parametrize("name", BATCHED)
def test_many_patches_in_one_call_go_where_each_alone_goes(
    name: str, stock: Stock, tmp_path: Path
) -> None:
    samples = [one for kind in Kind for one in real(stock, kind, 12)]
    answers = asked(name, samples, tmp_path)
    chunk = tasks(samples, _folder(tmp_path / "again"))
    for task, answer in zip(chunk, answers, strict=True):
        folder = tmp_path / "alone" / task.name
        path = folder / task.sample.path
        path.parent.mkdir(parents=True)
        path.write_bytes(task.sample.target)
        done = subprocess.run(
            BATCHED[name],
            cwd=folder,
            input=task.foreign,
            capture_output=True,
            env=sealed(folder),
            check=False,
        )
        assert answer.text == (None if done.returncode else path.read_bytes())
    assert any(answer.text for answer in answers)


@pytest.mark.parametrize("name", [tool.name for tool in drift_tools.TOOLS])
def test_every_tool_finds_what_only_moved_down(name: str, stock: Stock, tmp_path: Path) -> None:
    """The newer file is the older one with a line on top."""
    program = tool(name).program
    if program and tool(name) not in drift_tools.installed([tool(name)])[0]:
        pytest.skip(f"{program} is not installed")
    # git binds a hunk that begins at line 1 to the top of the file.
    samples = [
        replace(one, target=b"# on top\n" + one.before)
        for kind in Kind
        for one in real(stock, kind, 6)
        if one.line > 4
    ]
    marks = []
    for one, answer in zip(samples, asked(name, samples, tmp_path), strict=True):
        at = one.line + 1
        right = spliced(one.target, at, one.kind, one.new_text)
        marks.append(mark(one, Truth(Standing.KNOWN, at, right, disputed=False), answer))
    assert Mark.WRONG not in marks
    # Without a base, ours refuses the text of which there is a twin.
    assert marks.count(Mark.RIGHT) >= (len(marks) * 2 // 3 if name.startswith("ours") else
                                       len(marks))  # fmt: skip


def test_the_judge_sees_gnu_patch_go_wrong(tmp_path: Path) -> None:
    """The first twin has drifted; fuzz and the nearest match take the second."""
    target = TWINS.replace("def first():\n    load()", "def first():\n    load_all()", 1)
    target = target.replace("        run()", "        run_all()", 1)
    sample = made(TWINS, target, 4, Kind.INSERT, "    new()\n")
    (answer,) = asked("patch", [sample], tmp_path)
    found = known(sample, tmp_path / "truth")
    assert found.standing is Standing.PARTLY
    assert mark(sample, found, answer) is Mark.OTHER_SCOPE
    (ours,) = asked("ours, own", [sample], _folder(tmp_path / "ours"))
    assert mark(sample, found, ours) is Mark.LEFT


def test_a_patch_that_a_tool_cannot_read_is_named_and_hides_no_other(tmp_path: Path) -> None:
    sample = made(TWINS, "# top\n" + TWINS, 9, Kind.INSERT, "    new()\n")
    chunk = tasks([sample, sample], _folder(tmp_path / "chunk"))
    broken = chunk[0].numbered.replace(b"@@ -7,6 +7,7 @@", b"@@ -7,6 +7,9 @@")
    assert broken != chunk[0].numbered
    bad = type(chunk[0])(chunk[0].sample, chunk[0].name, broken, broken, broken)
    answers = tool("git apply").run([bad, chunk[1]], _folder(tmp_path / "work"))
    assert answers[0].text is None
    assert answers[0].note.startswith("crash: exit 128: error: corrupt patch")
    assert answers[1].text is not None
    (ours,) = tool("ours, foreign").run([bad], tmp_path)
    assert ours.note.startswith("crash: PatchFormatError")


# -- the whole ----------------------------------------------------------------------------------


def test_changed_files_are_those_that_both_releases_have(tmp_path: Path) -> None:
    for version, files in {
        "1": {"same.py": "a\n", "changed.py": "a\n", "gone.py": "a\n", "emptied.py": "a\n"},
        "2": {"same.py": "a\n", "changed.py": "b\n", "new.py": "a\n", "emptied.py": ""},
    }.items():
        (tmp_path / version / "vllm").mkdir(parents=True)
        for name, text in files.items():
            (tmp_path / version / "vllm" / name).write_text(text)
    changed = changed_files([HAND], tmp_path, print)[HAND]
    assert (changed.old, changed.new) == ({"vllm/changed.py": b"a\n"}, {"vllm/changed.py": b"b\n"})


def test_the_command_reports_every_cell_as_json(stock: Stock, tmp_path: Path) -> None:
    for version in (PAIR.old, PAIR.new):
        (tmp_path / version).symlink_to(stock(version))
    words = [sys.executable, str(ROOT / "benchmarks" / "drift"), "--trees", str(tmp_path)]
    words += ["--pair", f"{PAIR.old}-{PAIR.new}", "--seed", "7", "--samples", "4", "--json"]
    words += ["--tool", "git apply", "--tool", "ours, own", "--workers", "1"]
    first, second = (
        json.loads(subprocess.run(words, capture_output=True, check=True).stdout) for _ in range(2)
    )
    assert first["schema"] == 1
    assert first["cells"] == second["cells"]
    cells = {(cell["kind"], cell["tool"]): cell for cell in first["cells"]}
    assert set(cells) == {
        (kind, name)
        for kind in ("insert", "change", "delete")
        for name in ("git apply", "ours, own", "ours, own, base")
    }
    for cell in cells.values():
        assert (cell["old"], cell["new"], cell["seed"]) == (PAIR.old, PAIR.new, 7)
        assert 0 < cell["samples"] <= 4
        assert sum(cell[mark.value] for mark in Mark) == cell["samples"]
        assert cell["crashed"] == 0
