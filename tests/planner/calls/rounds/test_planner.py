"""The workshop: one plan for all queries is the least that a semidefinite solver finds, and never dearer than many."""

from __future__ import annotations

import random
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mechanisms.gaussian.known import nothing_known
from planner.basics.errors import TooLarge
from planner.calls.rounds import planner
from planner.calls.rounds.model import Joint, RoundPlan, RoundQuery
from planner.calls.rounds.planner import Workshop, identity, is_shareable, separately
from planner.cells.costs import rho_of
from planner.gate import Gate
from tests.planner.calls.rounds.questions import least_cost
from tests.planner.calls.rounds.shop import (
    ALL,
    BY_G,
    BY_H,
    CELLS,
    LOW,
    MEDIAN,
    SUMS,
    enlisted,
    everywhere,
    linear_rows,
    opened,
    released_rows,
    workshop,
)


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    made = opened(tmp_path_factory.mktemp("planner"))
    yield made
    made.close()


@pytest.fixture
def shop(gate: Gate) -> Workshop:
    return workshop(gate)


def targets(queries: list[RoundQuery]) -> np.ndarray:
    """Return the variance that each answer of queries of counts may have."""
    each = [(query.settings.error / query.settings.z) ** 2 for query in queries]
    return np.concatenate([np.full(query.answers, c) for query, c in zip(queries, each, strict=True)])


@pytest.mark.parametrize("seed", range(4))
def test_one_plan_is_within_one_percent_of_what_a_semidefinite_solver_finds(
    gate: Gate, shop: Workshop, seed: int
) -> None:
    source = random.Random(seed)
    chosen = source.sample([ALL, BY_G, BY_H, LOW, CELLS], 3)
    queries = enlisted(gate, *(("ann", sql, source.choice([5.0, 10.0, 20.0])) for sql in chosen))
    found, chart = shop.together(queries), everywhere(gate)
    W, c = linear_rows(queries, chart), targets(queries)
    rows = released_rows(found.tasks, chart)
    variances = np.einsum("ij,jk,ik->i", W, np.linalg.pinv(rows.T @ rows), W)
    assert (variances <= c * (1 + 1e-6)).all()
    optimum = least_cost(W, c / 100, np.zeros((0, chart.size))) / 200
    assert optimum * (1 - 1e-6) <= float(found.rho) <= optimum * 1.01
    assert found.bound is not None
    assert found.bound <= optimum * (1 + 1e-6)
    assert found.bound >= float(found.rho) * 0.99


def test_of_each_query_the_error_is_what_will_be_known_of_it(gate: Gate, shop: Workshop) -> None:
    queries = enlisted(gate, ("ann", BY_G, 10.0), ("bob", CELLS, 8.0), ("cal", ALL, 50.0))
    found, chart = shop.together(queries), everywhere(gate)
    assert found.asked == (10.0, 8.0, 50.0)
    rows = released_rows(found.tasks, chart)
    C = np.linalg.pinv(rows.T @ rows)
    for query, error in zip(queries, found.errors, strict=True):
        W = linear_rows([query], chart)
        worst = float(np.einsum("ij,jk,ik->i", W, C, W).max()) ** 0.5 * query.settings.z
        assert error == pytest.approx(worst, rel=1e-4)
        assert error <= query.settings.error * (1 + 1e-6)


def test_what_two_ask_alike_is_counted_once_one_by_one(gate: Gate, shop: Workshop) -> None:
    one, same, other = enlisted(gate, ("ann", BY_G, 10.0), ("bob", BY_G, 10.0), ("cal", BY_H, 10.0))
    alone = shop.each_alone([one])
    assert shop.each_alone([one, same]) == alone
    assert shop.each_alone([one, other]) == 2 * alone  # each charges all cells alike
    assert shop.together([one, same]).rho <= alone * Fraction(1001, 1000)


def test_planning_together_is_never_dearer_than_one_by_one(gate: Gate, shop: Workshop) -> None:
    queries = enlisted(gate, ("ann", MEDIAN, 20.0), ("bob", SUMS, 20.0), ("cal", BY_H, 10.0))
    assert shop.together(queries).rho <= shop.each_alone(queries)
    for query in queries:
        assert shop.together([query]).rho <= shop.each_alone([query])


