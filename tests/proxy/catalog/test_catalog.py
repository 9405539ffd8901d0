"""The catalog answers as a real PostgreSQL with the same tables does, and knows nothing but the policy."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

from planner.basics.errors import Refusal, TooLarge, Unsupported
from planner.basics.stopping import Interrupted, Stop, stoppable
from planner.gate import Gate
from proxy.catalog import Catalog, answer
from proxy.wire import oids, values
from proxy.wire.values import Format
from tests.proxy import town
from tests.proxy.postgres import OWNER, running, script

FOLDER = Path(__file__).parents[1] / "introspection"
CAPTURED = json.loads((FOLDER / "captured.json").read_text(encoding="utf-8"))
WRITTEN = [*script(FOLDER / "tools.sql"), *script(FOLDER / "constants.sql")]

SETTINGS = {"search_path": '"$user", public', "server_encoding": "UTF8", "standard_conforming_strings": "on"}

OBJECTS = """
    SELECT nspname || '.' || relname, c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
        WHERE c.oid >= 16384
    UNION ALL SELECT 'T' || typname, oid FROM pg_type WHERE oid >= 16384
    UNION ALL SELECT 'N' || nspname, oid FROM pg_namespace WHERE oid >= 16384
    UNION ALL SELECT 'R' || rolname, oid FROM pg_roles WHERE oid >= 16384
    UNION ALL SELECT 'D' || datname, oid FROM pg_database
