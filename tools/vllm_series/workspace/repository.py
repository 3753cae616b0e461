"""A git repository of our own, sealed from everything that the user or the machine has configured.

A merge must give the same bytes on every machine, run no hook, ask for no key and reach for no
network. So the repository has its own home, no configuration but its own, and every environment
variable of git's is taken away while it is open. GitPython starts the git binary; what is asked has
a name here, and nothing that a user typed is ever an argument: commits are asked for by their ids.

References: git-config(1), git-rebase(1), git-fast-import(1), githooks(5), gitattributes(5).
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from vllm_series.errors import EnvironmentRefusedError, VllmSeriesError

if TYPE_CHECKING:
    from git import Repo

COMMITTER = ("vllm-series", "vllm-series@localhost")
_OLDEST_GIT = (2, 35, 0)
"""The first with zdiff3."""

_CONFIG = {
    "advice.detachedHead": "false",
    "commit.gpgSign": "false",
    "core.attributesFile": os.devnull,
    "core.autocrlf": "false",
    "core.eol": "lf",
    "core.excludesFile": os.devnull,
    "core.fileMode": "true",
    "core.fsmonitor": "false",
    "core.ignoreCase": "false",
    # Whatever a person commits here can be found again.
    "core.logAllRefUpdates": "true",
    "core.precomposeUnicode": "false",
    "core.protectHFS": "true",
    "core.protectNTFS": "true",
    "core.safecrlf": "false",
    "core.symlinks": "true",
    "diff.algorithm": "default",
    "diff.indentHeuristic": "true",
    "diff.noprefix": "false",
    "diff.mnemonicPrefix": "false",
    "diff.relative": "false",
    "diff.renames": "true",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "merge.conflictStyle": "zdiff3",
    # The tree holds only what the series touches, so a moved folder cannot be told from a file.
    "merge.directoryRenames": "false",
    "merge.renames": "true",
    # Its `.orig` beside a resolved file would be taken for a file of the patch.
    "mergetool.keepBackup": "false",
    "protocol.allow": "never",
    "rebase.autoSquash": "false",
    "rebase.autoStash": "false",
    "rebase.updateRefs": "false",
    "rerere.autoUpdate": "false",
    "rerere.enabled": "true",
    "submodule.recurse": "false",
    "tag.gpgSign": "false",
    "user.email": COMMITTER[1],
    "user.name": COMMITTER[0],
}

_ATTRIBUTES = (
    "* -text -ident !filter !diff !merge !eol !working-tree-encoding !conflict-marker-size\n"
)
"""Bytes stay bytes, whatever a `.gitattributes` of the release says."""


_LEFTOVERS = tuple(
    f":(exclude,glob)**/{name}"
    for name in ("*~", "#*#", ".#*", ".*.sw?", "*.orig", "*.rej", "*.bak", "*.pyc")
)
"""What editors, patch and Python leave beside a file, often while it is still open: no patch's."""

_MARK = "vllm-series"
_BEGUN = "a repository of vllm-series rebase is being made here\n"
_MADE = "made by vllm-series rebase; its files may be deleted with rebase --abort\n"


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit to be made. `files` are all of the tree (`files` of the parent are not kept): text
    and git mode ("100644") by path. `parent` is the place of another one in the same list, or None.
    `author` is `Name <mail>`, `date` git's raw form (`1796083200 +0000`)."""

    files: Mapping[str, tuple[bytes, str]]
    parent: int | None
    message: bytes
    author: bytes
    date: str


@dataclass(frozen=True, slots=True)
class Unmerged:
    """A path that a merge has left open: its three sides' blob ids (base, onto, patch), None where
    that side has no file."""

    path: str
    base: str | None
    ours: str | None
    theirs: str | None


