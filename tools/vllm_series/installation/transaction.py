"""From a plan to the disk and back: the only writer of a tree.

`apply` and `revert` decide, under the lock, what every file has to hold; `journal` makes it happen
all at once. Both go by what is on disk at that moment: a plan whose starting point is gone is
refused, and so is a revert that would lose an edit made by hand. What they need later is kept in
the tree itself (`stack`), so that neither the series folder nor the network is asked again.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vllm_series.installation.journal import Journal
from vllm_series.installation.lock import exclusive
from vllm_series.installation.stack import read_stack, state_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from vllm_series.installation.stack import AppliedPatch, Stack
    from vllm_series.steps import PatchStep
    from vllm_series.trees import DiskTree


@dataclass(frozen=True, slots=True)
class OpenTree:
    """A tree that this process alone may change; only `opened` makes one."""

    tree: DiskTree


@contextmanager
def opened(tree: DiskTree, waiting: Callable[[str], None] | None = None) -> Iterator[OpenTree]:
    """Hold a tree, with whatever an interrupted process left behind brought to an end first.

    Plan inside: what is read there is what `apply` finds. `waiting` gets one message where
    another process holds the tree.
    """
    with exclusive(tree, waiting):
        _journal(tree).recover()
        yield OpenTree(tree)


def is_interrupted(tree: DiskTree) -> bool:
    """Whether a change was cut off and waits for `recover`."""
    return _journal(tree).is_open()


def recover(tree: DiskTree, waiting: Callable[[str], None] | None = None) -> bool:
    """Bring an interrupted change to its end or its beginning; True if there was one.

    For commands that only look: without a journal it costs four calls of `lstat` and no lock.
    """
    journal = _journal(tree)
    if not journal.is_open():
        return False
    with exclusive(tree, waiting):
        return journal.recover()


def apply(
    target: DiskTree | OpenTree,
    steps: Sequence[PatchStep],
    waiting: Callable[[str], None] | None = None,
) -> Stack:
    """Put patches on top of the stack, all or none; the new stack.

    Plan and apply inside one `opened` where others may work on the tree. Given a bare DiskTree,
    this takes the lock itself; where another process has put on just these patches meanwhile,
    nothing is left to do.

    Raises RefusedError where a file is not what the plan started from or a patch changes nothing,
    EnvironmentRefusedError where the disk does not allow it. The tree is then as it was.
    """
    from vllm_series.installation.applying import ends_with, plan_apply

    if not isinstance(target, OpenTree):
        with opened(target, waiting) as held:
            stack = read_stack(target)
            return stack if ends_with(stack, steps) else apply(held, steps)
    stack, work = plan_apply(target.tree, steps)
    _journal(target.tree).run(work)
    return stack


def revert(
    target: DiskTree | OpenTree,
    count: int | None = None,
    waiting: Callable[[str], None] | None = None,
) -> tuple[AppliedPatch, ...]:
    """Take the top `count` patches off (None: all), top first in the result; empty if none is on.

    Bytes, modes, times, RECORD and the compiled files come back as they were. Raises RefusedError,
    with a diff, where a file was edited since, UsageError for a count below 1.
    """
    from vllm_series.installation.reverting import plan_revert

    if not isinstance(target, OpenTree):
        with opened(target, waiting) as held:
            return revert(held, count)
    gone, work = plan_revert(target.tree, count)
    if gone:
        _journal(target.tree).run(work)
    return gone


def _journal(tree: DiskTree) -> Journal:
    return Journal(tree.root, state_path(tree))
