"""A throwaway copy of a tree's package that a command imports in place of the installed one.

The installed files are never touched, and no file is shared with them by which a command could
change them: sources and other small files are copies; only compiled libraries and the like, some
hundred MB of them, are links. `PYTHONPATH` comes before `site-packages`, for child processes too.
Python's bytecode lands in the copy.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from vllm_series.errors import EnvironmentRefusedError
from vllm_series.installation.bytecode import SECOND, compiled_from, fresh_second
from vllm_series.trees import PACKAGE, DiskTree

VARIABLE = "VLLM_SERIES_TREE"
"""The environment variable that names the copy to the command."""

_LARGE = 1 << 20
_BESIDE = (f"{PACKAGE}.libs",)
"""Folders beside the package in which its compiled libraries look for others, by a relative way."""


class Mirror:
    """The copy, as a context; `root` is the folder with `vllm/` in it, gone at the end.

    `keeps_bytecode` copies what Python has compiled too: an import then starts as fast as that of
    the tree, where it has been imported before.
    """

    def __init__(self, tree: DiskTree, keeps_bytecode: bool = False) -> None:
        self._tree = tree
        self._skipped = () if keeps_bytecode else ("__pycache__",)
        self._stock: dict[str, tuple[bytes | None, int | None]] = {}
        """Text and mode that each file had that was ever put here."""
        self._stamps: dict[str, set[int]] = {}

    def __enter__(self) -> Mirror:
        self._scratch = tempfile.TemporaryDirectory(
            prefix="vllm-series-copy-", ignore_cleanup_errors=True
        )
        self.root = Path(os.path.realpath(self._scratch.name)) / "site"
        try:
            self._make()
        except OSError as error:
            self._scratch.cleanup()
            raise EnvironmentRefusedError(
                f"{self._tree.root} cannot be copied to {self.root}: {error.strerror}. TMPDIR "
                "names another folder for it."
            ) from error
        except BaseException:
            self._scratch.cleanup()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._scratch.cleanup()

    def _make(self) -> None:
        source = f"{self._tree.root}/"
        for folder, names, files in os.walk(f"{source}{PACKAGE}"):
            names[:] = [name for name in names if name not in self._skipped]
            target = self.root / folder.removeprefix(source)
            target.mkdir(parents=True)
            for name in files:
                place = f"{folder}/{name}"
                if os.stat(place).st_size > _LARGE and not name.endswith(".py"):  # noqa: PTH116
                    (target / name).symlink_to(place)
                else:
                    shutil.copy2(place, target / name)
        for name in _BESIDE:
            if (self._tree.root / name).is_dir():
                (self.root / name).symlink_to(self._tree.root / name)

    def put(self, texts: Mapping[str, bytes | None], modes: Mapping[str, int]) -> None:
        """Let the copy differ from the tree in these files alone; None for a file that is not
        there. What an earlier call has put and this one does not name is as it was again."""
        for path in texts.keys() - self._stock.keys():
            place = self.root / path
            is_there = place.is_file()
            self._stock[path] = (
                place.read_bytes() if is_there else None,
                place.stat().st_mode & 0o777 if is_there else None,
            )
        for path, (text, mode) in self._stock.items():
            if path in texts:
                self._write(path, texts[path], modes.get(path) or mode)
            else:
                self._write(path, text, mode)

    def _write(self, path: str, text: bytes | None, mode: int | None) -> None:
        place = self.root / path
        for compiled in compiled_from(self.root, path):
            (self.root / compiled).unlink(missing_ok=True)
        taken = self._stamps.setdefault(path, set())
        changed = 0
        if place.exists() or place.is_symlink():
            status = place.lstat()
            taken.add(status.st_mtime_ns // SECOND)
            changed = status.st_ctime_ns // SECOND
            place.unlink()
        if text is None:
            return
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text)
        place.chmod(mode if mode is not None else 0o644)
        second = fresh_second(int(time.time()), changed, taken)
        taken.add(second)
        os.utime(place, (second, second))

    def environment(self, given: Mapping[str, str]) -> dict[str, str]:
        """Variables with which a command imports the copy."""
        paths = [str(self.root), *filter(None, [given.get("PYTHONPATH")])]
        return {**given, "PYTHONPATH": os.pathsep.join(paths), VARIABLE: str(self.root)}
