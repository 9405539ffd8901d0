"""The ledger: every release together with its charge, in one SQLite file.

A release is stored before its answer leaves, under a key that makes a second try return the first draw.
Rows are never changed or removed; each carries a hash over itself and its predecessor. What was spent is
kept in memory (`View`) and brought up to date inside the transaction that checks the caps, so that any
number of threads and processes share one budget.

Beside the file lies `<path>.born` with the ledger's identity and the number of releases acknowledged so
far: a ledger that is missing, foreign, or shorter than that is an error and never a fresh budget.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from types import TracebackType

from planner.accounts import GAUSSIAN_KINDS, Caps, Charge, Draft, Quote, Release, View, chained, first_hash, payers
from planner.costs import from_bytes, simplified, to_bytes
from planner.errors import LedgerFailed, SourceFailed

BUSY_SECONDS = 30
APPLICATION_ID = 0x4E474C44  # "NGLD"
SCHEMA_VERSION = 1
SCHEMA = f"""
BEGIN;
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE releases (
    id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, question TEXT NOT NULL, population TEXT NOT NULL,
    "table" TEXT NOT NULL, version INTEGER NOT NULL, analyst TEXT NOT NULL, sql TEXT NOT NULL,
    kind TEXT NOT NULL, body BLOB NOT NULL, cost BLOB NOT NULL, created TEXT NOT NULL, hash TEXT NOT NULL
);
CREATE INDEX releases_by_question ON releases (question, "table", version);
CREATE TABLE versions (
    "table" TEXT NOT NULL, version INTEGER NOT NULL, fingerprint TEXT NOT NULL, PRIMARY KEY ("table", version)
);
CREATE TRIGGER releases_are_never_changed BEFORE UPDATE ON releases
    BEGIN SELECT RAISE(ABORT, 'releases are never changed'); END;
