"""Whole marginals, however large, are planned part by part: nothing known is paid for twice, and answers agree.

False alarms of the statistical tests together are below 1e-6; each states its power.
"""

from __future__ import annotations

import itertools
import math
import tracemalloc
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from scipy.stats import chi2, norm

from mechanisms.least import marginals as helmert
from planner.cells.workspace import Axis, Workspace
from planner.gate import Gate
from planner.history import marginals, recall
from planner.history.chart import Chart
from planner.history.marginals import MarginalEvidence
from planner.ledger.accounts import Release
from planner.plans.marginals import MarginalTask, planned
from planner.plans.plan import Plan
from planner.questions import body
from planner.session import Session
from planner.sql import statement
from tests.mechanisms.matrices import known_from
from tests.planner.gates import open_gate, switch_noise_off

COLUMNS = """
sex = { values = ["F", "M"] }
region = { values = ["n", "e", "s", "w", "c"] }
level = { type = "integer", min = 1, max = 9 }
age = { type = "integer", min = 0, max = 99 }
hour = { type = "integer", min = 0, max = 59 }
income = { type = "integer", min = 0, max = 1000, role = "measure" }
"""
ROWS = """SELECT CASE WHEN hash(i) % 3 = 0 THEN 'F' ELSE 'M' END AS sex,
    (['n', 'e', 's', 'w', 'c'])[1 + (hash(i + 1) % 5)::INTEGER] AS region,
    1 + (hash(i + 2) % 9)::INTEGER AS level, (hash(i + 3) % 100)::INTEGER AS age,
    (hash(i + 4) % 60)::INTEGER AS hour, (hash(i + 5) % 1001)::INTEGER AS income FROM range(20000) AS r(i)"""
ONE = float(Fraction(1, 2) * Fraction(1.959963984540054) ** 2 / 2500)
"""What one count at ± 50 costs."""

FINE = "SELECT sex, region, age, count(*) FROM people GROUP BY sex, region, age"
CUBE = "SELECT sex, region, age, count(*) FROM people GROUP BY CUBE(sex, region, age)"


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    found = open_gate(tmp_path, ROWS, columns=COLUMNS)
    yield found
    found.close()


@pytest.fixture
def session(gate: Gate) -> Session:
    return gate.session()


