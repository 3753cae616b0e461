"""Whether what a patch relies on still has the form that it relies on.

A `Contract:` trailer names a function and its parameters, `module:Class.name(self, x, *, y=...)`,
that the patch calls, overrides or is called through. The text of a hunk may fit where such a
function has changed far away from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from vllm_series.fileplan import Read
from vllm_series.patch import Patch
from vllm_series.scope import Scopes, parse_error

CONTRACT = re.compile(r"^(?P<module>[\w.]+):(?P<name>[\w.#]+)(?P<signature>\(.*\))$")
"""The form of the trailer's value."""


@dataclass(frozen=True, slots=True)
class Broken:
    """A contract that does not hold: what it says, and what the tree has instead.

    `unread` says that the running interpreter cannot parse the file, so that nothing is known.
    """

    value: str
    found: str
    unread: bool = False


def contract_paths(patch: Patch) -> Iterator[str]:
    """The files in which the contracts of a patch are looked up."""
    for value in patch.trailer("Contract"):
        if found := CONTRACT.match(value):
            yield _path(found["module"])


def broken(patch: Patch, read: Read) -> Iterator[Broken]:
    """Every contract of `patch` that the files of `read` break; a value of another form is passed
    over, since `lint` says that."""
    for value in patch.trailer("Contract"):
        match = CONTRACT.match(value)
        if not match:
            continue
        path = _path(match["module"])
        text = read(path)
        if text is None:
            yield Broken(value, f"there is no {path}")
            continue
        scopes = Scopes.of(text, path)
        if scopes is None:
            yield Broken(value, f"{path} does not parse: {parse_error(text)}", unread=True)
            continue
        signature = scopes.signature(match["name"])
        if signature is None:
            yield Broken(value, f"there is no {match['name']} in {path}")
        elif signature != match["signature"]:
            yield Broken(value, f"{match['name']} is {signature}, not {match['signature']}")


def _path(module: str) -> str:
    return module.replace(".", "/") + ".py"
