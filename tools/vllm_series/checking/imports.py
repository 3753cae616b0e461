"""What the added lines of a patch import from the package, and whether it is still there.

An import binds a name whatever it finds, so a review of one file does not see that upstream has
moved or renamed what is imported. Read from the text, line by line, since the files to look at must
be known before any is fetched; imports for type checkers alone are passed over.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from vllm_series.fileplan import Read
from vllm_series.patch import Hunk

_FROM = re.compile(rb"^(\s*)from\s+(\.*[\w.]*)\s+import\s+\(?\s*([\w., \t]*)")
_WHOLE = re.compile(rb"^\s*import\s+(vllm(?:\.\w+)+)\s*(?:#.*)?$")
_LETTERS = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
_TYPES = re.compile(rb"^\s*(?:el)?if\s+(?:typing\.)?TYPE_CHECKING\s*:")


@dataclass(frozen=True, slots=True)
class Import:
    """One name that is imported from a module of the package, a path without its ending; `name` is
    empty where it is the module itself."""

    module: str
    name: str

    @property
    def dotted(self) -> str:
        """The module as Python names it."""
        return self.module.replace("/", ".")

    def paths(self) -> tuple[str, ...]:
        """Every file that may define it."""
        return (*_homes(self.module), *(_homes(f"{self.module}/{self.name}") if self.name else ()))


def _homes(module: str) -> tuple[str, ...]:
    """The files that may be a module; the package itself is a folder and nothing else."""
    package = f"{module}/__init__.py"
    return (f"{module}.py", package) if "/" in module else (package,)


def imports(hunk: Hunk, path: str) -> Iterator[Import]:
    """What the added lines of a hunk of the file at `path` import from the package."""
    text = b"".join(hunk.lines)
    if b"import" not in text:
        return
    for_types = b"TYPE_CHECKING" in text
    types = -1
    for op, line in zip(hunk.ops, hunk.lines, strict=True):
        if for_types:
            deep = len(line) - len(line.lstrip())
            if line.strip() and deep <= types:
                types = -1
            if _TYPES.match(line):
                types = deep
        if op != ord("+") or types >= 0 or b"import" not in line:
            continue
        if found := _WHOLE.match(line):
            yield Import(found[1].decode().replace(".", "/"), "")
        elif found := _FROM.match(line):
            module = _module(found[2].decode(), path)
            if module is not None and module.split("/")[0] == "vllm":
                for part in found[3].decode().split(","):
                    words = part.split()
                    if words and words[0].isidentifier():
                        yield Import(module, words[0])


def _has_word(text: bytes, word: bytes) -> bool:
    """Whether `word` stands in the text and is no part of a longer one; there are too many words
    for a regular expression each."""
    at = text.find(word)
    while at >= 0:
        end = at + len(word)
        if not (at and text[at - 1] in _LETTERS) and not (
            end < len(text) and text[end] in _LETTERS
        ):
            return True
        at = text.find(word, at + 1)
    return False


def _module(dotted: str, path: str) -> str | None:
    """The module that `from` names in the file at `path`, as a path."""
    name = dotted.lstrip(".")
    level = len(dotted) - len(name)
    if not level:
        return name.replace(".", "/")
    folders = path.split("/")[:-level]
    return "/".join([*folders, *name.split(".")] if name else folders) if folders else None


def is_there(wanted: Import, read: Read) -> bool:
    """Whether the module exists and its text has the name at all; a module that finds its names
    when it is asked, or takes all of another, may have any."""
    homes = _homes(wanted.module)
    text = next((text for path in homes if (text := read(path)) is not None), None)
    if text is None:
        return False
    if not wanted.name or b"import *" in text or b"def __getattr__" in text:
        return True
    if _has_word(text, wanted.name.encode()):
        return True
    return any(read(path) is not None for path in wanted.paths()[len(homes) :])
