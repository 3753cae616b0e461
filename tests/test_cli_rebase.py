"""`vllm-series rebase`: what is carried, left out, opened for a person, and written."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from commandline import SERIES, everything, run
from rebased import Project, project

OF_ONE_LINE = "cpu-rejection-sampler.patch"
"""A patch that only the line has whose fault it mends."""
MODEL = "vllm/model.py"
OLD = '''"""A model."""

import os


def load(path):
    handle = open(path)
    data = handle.read()
    return data


def save(path, data):
    handle = open(path, "w")
    handle.write(data)
    return handle


def name():
    return os.name
'''
PATCHED = OLD.replace("    data = handle.read()\n", "    data = handle.read().strip()\n")


@pytest.fixture
def made(tmp_path: Path) -> Project:
    """Releases 0.1.0 and 0.2.0, where 0.2.0 is set by each test; a series for 0.1."""
    work = project(tmp_path)
    work.release("0.1.0", {MODEL: OLD})
    work.line("0.1.0", {"strip.patch": ({MODEL: OLD}, {MODEL: PATCHED})})
    return work


def patch_text(work: Project, line: str, name: str = "strip.patch") -> str:
    return (work.series / f"vllm-{line}" / name).read_text()


def sealed_env(home: Path) -> dict[str, str]:
    return {**os.environ, "HOME": str(home), "GIT_CONFIG_GLOBAL": str(home / ".gitconfig")}


# -- real releases ------------------------------------------------------------------------------


def test_a_series_carried_back_over_one_line_is_the_one_made_by_hand(tmp_path: Path) -> None:
    series = tmp_path / "series"
    shutil.copytree(SERIES / "vllm-0.33", series / "vllm-0.33")
    ran = run("rebase", "0.32.0", "--no-tests", VLLM_SERIES_DIR=str(series))
    assert ran.code == 0, ran.err
    assert "dynwidth.patch  offset" in ran.out
    assert everything(series / "vllm-0.32") == everything(SERIES / "vllm-0.32")


def test_what_is_there_already_is_left_alone(tmp_path: Path) -> None:
    series = tmp_path / "series"
    shutil.copytree(SERIES, series)
    before = everything(series)
    ran = run("rebase", "0.32.0", "--from", "0.33", "--no-tests", VLLM_SERIES_DIR=str(series))
    assert ran.code == 0
    assert "nothing was changed" in ran.out
    assert everything(series) == before


def test_hunk_tests_of_the_project_are_run_before_a_result_is_taken(tmp_path: Path) -> None:
    series = tmp_path / "series"
    shutil.copytree(SERIES / "vllm-0.33", series / "vllm-0.33")
    tests = tmp_path / "tests" / "hunks"
    tests.mkdir(parents=True)
    (tests / "conftest.py").write_text(
        "def pytest_addoption(parser):\n    parser.addoption('--vllm-tree')\n"
    )
    test = tests / "test_dynwidth.py"
    test.write_text(
        "from pathlib import Path\n"
        "def test_it(pytestconfig):\n"
        "    tree = Path(pytestconfig.getoption('--vllm-tree'))\n"
        "    assert 'dynamic_width' in (tree / 'vllm/v1/core/sched/scheduler.py').read_text()\n"
        "    assert (tree / 'vllm/v1/request.py').is_file()\n"
        "    assert False, 'it does not hold'\n"
    )
    ran = run("rebase", "0.32.0", VLLM_SERIES_DIR=str(series))
    assert ran.code == 1
    assert "the hunk tests fail on vllm 0.32.0" in ran.out
    assert "it does not hold" in ran.out
    assert not (series / "vllm-0.32").exists()
    test.write_text(test.read_text().replace("    assert False, 'it does not hold'\n", ""))
    again = run("rebase", "--continue", VLLM_SERIES_DIR=str(series))
    assert again.code == 0, again.out + again.err
    assert everything(series / "vllm-0.32") == everything(SERIES / "vllm-0.32")


def test_many_lines_are_carried_each_from_its_neighbour(tmp_path: Path) -> None:
    series = tmp_path / "series"
    shutil.copytree(SERIES / "vllm-0.33", series / "vllm-0.33")
    ran = run(
        "rebase", "--releases", "0.30..0.32", "--no-tests", "--json", VLLM_SERIES_DIR=str(series)
    )
    assert ran.code == 0, ran.err
    value = json.loads(ran.out)
    assert [(one["from"], one["folder"]) for one in value["done"]] == [
        ("vllm-0.33", "vllm-0.32"),
        ("vllm-0.32", "vllm-0.31"),
        ("vllm-0.31", "vllm-0.30"),
    ]
    for line in ("0.30", "0.31", "0.32"):
        kept = everything(SERIES / f"vllm-{line}")
        if kept.pop(OF_ONE_LINE, None):
            kept["series"] = kept["series"].replace(f"{OF_ONE_LINE}\n".encode(), b"")
        assert everything(series / f"vllm-{line}") == kept


# -- verdicts -----------------------------------------------------------------------------------


def test_a_file_that_upstream_left_alone_is_clean(made: Project) -> None:
    made.release("0.2.0", {MODEL: OLD})
    ran = made.rebase("0.2.0")
    assert ran.code == 0, ran.err
    assert "strip.patch  clean" in ran.out
    assert patch_text(made, "0.2") == patch_text(made, "0.1").replace("0.1.0", "0.2.0")
    assert "- The series `vllm-0.2`, for vLLM 0.2.0, carried over from vLLM 0.1.0" in made.changelog
    assert "### Added" in made.changelog
    assert made.leftovers == []


def test_a_changed_neighbour_is_merged_and_shown_for_review(made: Project) -> None:
    new = OLD.replace('"""A model."""', '"""A better model."""').replace(
        "def load(path):", "def load(path, mode=None):"
    )
    made.release("0.2.0", {MODEL: new})
    ran = made.rebase("0.2.0")
    assert ran.code == 0, ran.out + ran.err
    assert "strip.patch  merged" in ran.out
    assert "strip.patch before" in ran.out
    assert " def load(path, mode=None):" in patch_text(made, "0.2")


def test_what_upstream_has_is_left_out_with_its_evidence(made: Project) -> None:
    made.release("0.2.0", {MODEL: PATCHED})
    ran = made.rebase("0.2.0", "--json")
    assert ran.code == 0, ran.err
    patch = json.loads(ran.out)["done"][0]["patches"][0]
    assert (patch["outcome"], patch["since"]) == ("upstreamed", "0.2.0")
    assert "hunk 1 stands in load since vllm 0.2.0" in patch["evidence"][0]
    assert not (made.series / "vllm-0.2").exists()
    told = " ".join(made.changelog.split())
    assert "No series for vLLM 0.2.0, since nothing of `vllm-0.1` is left there" in told
    assert "`strip.patch` (left out, upstream since 0.2.0)" in told


def test_a_series_says_what_it_left_out(tmp_path: Path) -> None:
    work = project(tmp_path)
    work.release("0.1.0", {MODEL: OLD})
    named = PATCHED.replace("return os.name", "return os.name.upper()")
    work.line(
        "0.1.0",
        {
            "strip.patch": ({MODEL: OLD}, {MODEL: PATCHED}),
            "upper.patch": ({MODEL: PATCHED}, {MODEL: named}),
        },
    )
    work.release("0.2.0", {MODEL: PATCHED})
    ran = work.rebase("0.2.0")
    assert ran.code == 0, ran.out + ran.err
    assert (work.series / "vllm-0.2" / "series").read_text() == (
        "# strip.patch: Applied-Upstream: 0.2.0\nupper.patch\n"
    )
    assert "`strip.patch` (left out, upstream since 0.2.0)" in " ".join(work.changelog.split())


def test_the_rest_of_a_patch_is_carried_where_upstream_has_a_part(tmp_path: Path) -> None:
    work = project(tmp_path)
    both = PATCHED.replace("return os.name", "return os.name.upper()")
    work.release("0.1.0", {MODEL: OLD})
    work.line("0.1.0", {"both.patch": ({MODEL: OLD}, {MODEL: both})})
    work.release("0.2.0", {MODEL: PATCHED.replace("A model", "Some model")})
    ran = work.rebase("0.2.0")
    assert ran.code == 0, ran.out + ran.err
    assert "both.patch  partly-upstreamed" in ran.out
    text = patch_text(work, "0.2", "both.patch")
    assert "os.name.upper()" in text
    assert ".strip()" not in text
    assert "Applied-Upstream: 0.2.0 (1 of 2 hunks)" in text


def test_a_renamed_file_is_followed(made: Project) -> None:
    made.release("0.2.0", {"vllm/models/base.py": OLD.replace("A model", "The model")})
    ran = made.rebase("0.2.0")
    assert ran.code == 0, ran.out + ran.err
    assert "+++ b/vllm/models/base.py" in patch_text(made, "0.2")


def test_a_merge_into_another_function_is_a_conflict(tmp_path: Path) -> None:
    """Upstream moved the lines to another function; git follows them without a word."""
    work = project(tmp_path)
    old = "def one():\n    a = 1\n    b = 2\n    c = 3\n    return a\n\n\ndef two():\n    pass\n"
    new = "def one():\n    pass\n\n\ndef two():\n    a = 1\n    b = 2\n    c = 3\n    return a\n"
    moved = (
        "def one():\n    pass\n\n\ndef two():\n"
        + old.partition("def one():\n")[2].partition("\n\n")[0]
    )
    assert new.startswith(moved.rstrip("\n"))
    work.release("0.1.0", {MODEL: old})
    work.line("0.1.0", {"b.patch": ({MODEL: old}, {MODEL: old.replace("b = 2", "b = 3")})})
    work.release("0.2.0", {MODEL: new})
    ran = work.rebase("0.2.0")
    assert ran.code == 1
    assert "b.patch  conflicted" in ran.out
    assert "one" in ran.out
    assert not (work.series / "vllm-0.2").exists()
    text = (work.workdir / MODEL).read_text()
    assert "<<<<<<< vllm 0.2.0" in text
    assert ">>>>>>> b.patch" in text


def test_a_result_that_does_not_compile_is_not_taken(tmp_path: Path) -> None:
    work = project(tmp_path)
    old = "async def one(f):\n    a = 1\n    b = 2\n    c = 3\n    d = 4\n    return a\n"
    patched = old.replace("    c = 3\n", "    await f(b)\n    c = 3\n")
    work.release("0.1.0", {MODEL: old})
    work.line("0.1.0", {"wait.patch": ({MODEL: old}, {MODEL: patched})})
    work.release("0.2.0", {MODEL: old.removeprefix("async ")})
    ran = work.rebase("0.2.0")
    assert ran.code == 1
    assert "vllm/model.py:4 does not compile" in ran.out
    assert not (work.series / "vllm-0.2").exists()
    (work.workdir / MODEL).write_text(
        old.removeprefix("async ").replace("    c = 3\n", "    f(b)\n    c = 3\n")
    )
    assert work.rebase("--continue").code == 0
    assert "+    f(b)\n" in patch_text(work, "0.2", "wait.patch")


def test_a_broken_contract_stops_the_patch_until_it_is_renewed(tmp_path: Path) -> None:
    work = project(tmp_path)
    work.release("0.1.0", {MODEL: OLD})
    work.line(
        "0.1.0",
        {"strip.patch": ({MODEL: OLD}, {MODEL: PATCHED})},
        Contract="vllm.model:save(path, data)",
    )
    new = OLD.replace("def save(path, data):", "def save(path, data, mode):")
    work.release("0.2.0", {MODEL: new})
    ran = work.rebase("0.2.0")
    assert ran.code == 1
    assert "Contract: vllm.model:save(path, data): save is (path, data, mode)" in ran.out
    again = work.rebase("--continue", "--renew-contracts")
    assert again.code == 0, again.out + again.err
    assert "Contract: vllm.model:save(path, data, mode)\n" in patch_text(work, "0.2")


# -- a person's part ----------------------------------------------------------------------------

CONFLICT = OLD.replace("    data = handle.read()\n", "    data = handle.read(1 << 20)\n")
RESOLVED = CONFLICT.replace("read(1 << 20)", "read(1 << 20).strip()")


def test_a_conflict_names_both_sides_and_is_resolved_by_an_editor(made: Project) -> None:
    made.release("0.2.0", {MODEL: CONFLICT})
    before = everything(made.series)
    ran = made.rebase("0.2.0")
    assert ran.code == 1
    assert "git's merge conflicts in vllm/model.py" in ran.out
    assert "upstream did this there:" in ran.out
    assert "+    data = handle.read(1 << 20)" in ran.out
    assert "the patch does this:" in ran.out
    assert "+    data = handle.read().strip()" in ran.out
    text = (made.workdir / MODEL).read_text()
    for label in ("<<<<<<< vllm 0.2.0\n", "||||||| vllm 0.1.0 (base)\n", ">>>>>>> strip.patch\n"):
        assert label in text
    early = made.rebase("--continue")
    assert early.code == 1
    assert "a marker of the conflict is still there" in early.err
    assert everything(made.series) == before
    (made.workdir / MODEL).write_text(RESOLVED)
    done = made.rebase("--continue")
    assert done.code == 0, done.out + done.err
    assert "resolved by hand" in done.out
    assert "+    data = handle.read(1 << 20).strip()" in patch_text(made, "0.2")


def test_a_conflict_is_resolved_with_git_mergetool(made: Project, tmp_path: Path) -> None:
    made.release("0.2.0", {MODEL: CONFLICT})
    made.rebase("0.2.0")
    resolved = tmp_path / "resolved.py"
    resolved.write_text(RESOLVED)
    words = ("-c", f'mergetool.it.cmd=cp "{resolved}" "$MERGED"', "mergetool", "-y", "-t", "it")
    env = sealed_env(tmp_path)
    subprocess.run(["git", *words], cwd=made.workdir, env=env, check=True, capture_output=True)
    ran = made.rebase("--continue")
    assert ran.code == 0, ran.out + ran.err
    assert "resolved by hand" in ran.out
    assert patch_text(made, "0.2").count("diff --git") == 1


def test_what_an_editor_leaves_beside_a_file_is_not_taken(made: Project) -> None:
    made.release("0.2.0", {MODEL: CONFLICT})
    made.rebase("0.2.0")
    (made.workdir / MODEL).write_text(RESOLVED)
    (made.workdir / "vllm" / "model.py~").write_text(OLD)
    (made.workdir / "vllm" / ".model.py.swp").write_bytes(b"b0VIM\0")
    ran = made.rebase("--continue")
    assert ran.code == 0, ran.out + ran.err
    assert patch_text(made, "0.2").count("diff --git") == 1


def test_a_commit_made_in_the_repository_is_taken_with_its_message(
    made: Project, tmp_path: Path
) -> None:
    made.release("0.2.0", {MODEL: CONFLICT})
    made.rebase("0.2.0")
    (made.workdir / MODEL).write_text(RESOLVED)
    message = subprocess.run(
        ["git", "log", "-1", "--format=%B", "series"],
        cwd=made.workdir, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    env = sealed_env(tmp_path)
    subprocess.run(["git", "add", MODEL], cwd=made.workdir, env=env, check=True)
    words = ["git", "commit", "-q", "-m", message.replace("It is better so.", "It must be so.")]
    subprocess.run(words, cwd=made.workdir, env=env, check=True)
    done = made.rebase("--continue")
    assert done.code == 0, done.out + done.err
    assert "It must be so." in patch_text(made, "0.2")


def test_git_rebase_continue_in_the_repository_is_as_good(made: Project, tmp_path: Path) -> None:
    made.release("0.2.0", {MODEL: CONFLICT})
    made.rebase("0.2.0")
    (made.workdir / MODEL).write_text(RESOLVED)
    env = {**sealed_env(tmp_path), "GIT_EDITOR": "true"}
    subprocess.run(["git", "add", MODEL], cwd=made.workdir, env=env, check=True)
    subprocess.run(["git", "rebase", "--continue"], cwd=made.workdir, env=env, check=True,
                   capture_output=True)  # fmt: skip
    done = made.rebase("--continue")
    assert done.code == 0, done.out + done.err
    assert "It is better so." in patch_text(made, "0.2")


def test_a_resolution_is_used_again_by_a_later_rebase(made: Project) -> None:
    made.release("0.2.0", {MODEL: CONFLICT})
    made.release("0.3.0", {MODEL: CONFLICT})
    made.rebase("0.2.0")
    (made.workdir / MODEL).write_text(RESOLVED)
    assert made.rebase("--continue").code == 0
    assert list((made.series / ".rerere").iterdir())
    ran = made.rebase("0.3.0", "--from", "0.1")
    assert ran.code == 0, ran.out + ran.err
    assert "conflicted  resolved as before" in ran.out


def test_skip_leaves_the_patch_out_and_says_so(made: Project) -> None:
    made.release("0.2.0", {MODEL: CONFLICT})
    made.rebase("0.2.0")
    ran = made.rebase("--skip")
    assert ran.code == 0, ran.err
    assert "skipped" in ran.out
    assert not (made.series / "vllm-0.2").exists()


def test_abort_leaves_the_series_as_it_was(made: Project) -> None:
    made.release("0.2.0", {MODEL: CONFLICT})
    before = everything(made.series.parent)
    made.rebase("0.2.0")
    work = made.workdir
    assert made.rebase("--abort").code == 0
    assert everything(made.series.parent) == before
    assert not work.exists()
    assert made.rebase("--abort").code == 2
    assert made.leftovers == []


def test_only_one_rebase_of_a_series_is_open(made: Project) -> None:
    made.release("0.2.0", {MODEL: CONFLICT})
    made.rebase("0.2.0")
    ran = made.rebase("0.2.0")
    assert ran.code == 2
    assert "is open in" in ran.err
    assert made.rebase("--status").out.startswith("vllm-0.2: vllm 0.1.0 -> 0.2.0")


def test_a_file_that_the_release_has_not_needs_a_decision(made: Project, tmp_path: Path) -> None:
    made.release("0.2.0", {"vllm/other.py": "X = 1\n"})
    ran = made.rebase("0.2.0")
    assert ran.code == 1
    assert "does not have vllm/model.py" in ran.out
    assert made.rebase("--continue").code == 1
    env = sealed_env(tmp_path)
    subprocess.run(["git", "rm", "-q", MODEL], cwd=made.workdir, env=env, check=True)
    ran = made.rebase("--continue")
    assert ran.code == 0, ran.out + ran.err
    assert "nothing of it was left" in ran.out


def test_a_file_that_a_patch_renames_and_the_release_has_not_is_named_as_it_was(
    tmp_path: Path,
) -> None:
    work = project(tmp_path)
    work.release("0.1.0", {MODEL: OLD})
    work.release("0.2.0", {"vllm/other.py": "X = 1\n"})
    work.line("0.1.0", {"rename.patch": ({MODEL: OLD}, {"vllm/renamed.py": OLD})})
    assert "rename from vllm/model.py" in patch_text(work, "0.1", "rename.patch")
    ran = work.rebase("0.2.0")
    assert ran.code == 1
    assert "vllm 0.2.0 does not have vllm/model.py" in ran.out


# -- a refused result ---------------------------------------------------------------------------

TEST = (
    "from pathlib import Path\n\n\n"
    "def test_it(pytestconfig):\n"
    "    tree = Path(pytestconfig.getoption('--vllm-tree'))\n"
    "    text = (tree / 'vllm/model.py').read_text()\n"
    "    {}\n"
)
WANTED = PATCHED.replace(".strip()", ".strip().lower()")


def hunk_test(work: Project, body: str) -> None:
    """The project's only hunk test: what must be true of the `text` of the model."""
    folder = work.series.parent / "tests" / "hunks"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "conftest.py").write_text(
        "def pytest_addoption(parser):\n    parser.addoption('--vllm-tree')\n"
    )
    (folder / "test_model.py").write_text(TEST.format(body))


