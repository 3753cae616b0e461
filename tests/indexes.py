"""Package indexes made by hand: pages in both forms, and wheels that pip takes for real."""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from packaging.utils import parse_wheel_filename

JSON = "application/vnd.pypi.simple.v1+json"


def sealed(home: Path, **more: str) -> dict[str, str]:
    """An environment in which nobody has told pip or uv anything."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PIP_", "UV_", "XDG_"))
        and name not in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "VIRTUAL_ENV")
    }
    return {**kept, "HOME": str(home), "XDG_CONFIG_DIRS": str(home / "machine"), **more}


def installable(name: str, marker: bytes = b"") -> bytes:
    """The smallest wheel of this file name that pip installs; `marker` makes its bytes differ."""
    project, version, _, _ = parse_wheel_filename(name)
    info = f"{project.replace('-', '_')}-{version}.dist-info"
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {project}\nVersion: {version}\n"
        )
        archive.writestr(
            f"{info}/WHEEL",
            "Wheel-Version: 1.0\n" + "".join(f"Tag: {'-'.join(name[:-4].split('-')[-3:])}\n"),
        )
        archive.writestr(f"{info}/RECORD", marker)
    return out.getvalue()


def entry(name: str, data: bytes | None = None, **more: Any) -> dict[str, Any]:
    """One file of a JSON page."""
    return {
        "filename": name,
        "url": f"/files/{name}",
        "hashes": {"sha256": sha256(data).hexdigest()} if data is not None else {},
        "size": len(data) if data is not None else 1,
        "upload-time": "2026-11-02T08:00:00.000000Z",
        "yanked": False,
        **more,
    }


def json_page(files: Iterable[Mapping[str, Any]], **more: Any) -> bytes:
    """A page as PEP 691 has it."""
    listed = list(files)
    page = {"meta": {"api-version": "1.1"}, "name": "vllm", "files": listed, "versions": []}
    return json.dumps({**page, **more}).encode()


def html_page(links: Iterable[str]) -> bytes:
    """A page as PEP 503 has it, of whole anchors."""
    return ("<!DOCTYPE html><html><body>\n" + "\n".join(links) + "\n</body></html>").encode()
