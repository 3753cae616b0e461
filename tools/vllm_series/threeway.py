"""Where a hunk belongs when the file that it was made on is at hand.

The base and the file are aligned as wholes. The alignment must agree with where the hunk's text
stands: a text that stands once, but not where the base's lines have gone, is refused. What the text
alone cannot place, a changed context or one of several copies, the alignment can, by the rule of
diff3 (diffutils manual, "Merging With diff3"): the lines that the hunk takes out, and the lines on
both sides, are kept and stand together. It is `merged` then, or `moved` where the scope around it
is another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from vllm_series.align import GONE, Alignment, align
from vllm_series.heading import is_other_name
from vllm_series.patch import Hunk
from vllm_series.placement import FilePlacement, Placement
from vllm_series.search import Search, bound_scope
from vllm_series.verdicts import Verdict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from vllm_series.scope import Scopes


@dataclass(frozen=True, slots=True)
class Edit:
    """One run of changed lines: from 0-based `start` on, `removed` lines become `added`."""

    start: int
    removed: int
    added: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Placed:
    """A hunk's placement and, where it is placed, its edits of the file, in order."""

    placement: Placement
    edits: tuple[Edit, ...] = ()


def edits_of(hunk: Hunk, start: int) -> list[Edit]:
    """The runs of changed lines of a hunk whose pre-image starts at 0-based `start`."""
    found: list[Edit] = []
    at, first, added = start, start, list[bytes]()
    for op, line in zip(hunk.ops + b" ", (*hunk.lines, b""), strict=True):
        if op == _PLUS:
            added.append(line)
        elif op == _MINUS:
            at += 1
        else:
            if added or at > first:
                found.append(Edit(first, at - first, tuple(added)))
                added = []
            at += 1
            first = at
    return found


def spliced(lines: Sequence[bytes], edits: Sequence[Edit]) -> bytes:
    """The text after all edits, which are in order and do not overlap."""
    out: list[bytes] = []
    position = 0
    for edit in edits:
        out.extend(lines[position : edit.start])
        out.extend(edit.added)
        position = edit.start + edit.removed
    out.extend(lines[position:])
    return b"".join(out)


