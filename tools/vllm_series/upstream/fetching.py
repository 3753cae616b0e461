"""Files of many releases at once, each on its own, so that one that fails hides no other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping

from vllm_series.errors import VllmSeriesError

WORKERS = 8
"""Releases at a time; beyond that the processor is what is waited for, not the network."""


def each(
    wanted: Mapping[str, Collection[str]],
    fetch: Callable[[str, Collection[str]], None],
    stop: threading.Event,
    say: Callable[[str], None],
) -> dict[str, VllmSeriesError]:
    """Call `fetch` with every release and its paths, several at a time; the errors by release.

    An interruption (Ctrl-C) sets `stop`, drops what has not begun, and is raised at once.
    """
    from concurrent.futures import ThreadPoolExecutor, as_completed

    failed: dict[str, VllmSeriesError] = {}
    pool = ThreadPoolExecutor(min(WORKERS, max(1, len(wanted))))
    try:
        futures = {pool.submit(fetch, release, paths): release for release, paths in wanted.items()}
        for number, future in enumerate(as_completed(futures), 1):
            release = futures[future]
            try:
                future.result()
            except VllmSeriesError as error:
                failed[release] = error
            say(f"{release} read, {number} of {len(futures)}")
    except BaseException:
        stop.set()
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()
    return failed
