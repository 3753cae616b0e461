"""Placement on real releases, beside git and GNU patch: never in a wrong place.

The cases are those in which the usual tools put text into the wrong function, or in a second time,
and exit with 0.
"""

from __future__ import annotations

import io
import re
import subprocess
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from vllm_series.diffs.parse import parse
from vllm_series.patch import FileChange, Hunk, Kind, Patch
from vllm_series.place import place
from vllm_series.placement import Placement
from vllm_series.plan import PatchPlan, make_plan
from vllm_series.scope import Scopes
from vllm_series.search import change_scope
from vllm_series.verdicts import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from conftest import Stock

DATA = Path(__file__).parent / "data"


def scopes_of(text: bytes, path: str = "a.py") -> Scopes:
    scopes = Scopes.of(text, path)
    assert scopes is not None
    return scopes


def plan_on(tree: Path, text: bytes) -> PatchPlan:
    def read(path: str) -> bytes | None:
        file = tree / path
        return file.read_bytes() if file.is_file() else None

    (plan,) = make_plan([parse(text, "a.patch")], read).patches
    return plan


def scopes_of_line(text: bytes, line: bytes) -> list[str]:
    """The scopes in which a line stands, once for each time that it does."""
    scopes = scopes_of(text)
    return [
        scopes.innermost(number)
        for number, own in enumerate(io.BytesIO(text).readlines(), 1)
        if own.rstrip(b"\n") == line
    ]


class Folder:
    """A writable folder with single files in it, under git."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir()

    def write(self, path: str, text: bytes) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text)

    def read(self, path: str) -> bytes:
        return (self.root / path).read_bytes()

    def run(self, *words: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(words, cwd=self.root, input=given, capture_output=True, check=False)

    def diff(self, path: str, old: bytes, new: bytes, *options: str) -> bytes:
        """What `git diff` makes of two texts, with Python's function lines in the headings."""
        self.write(path, old)
        for words in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "old"]):
            assert self.run("git", *words).returncode == 0
        (self.root / ".git/info/attributes").write_text("*.py diff=python\n")
        self.write(path, new)
        return self.run("git", "diff", "--full-index", *options).stdout


@pytest.fixture
def folder(tmp_path: Path) -> Callable[[str], Folder]:
    return lambda name: Folder(tmp_path / name)


# The seed's three changes: one line each into two methods, and a tail.

SCHEDULER = "vllm/v1/core/sched/scheduler.py"
OBSERVED = b"                num_rejected = num_draft_tokens - num_accepted\n"
OBSERVE = b"                self._note_acceptance(request, num_accepted, num_draft_tokens)\n"
VALIDATED = b"""\
            request.spec_token_ids = self.structured_output_manager.validate_tokens(
                request, spec_token_ids
            )
"""
FOLLOWER = b"\n    def update_draft_token_ids_in_output("
CAP = b"            self._narrow_drafts(request)\n"
TAIL = b"""

def _note_acceptance(self, request, num_accepted, num_draft_tokens):
    request.acceptance = num_accepted / max(num_draft_tokens, 1)


def _narrow_drafts(self, request):
    request.spec_token_ids = request.spec_token_ids[:3]


Scheduler._note_acceptance = _note_acceptance
Scheduler._narrow_drafts = _narrow_drafts
"""


def seeded(text: bytes) -> bytes:
    assert text.count(OBSERVED) == 1
    assert text.count(VALIDATED + FOLLOWER) == 1
    text = text.replace(OBSERVED, OBSERVED + OBSERVE)
    return text.replace(VALIDATED + FOLLOWER, VALIDATED + CAP + FOLLOWER) + TAIL


@pytest.fixture
def seed_patch(stock: Stock, folder: Callable[[str], Folder]) -> bytes:
    """Made from 0.32.0 by git diff, with git's own headings."""
    text = (stock("0.32.0") / SCHEDULER).read_bytes()
    patch = folder("seed").diff(SCHEDULER, text, seeded(text))
    assert [hunk.heading for hunk in parse(patch, "a.patch").files[0].hunks] == [
        b"def update_from_output(",
        b"def update_draft_token_ids(self, draft_token_ids: DraftTokenIds) -> None:",
        b"def _handle_invalid_blocks(",
    ]
    return patch


