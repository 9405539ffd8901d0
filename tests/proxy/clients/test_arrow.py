"""ADBC and polars, which read by COPY in the binary format."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import polars as pl
import pytest

from tests.proxy.clients.conftest import Rows
from tests.proxy.clients.questions import QUESTIONS, Question
from tests.proxy.postgres import Postgres
from tests.proxy.servers import Running

adbc = pytest.importorskip("adbc_driver_postgresql.dbapi")


def uri(port: int) -> str:
    return f"postgresql://ann@127.0.0.1:{port}/noisegate?sslmode=disable"


@pytest.fixture(scope="module")
def connection(served: Running) -> Iterator[Any]:
    with adbc.connect(uri(served.port)) as connection:
        yield connection


def comparable(rows: Any) -> Rows:
    """Return rows with numeric values as numbers: ADBC hands them over as text."""
    return [
        tuple(float(value) if isinstance(value, str) and _is_number(value) else value for value in row) for row in rows
    ]


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdigit()


def plain(rows: Rows) -> Rows:
    return [tuple(float(value) if type(value).__name__ == "Decimal" else value for value in row) for row in rows]


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.name)
def test_an_answer_is_the_one_of_the_dbapi(question: Question, connection: Any, expected: dict[str, Rows]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(question.sql, question.parameters or None)
        assert comparable(cursor.fetchall()) == plain(expected[question.name])
    connection.rollback()


def test_polars_reads_an_answer(served: Running, expected: dict[str, Rows]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # polars' own, about the driver's version
        frame = pl.read_database_uri(QUESTIONS[0].sql, uri(served.port), engine="adbc")
    assert frame.columns == ["sex", "n"]
    assert frame.rows() == expected["counts"]


def objects(port: int, depth: str) -> list[object]:
    with adbc.connect(uri(port)) as connection:
        return list(connection.adbc_get_objects(depth=depth).read_all().to_pylist())


def in_order(found: Any) -> Any:
    """Return nested lists in an order of their own: PostgreSQL promises none."""
    if isinstance(found, dict):
        return {key: in_order(value) for key, value in found.items()}
    return sorted(map(in_order, found), key=repr) if isinstance(found, list) else found


@pytest.mark.parametrize("depth", ["catalogs", "db_schemas", "tables", "all"])
def test_objects_are_listed_as_in_postgresql(depth: str, served: Running, postgres: Postgres) -> None:
    assert in_order(objects(served.port, depth)) == in_order(objects(postgres.port, depth))


@pytest.mark.parametrize("table", ["people", "regions", "adults"])
def test_the_schema_of_a_table_is_the_one_in_postgresql(table: str, served: Running, postgres: Postgres) -> None:
    found = []
    for port in (served.port, postgres.port):
        with adbc.connect(uri(port)) as connection:
            found.append(connection.adbc_get_table_schema(table, db_schema_filter="public"))
    assert found[0].equals(found[1], check_metadata=True)
