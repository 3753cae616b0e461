"""The tools, each asked to bring the same samples to the newer file: ours as a library, the others
as the programs they are, sealed off from the user's configuration.

`git apply --reject` and `patch` take many patches in one call and leave a file alone whose hunk
they refuse, so a chunk of samples costs one process; the merge tools are called once a sample from
one shell. A program that crashes or cannot read a patch counts as refusing, and its answer says so.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from drift.forms import Task
from drift.truth import sealed
from vllm_series.diffs.parse import parse
from vllm_series.place import place
from vllm_series.verdicts import Verdict


@dataclass(frozen=True, slots=True)
class Answer:
    """The file that a tool made, None where it refused. `note` says more: `already` where it holds
    the change to be in the file, `merged` or `moved` where only the base tells the place, the
    verdict of ours that refuses, or how a program crashed."""

    text: bytes | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Tool:
    """A row of the tables. `has_base`: it is given the older file too. `every`: a slow tool gets
    each n-th sample only. `program`: what must be installed for it."""

    name: str
    run: Callable[[Sequence[Task], Path], list[Answer]]
    has_base: bool
    every: int = 1
    program: str | None = None


def installed(tools: Sequence[Tool]) -> tuple[list[Tool], list[Tool]]:
    """Those that can run here, and those whose program is missing."""
    missing = [tool for tool in tools if tool.program and not shutil.which(tool.program)]
    return [tool for tool in tools if tool not in missing], missing


def versions(tools: Sequence[Tool]) -> list[str]:
    """What each program calls itself, in one line."""
    lines = []
    for program in sorted({tool.program for tool in tools if tool.program}):
        done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
        lines.append((done.stdout or done.stderr).strip().partition("\n")[0])
    return lines


def _ours(own: bool, has_base: bool) -> Callable[[Sequence[Task], Path], list[Answer]]:
    def run(tasks: Sequence[Task], _folder: Path) -> list[Answer]:
        return [_place(task, own, has_base) for task in tasks]

    return run


def _place(task: Task, own: bool, has_base: bool) -> Answer:
    sample = task.sample
    try:
        patch = parse(task.own if own else task.foreign, "sample.patch")
        placed = place(
            patch.files[0],
            sample.target,
            sample.path,
            binding=patch.is_ours,
            base=sample.before if has_base else None,
        )
    except Exception as error:  # A benchmark goes on, and names what broke.
        return Answer(None, f"crash: {type(error).__name__}: {error}")
    if placed.result is None:
        return Answer(None, placed.verdict.value)
    if placed.verdict is Verdict.APPLIED:
        return Answer(placed.result, "already")
    return Answer(placed.result, "" if placed.verdict.fits else placed.verdict.value)


def _many(*command: str) -> Callable[[Sequence[Task], Path], list[Answer]]:
    """A tool that reads many patches at once and changes the files of those that it places."""

    def call(tasks: Sequence[Task], folder: Path) -> list[Answer] | str:
        for task in tasks:
            (folder / task.name).write_bytes(task.sample.target)
        done = subprocess.run(
            command,
            cwd=folder,
            env=sealed(folder),
            input=b"".join(task.numbered for task in tasks),
            capture_output=True,
            check=False,
        )
        if done.returncode not in (0, 1):
            why = done.stderr.decode("utf-8", "replace").strip().partition("\n")[0]
            return f"crash: exit {done.returncode}: {why}"
        answers = []
        for task in tasks:
            text = (folder / task.name).read_bytes()
            answers.append(Answer(None if text == task.sample.target else text))
        return answers

    def run(tasks: Sequence[Task], folder: Path) -> list[Answer]:
        answers = call(tasks, folder)
        if not isinstance(answers, str):
            return answers
        # One patch that it cannot read takes all others with it: ask for each alone.
        alone = [call([task], folder) for task in tasks]
        return [Answer(None, one) if isinstance(one, str) else one[0] for one in alone]

    return run


def _each(command: str) -> Callable[[Sequence[Task], Path], list[Answer]]:
    """A tool that takes one sample a call. `command` is a shell line for the file `$f`; it writes
    what it makes of it to `$f`, and its exit code is 0 for a clean result."""

    def run(tasks: Sequence[Task], folder: Path) -> list[Answer]:
        for task in tasks:
            (folder / task.name).write_bytes(task.sample.target)
            (folder / f"{task.name}.diff").write_bytes(task.numbered)
        done = subprocess.run(
            ["sh", "-c", f'while read -r f; do {command}; echo "$?"; done'],
            cwd=folder,
            env=sealed(folder),
            input="".join(f"{task.name}\n" for task in tasks).encode(),
            capture_output=True,
            check=False,
        )
        codes = [int(code) for code in done.stdout.split()]
        answers = []
        for task, code in zip(tasks, codes, strict=True):
            if code == 0:
                text = (folder / task.name).read_bytes()
                answers.append(Answer(text, "already" if text == task.sample.target else ""))
            else:
                # 128 and more: killed by a signal, or git's own failure (255).
                answers.append(Answer(None, f"crash: exit {code}" if code >= 128 else ""))
        return answers

    return run


_PATCH = ("patch", "-p1", "-f", "-s", "--no-backup-if-mismatch")

TOOLS = (
    Tool("ours, foreign", _ours(own=False, has_base=False), has_base=False),
    Tool("ours, own", _ours(own=True, has_base=False), has_base=False),
    Tool(
        "git apply",
        _many("git", "apply", "--reject", "--whitespace=nowarn", "-"),
        has_base=False,
        program="git",
    ),
    Tool("patch", _many(*_PATCH), has_base=False, program="patch"),
    Tool("patch -F0", _many(*_PATCH, "-F0"), has_base=False, program="patch"),
    Tool(
        "wiggle",
        _each('wiggle "$f" "$f.diff" > "$f.out" && mv "$f.out" "$f"'),
        has_base=False,
        program="wiggle",
    ),
    Tool("ours, foreign, base", _ours(own=False, has_base=True), has_base=True),
    Tool("ours, own, base", _ours(own=True, has_base=True), has_base=True),
    Tool(
        "git merge-file",
        _each('git merge-file -q "$f" "../before/$f" "../edited/$f"'),
        has_base=True,
        program="git",
    ),
    Tool(
        "wiggle, base",
        _each('wiggle "$f" "../before/$f" "../edited/$f" > "$f.out" && mv "$f.out" "$f"'),
        has_base=True,
        every=20,
        program="wiggle",
    ),
)
"""Without the base first, then with it."""
