"""`check`'s engine on real releases, read from the index without installing them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from commandline import SERIES
from diffs import git_diff
from vllm_series.checking.answers import PatchAnswer, ReleaseAnswer
from vllm_series.checking.check import Job, check, jobs
from vllm_series.errors import EnvironmentRefusedError, UsageError, VllmSeriesError
from vllm_series.scope import Scopes
from vllm_series.series import Entry
from vllm_series.trees import ReleaseTree
from vllm_series.upstream.catalog import Catalog, Release
from vllm_series.upstream.open import open_catalog
from vllm_series.upstream.store import Store
from vllm_series.verdicts import Verdict

SCHEDULER = "vllm/v1/core/sched/scheduler.py"
SINCE_027 = ("0.27.0", "0.28.0", "0.29.0", "0.30.0", "0.31.0", "0.32.0", "0.33.0")


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return open_catalog()


def patch_file(name: str, diff: bytes) -> Entry:
    return Entry(name, diff)


def ours(name: str, base: str, diff: bytes, *trailers: str) -> Entry:
    """A diff as a patch that names its base; its headings stay as git wrote them."""
    lines = "".join(f"{trailer}\n" for trailer in (f"Base: vllm {base}", *trailers))
    head = f"From: A <a@example.org>\nSubject: [PATCH] {name}\n\nWhy.\n\n{lines}\n"
    return Entry(name, head.encode() + diff)


def text_of(catalog: Catalog, version: str, path: str) -> bytes:
    text = catalog.tree(version).read(path)
    assert text is not None
    return text


def upstream_diff(catalog: Catalog, old: str, new: str, path: str) -> bytes:
    return git_diff(
        {path: text_of(catalog, old, path)}, {path: text_of(catalog, new, path)}, "--full-index"
    )


def judged(
    catalog: Catalog,
    releases: Collection[str],
    *entries: Entry,
    base: str | None = None,
    store: Store | None = None,
) -> dict[str, ReleaseAnswer]:
    asked = [Job(release, None, tuple(entries), True) for release in releases]
    return {a.release: a for a in check(asked, catalog, base=base, store=store)}


def only(answer: ReleaseAnswer) -> PatchAnswer:
    assert not answer.error
    (patch,) = answer.patches
    return patch


# -- a series on its releases ----------------------------------------------------------------------


def test_every_series_is_clean_on_the_releases_of_its_line(catalog: Catalog) -> None:
    asked = [job for job in jobs(SERIES, catalog.releases()) if job.release in SINCE_027]
    answers = list(check(asked, catalog))
    assert [answer.release for answer in answers] == list(SINCE_027)
    for answer in answers:
        assert answer.is_supported
        assert answer.is_clean, answer
        assert answer.series == f"vllm-{answer.release.rpartition('.')[0]}"
        assert answer.release in answer.label
        assert not answer.notes


def test_a_series_on_releases_that_it_was_not_made_for_says_hunk_by_hunk_what_holds(
    catalog: Catalog,
) -> None:
    versions = ("0.10.2", "0.12.0", "0.20.0", "0.24.0", "0.26.0", "0.32.0", "0.33.0")
    asked = jobs(SERIES, catalog.releases(), versions=versions, series="vllm-0.33")
    answers = {answer.release: answer for answer in check(asked, catalog)}
    hunks = {
        release: [hunk.verdict for file in only(answer).files for hunk in file.hunks]
        for release, answer in answers.items()
    }
    exact, offset, drifted = Verdict.EXACT, Verdict.OFFSET, Verdict.DRIFTED
    assert hunks["0.33.0"] == [exact, exact, exact, exact]
    assert hunks["0.32.0"] == [exact, offset, offset, offset]
    assert hunks["0.26.0"] == [exact, offset, offset, drifted]
    assert hunks["0.24.0"] == [exact, offset, offset, drifted]
    assert hunks["0.10.2"] == [exact, drifted, drifted, drifted]
    for release, answer in answers.items():
        assert answer.is_supported == (release == "0.33.0")
        for file in only(answer).files:
            for hunk in file.hunks:
                assert hunk.reason or hunk.verdict in (exact, offset)


def test_the_same_text_in_two_files_is_told_apart_by_release(catalog: Catalog) -> None:
    """The cap hunk of 0.32 drifts on 0.27: GNU patch puts it into another method there."""
    asked = jobs(SERIES, catalog.releases(), versions=("0.26.0",), series="0.32")
    (answer,) = check(asked, catalog)
    assert only(answer).verdict is Verdict.DRIFTED
    assert not answer.is_clean


# -- what upstream has -----------------------------------------------------------------------------

QUIET = "vllm/v1/core/sched/request_queue.py"


def changed_in(catalog: Catalog, old: str, new: str, later: str) -> str:
    """A scheduler file that upstream changed from `old` to `new`, and again up to `later`."""
    before, after, last = (catalog.tree(v).listing() for v in (old, new, later))
    return next(
        path
        for path in sorted(before)
        if path.startswith("vllm/v1/core/")
        and path.endswith(".py")
        and path in after
        and path in last
        and len({before[path], after[path], last[path]}) == 3
    )


def test_an_upstream_change_is_exact_before_it_and_upstream_since(catalog: Catalog) -> None:
    path = changed_in(catalog, "0.31.0", "0.32.0", "0.33.0")
    entry = patch_file("change.patch", upstream_diff(catalog, "0.31.0", "0.32.0", path))
    answers = judged(catalog, ("0.31.0", "0.32.0", "0.33.0"), entry, base="0.31.0")
    assert only(answers["0.31.0"]).verdict is Verdict.EXACT
    merged = only(answers["0.32.0"])
    assert (merged.verdict, merged.since) == (Verdict.UPSTREAMED, "0.32.0")
    assert not merged.reason
    for hunk in only(answers["0.33.0"]).files[0].hunks:
        assert hunk.verdict is not Verdict.UPSTREAMED or hunk.since == "0.32.0"


def test_what_was_upstream_is_remembered_where_a_later_change_hides_it(catalog: Catalog) -> None:
    diff = upstream_diff(catalog, "0.31.0", "0.32.0", SCHEDULER)
    answers = judged(catalog, ("0.32.0", "0.33.0"), patch_file("change.patch", diff), base="0.31.0")
    assert only(answers["0.32.0"]).since == "0.32.0"
    hunks = only(answers["0.33.0"]).files[0].hunks
    hidden = [hunk for hunk in hunks if "later change" in hunk.reason]
    assert hidden
    for hunk in hidden:
        assert (hunk.verdict, hunk.since) == (Verdict.UPSTREAMED, "0.32.0")
    plain = [hunk for hunk in hunks if hunk.verdict is Verdict.UPSTREAMED and not hunk.reason]
    assert plain


def test_what_upstream_took_back_is_not_upstream(catalog: Catalog) -> None:
    """Releases as they are, but in an order in which the change is reverted."""
    path = changed_in(catalog, "0.31.0", "0.32.0", "0.33.0")
    order = Reordered(catalog, {"0.31.0": "0.31.0", "0.32.0": "0.32.0", "0.33.0": "0.31.0"})
    entry = patch_file("change.patch", upstream_diff(catalog, "0.31.0", "0.32.0", path))
    answers = judged(order, ("0.32.0", "0.33.0"), entry, base="0.31.0")
    assert only(answers["0.32.0"]).verdict is Verdict.UPSTREAMED
    assert only(answers["0.33.0"]).verdict is Verdict.EXACT
    assert only(answers["0.33.0"]).since is None


def test_a_patch_that_is_upstream_in_part_says_which_hunks(catalog: Catalog) -> None:
    path = SCHEDULER
    old, new = text_of(catalog, "0.31.0", path), text_of(catalog, "0.32.0", path)
    lines = old.splitlines(keepends=True)
    at = next(n for n, line in enumerate(lines) if b"def get_request_counts" in line)
    merged = upstream_diff(catalog, "0.31.0", "0.32.0", path)
    first = merged.index(b"\n@@ ") + 1
    second = merged.index(b"\n@@ ", first) + 1
    own = [*lines[: at + 1], b"        # ours\n", *lines[at + 1 :]]
    mine = git_diff({path: old}, {path: b"".join(own)}, "--full-index")
    both = merged[:second] + mine[mine.index(b"\n@@ ") + 1 :]
    both = b"".join(
        line for line in both.splitlines(keepends=True) if not line.startswith(b"index ")
    )
    assert new != old
    answer = only(
        judged(catalog, ("0.32.0",), patch_file("p.patch", both), base="0.31.0")["0.32.0"]
    )
    assert [hunk.verdict for hunk in answer.files[0].hunks] == [
        Verdict.UPSTREAMED,
        Verdict.OFFSET,
    ]
    assert answer.verdict is Verdict.UPSTREAMED
    assert answer.since is None
    assert "1 of its 2 hunks" in answer.reason
    assert not answer.is_clean


def test_the_base_of_a_foreign_diff_is_found_by_its_blob_ids(catalog: Catalog) -> None:
    path = changed_in(catalog, "0.31.0", "0.32.0", "0.33.0")
    entry = patch_file("change.patch", upstream_diff(catalog, "0.31.0", "0.32.0", path))
    answers = judged(catalog, ("0.30.0", "0.31.0", "0.32.0"), entry)
    assert only(answers["0.32.0"]).base == "0.31.0"
    assert only(answers["0.32.0"]).since == "0.32.0"


def test_of_several_releases_the_one_that_most_patches_were_made_on_is_the_base(
    catalog: Catalog,
) -> None:
    """A file that upstream leaves alone says nothing of the base."""
    listings = [catalog.tree(version).listing() for version in ("0.31.0", "0.32.0", "0.33.0")]
    still = next(
        path
        for path in sorted(listings[0])
        if path.startswith("vllm/v1/core/")
        and path.endswith(".py")
        and len({listing.get(path) for listing in listings}) == 1
        and len(text_of(catalog, "0.31.0", path)) > 200
    )
    text = text_of(catalog, "0.31.0", still)
    quiet = git_diff({still: text}, {still: text + b"\n\nx = 1\n"}, "--full-index")
    moving = upstream_diff(catalog, "0.31.0", "0.32.0", SCHEDULER)
    entries = (patch_file("a.patch", quiet), patch_file("b.patch", moving))
    answer = judged(catalog, ("0.31.0", "0.32.0", "0.33.0"), *entries)["0.33.0"]
    assert [patch.base for patch in answer.patches] == ["0.31.0", "0.31.0"]


# -- missing files ---------------------------------------------------------------------------------


def test_a_moved_file_is_named_in_both_directions(catalog: Catalog) -> None:
    old = "vllm/entrypoints/openai/sse_keep_alive.py"
    new = "vllm/entrypoints/serve/utils/sse_keep_alive.py"
    for base, path, target, other in (
        ("0.29.0", old, "0.30.0", new),
        ("0.30.0", new, "0.29.0", old),
    ):
        text = text_of(catalog, base, path)
        diff = git_diff({path: text}, {path: text + b"\nx = 1\n"}, "--full-index")
        answer = only(judged(catalog, (target,), patch_file("p.patch", diff), base=base)[target])
        assert answer.verdict is Verdict.MISSING
        (file,) = answer.files
        assert [(one.path, one.similarity) for one in file.renames] == [(other, 100)]


def test_a_file_that_moved_and_changed_is_named_with_its_similarity(catalog: Catalog) -> None:
    path = "vllm/entrypoints/chat_utils.py"
    text = text_of(catalog, "0.31.0", path)
    diff = git_diff({path: text}, {path: b"import os\n" + text}, "--full-index")
    entry = patch_file("p.patch", diff)
    answer = only(judged(catalog, ("0.32.0",), entry, base="0.31.0")["0.32.0"])
    (file,) = answer.files
    assert file.verdict is Verdict.MISSING
    assert 1 <= len(file.renames) <= 3
    ratings = [one.similarity for one in file.renames]
    assert ratings == sorted(ratings, reverse=True)
    for one in file.renames:
        assert catalog.tree("0.32.0").read(one.path) is not None
        assert 20 <= one.similarity <= 99


# -- several patches -------------------------------------------------------------------------------


STALE = b" " * 16 + b"if not output_is_stale:"
"""A line of the scheduler of 0.33 that 0.12 does not have, nor the lines beside it."""


def inserted(text: bytes, after: bytes, *lines: bytes) -> bytes:
    """`text` with lines below the one line that is `after`."""
    rows = text.splitlines(keepends=True)
    (at,) = [number for number, row in enumerate(rows) if row.rstrip(b"\n") == after]
    return b"".join([*rows[: at + 1], *(line + b"\n" for line in lines), *rows[at + 1 :]])


def test_a_patch_that_stands_on_a_failed_one_is_blocked_and_the_others_are_judged(
    catalog: Catalog,
) -> None:
    base = "0.33.0"
    text = text_of(catalog, base, SCHEDULER)
    pad = b" " * 20
    one = inserted(text, STALE, pad + b"first = 1")
    two = inserted(one, pad + b"first = 1", pad + b"second = first + 1")
    three = inserted(two, b"logger = init_logger(__name__)", b"third = 3")
    four = text_of(catalog, base, QUIET)
    steps = [
        git_diff({SCHEDULER: before}, {SCHEDULER: after}, "--full-index")
        for before, after in ((text, one), (one, two), (two, three))
    ]
    other = git_diff({QUIET: four}, {QUIET: inserted(four, b"import heapq", b"import os")})
    entries = (
        *(patch_file(f"{name}.patch", diff) for name, diff in zip("abc", steps, strict=True)),
        patch_file("d.patch", other),
    )
    on_base = judged(catalog, (base,), *entries, base=base)[base]
    assert all(patch.is_clean for patch in on_base.patches)
    answer = judged(catalog, ("0.12.0",), *entries, base=base)["0.12.0"]
    a, b, c, d = answer.patches
    assert a.verdict is Verdict.DRIFTED
    assert (b.verdict, b.blocked_by) == (Verdict.BLOCKED, ("a.patch",))
    assert c.verdict is not Verdict.BLOCKED
    assert not c.blocked_by
    assert d.is_clean


def test_a_patch_that_needs_a_failed_one_by_name_is_blocked(catalog: Catalog) -> None:
    base = "0.33.0"
    text, quiet = text_of(catalog, base, SCHEDULER), text_of(catalog, base, QUIET)
    one = inserted(text, STALE, b" " * 20 + b"first = 1")
    first = git_diff({SCHEDULER: text}, {SCHEDULER: one})
    second = git_diff({QUIET: quiet}, {QUIET: inserted(quiet, b"import heapq", b"import os")})
    needs = b"From: A <a@example.org>\nSubject: b\n\nWhy.\n\nNeeds: a\n\n"
    answer = judged(
        catalog,
        ("0.12.0",),
        patch_file("a.patch", first),
        patch_file("b.patch", needs + second),
        base=base,
    )["0.12.0"]
    a, b = answer.patches
    assert a.verdict is Verdict.DRIFTED
    assert (b.verdict, b.blocked_by) == (Verdict.BLOCKED, ("a",))


def test_a_patch_is_not_blocked_by_one_that_is_upstream_under_a_later_change(
    catalog: Catalog,
) -> None:
    merged = patch_file("a.patch", upstream_diff(catalog, "0.31.0", "0.32.0", SCHEDULER))
    quiet = text_of(catalog, "0.31.0", QUIET)
    more = git_diff({QUIET: quiet}, {QUIET: inserted(quiet, b"import heapq", b"import os")})
    needs = b"From: A <a@example.org>\nSubject: b\n\nWhy.\n\nNeeds: a\n\n"
    answer = judged(
        catalog, ("0.33.0",), merged, patch_file("b.patch", needs + more), base="0.31.0"
    )["0.33.0"]
    a, b = answer.patches
    assert (a.verdict, a.since) == (Verdict.UPSTREAMED, "0.32.0")
    assert any(hunk.reason for hunk in a.files[0].hunks)
    assert b.is_clean


def test_without_a_base_the_recorded_lines_say_what_is_blocked(catalog: Catalog) -> None:
    text = text_of(catalog, "0.33.0", SCHEDULER)
    pad = b" " * 20
    one = inserted(text, STALE, pad + b"first = 1")
    two = inserted(one, pad + b"first = 1", pad + b"second = first + 1")
    entries = [
        patch_file(f"{name}.patch", git_diff({SCHEDULER: before}, {SCHEDULER: after}))
        for name, before, after in (("a", text, one), ("b", one, two))
    ]
    answer = judged(catalog, ("0.12.0",), *entries)["0.12.0"]
    a, b = answer.patches
    assert (a.verdict, a.base) == (Verdict.DRIFTED, None)
    assert (b.verdict, b.blocked_by) == (Verdict.BLOCKED, ("a.patch",))


def test_a_base_that_a_failed_patch_does_not_fit_hides_not_what_it_blocks(
    catalog: Catalog,
) -> None:
    text = text_of(catalog, "0.33.0", SCHEDULER).replace(STALE, STALE + b"  # of a fork")
    pad = b" " * 20
    one = inserted(text, STALE + b"  # of a fork", pad + b"first = 1")
    two = inserted(one, pad + b"first = 1", pad + b"second = first + 1")
    entries = [
        patch_file(f"{name}.patch", git_diff({SCHEDULER: before}, {SCHEDULER: after}))
        for name, before, after in (("a", text, one), ("b", one, two))
    ]
    for release in ("0.33.0", "0.32.0"):
        answer = judged(catalog, (release,), *entries, base="0.33.0")[release]
        a, b = answer.patches
        assert a.verdict is Verdict.DRIFTED
        assert (b.verdict, b.blocked_by) == (Verdict.BLOCKED, ("a.patch",))


def test_two_patches_that_write_the_same_lines_are_named(catalog: Catalog) -> None:
    text = text_of(catalog, "0.33.0", QUIET)
    one = inserted(text, b"import heapq", b"import os")
    two = inserted(one, b"import os", b"import re")
    far = two + b"\n\nx = 1\n"
    diffs = [
        git_diff({QUIET: before}, {QUIET: after})
        for before, after in ((text, one), (one, two), (two, far))
    ]
    entries = [patch_file(f"{n}.patch", diff) for n, diff in zip("abc", diffs, strict=True)]
    answer = judged(catalog, ("0.33.0",), *entries, base="0.33.0")["0.33.0"]
    (overlap,) = answer.overlaps
    assert (overlap.first, overlap.second, overlap.path) == ("a.patch", "b.patch", QUIET)
    line = two.splitlines().index(b"import re") + 1
    assert overlap.lines == (line, line)


# -- review ----------------------------------------------------------------------------------------


def method(text: bytes, name: str) -> bytes:
    scopes = Scopes.of(text, SCHEDULER)
    assert scopes is not None
    span = scopes.ranges(name)
    assert span is not None
    return b"".join(text.splitlines(keepends=True)[span[0] - 1 : span[1]])


def test_a_backport_that_defines_a_method_of_upstream_again_is_never_clean(
    catalog: Catalog,
) -> None:
    """Upstream's own `has_requests` of 0.24, put into 0.23 at another place of the class."""
    base, later = text_of(catalog, "0.23.0", SCHEDULER), text_of(catalog, "0.24.0", SCHEDULER)
    backport = method(later, "Scheduler.has_requests")
    where = b"    def get_request_counts(self) -> tuple[int, int]:"
    rows = base.splitlines(keepends=True)
    (at,) = [number for number, row in enumerate(rows) if row.rstrip(b"\n") == where]
    patched = b"".join([*rows[:at], backport, b"\n", *rows[at:]])
    ast.parse(patched)
    entry = patch_file(
        "backport.patch", git_diff({SCHEDULER: base}, {SCHEDULER: patched}, "--full-index")
    )
    answers = judged(catalog, ("0.23.0", "0.24.0", "0.25.0"), entry, base="0.23.0")
    assert only(answers["0.23.0"]).is_clean
    for release in ("0.24.0", "0.25.0"):
        patch = only(answers[release])
        assert patch.verdict in (Verdict.EXACT, Verdict.OFFSET)
        assert not patch.is_clean
        (reason,) = patch.reviews
        text = text_of(catalog, release, SCHEDULER)
        theirs = text.splitlines().index(b"    def has_requests(self) -> bool:") + 1
        mine = patch.files[0].hunks[0].line
        assert mine is not None
        shift = 0 if theirs < mine else len(backport.splitlines()) + 1
        assert "Scheduler.has_requests" in reason
        assert f"{SCHEDULER}:{theirs + shift}" in reason
        assert f"{SCHEDULER}:{mine + 3}" in reason


