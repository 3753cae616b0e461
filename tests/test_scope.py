"""Scopes against Python's own compiler, and section headings against git's own diffs."""

from __future__ import annotations

import difflib
import io
import re
import shutil
import subprocess
import types
import warnings
from typing import TYPE_CHECKING, NamedTuple

import pytest

from vllm_series.scope import (
    MODULE,
    HeadingDriver,
    Scopes,
    common_scope,
    defined_name,
    encloses,
    git_function_line,
    is_python,
    of_change,
    parse_error,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from conftest import Stock


def scopes_of(text: str | bytes) -> Scopes:
    scopes = Scopes.of(text if isinstance(text, bytes) else text.encode(), "a.py")
    assert scopes is not None
    return scopes


def owners(text: str | bytes) -> list[str]:
    scopes = scopes_of(text)
    return [scopes.innermost(line) for line in range(1, len(scopes) + 1)]


METHODS = """\
import os

class Scheduler(Base):
    limit = 3

    @property
    @cache(
        size=3,
    )
    def width(self):
        # why
        return self.limit

    async def step(self):
        def cap(n):
            return n

        return cap

        # left over

    last = 1
done = True
"""


def test_each_line_belongs_to_the_innermost_class_or_function() -> None:
    own, width, step = "Scheduler", "Scheduler.width", "Scheduler.step"
    assert owners(METHODS) == [
        *(MODULE, MODULE, own, own, own),
        *(width, width, width, width, width, width, width, own),
        *(step, f"{step}.cap", f"{step}.cap", step, step),
        *(own, own, own, own, MODULE),
    ]


def test_a_scope_reaches_from_its_first_decorator_to_its_last_statement() -> None:
    scopes = scopes_of(METHODS)
    assert scopes.names() == (
        "Scheduler",
        "Scheduler.width",
        "Scheduler.step",
        "Scheduler.step.cap",
    )
    assert scopes.ranges("Scheduler") == (3, 22)
    assert scopes.ranges("Scheduler.width") == (6, 12)
    assert scopes.ranges("Scheduler.step.cap") == (15, 16)
    assert scopes.ranges(MODULE) == (1, 23)
    assert scopes.ranges("Scheduler.cap") is None


def test_the_enclosing_scope_is_the_one_of_the_definition() -> None:
    scopes = scopes_of(METHODS)
    assert scopes.enclosing("Scheduler.step.cap") == "Scheduler.step"
    assert scopes.enclosing("Scheduler") == MODULE
    assert scopes.enclosing(MODULE) is None
    assert scopes.enclosing("Nowhere") is None


def test_definitions_of_one_name_are_told_apart_in_the_order_of_the_source() -> None:
    scopes = scopes_of("""\
if fast:
    def f(): pass
elif slow:
    def f(): pass
else:
    def f():
        def g(): pass
try:
    import x
except ImportError:
    class x:
        @property
        def y(self): pass
        @y.setter
        def y(self, v): pass
else:
    def f(): pass
finally:
    def f(): pass
for _ in ():
    def f(): pass
while 0:
    def f(): pass
with x:
    def f(): pass
match x:
    case 1:
        def f(): pass
    case _:
        def h(): pass
""")
    assert scopes.names() == (
        *("f", "f#2", "f#3", "f#3.g", "x", "x.y", "x.y#2"),
        *("f#4", "f#5", "f#6", "f#7", "f#8", "f#9", "h"),
    )
    assert scopes.enclosing("f#3.g") == "f#3"
    assert scopes.innermost(7) == "f#3.g"


def test_a_function_and_a_class_of_one_name_share_the_count() -> None:
    assert scopes_of("def a(): pass\nclass a: pass\n").names() == ("a", "a#2")


@pytest.mark.parametrize("last", ["", "\n"])
def test_lines_end_at_line_feeds_alone(last: str) -> None:
    string = "one\rtwo\x0b\x0c\x1c\u2028three"
    text = f'def f():\n    """{string}"""\n    return 1\ndef g():\n    pass{last}'
    assert owners(text) == ["f", "f", "f", "g", "g"]
    assert scopes_of(text).ranges("g") == (4, 5)


def test_a_line_that_several_definitions_share_belongs_to_what_encloses_them() -> None:
    assert owners("def f(): pass\rdef g():\r  pass\nx = 1\n") == [MODULE, MODULE]
    assert owners("class A:\r def f(self):\r  pass\n \n x = 1\n") == ["A", "A", "A"]


def test_crlf_and_mixed_line_endings() -> None:
    assert owners(b"def f():\r\n    pass\r\n\r\ndef g():\n    pass\r\n") == [
        *("f", "f", MODULE, "g", "g"),
    ]


def test_form_feeds_are_no_lines_and_no_indentation() -> None:
    assert owners("\x0cdef f():\n    pass\n\x0c\n\x0c@x\ndef g(): pass\n") == [
        *("f", "f", MODULE, "g", "g"),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("@(\n  # why\n  x\n)\n@y\ndef f(): pass\n", ["f"] * 6),
        ("1\n@\\\nx\ndef f(): pass\n", [MODULE, "f", "f", "f"]),
        ("\ufeff@x\nclass C: pass\n", ["C", "C"]),
    ],
    ids=["brackets", "backslash", "byte order mark"],
)
def test_a_scope_begins_at_the_at_sign(text: str, expected: list[str]) -> None:
    assert owners(text) == expected


