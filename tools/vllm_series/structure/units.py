"""A Python file as units that a person would move as one: statements, elements, comments.

A group is an ordered run of units: the statements of a block, the arguments of a call, the entries
of a dict, the lines of a docstring. Only what stands on lines of its own is a unit that an edit can
add, change or take out, and an expression in brackets is a group only where it has such elements.
A unit has two names: `whole`, all that it says, and `key`, what still names it when its inside
changes (the name of a function, the test of an `if`, the keyword of an argument, a call without its
arguments).

Lines are 1-based and end at b"\\n"; a text that Python would split otherwise has no units.
"""

from __future__ import annotations

import ast
import itertools
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias, cast

_BLOCKS = ("body", "handlers", "cases", "orelse", "finalbody")
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class Sort(Enum):
    """What a group holds, and so what the order in it means."""

    BLOCK = "block"
    ARGUMENTS = "arguments"
    PARAMETERS = "parameters"
    NAMES = "imported names"
    LIST = "list"
    TUPLE = "tuple"
    SET = "set"
    DICT = "dict"
    TEXT = "docstring"


@dataclass(eq=False)
class Unit:
    """Lines `first` to `last`. `nodes` are its syntax; none for a comment or a line of text.
    `part` says which role it has in its group (a keyword, a keyword-only parameter)."""

    first: int
    last: int
    nodes: tuple[ast.AST, ...]
    whole: str
    key: str
    alone: bool
    part: str = ""
    header: int = 0
    """The last line before the blocks of a compound statement; else `last`."""
    groups: list[Group] = field(default_factory=list)

    @property
    def is_comment(self) -> bool:
        return not self.nodes and self.part == "comment"


