"""Wheels made by hand, well or ill: small, with what a wheel must have."""

from __future__ import annotations

import io
import zipfile
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from hashlib import sha256

INFO = "vllm-9.9.9.dist-info"
FILES: Mapping[str, bytes] = {
    "vllm/__init__.py": b'__version__ = "9.9.9"\n',
    "vllm/engine.py": b"".join(b"line %d\n" % number for number in range(3000)),
    "vllm/_C.abi3.so": bytes(range(256)) * 2000,
    f"{INFO}/METADATA": b"Metadata-Version: 2.1\nName: vllm\nVersion: 9.9.9\n",
    f"{INFO}/WHEEL": b"Wheel-Version: 1.0\n",
}
"""What the wheel holds unless a test says otherwise."""


def named(project_and_version: str) -> dict[str, bytes]:
    """`FILES` with another distribution or version, such as `vllm-9.9.8`."""
    return {
        path.replace(INFO, f"{project_and_version}.dist-info"): text for path, text in FILES.items()
    }


def record(files: Mapping[str, bytes]) -> bytes:
    """RECORD as a build tool writes it."""
    info = next((path.partition("/")[0] for path in files if ".dist-info/" in path), INFO)
    rows = []
    for path, text in files.items():
        digest = urlsafe_b64encode(sha256(text).digest()).decode().rstrip("=")
        rows.append(f"{path},sha256={digest},{len(text)}\n")
    return ("".join(rows) + f"{info}/RECORD,,\n").encode()


def wheel(
    files: Mapping[str, bytes] = FILES,
    listed: bytes | None = None,
    stored: bool = False,
    comment: bytes = b"",
) -> bytes:
    """The bytes of a wheel with these files; `listed` stands in for its RECORD."""
    out = io.BytesIO()
    method = zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED
    with zipfile.ZipFile(out, "w", method) as archive:
        info = next((path.partition("/")[0] for path in files if ".dist-info/" in path), INFO)
        rest = {f"{info}/RECORD": record(files) if listed is None else listed}
        for path, text in {**files, **rest}.items():
            entry = zipfile.ZipInfo(path, (2026, 11, 2, 0, 0, 0))
            entry.compress_type = method
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, text)
        archive.comment = comment
    return out.getvalue()
