"""What numbers of different values, and of units, cost: never less than any unit's rows can change them, and no more.

The truth is counted by DuckDB, for every unit of a tiny domain: each set of at most k rows, in whichever cells.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import duckdb
import pytest

from planner.cells.costs import Cost, rho_of
from planner.gate import Gate
from planner.plans.release import DistinctTask
from planner.sql import statement
from tests.planner.gates import open_gate

COLUMNS = """
a = { type = "integer", min = 0, max = 3 }
b = { values = ["x", "y"] }
"""
CELLS = list(itertools.product(range(4), ("x", "y")))
Rows = tuple[tuple[int, str], ...]

CASES = [
    (aggregate, where, keys)
    for aggregate in ("who", "a", "b", "CASE WHEN a > 1 THEN b END")
    for where in ("true", "a < 3", "a = 0 OR b = 'y'", "a > 3")
    for keys in ((), ("a",), ("b",), ("a / 2", "b"))
]


def units(limit: int) -> list[Rows]:
    """Return all units: one to k rows, the same one several times as well."""
    return [unit for size in range(1, limit + 1) for unit in itertools.combinations_with_replacement(CELLS, size)]


@pytest.fixture(scope="module", params=[1, 2, 4])
def gate(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    table = f'privacy_unit = "who"\nmax_rows_per_unit = {request.param}\n'
    rows = "SELECT 1 AS who, 1 AS a, 'x' AS b"
    found = open_gate(tmp_path_factory.mktemp("distinct"), rows, columns=COLUMNS, table=table, epsilon=1e5)
    yield found
    found.close()


def tasks(gate: Gate, sql: str) -> list[DistinctTask]:
    session, query = gate.session(), statement.read(sql)
    assert isinstance(query, statement.Query)
    with gate.prepared(query) as ready:
        return [task for task in session._plan(ready).tasks if isinstance(task, DistinctTask)]


def booked(cost: Cost, cell: tuple[int, str]) -> Fraction:
    index = {"a": cell[0], "b": "xy".index(cell[1])}
    places = (
        partition[index[key.partition("#")[0]]] for key, partition in zip(cost.scope, cost.partitions, strict=True)
    )
    return rho_of(int(cost.values[tuple(places)]))


def squares(oracle: duckdb.DuckDBPyConnection, aggregate: str, where: str, keys: tuple[str, ...]) -> dict[int, int]:
    """Return for each unit the sum over groups of the square of what it adds, in a table of its own."""
    counted = "unit" if aggregate == "who" else aggregate
    grouped = ", ".join(["unit", *keys])
    found: dict[int, int] = defaultdict(int)
    sql = f"SELECT unit, count(DISTINCT {counted}) FROM rows WHERE {where} GROUP BY {grouped}".replace("/", "//")
    for unit, number in oracle.execute(sql).fetchall():
        found[unit] += number**2
    return found


def test_no_unit_pays_less_than_its_rows_can_change_and_none_more_than_some_unit_must(gate: Gate) -> None:
    """What a unit pays is the mean over k rows; where it has fewer, one is repeated."""
    limit = gate.policy.tables["people"].max_rows_per_unit
    everyone = units(limit)
    with duckdb.connect() as oracle:
        oracle.execute("CREATE TABLE rows (unit INTEGER, a INTEGER, b VARCHAR)")
        values = ", ".join(f"({i}, {a}, '{b}')" for i, unit in enumerate(everyone) for a, b in unit)
        oracle.execute(f"INSERT INTO rows VALUES {values}")
        for aggregate, where, keys in CASES:
            group = f" GROUP BY {', '.join(keys)}" if keys else ""
            sql = f"SELECT count(DISTINCT {aggregate}) FROM people WHERE {where}{group}"
            [task] = tasks(gate, sql)
            changed = squares(oracle, aggregate, where, keys)
            if task.cost is None:
                assert not changed or not any(changed.values()), sql
                continue
            rho = Fraction(task.noise.scale**2, 2 * 4**task.noise.bits)
            paid = {cell: booked(task.cost, cell) for cell in CELLS}
            for number, unit in enumerate(everyone):
                shares = sum(paid[cell] for cell in unit) + paid[unit[0]] * (limit - len(unit))
                assert rho * changed[number] * limit <= shares, (sql, unit)
            assert max(paid.values()) <= rho * max(changed.values()) + Fraction(1, 2**50), sql


@pytest.mark.parametrize("budget", [Fraction(1, 100), Fraction(3, 7)])
def test_a_budget_is_spent_to_the_last_thousandth_and_not_passed(gate: Gate, budget: Fraction) -> None:
    session = gate.session()
    session.execute(f"SET noisegate.rho = {float(budget)}")
    for aggregate, keys in itertools.product(("who", "a", "b"), ("", " GROUP BY b", " GROUP BY a, b")):
        rho = session.explain(f"SELECT count(DISTINCT {aggregate}) FROM people{keys}").rho
        assert budget * Fraction(999, 1000) < rho <= budget * Fraction(1000001, 1000000)


def test_grouping_sets_are_questions_of_their_own(gate: Gate) -> None:
    """A unit changes the total by 1 and the two groups by as many as it has rows for: each set pays for itself."""
    limit = gate.policy.tables["people"].max_rows_per_unit
    total, both = (
        gate.session().explain(f"SELECT count(DISTINCT who) FROM people{g}").rho for g in ("", " GROUP BY ROLLUP (b)")
    )
    assert abs(both - total * (1 + min(limit, 2))) <= Fraction(3, 2**50)


def test_what_is_released_about_disjoint_parts_is_shared_where_that_is_not_dearer(tmp_path: Path) -> None:
    """As many groups as rows: the cells that do not count stay free, as they do for k = 1."""
    table = 'privacy_unit = "who"\nmax_rows_per_unit = 2\n'
    gate = open_gate(tmp_path, "SELECT 1 AS who, 1 AS a, 'x' AS b", columns=COLUMNS, table=table)
    [wide], [narrow] = (
        tasks(gate, f"SELECT count(DISTINCT who) FROM people WHERE a = 1{group}") for group in (" GROUP BY b", "")
    )
    gate.close()
    assert wide.cost is not None
    assert narrow.cost is not None
    assert [booked(wide.cost, (a, "x")) > 0 for a in range(4)] == [False, True, False, False]
    assert narrow.cost.scope == ()
    assert wide.cost.highest == pytest.approx(2 * narrow.cost.highest, abs=2)
