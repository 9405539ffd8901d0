"""pg8000, in pure Python: untyped text parameters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.proxy.clients.conftest import Rows
from tests.proxy.clients.questions import QUESTIONS, Question
from tests.proxy.servers import Running

pg8000 = pytest.importorskip("pg8000")


@pytest.fixture(scope="module")
def connection(served: Running) -> Iterator[Any]:
    connection = pg8000.connect(host="127.0.0.1", port=served.port, user="ann", database="noisegate")
    yield connection
    connection.close()


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.name)
def test_an_answer_is_the_one_of_the_dbapi(question: Question, connection: Any, expected: dict[str, Rows]) -> None:
    cursor = connection.cursor()
    cursor.execute(question.with_marks("%s"), question.parameters)
    assert [tuple(row) for row in cursor.fetchall()] == expected[question.name]


def test_an_error_carries_its_sqlstate(connection: Any) -> None:
    cursor = connection.cursor()
    with pytest.raises(pg8000.DatabaseError) as refused:
        cursor.execute("SELECT * FROM people")
    assert refused.value.args[0]["C"] == "42501"
    connection.rollback()
    cursor.execute("SELECT 1")
    assert list(cursor.fetchone()) == [1]
