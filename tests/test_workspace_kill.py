"""A rebase of five patches is killed before every git command and every step on the disk that
counts; what goes on afterwards ends with the same series."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from commandline import everything
from rebased import Project, project
from vllm_series.upstream.open import UpstreamOptions, open_catalog
from vllm_series.workspace.carrying import Carrying, give_up
from vllm_series.workspace.rebasing import Rebasing, Tools
from vllm_series.workspace.state import Batch, Home, Line

KILLED = 9
STRIDE = 1 if os.environ.get("VLLM_SERIES_EVERY_STEP") else 7
"""Every step takes ten minutes; which ones are killed is the same in every run."""
FILES = [f"vllm/part{number}.py" for number in range(5)]


def text(number: int, value: str = "0") -> str:
    body = "\n".join(f"    line_{n} = {n}" for n in range(10))
    return f'"""Part {number}."""\n\n\ndef part():\n{body}\n    value = {value}\n    return value\n'


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Five patches of one file each: clean, offset, upstreamed, conflicting, clean."""
    monkeypatch.setenv("VLLM_SERIES_CACHE", str(tmp_path / "cache"))
    made = project(tmp_path)
    old = {path: text(number) for number, path in enumerate(FILES)}
    made.release("0.1.0", old)
    made.line(
        "0.1.0",
        {
            f"p{number}.patch": ({path: text(number)}, {path: text(number, "1 + 1")})
            for number, path in enumerate(FILES)
        },
    )
    made.release(
        "0.2.0",
        {
            **old,
            FILES[1]: "# moved down\n" + text(1),
            FILES[2]: text(2, "1 + 1"),
            FILES[3]: text(3, "3"),
        },
    )
    return made


class Killer:
    """Ends the process, without any clean-up, before its n-th step from now on."""

    def __init__(self, step: int) -> None:
        self.left = step
        self.armed = True
        sys.addaudithook(self.audit)
        fsync = os.fsync

        def counted(descriptor: Any) -> None:
            self.count()
            fsync(descriptor)

        os.fsync = counted  # type: ignore[assignment]

    def audit(self, event: str, _arguments: tuple[Any, ...]) -> None:
        if event in ("subprocess.Popen", "os.rename", "os.remove", "shutil.rmtree"):
            self.count()

    def count(self) -> None:
        if self.armed:
            self.left -= 1
            if self.left == 0:
                os._exit(KILLED)


def in_child(action: Callable[[], object], step: int) -> bool:
    """Do it in a child that dies at a step; True if it came to its end before that."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            killer = Killer(step)
            action()
            killer.armed = False
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    ended = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert ended in (0, KILLED), f"the child failed at step {step}"
    return ended == 0


def carrying(work: Project, batch: Batch, lock: int) -> Carrying:
    catalog = open_catalog(UpstreamOptions(source=f"dir:{work.root / 'releases'}"))
    return Carrying(Home(work.series), batch, Tools(catalog, None, lambda _step: None), lock)


def started(work: Project) -> bool:
    home = Home(work.series)
    line = Line("vllm-0.1", "0.2.0", "vllm-0.2")
    batch = Batch(
        str(home.series_dir), str(home.default_workdir), str(home.series_dir.parent),
        None, (line,),
    )  # fmt: skip
    with home.locked(print) as lock:
        return carrying(work, batch, lock).go()


def resolved(rebasing: Rebasing) -> None:
    waits = rebasing.state.open
    if waits is not None:
        (rebasing.scratch.folder / FILES[3]).write_text(text(3, "3 + 1"))
    rebasing.resume()


def continued(work: Project) -> bool:
    home = Home(work.series)
    with home.locked(print) as lock:
        return carrying(work, home.opened(), lock).resume(resolved)


def to_the_end(work: Project) -> None:
    """Whatever was cut off, bring it to its end as a user would."""
    home = Home(work.series)
    if home.workdir() is None and not (work.series / "vllm-0.2").is_dir():
        started(work)
    for _ in range(3):
        if home.workdir() is None:
            return
        continued(work)
    raise AssertionError("it does not come to its end")


def rewound(work: Project, before: dict[str, bytes]) -> None:
    home = Home(work.series)
    if home.workdir() is not None:
        give_up(home)
    folder = work.series.parent
    for path in [*folder.rglob("*")]:
        if path.is_file() and str(path.relative_to(folder)) not in before:
            path.unlink()
    for name in ("vllm-0.2", ".rerere", ".vllm-series-rebase"):
        place = work.series / name
        if place.is_dir():
            for path in sorted(place.rglob("*"), reverse=True):
                path.rmdir()
            place.rmdir()
    for name, data in before.items():
        (folder / name).write_bytes(data)


def steps(
    action: Callable[[], object], after: Callable[[int], None], stride: int = STRIDE
) -> Iterator[int]:
    step = 1 - stride
    while True:
        step += stride
        is_done = in_child(action, step)
        after(step)
        yield step
        if is_done:
            return


def test_a_rebase_killed_at_any_step_ends_as_one_that_was_not(work: Project) -> None:
    before = everything(work.series.parent)
    to_the_end(work)
    wanted = everything(work.series.parent)
    assert "series/vllm-0.2/p3.patch" in wanted
    assert "series/vllm-0.2/p2.patch" not in wanted
    rewound(work, before)

    def look(step: int) -> None:
        now = everything(work.series.parent)
        touched = [name for name in now if name.startswith("series/vllm-0.2/")]
        whole = [name for name in wanted if name.startswith("series/vllm-0.2/")]
        assert touched in ([], whole), f"step {step}: half a folder: {touched}"
        to_the_end(work)
        assert everything(work.series.parent) == wanted, f"step {step}"
        rewound(work, before)

    assert sum(1 for _ in steps(lambda: started(work), look)) * STRIDE > 20
    started(work)
    conflict = Home(work.series).opened()

    def look_again(step: int) -> None:
        look(step)
        started(work)
        assert Home(work.series).opened() == conflict

    assert sum(1 for _ in steps(lambda: continued(work), look_again)) * STRIDE > 20


def test_an_abort_killed_at_any_step_leaves_the_series_as_it_was(work: Project) -> None:
    before = everything(work.series.parent)

    def aborted() -> None:
        home = Home(work.series)
        if home.workdir() is not None:
            with home.locked(print):
                give_up(home)

    def look(step: int) -> None:
        aborted()
        assert Home(work.series).workdir() is None, f"step {step}"
        assert everything(work.series.parent) == before, f"step {step}"
        started(work)

    started(work)
    assert sum(1 for _ in steps(aborted, look, stride=1)) > 3
