"""`--source`: releases that lie on this machine, in whatever form.

`dir:PATH` is one unpacked release, or a folder with several that are named by their versions;
`sdist:FILE` a source archive; `git:PATH@v0.33.0` a commit, `git:PATH` every tag that names a
release. Digests of files can be compared within one kind of source.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

from vllm_series.environments import find_tree
from vllm_series.errors import EnvironmentRefusedError, UsageError, VllmSeriesError
from vllm_series.trees import PACKAGE, ReleaseTree
from vllm_series.upstream.catalog import Release
from vllm_series.upstream.folder import FolderTree

if TYPE_CHECKING:
    from vllm_series.upstream.fetch import Source
    from vllm_series.upstream.sdist import SdistTree
    from vllm_series.upstream.store import Store

FORMS = "index, dir:PATH, sdist:FILE or git:PATH@v0.33.0"

_LARGEST_SDIST = 256 << 20


class LocalCatalog:
    """Releases whose trees are made when they are asked for."""

    def __init__(
        self, name: str, made: Mapping[str, tuple[Release, Callable[[], ReleaseTree]]]
    ) -> None:
        self._name = name
        self._made = {version: made[version] for version in sorted(made, key=Version)}
        self._trees: dict[str, ReleaseTree] = {}

    def releases(self) -> tuple[Release, ...]:
        """Every release, oldest first."""
        return tuple(release for release, _ in self._made.values())

    def tree(self, version: str) -> ReleaseTree:
        """The files of one release."""
        if version not in self._made:
            raise UsageError(
                f"{self._name} has no release {version}: {', '.join(self._made) or 'none at all'}. "
                "Name one of these, or another --source."
            )
        if version not in self._trees:
            self._trees[version] = self._made[version][1]()
        return self._trees[version]

    def prefetch(
        self, wanted: Mapping[str, Collection[str]], say: Callable[[str], None] = lambda _step: None
    ) -> Mapping[str, VllmSeriesError]:
        """Read the files once; the errors by release."""
        failed: dict[str, VllmSeriesError] = {}
        for number, (version, paths) in enumerate(wanted.items(), 1):
            try:
                tree = self.tree(version)
                for path in paths:
                    tree.read(path)
            except VllmSeriesError as error:
                failed[version] = error
            say(f"{version} read, {number} of {len(wanted)}")
        return failed


def open_source(source: str, store: Store) -> LocalCatalog:
    """The releases that a `--source` other than the index names. `store` keeps the digests of what
    lies in folders.

    Raises UsageError for a form that there is not, EnvironmentRefusedError where nothing is found.
    """
    kind, mark, place = source.partition(":")
    if not mark or not place or kind not in ("dir", "sdist", "git"):
        raise UsageError(f"--source cannot be {source!r}. Give {FORMS}.")
    if kind == "git":
        return _of_git(place)
    path = Path(place).expanduser()
    return _of_folder(path, store) if kind == "dir" else _of_sdist(path)


def fetched_sdist(release: Release, opened: Callable[[], Source], store: Store) -> SdistTree:
    """The source archive of a release that the index has no wheel of, read as a whole and held
    against the digest of the index."""
    import io

    from vllm_series.upstream.sdist import read_sdist

    name = f"{release.distribution} {release.version} ({release.wheel})"
    data = store.blob(release.sha256) if release.sha256 else None
    if data is None:
        source = opened()
        if source.length > _LARGEST_SDIST:
            raise EnvironmentRefusedError(
                f"{name} has {source.length} bytes, more than any source archive. It is not read."
            )
        data = source.read(0, source.length)
        source.close()
        store.put_blob(data)
    digest = sha256(data).hexdigest()
    if release.sha256 not in (None, digest):
        raise EnvironmentRefusedError(
            f"{name} does not have the bytes that the index names: sha256 {digest}. "
            "Nothing of it is used."
        )
    return read_sdist(io.BytesIO(data), name, digest)


def _of_folder(folder: Path, store: Store) -> LocalCatalog:
    if not folder.is_dir():
        raise EnvironmentRefusedError(f"{folder} is not a folder. Check --source dir:PATH.")
    name = f"the folder {folder}"
    if (folder / PACKAGE).is_dir():
        tree = find_tree(folder)
        version = tree.version
        if version is None or not _is_version(version):
            raise EnvironmentRefusedError(
                f"{folder} does not say which release it is. Put it into a folder that is named by "
                "its version, and give the folder above that."
            )
        made = FolderTree(tree, version, store)
        return LocalCatalog(name, {version: (Release(version), lambda: made)})
    found: dict[str, tuple[Release, Callable[[], ReleaseTree]]] = {}
    for place in sorted(folder.iterdir()):
        if _is_version(place.name) and (place / PACKAGE).is_dir():
            version = str(Version(place.name))
            found[version] = (Release(version), _later(place, version, store))
    if not found:
        raise EnvironmentRefusedError(
            f"{folder} holds neither {PACKAGE}/ nor folders that are named by a version and hold "
            "it. Check --source dir:PATH."
        )
    return LocalCatalog(name, found)


def _later(place: Path, version: str, store: Store) -> Callable[[], ReleaseTree]:
    return lambda: FolderTree(find_tree(place), version, store)


def _of_sdist(path: Path) -> LocalCatalog:
    from vllm_series.upstream.sdist import read_sdist

    try:
        with path.open("rb") as file:
            digest = sha256()
            while block := file.read(1 << 20):
                digest.update(block)
            file.seek(0)
            tree = read_sdist(file, f"vllm ({path.name})", digest.hexdigest())
    except OSError as error:
        raise EnvironmentRefusedError(
            f"{path} cannot be read: {error.strerror or error}. Check --source sdist:FILE."
        ) from error
    if not _is_version(tree.release):
        raise EnvironmentRefusedError(f"{path} calls itself {tree.release!r}, which is no version.")
    release = Release(
        tree.release, wheel=path.name, size=path.stat().st_size, sha256=digest.hexdigest()
    )
    return LocalCatalog(path.name, {tree.release: (release, lambda: tree)})


def _of_git(place: str) -> LocalCatalog:
    from vllm_series.upstream.commit import CommitTree, Repository

    folder, mark, wanted = place.rpartition("@")
    if not mark or Path(place).expanduser().is_dir():
        folder, wanted = place, ""
    if mark and not folder:
        raise UsageError(f"--source cannot be {'git:' + place!r}. Give {FORMS}.")
    repository = Repository(Path(folder).expanduser())
    tags = [repository.resolve(wanted)] if wanted else repository.tags()
    if not tags:
        raise EnvironmentRefusedError(
            f"{folder} has no tag that names a release. Name a commit: --source git:{folder}@main, "
            "or fetch the tags: git fetch --tags."
        )

    def made(tag_number: int) -> Callable[[], ReleaseTree]:
        return cache(lambda: CommitTree(repository, tags[tag_number]))

    return LocalCatalog(
        f"the repository {folder}",
        {
            tag.release: (
                Release(tag.release, date=tag.date, prerelease=Version(tag.release).is_prerelease),
                made(number),
            )
            for number, tag in enumerate(tags)
        },
    )


def _is_version(word: str) -> bool:
    try:
        Version(word)
    except InvalidVersion:
        return False
    return True
