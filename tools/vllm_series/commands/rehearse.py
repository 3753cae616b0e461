"""`vllm-series rehearse`: what a series does to vLLM's own scheduler, in every mode."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vllm_series.commands.options import (
    json_option,
    looked_at,
    loudness_options,
    series_options,
    tree_options,
)
from vllm_series.commands.progress import Progress
from vllm_series.commands.signals import ended_by_a_signal
from vllm_series.errors import EnvironmentRefusedError, RefusedError, UsageError
from vllm_series.rehearsal.scenarios import MODES, SCENARIOS, Scenario, named
from vllm_series.series import Series, chosen_series
from vllm_series.trees import PACKAGE, DiskTree

if TYPE_CHECKING:
    from vllm_series.plan import Plan
    from vllm_series.rehearsal.judge import Finding
    from vllm_series.rehearsal.runs import Result


@click.command("rehearse")
@tree_options
@series_options
@click.option(
    "--release",
    metavar="RELEASE",
    help="Rehearse this release, in an environment that is made once and kept; its CPU build, or "
    "where there is none, its wheel for GPUs with what an older CPU build brings along.",
)
@click.option(
    "--mode",
    "modes",
    multiple=True,
    type=click.Choice(MODES),
    help="Schedule step by step (sync) or one step ahead (async) alone; default: both.",
)
@click.option(
    "--scenario",
    "names",
    metavar="NAME",
    multiple=True,
    help="Play this scenario (repeat for several); default: all. --list names them.",
)
@click.option("--list", "lists", is_flag=True, help="List the scenarios; run nothing.")
@json_option
@loudness_options
def command(
    target: Path | None,
    python: str | None,
    series_dir: Path | None,
    series_name: str | None,
    release: str | None,
    modes: tuple[str, ...],
    names: tuple[str, ...],
    lists: bool,
    as_json: bool,
    quiet: bool,
    verbose: bool,
) -> int:
    """Drive vLLM's own scheduler with a simulated model, stock, patched and off, patched and on.

    No weights, no device: vLLM's engine core, executor and schedulers run as they are, and a script
    stands in for the model. It says how many drafts of each request are right, so hundreds of steps
    take a second. Off must be stock in every scheduler output; on must emit the same tokens, and
    must have the effect that the patch promises, in both modes of scheduling.

    With --target and --python, the package of a folder is driven in the environment of that
    interpreter, such as an unpacked GPU wheel in an environment for the CPU.

    Exit code 1 for a broken promise, 3 where the scheduler cannot be imported there.

    \b
      vllm-series rehearse --release 0.32.0
      vllm-series rehearse --python .venv/bin/python
      vllm-series rehearse --python .venv/bin/python --mode async --scenario batch
    """
    from vllm_series import report

    if lists:
        click.echo(report.table([(one.name, one.about) for one in SCENARIOS]))
        return 0
    chosen = modes or MODES
    try:
        scenarios = named(names)
    except KeyError as error:
        raise UsageError(
            f"there is no scenario {error.args[0]}. --list shows those that there are."
        ) from None
    if release is not None and (target is not None or python is not None):
        raise UsageError("--release brings its environment. Leave out --target and --python.")
    with Progress(quiet or as_json) as progress, ended_by_a_signal():
        if release is not None:
            python = _environment_of(release, progress, quiet or as_json)
        rehearsal = _rehearsed(target, python, series_dir, series_name, chosen, scenarios, progress)
    if as_json:
        click.echo(report.as_json(rehearsal.as_json()))
    else:
        rehearsal.tell(quiet, verbose)
    return rehearsal.exit_code


@dataclass(frozen=True)
class _Rehearsal:
    """All plays of one series on one tree, and what they showed."""

    tree: DiskTree
    series: Series
    modes: Sequence[str]
    scenarios: Sequence[Scenario]
    results: Mapping[str, Result]
    """`stock`, `off`, and `on`, with all patches."""
    findings: Sequence[Finding]
    seconds: float

    @property
    def not_run(self) -> str | None:
        return self.results["stock"].not_run

    @property
    def exit_code(self) -> int:
        from vllm_series.rehearsal.judge import Seen

        if self.not_run is not None:
            return EnvironmentRefusedError.exit_code
        if any(one.is_broken for one in self.findings):
            return 1
        stock = self.results["stock"].runs.values()
        if not any(run.is_whole for run in stock):
            return EnvironmentRefusedError.exit_code
        is_unproven = any(one.seen is Seen.UNPROVEN for one in self.findings)
        return EnvironmentRefusedError.exit_code if is_unproven else 0

    @property
    def outcome(self) -> str:
        return {0: "kept", 1: "broken"}.get(self.exit_code, "not run")

    def rows(self) -> list[dict[str, Any]]:
        """One for each scenario and mode."""
        from vllm_series.rehearsal.judge import first_difference

        rows = []
        for key, stock in self.results["stock"].runs.items():
            off, on = (
                self.results[name].runs.get(key) if name in self.results else None
                for name in ("off", "on")
            )
            both = off is not None and off.is_whole and stock.is_whole
            rows.append(
                {
                    "scenario": stock.scenario,
                    "mode": stock.mode,
                    "scheduler": stock.scheduler,
                    "steps": {
                        name: None if run is None else run.steps
                        for name, run in (("stock", stock), ("on", on))
                    },
                    "ended": {
                        name: None if run is None else run.ended
                        for name, run in (("stock", stock), ("off", off), ("on", on))
                    },
                    "off_is_stock": (
                        first_difference(stock, off) is None if both and off else None
                    ),
                    "draft_tokens": {
                        name: None if run is None else run.stats.get("draft_tokens")
                        for name, run in (("stock", stock), ("on", on))
                    },
                    "calls": dict(stock.calls),
                }
            )
        return rows

    def as_json(self) -> dict[str, Any]:
        return {
            "command": "rehearse",
            "tree": str(self.tree.root),
            "version": self.results["stock"].version or self.tree.version,
            "series": self.series.folder.name,
            "patches": [entry.name for entry in self.series.entries],
            "outcome": self.outcome,
            "not_run": self.not_run,
            "seconds": round(self.seconds, 1),
            "rows": self.rows(),
            "findings": [
                {
                    "seen": one.seen.value,
                    "mode": one.mode,
                    "scenario": one.scenario,
                    "patch": one.patch,
                    "text": one.text,
                    "broken": one.is_broken,
                }
                for one in self.findings
            ],
        }

    def tell(self, quiet: bool, verbose: bool) -> None:
        from vllm_series import report

        if self.not_run is not None:
            raise EnvironmentRefusedError(
                f"not run: {self.tree.label}: {self.not_run}. Give the interpreter of an "
                "environment in which this vLLM can be imported with --python."
            )
        if not quiet:
            click.echo(f"{self.series.folder.name} on {self.tree.label}, {self.seconds:.0f} s\n")
            head = ("mode", "scenario", "steps", "with", "off", "drafted", "with")
            click.echo(report.table((self._cells(row) for row in self.rows()), head))
            click.echo()
        for one in self.findings:
            if quiet and not one.is_broken:
                continue
            who = one.patch or self.series.folder.name
            where = f" ({one.mode} {one.scenario})" if one.scenario else ""
            mark = "broken" if one.is_broken else one.seen.value
            click.echo(f"{mark}: {who}{where}: {one.text}", err=one.is_broken and quiet)
        if verbose:
            self._tell_traces()

    @staticmethod
    def _cells(row: dict[str, Any]) -> list[str]:
        def number(value: int | None) -> str:
            return "-" if value is None else f"{value:,}"

        off = {True: "= stock", False: "differs", None: "-"}[row["off_is_stock"]]
        ended = row["ended"]
        steps = [
            number(row["steps"][name]) if ended[name] in (None, "finished") else ended[name]
            for name in ("stock", "on")
        ]
        drafted = row["draft_tokens"]
        return [
            *(row["mode"], row["scenario"], *steps, off),
            *(number(drafted["stock"]), number(drafted["on"])),
        ]

    def _tell_traces(self) -> None:
        for name, result in self.results.items():
            for run in result.runs.values():
                if run.trace:
                    click.echo(f"\n{name}, {run.mode}, {run.scenario}:\n{run.trace}", err=True)


def _environment_of(release: str, progress: Progress, is_silent: bool) -> str:
    from vllm_series.rehearsal.environment import interpreter_for
    from vllm_series.smoke.environment import NotRunError

    def told(cost: str) -> None:
        progress.clear()
        if not is_silent:
            click.echo(f"vllm-series: {cost}", err=True)

    progress.say(f"resolving {release}")
    try:
        return str(interpreter_for(release, told))
    except NotRunError as error:
        raise EnvironmentRefusedError(
            f"not run: {error}. Name the interpreter of an environment that has what vLLM needs "
            "with --python."
        ) from None


def _rehearsed(
    target: Path | None,
    python: str | None,
    series_dir: Path | None,
    series_name: str | None,
    modes: Sequence[str],
    scenarios: Sequence[Scenario],
    progress: Progress,
) -> _Rehearsal:
    from vllm_series.diffs.parse import parse
    from vllm_series.installation.stack import read_stack
    from vllm_series.plan import make_plan
    from vllm_series.rehearsal.judge import Stage, findings
    from vllm_series.rehearsal.runs import play_all
    from vllm_series.rehearsal.states import states_of
    from vllm_series.workspace.edited import saved

    started = time.monotonic()
    here = click.get_current_context()
    with click.Context(here.command, parent=here):  # its end is that of the lock
        tree = looked_at(target, python)
        series = chosen_series(series_dir, series_name, tree.version)
        read = saved(tree, tree)
        patches = [parse(entry.text, entry.name) for entry in series.entries]
        plan = make_plan(patches, read, tree.mode)
        if not plan.fits:
            _refuse(plan, series, tree)
        stock = {path: read(path) for path in read_stack(tree).pristine()}
        states = states_of(patches, plan, stock)
        if tree.python is None:
            raise UsageError(
                f"nothing says which Python runs {tree.root}. Name the interpreter of an "
                "environment that has what vLLM needs with --python."
            )
        progress.say(f"copying {tree.root / PACKAGE}")
        to_play = [states.stock, states.off, *(state for _, state in states.on)]
        played = play_all(tree, to_play, states.known, modes, scenarios, progress.say)
    results = {"stock": played[0]}
    found: list[Finding] = []
    if results["stock"].not_run is None:
        results["off"], *on = played[1:]
        if on:
            results["on"] = on[-1]
        stages = [
            Stage(patch, before, after)
            for (patch, _), before, after in zip(states.on, played[:1] + on, on, strict=False)
        ]
        always = [patch.name for patch in patches if not patch.switches()]
        found = findings(modes, results["stock"], results["off"], stages, always)
    seconds = time.monotonic() - started
    return _Rehearsal(tree, series, modes, scenarios, results, found, seconds)


def _refuse(plan: Plan, series: Series, tree: DiskTree) -> None:
    from vllm_series import report

    click.echo(report.refusals(plan), err=True)
    raise RefusedError(
        f"{series.folder.name} does not fit {tree.label}, so there is nothing to rehearse. "
        "vllm-series check shows where it does."
    )
