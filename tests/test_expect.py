"""What an `Expect:` may say, and what two runs of a decode make of it."""

from __future__ import annotations

import re

import pytest

from vllm_series.errors import SeriesError
from vllm_series.smoke.expect import (
    Change,
    Expectation,
    Log,
    Metric,
    Observation,
    Outcome,
    Run,
    Spread,
    Tokens,
    TokensEqual,
    judge,
    parse,
)

DRAFTED = "vllm:spec_decode_num_draft_tokens"


def counting(**drafted: float | Spread) -> dict[str, Observation]:
    """A run whose scenarios, by name, have drafted so many tokens."""
    return {name: Observation({DRAFTED: value}) for name, value in drafted.items()}


def outcome(text: str, stock: Run, on: Run) -> Outcome:
    verdict = judge(parse(text), stock, on)
    assert verdict.detail
    return verdict.outcome


@pytest.mark.parametrize(
    ("text", "statement", "scenario"),
    [
        ("tokens equal", TokensEqual(), None),
        ("tokens  equal in ngram", TokensEqual(), "ngram"),
        (f"metric {DRAFTED} falls", Metric(DRAFTED, Change.FALLS), None),
        (f" metric {DRAFTED} rises in draft-model ", Metric(DRAFTED, Change.RISES), "draft-model"),
        ("metric x unchanged", Metric("x", Change.UNCHANGED), None),
        ("metric x_sum appears", Metric("x_sum", Change.APPEARS), None),
        ("metric x absent", Metric("x", Change.ABSENT), None),
        ("log contains verify width: 5", Log("verify width: 5", True), None),
        ('log contains "a in ngram"', Log("a in ngram", True), None),
        ('log contains "  a " in ngram', Log("  a ", True), "ngram"),
        ("no log Traceback", Log("Traceback", False), None),
        ('no log "in plain"', Log("in plain", False), None),
        ("no log ends in Words", Log("ends in Words", False), None),
    ],
)
def test_a_statement_is_read(
    text: str, statement: TokensEqual | Metric | Log, scenario: str | None
) -> None:
    assert parse(text) == Expectation(statement, scenario, text.strip())


@pytest.mark.parametrize(
    ("text", "permitted"),
    [
        ("", "`tokens equal`, `metric NAME falls`, `log contains TEXT` or `no log TEXT`"),
        ("Tokens equal", "`tokens equal`, `metric"),
        ("token equal", "`tokens equal`, `metric"),
        ("tokens", "`tokens equal`"),
        ("tokens equal ngram", "` in SCENARIO`"),
        ("tokens equal in Ngram", "` in SCENARIO`"),
        ("tokens equal in", "` in SCENARIO`"),
        ("metric", "one of `falls`, `rises`, `unchanged`, `appears` and `absent`"),
        ("metric x", "one of `falls`"),
        ("metric x falls by 10%", "one of `falls`"),
        ("metric falls in ngram", "one of `falls`"),
        ("metric vllm.x falls", "the metric's name"),
        ("log", "`log contains TEXT`"),
        ("log has x", "`log contains TEXT`"),
        ("log contains", "the text that is looked for"),
        ("no log", "the text that is looked for"),
        ('no log "x', "the text that is looked for"),
        ('no log ""', "the text that is looked for"),
        ('no log "x" on ngram', "the text that is looked for"),
        ("log contains caps in ngram", 'the text in "double quotes"'),
    ],
)
def test_what_is_no_statement_is_refused_with_what_is_permitted(text: str, permitted: str) -> None:
    with pytest.raises(SeriesError, match=re.escape(permitted)) as refused:
        parse(text)
    assert str(refused.value).startswith(f"{text.strip() or 'nothing'} is not a statement")


