"""The first policy that `noisegate init` writes."""

from __future__ import annotations

import tomllib
from pathlib import Path

import duckdb
import pytest

from planner.basics.errors import Mistake, PolicyRefusal, SourceFailed
from planner.curator.proposal import propose
from planner.policy.file import load

SECRETS = """
    SELECT 4711 AS age, 'Zaphod' AS "education-num", 47.11::DECIMAL(8, 2) AS pay, 47.11::DOUBLE AS "a `b`",
           true AS married, DATE '1947-11-01' AS born, TIMESTAMP '1947-11-01 04:07:11' AS seen,
           'Zaphod'::ENUM('Zaphod', 'Ford') AS kind, [4711] AS list, {'x': 'Zaphod'} AS struct,
           'Zaphod'::BLOB AS "größe", 4711 AS __hidden, 4711::UBIGINT AS "line\nbreak"
"""
SHOWN = ("4711", "47.11", "1947", "Zaphod", "Ford")


def mistakes_of(text: str, folder: Path) -> tuple[Mistake, ...]:
    policy = folder / "noisegate.toml"
    policy.write_text(text, encoding="utf-8")
    with pytest.raises(PolicyRefusal) as refused:
        load(policy)
    return refused.value.mistakes


def copy(folder: Path, name: str) -> Path:
    duckdb.execute(f"COPY ({SECRETS}) TO '{folder / name}'")
    return folder / name


def test_a_proposal_names_every_column_with_its_type_and_shows_no_value(tmp_path: Path) -> None:
    text = propose(copy(tmp_path, "people.parquet"))
    columns = tomllib.loads(text)["tables"]["people"]["columns"]
    assert columns == {
        "age": {"type": "integer"},
        "education-num": {"type": "text"},
        "pay": {"type": "float", "step": 0.01},
        "a `b`": {"type": "float"},
        "married": {"type": "boolean"},
        "born": {"type": "date"},
        "seen": {"type": "timestamp"},
        "kind": {"type": "text"},
        "list": {"hidden": True},
        "struct": {"hidden": True},
        "größe": {"hidden": True},
        "line\nbreak": {"type": "integer"},
    }
    assert not any(value in text for value in SHOWN)
    assert "must be public knowledge, not read off the data" in text


def test_checking_a_proposal_finds_the_missing_bounds_and_nothing_else(tmp_path: Path) -> None:
    text = propose(copy(tmp_path, "people.parquet"))
    lines = text.splitlines()
    mistakes = mistakes_of(text, tmp_path)
    assert all("missing" in mistake.text for mistake in mistakes)
    found = {mistake.where.removeprefix("tables.people.columns.") for mistake in mistakes}
    wanted = {"age", "education-num", "pay", '"a `b`"', "born", "seen", "kind", r'"line\u000abreak"'}
    assert found == wanted
    for mistake in mistakes:
        assert lines[(mistake.line or 0) - 1].startswith(mistake.where.removeprefix("tables.people.columns."))


def test_a_proposal_with_its_bounds_filled_in_is_a_policy(tmp_path: Path) -> None:
    source = tmp_path / "People 2024.csv"
    source.write_text("age,sex\n47,F\n11,M\n")
    text = propose(source)
    filled = text.replace('type = "integer"', 'type = "integer", min = 0, max = 110')
    filled = filled.replace('type = "text"', 'values = ["F", "M"]')
    (tmp_path / "noisegate.toml").write_text(filled)
    policy = load(tmp_path / "noisegate.toml")
    assert policy.tables["people_2024"].source == str(source)
    assert "47" not in text


def test_a_csv_file_is_described_by_its_header_and_guessed_types(tmp_path: Path) -> None:
    source = tmp_path / "p.csv"
    source.write_text("id,born,smoker\n4711,1947-11-01,yes\n4712,1947-11-02,no\n")
    text = propose(source)
    columns = tomllib.loads(text)["tables"]["p"]["columns"]
    assert {name: entry["type"] for name, entry in columns.items()} == {
        "id": "integer",
        "born": "date",
        "smoker": "boolean",
    }
    assert not any(value in text for value in ("4711", "1947", "yes"))


def database(folder: Path) -> Path:
    file = folder / "store.duckdb"
    with duckdb.connect(str(file)) as connection:
        connection.execute("CREATE TABLE People (age INTEGER); CREATE SCHEMA s; CREATE TABLE s.people (sex VARCHAR)")
        connection.execute('CREATE TABLE "2024" (x BOOLEAN)')
    return file


def test_every_table_of_a_duckdb_file_is_proposed(tmp_path: Path) -> None:
    file = database(tmp_path)
    tables = tomllib.loads(propose(file))["tables"]
    assert {name: table["source"] for name, table in tables.items()} == {
        "t_2024": f"{file}#2024",
        "people": f"{file}#People",
        "s_people": f"{file}#s.people",
    }
    assert {mistake.where for mistake in mistakes_of(propose(file), tmp_path)} == {
        "tables.people.columns.age",
        "tables.s_people.columns.sex",
    }


def test_one_table_of_a_duckdb_file_can_be_named(tmp_path: Path) -> None:
    assert list(tomllib.loads(propose(Path(f"{database(tmp_path)}#People")))["tables"]) == ["people"]


@pytest.mark.parametrize("name", ["none.csv", "people.xlsx", "broken.parquet", "store.duckdb#none"])
def test_what_can_not_be_read_is_refused_without_quoting_it(tmp_path: Path, name: str) -> None:
    (tmp_path / "people.xlsx").write_text("Zaphod")
    (tmp_path / "broken.parquet").write_text("Zaphod")
    database(tmp_path)
    with pytest.raises(SourceFailed) as refused:
        propose(tmp_path / name)
    assert "Zaphod" not in refused.value.message