@dataclass(eq=False)
class Group:
    """Units in order. Lines `first` to `last` may hold units, blank lines and nothing else that
    belongs to another group; `name` says where in its unit the group is."""

    name: str
    sort: Sort
    first: int
    last: int
    units: list[Unit]


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the way to a group: a unit of the group before, and which group in it."""

    unit: int
    name: str


class Outline:
    """The units of one text; made by `Outline.of`."""

    def __init__(self, lines: Sequence[bytes], tree: ast.Module) -> None:
        self.lines = lines
        self.tree = tree
        self.root = Group("", Sort.BLOCK, 1, len(lines), [])
        self._fill_block(self.root, tree.body, has_docstring=True)
        self._comment(self.root, b"")

    @classmethod
    def of(cls, text: bytes) -> Outline | None:
        """None where the text does not parse, is not UTF-8, or has lines that only Python ends."""
        lines = text.splitlines(keepends=True)
        if len(lines) != text.count(b"\n") + (not text.endswith(b"\n") and bool(text)):
            return None
        try:
            text.decode("utf-8")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return cls(lines, ast.parse(text))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None

    def group(self, way: Sequence[Step]) -> Group | None:
        """The group at the end of a way; None where there is none."""
        here = self.root
        for step in way:
            if step.unit >= len(here.units):
                return None
            found = [one for one in here.units[step.unit].groups if one.name == step.name]
            if len(found) != 1:
                return None
            here = found[0]
        return here

    def ways(self, first: int, last: int) -> list[tuple[Step, ...]]:
        """The ways to all groups whose lines hold `first` to `last`, outermost first. Two groups
        that end on the same lines are both given."""
        found: list[tuple[Step, ...]] = []
        waiting: list[tuple[tuple[Step, ...], Group]] = [((), self.root)]
        while waiting:
            way, group = waiting.pop(0)
            found.append(way)
            for number, unit in enumerate(group.units):
                for inner in unit.groups:
                    if inner.first <= first and last <= inner.last:
                        waiting.append(((*way, Step(number, inner.name)), inner))
        return found

    def is_blank(self, line: int) -> bool:
        return not self.lines[line - 1].strip()

    def covered(self, group: Group, first: int, last: int) -> tuple[int, int] | None:
        """The units, from and up to, that are just the lines `first` to `last` but for blank ones,
        each of them alone on its lines."""
        inside = [
            at for at, unit in enumerate(group.units) if unit.first <= last and unit.last >= first
        ]
        wanted = {line for line in range(first, last + 1) if not self.is_blank(line)}
        units = group.units[inside[0] : inside[-1] + 1] if inside else []
        if not inside or len(units) != len(inside) or not all(unit.alone for unit in units):
            return None
        have = {line for unit in units for line in range(unit.first, unit.last + 1)}
        if not wanted <= have or units[0].first < first or units[-1].last > last:
            return None
        return inside[0], inside[-1] + 1

    # -- statements -----------------------------------------------------------------------------

    def _fill_block(
        self, group: Group, body: Sequence[ast.AST], has_docstring: bool = False
    ) -> None:
        for number, node in enumerate(body):
            group.units.append(self._statement(node, has_docstring and not number))

    def _statement(self, node: ast.AST, may_be_docstring: bool) -> Unit:
        first, last = _first(node), _last(node)
        column = 0
        if isinstance(node, ast.match_case):
            alone = True
        else:
            decorated = getattr(node, "decorator_list", None)
            column = getattr(node, "col_offset", 0) if not decorated else -1
            alone = self._is_alone(first, column, last, getattr(node, "end_col_offset", 0), b"")
        unit = Unit(first, last, (node,), sketch(node), "", alone, header=last)
        blocks = [(name, block) for name in _BLOCKS if (block := getattr(node, name, None))]
        blocks = [(name, block) for name, block in blocks if isinstance(block, list)]
        for name, block in blocks:
            inner = self._block(name, block, isinstance(node, _DEFINITIONS) and name == "body")
            if inner is None:
                unit.header = last
                unit.groups = []
                break
            if not unit.groups:
                unit.header = inner.first - 1
            unit.groups.append(inner)
        if _is_text(node) and may_be_docstring:
            unit.key = "docstring"
            unit.groups.append(self._docstring(first, last))
            return unit
        hidden: set[int] = set()
        for name, container in _containers(node, ""):
            elements = self._elements(name, container)
            if elements is not None:
                unit.groups.append(elements)
                hidden.add(id(container))
        if isinstance(node, _DEFINITIONS):
            unit.key = f"definition {node.name}"
        else:
            unit.key = sketch(node, hidden, blocks=False)
        return unit

    def _block(self, name: str, body: list[ast.AST], has_docstring: bool) -> Group | None:
        """A block that begins on a line of its own; None for one behind its colon."""
        first = _first(body[0])
        indent = _indent(self.lines[first - 1])
        group = Group(name, Sort.BLOCK, first, _last(body[-1]), [])
        self._fill_block(group, body, has_docstring)
        if not group.units[0].alone and name not in ("handlers", "cases"):
            return None
        while group.first > 1 and (
            self.is_blank(group.first - 1) or self._is_comment(group.first - 1)
        ):
            group.first -= 1
        while group.last < len(self.lines) and (
            self.is_blank(group.last + 1)
            or (
                self._is_comment(group.last + 1)
                and _indent(self.lines[group.last]) == indent
                and name not in ("handlers", "cases")
            )
        ):
            group.last += 1
        if name not in ("handlers", "cases"):
            self._comment(group, indent)
        return group

    def _docstring(self, first: int, last: int) -> Group:
        group = Group("text", Sort.TEXT, first, last, [])
        for line in range(first, last + 1):
            text = self.lines[line - 1].strip().decode()
            if text:
                group.units.append(Unit(line, line, (), text, text, True, "text", line))
        return group

    def _comment(self, group: Group, indent: bytes | None) -> None:
        """Add the comments between the units of a group; those of a block have its indent."""
        taken = {line for unit in group.units for line in range(unit.first, unit.last + 1)}
        for line in range(group.first, group.last + 1):
            if line in taken or not self._is_comment(line):
                continue
            if indent is None or _indent(self.lines[line - 1]) == indent:
                text = self.lines[line - 1].strip().decode()
                group.units.append(Unit(line, line, (), text, text, True, "comment", line))
        group.units.sort(key=lambda unit: unit.first)

    def _is_comment(self, line: int) -> bool:
        return self.lines[line - 1].lstrip().startswith(b"#")

    # -- elements -------------------------------------------------------------------------------

    def _elements(self, name: str, container: ast.AST) -> Group | None:
        """The elements of an expression in brackets; None where none has lines of its own."""
        sort, opened, elements = _parts(container)
        if not elements:
            return None
        units = []
        for part, key, nodes in elements:
            start, end = nodes[0], nodes[-1]
            first, last = start.lineno, end.end_lineno or end.lineno
            alone = self._is_alone(
                first,
                start.col_offset,
                last,
                end.end_col_offset or 0,
                b",",
            )
            whole = " ".join(sketch(node) for node in nodes)
            unit = Unit(first, last, nodes, whole, key, alone, part, last)
            hidden: set[int] = set()
            for node in nodes:
                for inner_name, inner in _containers(node, ""):
                    if inner is node and sort is Sort.PARAMETERS:
                        continue
                    group = self._elements(inner_name, inner)
                    if group is not None:
                        unit.groups.append(group)
                        hidden.add(id(inner))
            unit.key = unit.key or " ".join(sketch(node, hidden) for node in nodes)
            units.append(unit)
        for one, two in itertools.pairwise(units):
            if one.last >= two.first:
                one.alone = two.alone = False
        if not any(unit.alone and unit.first > opened for unit in units):
            return None
        low, high = units[0].first, units[-1].last
        floor = max(opened, 1)
        while low - 1 > floor and (self.is_blank(low - 1) or self._is_comment(low - 1)):
            low -= 1
        closed: int = getattr(container, "end_lineno", None) or len(self.lines)
        while high + 1 < closed and (self.is_blank(high + 1) or self._is_comment(high + 1)):
            high += 1
        group = Group(f"{name}:{type(container).__name__}", sort, low, high, units)
        self._comment(group, None)
        return group

    def _is_alone(self, first: int, column: int, last: int, end: int, ends: bytes) -> bool:
        """Whether nothing else stands on the lines of a unit but a comma and a comment."""
        before = self.lines[first - 1][:column] if column >= 0 else b""
        if before.removeprefix(b"\xef\xbb\xbf").strip(b" \t\x0c*"):
            return False
        after = self.lines[last - 1][end:].strip()
        after = after.removeprefix(ends).lstrip()
        return not after or after.startswith(b"#")


def sketch(
    node: object, hidden: frozenset[int] | set[int] = frozenset(), blocks: bool = True
) -> str:
    """The syntax of a node in one line, without places. The elements of `hidden` expressions (by
    id) are left out, and without `blocks` the statements inside."""
    if isinstance(node, ast.AST):
        if id(node) in hidden:
            frame = [
                f"{name}={sketch(value, hidden)}"
                for name, value in ast.iter_fields(node)
                if isinstance(value, ast.AST) or not isinstance(value, list)
                if not isinstance(node, ast.arguments)
            ]
            return f"{type(node).__name__}[{' '.join(frame)}]"
        parts = [
            f"{name}={sketch(value, hidden, blocks)}"
            for name, value in ast.iter_fields(node)
            if blocks or name not in _BLOCKS or not isinstance(value, list)
        ]
        return f"{type(node).__name__}({' '.join(parts)})"
    if isinstance(node, list):
        return f"[{', '.join(sketch(one, hidden, blocks) for one in node)}]"
    return repr(node)


def _is_text(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _first(node: ast.AST) -> int:
    if isinstance(node, ast.match_case):
        return node.pattern.lineno
    lines: list[int] = [one.lineno for one in getattr(node, "decorator_list", ())]
    return min([_located(node).lineno, *lines])


def _last(node: ast.AST) -> int:
    if isinstance(node, ast.match_case):
        return _last(node.body[-1])
    return _located(node).end_lineno or _located(node).lineno


def _located(node: ast.AST) -> ast.stmt:
    """A node that has lines."""
    return cast("ast.stmt", node)


def _indent(line: bytes) -> bytes:
    return line[: len(line) - len(line.lstrip(b" \t\x0c"))]


def _containers(node: ast.AST, name: str) -> Iterator[tuple[str, ast.AST]]:
    """The outermost expressions in brackets that go over several lines and have elements on lines
    of their own, by where they are in the statement; not those in the statements inside it."""
    if isinstance(node, (ast.JoinedStr, ast.Lambda)):
        return
    if _is_container(node):
        yield name, node
        if isinstance(node, ast.Call):
            yield from _containers(node.func, f"{name}.func")
        return
    for field_name, value in ast.iter_fields(node):
        inside = f"{name}.{field_name}"
        if isinstance(value, ast.AST):
            yield from _containers(value, inside)
        elif isinstance(value, list) and not (field_name in _BLOCKS and not name):
            for number, one in enumerate(value):
                if isinstance(one, ast.AST):
                    yield from _containers(one, f"{inside}.{number}")


def _is_container(node: ast.AST) -> bool:
    if not isinstance(
        node,
        (ast.Call, ast.List, ast.Tuple, ast.Set, ast.Dict, ast.arguments, ast.ImportFrom),
    ):
        return False
    _, opened, found = _parts(node)
    if isinstance(node, ast.arguments):
        lines = [one[2][0].lineno for one in found]
        return len(set(lines)) == len(lines) > 0
    return any(one[2][0].lineno > opened for one in found)


_Element: TypeAlias = "ast.expr | ast.arg | ast.keyword | ast.alias"
_Parts: TypeAlias = list[tuple[str, str, tuple[_Element, ...]]]


def _parts(node: ast.AST) -> tuple[Sort, int, _Parts]:
    """Of an expression in brackets what it is, the line that opens it, and each element: its role,
    its key (empty where its own syntax is that) and its nodes, in the order of the source."""
    found: _Parts = []
    opened = getattr(node, "lineno", 0)
    match node:
        case ast.Call():
            opened = node.func.end_lineno or node.func.lineno
            found = [("positional", "", (one,)) for one in node.args]
            found += [
                ("keyword" if one.arg else "star", f"{one.arg}=" if one.arg else "", (one,))
                for one in node.keywords
            ]
            found.sort(key=lambda one: (one[2][0].lineno, one[2][0].col_offset))
            return Sort.ARGUMENTS, opened, found
        case ast.ImportFrom():
            found = [("", f"{one.name} as {one.asname or one.name}", (one,)) for one in node.names]
            return Sort.NAMES, opened, found
        case ast.Dict():
            for key, value in zip(node.keys, node.values, strict=True):
                if key is None:
                    found.append(("star", "", (value,)))
                else:
                    found.append(("", f"{sketch(key)}:", (key, value)))
            return Sort.DICT, opened, found
        case ast.arguments():
            defaults: dict[int, ast.expr] = {}
            positional = [*node.posonlyargs, *node.args]
            for one, default in zip(reversed(positional), reversed(node.defaults), strict=False):
                defaults[id(one)] = default
            for one, maybe in zip(node.kwonlyargs, node.kw_defaults, strict=True):
                if maybe is not None:
                    defaults[id(one)] = maybe
            groups = (
                ("positional-only", node.posonlyargs),
                ("positional", node.args),
                ("star", [node.vararg] if node.vararg else []),
                ("keyword-only", node.kwonlyargs),
                ("star", [node.kwarg] if node.kwarg else []),
            )
            for part, parameters in groups:
                for one in parameters:
                    more = (defaults[id(one)],) if id(one) in defaults else ()
                    found.append((part, f"parameter {one.arg}", (one, *more)))
            return Sort.PARAMETERS, found[0][2][0].lineno - 1 if found else 0, found
        case ast.List() | ast.Tuple() | ast.Set():
            found = [
                ("star" if isinstance(one, ast.Starred) else "", "", (one,)) for one in node.elts
            ]
            sort = {ast.List: Sort.LIST, ast.Tuple: Sort.TUPLE, ast.Set: Sort.SET}[type(node)]
            return sort, opened, found
    return Sort.LIST, opened, found
