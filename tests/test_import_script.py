"""Scripts that edit site-packages, run on a copy of a release and made patches."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from commandline import SCHEDULER, Ran, copied, everything, run
from conftest import Stock
from vllm_series.diffs.parse import parse
from vllm_series.patch import Kind, Patch

SCRIPT = Path(__file__).parent / "data" / "scripts" / "patch_stepwidth.py"
EDITED = "vllm/__init__.py"
WHO = ("--author", "A Tester <tester@example.com>")

Import = Callable[..., Ran]


@pytest.fixture
def fresh(tmp_path: Path) -> Path:
    """A folder of series without any yet."""
    folder = tmp_path / "series"
    folder.mkdir()
    return folder


@pytest.fixture
def imported(installed: Path, fresh: Path, tmp_path: Path) -> Import:
    """Import a script, given by its text, on the few files of `installed`."""

    def call(script: str | Path, *words: str, yes: bool = True, **env: str) -> Ran:
        place = script if isinstance(script, Path) else tmp_path / "patch_it.py"
        if isinstance(script, str):
            place.write_text(script)
        source = ("--source", f"dir:{installed}", "--base", "0.33.0", "--series-dir", str(fresh))
        at = words.index("--") if "--" in words else len(words)
        agreed = ("--yes",) if yes else ()
        rest = (*source, *WHO, *agreed, *words[:at], *words[at:])
        return run("import", place, *rest, cwd=None, stdin=b"", inside=(), **env)

    return call


def made(fresh: Path, name: str = "it.patch") -> Patch:
    return parse((fresh / "vllm-0.33" / name).read_bytes(), name)


def edits(by: str, more: str = "") -> str:
    """A script that finds `vllm/__init__.py` by an expression and adds a line to it once."""
    return f"""'''Add a line.

So that it is there.
'''
import os, sys, sysconfig
from pathlib import Path
place = Path({by})
text = place.read_text()
if "ADDED = 1" not in text:
    place.write_text(text + "ADDED = 1\\n")
{more}
"""


HERE = "sysconfig.get_paths()['purelib'] + '/vllm/__init__.py'"
FOUND = edits(HERE)


@pytest.mark.parametrize("release", ["0.30.0", "0.31.0", "0.32.0", "0.33.0"])
def test_the_patch_makes_the_bytes_that_the_script_writes(
    release: str, stock: Stock, fresh: Path, tmp_path: Path, oracle: Callable[[str], str]
) -> None:
    told = run("import", SCRIPT, "--base", release, "--yes", "--series-dir", fresh, *WHO)
    assert told.code == 0, told.err
    (patch,) = fresh.glob("*/*.patch")
    assert patch.name == "stepwidth.patch"
    assert told.out == f"{patch}\n"

    site = copied(stock(release), tmp_path / "by-script")
    fake = f"import sysconfig, runpy; sysconfig.get_paths = lambda: {{'purelib': {str(site)!r}}}\n"
    fake += f"runpy.run_path({str(SCRIPT)!r})"
    subprocess.run([sys.executable, "-c", fake], check=True)
    wanted = (site / SCHEDULER).read_bytes()
    assert wanted != (stock(release) / SCHEDULER).read_bytes()

    by_git = copied(stock(release), tmp_path / "by-git")
    subprocess.run([oracle("git"), "apply", patch], cwd=by_git, check=True)
    assert (by_git / SCHEDULER).read_bytes() == wanted
    by_us = copied(stock(release), tmp_path / "by-us")
    assert run("apply", "--target", by_us, "--series-dir", fresh).code == 0
    assert (by_us / SCHEDULER).read_bytes() == wanted
    assert run("lint", "--series-dir", fresh, "--target", stock(release)).code == 0


def test_the_docstring_is_the_why_and_none_of_it_a_trailer(imported: Import, fresh: Path) -> None:
    told = imported(SCRIPT)
    assert told.code == 0, told.err
    patch = made(fresh, "stepwidth.patch")
    assert patch.subject == "Follow the width of each request's draft"
    assert patch.message.startswith("What a step accepts is told to a counter of ours")
    assert patch.message.endswith(
        "Note: the hook is reached under either way of scheduling.\nIdempotent: yes."
    )
    assert [key for key, _ in patch.trailers] == ["Base", "Origin", "Forwarded", "Last-Update"]
    assert "done" in told.err


def test_a_docstring_that_quotes_a_diff_is_set_off(imported: Import, fresh: Path) -> None:
    quoting = "'''Add.\n\nIt undoes:\n\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n'''\n"
    told = imported(quoting + FOUND[FOUND.index("import os") :])
    assert told.code == 0, told.err
    assert "  --- a/x\n  +++ b/x\n" in made(fresh).message


def test_a_switch_is_guessed_only_where_that_is_asked(imported: Import, fresh: Path) -> None:
    assert imported(SCRIPT, "--name", "plain").code == 0
    assert made(fresh, "plain.patch").trailer("Activate") == []
    (fresh / "vllm-0.33" / "series").write_text("")
    (fresh / "vllm-0.33" / "plain.patch").unlink()
    assert imported(SCRIPT, "--activate").code == 0
    assert made(fresh, "stepwidth.patch").trailer("Activate") == ["STEPWIDTH=1"]


# -- a release that it does not fit ----------------------------------------------------------------


@pytest.mark.parametrize("strict", [False, True])
def test_the_anchor_that_a_release_does_not_have_is_named(
    strict: bool, stock: Stock, fresh: Path, tmp_path: Path
) -> None:
    site = copied(stock("0.29.0"), tmp_path / "site")
    env = ("--env", "STRICT=1") if strict else ()
    told = run(
        "import", SCRIPT, "--base", "0.29.0", "--source", f"dir:{site}", "--yes", *env,
        "--series-dir", fresh, *WHO,
    )  # fmt: skip
    assert told.code == 1
    assert "with exit code 3" in told.err if strict else "changed nothing" in told.err
    assert "draft: found 0 times" in told.err
    assert f"{SCHEDULER} has no DRAFT (line 67 of the script)" in told.err
    assert "-                request, spec_token_ids\n" in told.err
    assert "COUNT" not in told.err
    assert everything(fresh) == {}


def test_what_a_script_did_before_it_failed_is_not_taken(imported: Import, fresh: Path) -> None:
    told = imported(edits(HERE, "assert 'no such text' in text"))
    assert told.code == 1
    assert "AssertionError" in told.err
    assert "vllm/__init__.py has no 'no such text'" in told.err
    assert "What it had changed by then is not taken." in told.err
    assert everything(fresh) == {}


def test_a_half_done_edit_that_ends_well_is_doubted(imported: Import, fresh: Path) -> None:
    half = "print('WARN second hunk skipped') if text.count('no such text') != 1 else None"
    told = imported(edits(HERE, half))
    assert told.code == 0, told.err
    assert "says 'WARN second hunk skipped'. See whether the patch is whole" in told.err
    assert "vllm/__init__.py has no 'no such text'" in told.err
    assert len(made(fresh).files) == 1


def test_a_script_that_does_not_end_is_ended(imported: Import, fresh: Path) -> None:
    told = imported("import time\ntime.sleep(600)\n", "--timeout", "1")
    assert told.code == 1
    assert "was still running after 1 s" in told.err
    assert everything(fresh) == {}


# -- leave -----------------------------------------------------------------------------------------


def test_without_leave_nothing_is_run(imported: Import, fresh: Path, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    told = imported(f"open({str(mark)!r}, 'w')\n", yes=False)
    assert told.code == 2
    assert "will be run" in told.err
    assert "--yes" in told.err
    assert not mark.exists()
    assert everything(fresh) == {}


@pytest.mark.parametrize(("answer", "code"), [(b"n\n", 1), (b"y\n", 0)])
def test_at_a_terminal_it_is_asked(
    answer: bytes, code: int, installed: Path, fresh: Path, tmp_path: Path
) -> None:
    script = tmp_path / "patch_it.py"
    script.write_text(FOUND)
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "vllm_series", "import", str(script), "--base", "0.33.0", "--source",
         f"dir:{installed}", "--series-dir", str(fresh), *WHO],
        stdin=theirs, stdout=theirs, stderr=theirs, close_fds=True,
    )  # fmt: skip
    os.close(theirs)
    seen = b""
    answered = False
    while True:
        if not select.select([ours], [], [], 120)[0]:
            process.kill()
            break
        try:
            piece = os.read(ours, 4096)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        seen += piece
        if b"Run it?" in seen and not answered:
            assert b"will be run on a copy" in seen
            os.write(ours, answer)
            answered = True
    os.close(ours)
    assert process.wait() == code, seen
    assert answered
    assert bool(everything(fresh)) is (code == 0)


# -- the environment -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("by", "words"),
    [
        (HERE, ()),
        ("__import__('site').getsitepackages()[0] + '/vllm/__init__.py'", ()),
        ("__import__('importlib.util').util.find_spec('vllm').origin", ()),
        ("__import__('vllm').__file__", ()),
        ("__import__('vllm.v1.core.sched.scheduler').v1.core.sched.__path__[0]"
         " + '/../../../__init__.py'", ()),
        ("str(__import__('importlib.metadata').metadata.distribution('vllm')"
         ".locate_file('vllm/__init__.py'))", ()),
        ("__import__('re').search('Location: (.*)', __import__('subprocess').run([sys.executable,"
         " '-m', 'pip', 'show', 'vllm'], capture_output=True, text=True).stdout)[1]"
         " + '/vllm/__init__.py'", ()),
        ("os.environ['VLLM_DIR'] + '/__init__.py'", ("--env", "VLLM_DIR={vllm}")),
        ("sys.argv[1] + '/vllm/__init__.py'", ("--", "{site}")),
        ("'/opt/venv/lib/python3.12/site-packages/vllm/__init__.py'",
         ("--site", "/opt/venv/lib/python3.12/site-packages")),
    ],
)  # fmt: skip
def test_the_script_finds_the_copy_however_it_looks(
    by: str, words: tuple[str, ...], imported: Import, fresh: Path, installed: Path
) -> None:
    stock = (installed / EDITED).read_bytes()
    told = imported(edits(by), *words)
    assert told.code == 0, told.err
    (change,) = made(fresh).files
    assert change.paths(1) == (EDITED, EDITED)
    assert [line for op, line in zip(change.hunks[0].ops, change.hunks[0].lines, strict=True)
            if op != ord(" ")] == [b"ADDED = 1\n"]  # fmt: skip
    assert (installed / EDITED).read_bytes() == stock


def test_a_script_sees_nothing_of_the_users_environment(imported: Import, tmp_path: Path) -> None:
    shown = edits(
        HERE,
        "print(sorted(os.environ)); print('at', os.getcwd(), os.environ['HOME'])",
    )
    told = imported(shown, "--env", "GIVEN=1", HTTPS_PROXY="http://u:secret@h", A_TOKEN="secret")
    assert told.code == 0, told.err
    assert "'GIVEN'" in told.err
    assert "A_TOKEN" not in told.err
    assert "PROXY" not in told.err
    line = next(line for line in told.err.splitlines() if line.strip().startswith("at "))
    _, cwd, home = line.split()
    assert not Path(cwd).exists()
    assert home != os.environ["HOME"]
    assert not Path(home).exists()


def test_files_made_and_deleted_are_in_the_patch(imported: Import, fresh: Path) -> None:
    told = imported(
        edits(
            HERE,
            "(place.parent / 'added').mkdir(exist_ok=True)\n"
            "(place.parent / 'added/__init__.py').write_text('X = 1\\n')\n"
            "(place.parent / 'v1/core/sched/utils.py').unlink(missing_ok=True)",
        )
    )
    assert told.code == 0, told.err
    kinds = {change.paths(1)[1] or change.paths(1)[0]: change.kind for change in made(fresh).files}
    assert kinds == {
        "vllm/added/__init__.py": Kind.CREATE,
        "vllm/v1/core/sched/utils.py": Kind.DELETE,
        EDITED: Kind.MODIFY,
    }


def test_a_second_run_that_changes_something_is_told(imported: Import, fresh: Path) -> None:
    told = imported(FOUND.replace('if "ADDED = 1" not in text:', "if True:"))
    assert told.code == 0, told.err
    assert f"is not idempotent: a second run changes {EDITED} again" in told.err
    assert made(fresh).text.count(b"\n+ADDED = 1\n") == 1


def test_files_written_outside_of_the_copy_are_told(
    imported: Import, fresh: Path, tmp_path: Path
) -> None:
    beside = tmp_path / "beside.txt"
    told = imported(edits(HERE, f"Path({str(beside)!r}).write_text('x')"))
    assert told.code == 0, told.err
    assert f"outside of the copy, which is not part of the patch: {beside}" in told.err
    assert len(made(fresh).files) == 1


@pytest.mark.parametrize("folder", ["site-packages", "src"])
def test_no_other_vllm_can_be_written_to(
    folder: str, imported: Import, fresh: Path, tmp_path: Path
) -> None:
    other = tmp_path / "venv" / folder / "vllm"
    other.mkdir(parents=True)
    (other / "x.py").write_text("stock\n")
    where = f"{str(tmp_path / 'venv')!r} + '/' + {folder[:3]!r} + {folder[3:]!r} + '/vllm/x.py'"
    told = imported(f"open({where}, 'w').write('edited')\n")
    assert told.code == 1
    assert f"{other}/x.py is of another vLLM" in told.err
    assert (other / "x.py").read_text() == "stock\n"
    assert everything(fresh) == {}


def test_a_folder_of_an_installation_in_the_script_is_refused(
    imported: Import, fresh: Path
) -> None:
    told = imported("open('/usr/lib/python3/dist-packages/vllm/x.py', 'w')\n")
    assert told.code == 2
    assert "--site /usr/lib/python3/dist-packages" in told.err
    assert everything(fresh) == {}


def test_a_folder_that_only_a_comment_names_is_no_reason(imported: Import) -> None:
    comment = "'''Edit /usr/lib/python3/dist-packages.'''\n# /opt/lib/site-packages\n"
    told = imported(comment + FOUND[FOUND.index("import os") :])
    assert told.code == 0, told.err


def test_a_dry_run_prints_the_patch_alone(imported: Import, fresh: Path) -> None:
    told = imported(FOUND, "--dry-run")
    assert told.code == 0, told.err
    assert parse(told.out.encode(), "it").subject == "Add a line"
    assert everything(fresh) == {}
