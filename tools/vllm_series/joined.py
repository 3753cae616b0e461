"""The reports of `smoke` from many jobs, joined: one run a release and device, none lost.

A job that died leaves no report, and a device without a machine had no job. Held against the
matrix that was to run, the first is a failure and the second is `not run`; neither is ever passed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from vllm_series.errors import UsageError
from vllm_series.smoke.device import Device

SCHEMA = 1
"""The form of a report that is read here."""

PASSED, TIE, NOT_RUN, FAILED, NO_REPORT = "passed", "tie", "not run", "failed", "no report"
_BAD = (FAILED, NO_REPORT)


@dataclass(frozen=True, slots=True)
class Scenario:
    """One scenario in one mode (`stock`, `off`, `on`). `seconds` is the decode's time, `drafted`
    and `accepted` count tokens and are None without speculation, `broken` names the checks that
    failed, with their details."""

    name: str
    mode: str
    outcome: str
    reason: str | None = None
    seconds: float | None = None
    drafted: int | None = None
    accepted: int | None = None
    broken: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Run:
    """One release on one device: `cpu`, or `gpu` of any make, as the matrix has it. `outcome` is
    `passed`, `failed`, `not run` or `no report`; `source` is the report's file, None where there is
    none; `broken` are promises of patches that did not hold, `blame` holds a sentence each."""

    release: str
    device: str
    outcome: str
    reason: str | None = None
    seconds: float | None = None
    disk_bytes: int | None = None
    patches: tuple[str, ...] = ()
    scenarios: tuple[Scenario, ...] = ()
    broken: tuple[str, ...] = ()
    blame: tuple[str, ...] = ()
    source: Path | None = None

    @property
    def is_bad(self) -> bool:
        """Whether it broke a promise, or left no word of whether it did."""
        return self.outcome in _BAD


@dataclass(frozen=True, slots=True)
class Joined:
    """All runs, in the order of the matrix; `faults` are reports that say nothing, or too much."""

    runs: tuple[Run, ...]
    faults: tuple[str, ...] = ()

    @property
    def outcome(self) -> str:
        """`failed` where any run is or a report is at fault, `not run` where nothing ran, else
        `passed`."""
        if self.faults or any(run.is_bad for run in self.runs):
            return FAILED
        return PASSED if any(run.outcome == PASSED for run in self.runs) else NOT_RUN

    @property
    def counts(self) -> dict[str, int]:
        """How many runs have each outcome, bad ones first; outcomes that none has are left out."""
        every = [run.outcome for run in self.runs]
        order = (FAILED, NO_REPORT, NOT_RUN, PASSED)
        return {word: every.count(word) for word in order if word in every}


@dataclass
class _Reading:
    """What has been read so far."""

    runs: dict[tuple[str, str], Run] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)


def join(
    places: Iterable[Path],
    expected: Sequence[tuple[str, str]] = (),
    not_run: Mapping[str, str] | None = None,
) -> Joined:
    """Read reports, and hold them against what was to run.

    `places` are files, or folders whose `smoke-*.json` count at any depth; a folder that is not
    there is empty. `expected` are releases with devices, in the order to show; `not_run` gives the
    reason why a device has no jobs. A report of what was not expected comes last, newest first.
    """
    reading = _Reading()
    for place in places:
        for path in sorted(place.rglob("smoke-*.json")) if not place.is_file() else [place]:
            _read(path, reading)
    reasons = not_run or {}
    rest = sorted(
        (key for key in reading.runs if key not in expected),
        key=lambda key: (Version(key[0]), key[1]),
        reverse=True,
    )
    order = [*dict.fromkeys(expected), *rest]
    runs = tuple(reading.runs.get(key) or _missing(*key, reasons) for key in order)
    return Joined(runs, tuple(reading.faults))


def expected_jobs(text: str) -> tuple[tuple[str, str], ...]:
    """Release and device of each job that `matrix --for github` printed.

    Raises UsageError for anything else.
    """
    try:
        return tuple(
            (str(job["release"]), str(job["device"])) for job in json.loads(text)["include"]
        )
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"--matrix {text[:40]!r} is no matrix ({type(error).__name__}: {error}). Give what "
            "vllm-series matrix --for github printed."
        ) from None


def _missing(release: str, device: str, reasons: Mapping[str, str]) -> Run:
    if device in reasons:
        return Run(release, device, NOT_RUN, reasons[device])
    return Run(release, device, NO_REPORT, "its job left no report; see its log")


def _read(path: Path, reading: _Reading) -> None:
    try:
        run = _run(json.loads(path.read_bytes()), path)
    except OSError as error:
        reading.faults.append(f"{path} cannot be read: {error.strerror}.")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        reading.faults.append(f"{path} is no report of smoke: {type(error).__name__}: {error}.")
    else:
        other = reading.runs.setdefault((run.release, run.device), run)
        if other is not run:
            reading.faults.append(
                f"{path} is a second report of {run.release} on {run.device}, beside "
                f"{other.source}; the first counts."
            )


def _run(value: dict[str, Any], path: Path) -> Run:
    if value["schema"] != SCHEMA:
        raise ValueError(f"form {value['schema']}, this vllm-series reads {SCHEMA}")
    try:
        Version(value["release"])
    except InvalidVersion as error:
        raise ValueError(str(error)) from None
    if value["outcome"] not in (PASSED, FAILED, NOT_RUN):
        raise ValueError(f"no outcome: {value['outcome']!r}")
    return Run(
        value["release"],
        "gpu" if Device(value["device"]).is_gpu else "cpu",
        value["outcome"],
        "; ".join((value.get("reason") or "").splitlines()) or None,
        _number(value, "seconds"),
        _number(value, "disk_bytes"),
        tuple(value.get("patches", ())),
        tuple(map(_scenario, value.get("scenarios", ()))),
        _broken(value.get("promises", ())),
        tuple(map(_sentence, value.get("blame") or ())),
        path,
    )


def _scenario(value: dict[str, Any]) -> Scenario:
    return Scenario(
        value["scenario"],
        value["mode"],
        value["outcome"],
        value.get("reason"),
        _number(value, "seconds"),
        _number(value, "drafted"),
        _number(value, "accepted"),
        _broken(value.get("checks", ())),
    )


def _broken(checks: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    """The checks that failed: whose promise it is, what was held, what came out."""
    return tuple(
        ": ".join(filter(None, (check.get("patch"), check["check"], check.get("detail"))))
        for check in checks
        if check["outcome"] == FAILED
    )


def _number(value: dict[str, Any], key: str) -> Any:
    """The number under a key, None where there is none."""
    found = value.get(key)
    if found is not None and (isinstance(found, bool) or not isinstance(found, int | float)):
        raise ValueError(f"{key} is no number: {found!r}")
    return found


def _sentence(blamed: Any) -> str:
    """What `blame` found, in one line: of an object its keys with a text or a number, without the
    log and whatever else takes more room than a page for many releases has."""
    if isinstance(blamed, dict):
        short = {key: one for key, one in blamed.items() if isinstance(one, str | int | float)}
        return ", ".join(f"{key} {one}" for key, one in short.items())
    return str(blamed)