@pytest.mark.parametrize(
    ("encoding", "name"), [("latin-1", "é"), ("shift_jis", "テ"), ("utf-8", "ñ")]
)
def test_the_coding_cookie_is_obeyed(encoding: str, name: str) -> None:
    text = f"#!/bin/python\n# -*- coding: {encoding} -*-\ndef {name}(): pass\n".encode(encoding)
    assert owners(text) == [MODULE, MODULE, name]


@pytest.mark.parametrize("text", [b"", b"\n", b"x", b"\n\nx", b"a\r", b"a\r\n", b"\rb\n\n"])
def test_lines_are_counted_as_readlines_counts_them(text: bytes) -> None:
    assert len(scopes_of(text)) == len(io.BytesIO(text).readlines())


def test_a_line_that_does_not_exist_is_an_error() -> None:
    scopes = scopes_of("x = 1\n")
    for line in (0, 2):
        with pytest.raises(IndexError):
            scopes.innermost(line)
    for line in (-1, 2):
        with pytest.raises(IndexError):
            scopes.at_insertion(line)


@pytest.mark.parametrize(
    "text",
    [
        b"def f(:\n",
        b"<<<<<<< ours\n",
        b"\xff = 1\n",
        b"# coding: nonsense\n",
        b"\xef\xbb\xbf# coding: latin-1\n",
        b"x = '\0'\n",
        b"(" * 5000,
        b"-" * 100_000 + b"1",
    ],
    ids=["syntax", "conflict", "bytes", "codec", "bom", "nul", "brackets", "depth"],
)
def test_what_does_not_parse_has_no_scopes_and_a_reason(text: bytes) -> None:
    assert Scopes.of(text, "a.py") is None
    reason = parse_error(text)
    assert reason
    assert "\n" not in reason


def test_what_is_not_python_has_no_scopes() -> None:
    assert Scopes.of(b"x = 1\n", "a.json") is None
    assert not is_python("a.json")
    assert not is_python("py")
    assert Scopes.of(b"x = 1\n", "a.pyi") is not None
    assert parse_error(b"x = 1\n") is None


def test_warnings_of_the_stock_text_are_not_ours() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert owners(b"def f(): return '\\d'\n") == ["f"]


@pytest.mark.parametrize(
    "signature",
    [
        "()",
        "(self, a, *, b=...)",
        "(a, /)",
        "(a, b=..., /, c=..., *args, d, e=..., **extra)",
        "(*, a)",
        "(*args)",
        "(**extra)",
    ],
)
def test_a_signature_is_names_stars_and_default_marks(signature: str) -> None:
    written = signature.replace("=...", ": int | None = (1, [2])")
    scopes = scopes_of(f"class C:\n    async def f{written} -> None: ...\n")
    assert scopes.signature("C.f") == signature
    assert scopes.signature("C") is None
    assert scopes.signature("C.g") is None


def test_scopes_enclose_by_name() -> None:
    assert encloses("A", "A")
    assert encloses("A", "A.f.g")
    assert encloses(MODULE, "A")
    assert encloses(MODULE, MODULE)
    assert not encloses("A", "AB")
    assert not encloses("A", "A#2.f")
    assert not encloses("A.f", "A")
    assert not encloses("A", MODULE)


def test_the_common_scope_is_the_innermost_around_all() -> None:
    assert common_scope(["A.f.x", "A.f.y", "A.f"]) == "A.f"
    assert common_scope(["A.f", "A.f#2"]) == "A"
    assert common_scope(["A.f"]) == "A.f"
    assert common_scope(["A", "B"]) == MODULE
    assert common_scope(["A", MODULE, "A"]) == MODULE
    assert common_scope([]) == MODULE


