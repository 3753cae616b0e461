"""What the interpreter of a throwaway environment loads before the script: its `sitecustomize`.

It stands alone there, without this package. It writes down which files the script reads and which
it writes outside of the copy, lets no installation but the copy be written to, and lets
`import vllm` succeed although nothing that vLLM needs is installed: a module of it is run as far as
it goes, since scripts only ask it where it lies.
"""

from __future__ import annotations

import importlib.machinery
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

_SITE = os.path.realpath(os.path.dirname(__file__))  # noqa: PTH120 (loaded before all else)
_LOG = os.path.join(_SITE, "..", "touched.log")  # noqa: PTH118
_WRITES = {
    "os.remove": (0,),
    "os.rename": (0, 1),
    "os.link": (1,),
    "os.symlink": (1,),
    "os.truncate": (0,),
    "os.mkdir": (0,),
    "os.rmdir": (0,),
    "os.chmod": (0,),
    "shutil.rmtree": (0,),
}
"""Audit events that change a path, and where in their arguments it is (PEP 578, "audit events")."""
_FOREIGN = (os.sep + "site-packages" + os.sep, os.sep + "dist-packages" + os.sep)
_PASSED = (os.devnull, "/dev/tty")


class _AsFar(importlib.machinery.SourceFileLoader):
    """Loads a module of vLLM; one that lacks what it imports stays as far as it came."""

    def exec_module(self, module: ModuleType) -> None:
        try:
            super().exec_module(module)
        except ImportError:
            return


class _Finder(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """As the usual one, for the modules of vLLM alone."""
        if fullname.partition(".")[0] != "vllm":
            return None
        spec = super().find_spec(fullname, path, target)
        if spec is not None and spec.origin and spec.origin.endswith(".py"):
            spec.loader = _AsFar(fullname, spec.origin)
        return spec


def _is_foreign(full: str) -> bool:
    """Whether a path is of an installation, or a file of another vLLM that is there."""
    if any(part in full + os.sep for part in _FOREIGN):
        return True
    named = f"{os.sep}vllm{os.sep}" in full and full.endswith(".py")
    return named and os.path.exists(full)  # noqa: PTH110 (loaded before all else)


def _watch(log: int) -> None:
    def note(kind: str, path: str) -> None:
        os.write(log, f"{kind}\t{path}\n".encode("utf-8", "surrogateescape").replace(b"\0", b""))

    def seen(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _mode, flags = arguments
            written = bool((flags or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC))
            paths = [path]
        elif event in _WRITES:
            written = True
            paths = [arguments[index] for index in _WRITES[event]]
        else:
            return
        for each in paths:
            if isinstance(each, int) or each is None:
                continue
            full = os.path.realpath(os.fsdecode(each))
            inside = full.startswith(_SITE + os.sep)
            if inside and not written:
                note("read", full[len(_SITE) + 1 :])
            elif not inside and written and full not in _PASSED:
                note("wrote", full)
                if _is_foreign(full):
                    raise PermissionError(
                        f"{full} is of another vLLM, and an import changes none: only the copy in "
                        f"{_SITE} may be edited"
                    )

    sys.addaudithook(seen)


sys.meta_path.insert(0, _Finder)
_watch(os.open(_LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600))
