"""The gate in process, as PEP 249 (DB-API 2.0) has it.

Beyond PEP 249: `Cursor.intervals`, `Cursor.cost`, `Connection.explain`, `Connection.verify`, `Connection.choose`, and
for rounds `Connection.enlist`, `Connection.withdraw` and `Connection.release`. `pandas.read_sql` and
`polars.read_database` take a connection as it is; pandas warns, as about every connection that is neither SQLAlchemy's
nor sqlite3's, that it does not test these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxy.dbapi.types import (
    BINARY,
    DATETIME,
    NUMBER,
    ROWID,
    STRING,
    Binary,
    Date,
    DateFromTicks,
    Time,
    TimeFromTicks,
    Timestamp,
    TimestampFromTicks,
    TypeObject,
)

if TYPE_CHECKING:
    from proxy.dbapi.connection import POLICY, Connection, Cursor, connect

__all__ = [
    "BINARY",
    "DATETIME",
    "NUMBER",
    "POLICY",
    "ROWID",
    "STRING",
    "Binary",
    "Connection",
    "Cursor",
    "Date",
    "DateFromTicks",
    "Time",
    "TimeFromTicks",
    "Timestamp",
    "TimestampFromTicks",
    "TypeObject",
    "apilevel",
    "connect",
    "paramstyle",
    "threadsafety",
]

apilevel = "2.0"
threadsafety = 2
"""Threads may share the module and connections, but not cursors."""
paramstyle = "qmark"
"""The gate also reads `$1`, `%s`, `:name` and `%(name)s`; in each style values are bound, never spliced."""


def __getattr__(name: str) -> object:
    """Return what needs the planner, which is loaded when it is first asked for."""
    if name not in ("POLICY", "Connection", "Cursor", "connect"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from proxy.dbapi import connection

    return getattr(connection, name)