def git(work: Project, home: Path, *words: str) -> None:
    subprocess.run(
        ["git", "-c", "user.name=P", "-c", "user.email=p@example.com", *words],
        cwd=work.workdir, env=sealed_env(home), check=True, capture_output=True,
    )  # fmt: skip


@pytest.fixture
def refused(made: Project) -> Project:
    made.release("0.2.0", {MODEL: "# moved\n" + OLD})
    hunk_test(made, "assert 'lower' in text")
    ran = made.rebase("0.2.0")
    assert ran.code == 1
    assert "the hunk tests fail on vllm 0.2.0" in ran.out
    (made.workdir / MODEL).write_text("# moved\n" + WANTED)
    return made


def taken(work: Project) -> None:
    done = work.rebase("--continue")
    assert done.code == 0, done.out + done.err
    assert "strip.patch  offset  changed by hand" in done.out
    assert "(offset, changed by hand)" in " ".join(work.changelog.split())
    assert "+    data = handle.read().strip().lower()" in patch_text(work, "0.2")


def test_files_changed_after_a_refusal_are_taken(refused: Project) -> None:
    taken(refused)
    assert "change what strip.patch changes" in patch_text(refused, "0.2")


def test_an_amended_commit_after_a_refusal_is_taken_with_its_message(
    refused: Project, tmp_path: Path
) -> None:
    git(refused, tmp_path, "commit", "-a", "--amend", "-m", "Lower it too\n\nIt must be so.")
    taken(refused)
    assert "Lower it too" in patch_text(refused, "0.2")
    assert "It must be so." in patch_text(refused, "0.2")
    assert "Forwarded: no" in patch_text(refused, "0.2")


