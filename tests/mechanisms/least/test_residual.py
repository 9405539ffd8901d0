from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mechanisms.gaussian.common import common, residual
from mechanisms.gaussian.known import nothing_known
from mechanisms.gaussian.linear import Matrix, Mechanism, independent, information, standardised
from mechanisms.least import residual as join_module
from mechanisms.least.minimax import fit
from mechanisms.least.residual import join_residual, join_to_targets, prices
from tests.mechanisms.matrices import families, known_from

seeds = st.integers(0, 2**32 - 1)


def ranges(d: int, count: int, rng: np.random.Generator) -> Matrix:
    """Return rows that count the cells of random ranges."""
    ends = np.sort(rng.integers(0, d, (count, 2)), axis=1)
    cells = np.arange(d)
    return ((cells >= ends[:, :1]) & (cells <= ends[:, 1:])).astype(float)


@given(families(count=2))
def test_join_is_feasible_idempotent_and_never_dearer_in_trace_than_common_residual(
    family: list[Mechanism],
) -> None:
    known, wanted = family
    B_known, B_wanted = standardised(known).B, standardised(wanted).B
    new = join_residual(known_from(B_known), B_wanted)
    both = np.vstack([B_known, new])
    lowest = np.linalg.eigvalsh(both.T @ both - information(wanted)).min()
    assert lowest > -1e-7
    assert (join_residual(known_from(both), B_wanted) ** 2).sum() < 1e-6
    rest = residual(wanted, common(known, wanted))
    assert (new**2).sum() <= (rest.B**2).sum() + 1e-6


@given(families(count=2, largest=4))
def test_join_with_few_rows_equals_the_positive_part_of_the_dense_difference(family: list[Mechanism]) -> None:
    known, wanted = family
    wide = [np.kron(standardised(M).B, np.ones((1, 6))) for M in (known, wanted)]
    eigenvalues, vectors = np.linalg.eigh(wide[1].T @ wide[1] - wide[0].T @ wide[0])
    positive = (vectors * np.maximum(eigenvalues, 0)) @ vectors.T
    new = join_residual(known_from(wide[0]), wide[1])
    np.testing.assert_allclose(new.T @ new, positive, atol=1e-8)


@settings(max_examples=40)
@given(seeds, st.integers(1, 12), st.integers(0, 8), st.integers(1, 6))
def test_targets_are_met_for_little_more_than_the_plain_join_at_most(seed: int, d: int, n: int, m: int) -> None:
    rng = np.random.default_rng(seed)
    known, W = known_from(ranges(d, n, rng)), ranges(d, m, rng)
    c = rng.choice([0.25, 1.0, 4.0], m)
    found = join_to_targets(known, W, c)
    assert (known.with_rows(found.rows, np.zeros(len(found.rows))).variances(W) <= c * (1 + 1e-8)).all()
    plain = join_residual(known, W / np.sqrt(c)[:, None])
    assert found.cost <= (plain**2).sum() * 1.02 + 1e-5
    assert found.bound <= found.cost


def test_cost_and_bound_enclose_the_optimum_of_a_semidefinite_solver() -> None:
    for seed in range(6):
        rng = np.random.default_rng(seed)
        B, W, weights = ranges(6, 5, rng), ranges(6, 4, rng), rng.uniform(0.5, 2.0, 6)
        found = join_to_targets(known_from(B), W, np.full(4, 0.5), weights=weights, gap=1e-3, max_steps=1000)
        optimum = _semidefinite_optimum(B, W, 0.5, weights)
        assert found.bound <= optimum * (1 + 1e-5) + 1e-6
        assert optimum <= found.cost * (1 + 1e-5) + 1e-6
        assert found.cost <= optimum * 1.002 + 1e-6


def _semidefinite_optimum(B: Matrix, W: Matrix, target: float, weights: Matrix) -> float:
    """Return min sum weights_i R_ii s.t. [C + R, w^T; w, target] >= 0 for every row w."""
    d = B.shape[1]
    R = cp.Variable((d, d), PSD=True)
    known = B.T @ B
    blocks = [cp.bmat([[known + R, w[:, None]], [w[None, :], np.array([[target]])]]) >> 0 for w in W]
    problem = cp.Problem(cp.Minimize(weights @ cp.diag(R)), blocks)
    return float(problem.solve(solver="CLARABEL"))


def test_what_is_known_well_enough_is_free_and_a_repeat_costs_nothing() -> None:
    W = np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0]])
    first = join_to_targets(nothing_known(3), W, np.ones(2))
    again = join_to_targets(known_from(first.rows), W, np.ones(2))
    assert again.rows.shape == (0, 3)
    assert again.cost == 0.0
    coarser = join_to_targets(known_from(np.eye(3)), np.ones((1, 3)), np.array([3.0]))
    assert len(coarser.rows) == 0


