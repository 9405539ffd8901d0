"""What a client can say: questions, and the statements around them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Ask:
    """A question for the gate or the catalog. What stands before it in the text is blank, so that places hold."""

    sql: str


@dataclass(frozen=True)
class SetTo:
    """SET name TO value; value None is DEFAULT."""

    name: str
    value: str | None
    local: bool = False


@dataclass(frozen=True)
class Show:
    """SHOW name; `all` for all of them."""

    name: str


@dataclass(frozen=True)
class Reset:
    """RESET name; None for all."""

    name: str | None


@dataclass(frozen=True)
class Begin:
    """BEGIN or START TRANSACTION, with the modes of the transaction as settings."""

    tag: str = "BEGIN"
    modes: tuple[SetTo, ...] = ()


@dataclass(frozen=True)
class End:
    """COMMIT, or ROLLBACK of a whole transaction; `chain` begins the next one at once."""

    commit: bool
    chain: bool = False


@dataclass(frozen=True)
class Savepoint:
    """SAVEPOINT, RELEASE or ROLLBACK TO a name."""

    verb: str
    name: str


@dataclass(frozen=True)
class Declare:
    """A cursor: a portal with a name, which runs its query when the first row is fetched."""

    name: str
    query: Ask
    binary: bool = False
    hold: bool = False
    forward_only: bool = False


@dataclass(frozen=True)
class Fetch:
    """FETCH or MOVE: `way` is one of forward, backward, absolute, relative; `count` None is all."""

    cursor: str
    way: str = "forward"
    count: int | None = 1
    move: bool = False


@dataclass(frozen=True)
class CloseCursor:
    """CLOSE name; None for all."""

    name: str | None


@dataclass(frozen=True, kw_only=True)
class Copy:
    """COPY (query) TO STDOUT."""

    query: Ask
    format: str = "text"
    delimiter: str = "\t"
    null: str = "\\N"
    header: bool = False
    quote: str = '"'
    escape: str = '"'
    force_quote: tuple[str, ...] | None = ()  # None is every column


@dataclass(frozen=True)
class Deallocate:
    """DEALLOCATE name; None for all."""

    name: str | None


@dataclass(frozen=True)
class Discard:
    what: str


@dataclass(frozen=True)
class Unlisten:
    """UNLISTEN: nothing was listened to."""


Statement = (
    Ask | SetTo | Show | Reset | Begin | End | Savepoint | Declare | Fetch | CloseCursor | Copy | Deallocate | Discard
    | Unlisten
)  # fmt: skip


def query_of(statement: Statement) -> Ask | None:
    """Return the question inside a statement: it is the one that has parameters."""
    match statement:
        case Ask():
            return statement
        case Declare(query=query) | Copy(query=query):
            return query
        case _:
            return None
