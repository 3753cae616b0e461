"""Where a patch fits, since when it does not, and what upstream did there: on real releases."""

from __future__ import annotations

from pathlib import Path

import pytest

from archives import INFO
from diffs import git_diff
from vllm_series.align import align
from vllm_series.drifting.drift import drift
from vllm_series.drifting.following import Place, Spot, Text, follow, follow_scope
from vllm_series.drifting.scopediff import Side, scope_diff
from vllm_series.drifting.stands import Drift, HunkDrift
from vllm_series.errors import EnvironmentRefusedError, RefusedError, UsageError
from vllm_series.series import Entry
from vllm_series.upstream.catalog import Catalog
from vllm_series.upstream.open import UpstreamOptions, open_catalog
from vllm_series.verdicts import Verdict

SCHEDULER = "vllm/v1/core/sched/scheduler.py"
METHOD = "Scheduler.update_draft_token_ids"
SEED_ANCHOR = b"""\
            request.spec_token_ids = self.structured_output_manager.validate_tokens(
                request, spec_token_ids
            )

    def update_draft_token_ids_in_output("""


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return open_catalog()


def text_of(catalog: Catalog, version: str, path: str = SCHEDULER) -> bytes:
    text = catalog.tree(version).read(path)
    assert text is not None
    return text


def seed_patch(catalog: Catalog) -> Entry:
    """One line of our own at the seed's second anchor, on 0.30.0, as `git diff` writes it."""
    stock = text_of(catalog, "0.30.0")
    assert stock.count(SEED_ANCHOR) == 1
    anchor = SEED_ANCHOR.replace(b"            )\n", b"            )\n            self.narrow()\n")
    changed = stock.replace(SEED_ANCHOR, anchor)
    return Entry("narrow.diff", git_diff({SCHEDULER: stock}, {SCHEDULER: changed}, "--full-index"))


@pytest.fixture(scope="module")
def seed(catalog: Catalog) -> Drift:
    return drift([seed_patch(catalog)], catalog, base="0.30.0", until="0.33.0")


def only(answer: Drift) -> HunkDrift:
    (hunk,) = answer.hunks
    return hunk


def spans(hunk: HunkDrift) -> dict[int, tuple[str, str]]:
    """The first and last release of each form."""
    found: dict[int, tuple[str, str]] = {}
    for stand in hunk.stands:
        found[stand.form] = (found.get(stand.form, (stand.release, ""))[0], stand.release)
    return found


# -- the seed's second anchor ----------------------------------------------------------------------


def test_every_final_release_since_the_function_is_there_is_looked_at(seed: Drift) -> None:
    versions = [release.version for release in seed.releases]
    assert versions[0] == "0.10.1.1"
    assert versions[-1] == "0.33.0"
    assert len(versions) == 37
    assert not seed.unread


def test_the_text_of_the_base_appears_first_in_its_release(seed: Drift) -> None:
    hunk = only(seed)
    assert hunk.scope == METHOD
    assert spans(hunk) == {
        0: ("0.10.1.1", "0.10.1.1"),
        1: ("0.10.2", "0.13.0"),
        2: ("0.14.0", "0.29.0"),
        3: ("0.30.0", "0.33.0"),
    }
    assert "validate_tokens(\n" in hunk.forms[2].text
    assert "validate_tokens" not in hunk.forms[1].text


def test_a_hunk_fits_where_its_text_stands_and_nowhere_else(seed: Drift) -> None:
    hunk = only(seed)
    assert [stand.release for stand in hunk.stands if stand.fits] == [
        "0.30.0",
        "0.31.0",
        "0.32.0",
        "0.33.0",
    ]
    older, newer = hunk.drifted("0.30.0")
    assert older is not None
    assert older.release == "0.29.0"
    assert newer is None


def test_three_upstream_diffs_tell_what_became_of_the_place(seed: Drift) -> None:
    appears, changed, own = only(seed).transitions
    assert (appears.before, appears.after, appears.what) == ("0.10.1.1", "0.10.2", ("appears",))
    assert f"{METHOD} appears in 0.10.2" in appears.told
    assert "+    def update_draft_token_ids(\n" in appears.diff.whole
    assert (changed.before, changed.after, changed.what) == ("0.13.0", "0.14.0", ("form",))
    assert "-                request.spec_token_ids = spec_token_ids\n" in changed.diff.beside
    assert "+            request.spec_token_ids = spec_token_ids\n" in changed.diff.beside
    assert (own.before, own.after, own.what) == ("0.29.0", "0.30.0", ("form", "fits"))
    assert "-            request.spec_token_ids = spec_token_ids\n" in own.diff.beside
    assert "2026-09-09" in own.diff.head
    assert "2026-09-22" in own.diff.head


