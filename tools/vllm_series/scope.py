"""Which function or class a line of Python belongs to, by the syntax tree.

Line numbers say where a hunk once stood; the scope says where it belongs, and survives everything
that is inserted above it. A scope is a class or a function, named by plain dots
(`Scheduler.update_draft_token_ids`, `outer.inner`); what stands in no scope is in `MODULE`. A
second definition of one name in the same scope (an overload, a property's setter, the other branch
of an `if`) is `name#2`, the next `name#3`, in the order of the source.

Lines are 1-based and end at b"\\n" alone, as git, patch and `io.BytesIO(text).readlines()` count
them. Python's own count differs: it also ends a line at a lone b"\\r"; the difference is folded
away here. What git prints after a hunk's second `@@` is rebuilt here too, so that a foreign patch
can be judged by it.
"""

from __future__ import annotations

import ast
import re
import unicodedata
import warnings
from bisect import bisect_left
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MODULE = "<module>"
"""The scope of what stands in no class and no function."""

_BLOCKS = ("body", "handlers", "cases", "orelse", "finalbody")
"""The fields of a statement that hold statements, in the order of the source."""

_INDENT = b" \t\x0c"
_UTF8_BOM = b"\xef\xbb\xbf"


def is_python(path: str) -> bool:
    """Whether `path` names a Python source or stub. Where this is true and `Scopes.of` is None, the
    text is unparsed; `parse_error` says why."""
    return path.endswith((".py", ".pyi"))


def parse_error(text: bytes) -> str | None:
    """Why the running interpreter cannot parse `text`, in one line; None where it can."""
    parsed = _parse(text)
    return parsed if isinstance(parsed, str) else None


def encloses(outer: str, inner: str) -> bool:
    """Whether scope `outer` is `inner` or one of the scopes around it; both are qualified names."""
    return outer in (MODULE, inner) or inner.startswith(outer + ".")


def common_scope(names: Iterable[str]) -> str:
    """The innermost scope that encloses all of `names`; `MODULE` for none."""
    parts: list[str] | None = None
    for name in names:
        own = [] if name == MODULE else name.split(".")
        if parts is None:
            parts = own
            continue
        same = 0
        for one, other in zip(parts, own, strict=False):
            if one != other:
                break
            same += 1
        del parts[same:]
    return ".".join(parts) if parts else MODULE


class _Scope(NamedTuple):
    name: str
    parent: int
    first: int
    last: int
    arguments: ast.arguments | None


