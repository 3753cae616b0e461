"""What one `rebase` command is asked for: a series, or many lines one after the other.

Each line is carried from the result of its neighbour, checked as a series must be (it compiles,
`lint` passes, the hunk tests pass), and then put in its place at once. What is done stays done when
a later line stops.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vllm_series.compose import refreshed
from vllm_series.contracts import CONTRACT, broken
from vllm_series.errors import RefusedError, UsageError
from vllm_series.fileplan import Read
from vllm_series.lint import lint
from vllm_series.parse import parse
from vllm_series.patch import Patch
from vllm_series.plan import make_plan
from vllm_series.rebase import Outcome
from vllm_series.scope import Scopes
from vllm_series.series import SERIES_FILE, line_of, load
from vllm_series.workspace import amended, chain, tested, writing
from vllm_series.workspace.rebasing import Rebasing, Tools, asked
from vllm_series.workspace.repository import Scratch, begin_again, is_ours
from vllm_series.workspace.state import (
    STOPPED,
    WRITING,
    Batch,
    Home,
    Line,
    Settled,
    State,
    Written,
    load_source,
    save_source,
)

CARRIED = "carried"
EQUAL = "nothing to do"


@dataclass(frozen=True, slots=True)
class Carried:
    """A new series folder: its files, and for every carried patch what it was and is."""

    files: Mapping[str, bytes]
    patches: tuple[tuple[Patch, Patch], ...]
    results: Mapping[str, bytes | None]


class Carrying:
    """A batch at work. `lock` is the descriptor that holds the lock on `home`."""

    def __init__(self, home: Home, batch: Batch, tools: Tools, lock: int) -> None:
        self.home, self.batch, self.tools, self.lock = home, batch, tools, lock
        self.series_dir = Path(batch.series_dir)
        self.results: dict[str, Carried] = {}
        """What was made of each line, by the name of its folder; for the report alone."""

    # -- all lines ------------------------------------------------------------------------------

    def go(self) -> bool:
        """Carry line after line; False where a person is needed."""
        while True:
            if self.batch.now is None:
                if not self.batch.queue:
                    self.home.close(self.batch, keep=self.is_chosen())
                    return True
                if not self.begin(self.batch.queue[0]):
                    continue
            if not self.run(lambda rebasing: None):
                return False

    def resume(self, answer: Callable[[Rebasing], None]) -> bool:
        """Go on with what is open, after a person's answer to it."""
        if self.batch.now is not None and not self.run(answer):
            return False
        return self.go()

    def is_chosen(self) -> bool:
        """Whether the user has named the folder of the repository."""
        return not Path(self.batch.workdir).is_relative_to(self.home.folder)

    def note(self, **changes: object) -> None:
        """Take over and write down what changes."""
        self.batch = replace(self.batch, **changes)  # type: ignore[arg-type]
        self.home.save(self.batch)

    # -- one line -------------------------------------------------------------------------------

    def begin(self, line: Line) -> bool:
        """Make the commits of one line; False where there is nothing to do for it."""
        say, catalog = self.tools.say, self.tools.catalog
        series = load(self.series_dir / line.source)
        patches, base_release = chain.read_series(series.entries, line.source)
        rest = self.batch.queue[1:]
        if base_release == line.target and line.source == line.onto:
            self.finished(Written(line, EQUAL, base_release), rest)
            return False
        say(f"reading vllm {base_release} and {line.target}")
        paths = chain.touched(patches)
        errors = catalog.prefetch({base_release: paths, line.target: paths}, say)
        for error in errors.values():
            raise error
        base, target = catalog.tree(base_release), catalog.tree(line.target)
        plans = chain.plan_on_base(patches, base)
        paths = tuple(sorted({*paths, *chain.candidates(patches, base, target, catalog, say)}))
        say("asking what upstream has")
        upstream = asked(series.entries, line.target, self.tools)
        folder = Path(self.batch.workdir)
        self.clear(folder)
        with Scratch(folder, self.lock) as scratch:
            made = chain.build(scratch, plans, base, target, paths, upstream)
            scratch.reset(made.target)
            writing.take_store(self.series_dir, scratch.recorded())
        save_source(folder, series.entries, (series.folder / SERIES_FILE).read_bytes())
        names = tuple(entry.name for entry in series.entries)
        state = State(line, base_release, made.base, made.target, names, made.patches)
        self.note(now=state, queue=rest)
        return True

    def clear(self, folder: Path) -> None:
        """Empty the folder of the repository; one that is not ours is left alone."""
        if is_ours(folder):
            begin_again(folder, frozenset(["state.json"]))
        elif folder.is_relative_to(self.home.folder):
            shutil.rmtree(folder, ignore_errors=True)
        elif folder.is_dir() and any(folder.iterdir()):
            raise UsageError(f"--workdir {folder} is not empty. Name an empty folder.")

    def run(self, answer: Callable[[Rebasing], None]) -> bool:
        """Bring the line under way to its end; False where a person is needed."""
        state = self.batch.now
        assert state is not None
        if state.phase == WRITING:
            self.finished(write(self.home, self.batch), self.batch.queue)
            return True
        entries, listing = load_source(Path(self.batch.workdir))
        with Scratch(Path(self.batch.workdir), self.lock) as scratch:
            rebasing = Rebasing(
                scratch, entries, state, self.tools, lambda now: self.note(now=now),
                self.batch.renew,
            )  # fmt: skip
            answer(rebasing)
            if rebasing.state.phase == STOPPED and rebasing.state.open is not None:
                return False
            if not rebasing.advance():
                return False
            amended.fold(rebasing)
            self.tools.say("composing the patches")
            carried = self.composed(rebasing, listing)
            problems = self.problems(rebasing.state.line, carried)
            if problems:
                rebasing.refused(problems)
                return False
            state = rebasing.state
            writing.give_store(scratch.recorded(), Path(self.batch.workdir) / ".git" / "kept")
        self.results[state.line.onto] = carried
        self.prepared(state, carried)
        self.finished(write(self.home, self.batch), self.batch.queue)
        return True

    def prepared(self, state: State, carried: Carried) -> None:
        """Put the result beside its place, and write down what is to be done with it."""
        onto = self.series_dir / state.line.onto
        is_same = writing.holds(onto, carried.files)
        if onto.exists() and not is_same and not self.batch.replace:
            raise RefusedError(
                f"{onto} exists and would change. Continue with --replace, name another folder "
                "with --onto-dir, or give up with --abort."
            )
        if not is_same and carried.patches:
            writing.prepare(self.series_dir, state.line.onto, carried.files)
        files = {
            name: data.decode("utf-8", "surrogateescape") for name, data in carried.files.items()
        }
        entry = None
        if not is_same and writing.changelog_of(self.series_dir):
            entry = changelog_entry(state)
        plan = {"files": files, "same": is_same, "entry": entry, "is_new": not onto.exists()}
        self.note(now=replace(state, phase=WRITING, writing=plan, problems=()))

    def finished(self, done: Written, rest: Sequence[Line]) -> None:
        """Note that a line is finished, and what comes after it."""
        queue = tuple(rest)
        if self.batch.fill and done.line.onto == f"vllm-{line_of(done.line.target)}":
            queue = (*self.others(done.line), *queue)
        self.note(now=None, queue=queue, done=(*self.batch.done, done))

    def others(self, line: Line) -> list[Line]:
        """The other releases of a line that its series does not fit: each gets its own folder."""
        entries = load(self.series_dir / line.onto).entries
        patches = [parse(entry.text, entry.name) for entry in entries]
        number = line_of(line.target)
        releases = [
            one.version
            for one in self.tools.catalog.releases()
            if line_of(one.version) == number
            and one.version != line.target
            and not one.yanked
            and not one.prerelease
        ]
        paths = chain.touched(patches)
        self.tools.catalog.prefetch(dict.fromkeys(releases, paths), self.tools.say)
        found = []
        for version in releases:
            tree = self.tools.catalog.tree(version)
            if not make_plan(patches, tree.read, tree.mode).fits:
                found.append(Line(line.onto, version, f"vllm-{version}"))
        return found[::-1]

    # -- results --------------------------------------------------------------------------------

    def composed(self, rebasing: Rebasing, listing: bytes) -> Carried:
        """The new series: every patch re-anchored on the new release."""
        state = rebasing.state
        target = state.line.target
        files: dict[str, bytes] = {}
        pairs: list[tuple[Patch, Patch]] = []
        results: dict[str, bytes | None] = {}
        gone: dict[str, str] = {}
        upstream = set[str]()
        for one in state.settled:
            if one.commit is None:
                is_upstream = one.outcome == Outcome.UPSTREAMED.value
                gone[one.name] = (
                    f"Applied-Upstream: {one.since}" if is_upstream else "left out by hand"
                )
                if is_upstream:
                    upstream |= {one.name, one.name.rsplit(".", 1)[0]}
                continue
            before, after, diff = rebasing.texts(one)
            old = rebasing.patches[one.name]
            patch = rebasing.described(one.name, one.commit)
            trailers = [
                (key, value)
                for key, value in patch.trailers
                if not (key.lower() == "needs" and value in upstream)
            ]
            if one.outcome == Outcome.PARTLY.value:
                trailers = _put(trailers, "Applied-Upstream", _share(one, old, target))
            patch = replace(patch, trailers=tuple(trailers))
            if self.batch.renew:
                read = self.reader(rebasing, before)
                patch = replace(patch, trailers=renewed(patch, read))
            patch = refreshed(patch, before, after, target, diff=diff)
            files[one.name] = patch.text
            pairs.append((old, patch))
            results |= after
        files[SERIES_FILE] = writing.listing(listing, gone, state.names)
        return Carried(files, tuple(pairs), results)

    def reader(self, rebasing: Rebasing, before: Mapping[str, bytes | None]) -> Read:
        """The files of the new release, some of them as patches have left them."""

        def read(path: str) -> bytes | None:
            return before[path] if path in before else rebasing.target.read(path)

        return read

    def problems(self, line: Line, carried: Carried) -> list[str]:
        """Why a result is not taken: lint, and the hunk tests; empty for nothing."""
        if not carried.patches:
            return []
        tree = self.tools.catalog.tree(line.target)
        self.tools.say("checking the result")
        folder = Path(self.batch.workdir) / ".git" / "result" / line.onto
        shutil.rmtree(folder, ignore_errors=True)
        for name, data in carried.files.items():
            place = folder / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
        found = [str(one) for one in lint(folder, tree.read, line.target).problems]
        found = [text.replace(f"{folder}/", f"{line.onto}/") for text in found]
        if found:
            return found
        chosen = self.batch.tests
        names = [new.name for _, new in carried.patches]
        tests = (
            tested.tests_of(Path(self.batch.project), names)
            if chosen is None
            else tuple(map(Path, chosen))
        )
        if tests:
            said = tested.failure(tests, self.tools.catalog, tree, carried.results, self.tools.say)
            if said:
                return [f"the hunk tests fail on vllm {line.target}:\n{said}"]
        return []


