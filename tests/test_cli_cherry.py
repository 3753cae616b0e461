"""Which patches upstream has: real changes between two releases, on the releases after."""

from __future__ import annotations

from pathlib import Path

import pytest

from commandline import SCHEDULER, SERIES, Ran, run
from test_check import QUIET, changed_in, text_of
from vllm_series.checking.answers import FileAnswer, HunkAnswer, PatchAnswer, ReleaseAnswer
from vllm_series.cherry import Cell, Row, Share, rows, share
from vllm_series.compose import PatchMeta, compose
from vllm_series.reports.cherry import closing, table
from vllm_series.upstream.catalog import Catalog
from vllm_series.upstream.open import open_catalog
from vllm_series.verdicts import Verdict


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return open_catalog()


def made(name: str, *changes: tuple[str, bytes, bytes]) -> bytes:
    """A patch on 0.31.0 that makes the second text of the first one, for each path."""
    meta = PatchMeta(
        f"{name}.patch",
        "A Tester <tester@example.com>",
        "Tue, 1 Dec 2026 00:00:00 +0000",
        f"{name}: x",
        "Why.",
    )
    before = {path: old for path, old, _ in changes}
    after = {path: new for path, _, new in changes}
    return compose(meta, before, after, "0.31.0").text


@pytest.fixture(scope="module")
def series(catalog: Catalog, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """vllm-0.31: dynwidth and a change that 0.32.0 has; vllm-0.31.0: one of which it has a part."""
    root = tmp_path_factory.mktemp("series")
    path = changed_in(catalog, "0.31.0", "0.32.0", "0.33.0")
    assert path not in (SCHEDULER, QUIET)
    upstream = (path, text_of(catalog, "0.31.0", path), text_of(catalog, "0.32.0", path))
    text = text_of(catalog, "0.31.0", QUIET)
    mine = text.replace(b"class FCFSRequestQueue", b"OURS = 1\n\n\nclass FCFSRequestQueue", 1)
    assert mine != text
    dynwidth = (SERIES / "vllm-0.31/dynwidth.patch").read_bytes()
    for name, patches in (
        ("vllm-0.31", {"dynwidth.patch": dynwidth, "whole.patch": made("whole", upstream)}),
        ("vllm-0.31.0", {"part.patch": made("part", upstream, (QUIET, text, mine))}),
    ):
        folder = root / name
        folder.mkdir()
        for file, data in patches.items():
            (folder / file).write_bytes(data)
        (folder / "series").write_text("".join(f"{file}\n" for file in patches))
    return root


def cherry(series: Path, *words: str) -> Ran:
    return run("cherry", "--series-dir", series, *words)


# -- real changes of upstream -------------------------------------------------------------------


def test_what_a_release_has_is_told_with_since_when(series: Path) -> None:
    told = cherry(series, "--releases", "0.31.0..0.33.0")
    assert (told.code, told.err) == (0, "")
    lines = told.out.splitlines()
    assert lines[0] == "series vllm-0.31 on 0.31.0 to 0.33.0 (3 releases)"
    assert "dynwidth.patch  +  +  +" in lines
    assert "whole.patch     +  -  -" in lines
    assert "dynwidth.patch: not upstream" in lines
    assert "whole.patch: upstream since 0.32.0" in lines
    assert lines[-1].startswith("upstream in 0.33.0: 1 of 2 patches; vllm-series rebase")
    assert max(map(len, lines)) <= 100


def test_a_part_is_told_apart_from_the_whole(series: Path) -> None:
    told = cherry(series, "--series", "0.31.0", "--releases", "0.31.0,0.32.0", "--json")
    assert told.code == 0, told.err
    value = told.json()
    first, second = value["patches"][0]["releases"]  # type: ignore[index]
    assert (first["sign"], first["hunks_upstream"]) == ("+", 0)
    assert (second["sign"], second["upstream"], second["since"]) == ("~", "part", None)
    assert 0 < second["hunks_upstream"] == second["hunks"] - 1


def test_the_base_and_what_came_after_it_are_asked_by_default(series: Path) -> None:
    value = cherry(series, "--series", "vllm-0.31", "--json").json()
    assert value["base"] == "0.31.0"
    releases = [one["release"] for one in value["patches"][0]["releases"]]  # type: ignore[index]
    assert releases[:3] == ["0.31.0", "0.32.0", "0.33.0"]


def test_without_a_name_it_is_the_series_of_the_newest_line() -> None:
    value = run("cherry", "--releases", "0.33.0", "--json").json()
    newest = max(
        (folder.name for folder in SERIES.glob("vllm-*") if folder.name.count(".") == 1),
        key=lambda name: [int(part) for part in name.removeprefix("vllm-").split(".")],
    )
    assert value["series"] == newest


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        (("--series", "9.9"), 1, "no series 9.9"),
        (("--releases", "9.9.9"), 2, "9.9.9"),
    ],
)
def test_wrong_words_get_a_clear_error(
    series: Path, words: tuple[str, ...], code: int, expected: str
) -> None:
    told = cherry(series, *words)
    assert (told.code, told.out) == (code, "")
    assert expected in told.err


def test_an_index_without_releases_is_exit_3(series: Path, tmp_path: Path) -> None:
    told = run(
        *("cherry", "--series-dir", series, "--find-links", tmp_path, "--no-index"),
        *("--releases", "0.33.0"),
    )
    assert (told.code, told.out) == (3, "")
    assert "no release of vllm is found" in told.err


# -- what the signs mean ------------------------------------------------------------------------


def answer(*verdicts: Verdict, since: str | None = None) -> PatchAnswer:
    hunks = tuple(HunkAnswer("vllm/a.py", at, one) for at, one in enumerate(verdicts, 1))
    worst = Verdict.UPSTREAMED if Verdict.UPSTREAMED in verdicts else verdicts[0]
    return PatchAnswer("a.patch", worst, (FileAnswer("vllm/a.py", worst, hunks),), since=since)


def test_a_patch_is_upstream_only_with_all_of_its_hunks() -> None:
    up, fits, drifted = Verdict.UPSTREAMED, Verdict.EXACT, Verdict.DRIFTED
    assert share(answer(up, up)) is Share.ALL
    assert share(answer(up, fits)) is Share.PART
    assert share(answer(up, drifted)) is Share.PART
    assert share(answer(fits, fits)) is Share.NONE
    assert share(answer(drifted)) is Share.NONE


def test_a_release_out_of_reach_is_told_and_the_others_are_judged() -> None:
    known = ReleaseAnswer(
        "1.0.0", "x", None, "s", True, (answer(Verdict.UPSTREAMED, since="1.0.0"),)
    )
    lost = ReleaseAnswer("1.1.0", "x", None, "s", True, error="the index is out of reach")
    (row,) = found = rows(["a.patch"], [known, lost])
    assert [cell.share for cell in row.cells] == [Share.ALL, Share.UNKNOWN]
    assert row.last.release == "1.0.0"
    told = table("vllm-1.0", found, {"1.1.0": lost.error})
    assert "a.patch: upstream since 1.0.0" in told
    assert "1.1.0: the index is out of reach" in told
    assert closing(found).startswith("upstream in 1.0.0: 1 of 1 patch")


def test_what_upstream_took_back_is_said() -> None:
    cells = (Cell("1.0.0", Share.ALL, "1.0.0", 1, 1), Cell("1.1.0", Share.NONE, None, 0, 1))
    told = table("vllm-1.0", [Row("a.patch", cells)], {})
    assert "a.patch: not upstream in 1.1.0, but 1.0.0 had it: upstream took it back" in told
