"""The forms of an answer: the table, JSON, JUnit and Markdown, each read as its readers do."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from junitparser import Error, Failure, JUnitXml, Skipped
from markdown_it import MarkdownIt
from markdown_it.token import Token
from wcwidth import wcswidth

from answers import CANDIDATE, RELEASES, every_kind, patch, release
from commandline import PROJECT
from vllm_series.checking.answers import Overlap, ReleaseAnswer
from vllm_series.reports.as_json import rendered
from vllm_series.reports.details import details, passages
from vllm_series.reports.findings import findings, steps
from vllm_series.reports.junit import junit
from vllm_series.reports.markdown import code, markdown, plain
from vllm_series.reports.marks import ALL, OF_VERDICT
from vllm_series.reports.printable import columns, cut, printable, wrapped
from vllm_series.reports.reasons import problem
from vllm_series.reports.spans import spans
from vllm_series.reports.table import closing, legend, table
from vllm_series.verdicts import Verdict

SCHEMA = json.loads((PROJECT / "docs" / "schemas" / "check.json").read_text("utf-8"))
AWKWARD = "a|b`c``d\n\x1b[31m\udcff<script>&amp;日本語 \u202e@user #1 [x](y)"


def shown(answers: list[ReleaseAnswer], width: int = 100) -> list[str]:
    return click.unstyle(table(answers, width)).split("\n")


# -- the table ------------------------------------------------------------------------------------


def test_thirty_six_releases_fit_in_one_block_of_a_hundred_columns() -> None:
    verdict = {True: Verdict.EXACT, False: Verdict.DRIFTED}
    name = "twenty-four-letters.diff"
    answers = [release(version, patch(name, verdict[version > "0.27"])) for version in RELEASES]
    assert [line.removeprefix(name) for line in shown(answers)[2:5]] == [
        f"{'':>16}release 0.10 11  12 13 14 15 16 17 18 19 20  21 22 23 24 25 26 27 28 29 30 31 32 33",  # noqa: E501
        f"{'':>24} .2  012 0  0  01 01 0  01 01 01 012 0  01 0  0  01 0  01 0  0  0  0  0  0",
        "  d  ddd d  d  dd dd d  dd dd dd ddd d  dd d  d  dd d  == =  =  =  =  =  =",
    ]  # fmt: skip


def test_a_long_name_is_cut_in_its_middle_where_that_keeps_the_releases_together() -> None:
    name = "0007-a-name-of-more-than-forty-letters-that-goes-on-and-on.patch"
    lines = shown([release(version, patch(name)) for version in RELEASES])
    assert lines[4].startswith("0007-a-name-…and-on.patch  =  === =")
    assert len(lines) == 7


def test_a_release_that_is_no_digit_is_named_in_full() -> None:
    names = ["0.8.5", "0.8.5.post1", "0.9.0.1", "0.34.0rc1", "1.0.0", "nightly"]
    lines = shown([release(name, patch()) for name in names])
    assert lines[2:5] == [
        "  release  0.8       0.9 0.34 1.0 nightly",
        "           5 5.post1 0.1 0rc1 0   .",
        "fix.patch  = =       =   =    =   =",
    ]


@given(
    st.lists(st.text(min_size=1, max_size=80), min_size=1, max_size=4, unique=True),
    st.lists(
        st.from_regex(r"[0-9]{1,2}\.[0-9]{1,3}\.[0-9]{1,2}((rc|\.post)[0-9])?", fullmatch=True)
        | st.text(min_size=1, max_size=60),
        min_size=1,
        max_size=40,
        unique=True,
    ),
    st.integers(40, 200),
)
@settings(deadline=None)
def test_no_name_and_no_release_makes_a_line_too_wide(
    names: list[str], releases: list[str], width: int
) -> None:
    answers = [
        release(version, *(patch(name, Verdict.DRIFTED, reason=name) for name in names))
        for version in releases
    ]
    for line in shown(answers, width):
        assert line.isprintable()
        assert wcswidth(line) <= columns(line) <= width


def test_each_kind_has_a_sign_of_its_own_that_needs_no_colour() -> None:
    assert set(OF_VERDICT) == set(Verdict)
    signs = [mark.sign for mark in ALL]
    assert len(set(signs)) == len(signs) == len({mark.word for mark in ALL})
    assert all(len(sign) == 1 and sign.isascii() and sign.isprintable() for sign in signs)


def test_the_legend_names_the_signs_that_are_used_and_no_others() -> None:
    assert legend([release("0.33.0", patch())]) == "= exact: fits as recorded"
    some = legend(
        [release("0.32.0", patch(verdict=Verdict.DRIFTED)), release("0.33.0", error="no")]
    )
    assert some == "d drifted: its lines changed   ! not judged: the release could not be judged"
    every = legend(every_kind())
    assert all(f"{mark.sign} {mark.word}: " in every for mark in ALL)


def test_a_row_is_a_patch_and_a_patch_that_a_series_does_not_list_has_no_verdict() -> None:
    lines = shown(
        [
            release("0.31.0", patch("old.patch", Verdict.MOVED)),
            release("0.32.0", error="the wheel is damaged"),
            release("0.33.0", patch("old.patch"), patch("new.patch"), supported=False),
        ]
    )
    assert lines[2:7] == [
        " release 0.31 32 33",
        "          .0  0  0",
        "old.patch  >  !  =",
        "new.patch  -  !  =",
        "supported  *  *",
    ]


def test_a_review_is_marked_though_the_text_fits() -> None:
    answers = [release("0.33.0", patch(review=("vllm/a.py:4 defines it twice",)))]
    lines = shown(answers)
    assert lines[4] == "fix.patch  r"
    assert "r review: fits, but may mean something else" in lines
    assert "Vllm/a.py" not in "\n".join(lines)
    assert "vllm/a.py:4 defines it twice" in "\n".join(lines)
    assert closing(answers) == "not clean on 1 of 1 supported release: 0.33.0"


def test_releases_with_the_same_trouble_are_told_together_with_what_to_do() -> None:
    answers = [
        release(version, patch(verdict=Verdict.DRIFTED, reason="it is gone"), supported=False)
        for version in RELEASES[:28]
    ]
    answers += [release(version, patch()) for version in RELEASES[28:]]
    (found,) = findings(answers)
    assert str(found) == (
        "fix.patch: drifted on 0.10.2 to 0.26.0 (28 releases, not supported). 1 of its 2 hunks. "
        "It is gone."
    )
    assert not found.counts
    assert closing(answers) == "clean on all 8 supported releases"


def test_patches_of_which_the_same_is_to_be_said_are_named_together() -> None:
    gone = [patch(f"{name}.patch", Verdict.UPSTREAMED, since="0.31.0") for name in "abc"]
    apart = patch("d.patch", Verdict.UPSTREAMED, since="0.30.0")
    assert list(map(str, findings([release("0.33.0", *gone, apart)]))) == [
        "a.patch, b.patch, c.patch: upstreamed on 0.33.0. Upstream has it since 0.31.0.",
        "d.patch: upstreamed on 0.33.0. Upstream has it since 0.30.0.",
    ]


@pytest.mark.parametrize("verdict", [one for one in Verdict if not one < Verdict.APPLIED])
def test_each_verdict_that_is_not_clean_has_a_next_step(verdict: Verdict) -> None:
    answers = [release("0.33.0", patch(verdict=verdict))]
    (found,) = findings(answers)
    assert found.counts
    assert list(steps([found])) == [verdict.value]
    assert f"next for {verdict.value}: " in table(answers)
    assert problem(patch(verdict=verdict)).startswith(verdict.value)


def test_what_is_blocked_names_the_patch_that_blocks_it_and_overlaps_are_named() -> None:
    answers = [
        release(
            "0.33.0",
            patch("one.patch", Verdict.DRIFTED),
            patch("two.patch", Verdict.BLOCKED, blocked_by=("one.patch",)),
            overlaps=(Overlap("one.patch", "two.patch", "vllm/a.py", (4, 9)),),
        )
    ]
    told = "\n".join(str(found) for found in findings(answers))
    assert "two.patch: blocked on 0.33.0. It needs one.patch." in told
    assert "one.patch and two.patch write the same lines of vllm/a.py" in told
    assert "writes lines 4 to 9 of vllm/a.py, as one.patch does" in details(answers)


def test_releases_are_named_by_runs() -> None:
    assert spans(["0.33.0"], RELEASES) == "0.33.0"
    assert spans(["0.14.1", "0.14.0"], RELEASES) == "0.14.0 and 0.14.1"
    assert spans(RELEASES, RELEASES) == "0.10.2 to 0.33.0"
    assert spans(RELEASES[:3] + RELEASES[-1:], RELEASES) == "0.10.2 to 0.11.1 and 0.33.0"
    assert spans(RELEASES[::3], RELEASES) == "9 more, 0.26.0, 0.28.0 and 0.31.0"


# -- details --------------------------------------------------------------------------------------


def test_details_say_everything_that_an_answer_holds() -> None:
    told = click.unstyle(details(every_kind()))
    for part in (
        "one.patch on 0.20.0 (vllm-0.33, base 0.32.0): exact",
        "hunk 1  exact at line 3 in Engine.start",
        "hunk 2  offset at line 40 (+5) in Engine.step",
        "review: vllm/a.py:4 defines it twice",
        "blocked by one.patch",
        "may be vllm/core/a.py now, 91 % alike",
        "may be vllm/b.py now, 60 % alike",
        "upstream has it since 0.42.0",
        "+new ``` `|`",
        "the index is out of reach",
        "vllm 0.44.0 (vllm-0.44.0-cp38-abi3-manylinux_2_28_x86_64.whl)",
    ):
        assert part in told


def test_a_file_that_is_gone_is_said_once_and_not_for_each_hunk() -> None:
    gone = patch(verdict=Verdict.MISSING, reason="there is no vllm/a.py")
    file = gone.files[0]
    hunks = tuple(replace(file.hunks[1], number=number) for number in (1, 2))
    gone = replace(gone, files=(replace(file, hunks=hunks),))
    told = click.unstyle(details([release("0.33.0", gone)])).split("\n")
    assert told[1:4] == ["  vllm/a.py", "    2 hunks  missing", "      there is no vllm/a.py"]


def test_releases_with_one_answer_are_read_once() -> None:
    answers = [release(version, patch()) for version in RELEASES[:3]]
    heads = [head for head, _ in passages(answers)]
    assert heads == ["fix.patch on 0.10.2 to 0.11.1 (vllm-0.33, base 0.32.0): exact"]


def test_code_of_others_cannot_reach_the_terminal() -> None:
    wild = patch(
        AWKWARD, Verdict.DRIFTED, path=AWKWARD, reason=AWKWARD, candidate="+\x1b]0;x\x07\n"
    )
    answers = [release(AWKWARD, wild), release("0.33.0", error=AWKWARD)]
    told = click.unstyle(f"{table(answers)}\n{details(answers)}")
    assert told.replace("\n", "").isprintable()


@given(st.text(), st.integers(2, 30))
def test_cut_and_wrapped_texts_keep_to_their_columns(text: str, limit: int) -> None:
    text = printable(text)
    assert columns(cut(text, limit)) <= limit
    for line in wrapped(text, limit + 4, "    ").split("\n"):
        assert columns(line) <= limit + 4


# -- JSON -----------------------------------------------------------------------------------------


def strict(schema: Any) -> Any:
    """The schema with no key allowed that it does not describe."""
    if isinstance(schema, list):
        return [strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: strict(part) for key, part in schema.items()}
    if schema.get("type") == "object":
        made["additionalProperties"] = False
    return made


def test_json_is_what_its_schema_says_to_the_last_key() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    value = json.loads(rendered(every_kind()))
    jsonschema.Draft202012Validator(strict(SCHEMA)).validate(value)
    described = SCHEMA["$defs"]
    for part, made in (
        ("release", value["releases"][0]),
        ("patch", value["releases"][0]["patches"][0]),
        ("file", value["releases"][0]["patches"][0]["files"][0]),
        ("hunk", value["releases"][0]["patches"][0]["files"][0]["hunks"][0]),
    ):
        assert set(described[part]["properties"]) == set(described[part]["required"]) == set(made)
    assert described["verdict"]["enum"] == [verdict.value for verdict in Verdict]


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("schema",), 2),
        (("releases", 0, "supported"), "yes"),
        (("releases", 0, "patches", 0, "verdict"), "fine"),
        (("releases", 0, "patches", 0, "files", 0, "hunks", 0, "line"), 0),
    ],
)
def test_the_schema_refuses_what_is_not_an_answer(where: tuple[str | int, ...], value: Any) -> None:
    wrong = json.loads(rendered(every_kind()))
    place = wrong
    for step in where[:-1]:
        place = place[step]
    place[where[-1]] = value
    assert not jsonschema.Draft202012Validator(SCHEMA).is_valid(wrong)


def test_json_says_what_counts() -> None:
    value = json.loads(rendered(every_kind()))
    assert value["not_judged"] == ["0.41.0"]
    assert {"0.40.0", "0.41.0", "0.43.0"} <= set(value["not_clean"])
    assert not {"0.20.0", "0.42.0"} & set(value["not_clean"])
    review = next(one for one in value["releases"] if one["release"] == "0.40.0")["patches"][0]
    assert (review["verdict"], review["mark"], review["clean"]) == ("offset", "review", False)


# -- JUnit ----------------------------------------------------------------------------------------


def read_junit(answers: list[ReleaseAnswer], tmp_path: Path) -> JUnitXml:
    place = tmp_path / "check.xml"
    place.write_bytes(junit(answers))
    return JUnitXml.fromfile(str(place))


def test_junit_fails_what_counts_and_skips_what_does_not(tmp_path: Path) -> None:
    report = read_junit(
        [
            release("0.25.0", patch(verdict=Verdict.DRIFTED), supported=False),
            release("0.26.0", error="out of reach", supported=False),
            release("0.31.0", error="out of reach"),
            release("0.32.0", patch(), patch("b.patch", review=("it is defined twice",))),
            release("0.33.0", patch(verdict=Verdict.DRIFTED, candidate=CANDIDATE)),
        ],
        tmp_path,
    )
    outcomes = {
        (suite.name, case.name): [type(result) for result in case.result]
        for suite in report
        for case in suite
    }
    assert outcomes == {
        ("vllm 0.25.0", "fix.patch"): [Skipped],
        ("vllm 0.26.0", "release"): [Skipped],
        ("vllm 0.31.0", "release"): [Error],
        ("vllm 0.32.0", "fix.patch"): [],
        ("vllm 0.32.0", "b.patch"): [Failure],
        ("vllm 0.33.0", "fix.patch"): [Failure],
    }
    assert (report.tests, report.failures, report.errors, report.skipped) == (6, 2, 1, 2)
    said = (report.failures, report.errors, report.skipped, report.tests)
    report.update_statistics()  # type: ignore[no-untyped-call]
    assert said == (report.failures, report.errors, report.skipped, report.tests)
    (failure,) = next(
        case for suite in report for case in suite if suite.name == "vllm 0.33.0"
    ).result
    assert failure.type == "drifted"
    assert "1 of its 2 hunks" in failure.message
    assert "+new ``` `|`" in failure.text


def test_junit_says_which_wheel_was_judged(tmp_path: Path) -> None:
    (suite,) = read_junit([release("0.33.0", patch())], tmp_path)
    told = {one.name: one.value for one in suite.properties()}  # type: ignore[no-untyped-call]
    assert told["judged"] == "vllm 0.33.0 (vllm-0.33.0-cp38-abi3-manylinux_2_28_x86_64.whl)"


@given(st.text(st.characters(), min_size=1))
@settings(deadline=None)
def test_junit_holds_any_text(text: str) -> None:
    one = patch(text, Verdict.DRIFTED, path=text, reason=text, candidate=text)
    data = junit([release(text, one), release("0.33.0", error=text)])
    assert JUnitXml.fromstring(data).failures == 1


# -- Markdown -------------------------------------------------------------------------------------


def tokens(answers: list[ReleaseAnswer]) -> list[Token]:
    return MarkdownIt("commonmark").enable("table").parse(markdown(answers))


def table_of(answers: list[ReleaseAnswer]) -> list[list[str]]:
    """The cells of the page's only table, as they are read."""
    rows: list[list[str]] = []
    parsed = tokens(answers)
    for at, token in enumerate(parsed):
        if token.type == "tr_open":
            rows.append([])
        elif token.type in ("td_open", "th_open"):
            inner = parsed[at + 1].children or []
            rows[-1].append("".join(part.content for part in inner))
    return rows


