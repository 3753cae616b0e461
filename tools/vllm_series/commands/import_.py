"""`vllm-series import`: changes of others made patches of a series."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vllm_series.commands.message import Said, message_options
from vllm_series.commands.options import (
    complete_releases,
    json_option,
    loudness_options,
    series_options,
    waiting,
)
from vllm_series.commands.progress import Progress
from vllm_series.commands.upstream_options import upstream_options
from vllm_series.errors import RefusedError, SeriesError, UsageError
from vllm_series.series import chosen_folder, folder_to_fill, load, public_release
from vllm_series.upstream.open import UpstreamOptions

if TYPE_CHECKING:
    from vllm_series.compose import PatchMeta
    from vllm_series.importing.appended import Appended
    from vllm_series.importing.incoming import Incoming
    from vllm_series.importing.script import Changed, Script
    from vllm_series.upstream.catalog import Catalog


@click.command("import")
@click.argument("what", metavar="SOURCE")
@click.argument("rest", metavar="[A..B | ARGUMENT...]", nargs=-1)
@click.option(
    "--base",
    metavar="RELEASE",
    shell_complete=complete_releases,
    help="The release whose files it is placed on; default: the one that it or the series names.",
)
@series_options
@click.option("--name", metavar="NAME", help="The patch's name; default: by its subject or file.")
@message_options
@click.option("-n", "--dry-run", is_flag=True, help="Print the patches; write nothing.")
@click.option("-y", "--yes", is_flag=True, help="Run a script without asking.")
@click.option(
    "--env",
    "variables",
    metavar="NAME=VALUE",
    multiple=True,
    help="A variable for a script, which sees no other; may be given several times.",
)
@click.option(
    "--site",
    "instead",
    metavar="DIR",
    multiple=True,
    help="A site-packages folder that a script names; the copy stands for it.",
)
@click.option(
    "--activate",
    is_flag=True,
    help="Guess `Activate:` from --env and the lines that a script adds.",
)
@click.option(
    "--timeout",
    "seconds",
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    help="How long a script may run.",
)
@upstream_options
@json_option
@loudness_options
def command(
    what: str,
    rest: tuple[str, ...],
    base: str | None,
    series_dir: Path | None,
    series_name: str | None,
    name: str | None,
    paragraphs: tuple[str, ...],
    message_file: Path | None,
    author: str | None,
    date: str | None,
    trailers: tuple[str, ...],
    dry_run: bool,
    yes: bool,
    variables: tuple[str, ...],
    instead: tuple[str, ...],
    activate: bool,
    seconds: float,
    upstream: UpstreamOptions,
    as_json: bool,
    quiet: bool,
    verbose: bool,
) -> int:
    """Make patches of changes that exist elsewhere, and put them at the end of the series.

    SOURCE is a diff, a mail or an mbox (`-` reads stdin), a quilt folder, commits of a checkout of
    vLLM, or a Python script that edits an installed vLLM. All of it is placed on the release's
    stock files, by the rules of apply, or nothing is written.

    A script is run, after you have agreed, on a copy of the release's files that is thrown away;
    what it changes becomes the patch, its docstring the why. In its arguments and in --env, {site}
    and {vllm} stand for the copy's folders.

    \b
      vllm-series import fix.diff --base 0.33.0 -m 'fix: count once' -m 'Because ...'
      vllm-series import series.mbox --series vllm-0.33
      vllm-series import patches/ --base 0.33.0
      vllm-series import git:~/src/vllm v0.33.0..my-branch
      vllm-series import patch_width.py --base 0.33.0 --env WIDTH=1 -- --dir {vllm}
    """
    from vllm_series.importing.appended import appended
    from vllm_series.importing.incoming import told_apart
    from vllm_series.upstream.open import open_catalog
    from vllm_series.workspace.rewriting import held, patch_name

    said = Said(paragraphs, message_file, author, date, trailers)
    with Progress(quiet or as_json) as progress:
        script = _script(what, rest, variables, instead, seconds)
        if script is None and (variables or instead or activate or yes):
            raise UsageError(f"{what} is no script. Leave out --env, --site, --activate and --yes.")
        found, tagged = ([], None) if script else _read(what, rest)
        catalog = open_catalog(upstream)
        release = _release(catalog, base, found, tagged, series_dir, series_name)
        folder = folder_to_fill(series_dir, series_name, release)
        changed: Changed | None = None
        if script is not None:
            _agreed(script, release, yes, progress)
            found, changed = _run(script, catalog, release, upstream, progress, quiet or as_json)
            if activate:
                said = _switched(said, script, changed)
        if name is not None:
            if len(found) > 1:
                raise UsageError(f"--name names one patch, and {what} holds {len(found)}.")
            found = [replace(found[0], name=patch_name(name))]
        if len(found) > 1 and (paragraphs or message_file):
            raise UsageError(f"-m and -F say one message, and {what} holds {len(found)} patches.")
        found = told_apart(found)
        progress.clear()
        notes: list[str] = list(changed.notes) if changed else []
        if changed and changed.elsewhere:
            notes.append(
                "the script wrote outside of the copy, which is not part of the patch: "
                + ", ".join(changed.elsewhere)
            )
        metas = [_meta(one, said, what, script, release, notes) for one in found]
        with held(folder, waiting) as series:
            made = appended(series, list(zip(found, metas, strict=True)), catalog, release,
                            progress.say)  # fmt: skip
            if not dry_run:
                series.write(made.files)
    notes = [
        *(f"{path} is left out: it is not part of the installed package"
          for one in found for path in one.passed),
        *notes,
        *made.notes,
    ]  # fmt: skip
    _told(_Import(made, folder, release, dry_run, tuple(notes), found, changed), as_json, quiet)
    return 0


@dataclass(frozen=True, slots=True)
class _Import:
    made: Appended
    folder: Path
    release: str
    dry_run: bool
    notes: tuple[str, ...]
    found: Sequence[Incoming]
    changed: Changed | None


def _read(source: str, rest: Sequence[str]) -> tuple[list[Incoming], str | None]:
    """What is not a script, and the release of the tag that commits start from."""
    from vllm_series.importing.commits import read_commits
    from vllm_series.importing.mails import read_mails
    from vllm_series.importing.quilt import read_quilt

    if source.startswith("git:"):
        if len(rest) != 1:
            raise UsageError("name the commits: vllm-series import git:PATH A..B.")
        return read_commits(Path(source.removeprefix("git:")).expanduser(), rest[0])
    if rest:
        raise UsageError(f"{source} takes no arguments. Leave out {' '.join(rest)}.")
    if source == "-":
        return read_mails(sys.stdin.buffer.read(), "stdin"), None
    place = Path(source)
    if place.is_dir():
        if (place / ".git").exists() and not (place / "series").is_file():
            raise UsageError(
                f"{source} is a checkout. Name its commits: vllm-series import git:{source} A..B."
            )
        return read_quilt(place), None
    if not place.exists():
        raise UsageError(
            f"there is no {source}. Name a file, a quilt folder, `-`, or git:PATH A..B."
        )
    return read_mails(place.read_bytes(), place.name), None


def _script(
    source: str,
    rest: Sequence[str],
    variables: Sequence[str],
    instead: Sequence[str],
    seconds: float,
) -> Script | None:
    from vllm_series.importing.script import Script

    place = Path(source)
    if source == "-" or source.startswith("git:") or not place.is_file():
        return None
    with place.open("rb") as file:
        first = file.readline(200)
    if place.suffix != ".py" and not (first.startswith(b"#!") and b"python" in first):
        return None
    given = {}
    for each in variables:
        key, mark, value = each.partition("=")
        if not mark or not key:
            raise UsageError(f"--env cannot be {each!r}. Give it as NAME=VALUE.")
        given[key] = value
    return Script(place.resolve(), tuple(rest), given, tuple(instead), seconds)


def _release(
    catalog: Catalog,
    base: str | None,
    found: Sequence[Incoming],
    tagged: str | None,
    series_dir: Path | None,
    series_name: str | None,
) -> str:
    """The release to place it on: as told, else as the source says, else as the series does."""
    if base is not None:
        return public_release(base)
    said = {one.base for one in found if one.base is not None}
    if len(said) > 1:
        raise UsageError(f"its patches are for {', '.join(sorted(said))}. Name one with --base.")
    if said or tagged:
        return public_release(said.pop() if said else tagged or "")
    if series_name is not None:
        from vllm_series.diffs.parse import parse
        from vllm_series.upstream.ranges import select

        try:
            folder = chosen_folder(series_dir, series_name, None)
            bases = [parse(entry.text, entry.name).base for entry in load(folder).entries]
            known = [each for each in bases if each is not None]
            if known:
                return known[-1]
        except SeriesError:
            pass
        return select(catalog.releases(), series_name.removeprefix("vllm-"))[-1]
    raise UsageError("it does not say which release it is for. Name one with --base.")


def _agreed(script: Script, release: str, yes: bool, progress: Progress) -> None:
    """Tell that the script is run, and ask. Raises UsageError where nobody can be asked,
    RefusedError where the answer is no."""
    progress.clear()
    about = (
        f"{script.place} will be run on a copy of the files of vllm {release}, in a folder that is "
        "thrown away. It runs as you, and nothing keeps it from what you may do."
    )
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(
            f"{about} There is no terminal to ask for your leave. Read it, then give --yes."
        )
    click.echo(f"vllm-series: {about}", err=True)
    if not click.confirm("Run it?", err=True):
        raise RefusedError("nothing was run and nothing was written.")


def _run(
    script: Script,
    catalog: Catalog,
    release: str,
    upstream: UpstreamOptions,
    progress: Progress,
    silent: bool,
) -> tuple[list[Incoming], Changed]:
    from vllm_series.compose import PatchMeta, compose
    from vllm_series.importing.incoming import Incoming
    from vllm_series.importing.script import run_script

    changed = run_script(script, catalog, release, progress.say, upstream.distribution)
    progress.clear()
    if changed.output.strip() and not silent:
        click.echo(f"vllm-series: {script.place.name} says:", err=True)
        click.echo("\n".join(f"  {line}" for line in changed.output.rstrip().split("\n")), err=True)
    name = script.patch_name
    blank = PatchMeta(name, "x <x@localhost>", "Thu, 1 Jan 1970 00:00:00 +0000", "x", "")
    patch = compose(blank, changed.before, changed.after, release, modes=changed.modes)
    return [Incoming(name, patch)], changed


def _switched(said: Said, script: Script, changed: Changed) -> Said:
    """With an `Activate:` for each switch that can be guessed."""
    from vllm_series.importing.script import switches

    found = switches(changed, script.variables)
    if not found:
        click.echo("vllm-series: nothing is seen that switches the patch on", err=True)
    return replace(said, trailers=(*(f"Activate: {each}" for each in found), *said.trailers))


def _meta(
    one: Incoming, said: Said, source: str, script: Script | None, release: str, notes: list[str]
) -> PatchMeta:
    """What a patch says: as the options tell, as its source does, as the user writes in the editor,
    and where none of them says it, that."""
    from vllm_series.compose import blank

    is_told = bool(said.paragraphs or said.message_file)
    whence = script.place.name if script else _whence(source)
    subject, body = script.said() if script else ("", "")
    if not is_told:
        if one.message and one.author and one.date:
            said = replace(said, commit=(one.author, one.date, one.message))
        elif one.message:
            said = replace(said, paragraphs=(one.message,), author=said.author or one.author)
        elif script is None and sys.stdin.isatty():
            pass  # the editor opens
        else:
            subject = subject or f"{one.name.rsplit('.', 1)[0]}: imported from {whence}"
            said = replace(said, paragraphs=(subject,))
    elif one.author and one.date:
        said = replace(said, commit=(one.author, one.date, ""))
    about = f"It comes from {whence}, for vllm {release}."
    meta = said.meta(one.name, about)
    if body and not is_told:
        meta = replace(meta, message=body)
    if not meta.message:
        meta = replace(meta, message=f"Imported from {whence}, which does not say why.")
        notes.append(f"{one.name} does not say why: vllm-series edit {one.name} lets you write it")
    try:
        blank(meta)
    except RefusedError:
        if is_told or script is None:
            raise
        # A docstring may hold what a mail cannot, such as a diff; set off, it is only text.
        indented = "\n".join(f"  {line}".rstrip() for line in meta.message.split("\n"))
        meta = replace(meta, message=indented)
    return meta


def _whence(source: str) -> str:
    return "stdin" if source == "-" else Path(source.removeprefix("git:")).name


def _told(done: _Import, as_json: bool, quiet: bool) -> None:
    for note in done.notes:
        click.echo(f"vllm-series: {note}", err=True)
    if as_json:
        from vllm_series.report import as_json as rendered

        value: dict[str, object] = {
            "command": "import",
            "outcome": "dry run" if done.dry_run else "written",
            "series": done.folder.name,
            "base": done.release,
            "patches": [
                {
                    "name": patch.name,
                    "path": str(done.folder / patch.name),
                    "subject": patch.subject,
                    "files": sorted({path for change in patch.files
                                     for path in change.paths(1) if path}),
                    "passed": list(one.passed),
                    "text": patch.text.decode("utf-8", "replace"),
                }
                for patch, one in zip(done.made.patches, done.found, strict=True)
            ],
            "notes": list(done.notes),
            "output": done.changed.output if done.changed else None,
        }  # fmt: skip
        click.echo(rendered(value))
    elif done.dry_run:
        for patch in done.made.patches:
            click.echo(patch.text, nl=False)
    elif not quiet:
        for patch in done.made.patches:
            click.echo(str(done.folder / patch.name))
