"""What a package index holds of one distribution: a page of it, read into records.

Pages are JSON (PEP 691) or HTML (PEP 503); pypi-simple reads both. As for pip, the last part of a
file's address is its name, and what is neither a wheel nor an sdist of the distribution, or has a
name that says no version, is passed over.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion

from vllm_series.errors import EnvironmentRefusedError
from vllm_series.upstream.settings import redacted, without_user

if TYPE_CHECKING:
    from pypi_simple import DistributionPackage

JSON = "application/vnd.pypi.simple.v1+json"
ACCEPT = f"{JSON}, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.01"
"""As pip asks: JSON where the index has it."""

_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class IndexFile:
    """One wheel or sdist that an index or a folder holds.

    `release` is the version in its normal form, local part included (`0.33.0+cu130`). `url` has no
    credentials. `sha256` (hex), `size` (bytes) and `date` (of the upload, `2026-11-02`) are None
    where the index does not tell them. `yanked` says why it was withdrawn, an empty text where no
    reason is given, and is None where it was not.
    """

    distribution: str
    release: str
    filename: str
    url: str
    sha256: str | None = None
    size: int | None = None
    date: str | None = None
    yanked: str | None = None
    requires_python: str | None = None

    @property
    def is_wheel(self) -> bool:
        """Else it is an sdist."""
        return self.filename.endswith(".whl")

    @property
    def build(self) -> tuple[int, str] | tuple[()]:
        """The wheel's build tag, as it sorts; empty for none, which is the least of all."""
        return parse_wheel_filename(self.filename)[2] if self.is_wheel else ()

    @property
    def tags(self) -> frozenset[str]:
        """What the wheel fits: `cp38-abi3-manylinux_2_28_x86_64`, with compressed sets taken
        apart; none for an sdist."""
        if not self.is_wheel:
            return frozenset()
        return frozenset(map(str, parse_wheel_filename(self.filename)[3]))


def named(distribution: str, url: str) -> IndexFile | None:
    """The record of a file by its address alone; None for what is no file of the distribution."""
    filename = unquote(urlsplit(url).path.rpartition("/")[2])
    try:
        if filename.endswith(".whl"):
            name, version, _, _ = parse_wheel_filename(filename)
        else:
            name, version = parse_sdist_filename(filename)
    except (InvalidWheelFilename, InvalidSdistFilename, InvalidVersion):
        return None
    if name != canonicalize_name(distribution):
        return None
    return IndexFile(distribution, str(version), filename, without_user(url))


def page_files(
    body: bytes, content_type: str, url: str, distribution: str
) -> tuple[IndexFile, ...]:
    """The files that a page lists, in its order; `url` is the page's address.

    Raises EnvironmentRefusedError for what is no page of an index.
    """
    from pypi_simple import ProjectPage, UnexpectedRepoVersionWarning, UnsupportedRepoVersionError

    kind, _, rest = content_type.partition(";")
    kind = kind.strip().lower()
    is_json = kind in (JSON, "application/json")
    charset = rest.partition("charset=")[2].strip(' "') or None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnexpectedRepoVersionWarning)
            if is_json:
                page = ProjectPage.from_json_data(json.loads(body), url)
            elif kind in ("text/html", "application/vnd.pypi.simple.v1+html"):
                page = ProjectPage.from_html(distribution, body, url, charset)
            else:
                raise _no_page(url, f"its form is {kind[:60] or 'not told'}")
    except UnsupportedRepoVersionError as error:
        raise _no_page(url, f"its version is {error.declared_version[:20]}") from error
    except (ValueError, LookupError, RecursionError) as error:
        # Of pypi-simple's and json's own words, only the kind: the body may be anything.
        raise _no_page(url, f"its text cannot be read ({type(error).__name__})") from error
    return tuple(_records(page.packages, url, distribution, is_json))


def _records(
    packages: Iterable[DistributionPackage], page: str, distribution: str, is_json: bool
) -> Iterable[IndexFile]:
    for package in packages:
        try:
            scheme = urlsplit(package.url).scheme
        except ValueError:
            continue
        # A page from the network must not name a file of this machine.
        if scheme not in ("http", "https") and not (scheme == "file" and page.startswith("file:")):
            continue
        file = named(distribution, package.url)
        if file is None:
            continue
        digest = package.digests.get("sha256", "").lower()
        moment = package.upload_time
        yield IndexFile(
            distribution,
            file.release,
            file.filename,
            file.url,
            digest if _DIGEST.fullmatch(digest) else None,
            package.size if package.size is not None and package.size > 0 else None,
            f"{moment:%Y-%m-%d}" if moment else None,
            _reason(package, is_json),
            package.requires_python or None,
        )


def _reason(package: DistributionPackage, is_json: bool) -> str | None:
    """Why a file was withdrawn, None where it was not. An empty text in JSON, which PEP 691 does
    not know, is for pip that it was not; in HTML it is a withdrawal without a reason."""
    if not package.is_yanked or (is_json and package.yanked_reason == ""):
        return None
    return package.yanked_reason or ""


def _no_page(url: str, reason: str) -> EnvironmentRefusedError:
    return EnvironmentRefusedError(
        f"no package index answers there: {redacted(url)}: {reason}. "
        "Give the address of a simple index (--index-url, PIP_INDEX_URL), such as "
        "https://pypi.org/simple."
    )