CREATE TRIGGER releases_are_never_removed BEFORE DELETE ON releases
    BEGIN SELECT RAISE(ABORT, 'releases are never removed'); END;
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
COMMIT;
"""
BESIDE = (
    """CREATE TABLE IF NOT EXISTS enlisted (
        id INTEGER PRIMARY KEY, round TEXT NOT NULL, analyst TEXT NOT NULL, sql TEXT NOT NULL, wish TEXT NOT NULL,
        created TEXT NOT NULL, withdrawn TEXT
    )""",
    "CREATE INDEX IF NOT EXISTS enlisted_by_round ON enlisted (round)",
    """CREATE TABLE IF NOT EXISTS moves (
        id INTEGER PRIMARY KEY, source TEXT NOT NULL, target TEXT NOT NULL, share TEXT NOT NULL, created TEXT NOT NULL
    )""",
)
"""What is kept beside the releases: queries of rounds, and shares that were moved. A ledger without them gets them."""

COLUMNS = 'id, key, question, population, "table", version, analyst, sql, kind, body, cost, created'
UNREADABLE = "it holds text that is not UTF-8"
RESTORE = "restore it from backup; nothing is answered without the record of what was spent"


_Row = tuple[int, str, str, str, str, int, str, str, str, bytes, bytes, str]
"""A row of releases, in the order of COLUMNS."""


def _row(release: Release) -> _Row:
    r = release
    names = (r.key, r.question, r.population, r.table, r.version, r.analyst, r.sql, r.kind)
    return (r.id, *names, r.body, to_bytes(r.cost), r.created)


def _release(row: _Row) -> Release:
    number, key, question, population, table, version, analyst, sql, kind, body, cost, created = row
    draft = (key, question, population, table, version, analyst, sql, kind, body, from_bytes(cost))
    return Release(*draft, id=number, created=created)


class Ledger:
    """One SQLite file. Threads may share the object; every process opens its own.

    Guarantee: when commit() returns, the release and its charge are durable; and for every population
    (and account) the sum over its tables of what the dearest cell paid for all releases ever stored is at
    most the cap that the last charged release was given.
    """

    def __init__(self, path: Path, marker: _Marker) -> None:
        """Use open() instead."""
        self._path, self._marker = path, marker
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._file = _file_id(path)
        self._connection = _connect(path)
        self._view = View(0, first_hash(marker.identity))
        self._quoted: tuple[object, View] | None = None

    @classmethod
    def open(cls, path: Path) -> Ledger:
        """Return the ledger at path, which is made on first use; LedgerFailed if it can't be trusted."""
        path = Path(path).absolute()
        with _explained(path):
            known = _Marker.read(path)
            if known is None and not path.exists():
                _create(path)
            if not path.exists():
                raise LedgerFailed(
                    f"the ledger {path.name} is missing: restore it from backup",
                    hint=f"deleting {path.name}.born as well gives up the record of what was spent",
                )
            identity = _checked_identity(path)
            marker = known or _Marker.write(path, identity)
            if marker.identity != identity:
                raise LedgerFailed(f"{path.name} is another ledger than the one born here: {RESTORE}")
            return cls._verified(path, marker)

    @classmethod
    def _verified(cls, path: Path, marker: _Marker) -> Ledger:
        """Return the ledger after reading all of it, with every hash checked."""
        ledger = cls(path, marker)
        try:
            with ledger._transaction("IMMEDIATE") as connection:  # also fails at once if the file can't be written
                for statement in BESIDE:
                    connection.execute(statement)
            stored = ledger._view.last_id
            if stored < marker.acknowledged:
                raise LedgerFailed(
                    f"the ledger {path.name} holds {stored} releases but "
                    f"{marker.acknowledged} were acknowledged, so charges are lost: {RESTORE}",
                    hint=f"deleting {path.name}.born gives up the record of what is lost",
                )
            marker.acknowledge(stored)
        except BaseException:
            ledger.close()
            raise
        return ledger

    def commit(
        self, drafts: Sequence[Draft], *, caps: Caps, once: Callable[[sqlite3.Connection], None] | None = None
    ) -> list[Release]:
        """Return the drafts as durable releases, each charged once, or those already stored under their keys.

        All of them or none: raises BudgetExceeded if a cap would be passed, LedgerFailed if they can't be
        stored; either way nothing was charged and the draws must be thrown away. One analyst at a time, or several
        who pay together.

        With `once`, the last draft stands for all: if it is stored already it is returned alone, and nothing is
        charged. Otherwise `once` is called in the transaction, and may raise what is wrong by now.
        """
        with self._lock:
            try:
                releases = self._commit(drafts, caps, once)
            except LedgerFailed as failure:
                releases = self._read_back(drafts, failure)
            self._marker.acknowledge(max(release.id for release in releases))
            return releases

    def _commit(
        self, drafts: Sequence[Draft], caps: Caps, once: Callable[[sqlite3.Connection], None] | None
    ) -> list[Release]:
        with self._transaction("IMMEDIATE") as connection:
            if once is not None:
                if stored := self._stored(drafts[-1]):
                    return [replace(stored[0], replayed=True)]
                once(connection)
            found = {draft.key: self._stored(draft) for draft in drafts}
            new = [replace(draft, cost=simplified(draft.cost)) for draft in drafts if not found[draft.key]]
            _check_versions(connection, new)
            view = self._checked(new, caps)
            created = datetime.now(UTC).isoformat(timespec="microseconds")
            for draft in new:
                release = Release(**vars(draft), id=view.last_id + 1, created=created)
                view = view.stored(release, self._insert(connection, release, view.last_hash))
                found[draft.key] = [release]
        self._view = view
        return [found[draft.key][0] for draft in drafts]

    def _stored(self, draft: Draft) -> list[Release]:
        """Return the release under a draft's key, if there is one; it is replayed unless it has the draft's body."""
        found = self._select("WHERE key = ?", draft.key)
        return [replace(release, replayed=release.body != draft.body) for release in found]

    def _checked(self, drafts: Sequence[Draft], caps: Caps) -> View:
        """Return the view with the drafts charged; what costs nothing passes even a lowered cap."""
        view = self._after([_charge(draft) for draft in drafts]) if drafts else self._view
        charged, moved = [draft for draft in drafts if draft.cost.highest], _moved(self._connection)
        for population in {draft.population for draft in charged}:
            for payer in dict.fromkeys(payer for draft in charged for payer in payers(draft.analyst)):
                quote = self._view.quote(view, population, analyst=payer)
                replace(quote, moved=moved.get(payer, Fraction(0))).check(caps)
        return view

    def _after(self, charges: Sequence[Charge]) -> View:
        """Return the view after some charges; a commit after a quote of the same does not seek the maxima again."""
        asked = (self._view.last_id, tuple(charges))
        if self._quoted is None or self._quoted[0] != asked:
            self._quoted = (asked, self._view.charged(charges, analyst=""))
        return self._quoted[1]

    def _insert(self, connection: sqlite3.Connection, release: Release, previous: str) -> str:
        row = _row(release)
        row_hash = chained(previous, row)
        marks = ", ".join("?" * (len(row) + 1))
        connection.execute(f"INSERT INTO releases ({COLUMNS}, hash) VALUES ({marks})", (*row, row_hash))
        connection.execute("UPDATE meta SET value = ? WHERE name = 'head'", (row_hash,))
        return row_hash

    def _read_back(self, drafts: Sequence[Draft], failure: LedgerFailed) -> list[Release]:
        """Return what is stored under the keys after a commit of unknown outcome, or raise the failure."""
        try:
            self._check_place()
            with _explained(self._path):
                broken, self._connection = self._connection, _connect(self._path)
            with suppress(sqlite3.Error):
                broken.close()
            with self._transaction("DEFERRED"):
                stored = [self._stored(draft) for draft in drafts]
        except LedgerFailed:
            raise failure from None
        if not all(stored):
            raise failure
        return [found[0] for found in stored]

    def quote(self, charges: Sequence[Charge], *, analyst: str, populations: Sequence[str] = ()) -> list[Quote]:
        """Return, for each population concerned, what is spent before and after the charges; write nothing.

        The analyst pays for charges that name nobody else; it is their account that is told.
        """
        charges = [replace(c, cost=simplified(c.cost), analyst=c.analyst or analyst) for c in charges]
        with self._transaction("DEFERRED") as connection:
            after, moved = self._after(charges), _moved(connection).get(analyst, Fraction(0))
            concerned = dict.fromkeys([*populations, *(charge.population for charge in charges)])
            quotes = [self._view.quote(after, population, analyst=analyst) for population in concerned]
            return [replace(quote, moved=moved) for quote in quotes]

    def move(self, share: Fraction, *, source: str, target: str, caps: Caps) -> None:
        """Move a part of the budget from one account to another, durably; other processes see it at once.

        Guarantee: what all accounts may spend together stays as it was, and no more is moved than the source has
        left in every population; otherwise raises BudgetExceeded, and nothing is moved.
        """
        with self._transaction("IMMEDIATE") as connection:
            moved = _moved(connection).get(source, Fraction(0)) - share
            for population in self._view.populations or ("default",):
                quote = self._view.quote(self._view, population, analyst=source)
                replace(quote, moved=moved).check_left(caps, share)
            created = datetime.now(UTC).isoformat(timespec="microseconds")
            row = (source, target, str(share), created)
            connection.execute("INSERT INTO moves (source, target, share, created) VALUES (?, ?, ?, ?)", row)

    def moved(self) -> dict[str, Fraction]:
        """Return by how much each account's share was changed by moves."""
        with self._transaction("DEFERRED") as connection:
            return _moved(connection)

    @contextmanager
    def beside(self, *, write: bool) -> Iterator[sqlite3.Connection]:
        """Yield the connection in a transaction, for what is kept beside the releases."""
        with self._transaction("IMMEDIATE" if write else "DEFERRED") as connection:
            yield connection

    def spent(self, population: str) -> int:
        """Return what the population has paid, in units: the sum of its tables' dearest cells."""
        with self._transaction("DEFERRED"):
            return self._view.spent(population)

    def account_spent(self, population: str, analyst: str) -> int:
        """Return the same for the releases that this analyst paid for."""
        with self._transaction("DEFERRED"):
            return self._view.account_spent(population, analyst)

    def populations(self) -> list[str]:
        """Return the populations about which anything was released."""
        with self._transaction("DEFERRED"):
            return sorted(self._view.populations)

    def only_gaussian(self, population: str) -> bool:
        """Return whether all releases about the population have Gaussian noise."""
        with self._transaction("DEFERRED"):
            return self._view.kinds.get(population, frozenset()) <= GAUSSIAN_KINDS

    def find(self, question: str, *, table: str) -> list[Release]:
        """Return the releases that answer a question about a table, on whatever version of its data, newest first."""
        with self._transaction("DEFERRED"):
            return self._select('WHERE question = ? AND "table" = ? ORDER BY id DESC', question, table)

    def get(self, number: int) -> Release:
        """Return the release with this id; KeyError if there is none."""
        with self._transaction("DEFERRED"):
            found = self._select("WHERE id = ?", number)
        if not found:
            raise KeyError(f"there is no release {number}")
        return found[0]

    def releases(self, after: int = 0) -> list[Release]:
        """Return all releases with a larger id, oldest first."""
        with self._transaction("DEFERRED"):
            return self._select("WHERE id > ? ORDER BY id", after)

    def version(self, table: str) -> int:
        """Return the version of the table's data that is current; they count from 1."""
        with self._transaction("DEFERRED") as connection:
            return _version(connection, table)

    def fingerprint(self, table: str) -> str | None:
        """Return what claim() or refresh() recorded for the current version."""
        with self._transaction("DEFERRED") as connection:
            return _fingerprint(connection, table)

    def claim(self, table: str, fingerprint: str) -> str:
        """Return the fingerprint of the current version, which is this one if none was recorded yet."""
        with self._transaction("IMMEDIATE") as connection:
            recorded = _fingerprint(connection, table)
            if recorded is None:
                _record(connection, table, _version(connection, table), fingerprint)
            return recorded or fingerprint

    def refresh(self, table: str, fingerprint: str) -> int:
        """Return the number of a new version: earlier releases are not reused but stay charged."""
        with self._transaction("IMMEDIATE") as connection:
            version = _version(connection, table) + 1
            _record(connection, table, version, fingerprint)
            return version

    def close(self) -> None:
        with self._lock, _explained(self._path):
            self._connection.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def _transaction(self, mode: str) -> Iterator[sqlite3.Connection]:
        """Run the block in a transaction that sees every release so far; undo it if anything is raised."""
        with self._lock, _explained(self._path):
            self._check_place()
            self._connection.execute(f"BEGIN {mode}")
            try:
                self._catch_up()
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
                raise

    def _check_place(self) -> None:
        if os.getpid() != self._process:
            raise LedgerFailed("the ledger was opened before a fork: open it again in the new process")
        if _file_id(self._path) != self._file:
            raise LedgerFailed(f"the ledger {self._path.name} was replaced while it was open: {RESTORE}")

    def _catch_up(self) -> None:
        """Bring the view up to date with releases of other processes, and check the chain."""
        view = self._view
        rows = self._connection.execute(
            f"SELECT {COLUMNS}, hash FROM releases WHERE id > ? ORDER BY id", (view.last_id,)
        )
        for *columns, row_hash in rows:
            if columns[0] != view.last_id + 1 or row_hash != chained(view.last_hash, columns):
                raise _damaged(self._path, f"the chain of hashes breaks after release {view.last_id}")
            try:
                release = _release(tuple(columns))
                view = view.charged([_charge(release)], analyst=release.analyst).stored(release, row_hash)
            except ValueError:
                raise _damaged(self._path, f"the cost of release {columns[0]} can't be read") from None
        self._view = view
        head = self._connection.execute("SELECT value FROM meta WHERE name = 'head'").fetchone()
        if head != (view.last_hash,):
            raise _damaged(self._path, f"it does not end with release {view.last_id}")

    def _select(self, where: str, *parameters: str | int) -> list[Release]:
        rows = self._connection.execute(f"SELECT {COLUMNS} FROM releases {where}", parameters)
        return [_release(row) for row in rows]