def test_a_change_of_the_function_elsewhere_is_no_new_form(seed: Drift) -> None:
    changed = [stand.release for stand in only(seed).stands if stand.scope_changed]
    assert changed == ["0.10.2", "0.11.1", "0.14.0", "0.16.0", "0.30.0"]


def test_the_diff_of_a_scope_is_true_to_the_files(catalog: Catalog, seed: Drift) -> None:
    """Its line numbers and lines are those of the two releases."""
    for transition in only(seed).transitions[1:]:
        old = text_of(catalog, transition.before).decode().split("\n")
        new = text_of(catalog, transition.after).decode().split("\n")
        for hunk in transition.diff.hunks:
            head, *lines = hunk.splitlines()
            at, to = (int(part.partition(",")[0][1:]) for part in head.split()[1:3])
            for line in lines:
                if line[0] in " -":
                    assert old[at - 1] == line[1:]
                if line[0] in " +":
                    assert new[to - 1] == line[1:]
                at += line[0] in " -"
                to += line[0] in " +"


# -- the walk --------------------------------------------------------------------------------------


def test_since_and_until_bound_what_is_looked_at(catalog: Catalog) -> None:
    answer = drift([seed_patch(catalog)], catalog, base="0.30.0", since="0.29", until="0.31")
    assert [release.version for release in answer.releases] == ["0.29.0", "0.30.0", "0.31.0"]


def test_a_range_beside_the_base_is_reached_through_the_releases_between(catalog: Catalog) -> None:
    answer = drift([seed_patch(catalog)], catalog, base="0.30.0", since="0.32.0", until="0.33.0")
    assert [release.version for release in answer.releases] == ["0.32.0", "0.33.0"]
    assert [stand.form for stand in only(answer).stands] == [1, 1]


def test_a_base_is_found_by_its_blob_ids(catalog: Catalog) -> None:
    answer = drift([seed_patch(catalog)], catalog, since="0.29.0", until="0.33.0")
    assert answer.base == "0.30.0"
    assert answer.found == "by its blob ids"


def test_a_base_is_found_by_the_text_where_there_are_no_blob_ids(catalog: Catalog) -> None:
    whole = seed_patch(catalog)
    bare = b"".join(
        line for line in whole.text.splitlines(True) if not line.startswith((b"diff", b"index"))
    )
    answer = drift([Entry("bare.diff", bare)], catalog, since="0.29.0", until="0.33.0")
    assert only(answer).stands[0].verdict is not Verdict.EXACT
    assert [stand.release for stand in only(answer).stands if stand.fits] == [
        "0.30.0",
        "0.31.0",
        "0.32.0",
        "0.33.0",
    ]
    assert "in which all of it stands" in answer.found


def test_what_upstream_took_is_upstreamed_from_then_on(catalog: Catalog) -> None:
    old, new = text_of(catalog, "0.29.0"), text_of(catalog, "0.30.0")
    place = Text(SCHEDULER, old), Text(SCHEDULER, new)
    spans = [text.range_of(METHOD) for text in place]
    assert spans[0] is not None
    assert spans[1] is not None
    taken = b"".join(
        [
            *place[0].lines[: spans[0][0]],
            *place[1].lines[spans[1][0] : spans[1][1]],
            *place[0].lines[spans[0][1] :],
        ]
    )
    entry = Entry("taken.diff", git_diff({SCHEDULER: old}, {SCHEDULER: taken}, "--full-index"))
    answer = drift([entry], catalog, base="0.29.0", since="0.28.0", until="0.31.0")
    assert [stand.verdict for stand in only(answer).stands] == [
        Verdict.OFFSET,
        Verdict.EXACT,
        Verdict.UPSTREAMED,
        Verdict.UPSTREAMED,
    ]


