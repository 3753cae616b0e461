"""Run the functions of a patched file on small fakes, with nothing of vLLM imported.

Importing one vLLM module imports torch and half of vLLM: minutes of installation for a test of ten
lines. What a patch changes is mostly plain Python, so this module takes single definitions out of
a file by its syntax tree and compiles them alone. What is run is the file's own text: code objects
carry its true path and line numbers, so that tracebacks, coverage and breakpoints point into it.

Definitions are named as everywhere in this project (`Scheduler.schedule`, `outer.inner`; a second
definition of one name in the same scope is `name#2`). Paths are posix and relative to `root`, the
folder that contains `vllm/`. Annotations are never evaluated. A name that the file would have
imported is what `names` says; one that it does not say goes to `missing`, and without that using it
raises `LiftError`, not before it is used: a function runs as far as the names given carry it.

    observe = lift(root, "vllm/v1/core/sched/scheduler.py", "Scheduler.update_from_output",
                   names={"defaultdict": defaultdict})
    observe(fake_scheduler, fake_scheduler_output, fake_model_output)
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import difflib
import os
import sys
import warnings
from pathlib import Path, PurePosixPath
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias, cast
from unittest import mock

from vllm_series.errors import VllmSeriesError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    _Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
    _Definition: TypeAlias = _Function | ast.ClassDef

__all__ = ["LiftError", "lift", "lift_class", "load_module"]

_BINDING_DECORATORS = frozenset({"property", "classmethod", "staticmethod"})
_ACCESSORS = frozenset({"getter", "setter", "deleter"})


class LiftError(VllmSeriesError):
    """A definition that is not there, cannot be compiled alone, or uses a name nobody gave it."""


def lift(
    root: str | os.PathLike[str],
    path: str,
    name: str,
    *,
    names: Mapping[str, object] | None = None,
    missing: Callable[[str], object] | None = None,
    decorators: bool = False,
) -> Callable[..., Any]:
    """One function or method of a file, as a plain function (a method takes its `self` first).

    Decorators are dropped unless `decorators`. Default values and kept decorators are evaluated
    here, against `names` and `missing`. The variables of an enclosing function count as names that
    the file would have imported. `missing` is called once for each such name that is used and not
    given, and its answer is kept. What is bound can be changed later, in the function's
    `__globals__`.

    Raises LiftError where the file or the definition is not there, and for a method that calls
    `super()`, which has no meaning outside its class: lift the class.
    """
    source = _Source(root, path)
    owner, node = source.find(name)
    if isinstance(node, ast.ClassDef):
        raise source.error(f"{name} is a class. Use lift_class")
    if _needs_class(node):
        raise source.error(
            f"{name} uses super() or __class__, which mean nothing outside its class. "
            "Use lift_class with methods"
        )
    names_of_file = _Names(source, name, names, missing)
    alone: ast.stmt = _without_decorators(node, keep=lambda _: decorators)
    found: Any
    if owner is None:
        found = source.run(alone, names_of_file)[node.name]
    else:
        # Inside its class, for the sake of private names: `self.__x` is `self._Class__x`.
        shell = source.run(_class_like(owner, [alone]), names_of_file)[owner.name]
        found = vars(shell)[_mangled(owner.name, node.name)]
    if not decorators:
        found = getattr(found, "__func__", found)  # __new__ and its like are wrapped unasked
        found.__qualname__ = name
    if owner is None:
        names_of_file.setdefault(node.name, found)
    return cast("Callable[..., Any]", found)


def lift_class(
    root: str | os.PathLike[str],
    path: str,
    name: str,
    *,
    methods: Sequence[str] | None = None,
    bases: tuple[type, ...] | None = None,
    names: Mapping[str, object] | None = None,
    missing: Callable[[str], object] | None = None,
    decorators: bool = False,
) -> type[Any]:
    """A class of a file, with the chosen methods on the given bases; `super()` works in it.

    `methods` are names in the class (`value`, `value#2` for its setter), None for the whole body.
    `bases` are what it derives from, None for what the file says, evaluated against `names`. What
    makes a method a property, class method or static method stays; other decorators, those of the
    class among them, are dropped unless `decorators`.

    Raises LiftError where the file, the class or a method is not there.
    """
    source = _Source(root, path)
    _, node = source.find(name)
    if not isinstance(node, ast.ClassDef):
        raise source.error(f"{name} is a function. Use lift")
    body = node.body
    if methods is not None:
        chosen = [source.function(name, method) for method in methods]
        body = sorted(chosen, key=lambda method: method.lineno)

    def stays(decorator: ast.expr) -> bool:
        return decorators or _binds(decorator)

    alone = _class_like(
        node,
        [
            _without_decorators(statement, keep=stays)
            if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef))
            else statement
            for statement in body
        ],
    )
    local_names: dict[str, Any] = {}
    if bases is None:
        alone.bases, alone.keywords = node.bases, node.keywords
    else:
        local_names["bases"] = bases
        alone.bases = [ast.Starred(ast.Name("bases", ast.Load()), ast.Load())]
    if decorators:
        alone.decorator_list = node.decorator_list
    names_of_file = _Names(source, name, names, missing)
    # A dataclass looks up the module that it is made in.
    with _listed(ModuleType(source.module)):
        found = source.run(alone, names_of_file, local_names)[node.name]
    found.__qualname__ = name
    names_of_file.setdefault(node.name, found)
    return cast("type[Any]", found)


def load_module(
    root: str | os.PathLike[str], path: str, *, environ: Mapping[str, str] | None = None
) -> ModuleType:
    """Run a whole file that imports nothing heavy, as a new module object each time.

    `environ` is all that the module finds in `os.environ` while it runs; None leaves the
    environment as it is. What the module imports is imported for real. The module keeps its true
    name (`vllm.v1.core.sched.dynamic_width`), and `sys.modules` is as before when it returns.

    Raises LiftError where the file is not there, cannot be compiled or imports what is not
    installed. Whatever else the module raises comes through.
    """
    source = _Source(root, path)
    module = ModuleType(source.module)
    module.__file__ = str(source.file)
    module.__package__ = source.module.rpartition(".")[0]
    code = source.compile(source.tree)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_listed(module))
        if environ is not None:
            stack.enter_context(mock.patch.dict(os.environ, environ, clear=True))
        try:
            exec(code, module.__dict__)  # noqa: S102
        except ImportError as error:
            raise source.error(
                f"it imports what is not there ({error}). Lift single definitions from it"
            ) from error
    return module


class _Source:
    """One file: its text, its syntax tree, and errors that name it."""

    def __init__(self, root: str | os.PathLike[str], path: str) -> None:
        pure = PurePosixPath(path)
        if pure.is_absolute() or ".." in pure.parts:
            raise LiftError(f"{path}: not below the tree. Give a path relative to its root.")
        self.path = path
        self.file = Path(root) / pure
        parts = pure.with_suffix("").parts
        self.module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        try:
            text = self.file.read_bytes()
        except OSError as error:
            raise LiftError(
                f"{self.file}: cannot be read ({error.strerror}). Is {root} the folder that "
                "contains vllm/?"
            ) from error
        try:
            with warnings.catch_warnings():
                # An invalid escape in a stock file is not the test's concern.
                warnings.simplefilter("ignore")
                self.tree = ast.parse(text, str(self.file))
        except (SyntaxError, ValueError) as error:
            raise self.error(f"it does not parse ({error})") from error

    def error(self, reason: str) -> LiftError:
        return LiftError(f"{self.path}: {reason}.")

    def find(self, name: str) -> tuple[ast.ClassDef | None, _Definition]:
        """The innermost class around a definition, None where there is none, and the definition."""
        scope: ast.AST = self.tree
        owner = None
        for part in name.split("."):
            if isinstance(scope, ast.ClassDef):
                owner = scope
            scope = self._defined_in(scope, part, name)
        return owner, cast("_Definition", scope)

    def function(self, scope: str, method: str) -> _Function:
        _, node = self.find(f"{scope}.{method}")
        if isinstance(node, ast.ClassDef):
            raise self.error(f"{scope}.{method} is a class, not a method")
        return node

    def _defined_in(self, scope: ast.AST, part: str, whole: str) -> _Definition:
        plain, _, count = part.partition("#")
        same = [node for node in _definitions(scope) if node.name == plain]
        number = int(count) if count.isdecimal() else 1
        if 1 <= number <= len(same):
            return same[number - 1]
        near = difflib.get_close_matches(whole, self._names(self.tree, ""), n=3)
        hint = f" Near it: {', '.join(near)}." if near else ""
        raise LiftError(f"{self.path}: there is no {whole}.{hint}")

    def _names(self, scope: ast.AST, prefix: str) -> list[str]:
        names = []
        for node in _definitions(scope):
            names += [prefix + node.name, *self._names(node, f"{prefix}{node.name}.")]
        return names

    def compile(self, tree: ast.Module, *, flags: int = 0) -> CodeType:
        try:
            code = compile(tree, str(self.file), "exec", flags=flags, dont_inherit=True)
        except (SyntaxError, ValueError) as error:
            raise self.error(f"it does not compile alone ({error})") from error
        return cast("CodeType", code)

    def run(
        self, statement: ast.stmt, names: _Names, local_names: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Execute one definition; what it binds comes back and leaves `names` alone."""
        tree = ast.Module(body=[ast.fix_missing_locations(statement)], type_ignores=[])
        code = self.compile(tree, flags=annotations.compiler_flag)
        bound = dict(local_names or {})
        while True:
            try:
                exec(code, names, bound)  # noqa: S102
            except NameError as error:
                # A default, a base or a decorator: a class body does not ask `__missing__`.
                if not error.name or error.name in names:
                    raise
                names.resolve(error.name)
            else:
                return bound


