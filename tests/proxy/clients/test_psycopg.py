"""psycopg 3: with and without preparing, in pipelines, in both formats, with server-side cursors and COPY."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.types import TypeInfo
from psycopg.types.composite import CompositeInfo
from psycopg.types.range import RangeInfo

from tests.proxy.clients.conftest import Rows
from tests.proxy.clients.questions import QUESTIONS, Question
from tests.proxy.postgres import Postgres
from tests.proxy.servers import Running


@pytest.fixture(scope="module")
def connection(served: Running) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(served.dsn(), autocommit=True) as connection:
        yield connection


def ask(connection: psycopg.Connection[Any], question: Question, **how: Any) -> Rows:
    sql: Any = question.with_marks("%s")
    cursor = connection.cursor(binary=how.pop("binary", False))
    return cursor.execute(sql, question.parameters or None, **how).fetchall()


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.name)
@pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])
@pytest.mark.parametrize("prepare", [False, True], ids=["plain", "prepared"])
def test_an_answer_is_the_one_of_the_dbapi(
    question: Question, binary: bool, prepare: bool, connection: psycopg.Connection[Any], expected: dict[str, Rows]
) -> None:
    assert ask(connection, question, binary=binary, prepare=prepare) == expected[question.name]


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.name)
def test_a_cursor_that_binds_in_the_client_shows_the_same(
    question: Question, connection: psycopg.Connection[Any], expected: dict[str, Rows]
) -> None:
    sql: Any = question.with_marks("%s")
    found = psycopg.ClientCursor(connection).execute(sql, question.parameters or None)
    assert found.fetchall() == expected[question.name]


def test_a_pipeline_gives_all_answers(connection: psycopg.Connection[Any], expected: dict[str, Rows]) -> None:
    with connection.pipeline():
        cursors = []
        for question in QUESTIONS:
            sql: Any = question.with_marks("%s")
            cursors.append(connection.cursor().execute(sql, question.parameters))
        found = [cursor.fetchall() for cursor in cursors]
    assert found == [expected[question.name] for question in QUESTIONS]


def test_a_server_side_cursor_brings_rows_in_parts(served: Running, expected: dict[str, Rows]) -> None:
    question = QUESTIONS[1]
    with psycopg.connect(served.dsn()) as connection, connection.cursor("parts") as cursor:
        cursor.itersize = 2
        cursor.execute(question.sql)  # type: ignore[call-overload]  # our own text
        assert list(cursor) == expected[question.name]


def test_columns_have_the_names_and_types_that_the_catalog_tells(connection: psycopg.Connection[Any]) -> None:
    cursor = connection.execute("SELECT city, region, inhabitants, area, founded FROM regions")
    found = [(column.name, column.type_code) for column in cursor.description or []]
    told = connection.execute(
        "SELECT attname, atttypid FROM pg_attribute WHERE attrelid = 'regions'::regclass AND attnum > 0 ORDER BY attnum"
    )
    assert found == [(name, int(oid)) for name, oid in told]


def test_copy_writes_what_a_select_shows(connection: psycopg.Connection[Any], expected: dict[str, Rows]) -> None:
    with connection.cursor().copy(f"COPY ({QUESTIONS[0].sql}) TO STDOUT") as copy:
        copy.set_types(["text", "int8"])
        assert list(copy.rows()) == expected["counts"]
    with connection.cursor().copy(f"COPY ({QUESTIONS[0].sql}) TO STDOUT (FORMAT binary)") as copy:
        copy.set_types(["text", "int8"])
        assert list(copy.rows()) == expected["counts"]
    with connection.cursor().copy(f"COPY ({QUESTIONS[0].sql}) TO STDOUT (FORMAT csv, HEADER)") as copy:
        text = b"".join(copy).decode()
    assert list(csv.reader(io.StringIO(text))) == [["sex", "n"], *([sex, str(n)] for sex, n in expected["counts"])]


def test_an_error_carries_its_sqlstate_hint_and_place(connection: psycopg.Connection[Any]) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege) as refused:
        connection.execute("SELECT * FROM people")
    diagnosis = refused.value.diag
    assert diagnosis.message_primary
    assert diagnosis.message_hint
    with pytest.raises(psycopg.errors.DivisionByZero):
        connection.execute("SELECT 1 / 0")
    assert connection.execute("SELECT 1").fetchone() == (1,)


def test_constants_of_every_type_come_back(connection: psycopg.Connection[Any], postgres: Postgres) -> None:
    sql = (
        "SELECT %s::int2, %s::int8, %s::float8, %s::numeric, %s::text, %s::bool, %s::date, %s::timestamp, "
        "%s::timestamptz, %s::interval, %s::uuid, %s::bytea, %s::int4[], %s::text[], %s, %s"
    )
    values = (
        1, 2**40, 0.1, "1.50", "it's", True, "2020-01-02", "2020-01-02 03:04:05.6", "2020-01-02 03:04:05+00",
        "1 day 02:00", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", b"\x00\xff", [1, None], ["a", 'b"c'], 5, None,
    )  # fmt: skip
    with psycopg.connect(postgres.dsn) as other:
        other.execute("SET timezone = 'UTC'")
        for binary in (False, True):
            ours = connection.cursor(binary=binary).execute(sql, values).fetchall()  # type: ignore[call-overload]
            assert ours == other.cursor(binary=binary).execute(sql, values).fetchall()  # type: ignore[call-overload]


@pytest.mark.parametrize("name", ["int4", "text", "timestamptz", "people", "regions", "nothing", "int4range"])
def test_types_are_found_as_in_postgresql(name: str, connection: psycopg.Connection[Any], postgres: Postgres) -> None:
    def looked_up(where: psycopg.Connection[Any]) -> tuple[object, ...]:
        found = TypeInfo.fetch(where, name)
        parts = CompositeInfo.fetch(where, name) if name in ("people", "regions") else None
        ranged = RangeInfo.fetch(where, name)
        return (
            found and (found.name, found.oid if found.oid < 16384 else 0, found.regtype),
            parts and (parts.field_names, parts.field_types),
            ranged and ranged.subtype_oid,
        )

    with psycopg.connect(postgres.dsn) as other:
        assert looked_up(connection) == looked_up(other)
