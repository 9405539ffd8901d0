"""The ledger: every release together with its charge, durable before its answer leaves.

A release is stored under a key that makes a second try return the first draw. Rows are never changed or removed; each
carries a hash over itself and its predecessor. What was spent is kept in memory (`View`) and brought up to date inside
the transaction that checks the caps, so that any number of threads, processes and machines share one budget. There
are no leases: whoever is paused or cut off in the middle holds nothing but a lock that ends with its connection, and
no decision looks at a clock.

Where the rows are kept, an SQLite file or PostgreSQL, is the matter of planner/ledger/stores. What a machine
remembers of its ledger apart from it is the matter of planner/ledger/born.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any

from planner.basics.errors import LedgerFailed, SourceFailed
from planner.cells.costs import from_bytes, simplified, to_bytes
from planner.ledger.accounts import (
    Caps,
    Charge,
    Content,
    Draft,
    Edition,
    Quote,
    Reading,
    Release,
    View,
    chained,
    first_hash,
    payers,
)
from planner.ledger.born import Marker
from planner.ledger.snapshot import Snapshot
from planner.ledger.stores import RESTORE, Connection, OutcomeUnknown, Statement, Store, check_here, damaged, marker_of
from planner.ledger.stores.sqlite import SqliteStore
from planner.policy.ledger import Remote

ARCHIVE = "archive"
COLUMNS = 'id, key, question, population, "table", version, analyst, sql, kind, body, cost, created'
NEW = f"SELECT {COLUMNS}, hash FROM releases WHERE id > ? ORDER BY id"
ANSWERING = f'SELECT {COLUMNS} FROM releases WHERE question = ? AND "table" = ? ORDER BY id DESC'
INSERT = f"INSERT INTO releases ({COLUMNS}, hash) VALUES ({', '.join('?' * 13)})"
RECORD = "INSERT INTO versions VALUES (?, ?, ?)"
READ = "INSERT INTO readings VALUES (?, ?, ?)"
UPDATE_HEAD = "UPDATE meta SET value = ? WHERE name = 'head'"
EDITIONS = """SELECT v."table", v.version, v.fingerprint FROM versions AS v
    WHERE v.version = (SELECT max(w.version) FROM versions AS w WHERE w."table" = v."table")"""
ROWS = 'SELECT "table", version, "rows" FROM readings WHERE "table" = ? AND version = ?'
CONTENTS = 'SELECT id, question, version, kind, body FROM releases WHERE id > ? AND "table" = ? ORDER BY id'
VERSIONS = 'SELECT "table", max(version) FROM versions GROUP BY "table"'
LATER = """SELECT 1 FROM releases AS r WHERE r.version > (
    SELECT coalesce(max(v.version), 1) FROM versions AS v WHERE v."table" = r."table") LIMIT 1"""
MOVES = "SELECT source, target, share FROM moves"


Row = tuple[int, str, str, str, str, int, str, str, str, bytes, bytes, str]
"""A row of releases, in the order of COLUMNS."""


def _row(release: Release, cost: bytes) -> Row:
    r = release
    names = (r.key, r.question, r.population, r.table, r.version, r.analyst, r.sql, r.kind)
    return (r.id, *names, r.body, cost, r.created)


def _release(row: Row) -> Release:
    number, key, question, population, table, version, analyst, sql, kind, body, cost, created = row
    return Release(
        key=key,
        question=question,
        population=population,
        table=table,
        version=version,
        analyst=analyst,
        sql=sql,
        kind=kind,
        body=body,
        cost=from_bytes(cost),
        id=number,
        created=created,
    )


class Ledger:
    """One ledger, open. Threads may share the object; every process opens its own.

    Guarantee: when commit() returns, the release and its charge are durable; and for every population
    (and account) the sum over its tables, and over the versions of each, of what the dearest cell paid for all
    releases ever stored is at most the cap that the last charged release was given.
    """

    def __init__(self, store: Store, marker: Marker) -> None:
        """Use open() instead."""
        self._store, self._marker = store, marker
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._view = View(0, first_hash(store.identity))
        self._quoted: tuple[object, View] | None = None
        self._is_archive = False

    @classmethod
    def open(cls, place: Path | Remote, *, identity: str | None = None) -> Ledger:
        """Return the ledger at a place, which is made on first use; LedgerFailed if it can't be trusted.

        Args:
            identity: that of a ledger that is made, if it is not to have one of its own.
        """
        place = place if isinstance(place, Remote) else Path(place).absolute()
        path = marker_of(place)
        known = Marker.read(path)
        store = opened(place, (identity or str(uuid.uuid4())) if known is None else None)
        try:
            marker = known or Marker.write(path, store.identity, first_hash(store.identity))
            if marker.identity != store.identity:
                raise LedgerFailed(f"{store.name} is another ledger than the one born here: {RESTORE}")
            ledger = cls(store, marker)
            ledger._verify()
        except BaseException:
            store.close()
            raise
        return ledger

    def _verify(self) -> None:
        """Read all of it, with every hash checked, and compare it with what the marker says."""
        marker, name = self._marker, self._store.name
        with self._transaction(write=False) as connection:
            if self._view.last_id < marker.acknowledged:
                raise LedgerFailed(
                    f"the ledger {name} holds {self._view.last_id} releases but "
                    f"{marker.acknowledged} were acknowledged, so charges are lost: {RESTORE}",
                    hint=f"deleting {marker.path.name} gives up the record of what is lost",
                )
            found = connection.execute("SELECT 1 FROM meta WHERE name = ?", (ARCHIVE,))
            self._is_archive = found.fetchone() is not None
            query = "SELECT hash FROM releases WHERE id = ?"
            last = connection.execute(query, (marker.acknowledged,)).fetchone() if marker.acknowledged else None
            if marker.hash != (last[0] if last else first_hash(self._store.identity)):
                raise LedgerFailed(
                    f"release {marker.acknowledged} of the ledger {name} is not the one that was acknowledged here, "
                    f"so charges are lost: {RESTORE}",
                    hint=f"deleting {marker.path.name} gives up the record of what is lost",
                )
            if connection.execute(LATER).fetchone() is not None:
                raise damaged(name, "it holds releases about versions of data that it does not know")
        with self._transaction(write=True):  # fails at once if it can't be written
            marker.acknowledge(self._view.last_id, self._view.last_hash)

    def commit(
        self,
        drafts: Sequence[Draft],
        *,
        caps: Caps,
        once: Callable[[Connection], None] | None = None,
        readings: Sequence[Reading] = (),
    ) -> list[Release]:
        """Return the drafts as durable releases, each charged once, or those already stored under their keys.

        All of them or none: raises BudgetExceeded if a cap would be passed, LedgerFailed if they can't be
        stored; either way nothing was charged and the draws must be thrown away. One analyst at a time, or several
        who pay together.

        With `once`, the last draft stands for all: if it is stored already it is returned alone, and nothing is
        charged. Otherwise `once` is called in the transaction, and may raise what is wrong by now.

        `readings` say of which rows the drafts were drawn. Guarantee: all that is stored about one version of a
        table was drawn of the same rows, whatever gates drew it; otherwise raises SourceFailed.
        """
        with self._lock:
            try:
                releases = self._commit(drafts, caps, once, readings)
            except OutcomeUnknown as failure:
                releases = self._read_back(drafts, failure, alone=once is not None)
            self._marker.acknowledge(self._view.last_id, self._view.last_hash)
            return releases

    def _commit(
        self,
        drafts: Sequence[Draft],
        caps: Caps,
        once: Callable[[Connection], None] | None,
        readings: Sequence[Reading],
    ) -> list[Release]:
        # What takes time is done before the lock is held: costs are encoded, and near a cap the dearest cells sought.
        drafts = [replace(draft, cost=simplified(draft.cost)) for draft in drafts]
        costs = {draft.key: to_bytes(draft.cost) for draft in drafts}
        self._expect(drafts, caps)
        asked: list[Statement] = [_by_key(drafts), (EDITIONS, ()), (MOVES, ())]
        asked += [(ROWS, (reading.table, reading.version)) for reading in readings]
        with self._asking(*asked, write=True) as (connection, [rows, editions, moves, *seen]):
            found = _stored(drafts, rows)
            if once is not None:
                if drafts[-1].key in found:
                    return [replace(found[drafts[-1].key], replayed=True)]
                once(connection)
            new = [draft for draft in drafts if draft.key not in found]
            self._check_current(new, {table: version for table, version, _ in editions})
            view = self._checked(new, caps, self._moved(moves))
            inserts = _first_readings(readings, editions, [row for each in seen for row in each]) if new else []
            created = datetime.now(UTC).isoformat(timespec="microseconds")
            for draft in new:
                release = Release(**vars(draft), id=view.last_id + 1, created=created)
                row = _row(release, costs[draft.key])
                row_hash = chained(view.last_hash, row)
                inserts.append((INSERT, (*row, row_hash)))
                view = view.stored([(release.population, release.kind)], release.id, row_hash)
                found[draft.key] = release
            if new:
                connection.finish(*inserts, (UPDATE_HEAD, (view.last_hash,)))
        self._view = view
        return [found[draft.key] for draft in drafts]

    def _expect(self, drafts: Sequence[Draft], caps: Caps) -> None:
        """Look for the dearest cells, if that is needed to tell whether the drafts fit, as far as is known by now."""
        view = self._after([draft.charge for draft in drafts])
        for population, payer in _paying(drafts):
            if not view.surely_within(caps, population, analyst=payer, moved=Fraction(0)):
                self._view.quote(view, population, analyst=payer)

    def _check_current(self, drafts: Sequence[Draft], versions: Mapping[str, int]) -> None:
        """Raise if drafts must not be charged here, or were measured on data that are not the current ones."""
        if drafts and self._is_archive:
            raise LedgerFailed(
                f"the ledger {self._store.name} is an archive: it charges nothing",
                hint="ask what its releases tell, or ask the gate that they come from",
            )
        for draft in drafts:
            if draft.version != versions.get(draft.table, 1):
                raise SourceFailed(f"the data of {draft.table} were refreshed while it was read", hint="ask again")

    def _checked(self, drafts: Sequence[Draft], caps: Caps, moved: Mapping[str, Fraction]) -> View:
        """Return the view with the drafts charged; what costs nothing passes even a lowered cap."""
        view = self._after([draft.charge for draft in drafts]) if drafts else self._view
        for population, payer in _paying(drafts):
            share = moved.get(payer, Fraction(0))
            if not view.surely_within(caps, population, analyst=payer, moved=share):
                replace(self._view.quote(view, population, analyst=payer), moved=share).check(caps)
        return view

    def _after(self, charges: Sequence[Charge], view: View | None = None) -> View:
        """Return the view after some charges; a commit after a quote of the same does not seek the maxima again."""
        view = self._view if view is None else view
        asked = (view.last_id, tuple(charges))
        if self._quoted is None or self._quoted[0] != asked:
            self._quoted = (asked, view.charged(charges, analyst=""))
        return self._quoted[1]

    def _read_back(self, drafts: Sequence[Draft], failure: OutcomeUnknown, *, alone: bool) -> list[Release]:
        """Return what is stored under the keys after a commit of unknown outcome, or raise that nothing is."""
        try:
            self._store.recover()
            with self._transaction(write=False) as connection:
                stored = _stored(drafts, *connection.ask(_by_key(drafts)))
        except LedgerFailed:
            raise LedgerFailed(
                f"{failure.message}; whether the charge was stored can't be told now, so nothing is answered",
                hint="ask again: if it was stored, the stored answer is given, and nothing more is charged",
            ) from failure
        missing, last = [draft for draft in drafts if draft.key not in stored], drafts[-1].key
        if alone and missing and last in stored:
            return [replace(stored[last], replayed=True)]
        if missing:
            raise LedgerFailed(failure.message, hint=failure.hint or "nothing was charged; ask again") from failure
        return [stored[draft.key] for draft in drafts]

    def quote(self, charges: Sequence[Charge], *, analyst: str, populations: Sequence[str] = ()) -> list[Quote]:
        """Return, for each population concerned, what is spent before and after the charges; write nothing.

        The analyst pays for charges that name nobody else; it is their account that is told.
        """
        return self.snapshot().quote(charges, analyst=analyst, populations=populations)

    def quoted(
        self, view: View, charges: Sequence[Charge], *, analyst: str, populations: Sequence[str], moved: Fraction
    ) -> list[Quote]:
        """Return the same for what was spent at some time, and what was moved to the analyst by then; ask nobody."""
        charges = [replace(c, cost=simplified(c.cost), analyst=c.analyst or analyst) for c in charges]
        with self._lock:
            after = self._after(charges, view)
            concerned = dict.fromkeys([*populations, *(charge.population for charge in charges)])
            quotes = [view.quote(after, population, analyst=analyst) for population in concerned]
        return [replace(quote, moved=moved) for quote in quotes]

    def snapshot(
        self, *, tables: Mapping[str, int] = MappingProxyType({}), questions: Sequence[tuple[str, str]] = ()
    ) -> Snapshot:
        """Return what the ledger holds at this moment, read in one transaction.

        Args:
            tables: about which it is told what was released, each from which number on.
            questions: with their tables, to which it is told which releases answer them.
        """
        told: list[Statement] = [(CONTENTS, (after, table)) for table, after in tables.items()]
        found: list[Statement] = [(ANSWERING, pair) for pair in questions]
        with self._asking((EDITIONS, ()), (MOVES, ()), *told, *found, write=False) as (_, [editions, moves, *rows]):
            view = self._view
        return Snapshot(
            book=self,
            view=view,
            editions={table: Edition(version, fingerprint) for table, version, fingerprint in editions},
            moved=self._moved(moves),
            told={
                table: (after, [Content(*row) for row in each])
                for (table, after), each in zip(tables.items(), rows, strict=False)
            },
            found={
                pair: [_release(row) for row in each] for pair, each in zip(questions, rows[len(told) :], strict=True)
            },
        )

    def now(self, snapshot: Snapshot) -> Snapshot:
        """Return a snapshot after what was committed here since; what others did may be missing."""
        return replace(snapshot, view=self._view)

    def move(self, share: Fraction, *, source: str, target: str, caps: Caps) -> None:
        """Move a part of the budget from one account to another, durably; other processes see it at once.

        Guarantee: what all accounts may spend together stays as it was, and no more is moved than the source has
        left in every population; otherwise raises BudgetExceeded, and nothing is moved.
        """
        with self._transaction(write=True) as connection:
            moved = self._moved(connection.execute(MOVES)).get(source, Fraction(0)) - share
            for population in self._view.populations or ("default",):
                quote = self._view.quote(self._view, population, analyst=source)
                replace(quote, moved=moved).check_left(caps, share)
            created = datetime.now(UTC).isoformat(timespec="microseconds")
            row = (source, target, str(share), created)
            connection.execute("INSERT INTO moves (source, target, share, created) VALUES (?, ?, ?, ?)", row)

    def moved(self) -> dict[str, Fraction]:
        """Return by how much each account's share was changed by moves."""
        with self._transaction(write=False) as connection:
            return self._moved(connection.execute(MOVES))

    def _moved(self, moves: Iterable[tuple[str, str, str]]) -> dict[str, Fraction]:
        """Return by how much the moves of shares, from whom to whom, have changed each account."""
        found: dict[str, Fraction] = {}
        for source, target, text in moves:
            try:
                share = Fraction(text)
            except (ValueError, ZeroDivisionError):
                raise damaged(self._store.name, "a share that was moved can't be read") from None
            found[source] = found.get(source, Fraction(0)) - share
            found[target] = found.get(target, Fraction(0)) + share
        return found

    @contextmanager
    def beside(self, *, write: bool) -> Iterator[Connection]:
        """Yield the connection in a transaction, for what is kept beside the releases."""
        with self._transaction(write=write) as connection:
            yield connection

    def kept(self, name: str, value: str) -> str:
        """Return what all gates of this ledger keep under a name, which is this value if there was none."""
        with self._transaction(write=True) as connection:
            found = connection.execute("SELECT value FROM meta WHERE name = ?", (f"kept {name}",)).fetchone()
            if found is None:
                connection.execute("INSERT INTO meta VALUES (?, ?)", (f"kept {name}", value))
        return value if found is None else str(found[0])

    def spent(self, population: str) -> int:
        """Return what the population has paid, in units: the dearest cell of each version of each of its tables."""
        with self._transaction(write=False):
            return self._view.spent(population)

    def account_spent(self, population: str, analyst: str) -> int:
        """Return the same for the releases that this analyst paid for."""
        with self._transaction(write=False):
            return self._view.account_spent(population, analyst)

    def populations(self) -> list[str]:
        """Return the populations about which anything was released."""
        with self._transaction(write=False):
            return sorted(self._view.populations)

    def only_gaussian(self, population: str) -> bool:
        """Return whether all releases about the population have Gaussian noise."""
        with self._transaction(write=False):
            return self._view.only_gaussian(population)

    def find(self, question: str, *, table: str | None = None) -> list[Release]:
        """Return the releases that answer a question, about one table or any, on whatever version, newest first."""
        with self._transaction(write=False) as connection:
            if table is None:
                return _select(connection, "WHERE question = ? ORDER BY id DESC", question)
            return [_release(row) for row in connection.execute(ANSWERING, (question, table))]

    def get(self, number: int) -> Release:
        """Return the release with this id; KeyError if there is none."""
        with self._transaction(write=False) as connection:
            found = _select(connection, "WHERE id = ?", number)
        if not found:
            raise KeyError(f"there is no release {number}")
        return found[0]

    def releases(self, after: int = 0) -> list[Release]:
        """Return all releases with a larger id, oldest first."""
        with self._transaction(write=False) as connection:
            return _select(connection, "WHERE id > ? ORDER BY id", after)

    def contents(self, table: str, *, after: int) -> tuple[int, list[Content]]:
        """Return the number of the last release, and what those about a table with larger numbers than `after` told."""
        with self._transaction(write=False) as connection:
            found = [Content(*row) for row in connection.execute(CONTENTS, (after, table))]
            return self._view.last_id, found

    def content(self, number: int) -> Content:
        """Return what the release with this id told; KeyError if there is none."""
        with self._transaction(write=False) as connection:
            query = "SELECT id, question, version, kind, body FROM releases WHERE id = ?"
            found = connection.execute(query, (number,)).fetchone()
        if found is None:
            raise KeyError(f"there is no release {number}")
        return Content(*found)

    def dump(self) -> tuple[str, dict[str, int], list[tuple[*Row, str]]]:
        """Return the identity, the current version of each table's data, and all rows with their hashes."""
        with self._transaction(write=False) as connection:
            found = {str(table): int(version) for table, version in connection.execute(VERSIONS)}
            rows = connection.execute(f"SELECT {COLUMNS}, hash FROM releases ORDER BY id").fetchall()
            return self._store.identity, found, rows

    def fill(self, rows: Sequence[tuple[*Row, str]], versions: Mapping[str, int]) -> None:
        """Make an empty ledger an archive of the rows of another; whoever opens it checks them."""
        with self._transaction(write=True) as connection:
            for row in rows:
                connection.execute(INSERT, row)
            for table, version in versions.items():
                _record(connection, table, version, "")
            if rows:
                connection.execute(UPDATE_HEAD, (rows[-1][-1],))
            connection.execute("INSERT INTO meta VALUES (?, ?)", (ARCHIVE, "releases of another ledger"))

    def version(self, table: str) -> int:
        """Return the version of the table's data that is current; they count from 1."""
        return self.snapshot().edition(table).version

    def version_at(self, table: str, number: int) -> int:
        """Return the last version of the table's data that releases up to this one were about; 1 if there are none."""
        query = 'SELECT coalesce(max(version), 1) FROM releases WHERE "table" = ? AND id <= ?'
        with self._transaction(write=False) as connection:
            up_to = min(number, self._view.last_id)  # no database takes a number of any size
            return int(connection.execute(query, (table, up_to)).fetchone()[0])

    def fingerprint(self, table: str) -> str | None:
        """Return what claim() or refresh() recorded for the current version."""
        with self._transaction(write=False) as connection:
            return _fingerprint(connection, table)

    def claim(self, table: str, fingerprint: str) -> str:
        """Return the fingerprint of the current version, which is this one if none was recorded yet."""
        with self._transaction(write=True) as connection:
            recorded = _fingerprint(connection, table)
            if recorded is None:
                _record(connection, table, _version(connection, table), fingerprint)
            return recorded or fingerprint

    def first_read(self, table: str, version: int, rows: str) -> str:
        """Return what the rows of a version were when they were first read, which is this if they never were."""
        known = 'SELECT "rows" FROM readings WHERE "table" = ? AND version = ?'
        with self._transaction(write=True) as connection:
            found = connection.execute(known, (table, version)).fetchone()
            if found is None:
                connection.execute(READ, (table, version, rows))
            return rows if found is None else str(found[0])

    def refresh(self, table: str, fingerprint: str) -> int:
        """Return the number of a new version: earlier releases are not reused but stay charged."""
        with self._transaction(write=True) as connection:
            version = _version(connection, table) + 1
            _record(connection, table, version, fingerprint)
            return version

    def close(self) -> None:
        with self._lock:
            self._store.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def _transaction(self, *, write: bool) -> Iterator[Connection]:
        """Run the block in a transaction that sees every release so far; undo it if anything is raised."""
        with self._asking(write=write) as (connection, _):
            yield connection

    @contextmanager
    def _asking(self, *statements: Statement, write: bool) -> Iterator[tuple[Connection, list[list[Any]]]]:
        """Run the block in such a transaction, given the rows of statements that were sent with its beginning."""
        with self._lock:
            if os.getpid() != self._process:
                raise LedgerFailed("the ledger was opened before a fork: open it again in the new process")
            new: Statement = (NEW, (self._view.last_id,))
            with self._store.transaction(new, *statements, write=write) as (connection, head, [rows, *answers]):
                if head != self._view.last_hash:  # otherwise nothing is new
                    self._catch_up(rows, head)
                yield connection, answers

    def _catch_up(self, rows: Sequence[Any], head: str | None) -> None:  # Any: mypy can't take *Row from a tuple
        """Bring the view up to date with releases of other processes, and check the chain."""
        name, last_id, last_hash = self._store.name, self._view.last_id, self._view.last_hash
        check_here(name, head)
        charges, kinds = [], set()
        for *columns, row_hash in rows:
            if columns[0] != last_id + 1 or row_hash != chained(last_hash, columns):
                raise damaged(name, f"the chain of hashes breaks after release {last_id}")
            last_id, last_hash = columns[0], row_hash
            try:
                release = _release(tuple(columns))
            except ValueError:
                raise damaged(name, f"the cost of release {last_id} can't be read") from None
            charges.append(release.charge)
            kinds.add((release.population, release.kind))
        try:
            self._view = self._view.charged(charges, analyst="").stored(kinds, last_id, last_hash)
        except ValueError:
            raise damaged(name, f"the costs of releases up to {last_id} do not fit together") from None
        if head != last_hash:
            raise damaged(name, f"it does not end with release {last_id}")


