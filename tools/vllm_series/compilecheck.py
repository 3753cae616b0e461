"""Does every changed file still compile, for the Python that will import it?

Asked before anything is written. Compiling takes the interpreter that runs vLLM, whose syntax may
be older or newer than ours: in process where it is the same, otherwise in that interpreter, which
is fed through its standard input and started without site packages, so that nothing of the
environment runs. Many files are shared out to several such processes; 27 MB take 2 s on two cores.
Files are compiled whole and not only parsed, because `return` outside a function parses.
"""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vllm_series.errors import EnvironmentRefusedError

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterable, Mapping

    from vllm_series.trees import DiskTree

_IN_PROCESS = 2_000_000
"""So many bytes of source are compiled here; more are worth the start of other processes."""
_SHARE = 1_000_000
"""No further process for less source than this."""
_SECONDS = 300

# In: `number length\n` and a text, for each. Out: `number line length\n` and a message, for each
# that does not compile, then `done\n`. Kept to what Python 3.8 understands.
_WORKER = r"""
import gc, sys, warnings
gc.disable()
warnings.simplefilter("ignore")
read, write = sys.stdin.buffer, sys.stdout.buffer
failures = []
while True:
    head = read.readline().split()
    if not head:
        break
    number, text = int(head[0]), read.read(int(head[1]))
    try:
        compile(text, "<source>", "exec", dont_inherit=True)
    except SyntaxError as error:
        failures.append((number, error.lineno or 0, error.msg or "invalid syntax"))
    except (ValueError, RecursionError, MemoryError, OverflowError) as error:
        failures.append((number, 0, str(error) or type(error).__name__))
for number, line, message in failures:
    said = message.encode("utf-8", "replace")
    write.write(b"%d %d %d\n%b" % (number, line, len(said), said))
write.write(b"done\n")
"""


@dataclass(frozen=True, slots=True)
class CompileFailure:
    """A file that does not compile; `exempt` where it did not before either.

    `line` is 1-based in the new text, 0 where Python names none.
    """

    path: str
    line: int
    message: str
    python: str
    exempt: bool = False

    def __str__(self) -> str:
        place = f"{self.path}:{self.line}" if self.line else self.path
        return f"{place} does not compile for Python {self.python}: {self.message}"


def check_compiles(
    tree: DiskTree, items: Iterable[tuple[str, bytes | None, bytes | None]]
) -> list[CompileFailure]:
    """The Python files that do not compile, in the order of `items`: path, text before, text after.

    A path may come several times, once for each patch. Runs nothing of the files and shows no
    warnings. Raises EnvironmentRefusedError where the tree's interpreter has to be asked and
    cannot be.
    """
    sources = [
        (path, before, after)
        for path, before, after in items
        if after is not None and path.endswith(".py")
    ]
    if not sources:
        return []
    compiler = _Compiler(tree)
    failed = compiler.failures({n: after for n, (_, _, after) in enumerate(sources)})
    exempt = compiler.failures({n: before for n in failed if (before := sources[n][1]) is not None})
    return [
        CompileFailure(sources[n][0], *failed[n], compiler.version, n in exempt)
        for n in sorted(failed)
    ]


class _Compiler:
    """Compiles numbered texts for one interpreter; a failure is (line, message) by number."""

    def __init__(self, tree: DiskTree) -> None:
        here = (sys.version_info[0], sys.version_info[1])
        wanted = tree.python_version or (None if tree.python else here)
        self.version = ".".join(map(str, wanted or ())) or str(tree.python)
        self._own = wanted == here
        self._python = sys.executable if self._own else _interpreter(tree, wanted)

    def failures(self, texts: Mapping[int, bytes]) -> dict[int, tuple[int, str]]:
        size = sum(map(len, texts.values()))
        if not texts:
            return {}
        if self._own and size <= _IN_PROCESS:
            return _here(texts)
        from concurrent.futures import ThreadPoolExecutor

        shares = _shares(texts, min(_processors(), size // _SHARE + 1))
        # The threads only feed pipes, so that no process waits for another's input.
        with ThreadPoolExecutor(len(shares)) as pool:
            found = pool.map(lambda share: _elsewhere(self._python, texts, share), shares)
            return {number: failure for part in found for number, failure in part.items()}


def _here(texts: Mapping[int, bytes]) -> dict[int, tuple[int, str]]:
    failures = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number, text in texts.items():
            try:
                compile(text, "<source>", "exec", dont_inherit=True)
            except SyntaxError as error:
                failures[number] = (error.lineno or 0, error.msg or "invalid syntax")
            except (ValueError, RecursionError, MemoryError, OverflowError) as error:
                failures[number] = (0, str(error) or type(error).__name__)
    return failures


def _elsewhere(
    python: str, texts: Mapping[int, bytes], share: Iterable[int]
) -> dict[int, tuple[int, str]]:
    import subprocess

    try:
        worker = subprocess.Popen(
            [python, "-I", "-S", "-X", "utf8", "-c", _WORKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    except OSError as error:
        raise EnvironmentRefusedError(
            f"{python} cannot be started: {error.strerror}. Name another with --python."
        ) from error
    with worker:
        answer = _asked(worker, texts, share)
    if not answer.endswith(b"done\n"):
        raise EnvironmentRefusedError(
            f"{python} stopped (status {worker.returncode}) while it compiled. "
            "Check that it starts, or name another with --python."
        )
    failures = {}
    while answer != b"done\n":
        head, _, answer = answer.partition(b"\n")
        number, line, length = map(int, head.split())
        failures[number] = (line, answer[:length].decode("utf-8", "replace"))
        answer = answer[length:]
    return failures


def _asked(
    worker: subprocess.Popen[bytes], texts: Mapping[int, bytes], share: Iterable[int]
) -> bytes:
    source, answer = worker.stdin, worker.stdout
    if source is None or answer is None:
        return b""
    with contextlib.suppress(BrokenPipeError):
        for number in share:
            source.write(b"%d %d\n" % (number, len(texts[number])))
            source.write(texts[number])
        source.close()
    return answer.read()


def _interpreter(tree: DiskTree, wanted: tuple[int, int] | None) -> str:
    """An interpreter that compiles as the tree's own does: itself, else one of that version."""
    if tree.python and os.access(tree.python, os.X_OK):
        return str(tree.python)
    import shutil

    named = f"python{wanted[0]}.{wanted[1]}" if wanted else None
    found = shutil.which(named) if named else None
    if found is None:
        raise EnvironmentRefusedError(
            f"{tree.root} is used by {named or tree.python}, which cannot be started here, so what "
            "is written cannot be compiled first. Name its interpreter with --python."
        )
    return found


def _shares(texts: Mapping[int, bytes], count: int) -> list[list[int]]:
    """The numbers in `count` parts of about the same number of bytes."""
    shares: list[list[int]] = [[] for _ in range(count)]
    sizes = [0] * count
    for number in sorted(texts, key=lambda number: -len(texts[number])):
        smallest = sizes.index(min(sizes))
        shares[smallest].append(number)
        sizes[smallest] += len(texts[number])
    return [share for share in shares if share]


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