def test_the_seed_is_placed_exactly_on_its_base(stock: Stock, seed_patch: bytes) -> None:
    plan = plan_on(stock("0.32.0"), seed_patch)
    assert plan.verdict is Verdict.EXACT
    assert plan.step is not None
    assert plan.step.files[0].after == seeded((stock("0.32.0") / SCHEDULER).read_bytes())


@pytest.mark.parametrize("version", ["0.30.0", "0.31.0", "0.33.0"])
def test_the_seed_is_placed_by_its_text_where_the_file_is_another(
    stock: Stock, seed_patch: bytes, version: str
) -> None:
    plan = plan_on(stock(version), seed_patch)
    assert plan.verdict is Verdict.OFFSET
    assert plan.step is not None
    assert plan.step.files[0].after == seeded((stock(version) / SCHEDULER).read_bytes())


@pytest.mark.parametrize("version", ["0.27.0", "0.27.1", "0.28.0", "0.29.0"])
def test_the_cap_alone_is_refused_where_its_method_is_another(
    stock: Stock, seed_patch: bytes, version: str
) -> None:
    plan = plan_on(stock(version), seed_patch)
    assert plan.step is None
    observe, cap, tail = plan.files[0].placements
    assert observe.verdict is Verdict.OFFSET
    assert tail.verdict is Verdict.OFFSET
    assert cap.verdict is Verdict.DRIFTED
    assert cap.line is None
    assert cap.scope == "Scheduler.update_draft_token_ids"
    assert "Scheduler.update_draft_token_ids" in cap.reason
    assert cap.candidate


@pytest.mark.parametrize("version", ["0.27.0", "0.27.1", "0.28.0", "0.29.0"])
def test_gnu_patch_puts_the_cap_into_another_method_and_is_content(
    stock: Stock,
    seed_patch: bytes,
    version: str,
    folder: Callable[[str], Folder],
    oracle: Callable[[str], str],
) -> None:
    """Why there is no fuzz here."""
    oracle("patch")
    target = folder("target")
    target.write(SCHEDULER, (stock(version) / SCHEDULER).read_bytes())
    done = target.run("patch", "-p1", given=seed_patch)
    assert done.returncode == 0
    assert re.search(rb"Hunk #2 succeeded at \d+ with fuzz 2", done.stdout)
    assert scopes_of_line(target.read(SCHEDULER), CAP.rstrip()) == ["Scheduler.reset_prefix_cache"]


# Real fixes of 0.24 as patches for 0.23 without any context.

TOKENIZER = "zero-context-tokenizer.patch"
SCALED_MM = "zero-context-scaled-mm.patch"
AFTER_THE_FIX = ["0.24.0", "0.27.0", "0.28.0", "0.30.0", "0.33.0"]


def lands_where(text: bytes, patch: Patch) -> list[str | None]:
    """The scopes of every copy of what a one-hunk patch adds; None where nothing parses."""
    added = b"".join(patch.files[0].hunks[0].post)
    scopes = Scopes.of(text, "a.py")
    return [
        scopes.innermost(text.count(b"\n", 0, found.start()) + 1) if scopes else None
        for found in re.finditer(re.escape(added), text)
    ]


@pytest.mark.parametrize("name", [TOKENIZER, SCALED_MM])
def test_without_context_the_blob_id_alone_places(stock: Stock, name: str) -> None:
    text = (DATA / name).read_bytes()
    plan = plan_on(stock("0.23.0"), text)
    assert plan.verdict is Verdict.EXACT
    assert plan.step is not None
    (file,) = plan.step.files
    assert file.after == (stock("0.24.0") / file.path).read_bytes()


@pytest.mark.parametrize("name", [TOKENIZER, SCALED_MM])
def test_without_context_the_fixed_release_is_known_by_its_blob_id(stock: Stock, name: str) -> None:
    plan = plan_on(stock("0.24.0"), (DATA / name).read_bytes())
    assert plan.verdict is Verdict.APPLIED
    assert plan.step is None


@pytest.mark.parametrize("version", AFTER_THE_FIX[1:])
@pytest.mark.parametrize("name", [TOKENIZER, SCALED_MM])
def test_without_context_a_changed_file_is_refused(stock: Stock, name: str, version: str) -> None:
    text = (DATA / name).read_bytes()
    (change,) = parse(text, name).files
    path = change.paths(1)[1]
    assert path is not None
    same = (stock(version) / path).read_bytes() == (stock("0.24.0") / path).read_bytes()
    plan = plan_on(stock(version), text)
    assert plan.step is None
    if same:
        assert plan.verdict is Verdict.APPLIED
    else:
        assert plan.refused
        assert "no context" in plan.files[0].placements[0].reason