def opened(place: Path | Remote, identity: str | None, *, head: str | None = None) -> Store:
    """Return the store at a place; if there is none, one with this identity and head is made, or that is an error."""
    if isinstance(place, Path):
        return SqliteStore.open(place, new=identity, head=head)
    from planner.ledger.stores.postgres import PostgresStore

    return PostgresStore.open(place, new=identity, head=head)


def _select(connection: Connection, where: str, *parameters: str | int) -> list[Release]:
    return [_release(row) for row in connection.execute(f"SELECT {COLUMNS} FROM releases {where}", parameters)]


def _paying(drafts: Sequence[Draft]) -> list[tuple[str, str]]:
    """Return the populations and accounts that the drafts charge."""
    charged = [draft for draft in drafts if draft.cost.highest]
    names = dict.fromkeys(payer for draft in charged for payer in payers(draft.analyst)) or ("",)
    return [(population, payer) for population in {draft.population for draft in charged} for payer in names]


def _by_key(drafts: Sequence[Draft]) -> Statement:
    """Return what looks up the releases under the drafts' keys."""
    marks = ", ".join("?" * len(drafts))
    return f"SELECT {COLUMNS} FROM releases WHERE key IN ({marks})", [draft.key for draft in drafts]


def _stored(drafts: Sequence[Draft], rows: Iterable[Row]) -> dict[str, Release]:
    """Return by key the releases that are stored already; replayed are those that have another body than the draft."""
    releases = {release.key: release for release in map(_release, rows)}
    bodies = {draft.key: draft.body for draft in drafts}
    return {key: replace(release, replayed=release.body != bodies[key]) for key, release in releases.items()}