class Scopes:
    """The scopes of one Python text; made by `Scopes.of`."""

    __slots__ = ("_by_name", "_lines", "_owner", "_scopes", "_solid")

    _scopes: list[_Scope]
    """In the order of the source; number 0 is the module."""
    _owner: list[int]
    """Line to the number of its innermost scope; index 0 is before the first line."""
    _lines: list[bytes]
    _solid: list[int] | None
    """The lines that hold code, made on first use."""

    def __init__(self, text: bytes, tree: ast.Module) -> None:
        python_lines = text.splitlines()
        scopes = _walk(tree, python_lines)
        owner = [0] * (len(python_lines) + 1)
        for number, scope in enumerate(scopes):
            if number:
                owner[scope.first : scope.last + 1] = [number] * (scope.last - scope.first + 1)
        lines = text.split(b"\n")
        if not lines[-1]:
            lines.pop()
        if len(lines) != len(python_lines):
            scopes, owner = _fold(text, scopes, owner)
        self._scopes = scopes
        self._owner = owner
        self._lines = lines
        self._solid = None
        self._by_name = {scope.name: number for number, scope in enumerate(scopes)}

    @classmethod
    def of(cls, text: bytes, path: str) -> Scopes | None:
        """The scopes of `text`, which is decoded as Python decodes a file (byte order mark, coding
        cookie, else UTF-8).

        None where `path` is not Python or the running interpreter cannot parse the text;
        `is_python(path)` tells the two apart.
        """
        if not is_python(path):
            return None
        parsed = _parse(text)
        return None if isinstance(parsed, str) else cls(text, parsed)

    def __len__(self) -> int:
        """The number of lines."""
        return len(self._lines)

    def names(self) -> tuple[str, ...]:
        """Every class and function, in the order of the source; `MODULE` is not among them."""
        return tuple(scope.name for scope in self._scopes[1:])

    def ranges(self, name: str) -> tuple[int, int] | None:
        """First and last line of a scope, both included: from its first decorator to the end of its
        last statement. None where there is no such scope; an empty module is (1, 0)."""
        number = self._by_name.get(name)
        return None if number is None else (self._scopes[number].first, self._scopes[number].last)

    def enclosing(self, name: str) -> str | None:
        """The scope in which `name` is defined; None for `MODULE` and for what is not defined."""
        number = self._by_name.get(name)
        return self._scopes[self._scopes[number].parent].name if number else None

    def signature(self, name: str) -> str | None:
        """The parameters of a function, without annotations and with every default written `...`:
        `(self, request, *, limit=..., **extra)`. None for a class and for what is not defined."""
        number = self._by_name.get(name)
        arguments = None if number is None else self._scopes[number].arguments
        return None if arguments is None else _signature(arguments)

    def innermost(self, line: int) -> str:
        """The innermost scope of an existing line.

        A decorator and a `def` line belong to the scope that they open. A scope ends with its last
        statement: blank lines and comments after it belong to the scope around it, however deep
        they are indented. Raises IndexError for a line that does not exist.
        """
        if not 1 <= line <= len(self._lines):
            raise IndexError(f"line {line} of {len(self._lines)}")
        return self._scopes[self._owner[line]].name

    def at_insertion(self, line: int) -> frozenset[str]:
        """Every scope that could be the innermost one of text inserted after `line` (0 to the
        number of lines): its indentation decides which.

        Those are the scopes of the last line of code up to there, since blank lines and comments
        end no block, and those of the line that follows, up to the innermost that they share. A
        scope that only begins on the line that follows is not among them.
        """
        if not 0 <= line <= len(self._lines):
            raise IndexError(f"insertion after line {line} of {len(self._lines)}")
        solid = self._solid_lines()
        at = bisect_left(solid, line + 1)
        left = self._chain(self._owner[solid[at - 1]] if at else 0)
        right = self._chain(self._owner[line + 1] if line < len(self._lines) else 0)
        shared = next(number for number in left if number in right)
        possible = left[: left.index(shared) + 1]
        possible += [
            number
            for number in right[: right.index(shared)]
            if self._scopes[number].first != line + 1
        ]
        return frozenset(self._scopes[number].name for number in possible)

    def _chain(self, number: int) -> list[int]:
        """The scope and all around it, innermost first; ends with the module."""
        chain = [number]
        while number:
            number = self._scopes[number].parent
            chain.append(number)
        return chain

    def _solid_lines(self) -> list[int]:
        if self._solid is None:
            self._solid = [
                number
                for number, line in enumerate(self._lines, 1)
                if (code := line.strip()) and not code.startswith(b"#")
            ]
        return self._solid

    def _is_blank(self, line: int) -> bool:
        return not self._lines[line - 1].strip()

    def _around(self, changed: set[int]) -> str:
        """The innermost scope around the changed lines; a scope of which no line but blank ones is
        left out counts as its parent, being itself what was added or removed."""
        around: set[int] = set()
        waiting = {self._owner[line] for line in changed}
        while waiting:
            number = waiting.pop()
            scope = self._scopes[number]
            if number and all(
                line in changed or self._is_blank(line)
                for line in range(scope.first, scope.last + 1)
            ):
                waiting.add(scope.parent)
            else:
                around.add(number)
        return common_scope(self._scopes[number].name for number in around)


def of_change(
    pre: Scopes,
    post: Scopes,
    removed: Iterable[int],
    added: Iterable[int],
    after: Iterable[int] = (),
) -> str:
    """The scope that a hunk changes, for its section heading: the innermost one around all lines
    `removed` from `pre` and `added` to `post`.

    A definition that is added or removed as a whole counts as the scope that holds it. Blank lines
    count only where nothing else is changed. The answer is always a scope of `pre`, since it is
    looked up there; `after`, the lines of `pre` after which text is added, makes sure that it is
    true there, also where definitions above change the names (`f` becomes `f#2`).
    """
    taken = {line for line in removed if not pre._is_blank(line)}
    given = {line for line in added if not post._is_blank(line)}
    if not taken and not given:
        taken, given = set(removed), set(added)
    around = [scopes._around(lines) for scopes, lines in ((pre, taken), (post, given)) if lines]
    scope = common_scope(around)
    places = [pre.at_insertion(line) for line in after]
    while scope != MODULE and (
        pre.ranges(scope) is None
        or any(not any(encloses(scope, inner) for inner in place) for place in places)
    ):
        scope = scope.rpartition(".")[0] or MODULE
    return scope


class HeadingDriver(Enum):
    """By which rule git finds a hunk's section heading."""

    DEFAULT = "default"
    """The nearest line above that begins with a letter, `_` or `$`."""
    PYTHON = "python"
    """The nearest `class`, `def` or `async def` above, for paths with the attribute
    `diff=python`."""


_FUNCTION_LINES = {
    HeadingDriver.DEFAULT: re.compile(rb"([A-Za-z_$].*)", re.DOTALL),
    HeadingDriver.PYTHON: re.compile(rb"[ \t]*((?:class|(?:async[ \t]+)?def)[ \t].*)", re.DOTALL),
}
_HEADING_BYTES = 80
"""git cuts there, also within a word or a character."""

_DEFINITION = re.compile(r"[ \t]*(?:class|(?:async[ \t]+)?def)[ \t]+(\w+)(?=[\s(:\[\\]|$)")


