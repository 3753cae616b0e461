"""The two forms in which a sample is handed to the tools: git's own diff, and a patch of ours.

The foreign form is what `git diff` prints, untouched: three lines of context, git's heading,
shortened blob ids. Our form is the same hunk as this project writes it: full blob ids, a `Base:`
trailer, and as heading the scope and which copy of its text is meant there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from drift.samples import Sample
from drift.truth import git
from vllm_series.diffs import canonical
from vllm_series.diffs.parse import parse
from vllm_series.heading import heading_of
from vllm_series.patch import FileChange, Patch
from vllm_series.placement import blob_id

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


def tasks(samples: Sequence[Sample], folder: Path) -> list[Task]:
    """Both forms of every sample; one call of git makes all diffs. `folder` is a scratch folder,
    and keeps `before/`, `edited/` and `target/` with a file for each sample."""
    for name in ("before", "edited", "target"):
        (folder / name).mkdir()
    names = [f"{number:04}.py" for number in range(len(samples))]
    for name, each in zip(names, samples, strict=True):
        (folder / "before" / name).write_bytes(each.before)
        (folder / "edited" / name).write_bytes(each.edited)
        (folder / "target" / name).write_bytes(each.target)
    printed = git(folder, "diff", "--no-index", "before", "edited")
    diffs = (b"\n" + printed).split(b"\ndiff --git ")[1:]
    if len(diffs) != len(samples):
        raise RuntimeError(f"git printed {len(diffs)} diffs of {len(samples)} samples")
    result = []
    for name, each, diff in zip(names, samples, diffs, strict=True):
        diff = diff.rstrip(b"\n") + b"\n"
        foreign = _renamed(diff, name, each.path)
        own = _own(foreign, each)
        result.append(Task(each, name, foreign, _renamed(diff, name, name), own))
    return result


def _renamed(diff: bytes, name: str, path: str) -> bytes:
    """The diff with `path` for the scratch file's name in its four header lines."""
    head, mark, body = diff.partition(b"\n@@ ")
    old, new = f"before/{name}".encode(), f"edited/{name}".encode()
    head = head.replace(old, path.encode()).replace(new, path.encode())
    return b"diff --git " + head + mark + body


def _own(foreign: bytes, sample: Sample) -> bytes:
    change = parse(foreign, "sample.patch").files[0]
    hunks = [
        replace(hunk, heading=heading_of(hunk, sample.before, sample.edited, sample.path))
        for hunk in change.hunks
    ]
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