"""
"""Everything that the two number differently, by a name that both have."""

Answer = tuple[list[tuple[str, int]], list[tuple[str | None, ...]]]


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    gate = Gate.open(town.make(tmp_path_factory.mktemp("town")))
    yield gate
    gate.close()


@pytest.fixture(scope="module")
def catalog(gate: Gate) -> Catalog:
    return Catalog(gate, "ann", database="noisegate", settings=SETTINGS.get)


@pytest.fixture(scope="module")
def postgres() -> Iterator[psycopg.Connection[Any]]:
    with running() as server:
        with psycopg.connect(server.dsn, user=OWNER, autocommit=True) as owner:
            for statement in town.statements():
                owner.execute(statement)  # type: ignore[arg-type]  # our own text
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            yield connection


@pytest.fixture(scope="module")
def ours(catalog: Catalog) -> dict[str, int]:
    return {str(name): int(str(oid)) for name, oid in catalog.execute(OBJECTS, []).rows}


@pytest.fixture(scope="module")
def theirs(postgres: psycopg.Connection[Any]) -> dict[str, int]:
    return dict(postgres.execute(OBJECTS).fetchall())  # type: ignore[arg-type]  # our own text


def filled(text: str, numbers: dict[str, int]) -> str:
    """Return a statement with the oids of one of the two."""
    return re.sub(r"\{([\w.]+)\}", lambda found: str(numbers.get(found[1], found[0])), text)


def named(cell: str | None, numbers: dict[str, int]) -> str | None:
    """Return a value with names for the oids that the two do not share."""
    names = {str(number): name for name, number in numbers.items()}
    return None if cell is None else re.sub(r"\b\d{5,7}\b", lambda found: names.get(found[0], found[0]), cell)


def answer_of_postgres(
    connection: psycopg.Connection[Any], sql: str, parameters: list[str | None], numbers: dict[str, int]
) -> Answer:
    given = [None if value is None else filled(value, numbers).encode() for value in parameters]
    result = connection.pgconn.exec_params(filled(sql, numbers).encode(), given)
    assert result.status == psycopg.pq.ExecStatus.TUPLES_OK, result.error_message.decode()
    columns = [((result.fname(i) or b"").decode(), result.ftype(i)) for i in range(result.nfields)]
    cells = [[result.get_value(row, i) for i in range(result.nfields)] for row in range(result.ntuples)]
    return columns, [tuple(None if cell is None else named(cell.decode(), numbers) for cell in row) for row in cells]


def answer_of_ours(catalog: Catalog, sql: str, parameters: list[str | None], numbers: dict[str, int]) -> Answer:
    text = filled(sql, numbers)
    assert catalog.handles(text)
    types = catalog.describe(text).parameters
    given = [
        None if value is None else values.decoder(oid, Format.TEXT)(filled(value, numbers).encode())
        for value, oid in zip(parameters, types, strict=True)
    ]
    table = catalog.execute(text, given)
    encoders = [values.encoder(column.oid, Format.TEXT) for column in table.columns]
    rows = [
        tuple(
            None if cell is None else named(encode(cell).decode(), numbers)
            for cell, encode in zip(row, encoders, strict=True)
        )
        for row in table.rows
    ]
    return [(column.name, column.oid) for column in table.columns], rows


def in_order(rows: list[tuple[str | None, ...]]) -> list[str]:
    return sorted(map(repr, rows))


# --- as PostgreSQL answers ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "asked", CAPTURED, ids=lambda asked: f"{asked['client']}: {' '.join(asked['sql'].split())[:60]}"
)
def test_what_a_client_asks_is_answered_as_by_postgresql(
    asked: dict[str, Any],
    catalog: Catalog,
    postgres: psycopg.Connection[Any],
    ours: dict[str, int],
    theirs: dict[str, int],
) -> None:
    expected = answer_of_postgres(postgres, asked["sql"], asked["parameters"], theirs)
    found = answer_of_ours(catalog, asked["sql"], asked["parameters"], ours)
    assert found[0] == expected[0]
    assert in_order(found[1]) == in_order(expected[1])


@pytest.mark.parametrize("sql", WRITTEN, ids=lambda sql: " ".join(sql.split())[:70])
def test_what_tools_ask_is_answered_as_by_postgresql(
    sql: str,
    catalog: Catalog,
    postgres: psycopg.Connection[Any],
    ours: dict[str, int],
    theirs: dict[str, int],
) -> None:
    expected = answer_of_postgres(postgres, sql, [], theirs)
    found = answer_of_ours(catalog, sql, [], ours)
    assert found[0] == expected[0]
    assert in_order(found[1]) == in_order(expected[1])


@pytest.mark.parametrize(
    "sql",
    [
        "select $1::int4",
        "select $1::text, $2::numeric, $3::timestamptz",
        "select $1",
        "select $1 + 1",
        "select relname from pg_class where relname = $1",
        "select relname from pg_class where oid = $1 and relkind = $2",
        "select relname from pg_class where relname like $1",
        "select relname from pg_class where oid = any($1)",
        "select relname from pg_class where relname = any($1::text[]) limit $2 offset $3",
        "select attname from pg_attribute where attnum in ($1, $2)",
        "select attname from pg_attribute where attnum between $1 and $2 and not attisdropped",
        "select format_type($1, $2)",
        "select coalesce($1, 5)",
        "select table_name from information_schema.tables where table_schema = $1::text",
    ],
)
def test_parameters_have_the_types_that_postgresql_finds(
    sql: str, catalog: Catalog, postgres: psycopg.Connection[Any]
) -> None:
    postgres.pgconn.prepare(b"probe", sql.encode())
    described = postgres.pgconn.describe_prepared(b"probe")
    postgres.execute("DEALLOCATE probe")
    assert described.status == psycopg.pq.ExecStatus.COMMAND_OK
    assert list(catalog.describe(sql).parameters) == [described.param_type(i) for i in range(described.nparams)]


@pytest.mark.parametrize(
    "sql",
    [
        "select 'x'::int",
        "select '{1,x}'::int[]",
        "select 1 / 0",
        "select 'nothing'::regclass",
        "select nothing from pg_class",
        "select nothing(1)",
        "select current_setting('nothing.at_all')",
        "select * from pg_catalog.nothing",
        "select relname, count(*) from pg_class",
        "select 9223372036854775807::int4",
    ],
)
def test_mistakes_have_the_sqlstate_of_postgresql(
    sql: str, catalog: Catalog, postgres: psycopg.Connection[Any]
) -> None:
    with pytest.raises(psycopg.Error) as expected:
        postgres.execute(sql)  # type: ignore[call-overload]  # our own text
    with pytest.raises(Refusal) as found:
        catalog.execute(sql, [])
    assert found.value.sqlstate == expected.value.sqlstate


# --- what it shows -----------------------------------------------------------------------------------------


def rows(catalog: Catalog, sql: str, *parameters: object) -> list[tuple[object, ...]]:
    return catalog.execute(sql, parameters).rows


def test_a_column_is_described_by_its_public_domain(catalog: Catalog) -> None:
    sql = "select attname, col_description(attrelid, attnum) from pg_attribute where attrelid = 'people'::regclass"
    assert dict(rows(catalog, sql)) == town.DESCRIBED  # type: ignore[arg-type]  # pairs


@pytest.mark.parametrize(
    "sql",
    [
        "select 1 from pg_attribute where attname = 'note'",
        "select 1 from information_schema.columns where column_name = 'note'",
        "select 1 from pg_description where description like '%note%' and objoid >= 16384",
    ],
)
def test_hidden_columns_are_not_there(sql: str, catalog: Catalog) -> None:
    assert rows(catalog, sql) == []


def test_a_view_is_shown_with_its_definition_and_without_hidden_columns(tmp_path: Path) -> None:
    policy = town.make(tmp_path)
    text = policy.read_text(encoding="utf-8")
    policy.write_text(f'{text}\n[views.everyone]\nsql = "SELECT * FROM people"\n', encoding="utf-8")
    gate = Gate.open(policy)
    found = Catalog(gate, "ann", database="noisegate", settings=SETTINGS.get)
    assert "age >= 18" in str(rows(found, "select pg_get_viewdef('adults'::regclass)")[0][0])
    named = rows(found, "select attname from pg_attribute where attrelid = 'everyone'::regclass order by attnum")
    assert [name for (name,) in named] == list(town.DESCRIBED)
    gate.close()


@pytest.mark.parametrize(
    "sql",
    [
        "select 1 from pg_class where oid >= 16384 and (reltuples <> -1 or relpages <> 0 or relallvisible <> 0)",
        "select 1 from pg_class where pg_total_relation_size(oid) <> 0 or pg_table_size(oid) <> 0",
        "select 1 from pg_stat_user_tables",
        "select 1 from pg_stats",
        "select 1 from pg_statistic",
        "select 1 from pg_stat_activity",
    ],
)
def test_there_are_no_statistics(sql: str, catalog: Catalog) -> None:
    assert rows(catalog, sql) == []


def dump(catalog: Catalog) -> dict[str, list[tuple[object, ...]]]:
    names = catalog.execute(
        "select n.nspname || '.' || relname from pg_class c join pg_namespace n on n.oid = relnamespace "
        "where nspname in ('pg_catalog', 'information_schema') and relkind in ('r', 'v')",
        [],
    ).rows
    return {str(name): catalog.execute(f"select * from {name}", []).rows for (name,) in names}


def test_nothing_in_it_depends_on_the_data(tmp_path: Path, catalog: Catalog) -> None:
    policy = town.make(tmp_path)
    memory = town.duckdb.connect()
    memory.execute(f"COPY (SELECT * FROM ({town.SOURCES['people']}) LIMIT 7) TO '{tmp_path}/people.parquet'")
    other = Gate.open(policy)
    found = dump(Catalog(other, "ann", database="noisegate", settings=SETTINGS.get))
    other.close()
    assert len(found) > 150
    assert found == dump(catalog)


def test_it_never_reads_the_source_and_spends_nothing(
    gate: Gate, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "meters", {})
    monkeypatch.setattr(gate, "ledger", None)
    assert rows(catalog, "select count(*) from pg_attribute where attrelid = 'people'::regclass and attnum > 0") == [
        (8,)
    ]
    assert rows(catalog, "select table_name from information_schema.tables where table_name = $1", "people")


def test_it_says_that_nothing_can_be_written(catalog: Catalog) -> None:
    sql = "select distinct is_insertable_into from information_schema.tables"
    assert rows(catalog, sql) == [("NO",)]
    assert rows(catalog, "select distinct is_updatable from information_schema.columns") == [("NO",)]
    assert rows(catalog, "select has_table_privilege('people', 'INSERT, UPDATE, DELETE')") == [(False,)]


def test_a_session_sees_its_own_name_database_and_settings(gate: Gate) -> None:
    bob = Catalog(gate, "bob", database="elsewhere", settings={"application_name": "probe"}.get)
    sql = "select current_user, user, session_user, current_database(), current_setting('application_name')"
    assert rows(bob, sql) == [("bob", "bob", "bob", "elsewhere", "probe")]
    assert rows(bob, "select datname from pg_database") == [("elsewhere",)]
    assert rows(bob, "select distinct table_catalog from information_schema.tables") == [("elsewhere",)]
    assert rows(bob, "select rolname from pg_roles where rolcanlogin order by 1") == [("ann",), ("bob",), (OWNER,)]


# --- what it takes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sql",
    [
        "select 1",
        "  select 1 ;",
        "select * from pg_class",
        "select * from PG_CATALOG.pg_class c, information_schema.tables",
        "with a as (select 1 as x) select x from a",
        "values (1)",
        "(select 1)",
        "select * from generate_series(1, 3)",
        "select count(*) from pg_class join people on true",
        "table pg_class",
    ],
)
def test_statements_about_the_catalog_and_without_a_table_are_its_own(sql: str, catalog: Catalog) -> None:
    assert catalog.handles(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "select count(*) from people",
        "select count(*) from public.people",
        "select 1 from people limit 0",
        "select * from noisegate.budget",
        "select noisegate.enlist('q', 'select 1')",
        "select * from noisegate.verify('select 1', tau => 1)",
        "explain select 1",
        "show all",
        "set x = 1",
        "insert into pg_class values (1)",
        "select 1 into x",
        "select * from pg_class for update",
        "create table x (a int)",
        "select 1; select 2",
        "",
        "((((",
        "select 'abc",
        "\0",
        "select " + "(" * 3000 + "1" + ")" * 3000,
        "select * from nothing",
        "select * from tables",
    ],
)
def test_other_statements_are_not(sql: str, catalog: Catalog) -> None:
    assert not catalog.handles(sql)


def test_a_mixture_with_tables_of_the_policy_is_refused(catalog: Catalog) -> None:
    with pytest.raises(Unsupported, match="can't be combined"):
        catalog.describe("select count(*) from pg_class, people")


@pytest.mark.parametrize(
    "sql",
    [
        "select * from read_csv('/etc/passwd')",
        "select * from read_text('/etc/passwd')",
        "select * from glob('/*')",
        "select * from duckdb_settings()",
        "select * from query('select 1')",
        "select getenv('HOME')",
        "select pg_read_file('/etc/passwd')",
        "select own_default_setting('x')",
        "select $s_user",
        "select current_query()",
        "select set_bit('1', 1, 1)",
        "select lo_import('/etc/passwd')",
        "select pg_terminate_backend(1)",
        "select duckdb_secrets()",
        "select printf('%2000000000d', 1)",
        "select range(1000000000000)",
        "select list_resize([1], 1000000000000)",
    ],
)
def test_functions_that_are_not_postgresql_s_or_reach_outside_are_refused(sql: str, catalog: Catalog) -> None:
    with pytest.raises(Refusal):
        catalog.execute(sql, [])


def test_variables_of_the_program_are_no_tables(catalog: Catalog) -> None:
    people_like = [{"a": 1}]  # DuckDB would find it by its name
    assert people_like
    assert not catalog.handles("select * from people_like")


def test_messages_are_our_own(catalog: Catalog) -> None:
    for sql in (
        "select nothing from pg_class",
        "select 'x'::int",
        "select 1 + 'x'::text",
        "select relname + 1 from pg_class",
    ):
        with pytest.raises(Refusal) as refused:
            catalog.execute(sql, [])
        assert not re.search(r"duckdb|binder|LINE 1|candidate|varchar\(", str(refused.value), re.IGNORECASE)


def test_a_statement_that_runs_too_long_can_be_interrupted(catalog: Catalog) -> None:
    sql = "select count(*) from generate_series(1, 200000) a, generate_series(1, 200000) b where a + b = 7"
    catalog.describe(sql)
    stop = Stop()
    threading.Timer(0.3, stop.stop).start()
    with pytest.raises(Interrupted), stoppable(stop):
        catalog.execute(sql, [])
    assert rows(catalog, "select 1") == [(1,)]


def test_sleeping_can_be_interrupted(catalog: Catalog) -> None:
    assert rows(catalog, "select pg_sleep(0.01)") == [("",)]
    stop = Stop()
    threading.Timer(0.1, stop.stop).start()
    with pytest.raises(Interrupted), stoppable(stop):
        catalog.execute("select pg_sleep($1)", [30.0])


def test_answers_are_bounded(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer, "MAX_CATALOG_ROWS", 10)
    with pytest.raises(Refusal, match="more than 10 rows"):
        catalog.execute("select generate_series(1, 11)", [])


@pytest.mark.parametrize(
    "sql",
    [
        "select repeat('x', 2000000000)",
        "select length(repeat(repeat('x', 1000000), 1000000))",
        "select length(replace(repeat('x', 1000000), 'x', repeat('y', 1000000)))",
        "select length(regexp_replace(repeat('x', 1000000), 'x', repeat('y', 1000000), 'g'))",
        "select length(format(repeat('%1$s', 200000), repeat('y', 1000000)))",
        "select lpad('x', 2000000000)",
        "select rpad('x', $1::int, 'y')",
        "select count(*) from generate_series(1, 1000000000000)",
        "select generate_series(1, $1::int8)",
    ],
)
def test_values_that_would_fill_the_memory_are_refused(sql: str, catalog: Catalog) -> None:
    with pytest.raises(TooLarge):
        catalog.execute(sql, [2_000_000_000])


@pytest.mark.parametrize(
    ("oid", "value"),
    [
        (oids.INT2, 5),
        (oids.INT8, 2**40),
        (oids.TEXT, "it's"),
        (oids.BOOL, True),
        (oids.FLOAT8, 0.1),
        (1007, [1, 2, None]),
        (1009, ["a", None]),
        (oids.BYTEA, b"\0\xff"),
    ],
)
def test_a_parameter_comes_back_as_it_was_stated(oid: int, value: object, catalog: Catalog) -> None:
    assert catalog.describe("select $1", [oid]).columns[0].oid == oid
    assert catalog.execute("select $1", [value], [oid]).rows == [(value,)]


def test_too_few_parameters_are_refused(catalog: Catalog) -> None:
    with pytest.raises(Refusal, match="2 parameters are needed"):
        catalog.execute("select $1, $2", [1])


def test_threads_may_share_it(gate: Gate) -> None:
    asked = [
        (each["sql"], each["parameters"]) for each in CAPTURED if "{" not in each["sql"] and not each["parameters"]
    ]
    catalogs = [Catalog(gate, "ann", database="noisegate", settings=SETTINGS.get) for _ in range(4)]

    def ask(which: Callable[[], Catalog]) -> list[object]:
        return [which().execute(sql, parameters).rows for sql, parameters in asked[:15]]

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(ask, [lambda each=each: each for each in catalogs]))  # type: ignore[misc]  # bound now
    assert all(each == found[0] for each in found)
