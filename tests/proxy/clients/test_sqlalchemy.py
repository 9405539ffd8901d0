"""SQLAlchemy: engines, reflection and pandas on top of them, through three drivers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest

from tests.proxy.clients.conftest import Rows
from tests.proxy.clients.questions import QUESTIONS, Question
from tests.proxy.postgres import Postgres
from tests.proxy.servers import Running

sqlalchemy = pytest.importorskip("sqlalchemy")


def engine_of(port: int, driver: str = "psycopg") -> Any:
    return sqlalchemy.create_engine(f"postgresql+{driver}://ann@127.0.0.1:{port}/noisegate")


@pytest.fixture(scope="module", params=["psycopg", "psycopg2", "pg8000"])
def engine(request: pytest.FixtureRequest, served: Running) -> Iterator[Any]:
    pytest.importorskip(request.param)
    engine = engine_of(served.port, request.param)
    yield engine
    engine.dispose()


@pytest.fixture(scope="module")
def inspectors(served: Running, postgres: Postgres) -> Iterator[tuple[Any, Any]]:
    engines = [engine_of(served.port), engine_of(postgres.port)]
    yield sqlalchemy.inspect(engines[0]), sqlalchemy.inspect(engines[1])
    for engine in engines:
        engine.dispose()


def bound(question: Question) -> tuple[Any, dict[str, object]]:
    """Return the statement with named parameters, and their values."""
    sql = question.sql
    for number in range(1, len(question.parameters) + 1):
        sql = sql.replace(f"${number}", f":p{number}")
    return sqlalchemy.text(sql), {f"p{i}": value for i, value in enumerate(question.parameters, start=1)}


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.name)
def test_an_answer_is_the_one_of_the_dbapi(question: Question, engine: Any, expected: dict[str, Rows]) -> None:
    sql, values = bound(question)
    with engine.connect() as connection:
        assert [tuple(row) for row in connection.execute(sql, values)] == expected[question.name]


def test_pandas_reads_an_answer(engine: Any, expected: dict[str, Rows]) -> None:
    frame = pd.read_sql(QUESTIONS[0].sql, engine)
    assert list(frame.columns) == ["sex", "n"]
    assert [tuple(row) for row in frame.itertuples(index=False)] == expected["counts"]


def test_a_reflected_table_can_be_asked_with_expressions(engine: Any, expected: dict[str, Rows]) -> None:
    people = sqlalchemy.Table("people", sqlalchemy.MetaData(), autoload_with=engine)
    asked = sqlalchemy.select(people.c.sex, sqlalchemy.func.count().label("n"))
    with engine.connect() as connection:
        found = connection.execute(asked.group_by(people.c.sex).order_by(people.c.sex)).fetchall()
    assert [tuple(row) for row in found] == expected["counts"]
    assert "note" not in people.c
    assert people.c.age.comment == "0 … 110"


def test_an_error_keeps_its_sqlstate(engine: Any) -> None:
    with engine.connect() as connection, pytest.raises(sqlalchemy.exc.DBAPIError, match="single rows"):
        connection.execute(sqlalchemy.text("SELECT * FROM people")).fetchall()


LOOKS = {
    "schemas": lambda i: i.get_schema_names(),
    "default schema": lambda i: i.default_schema_name,
    "tables": lambda i: sorted(i.get_table_names()),
    "views": lambda i: i.get_view_names(),
    "system tables": lambda i: sorted(i.get_table_names("noisegate")),
    "materialized views": lambda i: i.get_materialized_view_names(),
    "sequences": lambda i: i.get_sequence_names(),
    "enums": lambda i: i.get_enums(),
    "has table": lambda i: [i.has_table(name) for name in ("people", "adults", "nothing")],
    "columns": lambda i: {name: shown(i.get_columns(name)) for name in ("people", "regions", "adults")},
    "columns of a system table": lambda i: shown(i.get_columns("releases", schema="noisegate")),
    "all columns": lambda i: {name: shown(columns) for name, columns in i.get_multi_columns().items()},
    "keys": lambda i: [i.get_pk_constraint("people"), i.get_foreign_keys("people"), i.get_unique_constraints("people")],
    "checks": lambda i: i.get_check_constraints("people"),
    "indexes": lambda i: [i.get_indexes("people"), i.get_indexes("pg_class", schema="pg_catalog")],
    "comments": lambda i: i.get_multi_table_comment(),
    "options": lambda i: i.get_table_options("people"),
}


def shown(columns: Any) -> list[dict[str, object]]:
    """Return columns with their types as text, which compares."""
    return [{**column, "type": repr(column["type"])} for column in columns]


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS.keys())
def test_reflection_finds_what_it_finds_in_postgresql(look: Any, inspectors: tuple[Any, Any]) -> None:
    ours, theirs = inspectors
    assert look(ours) == look(theirs)


def test_a_table_that_is_not_there_is_not_found(inspectors: tuple[Any, Any]) -> None:
    with pytest.raises(sqlalchemy.exc.NoSuchTableError):
        inspectors[0].get_columns("nothing")
