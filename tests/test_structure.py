"""Merging by the syntax tree: what is taken, and what is left to a person."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rebased import project
from vllm_series.structure.resolve import resolve

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

import structure  # noqa: E402
from drift.samples import Kind, Pair, draw, pick_path  # noqa: E402
from drift.truth import Standing, align, truth  # noqa: E402

if TYPE_CHECKING:
    from conftest import Stock

PATH = "vllm/module.py"
FILE = '''"""A module."""

import abc
import os
import zlib

from vllm.config import (
    CacheConfig,
    ModelConfig,
    VllmConfig,
)

KINDS = {
    "one": 1,
    "two": 2,
    "three": 3,
}
ORDER = [
    "one",
    "two",
    "three",
]
PAIR = (
    first(),
    second(),
    third(),
)


class Kind(Enum):
    """What it is."""

    ONE = "one"
    TWO = "two"
    THREE = "three"


def load(
    path,
    config,
    limit=0,
    *,
    mode="r",
    size=0,
):
    """Load it.

    The path is the place.
    The mode is that of open.
    """
    handle = open(path, mode)
    # Read all of it at once.
    data = handle.read(size)
    count = len(data)
    return build(
        data,
        count=count,
        limit=limit,
        mode=mode,
    )


def save(path):
    if path:
        name = path.name
        mark = 1
        kind = path.kind
    else:
        name = None
        mark = 1
        kind = None
    return name, kind
'''
Swap = tuple[str, str]


def swapped(text: str, *swaps: Swap) -> bytes:
    for old, new in swaps:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text.encode()


def merged(ours: Swap | list[Swap], theirs: Swap | list[Swap]) -> bytes | None:
    """The merge of two changes of the file."""
    mine, other = ([one] if isinstance(one, tuple) else one for one in (ours, theirs))
    base = FILE.encode()
    found = resolve(base, swapped(FILE, *mine), swapped(FILE, *other), PATH)
    return found.text if found else None


def conflicts(ours: Swap, theirs: Swap, folder: Path) -> bool:
    """Whether git's merge has a conflict."""
    for name, text in (
        ("a", swapped(FILE, theirs)),
        ("b", FILE.encode()),
        ("c", swapped(FILE, ours)),
    ):
        (folder / name).write_bytes(text)
    command = ["git", "merge-file", "-p", "a", "b", "c"]
    return subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode != 0