class _Names(dict[str, Any]):
    """The globals of lifted code.

    CPython asks a dict subclass for its `__missing__` before it turns to the builtins, which
    therefore come first here.
    """

    def __init__(
        self,
        source: _Source,
        name: str,
        names: Mapping[str, object] | None,
        missing: Callable[[str], object] | None,
    ) -> None:
        super().__init__(names or {})
        self["__builtins__"] = builtins
        self["__name__"] = source.module
        self["__file__"] = str(source.file)
        self._source = source
        self._name = name
        self._missing = missing

    def __missing__(self, key: str) -> Any:
        if hasattr(builtins, key):
            raise KeyError(key)
        return self.resolve(key)

    def resolve(self, key: str) -> Any:
        """Bind a name that was not given; raises LiftError where nobody answers for it."""
        if self._missing is None:
            raise self._source.error(
                f"{self._name} uses {key}, which was not given. Pass it in names"
            )
        value = self[key] = self._missing(key)
        return value


def _definitions(scope: ast.AST) -> Iterator[_Definition]:
    """What a scope defines, in the order of the source, also within `if`, `try` and the like."""
    for child in ast.iter_child_nodes(scope):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield child
        elif isinstance(child, (ast.stmt, ast.excepthandler, ast.match_case)):
            yield from _definitions(child)


