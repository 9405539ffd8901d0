"""What an analyst writes means here what it means in PostgreSQL: each line of the lists, asked of both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from mechanisms.noise import sampling
from proxy.server.shared import policy_catalog
from tests.planner.gates import BUDGET, no_noise, write
from tests.proxy.postgres import running as postgres
from tests.proxy.servers import running

HERE = Path(__file__).parent
ROOT = HERE.parents[2]

STAFF = """
SELECT (i % 60)::BIGINT AS hours, (i % 40 - 20)::BIGINT AS change, (DATE '2024-01-01' + (i % 80)::INTEGER)::DATE AS day,
    (ARRAY['Bonn', 'Bad_X', 'Badum', 'Ulm'])[1 + i % 4] AS town, (i % 3)::BIGINT AS "ShiftID"
"""
DEPOTS = "SELECT * FROM (VALUES ('Bonn', 1), ('Ulm', 2)) AS d(place, number)"

POLICY = """
[analysts.ann]
[tables.one]
source = "one.parquet"
public = true
[tables.depots]
source = "depots.parquet"
public = true
[tables.staff]
source = "staff.parquet"
[tables.staff.columns]
hours = { type = "integer", min = 0, max = 59 }
change = { type = "integer", min = -20, max = 19 }
day = { type = "date", min = "2024-01-01", max = "2024-03-20" }
town = { values = ["Bonn", "Bad_X", "Badum", "Ulm"] }
ShiftID = { type = "integer", min = 0, max = 2 }
"""


def lines(name: str) -> list[str]:
    text = (HERE / name).read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


Both = tuple[psycopg.Connection[Any], psycopg.Connection[Any]]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    """Return a connection to PostgreSQL, and one to a gate without noise, with the same tables."""
    folder = tmp_path_factory.mktemp("meaning")
    write(folder / "one.parquet", "SELECT 1::INTEGER AS k")
    write(folder / "depots.parquet", DEPOTS)
    write(folder / "staff.parquet", f"{STAFF} FROM range(1000) AS t(i)")
    policy = folder / "policy.toml"
    policy.write_text(BUDGET.format(epsilon=1e6) + POLICY, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch, postgres() as server, running(policy, catalog=policy_catalog) as gate:
        patch.setattr(sampling, "rounded_gaussian", no_noise)
        owner = server.dsn.replace("user=ann", "user=noisegate")
        with psycopg.connect(owner, autocommit=True) as one, psycopg.connect(gate.dsn(), autocommit=True) as other:
            one.execute("CREATE TABLE one AS SELECT 1 AS k")
            one.execute(f"CREATE TABLE depots AS {DEPOTS}")
            one.execute(f"CREATE TABLE staff AS {STAFF} FROM generate_series(0, 999) AS t(i)")
            yield one, other


def asked(connection: psycopg.Connection[Any], sql: str) -> object:
    """Return the rows of a question with the types of its columns, or that it was refused."""
    try:
        cursor = connection.execute(sql)
    except psycopg.Error:
        return "refused"
    return cursor.fetchall(), [column.type_code for column in cursor.description or ()]


@pytest.mark.parametrize("table", [" FROM one", ""], ids=["table", "none"])
@pytest.mark.parametrize("expression", lines("expressions.txt"))
def test_an_expression_means_what_it_means_in_postgresql(both: Both, expression: str, table: str) -> None:
    theirs, ours = (asked(connection, f"SELECT {expression}{table}") for connection in both)
    assert theirs != "refused"
    assert ours == theirs


@pytest.mark.parametrize("question", lines("questions.txt"))
def test_a_question_without_noise_is_answered_as_postgresql_answers_it(both: Both, question: str) -> None:
    theirs, ours = (asked(connection, question) for connection in both)
    assert theirs != "refused"
    assert ours == theirs


@pytest.mark.parametrize("line", lines("differences.txt"))
def test_a_listed_difference_is_one_and_is_told(both: Both, line: str) -> None:
    expression, reason = line.split(" | ")
    theirs, ours = (asked(connection, f"SELECT {expression} FROM one") for connection in both)
    assert ours != theirs, "it is none any more: move the line to expressions.txt"
    assert reason in (ROOT / "docs" / "reference" / "sql.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("total", ["sum(count(*)) OVER ()", "sum(hours)"])
def test_a_share_of_a_total_has_a_fraction(both: Both, total: str) -> None:
    for connection in both:
        assert connection.execute(f"SELECT count(*) / {total} FROM staff GROUP BY town").fetchall()[0][0] != 0