@pytest.mark.parametrize("version", AFTER_THE_FIX)
@pytest.mark.parametrize("tool", ["git", "patch"])
def test_git_and_gnu_patch_fix_without_context_what_is_fixed_already(
    stock: Stock,
    version: str,
    tool: str,
    folder: Callable[[str], Folder],
    oracle: Callable[[str], str],
) -> None:
    """Why a hunk without context is placed by blob id alone."""
    oracle(tool)
    words = {"git": ["git", "apply", "--unidiff-zero"], "patch": ["patch", "-p1", "-F0"]}[tool]
    for name in (TOKENIZER, SCALED_MM):
        text = (DATA / name).read_bytes()
        patch = parse(text, name)
        path = patch.files[0].paths(1)[1]
        assert path is not None
        target = folder(f"{tool}-{name}")
        target.write(path, (stock(version) / path).read_bytes())
        assert len(lands_where(target.read(path), patch)) == 1
        assert target.run(*words, given=text).returncode == 0
        assert len(lands_where(target.read(path), patch)) == 2
        if name == SCALED_MM and version in ("0.30.0", "0.33.0"):
            assert lands_where(target.read(path), patch) == [
                "TorchFP8ScaledMMLinearKernel.get_output_padding",
                "PerTensorTorchFP8ScaledMMLinearKernel.apply_scaled_mm",
            ]


# A line that stands once in one class, then in two, then once in the other.

MANAGERS = "vllm/v1/core/single_type_kv_cache_manager.py"
ANCHOR = b"        max_num_blocks = max_length // block_size\n"
FULL = "FullAttentionManager.find_longest_cache_hit"
MAMBA = "MambaManager.find_longest_cache_hit"
ANCHOR_SCOPES = {
    "0.11.2": [FULL],
    "0.12.0": [FULL, MAMBA],
    "0.25.1": [FULL, MAMBA],
    "0.26.0": [MAMBA],
    "0.33.0": [MAMBA],
}
HEADINGS = {
    "scope": FULL.encode(),
    "git, python": b"def find_longest_cache_hit(",
    "git, default": b"class FullAttentionManager(SingleTypeKVCacheManager):",
    "none": b"",
}


def anchor_hunk(text: bytes, heading: bytes) -> tuple[FileChange, bytes]:
    """A hunk that puts one line in front of the anchor, with the anchor as its only context, and
    the line."""
    line = io.BytesIO(text).readlines().index(ANCHOR) + 1
    added = b"        max_length = min(max_length, 4096)\n"
    hunk = Hunk(line, 1, line, 2, heading, b"+ ", (added, ANCHOR), 1)
    return FileChange(Kind.MODIFY, f"a/{MANAGERS}", f"b/{MANAGERS}", (hunk,)), added


def place_anchor(stock: Stock, version: str, kind: str) -> tuple[Placement, list[str]]:
    """The placement of the hunk for 0.11.2, and the scopes in which its line then stands."""
    base = (stock("0.11.2") / MANAGERS).read_bytes()
    text = (stock(version) / MANAGERS).read_bytes()
    assert scopes_of_line(text, ANCHOR.rstrip()) == ANCHOR_SCOPES[version]
    change, added = anchor_hunk(base, HEADINGS[kind])
    placed = place(change, text, MANAGERS, binding=kind == "scope")
    (placement,) = placed.placements
    return placement, scopes_of_line(placed.result, added.rstrip()) if placed.result else []


@pytest.mark.parametrize(
    ("version", "verdict"),
    [("0.11.2", Verdict.EXACT), ("0.12.0", Verdict.OFFSET), ("0.25.1", Verdict.OFFSET)],
)
def test_a_scope_tells_two_copies_of_a_line_apart(
    stock: Stock, version: str, verdict: Verdict
) -> None:
    placement, scopes = place_anchor(stock, version, "scope")
    assert placement.verdict is verdict
    assert scopes == [FULL]


@pytest.mark.parametrize("version", ["0.26.0", "0.33.0"])
def test_a_scope_refuses_the_only_copy_of_a_line_in_another_class(
    stock: Stock, version: str
) -> None:
    placement, scopes = place_anchor(stock, version, "scope")
    assert placement.verdict is Verdict.MOVED
    assert MAMBA in placement.reason
    assert FULL in placement.reason
    assert scopes == []


