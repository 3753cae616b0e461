"""An anchor script made a patch: run on a copy of a release's files, and what it changed taken.

The patch holds what the script did to these very files, so it applies to the bytes that the script
writes. A script that fails, or that does nothing and says so with exit code 0, is told by the texts
that it looks for and this release does not have.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_series.errors import RefusedError, UsageError
from vllm_series.importing.anchors import anchors, missing, named_files
from vllm_series.importing.incoming import named, subject_of
from vllm_series.importing.throwaway import Outcome, State, Throwaway
from vllm_series.trees import PACKAGE

if TYPE_CHECKING:
    from vllm_series.trees import ReleaseTree
    from vllm_series.upstream.catalog import Catalog

TIMEOUT = 60.0
"""Seconds that a script may take."""

_COPIED = (
    ".py", ".pyi", ".json", ".jinja", ".txt", ".md", ".sh", ".toml", ".yaml", ".yml", ".ini",
    ".cfg", ".cu", ".cuh", ".typed",
)  # fmt: skip
"""What a script may want to edit; libraries and the headers of others stay out of the copy."""

_DOUBT = re.compile(
    r"\b(fail(ed)?|warn(ing)?|error|skip(ped|ping)?|not found|not applied|no[- ]?op|missing)\b",
    re.I,
)
_FIXED = re.compile(r"/[\w./+-]*/(?:site|dist)-packages\b")
_SWITCH = re.compile(
    rb"""(?:environ\.get|getenv)\(\s*["'](\w+)["'](?:\s*,\s*["'](?:0|false|)["'])?\s*\)"""
    rb"""\s*==\s*["'](\w+)["']"""
)


@dataclass(frozen=True, slots=True)
class Script:
    """A script and how to run it: `words` are its arguments, `variables` all that it is given of an
    environment beside the usual few, `instead` folders that it names and that stand for the copy's
    site-packages. In words and variables `{site}` and `{vllm}` stand for the copy's folders."""

    place: Path
    words: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    instead: tuple[str, ...] = ()
    seconds: float = TIMEOUT

    @property
    def patch_name(self) -> str:
        """`dynwidth.patch` of `patch_dynwidth.py`."""
        return named(re.sub(r"^patch[_-]+", "", self.place.stem) or self.place.stem)

    def said(self) -> tuple[str, str]:
        """Subject and why-text by its docstring; the file's name where it has none."""
        text = _docstring(self.place)
        if text:
            return subject_of(text)
        return f"{self.patch_name.removesuffix('.patch')}: what {self.place.name} does", ""

    def fixed_folders(self) -> list[str]:
        """Folders of installations that its text names and that nothing stands for."""
        found = {match for text in _texts(self.place) for match in _FIXED.findall(text)}
        given = [folder.rstrip("/") for folder in self.instead]
        return sorted(folder for folder in found if folder not in given)


@dataclass(frozen=True, slots=True)
class Changed:
    """What a script made of the files: texts and git modes before and after, what it printed, and
    what the user should know. `elsewhere` are files that it wrote outside of the copy."""

    before: Mapping[str, bytes | None]
    after: Mapping[str, bytes | None]
    modes: tuple[Mapping[str, str], Mapping[str, str]]
    output: str
    notes: tuple[str, ...]
    elsewhere: tuple[str, ...]


def run_script(
    script: Script,
    catalog: Catalog,
    release: str,
    say: Callable[[str], None] = lambda _step: None,
    distribution: str = "vllm",
) -> Changed:
    """Run the script twice on a copy of the release's files, and take what the first run changed.

    The user must have agreed before. Raises RefusedError where it fails, takes too long or changes
    nothing, with the anchors that the release does not have; UsageError where it names a folder of
    an installation.
    """
    fixed = script.fixed_folders()
    if fixed:
        raise UsageError(
            f"{script.place.name} names {', '.join(fixed)}, and it is to edit a copy. Give "
            f"--site {fixed[0]} to let the copy stand for it, or let the script ask sysconfig."
        )
    tree = catalog.tree(release)
    given = _copied(tree, catalog, release, say)
    asks_pip = any(re.search(r"\bpip3?\b", text) for text in _texts(script.place))
    with Throwaway(release, given.texts, given.modes, distribution, with_pip=asks_pip) as place:

        def ran() -> Outcome:
            return place.run(
                script.place, script.words, script.variables, script.seconds, script.instead
            )

        say(f"running {script.place.name}")
        first = ran()
        after = place.state()
        changed = [
            path
            for path in sorted(given.texts.keys() | after.texts.keys())
            if given.texts.get(path) != after.texts.get(path)
            or given.modes.get(path) != after.modes.get(path)
        ]
        # A name that is there already, but that was not copied, is no new file.
        hidden = [path for path in changed if path not in given.texts and tree.mode(path)]
        if hidden:
            raise RefusedError(
                f"{script.place.name} writes {', '.join(hidden)}, which the release has and no "
                "copy was made of. Make the patch by hand."
            )
        if first.code != 0 or not changed:
            raise RefusedError(_failed(script, release, given, first, bool(changed)))
        notes = [*_twice(script, place, ran, after), *_doubts(script, given, first)]
        besides = place.besides()
    notes += [f"{name} in site-packages is not part of the patch: only {PACKAGE}/ is" for name in
              besides]  # fmt: skip
    before_modes = {path: _git_mode(given.modes[path]) for path in changed if path in given.texts}
    after_modes = {path: _git_mode(after.modes[path]) for path in changed if path in after.texts}
    return Changed(
        {path: given.texts.get(path) for path in changed},
        {path: after.texts.get(path) for path in changed},
        (before_modes, after_modes),
        first.output,
        tuple(notes),
        first.elsewhere,
    )


def switches(changed: Changed, variables: Mapping[str, str]) -> list[str]:
    """What the patch is likely to be switched on by, as `NAME=value`: a given variable that it
    reads, or one that its new lines compare with a value."""
    added = b"\n".join(
        line
        for path, text in changed.after.items()
        for line in set((text or b"").splitlines())
        - set((changed.before[path] or b"").splitlines())
    )
    found = [f"{name}={value}" for name, value in variables.items() if name.encode() in added]
    known = {each.partition("=")[0] for each in found}
    found += [
        f"{name.decode()}={value.decode()}"
        for name, value in dict.fromkeys(_SWITCH.findall(added))
        if name.decode() not in known
    ]
    return found


def _copied(tree: ReleaseTree, catalog: Catalog, release: str, say: Callable[[str], None]) -> State:
    paths = [path for path in tree.listing() if path.endswith(_COPIED)]
    say(f"copying vllm {release}")
    for error in catalog.prefetch({release: paths}, say).values():
        raise error
    texts = {path: text for path in paths if (text := tree.read(path)) is not None}
    return State(texts, {path: tree.mode(path) or 0o644 for path in texts})


def _texts(place: Path) -> list[str]:
    """The constant texts of a script, but for those that stand by themselves: docstrings."""
    source = place.read_bytes()
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return [source.decode("utf-8", "replace")]
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone
    ]


