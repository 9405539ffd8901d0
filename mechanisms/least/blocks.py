"""Rows with targets and what is known, in blocks, and what a solution costs once it meets all targets.

`ascent`, `splitting` and `refined` look for new information, one matrix for each block, on coordinates in which all
that is asked and known has room.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import qr, solve_triangular

from mechanisms.gaussian.known import nothing_known
from mechanisms.gaussian.linear import Indices, Matrix, row_space
from mechanisms.tolerances import FAINT, FULL_RANK

_GRID, _FRESH_GRID, _LEVELS = 17, 33, 3
"""The best scale is looked for on a grid, then on finer ones around what was best; finer at once if nothing is known,
since a scale then takes less work."""


@dataclass(frozen=True, eq=False)
class Block:
    """One block: row `rows[j]` of the problem has the part V[j], on coordinates that stand for the cells `cells`.

    `known` are rows that are known with variance one, as wide as V is; None if there are none.
    """

    rows: Indices
    V: Matrix
    cells: Indices
    copies: int = 1
    known: Matrix | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class Part:
    """A block on the span of its rows and of what is known: V = L Q, known = B Q, for V over the roots of targets.

    Q is orthonormal, or None if the span is everything. On rows it is V itself, and L is one: quicker if there are few.
    """

    rows: Indices
    cells: Indices
    copies: int
    L: Matrix
    B: Matrix
    Q: Matrix | None
    is_on_rows: bool = False

    def metric(self, mu: Matrix) -> Matrix:
        """Return G with G G^T = Q diag(mu) Q^T, lower triangular."""
        root = np.sqrt(mu[self.cells])
        if self.Q is None:
            return np.diag(root)
        half = self.Q * root
        return np.asarray(np.linalg.cholesky(half @ half.T), dtype=np.float64)

    def spread(self, rows: Matrix) -> Matrix:
        """Return rows on the block's own coordinates."""
        return rows if self.Q is None else np.asarray(rows @ self.Q)


def fresh_part(V: Matrix) -> Part:
    """Return a block of rows with targets of one, nothing of it known; on its rows if these are fewer than cells."""
    rows, cells = np.arange(len(V)), np.arange(V.shape[1])
    narrow = V.T if len(V) < V.shape[1] else V
    lengths = np.linalg.norm(narrow, axis=1)
    even = narrow / np.where(lengths > 0, lengths, 1.0)[:, None]
    squares = np.linalg.eigvalsh(even.T @ even)
    if squares[0] <= FULL_RANK * squares[-1] and len(row_space(even)) < narrow.shape[1]:
        return part_of(Block(rows, V, cells), np.ones(len(V)))
    if len(V) < V.shape[1]:
        return Part(rows=rows, cells=cells, copies=1, L=np.eye(len(V)), B=np.zeros((0, len(V))), Q=V, is_on_rows=True)
    return Part(rows=rows, cells=cells, copies=1, L=V, B=V[:0], Q=None)


def part_of(block: Block, c: Matrix) -> Part:
    V, B = block.V / np.sqrt(c[block.rows])[:, None], block.V[:0] if block.known is None else block.known
    B = B[B.any(axis=1)]
    stack = np.vstack([B, V])
    lengths = np.linalg.norm(stack, axis=1, keepdims=True)
    Q = row_space(stack / np.where(lengths > 0, lengths, 1.0))
    L, B = (V, B) if len(Q) == V.shape[1] else (V @ Q.T, B @ Q.T)
    if len(B) > len(Q):
        B = qr(B, mode="r", check_finite=False)[0][: len(Q)]
    return Part(
        rows=block.rows, cells=block.cells, copies=block.copies, L=L, B=B, Q=None if len(Q) == V.shape[1] else Q
    )


@dataclass(frozen=True, eq=False)
class Piece:
    """New information of a part, as rows, and what it is worth at another scale t: the variance of row j is then the
    sum over k of squares[j, k] / (1 + (t - 1) shares[k]).
    """

    rows: Matrix
    squares: Matrix
    shares: Matrix


def piece(rows: Matrix, V: Matrix, B: Matrix, G: Matrix) -> Piece:
    """Return the piece of rows, where V and B are what is asked and known, all on coordinates in which G is one.

    With a Cholesky factor F of C_known + R, and vectors of F^-1 R F^-T, the squares are those of V F^-T vectors.
    """
    R = rows.T @ rows
    C = B.T @ B + R
    factor = np.linalg.cholesky(C + FAINT * float(C.diagonal().max()) * np.eye(len(C)))
    half = solve_triangular(factor, rows.T, lower=True, check_finite=False)
    shares, vectors = np.linalg.eigh(half @ half.T)
    z = vectors.T @ solve_triangular(factor, V.T, lower=True, check_finite=False)
    return Piece(outside(rows, G), z.T**2, np.clip(shares, 0.0, 1.0))


def outside(rows: Matrix, G: Matrix) -> Matrix:
    """Return rows of information on a part's own coordinates."""
    return np.asarray(solve_triangular(G, rows.T, lower=True, trans="T", check_finite=False).T)


