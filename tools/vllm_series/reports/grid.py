"""The columns of the table: releases side by side, those of a line close together.

    release 0.10 11  12 13 14
              .2 012 0  0  01
    fix.patch  d ddd +  +  ==

Both header rows read from left to right, since a number that is written downwards can be neither
searched for nor read aloud. A line's releases share its number, so a release takes two columns and
a half on average and 36 of them fit beside a name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from vllm_series.reports.printable import columns, cut, padded, printable

_LONGEST = 24
"""Columns that the name of one release may take; no version on the index is that long."""
_NAME, _SHORT_NAME = 40, 24
"""Columns of a patch's name: at most, and at least where the releases would fit beside it."""
_GAP = "  "
_CORNER = "release"


@dataclass(frozen=True, slots=True)
class Column:
    """A release (its place in the list that the grid was made of) and its name below its line's."""

    at: int
    label: str


@dataclass(frozen=True, slots=True)
class Group:
    """The releases of one line: `33` of `0.33`, side by side without blanks where each is named by
    one letter."""

    label: str
    members: tuple[Column, ...]

    @property
    def gap(self) -> str:
        """What stands between two of its releases."""
        return "" if all(columns(member.label) == 1 for member in self.members) else " "

    @property
    def width(self) -> int:
        """Columns of a terminal."""
        labels = sum(columns(member.label) for member in self.members)
        return max(columns(self.label), labels + len(self.gap) * (len(self.members) - 1))

    def row(self, cells: Sequence[tuple[str, str]]) -> str:
        """One row: for each release what is printed, and the same without colours."""
        parts = [
            shown + " " * (columns(member.label) - columns(plain))
            for member, (shown, plain) in zip(self.members, cells, strict=True)
        ]
        used = sum(columns(member.label) for member in self.members)
        used += len(self.gap) * (len(self.members) - 1)
        return self.gap.join(parts) + " " * (self.width - used)


@dataclass(frozen=True, slots=True)
class Block:
    """What stands side by side: as many groups as the width takes. `prefix` is what every line's
    number starts with, `0.`, and empty where they differ."""

    prefix: str
    name_width: int
    groups: tuple[Group, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        """Its releases, from left to right."""
        return tuple(member for group in self.groups for member in group.members)

    @property
    def head(self) -> tuple[str, str]:
        """The two header rows: the lines, and their releases."""
        above = _GAP[1:].join(padded(group.label, group.width) for group in self.groups)
        below = _GAP[1:].join(
            group.row([(member.label, member.label) for member in group.members])
            for group in self.groups
        )
        # The prefix stands right in front of the first number: `0.` and `10`.
        left = self.name_width + len(_GAP)
        corner = _corner(self.prefix)
        under = "." if self.prefix else ""
        return (
            f"{corner.rjust(left)}{above}".rstrip(),
            f"{under.rjust(left)}{below}".rstrip(),
        )

    def row(self, name: str, cells: Sequence[tuple[str, str]]) -> str:
        """One row: the name, cut where it is too long, and a cell a release of the whole grid."""
        groups = _GAP[1:].join(
            group.row([cells[member.at] for member in group.members]) for group in self.groups
        )
        name = padded(cut(printable(name), self.name_width), self.name_width)
        return f"{name}{_GAP}{groups}".rstrip()


def blocks(releases: Sequence[str], names: Sequence[str], width: int) -> list[Block]:
    """The columns for `releases`, in their order, within `width` columns of a terminal."""
    prefix, groups = _groups(releases, max(_LONGEST, width - _SHORT_NAME - len(_GAP)))
    longest = max((columns(printable(name)) for name in names), default=0)
    longest = max(longest, len(_corner(prefix)) - len(_GAP))
    total = sum(group.width + 1 for group in groups) + 1
    room = width - total
    name_width = min(longest, _NAME if room < _SHORT_NAME else max(room, _SHORT_NAME))
    name_width = max(1, min(name_width, width - 2 - max(group.width for group in groups)))
    made: list[list[Group]] = [[]]
    used = name_width + 1
    for group in groups:
        if made[-1] and used + group.width + 1 > width:
            made.append([])
            used = name_width + 1
        made[-1].append(group)
        used += group.width + 1
    return [Block(prefix, name_width, tuple(part)) for part in made]


def _corner(prefix: str) -> str:
    return f"{_CORNER} {prefix}" if prefix else _CORNER + _GAP


def _groups(releases: Sequence[str], width: int) -> tuple[str, list[Group]]:
    """The lines in the order of their releases, none wider than `width`, and what all of their
    numbers start with."""
    split = [_split(release) for release in releases]
    majors = {major for major, _, _ in split}
    prefix = f"{split[0][0]}." if len(majors) == 1 and split[0][0] else ""
    made = []
    for _, together in groupby(enumerate(split), key=lambda one: one[1][:2]):
        members = list(together)
        major, minor, _ = members[0][1]
        label = minor if prefix or not major else f"{major}.{minor}"
        part: list[Column] = []
        for at, (_, _, below) in members:
            column = Column(at, below)
            if part and Group(label, (*part, column)).width > width:
                made.append(Group(label, tuple(part)))
                part = []
            part.append(column)
        made.append(Group(label, tuple(part)))
    return prefix, made


def _split(release: str) -> tuple[str, str, str]:
    """Major and minor number and the rest, `0`, `33` and `0rc1` of `0.33.0rc1`."""
    parts = printable(release).split(".", 2)
    if len(parts) < 2 or not all(part.isascii() and part.isdecimal() for part in parts[:2]):
        return "", cut(printable(release), _LONGEST), "."
    major, minor = parts[:2]
    rest = parts[2] if len(parts) > 2 else "."
    return major, cut(minor, _LONGEST), cut(rest, _LONGEST)
