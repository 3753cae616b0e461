"""What a series must be before anyone applies it: complete, in its one form, and true.

Without a base tree the text alone is judged. With one, every blob id and every scope is held
against the base's files, patch by patch on top of each other.
"""

from __future__ import annotations

import difflib
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from vllm_series.contracts import CONTRACT, broken
from vllm_series.diffs.canonical import written
from vllm_series.diffs.parse import parse
from vllm_series.errors import PatchFormatError, SeriesError
from vllm_series.fileplan import FilePlan, Read
from vllm_series.heading import read_heading
from vllm_series.patch import NO_BLOB, FileChange, Kind, Patch
from vllm_series.plan import PatchPlan, make_plan
from vllm_series.scope import MODULE, Scopes, is_python
from vllm_series.search import Search, change_scope
from vllm_series.series import called, line_of, load, orphans
from vllm_series.smoke import expect
from vllm_series.verdicts import Verdict

REQUIRED_TRAILERS = {
    "Base": "the release that the diff was made on, such as `Base: vllm 0.33.0`",
    "Origin": "where it comes from, such as `Origin: vendor` or `Origin: upstream, URL`",
    "Forwarded": "`Forwarded: no`, or where it was sent: `Forwarded: URL`",
    "Last-Update": "the day of its last change, such as `Last-Update: 2026-12-01`",
}
"""What each is to say, where it is missing; the keys and forms but `Base` are those of DEP-3."""

KNOWN_TRAILERS = (
    *REQUIRED_TRAILERS,
    "Activate",
    "Needs",
    "Contract",
    "Expect",
    "Applied-Upstream",
    "Remove-When",
    "Bug",
    "Author",
    "Reviewed-by",
    "Signed-off-by",
    "Co-authored-by",
    "Tested-by",
    "Acked-by",
)
"""Ours and those of DEP-3 and git; a key that is close to one of them but not equal is a typo."""

