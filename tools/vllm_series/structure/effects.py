"""What a few statements do to one another: the names they read and bind, and where they leave.

A change that is put beside statements which its author never saw is safe only as long as neither
side reads or binds what the other does. Attributes count by their name alone, `.x` for `self.x`
and for `other.x`: too careful rather than too bold.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_JUMPS = (ast.Return, ast.Raise, ast.Break, ast.Continue, ast.Yield, ast.YieldFrom, ast.Assert)
_ACTS = (
    *(ast.Call, ast.Await, ast.Yield, ast.YieldFrom, ast.Delete, ast.With, ast.AsyncWith),
    *(ast.For, ast.AsyncFor, ast.While, ast.NamedExpr, ast.AugAssign),
)


@dataclass(frozen=True, slots=True)
class Effects:
    """`reads` and `binds` count names and `.attributes`; `jumps` what may leave a block. `acts`:
    whether more happens than that local names are bound."""

    reads: Counter[str]
    binds: Counter[str]
    jumps: Counter[str]
    acts: bool

    @classmethod
    def of(cls, nodes: Iterable[ast.AST], lines: Container[int] | None = None) -> Effects:
        """The effects of all nodes together, with all that is in them; with `lines` only of what
        begins on one of those."""
        reads: Counter[str] = Counter()
        binds: Counter[str] = Counter()
        jumps: Counter[str] = Counter()
        acts = False
        for root in nodes:
            for node, hidden in _walk(root):
                if lines is not None and getattr(node, "lineno", -1) not in lines:
                    continue
                for name in _bound(node):
                    binds[name] += name not in (hidden or ())
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                    reads[node.id] += node.id not in (hidden or ())
                elif isinstance(node, ast.Attribute):
                    if isinstance(node.ctx, ast.Load):
                        reads[f".{node.attr}"] += 1
                    else:
                        acts |= hidden is None
                if hidden is not None:
                    continue
                if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
                    acts = True
                if isinstance(node, _JUMPS):
                    jumps[type(node).__name__] += 1
                acts |= isinstance(node, _ACTS)
        return cls(+reads, +binds, jumps, acts)


def binding_lines(nodes: Iterable[ast.AST]) -> dict[str, int]:
    """For every name that the nodes bind the first line that does it."""
    found: dict[str, int] = {}
    for root in nodes:
        for node, hidden in _walk(root):
            line = getattr(node, "lineno", 0)
            for name in _bound(node):
                if name not in (hidden or ()):
                    found[name] = min(line, found.get(name, line))
    return found


def within(scope: ast.AST) -> list[ast.AST]:
    """What is in a module, class or function, for its effects from the inside."""
    return list(ast.iter_child_nodes(scope))


def _walk(root: ast.AST) -> Iterator[tuple[ast.AST, frozenset[str] | None]]:
    """A node and all below it; for what is inside a function or class that is only defined there
    its own names, which nothing outside it sees, else None."""
    waiting: list[tuple[ast.AST, frozenset[str] | None]] = [(root, None)]
    while waiting:
        node, hidden = waiting.pop()
        yield node, hidden
        if isinstance(node, _DEFINITIONS):
            own = (
                name for inner in within(node) for one in ast.walk(inner) for name in _bound(one)
            )
            hidden = (hidden or frozenset()) | {name for name in own if not name.startswith(".")}
        waiting += [(child, hidden) for child in ast.iter_child_nodes(node)]


def _bound(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            yield name
        case ast.Attribute(attr=name, ctx=ast.Store() | ast.Del()):
            yield f".{name}"
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
            yield f".{name}"
        case ast.alias(name=name, asname=other):
            # An alias alone is what a grouped import gains; inside its import it counts twice.
            yield other or name.partition(".")[0]
        case ast.arg(arg=name):
            yield name
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
            yield name
        case ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
            yield name
        case ast.Global(names=names) | ast.Nonlocal(names=names):
            yield from names
        case _:
            pass
