"""The command export, held against git and quilt; what it writes, import takes back."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from commandline import ADDED, SCHEDULER, copied, everything, run

Oracle = Callable[[str], str]
WHO = ("--author", "A Tester <tester@example.com>")


@pytest.fixture
def three(series: Path, installed: Path, tmp_path: Path) -> Path:
    """The 0.33 line with two more patches: one on top of dynwidth's own file, and one that makes a
    file with a name and a text that are not ASCII, deletes one and renames one."""
    site = copied(installed, tmp_path / "edited")
    assert run("apply", "--target", site, "--series-dir", series, "--series", "0.33").code == 0
    place = site / ADDED
    place.write_text(place.read_text().replace("\nimport ", "\n# one more\nimport ", 1))
    source = ("--base", "0.33.0", "--source", f"dir:{installed}", "--series-dir", series)
    words = (*source, *WHO, "-m", "second: x", "-m", "Why.")
    told = run("new", "second", ADDED, "--target", site, *words)
    assert told.code == 0, told.err
    site = copied(installed, tmp_path / "third")
    folder = site / "vllm/v1/core/sched"
    (folder / "größe.py").write_text("GRÖSSE = 1\n", encoding="utf-8")
    (folder / "async_scheduler.py").rename(folder / "later_scheduler.py")
    (folder / "output.py").unlink()
    who = ("--author", "Ä Tester <a@example.com>")
    words = (*source, *who, "-m", "third: größer", "-m", "Weil es so größer ist.")
    told = run("new", "third", "vllm/v1/core/sched", "--target", site, *words)
    assert told.code == 0, told.err
    return series


@pytest.fixture
def patched(three: Path, installed: Path, tmp_path: Path) -> dict[str, bytes]:
    """What the three patches make of the package."""
    site = copied(installed, tmp_path / "wanted")
    assert run("apply", "--target", site, "--series-dir", three, "--series", "0.33").code == 0
    return package(site)


@pytest.fixture
def checkout(installed: Path, tmp_path: Path, oracle: Oracle) -> Path:
    """A checkout of vLLM at 0.33.0, of a few files."""
    repo = copied(installed, tmp_path / "checkout")
    for words in (
        ("init", "-q"),
        ("add", "vllm"),
        ("commit", "-qm", "release"),
        ("tag", "v0.33.0"),
    ):
        git(oracle, repo, *words)
    return repo


def git(oracle: Oracle, repo: Path, *words: str) -> str:
    done = subprocess.run([oracle("git"), *words], cwd=repo, capture_output=True, check=True)
    return done.stdout.decode()


def package(root: Path) -> dict[str, bytes]:
    return {
        path: data for path, data in everything(root / "vllm").items() if not path.endswith(".pyc")
    }


def export(series: Path, *words: str | Path) -> str:
    told = run("export", "--series-dir", series, "--series", "vllm-0.33", *words)
    assert told.code == 0, told.err
    return told.out


def back(series: Path, installed: Path, *words: str | Path) -> dict[str, bytes]:
    """The folder of the line that import makes of what was exported."""
    fresh = series.parent / "fresh"
    fresh.mkdir()
    told = run("import", *words, "--source", f"dir:{installed}", "--series-dir", fresh)
    assert told.code == 0, told.err
    return everything(fresh / "vllm-0.33")


def test_quilt_pushes_the_folder_and_import_takes_it_back(
    three: Path, patched: dict[str, bytes], installed: Path, tmp_path: Path, oracle: Oracle
) -> None:
    site = copied(installed, tmp_path / "quilt")
    export(three, "--quilt", site / "patches")
    environ = {"PATH": "/usr/bin:/bin", "QUILT_PATCHES": "patches"}
    words = (oracle("quilt"), "--quiltrc", "-", "push", "-a", "--fuzz=0")
    subprocess.run(words, cwd=site, env=environ, check=True, capture_output=True)
    assert package(site) == patched
    assert back(three, installed, site / "patches") == everything(three / "vllm-0.33")


def test_git_am_takes_the_mailbox_and_import_takes_it_back(
    three: Path,
    patched: dict[str, bytes],
    installed: Path,
    checkout: Path,
    tmp_path: Path,
    oracle: Oracle,
) -> None:
    box = tmp_path / "all.mbox"
    assert export(three, "--mbox", box) == f"{box}\n"
    git(oracle, checkout, "am", "-q", str(box))
    assert package(checkout) == patched
    subjects = git(oracle, checkout, "log", "--reverse", "--format=%s", "v0.33.0..").splitlines()
    assert subjects[1:] == ["second: x", "third: größer"]
    assert back(three, installed, box) == everything(three / "vllm-0.33")


def test_a_branch_is_made_beside_the_work_tree_and_import_takes_it_back(
    three: Path,
    patched: dict[str, bytes],
    installed: Path,
    checkout: Path,
    tmp_path: Path,
    oracle: Oracle,
) -> None:
    hook = checkout / ".git/hooks/reference-transaction"
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/hooked\n")
    hook.chmod(0o755)
    (checkout / SCHEDULER).write_text("edited by hand\n")
    (checkout / "vllm/untracked.py").write_text("mine\n")
    before = (package(checkout), git(oracle, checkout, "status", "--short"))
    told = export(three, "--git", f"{checkout}@mine")
    assert (package(checkout), git(oracle, checkout, "status", "--short")) == before
    assert not (tmp_path / "hooked").exists()
    assert told.split() == ["mine", git(oracle, checkout, "rev-parse", "mine").strip()]
    refs = git(oracle, checkout, "for-each-ref", "--format=%(refname)").split()
    assert sorted(refs)[1:] == ["refs/heads/mine", "refs/tags/v0.33.0"]
    assert export(three, "--git", f"{checkout}@mine") == told
    assert back(three, installed, f"git:{checkout}", "v0.33.0..mine") == everything(
        three / "vllm-0.33"
    )
    hook.unlink()
    git(oracle, checkout, "checkout", "-qf", "mine")
    (checkout / "vllm/untracked.py").unlink()
    assert package(checkout) == patched
    git(oracle, checkout, "fsck", "--strict")


def test_a_branch_of_that_name_is_not_touched(three: Path, checkout: Path, oracle: Oracle) -> None:
    git(oracle, checkout, "branch", "mine")
    told = run("export", "--series-dir", three, "--series", "0.33", "--git", f"{checkout}@mine")
    assert (told.code, told.out) == (1, "")
    assert "has a branch mine already" in told.err
    assert len(set(git(oracle, checkout, "rev-parse", "mine", "v0.33.0").split())) == 1


def test_a_commit_with_other_files_is_refused(series: Path, checkout: Path, oracle: Oracle) -> None:
    (checkout / SCHEDULER).write_text("# another first line\n" + (checkout / SCHEDULER).read_text())
    git(oracle, checkout, "commit", "-qam", "later")
    words = ("export", "--series-dir", series, "--series", "0.33", "--git", f"{checkout}@mine")
    told = run(*words, "--onto", "HEAD")
    assert (told.code, told.out) == (1, "")
    assert f"{SCHEDULER} of HEAD is not the file that it was made on" in told.err
    assert git(oracle, checkout, "branch", "--list", "mine") == ""
    assert run(*words).code == 0


def test_one_diff_of_all_is_what_git_applies(
    three: Path, patched: dict[str, bytes], installed: Path, checkout: Path, tmp_path: Path,
    oracle: Oracle,
) -> None:  # fmt: skip
    text = export(three, "--diff", "-", "--source", f"dir:{installed}")
    assert text.startswith("diff --git ")
    assert text.count(f"+++ b/{ADDED}\n") == 1
    diff = tmp_path / "all.diff"
    diff.write_text(text)
    git(oracle, checkout, "apply", str(diff))
    assert package(checkout) == patched
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    told = run("import", diff, "--base", "0.33.0", "--source", f"dir:{installed}",
               "--series-dir", fresh, *WHO, "-m", "all: x", "-m", "Why.")  # fmt: skip
    assert told.code == 0, told.err
    site = copied(installed, tmp_path / "once")
    assert run("apply", "--target", site, "--series-dir", fresh).code == 0
    assert package(site) == patched


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((), 2, "say where to"),
        (("--mbox", "-", "--diff", "-"), 2, "say where to"),
        (("--mbox", "-", "--onto", "HEAD"), 2, "--onto is for --git"),
        (("--mbox", "-", "--json"), 2, "stdout takes the patches or the JSON"),
        (("nothing", "--mbox", "-"), 1, "no patch nothing in vllm-0.33"),
        (("--quilt", "."), 2, "is there already"),
    ],
)
def test_words_that_cannot_be_meant_are_refused(
    words: tuple[str, ...], code: int, said: str, series: Path
) -> None:
    told = run("export", "--series-dir", series, "--series", "0.33", *words)
    assert (told.code, told.out) == (code, "")
    assert said in told.err


def test_of_several_series_one_must_be_named(series: Path) -> None:
    told = run("export", "--series-dir", series, "--mbox", "-")
    assert told.code == 2
    assert "vllm-0.32, vllm-0.33" in told.err


def test_json_tells_what_was_written(series: Path, tmp_path: Path) -> None:
    told = run("export", "--series-dir", series, "--series", "0.33", "--json", "--mbox",
               tmp_path / "x.mbox")  # fmt: skip
    value = told.json()
    assert (value["form"], value["patches"]) == ("mbox", ["dynwidth.patch"])
    assert value["path"] == str(tmp_path / "x.mbox")
