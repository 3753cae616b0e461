"""The code that a smoke run is about: the stock files of an environment, and those with a series
in, or with the first patches of it.

Nothing of the environment is changed. Patched code is a throwaway copy of the package that is
imported in its place (`mirror`), and so is stock code where the environment has patches applied.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from vllm_series.environments import find_tree
from vllm_series.errors import RefusedError
from vllm_series.mirror import Mirror
from vllm_series.patch import Patch
from vllm_series.plan import make_plan
from vllm_series.series import Series
from vllm_series.trees import DiskTree


@dataclass(frozen=True, slots=True)
class Texts:
    """What differs from the environment: text by path (None: no such file), and new modes."""

    texts: Mapping[str, bytes | None]
    modes: Mapping[str, int]


class Code:
    """Stock and patched code of one environment, as a context that holds the copies."""

    def __init__(self, python: Path, series: Series | None, variables: Mapping[str, str]) -> None:
        from vllm_series.diffs.parse import parse
        from vllm_series.installation.stack import read_stack
        from vllm_series.workspace.edited import saved

        self.python = python
        self.tree: DiskTree = find_tree(None, str(python))
        self.patches: tuple[Patch, ...] = tuple(
            parse(entry.text, entry.name) for entry in (series.entries if series else ())
        )
        self._read = saved(self.tree, self.tree)
        self._variables = variables
        stack = read_stack(self.tree)
        self._stock = {path: self._read(path) for path in stack.pristine()}
        self._copies: dict[str, Mirror] = {}
        self._in: dict[str, int | None] = {}
        self.activation()  # a line that sets nothing is told before anything is run

    def __enter__(self) -> Code:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for copy in self._copies.values():
            copy.__exit__(None, None, None)

    def with_first(self, number: int) -> Texts:
        """The files with the first `number` patches in. Raises RefusedError where they do not fit
        this environment."""
        plan = make_plan(list(self.patches[:number]), self._read, self.tree.mode)
        if not plan.fits:
            bad = next(patch for patch in plan.patches if not patch.fits)
            raise RefusedError(
                f"{bad.patch.name} does not fit {self.tree.label}: {bad.verdict.value}. "
                f"vllm-series apply --dry-run --python {self.python} says more."
            )
        texts = dict(self._stock)
        modes: dict[str, int] = {}
        for step in plan.steps:
            texts |= {file.path: file.after for file in step.files}
            modes |= {file.path: file.mode for file in step.files if file.mode is not None}
        return Texts(texts, modes)

    def stock(self) -> dict[str, str]:
        """Variables with which the stock code is imported."""
        if not self._stock:
            return dict(self._variables)
        return self._copy("stock", Texts(self._stock, {})).environment(self._variables)

    def patched(self, number: int | None = None, name: str = "patched") -> dict[str, str]:
        """Variables with which the patched code is imported; `number` patches, or all. What an
        earlier call has put into the copy of that name is gone."""
        number = len(self.patches) if number is None else number
        if name in self._copies and self._in[name] == number:
            return self._copies[name].environment(self._variables)
        copy = self._copy(name, self.with_first(number))
        self._in[name] = number
        return copy.environment(self._variables)

    def _copy(self, name: str, texts: Texts) -> Mirror:
        if name not in self._copies:
            self._copies[name] = Mirror(self.tree, keeps_bytecode=True).__enter__()
        self._copies[name].put(texts.texts, texts.modes)
        return self._copies[name]

    def activation(self, patches: Sequence[Patch] | None = None) -> dict[str, str]:
        """The variables of the `Activate:` trailers."""
        found: dict[str, str] = {}
        for patch in self.patches if patches is None else patches:
            found |= patch.switches()
        return found

    def relative(self, file: str) -> str | None:
        """The path in the tree (`vllm/…`) of a file of the environment or of a copy."""
        roots = [self.tree.root, *(copy.root for copy in self._copies.values())]
        for root in roots:
            if file.startswith(f"{root}{os.sep}"):
                return Path(file).relative_to(root).as_posix()
        return None

    def added_lines(self, number: int) -> dict[str, set[int]]:
        """For each file that the first patches change: the numbers (from 1) of their own lines."""
        import difflib

        found: dict[str, set[int]] = {}
        for path, after in self.with_first(number).texts.items():
            if after is None:
                continue
            before = (self._read(path) or b"").splitlines()
            matcher = difflib.SequenceMatcher(None, before, after.splitlines(), autojunk=False)
            found[path] = {
                line + 1
                for tag, _a, _b, start, end in matcher.get_opcodes()
                if tag in ("replace", "insert")
                for line in range(start, end)
            }
        return found
