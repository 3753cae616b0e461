"""Everything that an environment holds, taken once and compared later.

    python snapshot.py take DIR FILE        write what DIR holds to FILE
    python snapshot.py compare DIR FILE     say every difference; exit 1 if there is one

Of every file: hash, permission bits, owner, whole-second and nanosecond modification time; of every
link: its target; of every folder: its permission bits.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import sys
from pathlib import Path


def taken(root: Path) -> dict[str, list[object]]:
    """Path below `root` to what stands there."""
    found: dict[str, list[object]] = {}
    for folder, names, files in os.walk(root):
        for name in sorted(names):
            path = Path(folder, name)
            if path.is_symlink():
                found[str(path.relative_to(root))] = ["link", str(path.readlink())]
            else:
                found[str(path.relative_to(root))] = ["folder", stat.S_IMODE(path.stat().st_mode)]
        for name in sorted(files):
            path = Path(folder, name)
            key = str(path.relative_to(root))
            if path.is_symlink():
                found[key] = ["link", str(path.readlink())]
                continue
            status = path.stat()
            found[key] = [
                "file",
                _digest(path),
                stat.S_IMODE(status.st_mode),
                status.st_uid,
                status.st_gid,
                status.st_mtime_ns,
            ]
    return found


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while piece := stream.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def differences(before: dict[str, list[object]], after: dict[str, list[object]]) -> list[str]:
    """One line for every path that is not as it was."""
    lines = []
    for key in sorted(before.keys() | after.keys()):
        old, new = before.get(key), after.get(key)
        if old == new:
            continue
        if old is None:
            lines.append(f"new: {key}")
        elif new is None:
            lines.append(f"gone: {key}")
        else:
            lines.append(f"changed: {key}: {old} is now {new}")
    return lines


def main() -> int:
    verb, root, file = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    if verb == "take":
        file.write_text(json.dumps(taken(root)))
        return 0
    lines = differences(json.loads(file.read_text()), taken(root))
    print("\n".join(lines) if lines else f"{len(taken(root))} files and folders are as they were")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
