"""Random texts and random damage: the round trip to the byte, and git apply as the judge.

Texts hold what trips line readers: lone carriage returns, form feeds, other separators, bytes that
are no UTF-8, lines that look like parts of a diff, no newline at the end.
"""

from __future__ import annotations

from functools import cache

from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from diffs import git_apply, git_diff, git_says, ours, ours_or_refusal, ours_reversed
from vllm_series.diffs.parse import parse
from vllm_series.errors import PatchFormatError
from vllm_series.patch import Hunk
from vllm_series.placement import blob_id

PATH = "vllm/x.py"


def examples(count: int) -> settings:
    return settings(
        max_examples=count,
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )


line = st.sampled_from(
    [
        b"", b"a", b"b", b"c", b"    return x", b"\r", b"a\rb", b"a\r", b"\x0c", b"a\x0cb", b"\x0b",
        b"\xc2\x85", b"\xe2\x80\xa8", b"caf\xe9", b"\xff\xfe", b" ", b"\t", b"-- ", b"--", b"---",
        b"--- a/x", b"+++ b/x", b"@@ -1 +1 @@", b"diff --git a/x b/x", b"\\ No newline", b"+", b"-",
        b"index 1234567..89abcde 100644", b"From: a", b"Index: x", b"GIT binary patch", b"\x1b[1m",
    ]
)  # fmt: skip
text = st.builds(
    lambda lines, last: b"".join(one + b"\n" for one in lines) + last,
    st.lists(line, max_size=30),
    st.one_of(st.just(b""), line),
)


def edited(draw: st.DrawFn, before: bytes) -> bytes:
    """A text that shares most of its lines with `before`."""
    lines = before.split(b"\n")
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(lines)))
        lines[at : at + draw(st.integers(0, 3))] = draw(st.lists(line, max_size=3))
    return b"\n".join(lines)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[bytes, bytes]:
    before = draw(text)
    return before, edited(draw, before)


@examples(60)
@given(pairs(), st.sampled_from([0, 1, 3, 10]))
def test_any_diff_of_git_leads_there_and_back(pair: tuple[bytes, bytes], context: int) -> None:
    before, after = pair
    assume(before != after)
    diff = git_diff({PATH: before}, {PATH: after}, f"-U{context}", "--full-index", "--text")
    assert ours({PATH: before}, diff) == {PATH: after}
    assert ours_reversed({PATH: after}, diff) == {PATH: before}
    hunks = parse(diff, "p").files[0].hunks
    assert b"".join(hunk.to_bytes() for hunk in hunks) == diff[diff.index(b"\n@@ ") + 1 :]


@examples(300)
@given(pairs(), st.integers(0, 3))
def test_any_diff_of_our_own_leads_there_and_back(pair: tuple[bytes, bytes], context: int) -> None:
    before, after = pair
    assume(before != after)
    diff = whole(before, after, context)
    assert ours({PATH: before}, diff) == {PATH: after}
    assert ours_reversed({PATH: after}, diff) == {PATH: before}


def whole(before: bytes, after: bytes, context: int) -> bytes:
    """The plainest diff there is: one hunk, from the first line that differs to the last."""
    old, new = (one.split(b"\n") for one in (before, after))
    old, new = ([one + b"\n" for one in lines[:-1]] + lines[-1:] for lines in (old, new))
    old, new = ([one for one in lines if one] for lines in (old, new))
    head = 0
    while head < min(len(old), len(new)) and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    start = max(0, head - context)
    end = max(0, tail - context)
    above = old[start:head]
    below = old[len(old) - tail : len(old) - end]
    gone, come = old[head : len(old) - tail], new[head : len(new) - tail]
    lines = (*above, *gone, *come, *below)
    ops = b" " * len(above) + b"-" * len(gone) + b"+" * len(come) + b" " * len(below)
    counts = len(above) + len(gone) + len(below), len(above) + len(come) + len(below)
    old_start, new_start = (start + 1 if count else start for count in counts)
    hunk = Hunk(old_start, counts[0], new_start, counts[1], b"", ops, lines, 1)
    return (
        b"diff --git a/vllm/x.py b/vllm/x.py\n"
        b"index %s..%s 100644\n--- a/vllm/x.py\n+++ b/vllm/x.py\n"
        % (blob_id(before).encode(), blob_id(after).encode())
    ) + hunk.to_bytes()


