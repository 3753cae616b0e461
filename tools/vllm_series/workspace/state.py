"""What a rebase has done so far, on disk, so that a kill at any moment costs nothing but time.

One file, replaced as a whole and flushed. It names commits only after they were made, and what it
does not name yet is done again, from the last commit that it does name: git's own half-done state
is never built upon. Which folder holds it is written down by series folder, so that `--continue`
needs no name.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vllm_series.errors import RefusedError, UsageError
from vllm_series.series import Entry
from vllm_series.upstream.store import Usage, cache_root

SCHEMA = 1

REBASE = "rebase"
"""The folder of the cache that holds the repositories of rebases."""
_POINTER = "open"

RUNNING = "running"
"""Under way; when found, it was cut off."""
STOPPED = "stopped"
"""A patch waits for a person."""
RESOLVING = "resolving"
"""A person's work is being taken over."""
REFUSED = "refused"
"""All patches are carried over, and the result is not what a series must be."""
WRITING = "writing"
"""The series folder is being replaced; this is always brought to its end."""


@dataclass(frozen=True, slots=True)
class Hunk:
    """Where a hunk of the patch stands in the new release, for a report. `number` counts from 1 in
    its file; `line` is None where it is not placed."""

    path: str
    number: int
    verdict: str
    line: int | None = None
    scope: str | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Settled:
    """A patch that is done. `commit` is None where it is left out; `tip` is what the next one goes
    on top of. `how` says what was done by whom, `since` the release that has it upstream."""

    name: str
    outcome: str
    tip: str
    commit: str | None = None
    how: str = ""
    since: str | None = None
    hunks: tuple[Hunk, ...] = ()
    evidence: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Open:
    """The patch that waits for a person. `left` gives the blob ids of files as they were left,
    where a file that nobody touched cannot be taken for an answer. `upstream` is what upstream did
    to the places of `hunks`, `patch` what the patch does there, both as diffs."""

    name: str
    reason: str
    paths: tuple[str, ...] = ()
    hunks: tuple[Hunk, ...] = ()
    left: Mapping[str, str] = field(default_factory=dict)
    upstream: str = ""
    patch: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """A series to be carried: from a folder (by name) to a release, into a folder."""

    source: str
    target: str
    onto: str


@dataclass(frozen=True, slots=True)
class Written:
    """A line that is finished. `misfits` are the other releases of the line that its series does
    not fit, `fits` those that it fits; with `fill` each misfit gets a folder of its own. `is_new`
    says that there was no such folder before."""

    line: Line
    outcome: str
    base: str
    patches: tuple[Settled, ...] = ()
    is_new: bool = False
    misfits: tuple[str, ...] = ()
    fits: tuple[str, ...] = ()
    fill: bool = False


@dataclass(frozen=True, slots=True)
class State:
    """One rebase. `chain` gives each patch's commits: the one it starts from and its own; None for
    one that is upstream as a whole."""

    line: Line
    base: str
    base_commit: str
    target_commit: str
    names: tuple[str, ...]
    chain: Mapping[str, tuple[str, str]]
    phase: str = RUNNING
    settled: tuple[Settled, ...] = ()
    open: Open | None = None
    problems: tuple[str, ...] = ()
    writing: Mapping[str, Any] | None = None

    @property
    def tip(self) -> str:
        """What the next patch goes on top of."""
        return self.settled[-1].tip if self.settled else self.target_commit


@dataclass(frozen=True, slots=True)
class Batch:
    """Everything that one command was asked for. `now` is what is under way, `queue` what comes
    after it, `done` what is finished. `project` is the folder
    that holds the hunk tests, unless `tests` names others. `fill` asks for folders of single
    releases where a line's releases differ; the rest are options of the command."""

    series_dir: str
    workdir: str
    project: str
    now: State | None = None
    queue: tuple[Line, ...] = ()
    done: tuple[Written, ...] = ()
    tests: tuple[str, ...] | None = None
    replace: bool = False
    renew: bool = False
    fill: bool = False
    add: bool = False


