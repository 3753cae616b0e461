"""Which names a Python file binds, where it defines them, and which ones a line uses.

Python's own scoping, read from the syntax tree ("Naming and binding", Python's reference), and
generous where generosity costs nothing: the names of a comprehension count for the function around
it, those of a class body also for its methods. What is not bound then is bound nowhere.
"""

from __future__ import annotations

import ast
import builtins
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from vllm_series.scope import MODULE, Scopes, is_python

_MODULE_NAMES = frozenset(
    (
        *("__file__", "__name__", "__doc__", "__path__", "__package__", "__spec__", "__loader__"),
        *("__builtins__", "__annotations__", "__class__", "__module__", "__qualname__"),
    )
)
_NEWER = frozenset(("BaseExceptionGroup", "ExceptionGroup", "PythonFinalizationError"))
_ALWAYS = frozenset(dir(builtins)) | _MODULE_NAMES | _NEWER
"""Bound in every module, also where the running interpreter is older than the engine's."""

_Function: TypeAlias = "ast.FunctionDef | ast.AsyncFunctionDef"
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_Branch: TypeAlias = "tuple[tuple[int, str], ...]"


@dataclass(frozen=True, slots=True)
class Definition:
    """One binding of a name in the body of a module or a class, or a `def` or `class` anywhere.

    `line` is that of the name, 1-based; `scope` the qualified name of the body it stands in.
    `branches` are the conditional blocks around it within that body. `is_plain` says that it is a
    `def` or `class`, not a variable.
    """

    scope: str
    name: str
    line: int
    is_plain: bool
    branches: _Branch

    @property
    def qualified(self) -> str:
        """The name with its scope."""
        return self.name if self.scope == MODULE else f"{self.scope}.{self.name}"

    def excludes(self, other: Definition) -> bool:
        """Whether only one of the two runs: the branches of one `if`, `try` or `match`."""
        mine = dict(self.branches)
        return any(mine.get(node, field) != field for node, field in other.branches)


class Source:
    """One Python text, parsed; made by `Source.of`."""

    def __init__(self, text: bytes, tree: ast.Module) -> None:
        self.text = text
        self.tree = tree
        self._inside: dict[int, frozenset[str]] = {}

    @classmethod
    def of(cls, text: bytes, path: str) -> Source | None:
        """None where `path` is not Python or the running interpreter cannot parse the text."""
        if not is_python(path):
            return None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return cls(text, ast.parse(text))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None

    @cached_property
    def scopes(self) -> Scopes:
        """The scopes by line."""
        return Scopes(self.text, self.tree)

    @cached_property
    def lines(self) -> list[bytes]:
        """The lines as git counts them."""
        return (
            self.text.splitlines(keepends=True)
            if b"\r" not in self.text
            else ([line + b"\n" for line in self.text.split(b"\n")])
        )

    @cached_property
    def definitions(self) -> tuple[Definition, ...]:
        """Every definition that stands for itself: not an overload, nor a part of a property or of
        another registry that is built from functions of one name."""
        return tuple(_definitions(self.tree.body, MODULE, ()))

    @cached_property
    def has_star(self) -> bool:
        """Whether any import binds names that the text does not show."""
        return b"import *" in self.text and any(
            isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names)
            for node in ast.walk(self.tree)
        )

    @cached_property
    def _module(self) -> frozenset[str]:
        names = set(_bound(self.tree))
        # `global x` binds x in the module, from wherever it stands.
        if b"global " in self.text:
            for node in ast.walk(self.tree):
                if isinstance(node, ast.Global):
                    names.update(node.names)
        return frozenset(names)

    def unbound(self, lines: frozenset[int]) -> dict[str, int]:
        """Every name that is read on `lines` and bound nowhere that this use could see, with its
        first line; nothing where a star import may bind it."""
        if self.has_star:
            return {}
        found: dict[str, int] = {}
        for name, line in _unbound(self.tree, self._bound, self._module, frozenset(), lines):
            found.setdefault(name, line)
        return found

    def _bound(self, scope: ast.AST) -> frozenset[str]:
        """What the body of a class or function binds; looked for once, however many hunks ask."""
        if id(scope) not in self._inside:
            self._inside[id(scope)] = frozenset(_bound(scope))
        return self._inside[id(scope)]

    def own_attributes(self, lines: frozenset[int]) -> dict[tuple[str, str], int]:
        """Every `self.name` that is read on `lines`: (class, name) and the first line."""
        found: dict[tuple[str, str], int] = {}
        lines = frozenset(line for line in lines if b"self." in self.lines[line - 1])
        if not lines:
            return found
        low, high = min(lines), max(lines)
        for scope, node in _classes(self.tree.body, MODULE):
            for inner in _between(node, low, high):
                if (
                    isinstance(inner, ast.Attribute)
                    and isinstance(inner.ctx, ast.Load)
                    and inner.lineno in lines
                    and isinstance(inner.value, ast.Name)
                    and inner.value.id == "self"
                ):
                    found.setdefault((scope, inner.attr), inner.lineno)
        return found

    @cached_property
    def attributes(self) -> dict[str, frozenset[str]]:
        """What every class defines itself: names of its body, and `self.name` that is assigned."""
        found = {}
        for scope, node in _classes(self.tree.body, MODULE):
            names = set(self._bound(node))
            for inner in _all(node):
                if (
                    isinstance(inner, ast.Attribute)
                    and isinstance(inner.ctx, ast.Store)
                    and isinstance(inner.value, ast.Name)
                    and inner.value.id == "self"
                ):
                    names.add(inner.attr)
            found[scope] = frozenset(names)
        return found


