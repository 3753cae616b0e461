"""Diffs made and applied by the real tools, beside the answers of this project.

A tree is a mapping of posix paths to bytes. Every tool works in a scratch folder of its own; None
is its refusal.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from vllm_series.diffs.parse import parse
from vllm_series.errors import PatchFormatError
from vllm_series.plan import Plan, make_plan

Files = Mapping[str, bytes]


def git_diff(before: Files, after: Files, *options: str, executable: tuple[str, ...] = ()) -> bytes:
    """What `git diff` says of two trees; `executable` names the paths that are so afterwards."""
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        _run(root, "init", "-q")
        _write(root, before)
        _run(root, "add", "-A", "-f")
        tree = _run(root, "write-tree").decode().strip()
        for path in before:
            (root / path).unlink()
        _write(root, after)
        for path in executable:
            (root / path).chmod(0o755)
        _run(root, "add", "-A", "-f")
        return _run(root, "diff", "--cached", *options, tree)


def git_apply(files: Files, patch: bytes, *options: str) -> dict[str, bytes] | None:
    """The tree after `git apply`; None where git refuses."""
    return _apply(files, patch, ["git", "apply", "--whitespace=nowarn", *options, "-"])


def gnu_patch(files: Files, patch: bytes, *options: str) -> dict[str, bytes] | None:
    """The tree after GNU patch without fuzz; None where it refuses."""
    return _apply(files, patch, ["patch", "-s", "-f", "-p1", "--binary", "-F0", *options])


def git_says(files: Files, patch: bytes, *options: str) -> str:
    """What `git apply --check` prints, in English; empty where it would apply."""
    with tempfile.TemporaryDirectory() as scratch:
        _write(Path(scratch), files)
        done = subprocess.run(
            ["git", "apply", "--check", *options, "-"],
            cwd=scratch,
            input=patch,
            capture_output=True,
            check=False,
            env={**os.environ, "LC_ALL": "C"},
        )
        return done.stderr.decode("utf-8", "replace")


def plan(files: Files, *patches: bytes) -> Plan:
    """This project's plan for patches `0.patch`, `1.patch`, … on a tree."""
    parsed = [parse(patch, f"{number}.patch") for number, patch in enumerate(patches)]
    return make_plan(parsed, files.get)


def ours(files: Files, *patches: bytes) -> dict[str, bytes] | None:
    """The tree after this project's plan; None where it does not fit."""
    planned = plan(files, *patches)
    if not planned.fits:
        return None
    return after(files, planned)


def ours_or_refusal(files: Files, patch: bytes) -> dict[str, bytes] | None:
    """As `ours`; a malformed patch is a refusal too."""
    try:
        return ours(files, patch)
    except PatchFormatError:
        return None


def ours_reversed(files: Files, patch: bytes) -> dict[str, bytes] | None:
    planned = make_plan([parse(patch, "0.patch").reversed()], files.get)
    return after(files, planned) if planned.fits else None


def after(files: Files, planned: Plan) -> dict[str, bytes]:
    """The tree that a plan leads to."""
    result = dict(files)
    for path, (_, text) in planned.results().items():
        if text is None:
            result.pop(path, None)
        else:
            result[path] = text
    return result


def _apply(files: Files, patch: bytes, command: list[str]) -> dict[str, bytes] | None:
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch, "tree")
        root.mkdir()
        _write(root, files)
        done = subprocess.run(command, cwd=root, input=patch, capture_output=True, check=False)
        if done.returncode:
            return None
        return {
            path.relative_to(root).as_posix(): path.read_bytes()
            for path in root.rglob("*")
            if path.is_file()
        }


def _write(root: Path, files: Files) -> None:
    for path, text in files.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text)


def _run(root: Path, *words: str) -> bytes:
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode("utf-8", "replace")
    return done.stdout
