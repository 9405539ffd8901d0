"""A server for all clients of a worker, what the DB-API answers, and a PostgreSQL with the same tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from proxy.dbapi import Connection
from proxy.server.shared import policy_catalog
from tests.proxy import town
from tests.proxy.clients.questions import QUESTIONS
from tests.proxy.postgres import OWNER, Postgres
from tests.proxy.postgres import running as postgres_running
from tests.proxy.servers import Running, running

Rows = list[tuple[Any, ...]]


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(town.make(tmp_path_factory.mktemp("clients")), catalog=policy_catalog) as server:
        yield server


@pytest.fixture(scope="session")
def expected(served: Running) -> dict[str, Rows]:
    """What the DB-API answers on the same gate. All is paid for first, so that asking again improves nothing."""
    connection = Connection(served.gate.session("ann"), give_back=lambda: None)
    for question in QUESTIONS:
        connection.cursor().execute(question.sql, question.parameters)
    return {q.name: connection.cursor().execute(q.sql, q.parameters).fetchall() for q in QUESTIONS}


@pytest.fixture(autouse=True)
def nothing_is_spent(served: Running, expected: dict[str, Rows]) -> Iterator[None]:
    """Every question was paid for before, and the catalog is free."""
    before = served.gate.ledger.spent("default")
    yield
    assert served.gate.ledger.spent("default") == before


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with postgres_running() as server:
        with psycopg.connect(server.dsn, user=OWNER, autocommit=True) as owner:
            for statement in town.statements():
                owner.execute(statement)  # type: ignore[arg-type]  # our own text
        yield server
