"""The texts that a script looks for, read from its source: which of them a release does not have.

An anchor script says of itself at best that something did not match. Its constants say more: what
is given to `replace`, `count`, `index`, `find`, `split` or `partition`, and what is asserted or
demanded to be `in` a text, is meant to stand in the file. Names, loops over tables, dictionaries
and arguments of the script's own functions are followed as far as they are constants; what cannot
be followed is no anchor. Nothing is run here.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from vllm_series.candidate import nearest, shown

_METHODS = frozenset(
    {"replace", "count", "index", "rindex", "find", "rfind", "split", "partition", "rpartition"}
)
_ENDS = frozenset({"exit", "_exit", "quit", "die", "fail", "abort", "error"})
"""Functions that end a script, by the names that people give them."""
_SHORTEST = 8
"""Shorter texts, such as a newline to split at, are no anchors."""
_DEPTH = 6


@dataclass(frozen=True, slots=True)
class Anchor:
    """A text that the script looks for: `name` is the variable that holds it, else empty; `line` is
    where the script uses it; `text` is its bytes."""

    name: str
    line: int
    text: bytes

    @property
    def label(self) -> str:
        """How a message calls it."""
        first = next((line for line in self.text.decode().split("\n") if line.strip()), "")
        return f"{self.name or repr(first.strip()[:60])} (line {self.line} of the script)"


@dataclass(frozen=True, slots=True)
class Missing:
    """An anchor that the files do not have, with the nearest text as a diff, and where that is."""

    anchor: Anchor
    path: str
    candidate: str


def anchors(source: bytes) -> list[Anchor]:
    """Every anchor that can be told, in the order of use; none where the script does not parse."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return []
    values = _Values(tree)
    found: dict[tuple[str, bytes], Anchor] = {}
    for node, line in _uses(tree):
        for name, text in values.of(node):
            if len(text.strip()) >= _SHORTEST:
                data = text.encode("utf-8", "surrogatepass")
                found.setdefault((name, data), Anchor(name, line, data))
    texts = dict[bytes, Anchor]()
    for anchor in found.values():
        if anchor.text not in texts or (anchor.name and not texts[anchor.text].name):
            texts[anchor.text] = anchor
    return sorted(texts.values(), key=lambda anchor: anchor.line)


def missing(found: Sequence[Anchor], files: Mapping[str, bytes]) -> list[Missing]:
    """Those anchors that none of these files holds."""
    out = []
    for anchor in found:
        if any(anchor.text in text for text in files.values()):
            continue
        wanted = anchor.text.splitlines(keepends=True)
        best = Missing(anchor, "", "")
        score = 0.0
        for path, text in files.items():
            close, candidate = _candidate(wanted, text)
            if close > score:
                best, score = Missing(anchor, path, candidate), close
        out.append(best)
    return out


def _candidate(wanted: Sequence[bytes], text: bytes) -> tuple[float, str]:
    """The nearest place in a file as a diff, and how near it is.

    An anchor may start and end within a line, so its lines are looked for inside of those of the
    file.
    """
    lines = text.splitlines(keepends=True)
    known = [
        next((line for line in lines if len(bare) >= _SHORTEST and bare in line), b"")
        for bare in (line.strip() for line in wanted)
    ]
    if not any(known):
        at = max(range(len(wanted)), key=lambda number: len(wanted[number].strip()))
        words = {line.strip().decode("utf-8", "replace"): line for line in lines}
        close = difflib.get_close_matches(
            wanted[at].strip().decode("utf-8", "replace"), words, n=1, cutoff=0.6
        )
        if not close:
            return 0.0, ""
        known[at] = words[close[0]]
    start = nearest(known, lines, 0)
    there = lines[start : start + len(wanted)]
    score = difflib.SequenceMatcher(None, b"".join(wanted), b"".join(there), autojunk=False)
    return score.ratio(), shown(wanted, there, start, "the script expects")


def named_files(source: bytes, known: Sequence[str]) -> list[str]:
    """The files of a release that a script names by a path that is at least two folders long."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return []
    words = {
        node.value.strip("/")
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and "/" in node.value
        and node.value.endswith(".py")
    }
    return [path for path in known if any(f"/{path}".endswith(f"/{word}") for word in words)]


def _uses(tree: ast.Module) -> Iterator[tuple[ast.expr, int]]:
    """Expressions whose value is looked for in a text."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and node.func.attr in _METHODS and node.args:
                yield node.args[0], node.lineno
        elif isinstance(node, ast.Assert):
            yield from _contained(node.test, demanded=True)
        elif isinstance(node, ast.If) and _gives_up(node.body):
            yield from _contained(node.test, demanded=False)


def _gives_up(body: Sequence[ast.stmt]) -> bool:
    """Whether a branch ends what goes on, rather than writing what is not there yet."""
    if isinstance(body[-1], (ast.Return, ast.Continue, ast.Break, ast.Raise)):
        return True
    last = body[-1]
    if not (isinstance(last, ast.Expr) and isinstance(last.value, ast.Call)):
        return False
    named = last.value.func
    name = named.attr if isinstance(named, ast.Attribute) else getattr(named, "id", "")
    return name in _ENDS


