"""The fitted mechanism against reference optima, its own certificate, and the dense formulas."""

from __future__ import annotations

from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from mechanisms.gaussian.linear import Matrix
from mechanisms.least.blocks import Block
from mechanisms.least.minimax import Strategy, fit, least, least_total, nuclear_bound, undominated
from mechanisms.least.within import least_within


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
    assert found.cost == pytest.approx(9 / 4, rel=1e-12)
    assert found.bound == pytest.approx(9 / 4, rel=1e-12)
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


# --- an independent solver -----------------------------------------------------------------------------------


def semidefinite_optimum(V: Matrix, c: Matrix, *, total: bool = False) -> float:
    """Return the least max diag(C) with all targets met, or the least sum of variances with diag(C) <= 1."""
    size = V.shape[1]
    C, variances = cp.Variable((size, size), symmetric=True), cp.Variable(len(V))
    blocks = [
        cp.bmat([[C, v[:, None]], [v[None, :], cp.reshape(variances[j], (1, 1), order="C")]]) >> 0
        for j, v in enumerate(V)
    ]
    if total:
        problem = cp.Problem(cp.Minimize(cp.sum(variances)), [*blocks, cp.diag(C) <= 1])
    else:
        problem = cp.Problem(cp.Minimize(cp.max(cp.diag(C))), [*blocks, variances <= c])
    return float(problem.solve(solver="CLARABEL"))