def _docstring(place: Path) -> str:
    try:
        tree = ast.parse(place.read_bytes())
    except (SyntaxError, ValueError, RecursionError):
        return ""
    return inspect.cleandoc(ast.get_docstring(tree, clean=False) or "")


# -- what is told ----------------------------------------------------------------------------------


def _failed(script: Script, release: str, given: State, run: Outcome, changed: bool) -> str:
    name = script.place.name
    if run.code is None:
        head = (
            f"{name} was still running after {script.seconds:g} s on vllm {release}, and was ended"
        )
    elif run.code:
        head = f"{name} fails on vllm {release} with exit code {run.code}"
    else:
        head = f"{name} changed nothing on vllm {release}, though its exit code is 0"
    last = _last_line(run.output)
    said = f": {last}" if last else ""
    lost = _missing(script, given, run)
    half = " What it had changed by then is not taken." if changed else ""
    advice = (
        " Correct these texts in the script, or import it on a release that it fits."
        if lost
        else " Run it by itself on a copy to see why."
    )
    return "\n".join([f"{head}{said}", *lost, (half + advice).strip()])


def _missing(script: Script, given: State, run: Outcome) -> list[str]:
    """The anchors that the files do not have: those that it read, else those that it names."""
    source = script.place.read_bytes()
    paths = [path for path in run.read if path in given.texts and path.endswith(_COPIED)]
    named_too = named_files(source, list(given.texts))
    chosen = [path for path in paths if path in named_too] or paths or named_too
    files = {path: given.texts[path] for path in chosen}
    if not files:
        return []
    lines = []
    for each in missing(anchors(source), files):
        where = each.path or ", ".join(list(files)[:3])
        lines.append(f"  {where} has no {each.anchor.label}")
        lines += [f"    {line}" for line in each.candidate.split("\n") if each.candidate]
    return lines


def _twice(script: Script, place: Throwaway, ran: Callable[[], Outcome], after: State) -> list[str]:
    """What a second run does that it should not."""
    second = ran()
    now = place.state()
    paths = sorted(after.texts.keys() | now.texts.keys())
    again = [path for path in paths if after.texts.get(path) != now.texts.get(path)]
    name = script.place.name
    if again:
        return [
            f"{name} is not idempotent: a second run changes {', '.join(again[:5])} again. The "
            "patch holds what the first run did"
        ]
    if second.code is None:
        return [f"a second run of {name} does not end within {script.seconds:g} s"]
    if second.code:
        last = _last_line(second.output)
        return [f"a second run of {name} changes nothing, but fails: {last}"]
    return []


def _doubts(script: Script, given: State, run: Outcome) -> list[str]:
    """Lines of the output of a successful run that speak of something left out."""
    found = [line.strip() for line in run.output.splitlines() if _DOUBT.search(line)]
    if not found:
        return []
    lost = [line.strip() for line in _missing(script, given, run) if line.startswith("  vllm/")]
    told = f"{script.place.name} says {found[0]!r}. See whether the patch is whole"
    return [told + ("; " + "; ".join(lost) if lost else "")]


def _last_line(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def _git_mode(bits: int) -> str:
    return "100755" if bits & 0o100 else "100644"