def test_a_broken_contract_is_for_review(catalog: Catalog) -> None:
    text = text_of(catalog, "0.33.0", QUIET)
    diff = git_diff({QUIET: text}, {QUIET: inserted(text, b"import heapq", b"import os")})
    module = "vllm.v1.core.sched.scheduler"
    entry = ours(
        "p.patch",
        "0.33.0",
        diff.replace(b"@@\n", b"@@ <module>\n"),
        f"Contract: {module}:Scheduler.schedule(self, throttle_prefills=...)",
    )
    answers = judged(catalog, ("0.20.0", "0.33.0"), entry)
    assert only(answers["0.33.0"]).is_clean
    old = only(answers["0.20.0"])
    assert old.verdict in (Verdict.EXACT, Verdict.OFFSET)
    assert not old.is_clean
    assert "Scheduler.schedule is (self)" in old.reviews[0]


# -- faults ----------------------------------------------------------------------------------------


class Reordered:
    """A catalog whose versions stand for other real releases; `lost` cannot be read."""

    def __init__(
        self, catalog: Catalog, versions: Mapping[str, str], lost: Collection[str] = ()
    ) -> None:
        self._catalog, self._versions, self._lost = catalog, versions, lost

    def releases(self) -> tuple[Release, ...]:
        known = {release.version: release for release in self._catalog.releases()}
        return tuple(
            replace(known[real], version=version) for version, real in self._versions.items()
        )

    def tree(self, version: str) -> ReleaseTree:
        if version in self._lost:
            raise EnvironmentRefusedError(f"{version} is out of reach. Try again.")
        return self._catalog.tree(self._versions[version])

    def prefetch(
        self, wanted: Mapping[str, Collection[str]], say: Callable[[str], None] = print
    ) -> Mapping[str, VllmSeriesError]:
        failed: dict[str, VllmSeriesError] = {}
        for version in wanted:
            try:
                self.tree(version)
            except VllmSeriesError as error:
                failed[version] = error
        return failed


