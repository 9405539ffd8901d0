"""Where a ledger is kept: transactions and SQL, for each kind of database; what it guarantees is in planner/ledger.

A store promises four things. A write transaction excludes every other one, of whatever process on whatever machine,
from its first statement to its end. A read transaction sees one moment. What a transaction sees of others is durable.
When a write transaction ends without an error it is durable; when that can't be told, OutcomeUnknown is raised.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from planner.basics.errors import LedgerFailed
from planner.ledger.stores.schema import Dialect
from planner.policy.ledger import Remote

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