def test_tokens_are_equal_where_they_are_or_a_tie_says_why_not() -> None:
    stock = {name: Observation() for name in ("plain", "ngram", "sampled")}
    on = {
        "plain": Observation(tokens=Tokens.EQUAL),
        "ngram": Observation(tokens=Tokens.TIE),
        "sampled": Observation(),
    }
    verdict = judge(parse("tokens equal"), stock, on)
    assert verdict.outcome is Outcome.HOLDS
    assert verdict.detail == "2 scenarios, with a tie in ngram"


def test_tokens_that_differ_are_named_by_their_scenario() -> None:
    stock = {name: Observation() for name in ("plain", "ngram")}
    on = {"plain": Observation(tokens=Tokens.EQUAL), "ngram": Observation(tokens=Tokens.DIFFER)}
    verdict = judge(parse("tokens equal"), stock, on)
    assert (verdict.outcome, verdict.detail) == (Outcome.BROKEN, "tokens differ in ngram")
    assert outcome("tokens equal in plain", stock, on) is Outcome.HOLDS
    assert outcome("tokens equal in ngram", stock, on) is Outcome.BROKEN


def test_tokens_that_nobody_compared_are_no_success() -> None:
    one = {"sampled": Observation()}
    assert outcome("tokens equal", one, one) is Outcome.UNPROVEN


def test_a_metric_falls_behind_a_gate_that_only_one_scenario_passes() -> None:
    """With eight requests the caps are taken, with one they are not: the promise is kept."""
    stock = counting(ngram=929, single=96) | {"plain": Observation()}
    on = counting(ngram=712, single=96) | {"plain": Observation()}
    verdict = judge(parse(f"metric {DRAFTED} falls"), stock, on)
    assert (verdict.outcome, verdict.detail) == (Outcome.HOLDS, "ngram: 929 to 712")
    assert outcome(f"metric {DRAFTED} falls in single", stock, on) is Outcome.BROKEN


def test_a_metric_that_falls_here_and_rises_there_breaks_the_promise() -> None:
    stock, on = counting(ngram=929, single=96), counting(ngram=712, single=97)
    verdict = judge(parse(f"metric {DRAFTED} falls"), stock, on)
    assert (verdict.outcome, verdict.detail) == (Outcome.BROKEN, "single: 96 to 97")
    assert outcome(f"metric {DRAFTED} falls in ngram", stock, on) is Outcome.HOLDS


@pytest.mark.parametrize(
    ("change", "stock", "on", "expected"),
    [
        ("falls", 929, 929, Outcome.BROKEN),
        ("falls", 929, 0, Outcome.HOLDS),
        ("falls", 0, 0, Outcome.UNPROVEN),
        ("falls", 0, 1, Outcome.BROKEN),
        ("rises", 929, 930, Outcome.HOLDS),
        ("rises", 929, 929, Outcome.BROKEN),
        ("rises", 0, 0, Outcome.BROKEN),
        ("rises", 929, 712, Outcome.BROKEN),
        ("unchanged", 929, 929, Outcome.HOLDS),
        ("unchanged", 0, 0, Outcome.HOLDS),
        ("unchanged", 929, 928, Outcome.BROKEN),
        ("unchanged", Spread(3, 9), Spread(3, 9), Outcome.HOLDS),
        ("unchanged", Spread(3, 9), Spread(3, 8), Outcome.BROKEN),
        ("appears", 0, 0, Outcome.BROKEN),
        ("absent", 5, 5, Outcome.BROKEN),
        ("falls", Spread(3, 9), Spread(2, 8), Outcome.BROKEN),
    ],
)
def test_a_metric_by_its_two_numbers(
    change: str, stock: float | Spread, on: float | Spread, expected: Outcome
) -> None:
    assert outcome(f"metric {DRAFTED} {change}", counting(a=stock), counting(a=on)) is expected