TWO = """\
class C:
    def f(self):
        if x:
            return 1

    # about g
    @y
    def g(self):
        return 2
z = 3
"""


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (0, {MODULE}),
        (1, {"C"}),
        (2, {"C.f"}),
        (3, {"C.f"}),
        (4, {"C", "C.f"}),
        (5, {"C", "C.f"}),
        (6, {"C", "C.f"}),
        (7, {"C.g"}),
        (8, {"C.g"}),
        (9, {"C.g", "C", MODULE}),
        (10, {MODULE}),
    ],
)
def test_an_insertion_may_continue_what_ends_there_but_not_enter_what_begins(
    after: int, expected: set[str]
) -> None:
    assert scopes_of(TWO).at_insertion(after) == expected


def test_every_insertion_that_parses_lands_in_a_scope_named_beforehand(stock: Stock) -> None:
    """The oracle is Python: a statement is inserted after every line at every indentation."""
    text = (stock("0.33.0") / "vllm/v1/core/sched/request_queue.py").read_bytes()
    lines = io.BytesIO(text).readlines()
    pre = scopes_of(text)
    parsed = 0
    for after in range(len(lines) + 1):
        expected = pre.at_insertion(after)
        for indent in range(0, 20, 4):
            inserted = b" " * indent + b"pass\n"
            post = Scopes.of(b"".join([*lines[:after], inserted, *lines[after:]]), "a.py")
            if post is not None:
                parsed += 1
                assert post.innermost(after + 1) in expected, (after, indent)
    assert parsed > len(lines)


class Change(NamedTuple):
    """A hunk by its lines, as `difflib` and git both tell it."""

    removed: list[int]
    added: list[int]
    after: list[int]


def change(pre: str, post: str) -> str:
    """The scope of everything that differs between two texts, as one hunk."""
    removed, added, after = [], [], []
    for hunk in git_hunks(diff_of(pre, post)):
        removed += hunk.change.removed
        added += hunk.change.added
        after += hunk.change.after
    return of_change(scopes_of(pre), scopes_of(post), removed, added, after)


def diff_of(pre: str, post: str) -> bytes:
    lines = difflib.unified_diff(
        pre.splitlines(True), post.splitlines(True), "a/a.py", "b/a.py", n=0
    )
    return "".join(lines).encode()


def test_a_changed_statement_has_the_scope_of_its_function() -> None:
    assert change(TWO, TWO.replace("return 1", "return 7")) == "C.f"


def test_a_changed_decorator_has_the_scope_of_its_function() -> None:
    assert change(TWO, TWO.replace("@y", "@x")) == "C.g"


def test_changes_in_two_methods_have_the_scope_of_their_class() -> None:
    assert change(TWO, TWO.replace("return", "yield")) == "C"


def test_a_whole_new_method_has_the_scope_of_its_class() -> None:
    new = "    def h(self):\n        def inner(): pass\n\n        return 3\n\n"
    assert change(TWO, TWO.replace("    # about g\n", new + "    # about g\n")) == "C"


def test_a_whole_new_nested_function_has_the_scope_of_its_function() -> None:
    new = "        def h():\n            return 3\n        if x:"
    assert change(TWO, TWO.replace("        if x:", new)) == "C.f"


def test_a_removed_class_has_the_scope_of_the_module() -> None:
    assert change(TWO, "z = 3\n") == MODULE


def test_blank_lines_count_only_where_nothing_else_changes() -> None:
    spaced = TWO.replace("        if x:", "\n        if x:")
    assert change(TWO, spaced) == "C.f"
    assert change(TWO, spaced.replace("z = 3", "z = 4")) == MODULE
    assert change(TWO, TWO.replace("    # about g", "\n    # about g")) == "C"


def test_a_statement_appended_to_a_method_has_the_scope_of_the_method() -> None:
    for mark in ("            return 1\n", "            return 1\n\n"):
        assert change(TWO, TWO.replace(mark, mark + "        return 4\n")) == "C.f"


def test_no_change_has_the_scope_of_the_module() -> None:
    assert of_change(scopes_of(TWO), scopes_of(TWO), [], []) == MODULE


def test_a_renamed_method_has_the_scope_of_its_class() -> None:
    assert change(TWO, TWO.replace("def g(self)", "def h(self)")) == "C"


def test_a_hunk_inside_what_another_hunk_renamed_names_a_scope_of_the_pre_image() -> None:
    post = TWO.replace("def g(self)", "def h(self)").replace("return 2", "return 7")
    assert of_change(scopes_of(TWO), scopes_of(post), [9], [9]) == "C"
    post = TWO.replace("def g(self)", "def h(self)").replace("return 2", "a()\n        return 2")
    assert of_change(scopes_of(TWO), scopes_of(post), [], [9], [8]) == "C"


