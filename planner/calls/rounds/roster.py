"""The queries of rounds: who enlisted what, with which accuracy. Kept in the ledger's database; nothing is spent."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any, Protocol

from planner.basics.errors import BadValue, Forbidden
from planner.ledger.accounts import Release
from planner.ledger.ledger import Ledger
from planner.ledger.stores import Connection
from planner.plans.settings import Settings
from planner.questions import body as bodies

COLUMNS = "id, round, analyst, sql, wish, created"


class RoundStore(Protocol):
    """What keeps the queries: the ledger, or who may use it."""

    def beside(self, *, write: bool) -> AbstractContextManager[Connection]: ...


@dataclass(frozen=True)
class Accuracy:
    """How accurate an answer should be: the settings that a session would ask it with."""

    error: float
    confidence: float
    relative: bool = False
    sum_error: float | None = None

    @classmethod
    def of(cls, settings: Settings) -> Accuracy:
        return cls(settings.error, settings.confidence, settings.relative, settings.sum_error)

    @property
    def settings(self) -> Settings:
        return Settings(error=self.error, confidence=self.confidence, relative=self.relative, sum_error=self.sum_error)

    def scaled(self, factor: float) -> Accuracy:
        """Return the wish for errors that are so many times as large."""
        own = None if self.sum_error is None else self.sum_error * factor
        return replace(self, error=self.error * factor, sum_error=own)

    @property
    def text(self) -> str:
        """Return the half-width of a count, and of a sum if that has its own, for people."""
        count = f"{self.error:.2%}".replace("%", " %") if self.relative else f"{self.error:,.4g}"
        return count if self.sum_error is None else f"{count}, sums ± {self.sum_error:,.6g}"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One query of a round; numbers count from 1 over all rounds, and are never used again."""

    number: int
    round: str
    analyst: str
    sql: str
    wish: Accuracy
    created: str


def question_of(round_: str) -> str:
    """Return under which question the record of a released round is stored."""
    return hashlib.sha256(f"round 1\0{round_}".encode()).hexdigest()


def enlist(book: RoundStore, round_: str, analyst: str, sql: str, wish: Accuracy) -> Entry:
    """Return the query as it is stored now; the same query of the same analyst has one accuracy, the latest."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    with book.beside(write=True) as connection:
        same = [e for e in _entries(connection, round_) if (e.analyst, e.sql) == (analyst, sql)]
        if same and same[0].wish == wish:
            return same[0]
        for entry in same:
            _withdraw(connection, entry, now)
        row = (round_, analyst, sql, json.dumps(asdict(wish)), now)
        (number,) = connection.execute(
            "INSERT INTO enlisted (round, analyst, sql, wish, created) VALUES (?, ?, ?, ?, ?) RETURNING id", row
        ).fetchone()
        return Entry(number=number, round=round_, analyst=analyst, sql=sql, wish=wish, created=now)


def withdraw(book: RoundStore, round_: str, analyst: str, number: int | None) -> list[Entry]:
    """Return the analyst's own queries that no longer belong to the round: one, or all for None."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    with book.beside(write=True) as connection:
        found = _entries(connection, round_)
        own = [e for e in found if e.analyst == analyst and number in (None, e.number)]
        if not own:
            others = any(number == e.number for e in found)
            what = f"query {number} of round {round_}" if number is not None else f"a query in round {round_}"
            if others:
                raise Forbidden(f"{what} was enlisted by somebody else", hint="each analyst withdraws their own")
            raise BadValue(f"you have not enlisted {what}", hint="see noisegate.rounds")
        for entry in own:
            _withdraw(connection, entry, now)
        return own


def entries(book: RoundStore, round_: str | None = None) -> list[Entry]:
    """Return the queries of a round, or of all rounds, in the order in which they were enlisted."""
    with book.beside(write=False) as connection:
        return _entries(connection, round_)


def released(records: Sequence[Release], version: Callable[[str], int], tables: Sequence[str]) -> Release | None:
    """Return the one of a round's records that is about today's data, the newest; None if it is open."""
    for record in records:
        versions = bodies.decode(record.body)["versions"]
        if record.table in tables and all(name in tables and version(name) == at for name, at in versions.items()):
            return record
    return None


def table_rows(ledger: Ledger, tables: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return one row for each query of each round, for the system table noisegate.rounds."""
    every, now = entries(ledger), ledger.snapshot()
    records = {
        name: released(now.find(question_of(name)), lambda table: now.edition(table).version, tables)
        for name in dict.fromkeys(entry.round for entry in every)
    }
    found = []
    for e in every:
        record, wish = records[e.round], e.wish
        state = ("open", None) if record is None else ("released", record.id)
        found.append((e.round, e.number, e.analyst, e.sql, wish.text, wish.confidence, *state, e.created))
    return found


def unchanged(planned: Sequence[Entry], connection: Connection) -> None:
    """Raise if the round is not what was planned any more; inside the transaction that releases it."""
    if _entries(connection, planned[0].round) != list(planned):
        raise BadValue(
            f"round {planned[0].round} was changed while it was planned",
            hint="nothing was charged; look at its price again, and release it",
        )


def _entries(connection: Connection, round_: str | None) -> list[Entry]:
    where = "" if round_ is None else "AND round = ?"
    rows = connection.execute(
        f"SELECT {COLUMNS} FROM enlisted WHERE withdrawn IS NULL {where} ORDER BY id",
        () if round_ is None else (round_,),
    )
    return [
        Entry(number=n, round=name, analyst=who, sql=sql, wish=Accuracy(**json.loads(wish)), created=created)
        for n, name, who, sql, wish, created in rows
    ]


def _withdraw(connection: Connection, entry: Entry, now: str) -> None:
    connection.execute("UPDATE enlisted SET withdrawn = ? WHERE id = ?", (now, entry.number))
