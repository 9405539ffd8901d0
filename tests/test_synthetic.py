"""The synthetic copies of the bundled table that are kept."""

from __future__ import annotations

import tomllib
from pathlib import Path

import duckdb
import pytest

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "noisegate" / "data"
COPIES = [DATA / "adult_synth.parquet", ROOT / "benchmarks" / "papers" / "data" / "adult_privbayes.parquet"]


@pytest.mark.parametrize("copy", COPIES, ids=lambda path: path.stem)
def test_a_copy_has_the_columns_types_and_number_of_rows_of_the_table(copy: Path) -> None:
    table = DATA / "adult.parquet"
    described, counted = (
        [duckdb.execute(f"{what} FROM '{path}'").fetchall() for path in (copy, table)]
        for what in ("DESCRIBE", "SELECT count(*)")
    )
    assert described[0] == described[1]
    assert counted[0] == counted[1]
    assert copy.stat().st_size < 300_000


@pytest.mark.parametrize("copy", COPIES, ids=lambda path: path.stem)
def test_a_copy_keeps_to_the_domains_of_the_policy(copy: Path) -> None:
    columns = tomllib.loads((DATA / "adult.toml").read_text())["tables"]["adult"]["columns"]
    for name, column in columns.items():
        found = {row[0] for row in duckdb.execute(f"SELECT DISTINCT {name} FROM '{copy}'").fetchall()}
        assert None not in found or column.get("nullable"), name
        found.discard(None)
        if "values" in column:
            assert found <= set(column["values"]), name
        elif "min" in column:
            assert column["min"] <= min(found) <= max(found) <= column["max"], name


def test_the_copies_are_no_copies() -> None:
    rows = [set(duckdb.execute(f"FROM '{path}'").fetchall()) for path in (DATA / "adult.parquet", *COPIES)]
    assert not rows[0] & rows[1]
    assert not rows[0] & rows[2]