def test_a_larger_scale_costs_as_much_less_as_its_square(gate: Gate, shop: Workshop) -> None:
    queries = enlisted(gate, ("ann", BY_G, 10.0), ("bob", LOW, 10.0))
    whole, quarter = shop.together(queries).rho, shop.together(queries, scale=2.0).rho
    assert float(quarter) == pytest.approx(float(whole) / 4, rel=0.01)


def test_savings_tell_what_ten_percent_more_error_saves(gate: Gate, shop: Workshop) -> None:
    queries = enlisted(gate, ("ann", BY_G, 10.0), ("bob", LOW, 10.0))
    found = shop.together(queries)
    relaxed = enlisted(gate, ("ann", BY_G, 11.0), ("bob", LOW, 10.0))
    saved = 1 - float(shop.together(relaxed).rho / found.rho)
    assert found.savings[0] == pytest.approx(saved, abs=0.02)
    assert sum(found.savings) == pytest.approx(1 - 1.1**-2, abs=0.01)


@pytest.mark.parametrize("solve", [None, identity])
@pytest.mark.parametrize("rho", [Fraction(1, 10), Fraction(1, 3000)])
def test_a_given_rho_is_spent_and_never_passed(gate: Gate, shop: Workshop, solve: object, rho: Fraction) -> None:
    queries = enlisted(gate, ("ann", BY_G, 10.0), ("bob", LOW, 3.0))
    found, scale = shop.spending(queries, rho, solve=solve)  # type: ignore[arg-type]
    assert rho * Fraction(95, 100) <= found.rho <= rho
    for query, error in zip(queries, found.errors, strict=True):
        assert error is not None
        assert error <= query.settings.error * scale * (1 + 1e-6)


def test_a_rho_that_is_a_little_less_than_all_would_cost_is_not_passed(gate: Gate, shop: Workshop) -> None:
    queries = enlisted(gate, ("ann", BY_G, 10.0), ("bob", LOW, 3.0))
    rho = shop.together(queries).rho * Fraction(100, 105)
    found, scale = shop.spending(queries, rho)
    assert found.rho <= rho
    assert scale > 1


def test_so_little_that_the_noise_has_no_grid_for_it_is_refused(gate: Gate, shop: Workshop) -> None:
    with pytest.raises(TooLarge, match="so little budget"):
        shop.spending(enlisted(gate, ("ann", BY_G, 10.0)), rho_of(1) / 2)


def test_utilitarian_sharing_keeps_to_rho_and_beats_scaling_all_errors_alike(gate: Gate, shop: Workshop) -> None:
    queries, rho = enlisted(gate, ("ann", BY_G, 10.0), ("bob", CELLS, 10.0), ("bob", LOW, 4.0)), Fraction(1, 50)
    weights = {"ann": Fraction(1), "bob": Fraction(1)}
    found = shop.shared(queries, "utilitarian", rho, weights)
    assert found is not None
    assert found.rho <= rho
    chart = everywhere(gate)
    W, c = linear_rows(queries, chart), targets(queries)
    scaled, _ = shop.spending(queries, rho)
    assert _total(released_rows(found.tasks, chart), W, c) < _total(released_rows(scaled.tasks, chart), W, c)


def _total(rows: np.ndarray, W: np.ndarray, c: np.ndarray) -> float:
    """Return the sum of all variances, each in what was asked for."""
    return float((np.einsum("ij,jk,ik->i", W, np.linalg.pinv(rows.T @ rows), W) / c).sum())


def test_what_is_no_problem_of_counts_and_sums_is_not_shared(gate: Gate, shop: Workshop) -> None:
    queries = enlisted(gate, ("ann", BY_G, 10.0), ("bob", MEDIAN, 10.0))
    assert shop.shared(queries, "utilitarian", Fraction(1, 50), {"ann": Fraction(1), "bob": Fraction(1)}) is None