TAKEN: dict[str, tuple[Swap, Swap, str]] = {
    # What the patch does, what upstream does, what stands there then.
    "a statement behind one that stands": (
        ("    data = handle.read(size)\n", "    data = handle.read(size)\n    total = 1\n"),
        ("    count = len(data)\n", "    count = len(data) + 0\n"),
        "    total = 1\n    count = len(data) + 0\n",
    ),
    "a statement in front of one that stands": (
        ("    count = len(data)\n", "    total = 1\n    count = len(data)\n"),
        ("    data = handle.read(size)\n", "    data = handle.read(size or -1)\n"),
        "    data = handle.read(size or -1)\n    total = 1\n",
    ),
    "a statement at the end of its block": (
        (
            "        kind = path.kind\n    else:\n",
            "        kind = path.kind\n        other = 2\n    else:\n",
        ),
        ("        kind = path.kind\n", "        kind = path.kind or 0\n"),
        "        kind = path.kind or 0\n        other = 2\n    else:\n",
    ),
    "a statement that stands, beside one that has changed": (
        ("    count = len(data)\n", "    count = len(data) + 1\n"),
        ("    data = handle.read(size)\n", "    data = handle.read(size or -1)\n"),
        "    data = handle.read(size or -1)\n    count = len(data) + 1\n",
    ),
    "a statement that is taken out": (
        ("        name = path.name\n        mark = 1\n", "        name = path.name\n"),
        ("        kind = path.kind\n", "        kind = path.kind or 0\n"),
        "        name = path.name\n        kind = path.kind or 0\n",
    ),
    "an import": (
        ("import os\n", "import os\nimport sys\n"),
        ("import zlib\n", "import zipfile\n"),
        "import sys\nimport zipfile\n",
    ),
    "an imported name": (
        ("    ModelConfig,\n", "    LoadConfig,\n    ModelConfig,\n"),
        ("    CacheConfig,\n", "    AttentionConfig,\n"),
        "    AttentionConfig,\n    LoadConfig,\n",
    ),
    "an entry of a dict": (
        ('    "two": 2,\n', '    "two": 2,\n    "more": 4,\n'),
        ('    "three": 3,\n', '    "three": 30,\n'),
        '    "more": 4,\n    "three": 30,\n',
    ),
    "an element of a list": (
        ('    "two",\n', '    "two",\n    "more",\n'),
        ('    "three",\n', '    "last",\n'),
        '    "more",\n    "last",\n',
    ),
    "an element of a tuple": (
        ("    second(),\n", "    second(),\n    more(),\n"),
        ("    third(),\n", "    third(0),\n"),
        "    more(),\n    third(0),\n",
    ),
    "a member of an enum": (
        ('    TWO = "two"\n', '    TWO = "two"\n    MORE = "more"\n'),
        ('    THREE = "three"\n', '    LAST = "last"\n'),
        '    MORE = "more"\n    LAST = "last"\n',
    ),
    "a parameter": (
        ('    mode="r",\n', '    mode="r",\n    follow=True,\n'),
        ("    size=0,\n", "    size=-1,\n"),
        "    follow=True,\n    size=-1,\n",
    ),
    "a positional parameter": (
        ("    config,\n", "    config,\n    depth=0,\n"),
        ("    limit=0,\n", "    limit=1,\n"),
        "    config,\n    depth=0,\n    limit=1,\n",
    ),
    "an argument": (
        ("        limit=limit,\n", "        limit=limit,\n        follow=True,\n"),
        ("        mode=mode,\n", '        mode=mode or "r",\n'),
        '        follow=True,\n        mode=mode or "r",\n',
    ),
    "a comment in front of what it is about": (
        (
            "    # Read all of it at once.\n",
            "    # Closed by nobody.\n    # Read all of it at once.\n",
        ),
        ("    handle = open(path, mode)\n", "    handle = fopen(path, mode)\n"),
        "    handle = fopen(path, mode)\n    # Closed by nobody.\n",
    ),
    "a line of a docstring": (
        ("    The path is the place.\n", "    The path is the place.\n    It exists.\n"),
        ("    The mode is that of open.\n", "    The mode is as for open.\n"),
        "    It exists.\n    The mode is as for open.\n",
    ),
    "one of two equal statements, in its block": (
        ("        kind = None\n", "        kind = None\n        other = 2\n"),
        ("    return name, kind\n", "    return name, kind, mark\n"),
        "        kind = None\n        other = 2\n    return name, kind, mark\n",
    ),
    "a function beside one that has changed": (
        (
            "def save(path):\n",
            "def name(path):\n    data = path\n    return data\n\n\ndef save(path):\n",
        ),
        (
            "        mode=mode,\n    )\n",
            "        mode=mode,\n    )\n\n\ndef other(data):\n    return len(data)\n",
        ),
        "    return data\n\n\ndef other(data):\n",
    ),
    "both sides add something that leaves the other alone": (
        ("    count = len(data)\n", "    total = 1\n    count = len(data)\n"),
        ("    count = len(data)\n", "    extra = 2\n    count = len(data)\n"),
        "    total = 1\n    extra = 2\n    count = len(data)\n",
    ),
}
LEFT: dict[str, tuple[Swap, Swap]] = {
    "upstream has changed the line itself": (
        ("    count = len(data)\n", "    count = len(data) + 1\n"),
        ("    count = len(data)\n", "    count = len(data) + 2\n"),
    ),
    "nothing beside it is kept": (
        ("    count = len(data)\n", "    total = 1\n    count = len(data)\n"),
        (
            "    data = handle.read(size)\n    count = len(data)\n",
            "    data = handle.read(size or -1)\n    count = len(data) + 1\n",
        ),
    ),
    "upstream binds a name that it reads": (
        ("    count = len(data)\n", "    log(data)\n    count = len(data)\n"),
        ("    data = handle.read(size)\n", "    data = handle.read(size or -1)\n"),
    ),
    "upstream no longer binds a name that it reads": (
        ("        kind = path.kind\n", "        use(mark)\n        kind = path.kind\n"),
        (
            "        name = path.name\n        mark = 1\n        kind = path.kind\n"
            "    else:\n        name = None\n        mark = 1\n",
            "        name = path.name\n        note = 1\n        kind = path.kind\n"
            "    else:\n        name = None\n        note = 1\n",
        ),
    ),
    "upstream binds a name that it reads only later": (
        ("    count = len(data)\n", "    log(handle)\n    count = len(data)\n"),
        (
            "    handle = open(path, mode)\n    # Read all of it at once.\n"
            "    data = handle.read(size)\n    count = len(data)\n    return build(\n",
            "    # Read all of it at once.\n    data = read(size)\n    count = len(data)\n"
            "    handle = open(path, mode)\n    return build(\n",
        ),
    ),
    "upstream reads a name that it binds": (
        ("    count = len(data)\n", "    total = 1\n    count = len(data)\n"),
        ("    data = handle.read(size)\n", "    data = handle.read(total)\n"),
    ),
    "upstream reads a name that it no longer binds": (
        ("        name = path.name\n        mark = 1\n", "        name = path.name\n"),
        ("        kind = path.kind\n", "        kind = path.kind + mark\n"),
    ),
    "upstream returns in front of it": (
        ("    count = len(data)\n", "    total = 1\n    count = len(data)\n"),
        (
            "    data = handle.read(size)\n",
            "    data = handle.read(size or -1)\n    if not data:\n        return None\n",
        ),
    ),
    "it returns in front of what upstream has changed": (
        (
            "    data = handle.read(size)\n",
            "    data = handle.read(size)\n    if not data:\n        return None\n",
        ),
        ("    count = len(data)\n", "    count = measure(data)\n"),
    ),
    "both sides do something at one place": (
        ("    count = len(data)\n", "    start(path)\n    count = len(data)\n"),
        ("    count = len(data)\n", "    stop(path)\n    count = len(data)\n"),
    ),
    "what it stood in front of is another call now": (
        ("    count = len(data)\n", "    start(path)\n    count = len(data)\n"),
        ("    count = len(data)\n", "    lock(path)\n"),
    ),
    "upstream has it already": (
        ("    data = handle.read(size)\n", "    data = handle.read(size)\n    telling = 1\n"),
        (
            "    count = len(data)\n",
            "    count = len(data) + 0\n    telling = 1\n",
        ),
    ),
    "upstream has the key already": (
        ('    "two": 2,\n', '    "two": 2,\n    "more": 4,\n'),
        ('    "three": 3,\n', '    "more": 5,\n    "three": 30,\n'),
    ),
    "upstream has added elements, and their order counts": (
        ('    "two",\n', '    "two",\n    "more",\n'),
        ('    "three",\n', '    "other",\n    "last",\n'),
    ),
    "it would be counted otherwise": (
        ("    second(),\n", "    second(),\n    more(),\n"),
        (
            "    first(),\n    second(),\n    third(),\n",
            "    second(),\n    third(0),\n",
        ),
    ),
    "upstream has other positional parameters": (
        ("    config,\n", "    config,\n    strict=False,\n"),
        ("    config,\n    limit=0,\n", "    config,\n    depth=0,\n"),
    ),
    "the test of its block has changed": (
        ("        kind = path.kind\n", "        kind = path.kind\n        other = 2\n"),
        (
            "    if path:\n        name = path.name\n        mark = 1\n        kind = path.kind\n"
            "    else:\n        name = None\n",
            "    if path.ok:\n        name = path.name\n        mark = 1\n"
            "        kind = path.kind\n"
            "    elif path:\n        name = None\n",
        ),
    ),
    "what a test decides on has changed": (
        ("    if path:\n", "    if path and path.ok:\n"),
        ("        name = path.name\n", "        name = path.long_name\n"),
    ),
    "a comment whose statement is gone": (
        (
            "    data = handle.read(size)\n",
            "    data = handle.read(size)\n    # Not in bytes.\n",
        ),
        ("    count = len(data)\n", "    count = len(data) + 0\n"),
    ),
    "upstream has reordered the block": (
        ("        kind = None\n", "        other = 2\n        kind = None\n"),
        (
            "        name = None\n        mark = 1\n        kind = None\n",
            "        mark = 1\n        name = None\n        kind = None or 0\n",
        ),
    ),
}


