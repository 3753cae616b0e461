"""Run a project's hunk tests on a patched copy of a release.

The copy holds all Python files of the release, since a test may read any of them, and nothing of it
is imported by us: pytest runs in a process of its own.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from vllm_series.errors import EnvironmentRefusedError, VllmSeriesError
from vllm_series.trees import ReleaseTree
from vllm_series.upstream.catalog import Catalog

_NOTHING_COLLECTED = 5
_LINES = 40


def tests_of(project: Path, names: Sequence[str]) -> tuple[Path, ...]:
    """The tests of these patches in `tests/hunks` of a project: `test_dynwidth.py` for
    `dynwidth.patch`; the whole folder where no file is named so; none where there is no folder."""
    folder = project / "tests" / "hunks"
    if not folder.is_dir() or not any(folder.rglob("test_*.py")):
        return ()
    own = []
    for name in names:
        stem = Path(name).stem.replace("-", "_").replace(".", "_")
        own += [place for place in (folder / f"test_{stem}.py",) if place.is_file()]
    return tuple(own) or (folder,)


def failure(
    tests: Sequence[Path],
    catalog: Catalog,
    tree: ReleaseTree,
    changed: Mapping[str, bytes | None],
    say: Callable[[str], None],
) -> str:
    """What pytest says of a release with `changed` files where the tests fail; empty where they
    pass. Raises EnvironmentRefusedError where they cannot be run."""
    paths = [path for path in tree.listing() if path.endswith(".py")]
    say(f"reading all of vllm {tree.release} for the hunk tests")
    errors = catalog.prefetch({tree.release: paths}, say)
    for error in errors.values():
        raise error
    with tempfile.TemporaryDirectory(prefix="vllm-series-") as folder:
        root = Path(folder)
        for path in paths:
            text = tree.read(path)
            if text is not None:
                _put(root / path, text)
        for path, text in changed.items():
            if text is None:
                (root / path).unlink(missing_ok=True)
            else:
                _put(root / path, text)
        say(f"running the hunk tests on vllm {tree.release}")
        return _pytest(tests, root)


def _put(place: Path, text: bytes) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(text)


def _pytest(tests: Sequence[Path], root: Path) -> str:
    project = _project(tests[0])
    done = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--color=no",
            "--vllm-tree", str(root), *map(str, tests),
        ],
        cwd=project,
        capture_output=True,
        text=True,
        errors="backslashreplace",
        check=False,
    )  # fmt: skip
    if done.returncode == 0:
        return ""
    said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    if "No module named pytest" in done.stderr:
        raise EnvironmentRefusedError(
            "the hunk tests need pytest, which is not installed here. Install it, or leave them "
            "out with --no-tests."
        )
    if done.returncode == _NOTHING_COLLECTED:
        raise VllmSeriesError(
            f"no test was found in {', '.join(map(str, tests))}. Name others with --tests, or "
            "leave them out with --no-tests."
        )
    return "\n".join(said[-_LINES:])


def _project(test: Path) -> Path:
    for folder in test.resolve().parents:
        if (folder / "pyproject.toml").is_file() or (folder / "pytest.ini").is_file():
            return folder
    return test.parent