def test_a_plan_of_given_tasks_tells_what_these_tell(gate: Gate, shop: Workshop) -> None:
    queries = enlisted(gate, ("ann", BY_G, 10.0), ("bob", CELLS, 5.0))
    own = shop.together(queries[1:])
    found = shop.having(queries, own.tasks)
    assert found.tasks == own.tasks
    assert found.errors[1] == pytest.approx(own.errors[0])
    assert found.errors[0] == pytest.approx(2 * own.errors[0])  # four cells are added up


def test_apart_everybody_has_releases_of_their_own_and_what_is_alike_is_the_first_ones(
    gate: Gate, shop: Workshop
) -> None:
    both = [(who, sql, 10.0) for who in ("ann", "bob") for sql in (BY_G, LOW)]
    queries = enlisted(gate, *both, ("bob", MEDIAN, 9.0), ("cal", MEDIAN, 9.0))
    plans = {name: shop.together([q for q in queries if q.entry.analyst == name]) for name in ("ann", "bob", "cal")}
    own = separately(plans)
    payers = {name: [task.payer for task in tasks if isinstance(task, Joint)] for name, tasks in own.items()}
    assert set(payers["ann"]) == {"ann"}
    assert set(payers["bob"]) == {"bob"}
    assert [len(own[name]) for name in own] == [len(plans["ann"].tasks), len(plans["bob"].tasks), 0]
    keys = [task.key for tasks in own.values() for task in tasks]
    assert len(set(keys)) == len(keys)


def test_only_counts_and_sums_are_planned_with_others(gate: Gate, shop: Workshop) -> None:
    queries = enlisted(gate, ("ann", BY_G, 10.0), ("ann", SUMS, 10.0), ("ann", MEDIAN, 10.0))
    assert [is_shareable(task) for query in queries for task in shop.alone(query).tasks] == [True, True, False]
    assert all(is_shareable(task) for task in shop.together(queries[:2]).tasks)


@settings(max_examples=40)
@given(st.integers(0, 2**32), st.integers(1, 6), st.integers(1, 5), st.integers(0, 3))
def test_identity_counts_every_cell_just_well_enough(seed: int, cells: int, rows: int, known: int) -> None:
    rng = np.random.default_rng(seed)
    W, c = rng.integers(0, 2, (rows, cells)) + np.eye(rows, cells), rng.uniform(0.2, 4, rows)
    B = rng.integers(0, 2, (known, cells)).astype(float)
    found = identity(nothing_known(cells).with_rows(B, np.zeros(known)), W, c)
    C = B.T @ B + found.rows.T @ found.rows
    worst = float((np.einsum("ij,jk,ik->i", W, np.linalg.pinv(C), W) / c).max())
    assert worst <= 1 + 1e-6
    assert found.cost == pytest.approx(float((found.rows**2).sum(axis=0).max(initial=0.0)))
    if len(found.rows):
        assert worst >= 1 - 1e-4  # less of the same would not do
        assert np.allclose(found.rows, found.rows[0, 0] * np.eye(cells))


def test_identity_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "MAX_IDENTITY_CELLS", 3)
    identity(nothing_known(3), np.ones((1, 3)), np.ones(1))
    with pytest.raises(TooLarge, match="4 cells are too many"):
        identity(nothing_known(4), np.ones((1, 4)), np.ones(1))


def test_the_price_of_a_query_alone_is_worked_out_once(gate: Gate, shop: Workshop) -> None:
    [query] = enlisted(gate, ("ann", BY_G, 10.0))
    assert shop.alone(query) is shop.alone(query)
    assert shop.alone(query, scale=2.0) is not shop.alone(query)
    half = shop.alone(query, scale=2.0).paid[0].cost
    whole = shop.alone(query).paid[0].cost
    assert half is not None
    assert whole is not None
    assert half.highest == pytest.approx(whole.highest / 4, rel=1e-3)


def test_the_planner_of_a_round_tells_which_population_a_table_has(shop: Workshop) -> None:
    assert shop.population("people") == "default"


def test_an_empty_plan_is_free(gate: Gate, shop: Workshop) -> None:
    found: RoundPlan = shop.having(enlisted(gate, ("ann", BY_G, 10.0)), [])
    assert (found.rho, found.path, found.tasks) == (0, "free", ())
