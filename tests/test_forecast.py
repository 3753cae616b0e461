"""How likely a hunk is to survive, from what became of its place: the estimate and its steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from test_drift import BODY, inserted, only, releases
from vllm_series.drifting.drift import drift
from vllm_series.drifting.following import Place, Spot, Text
from vllm_series.drifting.forecast import (
    OVERALL,
    Forecast,
    Shape,
    Step,
    Wear,
    broken_rate,
    forecast,
    steps_of,
)


def step(broken: bool, *, scope: float = 0.0, file: float = 0.0, minor: bool = True) -> Step:
    return Step("1.0.0", minor, broken, scope, file, scope > 0)


def mean(steps: list[Step], *, minor: bool = True) -> float:
    first, second = broken_rate(steps, minor=minor)
    return first / (first + second)


def text(*lines: str) -> Text:
    return Text("vllm/a.py", "".join(line + "\n" for line in lines).encode())


# -- the estimate ---------------------------------------------------------------------------------


def test_without_history_the_estimate_is_the_rate_of_all_files() -> None:
    assert mean([]) == pytest.approx(OVERALL[True])
    assert mean([], minor=False) == pytest.approx(OVERALL[False])


def test_a_place_that_changed_is_likelier_to_change_again() -> None:
    calm = [step(False) for _ in range(10)]
    hot = [*calm[:5], *(step(True) for _ in range(5))]
    assert mean(calm) < mean(hot)
    assert mean(calm) < OVERALL[True]


def test_a_file_that_changed_weighs_more_than_its_place() -> None:
    place = [step(True) for _ in range(4)]
    whole = [step(False, scope=0.4, file=0.4) for _ in range(4)]
    assert mean(place) < mean(whole)


def test_a_later_step_weighs_more() -> None:
    calm = [step(False) for _ in range(12)]
    early, late = [step(True), *calm], [*calm, step(True)]
    assert mean(early) < mean(late)


def test_patch_releases_say_nothing_of_minor_ones() -> None:
    quiet = [step(False, minor=False) for _ in range(50)]
    assert mean(quiet) == pytest.approx(OVERALL[True])
    assert mean(quiet, minor=False) < OVERALL[False]


def test_a_step_that_rewrote_the_file_is_left_out() -> None:
    rewritten = step(True, scope=1.0, file=0.9)
    assert mean([rewritten]) == mean([])


# -- what a step did ------------------------------------------------------------------------------


def test_a_stretch_is_broken_by_a_change_in_it_or_a_line_into_it() -> None:
    old = text(*"abcdefgh")
    for lines, first, broken in (
        ("abcdefgh", 2, False),
        ("xabcdefgh", 2, False),
        ("abcXefgh", 2, True),
        ("abcxdefgh", 2, True),
        ("abcdefgX", 2, False),
    ):
        assert Wear().is_broken(old, text(*lines), first, first + 3) is broken, lines


def test_the_share_counts_every_stretch_of_that_length() -> None:
    old, new = text(*"abcdefgh"), text(*"abcdeXgh")
    assert Wear().share(old, new, 3, 0, 8) == pytest.approx(3 / 6)
    assert Wear().share(old, old, 3, 0, 8) == 0


def test_a_share_is_that_of_the_scope_alone() -> None:
    old, new = text(*"abcdefghij"), text(*"abcdefghiX")
    wear = Wear()
    assert wear.share(old, new, 3, 0, 5) == 0
    assert wear.share(old, new, 3, 5, 10) > 0


def test_steps_tell_minor_lines_from_patch_releases() -> None:
    same, other = text("a", "b", "c"), text("a", "x", "c")
    seen = [
        (version, Place(each, (Spot(1),), None))
        for version, each in (("0.9.0", same), ("0.9.1", same), ("0.10.0", other))
    ]
    patch, minor = steps_of(seen, Shape(1, 2), Wear())
    assert (patch.is_minor, patch.broken) == (False, False)
    assert (minor.is_minor, minor.broken) == (True, True)


# -- the whole ------------------------------------------------------------------------------------


def of(tmp_path: Path, texts: list[str]) -> Forecast | None:
    named = {f"1.{n}.0": {"vllm/engine.py": text} for n, text in enumerate(texts)}
    catalog = releases(tmp_path, named)
    answer = drift([inserted(texts[0])], catalog, base="1.0.0")
    return forecast(only(answer), answer.releases)


def test_a_forecast_tells_how_often_lines_and_scope_changed(tmp_path: Path) -> None:
    other = BODY.replace("epsilon()", "epsilon(1)")
    found = of(tmp_path, [BODY, BODY, BODY.replace("gamma()", "gamma(1)"), other])
    assert found is not None
    assert [one.broken for one in found.steps] == [False, True, True]
    assert [one.scope_changed for one in found.steps] == [False, True, True]
    assert "In 3 minor steps its lines changed in 2, last in 1.3.0, its scope in 2." in found.told()
    assert 0 < found.minor.low < found.minor.value < found.minor.high < 1
    assert found.patch.value > found.minor.value


def test_there_is_no_forecast_where_the_place_is_gone(tmp_path: Path) -> None:
    assert of(tmp_path, [BODY, "class Engine: ...\n"]) is None


def test_a_forecast_says_where_the_hunk_does_not_fit_any_more(tmp_path: Path) -> None:
    found = of(tmp_path, [BODY, BODY.replace("gamma()", "gamma(1)")])
    assert found is not None
    assert not found.fits
    assert found.told().startswith("Forecast: it does not fit 1.1.0; one that is made there has ")


def test_a_forecast_sees_no_later_release_than_it_is_asked_for(tmp_path: Path) -> None:
    texts = [BODY, BODY, BODY.replace("gamma()", "gamma(1)")]
    named = {f"1.{n}.0": {"vllm/engine.py": text} for n, text in enumerate(texts)}
    answer = drift([inserted(BODY)], releases(tmp_path, named), base="1.0.0")
    found = forecast(only(answer), answer.releases, until="1.1.0")
    assert found is not None
    assert [one.broken for one in found.steps] == [False]
    assert found.fits


def test_a_calmer_stretch_of_the_scope_is_named(tmp_path: Path) -> None:
    """The place changes in each release, the end of its function in none."""
    calm = "".join(f"        self.calm_{n}()\n" for n in range(9))
    texts = [BODY.replace("gamma()", f"gamma({n})") + calm for n in range(6)]
    texts[0] = BODY + calm
    found = of(tmp_path, texts)
    assert found is not None
    assert found.calm is not None
    assert found.calm.since == "1.0.0"
    first, last = found.calm.lines
    assert first > 5
    assert last == 16
    assert f"lines {first} to {last} of 1.5.0 have stood since 1.0.0" in found.told()
