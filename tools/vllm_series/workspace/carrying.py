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
from vllm_series.diffs.parse import parse
from vllm_series.errors import RefusedError, UsageError
from vllm_series.fileplan import Read
from vllm_series.lint import lint
from vllm_series.patch import Patch
from vllm_series.plan import make_plan
from vllm_series.rebase import Outcome
from vllm_series.scope import Scopes
from vllm_series.series import SERIES_FILE, Series, called, line_of, load
from vllm_series.workspace import amended, chain, tested, writing
from vllm_series.workspace.adding import together
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
    flush,
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
        put = together(series, self.there(line))
        if (base_release == line.target and line.source == line.onto) or not put.carried:
            misfits, fits = self.others(line, patches)
            self.finished(
                Written(
                    line,
                    EQUAL,
                    base_release,
                    misfits=tuple(misfits),
                    fits=tuple(fits),
                    fill=self.batch.fill,
                ),
                rest,
            )
            return False
        say(f"reading vllm {base_release} and {line.target}")
        staying = [parse(entry.text, entry.name) for entry in put.staying]
        paths = chain.touched([*patches, *staying])
        errors = catalog.prefetch({base_release: paths, line.target: paths}, say)
        for error in errors.values():
            raise error
        base, target = catalog.tree(base_release), catalog.tree(line.target)
        plans = chain.plan_on_base(patches, base)
        ground = chain.plan_on_base(staying, target)
        paths = tuple(sorted({*paths, *chain.candidates(patches, base, target, catalog, say)}))
        say("asking what upstream has")
        upstream = asked(put.entries, line.target, self.tools)
        folder = Path(self.batch.workdir)
        self.clear(folder)
        with Scratch(folder, self.lock) as scratch:
            made = chain.build(scratch, plans, base, target, paths, upstream, ground)
            scratch.reset(made.target)
            writing.take_store(self.series_dir, scratch.recorded())
        save_source(folder, put.entries, put.listing)
        names = tuple(entry.name for entry in put.carried)
        state = State(line, base_release, made.base, made.target, names, made.patches)
        self.note(now=state, queue=rest)
        return True

    def there(self, line: Line) -> Series | None:
        """What is in the folder to be made and stays; None where it is made as a whole."""
        onto = self.series_dir / line.onto
        return load(onto) if self.batch.add and (onto / SERIES_FILE).is_file() else None

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
            misfits, fits = self.others(state.line, [new for _, new in carried.patches])
            writing.give_store(scratch.recorded(), Path(self.batch.workdir) / ".git" / "kept")
        self.results[state.line.onto] = carried
        self.prepared(state, carried, misfits, fits)
        self.finished(write(self.home, self.batch), self.batch.queue)
        return True

    def prepared(
        self, state: State, carried: Carried, misfits: Sequence[str], fits: Sequence[str]
    ) -> None:
        """Put the result beside its place, and write down what is to be done with it."""
        onto = self.series_dir / state.line.onto
        is_same = writing.holds(onto, carried.files)
        may_change = self.batch.replace or self.batch.add
        if onto.exists() and not is_same and not may_change:
            raise RefusedError(
                f"{onto} exists and would change. Continue with --replace, name another folder "
                "with --onto-dir, or give up with --abort."
            )
        if not is_same and carried.patches:
            writing.prepare(self.series_dir, state.line.onto, carried.files)
        files = {
            name: data.decode("utf-8", "surrogateescape") for name, data in carried.files.items()
        }
        is_new = not onto.exists()
        plan = {
            "files": files,
            "same": is_same,
            "is_new": is_new,
            "misfits": list(misfits),
            "fits": list(fits),
            # A folder that served them until now must not stop doing so silently.
            "fill": self.batch.fill or not is_new,
        }
        self.note(now=replace(state, phase=WRITING, writing=plan, problems=()))

    def finished(self, done: Written, rest: Sequence[Line]) -> None:
        """Note that a line is finished, and what comes after it: first the releases of the line
        that its series does not fit, each into a folder of its own."""
        onto = done.line.onto
        own = [Line(onto, one, f"vllm-{one}") for one in done.misfits if done.fill]
        self.note(now=None, queue=(*own, *rest), done=(*self.batch.done, done))

    def others(self, line: Line, patches: Sequence[Patch]) -> tuple[list[str], list[str]]:
        """The other releases that a line's folder would serve: those that the series does not fit,
        or on which the hunk tests fail, newest first; and those that it fits."""
        if line.onto != f"vllm-{line_of(line.target)}" or not patches:
            return [], []
        releases = [
            one.version
            for one in self.tools.catalog.releases()
            if line_of(one.version) == line_of(line.target)
            and one.version != line.target
            and not one.yanked
            and not one.prerelease
            and (self.batch.replace or not (self.series_dir / f"vllm-{one.version}").is_dir())
        ]
        paths = chain.touched(patches)
        errors = self.tools.catalog.prefetch(dict.fromkeys(releases, paths), self.tools.say)
        for error in errors.values():
            raise error
        tests = self.tests([patch.name for patch in patches])
        misfits: list[str] = []
        fits: list[str] = []
        for version in releases:
            tree = self.tools.catalog.tree(version)
            plan = make_plan(patches, tree.read, tree.mode)
            is_fit = plan.fits
            if is_fit and tests:
                changed = {path: after for path, (_, after) in plan.results().items()}
                is_fit = not tested.failure(
                    tests, self.tools.catalog, tree, changed, self.tools.say
                )
            (fits if is_fit else misfits).append(version)
        return misfits[::-1], fits

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
        staying = [one for name, one in rebasing.patches.items() if name not in state.names]
        plan = make_plan(staying, rebasing.target.read, rebasing.target.mode)
        results |= {path: after for path, (_, after) in plan.results().items()}
        for patch in staying:
            files[patch.name] = patch.text
            pairs.append((patch, patch))
        for one in state.settled:
            if one.commit is None:
                is_upstream = one.outcome == Outcome.UPSTREAMED.value
                gone[one.name] = (
                    f"Applied-Upstream: {one.since}" if is_upstream else "left out by hand"
                )
                if is_upstream:
                    upstream.update(called(one.name))
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
        tests = self.tests([new.name for _, new in carried.patches])
        if tests:
            said = tested.failure(tests, self.tools.catalog, tree, carried.results, self.tools.say)
            if said:
                return [f"the hunk tests fail on vllm {line.target}:\n{said}"]
        return []

    def tests(self, names: Sequence[str]) -> tuple[Path, ...]:
        """The hunk tests of some patches, or those that were asked for."""
        if self.batch.tests is not None:
            return tuple(map(Path, self.batch.tests))
        return tested.tests_of(Path(self.batch.project), names)


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
    writing.give_store(Path(batch.workdir) / ".git" / "kept" / writing.STORE, series_dir)
    done = Written(
        state.line,
        EQUAL if plan["same"] else CARRIED,
        state.base,
        state.settled,
        plan["is_new"],
        tuple(plan["misfits"]),
        tuple(plan["fits"]),
        plan["fill"],
    )
    if done.outcome == CARRIED:
        told = [one for one in batch.done if one.outcome == CARRIED and one.is_new == done.is_new]
        enter(series_dir, told, [*told, done], done)
    return done