_DATE = re.compile(r"^\d{4}-\d{2}-\d{2}$")
_BASE = re.compile(r"^vllm \d+\.\d+\.\d+\S*$")
_ACTIVATE = re.compile(r"^[A-Za-z_]\w*=\S*$")
_SCOPE = re.compile(r"^[^\W\d]\w*(#\d+)?(\.[^\W\d]\w*(#\d+)?)*$")
_FORM = re.compile(
    r"(\S+: )?(section heading|index id|no index line|written again|offset on its base"
    r"|drifted on its base|moved on its base)"
)
_FULL_ID = re.compile(r"^[0-9a-f]{40}$")


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong: where (a file, its line or 0) and what, with what to do."""

    path: Path
    line: int
    text: str

    @property
    def is_form(self) -> bool:
        """Whether `refresh` writes it as it must be: ids, places, headings, the one form."""
        return bool(_FORM.match(self.text))

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}" if self.line else f"{self.path}: {self.text}"


@dataclass(frozen=True, slots=True)
class Report:
    """What `lint` found in one series folder. `base` is the release it was held against, if any."""

    folder: Path
    patches: int
    hunks: int
    problems: tuple[Problem, ...]
    base: str | None = None


def lint(folder: Path, base: Read | None = None, version: str | None = None) -> Report:
    """Check one series folder; `base` reads the files of release `version`, its patches' base.

    The base is used for the patches whose `Base:` is that version and is passed over where the
    series has another one; `Report.base` says which it was.
    """
    try:
        series = load(folder)
    except SeriesError as error:
        return Report(folder, 0, 0, (Problem(folder, 0, str(error)),))
    problems = [
        Problem(folder / name, 0, "no line of the series file names it. List it or delete it.")
        for name in orphans(folder)
    ]
    if not series.entries:
        nothing = "it lists no patch. Write the names of the patches into it."
        problems.append(Problem(folder / "series", 0, nothing))
    patches: list[Patch] = []
    for entry in series.entries:
        path = folder / entry.name
        try:
            patch = parse(entry.text, entry.name)
        except PatchFormatError as error:
            problems.append(Problem(path, error.line, error.reason))
            continue
        before = [earlier.name for earlier in patches]
        held = base is not None and patch.base == version
        problems += [Problem(path, line, text) for line, text in _text(patch, folder, before, held)]
        patches.append(patch)
    on_base = {patch.name for patch in patches if patch.base == version}
    if base is not None and on_base:
        problems += [
            Problem(folder / name, line, text)
            for name, line, text in _against(patches, base)
            if name in on_base
        ]
    hunks = sum(len(change.hunks) for patch in patches for change in patch.files)
    against = version if base is not None and on_base else None
    return Report(folder, len(series.entries), hunks, tuple(problems), against)


def _text(
    patch: Patch, folder: Path, before: Sequence[str], held: bool
) -> Iterator[tuple[int, str]]:
    """What the patch file shows by itself; a wrong scope is better told by the base, if `held`."""
    headers = {key.lower() for key, _ in patch.headers}
    for key in ("From", "Date", "Subject"):
        if key.lower() not in headers:
            yield 0, f"no {key}: header. Write it with git format-patch."
    if not re.sub(r"\s", "", patch.message):
        yield 0, "no why-text. Say below the subject why the change is made."
    for warning in patch.warnings:
        yield 0, warning.removeprefix(f"{patch.name}:").strip()
    yield from _trailers(patch, folder, before)
    for change in patch.files:
        yield from _ids(change)
        yield from _headings(change, held)
    if headers and (form := written(patch)) != patch.text:
        yield _first_difference(patch.text, form)


def _trailers(patch: Patch, folder: Path, before: Sequence[str]) -> Iterator[tuple[int, str]]:
    for key, content in REQUIRED_TRAILERS.items():
        if not patch.trailer(key):
            yield 0, f"no {key}: trailer. Write {content}."
    known = {key.lower(): key for key in KNOWN_TRAILERS}
    for key, value in patch.trailers:
        if key.lower() not in known:
            close = difflib.get_close_matches(key.lower(), known, n=1, cutoff=0.8)
            if close:
                yield 0, f"trailer {key}: is not known. Is {known[close[0]]}: meant?"
        if not value:
            yield 0, f"trailer {key}: has no value. Write one or take the line out."
    for value in patch.trailer("Base"):
        if not _BASE.match(value):
            yield 0, f"Base: {value} is not of the form `vllm 0.33.0`. Write it so."
        elif not _serves(folder, value.split()[1]):
            yield (
                0,
                f"Base: {value} is not of the line that {folder.name} serves. "
                "Correct it or move the patch.",
            )
    for value in patch.trailer("Last-Update"):
        if not _DATE.match(value):
            yield 0, f"Last-Update: {value} is not a date like 2026-12-01. Write one."
    for value in patch.trailer("Activate"):
        if not _ACTIVATE.match(value):
            yield 0, f"Activate: {value} is not of the form NAME=value. Write it so."
    for value in patch.trailer("Contract"):
        if not CONTRACT.match(value):
            yield (
                0,
                f"Contract: {value} is not of the form module:Class.name(parameters). Write it so.",
            )
    for value in filter(None, patch.trailer("Expect")):
        try:
            expect.parse(value)
        except expect.ExpectError as error:
            yield 0, f"Expect: {error}"
    for value in patch.trailer("Needs"):
        if not any(value in called(name) for name in before):
            yield 0, f"Needs: {value} is not in front of it in the series. Put it there."


def _serves(folder: Path, release: str) -> bool:
    serves = folder.name.removeprefix("vllm-")
    return serves in (release, line_of(release))


def _ids(change: FileChange) -> Iterator[tuple[int, str]]:
    if not change.hunks and change.kind in (Kind.MODIFY, Kind.RENAME, Kind.COPY):
        return
    for recorded, absent in (
        (change.old_id, change.kind is Kind.CREATE),
        (change.new_id, change.kind is Kind.DELETE),
    ):
        if recorded is None:
            yield change.lineno, "no index line. Make the diff with git diff --full-index."
            return
        if not _FULL_ID.match(recorded):
            yield change.lineno, f"index id {recorded} is shortened. Use git diff --full-index."
        elif absent != (recorded == NO_BLOB):
            yield (
                change.lineno,
                f"index id {recorded} does not go with a {change.kind.value}. "
                "Use git diff --full-index.",
            )


def _headings(change: FileChange, held: bool) -> Iterator[tuple[int, str]]:
    path = change.new_raw or change.old_raw or ""
    whole = change.kind in (Kind.CREATE, Kind.DELETE)
    for hunk in change.hunks:
        heading = hunk.heading.decode("utf-8", "replace")
        if whole or not is_python(path):
            if heading:
                yield (
                    hunk.lineno,
                    f"section heading {heading!r} where no scope can be meant. Take it out.",
                )
        elif not held and not _is_scope(hunk.heading):
            yield (
                hunk.lineno,
                (
                    f"section heading {heading!r} is not the hunk's scope. "
                    "With --target or --python on its base, lint says which it is."
                ),
            )


def _is_scope(heading: bytes) -> bool:
    """Whether a heading has the form of ours, such as `Scheduler.schedule (2 of 3)`."""
    read = read_heading(heading)
    return read is not None and (read.scope == MODULE or bool(_SCOPE.match(read.scope)))


def _first_difference(text: bytes, form: bytes) -> tuple[int, str]:
    ours, theirs = form.split(b"\n"), text.split(b"\n")
    for number, (wanted, found) in enumerate(zip(ours, theirs, strict=False), 1):
        if wanted != found:
            return number, (
                "written again it would be another text here: "
                f"{wanted.decode('utf-8', 'replace')[:70]!r}. "
                "Write it so."
            )
    end = "written again it would have another end. Make the patch again."
    return min(len(ours), len(theirs)), end


def _against(patches: Sequence[Patch], base: Read) -> Iterator[tuple[str, int, str]]:
    """Hold ids, places, scopes and contracts against the base's files."""
    plan = make_plan(patches, base)
    texts: dict[str, bytes | None] = {}

    def now(path: str) -> bytes | None:
        return texts[path] if path in texts else base(path)

    for judged in plan.patches:
        name = judged.patch.name
        for line, text in _judged(judged):
            yield name, line, text
        for file in judged.files:
            before = now(file.change.old_raw.partition("/")[2]) if file.change.old_raw else None
            after = _after(judged, file.path)
            if before is not None and after is not None:
                for line, text in _scopes(file, before, after):
                    yield name, line, text
        for line, text in _contracts(judged.patch, now):
            yield name, line, text
        if judged.step is not None:
            texts.update({file.path: file.after for file in judged.step.files})


