"""SM-II, the solver of the fitness-for-use paper (arXiv 2012.00135, Algorithms 1 to 3), beside which ours is measured.

W = L B with independent rows B; the mechanism is L (B x + N(0, Sigma)). Minimised is the sum of two soft maxima with
temperatures t,

    F(Sigma) = log(sum_i exp(t g_i)) / t + log(sum_j exp(t h_j)) / t
    g_i = b_i^T Sigma^-1 b_i,   h_j = l_j Sigma l_j^T / c_j

by Newton steps, each solved roughly by conjugate gradients, while t doubles. A soft maximum also counts the cells below
the dearest, so that of two mechanisms of the same cost the one lower in the refined privacy order (Definition 5) wins.

With weights a = softmax(t g), the second derivative of the first term along P is, for S = Sigma^-1 and T = S P S,

    T B diag(a) B^T S + S B diag(a) B^T T - S B diag(da) B^T S,   dg_i = -b_i^T T b_i,   da = t a (dg - a . dg).

Equation 14 of the paper has Kronecker products in place of the outer products that make up da, and t once too often; it
fails a test by finite differences, and this form passes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import process_time

import numpy as np

from mechanisms.gaussian.linear import Matrix, row_space
from mechanisms.least.minimax import Strategy, nuclear_bound

_DECREASE = 0.01
"""A step must lower F by this fraction of what its slope promises (Armijo)."""

_RESIDUAL = 1e-10
"""Conjugate gradients stop at this squared length of the residual."""


@dataclass(frozen=True, eq=False)
class SoftMaxima:
    """F at one Sigma, with what its derivatives need."""

    B: Matrix
    L: Matrix  # rows over the roots of their targets
    t: float
    S: Matrix
    costs: Matrix
    variances: Matrix
    by_cost: Matrix
    by_variance: Matrix
    value: float

    @property
    def cost(self) -> float:
        """What the mechanism costs once it is scaled to meet its targets."""
        return float(self.costs.max()) * float(self.variances.max())

    @property
    def gradient(self) -> Matrix:
        """The first derivative, shape (r, r)."""
        SB = self.S @ self.B
        return np.asarray((self.L.T * self.by_variance) @ self.L - (SB * self.by_cost) @ SB.T)

    def curvature(self, P: Matrix) -> Matrix:
        """Return the second derivative along symmetric P, shape (r, r)."""
        SB = self.S @ self.B
        TB = self.S @ (P @ SB)
        costs = -(SB * (P @ SB)).sum(axis=0)
        variances = ((self.L @ P) * self.L).sum(axis=1)
        by_cost = self.t * self.by_cost * (costs - self.by_cost @ costs)
        by_variance = self.t * self.by_variance * (variances - self.by_variance @ variances)
        cross = (TB * self.by_cost) @ SB.T
        return np.asarray(cross + cross.T - (SB * by_cost) @ SB.T + (self.L.T * by_variance) @ self.L)


def soft_maxima(B: Matrix, L: Matrix, Sigma: Matrix, t: float) -> SoftMaxima | None:
    """Return F at Sigma, None if Sigma is not positive definite."""
    try:
        half = np.linalg.inv(np.linalg.cholesky(Sigma))
    except np.linalg.LinAlgError:
        return None
    costs, variances = ((half @ B) ** 2).sum(axis=0), ((L @ Sigma) * L).sum(axis=1)
    first, by_cost = _soft_max(t * costs)
    second, by_variance = _soft_max(t * variances)
    return SoftMaxima(B, L, t, half.T @ half, costs, variances, by_cost, by_variance, (first + second) / t)


def soft_max_fit(
    V: Matrix,
    c: Matrix,
    *,
    tolerance: float = 1e-3,
    growth: float = 2.0,
    cg_steps: int = 20,
    max_steps: int = 10_000,
    enough: float = 0.0,
    seconds: float = np.inf,
) -> Strategy:
    """Return what SM-II finds for the problem of `mechanisms.least.minimax.fit`, with the same certificate.

    Args:
        V: shape (m, n), not all zero.
        c: shape (m,), positive.
        tolerance: of a Newton step, and of (d + m) / t at the end.
        growth: by how much t grows.
        cg_steps: most steps of conjugate gradients, each time; with the right second derivative the paper's 5 are
            too few, and 20 come closer in the same time.
        max_steps: most Newton steps.
        enough: stop once the cost is no more than this.
        seconds: CPU time after which the best so far is returned.

    >>> round(soft_max_fit(np.tril(np.ones((4, 4))), np.ones(4)).cost, 2)
    1.76
    """
    U = V / np.sqrt(c)[:, None]
    B = row_space(U)
    if not len(B):
        raise ValueError(f"V must not be zero, got shape {V.shape}")
    L, stop = U @ B.T, process_time() + seconds
    Sigma = len(B) / float((L**2).sum(axis=1).max()) * np.eye(len(B))
    now = soft_maxima(B, L, Sigma, 1.0)
    assert now is not None, "a multiple of one is positive definite"
    ends: list[SoftMaxima] = []
    for _ in range(max_steps):
        if process_time() > stop or now.cost <= enough:
            break
        P = _newton_direction(now, cg_steps)
        slope = float((P * now.gradient).sum())
        step = None if abs(slope) < tolerance else _line_search(now, Sigma, P, slope)
        if step is not None:
            Sigma, now = step
            continue
        ends.append(now)
        if (B.shape[1] + len(L)) / now.t < tolerance:
            break
        now = soft_maxima(B, L, Sigma, growth * now.t) or now
    return _strategy(now, [*ends, now], U, c)


def _strategy(now: SoftMaxima, ends: list[SoftMaxima], U: Matrix, c: Matrix) -> Strategy:
    """Return the mechanism scaled to its targets. The weights of the maxima at any temperature give a bound."""
    K = np.linalg.cholesky(now.S).T @ np.linalg.pinv(now.L) * np.sqrt(now.variances.max())
    bounds = [nuclear_bound(U, end.by_variance, end.by_cost) for end in ends]
    at = ends[int(np.argmax(bounds))]
    return Strategy(K / np.sqrt(c), now.cost, max(bounds), at.by_variance, at.by_cost)


def _soft_max(values: Matrix) -> tuple[float, Matrix]:
    """Return log(sum(exp(values))) and its gradient."""
    top = float(values.max())
    weights = np.exp(values - top)
    total = float(weights.sum())
    return top + float(np.log(total)), weights / total


def _newton_direction(now: SoftMaxima, steps: int) -> Matrix:
    """Return about -H^-1 gradient (Algorithm 2)."""
    residual = -now.gradient
    found, P, square = np.zeros_like(residual), residual, float((residual**2).sum())
    for _ in range(steps):
        curved = now.curvature(P)
        bend = float((P * curved).sum())
        if bend <= 0:  # rounding: F is convex
            break
        size = square / bend
        found, residual = found + size * P, residual - size * curved
        square, before = float((residual**2).sum()), square
        if square <= _RESIDUAL:
            break
        P = residual + square / before * P
    return found


def _line_search(now: SoftMaxima, Sigma: Matrix, P: Matrix, slope: float) -> tuple[Matrix, SoftMaxima] | None:
    """Return the first of Sigma + P, Sigma + P / 2, ... that is positive definite and low enough (Algorithm 3).

    None if rounding leaves none: F can't be told from its minimum then.
    """
    size = 1.0
    while size > np.finfo(float).eps:
        there = Sigma + size * P
        found = soft_maxima(now.B, now.L, there, now.t)
        if found is not None and found.value <= now.value + size * _DECREASE * slope:
            return there, found
        size /= 2
    return None