def test_a_commit_on_top_of_a_refused_result_goes_into_the_last_patch(
    refused: Project, tmp_path: Path
) -> None:
    git(refused, tmp_path, "commit", "-a", "-m", "fixup")
    git(refused, tmp_path, "commit", "--allow-empty", "-m", "fixup again")
    taken(refused)
    assert "change what strip.patch changes" in patch_text(refused, "0.2")


def test_an_amended_commit_that_is_refused_again_stays(refused: Project, tmp_path: Path) -> None:
    git(refused, tmp_path, "commit", "-a", "--amend", "-m", "Lower it too")
    hunk_test(refused, "assert 'upper' in text")
    again = refused.rebase("--continue")
    assert again.code == 1
    assert "strip.patch  offset  changed by hand" in again.out
    assert (refused.workdir / MODEL).read_text() == "# moved\n" + WANTED
    hunk_test(refused, "assert 'lower' in text")
    taken(refused)
    assert "Lower it too" in patch_text(refused, "0.2")


def test_what_cannot_be_taken_after_a_refusal_is_named_and_left_alone(
    refused: Project, tmp_path: Path
) -> None:
    git(refused, tmp_path, "reset", "-q", "--soft", "HEAD^")
    git(refused, tmp_path, "commit", "-q", "-m", "one half")
    git(refused, tmp_path, "commit", "-q", "--allow-empty", "-m", "other half")
    ran = refused.rebase("--continue")
    assert ran.code == 1
    assert "has 2 commits for 1 patches" in ran.err
    assert (refused.workdir / MODEL).read_text() == "# moved\n" + WANTED
    (refused.workdir / MODEL).write_text("# moved\n" + WANTED.replace("import os\n", "import (\n"))
    git(refused, tmp_path, "reset", "-q", "--soft", "HEAD^")
    ran = refused.rebase("--continue")
    assert ran.code == 1
    assert "does not compile" in ran.err
    assert "import (" in (refused.workdir / MODEL).read_text()
    (refused.workdir / MODEL).write_text("# moved\n" + WANTED)
    git(refused, tmp_path, "commit", "-q", "-a", "--amend", "-m", "whole")
    taken(refused)


