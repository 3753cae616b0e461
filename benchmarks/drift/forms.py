"""The two forms in which a sample is handed to the tools: git's own diff, and a patch of ours.

The foreign form is what `git diff` prints, untouched: three lines of context, git's heading,
shortened blob ids. Our form is the same hunk as this project writes it: full blob ids, the scope as
its heading, a `Base:` trailer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from drift.samples import Drawn, Sample
from drift.truth import git
from vllm_series import canonical
from vllm_series.parse import parse
from vllm_series.patch import FileChange, Patch
from vllm_series.placement import blob_id
from vllm_series.search import change_scope

_HEADERS = (
    ("From", "vllm-series <vllm-series@example.invalid>"),
    ("Date", "Thu, 1 Jan 1970 00:00:00 +0000"),
    ("Subject", "[PATCH] drift sample"),
)


@dataclass(frozen=True, slots=True)
class Task:
    """A sample as the tools get it. `name` is its file in a folder of many samples, `numbered` the
    foreign form with that name in place of its path; `own` is a whole mail."""

    sample: Sample
    name: str
    foreign: bytes
    numbered: bytes
    own: bytes


def tasks(drawn: Sequence[Drawn], folder: Path) -> list[Task]:
    """Both forms of every sample; one call of git makes all diffs. `folder` is a scratch folder,
    and keeps `before/`, `edited/` and `target/` with a file for each sample."""
    for name in ("before", "edited", "target"):
        (folder / name).mkdir()
    names = [f"{number:04}.py" for number in range(len(drawn))]
    for name, each in zip(names, drawn, strict=True):
        (folder / "before" / name).write_bytes(each.sample.before)
        (folder / "edited" / name).write_bytes(each.sample.edited)
        (folder / "target" / name).write_bytes(each.sample.target)
    printed = git(folder, "diff", "--no-index", "before", "edited")
    diffs = (b"\n" + printed).split(b"\ndiff --git ")[1:]
    if len(diffs) != len(drawn):
        raise RuntimeError(f"git printed {len(diffs)} diffs of {len(drawn)} samples")
    result = []
    for name, each, diff in zip(names, drawn, diffs, strict=True):
        diff = diff.rstrip(b"\n") + b"\n"
        foreign = _renamed(diff, name, each.sample.path)
        own = _own(foreign, each)
        result.append(Task(each.sample, name, foreign, _renamed(diff, name, name), own))
    return result


def _renamed(diff: bytes, name: str, path: str) -> bytes:
    """The diff with `path` for the scratch file's name in its four header lines."""
    head, mark, body = diff.partition(b"\n@@ ")
    old, new = f"before/{name}".encode(), f"edited/{name}".encode()
    head = head.replace(old, path.encode()).replace(new, path.encode())
    return b"diff --git " + head + mark + body


def _own(foreign: bytes, drawn: Drawn) -> bytes:
    change = parse(foreign, "sample.patch").files[0]
    hunks = []
    for hunk in change.hunks:
        scope = change_scope(
            hunk, drawn.before, drawn.edited, hunk.first_line, hunk.reversed().first_line
        )
        hunks.append(replace(hunk, heading=scope.encode()))
    sample = drawn.sample
    own = replace(
        change,
        hunks=tuple(hunks),
        old_id=blob_id(sample.before),
        new_id=blob_id(sample.edited),
    )
    return canonical.written(_mail(own, sample.pair.old))


def _mail(change: FileChange, base: str) -> Patch:
    return Patch(
        name="sample.patch",
        text=b"",
        headers=_HEADERS,
        message="One line, to see where it lands.",
        trailers=(("Base", f"vllm {base}"),),
        files=(change,),
    )
