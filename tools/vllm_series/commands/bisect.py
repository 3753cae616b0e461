"""`vllm-series bisect`: the patch of a series that makes a command fail."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vllm_series.commands.options import (
    json_option,
    looked_at,
    loudness_options,
    series_options,
    tree_options,
)
from vllm_series.commands.progress import Progress
from vllm_series.errors import RefusedError, SeriesError, UsageError
from vllm_series.series import Series, chosen_series
from vllm_series.trees import PACKAGE, DiskTree

if TYPE_CHECKING:
    from vllm_series.bisect import Outcome, Step
    from vllm_series.mirror import Mirror
    from vllm_series.plan import Layer, Plan

_TOLD = 10
"""Last lines of a failing command's output that are shown."""


@click.command("bisect", context_settings={"allow_interspersed_args": False})
@tree_options
@series_options
@click.option(
    "--keep",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep what the command prints there, a file a run.",
)
@click.option("-n", "--dry-run", is_flag=True, help="Say what would be tried; run nothing.")
@json_option
@loudness_options
@click.argument("words", metavar="-- CMD [ARG]...", nargs=-1, type=click.UNPROCESSED)
def command(
    target: Path | None,
    python: str | None,
    series_dir: Path | None,
    series_name: str | None,
    keep: Path | None,
    dry_run: bool,
    as_json: bool,
    quiet: bool,
    verbose: bool,
    words: tuple[str, ...],
) -> int:
    """Find the patch of a series that makes CMD fail.

    The tree's package is copied to a throwaway folder, from the release's stock files, and CMD is
    run with that folder first in PYTHONPATH (and named by VLLM_SERIES_TREE): with no patch, with
    all of them, then with the first half, and so on. Its exit code is read as git bisect run does:
    0 is good, 125 skips, others up to 127 are bad, anything else stops. Exit code 0 when the patch
    is found.

    \b
      vllm-series bisect -- python -m pytest tests/test_it.py
      vllm-series bisect --python .venv/bin/python --keep logs -- ./serve-and-ask.sh
    """
    from vllm_series.bisect import Outcome

    if not words:
        raise UsageError("there is no command to run. Give it behind --: -- python check.py.")
    if keep is not None and keep.is_dir() and any(keep.iterdir()):
        raise UsageError(f"--keep {keep} is not empty. Name a new folder.")
    with (
        Progress(quiet or as_json) as progress,
        _copied(target, python, series_dir, series_name, dry_run, progress) as copy,
    ):
        progress.clear()
        search = _Search(copy, words, python, keep, as_json, quiet, verbose)
        if dry_run:
            search.tell_plan()
            return 0
        return 0 if search.run() is Outcome.FOUND else 1


@dataclass
class _Copy:
    """What a search works on: the patches' names, the files with the first N of them in, and the
    copy that they are put into (None for a dry run)."""

    tree: DiskTree
    series: Series
    names: tuple[str, ...]
    layers: tuple[Layer, ...]
    mirror: Mirror | None

    def __enter__(self) -> _Copy:
        return self

    def __exit__(self, *_error: object) -> None:
        if self.mirror is not None:
            self.mirror.__exit__(None, None, None)


def _copied(
    target: Path | None,
    python: str | None,
    series_dir: Path | None,
    series_name: str | None,
    dry_run: bool,
    progress: Progress,
) -> _Copy:
    """Plan the series on the stock files and copy the tree. The tree is locked for no longer than
    that: a search may take hours."""
    from vllm_series.diffs.parse import parse
    from vllm_series.installation.stack import read_stack
    from vllm_series.mirror import Mirror
    from vllm_series.plan import make_plan
    from vllm_series.workspace.edited import saved

    here = click.get_current_context()
    with click.Context(here.command, parent=here):  # its end is that of the lock
        tree = looked_at(target, python)
        series = chosen_series(series_dir, series_name, tree.version)
        if not series.entries:
            raise SeriesError(f"{series.folder} lists no patch: nothing to search.")
        stack = read_stack(tree)
        if stack:
            names = ", ".join(patch.name for patch in stack.patches)
            _remark(f"{names} in {tree.root} is left out: the search starts from the stock files.")
        read = saved(tree, tree)
        plan = make_plan(
            [parse(entry.text, entry.name) for entry in series.entries], read, tree.mode
        )
        if not plan.fits:
            _refuse(plan, series, tree)
        stock = {path: read(path) for path in stack.pristine()}
        names_of = tuple(entry.name for entry in series.entries)
        mirror = None
        if not dry_run:
            progress.say(f"copying {tree.root / PACKAGE}")
            mirror = Mirror(tree).__enter__()
        return _Copy(tree, series, names_of, plan.layers(stock), mirror)


def _refuse(plan: Plan, series: Series, tree: DiskTree) -> None:
    from vllm_series import report

    click.echo(report.refusals(plan), err=True)
    raise RefusedError(
        f"{series.folder.name} does not fit {tree.label}, so there is nothing to search. "
        "vllm-series check shows where it does."
    )


