"""`vllm-series drift` as a process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from commandline import PROJECT, SERIES, run
from test_drift import BODY, inserted, releases, wheels

LATER = BODY.replace("gamma()", "gamma(1)")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three releases, of which the last has another form of the place, and a patch beside them."""
    texts = {"1.0.0": BODY, "1.0.1": "\n" + BODY, "1.1.0": LATER}
    releases(tmp_path / "up", {v: {"vllm/engine.py": text} for v, text in texts.items()})
    (tmp_path / "mine.diff").write_bytes(inserted(BODY).text)
    return tmp_path


def test_the_page_tells_forms_fits_and_upstream_diffs(folder: Path) -> None:
    ran = run("drift", folder / "mine.diff", "--source", f"dir:{folder / 'up'}")
    assert ran.code == 0, ran.err
    assert ran.out.startswith("mine.diff, made on 1.0.0: 3 releases, 1.0.0 to 1.1.0\n")
    assert "Fits 1.0.0 to 1.0.1; first drifted in 1.1.0." in ran.out
    assert "  1.0.0  1.1.0\n  AA     B\n  =+     -\n" in ran.out
    assert "1.0.1 to 1.1.0, A to B: the text of the place changes in 1.1.0;" in ran.out
    assert "-        self.gamma()\n+        self.gamma(1)\n" in ran.out
    assert ran.out.rstrip().endswith("a letter is one text of the place")


def test_lines_are_no_longer_than_a_hundred_columns(folder: Path) -> None:
    ran = run("drift", "dynwidth", "--since", "0.22.0", "--series-dir", SERIES, "--forecast")
    assert ran.code == 0, ran.err
    told = [line for line in ran.out.splitlines() if line[:1] not in ("+", "-", " ", "@")]
    assert max(map(len, told)) <= 100
    assert "vllm/v1/core/sched/dynamic_width.py: made by the patch" in ran.err


def test_json_holds_all_of_it(folder: Path) -> None:
    ran = run(
        "drift", folder / "mine.diff", "--source", f"dir:{folder / 'up'}", "--json", "--forecast"
    )
    assert ran.code == 0, ran.err
    value = ran.json()
    assert value["command"] == "drift"
    assert value["base"] == "1.0.0"
    (hunk,) = json.loads(ran.out)["hunks"]
    assert [stand["verdict"] for stand in hunk["stands"]] == ["exact", "offset", "drifted"]
    assert [stand["form"] for stand in hunk["stands"]] == [1, 1, 2]
    assert [form["number"] for form in hunk["forms"]] == [1, 2]
    (transition,) = hunk["transitions"]
    assert transition["what"] == ["form", "drifts"]
    assert transition["diff"].startswith("--- vllm/engine.py\t1.0.1")
    assert 0 < hunk["forecast"]["minor"]["survives"] < 1
    assert [step["lines_changed"] for step in hunk["forecast"]["steps"]] == [False, True]


def strict(schema: Any) -> Any:
    """The schema with no key allowed that it does not describe."""
    if isinstance(schema, list):
        return [strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: strict(part) for key, part in schema.items()}
    if schema.get("type") == "object":
        made.setdefault("additionalProperties", False)
    return made


