"""What a person has edited: in an installed vLLM, in a folder, or between two commits.

Of an installation RECORD tells, by hash, what every file was: as the release has it, or as the
applied patches left it. So only what was edited since is found, and the patches that are applied
are what it stands on. The texts before come from the release's wheel, of which only these files are
fetched, and must have the hashes that RECORD had. A bare folder is held against the wheel's own
list.
"""

from __future__ import annotations

import hashlib
import os
import stat
from base64 import urlsafe_b64decode
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from vllm_series.errors import EnvironmentRefusedError, RefusedError, UsageError
from vllm_series.installation.stack import (
    AppliedFile,
    AppliedPatch,
    before_path,
    patch_text,
    read_stack,
    state_path,
)
from vllm_series.reanchor import Layers
from vllm_series.trees import PACKAGE, DiskTree, ReleaseTree, Tree

if TYPE_CHECKING:
    from vllm_series.upstream.catalog import Catalog
    from vllm_series.upstream.commit import Repository

_LEFTOVERS = ("*.orig", "*.rej", "*~", "*.swp", "*.bak", "*.pyc", "*.pyo", "*.tmp", "*.so", ".*")
_MANY = 20
"""From so many missing files on, a tree is not taken for an edited one but for a part of one."""


@dataclass(frozen=True, slots=True)
class Edited:
    """Texts and git modes before and after, of the files that differ. `passed` are files that no
    patch of vLLM can hold, with why. `below` names the applied patches that it stands on."""

    before: Mapping[str, bytes | None]
    after: Mapping[str, bytes | None]
    modes: tuple[Mapping[str, str], Mapping[str, str]]
    passed: Mapping[str, str] = field(default_factory=dict)
    below: tuple[str, ...] = ()


def in_tree(
    tree: DiskTree,
    catalog: Catalog,
    release: str,
    paths: Collection[str] = (),
    say: Callable[[str], None] = lambda _step: None,
) -> Edited:
    """What is edited in an installation or a bare folder of `release`; `paths` (files, folders or
    patterns) leave out the others.

    Raises RefusedError where the tree is not that release or only a part of it, and where a path is
    not edited; EnvironmentRefusedError where the release cannot be had.
    """
    from vllm_series.diffs.parse import parse

    stack = read_stack(tree)
    stock = catalog.tree(release)
    say("looking for edited files")
    wanted = _recorded(tree) if tree.distribution else _of_release(tree, stock)
    changed, passed = _changed(tree, wanted, paths, is_listed=tree.distribution is not None)
    _refuse_a_part(tree, changed, paths)
    for path in paths:
        if not any(_among(found, [path]) for found in changed):
            raise RefusedError(f"{path} is not edited in {tree.label}. Check its name.")
    pristine = {path for patch in stack.patches for file in patch.files for path in [file.path]}
    say(f"reading vllm {release}")
    failed = catalog.prefetch({release: sorted(set(changed) | pristine)}, say)
    for error in failed.values():
        raise error
    layers = Layers(saved(tree, stock), stock.mode, release)
    for applied in stack.patches:
        layers.add(parse(patch_text(tree, applied), applied.name))
    before = {path: layers.read(path) for path in changed}
    for path, digest in wanted.items():
        if path in changed and _digest(before[path]) != digest:
            raise RefusedError(
                f"{path} of {stock.label} is not the file that {tree.label} was made with. "
                "Name the wheel that it was installed from with --wheel."
            )
    modes = {path: layers.git_mode(path) for path in changed if before[path] is not None}
    after = {path: tree.read(path) for path in changed}
    now = {path: _git_mode(tree.mode(path)) for path in changed if after[path] is not None}
    below = tuple(patch.name for patch in stack.patches)
    return Edited(before, after, (modes, now), passed, below)


def between(repository: Repository, old: str, new: str, paths: Collection[str] = ()) -> Edited:
    """What two commits (full ids) of a checkout differ in; files outside of `vllm/` are passed."""
    one, two = repository.files(old), repository.files(new)
    changed = [path for path in sorted(one.keys() | two.keys()) if one.get(path) != two.get(path)]
    changed = [path for path in changed if not paths or _among(path, paths)]
    before: dict[str, bytes | None] = {}
    after: dict[str, bytes | None] = {}
    modes: tuple[dict[str, str], dict[str, str]] = ({}, {})
    for path in changed:
        for files, texts, words in ((one, before, modes[0]), (two, after, modes[1])):
            mode, blob = files.get(path, (None, ""))
            texts[path] = repository.blob(blob) if mode is not None else None
            if mode is not None:
                words[path] = f"{mode:o}"
    outside = [path for path in repository.changed(old, new) if not path.startswith(f"{PACKAGE}/")]
    why = "it is not part of the installed package"
    return Edited(before, after, modes, dict.fromkeys(outside, why))


# -- which files ----------------------------------------------------------------------------------


def _recorded(tree: DiskTree) -> dict[str, str]:
    """Hex SHA-256 of every file of the package, as RECORD has it."""
    from vllm_series.installation.record import rows

    assert tree.distribution is not None
    place = tree.distribution.record
    found = {}
    for path, (digest, _) in rows(place.read_bytes(), place).items():
        kind, _, value = digest.partition("=")
        if path.startswith(f"{PACKAGE}/") and kind == "sha256":
            found[path] = urlsafe_b64decode(value + "=" * (-len(value) % 4)).hex()
    if not found:
        raise EnvironmentRefusedError(
            f"{place} has no hashes, so edited files cannot be told. Reinstall vLLM, or name the "
            "folder with --target and the release with --base."
        )
    return found


