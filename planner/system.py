"""The tables of the schema noisegate: budget, accounts, releases, queries, rounds and domains, as they are now."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from mechanisms.noise.accounting import gaussian_epsilon, rho_to_epsilon
from planner.calls.rounds import roster
from planner.cells.costs import rho_of
from planner.duck.relations import SCHEMA, Row, create
from planner.duck.workbench import Workbench
from planner.ledger.accounts import View, shown_payers
from planner.ledger.kinds import Kind
from planner.ledger.ledger import Ledger
from planner.policy.file import Policy, budget_cap

TYPES: dict[str, dict[str, str]] = {
    "noisegate.budget": {
        "population": "VARCHAR",
        "rho_total": "DOUBLE",
        "rho_spent": "DOUBLE",
        "epsilon_total": "DOUBLE",
        "epsilon_spent": "DOUBLE",
        "epsilon_spent_gaussian": "DOUBLE",
        "delta": "DOUBLE",
    },
    "noisegate.accounts": {
        "population": "VARCHAR",
        "analyst": "VARCHAR",
        "share": "DOUBLE",
        "rho_total": "DOUBLE",
        "rho_spent": "DOUBLE",
        "epsilon_total": "DOUBLE",
        "epsilon_spent": "DOUBLE",
        "delta": "DOUBLE",
    },
    "noisegate.releases": {
        "id": "BIGINT",
        "table": "VARCHAR",
        "version": "BIGINT",
        "kind": "VARCHAR",
        "analyst": "VARCHAR",
        "rho": "DOUBLE",
        "created": "VARCHAR",
        "sql": "VARCHAR",
    },
    "noisegate.queries": {
        "first_release": "BIGINT",
        "analyst": "VARCHAR",
        "sql": "VARCHAR",
        "releases": "BIGINT",
        "rho": "DOUBLE",
        "asked": "VARCHAR",
    },
    "noisegate.rounds": {
        "round": "VARCHAR",
        "query": "BIGINT",
        "analyst": "VARCHAR",
        "sql": "VARCHAR",
        "error": "VARCHAR",
        "confidence": "DOUBLE",
        "state": "VARCHAR",
        "release": "BIGINT",
        "enlisted": "VARCHAR",
    },
    "noisegate.domains": {
        "table": "VARCHAR",
        "column": "VARCHAR",
        "type": "VARCHAR",
        "domain": "VARCHAR",
        "values": "BIGINT",
        "nullable": "BOOLEAN",
        "measure": "BOOLEAN",
    },
}


@dataclass(frozen=True)
class Books:
    """What the system tables are read from."""

    policy: Policy
    ledger: Ledger


def make(table: str, name: str, books: Books, bench: Workbench) -> None:
    """Create the system table `table` in the workbench under the given name."""
    create(name, list(MAKERS[table](books)), TYPES[f"{SCHEMA}.{table}"], bench)


def populations(books: Books, view: View) -> list[str]:
    """Return the populations that tables are about, and those about which anything was released."""
    declared = [table.population for table in books.policy.tables.values() if table.kind == "protected"]
    return sorted({*declared, *view.populations})


def _budget(books: Books) -> Iterator[Row]:
    cap, view = budget_cap(books.policy), books.ledger.snapshot().view
    epsilon, delta = books.policy.budget.epsilon, books.policy.budget.delta
    for population in populations(books, view):
        spent = rho_of(view.spent(population))
        gaussian = gaussian_epsilon(spent, delta) if view.only_gaussian(population) else None
        yield population, cap, spent, epsilon, rho_to_epsilon(spent, delta), gaussian, delta


def _accounts(books: Books) -> Iterator[Row]:
    now, delta = books.ledger.snapshot(), books.policy.budget.delta
    for population in populations(books, now.view):
        for analyst in books.policy.analysts.values():
            share = analyst.share + now.moved.get(analyst.name, Fraction(0))
            cap: Fraction = budget_cap(books.policy) * max(share, Fraction(0))
            spent = rho_of(now.view.account_spent(population, analyst.name))
            epsilons = rho_to_epsilon(cap, delta), rho_to_epsilon(spent, delta)
            yield population, analyst.name, share, cap, spent, *epsilons, delta


def _releases(books: Books) -> Iterator[Row]:
    for r in books.ledger.releases():
        yield r.id, r.table, r.version, r.kind, shown_payers(r.analyst), rho_of(r.cost.highest), r.created, r.sql


def _queries(books: Books) -> Iterator[Row]:
    """One row for each question that was paid for: the releases of one statement stand in a row."""
    current: list[Any] = []
    for r in books.ledger.releases():
        if r.kind == Kind.SHARE:  # what was paid is told by the releases of which it is a share
            continue
        if current and (current[0].analyst, current[0].sql) != (r.analyst, r.sql):
            yield _query(current)
            current = []
        current.append(r)
    if current:
        yield _query(current)


def _query(releases: list[Any]) -> Row:
    first = releases[0]
    total = sum((rho_of(r.cost.highest) for r in releases), Fraction(0))
    return first.id, shown_payers(first.analyst), first.sql, len(releases), total, first.created


def _domains(books: Books) -> Iterator[Row]:
    for table in books.policy.tables.values():
        for column in table.columns.values():
            domain = column.domain
            if not column.hidden and domain is not None:
                yield (
                    table.name,
                    column.name,
                    domain.type,
                    domain.describe(),
                    domain.size,
                    domain.nullable,
                    column.measure,
                )


def _rounds(books: Books) -> Iterator[Row]:
    protected = [table.name for table in books.policy.tables.values() if table.kind == "protected"]
    yield from roster.table_rows(books.ledger, protected)


MAKERS: dict[str, Callable[[Books], Iterator[Row]]] = {
    "budget": _budget,
    "accounts": _accounts,
    "releases": _releases,
    "queries": _queries,
    "rounds": _rounds,
    "domains": _domains,
}
