"""Where a ledger is kept: transactions and SQL, for each kind of database; what it guarantees is in planner/ledger.

A store promises four things. A write transaction excludes every other one, of whatever process on whatever machine,
from its first statement to its end. A read transaction sees one moment. What a transaction sees of others is durable.
When a write transaction ends without an error it is durable; when that can't be told, OutcomeUnknown is raised.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from planner.errors import LedgerFailed
from planner.stores.schema import Dialect

SCHEMES = ("postgresql", "postgres")
DEFAULT_SCHEMA = "noisegate"
HEAD = "SELECT value FROM meta WHERE name = 'head'"
MOVED, ARRIVING = "moved", "arriving"
"""What stands in the place of the head where a ledger was moved from, and where it is being moved to."""

RESTORE = "restore it from backup; nothing is answered without the record of what was spent"


class OutcomeUnknown(LedgerFailed):
    """A transaction was sent off and not acknowledged: it may be stored, now or in a moment, or not."""


class LedgerMoved(LedgerFailed):
    """The ledger is kept elsewhere now, or is not all here yet: planner/relocation."""


class Rows(Protocol):
    """What a statement gave."""

    def fetchone(self) -> Any: ...  # Any: as many columns, of as many types, as were asked for

    def fetchall(self) -> list[Any]: ...

    def __iter__(self) -> Iterator[Any]: ...


Statement = tuple[str, Sequence[str | int | bytes]]
"""SQL that both engines read, and its parameters, for each of which it has a `?`."""


class Connection(Protocol):
    """A database inside a transaction."""

    def execute(self, sql: str, parameters: Sequence[str | int | bytes] = (), /) -> Rows: ...

    def ask(self, *statements: Statement) -> list[list[Any]]:
        """Return the rows of several statements, run one after the other; over a network they travel together."""

    def finish(self, *statements: Statement) -> None:
        """Run statements at the end of the transaction; over a network they travel together with the commit."""


Begun = tuple[Connection, str | None, list[list[Any]]]
"""A transaction: the hash of the last release in it, and the rows of the statements that it began with."""


class Store(Protocol):
    """One ledger's database, open; used by one thread at a time."""

    name: str  # how it is called in messages: no path, no user, no password
    identity: str
    dialect: Dialect

    def transaction(self, *statements: Statement, write: bool) -> AbstractContextManager[Begun]:
        """Run the block in a transaction that begins with some statements; undo it if anything is raised."""

    def recover(self) -> None:
        """Connect anew, after all that was sent on the old connection has come to its end."""

    def close(self) -> None: ...


@dataclass(frozen=True)
class Remote:
    """A ledger in PostgreSQL: how to connect, without a password; its schema; this machine's marker file."""

    conninfo: str
    schema: str
    marker: Path
    name: str

    @classmethod
    def parse(cls, url: str, *, marker: Path) -> Remote:
        """Return the place that postgresql://[user@]host[:port]/database[?options][#schema] names, or ValueError.

        No part of the text is ever repeated in an error, since it may be a password.
        """
        from psycopg import ProgrammingError  # here, since whoever keeps the ledger in a file does not need it
        from psycopg.conninfo import conninfo_to_dict

        conninfo, _, schema = url.partition("#")
        try:
            parts = conninfo_to_dict(conninfo)
        except ProgrammingError:
            parts = {}
        ports = str(parts.get("port") or "0")
        understood = bool(parts or not conninfo.partition("://")[2]) and re.fullmatch(r"[0-9,]+", ports)
        if not understood or not re.fullmatch(r"([a-z_][a-z0-9_]{0,62})?", schema):
            raise ValueError("url must be postgresql://user@host:port/database#schema, in which much can be left out")
        if "password" in parts or conninfo.count("@") > 1:
            raise ValueError("url must not hold a password: put it into a passfile, a service file or PGPASSWORD")
        where = [str(parts[key]) for key in ("host", "service", "dbname") if parts.get(key)]
        schema = schema or DEFAULT_SCHEMA
        return cls(conninfo, schema, marker, "/".join([*where, schema]))


def is_remote(url: str) -> bool:
    return url.partition("://")[0] in SCHEMES and "://" in url


def marker_of(place: Path | Remote) -> Path:
    """Return the file that says which ledger belongs here, and how much it must hold at least."""
    return place.marker if isinstance(place, Remote) else place.with_name(f"{place.name}.born")


def check_here(name: str, head: str | None) -> None:
    """Raise if a ledger's head says that it was moved from here, or is being moved to here."""
    word, *rest = (head or "").split("\n")
    if word == MOVED:
        raise LedgerMoved(
            f"the ledger {name} was moved to {rest[-1]}", hint="name that place under [ledger] in the policy"
        )
    if word == ARRIVING:
        raise LedgerMoved(f"the ledger {name} is not all here yet", hint="run `noisegate relocate` again")


def damaged(name: str, reason: str) -> LedgerFailed:
    return LedgerFailed(f"the ledger {name} is damaged ({reason}): {RESTORE}")


def missing(name: str, marker: str) -> LedgerFailed:
    return LedgerFailed(
        f"the ledger {name} is missing: restore it from backup",
        hint=f"deleting {marker} as well gives up the record of what was spent",
    )


def newer(name: str, version: int, known: int) -> LedgerFailed:
    return LedgerFailed(
        f"the ledger {name} has format {version}, this program knows those up to {known}",
        hint="use the newer version of noisegate that made it",
    )
