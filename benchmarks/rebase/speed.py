"""How long it takes to carry many patches over one release, beside `git am -3` of the same."""

from __future__ import annotations

import ast
import os
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rebase.carriers import parts_of
from rebase.cases import Triple, drawn
from vllm_series.compose import PatchMeta, compose
from vllm_series.plan import make_plan
from vllm_series.series import SERIES_FILE
from vllm_series.upstream.catalog import Catalog
from vllm_series.workspace.repository import Commit, Scratch

OLD, NEW = "0.32.0", "0.33.0"
_WHO = b"A Tester <tester@example.com>"
_DATE = "1796083200 +0000"


@dataclass(frozen=True, slots=True)
class Took:
    """Seconds by the clock, and of processor time of all processes."""

    wall: float
    processor: float


def table(catalog: Catalog, folder: Path, count: int, say: Callable[[str], None]) -> Iterator[str]:
    """The rows of the table; each patch adds a line to a function of a file of its own, and git can
    carry all of them."""
    say(f"making {count} patches")
    series = folder / "series"
    stock = made(catalog, series / "vllm-0.32", count, folder / "scratch")
    yield f"| {count} patches, {OLD} to {NEW} | s | CPU s |"
    yield "|---|---:|---:|"
    words = [
        sys.executable, "-m", "vllm_series", "rebase", NEW, "--no-tests", "--quiet",
    ]  # fmt: skip
    environ = {**os.environ, "VLLM_SERIES_DIR": str(series)}
    say("rebasing them")
    yield _row("`vllm-series rebase`", timed(words, environ, series.parent))
    checkout = folder / "checkout"
    say("git am")
    names = (series / "vllm-0.32" / SERIES_FILE).read_text().split()
    patches = [str(series / "vllm-0.32" / name) for name in names]
    with Scratch(checkout) as scratch:
        _, new = scratch.make(
            [
                Commit({path: (text[0], "100644") for path, text in stock.items()}, None, b"o\n",
                       _WHO, _DATE),
                Commit({path: (text[1], "100644") for path, text in stock.items()}, 0, b"n\n",
                       _WHO, _DATE),
            ]
        )  # fmt: skip
        scratch.reset(new)
    sealed = {**os.environ, "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    words = ["git", "am", "-3", "--quiet", "--keep-cr", *patches]
    yield _row("`git am -3`", timed(words, sealed, checkout))


def made(
    catalog: Catalog, folder: Path, count: int, scratch: Path
) -> dict[str, tuple[bytes, bytes]]:
    """A series of so many patches in a folder; gives the files that it touches, old and new."""
    trees = old, new = catalog.tree(OLD), catalog.tree(NEW)
    listings = [tree.listing() for tree in trees]
    differing = [
        path
        for path, digest in listings[0].items()
        if path.endswith(".py") and listings[1].get(path, digest) != digest
    ]
    paths = drawn(differing, Triple(OLD, NEW, NEW), 1)[: 3 * count]
    for error in catalog.prefetch({OLD: paths, NEW: paths}, lambda _said: None).values():
        raise error
    edits: dict[str, tuple[bytes, bytes]] = {}
    for path in paths:
        text = old.read(path)
        if text and (edited := _edited(path, text)):
            edits[path] = (text, edited)
    with Scratch(scratch) as repository:
        one, two = repository.make(
            [
                Commit({path: (text[0], "100644") for path, text in edits.items()}, None, b"o\n",
                       _WHO, _DATE),
                Commit({path: (text[1], "100644") for path, text in edits.items()}, 0, b"n\n",
                       _WHO, _DATE),
            ]
        )  # fmt: skip
        diffs = parts_of(repository.diff(one, two))
    folder.mkdir(parents=True)
    names: list[str] = []
    stock: dict[str, tuple[bytes, bytes]] = {}
    for path, (before, after) in edits.items():
        if len(names) == count:
            break
        name = f"p{len(names):03}.patch"
        meta = PatchMeta(
            name,
            _WHO.decode(),
            "Tue, 1 Dec 2026 00:00:00 +0000",
            f"put in line {len(names)}",
            "So that there is something to carry.",
            (
                ("Base", f"vllm {OLD}"),
                ("Origin", "vendor"),
                ("Forwarded", "no"),
                ("Last-Update", "2026-12-01"),
            ),
        )
        patch = compose(meta, {path: before}, {path: after}, OLD, diff=diffs[path])
        target = new.read(path)
        if target is not None and make_plan([patch], new.read).fits:
            (folder / name).write_bytes(patch.text)
            names.append(name)
            stock[path] = (before, target)
    (folder / SERIES_FILE).write_text("".join(f"{name}\n" for name in names))
    return stock


def _edited(path: str, text: bytes) -> bytes | None:
    functions = [
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef) and len(node.body) > 2
    ]
    if not functions:
        return None
    chosen = random.Random(path).choice(functions).body[1]
    lines = text.split(b"\n")
    at = chosen.lineno - 1
    added = b" " * chosen.col_offset + b"assert True  # ours"
    return b"\n".join([*lines[:at], added, *lines[at:]])


def timed(words: list[str], environ: dict[str, str], folder: Path) -> Took:
    """Run a command to its end; raises RuntimeError where it fails."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(
        words, env=environ, cwd=folder, capture_output=True, text=True, check=False
    )
    wall = time.monotonic() - started
    if done.returncode:
        raise RuntimeError(f"{' '.join(words[:4])}: {done.stdout}{done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Took(wall, used)


def _row(title: str, took: Took) -> str:
    return f"| {title} | {took.wall:.1f} | {took.processor:.1f} |"
