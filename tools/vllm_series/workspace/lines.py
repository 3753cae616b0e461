"""Which series goes to which release: the nearest, or line by line, each from its neighbour."""

from __future__ import annotations

from collections.abc import Sequence

from vllm_series.errors import SeriesError
from vllm_series.series import line_of
from vllm_series.workspace.state import Line


def one(there: Sequence[str], version: str, onto: str, source: str | None) -> Line:
    """One release. `there` are the names of the series folders; without a `source` the folder that
    is to be made, if it is there, else the nearest line, the newer one of two."""
    if source is None:
        source = onto if onto in there else _nearest(there, version)
    return Line(source, version, onto)


def many(there: Sequence[str], versions: Sequence[str], source: str | None) -> list[Line]:
    """The lines that the releases belong to, each carried once, to the last of its releases that is
    asked for; nearest first, from the result of the neighbour. Lines with a series are left out."""
    last: dict[str, str] = {}
    for version in versions:
        last[line_of(version)] = version
    known = {_number(name.removeprefix("vllm-")): name for name in there if _is_line(name)}
    if source is not None:
        known = {_number(source.removeprefix("vllm-")): source}
    if not known:
        raise SeriesError("there is no line's series to start from. Make one first.")
    wanted = {_number(line): version for line, version in last.items()}
    lines: list[Line] = []
    reached = dict(known)
    waiting = [number for number in wanted if number not in reached or source is not None]
    waiting = [number for number in waiting if number not in known]
    while waiting:
        number, neighbour = min(
            ((one, two) for one in waiting for two in reached),
            key=lambda pair: (abs(pair[0][1] - pair[1][1]) + 1000 * abs(pair[0][0] - pair[1][0]),
                              -pair[0][0], -pair[0][1], -pair[1][1]),
        )  # fmt: skip
        version = wanted[number]
        onto = f"vllm-{line_of(version)}"
        lines.append(Line(reached[neighbour], version, onto))
        reached[number] = onto
        waiting.remove(number)
    if not lines:
        raise SeriesError("every line that is meant has a series already. Name a single release.")
    return lines


def _nearest(there: Sequence[str], version: str) -> str:
    at = _number(line_of(version))
    lines = [name for name in there if _is_line(name)] or list(there)
    if not lines:
        raise SeriesError("there is no series to carry over. Make one first.")

    def distance(name: str) -> tuple[int, int, int]:
        other = _number(line_of(name.removeprefix("vllm-")))
        return abs(other[0] - at[0]), abs(other[1] - at[1]), -other[1]

    return min(lines, key=distance)


def _is_line(name: str) -> bool:
    return name.count(".") == 1


def _number(line: str) -> tuple[int, int]:
    major, minor = line.split(".")[:2]
    return int(major), int(minor)