def _judged(judged: PatchPlan) -> Iterator[tuple[int, str]]:
    if judged.reason:
        yield 0, f"{judged.reason}."
    for note in judged.notes:
        yield 0, note.removeprefix(f"{judged.patch.name}:").strip()
    for file in judged.files:
        if file.reason:
            yield file.change.lineno, f"{file.path}: {file.verdict.value}: {file.reason}."
        elif not file.pristine and (file.change.hunks or file.change.old_id):
            # Without hunks git writes no id: a mode or a name alone has changed.
            yield (
                file.change.lineno,
                f"{file.path}: index id {(file.change.old_id or '?')[:12]} is not that of the base."
                " Make the diff on the base.",
            )
        for placement in file.placements:
            if placement.verdict is not Verdict.EXACT:
                yield (
                    placement.hunk.lineno,
                    (
                        f"{placement.verdict.value} on its base"
                        + (f": {placement.reason}." if placement.reason else ".")
                    ),
                )


def _after(judged: PatchPlan, path: str) -> bytes | None:
    if judged.step is None:
        return None
    return next((file.after for file in judged.step.files if file.path == path), None)


def _scopes(file: FilePlan, before: bytes, after: bytes) -> Iterator[tuple[int, str]]:
    search = Search(io.BytesIO(before).readlines(), before, file.path, binding=True)
    old, new = search.scopes, Scopes.of(after, file.path)
    if old is None or new is None:
        return
    shift = 0
    for placement in file.placements:
        if placement.line is None:
            return
        hunk = placement.hunk
        scope = change_scope(hunk, old, new, placement.line, placement.line + shift)
        shift += hunk.new_count - hunk.old_count
        heading = hunk.heading.decode("utf-8", "replace")
        wanted = search.heading(hunk, scope, placement.line)
        if str(wanted) == heading:
            continue
        if wanted.count > 1:
            yield (
                hunk.lineno,
                f"section heading {heading!r}, but it changes {scope}, where its text stands "
                f"{wanted.count} times. Write {str(wanted)!r}.",
            )
        elif not wanted.alone:
            yield (
                hunk.lineno,
                f"section heading {heading!r}, but it changes {scope}, and its text stands "
                f"elsewhere in the file too. Write {str(wanted)!r}.",
            )
        else:
            yield (
                hunk.lineno,
                f"section heading {heading!r}, but it changes {scope}. Write that scope.",
            )


def _contracts(patch: Patch, read: Read) -> Iterator[tuple[int, str]]:
    for contract in broken(patch, read):
        yield (
            0,
            f"Contract: {contract.value}: {contract.found}. Correct the patch or the trailer.",
        )