@pytest.mark.parametrize("name", TAKEN)
def test_a_change_beside_changed_lines_is_merged(name: str, tmp_path: Path) -> None:
    ours, theirs, snippet = TAKEN[name]
    assert conflicts(ours, theirs, tmp_path)
    result = merged(ours, theirs)
    assert result is not None
    assert snippet in result.decode()
    mine, other = len(swapped(FILE, ours)), len(swapped(FILE, theirs))
    assert len(result) == mine + other - len(FILE)


@pytest.mark.parametrize("name", LEFT)
def test_what_may_be_wrong_is_left_to_a_person(name: str) -> None:
    assert merged(*LEFT[name]) is None


@pytest.mark.parametrize("text", ["", "x = (\n", "\ufeffx = 1\r\r\n"])
def test_a_text_without_units_is_left_to_a_person(text: str) -> None:
    base = FILE.encode()
    ours = swapped(FILE, TAKEN["an import"][0])
    assert resolve(base, ours, text.encode(), PATH) is None
    assert resolve(text.encode(), ours, base, PATH) is None
    assert resolve(base, text.encode(), ours, PATH) is None


def test_only_python_has_a_syntax_tree() -> None:
    ours, theirs, _ = TAKEN["an import"]
    texts = FILE.encode(), swapped(FILE, ours), swapped(FILE, theirs)
    assert resolve(*texts, "vllm/module.pyi") is not None
    assert resolve(*texts, "vllm/module.txt") is None