def test_a_file_that_moved_is_followed(catalog: Catalog) -> None:
    """The scheduler of V1 was moved into a folder of its own in 0.8.2."""
    stock = text_of(catalog, "0.8.3")
    anchor = b"        self.running = new_running\n"
    assert stock.count(anchor) == 1
    changed = stock.replace(anchor, anchor + b"        self.count += 1\n")
    entry = Entry("count.diff", git_diff({SCHEDULER: stock}, {SCHEDULER: changed}))
    answer = drift([entry], catalog, base="0.8.3", since="0.8.0", until="0.8.3")
    stands = {stand.release: stand for stand in only(answer).stands}
    assert stands["0.8.1"].path == "vllm/v1/core/scheduler.py"
    assert stands["0.8.1"].verdict is Verdict.MISSING
    assert stands["0.8.2"].path == SCHEDULER
    (moved,) = (one for one in only(answer).transitions if "moved" in one.what)
    assert (moved.before, moved.after) == ("0.8.1", "0.8.2")


def test_one_hunk_of_a_patch_can_be_asked_for(catalog: Catalog) -> None:
    stock = text_of(catalog, "0.30.0")
    lines = stock.splitlines(True)
    changed = b"".join([lines[0], b"# one\n", *lines[1:-1], b"# two\n", lines[-1]])
    entry = Entry("two.diff", git_diff({SCHEDULER: stock}, {SCHEDULER: changed}))
    answer = drift([entry], catalog, base="0.30.0", since="0.30.0", until="0.31.0", number=2)
    assert [hunk.number for hunk in answer.hunks] == [2]
    with pytest.raises(UsageError, match="no hunk 3"):
        drift([entry], catalog, base="0.30.0", since="0.30.0", until="0.30.0", number=3)


def test_a_hunk_that_does_not_fit_its_base_is_told_so(catalog: Catalog) -> None:
    entry = seed_patch(catalog)
    answer = drift([entry], catalog, base="0.20.0", since="0.20.0", until="0.21.0")
    hunk = only(answer)
    assert "does not stand" in hunk.reason
    assert [stand.form for stand in hunk.stands] == [0, 0, 0, 0]
    assert not hunk.transitions


def test_what_cannot_be_meant_is_refused(catalog: Catalog) -> None:
    entry = seed_patch(catalog)
    with pytest.raises(UsageError, match=r"no release 9\.9\.9 for --base"):
        drift([entry], catalog, base="9.9.9")
    with pytest.raises(UsageError, match=r"no release 0\.99 for --since"):
        drift([entry], catalog, base="0.30.0", since="0.99")
    with pytest.raises(UsageError, match="newer than --until"):
        drift([entry], catalog, base="0.30.0", since="0.31", until="0.29")
    new = Entry("new.diff", git_diff({}, {"vllm/new_file.py": b"x = 1\n"}))
    with pytest.raises(UsageError, match="no hunk that could drift"):
        drift([new], catalog, base="0.30.0")


# -- small releases, made by hand ------------------------------------------------------------------


def releases(folder: Path, texts: dict[str, dict[str, str]]) -> Catalog:
    """A folder of unpacked releases with these files."""
    for version, files in texts.items():
        for path, text in {"vllm/__init__.py": "", **files}.items():
            place = folder / version / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
    return open_catalog(UpstreamOptions(source=f"dir:{folder}"))


BODY = """class Engine:
    def start(self):
        self.alpha()
        self.beta()
        self.gamma()
        self.delta()
        self.epsilon()
"""


def inserted(text: str, path: str = "vllm/engine.py") -> Entry:
    """A line behind `self.gamma()`."""
    changed = text.replace("self.gamma()\n", "self.gamma()\n        self.mine()\n")
    return Entry("mine.diff", git_diff({path: text.encode()}, {path: changed.encode()}))


def test_a_function_that_was_renamed_is_followed(tmp_path: Path) -> None:
    catalog = releases(
        tmp_path,
        {
            "1.0.0": {"vllm/engine.py": BODY},
            "1.1.0": {"vllm/engine.py": BODY.replace("def start", "def run")},
            "1.2.0": {"vllm/engine.py": BODY.replace("def start", "def run").replace("be", "bi")},
        },
    )
    hunk = only(drift([inserted(BODY)], catalog, base="1.0.0"))
    assert [stand.scope for stand in hunk.stands] == ["Engine.start", "Engine.run", "Engine.run"]
    assert [stand.form for stand in hunk.stands] == [1, 1, 1]
    assert "Engine.start becomes Engine.run" in hunk.transitions[0].told


