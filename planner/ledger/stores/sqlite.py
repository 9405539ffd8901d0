"""A ledger in one SQLite file. Every process opens its own connection; SQLite's own lock is the row lock.

The journal is a rollback journal, not a write-ahead log: then all that is stored, and every lock, belongs to the file
itself, and there is no second file whose removal would leave two gates with two histories. The one thing found by name
is the journal of a process that was killed, so a ledger has one name: links to it and mounts on it are refused.
"""

from __future__ import annotations

import os
import re
import sqlite3
import time
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from planner.basics.errors import LedgerFailed
from planner.basics.files import publish, sync_folder
from planner.basics.limits import BUSY_SECONDS
from planner.ledger.accounts import first_hash
from planner.ledger.stores import HEAD, RESTORE, Begun, OutcomeUnknown, Statement, damaged, marker_of, missing, newer
from planner.ledger.stores.schema import FORMAT, Dialect, migrations

APPLICATION_ID = 0x4E474C44  # "NGLD"
UNREADABLE = "it holds text that is not UTF-8"
MOUNTS = Path("/proc/self/mountinfo")
"""Where Linux tells what is mounted; its fifth field is the place."""


def _guards(table: str) -> tuple[str, ...]:
    return tuple(
        f"""CREATE TRIGGER {table}_are_never_{done} BEFORE {verb} ON {table}
            BEGIN SELECT RAISE(ABORT, '{table} are never {done}'); END"""
        for verb, done in (("UPDATE", "changed"), ("DELETE", "removed"))
    )


DIALECT = Dialect(
    integer="INTEGER",
    data="BLOB",
    counted="INTEGER PRIMARY KEY",
    guards=_guards,
    given="",
    counts_on=lambda _table, _last: (),
)


class SqliteStore:
    """One SQLite file; see planner.ledger.stores.Store."""

    def __init__(self, path: Path) -> None:
        """Use open() instead."""
        self.path, self.name = path, path.name
        self.dialect = DIALECT
        self._file = _file_id(path)
        self._connection = _connect(path)
        self._settled: str | None = None  # the head up to which all is known to survive a power cut
        self.identity = ""

    @classmethod
    def open(cls, path: Path, *, new: str | None, head: str | None = None) -> SqliteStore:
        with _explained(path):
            if new is not None and not path.exists():
                _create(path, new, head or first_hash(new))
            if not path.exists():
                raise missing(path.name, marker_of(path).name)
            _check_mounts(path)
            _remove_drafts(path)
            store = cls(path)
            try:
                store.identity = _checked_identity(path, store._connection)
            except BaseException:
                store._connection.close()
                raise
            return store

    @contextmanager
    def transaction(self, *statements: Statement, write: bool) -> Iterator[Begun]:
        with _explained(self.path):
            self._check_place()
            self._connection.execute("BEGIN IMMEDIATE" if write else "BEGIN DEFERRED")
            try:
                (head,) = self._connection.execute(HEAD).fetchone() or (None,)
                self._settle(head)
                connection = _Statements(self._connection)
                yield connection, head, connection.ask(*statements)
                self._commit(write=write)
            except BaseException:
                with suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
                raise

    def _settle(self, head: str | None) -> None:
        """Make durable what others stored: one may have been killed after its commit, before the disk had all of it."""
        if head != self._settled:
            sync_folder(self.path.parent)  # a commit ends with the removal of its journal
            self._settled = head

    def _commit(self, *, write: bool) -> None:
        try:
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            if not write:
                raise
            failure = _explanation(self.path, error)
            raise OutcomeUnknown(failure.message, hint=failure.hint) from error

    def recover(self) -> None:
        self._check_place()
        with _explained(self.path):
            broken, self._connection = self._connection, _connect(self.path)
            self._settled = None
            _leave_log(self._connection)
        with suppress(sqlite3.Error):
            broken.close()

    def close(self) -> None:
        with _explained(self.path):
            self._connection.close()

    def _check_place(self) -> None:
        if _file_id(self.path) != self._file:
            raise LedgerFailed(f"the ledger {self.name} was replaced while it was open: {RESTORE}")


