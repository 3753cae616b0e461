"""What a missing file may have become, beside git's own similarity index."""

from __future__ import annotations

import re
import subprocess
from hashlib import sha256
from pathlib import Path

import pytest

from vllm_series.checking.renames import READ, kept, likely, renames


def listing(**digests: str) -> dict[str, str]:
    return {f"vllm/{path.replace('__', '/')}.py": digest for path, digest in digests.items()}


def test_the_same_bytes_under_a_new_name_are_all_that_is_read() -> None:
    before = listing(a="1", b="2")
    after = listing(b="2", sub__c="1", a2="3")
    assert likely("vllm/a.py", after, before) == ("vllm/sub/c.py",)


def test_a_copy_that_was_there_before_is_no_rename() -> None:
    before = listing(a="1", twin="1")
    after = listing(twin="1", new="3")
    assert likely("vllm/a.py", after, before) == ("vllm/new.py",)


def test_new_files_of_a_like_name_and_folder_come_first() -> None:
    before = {"vllm/core/scheduler.py": "1", "vllm/zz/scheduler.py": "7"}
    after = {
        "vllm/engine/loader.py": "2",
        "vllm/v1/core/scheduler.py": "3",
        "vllm/core/scheduling.py": "4",
        "vllm/zz/scheduler.py": "8",
    }
    assert likely("vllm/core/scheduler.py", after, before)[:2] == (
        "vllm/v1/core/scheduler.py",
        "vllm/core/scheduling.py",
    )


def test_no_more_files_are_read_than_the_bound() -> None:
    after = {f"vllm/new{number}.py": str(number) for number in range(100)}
    assert len(likely("vllm/gone.py", after, {"vllm/gone.py": "x"})) == READ
    assert len(likely("vllm/gone.py", after, None)) == READ


def test_files_of_another_kind_are_no_candidates() -> None:
    assert likely("vllm/a.py", {"vllm/a.json": "1"}, {"vllm/a.py": "2"}) == ()


def git_similarity(folder: Path, old: bytes, new: bytes) -> int:
    """What `git diff -M` says of a rename, in per cent."""

    def run(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=folder, capture_output=True, check=True)
        return done.stdout.decode()

    run("init", "-q")
    (folder / "old.py").write_bytes(old)
    run("add", "old.py")
    tree = run("write-tree").strip()
    (folder / "old.py").unlink()
    (folder / "new.py").write_bytes(new)
    run("add", "-A")
    shown = run("diff", "--cached", "-M20%", "--raw", tree)
    found = re.search(r" R(\d+)\t", shown)
    assert found, shown
    return int(found[1])


@pytest.mark.parametrize("cut", [0, 1, 20, 60])
def test_similarity_is_git_s(tmp_path: Path, cut: int) -> None:
    lines = [b"%s\n" % sha256(b"%d" % number).hexdigest()[:40].encode() for number in range(100)]
    old = b"".join(lines)
    new = b"".join([*lines[: 100 - cut], *(line.upper() for line in lines[100 - cut :])])
    ours = renames(old, {"new": new})[0].similarity
    assert ours == git_similarity(tmp_path, old, new)


def test_at_most_three_are_named_the_most_similar_first() -> None:
    wanted = b"".join(b"line %d\n" % number for number in range(10))
    texts = {
        f"vllm/{n}.py": b"".join(b"line %d\n" % number for number in range(n)) + b"other\n" * 2
        for n in (0, 3, 5, 7, 9)
    }
    assert [one.path for one in renames(wanted, texts)] == ["vllm/9.py", "vllm/7.py", "vllm/5.py"]
    assert renames(wanted, {"vllm/x.py": b"nothing\n" * 9}) == ()


def test_without_the_base_the_lines_that_a_patch_shows_are_looked_for() -> None:
    shown = [b"def f():\n", b"    return 1\n", b"\n"]
    texts = {"vllm/all.py": b"x = 1\n" * 50 + b"".join(shown), "vllm/none.py": b"y = 2\n"}
    assert [(one.path, one.similarity) for one in kept(shown, texts)] == [("vllm/all.py", 100)]
