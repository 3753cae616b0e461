"""What speaks against a change next to statements that upstream has changed.

The place of a change may be sure and the change wrong all the same: upstream binds a name there
that it reads, returns before it, or has it already. Every rule here refuses; none repairs.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from vllm_series.structure.effects import Effects, binding_lines, within
from vllm_series.structure.units import Sort, Unit, sketch

_Units = tuple[Unit, ...]
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(frozen=True)
class Change:
    """A change of one group: units `removed` become `added`, at unit `at` of `old` and unit `to` of
    `new`. `near_old` and `near_new` are the units in front and behind up to the nearest that is
    kept: what upstream has changed there. `around` are the units on the way to the group.
    `parted`: upstream has put something just where the change adds something. `is_header`: the
    change is in the header of a compound statement. `fresh` are the release's new lines by number,
    stripped; `lines` the 0-based line of the change there and the lines it adds."""

    sort: Sort
    block: str
    removed: _Units
    added: _Units
    old: _Units
    new: _Units
    at: int
    to: int
    near_old: tuple[_Units, _Units]
    near_new: tuple[_Units, _Units]
    around: tuple[tuple[Unit, Unit], ...]
    modules: tuple[ast.Module, ast.Module]
    parted: bool
    is_header: bool
    fresh: Mapping[int, bytes]
    lines: tuple[int, tuple[bytes, ...]]


def objection(change: Change) -> str | None:
    """Why a change may be wrong at its place, in a few words; None for nothing."""
    if change.sort is Sort.TEXT:
        return _there_already(change)
    if _syntax(change.removed) == _syntax(change.added):
        return _there_already(change)
    found = _there_already(change)
    if change.is_header and not isinstance(change.removed[0].nodes[0], _DEFINITIONS):
        # What it decides on or loops over stands below, and may have changed.
        two = change.new[change.to]
        if two.whole != change.removed[0].whole:
            return "upstream has changed what the statement holds"
    if found is None and change.sort is not Sort.BLOCK:
        found = _in_brackets(change)
    if found is None and change.sort is Sort.BLOCK:
        found = _in_block(change)
    return found or _of_names(change)


def _there_already(change: Change) -> str | None:
    """The release has a line that the change brings, and did not have it before."""
    removed = Counter(unit.whole for unit in change.removed)
    mine = [unit for unit in change.added if not removed[unit.whole]]
    if not mine and _syntax(change.removed) == _syntax(change.added):
        mine = list(change.added)
    _, added = change.lines
    gone = {unit.whole for unit in change.old}
    for unit in mine:
        if any(unit.whole == one.whole for one in change.new) and unit.whole not in gone:
            return "the release has it already"
    fresh = set(change.fresh.values())
    if any(line.strip() in fresh and _is_telling(line) for line in added):
        return "the release has a line of it already"
    if change.sort in (Sort.ARGUMENTS, Sort.NAMES, Sort.DICT, Sort.PARAMETERS, Sort.SET):
        end = change.to + len(change.removed)
        others = {unit.key for unit in (*change.new[: change.to], *change.new[end:])}
        if any(unit.nodes and unit.key in others for unit in change.added):
            return "the release has that key already"
    return None


def _is_telling(line: bytes) -> bool:
    """Whether a line says more than `else:` or `return`, which may stand anywhere."""
    return sum(byte > 127 or bytes([byte]).isalnum() for byte in line) >= 8


def _in_brackets(change: Change) -> str | None:
    grown = len(_coded(change.near_new)) > len(_coded(change.near_old))
    parts = {unit.part for unit in (*change.removed, *change.added)}
    beside = {unit.part for side in (*change.near_old, *change.near_new) for unit in side}
    if "star" in parts | beside:
        return "an unpacked argument stands beside it"
    if len(change.removed) == len(change.added):
        return None
    counted = change.sort is Sort.TUPLE or (
        change.sort in (Sort.ARGUMENTS, Sort.PARAMETERS)
        and any(part.startswith("positional") for part in parts)
    )
    if (counted or change.sort is Sort.LIST) and (grown or change.parted):
        return "upstream has added elements there, and their order counts"
    if counted:
        before = [unit for unit in change.old[: change.at] if unit.nodes]
        there = [unit for unit in change.new[: change.to] if unit.nodes]
        if len(before) != len(there):
            return "it would be counted otherwise"
        if change.sort is Sort.PARAMETERS:
            behind = [
                unit.key
                for unit in change.new[change.to + len(change.removed) :]
                if unit.part.startswith("positional")
            ]
            was = [unit.key for unit in change.old[change.at + len(change.removed) :]]
            if [unit.key for unit in before] != [unit.key for unit in there] or not set(
                behind
            ) <= set(was):
                return "upstream has other parameters there"
    return None


def _in_block(change: Change) -> str | None:
    mine, was = _effects(change.added), _effects(change.removed)
    near_old, near_new = _changed(change)
    theirs = Effects.of(node for unit in near_new for node in unit.nodes)
    before = Effects.of(node for unit in near_old for node in unit.nodes)
    if change.block in ("handlers", "cases") and (near_old or near_new):
        return "handlers and cases are tried in order"
    jumps = (mine.jumps - was.jumps) + (was.jumps - mine.jumps)
    if jumps and (theirs.acts or before.acts or theirs.jumps or before.jumps):
        return "it leaves the block next to what upstream has changed"
    ahead = Effects.of(node for unit in change.near_new[0] for node in unit.nodes)
    if ahead.jumps - before.jumps:
        return "upstream leaves the block in front of it"
    if change.at and change.to and not change.near_old[0] and not change.near_new[0]:
        one = Effects.of(change.old[change.at - 1].nodes)
        two = Effects.of(change.new[change.to - 1].nodes)
        if two.jumps - one.jumps:
            return "upstream leaves the block in front of it"
    grown = change.parted or len(_coded(change.near_new)) > len(_coded(change.near_old))
    acts = mine.acts and (theirs.acts or before.acts)
    if acts and (grown or (len(change.added) > len(change.removed) and not _is_edited(change))):
        return "both sides do something there, and the order may count"
    if any(
        isinstance(node, ast.ImportFrom) and node.module == "__future__"
        for unit in change.new[change.to :]
        for node in unit.nodes
    ):
        return "it would stand in front of a __future__ import"
    return None


def _of_names(change: Change) -> str | None:
    mine, was = _effects(change.added), _effects(change.removed)
    near = [unit for side in _changed(change) for unit in side]
    bound_near = Effects.of(node for unit in near for node in unit.nodes).binds
    reads = set(mine.reads - was.reads)
    if (reads | set(mine.binds) | set(was.binds)) & set(bound_near):
        return "upstream binds a name there that it uses"
    old, new = _scopes(change)
    there = Effects.of(within(new), change.fresh)
    if set(mine.binds - was.binds) & (set(there.reads) | set(there.binds)):
        return "upstream uses a name that it binds"
    if set(was.binds - mine.binds) & set(there.reads):
        return "upstream uses a name that it no longer binds"
    line = change.lines[0] + 1
    base_line = min((unit.first for unit in change.old[change.at :]), default=10**9)
    scopes = [(old, new), *_outer(change)]
    bound = [(binding_lines(within(one)), binding_lines(within(two))) for one, two in scopes]
    for name in reads - set(mine.binds):
        # An attribute may be bound anywhere in the file.
        where = bound[-1:] if name.startswith(".") else bound
        found = next((pair for pair in where if name in pair[0]), None)
        if found is None:
            continue
        if name not in found[1]:
            return "upstream no longer binds a name that it reads"
        if found is bound[0] and found[0][name] < base_line and found[1][name] > line:
            return "upstream binds a name that it reads only later"
    return None


def _is_edited(change: Change) -> bool:
    """Whether what stands beside the change is what stood there, with something changed in it: a
    statement of its kind with its target, or a call of the same function; or has only gone."""
    for old, new, at in zip(change.near_old, change.near_new, (-1, 0), strict=True):
        one, two = _coded((old, ())), _coded((new, ()))
        if two and (not one or _kind(one[at].nodes[0]) != _kind(two[at].nodes[0])):
            return False
    return True


def _kind(node: ast.AST) -> tuple[str, str]:
    subject: object = None
    match node:
        case ast.Assign(targets=targets):
            subject = targets
        case ast.AnnAssign(target=target) | ast.AugAssign(target=target):
            subject = target
        case ast.Expr(value=ast.Call(func=function)):
            subject = function
        case ast.Expr(value=value):
            subject = value
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            subject = name
    return type(node).__name__, sketch(subject)


def _changed(change: Change) -> tuple[_Units, _Units]:
    """What upstream has changed near the change: units that the other side does not have, also
    those whose inside alone has changed."""
    old = [unit for side in change.near_old for unit in side]
    new = [unit for side in change.near_new for unit in side]
    if change.at and change.to:
        old.append(change.old[change.at - 1])
        new.append(change.new[change.to - 1])
    old += change.old[change.at + len(change.removed) :][:1]
    new += change.new[change.to + len(change.removed) :][:1]
    had, has = {unit.whole for unit in old}, {unit.whole for unit in new}
    return (
        tuple(unit for unit in old if unit.whole not in has),
        tuple(unit for unit in new if unit.whole not in had),
    )


def _coded(sides: tuple[_Units, _Units]) -> list[Unit]:
    return [unit for side in sides for unit in side if unit.nodes]


def _syntax(units: _Units) -> list[str]:
    return [unit.whole for unit in units if unit.nodes]


def _effects(units: _Units) -> Effects:
    """The effects of some of the change's own units."""
    return Effects.of(node for unit in units for node in unit.nodes)


def _scopes(change: Change) -> tuple[ast.AST, ast.AST]:
    """The innermost function or class around the change, on both sides."""
    if change.is_header and isinstance(change.removed[0].nodes[0], _DEFINITIONS):
        return change.removed[0].nodes[0], change.new[change.to].nodes[0]
    for one, two in reversed(change.around):
        if one.nodes and two.nodes and isinstance(one.nodes[0], _DEFINITIONS):
            return one.nodes[0], two.nodes[0]
    return change.modules


def _outer(change: Change) -> list[tuple[ast.AST, ast.AST]]:
    """All functions around the change, innermost first, and the module; on both sides. The class
    around a method binds nothing that it reads by name."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    found: list[tuple[ast.AST, ast.AST]] = [
        (one.nodes[0], two.nodes[0])
        for one, two in reversed(change.around)
        if one.nodes and two.nodes and isinstance(one.nodes[0], functions)
    ]
    return [*found, change.modules]
