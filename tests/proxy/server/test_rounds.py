"""Rounds over the wire."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest

from proxy.server.shared import policy_catalog
from tests.proxy import town
from tests.proxy.servers import running


def test_a_team_releases_a_round_over_the_wire(tmp_path: Path) -> None:
    sql, other = (
        "SELECT city, count(*) AS n FROM people GROUP BY city",
        "SELECT count(*) AS n FROM people WHERE age < 9",
    )
    call: Any = f"SELECT noisegate.enlist('q3', $${sql}$$, error => 15)"
    with (
        running(town.make(tmp_path), catalog=policy_catalog) as server,
        psycopg.connect(server.dsn("ann"), autocommit=True) as ann,
        psycopg.connect(server.dsn("bob"), autocommit=True) as bob,
    ):
        for _ in range(2):  # the same words mean another thing when somebody else says them
            assert ann.execute(call).fetchall()[0][:3] == ("q3", 1, "ann")
        assert bob.execute(call).fetchall()[0][:3] == ("q3", 2, "bob")
        bob.execute("SELECT * FROM noisegate.enlist(%s, %s, error => %s)", ("q3", other, 30))
        shown = ann.execute("SELECT analyst, state FROM noisegate.rounds ORDER BY query").fetchall()
        assert shown == [("ann", "open"), ("bob", "open"), ("bob", "open")]
        price = [row[0] for row in ann.execute("EXPLAIN SELECT noisegate.release('q3')").fetchall()]
        assert price[0] == "Round q3: 2 analysts, 3 queries, 9 answers; waterfilling"
        assert server.gate.ledger.releases() == []
        rows = ann.execute("SELECT query, error, gain FROM noisegate.release('q3')").fetchall()
        assert [row[0] for row in rows] == [1, 2, 3]
        assert all(error <= 30 * (1 + 1e-6) and gain > 1 for _, error, gain in rows)
        before = server.gate.ledger.spent("default")
        assert bob.execute("SELECT query, error, gain FROM noisegate.release('q3')").fetchall() == rows
        bob.execute("SET noisegate.error = 15")
        assert len(bob.execute(sql).fetchall()) == 4
        assert server.gate.ledger.spent("default") == before


def test_a_mistake_inside_the_quotes_is_pointed_at(tmp_path: Path) -> None:
    with running(town.make(tmp_path), catalog=policy_catalog) as server, psycopg.connect(server.dsn("ann")) as ann:
        sql = "SELECT noisegate.enlist('q3', $$SELECT nope FROM people$$)"
        with pytest.raises(psycopg.errors.UndefinedColumn) as caught:
            ann.execute(sql)
        assert caught.value.diag.statement_position == str(1 + sql.index("nope"))
