"""What is known of a table: all that was released on a domain, and the best answers from it.

Releases are standardised rows B with y = B x + N(0, I). Together they are worth C = B^T B and h = B^T y. `Known` keeps
triangular rows instead of C, so that no condition number is squared: a total may be known 10^6 times better than its
parts, and neither spoils the other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr, rq, solve_triangular
from scipy.linalg.lapack import dtpmqrt, dtpqrt, dtrcon

from mechanisms.gaussian.linear import Matrix, Mechanism, directions, whitened
from mechanisms.tolerances import HARDLY, OUTSIDE

_BLOCK = 32
"""Columns that LAPACK takes at a time."""


@dataclass(frozen=True, eq=False)
class Known:
    """All that was released on a domain of d cells, of rank r: C = rows^T rows, h = rows^T outcome.

    rows = factor @ basis, with `factor` (r, r) upper triangular and the rows of `basis` (r, d) orthonormal; once
    r = d, `basis` is the identity and left out. `C` (d, d) is kept once half of the directions are known.
    """

    cells: int
    factor: Matrix
    outcome: Matrix
    basis: Matrix | None
    C: Matrix | None

    @property
    def rank(self) -> int:
        """The number of independent directions that something is known about."""
        return len(self.factor)

    @property
    def rows(self) -> Matrix:
        """As many rows as the rank, which together with `outcome` tell all that was released, shape (r, d)."""
        return self.factor if self.basis is None else np.asarray(self.factor @ self.basis)

    @property
    def profile(self) -> Matrix:
        """What a record in each cell has paid, diag(C), shape (d,)."""
        return np.asarray((self.rows**2).sum(axis=0) if self.C is None else self.C.diagonal())

    def with_rows(self, B: Matrix, y: Matrix) -> Known:
        """Return what is known after B x + N(0, I) gave y as well, shapes (m, d) and (m,), in O(d^2 m).

        Guarantee: C and h grow by B^T B and B^T y, but for parts of rows that are rounding, 1e-6 of a row's length.
        """
        if y.ndim != 1 or B.shape != (len(y), self.cells):
            raise ValueError(f"B must be (m, {self.cells}) and y (m,), got shapes {B.shape} and {y.shape}")
        if not B.any():
            return self
        C = None if self.C is None else self.C + B.T @ B
        basis, factor, outcome = self._extended(B), self.factor, self.outcome
        if basis is None and self.basis is not None:
            factor, outcome = np.zeros((0, 0)), np.zeros(0)
            B, y = np.vstack([self.rows, B]), np.concatenate([self.outcome, y])
        factor, outcome = _merged(factor, outcome, B if basis is None else B @ basis.T, y)
        factor, outcome, basis = _clear(factor, outcome, basis)
        found = Known(self.cells, factor, outcome, basis, C)
        if C is None and 2 * found.rank >= self.cells:
            return Known(self.cells, factor, outcome, basis, found.rows.T @ found.rows)
        return found

    def variances(self, W: Matrix) -> Matrix:
        """Return the variance of the best answer to each row, diag(W C^+ W^T), inf outside the known row space.

        >>> known = nothing_known(2).with_rows(np.array([[0.5, 0.5]]), np.zeros(1))
        >>> known.variances(np.array([[1.0, 1.0], [1.0, 0.0]])).tolist()
        [4.0, inf]
        """
        roots, outside = self.roots(W)
        found: Matrix = np.where(_is_inside(W, outside), (roots**2).sum(axis=1), np.inf)
        return found

    def estimate(self, W: Matrix) -> Matrix:
        """Return the best linear unbiased answers W C^+ h, shape (k,), nan outside the known row space."""
        roots, outside = self.roots(W)
        answers: Matrix = np.where(_is_inside(W, outside), roots @ self.outcome, np.nan)
        return answers

    def roots(self, W: Matrix) -> tuple[Matrix, Matrix]:
        """Return roots with roots roots^T = W C^+ W^T, shape (k, r), and the part of W that is not known, (k, d)."""
        if self.basis is None:
            inside, outside = W, np.zeros_like(W)
        else:
            inside, outside = _split(W, self.basis)
        roots: Matrix = solve_triangular(self.factor, inside.T, trans="T", check_finite=False).T
        return roots, outside

    def _extended(self, B: Matrix) -> Matrix | None:
        """Return the basis with what B adds to it, None if that is everything."""
        if self.basis is None:
            return None
        _, outside = _split(B, self.basis)
        is_new = ~_is_inside(B, outside)
        _, outside = _split(outside[is_new], self.basis)
        new = directions(outside, OUTSIDE * np.linalg.norm(B[is_new], axis=1))
        return np.vstack([self.basis, new]) if self.rank + len(new) < self.cells else None


def nothing_known(cells: int) -> Known:
    """Return what is known of a domain before anything was released."""
    return Known(cells, np.zeros((0, 0)), np.zeros(0), np.zeros((0, cells)), None)


def after(M: Mechanism, omega: Matrix) -> Known:
    """Return what is known after M alone gave omega, shape (m,)."""
    white = solve_triangular(np.linalg.cholesky(M.Sigma), omega, lower=True)
    return nothing_known(M.B.shape[1]).with_rows(whitened(M), white)


def _split(W: Matrix, basis: Matrix) -> tuple[Matrix, Matrix]:
    inside = W @ basis.T
    return inside, W - inside @ basis


def _is_inside(W: Matrix, outside: Matrix) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = np.linalg.norm(outside, axis=1) <= OUTSIDE * np.linalg.norm(W, axis=1)
    return found


def _merged(factor: Matrix, outcome: Matrix, B: Matrix, y: Matrix) -> tuple[Matrix, Matrix]:
    """Return the triangular factor and the outcome of [factor 0; B] and [outcome; y], by Householder's QR."""
    rank, size = len(factor), B.shape[1]
    padded, above = np.zeros((size, size), order="F"), np.zeros((size, 1))
    padded[:rank, :rank], above[:rank, 0] = factor, outcome
    merged, reflectors, blocks, _ = dtpqrt(0, min(_BLOCK, size), padded, np.asfortranarray(B), overwrite_a=True)
    rotated, _, _ = dtpmqrt(0, reflectors, blocks, above, y[:, None], trans="T")
    return merged, rotated[:, 0]


def _clear(factor: Matrix, outcome: Matrix, basis: Matrix | None) -> tuple[Matrix, Matrix, Matrix | None]:
    """Return what is known without directions that are rounding; most often there are none, which is quick to see."""
    if dtrcon(factor)[0] > HARDLY:
        return factor, outcome, basis
    Q, upper, order = qr(factor, pivoting=True, check_finite=False)
    rank = int((np.abs(upper.diagonal()) > HARDLY * abs(upper[0, 0])).sum())
    if rank == len(factor):
        return factor, outcome, basis
    kept = np.zeros((rank, len(factor)))
    kept[:, order] = upper[:rank]
    smaller, axes = rq(kept, mode="economic", check_finite=False)
    return smaller, (Q.T @ outcome)[:rank], axes if basis is None else axes @ basis
