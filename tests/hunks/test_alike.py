"""A release that is tested as another one is that one, as far as a hunk test may look."""

from __future__ import annotations

import pytest

from hunks.conftest import ALIKE, DISTINCT, NEEDED, catalog, folder_of, needed
from stock import COVERED

VERSION = "vllm/_version.py"


def files(release: str) -> dict[str, str]:
    """Digests of the Python files of which the hunk tests take some."""
    return {
        path: digest
        for path, digest in catalog().tree(release).listing().items()
        if path.startswith(needed(release)) and path.endswith(".py") and path != VERSION
    }


@pytest.mark.parametrize("release", ALIKE)
def test_a_release_tested_as_another_has_the_same_files_and_series(release: str) -> None:
    other = ALIKE[release]
    assert other in DISTINCT
    assert len(files(release)) > len(NEEDED)
    assert files(release) == files(other)
    assert folder_of(release) == folder_of(other)


def test_every_other_covered_release_is_tested_as_itself() -> None:
    """Nothing runs twice: two releases with the same files are listed."""
    seen = [(tuple(sorted(files(release).items())), folder_of(release)) for release in DISTINCT]
    assert len(set(seen)) == len(seen)
    assert set(COVERED) == {*DISTINCT, *ALIKE}
