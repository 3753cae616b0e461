"""What an `Expect:` trailer promises of a decode, and whether two runs of it show that.

A trailer holds one statement, with a scenario at its end where it is meant for one alone:

    tokens equal
    metric vllm:spec_decode_num_draft_tokens falls in ngram
    log contains "verify width"
    no log Traceback

`parse` reads it, `judge` holds it against what stock vLLM showed and what it showed with the patch
switched on. Both are pure: who ran what, and how tokens were compared, is not known here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from vllm_series.errors import SeriesError

_SCENARIO = r"[a-z][a-z0-9-]*"
_CLAUSE = re.compile(rf"^(?P<statement>.*?)\s+in\s+(?P<scenario>{_SCENARIO})$")
_METRIC = re.compile(r"^[A-Za-z_:][\w:]*$")
"""A name as Prometheus takes it."""
_QUOTED = re.compile(rf'^"(?P<text>[^"]+)"(?:\s+in\s+(?P<scenario>{_SCENARIO}))?$')


class ExpectError(SeriesError):
    """An `Expect:` that is no statement of the language; the message says what is permitted."""


class Change(Enum):
    """What a metric is to do, with the patch on against stock; the value is the word for it."""

    FALLS = "falls"
    RISES = "rises"
    UNCHANGED = "unchanged"
    APPEARS = "appears"
    ABSENT = "absent"


class Tokens(Enum):
    """How the tokens of one scenario compare with those of stock."""

    EQUAL = "equal"
    TIE = "tie"
    """They differ, and where they first do, both had the highest logit."""
    DIFFER = "differ"


class Outcome(Enum):
    """What became of an expectation."""

    HOLDS = "holds"
    BROKEN = "broken"
    UNPROVEN = "unproven"
    """No scenario that ran could have shown it either way. It is not a success."""


@dataclass(frozen=True, slots=True)
class TokensEqual:
    """`tokens equal`: the same text, token by token, wherever a run decides nothing by chance."""


@dataclass(frozen=True, slots=True)
class Metric:
    """`metric NAME falls`: a metric of vLLM by the name that `llm.get_metrics()` has for it."""

    name: str
    change: Change


@dataclass(frozen=True, slots=True)
class Log:
    """`log contains TEXT`, or with `present` false `no log TEXT`: within a line, case and all."""

    text: str
    present: bool


@dataclass(frozen=True, slots=True)
class Expectation:
    """One `Expect:`: its statement, the one scenario that it is for or None for all, its text."""

    statement: TokensEqual | Metric | Log
    scenario: str | None
    text: str


@dataclass(frozen=True, slots=True)
class Spread:
    """A histogram, or a counter by position: how many observations, and their sum."""

    count: float
    sum: float


@dataclass(frozen=True, slots=True)
class Observation:
    """What one scenario showed in one mode.

    `metrics` are those of `llm.get_metrics()` by name, summed over their labels. `tokens` says how
    its tokens compare with stock's; None for stock itself and where nothing is to be compared.
    """

    metrics: Mapping[str, float | Spread] = field(default_factory=dict)
    log: str = ""
    tokens: Tokens | None = None


Run = Mapping[str, Observation]
"""The scenarios of one mode that ran to their end, by name, in the order of the report."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of an expectation, and what shows it: the scenario with its numbers or line."""

    outcome: Outcome
    detail: str


def parse(text: str) -> Expectation:
    """Read the value of an `Expect:` trailer; words are parted by any white space.

    Raises ExpectError with what is permitted, from the word on that is not understood.
    """
    text = text.strip()
    words = text.split()
    if words[:1] == ["tokens"]:
        rest, scenario = _clause(text)
        if rest.split() == ["tokens", "equal"]:
            return Expectation(TokensEqual(), scenario, text)
        raise _wrong(text, "`tokens equal`, with ` in SCENARIO` behind it where it is for one")
    if words[:1] == ["metric"]:
        return _metric(text)
    if words[:2] == ["log", "contains"] or words[:2] == ["no", "log"]:
        return _log(text, present=words[0] == "log")
    raise _wrong(text, "`tokens equal`, `metric NAME falls`, `log contains TEXT` or `no log TEXT`")


