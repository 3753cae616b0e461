"""Stock releases for the tests: the Python files and metadata of real wheels, cached by content.

A wheel is fetched once by the installer at hand (uv, else pip), and its Python files and dist-info
are kept under the user's cache folder, keyed by the digest of the wheel's RECORD. Nothing else of
the wheel is kept: 30 MB instead of 800. `VLLM_SERIES_CACHE` moves the folder.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import platformdirs

_LISTED = json.loads((Path(__file__).parent / "releases.json").read_text())

COVERED: tuple[str, ...] = tuple(_LISTED["releases"])
"""Every release that a series of this project covers, oldest first."""

RELEASES: tuple[str, ...] = tuple(_LISTED["whole"])
"""Those whose whole wheels the tests install, oldest first; a wheel is 400 MB, so not all."""

_ATTEMPTS = 3


class IndexUnreachableError(Exception):
    """The package index did not serve a wheel; says which and what was tried."""


def cache_dir() -> Path:
    """The folder that holds unpacked stock releases; safe to delete at any time."""
    override = os.environ.get("VLLM_SERIES_CACHE")
    base = Path(override) if override else Path(platformdirs.user_cache_dir("vllm-series"))
    return base / "stock"


def release(version: str, distribution: str = "vllm") -> Path:
    """The pristine tree of a release: a folder with `vllm/**/*.py` and its dist-info; never write.

    Fetches the wheel that pip or uv choose for this machine on first use.
    """
    base = cache_dir()
    base.mkdir(parents=True, exist_ok=True)
    label = f"{distribution}-{version}"
    with (base / f"{label}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        pointer = base / f"{label}.digest"
        if pointer.is_file():
            digest = pointer.read_text().strip()
            tree = base / digest
            if tree.is_dir() and _digest(tree, distribution, version) == digest:
                return tree
        return _fetch(base, pointer, distribution, version)


def _fetch(base: Path, pointer: Path, distribution: str, version: str) -> Path:
    with tempfile.TemporaryDirectory(dir=base, prefix=".fetch-") as scratch:
        whole = Path(scratch) / "whole"
        install_into(whole, f"{distribution}=={version}")
        kept = Path(scratch) / "kept"
        for source in [*whole.rglob("*.py"), *whole.glob("*.dist-info/**/*")]:
            if source.is_file():
                target = kept / source.relative_to(whole)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target)
        digest = _digest(kept, distribution, version)
        tree = base / digest
        if tree.exists():
            shutil.rmtree(tree)
        kept.rename(tree)
    pointer.write_text(digest + "\n")
    return tree


def install_into(folder: Path, requirement: str) -> None:
    """Unpack one wheel, without its dependencies, into `folder`; retries, then says what is out of
    reach.

    vLLM from 0.32 on asks for Python 3.11; none of it is imported here, so 3.10 does too.
    """
    uv = shutil.which("uv")
    command = (
        [uv, "pip", "install", "--quiet", "--python", sys.executable]
        if uv
        else [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    )
    if not uv:
        command.append("--ignore-requires-python")
    elif sys.version_info < (3, 11):
        command += ["--python-version", "3.11"]
    command += ["--no-deps", "--target", str(folder), requirement]
    for attempt in range(1, _ATTEMPTS + 1):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return
        shutil.rmtree(folder, ignore_errors=True)
        if attempt < _ATTEMPTS:
            time.sleep(2**attempt)
    raise IndexUnreachableError(
        f"{requirement} cannot be fetched from the package index after {_ATTEMPTS} attempts; "
        f"check the network and the index settings of pip or uv.\n{done.stderr.strip()}"
    )


def _digest(tree: Path, distribution: str, version: str) -> str:
    """The digest of what the release's RECORD says of its Python files."""
    stem = distribution.replace("-", "_")
    record = tree / f"{stem}-{version}.dist-info" / "RECORD"
    if not record.is_file():
        return ""
    rows = sorted(
        line for line in record.read_text().splitlines() if line.split(",", 1)[0].endswith(".py")
    )
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()[:32]
