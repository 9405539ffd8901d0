"""The fitted mechanism against reference optima, its own certificate, and the dense formulas."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from mechanisms.fitness import Matrix, Strategy, fit


def prefix(size: int) -> Matrix:
    return np.tril(np.ones((size, size)))


def variances(V: Matrix, K: Matrix) -> Matrix:
    """Return the variance of each row of V from K V x + N(0, I), by the dense formula diag(V (B^T B)^+ V^T)."""
    B = K @ V
    return np.asarray(np.diag(V @ np.linalg.pinv(B.T @ B, rcond=1e-10) @ V.T))


def cost(V: Matrix, K: Matrix) -> float:
    return float(((K @ V) ** 2).sum(axis=0).max())


def check(V: Matrix, c: Matrix, found: Strategy, *, gap: float) -> None:
    """Every target is met, the cost is as stated, and the certificate is one."""
    assert np.all(variances(V, found.K) <= c * (1 + 1e-6))
    assert cost(V, found.K) == pytest.approx(found.cost, rel=1e-6)
    assert found.bound <= found.cost * (1 + 1e-9)
    assert found.cost <= found.bound * (1 + gap)


@pytest.mark.parametrize(("size", "optimum"), [(2, 1.3333), (4, 1.7590), (8, 2.2817), (16, 2.9061), (64, 4.45787)])
def test_prefix_sums_cost_what_the_reference_says(size: int, optimum: float) -> None:
    V, c = prefix(size), np.ones(size)
    found = fit(V, c)
    check(V, c, found, gap=1e-3)
    assert optimum * (1 - 1e-4) <= found.cost <= optimum * (1 + 1.1e-3)
    assert found.bound <= optimum * (1 + 1e-4)


@pytest.mark.parametrize("size", [1, 2, 3, 10, 64])
def test_counts_and_their_sum_cost_2d_over_d_plus_1(size: int) -> None:
    """For d = 1 the row is repeated: one measurement serves both."""
    V, c = np.vstack([np.eye(size), np.ones(size)]), np.ones(size + 1)
    found = fit(V, c)
    check(V, c, found, gap=1e-3)
    assert found.cost == pytest.approx(2 * size / (size + 1), rel=1.1e-3)


def test_a_tighter_gap_comes_closer() -> None:
    V, c = prefix(16), np.ones(16)
    close = fit(V, c, gap=1e-5, max_steps=5000)
    check(V, c, close, gap=1e-5)
    assert close.cost <= fit(V, c, gap=1e-2).cost * (1 + 1e-9)


def test_one_row_is_measured_as_it_stands() -> None:
    V, c = np.array([[1.0, -3.0, 0.0]]), np.array([4.0])
    found = fit(V, c)
    assert found.cost == found.bound == pytest.approx(9 / 4)
    assert variances(V, found.K) == pytest.approx([4.0])


def test_repeated_rows_cost_as_much_as_one() -> None:
    V = np.vstack([prefix(4)] * 3)
    found = fit(V, np.ones(12))
    check(V, np.ones(12), found, gap=1e-3)
    assert found.cost == pytest.approx(1.7590, rel=1.5e-3)


def test_a_row_with_several_targets_is_measured_for_the_tightest() -> None:
    V, c = np.ones((3, 2)), np.array([1.0, 4.0, 0.25])
    found = fit(V, c)
    check(V, c, found, gap=1e-3)
    assert found.cost == pytest.approx(4.0, rel=1.1e-3)


def test_rank_deficient_workloads_are_answered_in_full() -> None:
    rng = np.random.default_rng(3)
    V = rng.normal(size=(9, 3)) @ rng.normal(size=(3, 12))
    c = rng.uniform(0.5, 2, size=9)
    check(V, c, fit(V, c), gap=1e-3)


def test_zero_columns_and_repeated_columns_change_nothing() -> None:
    V = prefix(8)
    wide = np.hstack([np.zeros((8, 2)), V, V[:, ::-1]])
    plain, found = fit(V, np.ones(8)), fit(wide, np.ones(8))
    check(wide, np.ones(8), found, gap=1e-3)
    assert found.cost == pytest.approx(plain.cost, rel=1e-3)


@pytest.mark.parametrize("power", [1, 3, 6, 9])
def test_rows_of_very_different_scale_meet_their_targets(power: int) -> None:
    """A count beside a sum in cents of millions: with targets in proportion the cost is that of equal rows."""
    scale = np.array([1.0, 10.0**power, 1.0, 10.0 ** (2 * power)])
    V = prefix(4) * scale[:, None]
    found = fit(V, scale**2)
    check(V / scale[:, None], np.ones(4), replace(found, K=found.K * scale), gap=1e-3)
    assert found.cost == pytest.approx(1.7590, rel=1.5e-3)


@pytest.mark.parametrize("spread", [1e2, 1e4, 1e6])
def test_targets_of_very_different_size_are_all_met(spread: float) -> None:
    V, c = prefix(6), np.geomspace(1 / spread, spread, 6)
    check(V, c, fit(V, c), gap=1e-2)


def test_scaling_the_targets_scales_the_cost() -> None:
    V = prefix(8)
    assert fit(V, np.full(8, 25.0)).cost == pytest.approx(fit(V, np.ones(8)).cost / 25)


def test_a_workload_of_zeros_is_refused() -> None:
    with pytest.raises(ValueError, match="must not be zero"):
        fit(np.zeros((2, 3)), np.ones(2))


@given(
    arrays(np.int64, st.tuples(st.integers(1, 6), st.integers(1, 8)), elements=st.integers(-5, 5)),
    st.lists(st.sampled_from([0.01, 0.5, 1.0, 3.0, 100.0]), min_size=6, max_size=6),
)
def test_targets_are_met_and_the_certificate_holds_for_any_small_workload(V: Matrix, targets: list[float]) -> None:
    V = V[np.abs(V).max(axis=1) > 0].astype(float)
    if not V.size:
        return
    c = np.array(targets[: len(V)])
    check(V, c, fit(V, c, gap=1e-2, max_steps=2000), gap=0.03)


@given(st.integers(1, 4), st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_no_strategy_that_meets_the_targets_costs_less_than_the_bound(rows: int, columns: int, seed: int) -> None:
    """Weak duality, tried with random mechanisms scaled to meet the targets."""
    rng = np.random.default_rng(seed)
    V, c = rng.normal(size=(rows, columns)), rng.uniform(0.2, 5, size=rows)
    bound = fit(V, c).bound
    for _ in range(20):
        K = rng.normal(size=(rows, rows))
        K *= np.sqrt((variances(V, K) / c).max())
        assert cost(V, K) >= bound * (1 - 1e-9)
