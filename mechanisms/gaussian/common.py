"""Choosing between analyses without waste: what several mechanisms share, and what each has beyond that.

The common mechanism is run in any case; its output helps to choose, and the residual of the chosen mechanism then
completes it, so that the whole costs what the chosen mechanism alone would have (arXiv 2212.00135).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mechanisms import interrupts
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

    B = basis of the shared row space, Sigma_i the covariance of the best answers to B from mechanism i,
    Sigma = (Sigma_1 + Sigma_2)/2 + |Sigma_2 - Sigma_1|/2, the least upper bound of both (Theorem 5.4).
    """
    rows = [standardised(M).B for M in (one, other)]
    B = _shared(rows)
    first, second = (_covariance(B, known) for known in rows)
    return Mechanism(B, (first + second) / 2 + _absolute(second - first) / 2)


def common_many(mechanisms: list[Mechanism], *, gap: float = 1e-6, max_steps: int = 20_000) -> Mechanism:
    """Return the maximal common mechanism of any number: min tr(Sigma) s.t. Sigma >= Sigma_i for all i (Theorem 5.3).

    Guarantee: Sigma >= Sigma_i holds as computed, and tr(Sigma) is within `gap` (relative) of the dual bound
    max sum_i <Sigma_i, weight_i> over weight_i >= 0 with sum_i weight_i = I; ValueError if max_steps do not suffice.
    """
    if len(mechanisms) < 2:
        raise ValueError(f"at least two mechanisms are needed, got {len(mechanisms)}")
    rows = [standardised(M).B for M in mechanisms]
    B = _shared(rows)
    return Mechanism(B, least_upper_bound([_covariance(B, known) for known in rows], gap=gap, max_steps=max_steps))


def least_upper_bound(matrices: list[Matrix], *, gap: float = 1e-6, max_steps: int = 20_000) -> Matrix:
    """Return the Sigma of least trace with Sigma >= Sigma_i for all i, by ADMM, with a certified relative gap.

    slack_i = Sigma - Sigma_i >= 0 is split off. Each step gives a feasible Sigma (raised by the largest violation) and,
    from the multipliers weight_i made to add up to I, a lower bound.
    """
    size = len(matrices[0])
    if size == 0 or len(matrices) == 1:
        return matrices[0]
    Sigmas = np.stack(matrices)
    scale = float(np.trace(Sigmas.max(axis=0))) / size
    Sigmas = Sigmas / scale
    slack, drift, penalty = np.zeros_like(Sigmas), np.zeros_like(Sigmas), 1.0
    upper, lower, best = np.inf, 0.0, Sigmas[0]
    for count in range(1, max_steps + 1):
        interrupts.check()
        Sigma = (slack + Sigmas - drift).mean(axis=0) - np.eye(size) / (penalty * len(Sigmas))
        eigenvalues, vectors = np.linalg.eigh(Sigma - Sigmas + drift)
        before, slack = slack, (vectors * np.maximum(eigenvalues, 0.0)[:, None, :]) @ vectors.transpose(0, 2, 1)
        drift = drift + Sigma - Sigmas - slack
        if count % 5 == 0:
            feasible = _raised(Sigma, Sigmas)
            if np.trace(feasible) < upper:
                upper, best = float(np.trace(feasible)), feasible
            lower = max(lower, _dual_bound((vectors * np.maximum(-eigenvalues, 0.0)[:, None, :]), vectors, Sigmas))
            if upper <= lower * (1 + gap):
                return np.asarray(best * scale, dtype=np.float64)
            if count % 50 == 0:
                factor = _rebalanced(np.linalg.norm(Sigma - Sigmas - slack), penalty * np.linalg.norm(slack - before))
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
    """Return the covariance of the best answers to B from standardised independent rows: L L^T, L = B rows^+."""
    L = B @ np.linalg.pinv(rows)
    covariance: Matrix = L @ L.T
    return covariance


def _absolute(Sigmas: Matrix) -> Matrix:
    eigenvalues, vectors = np.linalg.eigh(Sigmas)
    absolute: Matrix = (vectors * np.abs(eigenvalues)) @ vectors.T
    return absolute


def _raised(Sigma: Matrix, Sigmas: Matrix) -> Matrix:
    """Return Sigma + t I with the least t >= 0 such that it is above every Sigma_i."""
    lowest = float(np.linalg.eigvalsh(Sigma - Sigmas).min())
    return Sigma + max(0.0, -lowest) * np.eye(len(Sigma))


def _dual_bound(scaled: Matrix, vectors: Matrix, Sigmas: Matrix) -> float:
    """Return sum_i <Sigma_i, N^-1/2 weight_i N^-1/2> with N = sum_i weight_i, or 0 if N is singular."""
    weights = scaled @ vectors.transpose(0, 2, 1)
    eigenvalues, basis = np.linalg.eigh(weights.sum(axis=0))
    if eigenvalues[0] <= INDEFINITE * eigenvalues[-1]:
        return 0.0
    root = (basis / np.sqrt(eigenvalues)) @ basis.T
    return float((Sigmas * (root @ weights @ root)).sum())


def _rebalanced(primal: np.floating, dual: np.floating) -> float:
    if primal > 5 * dual:
        return 2.0
    return 0.5 if dual > 5 * primal else 1.0
