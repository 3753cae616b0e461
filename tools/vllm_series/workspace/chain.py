"""What git is given to rebase: both releases' files, and the series as one commit a patch.

Of a release only the files that the series touches go in. Where one of them is missing in the new
release, so do the files that it may have become (`renames.likely`), so that git can find it by its
text. What upstream has of a patch, as `check` knows it from the releases between, is not left to
the merge: a change that upstream has made and then changed again would be put in twice.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from email.utils import parseaddr, parsedate_to_datetime

from vllm_series.checking.answers import PatchAnswer
from vllm_series.checking.judge import is_lost
from vllm_series.checking.renames import likely
from vllm_series.contracts import contract_paths
from vllm_series.diffs.mail import readable
from vllm_series.diffs.parse import parse
from vllm_series.errors import RefusedError, SeriesError
from vllm_series.fileplan import Overlay
from vllm_series.patch import Kind, Patch
from vllm_series.place import splice
from vllm_series.plan import PatchPlan, make_plan
from vllm_series.series import Entry
from vllm_series.trees import ReleaseTree
from vllm_series.upstream.catalog import Catalog
from vllm_series.verdicts import Verdict
from vllm_series.workspace.repository import Commit, Scratch

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Chain:
    """The commits, by patch name: the one that its change starts from, and its own. A patch that is
    upstream as a whole has none. `target` is what the first of them goes on top of."""

    base: str
    target: str
    patches: Mapping[str, tuple[str, str]]


def read_series(entries: Sequence[Entry], folder: str) -> tuple[list[Patch], str]:
    """The patches and the release that most were made on. Raises SeriesError for one without."""
    patches = [parse(entry.text, entry.name) for entry in entries]
    bases = [patch.base for patch in patches if patch.base]
    if not patches or len(bases) < len(patches):
        name = next((patch.name for patch in patches if not patch.base), "its series file")
        raise SeriesError(
            f"{folder}: {name} does not name its base. Run vllm-series lint first."
            if patches
            else f"{folder} lists no patch, so there is nothing to carry over."
        )
    return patches, max(dict.fromkeys(bases), key=bases.count)


def touched(patches: Sequence[Patch]) -> tuple[str, ...]:
    """Every file that the patches change or look into."""
    paths = set[str]()
    for patch in patches:
        paths.update(contract_paths(patch))
        for change in patch.files:
            paths.update(path for path in change.paths(1) if path)
    return tuple(sorted(paths))


def plan_on_base(patches: Sequence[Patch], base: ReleaseTree) -> list[PatchPlan]:
    """Every patch on the release that it was made on. Raises RefusedError where one does not fit
    there."""
    plans = make_plan(patches, base.read, base.mode).patches
    for plan in plans:
        if not plan.fits or plan.step is None:
            why = plan.reason or "; ".join(
                each.reason for file in plan.files for each in file.placements if each.reason
            )
            raise RefusedError(
                f"{plan.patch.name} does not fit vllm {base.release}, its base: {why}. "
                "Run vllm-series lint on it first."
            )
    return list(plans)


def candidates(
    patches: Sequence[Patch], base: ReleaseTree, target: ReleaseTree, catalog: Catalog, say: Say
) -> tuple[str, ...]:
    """Files that may be the new names of those that the new release does not have; read only where
    there are such."""
    listing, before = target.listing(), base.listing()
    missing = {
        path
        for patch in patches
        for change in patch.files
        if change.kind is not Kind.CREATE and (path := change.paths(1)[0])
        if path in before and path not in listing
    }
    found = {other for path in sorted(missing) for other in likely(path, listing, before)}
    if found:
        say("looking for renamed files")
        catalog.prefetch(
            {target.release: sorted(found), base.release: sorted(found & before.keys())}, say
        )
    return tuple(sorted(found))


def build(
    scratch: Scratch,
    plans: Sequence[PatchPlan],
    base: ReleaseTree,
    target: ReleaseTree,
    paths: Collection[str],
    upstream: Mapping[str, PatchAnswer],
    staying: Sequence[PatchPlan] = (),
) -> Chain:
    """Make the commits. `upstream` tells by patch name what the new release has of it. `staying`
    are patches that stand on the new release already, below those to come."""
    commits: list[Commit] = []
    stock = {path: file for path in paths if (file := stock_file(base, path))}
    label = f"vllm {base.release}"
    commits.append(stock_of(stock, None, label))
    there = {path: file for path in paths if (file := stock_file(target, path))}
    commits.append(stock_of(there, 0, f"vllm {target.release}"))
    for plan in staying:
        take(there, plan)
        commits.append(commit_of(there, len(commits) - 1, plan.patch))
    ground = len(commits) - 1
    overlay = Overlay(base.read, base.mode)
    files = dict(stock)
    last = 0
    pairs: dict[str, tuple[int, int]] = {}
    for plan in plans:
        assert plan.step is not None
        answer = upstream.get(plan.patch.name)
        if answer is not None and answer.verdict is Verdict.UPSTREAMED and not is_lost(answer):
            take(files, plan)
            # Later patches were made on top of it, and upstream is on top of it too.
            commits.append(commit_of(files, last, plan.patch))
            last = len(commits) - 1
            overlay.take(plan.step)
            continue
        first = last
        part = _upstream_part(plan, answer, overlay)
        if part:
            commits.append(commit_of({**files, **part}, last, plan.patch))
            first = len(commits) - 1
        take(files, plan)
        commits.append(commit_of(files, first, plan.patch))
        last = len(commits) - 1
        pairs[plan.patch.name] = (first, last)
        overlay.take(plan.step)
    made = scratch.make(commits)
    scratch.name(f"refs/tags/vllm-{base.release}", made[0])
    scratch.name(f"refs/tags/vllm-{target.release}", made[1])
    scratch.name("refs/heads/series", made[last])
    return Chain(
        made[0], made[ground], {name: (made[a], made[b]) for name, (a, b) in pairs.items()}
    )


def stock_file(tree: ReleaseTree, path: str) -> tuple[bytes, str] | None:
    """A file of a release as a commit holds it: text and git mode; None where there is none."""
    text = tree.read(path)
    if text is None:
        return None
    return text, _mode(tree.mode(path))


def _mode(bits: int | None) -> str:
    return "100755" if bits is not None and bits & 0o100 else "100644"


def take(files: dict[str, tuple[bytes, str]], plan: PatchPlan) -> None:
    """Let the files of a commit become what a patch makes of them."""
    assert plan.step is not None
    for file in plan.step.files:
        if file.after is None:
            files.pop(file.path, None)
        else:
            was = files[file.path][1] if file.path in files else "100644"
            files[file.path] = (file.after, was if file.mode is None else _mode(file.mode))


def _upstream_part(
    plan: PatchPlan, answer: PatchAnswer | None, overlay: Overlay
) -> dict[str, tuple[bytes, str]]:
    """The files of the base with those hunks of a patch alone that upstream has; empty for none,
    and where it has all of them."""
    if answer is None or plan.step is None:
        return {}
    found: dict[str, tuple[bytes, str]] = {}
    has = {file.path: file for file in answer.files}
    for file in plan.files:
        known = has.get(file.path)
        if known is None:
            continue
        if file.change.kind is Kind.CREATE and known.verdict is Verdict.UPSTREAMED:
            text = next((step.after for step in plan.step.files if step.path == file.path), None)
            if text is not None:
                found[file.path] = (text, "100644")
            continue
        if file.change.kind is not Kind.MODIFY:
            continue
        numbers = {hunk.number for hunk in known.hunks if hunk.verdict is Verdict.UPSTREAMED}
        placed = [each for at, each in enumerate(file.placements, 1) if at in numbers]
        before = overlay.read(file.path)
        if placed and before is not None and all(each.line is not None for each in placed):
            lines = io.BytesIO(before).readlines()
            found[file.path] = (splice(lines, placed), _mode(overlay.mode(file.path)))
    return found


def stock_of(files: Mapping[str, tuple[bytes, str]], parent: int | None, label: str) -> Commit:
    """The commit of a release: its stock files."""
    message = f"{label}\n\nThe stock files of the release that the series touches.\n"
    author = b"vllm-series <vllm-series@localhost>"
    return Commit(dict(files), parent, message.encode(), author, "0 +0000")


def commit_of(files: Mapping[str, tuple[bytes, str]], parent: int, patch: Patch) -> Commit:
    """The commit of a patch: the files with it, its message, author and date."""
    headers = {key.lower(): readable(value) for key, value in patch.headers}
    name, mail = parseaddr(headers.get("from", ""))
    return Commit(
        dict(files),
        parent,
        message_of(patch),
        _encoded(f"{_plain(name) or _plain(mail) or 'unknown'} <{_plain(mail)}>"),
        _raw_date(headers.get("date", "")),
    )


def message_of(patch: Patch) -> bytes:
    """The commit message of a patch: subject, why-text, trailers."""
    parts = [patch.subject, patch.message]
    parts.append("\n".join(f"{key}: {value}" for key, value in patch.trailers))
    return _encoded("\n\n".join(part for part in parts if part) + "\n")


def _plain(text: str) -> str:
    return "".join(letter for letter in text if letter not in "<>\n\r\0").strip()


def _raw_date(text: str) -> str:
    try:
        when = parsedate_to_datetime(text)
    except (ValueError, TypeError):
        return "0 +0000"
    zone = when.strftime("%z") or "+0000"
    return f"{int(when.timestamp())} {zone[:5]}"


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