def test_a_second_equal_statement_in_the_block_takes_the_place_away() -> None:
    ours, theirs, _ = TAKEN["a statement behind one that stands"]
    twin = ("    handle = open(path, mode)\n",) * 2
    twin = (twin[0], "    data = handle.read(size)\n" + twin[1])
    assert merged(ours, [theirs]) is not None
    assert merged(ours, [theirs, twin]) is None
    assert merged([ours, twin], theirs) is not None, "only what the release has counts"


def test_every_other_edit_must_have_its_place_too() -> None:
    ours, theirs, snippet = TAKEN["an import"]
    other, far, _ = TAKEN["an entry of a dict"]
    both = merged([ours, other], [theirs, far])
    assert both is not None
    assert snippet in both.decode()
    lost = LEFT["upstream has changed the line itself"]
    assert merged([ours, lost[0]], [theirs, lost[1]]) is None


def test_a_statement_in_a_function_of_another_name_is_left() -> None:
    ours, theirs, _ = TAKEN["a statement behind one that stands"]
    assert merged(ours, [theirs, ("def load(\n", "def read(\n")]) is None


def test_every_place_is_told_with_its_reason() -> None:
    ours, theirs, _ = TAKEN["an imported name"]
    far = ("    return name, kind\n", "    return kind, name\n")
    texts = FILE.encode(), swapped(FILE, ours, far), swapped(FILE, theirs)
    found = resolve(*texts, PATH)
    assert found is not None
    assert [(place.line, place.by_structure) for place in found.places] == [(9, True), (73, False)]
    assert found.notes(PATH) == (
        "vllm/module.py line 9 in <module>: the imported name behind it stands in the same place "
        "of the syntax tree",
    )