class Scratch:
    """The repository in `folder`, as a context; closed and the environment put back at its end.

    `lock` is a descriptor that git's processes keep open, so that a lock outlives a killed parent
    until they have ended too. Opening makes the repository where there is none.
    """

    def __init__(self, folder: Path, lock: int | None = None) -> None:
        self.folder = folder
        self._lock = () if lock is None else (lock,)
        self._repo: Repo | None = None
        self._environ: dict[str, str] = {}
        self._trees: dict[str, str] = {}
        self._steps: dict[str, tuple[str, dict[str, tuple[str, str] | None]]] = {}
        """By commit: the one before it, and what it changes; None for a file that goes."""
        self._files: dict[str, dict[str, tuple[str, str]]] = {}

    def __enter__(self) -> Scratch:
        for key in [key for key in os.environ if key.startswith("GIT_")]:
            self._environ[key] = os.environ.pop(key)
        try:
            self._open()
        except BaseException:
            self._restore()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if self._repo is not None:
                self._repo.close()
                self._repo = None
        finally:
            self._restore()

    def _restore(self) -> None:
        os.environ.update(self._environ)
        self._environ = {}

    # -- opening --------------------------------------------------------------------------------

    def _open(self) -> None:
        try:
            from git import Git, Repo
            from git.exc import GitCommandNotFound, InvalidGitRepositoryError, NoSuchPathError
        except ImportError as error:
            raise EnvironmentRefusedError(
                f"GitPython or git itself is missing ({error}). Install git and put it on the path."
            ) from error
        try:
            version = Git().version_info
        except GitCommandNotFound as error:
            raise EnvironmentRefusedError("there is no git here. Install git 2.35 or newer.") from (
                error
            )
        if tuple(version)[:3] < _OLDEST_GIT:
            raise EnvironmentRefusedError(
                f"git {'.'.join(map(str, version))} is too old. Install git 2.35 or newer."
            )
        self.folder.mkdir(parents=True, exist_ok=True)
        if not is_ours(self.folder, whole=True):
            self._make(Git)
        try:
            self._repo = Repo(self.folder, expand_vars=False)
        except (InvalidGitRepositoryError, NoSuchPathError) as error:
            raise VllmSeriesError(
                f"{self.folder} is no repository any more. Delete it and start again."
            ) from error
        self._repo.git.update_environment(**self._sealed())

    def _make(self, git: Any) -> None:
        (self.folder / ".git").mkdir(exist_ok=True)
        # A making that is cut off must be known as ours, too.
        (self.folder / ".git" / _MARK).write_text(_BEGUN)
        outside = git(os.fspath(self.folder))
        outside.update_environment(**self._sealed())
        outside.execute(
            ["git", "init", "--quiet", "--template=", "--initial-branch=series"],
            pass_fds=self._lock,
        )
        own = self.folder / ".git"
        for name in ("no-hooks", "home", "info"):
            (own / name).mkdir(exist_ok=True)
        (own / "info" / "attributes").write_text(_ATTRIBUTES)
        lines = ["[core]\n\trepositoryformatversion = 0\n\tbare = false\n"]
        for key, value in sorted({**_CONFIG, "core.hooksPath": str(own / "no-hooks")}.items()):
            section, name = key.split(".")
            quoted = value.replace("\\", "\\\\").replace('"', '\\"')
            lines.append(f'[{section}]\n\t{name} = "{quoted}"\n')
        (own / "config").write_text("".join(lines))
        (own / _MARK).write_text(_MADE)

    def _sealed(self) -> dict[str, str]:
        home = os.fspath(self.folder / ".git" / "home")
        return {
            "GIT_ALLOW_PROTOCOL": "none",
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_CEILING_DIRECTORIES": os.fspath(self.folder.parent),
            "GIT_COMMITTER_EMAIL": COMMITTER[1],
            "GIT_COMMITTER_NAME": COMMITTER[0],
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_EDITOR": "true",
            "GIT_PAGER": "cat",
            "GIT_SEQUENCE_EDITOR": "true",
            "GIT_TERMINAL_PROMPT": "0",
            "HOME": home,
            "LC_ALL": "C",
            "XDG_CONFIG_HOME": home,
        }

    # -- asking git -----------------------------------------------------------------------------

    def _ask(
        self, *words: str, may_fail: bool = False, stdin: bytes | None = None, **environ: str
    ) -> tuple[int, bytes, str]:
        """Exit code, standard output and error of a git command; raises where it fails unasked."""
        assert self._repo is not None, "the repository is not open"
        with tempfile.TemporaryFile() as source:
            if stdin is not None:
                source.write(stdin)
                source.seek(0)
            code, out, err = self._repo.git.execute(
                ["git", *words],
                istream=source if stdin is not None else None,
                with_extended_output=True,
                with_exceptions=False,
                stdout_as_string=False,
                strip_newline_in_stdout=False,
                env=environ,
                pass_fds=self._lock,
            )
        if code and not may_fail:
            raise VllmSeriesError(
                f"git {words[0]} failed in {self.folder} ({code}): {_text(err).strip()}. "
                "vllm-series rebase --abort gives the rebase up."
            )
        return int(code), out if isinstance(out, bytes) else out.encode(), _text(err)

    def make(self, commits: Sequence[Commit]) -> list[str]:
        """Make commits, each on top of an earlier one of the list; their ids in order."""
        out: list[bytes] = []
        blobs: dict[bytes, int] = {}
        offset = len(commits)

        def blob(text: bytes) -> int:
            if text not in blobs:
                blobs[text] = offset + len(blobs) + 1
                out.append(b"blob\nmark :%d\ndata %d\n%s\n" % (blobs[text], len(text), text))
            return blobs[text]

        for number, commit in enumerate(commits, 1):
            rows = [
                b"M %s :%d %s\n" % (mode.encode(), blob(text), _quoted(path))
                for path, (text, mode) in sorted(commit.files.items())
            ]
            out.append(b"commit refs/vllm-series/made\nmark :%d\n" % number)
            out.append(b"author %s %s\n" % (commit.author, commit.date.encode()))
            who = f"{COMMITTER[0]} <{COMMITTER[1]}> {commit.date}"
            out.append(b"committer %s\n" % who.encode())
            out.append(b"data %d\n%s\n" % (len(commit.message), commit.message))
            if commit.parent is not None:
                out.append(b"from :%d\n" % (commit.parent + 1))
            out += [b"deleteall\n", *rows, b"\n"]
            if commit.parent is None and number < len(commits):
                out.append(b"reset refs/vllm-series/made\n\n")
        out += [b"get-mark :%d\n" % number for number in range(1, len(commits) + 1)]
        out.append(b"done\n")
        _, told, _ = self._ask(
            "fast-import", "--quiet", "--done", "--force", "--date-format=raw", stdin=b"".join(out)
        )
        return told.decode("ascii").split()

    def commit(self, tree: str, parent: str, like: str, message: bytes | None = None) -> str:
        """A commit of a tree with author, date and (unless given) message of the commit `like`."""
        _, raw, _ = self._ask("log", "-1", "--format=%an%x00%ae%x00%ad%x00%B", "--date=raw", like)
        name, mail, date, own = raw.split(b"\0", 3)
        # Without the sign git takes small numbers for something else than seconds.
        when = "@" + _text(date)
        _, out, _ = self._ask(
            "commit-tree", "-p", parent, tree,
            stdin=own.rstrip(b"\n") + b"\n" if message is None else message,
            GIT_AUTHOR_NAME=_text(name), GIT_AUTHOR_EMAIL=_text(mail), GIT_AUTHOR_DATE=when,
            GIT_COMMITTER_DATE=when,
        )  # fmt: skip
        return out.decode("ascii").strip()

    def name(self, ref: str, commit: str) -> None:
        """Let a ref of ours (`refs/tags/…`, `refs/heads/…`) name a commit."""
        self._ask("update-ref", ref, commit)

    def read(self, commit: str, path: str) -> bytes | None:
        """A file of a commit, None where there is none."""
        entry = self.files(commit).get(path)
        return self.blob(entry[1]) if entry else None

    def blob(self, identity: str) -> bytes:
        """The bytes of a blob, or of a commit as git keeps it. One process answers all of these."""
        assert self._repo is not None
        stream = self._repo.odb.stream(bytes.fromhex(identity))
        data: bytes = stream.read()
        return data

    def files(self, commit: str) -> dict[str, tuple[str, str]]:
        """Git mode and blob id by path."""
        if commit not in self._files:
            self._files[commit] = self._listed(commit)
        return self._files[commit]

    def _listed(self, commit: str) -> dict[str, tuple[str, str]]:
        step = self._steps.get(commit)
        if step is not None:
            there = dict(self.files(step[0]))
            for changed, entry in step[1].items():
                if entry is None:
                    there.pop(changed, None)
                else:
                    there[changed] = entry
            return there
        _, out, _ = self._ask("ls-tree", "-r", "-z", commit)
        found = {}
        for row in out.split(b"\0")[:-1]:
            head, _, path = row.partition(b"\t")
            mode, _, identity = head.decode("ascii").split(" ")
            found[_text(path)] = (mode, identity)
        return found

    def tree_of(self, commit: str) -> str:
        """The id of a commit's tree."""
        if commit not in self._trees:
            _, out, _ = self._ask("rev-parse", "--verify", f"{commit}^{{tree}}")
            self._trees[commit] = out.decode("ascii").strip()
        return self._trees[commit]

    def changed(self, old: str, new: str) -> list[str]:
        """The paths that differ between two commits, of a rename both."""
        step = self._steps.get(new)
        if step is not None and step[0] == old:
            return sorted(step[1])
        _, out, _ = self._ask("diff-tree", "-r", "-z", "--no-renames", "--name-only", old, new)
        return [_text(path) for path in out.split(b"\0")[:-1]]

    def since(self, base: str, tip: str) -> list[str]:
        """The commits after `base` up to `tip`, oldest first. What is asked about them afterwards
        is known from then on: a process for each question would cost more than the merges."""
        _, out, _ = self._ask(
            "log", "--reverse", "--first-parent", "--raw", "-z", "--no-abbrev", "--no-renames",
            "--diff-merges=off", "--format=%x01%H %T", f"{base}..{tip}", "--",
        )  # fmt: skip
        found = []
        before = base
        for part in _COMMIT.split(out)[1:]:
            head, _, rows = part.partition(b"\0")
            commit, _, tree = head.decode("ascii").partition(" ")
            self._trees[commit] = tree
            self._steps[commit] = (before, _raw(rows))
            found.append(commit)
            before = commit
        return found

    def parent(self, commit: str) -> str:
        """The commit in front of one."""
        _, out, _ = self._ask("rev-parse", "--verify", f"{commit}^")
        return out.decode("ascii").strip()

    def message(self, commit: str) -> bytes:
        """The message as it is."""
        return self.blob(commit).partition(b"\n\n")[2]

    def head(self) -> str:
        """The commit that is checked out."""
        return self._ask("rev-parse", "--verify", "HEAD")[1].decode("ascii").strip()

    def diff(self, old: str, new: str, *paths: str, context: int = 3) -> bytes:
        """git's diff of two commits with full ids, as a patch of a series holds it."""
        return self._ask(
            "diff", "--full-index", "--no-color", "--no-ext-diff", "--no-textconv",
            "--find-renames", f"--unified={context}", "--src-prefix=a/", "--dst-prefix=b/",
            old, new, "--", *paths,
        )[1]  # fmt: skip

    def range_diff(
        self,
        left: tuple[str, str],
        right: tuple[str, str],
        *,
        creation_factor: int | None = None,
        show: Literal["patch", "stat", "no-patch"] = "patch",
        colour: bool = False,
    ) -> bytes:
        """git's comparison of two rows of commits, each given by the commit in front of it and its
        last one. `creation_factor` is git's, in per cent; `show` says what is told of each pair
        that differs (git-range-diff(1))."""
        words = [f"--{show}", "--color=always" if colour else "--no-color", "--no-ext-diff"]
        words += [] if creation_factor is None else [f"--creation-factor={creation_factor}"]
        ranges = [f"{base}..{tip}" for base, tip in (left, right)]
        return self._ask("range-diff", *words, *ranges)[1]

    def renamed(self, old: str, new: str) -> dict[str, str]:
        """New path by old path for what git takes for renames."""
        _, out, _ = self._ask("diff", "--name-status", "-z", "--find-renames", old, new, "--")
        words = out.split(b"\0")[:-1]
        found, at = {}, 0
        while at < len(words):
            if words[at][:1] in (b"R", b"C"):
                if words[at][:1] == b"R":
                    found[_text(words[at + 1])] = _text(words[at + 2])
                at += 3
            else:
                at += 2
        return found

    # -- the rebase -----------------------------------------------------------------------------

    def rebase(self, onto: str, after: str, tip: str) -> bool:
        """git's own rebase of the commits after `after` up to `tip` onto `onto`; False where it has
        stopped. One commit each, also one that became empty."""
        code, _, err = self._ask(
            "rebase", "--merge", "--quiet", "--empty=keep", "--keep-empty", "--no-fork-point",
            "--reapply-cherry-picks", "--no-verify", "--no-stat", "--committer-date-is-author-date",
            "--onto", onto, after, tip,
            may_fail=True,
        )  # fmt: skip
        if code and self.stopped_at() is None:
            raise VllmSeriesError(
                f"git rebase failed in {self.folder} ({code}): {err.strip()}. "
                "vllm-series rebase --abort gives the rebase up."
            )
        return code == 0

    def stopped_at(self) -> str | None:
        """The commit at which a rebase has stopped; None where none is under way."""
        place = self.folder / ".git" / "rebase-merge" / "stopped-sha"
        if not place.is_file():
            return None
        _, out, _ = self._ask("rev-parse", "--verify", place.read_text("ascii").strip())
        return out.decode("ascii").strip()

    def unmerged(self) -> list[Unmerged]:
        """What the stopped merge has left open, by path."""
        _, out, _ = self._ask("ls-files", "--unmerged", "-z")
        sides: dict[str, dict[str, str]] = {}
        for row in out.split(b"\0")[:-1]:
            head, _, path = row.partition(b"\t")
            _, identity, stage = head.decode("ascii").split(" ")
            sides.setdefault(_text(path), {})[stage] = identity
        return [
            Unmerged(path, found.get("1"), found.get("2"), found.get("3"))
            for path, found in sorted(sides.items())
        ]

    def put_unmerged(
        self, path: str, base: bytes | None, ours: bytes | None, theirs: bytes | None
    ) -> None:
        """Leave a path open as a stopped merge does, with its three sides in the index."""
        rows = [b"0 %s\t%s\n" % (b"0" * 40, _encoded(path))]
        for stage, text in ((1, base), (2, ours), (3, theirs)):
            if text is not None:
                _, out, _ = self._ask("hash-object", "-w", "--no-filters", "--stdin", stdin=text)
                rows.append(b"100644 %s %d\t%s\n" % (out.strip(), stage, _encoded(path)))
        self._ask("update-index", "--index-info", stdin=b"".join(rows))

    def work_tree(self) -> str:
        """The id of the tree that the files as they are in the folder make."""
        self._ask("add", "--all", "--force", "--", ".", *_LEFTOVERS)
        return self._ask("write-tree")[1].decode("ascii").strip()

    def is_changed(self) -> bool:
        """Whether the files in the folder are not those of the commit that is checked out."""
        words = ("status", "--porcelain", "-z", "--untracked-files=all", "--", ".")
        return bool(self._ask(*words, *_LEFTOVERS)[1])

    def is_touched(self) -> bool:
        """Whether a person has changed the files of a stopped merge since git left them."""
        return self._ask("diff", "--quiet", "AUTO_MERGE", "--", may_fail=True)[0] == 1

    def note_resolution(self) -> None:
        """Let rerere remember how conflicts were resolved."""
        self._ask("rerere", may_fail=True)

    def reset(self, commit: str) -> None:
        """Drop whatever is under way, cut off or not, and check a commit out."""
        own = self.folder / ".git"
        self.unlock()
        for name in ("rebase-merge", "rebase-apply"):
            shutil.rmtree(own / name, ignore_errors=True)
        for name in ("MERGE_MSG", "MERGE_RR", "REBASE_HEAD", "CHERRY_PICK_HEAD", "AUTO_MERGE"):
            (own / name).unlink(missing_ok=True)
        # rerere would number the resolution of a conflict that it has seen, but not resolved.
        known = {before for before, _ in resolutions(self.recorded())}
        for before in [*self.recorded().glob("*/preimage*")]:
            if before not in known:
                before.unlink()
        self._ask("checkout", "--quiet", "--force", "--detach", commit)
        self._ask("clean", "-d", "-f", "-x", "--quiet")

    def lay(self, commit: str) -> None:
        """Put the files of a commit into the folder and the index; what is checked out stays."""
        self._ask("read-tree", "-u", "--reset", commit)

    def index(self, commit: str) -> None:
        """Let the index be the files of a commit; those in the folder stay as they are."""
        self._ask("read-tree", "--reset", commit)

    def is_ancestor(self, old: str, new: str) -> bool:
        """Whether `new` is on top of `old`, or is it."""
        return self._ask("merge-base", "--is-ancestor", old, new, may_fail=True)[0] == 0

    def unlock(self) -> None:
        """Take away the locks of a git that was killed."""
        for name in ("index.lock", "HEAD.lock", "ORIG_HEAD.lock", "AUTO_MERGE.lock"):
            (self.folder / ".git" / name).unlink(missing_ok=True)

    def recorded(self) -> Path:
        """The folder in which rerere keeps its resolutions."""
        return self.folder / ".git" / "rr-cache"


