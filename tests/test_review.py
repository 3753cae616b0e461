"""When a hunk that fits may mean something else, on small files and on real ones."""

from __future__ import annotations

import textwrap

import pytest

from diffs import git_diff
from vllm_series.checking.answers import PatchAnswer
from vllm_series.checking.judge import judge
from vllm_series.checking.subject import Subject
from vllm_series.diffs.parse import parse
from vllm_series.verdicts import Verdict

PATH = "vllm/a.py"

BASE = """\
import os
import math

LIMIT = 3


class Scheduler:
    size: int = 0

    def __init__(self):
        self.running = []

    def step(self, limit):
        first = 1
        second = 2
        third = 3
        fourth = 4
        fifth = 5
        sixth = 6
        seventh = 7
        return first

    def last(self):
        one = 1
        two = 2
        return one + two


def helper():
    return 1
"""


class Files:
    def __init__(self, text: str) -> None:
        self.text = text.encode()

    def read(self, path: str) -> bytes | None:
        return self.text if path == PATH else None

    def mode(self, path: str) -> int | None:
        return None


def reviewed(
    target: str, patched: str, *, base: str | None = BASE, made_on: str = BASE
) -> PatchAnswer:
    """The patch from `made_on` to `patched`, judged on `target`; it must fit there."""
    diff = git_diff({PATH: made_on.encode()}, {PATH: patched.encode()}, "--full-index")
    subject = Subject([parse(diff, "p.patch")])
    subject.put_on({"p.patch": "1.0"}, Files(base).read if base is not None else None)
    (answer,) = judge(subject, Files(target)).patches
    assert answer.verdict in (Verdict.EXACT, Verdict.OFFSET), answer
    return answer


def put(text: str, below: str, *lines: str) -> str:
    """`text` with `lines` under the line that says `below`, as deep as that one is."""
    rows = text.splitlines()
    (at,) = [number for number, row in enumerate(rows) if row.strip() == below]
    deep = rows[at][: len(rows[at]) - len(rows[at].lstrip())]
    return "\n".join([*rows[: at + 1], *(deep + line for line in lines), *rows[at + 1 :]]) + "\n"


METHOD = textwrap.indent("def cap(self):\n    return 1\n\n", "    ")
WITH_METHOD = BASE.replace("    def last(self):", METHOD + "    def last(self):")


def test_a_method_that_upstream_has_come_to_define_is_named_with_both_places() -> None:
    target = BASE.replace("    def __init__", METHOD + "    def __init__")
    answer = reviewed(target, WITH_METHOD)
    ours = WITH_METHOD.splitlines().index("    def cap(self):") + 4
    theirs = target.splitlines().index("    def cap(self):") + 1
    assert answer.reviews == (
        f"{PATH}:{ours} defines Scheduler.cap, and upstream defines it too, at {PATH}:{theirs}",
    )
    assert not answer.is_clean


def test_without_a_base_a_method_defined_twice_is_still_named() -> None:
    target = BASE.replace("    def __init__", METHOD + "    def __init__")
    assert "Scheduler.cap" in reviewed(target, WITH_METHOD, base=None).reviews[0]


def test_a_name_of_another_scope_is_another_name() -> None:
    target = BASE + "\n\nclass Other:\n" + METHOD + "\n\ndef cap():\n    pass\n"
    assert reviewed(target, WITH_METHOD).is_clean


@pytest.mark.parametrize(
    "pair",
    [
        "@overload\ndef cap(self): ...\n",
        "@typing.overload\ndef cap(self): ...\n",
        "@cap.setter\ndef cap(self, value): ...\n",
        "@step.register\ndef cap(self): ...\n",
        "@register_fake('x')\ndef cap(self): ...\n",
    ],
)
def test_functions_that_belong_together_under_one_name_are_no_twins(pair: str) -> None:
    there = textwrap.indent(pair, "    ") + "\n"
    assert reviewed(
        BASE.replace("    def __init__", there + "    def __init__"), WITH_METHOD
    ).is_clean


def test_the_branches_of_a_condition_may_define_a_name_each() -> None:
    made_on = BASE + "\nif LIMIT:\n    y = 1\nelse:\n    u = 1\n    v = 1\n    z = 2\n    x = 3\n"
    target = made_on.replace("    y = 1\n", "    def cap():\n        return 0\n    y = 1\n")
    patched = put(made_on, "z = 2", "def cap():", "    return 1")
    assert reviewed(target, patched, base=made_on, made_on=made_on).is_clean


def test_what_was_defined_twice_on_the_base_is_meant() -> None:
    made_on = BASE.replace("    def __init__", METHOD + "    def __init__")
    patched = made_on.replace("    def last(self):", METHOD + "    def last(self):")
    assert reviewed("# new\n" + made_on, patched, base=made_on, made_on=made_on).is_clean


def test_a_field_that_upstream_has_come_to_define_is_named() -> None:
    target = BASE.replace("    def last(self):", "    width: int = 9\n\n    def last(self):")
    answer = reviewed(target, put(BASE, "size: int = 0", "width: int = 1"))
    assert "Scheduler.width" in answer.reviews[0]