def write(home: Home, batch: Batch) -> Written:
    """Change the series folder, the changelog and the store, as the state says; this may be done
    again at any time."""
    state, series_dir = batch.now, home.series_dir
    assert state is not None
    assert state.writing is not None
    plan = state.writing
    if not plan["same"] and len(plan["files"]) > 1:
        files = {
            name: text.encode("utf-8", "surrogateescape") for name, text in plan["files"].items()
        }
        writing.move_in(series_dir, state.line.onto, files)
    changelog = writing.changelog_of(series_dir)
    if plan["entry"] and changelog is not None:
        writing.enter(changelog, "Added" if plan["is_new"] else "Changed", plan["entry"])
    writing.give_store(Path(batch.workdir) / ".git" / "kept" / writing.STORE, series_dir)
    outcome = EQUAL if plan["same"] else CARRIED
    return Written(state.line, outcome, state.base, state.settled)


def finish(home: Home) -> bool:
    """Bring a change of the series folder to its end that was cut off; False where there is none.
    Lines that were to come are given up."""
    try:
        batch = home.load()
    except RefusedError:
        return False
    if batch is None or batch.now is None or batch.now.phase != WRITING:
        return False
    batch = replace(batch, fill=False)
    write(home, batch)
    home.close(batch, keep=False)
    return True


