"""What is booked on the cells below the dearest falls to what they need; the dearest pays what it did."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mechanisms.least import minimax
from planner.cells.workspace import Floats
from tests.planner.gates import open_gate

ROWS = """SELECT CASE WHEN i % 2 = 0 THEN 'F' ELSE 'M' END AS sex, (i % 10)::INTEGER AS level,
    (i % 101)::INTEGER AS hours FROM range(1000) AS r(i)"""
COLUMNS = """sex = { values = ["F", "M"] }
level = { type = "integer", min = 0, max = 9 }
hours = { type = "integer", min = 0, max = 100, role = "measure" }"""

RANGES = """SELECT count(*) FILTER (WHERE level < 2), count(*) FILTER (WHERE level < 4),
    count(*) FILTER (WHERE level BETWEEN 1 AND 5), count(*) FILTER (WHERE level BETWEEN 5 AND 8) FROM people"""
SUMS = """SELECT count(*), count(*) FILTER (WHERE level < 2), count(*) FILTER (WHERE level < 5),
    sum(hours) FILTER (WHERE level < 3), avg(hours) FILTER (WHERE sex = 'F') FROM people"""


def booked(folder: Path, sql: str) -> Floats:
    """Return what the question costs every cell, sorted, in units."""
    gate = open_gate(folder, ROWS, columns=COLUMNS)
    gate.session().execute(sql)
    values = [release.cost.values.ravel() for release in gate.ledger.releases()]
    gate.close()
    return np.sort(np.concatenate(values).astype(float))[::-1]


@pytest.mark.parametrize("sql", [RANGES, SUMS])
def test_cells_below_the_dearest_are_charged_less(sql: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    after = booked(tmp_path / "after", sql)
    monkeypatch.setattr(minimax, "refined", lambda *_: None)
    before = booked(tmp_path / "before", sql)
    assert after[0] == pytest.approx(before[0], rel=1e-4)
    assert after[0] <= before[0] * (1 + 2e-6)
    assert (after <= before * (1 + 6e-3)).all()  # cells of one level may all pay what the dearest of them does
    below = before < 0.95 * before[0]
    assert below.any()
    assert after[below].sum() < 0.99 * before[below].sum()
