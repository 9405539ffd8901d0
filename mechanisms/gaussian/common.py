"""Choosing between analyses without waste: what several mechanisms share, and what each has beyond that.

The common mechanism is run in any case; its output helps to choose, and the residual of the chosen mechanism then
completes it, so that the whole costs what the chosen mechanism alone would have (arXiv 2212.00135).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mechanisms.gaussian.linear import Matrix, Mechanism, answerable, row_space, standardised, whitened
from mechanisms.tolerances import EIGENVALUE_CUT, INDEFINITE, SAME_DIRECTION


@dataclass(frozen=True, eq=False)
class Stage:
    """One step of a choice among several: `common` is shared by the mechanism at hand and all finer ones.

    `step` completes the common mechanism of the stage before to this one, `finish` completes this one to the mechanism
    at hand. All residuals are standardised.
    """

    common: Mechanism
    step: Mechanism
    finish: Mechanism


def common(one: Mechanism, other: Mechanism) -> Mechanism:
    """Return the maximal common mechanism of two: the most that is answerable from each (Algorithm 1).

    B = basis of the shared row space, S_i the covariance of the best answers to B from mechanism i,
    Sigma = (S_1 + S_2)/2 + |S_2 - S_1|/2, the least upper bound of both (Theorem 5.4).
    """
    rows = [standardised(M).B for M in (one, other)]
    B = _shared(rows)
    first, second = (_covariance(B, known) for known in rows)
    return Mechanism(B, (first + second) / 2 + _absolute(second - first) / 2)


def common_many(mechanisms: list[Mechanism], *, gap: float = 1e-6, max_steps: int = 20_000) -> Mechanism:
    """Return the maximal common mechanism of any number: min tr(Sigma) s.t. Sigma >= S_i for all i (Theorem 5.3).

    Guarantee: Sigma >= S_i holds as computed, and tr(Sigma) is within `gap` (relative) of the dual bound
    max sum_i <S_i, Z_i> over Z_i >= 0 with sum_i Z_i = I; ValueError if max_steps do not suffice.
    """
    if len(mechanisms) < 2:
        raise ValueError(f"at least two mechanisms are needed, got {len(mechanisms)}")
    rows = [standardised(M).B for M in mechanisms]
    B = _shared(rows)
    return Mechanism(B, least_upper_bound([_covariance(B, known) for known in rows], gap=gap, max_steps=max_steps))


def least_upper_bound(matrices: list[Matrix], *, gap: float = 1e-6, max_steps: int = 20_000) -> Matrix:
    """Return the Sigma of least trace with Sigma >= S_i for all i, by ADMM, with a certified relative gap.

    Y_i = Sigma - S_i >= 0 is split off. Each step gives a feasible Sigma (raised by the largest violation) and, from
    the multipliers Z_i made to add up to I, a lower bound.
    """
    size = len(matrices[0])
    if size == 0 or len(matrices) == 1:
        return matrices[0]
    S = np.stack(matrices)
    scale = float(np.trace(S.max(axis=0))) / size
    S = S / scale
    Y, drift, penalty = np.zeros_like(S), np.zeros_like(S), 1.0
    upper, lower, best = np.inf, 0.0, S[0]
    for count in range(1, max_steps + 1):
        Sigma = (Y + S - drift).mean(axis=0) - np.eye(size) / (penalty * len(S))
        eigenvalues, vectors = np.linalg.eigh(Sigma - S + drift)
        Y_old, Y = Y, (vectors * np.maximum(eigenvalues, 0.0)[:, None, :]) @ vectors.transpose(0, 2, 1)
        drift = drift + Sigma - S - Y
        if count % 5 == 0:
            feasible = _raised(Sigma, S)
            if np.trace(feasible) < upper:
                upper, best = float(np.trace(feasible)), feasible
            lower = max(lower, _dual_bound((vectors * np.maximum(-eigenvalues, 0.0)[:, None, :]), vectors, S))
            if upper <= lower * (1 + gap):
                return np.asarray(best * scale, dtype=np.float64)
            if count % 50 == 0:
                factor = _rebalanced(np.linalg.norm(Sigma - S - Y), penalty * np.linalg.norm(Y - Y_old))
                penalty, drift = penalty * factor, drift / factor
    raise ValueError(f"no common mechanism within a gap of {gap} after {max_steps} steps")


def residual(M: Mechanism, M_common: Mechanism) -> Mechanism:
    """Return the standardised mechanism that M has beyond M_common: its information is C - C_common (Algorithm 3).

    Guarantee: M_common and the residual together are equivalent to M and cost what M costs.
    """
    if not answerable(M_common, M, tolerance=10 * EIGENVALUE_CUT).holds:
        raise ValueError("the common mechanism must be answerable from the mechanism it was made from, and is not")
    rows = standardised(M).B
    lengths = np.linalg.norm(rows, axis=1)
    basis = rows / lengths[:, None]
    shared = whitened(M_common) @ basis.T
    eigenvalues, vectors = np.linalg.eigh(np.diag(lengths**2) - shared.T @ shared)
    keep = eigenvalues > EIGENVALUE_CUT * np.max(lengths**2, initial=0.0)
    B = np.sqrt(eigenvalues[keep])[:, None] * (vectors[:, keep].T @ basis)
    return Mechanism(B, np.eye(len(B)))


def sequence(mechanisms: list[Mechanism]) -> list[Stage]:
    """Return the stages of a choice from the coarsest mechanism to the finest (section 7.5).

    Stage i runs `step`, which makes what mechanisms i, i+1, ... share out of what was known, and looks at it: to take
    mechanism i, run `finish`; to go on, run the next `step`. What was paid in the end is the cost of the one taken.
    The last stage's common mechanism is the last mechanism itself, so that its `finish` is empty.

    The common mechanism of i, i+1, ... is taken as that of M_i and the next stage's, so that each stage is answerable
    from the next by construction. (Least-trace common mechanisms, each found for itself, need not be.)
    """
    if not mechanisms:
        raise ValueError("at least one mechanism is needed, got none")
    shared = [standardised(mechanisms[-1])]
    for M in reversed(mechanisms[:-1]):
        shared.append(common(M, shared[-1]))
    shared.reverse()
    nothing = Mechanism(np.zeros((0, mechanisms[0].B.shape[1])), np.zeros((0, 0)))
    before = [nothing, *shared[:-1]]
    return [
        Stage(here, residual(here, known), residual(M, here))
        for M, here, known in zip(mechanisms, shared, before, strict=True)
    ]


def _shared(rows: list[Matrix]) -> Matrix:
    """Return an orthonormal basis of the intersection of the row spaces, shape (k, d)."""
    basis = row_space(rows[0])
    for other in rows[1:]:
        left, cosines, _ = np.linalg.svd(basis @ row_space(other).T, full_matrices=False)
        basis = left[:, cosines > 1 - SAME_DIRECTION].T @ basis
    return basis


def _covariance(B: Matrix, rows: Matrix) -> Matrix:
    """Return the covariance of the best answers to B from standardised independent rows: A A^T, A = B rows^+."""
    A = B @ np.linalg.pinv(rows)
    covariance: Matrix = A @ A.T
    return covariance


def _absolute(S: Matrix) -> Matrix:
    eigenvalues, vectors = np.linalg.eigh(S)
    absolute: Matrix = (vectors * np.abs(eigenvalues)) @ vectors.T
    return absolute


def _raised(Sigma: Matrix, S: Matrix) -> Matrix:
    """Return Sigma + t I with the least t >= 0 such that it is above every S_i."""
    lowest = float(np.linalg.eigvalsh(Sigma - S).min())
    return Sigma + max(0.0, -lowest) * np.eye(len(Sigma))


def _dual_bound(scaled: Matrix, vectors: Matrix, S: Matrix) -> float:
    """Return sum_i <S_i, N^-1/2 Z_i N^-1/2> with N = sum_i Z_i, or 0 if N is singular."""
    Z = scaled @ vectors.transpose(0, 2, 1)
    eigenvalues, basis = np.linalg.eigh(Z.sum(axis=0))
    if eigenvalues[0] <= INDEFINITE * eigenvalues[-1]:
        return 0.0
    root = (basis / np.sqrt(eigenvalues)) @ basis.T
    return float((S * (root @ Z @ root)).sum())


def _rebalanced(primal: np.floating, dual: np.floating) -> float:
    if primal > 5 * dual:
        return 2.0
    return 0.5 if dual > 5 * primal else 1.0
