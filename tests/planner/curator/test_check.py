"""`noisegate check`: mistakes that only the sources and the views show."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from planner.basics.errors import PolicyRefusal
from planner.curator.check import check
from planner.gate import Gate

POLICY = """[budget]
epsilon = 1.0
delta = 1e-9
[tables.people]
source = "people.parquet"
[tables.people.columns]
age = { type = "integer", min = 0, max = 110 }
agee = { type = "integer", min = 0, max = 110 }
sx = { values = ["F", "M"] }
[views.old]
sql = "SELECT * FROM people WHERE age > 60"
[views.broken]
sql = "SELECT * FROM people WHERE nobody = 1"
[views.rows_of_nobody]
sql = "SELEC 1"
"""


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    duckdb.execute(f"COPY (SELECT 30 AS age, 'F' AS sex) TO '{tmp_path / 'people.parquet'}'")
    file = tmp_path / "noisegate.toml"
    file.write_text(POLICY)
    return file


def test_every_missing_column_and_broken_view_is_listed_with_its_line(policy: Path) -> None:
    with pytest.raises(PolicyRefusal) as refused:
        check(policy)
    found = {(mistake.line, mistake.where) for mistake in refused.value.mistakes}
    assert found == {
        (8, "tables.people.columns.agee"),
        (9, "tables.people.columns.sx"),
        (12, "views.broken"),
        (14, "views.rows_of_nobody"),
    }


def test_a_gate_with_a_broken_view_does_not_open(policy: Path) -> None:
    lines = [line for line in POLICY.splitlines() if not line.startswith(("agee", "sx"))]
    policy.write_text("\n".join(lines))
    with pytest.raises(PolicyRefusal, match="nobody"):
        Gate.open(policy)


def test_a_good_policy_passes_and_its_view_answers(policy: Path) -> None:
    lines = [line for line in POLICY.splitlines() if not line.startswith(("agee", "sx"))]
    policy.write_text("\n".join(lines[: lines.index("[views.broken]")]))
    assert set(check(policy).views) == {"old"}
    gate = Gate.open(policy)
    try:
        assert gate.session().explain("SELECT count(*) FROM old").path == "direct"
    finally:
        gate.close()
