"""What holds of Iceberg tables; test_iceberg.py runs this where Spark has a catalog `lake`."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from planner.basics.errors import SourceFailed
from planner.gate import Gate
from planner.sources.source import open_source
from planner.sources.spark import session
from tests.planner import engines
from tests.planner.engines import grid, table
from tests.planner.gates import policy, switch_noise_off
from tests.planner.sources.test_conformance import UNITS, VARIANTS, vector, workspace

MASTER = "local[1]"
NAME = "lake.clinic.ghent.people"
COLUMNS = """
[tables.people.columns]
age = { type = "integer", min = 0, max = 110 }
sex = { values = ["F", "M"] }
"""
QUESTION = "SELECT sex, count(*) AS n, sum(age) AS years FROM people GROUP BY sex ORDER BY sex"


@pytest.fixture
def spark() -> Iterator[Any]:
    """Return a session that is not the gate's, with 300 people in a namespace of the catalog."""
    found = session(MASTER)
    for name in ("lake.clinic", "lake.clinic.ghent"):
        found.sql(f"CREATE NAMESPACE IF NOT EXISTS {name}")
    found.sql(f"CREATE TABLE {NAME} (age INT, sex STRING, height INT) USING iceberg PARTITIONED BY (sex)")
    found.sql(f"INSERT INTO {NAME} SELECT id % 100, IF(id % 3 = 0, 'F', 'M'), 170 FROM range(300)")
    yield found
    found.sql(f"DROP TABLE {NAME}")


def answers(gate: Gate) -> list[tuple[str, ...]]:
    return [tuple(map(str, row)) for row in gate.session().execute(QUESTION).rows]


def test_answers_come_from_one_snapshot_until_there_is_a_new_one(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    switch_noise_off(monkeypatch)
    file = policy(tmp_path, f'[tables.people]\nsource = "spark:{MASTER}#{NAME}"\n{COLUMNS}')
    with closing(Gate.open(file)) as gate:
        assert answers(gate) == [("F", "100", "4950"), ("M", "200", "9900")]
        spark.sql(f"DELETE FROM {NAME} WHERE sex = 'F' AND age < 50")
        with pytest.raises(SourceFailed, match="changed since it was first read"):
            gate.session().execute(QUESTION + " LIMIT 1")
        gate.refresh("people")
        assert answers(gate) == [("F", "50", "3725"), ("M", "200", "9900")]


def test_renamed_columns_are_noticed_though_the_snapshot_is_the_same(spark: Any) -> None:
    with closing(open_source(table(f"spark:{MASTER}#{NAME}", {"age": grid("integer", 0, 110, 1)}))) as source:
        before = source.fingerprint()
        assert source.fingerprint() == before
        for old, new in (("age", "years"), ("height", "age")):
            spark.sql(f"ALTER TABLE {NAME} RENAME COLUMN {old} TO {new}")
        assert source.fingerprint() != before
        assert source.tally([], [("age", 1)]).sums.tolist() == [[300, 300 * 110]]


def test_a_snapshot_that_is_brought_back_is_the_same_data(spark: Any) -> None:
    with closing(open_source(table(f"spark:{MASTER}#{NAME}", {"age": grid("integer", 0, 110, 1)}))) as source:
        before = source.fingerprint()
        [(snapshot,)] = spark.sql(f"SELECT snapshot_id FROM {NAME}.snapshots").collect()
        spark.sql(f"INSERT INTO {NAME} VALUES (1, 'F', 170)")
        assert source.fingerprint() != before
        spark.sql(f"CALL lake.system.rollback_to_snapshot('clinic.ghent.people', {snapshot})")
        assert source.fingerprint() == before


def test_a_table_without_rows_can_be_opened(spark: Any) -> None:
    spark.sql("CREATE TABLE lake.clinic.empty (age INT) USING iceberg")
    with closing(open_source(table("spark:#lake.clinic.empty", {"age": grid("integer", 0, 110, 1)}))) as source:
        assert source.tally([], []).sums.tolist() == [[0]]
        before = source.fingerprint()
        spark.sql("INSERT INTO lake.clinic.empty VALUES (1)")
        assert source.fingerprint() != before


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_vectors_are_those_of_duckdb(spark: Any, tmp_path: Path, variant: str) -> None:
    file = tmp_path / "people.parquet"
    engines.write_parquet(file, engines.rows(400, seed=7))
    spark.sql(f"CREATE OR REPLACE TABLE lake.clinic.rows USING iceberg AS SELECT * FROM parquet.`{file}`")
    draw = random.Random(variant)
    for unit in UNITS.values():
        tables = [table(source, VARIANTS[variant], **unit) for source in (str(file), "spark:#lake.clinic.rows")]
        with closing(open_source(tables[0])) as ours, closing(open_source(tables[1])) as theirs:
            for _ in range(2):
                space, features = workspace(tables[0], draw)
                assert vector(theirs, space, features) == vector(ours, space, features), (space.axes, features)
