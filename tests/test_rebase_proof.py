"""What the benchmark of rebase measures, on hand-made texts and a few real changes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from rebased import project

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

from drift.truth import align  # noqa: E402
from rebase.carriers import LINES, MERGE_FILE, OURS, REBASE, Asked, ask  # noqa: E402
from rebase.cases import Case, Direction, Triple  # noqa: E402
from rebase.hand import PATHS, SERIES, ported  # noqa: E402
from rebase.history import QUICK, marked  # noqa: E402
from rebase.roundtrip import trip  # noqa: E402
from rebase.truth import Mark, mark, truth  # noqa: E402

from vllm_series.structure.resolve import resolve  # noqa: E402
from vllm_series.upstream.open import open_catalog  # noqa: E402

HAND = Triple("1.0.0", "2.0.0", "3.0.0")
PATH = "vllm/hand.py"
BASE = "".join(f"def f{n}():\n    a = {n}\n    b = 2\n    return a\n\n\n" for n in range(6))


def carried(base: str, patched: str, target: str, tmp: Path) -> tuple[Asked, dict[str, Mark]]:
    case = Case(HAND, Direction.BACK, PATH, base.encode(), patched.encode(), target.encode())
    (asked,) = ask([case], tmp / "asked")
    alignments = align({PATH: case.base}, {PATH: case.target}, tmp / "aligned")
    known = truth(case, asked.runs, alignments[PATH])
    marks = {
        name: mark(case, known, asked.runs, answer.text, answer.runs)
        for name, answer in asked.answers.items()
    }
    return asked, marks


def test_a_change_that_only_moved_is_right_for_every_tool(tmp_path: Path) -> None:
    patched = BASE.replace("    a = 3\n    b = 2\n", "    a = 3\n    b = 3\n")
    _, marks = carried(BASE, patched, "import os\n\n\n" + BASE, tmp_path)
    assert set(marks.values()) == {Mark.RIGHT}


def test_a_merge_into_another_function_is_marked_and_not_taken(tmp_path: Path) -> None:
    patched = BASE.replace("    a = 3\n    b = 2\n", "    a = 3\n    b = 3\n")
    target = BASE.replace("def f3():\n", "def g3():\n    # another one\n    x = 1\n")
    _, marks = carried(BASE, patched, target, tmp_path)
    assert marks[REBASE] is marks[MERGE_FILE] is Mark.RENAMED
    assert marks[OURS] is Mark.REFUSED


def test_a_changed_neighbour_stops_git_and_not_the_syntax_tree(tmp_path: Path) -> None:
    patched = BASE.replace("    a = 3\n", "    a = 33\n")
    target = BASE.replace("    a = 3\n    b = 2\n", "    a = 3\n    b = 4\n")
    asked, marks = carried(BASE, patched, target, tmp_path)
    assert [marks[one] for one in (LINES, REBASE, MERGE_FILE)] == [Mark.REFUSED] * 3
    assert marks[OURS] is Mark.SAME_SCOPES
    assert asked.answers[OURS].text == target.replace("    a = 3\n", "    a = 33\n").encode()


def test_a_result_at_another_place_is_wrong(tmp_path: Path) -> None:
    patched = BASE.replace("    a = 3\n    b = 2\n", "    a = 3\n    b = 3\n")
    asked, _ = carried(BASE, patched, "import os\n\n\n" + BASE, tmp_path)
    known = truth(
        asked.case, asked.runs,
        align({PATH: asked.case.base}, {PATH: asked.case.target}, tmp_path / "again")[PATH],
    )  # fmt: skip
    other = asked.case.target.replace(b"    a = 4\n    b = 2\n", b"    a = 4\n    b = 3\n")
    assert mark(asked.case, known, asked.runs, other, asked.runs) is Mark.WRONG


def test_a_line_of_the_release_that_would_come_into_another_class_is_a_conflict() -> None:
    base = "class Old:\n    a = 1\n\n    b = 2\n\n\nclass Last:\n    x = 1\n"
    patched = "class New:\n    n = 1\n\n    m = 2\n\n\nclass Last:\n    x = 1\n"
    target = base.replace("    b = 2\n", "    late = 3\n\n    b = 2\n")
    assert resolve(base.encode(), patched.encode(), target.encode(), PATH) is None


def test_no_tool_is_wrong_on_a_few_real_changes(tmp_path: Path) -> None:
    found = list(marked(QUICK, 5, 1, open_catalog(), tmp_path, lambda _said: None))
    assert len(found) == 20
    marks = [one.marks for one in found]
    assert not {one[OURS] for one in marks} & {Mark.WRONG, Mark.OTHER_SCOPE}
    refused = {tool: sum(one[tool] is Mark.REFUSED for one in marks) for tool in (OURS, REBASE)}
    assert refused[OURS] <= refused[REBASE] < len(found)


@pytest.mark.parametrize("name", SERIES)
def test_what_people_keep_is_python_on_both_ends(name: str) -> None:
    catalog = open_catalog()
    for release in ("0.14.1", "0.25.1"):
        tree = catalog.tree(release)
        made = ported({path: tree.read(path) or b"" for path in PATHS}, SERIES[name])
        assert len(made) == 4
        for files in made.values():
            for path, text in files.items():
                compile(text, path, "exec")


def test_a_series_that_is_carried_away_comes_home_as_it_left(tmp_path: Path) -> None:
    way = trip(
        ROOT / "series",
        ("0.33.0", "0.32.0", "0.31.0"),
        tmp_path,
        open_catalog(),
        lambda _said: None,
    )
    assert way.start == way.end
    assert not any(step.by_hand for step in (*way.back, *way.forth))
    assert set(way.alike) == {"vllm-0.31", "vllm-0.32", "vllm-0.33"}


def test_a_name_that_upstream_has_taken_away_is_for_review(tmp_path: Path) -> None:
    base = "import os\nimport sys\n\n\ndef f(a):\n    a += 1\n    b = 2\n    return os.name\n"
    patched = base.replace("    return", "    print(sys.argv)\n    return")
    target = base.replace("import sys\n", "").replace("    a += 1\n", "    a += 11\n")
    made = project(tmp_path)
    made.release("1.0.0", {PATH: base})
    made.release("1.1.0", {PATH: target})
    made.line("1.0.0", {"p.patch": ({PATH: base}, {PATH: patched})})
    ran = made.rebase("1.1.0", "--json")
    assert ran.code == 0, ran.err
    (patch,) = json.loads(ran.out)["done"][0]["patches"]
    assert patch["outcome"] == "merged"
    assert patch["review"] == [f"{PATH}:7 uses sys, which nothing binds there"]