def test_a_scope_whose_number_an_insertion_above_changed_is_not_mistaken_for_its_elder() -> None:
    pre = "def f():\n    a\ndef f():\n    b\n"
    post = "def f():\n    0\ndef f():\n    a\n    c\ndef f():\n    b\n"
    assert scopes_of(post).innermost(5) == "f#2"
    assert of_change(scopes_of(pre), scopes_of(post), [], [5], [2]) == MODULE


@pytest.mark.parametrize(
    ("heading", "name"),
    [
        (b"class Scheduler(SchedulerInterface):", "Scheduler"),
        (b"class Scheduler:", "Scheduler"),
        (b"def f(", "f"),
        (b"    def f(self): pass", "f"),
        (b"async  def\tf (a)", "f"),
        (b"def f[T](a: T) -> T:", "f"),
        (b"def f\\", "f"),
        (b"class C", "C"),
        ("def é(".encode(), "é"),
        ("def \ufb01(".encode(), "fi"),
        (b"def f-g(", None),
        (b"def 1(", None),
        (b"definitely(", None),
        (b"if TYPE_CHECKING:", None),
        (b"Scheduler.update_draft_token_ids", None),
        (b"class \xff:", None),
        (b"", None),
        (b"def " + b"f" * 76, None),
        (b"def " + b"f" * 75 + b"(", "f" * 75),
    ],
)
def test_the_name_that_a_heading_defines(heading: bytes, name: str | None) -> None:
    assert defined_name(heading) == name


@pytest.mark.parametrize("driver", HeadingDriver)
def test_no_heading_above_the_first_function_line(driver: HeadingDriver) -> None:
    assert git_function_line([b"# a\n", b"def f():\n"], 2, driver) is None
    assert git_function_line([b"# a\n", b"def f():\n"], 3, driver) == b"def f():"
    assert git_function_line([], 1, driver) is None


# Real releases and real tools


def python_files(tree: Path) -> Iterator[Path]:
    yield from sorted((tree / "vllm").rglob("*.py"))


class Compiled(NamedTuple):
    name: str
    first: int
    code: types.CodeType


def code_objects(code: types.CodeType, parent: str = "") -> Iterator[Compiled]:
    """Every class and function that the compiler saw, by dotted name."""
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            # Lambdas, comprehensions and scopes of type parameters hold definitions of nobody.
            hidden = inner.co_name.startswith("<")
            name = parent if hidden else f"{parent}.{inner.co_name}".lstrip(".")
            if not hidden:
                yield Compiled(name, inner.co_firstlineno, inner)
            yield from code_objects(inner, name)


def test_every_definition_of_a_release_is_where_the_compiler_sees_it(stock: Stock) -> None:
    definitions = 0
    for path in python_files(stock("0.33.0")):
        text = path.read_bytes()
        scopes = Scopes.of(text, path.name)
        assert scopes is not None, path
        assert len(scopes) == text.count(b"\n") + (not text.endswith(b"\n") and text != b"")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = compile(text, str(path), "exec", dont_inherit=True)
        seen = []
        for name, first, code in code_objects(module):
            own = scopes.innermost(first)
            assert re.sub(r"#\d+", "", own) == name, f"{path}:{first}"
            assert scopes.ranges(own)[0] == first, f"{path}:{first}"  # type: ignore[index]
            seen.append(own)
            for *_, line in code.co_lines():
                assert not line or encloses(own, scopes.innermost(line)), f"{path}:{line}"
        assert sorted(seen) == sorted(scopes.names()), path
        definitions += len(seen)
    assert definitions > 30_000


class Hunk(NamedTuple):
    path: str
    before: int
    heading: bytes | None
    change: Change


