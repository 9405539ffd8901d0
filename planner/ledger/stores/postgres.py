"""A ledger in a schema of a PostgreSQL database, for any number of gates on any machines.

A write transaction begins by locking one row, the head of the chain, which excludes all others until it ends: charges
are as safe as with SERIALIZABLE, and nothing is ever tried again. Every setting that safety rests on is set inside the
transaction, so that defaults of the server, the role or a pool of connections do not matter.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any

import psycopg
from psycopg import errors, pq
from psycopg.conninfo import conninfo_to_dict

from planner.basics.errors import LedgerFailed
from planner.basics.limits import BUSY_SECONDS, IDLE_SECONDS, RECOVER_SECONDS, SILENT_SECONDS
from planner.basics.numerals import whole
from planner.ledger.accounts import first_hash
from planner.ledger.stores import HEAD, Begun, Connection, OutcomeUnknown, Rows, Statement, damaged, missing, newer
from planner.ledger.stores.schema import FORMAT, Dialect, migrations
from planner.policy.ledger import Remote

DEFAULTS = {
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": str(1000 * SILENT_SECONDS),
    "fallback_application_name": "noisegate",
}
"""Of connections, where the URL says nothing else."""

READ = (
    "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
    "SET LOCAL search_path = {schema}, pg_temp",
)
WRITE = (
    "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE",
    "SET LOCAL search_path = {schema}, pg_temp",
    """SELECT set_config('synchronous_commit', CASE current_setting('synchronous_commit')
        WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true)""",
    "SET LOCAL lock_timeout = '{busy}s'",
    "SET LOCAL idle_in_transaction_session_timeout = '{idle}s'",
)
TRY_AGAIN = "nothing was charged; try again"


def _guards(table: str) -> tuple[str, ...]:
    """Return statements that keep rows from being changed or removed, even by a slip of their owner."""
    return (
        f"""CREATE FUNCTION {table}_are_append_only() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN RAISE 'rows of {table} are never changed or removed'; END $$""",
        f"""CREATE TRIGGER {table}_are_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {table}
            FOR EACH STATEMENT EXECUTE FUNCTION {table}_are_append_only()""",
    )


def _counts_on(table: str, last: int) -> tuple[str, ...]:
    return (f"ALTER TABLE {table} ALTER COLUMN id RESTART WITH {last + 1}",)


DIALECT = Dialect(
    integer="BIGINT",
    data="BYTEA",
    counted="BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    guards=_guards,
    given="OVERRIDING SYSTEM VALUE",
    counts_on=_counts_on,
)


class PostgresStore:
    """One schema of a database; see planner.ledger.stores.Store."""

    def __init__(self, place: Remote) -> None:
        """Use open() instead."""
        self.name, self.identity, self.dialect = place.name, "", DIALECT
        self._place = place
        self._closed = False
        self._connection: _Patient | None = None

    @classmethod
    def open(cls, place: Remote, *, new: str | None, head: str | None = None) -> PostgresStore:
        store = cls(place)
        try:
            with _explained(store.name):
                store._connect()
                store.identity = store._checked_identity(new, head)
        except BaseException:
            store.close()
            raise
        return store

    @contextmanager
    def transaction(self, *statements: Statement, write: bool) -> Iterator[Begun]:
        head: Statement = (f"{HEAD} FOR UPDATE" if write else HEAD, ())
        with self._block(head, *statements, write=write) as (connection, [found, *rows]):
            yield connection, found[0][0] if found else None, rows

    @contextmanager
    def _block(self, *statements: Statement, write: bool) -> Iterator[tuple[Connection, list[list[Any]]]]:
        """Run the block in a transaction that begins with some statements, given the rows of those."""
        with _explained(self.name):
            connection, rows = self._begun(statements, write=write)
            block = _Statements(connection)
            try:
                yield block, rows
                last = _message(connection, [*block.last, ("COMMIT", ())])
            except BaseException:
                self._undo()
                raise
            self._commit(connection, last, write=write)

    def _begun(self, statements: Sequence[Statement], *, write: bool) -> tuple[_Patient, list[list[Any]]]:
        """Return a connection inside a transaction, made anew if the last one was lost since it was used."""
        values = {"schema": self._place.schema, "busy": BUSY_SECONDS, "idle": IDLE_SECONDS}
        begin = [sql.format(**values) for sql in (WRITE if write else READ)]
        if self._connection is not None:
            try:
                return self._sent(self._connection, begin, statements)
            except psycopg.OperationalError:
                if self._connection is not None:
                    raise
        return self._sent(self._connect(), begin, statements)

    def _sent(
        self, connection: _Patient, begin: list[str], statements: Sequence[Statement]
    ) -> tuple[_Patient, list[list[Any]]]:
        """Begin a transaction and run statements in it: one message, so that nothing is waited for in between."""
        try:
            rows = _asked(connection, [(sql, ()) for sql in begin] + list(statements))
            return connection, rows[len(begin) :]
        except BaseException:
            self._undo()
            raise

    def _commit(self, connection: _Patient, message: bytes, *, write: bool) -> None:
        """Send the last statements and the commit as one message."""
        try:
            cursor = connection.execute(message)
            done = [cursor.statusmessage]
            while cursor.nextset():
                done.append(cursor.statusmessage)
        except psycopg.Error as error:
            if connection.info.transaction_status == pq.TransactionStatus.INERROR:  # it did not come to the commit
                self._undo()
                raise
            self._drop()
            if write:
                what = "was lost before it acknowledged" if error.sqlstate is None else f"ended with {_called(error)}"
                raise OutcomeUnknown(f"the connection to the ledger {self.name} {what}") from None
            raise
        except BaseException:
            self._drop()
            raise
        if done[-1] != "COMMIT":
            raise LedgerFailed(f"the ledger {self.name} undid a transaction", hint=TRY_AGAIN)
        if {"INSERT 0 0", "UPDATE 0"} & set(done):  # a rule or a trigger keeps rows from being stored
            raise damaged(self.name, "what was written is not in it")

    def _undo(self) -> None:
        """End a transaction that failed; a connection on which that is not certain is dropped."""
        connection = self._connection
        if connection is not None:
            with suppress(psycopg.Error):
                connection.execute("ROLLBACK")
            if connection.closed or connection.info.transaction_status != pq.TransactionStatus.IDLE:
                self._drop()

    def recover(self) -> None:
        """Connect anew and wait for the lock: whoever held it, be it our own lost connection, has come to its end."""
        self._drop()
        until = time.monotonic() + RECOVER_SECONDS
        with _explained(self.name):
            while True:
                try:
                    self._begun([(f"{HEAD} FOR UPDATE", ())], write=True)
                    break
                except psycopg.OperationalError:
                    if time.monotonic() > until:
                        raise
                time.sleep(0.2)
            self._undo()

    def close(self) -> None:
        self._closed = True
        self._drop()

    def _connect(self) -> _Patient:
        if self._closed:
            raise LedgerFailed(f"the ledger {self.name} is closed")
        given = conninfo_to_dict(self._place.conninfo)
        parts: dict[str, Any] = {**DEFAULTS, **given, "client_encoding": "utf8"}
        self._connection = _Patient.connect(autocommit=True, prepare_threshold=None, **parts)
        return self._connection

    def _drop(self) -> None:
        if self._connection is not None:
            with suppress(psycopg.Error):
                self._connection.close()
        self._connection = None

    # What is there.

    def _checked_identity(self, new: str | None, head: str | None) -> str:
        """Return the identity of a ledger in the current format, made or brought to it; or raise LedgerFailed."""
        with self._block(("SHOW fsync", ()), write=False) as (connection, [fsync]):
            version = self._format(connection)
        if fsync == [("off",)]:
            raise LedgerFailed(
                f"the ledger {self.name} can't be kept here: the server has fsync = off, and loses charges",
                hint="turn fsync on in the server's configuration",
            )
        if version < FORMAT:
            if version == 0 and new is None:
                raise missing(self.name, self._place.marker.name)
            self._migrate(new, head)
        with self._block(("SELECT value FROM meta WHERE name = 'identity'", ()), write=False) as (_, [rows]):
            if not rows:
                raise damaged(self.name, "it has no identity")
            return str(rows[0][0])

    def _format(self, connection: Connection) -> int:
        """Return the format of the ledger in the schema; 0 if there is none."""
        name = f"{self._place.schema}.meta"
        if connection.execute("SELECT to_regclass(?)", (name,)).fetchone() == (None,):
            return 0
        row = connection.execute("SELECT value FROM meta WHERE name = 'format'").fetchone()
        version = whole(row[0]) if row is not None else None
        if version is None:
            raise damaged(self.name, "it is not a noisegate ledger")
        if version > FORMAT:
            raise newer(self.name, version, FORMAT)
        return version

    def _migrate(self, new: str | None, head: str | None) -> None:
        """Bring the tables to the current format; does nothing if another gate was faster."""
        schema = self._place.schema
        lock = f"SELECT pg_advisory_xact_lock(hashtextextended('noisegate {schema}', 0))"
        with self._block((lock, ()), write=True) as (connection, _):
            if connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = ?", (schema,)).fetchone() is None:
                connection.execute(f"CREATE SCHEMA {schema}")
            version = self._format(connection)
            for statement in migrations(DIALECT, since=version):
                connection.execute(statement)
            if version == 0:
                identity = new or str(uuid.uuid4())
                for row in (("identity", identity), ("head", head or first_hash(identity)), ("format", "0")):
                    connection.execute("INSERT INTO meta VALUES (?, ?)", row)
            connection.execute("UPDATE meta SET value = ? WHERE name = 'format'", (str(FORMAT),))


class _Patient(psycopg.Connection[tuple[Any, ...]]):
    """A connection that is given up when the server says nothing for too long: packets can get lost for good."""

    def wait(self, gen: Generator[Any, Any, Any], *arguments: Any, **options: Any) -> Any:  # Any: as psycopg has it
        try:
            return super().wait(_patient(gen), *arguments, **options)
        except TimeoutError:
            self.close()
            raise psycopg.OperationalError("the server does not answer") from None


def _patient(gen: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """Return psycopg's waiting, in which the socket's states go in and what to wait for comes out, with a limit."""
    until = time.monotonic() + SILENT_SECONDS
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if not ready and time.monotonic() > until:
                raise TimeoutError
            wanted = gen.send(ready)
    except StopIteration as end:
        return end.value


class _Statements:
    """A connection that takes `?` for parameters, as SQLite does."""

    def __init__(self, connection: _Patient) -> None:
        self._connection = connection
        self.last: list[Statement] = []

    def execute(self, sql: str, parameters: Sequence[str | int | bytes] = (), /) -> Rows:
        return self._connection.execute(_formatted(sql), parameters)

    def ask(self, *statements: Statement) -> list[list[Any]]:
        return _asked(self._connection, statements)

    def finish(self, *statements: Statement) -> None:
        self.last.extend(statements)


def _asked(connection: _Patient, statements: Sequence[Statement]) -> list[list[Any]]:
    found: list[list[Any]] = []
    cursor = connection.execute(_message(connection, statements))
    for _ in statements:
        found.append(cursor.fetchall() if cursor.description else [])
        cursor.nextset()
    return found


def _message(connection: _Patient, statements: Sequence[Statement]) -> bytes:
    """Return statements as one simple query. In libpq's pipeline mode a server does not end transactions left idle."""
    sql = b";\n".join(_formatted(sql) for sql, _ in statements)
    values = [value for _, parameters in statements for value in parameters]
    return psycopg.ClientCursor(connection).mogrify(sql, values).encode() if values else sql.replace(b"%%", b"%")