def test_a_release_out_of_reach_does_not_hide_the_others(catalog: Catalog) -> None:
    same = {version: version for version in SINCE_027}
    broken = Reordered(catalog, same, lost=("0.29.0",))
    asked = jobs(SERIES, broken.releases())
    answers = {answer.release: answer for answer in check(asked, broken)}
    assert list(answers) == list(SINCE_027)
    assert answers["0.29.0"].error == "0.29.0 is out of reach. Try again."
    assert not answers["0.29.0"].is_clean
    assert all(answer.is_clean for release, answer in answers.items() if release != "0.29.0")


def test_a_base_out_of_reach_is_said_and_the_patches_are_judged_without_it(
    catalog: Catalog, tmp_path: Path
) -> None:
    same = {version: version for version in ("0.32.0", "0.33.0")}
    broken = Reordered(catalog, same, lost=("0.33.0",))
    store = Store(tmp_path)
    asked = jobs(SERIES, broken.releases(), versions=("0.32.0",), series="vllm-0.33")
    (answer,) = check(asked, broken, store=store)
    assert only(answer).verdict is Verdict.OFFSET
    assert "0.33.0 is out of reach" in answer.notes[0]
    (answer,) = check(asked, Reordered(catalog, same), store=store)
    assert not answer.notes, "an answer without the base must not be kept"


