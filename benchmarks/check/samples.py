"""The series that the benchmark judges, made from real releases: one-file patches out of upstream's
own diff, and patches of one kind that differ only in their number of hunks or the size of the file.
"""

from __future__ import annotations

import difflib
import io
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from vllm_series.diffs import canonical
from vllm_series.diffs.parse import parse
from vllm_series.patch import Patch
from vllm_series.placement import blob_id
from vllm_series.plan import make_plan
from vllm_series.scope import Scopes
from vllm_series.search import change_scope
from vllm_series.trees import DiskTree

_MAIL = """\
From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001
From: bench <bench@example.invalid>
Date: Thu, 1 Jan 1970 00:00:00 +0000
Subject: [PATCH] {subject}

One file of upstream's own diff.

"""


def split(old: Path, new: Path, count: int) -> list[bytes]:
    """`count` patches that change one Python file each, taken evenly from the diff between two
    trees, as mails with git's own headings and full blob ids."""
    printed = subprocess.run(
        ["git", "diff", "--no-index", "--no-renames", "--full-index", "--diff-filter=M",
         "--src-prefix=a/", "--dst-prefix=b/", str(old / "vllm"), str(new / "vllm")],
        capture_output=True, check=False, cwd=old,
    ).stdout  # fmt: skip
    for tree in (old, new):
        for side in (b"a", b"b"):
            printed = printed.replace(side + bytes(tree) + b"/vllm/", side + b"/vllm/")
    diffs = [b"diff --git " + part for part in (b"\n" + printed).split(b"\ndiff --git ")[1:]]
    changed = [diff for diff in diffs if b"\n@@ " in diff and b".py\n" in diff.partition(b"@@")[0]]
    step = len(changed) / count
    return [
        _MAIL.format(subject=f"change {number}").encode()
        + changed[int(number * step)].rstrip(b"\n")
        + b"\n"
        for number in range(count)
    ]


def with_base(patches: Iterable[bytes], base: Path, release: str) -> list[bytes]:
    """The same patches as this project writes them: the scope as heading, and a `Base:` trailer."""
    tree = DiskTree(base)
    return [_own(parse(text, "patch"), tree, release) for text in patches]


def _own(patch: Patch, tree: DiskTree, release: str) -> bytes:
    (step,) = make_plan([patch], tree.read, tree.mode).steps
    (change,) = patch.files
    (file,) = step.files
    before, after = (Scopes.of(text or b"", file.path) for text in (file.before, file.after))
    assert before is not None
    assert after is not None
    hunks = []
    for hunk in change.hunks:
        scope = change_scope(hunk, before, after, hunk.first_line, max(hunk.new_start, 1))
        hunks.append(replace(hunk, heading=scope.encode()))
    own = replace(change, hunks=tuple(hunks))
    trailers = (("Base", f"vllm {release}"),)
    return canonical.written(replace(patch, trailers=trailers, files=(own,)))


def edited(tree: Path, path: str, hunks: int) -> bytes:
    """A patch that inserts `hunks` lines into one file, evenly, each a hunk of its own."""
    before = (tree / path).read_bytes()
    old = io.BytesIO(before).readlines()
    new = list(old)
    for number in range(hunks, 0, -1):
        at = len(old) * number // (hunks + 1)
        new.insert(at, b"# inserted %d\n" % number)
    name = path.encode()
    body = b"".join(difflib.diff_bytes(difflib.unified_diff, old, new, b"a/" + name, b"b/" + name))
    ids = f"{blob_id(before)}..{blob_id(b''.join(new))}"
    head = f"diff --git a/{path} b/{path}\nindex {ids} 100644\n"
    return _MAIL.format(subject=f"{hunks} insertions").encode() + head.encode() + body


def path_of_size(tree: Path, size: int) -> str:
    """The Python file of a tree whose size in bytes is closest."""
    paths = (path for path in (tree / "vllm").rglob("*.py"))
    found = min(paths, key=lambda path: (abs(path.stat().st_size - size), path))
    return found.relative_to(tree).as_posix()


def series(folder: Path, patches: Sequence[bytes]) -> Path:
    """A series folder that quilt, git am and this project take."""
    folder.mkdir(parents=True)
    names = [f"{number:04}.patch" for number in range(1, len(patches) + 1)]
    for name, text in zip(names, patches, strict=True):
        (folder / name).write_bytes(text)
    (folder / "series").write_text("".join(f"{name}\n" for name in names))
    return folder


def touched(patch: bytes) -> set[str]:
    """The paths that a patch names, without git's prefixes."""
    names = (path for change in parse(patch, "patch").files for path in change.paths(1))
    return {name for name in names if name}
