"""Where a hunk fits in a file that is not its recorded pre-image, and why it does not.

Two kinds of section heading bind a hunk. A heading that this tool wrote is the qualified name of
the scope that holds the change; it must hold in the target's syntax tree, before and after, and
where the text stood there more than once it says how often, and which one is meant (`heading`).
Where the text stood once in the whole file, its scope may have another name now. A heading of git
is a hint (`hint`): it can refuse a place, and name the one that stands below what it
says.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate

from vllm_series.candidate import nearest, only_difference, shown
from vllm_series.heading import Heading, is_other_name, read_heading
from vllm_series.patch import Hunk
from vllm_series.placement import Placement
from vllm_series.verdicts import Verdict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from vllm_series.scope import Scopes

_TELLING = 4
"""Of fewer lines than this that are not blank, a scope that is gone is not followed."""
_NEAR = 300
"""Nor as many lines away as this: of 300 such places in samples of the drift benchmark all but a
few are nearer, and of what belonged nowhere hardly anything is."""


def bound_scope(hunk: Hunk, binding: bool) -> str | None:
    """The scope that the section heading binds the hunk to; None for a mere hint and for none."""
    heading = read_heading(hunk.heading) if binding else None
    return heading.scope if heading else None


class Search:
    """Places the hunks of one file that is not the recorded pre-image."""

    def __init__(self, lines: list[bytes], text: bytes, path: str, binding: bool) -> None:
        self.lines = lines
        self.text = text
        self.path = path
        self.binding = binding
        self.starts = list(accumulate(map(len, lines), initial=0))
        self.known_lines = frozenset(lines)
        self._scopes: Scopes | None = None
        self._parsed = False

    @property
    def scopes(self) -> Scopes | None:
        """The syntax tree's scopes, read when a question needs them."""
        if not self._parsed:
            from vllm_series.scope import Scopes

            self._scopes = Scopes.of(self.text, self.path)
            self._parsed = True
        return self._scopes

    def is_python(self) -> bool:
        """Whether a syntax tree of the file can be expected at all, by its name."""

        from vllm_series.scope import is_python

        return is_python(self.path)

    def place(self, hunk: Hunk) -> Placement:
        """The one line where the hunk may go, or the refusal; lines are 1-based."""
        if not hunk.has_context and not (hunk.old_count == 0 and not self.lines):
            return self.refused(
                hunk,
                Verdict.DRIFTED,
                "it has no context lines, so only the recorded blob id could place it, and this "
                "file is another",
            )
        bound = bound_scope(hunk, self.binding)
        if bound is not None and self.scopes is None and self.is_python():
            return self.refused(
                hunk, Verdict.DRIFTED, f"the file does not parse, so {bound} cannot be looked up"
            )
        everywhere = list(self.matches(hunk.pre, hunk))
        inside = [line for line in everywhere if self.admits(hunk, line, bound)]
        if bound is None and len(inside) > 1:
            from vllm_series.hint import agreeing

            # Copies elsewhere do not count where git's heading names what stands above just one.
            below = agreeing(hunk.heading, self.lines, inside)
            inside = below if len(below) == 1 else inside
        done = [
            line for line in self.matches(hunk.post, hunk) if self.admits_post(hunk, line, bound)
        ]
        heading = read_heading(hunk.heading) if self.binding else None
        if heading and heading.count > 1:
            return self.among_copies(hunk, heading, inside, done)
        if done and not inside:
            if len(done) == 1:
                return Placement(hunk, Verdict.APPLIED, done[0], None, bound)
            return self.refused(
                hunk, Verdict.AMBIGUOUS, f"its result stands already {len(done)} times"
            )
        if done and len(inside) == 1 and b"+" in hunk.ops:
            # Also far apart: where the old text stood twice, applying it once leaves one of it.
            return self.refused(
                hunk,
                Verdict.AMBIGUOUS,
                f"both its old text (line {inside[0]}) and its new text "
                f"(line{'s' if len(done) > 1 else ''} {_numbers(done)}) stand: it may be applied",
            )
        if len(inside) == 1:
            return self.found(hunk, inside[0], bound)
        if inside:
            where = f" of {bound}" if bound else ""
            return self.refused(
                hunk,
                Verdict.AMBIGUOUS,
                f"its text stands {len(inside)} times{where}, at lines {_numbers(inside)}",
            )
        if heading and self.is_renamed(hunk, heading, everywhere):
            return self.found(hunk, everywhere[0], bound)
        return self.not_inside(hunk, everywhere, bound)

    def among_copies(
        self, hunk: Hunk, heading: Heading, inside: list[int], done: list[int]
    ) -> Placement:
        """Place a text that stood several times in its scope in the base: all must still stand."""
        scope, meant = heading.scope, heading.number - 1
        if not done and len(inside) == heading.count:
            line = inside[meant]
            offset = line - hunk.first_line
            return Placement(hunk, Verdict.OFFSET if offset else Verdict.EXACT, line, offset, scope)
        standing = sorted({*inside, *done})
        if len(done) == 1 and len(standing) == heading.count and standing[meant] == done[0]:
            return Placement(hunk, Verdict.APPLIED, done[0], None, scope)
        stands = f"at lines {_numbers(inside)}" if inside else "nowhere"
        result = f", its result at lines {_numbers(done)}" if done else ""
        return self.refused(
            hunk,
            Verdict.AMBIGUOUS if inside or done else Verdict.DRIFTED,
            f"its text stood {heading.count} times in {scope}, and it is for number "
            f"{heading.number}; here it stands {stands}{result}",
        )

    def heading(self, hunk: Hunk, scope: str, line: int) -> Heading:
        """What the heading of a hunk must say that changes `scope` and whose pre-image starts at
        `line` of this text."""
        everywhere = list(self.matches(hunk.pre, hunk))
        copies = [at for at in everywhere if self.admits(hunk, at, scope)]
        alone = len(everywhere) <= 1
        if line not in copies:
            return Heading(scope, alone=alone)
        return Heading(scope, copies.index(line) + 1, len(copies), alone)

    def found(self, hunk: Hunk, line: int, bound: str | None) -> Placement:
        """Judge the only place of its text: alone, it must not be weak or contradict the hint."""
        offset = line - hunk.first_line
        verdict = Verdict.OFFSET if offset else Verdict.EXACT
        if bound is None and sum(1 for text in hunk.pre if text.strip()) < 2 and self.lines:
            # A real anchor stands once in one class up to 0.25 and once in another from 0.26 on.
            return self.refused(
                hunk,
                Verdict.AMBIGUOUS,
                f"its text stands once, at line {line}, but a single line is no proof of the place",
                line,
            )
        if self.in_longer_run(hunk, line):
            return self.refused(
                hunk,
                Verdict.AMBIGUOUS,
                f"its text stands once, at line {line}, but it adds to a run of equal lines that "
                "is longer than what it shows",
                line,
            )
        if bound is None:
            from vllm_series.hint import contradiction

            if other := contradiction(hunk.heading, self.lines, self.scopes, line):
                return self.refused(
                    hunk,
                    Verdict.MOVED,
                    f"its text stands once, at line {line}, but below {other}, not below "
                    f"{self.hint(hunk)}",
                    line,
                )
        return Placement(hunk, verdict, line, offset, bound)

    def is_renamed(self, hunk: Hunk, heading: Heading, everywhere: list[int]) -> bool:
        """Whether the hunk's scope may have another name here: its own is not in the file, and its
        text, which stood once in the whole base, stands once in the whole file. It must have some
        lines that are not blank, so that this is no accident, and be near its recorded line: what
        is named anew and has gone far may be something else."""
        return (
            heading.alone
            and len(everywhere) == 1
            and abs(everywhere[0] - hunk.first_line) < _NEAR
            and self.scopes is not None
            and not self.known(heading.scope)
            and sum(1 for text in hunk.pre if text.strip()) >= _TELLING
            and not any(self.matches(hunk.post, hunk))
        )

    def in_longer_run(self, hunk: Hunk, line: int) -> bool:
        """Whether the hunk adds lines between equal ones, or for some of them, that go on beyond
        its context: where in such a run they belong, only its other end could tell, which may have
        moved."""
        if b"+" not in hunk.ops or not hunk.leading or not hunk.trailing:
            return False
        above, below = hunk.lines[: hunk.leading], hunk.lines[-hunk.trailing :]
        same = above[-1]
        inner = hunk.pre[hunk.leading : -hunk.trailing]
        if not same.strip() or {below[0], *inner} != {same}:
            return False
        start, end = line - 1, line - 1 + hunk.old_count
        return (set(above) == {same} and start > 0 and self.lines[start - 1] == same) or (
            set(below) == {same} and self.lines[end : end + 1] == [same]
        )

    def not_inside(self, hunk: Hunk, everywhere: list[int], bound: str | None) -> Placement:
        """Why no place is left: the text stands in another scope, or has drifted."""
        if bound is not None and len(everywhere) == 1:
            scopes = self.scopes
            there = (
                _names(scopes.at_insertion(self.change_line(hunk, everywhere[0])))
                if scopes
                else "elsewhere"
            )
            return self.refused(
                hunk,
                Verdict.MOVED,
                f"its text stands once, at line {everywhere[0]}, but in {there}, not in {bound}",
                everywhere[0],
            )
        if bound is not None and self.scopes is not None and not self.known(bound):
            return self.refused(hunk, Verdict.DRIFTED, f"there is no {bound} in this file")
        where = bound or self.hint(hunk)
        if where and (lines := self.range_of(where)):
            where = f"{where} (lines {lines[0]} to {lines[1]})"
        word = only_difference(hunk.pre, self.lines)
        nearly = f"; the only difference is in {word}" if word else ""
        return self.refused(
            hunk,
            Verdict.DRIFTED,
            f"its text does not stand in {where or 'this file'}{nearly}",
        )

    # -- matching -------------------------------------------------------------------------------

    def matches(self, wanted: list[bytes], hunk: Hunk) -> Iterator[int]:
        """Every 1-based line where `wanted` stands.

        As in git apply, a hunk that ends without context belongs at the end of the file, and one
        that starts at line 1 without context belongs at its beginning.
        """
        needle = b"".join(wanted)
        if not needle:
            if not self.lines:
                yield 1
            return
        if not self.known_lines.issuperset(wanted):
            return
        at_end = hunk.trailing == 0
        at_start = hunk.leading == 0 and hunk.first_line <= 1
        ends_line = needle.endswith(b"\n")
        found = self.text.find(needle)
        while found >= 0:
            end = found + len(needle)
            index = bisect_left(self.starts, found)
            if (
                self.starts[index : index + 1] == [found]
                and (ends_line or end == len(self.text))
                and not (at_end and end != len(self.text))
                and not (at_start and index)
            ):
                yield index + 1
            found = self.text.find(needle, found + 1)

    def change_line(self, hunk: Hunk, line: int) -> int:
        """The line in front of the hunk's first change when its pre-image starts at `line`."""
        return line + hunk.leading - 1

    def admits(self, hunk: Hunk, line: int, bound: str | None) -> bool:
        """Whether a pre-image at `line` changes lines of `bound` alone; `confirm` is stricter."""
        return self.inside(bound, _removed(hunk, line), _insertions(hunk, line))

    def admits_post(self, hunk: Hunk, line: int, bound: str | None) -> bool:
        """Whether a post-image at `line` stands in `bound`; the added lines are in the file."""
        return self.admits(hunk.reversed(), line, bound)

    def inside(self, bound: str | None, removed: list[int], after: list[int]) -> bool:
        """Whether the `removed` lines lie in `bound` and text inserted `after` lines can be a part
        of it; True where nothing binds the hunk. Blank lines belong to no scope."""
        from vllm_series.scope import MODULE, encloses

        if bound is None or bound == MODULE or self.scopes is None:
            return True
        span = self.range_of(bound)
        if span is None:
            return False
        return all(
            span[0] <= number <= span[1] or not self.lines[number - 1].strip() for number in removed
        ) and all(
            any(encloses(bound, scope) for scope in self.scopes.at_insertion(number))
            for number in after
        )

    def confirm(self, result: bytes, placed: Sequence[Placement]) -> tuple[Placement, ...]:
        """Hold the headings against the syntax trees before and after the change."""
        bounds = [bound_scope(placement.hunk, self.binding) for placement in placed]
        if not any(bounds) or self.scopes is None:
            return tuple(placed)
        from vllm_series.scope import Scopes

        after = Scopes.of(result, self.path)
        confirmed = []
        shift = 0
        for placement, bound in zip(placed, bounds, strict=True):
            assert placement.line is not None
            if bound is None:
                confirmed.append(placement)
            elif after is None:
                reason = "the result does not parse"
                confirmed.append(replace(placement, verdict=Verdict.DRIFTED, reason=reason))
            else:
                scope = change_scope(
                    placement.hunk, self.scopes, after, placement.line, placement.line + shift
                )
                confirmed.append(_held(placement, scope, bound, self.known(bound)))
            shift += placement.hunk.new_count - placement.hunk.old_count
        return tuple(confirmed)

    # -- headings -------------------------------------------------------------------------------

    def hint(self, hunk: Hunk) -> str:
        """The definition that git's heading names."""
        from vllm_series.hint import named

        return named(hunk.heading, self.scopes)

    def known(self, bound: str) -> bool:
        """Whether the file has that scope."""

        from vllm_series.scope import MODULE

        return bound == MODULE or self.range_of(bound) is not None

    def range_of(self, name: str) -> tuple[int, int] | None:
        """The 1-based first and last line of a scope; None where there is no such scope."""
        return self.scopes.ranges(name) if self.scopes else None

    # -- refusals -------------------------------------------------------------------------------

    def refused(
        self, hunk: Hunk, verdict: Verdict, reason: str, line: int | None = None
    ) -> Placement:
        """A refusal with the nearest candidate; `line` names one that is known already."""
        scope = bound_scope(hunk, self.binding) or self.hint(hunk) or None
        return Placement(
            hunk, verdict, None, None, scope, reason, self.candidate(hunk, scope, line)
        )

    def candidate(self, hunk: Hunk, scope: str | None, line: int | None) -> str:
        """The nearest place as a diff from what the hunk expects to what stands there."""
        wanted = hunk.pre
        if line is not None:
            start = line - 1
        else:
            span = self.range_of(scope) if scope else None
            low, high = (span[0] - 1, span[1]) if span else (0, len(self.lines))
            low, high = max(0, low - len(wanted)), min(len(self.lines), high + len(wanted))
            start = nearest(wanted, self.lines[low:high], hunk.first_line - 1 - low) + low
        there = self.lines[start : start + len(wanted)]
        if not there:
            return ""
        return shown(wanted, there, start)


