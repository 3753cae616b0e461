"""What the section heading of a hunk of ours says: the scope, and which copy of its text there.

The heading is the free text after the second `@@`, which git, quilt and patch ignore
(diffutils manual, "Detailed Description of Unified Format"). Ours is the qualified name of the
scope that the hunk changes. Where the hunk's context and removed lines stand there more than once
in the base, it also says how often and which of them is meant: `Scheduler.schedule (2 of 3)`. A
patch alone can so be told from its twins, and a file in which their number has changed is refused.
`(1 of 1)` says that the text stands once there, and elsewhere in the base too. No count says that
it stands once in the whole file: it can then be followed where the scope has another name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from vllm_series.patch import Hunk

_COPY = re.compile(r"(?P<scope>.*) \((?P<number>[1-9]\d*) of (?P<count>[1-9]\d*)\)")


@dataclass(frozen=True, slots=True)
class Heading:
    """`number` counts from 1 to `count`, the copies of the hunk's text in `scope`, from the top.
    `alone`: it stands nowhere else in the file, neither in the scope nor outside."""

    scope: str
    number: int = 1
    count: int = 1
    alone: bool = True

    def __str__(self) -> str:
        return self.scope if self.alone else f"{self.scope} ({self.number} of {self.count})"


def read_heading(heading: bytes) -> Heading | None:
    """What a heading of ours says; None for an empty one. A count that makes no sense (`3 of 2`) is
    left in the scope's name, which then is found nowhere."""
    text = heading.decode("utf-8", "replace")
    if not text:
        return None
    found = _COPY.fullmatch(text)
    if found and int(found["number"]) <= int(found["count"]):
        return Heading(found["scope"], int(found["number"]), int(found["count"]), alone=False)
    return Heading(text)


def is_other_name(bound: str, scope: str) -> bool:
    """Whether `scope` can be what `bound`, which is in the file no more, is called now: a scope of
    which either the last name or all that is in front of it is as it was."""
    from vllm_series.scope import MODULE

    old, new = bound.rpartition("."), scope.rpartition(".")
    return scope != MODULE and (old[0] == new[0] or old[2] == new[2])


def heading_of(hunk: Hunk, base: bytes, edited: bytes, path: str) -> bytes:
    """The heading of a hunk at its recorded lines, by the file at `path` before (`base`) and after
    all hunks (`edited`). Empty where the file is not Python or either text does not parse."""
    return headings_of((hunk,), base, edited, path)[0]


def headings_of(hunks: Sequence[Hunk], base: bytes, edited: bytes, path: str) -> list[bytes]:
    """The headings of all hunks of a file, as `heading_of`; each text is parsed once."""
    import io

    from vllm_series.scope import Scopes
    from vllm_series.search import Search, change_scope

    search = Search(io.BytesIO(base).readlines(), base, path, binding=True)
    after = Scopes.of(edited, path)
    if search.scopes is None or after is None:
        return [b""] * len(hunks)
    found = []
    for hunk in hunks:
        line = hunk.first_line
        scope = change_scope(hunk, search.scopes, after, line, hunk.reversed().first_line)
        found.append(str(search.heading(hunk, scope, line)).encode())
    return found
