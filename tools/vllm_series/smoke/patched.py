"""The code that a smoke run is about: the stock files of an environment, and those with a series
in, or with the first patches of it.

Nothing of the environment is changed. Patched code is a throwaway copy of the package that is
imported in its place (`mirror`), and so is stock code where the environment has patches applied.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

from vllm_series.environments import find_tree
from vllm_series.errors import RefusedError
from vllm_series.mirror import Mirror
from vllm_series.patch import Patch
from vllm_series.plan import Layer, make_plan
from vllm_series.series import Series
from vllm_series.trees import DiskTree


class Code(contextlib.ExitStack):
    """Stock and patched code of one environment, as a context that holds the copies.

    `variables` are those that an engine is started with; the switches of the patches are taken out.
    """

    def __init__(self, python: Path, series: Series | None, variables: Mapping[str, str]) -> None:
        from vllm_series.diffs.parse import parse
        from vllm_series.installation.stack import read_stack
        from vllm_series.workspace.edited import saved

        super().__init__()
        self.python = python
        self.tree: DiskTree = find_tree(None, str(python))
        self.patches: tuple[Patch, ...] = tuple(
            parse(entry.text, entry.name) for entry in (series.entries if series else ())
        )
        switches = self.activation()
        self._variables = {name: text for name, text in variables.items() if name not in switches}
        self._read = saved(self.tree, self.tree)
        self._stock = {path: self._read(path) for path in read_stack(self.tree).pristine()}
        self._copies: dict[str, Mirror] = {}
        self._in: dict[str, int] = {}
        """How many patches are in each copy."""

    @cached_property
    def _layers(self) -> tuple[Layer, ...]:
        """The files with the first 0, 1, 2… patches in. Raises RefusedError where they do not fit
        this environment."""
        plan = make_plan(self.patches, self._read, self.tree.mode)
        if not plan.fits:
            bad = next(patch for patch in plan.patches if not patch.fits)
            raise RefusedError(
                f"{bad.patch.name} does not fit {self.tree.label}: {bad.verdict.value}. "
                f"vllm-series apply --dry-run --python {self.python} says more."
            )
        return plan.layers(self._stock)

    def stock(self) -> dict[str, str]:
        """Variables with which the stock code is imported."""
        return self._copy("stock", 0) if self._stock else dict(self._variables)

    def patched(self, number: int, name: str) -> dict[str, str]:
        """Variables with which the code with the first `number` patches is imported. What an
        earlier call has put into the copy of that name is gone."""
        return self._copy(name, number)

    def _copy(self, name: str, number: int) -> dict[str, str]:
        layer = self._layers[number]
        if name not in self._copies:
            self._copies[name] = self.enter_context(Mirror(self.tree, keeps_bytecode=True))
        if self._in.get(name) != number:
            self._copies[name].put(*layer)
            self._in[name] = number
        return self._copies[name].environment(self._variables)

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
        for path, after in self._layers[number][0].items():
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