def test_a_function_put_in_front_is_no_new_name(tmp_path: Path) -> None:
    """The place is the first of its function, and what stands in front of that has changed."""
    new = BODY.replace(
        "    def start", "    def before(self):\n        self.alpha()\n\n    def start"
    )
    catalog = releases(
        tmp_path, {"1.0.0": {"vllm/engine.py": BODY}, "1.1.0": {"vllm/engine.py": new}}
    )
    changed = BODY.replace("def start(self):", "def start(self, *, now=True):")
    entry = Entry(
        "mine.diff",
        git_diff({"vllm/engine.py": BODY.encode()}, {"vllm/engine.py": changed.encode()}),
    )
    hunk = only(drift([entry], catalog, base="1.0.0"))
    assert [stand.scope for stand in hunk.stands] == ["Engine.start", "Engine.start"]
    assert [stand.line for stand in hunk.stands] == [2, 5]


def test_lines_that_went_into_another_function_are_followed(tmp_path: Path) -> None:
    new = BODY.replace(
        "        self.beta()", "        self.rest()\n\n    def rest(self):\n        self.beta()"
    )
    catalog = releases(
        tmp_path, {"1.0.0": {"vllm/engine.py": BODY}, "1.1.0": {"vllm/engine.py": new}}
    )
    hunk = only(drift([inserted(BODY)], catalog, base="1.0.0"))
    assert [stand.scope for stand in hunk.stands] == ["Engine.start", "Engine.rest"]
    assert "its lines go from Engine.start to Engine.rest" in hunk.transitions[0].told


def test_a_function_that_went_to_another_file_is_followed(tmp_path: Path) -> None:
    other = {"vllm/engine.py": "import vllm.motor\n", "vllm/motor.py": BODY}
    catalog = releases(tmp_path, {"1.0.0": {"vllm/engine.py": BODY}, "1.1.0": other})
    hunk = only(drift([inserted(BODY)], catalog, base="1.0.0"))
    assert [stand.path for stand in hunk.stands] == ["vllm/engine.py", "vllm/motor.py"]
    (moved,) = hunk.transitions
    assert set(moved.what) == {"moved", "drifts"}
    assert "vllm/engine.py becomes vllm/motor.py" in moved.told


def test_a_twin_in_another_file_is_no_new_home(tmp_path: Path) -> None:
    """What the older release has as well under that name has not come from elsewhere."""
    catalog = releases(
        tmp_path,
        {
            "1.0.0": {"vllm/engine.py": BODY, "vllm/motor.py": BODY},
            "1.1.0": {"vllm/engine.py": "", "vllm/motor.py": BODY + "\n\nx = 1\n"},
        },
    )
    hunk = only(drift([inserted(BODY)], catalog, base="1.0.0"))
    assert [stand.form for stand in hunk.stands] == [1, 0]


def test_a_function_that_is_gone_is_told_with_its_last_text(tmp_path: Path) -> None:
    catalog = releases(
        tmp_path,
        {"1.0.0": {"vllm/engine.py": BODY}, "1.1.0": {"vllm/engine.py": "class Engine: ...\n"}},
    )
    hunk = only(drift([inserted(BODY)], catalog, base="1.0.0"))
    (gone,) = hunk.transitions
    assert set(gone.what) == {"gone", "drifts"}
    assert "-        self.gamma()\n" in gone.diff.whole
    assert [stand.form for stand in hunk.stands] == [1, 0]


def test_files_that_no_wheel_has_are_left_out_and_named(tmp_path: Path) -> None:
    catalog = releases(tmp_path, {"1.0.0": {"vllm/engine.py": BODY}})
    csrc = git_diff({"csrc/a.cu": b"a\n"}, {"csrc/a.cu": b"a\nb\n"})
    answer = drift([Entry("both.diff", csrc + inserted(BODY).text)], catalog)
    assert only(answer).path == "vllm/engine.py"
    assert any("csrc/a.cu" in note for note in answer.notes)
    with pytest.raises(UsageError, match="no hunk that could drift"):
        drift([Entry("csrc.diff", csrc)], catalog)


def test_a_form_that_comes_back_is_the_same_form(tmp_path: Path) -> None:
    texts = [BODY, BODY.replace("gamma()", "gamma(1)"), BODY]
    catalog = releases(
        tmp_path, {f"1.{n}.0": {"vllm/engine.py": text} for n, text in enumerate(texts)}
    )
    hunk = only(drift([inserted(BODY)], catalog, base="1.0.0"))
    assert [stand.form for stand in hunk.stands] == [1, 2, 1]
    assert [one.what for one in hunk.transitions] == [("form", "drifts"), ("form", "fits")]