def test_json_is_what_its_schema_says_to_the_last_key(folder: Path) -> None:
    schema = json.loads((PROJECT / "docs" / "schemas" / "drift.json").read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    source = f"dir:{folder / 'up'}"
    for words in ((), ("--forecast",), ("--base", "1.1.0")):
        ran = run("drift", folder / "mine.diff", "--source", source, "--json", *words)
        jsonschema.Draft202012Validator(strict(schema)).validate(json.loads(ran.out))
    ran = run("drift", "dynwidth", "--series-dir", SERIES, "--since", "0.28", "--json")
    jsonschema.Draft202012Validator(strict(schema)).validate(json.loads(ran.out))


def test_a_patch_is_found_by_its_name_in_the_newest_series(folder: Path) -> None:
    ran = run("drift", "dynwidth", "--series-dir", SERIES, "--since", "0.33.0", "--json")
    assert ran.code == 0, ran.err
    value = json.loads(ran.out)
    assert value["patch"] == "dynwidth.patch"
    assert value["base"] == "0.33.0"
    assert [stand["verdict"] for hunk in value["hunks"] for stand in hunk["stands"]] == [
        "exact",
        "exact",
        "exact",
    ]


def test_a_patch_that_is_nowhere_is_refused(folder: Path) -> None:
    ran = run("drift", "nothing", "--series-dir", SERIES)
    assert ran.code == 1
    assert "no patch nothing: neither a file nor in vllm-0.33" in ran.err
    assert not ran.out
    ran = run("drift", "nothing.diff", cwd=folder)
    assert (ran.code, ran.out) == (1, "")
    assert "no patch nothing.diff: there is no such file, and no series folder: none in" in ran.err


def test_a_patch_is_read_from_standard_input(folder: Path) -> None:
    diff = (folder / "mine.diff").read_bytes()
    ran = run("drift", "-", "--source", f"dir:{folder / 'up'}", "--json", stdin=diff)
    named = run("drift", folder / "mine.diff", "--source", f"dir:{folder / 'up'}", "--json")
    assert (ran.code, named.code) == (0, 0)
    assert json.loads(ran.out) == {**json.loads(named.out), "patch": "stdin.patch"}


def test_a_release_that_is_not_there_is_wrong_usage(folder: Path) -> None:
    source = f"dir:{folder / 'up'}"
    for option in ("--since", "--until", "--base"):
        ran = run("drift", folder / "mine.diff", "--source", source, option, "7.7.7")
        assert ran.code == 2
        assert f"no release 7.7.7 for {option}" in ran.err


def test_an_index_out_of_reach_is_not_an_answer(folder: Path) -> None:
    ran = run(
        "drift", folder / "mine.diff", "--index-url", "http://127.0.0.1:9/simple", "--no-cache"
    )
    assert ran.code == 3
    assert not ran.out


def test_a_release_that_cannot_be_read_is_named_on_stderr(tmp_path: Path) -> None:
    places = wheels(tmp_path, {"1.0.0": BODY, "1.1.0": BODY, "1.2.0": LATER})
    places[1].write_bytes(places[1].read_bytes()[:200])
    (tmp_path / "mine.diff").write_bytes(inserted(BODY).text)
    ran = run(
        "drift",
        tmp_path / "mine.diff",
        "--find-links",
        tmp_path,
        "--no-index",
        "--no-cache",
        "--base",
        "1.0.0",
    )
    assert ran.code == 0, ran.err
    assert "1.1.0 is left out: " in ran.err
    assert "2 releases, 1.0.0 to 1.2.0" in ran.out


def test_long_diffs_are_cut_and_shown_whole_on_request(tmp_path: Path) -> None:
    """What of a function stands far from the place is counted, not shown."""
    rest = "".join(f"        self.step({n})\n" for n in range(200))
    old = BODY + rest
    new = LATER + rest.replace("step(1", "walk(1").replace("step(2", "walk(2")
    texts = {"1.0.0": {"vllm/engine.py": old}, "1.1.0": {"vllm/engine.py": new}}
    releases(tmp_path / "up", texts)
    (tmp_path / "mine.diff").write_bytes(inserted(old).text)
    words = ("drift", tmp_path / "mine.diff", "--source", f"dir:{tmp_path / 'up'}")
    short, whole = run(*words), run(*words, "--full")
    assert "self.walk(199)" not in short.out
    assert "--full shows all" in short.out
    assert "+        self.walk(199)\n" in whole.out
    assert "--full" not in whole.out


def test_what_upstream_wrote_cannot_move_the_cursor(tmp_path: Path) -> None:
    text = BODY.replace("self.gamma()", "self.gamma('\x1b[2J')")
    texts = {"1.0.0": {"vllm/engine.py": BODY}, "1.1.0": {"vllm/engine.py": text}}
    releases(tmp_path / "up", texts)
    (tmp_path / "mine.diff").write_bytes(inserted(BODY).text)
    ran = run("drift", tmp_path / "mine.diff", "--source", f"dir:{tmp_path / 'up'}")
    assert ran.code == 0
    assert "\x1b" not in ran.out
    assert "\\x1b[2J" in ran.out
