"""The one exception family of this project; each class carries the process's exit code.

Messages read `what is wrong: where. What to do.` and are printed without a traceback.
"""

from __future__ import annotations


class VllmSeriesError(Exception):
    """Any failure that the user can act on. `exit_code` is what the command returns."""

    exit_code = 1


class PatchFormatError(VllmSeriesError):
    """A patch that cannot be read with certainty; nothing of it is used.

    `source` names the file, `line` is 1-based in it (0 where no single line is to blame).
    """

    def __init__(self, source: str, line: int, reason: str) -> None:
        super().__init__(f"{source}:{line}: {reason}" if line else f"{source}: {reason}")
        self.source = source
        self.line = line
        self.reason = reason


class SeriesError(VllmSeriesError):
    """A series folder that is missing, incomplete or contradicts itself."""


class RefusedError(VllmSeriesError):
    """The patches and the tree do not fit, or the tree is not in the state that was recorded."""


class UsageError(VllmSeriesError):
    """The command line asks for something that has no meaning."""

    exit_code = 2


class EnvironmentRefusedError(VllmSeriesError):
    """The environment does not allow it: no vLLM found, read-only, an editable install."""

    exit_code = 3