def test_an_earlier_patch_may_be_amended_after_a_refusal(tmp_path: Path) -> None:
    work = project(tmp_path)
    work.release("0.1.0", {MODEL: OLD})
    named = PATCHED.replace("return os.name", "return os.name.upper()")
    steps = {
        "strip.patch": ({MODEL: OLD}, {MODEL: PATCHED}),
        "upper.patch": ({MODEL: PATCHED}, {MODEL: named}),
    }
    work.line("0.1.0", steps)
    work.release("0.2.0", {MODEL: OLD})
    hunk_test(work, "assert 'lower' in text")
    assert work.rebase("0.2.0").code == 1
    git(work, tmp_path, "checkout", "-q", "HEAD^")
    (work.workdir / MODEL).write_text(WANTED)
    git(work, tmp_path, "commit", "-q", "-a", "--amend", "-C", "HEAD")
    git(work, tmp_path, "cherry-pick", "HEAD@{2}")
    done = work.rebase("--continue")
    assert done.code == 0, done.out + done.err
    assert "strip.patch  clean  changed by hand" in done.out
    assert "upper.patch  clean  carried" in done.out
    assert "lower()" in patch_text(work, "0.2")


def test_commits_of_later_patches_made_in_the_repository_are_taken_too(tmp_path: Path) -> None:
    """Both patches conflict; a person goes through with git alone, and changes more on the way."""
    work = project(tmp_path)
    old = OLD + "\n\ndef last():\n    return 1\n"
    mid = old.replace("read()", "read().strip()")
    end = mid.replace("return 1", "return 2")
    work.release("0.1.0", {MODEL: old})
    steps = {"strip.patch": ({MODEL: old}, {MODEL: mid}), "two.patch": ({MODEL: mid}, {MODEL: end})}
    work.line("0.1.0", steps)
    new = old.replace("read()", "read(9)").replace("return 1", "return 7")
    work.release("0.2.0", {MODEL: new})
    assert work.rebase("0.2.0").code == 1
    first = new.replace("read(9)", "read(9).strip()")
    (work.workdir / MODEL).write_text(first)
    git(work, tmp_path, "add", MODEL)
    with pytest.raises(subprocess.CalledProcessError):
        git(work, tmp_path, "-c", "core.editor=true", "rebase", "--continue")
    (work.workdir / MODEL).write_text("# half done\n" + (work.workdir / MODEL).read_text())
    ran = work.rebase("--continue")
    assert ran.code == 1
    assert "gone on to the next conflict" in ran.err
    second = "# by hand\n" + first.replace("return 7", "return 8")
    (work.workdir / MODEL).write_text(second)
    git(work, tmp_path, "add", MODEL)
    git(work, tmp_path, "-c", "core.editor=true", "rebase", "--continue")
    ran = work.rebase("--continue")
    assert ran.code == 1, ran.out
    assert "strip.patch  conflicted  resolved by hand" in ran.out
    assert "two.patch  conflicted" in ran.out
    assert "# by hand" in (work.workdir / MODEL).read_text()
    (work.workdir / MODEL).write_text(second)
    done = work.rebase("--continue")
    assert done.code == 0, done.out + done.err
    assert "+# by hand" in patch_text(work, "0.2", "two.patch")


