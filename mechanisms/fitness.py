"""The cheapest Gaussian mechanism for given accuracy targets, with a certificate of how cheap it could be.

Names: V is the workload on the extreme points of what one record can add (one column each), c the largest
variances allowed, K the mixing matrix: the mechanism releases K V x + N(0, I).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]

_FLOOR = 1e-9
"""Multipliers stay above this, so that no row or point is lost to rounding on the way."""

_RANK = 1e-10
"""Singular values of the rows, each scaled to length 1, below this fraction of the largest are rounding."""


@dataclass(frozen=True, eq=False)
class Strategy:
    """Release K V x + N(0, I): every row of V is then known with variance at most its target.

    `cost` is max over columns of |K V|^2 (twice the rho), `bound` is below the cost of every such mechanism.
    """

    K: Matrix
    cost: float
    bound: float


def fit(V: Matrix, c: Matrix, *, gap: float = 1e-3, max_steps: int = 300) -> Strategy:
    """Return K that minimises max_i |K v_i|^2 subject to var(row j) <= c_j, by the dual fixed point.

    With U = diag(c)^-1/2 V, the optimum is max over lambda, mu in simplices of |A|_*^2 (nuclear norm),
    A = diag(sqrt lambda) U diag(sqrt mu). With R = (A A^T)^1/2, the mechanism K = R^-1/2 diag(sqrt lambda)
    has variances R_jj / lambda_j; (tr R)^2 is a lower bound, max_i |K u_i|^2 max_j var_j an upper one.

    Args:
        V: shape (m, n), not all zero.
        c: shape (m,), positive.
        gap: stop once upper / lower <= 1 + gap.

    >>> prefix = np.tril(np.ones((4, 4)))
    >>> round(fit(prefix, np.ones(4)).cost, 2)
    1.76
    """
    U = V / np.sqrt(c)[:, None]
    U = np.unique(U[:, np.abs(U).max(axis=0) > 0], axis=1)
    if U.shape[1] == 0:
        raise ValueError(f"V must not be zero, got shape {V.shape}")
    if len(U) == 1:
        top = float((U**2).max())
        return Strategy(1 / np.sqrt(c)[:, None], top, top)
    found = _fixed_point(U, gap, max_steps)
    return Strategy(found.K / np.sqrt(c), found.cost, found.bound)


def _fixed_point(U: Matrix, gap: float, max_steps: int) -> Strategy:
    scale = np.linalg.norm(U, axis=1)
    rank = int(np.linalg.matrix_rank(U / np.where(scale > 0, scale, 1.0)[:, None], rtol=_RANK))
    lam, mu = _spread(scale), _spread(np.linalg.norm(U, axis=0))
    best = Strategy(np.eye(len(U)), float((U**2).sum(axis=0).max()), 0.0)
    for _ in range(max_steps):
        K, variances, bound = _step(U, lam, mu, rank)
        profile = ((K @ U) ** 2).sum(axis=0)
        worst = float(variances.max())
        cost = float(profile.max()) * worst
        if cost < best.cost:
            best = Strategy(K * np.sqrt(worst), cost, best.bound)
        best = Strategy(best.K, best.cost, max(best.bound, bound))
        if best.cost <= best.bound * (1 + gap):
            break
        lam, mu = _spread(lam * variances**1.5), _spread(mu * profile**1.5)
    return best


def _spread(weights: Matrix) -> Matrix:
    """Return the weights as a point of the simplex, none of them below the floor."""
    floored: Matrix = np.maximum(weights / weights.sum(), _FLOOR)
    return floored / float(floored.sum())


def _step(U: Matrix, lam: Matrix, mu: Matrix, rank: int) -> tuple[Matrix, Matrix, float]:
    A = np.sqrt(lam)[:, None] * U * np.sqrt(mu)
    squares, vectors = np.linalg.eigh(A @ A.T)
    singular, Q = np.sqrt(np.maximum(squares[-rank:], np.finfo(float).tiny)), vectors[:, -rank:]
    K = (Q / np.sqrt(singular)).T * np.sqrt(lam)
    variances = np.einsum("jr,r,jr->j", Q, singular, Q) / lam
    return K, variances, float(singular.sum()) ** 2
