"""Many releases in few words: `0.27.0 to 0.29.0 and 0.31.0`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from vllm_series.reports.printable import printable

_SHOWN = 4


def spans(releases: Iterable[str], judged: Sequence[str]) -> str:
    """Name `releases` by runs in the list of those that were judged, which is in their order.

    A run of two is named in full. Only the newest runs are named where there are many.
    """
    place = {release: at for at, release in enumerate(judged)}
    runs: list[list[str]] = []
    for release in sorted(set(releases), key=lambda one: place[one]):
        if runs and place[release] == place[runs[-1][-1]] + 1:
            runs[-1].append(release)
        else:
            runs.append([release])
    words: list[str] = []
    for run in runs:
        words += [f"{run[0]} to {run[-1]}"] if len(run) > 2 else run
    words = [printable(word) for word in words]
    if len(words) > _SHOWN:
        words = [f"{len(words) - _SHOWN + 1} more", *words[1 - _SHOWN :]]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
