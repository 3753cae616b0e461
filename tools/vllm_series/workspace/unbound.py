"""Names that a merged patch uses and that the new release binds nowhere.

A merge by lines puts a use in its place though upstream has taken the import or the helper away: it
compiles, and fails when it runs. `check` says so of hunks that fit; here it is said of the others.
"""

from __future__ import annotations

from collections.abc import Sequence

from vllm_series.checking.bindings import Source
from vllm_series.patch import Hunk


def unbound(
    path: str, here: tuple[bytes, Sequence[Hunk]], base: tuple[bytes, Sequence[Hunk]] | None
) -> tuple[str, ...]:
    """A sentence for each name that the added lines use and nothing binds, though on the base it
    did. Each side is the file with the patch and the patch's changes of it, without context."""
    now = _names(path, *here)
    then = _names(path, *base) if now and base is not None else {}
    return tuple(
        f"{path}:{line} uses {name}, which nothing binds there"
        for name, line in now.items()
        if name not in then
    )


def _names(path: str, text: bytes, runs: Sequence[Hunk]) -> dict[str, int]:
    source = Source.of(text, path)
    if source is None:
        return {}
    added = [
        range(first, first + run.new_count)
        for run in runs
        if (first := run.reversed().first_line) and run.new_count
    ]
    return source.unbound(frozenset(line for lines in added for line in lines))