class ThreeWay:
    """Places the hunks of one file change by base and file. `starts` are the 0-based lines of the
    base where their pre-images start."""

    def __init__(
        self, search: Search, base: list[bytes], hunks: Sequence[Hunk], starts: Sequence[int]
    ) -> None:
        self.search = search
        self.base = base
        self.hunks = hunks
        self.starts = starts
        self.alignment: Alignment = align(base, search.lines)
        self._origin: list[int] | None = None

    def place(self) -> FilePlacement:
        """Every hunk, and the file with all of them where the alignment and the text agree."""
        placed = [
            self.judge(hunk, start, self.search.place(hunk))
            for hunk, start in zip(self.hunks, self.starts, strict=True)
        ]
        placements = tuple(each.placement for each in placed)
        if all(placement.verdict is Verdict.APPLIED for placement in placements):
            return FilePlacement(placements, self.search.text, pristine=False)
        if not all(each.edits for each in placed):
            return FilePlacement(placements, None, pristine=False)
        result = spliced(self.search.lines, [edit for each in placed for edit in each.edits])
        placements = self.confirmed(result, placed)
        if any(placement.line is None for placement in placements):
            return FilePlacement(placements, None, pristine=False)
        return FilePlacement(placements, result, pristine=False)

    def judge(self, hunk: Hunk, start: int, found: Placement) -> Placed:
        """Hold what the text alone says against the alignment."""
        edits = self.followed(hunk, start)
        if found.verdict is Verdict.APPLIED:
            if self.agrees(hunk, start, found):
                return Placed(found)
            return Placed(self.elsewhere(hunk, start, found))
        if edits and found.line is not None:
            if edits == edits_of(hunk, found.line - 1):
                return Placed(found, tuple(edits))
            if not self.explained(hunk, found.line - 1):
                return Placed(self.elsewhere(hunk, start, found))
        if edits:
            return self.merged(hunk, edits, found)
        if self.stands(hunk, start):
            line = self.alignment[edits_of(hunk, start)[0].start - 1] + 2
            scope = bound_scope(hunk, self.search.binding)
            return Placed(Placement(hunk, Verdict.APPLIED, line, None, scope))
        if found.line is not None:
            return Placed(self.elsewhere(hunk, start, found))
        copies = [at for at in self.search.matches(hunk.pre, hunk) if self.explained(hunk, at - 1)]
        verdict = Verdict.DRIFTED if copies or found.verdict is not Verdict.MOVED else found.verdict
        reason = f"{self.obstacle(hunk, start)}; {found.reason}"
        return Placed(replace(found, verdict=verdict, reason=reason))

    # -- what the alignment says ----------------------------------------------------------------

    def followed(self, hunk: Hunk, start: int) -> list[Edit]:
        """The hunk's edits where the alignment takes them; none where it does not take them all: a
        line that the hunk takes out or that stands beside it is gone, or they were parted."""
        result = []
        for edit in edits_of(hunk, start):
            above, below = self.beside(edit)
            if GONE in (above, below) or below - above - 1 != edit.removed:
                return []
            if edit.removed and self.alignment.run(edit.start, edit.removed) != above + 1:
                return []
            result.append(replace(edit, start=above + 1))
        return result

    def beside(self, edit: Edit) -> tuple[int, int]:
        """Where the lines in front of and behind an edit of the base have gone."""
        return self.alignment[edit.start - 1], self.alignment[edit.start + edit.removed]

    def stands(self, hunk: Hunk, start: int) -> bool:
        """Whether just the lines that the hunk adds stand where it would add them."""
        for edit in edits_of(hunk, start):
            above, below = self.beside(edit)
            if GONE in (above, below):
                return False
            if tuple(self.search.lines[above + 1 : below]) != edit.added:
                return False
        return True

    def explained(self, hunk: Hunk, line: int) -> bool:
        """Whether the hunk's text at 0-based `line` stood in the base already, as a copy."""
        if self._origin is None:
            self._origin = self.alignment.back()
        lines = self._origin[line : line + hunk.old_count]
        first = lines[0] if lines else -1
        return first >= 0 and lines == list(range(first, first + len(lines)))

    def agrees(self, hunk: Hunk, start: int, found: Placement) -> bool:
        """Whether a post-image that stands already stands where the hunk's lines have gone."""
        assert found.line is not None
        seen = False
        old, new = start, found.line - 1
        for op, line in zip(hunk.ops, hunk.lines, strict=True):
            if op == _SPACE:
                there = self.alignment[old]
                if there not in (GONE, new):
                    return False
                seen |= there == new and bool(line.strip())
            old += op != _PLUS
            new += op != _MINUS
        return seen

    # -- answers --------------------------------------------------------------------------------

    def merged(self, hunk: Hunk, edits: list[Edit], found: Placement) -> Placed:
        """The hunk where the alignment alone places it."""
        line = edits[0].start + 1
        if found.line is None:
            why = found.reason
        else:
            why = (
                f"its text has changed there, and stands at line {found.line} as a copy that the "
                "base has too"
            )
        placement = Placement(
            hunk,
            Verdict.MERGED,
            line,
            line - hunk.first_line - hunk.leading,
            bound_scope(hunk, self.search.binding),
            f"only the base tells its place, line {line}: {why}",
            found.candidate,
        )
        return Placed(placement, tuple(edits))

    def elsewhere(self, hunk: Hunk, start: int, found: Placement) -> Placement:
        """The refusal of a text that stands where the base does not lead."""
        what = "result" if found.verdict is Verdict.APPLIED else "text"
        return self.search.refused(
            hunk,
            Verdict.DRIFTED,
            f"its {what} stands at line {found.line}, but {self.obstacle(hunk, start)}",
            found.line,
        )

    def obstacle(self, hunk: Hunk, start: int) -> str:
        """What became of the hunk's place in the base."""
        for edit in edits_of(hunk, start):
            above, below = self.beside(edit)
            first, last = edit.start + 1, edit.start + edit.removed
            if above == GONE and below == GONE:
                return f"line {first} of the base is gone, and the lines beside it too"
            if edit.removed and self.alignment.run(edit.start, edit.removed) is None:
                return f"line {first} of the base, which it takes out, is changed"
            if above == GONE:
                return f"line {first - 1} of the base, in front of its change, is gone"
            if below == GONE:
                return f"line {last + 1} of the base, behind its change, is gone"
            if below - above - 1 != edit.removed:
                return (
                    f"lines {above + 2} to {below} are new beside its change (line {first} of the "
                    "base)"
                )
        edit = self.followed(hunk, start)[0]
        return f"the base leads to line {edit.start + 1}"

    # -- scopes ---------------------------------------------------------------------------------

    def confirmed(self, result: bytes, placed: Sequence[Placed]) -> tuple[Placement, ...]:
        """Look up what every hunk changes in the syntax trees, in the base and here: it must be the
        same scope, for a patch of ours the one that its heading names."""
        merged = any(each.placement.verdict is Verdict.MERGED for each in placed)
        before = self.search.scopes if merged or self.search.binding else None
        if before is None:
            return tuple(each.placement for each in placed)
        from vllm_series.scope import Scopes

        after = Scopes.of(result, self.search.path)
        if after is None:
            reason = "the result does not parse"
            return tuple(
                replace(
                    each.placement, verdict=Verdict.DRIFTED, line=None, offset=None, reason=reason
                )
                for each in placed
            )
        here = _scopes(before, after, [each.edits for each in placed])
        meant = [bound_scope(hunk, self.search.binding) for hunk in self.hunks]
        if not all(meant):
            meant = list(self._base_scopes()) or meant
        return tuple(
            _in_scope(each.placement, scope, self._wanted(each.placement, scope, wanted))
            for each, scope, wanted in zip(placed, here, meant, strict=True)
        )

    def _wanted(self, placement: Placement, scope: str, wanted: str | None) -> str | None:
        """The scope that a change must be in: `scope` itself where its text alone has found it, and
        it is another name of one that is gone."""
        if wanted is None or not placement.verdict.fits or self.search.known(wanted):
            return wanted
        return scope if is_other_name(wanted, scope) else wanted

    def _base_scopes(self) -> list[str]:
        """The scope that each hunk changes in the base; empty where the base does not parse."""
        from vllm_series.scope import Scopes

        edits = [
            tuple(edits_of(hunk, start))
            for hunk, start in zip(self.hunks, self.starts, strict=True)
        ]
        result = spliced(self.base, [edit for each in edits for edit in each])
        before = Scopes.of(b"".join(self.base), self.search.path)
        after = Scopes.of(result, self.search.path)
        return _scopes(before, after, edits) if before and after else []


def _scopes(before: Scopes, after: Scopes, edits: Sequence[Sequence[Edit]]) -> list[str]:
    """The scope that each group of edits changes; the groups are in order."""
    from vllm_series.scope import of_change

    result = []
    shift = 0
    for group in edits:
        removed: list[int] = []
        added: list[int] = []
        after_lines = []
        for edit in group:
            first = edit.start + 1
            removed += range(first, first + edit.removed)
            added += range(first + shift, first + shift + len(edit.added))
            if edit.added:
                after_lines.append(edit.start + edit.removed)
            shift += len(edit.added) - edit.removed
        result.append(of_change(before, after, removed, added, after_lines))
    return result


def _in_scope(placement: Placement, scope: str, wanted: str | None) -> Placement:
    """The placement with its scope; `moved` where the change would be in another one."""
    if wanted is None or scope == wanted:
        return replace(placement, scope=scope)
    line = placement.line
    return replace(
        placement,
        verdict=Verdict.MOVED,
        scope=scope,
        reason=f"the base leads to line {line}, but it would change {scope} there, not {wanted}",
    )


_PLUS, _MINUS, _SPACE = ord("+"), ord("-"), ord(" ")