def test_a_release_between_that_cannot_be_asked_is_said(catalog: Catalog, tmp_path: Path) -> None:
    same = {version: version for version in ("0.31.0", "0.32.0", "0.33.0")}
    entry = patch_file("p.patch", upstream_diff(catalog, "0.31.0", "0.32.0", SCHEDULER))
    store = Store(tmp_path)
    broken = Reordered(catalog, same, lost=("0.32.0",))
    answer = judged(broken, ("0.33.0",), entry, base="0.31.0", store=store)["0.33.0"]
    assert "0.32.0 cannot be asked" in answer.notes[0]
    assert any(hunk.verdict is Verdict.DRIFTED for hunk in only(answer).files[0].hunks)
    whole = Reordered(catalog, same)
    answer = judged(whole, ("0.33.0",), entry, base="0.31.0", store=store)["0.33.0"]
    assert not answer.notes, "an answer that lacks a release must not be kept"
    assert only(answer).since == "0.32.0"


def test_a_patch_that_cannot_be_read_is_the_error_of_each_release(catalog: Catalog) -> None:
    answers = judged(catalog, ("0.33.0",), patch_file("broken.patch", b"no diff at all\n"))
    assert "broken.patch" in answers["0.33.0"].error


def test_a_base_that_is_no_release_is_refused(catalog: Catalog) -> None:
    with pytest.raises(UsageError, match=r"0\.99\.9"):
        judged(catalog, ("0.33.0",), patch_file("p.patch", b""), base="0.99.9")