def git_function_line(
    lines: Sequence[bytes], before: int, driver: HeadingDriver = HeadingDriver.DEFAULT
) -> bytes | None:
    """What git prints as the section heading of a hunk (git's gitattributes page, "Defining a
    custom hunk-header"; xdiff's `def_ff` and `ff_regexp`); None where it prints none.

    `lines` is the pre-image. `before` is the first line that the hunk shows; for a hunk that shows
    none (`@@ -5,0 +6,2 @@`) it is the line after which it inserts, plus one.
    """
    pattern = _FUNCTION_LINES[driver]
    for number in range(min(before - 1, len(lines)), 0, -1):
        found = pattern.match(lines[number - 1])
        if found:
            return found[1][:_HEADING_BYTES].rstrip(b" \t\r\n")
    return None


def defined_name(heading: bytes) -> str | None:
    """The plain name that a `def`, `async def` or `class` line defines; None for any other line and
    where git's cut at 80 bytes may have shortened the name."""
    found = _DEFINITION.match(heading.decode("utf-8", "replace"))
    if not found or (found.end(1) == len(found.string) and len(heading) >= _HEADING_BYTES):
        return None
    name = unicodedata.normalize("NFKC", found[1])
    return name if name.isidentifier() else None


def _parse(text: bytes) -> ast.Module | str:
    """The syntax tree, or why there is none."""
    try:
        with warnings.catch_warnings():
            # An invalid escape in a stock file is not ours to report.
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except SyntaxError as error:
        where = f"line {error.lineno}: " if error.lineno else ""
        return f"{where}{error.msg}"
    except (ValueError, RecursionError, MemoryError) as error:
        return str(error) or "too deeply nested"


def _walk(tree: ast.Module, lines: Sequence[bytes]) -> list[_Scope]:
    """All scopes in the order of the source; lines are counted as Python does."""
    scopes = [_Scope(MODULE, 0, 1, len(lines), None)]
    seen: dict[tuple[int, str], int] = {}
    waiting: list[tuple[ast.AST, int]] = [(node, 0) for node in reversed(tree.body)]
    while waiting:
        node, parent = waiting.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            count = seen[parent, node.name] = seen.get((parent, node.name), 0) + 1
            name = node.name if count == 1 else f"{node.name}#{count}"
            if parent:
                name = f"{scopes[parent].name}.{name}"
            first = _decorated_from(node, lines)
            arguments = None if isinstance(node, ast.ClassDef) else node.args
            last = node.end_lineno or node.lineno
            scopes.append(_Scope(name, parent, first, last, arguments))
            parent = len(scopes) - 1
        inner = [(child, parent) for block in _BLOCKS for child in getattr(node, block, ())]
        inner.reverse()
        waiting += inner
    return scopes


def _decorated_from(
    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, lines: Sequence[bytes]
) -> int:
    """The line of the first `@`; the tree holds only where the decorator's expression begins, which
    brackets and backslashes may put some lines below."""
    if not node.decorator_list:
        return node.lineno
    first = node.decorator_list[0].lineno
    for line in range(first, 0, -1):
        code = lines[line - 1].removeprefix(_UTF8_BOM).lstrip(_INDENT)
        if code.startswith(b"@"):
            return line
    return first


def _fold(text: bytes, scopes: list[_Scope], owner: list[int]) -> tuple[list[_Scope], list[int]]:
    """Lines as Python counts them to lines that end at b"\\n" alone; where several become one, it
    belongs to the innermost scope that they share."""
    line_of = [0]
    line = 1
    for piece in text.splitlines(keepends=True):
        line_of.append(line)
        line += piece.endswith(b"\n")
    numbers = {scope.name: number for number, scope in enumerate(scopes)}
    folded = [0] * (line_of[-1] + 1)
    for python_line in range(1, len(owner)):
        line = line_of[python_line]
        number = owner[python_line]
        if line == line_of[python_line - 1]:
            number = numbers[common_scope([scopes[number].name, scopes[folded[line]].name])]
        folded[line] = number
    return [
        scope._replace(first=line_of[scope.first], last=line_of[scope.last]) for scope in scopes
    ], folded


def _signature(arguments: ast.arguments) -> str:
    positional = [*arguments.posonlyargs, *arguments.args]
    required = len(positional) - len(arguments.defaults)
    words = [
        parameter.arg if at < required else f"{parameter.arg}=..."
        for at, parameter in enumerate(positional)
    ]
    if arguments.posonlyargs:
        words.insert(len(arguments.posonlyargs), "/")
    if arguments.vararg:
        words.append(f"*{arguments.vararg.arg}")
    elif arguments.kwonlyargs:
        words.append("*")
    words += [
        parameter.arg if default is None else f"{parameter.arg}=..."
        for parameter, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    ]
    if arguments.kwarg:
        words.append(f"**{arguments.kwarg.arg}")
    return f"({', '.join(words)})"