class _Statements:
    """A connection as stores offer it."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.execute = connection.execute

    def ask(self, *statements: Statement) -> list[list[Any]]:
        return [self.execute(*statement).fetchall() for statement in statements]

    def finish(self, *statements: Statement) -> None:
        self.ask(*statements)


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
        connection.execute("PRAGMA synchronous = EXTRA")  # the removal of the journal, too
        connection.execute("PRAGMA fullfsync = ON")  # macOS; elsewhere without effect
        connection.execute("PRAGMA cell_size_check = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def _create(path: Path, identity: str, head: str) -> None:
    """Make a ledger, complete before it appears; leave it to whoever was faster."""
    for left_over in (path.with_name(path.name + "-wal"), _journal(path)):
        if left_over.exists():
            raise LedgerFailed(f"{left_over.name} is left of a ledger that is missing: restore both from backup")
    draft = path.with_name(f"{path.name}.{uuid.uuid4()}")
    os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    try:
        with closing(_connect(draft)) as connection:
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            _migrate(connection)
            rows = [("identity", identity), ("head", head)]
            connection.executemany("INSERT INTO meta VALUES (?, ?)", rows)
        with closing(_connect(draft)) as connection:  # read back, since a full disk may have cut it short
            assert _checked_identity(draft, connection) == identity
        publish(draft, path)
    finally:
        for file in (draft, _journal(draft)):
            file.unlink(missing_ok=True)


def _journal(path: Path) -> Path:
    return path.with_name(path.name + "-journal")


def _leave_log(connection: sqlite3.Connection) -> None:
    """Use a rollback journal: the write-ahead log of an earlier version ends here.

    That takes the file alone. Whoever else opens it is here as well, for a moment only.
    """
    for attempt in range(10 * BUSY_SECONDS):
        try:
            connection.execute("PRAGMA journal_mode = DELETE")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or attempt == 10 * BUSY_SECONDS - 1:
                raise
        time.sleep(0.1)


def _migrate(connection: sqlite3.Connection) -> None:
    """Bring the tables to the current format; does nothing if another process was faster."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        for statement in migrations(DIALECT, since=version):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {max(version, FORMAT)}")
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise


def _checked_identity(path: Path, connection: sqlite3.Connection) -> str:
    """Return the identity of a file that is a sound ledger, brought to the current format; or raise LedgerFailed."""
    if connection.execute("PRAGMA application_id").fetchone() != (APPLICATION_ID,):
        raise damaged(path.name, "it is not a noisegate ledger")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > FORMAT:
        raise newer(path.name, version, FORMAT)
    _leave_log(connection)
    if connection.execute("PRAGMA integrity_check(1)").fetchall() != [("ok",)]:
        raise damaged(path.name, "it fails SQLite's integrity check")
    if version < FORMAT:
        _migrate(connection)
    row = connection.execute("SELECT value FROM meta WHERE name = 'identity'").fetchone()
    if row is None:
        raise damaged(path.name, "it has no identity")
    return str(row[0])


def _file_id(path: Path) -> tuple[int, int]:
    """Return what tells the file from every other; raise if it is missing, or has a second name."""
    try:
        status = path.stat()
    except FileNotFoundError:
        raise LedgerFailed(f"the ledger {path.name} is missing: {RESTORE}") from None
    if status.st_nlink > 1:
        raise LedgerFailed(
            f"the ledger {path.name} has another name (a hard link), under which half a charge could be seen",
            hint="nothing was charged; remove the link, and copy the ledger as docs/how-to/back-up-the-ledger.md says",
        )
    return status.st_dev, status.st_ino


def _remove_drafts(path: Path) -> None:
    """Remove the draft that became this file, if whoever made it was killed before."""
    status, draft = path.stat(), re.compile(re.escape(path.name) + r"\.[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
    if status.st_nlink > 1:
        for file in path.parent.iterdir():
            with suppress(FileNotFoundError):
                if draft.fullmatch(file.name) and os.path.samestat(file.stat(), status):
                    file.unlink()


def _check_mounts(path: Path) -> None:
    """Refuse a file that is itself mounted: elsewhere it has another name, beside which its journal would lie."""
    try:
        mounts = MOUNTS.read_bytes().splitlines()
    except OSError:  # not Linux
        return
    place = os.fsencode(path.resolve())
    if any(_unescaped(mount.split()[4]) == place for mount in mounts):
        raise LedgerFailed(
            f"the ledger {path.name} is mounted as a single file, so that its journal would not be found",
            hint="mount the folder that it is in",
        )


def _unescaped(place: bytes) -> bytes:
    r"""Return a place as it is, of which mountinfo writes blanks as octals.

    >>> _unescaped(rb"/my\040files")
    b'/my files'
    """
    return re.sub(rb"\\([0-7]{3})", lambda found: bytes([int(found[1], 8)]), place)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn what SQLite and the operating system raise into LedgerFailed."""
    try:
        yield
    except sqlite3.Error as error:
        raise _explanation(path, error) from error
    except UnicodeDecodeError as error:  # the text of an SQLite error quotes the damage
        raise damaged(path.name, UNREADABLE) from error
    except OSError as error:
        raise LedgerFailed(f"the ledger {path.name} can't be read or written: {error.strerror or error}") from error


def _explanation(path: Path, error: sqlite3.Error) -> LedgerFailed:
    code = getattr(error, "sqlite_errorcode", -1) & 0xFF  # without the extension
    if "decode to UTF-8" in str(error):  # the rest of the text quotes the row
        return damaged(path.name, UNREADABLE)
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return LedgerFailed(
            f"the ledger {path.name} is busy: another process holds it for {BUSY_SECONDS} seconds",
            hint="nothing was charged; try again",
        )
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR):
        return damaged(path.name, str(error))
    return LedgerFailed(
        f"the ledger {path.name} can't be read or written: {error}",
        hint="nothing was charged; look at the free space and the permissions where it is kept",
    )
