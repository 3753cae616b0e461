"""Standard output and error of a process whose outcome must not hang on who reads them.

A reader that left (`| head -1`), a stream that was never open (`>&-`) or a letter that the locale
does not have would otherwise end a command midway, with an exit code that says nothing of the tree.
"""

from __future__ import annotations

import io
import os
import sys
from typing import IO, TextIO, cast

from vllm_series.errors import EnvironmentRefusedError


class _Descriptor(io.FileIO):
    """A descriptor that goes nowhere once it fails: silently where its reader left, else with one
    error."""

    def write(self, data: bytes, /) -> int:  # type: ignore[override]  # any buffer, as FileIO takes
        try:
            return super().write(data)
        except BrokenPipeError:
            self._go_nowhere()
        except BlockingIOError:
            raise
        except OSError as error:
            self._go_nowhere()
            if self.fileno() != 2:  # there is no one left to tell where stderr itself fails
                raise EnvironmentRefusedError(
                    f"standard output cannot be written: {error.strerror}. "
                    "vllm-series status says what was done."
                ) from error
        return len(data)

    def _go_nowhere(self) -> None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())
        os.close(nowhere)


def stand() -> None:
    """Put streams that stand in place of `sys.stdout` and `sys.stderr`."""
    sys.stdout = _standing(sys.stdout)
    sys.stderr = _standing(sys.stderr)


def _standing(stream: TextIO | None) -> TextIO:
    if stream is None:
        return open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123 (a name, not a path)
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    raw = cast("IO[bytes]", _Descriptor(stream.fileno(), "w", closefd=False))
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=stream.encoding,
        errors="backslashreplace" if stream.errors == "strict" else stream.errors,
        line_buffering=stream.line_buffering,
    )
