"""Answers of `check` made by hand, of every kind there is."""

from __future__ import annotations

from vllm_series.checking.answers import (
    FileAnswer,
    HunkAnswer,
    Overlap,
    PatchAnswer,
    ReleaseAnswer,
    Rename,
)
from vllm_series.verdicts import Verdict

RELEASES = [
    "0.10.2", "0.11.0", "0.11.1", "0.11.2", "0.12.0", "0.13.0",
    "0.14.0", "0.14.1", "0.15.0", "0.15.1", "0.16.0", "0.17.0",
    "0.17.1", "0.18.0", "0.18.1", "0.19.0", "0.19.1", "0.20.0",
    "0.20.1", "0.20.2", "0.21.0", "0.22.0", "0.22.1", "0.23.0",
    "0.24.0", "0.25.0", "0.25.1", "0.26.0", "0.27.0", "0.27.1",
    "0.28.0", "0.29.0", "0.30.0", "0.31.0", "0.32.0", "0.33.0",
]  # fmt: skip
"""The 36 final releases from 0.10.2 to 0.33.0."""

CANDIDATE = "--- the hunk expects\n+++ line 7 holds\n-old\n+new ``` `|`\n"


def patch(
    name: str = "fix.patch",
    verdict: Verdict = Verdict.EXACT,
    *,
    review: tuple[str, ...] = (),
    blocked_by: tuple[str, ...] = (),
    since: str | None = None,
    path: str = "vllm/a.py",
    reason: str = "",
    candidate: str = "",
    renames: tuple[Rename, ...] = (),
) -> PatchAnswer:
    """A patch of two hunks in one file, the second of them with the verdict."""
    placed = verdict in (Verdict.EXACT, Verdict.OFFSET)
    hunks = (
        HunkAnswer(path, 1, Verdict.EXACT, 3, 0, "Engine.start"),
        HunkAnswer(
            path,
            2,
            verdict,
            40 if placed else None,
            5 if verdict is Verdict.OFFSET else 0 if placed else None,
            "Engine.step",
            reason,
            candidate,
            review,
            since,
        ),
    )
    file = FileAnswer(path, verdict, hunks, renames=renames)
    return PatchAnswer(
        name, verdict, (file,), blocked_by=blocked_by, since=since, base="0.32.0", notes=()
    )


def release(
    version: str = "0.33.0",
    *patches: PatchAnswer,
    supported: bool = True,
    series: str | None = "vllm-0.33",
    error: str = "",
    overlaps: tuple[Overlap, ...] = (),
    notes: tuple[str, ...] = (),
) -> ReleaseAnswer:
    """One release that has the answer of these patches."""
    return ReleaseAnswer(
        version,
        f"vllm {version} (vllm-{version}-cp38-abi3-manylinux_2_28_x86_64.whl)",
        "2026-11-02",
        series,
        supported,
        patches,
        overlaps,
        error,
        notes,
    )


def every_kind() -> list[ReleaseAnswer]:
    """A release for each verdict, for a review, an error, an overlap, a note, an absent patch."""
    made = [
        release(
            f"0.{20 + at}.0", patch("one.patch", verdict, reason="it is so"), patch("two.patch")
        )
        for at, verdict in enumerate(Verdict)
    ]
    made += [
        release(
            "0.40.0",
            patch("one.patch", Verdict.OFFSET, review=("vllm/a.py:4 defines it twice",)),
            patch("two.patch", Verdict.BLOCKED, blocked_by=("one.patch",)),
        ),
        release("0.41.0", error="vllm 0.41.0: the index is out of reach. Try again later."),
        release(
            "0.42.0",
            patch(
                "one.patch",
                Verdict.MISSING,
                reason="there is no vllm/a.py",
                renames=(Rename("vllm/core/a.py", 91), Rename("vllm/b.py", 60)),
            ),
            overlaps=(Overlap("one.patch", "two.patch", "vllm/a.py", (4, 9)),),
            notes=("the base 0.32.0 cannot be read",),
            supported=False,
        ),
        release("0.43.0", patch("one.patch", Verdict.UPSTREAMED, since="0.42.0"), series=None),
        release("0.44.0", patch("one.patch", Verdict.DRIFTED, candidate=CANDIDATE)),
    ]
    return made