_COMMIT = re.compile(rb"\0?\x01(?=[0-9a-f]{40} [0-9a-f]{40}\0)")


def _raw(rows: bytes) -> dict[str, tuple[str, str] | None]:
    """What `--raw -z` says: mode and blob id by path, None where the file goes."""
    found: dict[str, tuple[str, str] | None] = {}
    words = rows.split(b"\0")
    for head, path in zip(words[::2], words[1::2], strict=False):
        if not head.lstrip(b"\n").startswith(b":"):
            break
        _, mode, _, identity, status = head.decode("ascii").split(" ")
        found[_text(path)] = None if status == "D" else (mode, identity)
    return found


def is_ours(folder: Path, *, whole: bool = False) -> bool:
    """Whether a folder holds a repository that was made here (with `whole`, made to its end)."""
    try:
        mark = (folder / ".git" / _MARK).read_text()
    except OSError:
        return False
    return not whole or mark == _MADE


def begin_again(folder: Path, keep: frozenset[str]) -> None:
    """Empty the folder of a repository of ours, but for some files of its `.git`; the next opening
    makes it anew, also where this is cut off."""
    own = folder / ".git"
    (own / _MARK).write_text(_BEGUN)
    for entry in folder.iterdir():
        if entry != own:
            _gone(entry)
    for entry in own.iterdir():
        if entry.name not in keep | {_MARK}:
            _gone(entry)


def _gone(entry: Path) -> None:
    if entry.is_dir() and not entry.is_symlink():
        shutil.rmtree(entry)
    else:
        entry.unlink()


def _text(raw: bytes | str) -> str:
    return raw if isinstance(raw, str) else raw.decode("utf-8", "surrogateescape")


def _encoded(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")


def _quoted(path: str) -> bytes:
    from vllm_series.diffs.canonical import quoted

    return quoted(path).encode("ascii")


def resolutions(folder: Path) -> Iterator[tuple[Path, Path]]:
    """The finished resolutions of a rerere store: files with what was and what it became. One
    conflict may have several, numbered behind the name (`postimage.1`)."""
    for before in sorted(folder.glob("*/preimage*")):
        after = before.with_name(before.name.replace("preimage", "postimage"))
        if after.is_file():
            yield before, after
