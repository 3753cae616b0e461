"""Two series side by side: git's own words, about what git would have been given."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from commandline import SCHEDULER, SERIES, Ran, run
from conftest import Stock
from rebased import Project, project

ONE = {"vllm/a.py": "def f():\n    return 1\n"}
TWO = {"vllm/a.py": "def f():\n    return 2\n"}
THREE = {"vllm/a.py": "def f():\n    # three\n    return 2\n"}
BEFORE = {"vllm/b.py": "import os\n\n\ndef g():\n    return os.name\n"}
LONG = "".join(f"    line({number})\n" for number in range(20))
AFTER = {"vllm/b.py": BEFORE["vllm/b.py"] + f"\n\ndef more():\n{LONG}"}
OTHER = {"vllm/b.py": BEFORE["vllm/b.py"] + f"\n\ndef more():\n{LONG}    return 1\n"}


def git(folder: Path, *words: str, stdin: bytes = b"") -> str:
    done = subprocess.run(
        ["git", *words], cwd=folder, input=stdin, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


def without_ids(text: str) -> str:
    return re.sub(r"(?m)^(\s*[-\d]+:\s+)[0-9a-f-]{7,}(.+?:\s+)[0-9a-f-]{7,}", r"\1ID\2ID", text)


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A line of three patches, and the next one: one equal, one changed, one gone, one new."""
    made = project(tmp_path_factory.mktemp("lines"))
    for version in ("1.0.0", "1.1.0"):
        made.release(version, {**ONE, **BEFORE})
    gone, new = {"vllm/gone.py": "GONE = 1\n" * 9}, {"vllm/new.py": "import new\n" * 7}
    made.line(
        "1.0.0",
        {
            "same.patch": (ONE, TWO),
            "edited.patch": (BEFORE, AFTER),
            "gone.patch": ({}, gone),
        },
    )
    made.line(
        "1.1.0",
        {"same.patch": (ONE, TWO), "edited.patch": (BEFORE, OTHER), "new.patch": ({}, new)},
    )
    return made


def compare(made: Project, *words: str | Path, **env: str) -> Ran:
    return run(
        *("range-diff", *words, "--series-dir", made.series),
        *("--source", f"dir:{made.root / 'releases'}"),
        stdin=b"",
        inside=(),
        cwd=None,
        **{"VLLM_SERIES_CACHE": str(made.root / "cache"), **env},
    )


# -- the series of this project -----------------------------------------------------------------


def test_the_series_of_two_lines_is_the_same_but_for_its_base() -> None:
    told = run("range-diff", "0.32", "vllm-0.33")
    assert (told.code, told.err) == (0, "")
    subject = "dynwidth: cap each request's verify width by what it accepts"
    assert re.fullmatch(rf"1:  [0-9a-f]+ = 1:  [0-9a-f]+ {re.escape(subject)}\n", told.out)


def test_with_all_trailers_it_is_what_git_says_of_commits_made_by_git_am(
    stock: Stock, tmp_path: Path
) -> None:
    git(tmp_path, "init", "-q")
    ranges = []
    for line in ("0.32", "0.33"):
        git(tmp_path, "checkout", "-q", "--orphan", f"line-{line}")
        place = tmp_path / SCHEDULER
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes((stock(f"{line}.0") / SCHEDULER).read_bytes())
        git(tmp_path, "add", "--", SCHEDULER)
        git(tmp_path, "commit", "-q", "-m", f"vllm {line}.0")
        git(tmp_path, "am", "-q", stdin=(SERIES / f"vllm-{line}/dynwidth.patch").read_bytes())
        ranges.append(f"line-{line}~1..line-{line}")
        git(tmp_path, "rm", "-q", "-r", ".")
    wanted = git(tmp_path, "range-diff", "--no-color", *ranges)
    told = run("range-diff", "0.32", "0.33", "--full")
    assert told.code == 0, told.err
    assert "-    Base: vllm 0.32.0" in told.out
    assert without_ids(told.out) == without_ids(wanted)


# -- equal, changed, gone and new ---------------------------------------------------------------