@pytest.fixture
def everything_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Send small questions on the way of the large ones, so that they can be checked against dense algebra."""
    monkeypatch.setattr(recall, "SMALL_MARGINALS", 0)
    monkeypatch.setattr(recall, "MAX_ASKED", 0)


def plan_of(session: Session, sql: str) -> Plan:
    query = statement.read(sql)
    assert isinstance(query, statement.Query)
    with session.gate.prepared(query) as ready:
        return session._plan(ready)


def task_of(session: Session, sql: str) -> MarginalTask:
    (task,) = plan_of(session, sql).tasks
    assert isinstance(task, MarginalTask)
    return task


def truth(session: Session, sql: str) -> dict[tuple[Any, ...], int]:
    source = session.gate.policy.path.parent / "people.parquet"
    rows = duckdb.execute(sql.replace("people", f"'{source}'")).fetchall()
    return {row[:-1]: row[-1] for row in rows}


def rows_of(session: Session, sql: str) -> dict[tuple[Any, ...], Any]:
    return {row[:-1]: row[-1] for row in session.execute(sql).rows}


# --- paths and costs ---------------------------------------------------------------------------------------


def test_one_large_marginal_costs_what_a_count_costs(session: Session) -> None:
    found = session.explain(FINE)
    assert found.path == "marginals"
    assert float(found.rho) == pytest.approx(ONE, rel=1e-5)
    assert found.errors["count"] == pytest.approx(50, rel=1e-5)
    assert found.errors["count"] <= 50


def test_a_cube_is_planned_together_for_less_than_its_sets_one_by_one(session: Session) -> None:
    found = session.explain(CUBE)
    assert found.path == "marginals"
    assert float(found.rho) < 0.75 * 8 * ONE
    assert float(found.rho) < found.ways["each set on its own"]
    assert len(plan_of(session, CUBE).paid) == 1


def test_sets_too_many_for_one_dense_problem_are_one_release(gate: Gate, session: Session) -> None:
    sets = "(age, hour), (hour, level), (age, level)"
    sql = f"SELECT age, hour, level, count(*) FROM people GROUP BY GROUPING SETS ({sets})"
    session.execute(sql)
    assert [release.kind for release in gate.ledger.releases()] == ["marginals"]
    assert session.execute(sql).cost == 0


def test_coarser_after_finer_is_free_when_it_is_accurate_enough(session: Session) -> None:
    session.execute(FINE)
    session.execute(f"SET noisegate.error = {50 * math.sqrt(2.01)}")
    coarser = "SELECT region, age, count(*) FROM people GROUP BY region, age"
    assert session.explain(coarser).path == "free"
    assert session.execute(coarser).cost == 0


def test_finer_after_coarser_is_cheaper_than_afresh(session: Session) -> None:
    session.execute("SELECT region, age, count(*) FROM people GROUP BY region, age")
    assert 0 < float(session.execute(FINE).cost) < 0.9 * ONE


def test_a_coarser_cut_of_a_column_uses_what_a_finer_one_told(session: Session) -> None:
    session.execute("SELECT region, age, hour, count(*) FROM people GROUP BY region, age, hour")
    session.execute(f"SET noisegate.error = {50 * math.sqrt(5 * 60 * 1.01)}")
    coarser = "SELECT region, age/5 AS a, hour/5 AS h, count(*) FROM people GROUP BY 1, 2, 3"
    assert session.execute(coarser).cost == 0  # 5 * 5 cells each
    session.execute(f"SET noisegate.error = {50 * math.sqrt(11 * 11 * 1.01)}")
    uneven = "SELECT region, age/11 AS a, hour/11 AS h, count(*) FROM people GROUP BY 1, 2, 3"
    assert session.execute(uneven).cost == 0


def test_a_sharper_error_pays_the_difference_only_even_if_it_is_the_same_again(session: Session) -> None:
    first = session.execute(FINE).cost
    session.execute(f"SET noisegate.error = {50 / math.sqrt(2)}")
    second = session.execute(FINE).cost
    assert float(second) == pytest.approx(float(first), rel=1e-4)
    assert session.explain(FINE).errors["count"] <= 50 / math.sqrt(2) * (1 + 1e-9)
    assert session.execute(FINE).cost == 0


def test_a_plain_release_of_a_small_marginal_is_known_to_large_questions(session: Session) -> None:
    assert session.explain("SELECT age, count(*) FROM people GROUP BY age").path == "direct"
    session.execute("SELECT age, count(*) FROM people GROUP BY age")
    found = session.explain("SELECT age, region, sex, count(*) FROM people GROUP BY ROLLUP(age, region, sex)")
    assert found.path == "marginals"
    assert found.releases == (1,)
    assert found.known > 0.2


def test_asked_again_it_is_free_and_the_same(session: Session) -> None:
    first = session.execute(CUBE)
    again = session.execute(CUBE)
    assert (again.cost, again.rows, again.intervals) == (0, first.rows, first.intervals)


def test_another_gate_on_the_same_ledger_knows_it(gate: Gate, session: Session) -> None:
    first = session.execute(CUBE)
    other = Gate.open(gate.policy.path)
    try:
        found = other.session().execute(CUBE)
        assert (found.cost, found.rows) == (0, first.rows)
    finally:
        other.close()


def test_other_data_do_not_reuse_it(gate: Gate, session: Session) -> None:
    session.execute(FINE)
    gate.refresh("people")
    assert float(session.execute(FINE).cost) == pytest.approx(ONE, rel=1e-5)


def test_as_of_gives_the_earlier_answer_to_the_digit(session: Session) -> None:
    session.execute("SELECT age, count(*) FROM people GROUP BY age")
    first = session.execute(FINE)
    session.execute("SET noisegate.error = 20")
    session.execute(CUBE)
    session.execute("SET noisegate.error = 50")
    assert session.execute(FINE).intervals != first.intervals
    session.execute("SET noisegate.as_of = 2")
    again = session.execute(FINE)
    assert (again.rows, again.intervals) == (first.rows, first.intervals)


@pytest.mark.parametrize("rho", ["0.000001", "0.0001", "0.01"])
def test_a_budget_buys_at_most_itself(session: Session, rho: str) -> None:
    session.execute("SELECT region, age, count(*) FROM people GROUP BY region, age")
    session.execute(f"SET noisegate.rho = {rho}")
    assert session.explain(CUBE).rho <= Fraction(rho)
    session.execute(CUBE)
    assert session.execute(CUBE).cost == 0


def test_a_unit_of_several_rows_pays_their_square(tmp_path: Path) -> None:
    select = f"SELECT *, i FROM ({ROWS.replace('SELECT CASE', 'SELECT i, CASE')})"
    gate = open_gate(tmp_path, select, columns=COLUMNS, table='privacy_unit = "i"\nmax_rows_per_unit = 3', rest="")
    try:
        assert float(gate.session().explain(FINE).rho) == pytest.approx(9 * ONE, rel=1e-5)
    finally:
        gate.close()


# --- what breaks the symmetry ------------------------------------------------------------------------------

BREAKERS = {
    "a filter": "SELECT sex, region, age, count(*) FROM people WHERE level <= 4 GROUP BY sex, region, age",
    "a filter on the aggregate": "SELECT region, age, count(*) FILTER (WHERE sex = 'F') FROM people GROUP BY 1, 2",
    "a sum": "SELECT region, age, sum(income) FROM people GROUP BY region, age",
    "a sum beside it": "SELECT region, age, count(*), sum(income) FROM people GROUP BY region, age",
    "two cuts of a column": "SELECT age, region, count(*) FROM people GROUP BY GROUPING SETS ((age, region), (age/10))",
    "two columns in a key": "SELECT age + level, hour, count(*) FROM people GROUP BY age + level, hour",
}


@pytest.mark.parametrize("why", BREAKERS)
def test_what_breaks_the_symmetry_is_measured_as_before(
    session: Session, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    switch_noise_off(monkeypatch)
    found = session.explain(BREAKERS[why])
    assert found.path == "direct"
    rows = session.execute(BREAKERS[why]).rows
    assert len(rows) > 384


def test_a_condition_that_always_holds_breaks_nothing(session: Session) -> None:
    sql = "SELECT region, age, count(*), count(sex) FROM people WHERE level > 4 OR level <= 4 GROUP BY region, age"
    assert session.explain(sql).path == "marginals"


def test_null_is_a_group_like_any_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    switch_noise_off(monkeypatch)
    select = "SELECT CASE WHEN i % 7 > 0 THEN i % 30 END AS a, i % 20 AS b FROM range(5000) AS r(i)"
    columns = (
        'a = { type = "integer", min = 0, max = 29, nullable = true }\nb = { type = "integer", min = 0, max = 19 }'
    )
    gate = open_gate(tmp_path, select, columns=columns)
    try:
        session, sql = gate.session(), "SELECT a, b, count(*) FROM people GROUP BY a, b"
        assert session.explain(sql).path == "marginals"
        expected = truth(session, sql)
        assert {key: n for key, n in rows_of(session, sql).items() if n} == expected
    finally:
        gate.close()


# --- answers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "stream",
    [
        [FINE, CUBE],
        ["SELECT region, age, count(*) FROM people GROUP BY region, age", FINE, CUBE],
        ["SELECT age, count(*) FROM people GROUP BY age", CUBE, "SELECT sex, count(*) FROM people GROUP BY sex"],
        ["SELECT age, hour, count(*) FROM people GROUP BY CUBE(age, hour)",
         "SELECT age/7, hour/10, count(*) FROM people GROUP BY ROLLUP(age/7, hour/10)",
         "SELECT hour, region, age/10, count(*) FROM people GROUP BY hour, region, age/10",
         "SELECT count(*) FROM people WHERE age < 33 AND hour = 7"],
    ],
)  # fmt: skip
def test_every_answer_is_exact_without_noise(
    session: Session, stream: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    switch_noise_off(monkeypatch)
    for error in (50, 20):
        session.execute(f"SET noisegate.error = {error}")
        for sql in stream:
            expected = truth(session, sql.replace("age/", "age//").replace("hour/", "hour//"))
            assert {key: n for key, n in rows_of(session, sql).items() if n} == {k: n for k, n in expected.items() if n}


def test_totals_are_the_sums_of_their_parts_up_to_rounding(session: Session) -> None:
    session.execute("SELECT region, age, count(*) FROM people GROUP BY region, age")
    session.execute(FINE)
    found = rows_of(session, CUBE)
    for pattern in itertools.product([True, False], repeat=3):
        coarse: dict[tuple[Any, ...], list[int]] = {}
        for key, n in found.items():
            if None not in key:
                coarse.setdefault(tuple(k if keep else None for k, keep in zip(key, pattern, strict=True)), []).append(
                    n
                )
        for key, parts in coarse.items():
            assert abs(sum(parts) - found[key]) <= 0.5 * (len(parts) + 1), key
    assert abs(rows_of(session, "SELECT count(*) FROM people")[()] - found[None, None, None]) <= 1


def told_by(gate: Gate, release: Release) -> MarginalEvidence:
    found = marginals.read(release, gate.policy.tables["people"])
    assert found is not None
    return found


SMALL = "SELECT sex, region, level, count(*) FROM people GROUP BY {}"


@pytest.mark.parametrize(
    "sets",
    ["CUBE(sex, region, level)", "sex, level", "GROUPING SETS ((sex, region), (level), ())", "ROLLUP(level, sex)"],
)
def test_plans_of_small_questions_are_those_of_the_dense_algebra(
    everything_is_large: None, session: Session, sets: str
) -> None:
    """The variances are those of the rows as they are stored, solved densely; and no plan is dearer than its bound."""
    select = ", ".join(column for column in ("sex", "region", "level") if column in sets)
    session.execute("SELECT region, level, count(*) FROM people GROUP BY region, level")
    sql = f"SELECT {select}, count(*) FROM people GROUP BY {sets}"
    task = task_of(session, sql)
    sizes = task.question.workspace.shape
    rows = [_placed(found, task.question.workspace) for found in task.told]
    rows += [_standardised(part.A, sizes, part.precision) for part in task.made]
    B = np.vstack(rows)
    for A, variance in zip(task.question.sets, task.variances[:, 0], strict=True):
        W = _kron([np.eye(n) if i in A else np.ones((1, n)) for i, n in enumerate(sizes)])
        np.testing.assert_allclose(known_from(B).variances(W), variance, rtol=1e-6)
        assert variance <= (50 / session.settings.z) ** 2
    assert task.cost is not None
    new = np.vstack([_standardised(part.A, sizes, part.precision) for part in task.made])
    np.testing.assert_allclose((new**2).sum(axis=0) / 2, task.cost.highest / 2**50, rtol=1e-5)


def _kron(factors: list[np.ndarray]) -> np.ndarray:
    found = np.ones((1, 1))
    for factor in factors:
        found = np.kron(found, factor)
    return found


def _helmert(n: int) -> np.ndarray:
    return np.array([[1] * j + [-j] + [0] * (n - j - 1) for j in range(1, n)]).reshape(n - 1, n)


def _standardised(A: tuple[int, ...], sizes: tuple[int, ...], precision: float) -> np.ndarray:
    rows = _kron([_helmert(n) if i in A else np.ones((1, n)) for i, n in enumerate(sizes)])
    norms = helmert.squares(tuple(sizes[i] for i in A)).ravel()
    return rows * np.sqrt(precision / norms)[:, None]


def _placed(found: MarginalEvidence, workspace: Workspace) -> np.ndarray:
    return np.vstack([_standardised(A, workspace.shape, e) for A, e in found.precisions.items()])


@pytest.mark.parametrize(
    "sql",
    [
        SMALL.format("CUBE(sex, region, level)"),
        SMALL.format("sex, region, level"),
        SMALL.format("ROLLUP(level, sex, region)"),
    ],
)
def test_the_booked_cost_is_at_least_what_every_cell_pays(
    everything_is_large: None, gate: Gate, session: Session, sql: str
) -> None:
    """|B e|^2 / 2 of every cell, in fractions, from the rows that the stored release says it used."""
    session.execute("SELECT region, level, count(*) FROM people GROUP BY region, level")
    session.execute(sql)
    releases = [r for r in gate.ledger.releases() if r.kind == "marginals"]
    assert len(releases) == 2
    for release in releases:
        found = body.read_marginals(release, gate.policy.tables["people"])
        assert found is not None
        workspace, parts = found
        sizes = workspace.shape
        paid = [Fraction(0)] * math.prod(sizes)
        for made, y in parts:
            rows = _kron([_helmert(n) if i in made.A else np.ones((1, n)) for i, n in enumerate(sizes)]).astype(int)
            k = [int(value) for value in made.multipliers(tuple(sizes[i] for i in made.A)).ravel()]
            assert len(k) == len(rows) == len(y)
            for cell in range(len(paid)):
                total = sum((value * int(row[cell])) ** 2 for value, row in zip(k, rows, strict=True))
                paid[cell] += Fraction(total, 2 * 4**made.bits)
        booked = Fraction(release.cost.highest, 2**50)
        assert release.cost.scope == ()
        assert max(paid) <= booked <= min(paid) * (1 + Fraction(1, 10**5))


# --- noise -------------------------------------------------------------------------------------------------

FALSE_ALARM = 1e-8


def is_standard_normal(z: np.ndarray) -> bool:
    """Two exact tests of the sum of squares and of the sum, each with half the false alarm."""
    low, high = chi2.isf(1 - FALSE_ALARM / 4, z.size), chi2.isf(FALSE_ALARM / 4, z.size)
    return bool(low <= (z**2).sum() <= high and abs(z.sum()) <= norm.isf(FALSE_ALARM / 4) * math.sqrt(z.size))


def chance_to_miss(size: int, *, scale: float) -> float:
    low, high = chi2.isf(1 - FALSE_ALARM / 4, size), chi2.isf(FALSE_ALARM / 4, size)
    return float(chi2.cdf(high / scale**2, size) - chi2.cdf(low / scale**2, size))


def test_every_coefficient_has_the_noise_that_was_charged(gate: Gate, session: Session) -> None:
    """y - k (r x) over 2^bits is N(0, 1); a deviation a tenth too small or too large is missed below 1e-5."""
    sql = "SELECT age, hour, count(*) FROM people GROUP BY CUBE(age, hour)"
    task = task_of(session, sql)
    x = np.zeros((100, 60), dtype=np.int64)
    for key, n in truth(session, "SELECT age, hour, count(*) FROM people GROUP BY age, hour").items():
        x[key] = n
    z = []
    for made, y in zip(task.made, gate.meters["people"].helmert(task.question.workspace, task.made), strict=True):
        marginal = x.sum(axis=tuple(i for i in range(2) if i not in made.A))
        k = made.multipliers(marginal.shape).ravel().astype(int)
        exact = helmert.coefficients(marginal).ravel()
        z += [(told - int(m) * int(t)) / 2**made.bits for told, m, t in zip(y, k, np.atleast_1d(exact), strict=True)]
    assert len(z) == 6000
    assert is_standard_normal(np.array(z))
    assert max(chance_to_miss(6000, scale=0.9), chance_to_miss(6000, scale=1.1)) < 1e-5


def test_stated_errors_of_a_topped_up_marginal_are_the_real_ones(session: Session) -> None:
    """Two releases of one marginal, of which the first was made for other columns: z of its 6,000 cells.

    Parts of a marginal that is not plain have correlated cells; here all parts reach the same precision per cell, so
    the cells are independent. Errors stated a tenth too small or too large are missed below 1e-5.
    """
    sql = "SELECT age, hour, count(*) FROM people GROUP BY age, hour"
    session.execute("SELECT sex, age, hour, count(*) FROM people GROUP BY sex, age, hour")
    session.execute("SET noisegate.error = 40")
    found, expected = session.execute(sql), truth(session, sql)
    assert found.cost > 0
    middles = np.array([sum(row[2]) / 2 for row in found.intervals if row[2] is not None])
    halves = np.array([(row[2][1] - row[2][0]) / 2 for row in found.intervals if row[2] is not None])
    np.testing.assert_allclose(halves, 40, rtol=1e-5)
    exact = np.array([expected.get(row[:2], 0) for row in found.rows])
    assert is_standard_normal((middles - exact) / (halves / session.settings.z))
    assert max(chance_to_miss(6000, scale=0.9), chance_to_miss(6000, scale=1.1)) < 1e-5


# --- what small questions learn from it --------------------------------------------------------------------


def test_small_questions_after_a_large_one_are_free(session: Session) -> None:
    session.execute(CUBE)
    for sql in (
        "SELECT sex, count(*) FROM people GROUP BY sex",
        "SELECT count(*) FROM people WHERE sex = 'F'",
        "SELECT count(*) FROM people WHERE region IN ('n', 'e') AND sex = 'M'",
        "SELECT count(*) FROM people",
    ):
        assert session.explain(sql).path in ("free", "join")
        session.execute("SET noisegate.error = 75")
        assert session.execute(sql).cost == 0, sql
        session.execute("SET noisegate.error = 50")


def told_in_full(
    workspace: Workspace, parts: list[tuple[int, ...]], generator: np.random.Generator
) -> tuple[MarginalEvidence, Any]:
    """Return what a release of random precisions tells, and its coefficients as standardised rows and values."""
    precisions = {A: float(generator.uniform(0.2, 3)) for A in parts}
    tables, rows, y = {}, [], []
    for A, precision in precisions.items():
        norms = helmert.squares(tuple(workspace.shape[i] for i in A))
        told = generator.normal(size=norms.shape)
        tables[A] = helmert.centred(told * np.sqrt(norms / precision))
        rows.append(_standardised(A, workspace.shape, precision))
        y.append(told.ravel())
    return MarginalEvidence(1, workspace, precisions, tables.__getitem__), (np.vstack(rows), np.concatenate(y))


def axis(gate: Gate, column: str, atoms: list[int]) -> Axis:
    domain = gate.policy.tables["people"].columns[column].domain
    assert domain is not None
    numbers = np.array(atoms, dtype=np.int64)
    return Axis(column, domain, numbers, np.unique(numbers, return_index=True)[1].astype(np.int64))


EVERY = [(), (0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)]


@pytest.mark.parametrize("parts", [EVERY, [(), (0,), (0, 1)], [(0, 1, 2)], [(1,), (0, 2), (0, 1, 2)]])
@pytest.mark.parametrize(
    "cuts",
    [
        {"level": [0, 0, 0, 1, 1, 1, 1, 2, 2], "region": [0, 0, 0, 0, 1], "sex": [0, 1]},
        {"level": [0, 1, 1, 1, 1, 1, 1, 1, 1], "sex": [0, 1]},
        {"region": [0, 1, 2, 3, 4]},
        {},
    ],
)
def test_evidence_tells_about_coarser_cells_what_the_release_tells(
    gate: Gate, parts: list[tuple[int, ...]], cuts: dict[str, list[int]]
) -> None:
    """Variances and estimates of all that can be asked on the coarser cells equal those of the dense algebra."""
    whole = [axis(gate, "level", list(range(9))), axis(gate, "region", list(range(5))), axis(gate, "sex", [0, 1])]
    workspace = Workspace(gate.policy.tables["people"], tuple(whole))
    told, (B, y) = told_in_full(workspace, parts, np.random.default_rng(3))
    found = marginals.evidence(told, {column: axis(gate, column, atoms) for column, atoms in cuts.items()})
    fold = _kron([
        np.equal.outer(np.arange(max(cuts[a.column]) + 1), cuts[a.column]) * 1.0 if a.column in cuts
        else np.ones((1, a.size)) for a in whole
    ])  # fmt: skip
    W = np.vstack([np.eye(len(fold)), np.random.default_rng(4).normal(size=(5, len(fold)))])
    expected = known_from(B).variances(W @ fold)
    if not found:
        assert np.isinf(expected).all()
        return
    axes = tuple(axis(gate, a.column, cuts[a.column]) for a in whole if a.column in cuts)
    chart = Chart(Workspace(gate.policy.tables["people"], axes), ())
    assert chart.size == len(fold)
    rows = np.vstack([chart.place(part, part.rows) for part in found])
    np.testing.assert_allclose(known_from(rows).variances(W), expected, rtol=1e-6)
    _same_answers(W, rows, np.concatenate([part.y[0] for part in found]), W @ fold, B, y)


def _same_answers(W: np.ndarray, rows: np.ndarray, told: np.ndarray, wide: np.ndarray, B: np.ndarray, y: Any) -> None:
    known = np.isfinite(known_from(B).variances(wide))
    one = W[known] @ np.linalg.pinv(rows) @ told
    other = wide[known] @ np.linalg.pinv(B) @ y
    np.testing.assert_allclose(one, other, atol=1e-7)


def test_evidence_stands_on_charts(gate: Gate, session: Session) -> None:
    session.execute(CUBE)
    (release,) = gate.ledger.releases()
    cut = axis(gate, "age", [0] * 30 + [1] * 70)
    found = marginals.evidence(told_by(gate, release), {"age": cut})
    chart = Chart(Workspace(gate.policy.tables["people"], (cut, axis(gate, "sex", [0, 1]))), ())
    assert all(chart.fits(part) for part in found)
    assert sum(len(chart.place(part, part.rows)) for part in found) == 2


def test_parts_of_too_many_cells_are_left_out_and_the_others_are_right(gate: Gate, session: Session) -> None:
    session.execute("SELECT age, hour, count(*) FROM people GROUP BY age, hour")
    (release,) = gate.ledger.releases()
    whole = {"age": axis(gate, "age", list(range(100))), "hour": axis(gate, "hour", list(range(60)))}
    found = marginals.evidence(told_by(gate, release), whole)
    assert sorted([a.column for a in part.workspace.axes] for part in found) == [[], ["age"], ["hour"]]
    chart = Chart(Workspace(gate.policy.tables["people"], (whole["hour"],)), ())
    rows = np.vstack([chart.place(part, part.rows) for part in found if chart.fits(part)])
    target = (50 / session.settings.z) ** 2
    np.testing.assert_allclose(known_from(rows).variances(np.eye(60)), 100 * target, rtol=1e-5)


def test_a_finer_chart_forgets_nothing_of_large_marginals(gate: Gate, session: Session) -> None:
    session.execute("SELECT sex, age, hour, count(*) FROM people GROUP BY CUBE (sex, age, hour)")
    sql = "SELECT sex, count(*) FROM people WHERE age < 50 GROUP BY sex"
    session.execute("SET noisegate.error = 400")
    assert session.execute(sql).cost == 0
    session.execute("SET noisegate.error = 5")
    session.execute("SELECT hour, count(*) FROM people WHERE hour < 30 AND sex = 'F' GROUP BY hour")
    session.execute("SET noisegate.error = 400")
    assert session.execute(sql).cost == 0


def test_a_table_that_was_summed_before_is_counted(session: Session) -> None:
    session.execute("SELECT age, hour, sum(income) FROM people GROUP BY age, hour")
    assert len(session.execute("SELECT age, hour, count(*) FROM people GROUP BY age, hour").rows) == 6000


# --- folding -----------------------------------------------------------------------------------------------


def test_uneven_cuts_state_at_least_the_variance_that_they_have(gate: Gate) -> None:
    whole = (axis(gate, "level", list(range(9))), axis(gate, "sex", [0, 1]))
    workspace = Workspace(gate.policy.tables["people"], whole)
    y = np.arange(18.0).reshape(9, 2)
    plain = MarginalEvidence(1, workspace, helmert.plain((9, 2), (0, 1), 2.0), _parts_of(y).__getitem__)
    cut = axis(gate, "level", [0, 0, 0, 1, 1, 1, 1, 2, 2])
    found = marginals.onto(plain, Workspace(workspace.table, (cut, whole[1])))
    assert helmert.cell_variance((3, 2), found.precisions, (0, 1)) == pytest.approx(2.0 * 4)
    parts = {A: found.table(A) for A in found.precisions}
    expected = np.array([y[:3].sum(axis=0), y[3:7].sum(axis=0), y[7:].sum(axis=0)])
    np.testing.assert_allclose(helmert.reconstructed((3, 2), parts, (0, 1)), expected, atol=1e-9)


def _parts_of(y: np.ndarray) -> dict[tuple[int, ...], np.ndarray]:
    mean, rows, columns = y.sum(), y.sum(axis=1), y.sum(axis=0)
    return {
        (): np.array(mean),
        (0,): rows - rows.mean(),
        (1,): columns - columns.mean(),
        (0, 1): y - y.mean(axis=0) - y.mean(axis=1, keepdims=True) + y.mean(),
    }


def test_a_release_that_is_not_plain_gives_what_does_not_touch_an_uneven_cut(gate: Gate) -> None:
    whole = (axis(gate, "level", list(range(9))), axis(gate, "sex", [0, 1]))
    workspace = Workspace(gate.policy.tables["people"], whole)
    told, _ = told_in_full(workspace, [(), (0,), (1,), (0, 1)], np.random.default_rng(1))
    cut = axis(gate, "level", [0, 0, 0, 1, 1, 1, 1, 2, 2])
    found = marginals.onto(told, Workspace(workspace.table, (cut, whole[1])))
    assert dict(found.precisions) == {A: told.precisions[A] for A in ((), (1,))}
    np.testing.assert_allclose(found.table((1,)), told.table((1,)))


def test_even_cuts_lose_nothing(gate: Gate) -> None:
    whole = (axis(gate, "level", list(range(9))), axis(gate, "sex", [0, 1]))
    workspace = Workspace(gate.policy.tables["people"], whole)
    told, (B, _) = told_in_full(workspace, [(), (0,), (1,), (0, 1)], np.random.default_rng(1))
    coarse = Workspace(workspace.table, (axis(gate, "level", [0, 1, 2] * 3), whole[1]))
    found = marginals.onto(told, coarse)
    fold = _kron([np.equal.outer(np.arange(3), [0, 1, 2] * 3) * 1.0, np.eye(2)])
    for A in ((), (0,), (1,), (0, 1)):
        W = _kron([np.eye(n) if i in A else np.ones((1, n)) for i, n in enumerate((3, 2))]) @ fold
        np.testing.assert_allclose(
            known_from(B).variances(W), helmert.cell_variance((3, 2), found.precisions, A), rtol=1e-6
        )


# --- size --------------------------------------------------------------------------------------------------


def test_sixty_thousand_groups_take_memory_in_proportion(gate: Gate, session: Session) -> None:
    """Planning and drawing 60,000 counts takes less than a kilobyte a group: nothing is formed for pairs of groups."""
    task = task_of(session, "SELECT region, sex, age, hour, count(*) FROM people GROUP BY region, sex, age, hour")
    assert len(task.question.cells[0]) == 60_000
    tracemalloc.start()
    try:
        again = planned(task.question, task.recipes, (), version=1, target=600.0)
        again.draw(gate.meters["people"])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 60_000 * 1024


def test_sixty_thousand_groups_are_answered_exactly_without_noise(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    switch_noise_off(monkeypatch)
    sql = "SELECT region, sex, age, hour, count(*) FROM people GROUP BY region, sex, age, hour"
    found = rows_of(session, sql)
    assert len(found) == 60_000
    assert {key: n for key, n in found.items() if n} == truth(session, sql)
