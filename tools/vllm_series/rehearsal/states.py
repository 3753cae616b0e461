"""The states of a package that are played: stock, all patches and off, and on, patch by patch.

A patch is on by the variables of its `Activate:` trailers. Where several patches have switches,
they are put in and switched on one after another, so that what changes from one state to the next
is the work of one patch. The last state has the whole series in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from vllm_series.patch import Patch
from vllm_series.plan import Plan


@dataclass(frozen=True, slots=True)
class State:
    """Texts (None for no file) and modes of the files that differ from the tree's, by path, and the
    variables that are set."""

    name: str
    texts: Mapping[str, bytes | None]
    modes: Mapping[str, int]
    switches: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class States:
    """All that is played of one series. `on` has the patch on top beside each state; `known` are
    the names of all switches, which no other state may inherit from the user's environment."""

    stock: State
    off: State
    on: tuple[tuple[Patch, State], ...]
    known: tuple[str, ...]


def states_of(patches: Sequence[Patch], plan: Plan, pristine: Mapping[str, bytes | None]) -> States:
    """The states of a plan that fits; `pristine` are the stock texts of files that are patched in
    the tree itself."""
    layers = plan.layers(pristine)
    stock = State("stock", *layers[0], {})
    top = stock
    on: list[tuple[Patch, State]] = []
    for patch, layer in zip(patches, layers[1:], strict=True):
        top = State(f"on, up to {patch.name}", *layer, {**top.switches, **patch.switches()})
        if patch.switches():
            on.append((patch, top))
    if on:
        on[-1] = (on[-1][0], replace(top, name=on[-1][1].name))
    return States(stock, replace(top, name="off", switches={}), tuple(on), tuple(top.switches))
