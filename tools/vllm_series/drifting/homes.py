"""In which other file a scope may be found, when the one it was in does not have it any more.

Only so many files are read, since each is a member of a wheel: those that the release has and the
other one has not in that form, the likeliest names first (`renames.likely`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vllm_series.checking.renames import likely
from vllm_series.drifting.following import Place, Text, likeness
from vllm_series.errors import VllmSeriesError
from vllm_series.scope import MODULE
from vllm_series.trees import ReleaseTree

_LEAST = 0.5
"""How much of a scope must be found in another file for that to be its new home."""


class Homes:
    """Looks for scopes and files by their text. `tree` gives a release, None where it cannot be
    read; `fetch` gets files of releases at once."""

    def __init__(
        self,
        tree: Callable[[str], ReleaseTree | None],
        fetch: Callable[[Sequence[str], Sequence[str]], None],
    ) -> None:
        self._tree, self._fetch = tree, fetch
        self._found: dict[tuple[str, str, str, str | None], tuple[Text, str | None] | None] = {}

    def find(self, place: Place, past: str, version: str) -> tuple[Text, str | None] | None:
        """The file of `version` that has what was around `place` in `past`, and the scope's name
        there; None where nothing is alike enough."""
        key = (past, version, place.text.path, place.scope)
        if key not in self._found:
            try:
                self._found[key] = self._search(place, past, version)
            except VllmSeriesError:
                return None
        return self._found[key]

    def _search(self, place: Place, past: str, version: str) -> tuple[Text, str | None] | None:
        tree, old = self._tree(version), self._tree(past)
        span = place.text.range_of(place.scope)
        if tree is None or old is None or span is None:
            return None
        wanted = b"".join(place.text.lines[span[0] : span[1]])
        path = place.text.path
        paths = [other for other in likely(path, tree.listing(), old.listing()) if other != path]
        self._fetch([version], paths)
        best: tuple[float, Text, str | None] | None = None
        for other in paths:
            text = Text(other, tree.read(other) or b"")
            for scope in _scopes_like(text, place.scope):
                there = text.range_of(scope)
                if there is None or self._was_there(old, other, scope):
                    continue
                share = likeness(wanted, b"".join(text.lines[there[0] : there[1]]))
                if share >= _LEAST and (best is None or share > best[0]):
                    best = (share, text, scope)
        return (best[1], best[2]) if best else None

    def _was_there(self, old: ReleaseTree, path: str, scope: str | None) -> bool:
        """Whether the other release has that too, so that it is a twin and no new home."""
        if path not in old.listing():
            return False
        if scope is None or scope == MODULE:
            return True
        self._fetch([old.release], [path])
        return Text(path, old.read(path) or b"").range_of(scope) is not None


def _scopes_like(text: Text, scope: str | None) -> list[str | None]:
    """The scopes of a text that may be `scope` by their own name."""
    if scope is None or scope == MODULE:
        return [scope]
    name = scope.rpartition(".")[2]
    if name.partition("#")[0].encode() not in text.text or text.scopes is None:
        return []
    return [other for other in text.scopes.names() if other.rpartition(".")[2] == name]
