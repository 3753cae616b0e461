"""A smoke run: the scenarios on stock code, patched and off, patched and on, and what comes of it.

Stock and off run side by side where the machine has two cores for them, so that their times can be
held against each other. Each engine runs in a process of its own, so a crash costs one scenario.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vllm_series.errors import EnvironmentRefusedError
from vllm_series.series import Series
from vllm_series.smoke import compare
from vllm_series.smoke.blame import blamed, patched_frame
from vllm_series.smoke.environment import ENGINE_CACHES, Environment, disk, environments_root
from vllm_series.smoke.patched import Code
from vllm_series.smoke.process import (
    INSIDE,
    SILENCE,
    Runner,
    at_once,
    engine_variables,
    last_lines,
    side_by_side,
)
from vllm_series.smoke.results import (
    Blame,
    Check,
    Decode,
    Frame,
    Mode,
    Outcome,
    Row,
    Smoke,
)
from vllm_series.smoke.scenarios import NAMES, PROCESSES, REPEATS, SCENARIOS, unavailable


@dataclass(frozen=True, slots=True)
class Wish:
    """What to run. `model` is a folder of the user's own, None for the one that is made here;
    `modes` other than stock need a series."""

    scenarios: tuple[str, ...]
    modes: tuple[Mode, ...]
    logs: Path
    model: Path | None = None
    dtype: str = "float32"
    repeats: int = REPEATS
    blames: bool = True


def smoke(
    environment: Environment,
    series: Series | None,
    wish: Wish,
    say: Callable[[str], None] = lambda _step: None,
) -> Smoke:
    """Run all of it on one environment, and judge.

    Raises RefusedError where the series does not fit, EnvironmentRefusedError where no script can
    be run there; whatever an engine does is in the result.
    """
    started = time.monotonic()
    wish.logs.mkdir(parents=True, exist_ok=True)
    caches = environments_root() / ENGINE_CACHES / environment.release
    variables = engine_variables(os.environ, caches, environment.device.is_gpu)
    models = (wish.model, wish.model) if wish.model else _models(environment, variables)
    with Code(environment.python, series, variables) as code:
        run = _Run(environment, code, wish, models, say)
        rows = run.rows()
        blames = run.blames(rows) if wish.blames else []
        promised = []
        if Mode.ON in wish.modes:
            is_whole = set(wish.scenarios) >= set(NAMES)
            promised = compare.promises(code.patches, run.stock(), rows, is_whole)
        outcome, reason = _outcome(rows, promised)
        return Smoke(
            environment.release,
            environment.device.value,
            outcome,
            reason,
            "",
            environment.torch,
            series.folder.name if series else None,
            tuple(patch.name for patch in code.patches),
            tuple(rows),
            tuple(promised),
            tuple(blames),
            time.monotonic() - started,
            environment.seconds,
            None if environment.is_borrowed else disk([environment.folder]),
            str(wish.logs),
        )


def _outcome(rows: Sequence[Row], promised: Sequence[Check]) -> tuple[Outcome, str]:
    """Of a whole run, with the first reason."""
    broken = [row for row in rows if row.outcome is Outcome.FAILED]
    if broken:
        return Outcome.FAILED, f"{broken[0].decode.scenario}, {broken[0].decode.mode.value}"
    lost = [check for check in promised if check.outcome is Outcome.FAILED]
    if lost:
        return Outcome.FAILED, f"{lost[0].patch}: {lost[0].name}"
    if not any(row.outcome in (Outcome.PASSED, Outcome.TIE) for row in rows):
        return Outcome.NOT_RUN, rows[0].reason if rows else "no scenario was asked for"
    return Outcome.PASSED, ""


def _models(environment: Environment, variables: Mapping[str, str]) -> tuple[Path, Path]:
    """The small model and its drafter, made by the first environment that needs them: their bytes
    are the same in all, so their name is that of the script that makes them."""
    script = INSIDE / "model.py"
    key = hashlib.sha256(script.read_bytes()).hexdigest()[:16]
    folder = environments_root() / "models" / key
    both = folder / "model", folder / "draft"
    if folder.is_dir():
        return both
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        made = Path(scratch) / "made"
        try:
            done = subprocess.run(
                [str(environment.python), str(script), str(made / "model"), str(made / "draft")],
                capture_output=True,
                check=False,
                text=True,
                cwd=scratch,
                env=dict(variables),
                timeout=SILENCE,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise EnvironmentRefusedError(
                f"{environment.python} cannot be run: {error}. Remove the environment with "
                "--clean, or name another one with --reuse."
            ) from error
        if done.returncode:
            told = "\n".join(last_lines(done.stderr))
            raise EnvironmentRefusedError(
                f"{environment.python} cannot make the model.\n{told}\n"
                "The environment needs what vLLM needs; remove a kept one with --clean."
            )
        with contextlib.suppress(OSError):  # another process was faster
            made.rename(folder)
    return both


class _Run:
    """The state of one run: what was decoded so far."""

    def __init__(
        self,
        environment: Environment,
        code: Code,
        wish: Wish,
        models: tuple[Path, Path],
        say: Callable[[str], None],
    ) -> None:
        self.environment, self.code, self.wish, self.say = environment, code, wish, say
        self.job = {
            "model": str(models[0]),
            "draft": str(models[1]),
            "dtype": wish.dtype,
            "device": "cpu" if environment.device.value == "cpu" else "gpu",
            "repeats": wish.repeats,
            "timed": [one.name for one in SCENARIOS if one.is_timed],
        }
        self.again: dict[str, Decode] = {}
        """Second runs of stock, by scenario."""
        self.stopped = threading.Event()
        self.done: dict[tuple[Mode, str], Decode] = {}

    def runner(self, mode: Mode, number: int | None = None, name: str = "patched") -> Runner:
        """What runs a mode, with all patches or the first so many."""
        patches = self.code.patches[:number]
        if mode is Mode.STOCK:
            variables = self.code.stock()
        else:
            variables = self.code.patched(len(patches), name)
        if mode is Mode.ON:
            variables |= self.code.activation(patches)
        return Runner(
            self.environment.python, variables, self.wish.logs, self.job, stop=self.stopped
        )

    def stock(self) -> dict[str, Decode]:
        """What stock code gave, by scenario."""
        return {name: one for (mode, name), one in self.done.items() if mode is Mode.STOCK}

    def rows(self) -> list[Row]:
        """Run everything that was asked for, and hold it against stock."""
        works = []
        for process in PROCESSES:
            for mode in self.wish.modes:
                names = self._names(process)
                if names:
                    works.append(self._work(mode, names, self.runner(mode)))
        at_once(works, side_by_side(self.environment.device.is_gpu), self.stopped)
        wanted = [one for one in SCENARIOS if one.name in self.wish.scenarios]
        for one in wanted:
            why = unavailable(one, self.environment.device)
            for mode in self.wish.modes if why else ():
                self.done[mode, one.name] = Decode(one.name, mode, skipped=why)
        return [
            self.judged(self.done[mode, one.name])
            for one in wanted
            for mode in self.wish.modes
            if (mode, one.name) in self.done
        ]

    def _names(self, process: str) -> list[str]:
        return [
            one.name
            for one in SCENARIOS
            if one.process == process
            and one.name in self.wish.scenarios
            and unavailable(one, self.environment.device) is None
        ]

    def _work(self, mode: Mode, names: list[str], runner: Runner) -> Callable[[], None]:
        def work() -> None:
            self.say(f"{self.environment.release} {mode.value}: {', '.join(names)}")
            for name, decode in runner.decode(mode, names).items():
                self.done[mode, name] = decode

        return work

    def judged(self, decode: Decode) -> Row:
        """A decode, held against that of stock."""
        stock = self.done.get((Mode.STOCK, decode.scenario))
        if decode.mode is Mode.ON:
            stock = compare.stand_in(decode, stock, self.done.get((Mode.OFF, decode.scenario)))
        if decode.mode is Mode.STOCK or decode.failure or decode.skipped or stock is None:
            return compare.row(decode, stock, ())
        if decode.mode is Mode.OFF:
            return compare.row(decode, stock, self._off(stock, decode))
        if stock.failure is not None:
            return compare.row(decode, stock, ())
        return compare.row(decode, stock, self._on(stock, decode))

    def _off(self, stock: Decode, off: Decode) -> list[Check]:
        if stock.failure is not None:
            return self._mended(off)
        checks = compare.check_off(stock, off)
        if all(check.outcome is Outcome.PASSED for check in checks):
            return checks
        name = stock.scenario
        if name not in self.again:
            self.say(f"{name}, stock: once more, since off differs from it")
            runner = self.runner(Mode.STOCK)
            self.again[name] = runner.decode(Mode.STOCK, [name], f"stock-again-{name}")[name]
        again = self.again[name]
        return checks if again.failure else compare.check_off_again(stock, off, again)

    def _mended(self, off: Decode) -> list[Check]:
        """Where stock has no such run, its run of the same prompts another way says what is right:
        speculation must not change a token."""
        like = compare.by_name(off.scenario).like
        stock = self.done.get((Mode.STOCK, like)) if like else None
        if stock is None or stock.failure or stock.skipped:
            return []
        return [replace(check, name=f"tokens as stock's {like}") for check in self._on(stock, off)]

    def _on(self, stock: Decode, other: Decode) -> list[Check]:
        difference = compare.first_difference(stock, other)
        gap = None
        if difference is not None and compare.by_name(other.scenario).is_greedy:
            gap = self._gap(stock, difference.request, difference.position, other)
        return compare.check_on(stock, other, gap, compare.TIES[self.wish.dtype])

    def _gap(self, stock: Decode, request: int, position: int, other: Decode) -> float | None:
        """How far apart stock has the logits of the two tokens at a first difference; None where
        only text is known, or one of the two requests ended there."""
        if stock.tokens is None or other.tokens is None or stock.prompts is None:
            return None
        if position >= min(len(stock.tokens[request]), len(other.tokens[request])):
            return None
        probe = {
            "prompt": [*stock.prompts[request], *stock.tokens[request][:position]],
            "tokens": [stock.tokens[request][position], other.tokens[request][position]],
        }
        answers = self.runner(Mode.STOCK).probe([probe])
        gap = answers[0]["gap"] if answers else None
        return float(gap) if gap is not None else None

    # -- blame ------------------------------------------------------------------------------------

    def blames(self, rows: Sequence[Row]) -> list[Blame]:
        """The patch behind each scenario that fails with the series and not without."""
        found = []
        names = [patch.name for patch in self.code.patches]
        for row in rows:
            if row.outcome is not Outcome.FAILED or row.decode.mode is Mode.STOCK:
                continue
            blame = blamed(row, names, self._again(row), self._frame)
            if blame is not None:
                found.append(blame)
        return found

    def _again(self, row: Row) -> Callable[[int], Row]:
        def run(number: int) -> Row:
            scenario, mode = row.decode.scenario, row.decode.mode
            self.say(f"{scenario}, {mode.value}: with the first {number} of the series")
            runner = self.runner(mode, number, "blame")
            label = f"blame-{scenario}-{mode.value}-{number}"
            return self.judged(runner.decode(mode, [scenario], label)[scenario])

        return run

    def _frame(self, row: Row, number: int) -> Frame | None:
        added = self.code.added_lines(number)
        return patched_frame(row.decode, self.code.relative, added)
