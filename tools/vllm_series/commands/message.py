"""What a new patch says beside its diff: from the options, an editor, or the commit it comes from.

The words are git's: `-m` (each one a paragraph), `-F`, `--author`, `--date`, `--trailer`, and a
template in the editor where none of them gives a message.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, TypeVar

import click

from vllm_series.compose import PatchMeta, split_message, with_trailer
from vllm_series.errors import EnvironmentRefusedError, UsageError

_F = TypeVar("_F", bound=Callable[..., Any])
_DEFAULTS = (("Origin", "vendor"), ("Forwarded", "no"))

_OPTIONS = (
    click.option(
        "-m",
        "--message",
        "paragraphs",
        metavar="TEXT",
        multiple=True,
        help="The message; the first is the subject, each further one a paragraph.",
    ),
    click.option(
        "-F",
        "--file",
        "message_file",
        metavar="FILE",
        type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
        help="Read the message from a file; `-` reads stdin.",
    ),
    click.option("--author", metavar="NAME <MAIL>", help="Default: that of git's configuration."),
    click.option("--date", metavar="DATE", help="As 2026-12-01, or a mail's. Default: today."),
    click.option(
        "--trailer",
        "trailers",
        metavar="KEY: VALUE",
        multiple=True,
        help="Add a trailer, such as 'Activate: SOME_VARIABLE=1'; may be given several times.",
    ),
)


def message_options(function: _F) -> _F:
    """`-m`, `-F`, `--author`, `--date` and `--trailer`."""
    decorated: Any = function
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    made: _F = decorated
    return made


@dataclass(frozen=True, slots=True)
class Said:
    """What the options say, and what a commit says where they do not: author, date, message."""

    paragraphs: Sequence[str] = ()
    message_file: Path | None = None
    author: str | None = None
    date: str | None = None
    trailers: Sequence[str] = ()
    commit: tuple[str, str, str] | None = None

    def meta(self, name: str, about: str) -> PatchMeta:
        """The whole of it; the editor is opened where nobody has given a message, with `about` in
        comments. Raises UsageError where there is none."""
        given = tuple(_trailer(text) for text in self.trailers)
        date = _date(self.date) if self.date else (self.commit[1] if self.commit else _midnight())
        day = parsedate_to_datetime(date) if self.date else datetime.now(timezone.utc)
        wanted = (*_DEFAULTS, ("Last-Update", day.strftime("%Y-%m-%d")))
        if self.paragraphs and self.message_file:
            raise UsageError("-m and -F are two messages. Give one of them.")
        if self.paragraphs:
            text = "\n\n".join(self.paragraphs)
        elif self.message_file is not None:
            text = _read(self.message_file)
        elif self.commit:
            text = self.commit[2]
        else:
            text = _edited(name, about, _joined(given, wanted))
        subject, message, trailers = split_message(text)
        return PatchMeta(
            name,
            self.author or (self.commit[0] if self.commit else _identity()),
            date,
            subject,
            message,
            _joined((*trailers, *(pair for pair in given if pair not in trailers)), wanted),
        )


def _joined(
    trailers: Sequence[tuple[str, str]], wanted: Sequence[tuple[str, str]]
) -> tuple[tuple[str, str], ...]:
    """The trailers with those that every patch must have, where they are not there."""
    joined = tuple(trailers)
    for key, value in wanted:
        if not any(name.lower() == key.lower() for name, _ in joined):
            joined = with_trailer(joined, key, value)
    return joined


def _trailer(text: str) -> tuple[str, str]:
    key, mark, value = text.partition(":")
    if not mark or not value.strip():
        raise UsageError(f"--trailer cannot be {text!r}. Give it as 'Key: value'.")
    return key.strip(), value.strip()


def _read(place: Path) -> str:
    data = sys.stdin.buffer.read() if str(place) == "-" else place.read_bytes()
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{place} is not UTF-8 at byte {error.start}. Save it as UTF-8.") from None


def _edited(name: str, about: str, trailers: Sequence[tuple[str, str]]) -> str:
    if not (os.environ.get("VISUAL") or os.environ.get("EDITOR") or sys.stdin.isatty()):
        raise UsageError(
            "there is no message, no editor and no terminal. Give one with -m or -F, or set EDITOR."
        )
    said = "\n".join(f"{key}: {value}" for key, value in trailers)
    comments = "\n".join(f"# {line}".rstrip() for line in about.splitlines())
    template = (
        "\n\n\n"
        f"{said}\n\n"
        f"# The message of {name}: its subject in the first line, then an empty line, then why\n"
        "# the change is made, and the trailers. Lines that start with # are left out, and\n"
        "# without a subject no patch is made.\n"
        f"#\n{comments}\n"
    )
    text = click.edit(template, extension=".txt")
    if text is None or text == template:
        raise UsageError("the message was not written. Nothing was made.")
    kept = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    if not kept.strip() or kept.strip() == said:
        raise UsageError("the message has no subject. Nothing was made.")
    return kept.strip("\n")


def _identity() -> str:
    """Who git takes the user for, without the time behind it."""
    try:
        done = subprocess.run(
            ["git", "var", "GIT_AUTHOR_IDENT"], capture_output=True, check=False, text=True
        )
        found = done.stdout.strip().rpartition("> ")[0]
    except FileNotFoundError:
        found = ""
    if not found:
        raise EnvironmentRefusedError(
            "git does not know who you are. Give --author 'Name <mail>', or set user.name and "
            "user.email with git config."
        )
    return found + ">"


def _date(text: str) -> str:
    """A date as git writes it into a mail."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        try:
            when = parsedate_to_datetime(text)
        except (ValueError, TypeError):
            raise UsageError(f"--date cannot be {text!r}. Give it as 2026-12-01.") from None
    if when.tzinfo is None:
        when = when.replace(tzinfo=timezone.utc)
    return _mail_date(when)


def _midnight() -> str:
    now = datetime.now(timezone.utc)
    return _mail_date(now.replace(hour=0, minute=0, second=0, microsecond=0))


def _mail_date(when: datetime) -> str:
    from email.utils import format_datetime

    weekday, day, rest = format_datetime(when).split(" ", 2)
    return f"{weekday} {int(day)} {rest}"