def test_a_metric_that_only_one_side_has_neither_falls_nor_stays() -> None:
    without: Run = {"a": Observation()}
    for change in ("falls", "rises", "unchanged"):
        text = f"metric {DRAFTED} {change}"
        assert outcome(text, counting(a=929), without) is Outcome.BROKEN
        assert outcome(text, without, counting(a=929)) is Outcome.BROKEN
        assert outcome(text, without, without) is Outcome.UNPROVEN


def test_a_metric_appears_where_stock_has_it_nowhere() -> None:
    without: Run = {"plain": Observation(), "ngram": Observation()}
    on = {"plain": Observation(), **counting(ngram=0)}
    appears, absent = f"metric {DRAFTED} appears", f"metric {DRAFTED} absent"
    assert outcome(appears, without, on) is Outcome.HOLDS
    assert outcome(f"{appears} in plain", without, on) is Outcome.BROKEN
    assert outcome(appears, counting(plain=1), on) is Outcome.BROKEN
    assert outcome(appears, without, without) is Outcome.BROKEN
    assert outcome(absent, counting(plain=1), without) is Outcome.HOLDS
    assert outcome(absent, without, on) is Outcome.BROKEN
    assert outcome(f"{absent} in plain", without, on) is Outcome.HOLDS


def test_a_histogram_moves_by_the_name_of_its_count_or_its_sum() -> None:
    stock, on = counting(a=Spread(3, 9)), counting(a=Spread(4, 8))
    assert outcome(f"metric {DRAFTED}_sum falls", stock, on) is Outcome.HOLDS
    assert outcome(f"metric {DRAFTED}_count rises", stock, on) is Outcome.HOLDS
    assert outcome(f"metric {DRAFTED}_count unchanged", stock, on) is Outcome.BROKEN
    assert outcome(f"metric {DRAFTED}_mean falls", stock, on) is Outcome.UNPROVEN


def test_of_a_choice_of_scenarios_what_none_has_shown_is_unproven() -> None:
    """dynwidth acts from five running requests on: a choice of the others shows nothing."""
    stock, still, risen = counting(serve=40), counting(serve=40), counting(serve=44)

    def of_some(text: str, on: Run) -> Outcome:
        return judge(parse(text), stock, on, is_whole=False).outcome

    for text in (f"metric {DRAFTED} falls", "metric vllm:width appears", "log contains width"):
        assert outcome(text, stock, still) is Outcome.BROKEN
        assert of_some(text, still) is Outcome.UNPROVEN
    assert of_some(f"metric {DRAFTED} falls", risen) is Outcome.BROKEN
    assert of_some(f"metric {DRAFTED} falls in serve", still) is Outcome.BROKEN
    assert of_some("no log width", still) is Outcome.HOLDS


def test_a_line_of_the_log() -> None:
    stock: Run = {"plain": Observation(), "ngram": Observation()}
    on: Run = {"plain": Observation(log="start\n"), "ngram": Observation(log="a\n  width 5 of 7\n")}
    verdict = judge(parse("log contains width 5"), stock, on)
    assert (verdict.outcome, verdict.detail) == (Outcome.HOLDS, "ngram: width 5 of 7")
    assert outcome("log contains Width 5", stock, on) is Outcome.BROKEN
    assert outcome('log contains "width 5" in plain', stock, on) is Outcome.BROKEN
    assert outcome("no log width 5", stock, on) is Outcome.BROKEN
    assert outcome('no log "width 5" in plain', stock, on) is Outcome.HOLDS
    assert outcome("no log a width", stock, on) is Outcome.HOLDS


@pytest.mark.parametrize(
    "text", ["tokens equal", f"metric {DRAFTED} absent", "no log x", 'no log "x" in plain']
)
def test_a_scenario_that_did_not_run_in_both_modes_shows_nothing(text: str) -> None:
    here, nowhere = {"plain": Observation(tokens=Tokens.EQUAL)}, counting(ngram=1)
    assert outcome(text, here, nowhere) is Outcome.UNPROVEN
    assert outcome(text, nowhere, here) is Outcome.UNPROVEN
