"""Moving a ledger to another place, all of it: from a file to PostgreSQL when one machine is not enough, or back.

A budget must not be spent twice, so there is never a moment in which both places can be charged, whatever is killed
whenever. Two databases can't commit at once; so the new place is closed before anything else, and opened last:

1. the new place is made with the identity of the old one and a head that no gate takes, and gets a token;
2. with both locked, all rows are copied, and checked, in a transaction of the new place that is left open;
3. the old place commits a head that no gate takes either, with the token;
4. the new place commits the rows and the true head.

Whoever is killed after 3 leaves both closed. Run again, the token tells that this is the place that was meant.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from planner.basics.errors import LedgerFailed
from planner.ledger.accounts import chained, first_hash
from planner.ledger.born import Marker
from planner.ledger.ledger import COLUMNS, INSERT, UPDATE_HEAD, Ledger, opened
from planner.ledger.stores import ARRIVING, MOVED, Connection, LedgerMoved, Statement, Store, damaged, marker_of
from planner.policy.ledger import Remote

TOKEN = "token"
BATCH = 200
ELSEWHERE = "name a place where no ledger is"
BESIDE = {
    "versions": '"table", version, fingerprint',
    "readings": '"table", version, "rows"',
    "moves": "id, source, target, share, created",
    "enlisted": "id, round, analyst, sql, wish, created, withdrawn",
}
"""The tables beside the releases, and their columns."""


def relocate(old: Path | Remote, new: Path | Remote) -> int:
    """Return how many releases the ledger has that is kept at the new place from now on, and at the old one no more.

    LedgerFailed if there is another ledger; then, and if anything else fails, it stays where it is, or both places are
    closed until it is run again. Run once more, it finds that all is done.
    """
    if isinstance(new, Path) and isinstance(old, Path) and new.absolute() == old.absolute():
        raise LedgerFailed(f"the ledger {old.name} is there already", hint=ELSEWHERE)
    with suppress(LedgerMoved):  # perhaps by an earlier run, which is seen below
        Ledger.open(old).close()  # with every hash and cost checked, and its marker
    source = opened(_absolute(old), None)
    try:
        _check_marker(new, source)
        with source.transaction(write=False) as (_, head, _):
            mark = _mark(head)
        if mark and mark[-1] != new.name:
            raise _elsewhere(source, new.name)
        # It is made by the first run only, and closed from its beginning: nobody ever finds a fresh budget there.
        target = opened(_absolute(new), None if mark else source.identity, head=ARRIVING)
        try:
            _moved(source, target)
        finally:
            target.close()
    finally:
        source.close()
    with Ledger.open(new) as ledger:  # checked again, and with a marker of its own
        return ledger.contents("", after=0)[0]


def _absolute(place: Path | Remote) -> Path | Remote:
    return place.absolute() if isinstance(place, Path) else place


def _check_marker(new: Path | Remote, source: Store) -> None:
    marker = Marker.read(marker_of(new))
    if marker is not None and marker.identity != source.identity:
        raise LedgerFailed(f"{marker.path.name} belongs to another ledger", hint=ELSEWHERE)


def _moved(source: Store, target: Store) -> None:
    if target.identity != source.identity:
        raise LedgerFailed(f"there is another ledger at {target.name} already", hint=ELSEWHERE)
    token = _closed(source, target)
    if token is None:
        return
    with target.transaction(write=True) as (into, there, _):  # outside, so that it ends after the source's
        if there != ARRIVING:
            raise LedgerFailed(f"the ledger {target.name} was changed meanwhile", hint="run it again")
        with source.transaction(write=True) as (out, head, _):
            mark = _mark(head)
            if mark and mark[0] != token:  # somebody was faster, and moved it to another place
                raise _elsewhere(source, target.name)
            last = _copied(out, into, source, target)
            if last != (mark[1] if mark else head):
                raise damaged(source.name, "it does not end with its last release")
            into.finish((UPDATE_HEAD, (last,)))
            out.finish((UPDATE_HEAD, (f"{MOVED}\n{token}\n{last}\n{target.name}",)))


def _mark(head: str | None) -> list[str]:
    """Return what is left where a ledger was moved from: the token, the last hash and the new place; or nothing."""
    word, *rest = (head or "").split("\n")
    return rest if word == MOVED else []


def _elsewhere(source: Store, name: str) -> LedgerFailed:
    return LedgerFailed(
        f"the ledger {source.name} was moved already, and not to {name}", hint="move it on from where it is now"
    )


def _closed(source: Store, target: Store) -> str | None:
    """Close the target to gates, and return the token that it has; None if all is done already."""
    with source.transaction(write=False) as (_, head, _):
        expected = _mark(head)[0] if _mark(head) else None
    with target.transaction(write=True) as (into, there, _):
        token = _token(into)
        if expected is not None and token != expected:
            raise _elsewhere(source, target.name)
        if there != ARRIVING and expected is not None:
            return None
        _check_unused(into, there, target)
        if token is None:
            token = str(uuid.uuid4())
            into.execute("INSERT INTO meta VALUES (?, ?)", (TOKEN, token))
    with source.transaction(write=False) as (out, _, _):
        if _token(out) == token:  # one place, by two names
            raise LedgerFailed(f"the ledger {source.name} is there already", hint=ELSEWHERE)
    with target.transaction(write=True) as (into, there, _):
        _check_unused(into, there, target)
        into.execute(UPDATE_HEAD, (ARRIVING,))
    return token


def _token(connection: Connection) -> str | None:
    row = connection.execute("SELECT value FROM meta WHERE name = ?", (TOKEN,)).fetchone()
    return str(row[0]) if row else None


def _check_unused(connection: Connection, head: str | None, target: Store) -> None:
    if head not in (ARRIVING, first_hash(target.identity)) or any(_count(connection, table) for table in BESIDE):
        raise LedgerFailed(f"there is a ledger at {target.name} already, which has been used", hint=ELSEWHERE)


def _count(connection: Connection, table: str) -> int:
    return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def _copied(out: Connection, into: Connection, source: Store, target: Store) -> str:
    """Copy all rows, and return the hash of the last release; raise if the chain is broken."""
    last_id, last_hash = 0, first_hash(source.identity)
    for rows in _batches(out, f"SELECT {COLUMNS}, hash FROM releases WHERE id > ? ORDER BY id LIMIT {BATCH}"):
        for *row, row_hash in rows:
            if row[0] != last_id + 1 or row_hash != chained(last_hash, row):
                raise damaged(source.name, f"the chain of hashes breaks after release {last_id}")
            last_id, last_hash = last_id + 1, row_hash
        into.ask(*((INSERT, row) for row in rows))
    for table, columns in BESIDE.items():
        inserts = _inserts(table, columns, out.execute(f"SELECT {columns} FROM {table}").fetchall(), target)
        for start in range(0, len(inserts), BATCH):
            into.ask(*inserts[start : start + BATCH])
    own = ("identity", "head", "format", TOKEN)
    rest = out.execute(f"SELECT name, value FROM meta WHERE name NOT IN ({', '.join('?' * len(own))})", own).fetchall()
    for row in rest:
        into.execute("INSERT INTO meta VALUES (?, ?)", row)
    return last_hash


def _batches(connection: Connection, query: str) -> Iterator[list[Any]]:
    """Yield rows by their ids, some at a time: a server ends transactions in which nothing happens for long."""
    last = 0
    while rows := connection.execute(query, (last,)).fetchall():
        yield rows
        last = rows[-1][0]


def _inserts(table: str, columns: str, rows: list[Any], target: Store) -> list[Statement]:
    """Return what brings the rows of a table with their ids, and lets it count on from there."""
    counted = columns.startswith("id, ")
    given, marks = target.dialect.given if counted else "", ", ".join("?" * len(columns.split(", ")))
    found: list[Statement] = [(f"INSERT INTO {table} ({columns}) {given} VALUES ({marks})", row) for row in rows]
    if counted and rows:
        found += [(sql, ()) for sql in target.dialect.counts_on(table, max(row[0] for row in rows))]
    return found