def test_a_change_of_the_context_alone_ends_the_fit_and_not_the_form(tmp_path: Path) -> None:
    catalog = releases(
        tmp_path,
        {
            "1.0.0": {"vllm/engine.py": BODY},
            "1.1.0": {"vllm/engine.py": BODY.replace("alpha()", "alpha(1)")},
        },
    )
    hunk = only(drift([inserted(BODY)], catalog, base="1.0.0"))
    assert [stand.form for stand in hunk.stands] == [1, 1]
    assert hunk.stands[1].verdict is Verdict.MERGED
    assert hunk.transitions[0].what == ("drifts",)
    assert "+        self.alpha(1)\n" in hunk.transitions[0].diff.beside


def test_a_patch_that_fits_nowhere_is_refused(tmp_path: Path) -> None:
    catalog = releases(tmp_path, {"1.0.0": {"vllm/engine.py": BODY}})
    other = Entry("other.diff", git_diff({"vllm/engine.py": b"a\n"}, {"vllm/engine.py": b"b\n"}))
    with pytest.raises(RefusedError, match="no release has the text"):
        drift([other], catalog)


def test_patches_in_front_are_laid_under_it(tmp_path: Path) -> None:
    longer = BODY + "        self.zeta()\n"
    catalog = releases(
        tmp_path, {"1.0.0": {"vllm/engine.py": BODY}, "1.1.0": {"vllm/engine.py": "\n" + BODY}}
    )
    first = inserted(BODY)
    between = BODY.replace("self.gamma()\n", "self.gamma()\n        self.mine()\n")
    both = between.replace("self.mine()\n", "self.mine()\n        self.second()\n")
    second = Entry(
        "second.diff",
        git_diff({"vllm/engine.py": between.encode()}, {"vllm/engine.py": both.encode()}),
    )
    assert longer != BODY
    answer = drift([first, second], catalog, base="1.0.0")
    assert [stand.fits for stand in only(answer).stands] == [True, True]
    assert any("on top of mine.diff" in note for note in answer.notes)
    alone = drift([second], catalog, base="1.0.0")
    assert not any(stand.fits for stand in only(alone).stands)


# -- releases that cannot be read ------------------------------------------------------------------


def wheels(folder: Path, texts: dict[str, str]) -> list[Path]:
    """Small wheels, one a version."""
    import archives

    places = []
    for version, text in texts.items():
        info = f"vllm-{version}.dist-info"
        files = {
            "vllm/engine.py": text.encode(),
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n".encode(),
            f"{info}/WHEEL": b"Wheel-Version: 1.0\n",
        }
        rows = archives.record(files).decode().replace(INFO, info).encode()
        place = folder / f"vllm-{version}-py3-none-any.whl"
        made = archives.wheel({**files, f"{info}/RECORD": rows})
        place.write_bytes(_without(made, f"{INFO}/RECORD"))
        places.append(place)
    return places


def _without(data: bytes, name: str) -> bytes:
    import io
    import zipfile

    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        for entry in old.infolist():
            if entry.filename != name:
                new.writestr(entry, old.read(entry))
    return out.getvalue()


def test_a_release_that_cannot_be_read_is_named_and_the_rest_answered(tmp_path: Path) -> None:
    later = BODY.replace("gamma()", "gamma(1)")
    places = wheels(tmp_path, {"1.0.0": BODY, "1.1.0": BODY, "1.2.0": later})
    places[1].write_bytes(places[1].read_bytes()[:200])
    options = UpstreamOptions(find_links=(str(tmp_path),), no_index=True, no_cache=True)
    answer = drift([inserted(BODY)], open_catalog(options), base="1.0.0")
    assert list(answer.unread) == ["1.1.0"]
    assert [release.version for release in answer.releases] == ["1.0.0", "1.2.0"]
    assert [stand.form for stand in only(answer).stands] == [1, 2]


def test_a_base_that_cannot_be_read_ends_the_walk(tmp_path: Path) -> None:
    places = wheels(tmp_path, {"1.0.0": BODY, "1.1.0": BODY})
    places[0].write_bytes(b"not a wheel")
    options = UpstreamOptions(find_links=(str(tmp_path),), no_index=True, no_cache=True)
    with pytest.raises(EnvironmentRefusedError, match=r"the base 1\.0\.0 cannot be read"):
        drift([inserted(BODY)], open_catalog(options), base="1.0.0")


# -- following, line by line -----------------------------------------------------------------------


def followed(old: str, new: str, spot: Spot, scope: str | None = None) -> Place:
    one, two = Text("vllm/a.py", old.encode()), Text("vllm/a.py", new.encode())
    place = Place(one, (spot,), scope)
    alignment = align(one.lines, two.lines)
    return follow(place, two, alignment, follow_scope(place, two, alignment))