def _metric(text: str) -> Expectation:
    rest, scenario = _clause(text)
    changes = {change.value: change for change in Change}
    words = rest.split()
    if len(words) != 3 or words[2] not in changes:
        *most, last = (f"`{change}`" for change in changes)
        raise _wrong(text, f"`metric NAME` and one of {', '.join(most)} and {last}")
    if not _METRIC.match(words[1]):
        raise _wrong(text, "the metric's name as vLLM has it, such as `vllm:num_preemptions`")
    return Expectation(Metric(words[1], changes[words[2]]), scenario, text)


def _log(text: str, *, present: bool) -> Expectation:
    sought = text.split(maxsplit=2)[2] if len(text.split()) > 2 else ""
    if quoted := _QUOTED.match(sought):
        return Expectation(Log(quoted["text"], present), quoted["scenario"], text)
    if not sought or '"' in (sought[0], sought[-1]):
        raise _wrong(text, 'the text that is looked for, as it is or in "double quotes"')
    if _CLAUSE.match(sought):
        # It could be either; taken for text, the scenario would be lost without a word.
        raise _wrong(text, 'the text in "double quotes", with ` in SCENARIO` behind them or within')
    return Expectation(Log(sought, present), None, text)


def _clause(text: str) -> tuple[str, str | None]:
    found = _CLAUSE.match(text)
    return (found["statement"], found["scenario"]) if found else (text, None)


def _wrong(text: str, permitted: str) -> ExpectError:
    return ExpectError(f"{text or 'nothing'} is not a statement about a decode. Write {permitted}.")


def judge(expectation: Expectation, stock: Run, on: Run, is_whole: bool = True) -> Verdict:
    """Hold an expectation against the scenarios that ran to their end in both modes.

    `is_whole` says that all scenarios were asked for. Where it was a choice of them, what is to be
    seen in any one and was seen in none may be seen in one of the others, and is unproven.

    Where stock cannot run a scenario, the caller hands in what stands for it (the run with the
    patches switched off).
    """
    meant = [name for name in on if name in stock and expectation.scenario in (None, name)]
    if not meant:
        which = f"scenario {expectation.scenario}" if expectation.scenario else "no scenario"
        ran = "did not run" if expectation.scenario else "ran"
        return Verdict(Outcome.UNPROVEN, f"{which} {ran} in both modes")
    statement = expectation.statement
    lacking = Outcome.BROKEN if is_whole or expectation.scenario else Outcome.UNPROVEN
    if isinstance(statement, TokensEqual):
        return _judge_tokens({name: on[name].tokens for name in meant})
    if isinstance(statement, Log):
        return _judge_log(statement, {name: on[name].log for name in meant}, lacking)
    return _judge_metric(statement, [(name, stock[name], on[name]) for name in meant], lacking)


def _judge_tokens(compared: Mapping[str, Tokens | None]) -> Verdict:
    by = {one: [name for name, found in compared.items() if found is one] for one in Tokens}
    if by[Tokens.DIFFER]:
        return Verdict(Outcome.BROKEN, f"tokens differ in {', '.join(by[Tokens.DIFFER])}")
    held = len(by[Tokens.EQUAL]) + len(by[Tokens.TIE])
    if not held:
        return Verdict(Outcome.UNPROVEN, "no scenario compares tokens")
    ties = f", with a tie in {', '.join(by[Tokens.TIE])}" if by[Tokens.TIE] else ""
    return Verdict(Outcome.HOLDS, f"{_scenarios(held)}{ties}")


def _judge_log(wanted: Log, logs: Mapping[str, str], lacking: Outcome) -> Verdict:
    found = [(name, line) for name, log in logs.items() for line in _lines(log, wanted.text)]
    if found:
        name, line = found[0]
        outcome = Outcome.HOLDS if wanted.present else Outcome.BROKEN
        return Verdict(outcome, f"{name}: {line}")
    outcome = lacking if wanted.present else Outcome.HOLDS
    return Verdict(outcome, f"no such line in the logs of {_scenarios(len(logs))}")


def _lines(log: str, text: str) -> Iterator[str]:
    return (line.strip() for line in log.splitlines() if text in line)