def test_a_name_whose_import_upstream_has_removed_is_named() -> None:
    target = BASE.replace("import math\n", "")
    answer = reviewed(target, put(BASE, "two = 2", "three = math.inf"))
    line = target.splitlines().index("        two = 2") + 2
    assert answer.reviews == (f"{PATH}:{line} uses math, which nothing binds there",)


def test_a_function_that_upstream_has_renamed_is_named() -> None:
    target = BASE.replace("def helper", "def helper_of_all")
    assert "uses helper," in reviewed(target, put(BASE, "two = 2", "three = helper()")).reviews[0]


def test_a_local_name_that_upstream_has_renamed_is_named() -> None:
    target = BASE.replace("        seventh = 7\n", "        other = 7\n")
    answer = reviewed(target, put(BASE, "second = 2", "use = seventh"))
    assert "uses seventh," in answer.reviews[0]


def test_an_attribute_that_the_class_no_longer_defines_is_named() -> None:
    target = BASE.replace("self.running", "self.runs")
    answer = reviewed(target, put(BASE, "two = 2", "three = self.running"))
    assert "uses self.running, which Scheduler no longer defines" in answer.reviews[0]


@pytest.mark.parametrize(
    "line",
    [
        "three = [item for item in range(LIMIT) if (last := item)]",
        "three = lambda value, *rest, **more: (value, rest, more)",
        "three = {key: value for key, value in {}.items()}",
        "three = os.path.join(__file__, str(one)) if self.size else print",
        "with open(os.devnull) as file, open('x') as (left, right): three = file, left, right",
        "for number, (a, *b) in enumerate([]): three = number, a, b",
        "three: list[int] = sorted(self.running)",
        "import json; three = json.dumps(one)",
        "from x import y as z, w; three = z, w",
        "three = f'{one!r:>{two}}'",
        "global counter; counter = 1; three = counter",
        "three = Scheduler.last, ExceptionGroup, super().last",
    ],
)
def test_what_python_binds_is_bound(line: str) -> None:
    assert reviewed("# new\n" + BASE, put(BASE, "two = 2", *line.split("; "))).is_clean


def test_statements_that_bind_names_are_seen() -> None:
    lines = (
        "try:",
        "    pass",
        "except ValueError as error:",
        "    print(error)",
        "match one:",
        "    case {'a': first, **rest} if rest:",
        "        print(first, rest)",
        "    case [second, *others] as whole:",
        "        print(second, others, whole)",
        "class Inner:",
        "    field = 1",
        "    other = field",
        "def inner(argument, /, named=1, *, key=None):",
        "    nonlocal two",
        "    return argument, named, key, inner, Inner",
    )
    assert reviewed("# new\n" + BASE, put(BASE, "two = 2", *lines)).is_clean


def test_a_star_import_may_bind_anything() -> None:
    target = BASE.replace("import math\n", "from math import *\n")
    assert reviewed(target, put(BASE, "two = 2", "three = math.inf")).is_clean


def test_a_function_that_upstream_has_rewritten_is_named() -> None:
    target = BASE
    for word in ("fourth", "fifth", "sixth", "seventh"):
        target = target.replace(f"{word} =", f"new_{word} =")
    answer = reviewed(
        target.replace("return first", "return -first"),
        put(BASE, "def step(self, limit):", "    x = 1"),
    )
    assert "Scheduler.step is rewritten" in answer.reviews[0]


@pytest.mark.parametrize(
    ("signature", "said"),
    [
        ("(self)", "has no parameter limit"),
        ("(self, limit, other)", "has a parameter other here"),
        ("(self, limit, other=1)", ""),
        ("(self, limit, *, other=1)", ""),
        ("(self, limit: int) -> int", ""),
        ("(limit, self)", "another order"),
    ],
)
def test_parameters_that_the_patch_knew_must_be_there(signature: str, said: str) -> None:
    target = BASE.replace("def step(self, limit)", f"def step{signature}")
    answer = reviewed(target, put(BASE, "fifth = 5", "x = 1"))
    if said:
        assert said in answer.reviews[0]
    else:
        assert answer.is_clean


def test_a_file_of_a_newer_python_is_said_not_to_be_reviewed() -> None:
    newer = BASE + "\n\n?\n"
    diff = git_diff({PATH: newer.encode()}, {PATH: put(newer, "two = 2", "three = 3").encode()})
    (answer,) = judge(Subject([parse(diff, "p.patch")]), Files("# new\n" + newer)).patches
    assert answer.is_clean
    assert "is not reviewed" in answer.notes[0]


def test_a_result_that_does_not_parse_is_for_review() -> None:
    diff = git_diff({PATH: BASE.encode()}, {PATH: put(BASE, "two = 2", "  three = 3").encode()})
    (answer,) = judge(Subject([parse(diff, "p.patch")]), Files("# new\n" + BASE)).patches
    assert "does not parse" in answer.reviews[0]
