"""What a person at a terminal sees while something takes long: one line that is written over."""

from __future__ import annotations

import os
import sys
from types import TracebackType

_CLEAR = "\r\x1b[K"


class Progress:
    """Names the step that goes on, on stderr; says nothing to a file, a pipe or a quiet command.

    As a context manager it clears its line at the end, also where the step fails.
    """

    def __init__(self, silent: bool) -> None:
        self._shown = not silent and sys.stderr.isatty()

    def say(self, step: str) -> None:
        """Show what goes on now, in place of what was shown before."""
        if self._shown:
            # A line that the terminal breaks in two could not be cleared as a whole.
            room = os.get_terminal_size(sys.stderr.fileno()).columns - 3
            shown = step if room <= 0 or len(step) <= room else step[:room]
            sys.stderr.write(f"{_CLEAR}{shown} …")
            sys.stderr.flush()

    def clear(self) -> None:
        """Make room for a message that stays."""
        if self._shown:
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.clear()