def _judge_metric(
    wanted: Metric, runs: list[tuple[str, Observation, Observation]], lacking: Outcome
) -> Verdict:
    name = wanted.name
    if wanted.change in (Change.APPEARS, Change.ABSENT):
        before = {scenario: _value(stock, name) for scenario, stock, _ in runs}
        after = {scenario: _value(on, name) for scenario, _, on in runs}
        return _judge_presence(wanted.change, before, after, lacking)
    pairs: list[tuple[str, float | Spread, float | Spread]] = []
    for scenario, stock, on in runs:
        old, new = _value(stock, name), _value(on, name)
        if (old is None) is not (new is None):
            who = "only with the patch" if old is None else "only in stock"
            return Verdict(Outcome.BROKEN, f"{scenario}: {name} is there {who}")
        if old is not None and new is not None:
            pairs.append((scenario, old, new))
    if not pairs:
        return Verdict(Outcome.UNPROVEN, f"no scenario has {name}")
    if wanted.change is Change.UNCHANGED:
        return _judge_unchanged(pairs)
    return _judge_direction(wanted, pairs, lacking)


def _value(seen: Observation, name: str) -> float | Spread | None:
    """A metric by its name; of a histogram also one of its two numbers, as Prometheus calls it."""
    if name in seen.metrics:
        return seen.metrics[name]
    whole, _, part = name.rpartition("_")
    spread = seen.metrics.get(whole)
    if isinstance(spread, Spread) and part in ("count", "sum"):
        return spread.count if part == "count" else spread.sum
    return None


def _judge_presence(
    change: Change,
    before: Mapping[str, float | Spread | None],
    after: Mapping[str, float | Spread | None],
    lacking: Outcome,
) -> Verdict:
    has = [scenario for scenario, value in after.items() if value is not None]
    if change is Change.ABSENT:
        if has:
            return Verdict(Outcome.BROKEN, f"{has[0]}: it is there, {_shown(after[has[0]])}")
        return Verdict(Outcome.HOLDS, f"not there in {_scenarios(len(after))}")
    old = [scenario for scenario, value in before.items() if value is not None]
    if old:
        return Verdict(Outcome.BROKEN, f"{old[0]}: stock has it, {_shown(before[old[0]])}")
    if not has:
        return Verdict(lacking, f"not there in {_scenarios(len(after))}")
    return Verdict(Outcome.HOLDS, f"{has[0]}: {_shown(after[has[0]])}")


def _judge_unchanged(pairs: list[tuple[str, float | Spread, float | Spread]]) -> Verdict:
    for scenario, old, new in pairs:
        if old != new:
            return Verdict(Outcome.BROKEN, f"{scenario}: {_shown(old)} to {_shown(new)}")
    return Verdict(Outcome.HOLDS, f"the same in {_scenarios(len(pairs))}")


def _judge_direction(
    wanted: Metric, pairs: list[tuple[str, float | Spread, float | Spread]], lacking: Outcome
) -> Verdict:
    """`falls` and `rises`: against it nowhere, along it somewhere.

    A patch may have a gate, such as a number of running requests, that only some scenarios pass.
    Below it nothing changes, which breaks no promise; a move the other way does, wherever it is.
    """
    sign = -1 if wanted.change is Change.FALLS else 1
    moved: list[str] = []
    still: list[str] = []
    for scenario, old, new in pairs:
        if isinstance(old, Spread) or isinstance(new, Spread):
            # Its two numbers may go opposite ways.
            parts = f"{wanted.name}_count or {wanted.name}_sum"
            return Verdict(Outcome.BROKEN, f"{wanted.name} is a histogram: say {parts}")
        step = (new - old) * sign
        shown = f"{scenario}: {_shown(old)} to {_shown(new)}"
        if step < 0:
            return Verdict(Outcome.BROKEN, shown)
        if step > 0:
            moved.append(shown)
        elif old or wanted.change is Change.RISES:
            still.append(f"{scenario}: stays at {_shown(old)}")
    if moved:
        return Verdict(Outcome.HOLDS, "; ".join(moved))
    if still:
        return Verdict(lacking, "; ".join(still))
    return Verdict(Outcome.UNPROVEN, f"{wanted.name} is 0 in {_scenarios(len(pairs))}")


def _shown(value: float | Spread | None) -> str:
    if isinstance(value, Spread):
        return f"{_shown(value.count)} observations with sum {_shown(value.sum)}"
    return f"{value:.15g}" if value is not None else "none"


def _scenarios(number: int) -> str:
    return "1 scenario" if number == 1 else f"{number} scenarios"