def git_hunks(diff: bytes) -> Iterator[Hunk]:
    """The hunks of a diff, read by their counts; `before` is what `git_function_line` takes."""
    lines = iter(diff.split(b"\n"))
    path = ""
    for line in lines:
        if line.startswith(b"--- a/"):
            path = line[6:].decode()
        found = re.match(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@(?: (.*))?$", line, re.DOTALL)
        if not found:
            continue
        old, new = int(found[1]), int(found[3])
        old_left, new_left = int(found[2] or 1), int(found[4] or 1)
        old += not old_left
        new += not new_left
        before = old
        seen = Change([], [], [])
        while old_left or new_left:
            mark = next(lines)[:1]
            if mark == b"+":
                seen.added.append(new)
                seen.after.append(old - 1)
            elif mark == b"-":
                seen.removed.append(old)
            if mark in b" -":
                old, old_left = old + 1, old_left - 1
            if mark in b" +":
                new, new_left = new + 1, new_left - 1
        yield Hunk(path, before, found[5], seen)


class Pair(NamedTuple):
    """Two releases of a part of vLLM in a git repository: the older committed, the newer in the
    working tree."""

    repository: Path
    older: Path
    newer: Path

    def diff(self, *options: str) -> bytes:
        return self.git("diff", "--diff-filter=M", *options)

    def git(self, *words: str) -> bytes:
        done = subprocess.run(["git", *words], cwd=self.repository, capture_output=True, check=True)
        return done.stdout


@pytest.fixture
def pair(stock: Stock, tmp_path: Path) -> Pair:
    older, newer = stock("0.32.0"), stock("0.33.0")
    pair = Pair(tmp_path / "repository", older, newer)
    part = pair.repository / "vllm/v1"
    shutil.copytree(older / "vllm/v1", part)
    pair.git("init", "--quiet")
    pair.git("add", ".")
    pair.git("commit", "--quiet", "-m", "older")
    shutil.rmtree(part)
    shutil.copytree(newer / "vllm/v1", part)
    return pair


@pytest.mark.parametrize("context", [0, 1, 3, 10])
@pytest.mark.parametrize("driver", HeadingDriver)
def test_headings_are_those_that_git_prints(
    pair: Pair, driver: HeadingDriver, context: int
) -> None:
    if driver is HeadingDriver.PYTHON:
        (pair.repository / ".git/info/attributes").write_text("*.py diff=python\n")
    count = 0
    for hunk in git_hunks(pair.diff(f"-U{context}")):
        lines = io.BytesIO((pair.older / hunk.path).read_bytes()).readlines()
        assert git_function_line(lines, hunk.before, driver) == hunk.heading, hunk
        count += 1
    assert count > 500


HARD_HEADINGS = [
    b"class A:  \t \n",
    b"def f():\r\n",
    b"\tasync \t def  f(" + b"a, " * 40 + b"):\n",
    b"  def g(" + b" " * 90 + b"):\n",
    b"\x0cdef h():\n",
    b"class\tB: \x0c\n",
    "def é(): 'ü'\n".encode(),
    "\u00e9 = 1\n".encode(),
    b"$x = 1\n",
    b"_y = 1 # a\rb  \r\r\n",
    b"async with z:\n",
    b"define = 1\n",
    b"class \n",
    b"#class Z:\n",
]


@pytest.mark.parametrize("driver", HeadingDriver)
def test_hard_headings_are_those_that_git_prints(tmp_path: Path, driver: HeadingDriver) -> None:
    lines = []
    for line in HARD_HEADINGS:
        lines += [line, b"#\n", b"#\n"]
    path = tmp_path / "a.py"
    path.write_bytes(b"".join(lines))
    attributes = "*.py diff=python\n" if driver is HeadingDriver.PYTHON else ""
    (tmp_path / ".gitattributes").write_text(attributes)
    for command in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "older"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    path.write_bytes(b"".join(b"# new\n" if at % 3 == 2 else x for at, x in enumerate(lines)))
    diff = subprocess.run(
        ["git", "diff", "-U0"], cwd=tmp_path, check=True, capture_output=True
    ).stdout
    headings = [
        (hunk.heading, git_function_line(lines, hunk.before, driver)) for hunk in git_hunks(diff)
    ]
    assert len(headings) == len(HARD_HEADINGS)
    assert [ours for _, ours in headings] == [git for git, _ in headings]


def test_the_scope_of_every_real_hunk_is_true_in_the_pre_image(pair: Pair) -> None:
    named = total = 0
    path = ""
    for hunk in git_hunks(pair.diff("-U3")):
        if hunk.path != path:
            path = hunk.path
            text = (pair.older / path).read_bytes().split(b"\n")
            pre = scopes_of((pair.older / path).read_bytes())
            post = scopes_of((pair.newer / path).read_bytes())
        scope = of_change(pre, post, *hunk.change)
        assert pre.ranges(scope) is not None
        for line in hunk.change.removed:
            assert not text[line - 1].strip() or encloses(scope, pre.innermost(line)), hunk
        for line in hunk.change.after:
            assert any(encloses(scope, inner) for inner in pre.at_insertion(line)), hunk
        total += 1
        named += scope != MODULE
    assert named > total / 2
