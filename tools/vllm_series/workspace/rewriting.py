"""A series folder rewritten: whoever looks finds the old series or the new one, whole.

One file alone is replaced in place. Where several change, the folder is prepared beside itself and
exchanged, as a rebase does it. Only one command at a time writes into a folder of series, and what
was read must still be what is there when it is written.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from vllm_series.errors import RefusedError, SeriesError, UsageError
from vllm_series.series import SERIES_FILE, called, names


@dataclass(frozen=True, slots=True)
class Held:
    """A series folder that no other command writes into: its files by name, as they are."""

    folder: Path
    files: Mapping[str, bytes]

    def write(self, files: Mapping[str, bytes]) -> bool:
        """Let the folder hold these files and no other; False where it does already.

        Raises RefusedError where someone has changed it meanwhile.
        """
        from vllm_series.workspace import writing
        from vllm_series.workspace.state import put

        changed = [
            name
            for name in files.keys() | self.files.keys()
            if files.get(name) != self.files.get(name)
        ]
        if not changed:
            return False
        if _files(self.folder) != self.files:
            raise RefusedError(
                f"{self.folder} was changed while this command ran. Nothing was written; run it "
                "again."
            )
        if len(changed) == 1 and changed[0] in files and "/" not in changed[0]:
            put(self.folder / changed[0], files[changed[0]])
        else:
            writing.move_in(self.folder.parent, self.folder.name, files)
        return True


@contextlib.contextmanager
def held(folder: Path, waiting: Callable[[str], None]) -> Iterator[Held]:
    """Hold a series folder to write into it; where another command does, say so once and wait.

    Raises RefusedError for a folder with links in it, since what they lead to is not the folder's.
    """
    from vllm_series.workspace.state import WRITING, Home

    folder = folder.resolve()
    home = Home(folder.parent)
    with home.locked(waiting):
        batch = home.load()
        if batch and batch.now and batch.now.phase == WRITING:
            raise RefusedError(
                f"a rebase was cut off while it wrote into {folder.parent}. "
                "Let it end first: vllm-series rebase --continue."
            )
        yield Held(folder, _files(folder))


def _files(folder: Path) -> dict[str, bytes]:
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            raise RefusedError(f"{path} is a link. Put the file itself into the series folder.")
        if path.is_file():
            found[path.relative_to(folder).as_posix()] = path.read_bytes()
    return found


def patch_name(name: str) -> str:
    """The file name of a patch that a person names with or without its ending.

    Raises UsageError for what cannot be one.
    """
    full = name if name.endswith((".patch", ".diff")) else f"{name}.patch"
    stem = full.rpartition(".")[0]
    parts = full.split("/")
    if (
        not stem
        or not full.isprintable()
        or any(part in ("", ".", "..") for part in parts)
        or any(letter in full for letter in ' \t#"\\')
        or full.startswith("-")
    ):
        raise UsageError(
            f"{name!r} cannot name a patch. Take letters, digits, dots, dashes and underscores."
        )
    return full


def refuse_taken(held: Held, name: str) -> None:
    """Raises SeriesError where the folder has a patch of that name already."""
    if SERIES_FILE in held.files and name in names(held.folder):
        raise SeriesError(
            f"{held.folder / SERIES_FILE} lists {name} already. Take another name, or "
            f"vllm-series refresh {name}."
        )
    if name in held.files:
        raise SeriesError(
            f"{held.folder / name} is there already, though the series does not list it. Take "
            "another name, or delete it."
        )


def listed(held: Held, name: str, after: str | None = None) -> tuple[bytes, int]:
    """The text of the `series` file with one more patch, and that patch's index: last, or behind
    the patch `after`. Comments and blank lines stay where they are.

    Raises SeriesError where `after` is not in the series.
    """
    known = names(held.folder) if SERIES_FILE in held.files else []
    text = held.files.get(SERIES_FILE, b"")
    line = name.encode() + b"\n"
    if after is None:
        gap = b"" if not text or text.endswith(b"\n") else b"\n"
        return text + gap + line, len(known)
    meant = [other for other in known if after in called(other)]
    if not meant:
        raise SeriesError(
            f"{held.folder / SERIES_FILE} lists no {after}: it has {', '.join(known) or 'none'}. "
            "Name one of these."
        )
    rows = text.split(b"\n")
    at = next(
        number
        for number, row in enumerate(rows)
        if row.split(b"#")[0].split()[:1] == [meant[0].encode()]
    )
    rows.insert(at + 1, line[:-1])
    return b"\n".join(rows), known.index(meant[0]) + 1
