"""A patch opened for editing: a folder with its files, under git, and the way back into the series.

The folder is a repository with a commit for the release, one for each patch in front and one for
the patch itself, so that `git diff` shows what was edited and `git show` what the patch is. It
holds the files that these patches touch; a file of the release that is put beside them counts as
that file. What the patch becomes is what the folder holds when it is taken back, whatever was
committed.

The state is one file, written when the folder is complete. Before the series is rewritten it says
what will be there, so that a kill between the two is no change by someone else.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_series.diffs.parse import parse
from vllm_series.errors import RefusedError, UsageError
from vllm_series.patch import Patch
from vllm_series.reanchor import Layers, renewed, settled
from vllm_series.series import SERIES_FILE, names
from vllm_series.steps import FileStep, PatchStep
from vllm_series.trees import PACKAGE, ReleaseTree

if TYPE_CHECKING:
    from vllm_series.upstream.catalog import Catalog
    from vllm_series.workspace.repository import Commit, Scratch
    from vllm_series.workspace.rewriting import Held

SCHEMA = 1
STATE = ".git/vllm-series-edit.json"
_BRANCH = "refs/heads/series"
_LEFTOVERS = ("*.orig", "*.rej", "*~", "*.swp", "*.bak", "*.pyc", "*.pyo", ".*")
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Editing:
    """One patch that is open. `paths` are the files that were laid out; `before` is the commit in
    front of the patch, `head` its own. `digests` are those of the patch and the ones in front when
    they were read, `coming` what they will be when the series is rewritten."""

    workdir: str
    folder: str
    patch: str
    base: str
    before: str
    head: str
    paths: tuple[str, ...]
    digests: Mapping[str, str]
    coming: Mapping[str, str] | None = None

    def save(self) -> None:
        """Write it down."""
        from vllm_series.workspace.state import put

        data = json.dumps({"schema": SCHEMA, **asdict(self)}, indent=1)
        put(Path(self.workdir) / STATE, data.encode("ascii"))

    def close(self) -> None:
        """Take the folder away; the state goes first, so that no half of it is taken for open."""
        (Path(self.workdir) / STATE).unlink(missing_ok=True)
        shutil.rmtree(self.workdir, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class Taken:
    """What taking edits back makes of the series: the folder's files, the state that goes with
    them, the paths that the patch changes now, what was passed over with why, and notes."""

    files: Mapping[str, bytes]
    state: Editing
    patch: Patch
    changed: tuple[str, ...]
    passed: Mapping[str, str]
    notes: tuple[str, ...]


def load(workdir: Path) -> Editing | None:
    """The patch that is open in a folder; None where none is. Raises RefusedError for a state that
    cannot be read."""
    place = workdir / STATE
    try:
        value = json.loads(place.read_bytes())
        if value.pop("schema") != SCHEMA:
            raise ValueError("written by another vllm-series")
        value["workdir"] = str(workdir)  # it may have been moved
        return Editing(**{**value, "paths": tuple(value["paths"])})
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RefusedError(
            f"the state of an edit cannot be read: {place}: {error}. Delete {workdir}."
        ) from error


def around(place: Path) -> Editing | None:
    """The patch that is open in this folder or one above it."""
    for folder in (place, *place.parents):
        found = load(folder)
        if found is not None:
            return found
    return None


def default_workdir(folder: Path, patch: str) -> Path:
    """Where a patch is opened unless the user names a folder."""
    from vllm_series.upstream.store import cache_root

    key = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:16]
    return cache_root() / "edit" / key / patch.rpartition(".")[0]


def open_patch(
    held: Held,
    name: str,
    catalog: Catalog,
    workdir: Path,
    more: Collection[str] = (),
    say: Say = lambda _step: None,
) -> Editing:
    """Lay out the files of a patch with those in front of it applied.

    Raises UsageError for a folder that holds other things, RefusedError where a patch does not fit
    its base.
    """
    if load(workdir) is None and workdir.is_dir() and any(workdir.iterdir()):
        own = workdir / ".git"
        if not (own / "vllm-series").is_file() or (own / "state.json").exists():
            raise UsageError(f"{workdir} is not empty. Name another folder with --workdir.")
        shutil.rmtree(workdir)  # cut off while it was made
    patches = _up_to(held, name)
    base = patches[-1].base
    if base is None:
        raise RefusedError(
            f"{name} does not name its base. Run vllm-series refresh {name} --base RELEASE first."
        )
    state = Editing(str(workdir), str(held.folder), name, base, "", "", (), _digests(patches))
    return _laid(state, patches, catalog.tree(base), catalog, more, say, is_new=True)


def add_files(
    held: Held, state: Editing, catalog: Catalog, more: Collection[str], say: Say = lambda _s: None
) -> Editing:
    """Lay out more files of the release beside those that are there."""
    _refuse_changed_series(held, state)
    tree = catalog.tree(state.base)
    there = [path for path in more if path not in state.paths]
    for path in there:
        if (Path(state.workdir) / path).exists():
            raise RefusedError(f"{path} is in {state.workdir} already. It counts as it is.")
    patches = _up_to(held, state.patch)
    return _laid(state, patches, tree, catalog, [*state.paths, *there], say, is_new=False)


def _laid(
    state: Editing,
    patches: Sequence[Patch],
    tree: ReleaseTree,
    catalog: Catalog,
    more: Collection[str],
    say: Say,
    *,
    is_new: bool,
) -> Editing:
    """Make the commits; of a folder that is there, only the files that it lacks are written."""
    from vllm_series.insertion import fetch
    from vllm_series.workspace.chain import touched
    from vllm_series.workspace.repository import Scratch

    fetch(catalog, state.base, patches, say)
    for error in catalog.prefetch({state.base: sorted(more)}, say).values():
        raise error
    layers = Layers(tree.read, tree.mode, state.base)
    wanted = sorted({*touched(patches), *more})
    for path in more:
        if tree.read(path) is None and path not in touched(patches):
            raise RefusedError(f"vllm {state.base} has no {path}. Check its name.")
    commits = [_release(layers, wanted, state.base)]
    for at, patch in enumerate(patches):
        step = settled(patch, layers) if patch is patches[-1] else layers.add(patch)
        if patch is patches[-1]:
            layers.take(patch.name, step)
        commits.append(_commit(layers, wanted, at, patch))
    workdir = Path(state.workdir)
    say(f"laying out {state.patch}")
    with Scratch(workdir) as scratch:
        made = scratch.make(commits)
        if not is_new and scratch.head() != state.head:
            raise RefusedError(
                f"{workdir} has commits of your own. Take them back first: vllm-series refresh."
            )
        scratch.name("refs/tags/before", made[-2])
        scratch.name(_BRANCH, made[-1])
        if is_new:
            scratch.lay(made[-1])
        else:
            scratch.index(made[-1])
    fresh = replace(state, before=made[-2], head=made[-1], paths=tuple(sorted(commits[-1].files)))
    if not is_new:
        for path in set(fresh.paths) - set(state.paths):
            _write(workdir / path, *commits[-1].files[path])
    fresh.save()
    return fresh


def take_back(
    held: Held,
    state: Editing,
    catalog: Catalog,
    *,
    last_update: str,
    say: Say = lambda _step: None,
) -> Taken:
    """What the folder's files make of the patch and of those behind it; nothing is written.

    Raises RefusedError where the series was changed meanwhile, where a file does not parse or holds
    markers of a conflict, where nothing would be left of the patch, and where a patch behind it
    would find no place.
    """
    from vllm_series.insertion import fetch, refuse_problems
    from vllm_series.workspace.repository import Scratch

    _refuse_changed_series(held, state)
    tree = catalog.tree(state.base)
    patches = [parse(held.files[name], name) for name in names(held.folder)]
    at = next(n for n, patch in enumerate(patches) if patch.name == state.patch)
    there, passed = _there(state)
    fetch(catalog, state.base, patches, say)
    for error in catalog.prefetch({state.base: sorted(there)}, say).values():
        raise error
    steps: list[PatchStep] = []

    def made(patch: Patch, layers: Layers) -> PatchStep:
        step = _step(patch.name, state, there, layers)
        steps.append(step)
        return step

    with Scratch(Path(state.workdir)) as scratch:
        patches[at] = _retold(patches[at], state, scratch)
    say(f"placing {state.patch}")
    order = renewed(
        patches,
        Layers(tree.read, tree.mode, state.base),
        Layers(tree.read, tree.mode, state.base),
        {state.patch: made},
        last_update=last_update,
    )
    files = {**held.files, **{each.name: each.text for each in order.patches}}
    fresh = [name for name in files if files[name] != held.files.get(name)]
    refuse_problems(held, files, fresh, tree, state.base)
    coming = _digests(order.patches[: at + 1])
    return Taken(
        files,
        replace(state, coming=coming),
        order.patches[at],
        tuple(file.path for file in steps[0].files),
        passed,
        order.notes,
    )


def settle(taken: Taken) -> Editing:
    """Let the folder stand on what the series is now."""
    from vllm_series.workspace.chain import message_of
    from vllm_series.workspace.repository import Scratch

    state = taken.state
    with Scratch(Path(state.workdir)) as scratch:
        scratch.unlock()
        tree = scratch.work_tree()
        head = scratch.commit(tree, state.before, state.head, message_of(taken.patch))
        scratch.name(_BRANCH, head)
    known = sorted({*state.paths, *taken.changed})
    paths = tuple(path for path in known if (Path(state.workdir) / path).is_file())
    assert state.coming is not None
    fresh = replace(state, head=head, paths=paths, digests=state.coming, coming=None)
    fresh.save()
    return fresh


# -- the folder -----------------------------------------------------------------------------------


def _release(layers: Layers, paths: Collection[str], base: str) -> Commit:
    from vllm_series.workspace.chain import stock_of

    return stock_of(_files(layers, paths), None, f"vllm {base}")


def _commit(layers: Layers, paths: Collection[str], parent: int, patch: Patch) -> Commit:
    from vllm_series.workspace.chain import commit_of

    return commit_of(_files(layers, paths), parent, patch)


def _files(layers: Layers, paths: Collection[str]) -> dict[str, tuple[bytes, str]]:
    texts = ((path, layers.read(path)) for path in paths)
    return {path: (text, layers.git_mode(path)) for path, text in texts if text is not None}


def _write(place: Path, text: bytes, mode: str) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(text)
    place.chmod(int(mode[-3:], 8))


def _there(state: Editing) -> tuple[dict[str, tuple[bytes, bool]], dict[str, str]]:
    """The folder's files, each with whether it is executable; and what is passed over, with why."""
    from vllm_series.workspace.markers import left

    found: dict[str, tuple[bytes, bool]] = {}
    passed: dict[str, str] = {}
    problems: list[str] = []
    for path, place in _walk(Path(state.workdir)):
        status = place.lstat()
        if not path.startswith(f"{PACKAGE}/"):
            passed[path] = "it is not part of the installed package"
        elif not stat.S_ISREG(status.st_mode):
            raise RefusedError(f"{path} is a link or no file. A patch holds plain files only.")
        elif path not in state.paths and any(
            fnmatchcase(place.name, pattern) for pattern in _LEFTOVERS
        ):
            passed[path] = "its name says that it is a leftover"
        else:
            text = place.read_bytes()
            lines = left(text)
            if lines:
                problems.append(f"{path} holds markers of a conflict at line {lines[0]}")
            found[path] = (text, bool(status.st_mode & 0o100))
    if problems:
        raise RefusedError("; ".join(problems) + ". Resolve them first; nothing was written.")
    return found, passed


