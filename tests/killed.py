"""Kill a change at every step that touches the disk, and look at what the next command makes of it.

Run as a program, which forks for each step: `killed.py TREE apply|revert|recover` (the last one
kills the recovery too). Each child ends without any clean-up (`os._exit`) right before its n-th
call that changes the disk or flushes it.
The parent then recovers the tree and compares it with the states before and after.
Prints how many steps there were and how many children ended before and after the commit.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from installed import Snapshot, snapshot, steps
from vllm_series.environments import find_tree
from vllm_series.installation.transaction import apply, recover, revert
from vllm_series.trees import DiskTree

_CHANGES = {
    "os.rename",
    "os.remove",
    "os.rmdir",
    "os.mkdir",
    "os.link",
    "os.chmod",
    "os.chown",
    "os.utime",
    "shutil.rmtree",
}
_KILLED = 9
_EACH = 5


def dies_at(step: int) -> Callable[[], None]:
    """From now on, the process ends before its `step`-th (1-based) change of the disk."""
    left = step
    armed = True

    def count() -> None:
        nonlocal left
        if armed:
            left -= 1
            if left == 0:
                os._exit(_KILLED)

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        if event in _CHANGES or (event == "open" and (arguments[2] or 0) & os.O_CREAT):
            count()

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            count()
            return function(*arguments)

        return call

    sys.addaudithook(audit)
    for name in ("write", "fsync", "sync"):
        setattr(os, name, counted(getattr(os, name)))

    def disarm() -> None:
        nonlocal armed
        armed = False

    return disarm


def child(step: int, action: Callable[[], object]) -> bool:
    """Do `action` in a child that dies at a step; True if it came to its end before that."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            disarm = dies_at(step)
            action()
            disarm()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    ended = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if ended not in (0, _KILLED):
        raise SystemExit(f"step {step}: the child failed")
    return ended == 0


def settle(tree: DiskTree, states: dict[str, Snapshot], step: object) -> str:
    """Recover and say which of the two states the tree is in; anything else ends the program."""
    recover(tree)
    found = known(snapshot(tree.root))
    for name, state in states.items():
        if found == state:
            return name
    lines = [f"step {step}: neither before nor after"]
    for name, state in states.items():
        lines += [
            f"  {name}: {path} {state.get(path)} {found.get(path)}"
            for path in sorted(state.keys() | found.keys())
            if state.get(path) != found.get(path)
        ][:20]
    raise SystemExit("\n".join(lines))


def known(state: Snapshot) -> Snapshot:
    """A snapshot without what differs from run to run: the seconds that a change is stamped with,
    and the lists that hold them."""
    seconds = ("stack.json", "RECORD")
    return {
        path: (value[0], "list" if path.endswith(seconds) else value[-1])
        for path, value in state.items()
    }


def main(folder: str, action: str) -> None:
    # A killed process loses nothing of what the kernel has, so flushing only takes time here.
    os.fsync = lambda fd: None
    tree = find_tree(Path(folder))
    todo = steps(tree)
    pristine = snapshot(tree.root)
    states = {"before": known(pristine)}
    apply(tree, todo)
    states["after"] = known(snapshot(tree.root))
    start = "after" if action == "revert" else "before"
    if start == "before":
        revert(tree)

    def change() -> object:
        return revert(tree) if action == "revert" else apply(tree, todo)

    def rewind(now: str) -> None:
        if now != start:
            (revert(tree) if now == "after" else apply(tree, todo))

    counts = {"before": 0, "after": 0}
    step = 0
    done = False
    while not done:
        step += 1
        done = child(step, change)
        if action == "recover" and not done and step % _EACH == 0:
            # This recovery is killed too, one step later each time, until one comes to its end.
            again = 1
            while not child(again, lambda: recover(tree)):
                again += 1
        now = settle(tree, states, step)
        counts[now] += 1
        rewind(now)
    if start == "before" and snapshot(tree.root) != pristine:
        raise SystemExit("the tree is not what it was at first")
    print(step - 1, counts["before"], counts["after"])


if __name__ == "__main__":
    main(*sys.argv[1:])
