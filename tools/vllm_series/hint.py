"""What git's own section heading says of a place: a hint, by what stands above it.

git writes the last line above a hunk that looks like a definition (gitattributes(5), "Defining a
custom hunk-header"). That is not what the hunk changes, and which of its two drivers git used
cannot be seen, so either may agree.
"""

from __future__ import annotations

from collections.abc import Sequence

from vllm_series.scope import HeadingDriver, Scopes, defined_name, git_function_line

_MANY = 100
"""Of more copies than this a hint is not asked to choose."""


def named(heading: bytes, scopes: Scopes | None) -> str:
    """The definition that a heading names, qualified where the file has just one; else empty."""
    name = defined_name(heading)
    if name is None:
        return ""
    known = scopes.names() if scopes else ()
    qualified = [full for full in known if full.split(".")[-1] == name]
    return qualified[0] if len(qualified) == 1 else name


def agreeing(heading: bytes, lines: Sequence[bytes], places: Sequence[int]) -> list[int]:
    """Those 1-based `places` above which git would write that heading, or name the same
    definition."""
    if not heading or len(places) > _MANY:
        return []
    name = defined_name(heading)
    result = []
    for place in places:
        above = [git_function_line(lines, place, driver) for driver in HeadingDriver]
        names = [defined_name(line) for line in above if line]
        if heading in above or (name is not None and name in names):
            result.append(place)
    return result


def contradiction(heading: bytes, lines: Sequence[bytes], scopes: Scopes | None, place: int) -> str:
    """The definition that git would name above a hunk at `place`, where that cannot be what it
    wrote; empty where it can.

    Other functions may have come between the hunk and a function of the module that is named, but
    not another class or method: those are where twins live. A heading that defines nothing says
    nothing.
    """
    name = defined_name(heading)
    if name is None or agreeing(heading, lines, [place]):
        return ""
    span = scopes.ranges(name) if scopes else None
    if span is not None and span[1] < place and not heading.startswith(b"class"):
        return ""
    above = [git_function_line(lines, place, driver) for driver in HeadingDriver]
    names = [defined_name(line) for line in above if line]
    return next((other for other in names if other), "no definition")