def renewed(patch: Patch, read: Read) -> tuple[tuple[str, str], ...]:
    """The trailers of a patch, with every contract that the release breaks as the release has it;
    one whose function is not there stays as it is, for lint to name."""
    values = {one.value for one in broken(patch, read) if not one.unread}
    trailers = []
    for key, value in patch.trailers:
        match = CONTRACT.match(value) if key.lower() == "contract" and value in values else None
        if match:
            path = match["module"].replace(".", "/") + ".py"
            scopes = Scopes.of(read(path) or b"", path)
            signature = scopes.signature(match["name"]) if scopes else None
            if signature is not None:
                value = f"{match['module']}:{match['name']}{signature}"
        trailers.append((key, value))
    return tuple(trailers)


def changelog_entry(state: State) -> str:
    """The sentence for the changelog."""
    words: dict[str, list[str]] = {}
    for one in state.settled:
        word = one.outcome
        if word == Outcome.UPSTREAMED.value:
            word = f"left out, upstream since {one.since}"
        elif one.how:
            word = f"{word}, {one.how}"
        words.setdefault(word, []).append(f"`{one.name}`")
    told = "; ".join(f"{', '.join(names)} ({word})" for word, names in words.items())
    return writing.sentence(
        f"The series `{state.line.onto}`, for vLLM {state.line.target}, carried over from vLLM "
        f"{state.base}: {told}."
    )


def _share(one: Settled, old: Patch, target: str) -> str:
    total = sum(len(change.hunks) for change in old.files)
    return f"{one.since or target} ({len(one.evidence) or 'some'} of {total} hunks)"


def _put(trailers: list[tuple[str, str]], key: str, value: str) -> list[tuple[str, str]]:
    """Trailers with one of them set, in its place where it is there."""
    if any(one.lower() == key.lower() for one, _ in trailers):
        return [(one, value if one.lower() == key.lower() else old) for one, old in trailers]
    return [*trailers, (key, value)]
