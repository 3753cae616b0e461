"""An environment for one script: a virtual environment that holds a copy of a release's files and
nothing else, in a folder that is gone afterwards.

The script finds the copy as it would find an installed vLLM: `sysconfig`, `site`,
`importlib.util.find_spec`, `importlib.metadata`, `import vllm`. It sees none of the user's
variables, home or credentials, only what it is given. That is no jail: it runs as the user.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from vllm_series.errors import EnvironmentRefusedError, RefusedError
from vllm_series.trees import PACKAGE

_MOST = 200_000
"""Characters of output that are kept."""
_GRACE = 2.0
"""Seconds between asking a script to end and ending it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run: exit code (None where the time was over), what it printed, the files of the package
    that it read, and the files that it wrote elsewhere."""

    code: int | None
    output: str
    read: tuple[str, ...]
    elsewhere: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class State:
    """Every file of the copy: text and permission bits by path."""

    texts: Mapping[str, bytes]
    modes: Mapping[str, int]


class Throwaway:
    """The environment, as a context. `texts` and `modes` are the files of `release`; `with_pip`
    installs pip, which takes seconds, for a script that asks it."""

    def __init__(
        self,
        release: str,
        texts: Mapping[str, bytes],
        modes: Mapping[str, int],
        distribution: str,
        *,
        with_pip: bool = False,
    ) -> None:
        self._release = release
        self._given = State(texts, modes)
        self._distribution = distribution
        self._with_pip = with_pip

    def __enter__(self) -> Throwaway:
        self._scratch = tempfile.TemporaryDirectory(
            prefix="vllm-series-import-", ignore_cleanup_errors=True
        )
        self.root = Path(os.path.realpath(self._scratch.name))
        try:
            self._make()
        except BaseException:
            self._scratch.cleanup()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._scratch.cleanup()

    def _make(self) -> None:
        import venv

        env = self.root / "env"
        try:
            venv.EnvBuilder(symlinks=True, with_pip=self._with_pip).create(env)
        except (OSError, subprocess.CalledProcessError) as error:
            raise EnvironmentRefusedError(
                f"no virtual environment can be made with {sys.executable}: {error}. Install the "
                "venv module of this Python."
            ) from error
        self.python = env / "bin" / "python"
        (self.site,) = env.glob("lib/python*/site-packages")
        for name in ("home", "tmp", "work"):
            (self.root / name).mkdir()
        made = set[Path]()
        for path, text in self._given.texts.items():
            place = self.site / path
            if place.parent not in made:
                place.parent.mkdir(parents=True, exist_ok=True)
                made.add(place.parent)
            place.write_bytes(text)
            place.chmod(self._given.modes[path])
        self._metadata()
        hook = Path(__file__).with_name("hook.py").read_bytes()
        (self.site / "sitecustomize.py").write_bytes(hook)
        self._own = {path.name for path in self.site.iterdir()}
        self._log = self.site.parent / "touched.log"

    def _metadata(self) -> None:
        """What importlib.metadata and `pip show` need to find the release."""
        name = self._distribution.replace("-", "_")
        info = self.site / f"{name}-{self._release}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {self._distribution}\nVersion: {self._release}\n"
        )
        (info / "INSTALLER").write_text("vllm-series\n")
        (info / "top_level.txt").write_text(f"{PACKAGE}\n")
        rows = [*self._given.texts, f"{info.name}/METADATA", f"{info.name}/RECORD"]
        (info / "RECORD").write_text("".join(f"{path},,\n" for path in rows))

    def placed(self, word: str) -> str:
        """A value with `{site}` and `{vllm}` in it, which stand for the folders of the copy."""
        return word.replace("{site}", str(self.site)).replace("{vllm}", str(self.site / PACKAGE))

    def run(
        self,
        script: Path,
        words: Sequence[str],
        variables: Mapping[str, str],
        seconds: float,
        instead: Sequence[str] = (),
    ) -> Outcome:
        """Run the script once. In its text each folder of `instead` is replaced by the copy's."""
        environment = {
            "HOME": str(self.root / "home"),
            "LANG": "C.UTF-8",
            "LC_ALL": "C.UTF-8",
            "PATH": os.pathsep.join([str(self.python.parent), "/usr/bin", "/bin"]),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONHASHSEED": "0",
            "PYTHONNOUSERSITE": "1",
            "TMPDIR": str(self.root / "tmp"),
            "VIRTUAL_ENV": str(self.python.parent.parent),
            **{name: self.placed(value) for name, value in variables.items()},
        }
        start = [str(script)]
        if instead:
            start = [str(self._starter(script, instead)), str(script)]
        command = [str(self.python), *start, *map(self.placed, words)]
        self._log.unlink(missing_ok=True)
        with tempfile.TemporaryFile() as told:
            process = subprocess.Popen(
                command,
                cwd=self.root / "work",
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=told,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            code: int | None
            try:
                code = process.wait(timeout=seconds)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                _end(process)
            told.seek(0)
            output = told.read(_MOST).decode("utf-8", "replace")
        read, elsewhere = self._touched()
        return Outcome(code, output, read, elsewhere)

    def _starter(self, script: Path, instead: Sequence[str]) -> Path:
        """A script that runs another one with folders in its text replaced."""
        text = script.read_bytes()
        for folder in sorted(instead, key=len, reverse=True):
            text = text.replace(os.fsencode(folder.rstrip("/")), os.fsencode(self.site))
        (self.root / "script").write_bytes(text)
        starter = self.root / "start.py"
        starter.write_text(
            "import sys\n"
            f"text = open({str(self.root / 'script')!r}, 'rb').read()\n"
            "sys.argv.pop(0)\n"
            f"sys.path[0] = {str(script.parent)!r}\n"
            "__file__ = sys.argv[0]\n"
            "exec(compile(text, __file__, 'exec'))\n"
        )
        return starter

    def _touched(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        if not self._log.is_file():
            return (), ()
        read: dict[str, None] = {}
        elsewhere: dict[str, None] = {}
        for line in self._log.read_text("utf-8", "surrogateescape").splitlines():
            kind, _, path = line.partition("\t")
            if kind == "read" and path.startswith(f"{PACKAGE}/"):
                read[path] = None
            elif kind == "wrote":
                # What it kept in its own folders is gone with them and is nobody's concern.
                place = Path(path)
                if not place.is_relative_to(self.root):
                    elsewhere[path] = None
        return tuple(read), tuple(elsewhere)

    def state(self) -> State:
        """The files of the copy as they are now. Raises RefusedError for links and the like."""
        texts: dict[str, bytes] = {}
        modes: dict[str, int] = {}
        for folder, names, files in os.walk(self.site / PACKAGE):
            names[:] = [name for name in names if name != "__pycache__"]
            for name in [*files, *(each for each in names if Path(folder, each).is_symlink())]:
                place = Path(folder, name)
                path = place.relative_to(self.site).as_posix()
                if place.is_symlink() or not place.is_file():
                    raise RefusedError(
                        f"the script made {path}, which is no regular file. No patch of a series "
                        "can hold it."
                    )
                if name.endswith((".pyc", ".pyo")):
                    continue
                texts[path] = place.read_bytes()
                modes[path] = place.stat().st_mode & 0o777
        return State(texts, modes)

    def besides(self) -> list[str]:
        """What the script has put beside vLLM in the copy's site-packages."""
        names = {path.name for path in self.site.iterdir()}
        return sorted(names - self._own - {"__pycache__"})


def _end(process: subprocess.Popen[bytes]) -> None:
    """End what the script has started, too."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except (ProcessLookupError, PermissionError):
            break
        until = time.monotonic() + _GRACE
        while process.poll() is None and time.monotonic() < until:
            time.sleep(0.02)
    process.wait()
