"""Any two kinds of aggregate can stand in one expression: in the SELECT list, in HAVING and in ORDER BY.

With noise switched off, answers equal DuckDB's on the same rows, and an interval holds the answer and is no point.
"""

import itertools
import math
from collections.abc import Iterator

import duckdb
import pytest

from planner.gate import Gate
from planner.plans.result import Result
from tests.planner.gates import open_gate, switch_noise_off

ROWS = """
SELECT 'u' || (i % 60) AS person, CASE WHEN i < 31 THEN 'a' ELSE 'b' END AS city, i % 7 AS x, (i * 3) % 5 AS y
FROM range(120) AS r(i)
"""  # an odd number of rows in each city, so that no quantile lies between two values
COLUMNS = """
city = { values = ["a", "b"] }
x = { type = "integer", min = 0, max = 6 }
y = { type = "integer", min = 0, max = 4 }
"""
KINDS = {
    "rows": "count(*)",
    "some": "count(*) FILTER (WHERE x > 2)",
    "values": "count(DISTINCT x)",
    "people": "count(DISTINCT person)",
    "sum": "sum(y)",
    "mean": "avg(x)",
    "spread": "stddev(x)",
    "variance": "variance(y)",
    "middle": "median(x)",
    "level": "percentile_disc(0.75) WITHIN GROUP (ORDER BY y)",
}
PAIRS = list(itertools.combinations(KINDS, 2))


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    with pytest.MonkeyPatch.context() as patch:
        switch_noise_off(patch)
        table = 'privacy_unit = "person"\nmax_rows_per_unit = 2\n'
        found = open_gate(tmp_path_factory.mktemp("pairs"), ROWS, columns=COLUMNS, table=table, epsilon=1e6)
        yield found
        found.close()


@pytest.fixture(scope="module")
def oracle() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as found:
        found.execute(f"CREATE TABLE people AS {ROWS}")
        yield found


def answered(gate: Gate, sql: str) -> Result:
    session = gate.session()
    session.execute("SET noisegate.error = 0.4")
    return session.execute(sql)


def same(left: object, right: object) -> bool:
    if isinstance(left, str) or left is None or right is None:
        return left == right
    return math.isclose(float(left), float(right), rel_tol=1e-6, abs_tol=1e-9)  # type: ignore[arg-type]  # numbers


@pytest.mark.parametrize(("one", "other"), PAIRS, ids=["-".join(pair) for pair in PAIRS])
def test_two_kinds_of_aggregate_stand_in_one_expression(
    gate: Gate, oracle: duckdb.DuckDBPyConnection, one: str, other: str
) -> None:
    f, g = KINDS[one], KINDS[other]
    values = [f"{f} - {g}", f"{f} * {g}", f"1.0 * {f} / {g}", f"CASE WHEN {f} > {g} THEN {f} ELSE {g} END"]
    sql = f"SELECT city, {', '.join(values)} FROM people GROUP BY 1 HAVING {f} + {g} > -1000 ORDER BY {f} - {g}, city"
    found, expected = answered(gate, sql), oracle.execute(sql).fetchall()
    assert len(found.rows) == len(expected) == 2
    for row, right, intervals in zip(found.rows, expected, found.intervals, strict=True):
        assert all(same(x, y) for x, y in zip(row, right, strict=True))
        for value, interval in list(zip(row, intervals, strict=True))[1:]:
            if {one, other}.isdisjoint(("middle", "level")):  # whose intervals are asked for
                assert interval is not None
                assert interval[0] < value < interval[1]


def test_a_division_of_whole_numbers_has_the_interval_of_the_ratio_before_it_is_cut(gate: Gate) -> None:
    sql = "SELECT count(*) / count(DISTINCT x), 1.0 * count(*) / count(DISTINCT x) FROM people"
    (whole, exact), (cut, plain) = answered(gate, sql).rows[0], answered(gate, sql).intervals[0]
    assert whole == int(exact) == 17
    assert cut is not None
    assert plain is not None
    assert cut[1] - cut[0] == pytest.approx(plain[1] - plain[0])
