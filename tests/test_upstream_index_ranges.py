"""Which releases `--releases` means."""

from __future__ import annotations

import pytest

from vllm_series.errors import UsageError
from vllm_series.upstream.catalog import Release
from vllm_series.upstream.ranges import select

KNOWN = [
    *map(Release, ("0.9.0", "0.9.0.1", "0.9.1.post1", "0.10.0")),
    Release("0.30.0rc1", prerelease=True),
    *map(Release, ("0.30.0", "0.30.1", "0.31.0")),
    Release("0.31.1", yanked=True),
    Release("0.32.0"),
    Release("0.33.0+cu130"),
    Release("0.34.0rc2", prerelease=True),
]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("all", "0.9.0 0.9.0.1 0.9.1.post1 0.10.0 0.30.0 0.30.1 0.31.0 0.32.0 0.33.0+cu130"),
        ("0.30", "0.30.0 0.30.1"),
        ("0.30.1", "0.30.1"),
        ("v0.30.1", "0.30.1"),
        ("0.9..0.10", "0.9.0 0.9.0.1 0.9.1.post1 0.10.0"),
        ("0.30..0.31", "0.30.0 0.30.1 0.31.0"),
        ("0.30.1..0.32.0", "0.30.1 0.31.0 0.32.0"),
        ("0.30.1..0.31", "0.30.1 0.31.0"),
        ("..0.9.0.1", "0.9.0 0.9.0.1"),
        ("0.32..", "0.32.0 0.33.0+cu130"),
        ("0.33.0", "0.33.0+cu130"),
        ("0.32.0..0.33.0", "0.32.0 0.33.0+cu130"),
        ("0.31.1", "0.31.1"),
        ("0.30.0rc1", "0.30.0rc1"),
        ("0.30.0rc1..0.30.0", "0.30.0rc1 0.30.0"),
        ("0.31..0.34", "0.31.0 0.32.0 0.33.0+cu130"),
        (" 0.32 , 0.30.0, 0.32.0 ", "0.30.0 0.32.0"),
        ("0.30.0..0.30", "0.30.0 0.30.1"),
    ],
)
def test_a_specification_means(spec: str, expected: str) -> None:
    assert select(KNOWN, spec) == tuple(expected.split())


@pytest.mark.parametrize(
    ("spec", "word"),
    [
        ("", "no release is named"),
        (" , ", "no release is named"),
        ("..", "a range without an end"),
        ("newest", "'newest' is no release"),
        ("0.30...0.31", "is no release, line or range"),
        ("0.32..0.30", r"runs backwards: 0\.32\.\.0\.30\. Write 0\.30\.\.0\.32"),
        ("0.30.7", r"meant by 0\.30\.7\. Near it: .*0\.30\.0"),
        ("0.35", r"The newest is 0\.34\.0rc2"),
        ("0.34", r"meant by 0\.34\."),
        ("0.30.0,0.99.0", r"meant by 0\.99\.0"),
    ],
)
def test_what_means_no_release_is_wrong_usage(spec: str, word: str) -> None:
    with pytest.raises(UsageError, match=word):
        select(KNOWN, spec)
