"""The scratch repository: sealed, exact to the byte, the same everywhere."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from vllm_series.errors import VllmSeriesError
from vllm_series.workspace.repository import Commit, Scratch, begin_again, is_ours

AUTHOR = "Zoë <z@example.com>".encode()


def commit(files: dict[str, bytes], parent: int | None = None, message: bytes = b"m\n") -> Commit:
    shaped = {path: (text, "100644") for path, text in files.items()}
    return Commit(shaped, parent, message, AUTHOR, "1796083200 +0100")


def test_commits_are_the_same_wherever_they_are_made(tmp_path: Path) -> None:
    chain = [commit({"vllm/a.py": b"1\n"}), commit({"vllm/a.py": b"2\n"}, 0)]
    with Scratch(tmp_path / "one") as scratch:
        first = scratch.make(chain)
    with Scratch(tmp_path / "two") as scratch:
        assert scratch.make(chain) == first


@pytest.mark.parametrize(
    "text", [b"a\r\nb\n", b"\xff\xfe\0\n", b"", b"no end", b"$Id$\n", b"\tx \n"], ids=repr
)
def test_bytes_come_back_as_they_were_whatever_attributes_say(tmp_path: Path, text: bytes) -> None:
    files = {"vllm/a b\n\xe9.py": text, "vllm/.gitattributes": b"* text=auto eol=crlf ident\n"}
    with Scratch(tmp_path) as scratch:
        (made,) = scratch.make([commit(files)])
        scratch.reset(made)
        assert {path: scratch.read(made, path) for path in files} == files
        assert {path: (tmp_path / path).read_bytes() for path in files} == files
        assert not scratch.is_changed()
        assert scratch.work_tree() == scratch.tree_of(made)


def test_the_environment_is_put_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))
    with Scratch(tmp_path / "work") as scratch:
        assert "GIT_DIR" not in os.environ
        scratch.make([commit({"vllm/a.py": b""})])
    assert os.environ["GIT_DIR"] == str(tmp_path / "nowhere")


def test_a_stopped_rebase_tells_where_and_what(tmp_path: Path) -> None:
    base, ours, theirs = (f"1\n2\n{word}\n4\n5\n".encode() for word in ("3", "three", "III"))
    with Scratch(tmp_path) as scratch:
        made = scratch.make(
            [commit({"a": base}), commit({"a": ours}, 0), commit({"a": theirs}, 0, b"-theirs\n")]
        )
        scratch.reset(made[1])
        assert not scratch.rebase(made[1], made[0], made[2])
        assert scratch.stopped_at() == made[2]
        (open_file,) = scratch.unmerged()
        assert open_file.path == "a"
        sides = (open_file.base, open_file.ours, open_file.theirs)
        assert [scratch.blob(side or "") for side in sides] == [base, ours, theirs]
        scratch.reset(made[1])
        assert scratch.stopped_at() is None
        assert scratch.unmerged() == []
        assert (tmp_path / "a").read_bytes() == ours


def test_what_is_asked_of_a_row_of_commits_is_what_git_says(tmp_path: Path) -> None:
    with Scratch(tmp_path) as scratch:
        made = scratch.make(
            [
                commit({"a": b"1\n", "b": b"1\n"}),
                commit({"a": b"2\n", "b": b"1\n", "c": b"3\n"}, 0),
                commit({"c": b"3\n"}, 1),
            ]
        )
        assert scratch.since(made[0], made[2]) == made[1:]
        known = [(scratch.files(one), scratch.tree_of(one)) for one in made]
        changed = [scratch.changed(made[at], made[at + 1]) for at in (0, 1)]
    assert changed == [["a", "c"], ["a", "b"]]
    with Scratch(tmp_path) as scratch:
        assert [(scratch.files(one), scratch.tree_of(one)) for one in made] == known


def test_a_failing_git_names_the_folder_and_the_way_out(tmp_path: Path) -> None:
    with Scratch(tmp_path) as scratch, pytest.raises(VllmSeriesError, match="--abort"):
        scratch.files("0" * 40)


def test_a_repository_is_known_as_ours_and_can_be_made_anew(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    assert not is_ours(tmp_path / "theirs")
    place = tmp_path / "work"
    with Scratch(place) as scratch:
        scratch.reset(scratch.make([commit({"vllm/a.py": b"1\n"})])[0])
    (place / ".git" / "state.json").write_text("{}")
    begin_again(place, frozenset(["state.json"]))
    assert is_ours(place)
    assert not is_ours(place, whole=True)
    assert sorted(entry.name for entry in place.iterdir()) == [".git"]
    with Scratch(place) as scratch:
        scratch.make([commit({"vllm/a.py": b"1\n"})])
    assert (place / ".git" / "state.json").read_text() == "{}"


def test_a_commit_takes_over_any_date_of_another(tmp_path: Path) -> None:
    # A patch without a readable date is one of the first second, and may have to be made again.
    old = Commit({"vllm/a.py": (b"1\n", "100644")}, None, b"m\n", AUTHOR, "0 +0000")
    with Scratch(tmp_path) as scratch:
        (made,) = scratch.make([old])
        again = scratch.commit(scratch.tree_of(made), made, made)
        scratch.reset(again)
        assert scratch.read(again, "vllm/a.py") == b"1\n"