def test_a_commit_amended_where_a_new_one_was_due_is_not_lost(
    made: Project, tmp_path: Path
) -> None:
    made.release("0.2.0", {MODEL: CONFLICT})
    made.rebase("0.2.0")
    git(made, tmp_path, "rebase", "--quit")
    (made.workdir / MODEL).write_text(RESOLVED)
    git(made, tmp_path, "commit", "-q", "-a", "--amend", "-m", "mine")
    ran = made.rebase("--continue")
    assert ran.code == 1
    advice = ran.err.split("Run git ")[1].split(" there")[0]
    git(made, tmp_path, *advice.split())
    done = made.rebase("--continue")
    assert done.code == 0, done.out + done.err
    assert "+    data = handle.read(1 << 20).strip()" in patch_text(made, "0.2")


# -- the other releases of a line ---------------------------------------------------------------

WRAPPED = OLD.replace(
    "    handle = open(path)\n    data", "    handle = open(\n        path)\n    data"
)


def test_a_release_of_the_line_that_the_series_does_not_fit_gets_its_own_folder(
    made: Project,
) -> None:
    made.release("0.2.0", {MODEL: WRAPPED})
    made.release("0.2.1", {MODEL: OLD})
    made.release("0.2.2", {MODEL: OLD})
    ran = made.rebase("--releases", "0.2")
    assert ran.code == 0, ran.out + ran.err
    assert "it does not fit vllm 0.2.0, also of this line: each gets a folder of its own" in ran.out
    folders = sorted(path.name for path in made.series.iterdir() if path.name[0] != ".")
    assert folders == ["vllm-0.1", "vllm-0.2", "vllm-0.2.0"]
    assert "Base: vllm 0.2.2" in patch_text(made, "0.2")
    assert "Base: vllm 0.2.0" in patch_text(made, "0.2.0")
    assert "+    data = handle.read().strip()" in patch_text(made, "0.2.0")
    entries = [line for line in made.changelog.split("\n") if line.startswith("- ")]
    assert len(entries) == 1
    told = " ".join(made.changelog.split())
    assert "`vllm-0.2` for vLLM 0.2.2, from 0.1.0: `strip.patch` (clean)" in told
    assert "`vllm-0.2.0` for vLLM 0.2.0, from 0.2.2: `strip.patch` (merged" in told


