"""A release as its wheel holds it: the few files asked for, out of hundreds of megabytes.

Of a wheel on the index nobody can check the digest without fetching it whole. What binds the bytes
instead: its length is the index's, every file has the SHA-256 of its row in RECORD, RECORD lists
exactly what the archive holds, and where `series/releases.json` has the wheel, the fingerprint of
all its Python files is the recorded one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from vllm_series.errors import EnvironmentRefusedError
from vllm_series.upstream.store import WHEELS

if TYPE_CHECKING:
    from vllm_series.upstream.archive import Held, Run
    from vllm_series.upstream.fetch import Source
    from vllm_series.upstream.store import Store
    from vllm_series.upstream.table import Row, Table


@dataclass(frozen=True, slots=True)
class Served:
    """The wheel that is judged for a release. `origin` is the host or folder that serves it;
    `sha256` and `size` as the index has them, None where it does not tell; `fingerprint` as
    `series/releases.json` has it, None where that does not list the wheel."""

    release: str
    distribution: str
    name: str
    origin: str
    sha256: str | None = None
    size: int | None = None
    fingerprint: str | None = None


class WheelTree:
    """The files of one wheel; nothing is read before it is asked for. Safe for threads.

    `opened` gives the wheel's bytes, and is called only where the store does not have what is
    needed. `run` reads several ranges, one after another with `map`.
    """

    def __init__(
        self, wheel: Served, opened: Callable[[], Source], store: Store, run: Run = map
    ) -> None:
        self._wheel = wheel
        self._opened = opened
        self._store = store
        self._run = run
        self._lock = threading.RLock()
        self._source: Source | None = None
        self._table: Table | None = None
        self._listing: Mapping[str, str] | None = None
        self._texts: dict[str, bytes] = {}
        """By SHA-256; used only where the store keeps nothing."""

    @property
    def label(self) -> str:
        """Distribution, release and the very wheel."""
        return f"{self._wheel.distribution} {self.release} ({self._wheel.name})"

    @property
    def version(self) -> str | None:
        """The release."""
        return self._wheel.release

    @property
    def release(self) -> str:
        """The release."""
        return self._wheel.release

    @property
    def identity(self) -> str:
        """The hex SHA-256 of the wheel; where the index does not tell it, of all that RECORD says
        of the files."""
        return self._wheel.sha256 or sha256(self._rows().data).hexdigest()

    def read(self, path: str) -> bytes | None:
        """The whole file, None where there is none.

        Raises EnvironmentRefusedError where the wheel's bytes cannot be had or contradict each
        other.
        """
        row = self._rows().find(path)
        if row is None:
            return None
        text = self._kept(row)
        return self._fetched([row])[row.sha256] if text is None else text

    def mode(self, path: str) -> int | None:
        """The permission bits as an installer sets them (0o755 or 0o644), None for no file."""
        row = self._rows().find(path)
        if row is None:
            return None
        return 0o755 if row.member.mode & 0o111 else 0o644

    def listing(self) -> Mapping[str, str]:
        """Every file under `vllm/` with its hex SHA-256, as RECORD has it."""
        if self._listing is None:
            self._listing = self._rows().listing()
        return self._listing

    @property
    def fingerprint(self) -> str:
        """Of all Python files, as `release.fingerprint` counts it for an installed release."""
        return self._rows().fingerprint

    def is_at_hand(self, paths: Collection[str]) -> bool:
        """Whether these files can be read without asking the source for anything."""
        with self._lock:
            if self._table is None:
                self._table = self._stored_table()
            table = self._table
        if table is None:
            return False
        return all(row is None or self._has(row) for row in map(table.find, paths))

    def prefetch(self, paths: Collection[str]) -> None:
        """Fetch those of these files that there are and that are not at hand, in few requests."""
        table = self._rows()
        rows = [row for path in paths if (row := table.find(path)) is not None]
        missing = {row.sha256: row for row in rows if not self._has(row)}
        if missing:
            self._fetched(list(missing.values()))

    def close(self) -> None:
        """Give back what is held open; what is asked for later opens it anew."""
        with self._lock:
            if self._source is not None:
                self._source.close()

    # -- what is at hand --------------------------------------------------------------------------

    def _has(self, row: Row) -> bool:
        return row.sha256 in self._texts or self._store.has_blob(row.sha256)

    def _kept(self, row: Row) -> bytes | None:
        text = self._texts.get(row.sha256)
        return self._store.blob(row.sha256) if text is None else text

    def _rows(self) -> Table:
        with self._lock:
            if self._table is None:
                self._table = self._stored_table() or self._made_table()
            return self._table

    def _key(self) -> str | None:
        """Where the store has the table; None for a wheel whose bytes no digest names."""
        wheel = self._wheel
        if wheel.sha256 is None:
            return None
        words = (wheel.sha256, wheel.name, str(wheel.size))
        return sha256("\n".join(words).encode()).hexdigest()

    def _stored_table(self) -> Table | None:
        key = self._key()
        data = None if key is None else self._store.get(WHEELS, key)
        if data is None:
            return None
        from vllm_series.upstream.table import Table

        try:
            table = Table(data)
            # What one index says of a digest is not believed of another, unless it is recorded.
            recorded = self._wheel.fingerprint
            is_own = table.origin == self._wheel.origin if recorded is None else False
            return table if is_own or table.fingerprint == recorded else None
        except (ValueError, KeyError, TypeError):
            return None

    # -- what is fetched --------------------------------------------------------------------------

    def _open(self) -> Source:
        with self._lock:
            if self._source is None:
                self._source = self._opened()
            return self._source

    def _made_table(self) -> Table:
        from vllm_series.upstream.archive import read_directory, read_members
        from vllm_series.upstream.table import make_table, record_of, refuse_another

        wheel = self._wheel
        source = self._open()
        directory = read_directory(source, self.label)
        record = record_of(directory.members, self.label)
        refuse_another(record.name, wheel.name, self.label)
        ((_, text),) = read_members(source, self.label, [record], directory.held)
        table = make_table(directory.members, text, wheel.origin, self.label)
        if wheel.fingerprint is not None and wheel.fingerprint != table.fingerprint:
            raise EnvironmentRefusedError(
                f"{self.label} holds other Python files than series/releases.json records: "
                f"fingerprint {table.fingerprint[:16]} instead of {wheel.fingerprint[:16]}. "
                "Find out why the index serves it; nothing of it is used."
            )
        key = self._key()
        if key is not None:
            self._store.put(WHEELS, key, table.data)
        return table

    def _fetched(self, rows: list[Row]) -> dict[str, bytes]:
        """The texts by SHA-256, kept from now on."""
        from vllm_series.upstream.archive import Held, read_members

        by_name = {row.member.name: row for row in rows}
        nothing: Held = Held(0, b"")
        texts = {}
        for member, text in read_members(
            self._open(), self.label, [row.member for row in rows], nothing, self._run
        ):
            row = by_name[member.name]
            if sha256(text).hexdigest() != row.sha256:
                raise EnvironmentRefusedError(
                    f"{member.name} of {self.label} is not what the wheel's RECORD lists. "
                    "Nothing of it is used; report it to the index that serves it."
                )
            self._store.put_blob(text)
            if not self._store.has_blob(row.sha256):
                self._texts[row.sha256] = text
            texts[row.sha256] = text
        return texts
