"""Which patch of a series makes a scenario fail that passes without them.

Patches are put in from the first on, so whatever a patch needs is in front of it, and the number of
them is halved until one is left (`bisect`). What a try asks is what the run had asked: the scenario
comes to its end, and its tokens (switched off: its counters too) are those of stock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vllm_series.bisect import Outcome as Search
from vllm_series.bisect import Step, next_try, outcome, suspects
from vllm_series.smoke.results import Blame, Check, Decode, Difference, Frame, Outcome, Row


def blamed(
    row: Row,
    names: Sequence[str],
    run: Callable[[int], Row],
    frame: Callable[[Row, int], Frame | None],
) -> Blame | None:
    """The patch to blame for a failed row of a series of these patches.

    `run` runs the row's scenario in its mode with the first so many patches in; `frame` finds the
    line of a crash that lies in the code of so many patches. None where the search finds no single
    patch, as for a failure that does not come back.
    """
    tries = {len(names): row}
    steps = [Step(0, 0), Step(len(names), 1)]
    while (number := next_try(steps, len(names))) is not None:
        tries[number] = run(number)
        steps.append(Step(number, 1 if tries[number].outcome is Outcome.FAILED else 0))
    if outcome(steps, len(names)) is not Search.FOUND:
        return None
    [at] = suspects(steps)
    worst = tries[at + 1]
    return Blame(
        names[at],
        row.decode.scenario,
        row.decode.mode,
        _what(worst),
        len(tries) - 1,
        _difference(worst),
        frame(worst, at + 1),
        worst.decode.failure.log if worst.decode.failure else (),
    )


def _what(row: Row) -> str:
    if row.decode.failure is not None:
        return f"crashes: {row.reason}"
    return row.reason


def _difference(row: Row) -> Difference | None:
    check: Check | None = next((one for one in row.checks if one.difference), None)
    return check.difference if check else None


def patched_frame(
    decode: Decode,
    relative: Callable[[str], str | None],
    added: dict[str, set[int]],
) -> Frame | None:
    """The innermost frame on a line that patches have written, else in a file they have changed,
    with its path in the tree."""
    if decode.failure is None:
        return None
    inside = None
    for frame in reversed(decode.failure.frames):
        path = relative(frame.file)
        if path is None or path not in added:
            continue
        found = Frame(path, frame.line, frame.function)
        if frame.line in added[path]:
            return found
        inside = inside or found
    return inside
