"""The one form of a patch is git's: what `git format-patch` writes is written again to the byte."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from vllm_series.diffs.canonical import ZERO_COMMIT, diff, quoted, written
from vllm_series.diffs.parse import parse

if TYPE_CHECKING:
    from pathlib import Path

FORM = ("--zero-commit", "--full-index", "--no-signature", "--no-stat", "--stdout", "-1")
LONG = b"".join(b"line %d\n" % number for number in range(40))
CHANGED = LONG.replace(b"line 9\n", b"line nine\n").replace(b"line 31\n", b"")
TRAILERS = "Base: vllm 0.33.0\nOrigin: vendor\nForwarded: no\nLast-Update: 2026-12-01"


class Repository:
    """A folder under git, whose last commit is given as a mail."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.git("init", "-q")

    def git(self, *words: str) -> bytes:
        return subprocess.run(
            ["git", *words], cwd=self.root, check=True, stdout=subprocess.PIPE
        ).stdout

    def write(self, files: dict[str, bytes]) -> None:
        for path, text in files.items():
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            (self.root / path).write_bytes(text)

    def mail(self, message: str, *options: str) -> bytes:
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty-message", "-m", message)
        return self.git("format-patch", *FORM, *options)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    made = Repository(tmp_path)
    made.write(
        {
            "vllm/changed.py": LONG,
            "vllm/crlf.py": LONG.replace(b"\n", b"\r\n"),
            "vllm/ending.py": LONG + b"last",
            "vllm/deleted.py": b"gone = 1\n",
            "vllm/emptied.py": b"gone = 1\n",
            "vllm/empty.py": b"",
            "vllm/moved.py": LONG + b"moved\n",
            "vllm/moved and changed.py": LONG + b"both\n",
            "vllm/source.py": LONG + b"source\n",
            "vllm/script.py": b"#!/usr/bin/env python\n",
            "vllm/script2.py": LONG + b"two\n",
            'vllm/naïve "quoted"\t.py': LONG + b"odd\n",
        }
    )
    made.git("add", "-A")
    made.git("commit", "-qm", "base")
    return made


def every_kind(repository: Repository) -> None:
    root = repository.root / "vllm"
    repository.write(
        {
            "vllm/changed.py": CHANGED,
            "vllm/crlf.py": CHANGED.replace(b"\n", b"\r\n"),
            "vllm/ending.py": LONG + b"last\n",
            "vllm/emptied.py": b"",
            "vllm/created.py": b"made = 1",
            "vllm/created empty.py": b"",
            "vllm/copied.py": CHANGED + b"source\n",
            "vllm/script2.py": CHANGED + b"two\n",
            'vllm/naïve "quoted"\t.py': CHANGED + b"odd\n",
        }
    )
    (root / "deleted.py").unlink()
    (root / "empty.py").unlink()
    (root / "moved.py").rename(root / "new place.py")
    (root / "moved and changed.py").unlink()
    repository.write({"vllm/deep/er/moved.py": CHANGED + b"both\n"})
    (root / "script.py").chmod(0o755)
    (root / "script2.py").chmod(0o755)


def test_a_mail_of_every_kind_of_change(repository: Repository) -> None:
    every_kind(repository)
    mail = repository.mail(
        f"every kind: of change\n\nWhy it is made.\n\nAt length.\n\n{TRAILERS}",
        "-M",
        "-C",
        "--find-copies-harder",
    )
    for kind in (b"rename from", b"copy from", b"old mode", b"deleted file", b"new file", b"\\ No"):
        assert kind in mail
    assert mail.startswith(ZERO_COMMIT)
    assert written(parse(mail, "p")) == mail


@pytest.mark.parametrize(
    "message",
    [
        f"name: short\n\nwhy\n\n{TRAILERS}",
        "name: no trailers\n\nwhy",
        f"name: {'a subject of many words that is folded ' * 4}end\n\nwhy\n\n{TRAILERS}",
        f"name: Zoë's change\n\nwhy, à la carte\n\n{TRAILERS}",
        f"name: {'länger als eine Zeile ' * 6}Ende\n\nwhy\n\n{TRAILERS}",
        f"name: {'x' * 200}\n\nwhy\n\n{TRAILERS}",
    ],
    ids=["short", "no trailers", "folded", "encoded", "encoded and folded", "one long word"],
)
def test_a_mail_of_any_subject(repository: Repository, message: str) -> None:
    repository.write({"vllm/changed.py": CHANGED})
    mail = repository.mail(message)
    assert written(parse(mail, "p")) == mail


def test_the_order_of_files_is_that_of_git(repository: Repository) -> None:
    names = ["vllm/a.py", "vllm/a/b.py", "vllm/a-b.py", "vllm/Z.py", "vllm/ä.py"]
    repository.write(dict.fromkeys(names, b"x\n"))
    mail = repository.mail("name: order\n\nwhy")
    head, *sections = mail.split(b"diff --git ")
    shuffled = b"diff --git ".join([head, *sections[::-1]])
    assert shuffled != mail
    assert written(parse(shuffled, "p")) == mail


def test_a_diff_of_every_kind_reversed_twice(repository: Repository) -> None:
    every_kind(repository)
    mail = repository.mail("name: every kind\n\nwhy", "-M")
    body = b"diff --git " + mail.partition(b"diff --git ")[2]
    undone = [change.reversed() for change in parse(mail, "p").files]
    again = parse(b"".join(diff(change) for change in undone), "q")
    assert b"".join(diff(change.reversed()) for change in again.files) == body


@pytest.mark.parametrize("name", ["vllm/x y.py", "vllm/ä.py", 'vllm/"\\.py', "vllm/\a\x7f.py"])
def test_names_are_quoted_as_git_quotes_them(repository: Repository, name: str) -> None:
    repository.write({name: b"x\n"})
    repository.git("add", "-A")
    (listed,) = repository.git("diff", "--cached", "--name-only").decode().splitlines()
    assert quoted(name) == listed
