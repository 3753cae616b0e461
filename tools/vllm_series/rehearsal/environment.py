"""The environment in which the scheduler of a release is imported on a machine without a GPU.

It is that of the release's CPU build, the one that `smoke` makes and keeps. A release that has
wheels for GPUs alone is rehearsed as well: no kernel is called, so its package only has to be
imported, and what the newest CPU build before it brings along is enough for that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from packaging.version import Version

from vllm_series.smoke.device import Device
from vllm_series.smoke.environment import Lock, NotRunError, Sources, is_there, make, resolve
from vllm_series.upstream.open import UpstreamOptions, open_catalog

CPU, GPU = Device.CPU.distribution, Device.NVIDIA.distribution


def interpreter_for(release: str, say: Callable[[str], None]) -> Path:
    """The Python of an environment that holds a release, made where there is none yet; `say` is
    told what that takes before it is spent.

    Raises NotRunError where the release has no wheel, or the torch that it needs cannot be had.
    """
    sources = Sources()
    try:
        lock = resolve(release, Device.CPU, sources)
    except NotRunError:
        older = _build_before(release)
        if older is None:
            raise
        lock = resolve(older, Device.CPU, sources)
        borrowed = lent(lock, release)
        if not is_there(borrowed):
            say(
                f"{release} has no CPU build: installing its wheel for GPUs, with the "
                f"{len(lock.packages) - 1} packages of {CPU} {older} beside it, up to 4 GiB"
            )
        return make(borrowed, sources, lambda _cost: None).python
    return make(lock, sources, say).python


def lent(lock: Lock, release: str) -> Lock:
    """What a CPU build is locked to, with the wheel for GPUs of a release in its place."""
    others = tuple(one for one in lock.packages if not one.startswith(f"{CPU}=="))
    return replace(lock, release=release, packages=(*others, f"{GPU}=={release}"))


def _build_before(release: str) -> str | None:
    """The newest CPU build before a release that has wheels for GPUs alone, else None: a build that
    is there and cannot be had is a reason not to run, not to run something else."""
    if release not in _releases(GPU) or release in (builds := _releases(CPU)):
        return None
    older = [one for one in builds if Version(one) < Version(release)]
    return max(older, key=Version, default=None)


def _releases(distribution: str) -> list[str]:
    listed = open_catalog(UpstreamOptions(distribution=distribution)).releases()
    return [one.version for one in listed if not one.yanked and not one.prerelease]
