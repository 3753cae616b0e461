"""What a file is to hold and look like, and how one comes to be: new, whole, owned as it should be.

The single steps of `journal`, each on one file that did not exist before.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_series.errors import EnvironmentRefusedError, VllmSeriesError
from vllm_series.installation.stack import FileState

if TYPE_CHECKING:
    from collections.abc import Iterator

FILE_MODE = 0o644
FOLDER_MODE = 0o755
"""Of what is created without saying more, and of all that is kept for later."""
_CHUNK = 1 << 20
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.EACCES)


@dataclass(frozen=True, slots=True)
class Content:
    """What a file is to hold: bytes, or a file to copy from; and what it is to look like.

    `sha256` (hex) is checked while copying. `mtime_ns` None leaves the time of writing. The owner
    is that of `owner`, an existing file or folder. `twin` is a file with just these bytes that has
    no other name and is about to be replaced, so that it may serve by a second name: making a new
    file can take a file system half a millisecond.
    """

    source: bytes | Path
    mode: int
    owner: Path
    mtime_ns: int | None = None
    sha256: str | None = None
    twin: Path | None = None


def digest_of(place: Path) -> str:
    """The hex SHA-256 of a file, read in pieces."""
    digest = hashlib.sha256()
    with place.open("rb", buffering=0) as file:
        while piece := file.read(_CHUNK):
            digest.update(piece)
    return digest.hexdigest()


def state_of(place: Path) -> FileState:
    """What a file is now. Raises EnvironmentRefusedError for a link."""
    status = os.lstat(place)
    if not stat.S_ISREG(status.st_mode):
        raise EnvironmentRefusedError(
            f"{place} is not a regular file. Install vLLM with real files: uv with "
            "--link-mode=copy or hardlink, pip as it is."
        )
    return FileState(
        digest_of(place), status.st_size, stat.S_IMODE(status.st_mode), status.st_mtime_ns
    )


@contextlib.contextmanager
def open_folder(place: Path) -> Iterator[int]:
    descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def write_file(place: Path, content: Content, flush: bool) -> str:
    """Make a file that did not exist; its hex SHA-256."""
    source = content.source
    data = source if isinstance(source, bytes) else source.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    if content.sha256 and digest != content.sha256:
        raise VllmSeriesError(
            f"{source!s} is not what was saved there, so it cannot be put back. "
            "Reinstall vLLM; nothing was changed."
        )
    descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        look_like(descriptor, content)
        if flush:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return digest


def look_like(descriptor: int, content: Content) -> None:
    """Owner, then mode (a change of owner may clear bits), then time."""
    wanted, status = content.owner.stat(), os.fstat(descriptor)
    if (wanted.st_uid, wanted.st_gid) != (status.st_uid, status.st_gid):
        try:
            os.fchown(descriptor, wanted.st_uid, wanted.st_gid)
        except PermissionError as error:
            raise EnvironmentRefusedError(
                f"{content.owner} belongs to user {wanted.st_uid}, group {wanted.st_gid}, and a "
                "changed file could not be given back to them. Run as that user; nothing was "
                "changed."
            ) from error
    os.fchmod(descriptor, content.mode)
    if content.mtime_ns is not None:
        os.utime(descriptor, ns=(content.mtime_ns, content.mtime_ns))


def linked(twin: Path, place: Path) -> bool:
    """Give a file a second name; False where the file system or its owner does not let us."""
    try:
        os.link(twin, place, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        return False
    return True
