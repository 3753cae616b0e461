"""What an import brings: a diff, and whatever its source says of it.

Every source ends in this one form. The diff is as its author made it, on whatever files; where it
belongs in the release is decided later, by placement.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from vllm_series.errors import PatchFormatError, RefusedError
from vllm_series.patch import FileChange, Patch, strip_level
from vllm_series.trees import PACKAGE

_TAG = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*): ")
_LONGEST = 52
"""As git format-patch cuts a file name (its --filename-max-length is 64)."""


@dataclass(frozen=True, slots=True)
class Incoming:
    """One change. `name` is the file name its patch is to have; `patch` holds the diff.

    `author` (`Name <mail>`), `date` (a mail's) and `message` (subject, why-text and trailers in
    git's form) are what the source says, None or empty where it does not. `headers` are From, Date
    and Subject as the mail had them, so that a patch of ours keeps its bytes. `passed` are files
    that are not part of the package. `base` is the release that it says it was made on.
    """

    name: str
    patch: Patch
    author: str | None = None
    date: str | None = None
    message: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    passed: tuple[str, ...] = ()
    base: str | None = None


def in_package(patch: Patch, level: int | None = None) -> tuple[Patch, tuple[str, ...]]:
    """The patch with git's `a/` and `b/` in front of its paths, and the files that are left out
    because no installation has them.

    `level` is what is to be taken off (`patch -p`); None: what leads into the package.
    Raises RefusedError where nothing of it lies in `vllm/`, PatchFormatError for paths that are too
    short.
    """
    if level is None:
        level = strip_level(patch.files, lambda _path: False)
    kept: list[FileChange] = []
    passed: list[str] = []
    for change in patch.files:
        old, new = change.paths(level)
        if (old is None) != (change.old_raw is None) or (new is None) != (change.new_raw is None):
            raise PatchFormatError(
                patch.name,
                change.lineno,
                f"{change.new_raw or change.old_raw} has fewer folders than strip level {level} "
                "takes off. Correct the level.",
            )
        inside = [path for path in (old, new) if path and path.startswith(f"{PACKAGE}/")]
        if not inside:
            passed.append(new or old or "")
            continue
        kept.append(
            replace(
                change,
                old_raw=None if old is None else f"a/{old}",
                new_raw=None if new is None else f"b/{new}",
            )
        )
    if not kept:
        raise RefusedError(
            f"{patch.name} changes no file of the installed package, but {', '.join(passed)}. "
            f"Only {PACKAGE}/ is patched."
        )
    return replace(patch, files=tuple(kept)), tuple(passed)


def named(subject: str) -> str:
    """A patch's file name by its subject: the word before a colon, else the words, as
    git format-patch has them."""
    found = _TAG.match(subject)
    words = found[1] if found else subject
    slug = re.sub(r"[^A-Za-z0-9._]+", "-", words)[:_LONGEST]
    return (re.sub(r"\.+", ".", slug).strip("-.").removesuffix(".patch") or "patch") + ".patch"


def subject_of(text: str) -> tuple[str, str]:
    """Subject and why-text of a text that was not written as a commit message.

    Its first line is the subject where a blank line follows; where its first paragraph goes on, the
    why-text keeps all of it. A full stop ends no subject.
    """
    lines = text.strip("\n").split("\n")
    subject = " ".join(lines[0].split())
    rest = lines if len(lines) > 1 and lines[1].strip() else lines[1:]
    return subject.removesuffix("."), "\n".join(rest).strip("\n")


def told_apart(found: Sequence[Incoming]) -> list[Incoming]:
    """The same with a number behind a name that came before."""
    seen = set[str]()
    out = []
    for one in found:
        stem, dot, ending = one.name.rpartition(".")
        name, number = one.name, 1
        while name in seen:
            number += 1
            name = f"{stem}-{number}{dot}{ending}"
        seen.add(name)
        out.append(replace(one, name=name, patch=replace(one.patch, name=name)))
    return out