def enter(
    series_dir: Path, before: Sequence[Written], now: Sequence[Written], last: Written
) -> None:
    """Put the lines of a batch into the changelog as one entry, in place of that which tells of
    those `before`; where a person has changed that one meanwhile, the `last` gets its own."""
    changelog = writing.changelog_of(series_dir)
    if changelog is None:
        return
    heading = "Added" if last.is_new else "Changed"
    entry, alone = changelog_entry(now), changelog_entry([last])
    writing.enter(changelog, heading, entry, changelog_entry(before) if before else None, alone)


def give_up(home: Home) -> list[str]:
    """Give up what is open; a change of the series folder that was cut off is brought to its end
    first. Says what is not as a person would expect it, a sentence each."""
    said: list[str] = []
    try:
        batch = home.load()
    except RefusedError:
        batch = None
    if batch is not None:
        if batch.now is not None and batch.now.phase == WRITING:
            done = write(home, batch)
            said.append(f"{done.line.onto} was being written already, and is finished now")
            batch = replace(batch, now=None, done=(*batch.done, done))
            home.save(batch)
        said += [sentence for one in batch.done for sentence in _narrowed(home, batch, one)]
    home.forget()
    return said


def _narrowed(home: Home, batch: Batch, one: Written) -> list[str]:
    """A new folder of a line whose other releases were not carried to their end serves the only
    release that it fits, and no other."""
    folder = home.series_dir / one.line.onto
    left = [each for each in one.misfits if not (home.series_dir / f"vllm-{each}").is_dir()]
    if not left or not folder.is_dir():
        return []
    own = f"vllm-{one.line.target}"
    if not one.is_new or one.fits or (home.series_dir / own).exists():
        return [f"{one.line.onto} does not fit vllm {', '.join(left)}, which it serves"]
    folder.rename(home.series_dir / own)
    flush(home.series_dir)
    before = [each for each in batch.done if each.outcome == CARRIED and each.is_new]
    renamed = replace(one, line=replace(one.line, onto=own))
    enter(home.series_dir, before, [renamed if each is one else each for each in before], renamed)
    return [
        f"{one.line.onto} fits vllm {one.line.target} alone, not {', '.join(left)}: it is {own} now"
    ]


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


