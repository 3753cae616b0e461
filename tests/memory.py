"""The most memory that a script needs, whatever the test run that starts it holds itself.

A new process starts with the peak of the one that it was forked from, and a test run holds
hundreds of megabytes by its end. So a small process stands in between, and its children are
measured.
"""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from installed import TOOLS

if TYPE_CHECKING:
    from pathlib import Path

_BETWEEN = """
import resource, subprocess, sys
done = subprocess.run([sys.executable, "-c", *sys.argv[1:]], stdout=subprocess.PIPE)
sys.stdout.buffer.write(done.stdout)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(done.returncode)
"""


def measured(script: str, *arguments: str | Path) -> tuple[str, int]:
    """What a Python script prints, and the peak in kilobytes of its largest process."""
    done = subprocess.run(
        [sys.executable, "-c", _BETWEEN, script, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(TOOLS)},
    )
    assert done.returncode == 0, done.stderr
    printed, _, peak = done.stdout.rstrip("\n").rpartition("\n")
    return printed, int(peak)