def test_a_gap_between_kept_lines_is_where_they_are() -> None:
    place = followed(BODY, "import os\n\n" + BODY, Spot(5), "Engine.start")
    assert place.spots == (Spot(7),)


def test_a_gap_beside_a_changed_line_stays_beside_it() -> None:
    place = followed(BODY, BODY.replace("gamma()", "gamma(deep=True)"), Spot(5), "Engine.start")
    assert place.spots == (Spot(5),)


def test_a_gap_at_the_end_of_a_function_stays_at_its_end() -> None:
    new = BODY.replace("self.epsilon()", "return self.omega()") + "\n    def stop(self): ...\n"
    assert followed(BODY, new, Spot(7), "Engine.start").spots == (Spot(7),)


def test_a_gap_into_which_lines_came_stays_with_the_likelier_neighbours() -> None:
    new = BODY.replace("self.gamma()\n", "self.gamma()\n        if self.ready:\n            pass\n")
    new = new.replace("self.delta()", "self.delta(1)")
    assert followed(BODY, new, Spot(5), "Engine.start").spots == (Spot(5),)
    new = BODY.replace("self.delta()\n", "if self.ready:\n            pass\n        self.delta()\n")
    new = new.replace("self.gamma()", "self.gamma(1)")
    assert followed(BODY, new, Spot(5), "Engine.start").spots == (Spot(5),)


def test_lines_taken_out_are_followed_as_a_block() -> None:
    new = BODY.replace("beta()", "beta(1)").replace("def start", "\n    def start")
    place = followed(BODY, new, Spot(3, 2), "Engine.start")
    assert b"".join(place.text.lines[place.spots[0].start : place.spots[0].end]) == (
        b"        self.beta(1)\n        self.gamma()\n"
    )


def test_a_statement_of_several_lines_is_one_neighbour() -> None:
    text = "def f():\n    call(\n        1,\n        2,\n    )\n    other()\n"
    place = Place(Text("vllm/a.py", text.encode()), (Spot(5),), "f")
    ((above, _gone, below),) = place.form
    assert above == b"    call(\n        1,\n        2,\n    )\n"
    assert below == b"    other()\n"


def test_comments_that_stand_together_are_one_neighbour() -> None:
    text = "def f():\n    # one\n    # two\n    other()\n"
    place = Place(Text("vllm/a.py", text.encode()), (Spot(3),), "f")
    ((above, _gone, _below),) = place.form
    assert above == b"    # one\n    # two\n"


def test_what_comes_behind_a_function_is_no_part_of_its_end() -> None:
    old, new = BODY, BODY + "\n    def stop(self): ...\n"
    places = [Place(Text("vllm/a.py", t.encode()), (Spot(7),), "Engine.start") for t in (old, new)]
    assert places[0].form == places[1].form


def test_a_file_that_is_not_python_is_followed_by_its_lines() -> None:
    one, two = Text("vllm/a.json", b"a\nb\nc\n"), Text("vllm/a.json", b"x\na\nb\nc\n")
    place = follow(Place(one, (Spot(2),), None), two, align(one.lines, two.lines), None)
    assert place.spots == (Spot(3),)
    assert place.form == ((b"b\n", b"", b"c\n"),)


# -- diffs of a scope ------------------------------------------------------------------------------


def test_a_scope_diff_leaves_out_the_rest_of_the_file() -> None:
    old = "def f():\n    return 1\n\n\ndef g():\n    return 1\n"
    new = "def f():\n    return 2\n\n\ndef g():\n    return 3\n"
    found = scope_diff(
        Side("old", Text("a.py", old.encode()), "g"), Side("new", Text("a.py", new.encode()), "g")
    )
    assert found.whole == (
        "--- old\n+++ new\n@@ -5,2 +5,2 @@ g\n def g():\n-    return 1\n+    return 3\n"
    )


def test_the_diff_of_a_module_leaves_out_its_functions() -> None:
    filler = "".join(f"a{n} = {n}\n" for n in range(12))
    old = f"import one\n{filler}\n\ndef g():\n    return 1\n"
    new = f"import two\n{filler}\n\ndef g():\n    return 3\n"
    found = scope_diff(
        Side("old", Text("a.py", old.encode()), "<module>", (0, 1)),
        Side("new", Text("a.py", new.encode()), "<module>", (0, 1)),
    )
    assert "+import two\n" in found.whole
    assert "return 3" not in found.whole
    assert found.near == (0,)