def changelog_entry(lines: Sequence[Written]) -> str:
    """The sentence for the changelog about the lines of a batch."""
    if len(lines) == 1:
        (one,) = lines
        if _is_nothing(one):
            return writing.sentence(
                f"No series for vLLM {one.line.target}, since nothing of `{one.line.source}` is "
                f"left there: {_told(one.patches, '; ')}."
            )
        return writing.sentence(
            f"The series `{one.line.onto}`, for vLLM {one.line.target}, carried over from vLLM "
            f"{one.base}: {_told(one.patches, '; ')}."
        )
    rows = [
        f"{'no ' if _is_nothing(one) else ''}`{one.line.onto}` for vLLM {one.line.target}, from "
        f"{one.base}: {_told(one.patches, ', ')}"
        for one in lines
    ]
    return writing.sentence(
        f"The series of {len(lines)} folders, each carried over from another: {'; '.join(rows)}."
    )


def _is_nothing(one: Written) -> bool:
    """Whether no patch of a line is left, so that it has no folder."""
    return all(patch.commit is None for patch in one.patches)


def _told(patches: Sequence[Settled], between: str) -> str:
    words: dict[str, list[str]] = {}
    for one in patches:
        word = one.outcome
        if word == Outcome.UPSTREAMED.value:
            word = f"left out, upstream since {one.since}"
        elif one.how:
            word = f"{word}, {one.how}"
        words.setdefault(word, []).append(f"`{one.name}`")
    return between.join(f"{', '.join(names)} ({word})" for word, names in words.items())


def _share(one: Settled, old: Patch, target: str) -> str:
    total = sum(len(change.hunks) for change in old.files)
    return f"{one.since or target} ({len(one.evidence) or 'some'} of {total} hunks)"


def _put(trailers: list[tuple[str, str]], key: str, value: str) -> list[tuple[str, str]]:
    """Trailers with one of them set, in its place where it is there."""
    if any(one.lower() == key.lower() for one, _ in trailers):
        return [(one, value if one.lower() == key.lower() else old) for one, old in trailers]
    return [*trailers, (key, value)]