def _class_like(node: ast.ClassDef, body: list[ast.stmt]) -> ast.ClassDef:
    alone = ast.ClassDef(
        name=node.name,
        bases=[],
        keywords=[],
        body=body or [ast.copy_location(ast.Pass(), node)],
        decorator_list=[],
    )
    if sys.version_info >= (3, 12):
        alone.type_params = node.type_params
    return ast.copy_location(alone, node)


def _without_decorators(node: _Function, keep: Callable[[ast.expr], bool]) -> _Function:
    fields = {field: getattr(node, field) for field in node._fields}
    fields["decorator_list"] = [each for each in node.decorator_list if keep(each)]
    return ast.copy_location(type(node)(**fields), node)


def _mangled(owner: str, name: str) -> str:
    """The key under which a class keeps a name (Python's reference, "Private name mangling")."""
    if name.startswith("__") and not name.endswith("__") and owner.strip("_"):
        return f"_{owner.lstrip('_')}{name}"
    return name


def _binds(decorator: ast.expr) -> bool:
    if isinstance(decorator, ast.Attribute):
        return decorator.attr in _ACCESSORS
    return isinstance(decorator, ast.Name) and decorator.id in _BINDING_DECORATORS


def _needs_class(node: ast.AST) -> bool:
    """Whether a method asks for the class that it stands in; one defined inside it does not."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            continue
        if isinstance(child, ast.Name) and child.id == "__class__":
            return True
        if (
            isinstance(child, ast.Call)
            and isinstance(child.func, ast.Name)
            and child.func.id == "super"
            and not child.args
        ):
            return True
        if _needs_class(child):
            return True
    return False


@contextlib.contextmanager
def _listed(module: ModuleType) -> Iterator[None]:
    """The module is importable by its name within the block, and what was there comes back."""
    before = sys.modules.get(module.__name__)
    sys.modules[module.__name__] = module
    try:
        yield
    finally:
        if before is None:
            sys.modules.pop(module.__name__, None)
        else:
            sys.modules[module.__name__] = before
