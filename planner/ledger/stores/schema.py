"""The tables of a ledger, format by format, for every engine.

A migration is run once, in one transaction with the new number of the format, by whoever opens an older ledger first.
Tables and columns are only ever added.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """What engines call things: numbers, bytes, an id that is counted up; and how rows are kept from being changed.

    `given` stands in an INSERT that brings such ids, and `counts_on` lets a table count on after one.
    """

    integer: str
    data: str
    counted: str
    guards: Callable[[str], tuple[str, ...]]
    given: str
    counts_on: Callable[[str, int], tuple[str, ...]]


def _first(d: Dialect) -> tuple[str, ...]:
    """Releases, the chain's head, and the versions of the data."""
    return (
        "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
        f"""CREATE TABLE releases (
            id {d.integer} PRIMARY KEY, key TEXT NOT NULL UNIQUE, question TEXT NOT NULL, population TEXT NOT NULL,
            "table" TEXT NOT NULL, version {d.integer} NOT NULL, analyst TEXT NOT NULL, sql TEXT NOT NULL,
            kind TEXT NOT NULL, body {d.data} NOT NULL, cost {d.data} NOT NULL, created TEXT NOT NULL,
            hash TEXT NOT NULL
        )""",
        'CREATE INDEX releases_by_question ON releases (question, "table", version)',
        f"""CREATE TABLE versions (
            "table" TEXT NOT NULL, version {d.integer} NOT NULL, fingerprint TEXT NOT NULL,
            PRIMARY KEY ("table", version)
        )""",
        *d.guards("releases"),
    )


def _second(d: Dialect) -> tuple[str, ...]:
    """What is kept beside the releases: queries of rounds, and shares that were moved."""
    return (
        f"""CREATE TABLE IF NOT EXISTS enlisted (
            id {d.counted}, round TEXT NOT NULL, analyst TEXT NOT NULL, sql TEXT NOT NULL, wish TEXT NOT NULL,
            created TEXT NOT NULL, withdrawn TEXT
        )""",
        "CREATE INDEX IF NOT EXISTS enlisted_by_round ON enlisted (round)",
        f"""CREATE TABLE IF NOT EXISTS moves (
            id {d.counted}, source TEXT NOT NULL, target TEXT NOT NULL, share TEXT NOT NULL, created TEXT NOT NULL
        )""",
        *d.guards("moves"),
        *d.guards("versions"),
    )


def _third(d: Dialect) -> tuple[str, ...]:
    """Which rows the first reading of each version saw."""
    return (
        f"""CREATE TABLE readings (
            "table" TEXT NOT NULL, version {d.integer} NOT NULL, "rows" TEXT NOT NULL, PRIMARY KEY ("table", version)
        )""",
        *d.guards("readings"),
    )


_MIGRATIONS = (_first, _second, _third)
FORMAT = len(_MIGRATIONS)


def migrations(dialect: Dialect, *, since: int) -> list[str]:
    """Return the statements that bring a ledger of an older format, or 0 for none at all, to the current one."""
    return [statement for migration in _MIGRATIONS[since:] for statement in migration(dialect)]
