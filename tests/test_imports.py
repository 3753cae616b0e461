"""What added lines import from the package, and whether a release has it."""

from __future__ import annotations

import pytest

from diffs import git_diff
from vllm_series.checking.imports import Import, imports, is_there
from vllm_series.checking.judge import judge
from vllm_series.checking.subject import Subject
from vllm_series.diffs.parse import parse

PATH = "vllm/v1/core/a.py"
BASE = b"import os\n\n\ndef f():\n    return os\n"


def imported(*lines: str, path: str = PATH) -> list[tuple[str, str]]:
    text = "".join(f"{line}\n" for line in lines).encode()
    (change,) = parse(git_diff({path: BASE}, {path: text + BASE}), "p").files
    return [(one.dotted, one.name) for hunk in change.hunks for one in imports(hunk, path)]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("from vllm.config import Config", [("vllm.config", "Config")]),
        ("from vllm.config import A, B as C  # why", [("vllm.config", "A"), ("vllm.config", "B")]),
        ("from vllm.config import (A, B)", [("vllm.config", "A"), ("vllm.config", "B")]),
        ("    from vllm import envs", [("vllm", "envs")]),
        ("import vllm.envs", [("vllm.envs", "")]),
        ("from .b import c", [("vllm.v1.core.b", "c")]),
        ("from ..b import c", [("vllm.v1.b", "c")]),
        ("from . import c", [("vllm.v1.core", "c")]),
        ("import torch", []),
        ("from torch import nn", []),
        ("from vllmx import nn", []),
        ("# from vllm import envs", []),
    ],
)
def test_imports_of_the_package_are_read_from_added_lines(
    line: str, found: list[tuple[str, str]]
) -> None:
    assert imported(line) == found


def test_imports_for_type_checkers_are_passed_over() -> None:
    lines = ("if TYPE_CHECKING:", "    from vllm.a import b", "", "    from vllm.c import d")
    assert imported(*lines) == []
    assert imported(*lines, "from vllm.e import f") == [("vllm.e", "f")]


@pytest.mark.parametrize(
    ("files", "there"),
    [
        ({}, False),
        ({"vllm/a.py": b"def b(): pass\n"}, True),
        ({"vllm/a.py": b"def bb(): pass\n"}, False),
        ({"vllm/a.py": b"from vllm.c import *\n"}, True),
        ({"vllm/a.py": b"def __getattr__(name): ...\n"}, True),
        ({"vllm/a/__init__.py": b"from .c import b\n"}, True),
        ({"vllm/a/__init__.py": b"", "vllm/a/b.py": b""}, True),
        ({"vllm/a/__init__.py": b"", "vllm/a/b/__init__.py": b""}, True),
        ({"vllm/a/__init__.py": b"", "vllm/a/c.py": b"b = 1"}, False),
    ],
)
def test_a_name_is_there_where_its_module_has_it(files: dict[str, bytes], there: bool) -> None:
    assert is_there(Import("vllm/a", "b"), files.get) is there


class Files(dict[str, bytes]):
    def read(self, path: str) -> bytes | None:
        return self.get(path)

    def mode(self, path: str) -> int | None:
        return None


def reviews(target: Files, base: Files | None, *diffs: bytes) -> list[tuple[str, ...]]:
    subject = Subject([parse(diff, f"{n}.patch") for n, diff in enumerate(diffs)])
    if base is not None:
        subject.put_on({f"{n}.patch": "1.0" for n in range(len(diffs))}, base.read)
    assert {path for part in subject.parts for path in part.touched} >= set(target)
    return [answer.reviews for part in subject.parts for answer in judge(part, target).patches]


def test_a_name_that_upstream_has_moved_is_for_review() -> None:
    diff = git_diff({PATH: BASE}, {PATH: b"from vllm.b import c\n" + BASE})
    base = Files({PATH: BASE, "vllm/b.py": b"c = 1\n"})
    assert reviews(base, base, diff) == [()]
    moved = Files({PATH: BASE, "vllm/b.py": b"d = 1\n"})
    said = f"{PATH} imports c, which is not in vllm.b here"
    assert reviews(moved, base, diff) == [(said,)]
    assert reviews(moved, None, diff) == [(said,)]
    assert reviews(moved, moved, diff) == [()], "what was so on the base is not upstream's doing"


def test_what_the_series_brings_along_is_there() -> None:
    new = git_diff({}, {"vllm/new.py": b"c = 1\n"})
    use = git_diff({PATH: BASE}, {PATH: b"from vllm.new import c\n" + BASE})
    assert reviews(Files({PATH: BASE}), None, new, use) == [(), ()]