def test_markdown_has_one_row_a_release_or_one_a_patch_where_there_are_many() -> None:
    few = [release("0.32.0", patch(verdict=Verdict.MOVED)), release("0.33.0", patch())]
    assert table_of(few) == [
        ["release", "supported", "fix.patch"],
        ["0.32.0", "yes", "moved"],
        ["0.33.0", "yes", "exact"],
    ]
    many = [patch(f"{number}.patch") for number in range(20)]
    rows = table_of([release("0.32.0", *many), release("0.33.0", *many[:5])])
    assert [len(row) for row in rows] == [3] * 21
    assert rows[0] == ["patch", "0.32.0", "0.33.0"]
    assert rows[20] == ["19.patch", "exact", ""]


def test_no_name_breaks_the_page() -> None:
    wild = patch(AWKWARD, Verdict.DRIFTED, path=AWKWARD, reason=AWKWARD, candidate=CANDIDATE)
    answers = [release("0.33.0", wild), release("0.34.0", error=AWKWARD, series=AWKWARD)]
    rows = table_of(answers)
    assert rows[0] == ["release", "supported", printable(AWKWARD)]
    assert [len(row) for row in rows] == [3, 3, 3]
    parsed = tokens(answers)
    spoken = [part for token in parsed for part in token.children or []]
    assert not [part for part in spoken if part.type in ("link_open", "html_inline", "image")]
    (fence,) = (token for token in parsed if token.type == "fence")
    assert "+new ``` `|`" in fence.content
    # Only our own folds are HTML.
    for token in parsed:
        if token.type == "html_block":
            assert "<script" not in token.content
            assert "@user" not in token.content or token.content.startswith("<details>")


@given(st.text(min_size=1))
def test_code_and_plain_words_are_read_back_as_they_were(text: str) -> None:
    text = "x" + printable(text).strip() + "x"
    reader = MarkdownIt("commonmark")
    inner = reader.parseInline(code(text))[0].children or []
    assert [(part.type, part.content) for part in inner] == [("code_inline", text)]
    inner = reader.parseInline(plain(text))[0].children or []
    assert "".join(part.content for part in inner) == text


def test_details_are_left_out_where_the_page_would_be_too_long() -> None:
    answers = [
        release(version, patch(verdict=Verdict.DRIFTED, candidate=version + "x" * 2000))
        for version in RELEASES
    ]
    text = markdown(answers, limit=20_000)
    assert len(text.encode()) <= 20_000
    assert "more details are left out" in text
    assert text.count("<details>") == text.count("</details>") > 5
    assert "left out" not in markdown(answers)
