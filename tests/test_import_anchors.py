"""Which texts a script looks for, by its source, and which of them a file does not have."""

from __future__ import annotations

import pytest

from vllm_series.importing.anchors import anchors, missing, named_files

OLD = "the old text"


@pytest.mark.parametrize(
    "source",
    [
        "text = text.replace('the old text', 'new')",
        "OLD = 'the old text'\ntext = text.replace(OLD, 'new', 1)",
        "OLD: str = 'the old text'\nassert OLD in text",
        "if 'the old text' not in text:\n    raise SystemExit('gone')",
        "if 'the old text' not in text:\n    print('skip')\n    sys.exit(0)",
        "if text.count('the old text') != 1:\n    pass",
        "head, mark, tail = text.partition('the ' + 'old text')",
        "for old, new in (('the old text', 'new'),):\n    text = text.replace(old, new)",
        "TABLE = [('the old text', 'new')]\nfor old, new in TABLE:\n    text.replace(old, new)",
        "TABLE = [{'old': 'the old text'}]\nfor row in TABLE:\n    text.replace(row['old'], '')",
        "TABLE = {'the old text': 'new'}\nfor a, b in TABLE.items():\n    text.replace(a, b)",
        "TABLE = [('the old text', 1)]\nfor n, (a, b) in enumerate(TABLE):\n    text.count(a)",
        "EDITS = [Edit(old='the old text')]\nfor e in EDITS:\n    text.index(e.old)",
        "def put(text, old):\n    return text.replace(old, '')\nput(text, 'the old text')",
        "def put(text, *, old):\n    return text.replace(old, '')\nput(text, old='the old text')",
    ],
)
def test_a_text_that_is_looked_for_is_an_anchor(source: str) -> None:
    assert [anchor.text for anchor in anchors(source.encode())] == [OLD.encode()]


@pytest.mark.parametrize(
    "source",
    [
        "if 'the old text' in text:\n    print('already applied')\n    sys.exit(0)",
        "if 'the old text' not in text:\n    text += 'the old text'\n    place.write_text(text)",
        "text += 'the old text'",
        "text.replace(found.group(1), 'the old text')",
        "lines = text.split('\\n')",
        "this is no Python",
    ],
)
def test_what_a_script_writes_itself_is_none(source: str) -> None:
    assert anchors(source.encode()) == []


def test_an_anchor_is_called_by_its_constant_and_the_line_of_its_use() -> None:
    (anchor,) = anchors(b"OLD = 'the old text'\n\nfor a in (OLD,):\n    text.replace(a, '')\n")
    assert (anchor.name, anchor.line) == ("OLD", 4)
    assert anchor.label == "OLD (line 4 of the script)"


def test_a_missing_anchor_is_shown_beside_the_nearest_text() -> None:
    source = b"text.replace('def take(self):\\n    return self.width\\n', '')"
    files = {
        "vllm/a.py": b"import os\n",
        "vllm/b.py": b"x = 1\n\ndef take(self):\n    return self.size\n",
    }
    (lost,) = missing(anchors(source), files)
    assert lost.path == "vllm/b.py"
    assert lost.candidate.splitlines() == [
        "--- the script expects",
        "+++ line 3 holds",
        " def take(self):",
        "-    return self.width",
        "+    return self.size",
    ]


def test_an_anchor_that_any_file_holds_is_not_missing() -> None:
    found = anchors(b"text.replace('the old text', '')")
    assert missing(found, {"vllm/a.py": b"", "vllm/b.py": b"in the old text.\n"}) == []
    (lost,) = missing(found, {"vllm/a.py": b"zzzz\n"})
    assert (lost.path, lost.candidate) == ("", "")


def test_files_are_named_by_a_path_not_by_a_name_alone() -> None:
    known = ["vllm/v1/core/sched/scheduler.py", "vllm/scheduler.py"]
    source = b"place = site / 'v1/core/sched/scheduler.py'\nother = 'scheduler.py'"
    assert named_files(source, known) == known[:1]
