"""Groups that nobody is in do not count: decided from noisy counts, in one way wherever groups are put to use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np
import pytest
from scipy.stats import binom

from planner.basics.errors import BadValue
from planner.gate import Gate
from planner.plans import presence
from planner.session import Session
from tests.planner.gates import open_gate, switch_noise_off

DAYS, PLANS = 20, ("free", "home", "team")
ROWS = """
SELECT CASE WHEN i < 40 THEN 3 WHEN i < 90 THEN 4 ELSE 11 END AS day, CASE WHEN i % 2 = 0 THEN 'free' ELSE 'team' END
    AS plan, i % 9 AS used FROM range(100) AS r(i)
"""
COLUMNS = f"""
day = {{ type = "integer", min = 0, max = {DAYS - 1} }}
plan = {{ values = {list(PLANS)} }}
used = {{ type = "integer", min = 0, max = 8 }}
"""
ACROSS = [
    "SELECT count(*) FROM (SELECT DISTINCT day, plan FROM people) AS t",
    "SELECT avg(n), min(n), count(*) FROM (SELECT day, plan, count(*) AS n FROM people GROUP BY 1, 2) AS t",
    "SELECT count(*), min(v) > 0 FROM (SELECT day, avg(used) AS v FROM people GROUP BY 1) AS t",
    "SELECT count(*) FROM (SELECT day, sum(used) AS v FROM people GROUP BY 1) AS t",
    "SELECT count(*) FROM (SELECT day, count(DISTINCT used) FROM people GROUP BY 1) AS t",
    "SELECT count(*) FROM (SELECT day, median(used) FROM people GROUP BY 1) AS t",
    "SELECT DISTINCT count(*) FROM people GROUP BY day ORDER BY 1",
    "SELECT day, count(*) FROM people GROUP BY day ORDER BY 2, 1 LIMIT 2",
    "SELECT day FROM people GROUP BY day ORDER BY count(*) DESC LIMIT 2",
    "SELECT day, count(*) FROM people GROUP BY day ORDER BY 1 OFFSET 1",
    "SELECT day, count(*), rank() OVER (ORDER BY count(*)) FROM people GROUP BY day ORDER BY 1",
    "SELECT day, count(*) FROM people GROUP BY day HAVING count(*) < 45 ORDER BY 1",
    "SELECT day FROM people GROUP BY day UNION SELECT 7 ORDER BY 1",
    "SELECT day, count(*) FROM people GROUP BY day UNION ALL SELECT -1, count(*) FROM people ORDER BY 1",
    "SELECT a.day, a.n, b.n FROM (SELECT day, count(*) AS n FROM people GROUP BY 1) AS a LEFT JOIN "
    "(SELECT day, count(*) AS n FROM people WHERE plan = 'home' OR day = 4 GROUP BY 1) AS b USING (day) ORDER BY 1",
    "WITH t AS (SELECT day, count(*) AS n FROM people GROUP BY 1) SELECT max(day), count(*) FROM t WHERE n >= 0",
    "SELECT 7 IN (SELECT day FROM people GROUP BY day), EXISTS (SELECT 1 FROM people WHERE day = 9 GROUP BY plan)",
    "SELECT count(*) FROM (SELECT day, plan, count(*) FROM people GROUP BY ROLLUP (day, plan)) AS t",
]
LISTED = [
    ("SELECT day, count(*) FROM people GROUP BY day", DAYS),
    ("SELECT day, plan, count(*) FROM people GROUP BY 1, 2 ORDER BY 3 DESC LIMIT 60", 60),
    ("SELECT * FROM (SELECT day, avg(used) FROM people GROUP BY day) AS t ORDER BY day", DAYS),
    ("WITH t AS (SELECT day, count(*) AS n FROM people GROUP BY day) SELECT n, day FROM t LIMIT 1000", DAYS),
    ("SELECT DISTINCT plan FROM people", 3),
]


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    found = open_gate(tmp_path, ROWS, columns=COLUMNS, epsilon=1e5)
    yield found
    found.close()


@pytest.fixture
def session(gate: Gate) -> Session:
    found = gate.session()
    found.execute("SET noisegate.error = 0.3")
    return found


@pytest.fixture
def exact(session: Session, monkeypatch: pytest.MonkeyPatch) -> Session:
    switch_noise_off(monkeypatch)
    session.execute("SET noisegate.error = 0.2")
    return session


def expected(sql: str) -> list[tuple[object, ...]]:
    with duckdb.connect() as oracle:
        oracle.execute(f"CREATE TABLE people AS {ROWS}")
        return oracle.execute(sql).fetchall()


@pytest.mark.parametrize("sql", ACROSS)
def test_what_is_computed_across_groups_knows_those_that_have_rows(exact: Session, sql: str) -> None:
    found = exact.execute(sql)
    assert found.rows == expected(sql)
    assert found.notices
    assert "left out" in found.notices[0].message


@pytest.mark.parametrize(("sql", "groups"), LISTED)
def test_a_listing_has_every_group_of_the_domain_unless_the_present_ones_are_asked_for(
    exact: Session, sql: str, groups: int
) -> None:
    assert len(exact.execute(sql).rows) == groups
    exact.execute("SET noisegate.groups = 'present'")
    found = exact.execute(sql)
    assert sorted(found.rows) == sorted(expected(sql))
    assert "left out" in found.notices[0].message


@pytest.mark.parametrize("sql", ["SELECT count(*) FROM (SELECT DISTINCT day, plan FROM people) AS t"])
def test_all_groups_count_where_that_is_asked_for_and_no_count_is_paid(gate: Gate, sql: str) -> None:
    session = gate.session()
    session.execute("SET noisegate.groups = 'all'")
    found = session.execute(sql)
    assert found.rows == [(DAYS * len(PLANS),)]
    assert not found.cost
    session.execute("RESET noisegate.groups")
    assert session.explain(sql).rho > 0
    assert any("groups" in line and "at most an empty one" in line for line in session.explain(sql).lines)


def test_another_value_of_the_setting_is_refused(session: Session) -> None:
    with pytest.raises(BadValue, match="auto, present, all"):
        session.execute("SET noisegate.groups = 'some'")
    assert session.execute("SHOW noisegate.groups").rows == [("auto",)]


def test_a_listing_without_a_number_says_that_it_is_of_the_domain(session: Session) -> None:
    found = session.execute("SELECT DISTINCT plan FROM people")
    assert not found.cost
    assert "whether anybody is in it or not" in found.notices[0].message


def test_a_quantile_of_nobody_is_null_beside_a_count_and_said_to_be_anything_without(exact: Session) -> None:
    rows = exact.execute("SELECT plan, count(*), median(used) FROM people WHERE day = 4 GROUP BY plan").rows
    assert [(plan, n, middle is None) for plan, n, middle in rows] == [
        ("free", 25, False), ("home", 0, True), ("team", 25, False),
    ]  # fmt: skip
    alone = exact.execute("SELECT plan, median(used) FROM people WHERE day = 4 GROUP BY plan")
    assert [row[0] for row in alone.rows] == list(PLANS)
    assert "nobody is in" in alone.notices[0].message
    assert exact.execute("SELECT count(*), median(used) FROM people WHERE day = 5").rows == [(0, None)]


def test_the_same_statement_is_free_and_keeps_its_groups(session: Session) -> None:
    first = session.execute(ACROSS[1])
    again = session.execute(ACROSS[1])
    assert not again.cost
    assert (again.rows, again.notices) == (first.rows, first.notices)


CHANCE, TIMES, SIZE = 0.2, 400, 40


def test_an_empty_group_is_taken_to_have_rows_as_rarely_as_it_is_said(tmp_path: Path) -> None:
    """False alarm 1e-6. A bound of 1.5 deviations, at which nearly all of these domains would have one, is surely seen.

    The groups of one release, of a table of nobody, are taken as 400 domains of 40 groups each.
    """
    columns = f'g = {{ type = "integer", min = 0, max = {SIZE * TIMES - 1} }}'
    gate = open_gate(tmp_path, "SELECT 0 AS g WHERE false", columns=columns, epsilon=1e6)
    session = gate.session()
    result = session.execute("SELECT g, count(*) AS n, DP_STDDEV(n) FROM people GROUP BY g ORDER BY g")
    values, deviations = (np.array([row[i] for row in result.rows], dtype=float) for i in (1, 2))
    gate.close()
    times = presence.multiple_of(SIZE, confidence=1 - CHANCE)
    present = presence.has_rows({"a0": values, "sd0": deviations}, 0, times).reshape(TIMES, SIZE)
    most = int(binom.isf(1e-6, TIMES, CHANCE))
    assert present.any(axis=1).sum() <= most
    assert (values > 1.5 * deviations).reshape(TIMES, SIZE).any(axis=1).sum() > most