@dataclass(frozen=True, eq=False)
class Solution:
    """New information of each part as rows, a scale of it, and how much of each row of the problem is added."""

    cost: float
    rows: list[Matrix]
    scale: float
    more: Matrix


@dataclass(frozen=True, eq=False)
class Bound:
    """No solution costs less than `value`. If the targets were larger by small parts p, it would be p @ multipliers
    less; to that bound everything that is asked and known contributes `worth`.
    """

    value: float
    multipliers: Matrix
    worth: float

    def at(self, factor: float) -> float:
        """Return what no solution costs less than for targets so many times as large."""
        more = (factor - 1) * float(self.multipliers.sum())
        return self.value - self.worth * more / (self.worth + more) if self.worth else self.value


class Problem:
    """Rows with targets of one, in parts."""

    def __init__(self, parts: list[Part], sizes: Matrix, members: Matrix) -> None:
        self.parts, self.sizes, self.members, self.count = parts, sizes, members, len(members)
        self.squares = np.zeros((self.count, len(sizes)))  # what a row costs the cells when it is measured by itself
        for part in parts:
            self.squares[part.rows[:, None], part.cells] += part.spread(part.L) ** 2 / sizes[part.cells]
        self.squares *= members[:, None]
        self.paid = self.profile([part.B for part in parts])  # for what is known

    @property
    def is_known(self) -> bool:
        """Whether anything is known."""
        return any(len(part.B) for part in self.parts)

    @property
    def is_met(self) -> bool:
        """Whether what is known meets all targets by itself."""
        variances = np.zeros(self.count)
        for part in self.parts:
            known = nothing_known(part.L.shape[1]).with_rows(part.B, np.zeros(len(part.B)))
            variances[part.rows] += known.variances(part.L)
        return bool((variances <= 1).all())

    def profile(self, rows: Sequence[Matrix]) -> Matrix:
        """Return what cells pay for rows of each part."""
        found = np.zeros(len(self.sizes))
        for part, each in zip(self.parts, rows, strict=True):
            found[part.cells] += part.copies * (part.spread(each) ** 2).sum(axis=0)
        return found / self.sizes

    @property
    def nothing(self) -> Solution:
        return Solution(np.inf, [part.L[:0] for part in self.parts], 0.0, np.zeros(self.count))

    def solution(self, pieces: Sequence[Piece]) -> Solution:
        """Return new information scaled and with more of some rows, so that all targets are met, as cheaply as can be.

        A row whose variance is above one is measured by itself as well, by 1 - 1 / variance: that is paid by its own
        cells, and they may be cheap ones.
        """
        rows = [each.rows for each in pieces]
        profile, best = self.profile(rows), self.nothing
        low, high = 0.0, 1.5 * max(float(self._variances(np.ones(1), pieces).max()), 1.0)
        for _ in range(_LEVELS):
            scales = np.linspace(low, high, _GRID)[1 if low == 0 else 0 :]
            more = np.maximum(1 - 1 / self._variances(scales, pieces), 0.0)
            costs = (scales[:, None] * profile + more @ self.squares).max(axis=1)
            at = int(np.argmin(costs))
            if costs[at] < best.cost:
                best = Solution(float(costs[at]), rows, float(scales[at]), more[at])
            low, high = (float(scales[at - 1]) if at else low), float(scales[min(at + 1, len(scales) - 1)])
        return best

    def topped(self, rows: list[Matrix], variances: Matrix, profile: Matrix) -> Solution:
        """Return the same if nothing is known, for information that has these variances and costs that profile.

        A row whose variance is above one is measured by itself as well, by 1 - scale / variance. Weights of rows and
        cells that do not bind vanish together, and their ratio, on which such a row's variance depends, is the last to
        come right. The cost is convex in the scale.
        """
        low, high = 0.0, float(variances.max())
        for _ in range(_LEVELS):
            scales = np.linspace(low, high, _FRESH_GRID)
            more = np.maximum(1 - scales[:, None] / variances, 0)
            costs = (scales[:, None] * profile + more @ self.squares).max(axis=1)
            at = len(costs) - 1 - int(np.argmin(costs[::-1]))
            low, high = scales[max(at - 1, 0)], scales[min(at + 1, _FRESH_GRID - 1)]
        return Solution(float(costs[at]), rows, float(scales[at]), more[at])

    def _variances(self, scales: Matrix, pieces: Sequence[Piece]) -> Matrix:
        found = np.zeros((len(scales), self.count))
        for part, each in zip(self.parts, pieces, strict=True):
            found[:, part.rows] += (1 / np.maximum(1 + np.outer(scales - 1, each.shares), FAINT)) @ each.squares.T
        return found

    def rows(self, found: Solution) -> tuple[Matrix, ...]:
        """Return the rows of each block to release."""
        made = []
        for part, rows in zip(self.parts, found.rows, strict=True):
            also = (found.more * self.members)[part.rows] / part.copies
            values, vectors = np.linalg.eigh(found.scale * (rows.T @ rows) + (part.L.T * also) @ part.L)
            keep = values > FAINT * float(values[-1])
            made.append(part.spread((np.sqrt(values[keep]) * vectors[:, keep]).T))
        return tuple(made)