def _first_readings(
    readings: Sequence[Reading], editions: Iterable[tuple[str, int, str]], seen: Iterable[tuple[str, int, str]]
) -> list[Statement]:
    """Return what records the first reading of a version; raise if an earlier one saw another source, or other rows."""
    fingerprints = {(table, version): fingerprint for table, version, fingerprint in editions}
    rows = {(table, version): found for table, version, found in seen}
    inserts: list[Statement] = []
    for reading in readings:
        place = (reading.table, reading.version)
        if reading.fingerprint and place not in fingerprints:
            inserts.append((RECORD, (*place, reading.fingerprint)))
        if place not in rows:
            inserts.append((READ, (*place, reading.rows)))
        fingerprint = fingerprints.setdefault(place, reading.fingerprint or "")
        if (fingerprint and reading.fingerprint not in (None, fingerprint)) or reading.rows != rows.setdefault(
            place, reading.rows
        ):
            raise source_changed(reading.table)
    return inserts


def source_changed(table: str) -> SourceFailed:
    return SourceFailed(
        f"the source of table {table} changed since it was first read",
        hint="run `noisegate refresh`: earlier answers stop being reused, and stay charged",
    )


def _version(connection: Connection, table: str) -> int:
    query = 'SELECT coalesce(max(version), 1) FROM versions WHERE "table" = ?'
    return int(connection.execute(query, (table,)).fetchone()[0])


def _fingerprint(connection: Connection, table: str) -> str | None:
    query = 'SELECT fingerprint FROM versions WHERE "table" = ? AND version = ?'
    row = connection.execute(query, (table, _version(connection, table))).fetchone()
    return None if row is None else str(row[0])


def _record(connection: Connection, table: str, version: int, fingerprint: str) -> None:
    connection.execute(RECORD, (table, version, fingerprint))