class Home:
    """Where the rebases of one series folder are kept, and the lock that only one command holds."""

    def __init__(self, series_dir: Path, folder: Path | None = None) -> None:
        self.series_dir = series_dir.resolve()
        key = hashlib.sha256(os.fsencode(self.series_dir)).hexdigest()[:16]
        self.folder = folder or cache_root() / REBASE / key
        self._pointer = self.folder / _POINTER

    @contextlib.contextmanager
    def locked(self, waiting: Callable[[str], None]) -> Iterator[int]:
        """Hold it alone; gives the descriptor that holds the lock. git's processes share it, so
        that none of a killed command is still at work when this comes back."""
        descriptor = self._locked(waiting)
        try:
            yield descriptor
        finally:
            # Only an empty one goes: nothing is open then.
            with contextlib.suppress(OSError):
                self.folder.rmdir()
            os.close(descriptor)

    def _locked(self, waiting: Callable[[str], None]) -> int:
        while True:
            self.folder.mkdir(parents=True, exist_ok=True)
            try:
                descriptor = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
            except FileNotFoundError:
                continue
            try:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    waiting(f"waiting for another rebase of {self.series_dir}")
                    fcntl.flock(descriptor, fcntl.LOCK_EX)
                if _is_at(descriptor, self.folder):
                    return descriptor
            except BaseException:
                os.close(descriptor)
                raise
            # Whoever held it has taken the folder away; the lock on what is gone holds nothing.
            os.close(descriptor)

    @property
    def default_workdir(self) -> Path:
        """The folder for a rebase unless `--workdir` names one; the same for all of its lines."""
        return self.folder / "repository"

    def workdir(self) -> Path | None:
        """The folder of the rebase that is open; None where none is."""
        try:
            return Path(os.fsdecode(self._pointer.read_bytes()))
        except FileNotFoundError:
            return None

    def load(self) -> Batch | None:
        """The rebase that is open, None where none is. Raises RefusedError where it is damaged."""
        folder = self.workdir()
        if folder is None:
            return None
        try:
            value = json.loads((folder / ".git" / "state.json").read_bytes())
            if value.pop("schema") != SCHEMA:
                raise ValueError("written by another vllm-series")
            return _batch(value)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RefusedError(
                f"the state of a rebase cannot be read: {folder}: {error}. "
                "Give it up with vllm-series rebase --abort."
            ) from error

    def opened(self) -> Batch:
        """The same; raises UsageError where none is open."""
        batch = self.load()
        if batch is None:
            raise UsageError(
                f"no rebase of {self.series_dir} is open. Start one: vllm-series rebase RELEASE."
            )
        return batch

    def save(self, batch: Batch) -> None:
        """Write it all down, and that it is open."""
        folder = Path(batch.workdir)
        value = {"schema": SCHEMA, **dataclasses.asdict(batch)}
        data = json.dumps(value, indent=1).encode("ascii")
        put(folder / ".git" / "state.json", data)
        if self.workdir() != folder:
            put(self._pointer, os.fsencode(folder))

    def close(self, batch: Batch, keep: bool) -> None:
        """Nothing is open any more; the folder goes unless it is to be kept."""
        self._pointer.unlink(missing_ok=True)
        if not keep:
            shutil.rmtree(batch.workdir, ignore_errors=True)

    def forget(self) -> None:
        """Give up whatever is open, also what cannot be read."""
        folder = self.workdir()
        self._pointer.unlink(missing_ok=True)
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def usage(root: Path) -> Usage:
    """What the repositories of rebases take in a cache."""
    sizes = [
        (Path(folder) / name).lstat().st_size
        for folder, _, names in os.walk(root / REBASE)
        for name in names
    ]
    return Usage(REBASE, len(sizes), sum(sizes))


def leftovers(root: Path, *, remove: bool) -> tuple[int, int]:
    """Bytes that a cache holds of rebases that are over, which `remove` takes away, and how many
    rebases are open: these hold a person's work and stay."""
    size = is_open = 0
    places = sorted((root / REBASE).iterdir()) if (root / REBASE).is_dir() else []
    for place in places:
        try:
            descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if (place / _POINTER).exists():
                is_open += 1
                continue
            size += sum(
                (Path(folder) / name).lstat().st_size
                for folder, _, names in os.walk(place)
                for name in names
            )
            if remove:
                shutil.rmtree(place, ignore_errors=True)
        except BlockingIOError:
            is_open += 1
        finally:
            os.close(descriptor)
    return size, is_open


def _is_at(descriptor: int, folder: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), folder.stat())
    except FileNotFoundError:
        return False


def save_source(folder: Path, entries: tuple[Entry, ...], listing: bytes) -> None:
    """Keep the patches as they were at the start, and the text of their `series` file."""
    value = {
        "entries": [[entry.name, _text(entry.text)] for entry in entries],
        "series": _text(listing),
    }
    put(folder / ".git" / "source.json", json.dumps(value).encode("ascii"))


def load_source(folder: Path) -> tuple[tuple[Entry, ...], bytes]:
    """What `save_source` kept."""
    value = json.loads((folder / ".git" / "source.json").read_bytes())
    entries = tuple(Entry(name, _bytes(text)) for name, text in value["entries"])
    return entries, _bytes(value["series"])


def put(place: Path, data: bytes) -> None:
    """Replace a file as a whole, on disk when this returns."""
    place.parent.mkdir(parents=True, exist_ok=True)
    fresh = place.with_name(f".{place.name}.new")
    with fresh.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(place)
    flush(place.parent)


def flush(folder: Path) -> None:
    """Let what a folder lists be on disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _batch(value: dict[str, Any]) -> Batch:
    now = value["now"]
    return Batch(
        **{
            **value,
            "now": _state(now) if now else None,
            "queue": tuple(Line(**line) for line in value["queue"]),
            "done": tuple(_written(item) for item in value["done"]),
            "tests": tuple(value["tests"]) if value["tests"] is not None else None,
        }
    )


def _written(value: dict[str, Any]) -> Written:
    return Written(
        Line(**value["line"]),
        value["outcome"],
        value["base"],
        tuple(_settled(item) for item in value["patches"]),
        value.get("is_new", False),
        tuple(value.get("misfits", ())),
        tuple(value.get("fits", ())),
        value.get("fill", False),
    )


def _state(value: dict[str, Any]) -> State:
    waits = value["open"]
    return State(
        **{
            **value,
            "line": Line(**value["line"]),
            "names": tuple(value["names"]),
            "chain": {name: (pair[0], pair[1]) for name, pair in value["chain"].items()},
            "settled": tuple(_settled(item) for item in value["settled"]),
            "problems": tuple(value["problems"]),
            "open": Open(
                waits["name"],
                waits["reason"],
                tuple(waits["paths"]),
                tuple(Hunk(**hunk) for hunk in waits["hunks"]),
                waits["left"],
                waits["upstream"],
                waits["patch"],
            )
            if waits
            else None,
        }
    )


def _settled(value: dict[str, Any]) -> Settled:
    return Settled(
        **{
            **value,
            "hunks": tuple(Hunk(**hunk) for hunk in value["hunks"]),
            "evidence": tuple(value["evidence"]),
            "notes": tuple(value["notes"]),
        }
    )