def test_every_pair_has_gits_sign(lines: Project) -> None:
    told = compare(lines, "-s", "1.0", "1.1")
    assert told.code == 0, told.err
    signs = re.findall(r"(?m)^ *(\S+): +\S+ ([=!<>]) +(\S+): +\S+ change what (\w+)", told.out)
    assert sorted(signs) == [
        ("-", ">", "3", "new"),
        ("1", "=", "1", "same"),
        ("2", "!", "2", "edited"),
        ("3", "<", "-", "gone"),
    ]


def test_json_names_the_patches_and_holds_what_differs(lines: Project) -> None:
    value = compare(lines, "1.0", "1.1", "--json").json()
    assert value["left"] == {"series": str(lines.series / "vllm-1.0"), "base": "1.0.0"}
    pairs = {
        (one["left"] or one["right"])["name"]: one
        for one in value["pairs"]  # type: ignore[attr-defined]
    }
    assert {name: one["relation"] for name, one in pairs.items()} == {
        "same.patch": "=",
        "edited.patch": "!",
        "gone.patch": "<",
        "new.patch": ">",
    }
    assert pairs["edited.patch"]["right"]["subject"] == "change what edited.patch changes"
    assert "\n +    line(19)\n++    return 1\n" in pairs["edited.patch"]["diff"]
    assert pairs["gone.patch"]["right"] is None
    assert pairs["gone.patch"]["diff"] == ""


def test_a_low_creation_factor_takes_a_pair_apart(lines: Project) -> None:
    assert " ! " in compare(lines, "-s", "1.0", "1.1").out
    assert " ! " not in compare(lines, "-s", "1.0", "1.1", "--creation-factor", "0").out


def test_sums_in_place_of_differences(lines: Project) -> None:
    told = compare(lines, "1.0", "1.1", "--stat")
    assert "1 file changed, 1 insertion(+)" in told.out
    assert "++    return 1" not in told.out


def test_folders_are_taken_as_well_as_names(lines: Project, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    for place in (lines.series / "vllm-1.0").iterdir():
        (folder / place.name).write_bytes(place.read_bytes())
    told = compare(lines, "1.0", folder)
    assert re.findall(r"(?m)^.* ([=!<>]) .*$", told.out) == ["=", "=", "="]


# -- what stands around it ----------------------------------------------------------------------


def test_neither_configuration_nor_colour_of_the_user_gets_in_and_nothing_is_left(
    lines: Project, tmp_path: Path
) -> None:
    plain = compare(lines, "1.0", "1.1").out
    config = tmp_path / "gitconfig"
    config.write_text("[color]\n\tui = always\n[diff]\n\tnoprefix = true\n\tcontext = 9\n")
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    there = {"GIT_CONFIG_GLOBAL": str(config), "GIT_DIR": "/nowhere", "TMPDIR": str(scratch)}
    assert compare(lines, "1.0", "1.1", **there).out == plain
    coloured = compare(lines, "1.0", "1.1", "--color", **there).out
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == plain
    assert not list(scratch.iterdir())


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        (("1.0", "9.9"), 1, "no series 9.9"),
        (("1.0", "./nowhere"), 2, "is no series"),
        (("-s", "--stat", "1.0", "1.1"), 2, "Give one of them"),
        (("--json", "--stat", "1.0", "1.1"), 2, "no sums"),
        (("1.0",), 2, "Missing argument"),
    ],
)
def test_wrong_words_get_a_clear_error(
    lines: Project, words: tuple[str, ...], code: int, expected: str
) -> None:
    told = compare(lines, *words)
    assert (told.code, told.out) == (code, "")
    assert expected in told.err


def test_a_patch_that_does_not_fit_its_base_is_named(lines: Project, tmp_path: Path) -> None:
    folder = tmp_path / "bad"
    folder.mkdir()
    text = (lines.series / "vllm-1.0/same.patch").read_bytes()
    (folder / "same.patch").write_bytes(text.replace(b"-    return 1", b"-    return 7"))
    (folder / "series").write_text("same.patch\n")
    told = compare(lines, "1.0", folder)
    assert (told.code, told.out) == (1, "")
    assert "same.patch does not fit vllm 1.0.0" in told.err
