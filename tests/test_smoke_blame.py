"""Which patch is to blame, by runs that are made up: what a search asks for, and what it finds."""

from __future__ import annotations

from vllm_series.smoke.blame import blamed, patched_frame
from vllm_series.smoke.results import Check, Decode, Difference, Failure, Frame, Mode, Outcome, Row

NAMES = ("a.patch", "b.patch", "c.patch", "d.patch", "e.patch")
DIFFERENCE = Difference(2, 7, 11, 12, 0.5)
FAILED = Row(
    Decode("ngram", Mode.ON),
    Outcome.FAILED,
    (Check("tokens as stock", Outcome.FAILED, "other", difference=DIFFERENCE),),
    "tokens as stock: other",
)
PASSED = Row(Decode("ngram", Mode.ON), Outcome.PASSED)


def test_the_first_patch_with_which_it_fails_is_named_after_few_runs() -> None:
    for culprit in range(1, len(NAMES) + 1):
        asked: list[int] = []

        def run(number: int, culprit: int = culprit, asked: list[int] = asked) -> Row:
            asked.append(number)
            return FAILED if number >= culprit else PASSED

        found = blamed(FAILED, NAMES, run, lambda _row, number: Frame("vllm/a.py", number, "step"))
        assert found is not None
        # Lines are those of the code that ran, without the patches behind.
        assert found.frame == Frame("vllm/a.py", culprit, "step")
        assert found.patch == NAMES[culprit - 1]
        assert (found.difference, found.scenario, found.mode) == (DIFFERENCE, "ngram", Mode.ON)
        assert found.runs == len(asked) <= 3


def test_what_stock_fails_at_too_is_no_step_towards_a_patch() -> None:
    """The first patch mends stock; without it a try fails as stock does."""
    stock_fails = Row(Decode("ngram", Mode.ON), Outcome.STOCK_FAILED)

    def run(number: int) -> Row:
        return FAILED if number >= 4 else PASSED if number >= 2 else stock_fails

    found = blamed(FAILED, NAMES, run, lambda _row, _number: None)
    assert found is not None
    assert found.patch == "d.patch"


def test_a_crash_shows_the_innermost_line_that_patches_have_written() -> None:
    frames = (
        Frame("/site/vllm/a.py", 3, "outer"),
        Frame("/site/vllm/b.py", 9, "near"),
        Frame("/site/torch/c.py", 1, "inner"),
    )
    crashed = Decode("ngram", Mode.ON, failure=Failure("RuntimeError", "no", frames, ()))

    def relative(file: str) -> str | None:
        return file.removeprefix("/site/") if file.startswith("/site/vllm") else None

    written = patched_frame(crashed, relative, {"vllm/a.py": {3}, "vllm/b.py": {1}})
    assert written == Frame("vllm/a.py", 3, "outer")
    assert patched_frame(crashed, relative, {"vllm/b.py": {1}}) == Frame("vllm/b.py", 9, "near")
    assert patched_frame(crashed, relative, {}) is None