# -- definitions ----------------------------------------------------------------------------------


def _definitions(body: Sequence[ast.AST], scope: str, branches: _Branch) -> Iterator[Definition]:
    for node in body:
        if isinstance(node, _DEFINITIONS):
            if not _is_one_of_many(node):
                yield Definition(scope, node.name, node.lineno, True, branches)
            inner = node.name if scope == MODULE else f"{scope}.{node.name}"
            yield from _definitions(node.body, inner, ())
            continue
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Name):
                    yield Definition(scope, target.id, target.lineno, False, branches)
        for field in ("body", "orelse", "finalbody"):
            block = getattr(node, field, None)
            if isinstance(block, list):
                # What follows in `else` of a `try` runs after its body, and so does `finally`.
                word = "body" if isinstance(node, ast.Try) and field != "finalbody" else field
                word = "" if field == "finalbody" else word
                inside = (*branches, (id(node), word)) if word and _chooses(node) else branches
                yield from _definitions(block, scope, inside)
        for field in ("handlers", "cases"):
            for number, part in enumerate(getattr(node, field, ())):
                inside = (*branches, (id(node), f"{field}{number}"))
                yield from _definitions(part.body, scope, inside)


def _chooses(node: ast.AST) -> bool:
    return isinstance(node, (ast.If, ast.Try)) or type(node).__name__ == "TryStar"


def _is_one_of_many(node: _Function | ast.ClassDef) -> bool:
    """Whether its decorators say that functions of one name belong together."""
    for decorator in node.decorator_list:
        inner = decorator.func if isinstance(decorator, ast.Call) else decorator
        name = inner.attr if isinstance(inner, ast.Attribute) else getattr(inner, "id", "")
        if name in ("overload", "setter", "getter", "deleter", "register", "property"):
            return name != "property"
        if "register" in name:
            return True
    return node.name == "_"


def _classes(body: Sequence[ast.AST], scope: str) -> Iterator[tuple[str, ast.ClassDef]]:
    for node in body:
        if isinstance(node, _DEFINITIONS):
            name = node.name if scope == MODULE else f"{scope}.{node.name}"
            if isinstance(node, ast.ClassDef):
                yield name, node
            yield from _classes(node.body, name)
        else:
            for field in ("body", "orelse", "finalbody", "handlers"):
                yield from _classes(getattr(node, field, ()) or (), scope)


