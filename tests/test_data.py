"""The bundled table is small, whole, and lies inside the domains that its policy declares."""

import tomllib
from pathlib import Path
from typing import Any

import duckdb
import pytest

DATA = Path(__file__).parents[1] / "noisegate" / "data"
PARQUET = DATA / "adult.parquet"
POLICY = tomllib.loads((DATA / "adult.toml").read_text(encoding="utf-8"))
COLUMNS: dict[str, dict[str, Any]] = POLICY["tables"]["adult"]["columns"]
VISIBLE = [name for name, column in COLUMNS.items() if not column.get("hidden")]


def ask(sql: str, *parameters: object) -> list[tuple[Any, ...]]:
    with duckdb.connect() as connection:
        connection.read_parquet(str(PARQUET)).create_view("adult")
        return connection.execute(sql, list(parameters)).fetchall()


def outside(name: str, column: dict[str, Any]) -> int:
    """Return how many values of the column are neither NULL nor in its declared domain."""
    if "values" in column:
        rows = ask(f"SELECT {name} FROM adult WHERE NOT list_contains(?, {name})", column["values"])
    else:
        rows = ask(f"SELECT {name} FROM adult WHERE {name} NOT BETWEEN ? AND ?", column["min"], column["max"])
    return len(rows)


def test_the_file_is_below_one_megabyte() -> None:
    assert PARQUET.stat().st_size < 1_000_000


def test_every_row_of_the_training_split_is_there() -> None:
    assert ask("SELECT count(*) FROM adult") == [(32_561,)]


def test_the_policy_declares_the_columns_of_the_file_in_their_order() -> None:
    assert [name for name, *_ in ask("DESCRIBE adult")] == list(COLUMNS)


@pytest.mark.parametrize("name", VISIBLE)
def test_every_value_lies_in_the_declared_domain(name: str) -> None:
    assert outside(name, COLUMNS[name]) == 0


def test_the_domain_check_sees_a_value_that_is_not_declared() -> None:
    assert outside("sex", {"values": ["Female"]}) == 21_790
    assert outside("age", {"min": 18, "max": 90}) > 0


@pytest.mark.parametrize("name", VISIBLE)
def test_a_column_has_nulls_exactly_when_it_is_declared_nullable(name: str) -> None:
    [(nulls,)] = ask(f"SELECT count(*) FROM adult WHERE {name} IS NULL")
    assert (nulls > 0) == COLUMNS[name].get("nullable", False)


def test_education_is_listed_in_the_order_of_its_number() -> None:
    pairs = ask("SELECT DISTINCT education_num, education FROM adult ORDER BY education_num")
    assert pairs == list(enumerate(COLUMNS["education"]["values"], start=1))


def test_the_shares_of_the_analysts_add_up_to_one() -> None:
    assert sum(analyst["share"] for analyst in POLICY["analysts"].values()) == 1.0


def test_licence_and_origin_lie_beside_the_file() -> None:
    for name in ("README.md", "adult.LICENSE"):
        text = (DATA / name).read_text(encoding="utf-8")
        assert "CC BY 4.0" in text
        assert "Becker" in text
        assert "Kohavi" in text
