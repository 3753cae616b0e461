"""Patches as commits on a new branch of a checkout of vLLM; work tree and index are not looked at.

The commits stand on the commit whose files are those that the patches were made on, by blob id.
Everything that makes their ids comes from the patches, so that the same series gives the same ids.
Git's fast-import writes the objects and the branch (git-fast-import(1)), sealed off from the user's
configuration and the repository's hooks, with no word of the user where an option could stand.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_series.diffs.canonical import quoted
from vllm_series.errors import EnvironmentRefusedError, RefusedError, UsageError
from vllm_series.reanchor import Layers, why

if TYPE_CHECKING:
    from vllm_series.patch import Patch
    from vllm_series.steps import PatchStep


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch as it was made: its name, the commit it starts from, and its tip."""

    name: str
    base: str
    tip: str


def write_branch(patches: Sequence[Patch], folder: Path, name: str, onto: str) -> Branch:
    """Make the branch `name` in a repository, on the commit `onto`.

    A branch of that name that is these very commits is left as it is. Raises UsageError for names
    that mean nothing to git, RefusedError where the files of `onto` are not those that the patches
    were made on, and where another branch has the name.
    """
    from vllm_series.upstream.commit import CommitTree, Repository

    repository = Repository(folder)
    try:
        tag = repository.resolve(onto)
        tree = CommitTree(repository, tag)
        layers = Layers(tree.read, tree.mode, tag.release)
        steps = [_step(patch, layers, onto, folder) for patch in patches]
        modes = [
            {file.path: _mode(file.mode, layers.mode(file.path)) for file in step.files}
            for step in steps
        ]
    finally:
        repository.close()
    git = _Git(folder)
    git.refuse_name(name)
    tip = git.made(patches, steps, modes, tag.commit)
    there = git.commit(f"refs/heads/{name}")
    if there is not None and there != tip:
        raise RefusedError(
            f"{folder} has a branch {name} already, with other commits. Name another one: "
            f"--git {folder}@NAME."
        )
    if there is None:
        git.name(f"refs/heads/{name}", tip)
    return Branch(name, tag.commit, tip)


def _step(patch: Patch, layers: Layers, onto: str, folder: Path) -> PatchStep:
    plan = layers.plan(patch)
    # A file that is only renamed, or only changes its mode, has no blob id in the patch.
    strange = [file.path for file in plan.files if file.change.hunks and not file.pristine]
    if plan.step is None or not plan.fits or strange:
        told = (
            f"{strange[0]} of {onto} is not the file that it was made on"
            if strange and plan.fits
            else why(plan)
        )
        raise RefusedError(
            f"{patch.name} has no place on {onto} in {folder}: {told}. Name the commit whose files "
            f"are those of vllm {patch.base or 'its base'} with --onto."
        )
    layers.take(patch.name, plan.step)
    return plan.step


def _mode(given: int | None, known: int | None) -> str:
    bits = given if given is not None else known
    return "100755" if bits is not None and bits & 0o100 else "100644"


class _Git:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def refuse_name(self, name: str) -> None:
        """Raises UsageError for what git does not take as the name of a branch."""
        if name.startswith("-") or self._ask("check-ref-format", f"refs/heads/{name}") is None:
            raise UsageError(f"{name!r} is no name for a branch. See git check-ref-format --help.")

    def commit(self, ref: str) -> str | None:
        """The commit that a ref names, None where there is no such ref."""
        told = self._ask("rev-parse", "--verify", "--quiet", "--end-of-options", ref)
        return None if told is None else told.decode("ascii").strip()

    def name(self, ref: str, commit: str) -> None:
        """Make a ref. Raises RefusedError where it is there."""
        if self._ask("update-ref", ref, commit, "0" * 40) is None:
            raise RefusedError(f"{ref} cannot be made in {self._folder}. Name another branch.")

    def made(
        self,
        patches: Sequence[Patch],
        steps: Sequence[PatchStep],
        modes: Sequence[dict[str, str]],
        base: str,
    ) -> str:
        """Write the commits, on `base`; the id of the last one. No ref is left."""
        from vllm_series.workspace.chain import commit_of
        from vllm_series.workspace.repository import COMMITTER

        ref = f"refs/vllm-series/export-{os.getpid()}"
        out = []
        for number, (patch, step, given) in enumerate(zip(patches, steps, modes, strict=True)):
            commit = commit_of({}, 0, patch)
            out.append(f"commit {ref}\nauthor ".encode() + commit.author)
            who = f" {commit.date}\ncommitter {COMMITTER[0]} <{COMMITTER[1]}> {commit.date}\n"
            out.append(who.encode())
            out.append(b"data %d\n%s\n" % (len(commit.message), commit.message))
            if number == 0:
                out.append(f"from {base}\n".encode())
            for file in step.files:
                path = quoted(file.path).encode("ascii")
                if file.after is None:
                    out.append(b"D %s\n" % path)
                else:
                    out.append(b"M %s inline %s\n" % (given[file.path].encode(), path))
                    out.append(b"data %d\n%s\n" % (len(file.after), file.after))
            out.append(b"\n")
        out.append(b"done\n")
        words = ("fast-import", "--quiet", "--done", "--force", "--date-format=raw")
        try:
            if self._ask(*words, stdin=b"".join(out)) is None:
                raise EnvironmentRefusedError(
                    f"git cannot write into {self._folder}. Check that it is yours, and git fsck."
                )
            tip = self.commit(ref)
            assert tip is not None
            return tip
        finally:
            self._ask("update-ref", "-d", ref)

    def _ask(self, *words: str, stdin: bytes = b"") -> bytes | None:
        """What git answers, None where it fails."""
        from vllm_series.upstream.commit import sealed

        done = subprocess.run(
            ["git", "-c", f"core.hooksPath={os.devnull}", "-c", "gc.auto=0", *words],
            cwd=self._folder,
            env=sealed(),
            input=stdin,
            capture_output=True,
            check=False,
        )
        return None if done.returncode else done.stdout