# -- damage --------------------------------------------------------------------------------------

BEFORE = {
    "vllm/x.py": b"".join(b"line %d\n" % n for n in range(30)),
    "vllm/y y.py": b"a\n\nb",
    "vllm/gone.py": b"gone\n",
    "vllm/old.py": b"".join(b"old %d\n" % n for n in range(20)),
}
AFTER = {
    "vllm/x.py": BEFORE["vllm/x.py"].replace(b"line 3\n", b"LINE 3\n").replace(b"line 25\n", b""),
    "vllm/y y.py": b"a\n\nc\nd",
    "vllm/made.py": b"made\n",
    "vllm/empty.py": b"",
    "vllm/new.py": BEFORE["vllm/old.py"].replace(b"old 7\n", b"OLD 7\n"),
}


@cache
def valid() -> bytes:
    return git_diff(BEFORE, AFTER, "-M")


@st.composite
def damage(draw: st.DrawFn) -> tuple[str, int, int, bytes]:
    return (
        draw(st.sampled_from(["drop", "double", "swap", "alter", "insert", "cut", "byte", "join"])),
        draw(st.integers(0, 10**6)),
        draw(st.integers(0, 10**6)),
        draw(line),
    )


def damaged(patch: bytes, what: str, where: int, other: int, new: bytes) -> bytes:
    if what in ("cut", "byte"):
        at = where % len(patch)
        return patch[:at] if what == "cut" else patch[:at] + new[:1] + patch[at + 1 :]
    lines = patch.splitlines(keepends=True)
    at, to = where % len(lines), other % len(lines)
    match what:
        case "drop":
            del lines[at]
        case "double":
            lines.insert(at, lines[at])
        case "swap":
            lines[at], lines[to] = lines[to], lines[at]
        case "alter":
            lines[at] = lines[at][:1] + new + b"\n"
        case "insert":
            lines.insert(at, new + b"\n")
        case "join":
            lines[at] = lines[at].rstrip(b"\n")
    return b"".join(lines)


@examples(500)
@given(st.lists(damage(), min_size=1, max_size=2))
@example([("drop", 0, 0, b"")])
@example([("drop", 4, 0, b"")])
@example([("cut", 1051, 0, b"")])
@example([("cut", 1052, 0, b"")])
@example([("cut", 1053, 0, b"")])
def test_damaged_patch_is_refused_or_means_what_git_says(
    steps: list[tuple[str, int, int, bytes]],
) -> None:
    patch = valid()
    for step in steps:
        patch = damaged(patch, *step) or b"\n"
    result = ours_or_refusal(BEFORE, patch)
    if result is None:
        return
    gits = git_apply(BEFORE, patch)
    if gits is not None and "dev/null" in gits:
        # Without its `deleted file mode` line git takes /dev/null for a file of the tree.
        del gits["dev/null"]
    if gits is not None:
        assert result == gits
        return
    said = git_says(BEFORE, patch)
    assert "corrupt" not in said, said
    assert "garbage" not in said, said


@examples(300)
@given(st.binary(max_size=300))
def test_random_bytes_never_crash_the_reader(noise: bytes) -> None:
    for patch in (noise, valid() + noise, noise + valid(), b"From: a\n\n" + noise):
        line_of_refusal = 0
        try:
            parse(patch, "p")
        except PatchFormatError as error:
            line_of_refusal = error.line
        assert 0 <= line_of_refusal <= patch.count(b"\n") + 1