def _contained(test: ast.expr, *, demanded: bool) -> Iterator[tuple[ast.expr, int]]:
    """`x in text` where that is demanded, and `x not in text` where it is objected to; the other
    two ask for what the script itself has written."""
    wanted = ast.In if demanded else ast.NotIn
    for node in ast.walk(test):
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], wanted):
            yield node.left, node.lineno


class _Values:
    """What an expression of a module may be, as far as that is a constant text."""

    def __init__(self, tree: ast.Module) -> None:
        self._bound: dict[str, list[tuple[ast.expr, tuple[object, ...]]]] = {}
        functions = {
            node.name: node
            for node in ast.walk(tree)
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    self._bind(target, node.value, ())
            elif isinstance(node, ast.AnnAssign) and node.value is not None:
                self._bind(node.target, node.value, ())
            elif isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
                self._bind(node.target, node.iter, ("each",))
            elif (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in functions
            ):
                self._call(functions[node.func.id], node)

    def _call(self, function: ast.FunctionDef | ast.AsyncFunctionDef, call: ast.Call) -> None:
        names = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
        for name, value in zip(names, call.args, strict=False):
            if isinstance(value, ast.Starred):
                return
            self._bound.setdefault(name, []).append((value, ()))
        for keyword in call.keywords:
            if keyword.arg is not None:
                self._bound.setdefault(keyword.arg, []).append((keyword.value, ()))

    def _bind(self, target: ast.expr, value: ast.expr, path: tuple[object, ...]) -> None:
        if isinstance(target, ast.Name):
            self._bound.setdefault(target.id, []).append((value, path))
        elif isinstance(target, (ast.Tuple, ast.List)):
            for index, each in enumerate(target.elts):
                self._bind(each, value, (*path, index))

    def of(self, node: ast.expr) -> list[tuple[str, str]]:
        """The texts, each with the name of the constant that holds it or an empty one."""
        return list(dict.fromkeys(self._of(node, (), _DEPTH)))

    def _of(
        self, node: ast.expr, path: tuple[object, ...], depth: int, name: str = ""
    ) -> Iterator[tuple[str, str]]:
        if not depth:
            return
        if not path and isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield name, node.value
        elif isinstance(node, ast.Name):
            for value, way in self._bound.get(node.id, ()):
                if value is not node:
                    # The last name on the way is the constant's own.
                    yield from self._of(value, (*way, *path), depth - 1, node.id)
        elif path and isinstance(node, (ast.Tuple, ast.List, ast.Set)):
            step, rest = path[0], path[1:]
            if step == "each":
                for element in node.elts:
                    yield from self._of(element, rest, depth, name)
            elif isinstance(step, int) and step < len(node.elts):
                yield from self._of(node.elts[step], rest, depth, name)
        elif path and isinstance(node, ast.Dict):
            yield from self._in_dict(node, path, depth, name)
        elif path and isinstance(node, ast.Call):
            yield from self._in_call(node, path, depth, name)
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            yield from self._of(node.value, (node.slice.value, *path), depth, name)
        elif isinstance(node, ast.Attribute):
            yield from self._of(node.value, (node.attr, *path), depth, name)
        elif not path and isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            left = list(self._of(node.left, (), depth - 1, name))
            right = list(self._of(node.right, (), depth - 1, name))
            if len(left) == len(right) == 1:
                yield name, left[0][1] + right[0][1]

    def _in_dict(
        self, node: ast.Dict, path: tuple[object, ...], depth: int, name: str
    ) -> Iterator[tuple[str, str]]:
        step, rest = path[0], path[1:]
        for key, value in zip(node.keys, node.values, strict=True):
            if step == "each" and key is not None:
                yield from self._of(key, rest, depth, name)
            elif isinstance(key, ast.Constant) and key.value == step:
                yield from self._of(value, rest, depth, name)

    def _in_call(
        self, node: ast.Call, path: tuple[object, ...], depth: int, name: str
    ) -> Iterator[tuple[str, str]]:
        """`table.items()` and `enumerate(table)`; a record made with names, `Edit(old=…)`."""
        if path[0] == "each" and isinstance(node.func, ast.Attribute):
            if node.func.attr == "items" and len(path) > 1 and path[1] in (0, 1):
                for value, way in self._tables(node.func.value):
                    if isinstance(value, ast.Dict) and not way:
                        side = value.keys if path[1] == 0 else value.values
                        for each in side:
                            if each is not None:
                                yield from self._of(each, path[2:], depth - 1, name)
        elif path[0] == "each" and isinstance(node.func, ast.Name) and node.args:
            if node.func.id == "enumerate" and len(path) > 1 and path[1] == 1:
                yield from self._of(node.args[0], ("each", *path[2:]), depth - 1, name)
        else:
            for keyword in node.keywords:
                if keyword.arg == path[0]:
                    yield from self._of(keyword.value, path[1:], depth - 1, name)

    def _tables(self, node: ast.expr) -> list[tuple[ast.expr, tuple[object, ...]]]:
        if isinstance(node, ast.Name):
            return self._bound.get(node.id, [])
        return [(node, ())]
