"""The sandbox: short calls that would make huge values, answers that would never end, columns that are not there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from planner.basics.errors import EvaluationFailed, TooLarge, UnknownColumn, Unsupported
from planner.duck import workbench
from planner.gate import Gate
from planner.session import Session

POLICY = """
[budget]
epsilon = 10.0
delta = 1e-9

[analysts.ann]

[tables.people]
source = "people.parquet"
[tables.people.columns]
age = { type = "integer", min = 0, max = 9 }

[tables.towns]
source = "towns.parquet"
public = true
[tables.towns.columns]
mayor = { hidden = true }
"""


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    folder: Path = tmp_path_factory.mktemp("sandbox")
    with duckdb.connect() as memory:
        memory.execute(f"COPY (SELECT i % 10 AS age FROM range(100) AS r(i)) TO '{folder}/people.parquet'")
        towns = "(VALUES ('Bern', 'Ann'), ('Oslo', 'Bob'), ('Rome', 'Eve')) AS t(name, mayor)"
        memory.execute(f"COPY (SELECT * FROM {towns}) TO '{folder}/towns.parquet'")
    (folder / "noisegate.toml").write_text(POLICY, encoding="utf-8")
    gate = Gate.open(folder / "noisegate.toml")
    yield gate.session()
    gate.close()


LONG = [
    "repeat('x', 2000000000) || repeat('y', 2000000000)",
    "lpad('x', 2000000000, 'y')",
    "rpad('x', 2000000000)",
    "replace(repeat('x', 9000), 'x', repeat('y', 9000))",
    "regexp_replace(repeat('x', 9000), 'x', repeat('y', 9000), 'g')",
    "repeat('x', 9000) || repeat('y', 9000)",
    "concat(repeat('x', 9000), 'y', repeat('z', 9000))",
    "concat_ws(',', repeat('x', 9000), repeat('z', 9000))",
    "hex(repeat('x', 9000))",
    "overlay(repeat('x', 9000) placing repeat('y', 9000) from 9000)",
    "strftime(DATE '2020-01-01', '" + "%A" * 4000 + "')",
]


@pytest.mark.parametrize("call", LONG)
def test_a_text_that_would_be_too_long_is_never_made(session: Session, call: str) -> None:
    """DuckDB computes constants while it plans, where no limit of memory or time reaches it."""
    for sql in (f"SELECT length({call}) FROM towns", f"SELECT count(*) FROM people HAVING length({call}) > 0"):
        with pytest.raises(EvaluationFailed, match="more than 10,000 characters"):
            session.execute(sql)


BOUNDLESS = [
    "len(range(1000000000))",
    "len(generate_series(1, 1000000000))",
    "printf('%2000000000d', 1)",
    "format('{:2000000000d}', 1)",
    "bitstring('1', 2000000000)",
    "list_resize([1], 1000000000, 0)",
    "list_transform(string_split(repeat('x,', 1000), ','), x -> repeat(x, 1000000))",
    "list_reduce(['xx', 'a', 'a'], (x, y) -> x || x)",
]


@pytest.mark.parametrize("call", BOUNDLESS)
def test_functions_that_make_values_of_any_size_are_refused(session: Session, call: str) -> None:
    with pytest.raises(Unsupported, match="can't be used here"):
        session.execute(f"SELECT {call} FROM towns")


def test_texts_of_ordinary_length_are_made(session: Session) -> None:
    sql = """SELECT repeat(name, 2), lpad(name, 6, 'x'), rpad(name, 5), replace(name, 'e', 'EE'),
        regexp_replace(name, '[a-e]', '#', 'g'), regexp_replace(name, 'e', 'u') FROM towns WHERE name = 'Bern'"""
    assert session.execute(sql).rows == [("BernBern", "xxBern", "Bern ", "BEErn", "B#rn", "Burn")]


def test_an_answer_of_too_many_rows_is_refused(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workbench, "MAX_ANSWER_ROWS", 8)
    assert len(session.execute("SELECT a.name FROM towns a LIMIT 8").rows) == 3
    with pytest.raises(TooLarge, match="more than 8 rows"):
        session.execute("SELECT a.name FROM towns a, towns b")


def test_rows_that_take_too_long_to_fetch_are_not_waited_for(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """DuckDB gives out the first rows long before it has found the last."""
    monkeypatch.setattr(workbench, "SANDBOX_SECONDS", 0.5)
    tables = ", ".join(f"towns t{i}" for i in range(40))
    with pytest.raises(TooLarge):
        session.execute(f"SELECT t0.name FROM {tables} WHERE t39.name || t0.name = 'nobody'")


@pytest.mark.parametrize("sql", ["SELECT mayor FROM towns", "SELECT max(t.mayor) FROM towns t"])
def test_a_hidden_column_of_a_public_table_is_not_there(session: Session, sql: str) -> None:
    with pytest.raises(UnknownColumn, match="mayor"):
        session.execute(sql)
    assert [column.name for column in session.describe("SELECT * FROM towns")] == ["name"]


def test_numbered_parameters_need_no_blanks_between_them(session: Session) -> None:
    """sqlglot would read `$1,$` as the start of a string."""
    sql = "SELECT name,\n$1,$2 FROM towns WHERE name IN ($3,$4) ORDER BY name"
    assert session.execute(sql, [1, 2, "Bern", "Rome"]).rows == [("Bern", 1, 2), ("Rome", 1, 2)]
    wrong = "SELECT $1,$2,\n($1,$2), nothing FROM towns"
    with pytest.raises(UnknownColumn) as caught:
        session.execute(wrong, [1, 2])
    assert caught.value.span == (wrong.index("nothing"), wrong.index("nothing") + 6)


OUTSIDE = [
    "SELECT * FROM read_parquet('{folder}/people.parquet')",
    "SELECT * FROM '{folder}/people.parquet'",
    "SELECT * FROM read_text('{folder}/noisegate.toml')",
    "SELECT * FROM glob('{folder}/*')",
    "COPY (SELECT 1) TO '{folder}/out.csv'",
    "EXPORT DATABASE '{folder}/out'",
    "ATTACH '{folder}/other.duckdb' AS other",
    "ATTACH 'https://example.org/other.duckdb' AS other",
    "INSTALL httpfs",
    "LOAD httpfs",
    "SET GLOBAL enable_external_access = true",
    "SET GLOBAL lock_configuration = false",
    "SET memory_limit = '100GB'",
    "SET temp_directory = '{folder}'",
    "PRAGMA enable_profiling",
]


@pytest.mark.parametrize("sql", OUTSIDE)
def test_the_engine_itself_reaches_no_file_no_network_and_no_setting(session: Session, sql: str) -> None:
    """Whatever got past the gate's own checks: the statements are given to the locked engine as they are."""
    folder = session.gate.policy.path.parent
    bench = session.gate.sandbox.workbench()
    with pytest.raises((duckdb.Error, EvaluationFailed)):
        bench.run(sql.format(folder=folder))
    assert sorted(path.suffix for path in folder.iterdir() if path.name.startswith(("out", "other"))) == []


def test_the_engine_of_analysts_holds_no_protected_table(session: Session) -> None:
    tables = session.gate.sandbox.workbench().rows("SELECT table_name FROM duckdb_tables()")
    assert ("towns",) in tables
    assert not [name for (name,) in tables if "people" in name]
