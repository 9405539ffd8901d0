from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mechanisms.gaussian.linear import Matrix
from mechanisms.least.trace import alone, cheapest, least_scale

seeds = st.integers(0, 2**32 - 1)


def problem(seed: int, rows: int, size: int) -> tuple[Matrix, Matrix]:
    """Return rows that are not known well enough, and what is known, over six orders of magnitude."""
    rng = np.random.default_rng(seed)
    D = 10.0 ** rng.uniform(-4, 2, size)
    W = rng.standard_normal((rows, size)) * np.sqrt(np.minimum(D, 1.0))
    variance = (W**2 / D).sum(axis=1)
    return W * np.sqrt(rng.uniform(1.01, 9.0, rows) / variance)[:, None], D


def variances(W: Matrix, D: Matrix, X: Matrix) -> Matrix:
    return np.einsum("ij,jk,ik->i", W, np.linalg.inv(np.diag(D) + X.T @ X), W)


@given(seeds, st.integers(1, 5), st.integers(1, 6))
def test_a_row_alone_is_measured_at_the_cost_that_solves_the_secular_equation(seed: int, rows: int, size: int) -> None:
    W, D = problem(seed, rows, size)
    gamma = alone(W, D)
    np.testing.assert_allclose((W**2 / (D + gamma[:, None])).sum(axis=1), 1.0, rtol=1e-6)


@given(seeds, st.integers(1, 5), st.integers(1, 6))
def test_targets_are_met_and_a_single_row_costs_what_it_costs_alone(seed: int, rows: int, size: int) -> None:
    W, D = problem(seed, rows, size)
    X, _ = cheapest(W, D, gap=0.01, max_steps=40)
    assert variances(W, D, X).max() <= 1 + 1e-6
    cost, each = float((X**2).sum()), alone(W, D)
    assert each.max() * (1 - 1e-6) <= cost
    if rows == 1:
        assert cost == pytest.approx(each[0], rel=1e-4)


@given(seeds, st.integers(1, 4), st.sampled_from([0.5, 1.0]))
def test_the_least_scale_meets_the_target_just_so(seed: int, rows: int, target: float) -> None:
    W, D = problem(seed, rows, 5)
    scale = least_scale(W, D, W, target=target)
    assert variances(W, D, np.sqrt(scale) * W).max() == pytest.approx(target, rel=1e-5)


@pytest.mark.parametrize("seed", range(4))
def test_the_cost_is_that_of_a_semidefinite_solver_within_the_gap(seed: int) -> None:
    rng = np.random.default_rng(seed)
    D = rng.uniform(0.1, 3.0, 5)
    W = 2 * rng.standard_normal((4, 5))
    R = cp.Variable((5, 5), PSD=True)
    blocks = [cp.bmat([[np.diag(D) + R, w[:, None]], [w[None, :], np.ones((1, 1))]]) >> 0 for w in W]
    optimum = cp.Problem(cp.Minimize(cp.trace(R)), blocks).solve(solver="CLARABEL")
    X, U = cheapest(W, D, gap=1e-3, max_steps=500)
    value = float((np.maximum((W * U).sum(axis=1), 0) ** 2).sum() - (U**2 @ D).sum())
    assert value <= optimum * (1 + 1e-5)
    assert optimum * (1 - 1e-5) <= (X**2).sum() <= optimum * 1.002
