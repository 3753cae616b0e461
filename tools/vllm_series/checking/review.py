"""Why a hunk that fits may mean something else than on its base.

The text of a hunk says where it goes, not what is true there. What is looked at: whether upstream
has come to define the same name, whether every name that the added lines use still stands for
something, and whether the function around them is still the one that the patch was written for.
Everything is a question to a person, so a false alarm costs more than a miss: what the patch did on
its base already is never held against it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vllm_series.checking.bindings import Definition, Source
from vllm_series.patch import Hunk
from vllm_series.scope import MODULE

KEPT = 50
"""Per cent of a function's lines that must be left for it to be the same function."""
_SMALL = 8
"""Functions of fewer lines change in per cent by leaps, and their context shows most of them."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """A hunk as it went in: `line` is the 1-based line of its pre-image in the text before."""

    hunk: Hunk
    line: int


@dataclass(frozen=True, slots=True)
class Function:
    """The function around a hunk: its lines without those that the patch adds, stripped."""

    name: str
    signature: str
    lines: Counter[bytes]


@dataclass(frozen=True, slots=True)
class _HunkFacts:
    defined: tuple[Definition, ...]
    unbound: dict[str, int]
    own: dict[tuple[str, str], int]
    function: Function | None


@dataclass(frozen=True, slots=True)
class Facts:
    """What a review needs to know of one file with a patch in it; small, where syntax trees are
    not. `twins` are the definitions that are not of the patch, under the names that it defines;
    `attributes` what classes define of the `self.name` that it reads."""

    hunks: tuple[_HunkFacts, ...]
    twins: tuple[Definition, ...]
    attributes: dict[str, frozenset[str]]


def facts(hunks: Sequence[Fitted], after: Source) -> Facts:
    """Look at the text `after` a patch whose `hunks`, all of one file, went in."""
    added = _added(hunks)
    every = frozenset[int]().union(*added)
    own = [after.own_attributes(lines) for lines in added]
    read = {name for names in own for _, name in names}
    names = {(one.scope, one.name) for one in after.definitions if one.line in every}
    return Facts(
        tuple(
            _HunkFacts(
                tuple(one for one in after.definitions if one.line in lines),
                after.unbound(lines),
                attributes,
                _function(after, fitted, lines, every),
            )
            for fitted, lines, attributes in zip(hunks, added, own, strict=True)
        ),
        tuple(
            one
            for one in after.definitions
            if (one.scope, one.name) in names and one.line not in every
        ),
        {scope: found & read for scope, found in after.attributes.items() if found & read}
        if read
        else {},
    )


def review(path: str, here: Facts, base: Facts | None) -> tuple[tuple[str, ...], ...]:
    """The reasons for a review, for each hunk of a file.

    `here` is the release judged, `base` the one on which the patch was made, None where that is
    not at hand. Lines are those of the file with the patch in it.
    """
    result = []
    for number, hunk in enumerate(here.hunks):
        then = base.hunks[number] if base and number < len(base.hunks) else None
        found = [*_twice(path, hunk, here, base), *_unbound(path, hunk, then)]
        if base is not None and then is not None:
            found += _own(path, hunk, here, base)
            found += _rewritten(hunk.function, then.function)
        result.append(tuple(dict.fromkeys(found)))
    return tuple(result)


def _added(hunks: Sequence[Fitted]) -> list[frozenset[int]]:
    """The lines of the text after the patch that each hunk adds."""
    result = []
    shift = 0
    for fitted in hunks:
        line = fitted.line + shift
        lines = set()
        for op in fitted.hunk.ops:
            if op == ord("+"):
                lines.add(line)
            line += op != ord("-")
        shift += fitted.hunk.new_count - fitted.hunk.old_count
        result.append(frozenset(lines))
    return result


def _function(
    after: Source, fitted: Fitted, lines: frozenset[int], every: frozenset[int]
) -> Function | None:
    """The innermost function around a hunk's change; one that the hunk itself adds is not around
    it."""
    scopes = after.scopes
    if not lines:
        return None
    name: str = scopes.innermost(min(min(lines), len(scopes)))
    while name != MODULE:
        span = scopes.ranges(name)
        signature = scopes.signature(name)
        if span and signature is not None and not all(n in every for n in range(*span)):
            break
        name = scopes.enclosing(name) or MODULE
    span, signature = scopes.ranges(name), scopes.signature(name)
    if span is None or signature is None:
        return None
    first, last = span
    return Function(
        name,
        signature,
        Counter(
            text
            for number, line in enumerate(after.lines[first - 1 : last], first)
            if number not in every and (text := line.strip())
        ),
    )


def _twice(path: str, hunk: _HunkFacts, here: Facts, base: Facts | None) -> Iterator[str]:
    """Names that the hunk defines and that the release defines too, in the same scope."""
    for one in hunk.defined:
        twins = [
            other
            for other in here.twins
            if (other.scope, other.name) == (one.scope, one.name) and not one.excludes(other)
        ]
        if not twins:
            continue
        if base is None and not one.is_plain:
            # Variables are set again and again; only a base shows that this one was not.
            continue
        if base is not None and any(
            (other.scope, other.name) == (one.scope, one.name) for other in base.twins
        ):
            continue
        yield (
            f"{path}:{one.line} defines {one.qualified}, and upstream defines it too, at "
            f"{path}:{twins[0].line}"
        )


def _unbound(path: str, hunk: _HunkFacts, then: _HunkFacts | None) -> Iterator[str]:
    """Names that the added lines use and that nothing binds any more."""
    for name, line in hunk.unbound.items():
        if then is None or name not in then.unbound:
            yield f"{path}:{line} uses {name}, which nothing binds there"


def _own(path: str, hunk: _HunkFacts, here: Facts, base: Facts) -> Iterator[str]:
    """Attributes of `self` that the class defined on the base and no class of the file does now."""
    for (scope, name), line in hunk.own.items():
        if name in base.attributes.get(scope, ()) and not any(
            name in names for names in here.attributes.values()
        ):
            yield f"{path}:{line} uses self.{name}, which {scope} no longer defines"


def _rewritten(now: Function | None, then: Function | None) -> Iterator[str]:
    """Whether the function around the hunk still is the one of the base."""
    if now is None or then is None:
        return
    if now.name == then.name:
        yield from _parameters_changed(then, now)
    size = then.lines.total()
    if size >= _SMALL:
        kept = 100 * (then.lines & now.lines).total() // size
        if kept < KEPT:
            yield f"{now.name} is rewritten: {kept} % of its lines on the base are left"


def _parameters_changed(then: Function, now: Function) -> Iterator[str]:
    """What code written for the old parameters does not find in the new ones. Parameters that are
    new are no matter where they have a default."""
    before, after = _parameters(then.signature), _parameters(now.signature)
    lost = [word for word in before if word not in after]
    more = [word for word in after if word not in before]
    asked = [word for word in more if not word.endswith("=...") and word[:1] not in "*/"]
    if lost:
        yield f"{now.name} has no parameter {', '.join(lost)} here, as it has on its base"
    if asked:
        yield f"{now.name} has a parameter {', '.join(asked)} here that it has not on its base"
    if not lost and not asked and [word for word in after if word in before] != before:
        yield f"{now.name} has its parameters in another order than on its base"


def _parameters(signature: str) -> list[str]:
    inner = signature[1:-1]
    return inner.split(", ") if inner else []
