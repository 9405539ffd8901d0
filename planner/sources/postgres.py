"""Protected tables in PostgreSQL: grouped there, in one read-only snapshot, so that only the data vector travels.

libpq finds host and credentials as it always does: in the URL, a service file, the environment, a passfile. What
PostgreSQL says when something fails may hold rows or secrets: it stays here.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

import numpy as np
import psycopg
from psycopg import conninfo, errors

from planner.basics.errors import SourceFailed, WrongColumns
from planner.basics.stopping import elsewhere
from planner.cells.workspace import Ints
from planner.counting.sql import Fetched, SqlSource, meaning
from planner.policy.domain import Domain
from planner.policy.location import table_name
from planner.policy.table import Table

Connection = psycopg.Connection[tuple[Any, ...]]

OLDEST = 14
"""Since this version EXTRACT is exact, and numbers have infinities."""

KINDS = {
    **dict.fromkeys(("int2", "int4", "int8"), "integer"),
    "numeric": "decimal",
    **dict.fromkeys(("float4", "float8"), "double"),
    **dict.fromkeys(("text", "varchar", "bpchar", "name", "citext", "uuid", "enum"), "text"),
    "bool": "boolean",
    "date": "date",
    "timestamp": "timestamp",
    "timestamptz": "timestamptz",
}
"""What each type of PostgreSQL is to a policy."""

CANCEL_PATIENCE = 5.0
"""Seconds in which a server must take a request to cancel."""

PATIENCE = {"connect_timeout": 10, "keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}
"""How soon a server that is gone is noticed, in seconds, unless the URL says otherwise."""

BEGIN = """BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
SET LOCAL statement_timeout = {milliseconds};
SET LOCAL search_path = pg_catalog;
SET LOCAL standard_conforming_strings = on;
SET LOCAL TimeZone = 'UTC';
SET LOCAL DateStyle = 'ISO'"""
"""Nothing that a role, a database or a pooler has set can change what our SQL means."""

FIND = """SELECT c.oid, c.relkind, pg_is_in_recovery(), current_setting('track_counts')::bool,
row_security_active(c.oid)
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relname = %s"""

COLUMNS = """SELECT a.attname, CASE t.typtype WHEN 'e' THEN 'enum' WHEN 'd' THEN b.typname ELSE t.typname END, a.attnum,
has_column_privilege(a.attrelid, a.attnum, 'SELECT')
FROM pg_attribute AS a JOIN pg_type AS t ON t.oid = a.atttypid LEFT JOIN pg_type AS b ON b.oid = t.typbasetype
WHERE a.attrelid = %s AND NOT a.attisdropped ORDER BY a.attnum"""

STATE = """WITH RECURSIVE parts(oid) AS (
SELECT %s::oid UNION SELECT i.inhrelid FROM pg_inherits AS i JOIN parts ON i.inhparent = parts.oid)
SELECT (SELECT system_identifier FROM pg_control_system()), oid, pg_relation_filenode(oid),
pg_stat_get_tuples_inserted(oid), pg_stat_get_tuples_updated(oid), pg_stat_get_tuples_deleted(oid)
FROM parts ORDER BY oid"""
"""The server, the table and its partitions: the file of each, and how many rows were ever written in it."""

SYSTEM = ("tableoid", "ctid", "xmin")
"""Columns that PostgreSQL keeps for every row: its partition, its place, and the transaction that wrote it."""

GRANT = f"GRANT SELECT on the table, or on the declared columns and on {', '.join(SYSTEM)}, to the gate's role"

VISIBLE = "SELECT count(*), sum(hash_record_extended(ROW(tableoid, ctid, xmin), 0)) FROM {}"
"""What tells the rows that a snapshot sees from those that any other one sees, but for chances of 2^-64."""

MOST, LEAST = 2**63 - 1, -(2**63)


class PostgresSource(SqlSource):
    """One protected table in PostgreSQL."""

    dialect = "postgres"
    huge = "NUMERIC"
    headroom = 0

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self._meaning = meaning(table)
        self._lock = threading.RLock()
        self._connection: Connection | None = None
        self._idle: list[Connection] = []
        found = table_name(table.location)
        assert found is not None
        self._schema, self._name = _folded(found.args.get("db"), "public"), _folded(found.this, "")
        self._from = f"{self.quoted(self._schema)}.{self.quoted(self._name)}"
        self._conninfo = self._waiting(table.location.place)
        with self.current():
            pass

    def _waiting(self, url: str) -> str:
        """Return libpq's form of a URL, with our patience where it has none."""
        try:
            given = conninfo.conninfo_to_dict(url)
            own = {key: value for key, value in PATIENCE.items() if key not in given}
            return conninfo.make_conninfo(url, fallback_application_name="noisegate", **own)
        except psycopg.Error:
            raise SourceFailed(f"the source of table {self.table.name} is not a URL that libpq can read") from None

    @contextmanager
    def current(self) -> Iterator[None]:
        """Hold a snapshot of the database, with the table's columns as they are in it; inside another, the same one."""
        with self._lock:
            if self._connection is not None:
                yield
                return
            with self._snapshot() as connection:
                self._describe(connection)
                self._connection = connection
                try:
                    yield
                finally:
                    self._connection = None

    @contextmanager
    def reading(self) -> Iterator[str]:
        """Hold a snapshot, and give a digest of the versions of rows that it sees: each has its place and its writer.

        PostgreSQL never changes a row in its place, so that any write that the snapshot sees, and none other, is in it.
        """
        with self.current():
            with elsewhere(self._cancel):
                seen = self._held().execute(VISIBLE.format(self._from).encode()).fetchall()
            found = hashlib.sha256(repr(seen).encode()).hexdigest()
            with self.holding((found, self._described)):
                yield found

    def _held(self) -> Connection:
        assert self._connection is not None
        return self._connection

    def _cancel(self) -> None:
        """Have PostgreSQL end what it runs for us; without an answer in time it runs on until its own limit."""
        with suppress(psycopg.Error):
            self._held().cancel_safe(timeout=CANCEL_PATIENCE)

    @contextmanager
    def _snapshot(self) -> Iterator[Connection]:
        """Yield a connection inside a read-only transaction; it is kept for the next one only if nothing fails."""
        connection = self._begin()
        try:
            yield connection
            connection.execute("COMMIT")
        except psycopg.Error as error:
            connection.close()
            self._fail(error)
        except BaseException:
            connection.close()
            raise
        self._idle.append(connection)

    def _begin(self) -> Connection:
        """Return a connection on which a transaction has begun: an idle one if it still lives, else a new one."""
        statement = BEGIN.format(milliseconds=min(max(int(self.table.timeout * 1000), 1), 2**31 - 1))
        with suppress(IndexError):
            connection = self._idle.pop()
            try:
                connection.execute(statement.encode())
            except psycopg.Error:
                connection.close()  # cut while it was idle; nothing was asked yet
            else:
                return connection
        try:
            connection = psycopg.connect(self._conninfo, autocommit=True, prepare_threshold=None)
            connection.execute(statement.encode())
        except psycopg.Error as error:
            self._fail(error)
        return connection

    def _fail(self, error: psycopg.Error) -> NoReturn:
        """Raise what can be acted on; whatever PostgreSQL said stays here."""
        what = f"the source of table {self.table.name}"
        if isinstance(error, errors.QueryCanceled):
            limit = f"{self.table.timeout:g} seconds"
            raise SourceFailed(f"{what} took longer than {limit}", hint="raise timeout in the policy") from None
        if isinstance(error, psycopg.OperationalError):
            raise SourceFailed(
                f"{what} can't be reached, or was cut off", hint="see that PostgreSQL runs and lets the gate in"
            ) from None
        raise SourceFailed(f"{what} can't be read", hint="PostgreSQL's log tells why") from None

    def _describe(self, connection: Connection) -> None:
        """See what the table is and which columns it has; refuse what could not be read faithfully."""
        found = connection.execute(FIND, [self._schema, self._name]).fetchone()
        wrong = _unfit(found, connection.info.server_version)
        if wrong is not None or found is None:
            raise SourceFailed(f"the source of table {self.table.name} {wrong}")
        self._oid = int(found[0])
        columns = connection.execute(COLUMNS, [self._oid]).fetchall()
        self._described = columns
        self._types = {name: KINDS.get(kind, str(kind)) for name, kind, number, _ in columns if number > 0}
        self._check_present()
        self._check_kinds()
        closed = [name for name, _, _, granted in columns if not granted and name in self._readable()]
        if closed:
            raise WrongColumns(
                f"the gate may not read {', '.join(closed)} in the source of table {self.table.name}",
                columns=dict.fromkeys(closed, "the gate's role may not read it"),
                hint=GRANT,
            )
        if any(name in SYSTEM and not granted for name, _, _, granted in columns):
            raise SourceFailed(
                f"the source of table {self.table.name} does not let the gate read {', '.join(SYSTEM)}: "
                "changes could not be noticed",
                hint=GRANT,
            )

    def fingerprint(self) -> str:
        """Return a text that changes when rows are written, the table is replaced, or read in another way.

        PostgreSQL's own counters tell of writes: seconds late, and also of those that were rolled back. They begin
        anew after a crash, and VACUUM FULL makes a new file: then the text changes though the rows have not.
        """
        with self._snapshot() as connection:
            state = connection.execute(STATE, [self._oid]).fetchall()
        return hashlib.sha256(f"{state}:{self._meaning}".encode()).hexdigest()

    def fetch(self, query: str, *, exact: bool = False) -> Fetched:
        with self._held().cursor(binary=True) as cursor, elsewhere(self._cancel):
            cursor.execute(query.encode())
            names = [column.name for column in cursor.description or ()]
            rows = cursor.fetchall()
        if not exact:
            table = np.array(rows, dtype=np.int64).reshape(len(rows), len(names))
            return {name: table[:, i] for i, name in enumerate(names)}
        found = np.empty((len(rows), len(names)), dtype=object)
        for i, row in enumerate(rows):
            found[i] = [int(number) for number in row]
        return {name: found[:, i] for i, name in enumerate(names)}

    def relation(self, name: str, columns: Mapping[str, Ints]) -> str:
        arrays = ", ".join(f"'{{{','.join(map(str, array.tolist()))}}}'::BIGINT[]" for array in columns.values())
        return f"unnest({arrays}) AS {name}({', '.join(columns)})"

    def value(self, column: str, domain: Domain) -> str:
        name, kind = self.quoted(column), self._types[column]
        match domain.type, kind:
            case "integer", "decimal":
                ends = f"WHEN {name} > {MOST} THEN {MOST} WHEN {name} < {LEAST} THEN {LEAST}"
                return f"CASE WHEN {name} = 'NaN' THEN NULL {ends} ELSE CAST(round({name}) AS BIGINT) END"
            case "integer", "double":
                top, bottom = self.double(2**63), self.double(LEAST)
                ends = f"WHEN {name} >= {top} THEN {MOST} WHEN {name} < {bottom} THEN {LEAST}"
                return f"CASE WHEN {name} = 'NaN' THEN NULL {ends} ELSE CAST({name} AS BIGINT) END"
            case "float", "decimal":
                # A number that no double is near would be an error.
                far, near = f"WHEN {name} > 1e300 THEN {self.double('1e300')}", "1e-300"
                far += f" WHEN {name} < -1e300 THEN {self.double('-1e300')}"
                far += f" WHEN {name} < {near} AND {name} > -{near} THEN {self.double(0)}"
                return f"CASE WHEN {name} = 'NaN' THEN NULL {far} ELSE CAST({name} AS DOUBLE PRECISION) END"
            case "float", "double":
                return f"CASE WHEN {name} = 'NaN' THEN NULL ELSE CAST({name} AS DOUBLE PRECISION) END"
            case "float", _:
                return f"CAST({name} AS DOUBLE PRECISION)"
            case "text", _:
                return f'(CAST({name} AS TEXT) COLLATE "C")'
            case "date", "timestamp":
                return f"CAST({name} AS DATE)"
            case "date", "timestamptz":
                return f"CAST(timezone('UTC', {name}) AS DATE)"
            case "timestamp", "timestamptz":
                return f"timezone('UTC', {name})"
            case "timestamp", "date":
                # A date that no timestamp reaches would be an error; it is beyond every bound.
                first, last = "DATE '0001-01-01'", "DATE '9999-12-31'"
                near = f"CASE WHEN {name} < {first} THEN {first} WHEN {name} > {last} THEN {last} ELSE {name} END"
                return f"CAST({near} AS TIMESTAMP)"
        return name

    def is_integer(self, column: str) -> bool:
        return self._types[column] == "integer"

    def key(self, column: str) -> str:
        name = self.quoted(column)
        return f'(CAST({name} AS TEXT) COLLATE "C")' if self._types[column] == "text" else name

    def digest(self, parts: Sequence[str]) -> str:
        joined = f"concat_ws('|', {', '.join(f'CAST({part} AS TEXT)' for part in parts)})"
        return f"md5(convert_to({joined}, 'UTF8')) COLLATE \"C\""

    def quotient(self, number: str, by: object, *, huge: bool = False) -> str:
        return f"CAST(div({number}, {by}) AS BIGINT)" if huge else f"(({number}) / {by})"

    def days(self, found: str, first: str) -> str:
        return f"{found} - {first}"

    def microseconds(self, found: str, first: str) -> str:
        return f"CAST(EXTRACT(EPOCH FROM {found} - {first}) * 1000000 AS BIGINT)"

    def _translated(self, counted: str, *rest: Any) -> str:  # Any: as they are
        """Fence the grouping off: PostgreSQL 16 would move the tests of groups into it, and then carry texts twice."""
        return super()._translated(f"{counted} LIMIT ALL", *rest)

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()


def _folded(name: Any, default: str) -> str:  # Any: a part of a sqlglot table, or None
    """Return a name as PostgreSQL sees it: in lower case unless it is quoted."""
    if name is None:
        return default
    return str(name.this) if name.args.get("quoted") else str(name.this).lower()


def _unfit(found: tuple[Any, ...] | None, version: int) -> str | None:
    """Return why a relation can't be guarded, or None."""
    if version < OLDEST * 10_000:
        return f"is on PostgreSQL {version // 10_000}; {OLDEST} or newer is needed"
    if found is None:
        return "does not exist in that database"
    _, kind, standby, counted, filtered = found
    if kind not in ("r", "p", "m"):
        return "is no table: changes of a view or foreign table could not be noticed"
    if standby or not counted:
        return (
            f"{'is on a standby' if standby else 'is not counted (track_counts is off)'}: changes could not be noticed"
        )
    return "is seen in part only: row-level security applies to the gate's role" if filtered else None