def _charge(draft: Draft) -> Charge:
    return Charge(draft.population, draft.table, draft.cost, draft.analyst)


def _moved(connection: sqlite3.Connection) -> dict[str, Fraction]:
    found: dict[str, Fraction] = {}
    for source, target, text in connection.execute("SELECT source, target, share FROM moves"):
        share = Fraction(text)
        found[source] = found.get(source, Fraction(0)) - share
        found[target] = found.get(target, Fraction(0)) + share
    return found


def _check_versions(connection: sqlite3.Connection, drafts: Sequence[Draft]) -> None:
    for draft in drafts:
        if draft.version != _version(connection, draft.table):
            raise SourceFailed(f"the data of {draft.table} were refreshed while it was read", hint="ask again")


def _version(connection: sqlite3.Connection, table: str) -> int:
    query = 'SELECT coalesce(max(version), 1) FROM versions WHERE "table" = ?'
    return int(connection.execute(query, (table,)).fetchone()[0])


def _fingerprint(connection: sqlite3.Connection, table: str) -> str | None:
    query = 'SELECT fingerprint FROM versions WHERE "table" = ? AND version = ?'
    row = connection.execute(query, (table, _version(connection, table))).fetchone()
    return None if row is None else str(row[0])


def _record(connection: sqlite3.Connection, table: str, version: int, fingerprint: str) -> None:
    connection.execute("INSERT INTO versions VALUES (?, ?, ?)", (table, version, fingerprint))