@lru_cache(maxsize=256)
def _formatted(sql: str) -> bytes:
    return sql.replace("%", "%%").replace("?", "%s").encode()


@contextmanager
def _explained(name: str) -> Iterator[None]:
    """Turn what psycopg raises into LedgerFailed, without its text: that may quote rows, hosts and roles."""
    try:
        yield
    except psycopg.Error as error:
        raise _explanation(name, error) from None


def _explanation(name: str, error: psycopg.Error) -> LedgerFailed:
    if isinstance(error, psycopg.DataError) and error.sqlstate is None:
        return LedgerFailed(f"the ledger {name} can't keep a text with a zero byte", hint="leave it out of the SQL")
    if error.sqlstate is None or isinstance(error, errors.IdleInTransactionSessionTimeout | errors.AdminShutdown):
        return LedgerFailed(
            f"the ledger {name} can't be reached",
            hint="nothing was charged; try again, or see whether psql can connect from here",
        )
    if isinstance(error, errors.LockNotAvailable):
        what = f"another gate holds it for {BUSY_SECONDS} seconds"
        return LedgerFailed(f"the ledger {name} is busy: {what}", hint=TRY_AGAIN)
    if isinstance(error, errors.UndefinedTable | errors.UndefinedColumn | errors.InvalidSchemaName):
        return damaged(name, _called(error))
    return LedgerFailed(
        f"the ledger {name} can't be read or written: {_called(error)}",
        hint="nothing was charged; the log of the PostgreSQL server says more",
    )


def _called(error: psycopg.Error) -> str:
    """Return what kind of error it is, as PostgreSQL's documentation calls it: `disk full (53100)`."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(error).__name__).lower()
    return f"{words} ({error.sqlstate})"
