"""Commits of a checkout of vLLM, each made a patch; what is outside the package is passed over."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from vllm_series.compose import PatchMeta, compose, split_message
from vllm_series.errors import RefusedError, UsageError
from vllm_series.importing.incoming import Incoming, named, told_apart

if TYPE_CHECKING:
    from vllm_series.upstream.commit import Repository


def read_commits(place: Path, spec: str) -> tuple[list[Incoming], str | None]:
    """What the commits A..B (or a single one) of a checkout change, oldest first; and the release
    that they start from, where that is a tag.

    Raises UsageError for a range that means none or holds a merge, RefusedError where none of them
    changes the package.
    """
    from vllm_series.upstream.commit import Repository
    from vllm_series.workspace.edited import commits_of

    repository = Repository(place)
    try:
        old, new, _ = commits_of(repository, spec)
        release = repository.resolve(old).release
        found = []
        for commit in repository.between(old, new):
            one = _read(repository, commit)
            if one is not None:
                found.append(one)
        if not found:
            raise RefusedError(f"{spec} changes no file of vllm/ in {place}. Name other commits.")
        return told_apart(found), None if ".dev" in release else release
    finally:
        repository.close()


def _read(repository: Repository, commit: str) -> Incoming | None:
    from vllm_series.workspace.edited import between

    parents = repository.parents(commit)
    if len(parents) != 1:
        raise UsageError(
            f"{commit[:12]} has {len(parents)} parents, so what it changed is no patch. Give "
            "a range without merges, or make it one with git rebase."
        )
    (parent,) = parents
    edited = between(repository, parent, commit)
    if not edited.after:
        return None
    author, date, text = repository.written(commit)
    subject, _, _ = split_message(text)
    name = named(subject)
    # The message is judged when it is known whole; here only the diff counts.
    bare = PatchMeta(name, "x <x@localhost>", date, "x", "", ())
    patch = compose(bare, edited.before, edited.after, "0", modes=edited.modes)
    return Incoming(
        name,
        patch,
        author,
        date,
        text,
        (),
        tuple(edited.passed),
    )