def test_a_release_of_the_line_on_which_the_hunk_tests_fail_stops_with_a_folder_of_its_own(
    made: Project,
) -> None:
    """Its text takes the patch as it is; only the tests know that it must be another there."""
    made.release("0.2.0", {MODEL: OLD.replace("return os.name", "return os.name + 'lower'")})
    made.release("0.2.1", {MODEL: OLD})
    hunk_test(made, "assert ('lower' in text) == ('.strip(1)' in text)")
    ran = made.rebase("--releases", "0.2")
    assert ran.code == 1
    assert "vllm-0.2 was written" in ran.out
    assert "it does not fit vllm 0.2.0" in ran.out
    assert "the hunk tests fail on vllm 0.2.0" in ran.out
    text = (made.workdir / MODEL).read_text()
    (made.workdir / MODEL).write_text(text.replace(".strip()", ".strip(1)"))
    assert made.rebase("--continue").code == 0
    assert ".strip(1)" in patch_text(made, "0.2.0")
    assert ".strip(1)" not in patch_text(made, "0.2")


def test_giving_up_leaves_no_folder_for_releases_that_it_does_not_fit(made: Project) -> None:
    made.release("0.2.0", {MODEL: CONFLICT})
    made.release("0.2.1", {MODEL: OLD})
    ran = made.rebase("--releases", "0.2")
    assert ran.code == 1
    assert "vllm-0.2 was written" in ran.out
    ran = made.rebase("--abort")
    assert ran.code == 0
    assert "vllm-0.2 fits vllm 0.2.1 alone, not 0.2.0: it is vllm-0.2.1 now" in ran.err
    assert not (made.series / "vllm-0.2").exists()
    assert "Base: vllm 0.2.1" in patch_text(made, "0.2.1")
    assert "- The series `vllm-0.2.1`, for vLLM 0.2.1" in made.changelog
    assert "`vllm-0.2`" not in made.changelog


