"""SM-II: its derivatives by finite differences, its optima beside the certified ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.papers.softmax import SoftMaxima, soft_max_fit, soft_maxima
from mechanisms.gaussian.linear import Matrix
from mechanisms.least.minimax import fit

seeds = st.integers(0, 2**32 - 1)


def at(B: Matrix, L: Matrix, Sigma: Matrix, t: float) -> SoftMaxima:
    found = soft_maxima(B, L, Sigma, t)
    assert found is not None
    return found


def problem(seed: int, size: int) -> tuple[Matrix, Matrix, Matrix, Matrix]:
    """Return B, L, a covariance and a direction, well conditioned."""
    rng = np.random.default_rng(seed)
    P = rng.standard_normal((size, size))
    mixing = rng.standard_normal((size, size)) / size
    shape = (size, size + 2), (size + 1, size)
    return rng.standard_normal(shape[0]), rng.standard_normal(shape[1]), np.eye(size) + mixing @ mixing.T, P + P.T


@given(seeds, st.integers(1, 5), st.sampled_from([0.5, 1.0, 4.0]))
def test_the_gradient_is_that_of_finite_differences(seed: int, size: int, t: float) -> None:
    B, L, Sigma, P = problem(seed, size)
    step = 1e-5
    slope = (at(B, L, Sigma + step * P, t).value - at(B, L, Sigma - step * P, t).value) / (2 * step)
    assert float((at(B, L, Sigma, t).gradient * P).sum()) == pytest.approx(slope, rel=1e-5, abs=1e-6)


@given(seeds, st.integers(1, 5), st.sampled_from([0.5, 1.0, 4.0]))
def test_the_second_derivative_is_that_of_finite_differences(seed: int, size: int, t: float) -> None:
    """The printed one (Equation 14) is off by a factor of order one here."""
    B, L, Sigma, P = problem(seed, size)
    step = 1e-5
    slope = (at(B, L, Sigma + step * P, t).gradient - at(B, L, Sigma - step * P, t).gradient) / (2 * step)
    found = at(B, L, Sigma, t).curvature(P)
    assert np.linalg.norm(found - slope) <= 1e-5 * np.linalg.norm(slope) + 1e-6


def test_a_covariance_that_is_none_has_no_value() -> None:
    assert soft_maxima(np.eye(2), np.eye(2), np.diag([1.0, -1.0]), 1.0) is None


@pytest.mark.parametrize("size", [2, 4, 8, 16])
def test_prefix_sums_cost_what_the_paper_says_and_what_ours_finds(size: int) -> None:
    V, c = np.tril(np.ones((size, size))), np.ones(size)
    found, ours = soft_max_fit(V, c), fit(V, c)
    assert round(found.cost, 2) == {2: 1.33, 4: 1.76, 8: 2.28, 16: 2.91}[size]
    assert ours.bound <= found.cost <= ours.cost * 1.002
    assert found.bound <= ours.cost
    assert found.cost <= found.bound * 1.005


@given(seeds)
@settings(max_examples=10)
def test_a_workload_of_low_rank_meets_its_targets(seed: int) -> None:
    rng = np.random.default_rng(seed)
    V, c = rng.standard_normal((5, 2)) @ rng.standard_normal((2, 6)), rng.uniform(0.5, 2.0, 5)
    found = soft_max_fit(V, c)
    B = found.K @ V
    variances = np.diag(V @ np.linalg.pinv(B.T @ B, rcond=1e-10) @ V.T)
    assert np.all(variances <= c * (1 + 1e-6))
    assert float((B**2).sum(axis=0).max()) == pytest.approx(found.cost, rel=1e-6)
    ours = fit(V, c)
    assert ours.bound <= found.cost * (1 + 1e-9)
    assert found.bound <= ours.cost * (1 + 1e-9)


def test_cells_that_need_not_pay_the_most_pay_less() -> None:
    """Two cells share the dear query, a third has a cheap one: the refined order leaves it out of the dearest.

    Ours takes the two apart and asks no more of the third than it needs.
    """
    V, c = np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]), np.array([1.0, 4.0])
    found, ours = (((K @ V) ** 2).sum(axis=0) for K in (soft_max_fit(V, c).K, fit(V, c).K))
    assert found[:2] == pytest.approx([1.0, 1.0], rel=0.01)
    assert 0.25 <= found[2] < 0.7
    assert ours == pytest.approx([1.0, 1.0, 0.25])


def test_a_workload_of_zeros_is_refused() -> None:
    with pytest.raises(ValueError, match="must not be zero"):
        soft_max_fit(np.zeros((2, 3)), np.ones(2))


def test_time_runs_out_with_a_mechanism_in_hand() -> None:
    V, c = np.tril(np.ones((8, 8))), np.ones(8)
    found = soft_max_fit(V, c, seconds=0.0)
    assert found.cost >= found.bound > 0
