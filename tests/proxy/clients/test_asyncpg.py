"""asyncpg: prepared and binary always, with its own look into the catalog for types that it does not know."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.proxy.clients.conftest import Rows
from tests.proxy.clients.questions import QUESTIONS, Question
from tests.proxy.postgres import Postgres
from tests.proxy.servers import Running

asyncpg = pytest.importorskip("asyncpg")


def with_connection(port: int, work: Callable[[Any], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        connection = await asyncpg.connect(host="127.0.0.1", port=port, user="ann", database="noisegate", ssl=False)
        try:
            return await work(connection)
        finally:
            await connection.close()

    return asyncio.run(run())


def rows_of(records: Any) -> Rows:
    return [tuple(record.values()) for record in records]


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.name)
def test_an_answer_is_the_one_of_the_dbapi(question: Question, served: Running, expected: dict[str, Rows]) -> None:
    found = with_connection(served.port, lambda c: c.fetch(question.sql, *question.parameters))
    assert rows_of(found) == expected[question.name]


def test_a_cursor_in_a_transaction_brings_rows_in_parts(served: Running, expected: dict[str, Rows]) -> None:
    async def work(connection: Any) -> Rows:
        async with connection.transaction():
            return [tuple(row.values()) async for row in connection.cursor(QUESTIONS[1].sql, prefetch=2)]

    assert with_connection(served.port, work) == expected[QUESTIONS[1].name]


def test_a_pool_resets_its_connections(served: Running, expected: dict[str, Rows]) -> None:
    async def work() -> list[Rows]:
        async with asyncpg.create_pool(
            host="127.0.0.1", port=served.port, user="ann", database="noisegate", ssl=False, min_size=1, max_size=2
        ) as pool:
            asked = [pool.fetch(question.sql, *question.parameters) for question in QUESTIONS]
            return [rows_of(found) for found in await asyncio.gather(*asked)]

    assert asyncio.run(work()) == [expected[question.name] for question in QUESTIONS]


def test_constants_come_back_as_from_postgresql(served: Running, postgres: Postgres) -> None:
    sql = (
        "SELECT $1::int4, $2::text[], $3::numeric, $4::bool, $5::float8, '2020-01-02'::date, '1 day'::interval, "
        "'pg_class'::regclass, 'int4'::regtype, 23::oid, 'x'::\"char\", 'y'::name, $6::json"
    )
    values = [1, ["a", None], 5, True, 0.1, '{"a": 1}']
    found = [rows_of(with_connection(port, lambda c: c.fetch(sql, *values))) for port in (served.port, postgres.port)]
    assert found[0] == found[1]


def test_a_statement_tells_its_types(served: Running, postgres: Postgres) -> None:
    sql = "SELECT relname, oid, relkind, relacl, conkey FROM pg_class LEFT JOIN pg_constraint c ON conrelid = $1"

    async def work(connection: Any) -> object:
        statement = await connection.prepare(sql.replace(", oid", ", pg_class.oid"))
        attributes = [(a.name, a.type.name, a.type.kind) for a in statement.get_attributes()]
        return attributes, [p.name for p in statement.get_parameters()]

    assert with_connection(served.port, work) == with_connection(postgres.port, work)


def test_an_error_has_its_own_class(served: Running) -> None:
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        with_connection(served.port, lambda c: c.fetch("SELECT * FROM people"))


def test_a_statement_can_time_out(served: Running) -> None:
    async def work(connection: Any) -> object:
        with pytest.raises(asyncio.TimeoutError):
            await connection.fetch("SELECT pg_sleep(30)", timeout=0.2)
        return await connection.fetchval("SELECT 1")

    assert with_connection(served.port, work) == 1