def test_one_release_alone_says_which_others_of_its_line_it_does_not_fit(made: Project) -> None:
    made.release("0.2.0", {MODEL: WRAPPED})
    made.release("0.2.1", {MODEL: OLD})
    ran = made.rebase("0.2.1")
    assert ran.code == 0
    assert "vllm-series rebase 0.2.0 --from vllm-0.2 --onto-dir vllm-0.2.0" in ran.out
    assert not (made.series / "vllm-0.2.0").exists()


def test_a_replaced_folder_does_not_stop_serving_a_release_unnoticed(made: Project) -> None:
    made.release("0.1.1", {MODEL: WRAPPED})
    made.release("0.1.2", {MODEL: OLD + "# new\n"})
    ran = made.rebase("0.1.1", "--from", "0.1", "--replace")
    assert ran.code == 0, ran.out + ran.err
    assert "Base: vllm 0.1.1" in patch_text(made, "0.1")
    for version in ("0.1.0", "0.1.2"):
        assert f"Base: vllm {version}" in patch_text(made, version)


# -- around it ----------------------------------------------------------------------------------


def test_a_dry_run_tells_it_all_and_writes_nothing(made: Project) -> None:
    made.release("0.2.0", {MODEL: CONFLICT})
    before = everything(made.series.parent)
    ran = made.rebase("0.2.0", "--dry-run")
    assert ran.code == 1
    assert "git's merge conflicts in vllm/model.py" in ran.out
    assert everything(made.series.parent) == before
    assert made.rebase("--status").out == "no rebase is open\n"