def _walk(workdir: Path) -> Iterator[tuple[str, Path]]:
    for folder, folders, files in os.walk(workdir):
        if folder == str(workdir):
            folders[:] = [name for name in folders if name != ".git"]
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        links = [name for name in folders if (Path(folder) / name).is_symlink()]
        for name in sorted([*files, *links]):
            place = Path(folder) / name
            yield place.relative_to(workdir).as_posix(), place


def _step(
    name: str, state: Editing, there: Mapping[str, tuple[bytes, bool]], layers: Layers
) -> PatchStep:
    files = []
    for path in sorted({*there, *state.paths}):
        before = layers.read(path)
        after, executable = there.get(path, (None, False))
        bits = layers.mode(path)
        was = bool(bits is not None and bits & 0o100)
        mode = (0o755 if executable else 0o644) if after is not None and executable != was else None
        if before != after or (mode is not None and before is not None):
            files.append(FileStep(path, before, after, mode))
    if not files:
        raise RefusedError(
            f"nothing would be left of {name}. Take it out of the series if that is meant."
        )
    return PatchStep(name, b"", tuple(files))


def _retold(patch: Patch, state: Editing, scratch: Scratch) -> Patch:
    """The patch with the message of the folder's commit, where the user has amended that."""
    from vllm_series.compose import PatchMeta, retold, split_message

    head = scratch.head()
    if head == state.head or scratch.since(state.before, head) != [head]:
        return patch
    now, was = scratch.message(head), scratch.message(state.head)
    if now == was:
        return patch
    subject, message, trailers = split_message(now.decode("utf-8", "surrogateescape"))
    return retold(patch, PatchMeta(patch.name, "", "", subject, message, trailers))


# -- the series -----------------------------------------------------------------------------------


def _up_to(held: Held, name: str) -> list[Patch]:
    """The patch, last, and those in front of it."""
    if SERIES_FILE not in held.files or name not in (known := names(held.folder)):
        raise RefusedError(f"{held.folder} lists no {name} any more. Give the edit up: --abort.")
    return [parse(held.files[each], each) for each in known[: known.index(name) + 1]]


def _digests(patches: Sequence[Patch]) -> dict[str, str]:
    return {patch.name: hashlib.sha256(patch.text).hexdigest() for patch in patches}


def _refuse_changed_series(held: Held, state: Editing) -> None:
    now = _digests(_up_to(held, state.patch))
    if now in (dict(state.digests), dict(state.coming or {})):
        return
    changed = [name for name in now if now[name] != state.digests.get(name)] or [SERIES_FILE]
    raise RefusedError(
        f"{', '.join(changed)} in {held.folder} was changed since {state.patch} was opened. "
        f"Your edits are in {state.workdir}: keep what you need of them (git diff), give them up "
        f"(vllm-series edit {state.patch} --abort) and open it again."
    )
