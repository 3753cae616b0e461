"""Many files change at once, or none does, whatever moment the process is killed.

The steps are those of any write-ahead log, on a folder instead of a database:

1. `prepare`: a journal names everything that will appear. Then folders are made, files that nothing
   refers to yet are written in place, new contents are written beside their targets, and each
   target gets a second name (a hard link) that keeps its old content. All of it is flushed.
2. `commit`: the journal is renamed, which is the one moment at which the change happens. Then the
   new contents are renamed over their targets, and what must go is unlinked.
3. Everything written is read back and compared; then the old contents are dropped and the journal
   removed.

Killed before 2, the next command removes what `prepare` had made. Killed after, it finishes, unless
an installer or a hand has changed a target in between: then it goes back and leaves theirs alone.
A failure that is not a kill (a target that cannot be replaced, a read-back that differs) renames
the journal to `undo` and gives every target its old content back. Nothing is written in place:
installers hard-link files from a cache that other environments share.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vllm_series.errors import EnvironmentRefusedError, RefusedError, VllmSeriesError
from vllm_series.installation.content import (
    FILE_MODE,
    Content,
    digest_of,
    linked,
    look_like,
    open_folder,
    write_file,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

SCHEMA = 1
NEW = ".vllm-series-new"
OLD = ".vllm-series-old"
_FEW = 64
"""Up to so many written files, each is flushed by itself; beyond, one `sync` takes a quarter of the
time (800 files: 0.06 s instead of 0.24 s). For few files a `sync` could wait for whatever else the
machine is writing, such as a model being downloaded."""


@dataclass(slots=True)
class Work:
    """One change of a folder; all paths are posix and relative to it.

    `makes`: folders, parents first. `creates`: files at places that nothing reads before the
    commit. `puts`: files that appear or are replaced at the commit. `removes`: files that go then.
    `clears`: folders to remove afterwards where they are empty. `discards`: whole folders to remove
    afterwards.
    """

    makes: list[tuple[str, int]] = field(default_factory=list)
    creates: dict[str, Content] = field(default_factory=dict)
    puts: dict[str, Content] = field(default_factory=dict)
    removes: list[str] = field(default_factory=list)
    clears: list[str] = field(default_factory=list)
    discards: list[str] = field(default_factory=list)


class Journal:
    """The journal of one folder, `root`; its files are named `stem` plus the state it is in."""

    def __init__(self, root: Path, stem: str) -> None:
        self._root = root
        self._stem = root / stem

    def _file(self, state: str) -> Path:
        return self._stem.with_name(f"{self._stem.name}.{state}")

    def is_open(self) -> bool:
        """Whether a change is going on, or was left over by a process that is gone."""
        return any(
            os.path.lexists(self._file(state)) for state in ("new", "prepare", "commit", "undo")
        )

    def run(self, work: Work) -> None:
        """Do all of `work` or nothing.

        Raises EnvironmentRefusedError where the disk does not allow it, RefusedError for a name
        that the journal needs for itself; the folder is then as it was before.
        """
        for path in [*work.creates, *work.puts, *work.removes]:
            if path.endswith((NEW, OLD)):
                raise RefusedError(
                    f"{path} is named as the files that a change keeps beside its targets. "
                    "Leave it out of the patch."
                )
        for path in [*work.creates, *(path for path, _ in work.makes)]:
            if os.path.lexists(self._root / path):
                raise EnvironmentRefusedError(
                    f"{self._root / path} is in the way, left over from something else. "
                    "Move it away; nothing was changed."
                )
        try:
            self._run(work)
        except OSError as error:
            raise _refused(error, self._root) from error

    def _run(self, work: Work) -> None:
        names = {
            "schema": SCHEMA,
            "makes": [path for path, _ in work.makes],
            "creates": list(work.creates),
            "puts": {path: _intended(content) for path, content in work.puts.items()},
            "fresh": [path for path in work.puts if not os.path.lexists(self._root / path)],
            "removes": work.removes,
            "held": {path: digest_of(self._root / path) for path in self._existing(work)},
            "clears": work.clears,
            "discards": work.discards,
        }
        replaced = [*work.puts, *work.removes]
        flush_each = len(work.creates) + len(work.puts) <= _FEW
        self._open(json.dumps(names).encode())
        try:
            self._flush_folders([self._stem.parent])
            written = self._write(work, flush_each)
            self._flush([*work.creates, *(path for path, _ in work.makes), *replaced], flush_each)
            self._file("prepare").rename(self._file("commit"))
            self._flush_folders([self._stem.parent])
            self._commit(names)
            self._read_back(work, written)
            self._flush(replaced, flush_each)
        except BaseException:
            try:
                self._undo(names, ours=True)
            except OSError as error:
                raise _stuck(error, self._root) from error
            raise
        # The change is done; should the tidying fail, the next command does it and says so.
        with contextlib.suppress(OSError):
            self._finish(names)

    def _existing(self, work: Work) -> list[str]:
        """The targets that are there before the change."""
        return [path for path in (*work.puts, *work.removes) if (self._root / path).is_file()]

    def recover(self) -> bool:
        """Bring a change that was cut off to its end or its beginning; True if there was one.

        Where an installer or a hand has changed a target in between, there is no end to go to: what
        still holds our bytes gets its old content back, what holds others keeps them.

        Only for the holder of the lock. Raises EnvironmentRefusedError where the disk does not
        allow it.
        """
        if not self.is_open():
            return False
        try:
            for state in ("undo", "commit", "prepare"):
                if self._file(state).exists():
                    names = self._read(self._file(state))
                    if state == "commit" and self._is_done(names):
                        self._finish(names)
                    elif state == "commit" and self._is_untouched(names):
                        try:
                            self._commit(names)
                        except OSError:
                            self._undo(names, ours=True)
                            raise
                        self._finish(names)
                    else:
                        self._undo(names, ours=state != "commit" and self._is_ours(names))
                    return True
            with contextlib.suppress(OSError):
                self._file("new").unlink()
        except OSError as error:
            raise _stuck(error, self._root) from error
        return False

    def _open(self, data: bytes) -> None:
        fresh = self._file("new")
        try:
            fresh.unlink(missing_ok=True)
            write_file(fresh, Content(data, FILE_MODE, self._stem.parent), flush=True)
            fresh.rename(self._file("prepare"))
        except BaseException:
            with contextlib.suppress(OSError):
                fresh.unlink()
            raise

    def _write(self, work: Work, flush_each: bool) -> dict[str, str]:
        """Everything of `prepare`; the digests of what the targets must hold afterwards."""
        for path, mode in work.makes:
            place = self._root / path
            place.mkdir(0o700)
            with open_folder(place) as descriptor:
                look_like(descriptor, Content(b"", mode, place.parent))
        for path, content in work.creates.items():
            if not (content.twin and linked(content.twin, self._root / path)):
                write_file(self._root / path, content, flush_each)
        written = {}
        for path, content in work.puts.items():
            fresh = _beside(self._root / path, NEW)
            fresh.unlink(missing_ok=True)
            written[path] = write_file(fresh, content, flush_each)
        for path in [*work.puts, *work.removes]:
            _keep(self._root / path)
        return written

    def _commit(self, names: dict[str, Any]) -> None:
        for path in names["puts"]:
            place = self._root / path
            with contextlib.suppress(FileNotFoundError):
                _beside(place, NEW).rename(place)
        for path in names["removes"]:
            (self._root / path).unlink(missing_ok=True)

    def _read_back(self, work: Work, written: dict[str, str]) -> None:
        for path, content in work.puts.items():
            place = self._root / path
            status = os.lstat(place)
            if digest_of(place) != written[path] or status.st_mode & 0o7777 != content.mode:
                raise VllmSeriesError(
                    f"{place} does not hold what was written to it. "
                    "The change was undone; check the disk and who else writes there."
                )
        for path in work.removes:
            if os.path.lexists(self._root / path):
                raise VllmSeriesError(
                    f"{self._root / path} is still there after it was removed. "
                    "The change was undone; check who else writes there."
                )

    def _finish(self, names: dict[str, Any]) -> None:
        for path in [*names["puts"], *names["removes"]]:
            _beside(self._root / path, OLD).unlink(missing_ok=True)
        for path in names["discards"]:
            import shutil

            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(self._root / path)
        for path in names["clears"]:
            with contextlib.suppress(OSError):
                (self._root / path).rmdir()
        self._file("commit").unlink()

    def _is_done(self, names: dict[str, Any]) -> bool:
        """Whether the change was read back already and only its tidying was cut off: that is what
        drops old contents first."""
        return any(
            not os.path.lexists(_beside(self._root / path, NEW))
            and not os.path.lexists(_beside(self._root / path, OLD))
            for path in names["puts"]
            if path not in names["fresh"]
        )

    def _is_untouched(self, names: dict[str, Any]) -> bool:
        """Whether every target holds what it held before, or what it is to hold."""
        for path, sha256 in names["puts"].items():
            place = self._root / path
            if not os.path.lexists(_beside(place, NEW)):
                if not _holds(place, sha256):
                    return False
            elif path in names["fresh"]:
                if os.path.lexists(place):
                    return False
            elif not _holds(place, names["held"][path]):
                return False
        return all(
            not os.path.lexists(self._root / path)
            or _holds(self._root / path, names["held"].get(path, ""))
            for path in names["removes"]
        )

    def _is_ours(self, names: dict[str, Any]) -> bool:
        """Whether every target holds its old content or ours, as an undoing that was cut off leaves
        them."""
        return all(
            _holds(self._root / path, sha256)
            or _holds(self._root / path, names["held"].get(path, ""))
            or (path in names["fresh"] and not os.path.lexists(self._root / path))
            for path, sha256 in names["puts"].items()
        )

    def _undo(self, names: dict[str, Any], *, ours: bool) -> None:
        """Give every target its old content back; `prepare` alone has changed none of them.

        `ours` says that nobody else can have written since; otherwise a target is only given back
        while it holds what this change put there.
        """
        if self._file("commit").exists():
            self._file("commit").rename(self._file("undo"))
        committed = self._file("undo").exists()
        for path, sha256 in names["puts"].items():
            place = self._root / path
            fresh, old = _beside(place, NEW), _beside(place, OLD)
            if committed and not os.path.lexists(fresh) and (ours or _holds(place, sha256)):
                if path in names["fresh"]:
                    _drop(place)
                else:
                    with contextlib.suppress(FileNotFoundError):
                        old.rename(place)
            _drop(old)
            _drop(fresh)
        for path in names["removes"]:
            place = self._root / path
            old = _beside(place, OLD)
            if not os.path.lexists(place) and (ours or not _is_compiled(path)):
                with contextlib.suppress(FileNotFoundError):
                    old.rename(place)
            _drop(old)
        for path in names["creates"]:
            _drop(self._root / path)
        for path in reversed(names["makes"]):
            with contextlib.suppress(OSError):
                (self._root / path).rmdir()
        self._file("undo" if committed else "prepare").unlink()

    def _read(self, place: Path) -> dict[str, Any]:
        try:
            names: dict[str, Any] = json.loads(place.read_bytes())
            if names["schema"] != SCHEMA:
                raise ValueError(f"form {names['schema']}")
            names["puts"], names["held"] = dict(names["puts"]), dict(names.get("held", ()))
            for key in ("makes", "creates", "puts", "fresh", "removes", "clears", "discards"):
                for path in names[key]:
                    if path.startswith("/") or ".." in path.split("/"):
                        raise ValueError(f"{path!r} leaves the folder")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise EnvironmentRefusedError(
                f"{place} is damaged ({error}), so a change that was cut off cannot be brought to "
                "an end. Reinstall vLLM."
            ) from error
        return names

    def _flush(self, paths: list[str], each: bool) -> None:
        """Make the names of these files as lasting as what is in them."""
        if not each:
            os.sync()
            return
        self._flush_folders(dict.fromkeys((self._root / path).parent for path in paths))

    def _flush_folders(self, folders: Iterable[Path]) -> None:
        for folder in folders:
            with open_folder(folder) as descriptor:
                os.fsync(descriptor)


def _intended(content: Content) -> str:
    """The hex SHA-256 of what a target is to hold."""
    if content.sha256:
        return content.sha256
    source = content.source
    return hashlib.sha256(source).hexdigest() if isinstance(source, bytes) else digest_of(source)


def _holds(place: Path, sha256: str) -> bool:
    return place.is_file() and not place.is_symlink() and digest_of(place) == sha256


def _is_compiled(path: str) -> bool:
    """Whether it is bytecode, which an installer that came in between has made anew or dropped."""
    return path.endswith(".pyc")


def _beside(place: Path, suffix: str) -> Path:
    return place.with_name(f".{place.name}{suffix}")


def _drop(place: Path) -> None:
    """Remove what may not be there, as under a name that the file system could never have held."""
    try:
        place.unlink(missing_ok=True)
    except OSError as error:
        if error.errno not in (errno.ENAMETOOLONG, errno.ENOTDIR):
            raise


def _keep(place: Path) -> None:
    """A second name for the old content; a copy where the file system has no hard links."""
    old = _beside(place, OLD)
    old.unlink(missing_ok=True)
    with contextlib.suppress(FileNotFoundError):
        if not linked(place, old):
            import shutil

            shutil.copy2(place, old)


def _refused(error: OSError, root: Path) -> EnvironmentRefusedError:
    place = error.filename or root
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return EnvironmentRefusedError(
            f"{place} cannot be written: {error.strerror}. Run as the owner of the environment, on "
            "a file system that is mounted for writing; nothing was changed."
        )
    return EnvironmentRefusedError(f"{place}: {error.strerror}. Nothing was changed.")


def _stuck(error: OSError, root: Path) -> EnvironmentRefusedError:
    return EnvironmentRefusedError(
        f"a change of {root} was cut off and cannot be brought to an end: {error.filename}: "
        f"{error.strerror}. Make that writable and run any vllm-series command."
    )
