"""Where a patch fits, release by release, since when it does not, and what upstream did there.

From the base the releases are walked in both directions, hunk by hunk. In each of them the hunk is
placed as `check` places it, and its place is followed (`following`) whether it fits or not, so that
what became of it beyond the first drift can still be told. Releases in which the text of the place
is the same have one *form* of it; between two forms stands the upstream diff of the scope.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace

from vllm_series.align import Alignment, align
from vllm_series.drifting.following import Place, Text, follow, follow_scope
from vllm_series.drifting.homes import Homes
from vllm_series.drifting.scopediff import Side, scope_diff
from vllm_series.drifting.stacked import Stacked
from vllm_series.drifting.stands import Drift, Form, HunkDrift, Stand, Transition
from vllm_series.errors import EnvironmentRefusedError, RefusedError, UsageError, VllmSeriesError
from vllm_series.patch import Hunk
from vllm_series.scope import MODULE
from vllm_series.series import Entry
from vllm_series.trees import ReleaseTree
from vllm_series.upstream.catalog import Catalog
from vllm_series.verdicts import Verdict

_BATCH = 12
"""Releases whose files are fetched at once, on the way back to where the file begins."""


def drift(
    entries: Sequence[Entry],
    catalog: Catalog,
    *,
    base: str | None = None,
    since: str | None = None,
    until: str | None = None,
    number: int | None = None,
    say: Callable[[str], None] = lambda _step: None,
) -> Drift:
    """Follow the last of `entries`; those in front of it are the patches that it stands on.

    `base` is the release on which it was made, where it does not name one. `since` and `until` are
    the oldest and newest release to look at; without them the walk goes to the newest release and
    back to where the place begins. `number` is the only hunk to follow, counted through the whole
    patch from 1.

    Raises UsageError for releases or hunks that there are not, RefusedError where no release is
    found that it fits, EnvironmentRefusedError where the index or the base cannot be read.
    """
    walk = _Walk(Stacked(entries), catalog, say)
    return walk.answer(base, since, until, number)


class _Walk:
    """The releases of one call, and what is known of their files."""

    def __init__(self, stacked: Stacked, catalog: Catalog, say: Callable[[str], None]) -> None:
        self._stacked, self._catalog, self._say = stacked, catalog, say
        every = catalog.releases()
        self._all = {release.version: release for release in every}
        self._order = {release.version: at for at, release in enumerate(every)}
        self._releases = [one for one in every if not one.yanked and not one.prerelease]
        self._unread: dict[str, str] = {}
        self._texts: dict[tuple[str, bytes], Text] = {}
        self._alignments: dict[tuple[bytes, bytes], Alignment] = {}
        self._fetched: set[tuple[str, str]] = set()
        self._homes = Homes(self._tree, self._fetch)

    # -- what is read ---------------------------------------------------------------------------

    def _tree(self, version: str) -> ReleaseTree | None:
        if version in self._unread:
            return None
        try:
            return self._catalog.tree(version)
        except VllmSeriesError as error:
            self._unread[version] = str(error)
            return None

    def _fetch(self, versions: Sequence[str], paths: Sequence[str]) -> None:
        wanted = {
            version: missing
            for version in versions
            if version not in self._unread
            and (missing := [path for path in paths if (version, path) not in self._fetched])
        }
        if not wanted:
            return
        for version, error in self._catalog.prefetch(wanted, self._say).items():
            self._unread[version] = str(error)
        self._fetched |= {(version, path) for version in wanted for path in wanted[version]}

    def _text(self, version: str, path: str) -> Text | None:
        """A stock file; None where the release has none or cannot be read."""
        tree = self._tree(version)
        try:
            text = tree.read(path) if tree else None
        except VllmSeriesError as error:
            self._unread[version] = str(error)
            return None
        return None if text is None else self._as_text(path, text)

    def _as_text(self, path: str, text: bytes) -> Text:
        key = (path, hashlib.sha256(text).digest())
        if key not in self._texts:
            self._texts[key] = Text(path, text)
        return self._texts[key]

    def _aligned(self, old: Text, new: Text) -> Alignment:
        key = (hashlib.sha256(old.text).digest(), hashlib.sha256(new.text).digest())
        if key not in self._alignments:
            self._alignments[key] = align(old.lines, new.lines)
        return self._alignments[key]

    # -- the whole answer -----------------------------------------------------------------------

    def answer(
        self, base: str | None, since: str | None, until: str | None, number: int | None
    ) -> Drift:
        low, high = self._bound(since, "--since"), self._bound(until, "--until")
        if low is not None and high is not None and low > high:
            raise UsageError(f"--since {since} is newer than --until {until}. Turn them round.")
        home, found = self._home(base)
        tree = self._tree(home)
        self._fetch([home], self._stacked.touched)
        if tree is None or home in self._unread:
            raise EnvironmentRefusedError(
                f"the base {home} cannot be read: {self._unread[home]} "
                "Without it the place of a hunk is not known."
            )
        self._stacked.put_on(tree)
        order = self._order
        at = order[home]
        versions = [one.version for one in self._releases if one.version != home]
        newer = [v for v in versions if order[v] > at and (high is None or order[v] <= high)]
        older = [v for v in versions if order[v] < at and (low is None or order[v] >= low)][::-1]
        hunks = [_Hunk(self, *each) for each in self._stacked.hunks()]
        if number is not None:
            if not 1 <= number <= len(hunks):
                raise UsageError(
                    f"there is no hunk {number}: the patch has {len(hunks)} to follow. "
                    "They are counted through the whole patch."
                )
            hunks = [hunks[number - 1]]
        for hunk in hunks:
            hunk.begin(home)
        paths = sorted({hunk.path for hunk in hunks})
        self._fetch(newer, paths)
        for version in newer:
            for hunk in hunks:
                hunk.go(version, forward=True)
        for start in range(0, len(older), _BATCH):
            if low is None and not any(hunk.goes_back for hunk in hunks):
                break
            self._fetch(older[start : start + _BATCH], paths)
            for version in older[start : start + _BATCH]:
                if low is None and not any(hunk.goes_back for hunk in hunks):
                    break
                for hunk in hunks:
                    hunk.go(version, forward=False)
        shown = {
            version
            for hunk in hunks
            for version in hunk.stands
            if (low is None or order[version] >= low) and (high is None or order[version] <= high)
        }
        releases = tuple(self._all[v] for v in sorted(shown, key=order.__getitem__))
        return Drift(
            self._stacked.name,
            home,
            found,
            releases,
            tuple(hunk.drift([one.version for one in releases]) for hunk in hunks),
            {v: self._unread[v] for v in sorted(self._unread, key=lambda v: order.get(v, -1))},
            tuple(self._stacked.notes),
        )

    def _bound(self, version: str | None, option: str) -> int | None:
        """Where a release stands in the order; a line (`0.30`) is its first release for `--since`,
        its last for `--until`."""
        if version is None:
            return None
        if version in self._order:
            return self._order[version]
        of_line = [at for v, at in self._order.items() if v.startswith(version + ".")]
        if version.count(".") == 1 and of_line:
            return of_line[0] if option == "--since" else of_line[-1]
        raise UsageError(f"there is no release {version} for {option}. See vllm-series releases.")

    # -- the base -------------------------------------------------------------------------------

    def _home(self, base: str | None) -> tuple[str, str]:
        """The release on which the patch was made, and how that was found."""
        own = self._stacked.patch.base
        if base is not None:
            if base not in self._order:
                raise UsageError(
                    f"there is no release {base} for --base. See vllm-series releases."
                )
            return base, ""
        if own is not None:
            if own not in self._order:
                raise RefusedError(
                    f"the base {own} of {self._stacked.name} is not upstream. "
                    "Name another release with --base."
                )
            return own, ""
        versions = [one.version for one in reversed(self._releases)]
        best: tuple[tuple[int, int, int], str] | None = None
        for start in range(0, len(versions), _BATCH):
            self._fetch(versions[start : start + _BATCH], self._stacked.touched)
            for version in versions[start : start + _BATCH]:
                tree = self._tree(version)
                if tree is None or version in self._unread:
                    continue
                if self._stacked.is_made_on(tree):
                    return version, "by its blob ids"
                rated = self._stacked.fit(tree)
                if rated[0] and (best is None or rated > best[0]):
                    best = (rated, version)
        if best is None:
            raise RefusedError(
                f"no release has the text that {self._stacked.name} expects. "
                "Name the one that it was made on with --base."
            )
        stand, _exact, whole = best[0]
        how = "the newest release in which " + (
            "all of it stands" if stand == whole else f"{stand} of its {whole} hunks stand"
        )
        return best[1], how


class _Hunk:
    """One hunk on its way through the releases."""

    def __init__(self, walk: _Walk, path: str, number: int, hunk: Hunk) -> None:
        self._walk = walk
        self.path, self.number, self.hunk = path, number, hunk
        self.stands: dict[str, Stand] = {}
        self.places: dict[str, Place] = {}
        self._last: dict[bool, tuple[str, Place] | None] = {True: None, False: None}
        self._moves: dict[str, str] = {}
        self._base = ""
        self._scope: str | None = None
        self._reason = ""

    @property
    def goes_back(self) -> bool:
        """Whether the place was there in the oldest release looked at."""
        return self._last[False] is not None

    def begin(self, home: str) -> None:
        """Find the place in the base."""
        walk = self._walk
        self._base = home
        seat = walk._stacked.seat(self.path, self.number)
        stand = self._judged(home)
        stock = walk._text(home, self.path)
        if seat is None or stock is None:
            self._reason = stand.reason or "it does not fit its base"
            self.stands[home] = stand
            return
        self._scope = seat.scope
        place = seat
        if seat.text.text != stock.text:
            place = follow(seat, stock, walk._aligned(seat.text, stock), seat.scope)
        self._last = {True: (home, place), False: (home, place)}
        self._put(home, stand, place)

    def go(self, version: str, *, forward: bool) -> None:
        """One release further."""
        walk = self._walk
        if walk._tree(version) is None:
            return
        stand = self._judged(version)
        if version in walk._unread:
            return
        last = self._last[forward]
        place = self._followed(version, *last) if last else None
        if version in walk._unread:
            return
        self._last[forward] = (version, place) if place else None
        self._put(version, stand, place)

    def _judged(self, version: str) -> Stand:
        walk = self._walk
        tree = walk._tree(version)
        if tree is None:
            return Stand(version, Verdict.DRIFTED)
        try:
            verdict, reason = walk._stacked.judged(self.path, self.number, tree)
        except VllmSeriesError as error:
            walk._unread[version] = str(error)
            return Stand(version, Verdict.DRIFTED)
        return Stand(version, verdict, reason)

    def _followed(self, version: str, past: str, place: Place) -> Place | None:
        """The place in another release, given that in the one looked at before."""
        walk = self._walk
        walk._fetch([version], [place.text.path])
        there = walk._text(version, place.text.path)
        if there is not None:
            if there.text == place.text.text:
                return replace(place, text=there)
            alignment = walk._aligned(place.text, there)
            scope = follow_scope(place, there, alignment)
            if scope is not None or place.scope is None:
                return follow(place, there, alignment, scope)
        found = walk._homes.find(place, past, version)
        if found is None:
            return None
        text, scope = found
        other = walk._as_text(text.path, text.text)
        return follow(place, other, walk._aligned(place.text, other), scope)

    def _put(self, version: str, stand: Stand, place: Place | None) -> None:
        if place is not None:
            self.places[version] = place
            stand = replace(stand, path=place.text.path, scope=place.scope, line=place.line)
        self.stands[version] = stand

    # -- what it comes to -----------------------------------------------------------------------

    def drift(self, versions: Sequence[str]) -> HunkDrift:
        """Forms and transitions over `versions`, oldest first."""
        known = [version for version in versions if version in self.stands]
        forms: list[Form] = []
        numbers: dict[object, int] = {}
        stands: list[Stand] = []
        transitions: list[Transition] = []
        for at, version in enumerate(known):
            stand, place = self.stands[version], self.places.get(version)
            if place is not None:
                if place.form not in numbers:
                    numbers[place.form] = len(forms) + 1
                    forms.append(Form(len(forms) + 1, place.shown.decode("utf-8", "replace")))
                stand = replace(stand, form=numbers[place.form])
            if at:
                before = self.places.get(known[at - 1])
                stand = replace(stand, scope_changed=_is_changed(before, place))
                transition = self._transition(stands[-1], stand)
                if transition:
                    transitions.append(transition)
            stands.append(stand)
        return HunkDrift(
            self.path,
            self.number,
            self.hunk,
            self._scope,
            tuple(stands),
            tuple(forms),
            tuple(transitions),
            self.places,
            self._reason,
        )

    def _transition(self, old: Stand, new: Stand) -> Transition | None:
        what = _what(old, new)
        if not what:
            return None
        return Transition(
            old.release,
            new.release,
            (old.form, new.form),
            what,
            _told(old, new, what, self._scope, self._stays(old.scope, new.release)),
            scope_diff(self._side(old), self._side(new)),
        )

    def _stays(self, scope: str | None, version: str) -> bool:
        """Whether a scope is still in the file to which the place has gone."""
        place = self.places.get(version)
        return place is not None and place.text.range_of(scope) is not None

    def _side(self, stand: Stand) -> Side:
        place = self.places.get(stand.release)
        release = self._walk._all[stand.release]
        date = f" {release.date}" if release.date else ""
        if place is None:
            return Side(f"/dev/null\t{stand.release}{date}")
        title = f"{place.text.path}\t{stand.release}{date}"
        return Side(title, place.text, place.scope, place.lines())


def _is_changed(old: Place | None, new: Place | None) -> bool:
    """Whether the scope of a place has another text, or is there in one release alone."""
    if old is None or new is None:
        return old is not new
    if old.text.text == new.text.text and old.scope == new.scope:
        return False
    return old.text.own(old.scope) != new.text.own(new.scope)


def _what(old: Stand, new: Stand) -> tuple[str, ...]:
    words = []
    if not old.form and new.form:
        words.append("appears")
    elif old.form and not new.form:
        words.append("gone")
    elif old.form and new.form:
        if old.path != new.path:
            words.append("moved")
        if old.scope != new.scope:
            words.append("renamed")
        if old.form != new.form:
            words.append("form")
    if old.fits != new.fits:
        words.append("fits" if new.fits else "drifts")
    return tuple(words)


def _told(
    old: Stand, new: Stand, what: tuple[str, ...], own: str | None, is_there_still: bool
) -> str:
    parts = []
    scope = new.scope or old.scope or own
    name = "the place" if scope in (None, MODULE) else str(scope)
    if "appears" in what:
        parts.append(f"{name} appears in {new.release}, in {new.path}")
    if "gone" in what:
        parts.append(f"{name} is gone in {new.release}")
    if "moved" in what:
        parts.append(f"{old.path} becomes {new.path}")
    if "renamed" in what:
        if is_there_still:
            parts.append(f"its lines go from {old.scope} to {new.scope}")
        else:
            parts.append(f"{old.scope} becomes {new.scope}")
    if "form" in what:
        parts.append(f"the text of the place changes in {new.release}")
    if "fits" in what:
        parts.append(f"the hunk fits from {new.release} on")
    if "drifts" in what:
        parts.append(f"the hunk does not fit in {new.release}: {new.reason or new.verdict.value}")
    return "; ".join(parts)
