"""Real environments for the tests: vLLM put there by uv or pip, and what lies in them to the byte.

Environments made by uv are hard links into its cache: a third of a second and no space, as long as
the temporary folder lies on the file system of that cache.
"""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from stock import cache_dir
from vllm_series.environments import find_tree
from vllm_series.report import file_diff
from vllm_series.steps import FileStep, PatchStep

if TYPE_CHECKING:
    from vllm_series.trees import DiskTree

TOOLS = Path(__file__).resolve().parent.parent / "tools"
SCHEDULER = "vllm/v1/core/sched/scheduler.py"
UTILS = "vllm/v1/core/sched/utils.py"
CRLF = "vllm/config/fault_tolerance.py"
_LARGE = 1 << 20


@lru_cache
def uv() -> str:
    """uv, as found or as installed into the cache folder of these tests."""
    found = shutil.which("uv")
    if found:
        return found
    home = cache_dir().parent / "uv"
    if not (home / "bin" / "uv").exists():
        subprocess.run([sys.executable, "-m", "venv", home], check=True)
        run(home / "bin" / "python", "-m", "pip", "install", "--quiet", "uv")
    return str(home / "bin" / "uv")


def run(*command: str | os.PathLike[str], **environment: str) -> str:
    """What a command prints; fails with all that it said."""
    done = subprocess.run(
        [os.fspath(part) for part in command],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def uv_environment(folder: Path, *requirements: str | Path, **environment: str) -> Path:
    """A virtual environment by uv with these requirements; its site-packages."""
    run(uv(), "venv", "--quiet", "--python", sys.executable, folder, **environment)
    if requirements:
        uv_install(folder, *requirements, **environment)
    return site_packages(folder)


def uv_install(folder: Path, *arguments: str | Path, **environment: str) -> None:
    # vLLM asks for a newer Python than this project does; nothing of it is run here.
    newer = () if sys.version_info >= (3, 11) else ("--python-version", "3.11")
    run(
        *(uv(), "pip", "install", "--quiet", "--no-deps", *newer),
        *("--python", folder / "bin" / "python", *arguments),
        **environment,
    )


def pip_environment(folder: Path, requirement: str | Path) -> Path:
    """A virtual environment by venv and pip, bytecode compiled; its site-packages."""
    run(sys.executable, "-m", "venv", folder)
    run(*pip(folder), "install", "--quiet", "--no-deps", "--ignore-requires-python", requirement)
    return site_packages(folder)


def pip(folder: Path) -> tuple[str, ...]:
    """The start of a command of an environment's own pip."""
    return (str(python(folder)), "-m", "pip", "--disable-pip-version-check")


def python(folder: Path) -> Path:
    return folder / "bin" / "python"


def site_packages(folder: Path) -> Path:
    (found,) = (folder / "lib").glob("python3.*/site-packages")
    return found


def wheel(release: Path, folder: Path, version: str | None = None) -> Path:
    """A wheel with the real Python files and metadata of an unpacked release, 30 MB instead of 330,
    optionally under another version."""
    (info,) = release.glob("*.dist-info")
    name, _, old = info.name.removesuffix(".dist-info").partition("-")
    version = version or old
    target = folder / f"{name}-{version}-py3-none-any.whl"
    rows = []
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:

        def add(path: str, data: bytes) -> None:
            archive.writestr(path, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
            rows.append(f"{path},sha256={digest},{len(data)}\n")

        for source in sorted((release / "vllm").rglob("*.py")):
            add(source.relative_to(release).as_posix(), source.read_bytes())
        metadata = (info / "METADATA").read_bytes()
        again = metadata.replace(f"Version: {old}\n".encode(), f"Version: {version}\n".encode(), 1)
        dist_info = f"{name}-{version}.dist-info"
        add(f"{dist_info}/METADATA", again)
        add(
            f"{dist_info}/WHEEL",
            b"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr(f"{dist_info}/RECORD", "".join(rows) + f"{dist_info}/RECORD,,\n")
    return target


Snapshot = dict[str, tuple[object, ...]]


def snapshot(root: Path) -> Snapshot:
    """Everything below a folder: mode, owner, time and content of each file, mode of each folder.

    Files above 1 MB (compiled extensions) are known by inode, size and time.
    """
    found: Snapshot = {}
    for folder, names, files in os.walk(root):
        for name in names:
            place = Path(folder) / name
            found[str(place.relative_to(root)) + "/"] = (place.lstat().st_mode,)
        for name in files:
            place = Path(folder) / name
            status = place.lstat()
            content: object = (
                status.st_ino
                if status.st_size > _LARGE
                else str(place.readlink())
                if place.is_symlink()
                else hashlib.sha256(place.read_bytes()).hexdigest()
            )
            found[str(place.relative_to(root))] = (
                status.st_mode,
                status.st_uid,
                status.st_gid,
                status.st_size,
                status.st_mtime_ns,
                content,
            )
    return found


def contents(found: Snapshot) -> dict[str, tuple[object, object]]:
    """Of a snapshot, what two installations of one wheel share: modes, and contents or sizes."""
    return {
        path: (state[0], state[3] if isinstance(state[-1], int) and len(state) > 1 else state[-1])
        for path, state in found.items()
        if "RECORD" not in path
    }


def steps(tree: DiskTree) -> list[PatchStep]:
    """Three patches, three deep on the scheduler: one file is created and changed by the next, one
    is deleted, one only changes its mode."""
    scheduler, utils = texts(tree, SCHEDULER, UTILS)
    envs = texts(tree, "vllm/envs.py")[0]
    new = "vllm/v1/core/sched/added/width.py"
    planned = [
        PatchStep(
            "first.patch",
            b"",
            (
                FileStep(SCHEDULER, scheduler, scheduler + b"FIRST = 1\n"),
                FileStep(new, None, b"WIDTH = 7\n"),
            ),
        ),
        PatchStep(
            "second.patch",
            b"",
            (
                FileStep(SCHEDULER, scheduler + b"FIRST = 1\n", scheduler + b"FIRST = 2\n"),
                FileStep(new, b"WIDTH = 7\n", b"WIDTH = 3\n"),
                FileStep("vllm/envs.py", envs, envs, mode=0o755),
            ),
        ),
        PatchStep(
            "third.patch",
            b"",
            (
                FileStep(SCHEDULER, scheduler + b"FIRST = 2\n", scheduler + b"THIRD = 3\n"),
                FileStep(UTILS, utils, None),
            ),
        ),
    ]
    return [replace(step, text=_diff(step)) for step in planned]


def _diff(step: PatchStep) -> bytes:
    """The text that a patch with these files has."""
    return "".join(file_diff(file.path, file.before, file.after) for file in step.files).encode()


def part_of(release: Path, folder: Path, *parts: str) -> DiskTree:
    """A private copy of `vllm/*.py` and some folders of a release, with its dist-info and a RECORD
    of just these files: as good as the whole where only single files change, and much faster."""
    (info,) = release.glob("*.dist-info")
    for source in (info, *(release / part for part in parts or ("vllm/v1", "vllm/config"))):
        shutil.copytree(source, folder / source.relative_to(release))
    for source in (release / "vllm").glob("*.py"):
        shutil.copy2(source, folder / "vllm" / source.name)
    record = folder / info.name / "RECORD"
    kept = [
        line
        for line in record.read_text().splitlines(keepends=True)
        if (folder / line.split(",")[0]).exists()
    ]
    record.write_text("".join(kept))
    return find_tree(folder)


def one_step(tree: DiskTree, name: str = "one.patch", line: bytes = b"ONE = 1\n") -> PatchStep:
    """A patch that adds a line to the scheduler."""
    (before,) = texts(tree, SCHEDULER)
    return PatchStep(
        name, b"text of " + name.encode(), (FileStep(SCHEDULER, before, before + line),)
    )


def texts(tree: DiskTree, *paths: str) -> list[bytes]:
    found = []
    for path in paths:
        text = tree.read(path)
        assert text is not None, path
        found.append(text)
    return found


def without_privileges(code: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run Python code in a process whose permissions count, also where the tests run as root."""
    return subprocess.run(
        [*unprivileged(), sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": f"{TOOLS}{os.pathsep}{Path(__file__).parent}"},
    )


def unprivileged() -> tuple[str, ...]:
    """The start of a command line that runs the rest of it without any privilege.

    Root passes permission bits by capability; a process without any is like everyone else, and
    still owns its files.
    """
    drop = (
        "import ctypes, os, sys\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "last = int(open('/proc/sys/kernel/cap_last_cap').read())\n"
        "if os.geteuid() == 0:\n"
        "    for cap in range(last + 1):\n"
        "        assert libc.prctl(24, cap, 0, 0, 0) == 0, cap\n"
        "    libc.prctl(47, 4, 0, 0, 0)\n"
        "os.execvp(sys.argv[1], sys.argv[1:])\n"
    )
    return (sys.executable, "-c", drop)