def _connect(path: Path) -> sqlite3.Connection:
    """Return a connection to an existing file; an acknowledged commit survives a power cut."""
    connection = sqlite3.connect(
        path.as_uri() + "?mode=rw",  # never makes a file
        uri=True,
        timeout=BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,  # Ledger has its own lock
    )
    try:
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA fullfsync = ON")  # macOS; elsewhere without effect
        connection.execute("PRAGMA cell_size_check = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def _create(path: Path) -> None:
    """Make a ledger with a new identity, complete before it appears; leave it to whoever was faster."""
    for left_over in (path.with_name(path.name + ending) for ending in ("-wal", "-journal")):
        if left_over.exists():
            raise LedgerFailed(f"{left_over.name} is left of a ledger that is missing: restore both from backup")
    identity = str(uuid.uuid4())
    draft = path.with_name(f"{path.name}.{identity}")
    os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    try:
        with closing(_connect(draft)) as connection:
            if connection.execute("PRAGMA journal_mode = WAL").fetchone() != ("wal",):
                raise LedgerFailed(f"the ledger {path.name} can't be kept here: the file system has no WAL")
            connection.executescript(SCHEMA)
            rows = [("identity", identity), ("head", first_hash(identity))]
            connection.executemany("INSERT INTO meta VALUES (?, ?)", rows)
        _publish(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def _publish(draft: Path, path: Path) -> None:
    """Give a finished file its name, durably, unless another process was faster."""
    with suppress(FileExistsError):
        os.link(draft, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _checked_identity(path: Path) -> str:
    """Return the identity of a file that is a sound ledger of this version, or raise LedgerFailed."""
    with closing(_connect(path)) as connection:
        if connection.execute("PRAGMA application_id").fetchone() != (APPLICATION_ID,):
            raise _damaged(path, "it is not a noisegate ledger")
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version != SCHEMA_VERSION:
            raise LedgerFailed(f"the ledger {path.name} has format {version}, expected {SCHEMA_VERSION}")
        # What a killed process wrote last is seen from here on, so it must be made durable first.
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
        if connection.execute("PRAGMA integrity_check(1)").fetchall() != [("ok",)]:
            raise _damaged(path, "it fails SQLite's integrity check")
        row = connection.execute("SELECT value FROM meta WHERE name = 'identity'").fetchone()
        if row is None:
            raise _damaged(path, "it has no identity")
        return str(row[0])


@dataclass(frozen=True)
class _Marker:
    """The file `<path>.born`: the identity in the first line, the releases acknowledged in the second."""

    path: Path
    identity: str
    acknowledged: int

    @classmethod
    def read(cls, ledger: Path) -> _Marker | None:
        path = _marker_path(ledger)
        try:
            identity, acknowledged = path.read_text("ascii").splitlines()
            return cls(path, str(uuid.UUID(identity)), int(acknowledged))
        except FileNotFoundError:
            return None
        except ValueError:
            raise LedgerFailed(f"{path.name} is damaged: {RESTORE}") from None

    @classmethod
    def write(cls, ledger: Path, identity: str) -> _Marker:
        """Make the marker, durably; if another process was faster, its marker is the same."""
        path = _marker_path(ledger)
        draft = path.with_name(f"{path.name}.{uuid.uuid4()}")
        with os.fdopen(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
            file.write(f"{identity}\n{0:020d}\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            _publish(draft, path)
        finally:
            draft.unlink(missing_ok=True)
        return cls(path, identity, 0)

    def acknowledge(self, number: int) -> None:
        """Note that a release is about to be answered.

        A later number may be overwritten by an earlier one, or lost in a power cut: it is a lower bound,
        and a failure to write it leaves one behind. The charge itself is durable without it.
        """
        with suppress(OSError), self.path.open("r+b") as file:
            file.seek(len(self.identity) + 1)
            file.write(b"%020d" % number)


def _marker_path(ledger: Path) -> Path:
    return ledger.with_name(f"{ledger.name}.born")


def _file_id(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except FileNotFoundError:
        raise LedgerFailed(f"the ledger {path.name} is missing: {RESTORE}") from None
    return status.st_dev, status.st_ino


def _damaged(path: Path, reason: str) -> LedgerFailed:
    return LedgerFailed(f"the ledger {path.name} is damaged ({reason}): {RESTORE}")


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn what SQLite and the operating system raise into LedgerFailed."""
    try:
        yield
    except sqlite3.Error as error:
        raise _explanation(path, error) from error
    except UnicodeDecodeError as error:  # the text of an SQLite error quotes the damage
        raise _damaged(path, UNREADABLE) from error
    except OSError as error:
        raise LedgerFailed(f"the ledger {path.name} can't be read or written: {error.strerror or error}") from error


def _explanation(path: Path, error: sqlite3.Error) -> LedgerFailed:
    code = getattr(error, "sqlite_errorcode", -1) & 0xFF  # without the extension
    if "decode to UTF-8" in str(error):  # the rest of the text quotes the row
        return _damaged(path, UNREADABLE)
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return LedgerFailed(
            f"the ledger {path.name} is busy: another process holds it for {BUSY_SECONDS} seconds",
            hint="nothing was charged; try again",
        )
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR):
        return _damaged(path, str(error))
    return LedgerFailed(
        f"the ledger {path.name} can't be read or written: {error}",
        hint="nothing was charged; look at the free space and the permissions where it is kept",
    )
