"""A folder of quilt's: the patches that its `series` file lists, with their strip levels.

References: quilt(1), "series file" and "patch files".
"""

from __future__ import annotations

import re
from pathlib import Path

from vllm_series.errors import SeriesError
from vllm_series.importing.incoming import Incoming, told_apart
from vllm_series.importing.mails import read_mail
from vllm_series.series import SERIES_FILE

_COMMENT = re.compile(r"(^|[ \t]+)#.*")


def read_quilt(folder: Path) -> list[Incoming]:
    """The patches of a quilt folder (or of the `patches/` in it), in the order of its `series`.

    Raises SeriesError where that cannot be read, PatchFormatError for a patch that cannot.
    """
    if not (folder / SERIES_FILE).is_file() and (folder / "patches" / SERIES_FILE).is_file():
        folder /= "patches"
    place = folder / SERIES_FILE
    try:
        text = place.read_text("utf-8")
    except FileNotFoundError:
        raise SeriesError(
            f"{folder} is no quilt folder: there is no {SERIES_FILE} in it. Name the folder that "
            "has one, usually patches."
        ) from None
    except UnicodeDecodeError as error:
        raise SeriesError(
            f"{place} is not UTF-8: {error.reason} at byte {error.start}. Save it as UTF-8."
        ) from None
    found = []
    for number, line in enumerate(text.split("\n"), 1):
        words = _COMMENT.sub("", line).split()
        if not words:
            continue
        level, reverse = _options(words[1:], f"{place}:{number}")
        found.append(_read(folder, words[0], level, reverse, f"{place}:{number}"))
    if not found:
        raise SeriesError(f"{place} lists no patch. Name a folder whose series does.")
    return told_apart(found)


def _options(words: list[str], where: str) -> tuple[int, bool]:
    """Strip level and whether the patch is reversed; quilt's default is -p1."""
    level, reverse, at = 1, False, 0
    while at < len(words):
        word = words[at]
        at += 1
        if word == "-p" and at < len(words):
            word += words[at]
            at += 1
        if word in ("-R", "--reverse"):
            reverse = True
        elif word == "-pab":
            level = 1
        elif found := re.fullmatch(r"(?:-p|--strip=)(\d+)", word):
            level = int(found[1])
        else:
            raise SeriesError(
                f"{where}: the option {word} is not known. Make that patch with -p1 and without "
                "others: quilt refresh -p1."
            )
    return level, reverse


def _read(folder: Path, name: str, level: int, reverse: bool, where: str) -> Incoming:
    from dataclasses import replace

    if name.startswith("/") or ".." in name.split("/"):
        raise SeriesError(f"{where}: {name} lies outside the folder. Move the patch into it.")
    try:
        text = (folder / name).read_bytes()
    except FileNotFoundError:
        raise SeriesError(
            f"{where}: {name} is not there. Add the file or take the line out."
        ) from None
    ours = name if name.endswith((".patch", ".diff")) else f"{name}.patch"
    one = read_mail(text, name, level=level, reverse=reverse)
    return replace(one, name=ours)