def _between(node: ast.AST, low: int, high: int) -> Iterator[ast.AST]:
    """Every node below `node` that reaches into lines `low` to `high`; decorators stand above the
    line of what they decorate."""
    waiting = [node]
    while waiting:
        inner = waiting.pop()
        line = getattr(inner, "lineno", None)
        if line is not None:
            first = min((d.lineno for d in getattr(inner, "decorator_list", ())), default=line)
            if first > high or (getattr(inner, "end_lineno", None) or line) < low:
                continue
        yield inner
        waiting += _children(inner)


def _all(node: ast.AST) -> Iterator[ast.AST]:
    """A node and everything below it."""
    waiting = [node]
    while waiting:
        inner = waiting.pop()
        yield inner
        waiting += _children(inner)


def _children(node: ast.AST) -> list[ast.AST]:
    """The nodes right below one, but for those that hold nothing, such as `Load` and `Pass`. As
    `ast.iter_child_nodes`, in a third of its time: most of a review is spent here."""
    found: list[ast.AST] = []
    for value in vars(node).values():
        if isinstance(value, list):
            found += [one for one in value if isinstance(one, ast.AST) and one._fields]
        elif isinstance(value, ast.AST) and value._fields:
            found.append(value)
    return found


# -- names ----------------------------------------------------------------------------------------


def _bound(scope: ast.AST) -> Iterator[str]:
    """The names that the body of a module, class or function binds, its parameters included."""
    if isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        yield from _parameters(scope.args)
    for parameter in getattr(scope, "type_params", ()):
        yield parameter.name
    body = scope.body if isinstance(scope.body, list) else [scope.body]  # type: ignore[attr-defined]
    waiting: list[ast.AST] = list(body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, _DEFINITIONS):
            yield node.name
            # Their decorators and defaults belong here, and may hold a `:=`.
            waiting += node.decorator_list
            continue
        if isinstance(node, ast.Lambda):
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del)):
            yield node.id
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                yield alias.asname or alias.name.partition(".")[0]
        elif isinstance(node, ast.ExceptHandler) and node.name:
            yield node.name
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            yield from node.names
        elif isinstance(node, (ast.MatchAs, ast.MatchStar)) and node.name:
            yield node.name
        elif isinstance(node, ast.MatchMapping) and node.rest:
            yield node.rest
        waiting += _children(node)


def _parameters(arguments: ast.arguments) -> Iterator[str]:
    for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        yield one.arg
    for extra in (arguments.vararg, arguments.kwarg):
        if extra:
            yield extra.arg


def _unbound(
    node: ast.AST,
    bound: Callable[[ast.AST], frozenset[str]],
    module: frozenset[str],
    around: frozenset[str],
    lines: frozenset[int],
) -> Iterator[tuple[str, int]]:
    """Names read on `lines` below `node`, where `around` is bound by the scopes around it; `bound`
    tells what one binds."""
    low, high = min(lines, default=0), max(lines, default=-1)
    waiting = _children(node)
    while waiting:
        inner = waiting.pop()
        line = getattr(inner, "lineno", None)
        if (
            line is not None
            and not isinstance(inner, _DEFINITIONS)
            and (line > high or (getattr(inner, "end_lineno", None) or line) < low)
        ):
            continue
        if isinstance(inner, ast.Name):
            name = inner.id
            if (
                inner.lineno in lines
                and isinstance(inner.ctx, ast.Load)
                and name not in around
                and name not in module
                and name not in _ALWAYS
            ):
                yield name, inner.lineno
        elif isinstance(inner, (*_DEFINITIONS, ast.Lambda)):
            last = inner.end_lineno or inner.lineno
            decorated = min(
                (d.lineno for d in getattr(inner, "decorator_list", ())), default=inner.lineno
            )
            if decorated <= high and last >= low:
                yield from _unbound(inner, bound, module, around | bound(inner), lines)
        else:
            waiting += _children(inner)