@pytest.mark.parametrize("kind", ["git, python", "git, default", "none"])
@pytest.mark.parametrize("version", list(ANCHOR_SCOPES))
def test_without_a_scope_a_single_line_never_lands_in_another_class(
    stock: Stock, version: str, kind: str
) -> None:
    placement, scopes = place_anchor(stock, version, kind)
    assert scopes in ([], [FULL])
    assert placement.verdict.fits is bool(scopes)


# Thousands of hunks that nobody here wrote.


class Releases:
    """The diff between two releases, and the texts on both sides."""

    def __init__(self, stock: Stock, scratch: Path, older: str, newer: str) -> None:
        self.older = stock(older)
        self.newer = stock(newer)
        scratch.mkdir()
        for name, tree in (("older", self.older), ("newer", self.newer)):
            (scratch / name).symlink_to(tree)
        self.scratch = scratch

    def changes(self, context: int, part: str = "vllm/v1") -> Iterator[FileChange]:
        """Every modified file of a part of vLLM, with git's Python function lines as headings."""
        attributes = self.scratch / "attributes"
        attributes.write_text("*.py diff=python\n")
        done = subprocess.run(
            [
                *("git", "-c", f"core.attributesFile={attributes}"),
                *("diff", "--no-index", "--full-index", f"-U{context}"),
                *(f"older/{part}/", f"newer/{part}/"),
            ],
            cwd=self.scratch,
            capture_output=True,
            check=False,
        )
        assert done.returncode == 1, done.stderr.decode()
        for change in parse(done.stdout, "releases").files:
            if change.kind is Kind.MODIFY:
                yield change

    def texts(self, change: FileChange) -> tuple[str, bytes, bytes]:
        path = change.paths(2)[1]
        assert path is not None
        return path, (self.older / path).read_bytes(), (self.newer / path).read_bytes()


HEADING_KINDS = ["scope", "git", "none"]


def with_headings(change: FileChange, old: bytes, new: bytes, kind: str) -> FileChange:
    """The change without its blob ids, its headings as asked for."""
    hunks = change.hunks
    if kind == "none":
        hunks = tuple(replace(hunk, heading=b"") for hunk in hunks)
    elif kind == "scope":
        before, after = scopes_of(old), scopes_of(new)
        hunks = tuple(
            replace(
                hunk,
                heading=change_scope(
                    hunk, before, after, hunk.first_line, hunk.reversed().first_line
                ).encode(),
            )
            for hunk in hunks
        )
    return replace(change, hunks=hunks, old_id=None, new_id=None)


@pytest.fixture
def releases(stock: Stock, tmp_path: Path) -> Callable[[str, str], Releases]:
    return lambda older, newer: Releases(stock, tmp_path / f"{older}-{newer}", older, newer)


SHIFT = b"# moved\n" * 7


@pytest.mark.parametrize("kind", HEADING_KINDS)
def test_a_hunk_on_its_own_is_placed_where_it_was_or_refused(
    releases: Callable[[str, str], Releases], kind: str
) -> None:
    pair = releases("0.31.0", "0.32.0")
    seen: Counter[str] = Counter()
    for change in pair.changes(context=3):
        path, old, new = pair.texts(change)
        for hunk in with_headings(change, old, new, kind).hunks:
            single = replace(change, hunks=(hunk,), old_id=None, new_id=None)
            (found,) = place(single, SHIFT + old, path, binding=kind == "scope").placements
            assert found.verdict is not Verdict.APPLIED
            if found.line is not None:
                assert found.line == hunk.first_line + 7, f"{path}: {hunk.header()!r}"
            seen["refused" if found.line is None else "placed"] += 1
    print(dict(seen))
    assert seen["placed"] > 1000
    assert seen["refused"] < seen["placed"] / 50


def test_with_scopes_every_file_is_rebuilt_at_other_lines_unless_its_text_repeats(
    releases: Callable[[str, str], Releases],
) -> None:
    pair = releases("0.31.0", "0.32.0")
    seen: Counter[str] = Counter()
    for change in pair.changes(context=3):
        path, old, new = pair.texts(change)
        placed = place(with_headings(change, old, new, "scope"), SHIFT + old, path, binding=True)
        if placed.result is not None:
            assert placed.result == SHIFT + new, path
            seen["rebuilt"] += 1
            continue
        for found in placed.placements:
            if not found.verdict.fits:
                assert found.verdict is Verdict.AMBIGUOUS, f"{path}: {found.reason}"
        seen["refused"] += 1
    print(dict(seen))
    assert seen["refused"] < seen["rebuilt"] / 20


