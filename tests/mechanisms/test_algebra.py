"""The identities of docs/design/algebra.md, each on random matrices and written as the page has it."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from mechanisms.gaussian.common import common, residual
from mechanisms.gaussian.known import nothing_known
from mechanisms.gaussian.linear import Matrix, Mechanism, answerable, information
from mechanisms.least import marginals
from mechanisms.least.marginals import Subset, subsets
from mechanisms.least.minimax import fit, nuclear_bound
from mechanisms.least.residual import join_residual

SEEDS = range(5)


def root(C: Matrix) -> Matrix:
    """Return the symmetric C^1/2."""
    values, vectors = np.linalg.eigh(C)
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T)


def positive(D: Matrix) -> Matrix:
    values, vectors = np.linalg.eigh(D)
    return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T)


def simplex(rng: np.random.Generator, size: int) -> Matrix:
    weights = rng.uniform(0.1, 1.0, size)
    return np.asarray(weights / weights.sum())


@pytest.mark.parametrize("seed", SEEDS)
def test_order_answerable_means_less_information(seed: int) -> None:
    rng = np.random.default_rng(seed)
    B = rng.normal(size=(4, 5))
    known = Mechanism(B, np.eye(4))
    less = Mechanism(rng.normal(size=(2, 4)) @ B, np.diag(rng.uniform(30, 40, 2)))
    verdict = answerable(less, known)
    assert np.linalg.eigvalsh(information(known) - information(less)).min() > -1e-9
    assert verdict.L is not None
    assert verdict.Sigma_extra is not None
    np.testing.assert_allclose(verdict.L @ known.B, less.B, atol=1e-9)
    assert np.linalg.eigvalsh(verdict.Sigma_extra).min() > -1e-9
    more = answerable(known, less)
    assert more.direction is not None
    assert more.direction @ (information(known) - information(less)) @ more.direction > 0


@pytest.mark.parametrize("seed", SEEDS)
def test_sum_and_answer_two_releases_are_one_stack_and_least_squares(seed: int) -> None:
    rng = np.random.default_rng(seed)
    first, second, x = rng.normal(size=(3, 4)), rng.normal(size=(4, 4)), rng.normal(size=4)
    y, z = first @ x + rng.normal(size=3), second @ x + rng.normal(size=4)
    known = nothing_known(4).with_rows(first, y).with_rows(second, z)
    C, h = first.T @ first + second.T @ second, first.T @ y + second.T @ z
    W = rng.normal(size=(2, 4))
    np.testing.assert_allclose(known.estimate(W), W @ np.linalg.solve(C, h), atol=1e-8)
    np.testing.assert_allclose(known.variances(W), np.diag(W @ np.linalg.solve(C, W.T)), rtol=1e-8)
    np.testing.assert_allclose(known.profile, np.diag(C), rtol=1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_positive_part_has_the_least_trace_of_all_residuals(seed: int) -> None:
    """tr R >= <P, R> >= <P, C_wanted - C_known> for the projection P on the positive eigenvectors."""
    rng = np.random.default_rng(seed)
    known, wanted = rng.normal(size=(3, 5)), rng.normal(size=(3, 5))
    D = wanted.T @ wanted - known.T @ known
    new = join_residual(nothing_known(5).with_rows(known, np.zeros(3)), wanted)
    np.testing.assert_allclose(new.T @ new, positive(D), atol=1e-8)
    assert np.linalg.eigvalsh(positive(D) - D).min() > -1e-9
    values, vectors = np.linalg.eigh(D)
    P = vectors[:, values > 0] @ vectors[:, values > 0].T
    assert np.trace(positive(D)) == pytest.approx(np.trace(P @ D))
    for _ in range(10):
        other = positive(D + np.diag(rng.uniform(0, 1, 5))) + np.outer(*[rng.normal(size=5)] * 2)
        if np.linalg.eigvalsh(other - D).min() >= 0:
            assert np.trace(other) >= np.trace(positive(D))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_common_mechanism_is_the_least_upper_bound_of_both_covariances(seed: int) -> None:
    rng = np.random.default_rng(seed)
    one, other = (Mechanism(rng.normal(size=(3, 3)), np.eye(3)) for _ in range(2))
    shared = common(one, other)
    for M in (one, other):
        assert answerable(shared, M, tolerance=1e-7).holds
        rest = information(residual(M, shared))
        np.testing.assert_allclose(information(shared) + rest, information(M), atol=1e-6 * np.trace(information(M)))


@pytest.mark.parametrize("seed", SEEDS)
def test_every_pair_of_weights_gives_a_mechanism_and_a_bound_below_all_of_them(seed: int) -> None:
    """C = N^-1/2 (N^1/2 S N^1/2)^1/2 N^-1/2: weighted variances and weighted costs both add up to the nuclear norm."""
    rng = np.random.default_rng(seed)
    V = rng.normal(size=(6, 4))
    lam, mu = simplex(rng, 6), simplex(rng, 4)
    S, half = (V.T * lam) @ V, np.diag(np.sqrt(mu))
    C = np.linalg.inv(half) @ root(half @ S @ half) @ np.linalg.inv(half)
    norm = np.sqrt(nuclear_bound(V, lam, mu))
    variances = np.diag(V @ np.linalg.inv(C) @ V.T)
    assert lam @ variances == pytest.approx(norm)
    assert mu @ np.diag(C) == pytest.approx(norm)
    best = fit(V, np.ones(6), gap=1e-4)
    assert norm**2 <= best.cost * (1 + 1e-9)
    assert best.cost <= variances.max() * np.diag(C).max() * (1 + 1e-9)
    other = rng.normal(size=(5, 4))  # any information at all, scaled to meet the targets
    scale = np.diag(V @ np.linalg.inv(other.T @ other) @ V.T).max()
    assert norm**2 <= scale * (other**2).sum(axis=0).max()


@pytest.mark.parametrize("seed", SEEDS)
def test_the_dual_bound_with_history_is_below_every_plan_that_meets_the_targets(seed: int) -> None:
    """|S|^2 / (sum lambda + tr Lambda) - tr(N C_known), with S = V^T diag(lambda) V + B^T Lambda B."""
    rng = np.random.default_rng(seed)
    V, B = rng.normal(size=(4, 5)), rng.normal(size=(3, 5))
    lam, mu, half = rng.uniform(0.1, 1, 4), simplex(rng, 5), rng.normal(size=(3, 3))
    Lambda = half @ half.T / 10
    S, N = (V.T * lam) @ V + B.T @ Lambda @ B, np.diag(np.sqrt(mu))
    norm = np.trace(root(N @ S @ N))
    bound = norm**2 / (lam.sum() + np.trace(Lambda)) - mu @ np.diag(B.T @ B)
    for _ in range(20):
        X = rng.normal(size=(5, 5)) * rng.uniform(0.2, 3)
        variances = np.diag(V @ np.linalg.inv(B.T @ B + X.T @ X) @ V.T)
        if variances.max() <= 1:
            assert (X**2).sum(axis=0).max() >= bound
    X = np.sqrt(np.diag(V @ np.linalg.inv(np.eye(5)) @ V.T).max()) * np.eye(5)
    assert np.diag(V @ np.linalg.inv(B.T @ B + X.T @ X) @ V.T).max() <= 1
    assert (X**2).sum(axis=0).max() >= bound


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_known_is_a_target(seed: int) -> None:
    """C >= B^T B if and only if B C^-1 B^T <= 1."""
    rng = np.random.default_rng(seed)
    B, X = rng.normal(size=(3, 4)), rng.normal(size=(4, 4))
    for scale in (0.1, 0.5, 1.0, 2.0, 10.0):
        C = scale * (X.T @ X)
        above = np.linalg.eigvalsh(C - B.T @ B).min() >= 0
        assert above == (np.linalg.eigvalsh(B @ np.linalg.inv(C) @ B.T).max() <= 1)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_trace_dual_is_below_every_residual_that_meets_the_targets(seed: int) -> None:
    """2 sum sqrt(lambda_j) u_j w_j^T - tr(U C_known U^T) - sum lambda_j c_j for U^T U <= diag(price)."""
    rng = np.random.default_rng(seed)
    W, B, price = rng.normal(size=(3, 5)), rng.normal(size=(2, 5)), rng.uniform(0.5, 2.0, 5)
    U = rng.normal(size=(3, 5))
    U = U / np.linalg.svd(U, compute_uv=False).max() * np.sqrt(price.min())
    c = rng.uniform(0.5, 2, 3)
    inner = np.maximum((U * W).sum(axis=1), 0.0)
    lam = (inner / c) ** 2  # the best lambda for this U
    bound = 2 * np.sqrt(lam) @ inner - np.trace(U @ B.T @ B @ U.T) - lam @ c
    for _ in range(10):
        R = positive(rng.normal(size=(5, 5)) + 3 * np.eye(5))
        worst = (np.diag(W @ np.linalg.inv(B.T @ B + R + 1e-9 * np.eye(5)) @ W.T) / c).max()
        assert price @ np.diag(R * max(worst, 1.0)) >= bound - 1e-6


@pytest.mark.parametrize("seed", SEEDS)
def test_the_cheapest_top_up_of_one_row_has_the_price_that_solves_its_secular_equation(seed: int) -> None:
    """q (C_known + gamma / price)^-1 q^T = c: the row u / price, u = q (C_known + gamma / price)^-1, at price gamma."""
    rng = np.random.default_rng(seed)
    B, q, price = rng.normal(size=(6, 4)), rng.normal(size=4), rng.uniform(0.5, 2.0, 4)
    C_known, gamma = B.T @ B, 0.7
    u = q @ np.linalg.inv(C_known + np.diag(gamma / price))
    c = float(u @ q)
    row = u / price
    R = np.outer(row, row) * gamma / float((row**2) @ price)
    assert price @ np.diag(R) == pytest.approx(gamma)
    assert q @ np.linalg.inv(C_known + R) @ q == pytest.approx(c)


@pytest.mark.parametrize("sizes", [(2, 3), (3, 2, 2)])
def test_marginals_have_orthogonal_projections_and_their_variances_are_sums(sizes: tuple[int, ...]) -> None:
    every = subsets(tuple(range(len(sizes))))
    P = {A: _projection(sizes, A) for A in every}
    np.testing.assert_allclose(sum(P.values()), np.eye(len(P[()])), atol=1e-12)
    for one, other in product(every, every):
        np.testing.assert_allclose(P[one] @ P[other], P[one] if one == other else 0, atol=1e-12)
    e = {A: 1.0 + len(A) for A in every}
    C = sum(e[A] * np.prod([n for i, n in enumerate(sizes) if i not in A]) * P[A] for A in every)
    for A in every:
        assert np.diag(P[A]) == pytest.approx(
            np.prod([1 - 1 / n if i in A else 1 / n for i, n in enumerate(sizes)]) * np.ones(len(C))
        )
        W = np.ones((1, 1))
        for i, n in enumerate(sizes):
            W = np.kron(W, np.eye(n) if i in A else np.ones((1, n)))
        np.testing.assert_allclose(np.diag(W @ np.linalg.inv(C) @ W.T), marginals.cell_variance(sizes, e, A), rtol=1e-9)
    np.testing.assert_allclose(np.diag(C), sum(e[A] * marginals.share(sizes, A) for A in every), rtol=1e-9)


def _projection(sizes: tuple[int, ...], A: Subset) -> Matrix:
    P = np.ones((1, 1))
    for i, n in enumerate(sizes):
        mean = np.full((n, n), 1 / n)
        P = np.kron(P, np.eye(n) - mean if i in A else mean)
    return P


@pytest.mark.parametrize("seed", SEEDS)
def test_taking_away_what_vanishes_on_a_row_leaves_its_variance(seed: int) -> None:
    """Delta <= R changes w C^-1 w^T only if Delta C^-1 w^T is not zero."""
    rng = np.random.default_rng(seed)
    X, w = rng.normal(size=(4, 4)), rng.normal(size=4)
    C = X.T @ X
    direction = np.linalg.inv(C) @ w
    P = np.eye(4) - np.outer(direction, direction) / (direction @ direction)
    Delta = 0.1 * np.linalg.eigvalsh(C).min() * P
    assert np.linalg.eigvalsh(C - Delta).min() > 0
    assert w @ np.linalg.inv(C - Delta) @ w == pytest.approx(w @ np.linalg.inv(C) @ w)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_a_record_between_two_cells_pays_is_no_more_than_the_dearer_of_them(seed: int) -> None:
    rng = np.random.default_rng(seed)
    B = rng.normal(size=(3, 2))
    for t in np.linspace(0, 1, 9):
        assert ((B @ np.array([1 - t, t])) ** 2).sum() <= (B**2).sum(axis=0).max() * (1 + 1e-12)


@pytest.mark.parametrize("d", [2, 4, 8, 16, 64])
def test_prefixes_cost_what_the_paper_prints(d: int) -> None:
    published = {2: 1.333, 4: 1.759, 8: 2.282, 16: 2.906, 64: 4.459}
    assert fit(np.tril(np.ones((d, d))), np.ones(d), gap=1e-4).cost == pytest.approx(published[d], rel=5e-4)


@pytest.mark.parametrize("d", [2, 5, 9])
def test_all_cells_and_their_total_cost_two_d_over_d_plus_one(d: int) -> None:
    W = np.vstack([np.eye(d), np.ones((1, d))])
    assert fit(W, np.ones(d + 1), gap=1e-5).cost == pytest.approx(2 * d / (d + 1), rel=2e-5)
