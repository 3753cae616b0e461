"""Answers kept by what they depend on, so that the same question is answered once.

The key of an answer is a digest of everything that it was made from: the texts of the patches, the
bytes that they are held against, the bytes of their base, and the code that judges. Nothing else is
looked at on a second run; nothing is ever out of date.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vllm_series.checking.answers import FileAnswer, HunkAnswer, Overlap, PatchAnswer, Rename
from vllm_series.verdicts import Verdict

if TYPE_CHECKING:
    from vllm_series.checking.check import Store

KIND = "answers"
"""The store's word for them."""


def judging_code() -> str:
    """A digest of this package's source, and of what else an answer may hang on: the running
    Python's grammar and unidiff. Where the source is not at hand (a zip), the version stands in.

    All of the core, of the readers of diffs and of this folder: a list of what judges would be out
    of date one day.
    """
    import sys

    from vllm_series import __version__

    found = hashlib.sha256()
    here = Path(__file__).parent
    core = here.parent
    for path in sorted((*core.glob("*.py"), *core.glob("diffs/*.py"), *here.glob("*.py"))):
        found.update(path.name.encode())
        found.update(path.read_bytes())
    found.update(_reader())
    found.update(repr((sys.version_info[:2], __version__)).encode())
    return found.hexdigest()


def _reader() -> bytes:
    """What tells the version of unidiff; neither importlib.metadata nor unidiff itself is loaded
    for it, which takes longer than all else here."""
    from importlib.util import find_spec

    found = find_spec("unidiff")
    try:
        assert found is not None
        assert found.origin is not None
        return Path(found.origin).with_name("__version__.py").read_bytes()
    except OSError:
        from unidiff.__version__ import __version__

        return __version__.encode()


def digest(*parts: object) -> str:
    """A key of plain values: strings, numbers, None, and lists, tuples and mappings of them."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


class Answers:
    """The answers of one run over those of earlier ones; in memory alone without a store."""

    def __init__(self, store: Store | None) -> None:
        self._store = store
        self._here: dict[str, bytes] = {}
        self._code = judging_code()

    def key(self, *parts: object) -> str:
        """What `parts` and the judging code make."""
        return digest(self._code, *parts)

    def get(self, key: str) -> Any:
        """The value that was put there, None for none."""
        data = self._here.get(key)
        if data is None and self._store is not None:
            data = self._store.get(KIND, key)
        if data is None:
            return None
        try:
            return json.loads(data)
        except ValueError:
            return None

    def put(self, key: str, value: object) -> None:
        """Keep a value of JSON's kinds."""
        data = json.dumps(value, separators=(",", ":")).encode()
        self._here[key] = data
        if self._store is not None:
            self._store.put(KIND, key, data)


# -- answers as JSON's kinds -----------------------------------------------------------------------


_VERDICTS = {verdict.value: verdict for verdict in Verdict}


def packed(patches: Sequence[PatchAnswer], overlaps: Sequence[Overlap]) -> list[object]:
    """The answer of one release as lists, in the order of the fields."""
    return [
        [
            [
                *(p.name, p.verdict.value),
                [_packed_file(file) for file in p.files],
                *(p.reason, p.blocked_by, p.review, p.since, p.base, p.notes),
            ]
            for p in patches
        ],
        [[o.first, o.second, o.path, o.lines] for o in overlaps],
    ]


def _packed_file(file: FileAnswer) -> list[object]:
    hunks = [
        [
            *(h.path, h.number, h.verdict.value, h.line, h.offset, h.scope, h.reason),
            *(h.candidate, h.review, h.since),
        ]
        for h in file.hunks
    ]
    renames = [[rename.path, rename.similarity] for rename in file.renames]
    return [
        *(file.path, file.verdict.value, hunks, file.reason, renames),
        *(file.review, file.since),
    ]


def unpacked(value: Any) -> tuple[tuple[PatchAnswer, ...], tuple[Overlap, ...]]:
    """What `packed` was given. Raises ValueError, TypeError or KeyError for anything else."""
    patches, overlaps = value
    return (
        tuple(
            PatchAnswer(
                name,
                _VERDICTS[verdict],
                tuple(_file(file) for file in files),
                reason,
                tuple(blocked_by),
                tuple(review),
                since,
                base,
                tuple(notes),
            )
            for name, verdict, files, reason, blocked_by, review, since, base, notes in patches
        ),
        tuple(Overlap(first, second, path, (a, b)) for first, second, path, (a, b) in overlaps),
    )


def _file(value: Any) -> FileAnswer:
    path, verdict, hunks, reason, renames, review, since = value
    return FileAnswer(
        path,
        _VERDICTS[verdict],
        tuple(
            HunkAnswer(
                where, at, _VERDICTS[word], line, offset, scope, why, near, tuple(reasons), first
            )
            for where, at, word, line, offset, scope, why, near, reasons, first in hunks
        ),
        reason,
        tuple(Rename(new, similarity) for new, similarity in renames),
        tuple(review),
        since,
    )
