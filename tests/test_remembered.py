"""Answers kept by what they depend on."""

from __future__ import annotations

from pathlib import Path

from vllm_series.checking.answers import FileAnswer, HunkAnswer, Overlap, PatchAnswer, Rename
from vllm_series.checking.remembered import Answers, digest, packed, unpacked
from vllm_series.upstream.store import Store
from vllm_series.verdicts import Verdict

HUNK = HunkAnswer(
    *("vllm/a.py", 2, Verdict.OFFSET, 7, -1, "A.f", "why", "-x\n+y"), ("one", "two"), "0.31.0"
)
FILE = FileAnswer(
    *("vllm/a.py", Verdict.MISSING, (HUNK, HUNK), "gone"),
    *((Rename("vllm/b.py", 80),), ("three",), "0.32.0"),
)
PATCH = PatchAnswer(
    *("p.patch", Verdict.BLOCKED, (FILE,), "why", ("a.patch",), ("four",), "0.33.0", "0.30.0"),
    ("note",),
)
OVERLAP = Overlap("a", "b", "vllm/a.py", (3, 4))


def test_every_field_of_an_answer_comes_back(tmp_path: Path) -> None:
    for answer in (HUNK, FILE, PATCH):
        for name in answer.__slots__:
            assert getattr(answer, name) not in ("", (), None), f"{name} is not tried"
    answers = Answers(Store(tmp_path))
    key = answers.key("a", 1)
    answers.put(key, packed([PATCH], [OVERLAP]))
    assert unpacked(Answers(Store(tmp_path)).get(key)) == ((PATCH,), (OVERLAP,))


def test_without_a_store_answers_last_for_the_run() -> None:
    answers = Answers(None)
    answers.put(answers.key("a"), [1])
    assert answers.get(answers.key("a")) == [1]
    assert Answers(None).get(answers.key("a")) is None


def test_a_key_is_of_every_part_and_of_the_code_that_judges() -> None:
    keys = {digest("a"), digest("a", ""), digest("a", None), digest(["a"]), digest("a", 1)}
    assert len(keys) == 5
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    assert Answers(None).key("a") != digest("a")
    assert Answers(None).key("a") == Answers(None).key("a")
    assert digest("\udc80") != digest("\udc81")


def test_a_damaged_answer_is_none(tmp_path: Path) -> None:
    answers = Answers(Store(tmp_path))
    Store(tmp_path).put("answers", answers.key("a"), b"{not json")
    assert answers.get(answers.key("a")) is None
