"""Which installation is meant: from a folder, an interpreter or the running process to a DiskTree.

vLLM is never imported and `importlib.metadata` is never asked: importing takes seconds, and what
counts is the folder that Python would import from and the one distribution whose RECORD owns it.
A second owner, a missing RECORD or an editable install make "the installed files" a guess, so they
are refused here with the way to go.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_series.errors import EnvironmentRefusedError
from vllm_series.trees import PACKAGE, DiskTree, Distribution, python_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_OWNED = f"{PACKAGE}/__init__.py".encode()
_ASK = (
    "import json, sys;"
    "print('\\n@vllm-series@' + json.dumps([sys.path, sys.executable, sys.version_info[:2]]))"
)
_ASK_SECONDS = 60


def find_tree(target: Path | None = None, python: str | None = None) -> DiskTree:
    """The tree that a command works on.

    `target` is a folder with `vllm/` in it; `python` an interpreter (path or name) whose
    environment is meant; neither means the environment of the running interpreter. With both,
    the tree is `target` and its files are compiled by `python`.

    Raises EnvironmentRefusedError where there is no vLLM or it cannot be patched safely.
    """
    asked = _ask(python) if python is not None else None
    if target is not None:
        tree = _from_folder(target)
        if asked:
            return DiskTree(tree.root, tree.distribution, asked[1], asked[2])
        return tree
    if asked:
        paths, executable, version = asked
        return _from_path(paths, executable, version)
    return _from_path(sys.path, Path(sys.executable), (sys.version_info[0], sys.version_info[1]))


def _ask(python: str) -> tuple[list[str], Path, tuple[int, int]]:
    import shutil
    import subprocess

    found = shutil.which(python)
    if found is None:
        raise EnvironmentRefusedError(
            f"{python} is not a Python interpreter that can be started. "
            "Give its path, for example .venv/bin/python."
        )
    try:
        done = subprocess.run(
            [found, "-c", _ASK],
            capture_output=True,
            check=False,
            timeout=_ASK_SECONDS,
            stdin=subprocess.DEVNULL,
        )
        answer = done.stdout.rpartition(b"\n@vllm-series@")[2].partition(b"\n")[0]
        paths, executable, version = json.loads(answer)
        return paths, Path(executable or found), (version[0], version[1])
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:
        raise EnvironmentRefusedError(
            f"{found} does not answer as a Python interpreter ({type(error).__name__}). "
            "Give the path of the environment's python."
        ) from error


def _from_path(paths: Iterable[str], python: Path, version: tuple[int, int]) -> DiskTree:
    folders = list(_import_folders(paths))
    for folder in folders:
        if (folder / PACKAGE / "__init__.py").is_file():
            root = folder.resolve()
            owner = _owner(root)
            if owner is None:
                _refuse_editable(folders)
            return DiskTree(root, owner, python, version)
    _refuse_editable(folders)
    hint = ""
    active = os.environ.get("VIRTUAL_ENV")
    if active and Path(active).resolve() != python.parent.parent.resolve():
        hint = f" The active environment is another one: --python {active}/bin/python."
    raise EnvironmentRefusedError(
        f"no vLLM is installed for {python}. Name the interpreter that runs vLLM with --python, "
        f"or a folder that holds {PACKAGE}/ with --target.{hint}"
    )


def _import_folders(paths: Iterable[str]) -> Iterator[Path]:
    """The folders of `sys.path`, without the one that only says where a command was started.

    That one stands in front of the standard library; a `site-packages` stands behind it, also when
    the command was started there.
    """
    named = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    here = Path.cwd()
    in_front = True
    for entry in paths:
        if not entry:
            continue
        folder = Path(entry)
        if in_front and folder == here and entry not in named:
            continue
        if folder.is_dir():
            in_front = in_front and not (folder / "os.py").is_file()
            yield folder


def _from_folder(target: Path) -> DiskTree:
    if not target.is_dir():
        raise EnvironmentRefusedError(f"{target} is not a folder. --target takes one that exists.")
    root = target.resolve()
    package = root / PACKAGE
    if package.is_symlink():
        raise EnvironmentRefusedError(
            f"{package} is a link to {package.resolve()}. Give the folder that really holds "
            f"{PACKAGE}/: --target {package.resolve().parent}."
        )
    if package.is_dir():
        owner = _owner(root)
        if owner is None:
            _refuse_editable([root])
        return DiskTree(root, owner, *python_of(root))
    if root.name == PACKAGE and (root / "__init__.py").is_file():
        raise EnvironmentRefusedError(
            f"{target} is the package itself. Give the folder above: --target {root.parent}."
        )
    if (root / "pyvenv.cfg").is_file():
        raise EnvironmentRefusedError(
            f"{target} is an environment, not a folder that holds {PACKAGE}/. "
            f"Use --python {target / 'bin' / 'python'}."
        )
    _refuse_editable([root])
    raise EnvironmentRefusedError(
        f"no vLLM in {target}: it has no {PACKAGE}/ folder. "
        "Give a site-packages folder or an unpacked release."
    )


def _owner(root: Path) -> Distribution | None:
    """The one distribution whose RECORD lists the package; None where no metadata claims it."""
    folders = [
        Path(entry.path)
        for entry in os.scandir(root)
        if entry.name.endswith(".dist-info") and entry.is_dir()
    ]
    likely = [folder for folder in folders if folder.name.lower().startswith(PACKAGE)]
    owners = [folder for folder in likely if _owns(folder)]
    if not owners:
        for folder in likely:
            if _stem(folder)[0] == PACKAGE and not (folder / "RECORD").exists():
                raise EnvironmentRefusedError(
                    f"{folder} has no RECORD, so its files cannot be told from others. "
                    "Reinstall vLLM with pip or uv; a system package cannot be patched."
                )
        owners = [folder for folder in folders if folder not in likely and _owns(folder)]
    if len(owners) > 1:
        names = " and ".join(sorted(folder.name for folder in owners))
        raise EnvironmentRefusedError(
            f"{names} both own {PACKAGE}/ in {root}: one was installed over the other. "
            "Uninstall both, then install the one that is meant."
        )
    return _distribution(owners[0]) if owners else None


def _owns(dist_info: Path) -> bool:
    try:
        data = (dist_info / "RECORD").read_bytes()
    except FileNotFoundError:
        return False
    except OSError as error:
        advice = (
            "Work as its owner, or let this user read it"
            if isinstance(error, PermissionError)
            else "Reinstall vLLM"
        )
        raise EnvironmentRefusedError(
            f"{dist_info / 'RECORD'} cannot be read: {error.strerror}. {advice}."
        ) from error
    if not data.strip() and _stem(dist_info)[0] == PACKAGE:
        raise EnvironmentRefusedError(
            f"{dist_info / 'RECORD'} is empty: the installation is damaged. Reinstall vLLM."
        )
    return data.startswith((_OWNED + b",", b'"' + _OWNED + b'"')) or any(
        mark + _OWNED + end in data for mark, end in ((b"\n", b","), (b'\n"', b'",'))
    )


def _stem(dist_info: Path) -> tuple[str, str]:
    name, _, version = dist_info.name.removesuffix(".dist-info").partition("-")
    return name.lower(), version


def _distribution(dist_info: Path) -> Distribution:
    """Name and version as METADATA states them, else as the folder is named."""
    name, version = _stem(dist_info)
    try:
        with (dist_info / "METADATA").open("rb") as metadata:
            head = metadata.read(4096).decode("utf-8", "replace")
    except OSError:
        head = ""
    for line in head.splitlines():
        key, _, value = line.partition(":")
        if not line.strip():
            break
        if key.lower() == "name":
            name = value.strip()
        elif key.lower() == "version":
            version = value.strip()
    return Distribution(name, version, dist_info)


def _refuse_editable(folders: Iterable[Path]) -> None:
    for folder in folders:
        for place in sorted(folder.iterdir()):
            source = None
            if not place.name.lower().startswith(PACKAGE):
                continue
            if place.suffix == ".dist-info":
                source = _editable_source(place)
            elif place.name == f"{PACKAGE}.egg-link":
                source = place.read_text("utf-8", "replace").split("\n", 1)[0].strip()
            if source is not None:
                raise EnvironmentRefusedError(
                    f"vLLM is installed as editable in {folder}: its files are the checkout "
                    f"{source}. Patch that with git (git am), or as a folder with "
                    f"--target {source}; or install a wheel."
                )


def _editable_source(dist_info: Path) -> str | None:
    """The checkout behind an editable install of vLLM (PEP 610's `dir_info`), else None.

    A plugin (`vllm-ascend`) may well be editable; only a checkout that holds `vllm/` counts.
    """
    try:
        origin = json.loads((dist_info / "direct_url.json").read_bytes())
    except (OSError, ValueError):
        return None
    if not (isinstance(origin, dict) and (origin.get("dir_info") or {}).get("editable")):
        return None
    from urllib.parse import unquote, urlsplit

    source = unquote(urlsplit(str(origin.get("url", ""))).path)
    is_vllm = _stem(dist_info)[0] == PACKAGE or (Path(source) / PACKAGE / "__init__.py").is_file()
    return source if is_vllm else None