class _Search:
    """One search: runs the command, and says how it goes."""

    def __init__(
        self,
        copy: _Copy,
        words: Sequence[str],
        python: str | None,
        keep: Path | None,
        as_json: bool,
        quiet: bool,
        verbose: bool,
    ) -> None:
        self.copy, self.words, self.keep = copy, words, keep
        self.as_json, self.quiet, self.verbose = as_json, quiet, verbose
        self.steps: list[Step] = []
        self.logs: list[Path] = []
        self.failing = b""
        self.variables = dict(os.environ)
        if python is not None and copy.tree.python is not None:
            # The command's `python` is then that of the tree.
            folder = str(copy.tree.python.parent)
            self.variables["PATH"] = os.pathsep.join([folder, os.environ.get("PATH", "")])

    @property
    def number(self) -> int:
        """How many patches there are."""
        return len(self.copy.names)

    def tell_plan(self) -> None:
        from vllm_series.bisect import most_runs
        from vllm_series.report import counted

        if self.as_json:
            self.print_json("dry run", ())
        elif not self.quiet:
            runs = counted(most_runs(self.number), "run")
            what = counted(self.number, "patch")
            click.echo(f"{what} of {self.copy.series.folder.name}, at most {runs} of the command:")
            for place, name in enumerate(self.copy.names, 1):
                click.echo(f"  {place:>{len(str(self.number))}}  {name}")

    def run(self) -> Outcome:
        from vllm_series.bisect import Outcome, Step, next_try, outcome, suspects

        if Path(PACKAGE, "__init__.py").is_file():
            _remark(
                f"{Path.cwd()} holds a {PACKAGE}/ of its own, which python -m and python -c import "
                "before any other. Run this in another folder."
            )
        if self.keep is not None:
            self.keep.mkdir(parents=True, exist_ok=True)
        mirror = self.copy.mirror
        assert mirror is not None
        self.variables = mirror.environment(self.variables)
        while (patches := next_try(self.steps, self.number)) is not None:
            mirror.put(*self.copy.layers[patches])
            code, told = self.once(patches)
            step = Step(patches, code)
            self.steps.append(step)
            if code:
                self.failing = told
            self.tell_step(step, told)
        found = outcome(self.steps, self.number)
        names = [self.copy.names[at] for at in suspects(self.steps)]
        if found not in (Outcome.FOUND, Outcome.UNDECIDED):
            names = []
        if self.as_json:
            self.print_json(found.value, names)
        else:
            self.tell(found, names)
        return found

    def once(self, patches: int) -> tuple[int, bytes]:
        """Run the command; its exit code and what it printed."""
        with tempfile.TemporaryFile() as output:
            try:
                done = subprocess.run(
                    self.words,
                    check=False,
                    env=self.variables,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                )
            except (OSError, ValueError) as error:
                why = getattr(error, "strerror", None) or error
                raise UsageError(
                    f"{self.words[0]} cannot be run: {why}. Give a command that is on the path."
                ) from error
            output.seek(0)
            told = output.read()
        if self.keep is not None:
            last = self.last(patches).replace("/", "-")
            log = self.keep / f"{len(self.steps) + 1:02d}-{last}.log"
            log.write_bytes(told)
            self.logs.append(log)
        return done.returncode, told

    def last(self, patches: int) -> str:
        """What is on top: the name of a patch, or `none`."""
        return self.copy.names[patches - 1] if patches else "none"

    # -- what is said ---------------------------------------------------------------------------

    def tell_step(self, step: Step, told: bytes) -> None:
        if self.verbose:
            click.echo(told.decode("utf-8", "replace"), err=True, nl=False)
        if self.as_json or self.quiet:
            return
        width = len(str(self.number))
        top = f"  up to {self.last(step.patches)}" if step.patches else ""
        code = f"exit {step.code}" if step.code >= 0 else f"signal {-step.code}"
        row = f"  {step.patches:>{width}} of {self.number}  {step.answer.value:<4}  {code:<8}{top}"
        click.echo(row.rstrip())

    def tell(self, found: Outcome, names: Sequence[str]) -> None:
        from vllm_series.bisect import Outcome

        words = {
            Outcome.BAD_WITH_NONE: "the command fails without any patch: the series is not to "
            "blame. Give one that passes on the stock release.",
            Outcome.GOOD_WITH_ALL: "the command passes with all patches: there is none to find.",
            Outcome.UNKNOWN_END: "the command could not tell (125) with "
            + ("no patch." if self.steps[-1].patches == 0 else "all patches.")
            + " Both ends must be known.",
            Outcome.STOPPED: "the command was ended by a signal, or asked to stop (128 and more): "
            "nothing is known.",
        }
        if found is Outcome.FOUND and not self.quiet:
            click.echo(f"{names[0]} makes it fail")
        elif found is Outcome.UNDECIDED and not self.quiet:
            click.echo(f"one of these makes it fail: {', '.join(names)}")
        if found in words:
            _remark(words[found])
        if self.failing and not self.verbose and not self.quiet:
            self.tell_output()

    def tell_output(self) -> None:
        """The end of what the last failing run printed."""
        from vllm_series.reports.printable import printable

        lines = self.failing.decode("utf-8", "replace").splitlines()[-_TOLD:]
        click.echo("\n".join(f"  | {printable(line, chr(9))}" for line in lines), err=True)

    def print_json(self, outcome: str, names: Sequence[str]) -> None:
        from vllm_series.report import as_json

        value = {
            "command": "bisect",
            "tree": str(self.copy.tree.root),
            "version": self.copy.tree.version,
            "series": self.copy.series.folder.name,
            "patches": list(self.copy.names),
            "outcome": outcome,
            "patch": names[0] if outcome == "found" else None,
            "suspects": list(names),
            "steps": [
                {
                    "patches": step.patches,
                    "code": step.code,
                    "answer": step.answer.value,
                    "log": str(self.logs[at]) if self.logs else None,
                }
                for at, step in enumerate(self.steps)
            ],
        }
        click.echo(as_json(value))


def _remark(text: str) -> None:
    click.echo(f"vllm-series: {text}", err=True)
