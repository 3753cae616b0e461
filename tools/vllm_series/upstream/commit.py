"""A release as a Git repository holds it, read from its objects: nothing is checked out.

`git` itself reads them, sealed off from the user's configuration, with no word of the user where an
option could stand, and without leave to fetch what a partial clone lacks. One process answers for
as many files as are asked for.
"""

from __future__ import annotations

import os
import re
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from vllm_series.errors import EnvironmentRefusedError, RefusedError, UsageError
from vllm_series.trees import PACKAGE
from vllm_series.upstream.member import LARGEST

_RELEASE = re.compile(r"v(\d+(?:\.\d+)+(?:\.?(?:rc|post|a|b)\d+)?)$")
_DESCRIBED = re.compile(r"v(\d+(?:\.\d+)*)(\S*)-(\d+)-g([0-9a-f]+)$")
_SEALED = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "LC_ALL": "C",
}


@dataclass(frozen=True, slots=True)
class Tag:
    """A tag that names a release, `v0.33.0`. `commit` is the full id, `date` the day of the tag."""

    release: str
    commit: str
    date: str


class Repository:
    """A Git repository, or a checkout of one. Close it when done. Safe for threads."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._reader: subprocess.Popen[bytes] | None = None

    @property
    def folder(self) -> Path:
        """Where it is."""
        return self._folder

    def tags(self) -> list[Tag]:
        """Every tag that is named after a release, in no order."""
        columns = (
            "refname:strip=2",
            "objecttype",
            "objectname",
            "*objectname",
            "creatordate:short",
        )
        form = "%09".join(f"%({column})" for column in columns)
        found = []
        for line in self._asked("for-each-ref", f"--format={form}", "refs/tags").splitlines():
            name, kind, own, target, date = line.split("\t")
            release = _RELEASE.match(name)
            if release:
                found.append(Tag(release[1], own if kind == "commit" else target, date))
        return found

    def resolve(self, name: str) -> Tag:
        """The commit that a tag, a branch or an id names, as a release.

        A commit between releases is called as setuptools-scm calls it, `0.33.1.dev12+g1a2b3c4d5`.
        Raises UsageError for a name that means no commit.
        """
        for full in (f"refs/tags/{name}", name):
            commit = self._asked(
                "rev-parse", "--verify", "--quiet", "--end-of-options", f"{full}^{{commit}}",
                fails=(1, 128),
            ).strip()  # fmt: skip
            if commit:
                break
        else:
            raise UsageError(
                f"{name!r} names no commit: {self._folder}. Give a tag such as v0.33.0; git tag "
                "lists them."
            )
        date = self._asked("show", "-s", "--format=%cs", "--end-of-options", commit).strip()
        named = _RELEASE.match(name)
        return Tag(named[1] if named else self._described(commit), commit, date)

    def _described(self, commit: str) -> str:
        told = self._asked(
            "describe", "--tags", "--long", "--match=v[0-9]*", commit, fails=(1, 128)
        ).strip()
        found = _DESCRIBED.match(told)
        if not found:
            return f"0.dev0+g{commit[:9]}"
        numbers, rest, distance, short = found.groups()
        if distance == "0":
            return numbers + rest
        first, _, last = numbers.rpartition(".")
        following = numbers if rest else f"{first}.{int(last) + 1}"
        return f"{following}.dev{distance}+g{short}"

    def files(self, commit: str) -> dict[str, tuple[int, str]]:
        """Mode (0o100644) and blob id of every file under `vllm/`; submodules are passed over."""
        listed = self._asked(
            "ls-tree", "-r", "-z", "--full-tree", "--end-of-options", commit, f"{PACKAGE}/"
        )
        found = {}
        for line in listed.split("\0")[:-1]:
            head, _, path = line.partition("\t")
            mode, kind, blob = head.split(" ")
            if kind == "blob":
                found[path] = (int(mode, 8), blob)
        return found

    def changed(self, old: str, new: str) -> list[str]:
        """Every path that differs between two commits, in the whole repository."""
        listed = self._asked(
            "diff-tree", "-r", "-z", "--name-only", "--no-renames", "--end-of-options", old, new
        )
        return listed.split("\0")[:-1]

    def between(self, old: str, new: str) -> list[str]:
        """The full ids of the commits that `new` has and `old` has not, oldest first."""
        return self._asked(
            "rev-list", "--reverse", "--topo-order", "--end-of-options", new, f"^{old}"
        ).split()

    def parents(self, commit: str) -> list[str]:
        """The full ids of a commit's parents."""
        return self._asked("show", "-s", "--format=%P", "--end-of-options", commit).split()

    def written(self, commit: str) -> tuple[str, str, str]:
        """Who wrote a commit (`Name <mail>`), when (as a mail has it), and its whole message."""
        told = self._asked(
            "show", "-s", "--encoding=UTF-8", "--format=%an <%ae>%x00%aD%x00%B",
            "--end-of-options", commit,
        )  # fmt: skip
        author, date, message = told.split("\0", 2)
        return author, date, message.rstrip("\n")

    def blob(self, name: str) -> bytes:
        """The bytes of a blob by its id.

        Raises EnvironmentRefusedError where the repository lacks it, as a partial clone does.
        """
        with self._lock:
            if self._reader is None or self._reader.poll() is not None:
                self._reader = self._started()
            wanted, answered = _pipes(self._reader)
            try:
                wanted.write(name.encode("ascii") + b"\n")
                wanted.flush()
                words = answered.readline().split()
                if len(words) != 3 or words[1] != b"blob":
                    raise EnvironmentRefusedError(
                        f"{self._folder} lacks the object {name}. Fetch it: git fetch --refetch."
                    )
                size = int(words[2])
                if size > LARGEST:
                    self._ended()
                    raise EnvironmentRefusedError(
                        f"the object {name} in {self._folder} has {size} bytes, more than any "
                        "source. Leave it out."
                    )
                text = answered.read(size)
                if len(text) != size or answered.read(1) != b"\n":
                    raise BrokenPipeError
            except OSError as error:
                self._ended()
                raise EnvironmentRefusedError(
                    f"git ended while it read {self._folder}. Check it with git fsck."
                ) from error
            return text

    def close(self) -> None:
        """End the process that reads."""
        with self._lock:
            self._ended()

    def _ended(self) -> None:
        if self._reader is not None:
            self._reader.kill()
            for pipe in _pipes(self._reader):
                pipe.close()
            self._reader.wait()
            self._reader = None

    def __del__(self) -> None:
        self._ended()

    def _started(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            ["git", "cat-file", "--batch"],
            cwd=self._folder,
            env=sealed(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def _asked(self, *words: str, fails: tuple[int, ...] = ()) -> str:
        """What git answers; an empty text where it ends with one of `fails`."""
        try:
            done = subprocess.run(
                ["git", *words],
                cwd=self._folder,
                env=sealed(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
            )
        except FileNotFoundError as error:
            what = "git is not installed" if self._folder.is_dir() else "there is no such folder"
            raise EnvironmentRefusedError(
                f"{what}: {self._folder}. Check --source git:PATH."
            ) from error
        except NotADirectoryError as error:
            raise EnvironmentRefusedError(
                f"{self._folder} is not a folder. Check --source git:PATH."
            ) from error
        if done.returncode and done.returncode not in fails:
            told = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["no reason"]
            raise EnvironmentRefusedError(
                f"git cannot read {self._folder}: {told[0].removeprefix('fatal: ')}. "
                "Check --source git:PATH."
            )
        return "" if done.returncode else done.stdout.decode("utf-8", "surrogateescape")


class CommitTree:
    """The files of one commit. `opened` names the repository and the release."""

    def __init__(self, repository: Repository, tag: Tag) -> None:
        self._repository = repository
        self._tag = tag
        self._lock = threading.Lock()
        self._files: dict[str, tuple[int, str]] | None = None

    @property
    def label(self) -> str:
        """Release, commit and repository."""
        tag = self._tag
        return f"vllm {tag.release} (commit {tag.commit[:12]} in {self._repository.folder})"

    @property
    def version(self) -> str | None:
        """The release."""
        return self._tag.release

    @property
    def release(self) -> str:
        """The release."""
        return self._tag.release

    @property
    def identity(self) -> str:
        """The full id of the commit."""
        return self._tag.commit

    def read(self, path: str) -> bytes | None:
        """The whole file, None where there is none. Raises RefusedError for a link."""
        found = self._all().get(path)
        if found is None:
            return None
        if found[0] == 0o120000:
            raise RefusedError(f"{path} is a link in {self.label}. Patch what it points to.")
        return self._repository.blob(found[1])

    def mode(self, path: str) -> int | None:
        """The permission bits, None where there is no file."""
        found = self._all().get(path)
        return None if found is None else found[0] & 0o777 or 0o644

    def listing(self) -> Mapping[str, str]:
        """Every file with its blob id."""
        return {path: blob for path, (mode, blob) in self._all().items() if mode != 0o120000}

    def _all(self) -> dict[str, tuple[int, str]]:
        with self._lock:
            if self._files is None:
                self._files = self._repository.files(self._tag.commit)
            return self._files


def sealed() -> dict[str, str]:
    """The environment of a git process that neither the user nor the machine has configured."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return {**kept, **_SEALED}


def _pipes(process: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
    assert process.stdin is not None
    assert process.stdout is not None
    return process.stdin, process.stdout