def test_a_sharper_target_pays_only_the_top_up() -> None:
    w = np.ones((1, 4))
    more = join_to_targets(known_from(w), w, np.array([0.25]))
    np.testing.assert_allclose(more.rows.T @ more.rows, 3 * np.ones((4, 4)), rtol=1e-5)


def test_one_row_without_history_is_released_as_it_is() -> None:
    found = join_to_targets(nothing_known(3), np.array([[1.0, -2.0, 0.0]]), np.array([4.0]))
    np.testing.assert_allclose(found.rows.T @ found.rows, np.outer([1, -2, 0], [1, -2, 0]) / 4, atol=2e-6)


def test_the_cheapest_top_up_for_one_row_solves_the_secular_equation() -> None:
    """The least trace is gamma with q (C + gamma)^-1 q^T = v (docs/design/algebra.md)."""
    rng = np.random.default_rng(5)
    B, q = ranges(8, 6, rng), ranges(8, 1, np.random.default_rng(1))
    found = join_to_targets(known_from(B), q, np.array([0.3]), gap=1e-6, max_steps=2000)
    inverse = np.linalg.inv(B.T @ B + found.cost * np.eye(8))
    assert float((q @ inverse @ q.T)[0, 0]) == pytest.approx(0.3, rel=1e-4)


def test_without_history_the_least_total_is_within_the_gap_of_the_bound() -> None:
    prefix = np.tril(np.ones((16, 16)))
    found = join_to_targets(nothing_known(16), prefix, np.ones(16), gap=1e-3, max_steps=1000)
    assert found.cost <= found.bound * 1.001
    assert found.bound / 16 <= fit(prefix, np.ones(16)).cost


@pytest.mark.parametrize(("history", "rows"), [(20, 4), (80, 4), (400, 4), (60, 1), (400, 30)])
def test_the_subspace_used_on_large_domains_costs_little_more_than_the_full_problem(
    history: int, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(2)
    known, W, c = known_from(ranges(120, history, rng)), ranges(120, rows, rng), np.full(rows, 0.1)
    weights = prices(known.profile)
    full = join_to_targets(known, W, c, weights=weights)
    monkeypatch.setattr(join_module, "_DENSE", 8)
    small = join_to_targets(known, W, c, weights=weights)
    assert (known.with_rows(small.rows, np.zeros(len(small.rows))).variances(W) <= 0.1 * (1 + 1e-8)).all()
    assert full.bound * (1 - 1e-6) <= small.cost <= full.cost * 1.01
    assert small.bound <= full.cost * (1 + 1e-6)


def test_a_query_of_many_rows_is_planned_in_few_steps_and_meets_its_targets() -> None:
    rng = np.random.default_rng(4)
    known, W, c = known_from(ranges(160, 90, rng)), np.eye(160), np.full(160, 0.5)
    found = join_to_targets(known, W, c)
    assert (known.with_rows(found.rows, np.zeros(len(found.rows))).variances(W) <= 0.5 * (1 + 1e-8)).all()
    assert found.cost <= found.bound * 1.05


def test_cells_that_have_paid_less_are_cheaper() -> None:
    assert prices(np.array([0.0, 1.0, 2.0])).tolist() == sorted(prices(np.array([0.0, 1.0, 2.0])).tolist())
    assert prices(np.zeros(3)).tolist() == [1.0, 1.0, 1.0]
    W = np.ones((1, 2))
    known = known_from(np.array([[2.0, 0.0]]))
    even = join_to_targets(known, W, np.array([0.8])).rows
    tilted = join_to_targets(known, W, np.array([0.8]), weights=np.array([9.0, 1.0])).rows
    assert (tilted**2).sum(axis=0)[0] < (even**2).sum(axis=0)[0]


def test_targets_must_be_positive() -> None:
    with pytest.raises(ValueError, match="positive"):
        join_to_targets(nothing_known(2), np.ones((1, 2)), np.array([0.0]))


def test_a_query_of_zeros_costs_nothing() -> None:
    assert len(join_to_targets(nothing_known(2), np.zeros((1, 2)), np.ones(1)).rows) == 0


def test_independent_noise_is_the_plain_join_when_rows_do_not_overlap() -> None:
    W = independent(np.eye(3), 1.0).B
    found = join_to_targets(nothing_known(3), W, np.ones(3))
    np.testing.assert_allclose(found.rows.T @ found.rows, np.eye(3), atol=1e-5)
