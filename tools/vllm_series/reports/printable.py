"""Text from outside (names of files, lines of other people's code) made safe to print.

A file's name may hold a line break, an escape sequence, a mark that turns the reading direction or
half a character. None of that may change what a terminal, a log or a table shows.
"""

from __future__ import annotations

from unicodedata import category

MARK = "…"
"""Stands where a text was cut."""


def printable(text: str, keep: str = "") -> str:
    """`text` with everything that has no shape of its own written as an escape (`\\x1b`).

    `keep` names characters to leave as they are, such as tabs.
    """
    if text.isprintable():
        return text
    return "".join(
        letter
        if letter.isprintable() or letter in keep
        else letter.encode("unicode_escape").decode("ascii")
        for letter in text
    )


def columns(text: str) -> int:
    """How many columns of a terminal a printable text takes at most: two a letter for East Asian
    ones, none for combining marks (Unicode Standard Annex #11).

    Letter by letter, so that the columns of two texts are those of both together. A spacing mark
    and the emoji selector take a column in some places and count for one in all.
    """
    if text.isascii():
        return len(text)
    from wcwidth import wcwidth  # 70 ms, and most names are plain

    return sum(
        1 if letter == "\ufe0f" or category(letter) == "Mc" else max(0, wcwidth(letter))
        for letter in text
    )


def cut(text: str, limit: int) -> str:
    """`text` in at most `limit` columns, its middle left out; both ends tell names apart."""
    if columns(text) <= limit:
        return text
    room = max(0, limit - 1)
    tail = _start(text[::-1], room // 2)[::-1]
    return _start(text, room - columns(tail)) + MARK + tail


def _start(text: str, limit: int) -> str:
    taken = ""
    for letter in text:
        if columns(taken + letter) > limit:
            break
        taken += letter
    return taken


def padded(text: str, width: int) -> str:
    """`text` with blanks behind it, `width` columns in all."""
    return text + " " * (width - columns(text))


def wrapped(text: str, width: int, indent: str) -> str:
    """`text` in lines of at most `width` columns, all but the first behind `indent`.

    Breaks at blanks, and within a word only where it is longer than a line: paths are to be copied.
    """
    lines: list[str] = []
    line = ""
    for word in text.split():
        if line and columns(line) + 1 + columns(word) <= width:
            line += f" {word}"
            continue
        if line:
            lines.append(line)
        line = indent + word if lines else word
        while columns(line) > width:
            # One letter at least, whatever it takes.
            part = max(_start(line, width), line[: len(indent) + 1], key=len)
            lines.append(part)
            line = indent + line[len(part) :]
    return "\n".join([*lines, line])