# -- answers kept ----------------------------------------------------------------------------------


class Unread:
    """A catalog whose files must not be asked for."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def releases(self) -> tuple[Release, ...]:
        return self._catalog.releases()

    def tree(self, version: str) -> ReleaseTree:
        tree = self._catalog.tree(version)

        class Closed:
            label, version, release, identity = (
                tree.label,
                tree.version,
                tree.release,
                tree.identity,
            )

            def read(self, path: str) -> bytes | None:
                raise AssertionError(path)

            def mode(self, path: str) -> int | None:
                raise AssertionError(path)

            def listing(self) -> Mapping[str, str]:
                raise AssertionError("listing")

        return Closed()

    def prefetch(
        self, wanted: Mapping[str, Collection[str]], say: Callable[[str], None] = print
    ) -> Mapping[str, VllmSeriesError]:
        raise AssertionError(wanted)


def test_a_second_run_gives_the_same_answers_without_reading_a_file(
    catalog: Catalog, tmp_path: Path
) -> None:
    asked = jobs(SERIES, catalog.releases(), versions=("0.12.0", "0.26.0", "0.33.0"))
    first = list(check(asked, catalog, store=Store(tmp_path)))
    assert list(check(asked, Unread(catalog), store=Store(tmp_path))) == first


def test_a_foreign_diff_is_answered_again_without_reading_a_file(
    catalog: Catalog, tmp_path: Path
) -> None:
    path = changed_in(catalog, "0.31.0", "0.32.0", "0.33.0")
    entry = patch_file("change.patch", upstream_diff(catalog, "0.31.0", "0.32.0", path))
    versions = ("0.31.0", "0.32.0", "0.33.0")
    first = judged(catalog, versions, entry, store=Store(tmp_path))
    assert judged(Unread(catalog), versions, entry, store=Store(tmp_path)) == first


def test_another_patch_text_is_another_question(catalog: Catalog, tmp_path: Path) -> None:
    text = text_of(catalog, "0.33.0", QUIET)
    good = git_diff({QUIET: text}, {QUIET: inserted(text, b"import heapq", b"import os")})
    bad = good.replace(b" import heapq\n", b" import heapq2\n")
    assert bad != good
    store = Store(tmp_path)
    for diff, verdict in ((good, Verdict.EXACT), (bad, Verdict.DRIFTED)):
        answers = judged(catalog, ("0.33.0",), patch_file("p.patch", diff), store=store)
        assert only(answers["0.33.0"]).verdict is verdict