def test_a_dry_run_that_stops_says_so_even_when_quiet(made: Project) -> None:
    made.release("0.2.0", {MODEL: CONFLICT})
    ran = made.rebase("0.2.0", "--dry-run", "--quiet")
    assert ran.code == 1
    assert "would stop" in ran.err
    assert "--status" not in ran.err


def test_a_dry_run_works_on_a_series_that_nobody_may_write_to(made: Project) -> None:
    made.release("0.2.0", {MODEL: OLD})
    folders = [made.series, made.series / "vllm-0.1"]
    # Root may write there all the same, unless that right is taken away.
    drop = "--bounding-set=-dac_override"
    inside = ("setpriv", drop) if os.geteuid() == 0 else ()
    for folder in folders:
        folder.chmod(0o555)
    try:
        ran = made.rebase("0.2.0", "--dry-run", inside=inside)
    finally:
        for folder in folders:
            folder.chmod(0o755)
    assert ran.code == 0, ran.err
    assert "vllm-0.2 would be written" in ran.out


def test_what_the_project_does_not_have_is_said(made: Project) -> None:
    made.release("0.2.0", {MODEL: OLD})
    ran = made.rebase("0.2.0")
    assert "no hunk tests are in tests/hunks beside the series, so none were run" in ran.out
    assert "no CHANGELOG.md" not in ran.out
    shutil.rmtree(made.series / "vllm-0.2")
    (made.series.parent / "CHANGELOG.md").unlink()
    assert "no CHANGELOG.md is beside the series" in made.rebase("0.2.0", "--no-tests").out


def test_a_folder_that_would_change_is_replaced_only_when_told(made: Project) -> None:
    made.release("0.2.0", {MODEL: OLD})
    (made.series / "vllm-0.2").mkdir()
    (made.series / "vllm-0.2" / "series").write_text("# nothing yet\n")
    ran = made.rebase("0.2.0", "--from", "0.1")
    assert ran.code == 1
    assert "exists and would change" in ran.err
    assert (made.series / "vllm-0.2" / "series").read_text() == "# nothing yet\n"
    assert made.rebase("--continue", "--replace").code == 0
    assert "strip.patch" in (made.series / "vllm-0.2" / "series").read_text()


def test_a_folder_for_one_release_is_made_on_request(made: Project) -> None:
    made.release("0.1.1", {MODEL: "# new\n" + OLD})
    ran = made.rebase("0.1.1", "--onto-dir", "vllm-0.1.1")
    assert ran.code == 0, ran.err
    assert "Base: vllm 0.1.1" in patch_text(made, "0.1.1")
    assert made.rebase("0.1.1", "--onto-dir", "vllm-0.7").code == 2


@pytest.mark.parametrize("words", [(), ("0.2.0", "--releases", "0.2"), ("--skip", "0.2.0"),
                                   ("0.2.0", "--tests", ".", "--no-tests")])  # fmt: skip
def test_words_that_cannot_go_together_are_wrong_usage(
    made: Project, words: tuple[str, ...]
) -> None:
    made.release("0.2.0", {MODEL: OLD})
    assert made.rebase(*words).code == 2
    assert not (made.series / "vllm-0.2").exists()


def test_hooks_signing_and_variables_of_the_user_do_not_matter(
    made: Project, tmp_path: Path
) -> None:
    made.release("0.2.0", {MODEL: CONFLICT})
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    for name in ("post-checkout", "pre-commit", "post-rewrite", "pre-rebase", "prepare-commit-msg"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\nexit 1\n")
        (hooks / name).chmod(0o755)
    config = tmp_path / "gitconfig"
    config.write_text(
        f"[core]\n\thooksPath = {hooks}\n\tautocrlf = true\n[commit]\n\tgpgSign = true\n"
        "[merge]\n\tconflictStyle = merge\n[diff]\n\tnoprefix = true\n"
    )
    ran = made.rebase(
        "0.2.0",
        GIT_CONFIG_GLOBAL=str(config),
        GIT_DIR=str(tmp_path / "nowhere"),
        GIT_CONFIG_COUNT="1",
        GIT_CONFIG_KEY_0="core.hooksPath",
        GIT_CONFIG_VALUE_0=str(hooks),
    )
    assert ran.code == 1, ran.err
    assert "||||||| vllm 0.1.0 (base)" in (made.workdir / MODEL).read_text()
    assert not (tmp_path / "ran").exists()
