"""Linear Gaussian mechanisms: what one costs, and what it tells about another.

A mechanism releases B x + N(0, Sigma). It is worth its information C = B^T Sigma^-1 B and nothing else:
two mechanisms with the same C can be turned into each other (arXiv 2212.00135, Theorem 3.5).
Standardised rows have Sigma = I, so that the releases of a table are one stack of rows B with C = B^T B.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr, solve_triangular

from mechanisms.tolerances import EIGENVALUE_CUT, RANK, RANK_OF_LONGEST

Matrix = NDArray[np.float64]
Indices = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Mechanism:
    """Release B x + N(0, Sigma). B has shape (m, d), Sigma (m, m), symmetric positive definite."""

    B: Matrix
    Sigma: Matrix

    def __post_init__(self) -> None:
        if self.B.ndim != 2 or self.Sigma.shape != (len(self.B), len(self.B)):
            raise ValueError(f"B must be (m, d) and Sigma (m, m), got shapes {self.B.shape} and {self.Sigma.shape}")


@dataclass(frozen=True, eq=False)
class Answerability:
    """Either L, with M_wanted = L M_known + N(0, Sigma_extra), or a direction in which M_wanted tells more.

    The direction v has v^T C_wanted v > v^T C_known v; no post-processing can make up for that.
    """

    L: Matrix | None
    Sigma_extra: Matrix | None
    direction: Matrix | None

    @property
    def holds(self) -> bool:
        """Whether the wanted mechanism is exactly answerable."""
        return self.L is not None


def independent(B: Matrix, variance: float) -> Mechanism:
    """Return the mechanism that answers every row of B with independent noise of that variance."""
    return Mechanism(B, variance * np.eye(len(B)))


def together(mechanisms: list[Mechanism]) -> Mechanism:
    """Return the mechanism that runs all of them, with independent noise."""
    if not mechanisms:
        raise ValueError("at least one mechanism is needed, got none")
    Sigma = np.zeros((sum(len(M.B) for M in mechanisms),) * 2)
    start = 0
    for M in mechanisms:
        stop = start + len(M.B)
        Sigma[start:stop, start:stop] = M.Sigma
        start = stop
    return Mechanism(np.vstack([M.B for M in mechanisms]), Sigma)


def whitened(M: Mechanism) -> Matrix:
    """Return Sigma^-1/2 B, by a Cholesky factor: the rows of the same mechanism with noise N(0, I), shape (m, d)."""
    try:
        factor = np.linalg.cholesky(M.Sigma)
    except np.linalg.LinAlgError:
        raise ValueError(f"Sigma must be positive definite, got shape {M.Sigma.shape}") from None
    rows: Matrix = solve_triangular(factor, M.B, lower=True)
    return rows


def standardised(M: Mechanism) -> Mechanism:
    """Return the equivalent mechanism with Sigma = I and linearly independent, orthogonal rows (Algorithm 2)."""
    rows = whitened(M)
    _, singular, directions = np.linalg.svd(rows, full_matrices=False)
    keep = singular**2 > EIGENVALUE_CUT * np.max(singular**2, initial=0.0)
    B = singular[keep, None] * directions[keep]
    return Mechanism(B, np.eye(len(B)))


def root_rows(C: Matrix) -> Matrix:
    """Return rows B with B^T B = C for positive semidefinite C, eigenvalues at or below rounding dropped."""
    eigenvalues, vectors = np.linalg.eigh((C + C.T) / 2)
    keep = eigenvalues > EIGENVALUE_CUT * np.max(np.abs(eigenvalues), initial=0.0)
    rows: Matrix = np.sqrt(eigenvalues[keep])[:, None] * vectors[:, keep].T
    return rows


def information(M: Mechanism) -> Matrix:
    """Return C = B^T Sigma^-1 B, shape (d, d)."""
    rows = whitened(M)
    C: Matrix = rows.T @ rows
    return C


def profile(M: Mechanism) -> Matrix:
    """Return diag(B^T Sigma^-1 B), what a record in each cell pays, shape (d,)."""
    cost: Matrix = (whitened(M) ** 2).sum(axis=0)
    return cost


def rho(M: Mechanism) -> float:
    """Return the zCDP cost of releasing B x + N(0, Sigma) once: max(diag(B^T Sigma^-1 B)) / 2.

    Guarantee: for every x and x' that differ by at most 1 in at most one entry,
    the two releases have Rényi divergence of order alpha at most alpha * rho.

    >>> rho(independent(np.eye(3), 4.0))
    0.125
    """
    return float(profile(M).max()) / 2


def answerable(wanted: Mechanism, known: Mechanism, *, tolerance: float = EIGENVALUE_CUT) -> Answerability:
    """Return how to make `wanted` from `known` by post-processing, or why that is impossible (Theorem 3.5).

    C_wanted <= C_known in the Loewner order decides, up to `tolerance` of the larger one. The witness is
    L = B_wanted C_known^+ B_known^T Sigma_known^-1, the least noisy of all unbiased ones.
    """
    rows_wanted, rows_known = whitened(wanted), whitened(known)
    Q = row_space(np.vstack([rows_wanted, rows_known]))
    left, right = rows_wanted @ Q.T, rows_known @ Q.T
    gain = left.T @ left - right.T @ right
    eigenvalues, vectors = np.linalg.eigh(gain)
    scale = max(np.max(np.sum(left**2, axis=0), initial=0.0), np.max(np.sum(right**2, axis=0), initial=0.0))
    if eigenvalues.size and eigenvalues[-1] > tolerance * scale:
        return Answerability(None, None, Q.T @ vectors[:, -1])
    factor = np.linalg.cholesky(known.Sigma)
    mixing = (wanted.B @ Q.T) @ np.linalg.pinv(right, rcond=np.sqrt(tolerance) / 10)
    L = solve_triangular(factor, mixing.T, lower=True, trans="T").T
    return Answerability(L, wanted.Sigma - mixing @ mixing.T, None)


def equivalent(one: Mechanism, other: Mechanism, *, tolerance: float = EIGENVALUE_CUT) -> bool:
    """Return whether each mechanism is exactly answerable from the other: their informations are equal."""
    return answerable(one, other, tolerance=tolerance).holds and answerable(other, one, tolerance=tolerance).holds


def row_space(B: Matrix) -> Matrix:
    """Return an orthonormal basis of the row space, shape (rank, d)."""
    lengths = np.linalg.norm(B, axis=1)
    return directions(B, np.maximum(RANK * lengths, RANK_OF_LONGEST * np.max(lengths, initial=0.0)))


def directions(B: Matrix, shortest: Matrix) -> Matrix:
    """Return an orthonormal basis of the row space, a row counting only if it adds more than its `shortest`, (m,).

    Long rows come first, so that their directions are not blurred by the rounding of short ones.
    """
    if not B.any():
        return np.zeros((0, B.shape[1]))
    Q, upper, order = qr(B.T, mode="economic", pivoting=True)
    added = np.abs(upper.diagonal())
    basis: Matrix = Q[:, added > shortest[order[: len(added)]]].T
    return basis
