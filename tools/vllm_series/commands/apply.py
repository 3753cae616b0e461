"""`vllm-series apply`: put a series, or any unified diff, into a tree."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from vllm_series.commands.options import (
    dry_run_options,
    json_option,
    loudness_options,
    opened,
    refuse_two_forms,
    series_options,
    tree_options,
    waiting,
)
from vllm_series.commands.progress import Progress
from vllm_series.errors import PatchFormatError, RefusedError, UsageError
from vllm_series.installation import transaction
from vllm_series.installation.stack import Stack, read_stack
from vllm_series.series import Entry, chosen_series
from vllm_series.trees import DiskTree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from vllm_series.plan import Plan

_SHOWN_EXEMPT = 5
_LARGE = 1_000_000
"""Bytes of patch text from which a person at a terminal is told what goes on."""


@click.command("apply")
@tree_options
@series_options
@click.option(
    "--patch",
    "patch_files",
    metavar="FILE",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    help="Apply this diff instead of a series; repeat for several, `-` reads stdin.",
)
@click.option("-R", "--reverse", is_flag=True, help="With --patch: apply the diff backwards.")
@click.option(
    "--exclude",
    metavar="PATTERN",
    multiple=True,
    help="With --patch: leave out the files that match, as `git apply --exclude` does.",
)
@dry_run_options
@json_option
@loudness_options
def command(
    target: Path | None,
    python: str | None,
    series_dir: Path | None,
    series_name: str | None,
    patch_files: tuple[Path, ...],
    reverse: bool,
    exclude: tuple[str, ...],
    dry_run: bool,
    show_diff: bool,
    as_json: bool,
    quiet: bool,
    verbose: bool,
) -> int:
    """Put a series, or any diff, into a tree: all of it or nothing.

    Every patch is placed in memory and every result is compiled with the tree's own Python before
    the first file is written. A second run changes nothing and says so.

    \b
      vllm-series apply                                what fits this environment
      vllm-series apply --python .venv/bin/python      that environment instead
      vllm-series apply --patch fix.diff --target DIR  any diff, any tree
    """
    if not patch_files and (reverse or exclude):
        raise UsageError("--reverse and --exclude go with --patch. Give the diff with it.")
    if patch_files and series_name is not None:
        raise UsageError("--patch and --series are two sources of patches. Give one of them.")
    refuse_two_forms(as_json, show_diff)
    tree = opened(target, python)
    # Planned and written under one lock: whoever waits for another process plans on what it left.
    with transaction.opened(tree, waiting) as held:
        stack = read_stack(tree)
        report = {"command": "apply", "tree": str(tree.root), "version": tree.version}
        if patch_files:
            source, entries = "the patch given", _given(patch_files, reverse)
            todo = [entry for entry in entries if not _stands(tree, stack, entry, exclude)]
        else:
            series = chosen_series(series_dir, series_name, tree.version)
            source, entries = series.folder.name, list(series.entries)
            if not entries:
                raise RefusedError(
                    f"{series.folder / 'series'} lists no patch: nothing to apply. "
                    "Write the names of the patches into it."
                )
            todo = _beyond(stack, entries, source)
        if not todo:
            _refuse_changed(tree)
            _say_nothing_to_do(as_json, quiet, report, f"{source} is applied in {tree.label}")
            return 0
        advice = "Correct the diff for this tree, and apply it again."
        if not patch_files:
            advice = f"Correct the patch for this release, or take its name out of {source}/series."
        application = _Application(held, stack, report, advice, as_json, quiet, verbose)
        return application.run(todo, exclude, dry_run, show_diff)


class _Application:
    """One run that has something to apply; holds how it is to be told."""

    def __init__(
        self,
        held: transaction.OpenTree,
        stack: Stack,
        report: dict[str, Any],
        advice: str,
        as_json: bool,
        quiet: bool,
        verbose: bool,
    ) -> None:
        self.held = held
        self.tree = held.tree
        self.stack = stack
        self.report = report
        self.advice = advice
        self.as_json = as_json
        self.quiet = quiet
        self.verbose = verbose

    def run(
        self,
        todo: Sequence[Entry],
        exclude: Sequence[str],
        dry_run: bool,
        show_diff: bool,
    ) -> int:
        from vllm_series import report
        from vllm_series.diffs.parse import parse
        from vllm_series.plan import make_plan

        progress = Progress(self.quiet or sum(len(entry.text) for entry in todo) < _LARGE)
        with progress:
            progress.say(f"reading {report.counted(len(todo), 'patch')}")
            patches = [parse(entry.text, entry.name) for entry in todo]
            files = report.counted(sum(len(patch.files) for patch in patches), "file")
            progress.say(f"placing the hunks of {files}")
            present = [patch.name for patch in self.stack.patches]
            plan = make_plan(
                patches, self.tree.read, self.tree.mode, present=present, exclude=exclude
            )
        for note in report.notes(plan):
            click.echo(f"vllm-series: warning: {note}", err=True)
        if not plan.fits:
            return self.refused(plan)
        if not plan.steps:
            self.tell("nothing to do", plan, "there already")
            self.remark(
                "every change is in the tree already, but not under "
                + ("this name and text" if len(todo) == 1 else "these names and texts")
                + ": revert takes out what status lists, nothing else."
            )
            return 0
        with progress:
            progress.say(f"compiling {files}")
            failures = self.compiled(plan)
        if failures:
            return self.refused(plan, failures)
        if show_diff:
            self.show(plan)
            return 0
        if dry_run:
            self.tell("dry run", plan, "would be applied")
            self.remark("nothing was written.")
            return 0
        with progress:
            progress.say(f"writing {files}")
            transaction.apply(self.held, plan.steps)
        self.tell("applied", plan, "applied")
        return 0

    def compiled(self, plan: Plan) -> list[str]:
        """What does not compile and did before; what never did is said and let pass."""
        from vllm_series.compilecheck import check_compiles

        failures: list[str] = []
        exempt: list[str] = []
        for failure in check_compiles(self.tree, plan.compile_items()):
            (exempt if failure.exempt else failures).append(str(failure))
        for message in exempt[:_SHOWN_EXEMPT]:
            click.echo(f"vllm-series: {message}; it did not before either", err=True)
        if len(exempt) > _SHOWN_EXEMPT:
            more = len(exempt) - _SHOWN_EXEMPT
            click.echo(f"vllm-series: {more} more files did not compile before either", err=True)
        return failures

    def refused(self, plan: Plan, failures: Sequence[str] = ()) -> int:
        from vllm_series import report

        if self.as_json:
            click.echo(
                report.as_json(
                    {
                        **self.report,
                        "outcome": "refused",
                        "compile": list(failures),
                        "patches": report.plan_json(plan),
                    }
                )
            )
        else:
            click.echo(report.plan_table(plan, "not written"))
            click.echo(report.refusals(plan), err=True, nl=not plan.fits)
            for failure in failures:
                click.echo(f"vllm-series: {failure}", err=True)
        click.echo(
            f"vllm-series: refused: {self.tree.root} is as it was. {self.advice}",
            err=True,
        )
        return 1

    def tell(self, outcome: str, plan: Plan, word: str) -> None:
        from vllm_series import report

        if self.as_json:
            click.echo(
                report.as_json(
                    {**self.report, "outcome": outcome, "patches": report.plan_json(plan)}
                )
            )
        elif not self.quiet:
            click.echo(report.plan_table(plan, word))
            if self.verbose:
                click.echo(report.hunk_table(plan))

    def remark(self, text: str) -> None:
        if not self.quiet:
            click.echo(f"vllm-series: {text}", err=True)

    def show(self, plan: Plan) -> None:
        from vllm_series import report

        for path, (before, after) in plan.results().items():
            text = report.file_diff(path, before, after)
            if text:
                click.echo(report.diff(text))


def _given(files: Sequence[Path], reverse: bool) -> list[Entry]:
    """The diffs that `--patch` names; reversed ones are written out as what they then are."""
    entries = []
    for file in files:
        is_stdin = str(file) == "-"
        text = sys.stdin.buffer.read() if is_stdin else file.read_bytes()
        entries.append(Entry("stdin.patch" if is_stdin else file.name, text))
    return [_reversed(entry) for entry in reversed(entries)] if reverse else entries


def _reversed(entry: Entry) -> Entry:
    from vllm_series.diffs.canonical import diff
    from vllm_series.diffs.parse import parse

    undo = parse(entry.text, entry.name).reversed()
    return Entry(f"reverse-{entry.name}", b"".join(diff(change) for change in undo.files))


def _stands(tree: DiskTree, stack: Stack, entry: Entry, exclude: Sequence[str]) -> bool:
    """Whether a patch of the stack is there as whole as it is asked for now.

    It may have been applied without files that were excluded then, and a later patch may have taken
    it out again, as `--reverse` does: then it fits anew and there is nothing of it to take out.
    """
    digest = entry.sha256
    last = next((patch for patch in reversed(stack.patches) if patch.sha256 == digest), None)
    if last is None:
        return False
    from vllm_series.diffs.parse import parse
    from vllm_series.plan import make_plan

    patch = parse(entry.text, entry.name)
    present = [other.name for other in stack.patches]
    plan = make_plan([patch], tree.read, tree.mode, present=present, exclude=exclude)
    if plan.steps:
        try:
            undoing = patch.reversed()
        except PatchFormatError:
            return False  # of a copy, which fits only where its new name is free again
        return bool(make_plan([undoing], tree.read, tree.mode, exclude=exclude).steps)
    touched = {file.path for file in last.files}
    return all(file.path in touched for planned in plan.patches for file in planned.files)


def _beyond(stack: Stack, entries: Sequence[Entry], source: str) -> list[Entry]:
    """The patches of the series that are not applied yet; the applied ones must be its first."""
    for applied, entry in zip(stack.patches, entries, strict=False):
        if applied.sha256 != entry.sha256:
            raise RefusedError(
                f"{applied.name} is applied, but {source} has "
                + ("another text of it" if applied.name == entry.name else f"{entry.name} there")
                + ". Run vllm-series revert, then apply again."
            )
    if len(stack.patches) > len(entries):
        more = stack.patches[len(entries)].name
        raise RefusedError(
            f"{more} is applied, but {source} does not list it. "
            "Run vllm-series revert, then apply again."
        )
    return list(entries[len(stack.patches) :])


def _refuse_changed(tree: DiskTree) -> None:
    """Applied is what the disk holds, not what was once recorded."""
    from vllm_series.installation.verify import verify

    differences = verify(tree)
    if differences:
        listed = "\n".join(f"  {difference}" for difference in differences)
        raise RefusedError(
            f"the patches were applied, but {tree.root} has changed since:\n{listed}\n"
            "Put these files back, or reinstall vLLM."
        )


def _say_nothing_to_do(as_json: bool, quiet: bool, report: dict[str, Any], why: str) -> None:
    if as_json:
        from vllm_series.report import as_json as rendered

        click.echo(rendered({**report, "outcome": "nothing to do", "patches": []}))
    elif not quiet:
        click.echo(f"nothing to do: {why}")