@pytest.mark.parametrize("kind", HEADING_KINDS)
def test_a_hunk_on_another_release_is_placed_where_the_alignment_of_the_files_says(
    releases: Callable[[str, str], Releases], kind: str
) -> None:
    """The oracle is git: the lines of 0.31 that its diff to 0.32 leaves as they are."""
    pair, back = releases("0.32.0", "0.33.0"), releases("0.31.0", "0.32.0")
    kept = {back.texts(change)[0]: unchanged_lines(change) for change in back.changes(context=0)}
    seen: Counter[str] = Counter()
    for change in pair.changes(context=3):
        path, old, new = pair.texts(change)
        if path not in kept:
            continue
        text = (back.older / path).read_bytes()
        for hunk in with_headings(change, old, new, kind).hunks:
            single = replace(change, hunks=(hunk,), old_id=None, new_id=None)
            (found,) = place(single, text, path, binding=kind == "scope").placements
            there = [kept[path](hunk.first_line + at) for at in range(hunk.old_count)]
            first = there[0]
            whole = first is not None and there == list(range(first, first + len(there)))
            if found.line is None:
                seen["refused, text stands" if whole else "refused, text changed"] += 1
            elif whole and found.verdict is not Verdict.APPLIED:
                assert found.line == first, f"{path}: {hunk.header()!r}"
                seen["placed"] += 1
            else:
                seen["placed, not aligned"] += 1
    print(dict(seen))
    assert seen["placed"] > 500
    assert seen["refused, text stands"] < seen["placed"] / 20
    assert seen["placed, not aligned"] < seen["placed"] / 50


def test_with_the_base_a_hunk_goes_where_git_merges_it_or_is_refused(
    releases: Callable[[str, str], Releases], tmp_path: Path
) -> None:
    """Hunks of 0.33 on the files of 0.31, by those of 0.32; the oracle is `git merge-file`."""
    pair, back = releases("0.32.0", "0.33.0"), releases("0.31.0", "0.32.0")
    there = {back.texts(change)[0] for change in back.changes(context=0)}
    seen: Counter[str] = Counter()
    for change in pair.changes(context=3, part="vllm/v1/core"):
        path, old, _ = pair.texts(change)
        if path not in there:
            continue
        text = (back.older / path).read_bytes()
        for hunk in change.hunks:
            single = replace(change, hunks=(hunk,), new_id=None)
            placed = place(single, text, path, binding=False, base=old)
            if placed.verdict is Verdict.APPLIED:
                seen["applied"] += 1
                continue
            merged = merge_file(tmp_path, text, old, place(single, old, path, binding=False).result)
            if placed.result is None:
                seen["refused" if merged is None else "refused, git merges"] += 1
            elif merged is None:
                # git aligns by Myers' algorithm there, and may be misled; the text stands whole.
                assert placed.verdict is not Verdict.MERGED
                seen["placed, git has a conflict"] += 1
            else:
                assert placed.result == merged, f"{path}: {hunk.header()!r}"
                seen[placed.verdict.value] += 1
    print(dict(seen))
    assert seen["exact"] + seen["offset"] > 50
    assert seen["merged"] > 3
    assert seen["placed, git has a conflict"] < seen["offset"] / 30
    assert seen["refused, git merges"] < seen["refused"]


def merge_file(folder: Path, text: bytes, base: bytes, edited: bytes | None) -> bytes | None:
    """What `git merge-file` makes of both changes of the base; None for a conflict."""
    assert edited is not None
    for name, content in (("text", text), ("base", base), ("edited", edited)):
        (folder / name).write_bytes(content)
    command = ["git", "merge-file", "-p", "-q", "text", "base", "edited"]
    done = subprocess.run(command, cwd=folder, capture_output=True, check=False)
    return done.stdout if done.returncode == 0 else None


def unchanged_lines(change: FileChange) -> Callable[[int], int | None]:
    """From a line of the new file to its line in the old one, None for lines that are new; the
    change has no context."""
    hunks = change.hunks

    def old_line(new: int) -> int | None:
        shift = 0
        for hunk in hunks:
            start = hunk.reversed().first_line
            if new < start:
                break
            if new < start + hunk.new_count:
                return None
            shift += hunk.old_count - hunk.new_count
        return new + shift

    return old_line