def _of_release(tree: DiskTree, stock: ReleaseTree) -> dict[str, str]:
    """The same of a bare folder: by the release's list, and what the stack has made of it."""
    listing = dict(stock.listing())
    probe = f"{PACKAGE}/__init__.py"
    if listing.get(probe) != _digest(stock.read(probe)):
        # A list of other digests, such as git's: only reading tells.
        listing = {path: _digest(stock.read(path)) or "" for path in listing}
    for path, (_, file) in read_stack(tree).current().items():
        if file.after is None:
            listing.pop(path, None)
        else:
            listing[path] = file.after.sha256
    return listing


def _changed(
    tree: DiskTree, wanted: Mapping[str, str], paths: Collection[str], *, is_listed: bool
) -> tuple[list[str], dict[str, str]]:
    """Files that differ, sorted; and those that no patch can hold, with why."""
    changed: list[str] = []
    passed: dict[str, str] = {}
    there = set[str]()
    for path in _walk(tree):
        name = path.rpartition("/")[2]
        there.add(path)
        if (paths and not _among(path, paths)) or path.endswith((".so", ".pyc")):
            continue
        if path in wanted:
            if _digest_of(f"{tree.root}/{path}") != wanted[path]:
                changed.append(path)
        elif any(fnmatchcase(name, pattern) for pattern in _LEFTOVERS):
            passed[path] = "its name says that it is a leftover"
        elif not _is_text(f"{tree.root}/{path}"):
            passed[path] = "it is binary"
        elif path.endswith(".py") or is_listed or paths:
            changed.append(path)
    changed += [
        path
        for path in wanted
        if path not in there and path.endswith(".py") and (not paths or _among(path, paths))
    ]
    return sorted(changed), passed


def _walk(tree: DiskTree) -> Iterator[str]:
    root = f"{tree.root}/"
    for folder, names, files in os.walk(f"{root}{PACKAGE}"):
        names[:] = sorted(name for name in names if name != "__pycache__")
        prefix = folder.removeprefix(root)
        for name in sorted(files):
            path = f"{prefix}/{name}"
            if stat.S_ISREG(os.lstat(root + path).st_mode):
                yield path


def _refuse_a_part(tree: DiskTree, changed: Iterable[str], paths: Collection[str]) -> None:
    missing = [path for path in changed if not (tree.root / path).exists()]
    if len(missing) > _MANY and not paths:
        raise RefusedError(
            f"{len(missing)} Python files of the release are not in {tree.root}: {missing[0]} and "
            "others. A patch would delete them. Name the files that the patch is about."
        )


def _among(path: str, wanted: Iterable[str]) -> bool:
    """Whether a path is one of these: a file, a folder, or a pattern as git's `--exclude`."""
    return any(
        path == word.rstrip("/")
        or path.startswith(word.rstrip("/") + "/")
        or fnmatchcase(path, word)
        for word in wanted
    )


# -- their texts ----------------------------------------------------------------------------------


def saved(tree: DiskTree, stock: Tree) -> Callable[[str], bytes | None]:
    """Reads the release: what the stack has kept of it, then the wheel (or the tree itself)."""
    stack = read_stack(tree)
    state = state_path(tree)
    first: dict[str, tuple[AppliedPatch, AppliedFile]] = {}
    for applied in stack.patches:
        for file in applied.files:
            first.setdefault(file.path, (applied, file))

    def read(path: str) -> bytes | None:
        if path in first:
            applied, file = first[path]
            if file.before is None:
                return None
            return (tree.root / before_path(state, applied, path)).read_bytes()
        return stock.read(path)

    return read


def _digest(text: bytes | None) -> str | None:
    return None if text is None else hashlib.sha256(text).hexdigest()


def _digest_of(place: str) -> str:
    with open(place, "rb") as file:  # noqa: PTH123 (thousands of files: no Path for each)
        return hashlib.sha256(file.read()).hexdigest()


def _is_text(place: str) -> bool:
    with open(place, "rb") as file:  # noqa: PTH123
        return b"\0" not in file.read()


def _git_mode(bits: int | None) -> str:
    return "100755" if bits is not None and bits & 0o100 else "100644"


def commits_of(repository: Repository, spec: str) -> tuple[str, str, bool]:
    """The full ids of the two commits that `A..B` or a single commit (and its parent) names, and
    whether the second is the only one that comes after the first.

    Raises UsageError for what names no commits.
    """
    if "..." in spec:
        raise UsageError(f"{spec} is not a range from one commit to another. Give A..B.")
    old, dots, new = spec.partition("..")
    if not dots:
        commit = repository.resolve(spec).commit
        parents = repository.parents(commit)
        if len(parents) != 1:
            raise UsageError(
                f"{spec} has {len(parents)} parents, so it is not clear what it changed. Give A..B."
            )
        return parents[0], commit, True
    if not old:
        raise UsageError(f"{spec} does not say where it starts. Give A..B.")
    first = repository.resolve(old).commit
    last = repository.resolve(new or "HEAD").commit
    return first, last, repository.parents(last) == [first]
