"""Two small releases in a folder, a series on one of them, and `rebase` between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from commandline import Ran, run
from vllm_series.compose import PatchMeta, compose
from vllm_series.series import SERIES_FILE

Texts = Mapping[str, str]
TRAILERS = (
    ("Origin", "vendor"),
    ("Forwarded", "no"),
    ("Last-Update", "2026-12-01"),
)


@dataclass
class Project:
    """A folder with releases, a `series/`, and a changelog; the cache lies in it too."""

    root: Path

    @property
    def series(self) -> Path:
        return self.root / "project" / "series"

    @property
    def changelog(self) -> str:
        return (self.root / "project" / "CHANGELOG.md").read_text()

    def release(self, version: str, files: Texts) -> None:
        for path, text in files.items():
            place = self.root / "releases" / version / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)

    def line(self, base: str, steps: Mapping[str, tuple[Texts, Texts]], **trailers: str) -> None:
        """A series for the line of `base`: for each patch name the files that it changes, before
        and after."""
        folder = self.series / f"vllm-{base.rpartition('.')[0]}"
        folder.mkdir(parents=True)
        for name, (before, after) in steps.items():
            meta = PatchMeta(
                name,
                "A Tester <tester@example.com>",
                "Tue, 1 Dec 2026 00:00:00 +0000",
                f"change what {name} changes",
                "It is better so.",
                (("Base", f"vllm {base}"), *trailers.items(), *TRAILERS),
            )
            patch = compose(meta, _encoded(before), _encoded(after), base)
            (folder / name).write_bytes(patch.text)
        (folder / SERIES_FILE).write_text("".join(f"{name}\n" for name in steps))

    def rebase(self, *words: str | Path, inside: tuple[str, ...] = (), **env: str) -> Ran:
        """Run it, with `inside` in front of the command line; releases come from the folder."""
        return run(
            "rebase",
            *words,
            "--source",
            f"dir:{self.root / 'releases'}",
            cwd=self.series.parent,
            stdin=b"",
            inside=inside,
            VLLM_SERIES_CACHE=str(self.root / "cache"),
            VLLM_SERIES_DIR=str(self.series),
            **env,
        )

    @property
    def leftovers(self) -> list[str]:
        """What rebases have left in the cache."""
        folder = self.root / "cache" / "rebase"
        return sorted(path.name for path in folder.glob("*")) if folder.is_dir() else []

    @property
    def workdir(self) -> Path:
        """The repository of the rebase that is open."""
        pointer = next((self.root / "cache" / "rebase").glob("*/open"))
        return Path(pointer.read_text())


def project(root: Path) -> Project:
    made = Project(root)
    made.series.mkdir(parents=True)
    (made.series.parent / "CHANGELOG.md").write_text("# Changelog\n\n## [Unreleased]\n")
    return made


def _encoded(texts: Texts) -> dict[str, bytes | None]:
    return {path: text.encode() for path, text in texts.items()}