@pytest.mark.parametrize("seed", range(6))
def test_the_cost_is_that_of_a_semidefinite_solver_to_a_thousandth(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, columns = rng.integers(2, 6, 2)
    V, c = rng.integers(-2, 3, (rows, columns)).astype(float), rng.uniform(0.3, 3.0, rows)
    V[:, 0] += 1
    found, optimum = fit(V, c, gap=5e-4, max_steps=5000), semidefinite_optimum(V, c)
    assert found.cost == pytest.approx(optimum, rel=1e-3)
    assert found.bound <= optimum * (1 + 1e-5)


@pytest.mark.parametrize("seed", range(4))
def test_the_least_sum_of_variances_is_that_of_a_semidefinite_solver(seed: int) -> None:
    rng = np.random.default_rng(seed)
    W = rng.integers(-1, 3, (4, 4)).astype(float)
    found = least_total(W, gap=5e-4, max_steps=5000)
    assert found.cost == pytest.approx(semidefinite_optimum(W, np.ones(4), total=True), rel=1e-3)
    assert cost(W, found.K) == pytest.approx(1.0)
    assert variances(W, found.K).sum() == pytest.approx(found.cost, rel=1e-6)


# --- Theorems 6 to 8 of arXiv 2012.00135: all counts and their sum -------------------------------------------


def identity_and_sum(size: int) -> Matrix:
    return np.vstack([np.eye(size), np.ones(size)])


def theorem_6(size: int) -> tuple[float, float]:
    """Return a, b with Sigma = a + b 1 1^T, the least sum of squared errors at squared cost 1."""
    root = np.sqrt(1 + size)
    a = (size - 3) / (size - 1 - root)
    return a, (size - 3) * (2 - root) / ((size - 1 - root) * (-1 - size + (size - 1) * root))


@pytest.mark.parametrize("size", [5, 16, 64])
def test_the_least_sum_of_errors_is_that_of_theorem_6(size: int) -> None:
    a, b = theorem_6(size)
    found = least_total(identity_and_sum(size), gap=1e-5)
    assert found.cost == pytest.approx(size * (a + b) + size * a + size**2 * b, rel=1e-4)
    each = variances(identity_and_sum(size), found.K)
    assert each[0] == pytest.approx(a + b, rel=1e-3)
    assert each[-1] == pytest.approx(size * a + size**2 * b, rel=1e-2)


@pytest.mark.parametrize("size", [5, 16, 64])
def test_the_mechanism_is_that_of_theorem_7(size: int) -> None:
    """Sigma = (d + 1) / d - 1 1^T / d, of squared cost 2 d / (d + 1)."""
    V = identity_and_sum(size)
    B = fit(V, np.ones(size + 1), gap=1e-6, max_steps=2000).K @ V
    wanted = (size + 1) / size * np.eye(size) - np.ones((size, size)) / size
    np.testing.assert_allclose(np.linalg.inv(B.T @ B), wanted, atol=1e-3)


def test_the_worst_ratio_of_the_least_sum_grows_like_a_root_as_in_theorem_8() -> None:
    ratios = []
    for size in (64, 256, 1024):
        a, b = theorem_6(size)
        ratios.append((size * a + size**2 * b) / (2 * size / (1 + size)))
    assert ratios[1] / ratios[0] == pytest.approx(2, rel=0.1)
    assert ratios[2] / ratios[1] == pytest.approx(2, rel=0.1)
    V = identity_and_sum(64)
    assert variances(V, least_total(V, gap=1e-5).K).max() / (2 * 64 / 65) == pytest.approx(ratios[0], rel=1e-2)


# --- structure -----------------------------------------------------------------------------------------------


@given(arrays(np.int64, (5, 3), elements=st.integers(-2, 2)))
def test_rows_that_are_left_out_are_multiples_of_rows_that_are_kept(U: Matrix) -> None:
    U = U.astype(float)
    kept = undominated(U)
    for row in U:
        factors = [float(row @ other / (other @ other)) for other in U[kept]]
        is_told = [
            np.allclose(row, a * other) and abs(a) <= 1 + 1e-9 for a, other in zip(factors, U[kept], strict=True)
        ]
        assert any(is_told) or not row.any()
    assert len(kept) == len(undominated(U[kept]))


def test_parts_that_have_nothing_to_do_with_each_other_are_planned_apart() -> None:
    """The dearer one sets the cost, and the cheaper one pays no more than it needs."""
    V = np.zeros((12, 12))
    V[:4, :4], V[4:, 4:] = prefix(4), prefix(8)
    found = fit(V, np.ones(12))
    check(V, np.ones(12), found, gap=1e-3)
    profile = ((found.K @ V) ** 2).sum(axis=0)
    assert profile[:4].max() == pytest.approx(1.7590, rel=1.1e-3)
    assert profile[4:].max() == pytest.approx(2.2817, rel=1.1e-3)
    assert found.prices[:4].sum() == 0


def test_groups_that_are_alike_cost_what_one_does_however_many_they_are() -> None:
    V = np.kron(np.eye(500), prefix(4))
    found = fit(V, np.ones(2000))
    assert found.cost == pytest.approx(1.7590, rel=1.1e-3)
    assert found.prices.sum() == pytest.approx(1.0)
    assert found.K.shape == (2000, 2000)


# --- prices --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_prices_tell_what_a_target_changes(factor: float) -> None:
    rng = np.random.default_rng(0)
    V, c = rng.integers(0, 2, (8, 10)).astype(float), rng.uniform(0.5, 2.0, 8)
    found = fit(V, c, gap=1e-6, max_steps=5000)
    assert found.prices.sum() == pytest.approx(1.0)
    for j in range(8):
        factors = np.where(np.arange(8) == j, factor, 1.0)
        again = fit(V, c * factors, gap=1e-6, max_steps=5000, start=found)
        change, expected = again.cost - found.cost, found.repriced(factors) - found.cost
        assert change == pytest.approx(expected, abs=0.02 * found.cost)
        assert change >= expected - 1e-5 * found.cost


@given(st.integers(0, 2**32 - 1), st.lists(st.floats(0.5, 2.0), min_size=4, max_size=4))
@settings(max_examples=40)
def test_no_change_of_targets_is_cheaper_than_the_prices_say(seed: int, factors: list[float]) -> None:
    """log cost is convex in log c; the slack is the gap of the prices."""
    rng = np.random.default_rng(seed)
    V, c = rng.standard_normal((4, 5)), rng.uniform(0.5, 2.0, 4)
    found = fit(V, c, gap=1e-5, max_steps=300)
    assert fit(V, c * factors).cost >= found.repriced(np.array(factors)) * (1 - 1e-3)


def test_a_common_factor_is_priced_exactly_and_privacy_first_is_its_inverse() -> None:
    V, c = prefix(8), np.linspace(1, 3, 8)
    found = fit(V, c)
    assert found.repriced(np.full(8, 1.21)) == pytest.approx(found.cost / 1.21)
    there, factor = found.stretched(0.5)
    check(V, c * factor, there, gap=1e-3)
    assert there.cost == 0.5
    assert factor == pytest.approx(found.cost / 0.5)


def test_a_warm_start_ends_where_a_cold_one_does() -> None:
    V, c = prefix(32), np.ones(32)
    found = fit(V, c, start=fit(V, np.linspace(1, 2, 32)))
    check(V, c, found, gap=1e-3)


# --- the certificate -----------------------------------------------------------------------------------------


@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(1, 5))
def test_any_multipliers_give_a_bound(seed: int, rows: int, columns: int) -> None:
    rng = np.random.default_rng(seed)
    V, c = rng.standard_normal((rows, columns)), rng.uniform(0.2, 5, size=rows)
    bound = nuclear_bound(V / np.sqrt(c)[:, None], rng.dirichlet(np.ones(rows)), rng.dirichlet(np.ones(columns)))
    assert bound <= fit(V, c).cost * (1 + 1e-9)


def test_what_is_known_well_enough_already_needs_no_plan() -> None:
    every, ones = np.arange(3), np.ones(3)
    block = Block(every, np.eye(3), every, known=2 * np.eye(3))
    assert least([block], ones, sizes=ones, members=ones).cost == 0.0
    other = Block(every, np.eye(3), every + 3, known=np.eye(3) / 2)
    plan = least_within([block, replace(other, rows=every + 3)], np.ones(6), sizes=np.ones(6), members=np.ones(6))
    assert [len(rows) for rows in plan.rows] == [0, 3]