def _held(placement: Placement, scope: str, bound: str, known: bool) -> Placement:
    """The placement when the change's `scope` is the one that its heading binds it to, or another
    name of it where the file does not know that one."""
    if scope == bound or (not known and is_other_name(bound, scope)):
        return replace(placement, scope=scope)
    return replace(
        placement,
        verdict=Verdict.MOVED,
        line=None,
        offset=None,
        reason=f"at line {placement.line} it would change {scope}, not {bound}",
    )


_PLUS, _MINUS = ord("+"), ord("-")


def _removed(hunk: Hunk, line: int) -> list[int]:
    """Lines of the old text that the hunk removes when its pre-image starts at `line`."""
    ops = [op for op in hunk.ops if op != _PLUS]
    return [line + index for index, op in enumerate(ops) if op == _MINUS]


def _insertions(hunk: Hunk, line: int) -> list[int]:
    """For every run of added lines, the old line in front of it (0 is the start of the file)."""
    result = []
    number = line - 1
    previous = 0
    for op in hunk.ops:
        if op == _PLUS:
            if previous != _PLUS:
                result.append(number)
        else:
            number += 1
        previous = op
    return result


def _numbers(lines: Sequence[int]) -> str:
    shown = ", ".join(map(str, lines[:5]))
    return shown + (", …" if len(lines) > 5 else "")


def _names(scopes: frozenset[str]) -> str:
    return " or ".join(sorted(scopes, key=lambda name: (-len(name), name)))


def change_scope(hunk: Hunk, before: Scopes, after: Scopes, line: int, new_line: int) -> str:
    """The scope that a hunk changes: its pre-image starts at `line` of the text that `before`
    describes, its post-image at `new_line` of the one that `after` describes."""
    from vllm_series.scope import of_change

    return of_change(
        before,
        after,
        _removed(hunk, line),
        _removed(hunk.reversed(), new_line),
        _insertions(hunk, line),
    )