@pytest.mark.parametrize("kind", Kind)
def test_no_edit_of_a_real_file_goes_wrong(kind: Kind, stock: Stock, tmp_path: Path) -> None:
    pair = Pair("0.32.0", "0.33.0")
    folders = stock(pair.old), stock(pair.new)
    files = {}
    for place in (folders[0] / "vllm/v1/core").rglob("*.py"):
        path = place.relative_to(folders[0]).as_posix()
        if (folders[1] / path).is_file():
            files[path] = (place.read_bytes(), (folders[1] / path).read_bytes())
    changed = {path: both for path, both in files.items() if both[0] != both[1] and all(both)}
    alignments = align(
        {path: both[0] for path, both in changed.items()},
        {path: both[1] for path, both in changed.items()},
        tmp_path / "aligned",
    )
    words = set()
    for number in range(150):
        path = pick_path(sorted(changed), pair, kind, 5, number)
        sample = draw(pair, kind, 5, number, path, *changed[path])
        if sample is None or truth(sample, alignments[path]).standing is not Standing.PARTLY:
            continue
        found = resolve(sample.before, sample.edited, sample.target, path)
        words.add(structure.judged(sample, alignments[path][0], found) if found else "left")
    assert "right" in words
    assert words <= {"right", "left"}


# -- in a rebase --------------------------------------------------------------------------------


def test_a_rebase_shows_for_review_what_was_merged_by_structure(tmp_path: Path) -> None:
    ours, theirs, _ = TAKEN["a statement in front of one that stands"]
    other = "vllm/other.py"
    mine, plain = swapped(FILE, ours).decode(), FILE.replace("import zlib", "import zlib, sys")
    work = project(tmp_path)
    work.release("0.1.0", {PATH: FILE, other: FILE})
    work.release("0.2.0", {PATH: swapped(FILE, theirs).decode(), other: "# New.\n" + FILE})
    work.release("0.3.0", {PATH: swapped(FILE, theirs).decode(), other: FILE})
    work.line("0.1.0", {"total.patch": ({PATH: FILE, other: FILE}, {PATH: mine, other: plain})})
    ran = work.rebase("0.2.0")
    assert ran.code == 0, ran.out + ran.err
    assert "total.patch  merged-by-structure" in ran.out
    line = mine.split("\n").index("    total = 1") + 1
    reason = f"review: vllm/module.py line {line} in load: the statement behind it stands"
    assert reason in ran.out
    patch = (work.series / "vllm-0.2" / "total.patch").read_text()
    assert "@@ load" in patch
    assert "+    total = 1" in patch
    assert "`total.patch` (merged-by-structure)" in " ".join(work.changelog.split())
    assert not (work.series / ".rerere").exists(), "no person has decided anything"
    again = work.rebase("0.3.0", "--from", "0.1")
    assert "total.patch  merged-by-structure" in again.out, again.out + again.err


def test_a_rebase_opens_what_the_syntax_tree_leaves(tmp_path: Path) -> None:
    ours, theirs = LEFT["upstream reads a name that it binds"]
    work = project(tmp_path)
    work.release("0.1.0", {PATH: FILE})
    work.release("0.2.0", {PATH: swapped(FILE, theirs).decode()})
    work.line("0.1.0", {"total.patch": ({PATH: FILE}, {PATH: swapped(FILE, ours).decode()})})
    ran = work.rebase("0.2.0")
    assert ran.code == 1
    assert "total.patch  conflicted" in ran.out
