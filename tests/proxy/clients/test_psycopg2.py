"""psycopg2, which writes its values into the statement."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.proxy.clients.conftest import Rows
from tests.proxy.clients.questions import QUESTIONS, Question
from tests.proxy.servers import Running

psycopg2 = pytest.importorskip("psycopg2")


@pytest.fixture(scope="module")
def connection(served: Running) -> Iterator[Any]:
    connection = psycopg2.connect(served.dsn())
    yield connection
    connection.close()


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.name)
def test_an_answer_is_the_one_of_the_dbapi(question: Question, connection: Any, expected: dict[str, Rows]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(question.with_marks("%s"), question.parameters or None)
        assert cursor.fetchall() == expected[question.name]
    connection.commit()


def test_a_named_cursor_brings_rows_in_parts(connection: Any, expected: dict[str, Rows]) -> None:
    with connection.cursor("parts") as cursor:
        cursor.itersize = 2
        cursor.execute(QUESTIONS[1].sql)
        assert list(cursor) == expected[QUESTIONS[1].name]
    connection.rollback()


def test_after_an_error_a_transaction_must_be_rolled_back(connection: Any) -> None:
    with connection.cursor() as cursor:
        with pytest.raises(psycopg2.errors.InsufficientPrivilege):
            cursor.execute("SELECT * FROM people")
        with pytest.raises(psycopg2.errors.InFailedSqlTransaction):
            cursor.execute("SELECT 1")
        connection.rollback()
        cursor.execute("SELECT 1")
        assert cursor.fetchone() == (1,)
    connection.commit()
