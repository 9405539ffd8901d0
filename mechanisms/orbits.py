"""The least information for accuracy targets, beyond what is known, on a domain with symmetries.

A symmetric problem has a symmetric solution: where swapping two cells changes nothing about what is asked and known,
C may be averaged over the swap, and the dearest cell pays no more. Symmetric matrices fall apart into blocks (Schur):
block b stands `copies` times in C, each time the same small matrix. Cells that can be swapped are one cell here, rows
that are swapped with each other are one row. Without symmetries there is one block, once.

The part of a row w in block b is a vector v_b such that w C^-1 w^T = sum_b v_b C_b^-1 v_b^T. Cell i stands for sizes_i
cells and pays sum_b copies_b / sizes_i C_b[i, i].

Primal: min max_i of what C - K charges cell i, over C_b >= K_b, with sum_b v_jb C_b^-1 v_jb^T <= 1 for every row j;
    K = B^T B is what is known, and rows are divided by the roots of their targets.
What is known is a target too: C >= B^T B says just that B C^-1 B^T <= 1. So rows have weights lambda, what is known has
weights Lambda_b >= 0, a matrix, and cells have weights mu, of sum one.
Dual: with N_b = diag(mu / sizes) and P_b = sum_j lambda_j v_jb^T v_jb / copies_b + B_b^T Lambda_b B_b, nothing that
    meets the targets costs less than |P|^2 / (sum lambda + sum_b copies_b tr Lambda_b) - sum_b copies_b tr(N_b K_b),
    where |P| = sum_b copies_b tr (N_b^1/2 P_b N_b^1/2)^1/2.
The best C for such weights is N^-1/2 (N^1/2 P N^1/2)^1/2 N^-1/2. lambda follows the variances, Lambda follows
B C^-1 B^T and mu the costs, with some momentum. On the way, C with all that it lacks is a solution, and has its bound.
A row's lambda is that of all rows it stands for together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.linalg import qr, solve_triangular

from mechanisms.fitness import Indices, Matrix
from mechanisms.linear import row_space

_FLOOR = 0.1
"""No weights that are all as small as allowed count for more than this part of the gap. Rows and cells that do not bind
then keep some weight, without which their directions would be told last, or by rounding."""

_POWER, _MOMENTUM = 1.8, 0.6
"""How far weights follow in a step (beyond 2 they would swing), and how much of the last step they go on with."""

_FIRST = 3
"""So many steps go by before there is momentum: the first ones go far."""

_FAR = 10.0
"""No weight changes by more than this factor in a step."""

_EVERY = 3
"""A solution is made in one of so many steps."""

_ROUNDING = 1e-8
"""Singular values are known up to this part of the largest: the roots of what eigenvalues are known to."""

_FAINT = 1e-12
"""Information below this part of the largest is rounding."""

_GRID, _LEVELS = 17, 3
"""The best scale is looked for on a grid, then on finer ones around what was best."""


@dataclass(frozen=True, eq=False)
class Block:
    """One block: row `rows[j]` of the problem has the part V[j], on coordinates that stand for the cells `cells`.

    `known` are rows that are known with variance one, (k, D) as V is (m, D); None if there are none.
    """

    rows: Indices
    V: Matrix
    cells: Indices
    copies: int = 1
    known: Matrix | None = None


@dataclass(frozen=True, eq=False)
class Plan:
    """What to release: rows for each block, (r_b, D_b). `cost` is what the dearest cell then pays beyond what is known.

    No rows that meet the targets cost less than `bound`. If the target variance of row j were larger by a small part p,
    about p * multipliers[j] would be saved, shape (m,). In the dual all targets are worth `worth`, what is known too.
    """

    rows: tuple[Matrix, ...]
    cost: float
    bound: float
    multipliers: Matrix
    worth: float

    def bound_at(self, factor: float) -> float:
        """Return what no rows can cost less than that meet targets so many times as large."""
        if not self.worth:
            return self.bound
        more = (factor - 1) * float(self.multipliers.sum())
        return max(min(self.bound - self.worth * more / (self.worth + more), self.cost), 0.0)


def least(
    blocks: Sequence[Block],
    c: Matrix,
    *,
    sizes: Matrix,
    members: Matrix,
    gap: float = 0.01,
    max_steps: int = 300,
) -> Plan:
    """Return the rows that charge the dearest cell least such that row j has variance at most c_j.

    Guarantee: from the rows as returned and what is known, all variances are at most c, and the cost is as stated, up
    to rounding.

    Args:
        blocks: the problem; every row has a part in at least one block. Without any, nothing is released.
        c: largest variances, shape (m,), positive.
        sizes: how many cells each cell stands for, shape (n,).
        members: how many rows each row stands for, shape (m,).
        gap: stop once cost / bound <= 1 + gap.

    >>> prefix = np.tril(np.ones((4, 4)))
    >>> every, ones = np.arange(4), np.ones(4)
    >>> round(least([Block(every, prefix, every)], ones, sizes=ones, members=ones, gap=1e-4).cost, 2)
    1.76
    """
    if not blocks:
        return Plan((), 0.0, 0.0, np.zeros(len(c)), 0.0)
    problem = _Problem([_part(block, c) for block in blocks], sizes, members)
    way, best, top = _Way(problem, _FLOOR * gap), problem.nothing, problem.at(problem.first())
    point = top
    for step in range(max_steps):
        if step % _EVERY == 0 or step == max_steps - 1:
            best = min(best, problem.solution(point), key=lambda found: found.cost)
        top = max(top, point, key=lambda found: found.bound)
        if best.cost <= top.bound * (1 + gap):
            break
        point = problem.at(way.on(point, momentum=step >= _FIRST and point is top))
    return Plan(problem.rows(best), best.cost, min(max(top.bound, 0.0), best.cost), top.weights.rows, top.worth)


@dataclass(frozen=True, eq=False)
class _Part:
    """A block on the span of its rows and of what is known: V = L Q, known = B Q, Q orthonormal (None: all)."""

    rows: Indices
    cells: Indices
    copies: int
    L: Matrix
    B: Matrix
    Q: Matrix | None

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


def _part(block: Block, c: Matrix) -> _Part:
    V, B = block.V / np.sqrt(c[block.rows])[:, None], block.V[:0] if block.known is None else block.known
    stack = np.vstack([B, V])
    lengths = np.linalg.norm(stack, axis=1, keepdims=True)
    Q = row_space(stack / np.where(lengths > 0, lengths, 1.0))
    L, B = (V, B) if len(Q) == V.shape[1] else (V @ Q.T, B @ Q.T)
    if len(B) > len(Q):
        B = qr(B, mode="r", check_finite=False)[0][: len(Q)]
    return _Part(block.rows, block.cells, block.copies, L, B, None if len(Q) == V.shape[1] else Q)


@dataclass(frozen=True, eq=False)
class _Weights:
    """Weights of rows (m,) and cells (n,), and for each part the logarithm of the matrix Lambda."""

    rows: Matrix
    cells: Matrix
    known: list[Matrix]


@dataclass(frozen=True, eq=False)
class _Spectrum:
    """The best information of a part for some weights: G^T C G = Y diag(roots) Y^T; V and B on these coordinates."""

    G: Matrix
    roots: Matrix
    Y: Matrix
    V: Matrix
    B: Matrix
    variances: Matrix

    @cached_property
    def told(self) -> Matrix:
        """B C^-1 B^T."""
        half = self.B @ (self.Y / np.sqrt(self.roots))
        return np.asarray(half @ half.T)

    def outside(self, rows: Matrix) -> Matrix:
        """Return rows of information on the part's own coordinates."""
        return np.asarray(solve_triangular(self.G, rows.T, lower=True, trans="T", check_finite=False).T)


@dataclass(frozen=True, eq=False)
class _Point:
    """What weights give, scaled as is best: `worth` is the sum of all of them, `profile` is what cells pay for C."""

    weights: _Weights
    spectra: list[_Spectrum]
    variances: Matrix
    profile: Matrix
    bound: float
    worth: float


@dataclass(frozen=True, eq=False)
class _Solution:
    """New information of each part as rows, a scale of it, and how much of each row of the problem is added."""

    cost: float
    rows: list[Matrix]
    scale: float
    more: Matrix


class _Problem:
    """Rows with targets of one, in parts."""

    def __init__(self, parts: list[_Part], sizes: Matrix, members: Matrix) -> None:
        self.parts, self.sizes, self.members, self.count = parts, sizes, members, len(members)
        self.squares = np.zeros((self.count, len(sizes)))  # what a row costs the cells when it is measured by itself
        for part in parts:
            self.squares[part.rows[:, None], part.cells] += part.spread(part.L) ** 2 / sizes[part.cells]
        self.squares *= members[:, None]
        self.paid = self.profile([part.B for part in parts])  # for what is known

    def profile(self, rows: Sequence[Matrix]) -> Matrix:
        """Return what cells pay for rows of each part."""
        found = np.zeros(len(self.sizes))
        for part, each in zip(self.parts, rows, strict=True):
            found[part.cells] += part.copies * (part.spread(each) ** 2).sum(axis=0)
        return found / self.sizes

    @property
    def nothing(self) -> _Solution:
        return _Solution(np.inf, [part.L[:0] for part in self.parts], 0.0, np.zeros(self.count))

    def first(self) -> _Weights:
        """Return weights to start from: as if each row were alone, and for what is known as if it were all."""
        mu, known = np.full(len(self.sizes), 1 / len(self.sizes)), []
        for part in self.parts:
            half = part.B @ part.metric(mu / self.sizes)
            known.append(_mapped(half @ half.T / 4, lambda values: np.log(np.maximum(values, _FAINT * values[-1]))))
        return _Weights(1 / self.squares.max(axis=1), mu, known)

    def at(self, weights: _Weights) -> _Point:
        """Return what weights give, times the factor for which the bound is best."""
        spectra = [self._spectrum(i, weights) for i in range(len(self.parts))]
        worth, size, variances = float(weights.rows.sum()), 0.0, np.zeros(self.count)
        for part, found, log in zip(self.parts, spectra, weights.known, strict=True):
            worth += part.copies * float(np.exp(np.linalg.eigvalsh(log)).sum())
            size += part.copies * float((found.roots - _ROUNDING * found.roots[-1]).sum())
            variances[part.rows] += found.variances
        factor = size / worth
        scaled = _Weights(
            weights.rows * factor**2,
            weights.cells,
            [log + 2 * np.log(factor) * np.eye(len(log)) for log in weights.known],
        )
        spectra = [replace(s, roots=s.roots * factor, variances=s.variances / factor) for s in spectra]
        profile = self.profile([s.outside((s.Y * np.sqrt(s.roots)).T) for s in spectra])
        bound = size * factor - float(weights.cells @ self.paid)
        return _Point(scaled, spectra, variances / factor, profile, bound, size * factor)

    def _spectrum(self, i: int, weights: _Weights) -> _Spectrum:
        part = self.parts[i]
        G = part.metric(weights.cells / self.sizes)
        V, B = part.L @ G, part.B @ G
        stack = V * np.sqrt(weights.rows[part.rows] / part.copies)[:, None]
        if len(B):
            stack = np.vstack([stack, _mapped(weights.known[i], lambda logs: np.exp(logs / 2)) @ B])
        values, Y = np.linalg.eigh(stack.T @ stack)
        roots = np.sqrt(np.maximum(values, _ROUNDING**2 * values[-1]))
        return _Spectrum(G, roots, Y, V, B, ((V @ (Y / np.sqrt(roots))) ** 2).sum(axis=1))

    def solution(self, point: _Point) -> _Solution:
        """Return what C has beyond what is known, scaled and with more of some rows, so that all targets are met.

        A row whose variance is above one is measured by itself as well, by 1 - 1 / variance: that is paid by its own
        cells, and they may be cheap ones.
        """
        rows, pieces = list[Matrix](), list[tuple[Indices, Matrix, Matrix]]()
        for part, found in zip(self.parts, point.spectra, strict=True):
            new, squares, shares = _beyond(found)
            rows.append(found.outside(new))
            pieces.append((part.rows, squares, shares))
        profile = self.profile(rows)
        low, high, best = 0.0, 1.5 * max(float(point.variances.max()), 1.0), self.nothing
        for _ in range(_LEVELS):
            scales = np.linspace(low, high, _GRID)[1 if low == 0 else 0 :]
            variances = np.zeros((len(scales), self.count))
            for places, squares, shares in pieces:
                variances[:, places] += (1 / np.maximum(1 + np.outer(scales - 1, shares), 1e-12)) @ squares.T
            more = np.maximum(1 - 1 / variances, 0.0)
            costs = (scales[:, None] * profile + more @ self.squares).max(axis=1)
            at = int(np.argmin(costs))
            if costs[at] < best.cost:
                best = _Solution(float(costs[at]), rows, float(scales[at]), more[at])
            low, high = (float(scales[at - 1]) if at else low), float(scales[min(at + 1, len(scales) - 1)])
        return best

    def rows(self, found: _Solution) -> tuple[Matrix, ...]:
        """Return the rows of each block to release."""
        made = []
        for part, rows in zip(self.parts, found.rows, strict=True):
            also = (found.more * self.members)[part.rows] / part.copies
            values, vectors = np.linalg.eigh(found.scale * (rows.T @ rows) + (part.L.T * also) @ part.L)
            keep = values > _FAINT * float(values[-1])
            made.append(part.spread((np.sqrt(values[keep]) * vectors[:, keep]).T))
        return tuple(made)


def _beyond(found: _Spectrum) -> tuple[Matrix, Matrix, Matrix]:
    """Return rows of R = (C - K)_+, and squares (m, k) and shares (k,) for what R is worth at another scale.

    With K + R = F F^T and F^-1 R F^-T = X diag(shares) X^T, the variance at scale t is the sum over k of
    (v F^-T X)_k^2 / (1 + (t - 1) shares_k). If nothing is known all shares are one.
    """
    if not len(found.B):
        return (found.Y * np.sqrt(found.roots)).T, found.variances[:, None], np.ones(1)
    C, K = (found.Y * found.roots) @ found.Y.T, found.B.T @ found.B
    values, vectors = np.linalg.eigh(C - K)
    rows = (np.sqrt(np.maximum(values, 0.0)) * vectors).T
    R = rows.T @ rows
    factor = np.linalg.cholesky(K + R + _FAINT * float(found.roots[-1]) * np.eye(len(C)))
    half = solve_triangular(factor, rows.T, lower=True, check_finite=False)
    shares, X = np.linalg.eigh(half @ half.T)
    z = X.T @ solve_triangular(factor, found.V.T, lower=True, check_finite=False)
    return rows, z.T**2, np.clip(shares, 0.0, 1.0)


class _Way:
    """The way that weights go: each step follows what the last weights gave, and goes on with the step before."""

    def __init__(self, problem: _Problem, floor: float) -> None:
        self.problem, self.floor = problem, floor
        self.ranks = max(sum(len(part.B) * part.copies for part in problem.parts), 1)
        none = [np.zeros((len(part.B), len(part.B))) for part in problem.parts]
        self.last = _Weights(np.zeros(problem.count), np.zeros(len(problem.sizes)), none)

    def on(self, point: _Point, *, momentum: bool) -> _Weights:
        """Return the next weights; `last` becomes the step to them, in logarithms."""
        before, part = point.weights, _MOMENTUM if momentum else 0.0
        value = max(point.bound, 1e-3 * point.worth)
        rows = before.rows * np.exp(_clipped(_POWER * _log(point.variances) + part * self.last.rows))
        rows = np.maximum(rows, self.floor * value / len(rows))
        wanted = self.problem.paid + value  # where every cell pays as much beyond what is known
        cells = before.cells * np.exp(_clipped(_POWER * _log(point.profile / wanted) + part * self.last.cells))
        cells = np.maximum(cells / cells.sum(), self.floor / len(cells))
        cells /= cells.sum()
        least, known = np.log(self.floor * value / self.ranks), []
        for log, found, last in zip(before.known, point.spectra, self.last.known, strict=True):
            step = _mapped(_POWER * _mapped(found.told, _log) + part * last, _clipped)
            known.append(_mapped(log + step, lambda values: np.maximum(values, least)))
        changes = [new - old for new, old in zip(known, before.known, strict=True)]
        self.last = _Weights(np.log(rows / before.rows), np.log(cells / before.cells), changes)
        return _Weights(rows, cells, known)


def _log(ratios: Matrix) -> Matrix:
    return np.log(np.maximum(ratios, 1 / _FAR))


def _clipped(logs: Matrix) -> Matrix:
    return np.clip(logs, -np.log(_FAR), np.log(_FAR))


def _mapped(symmetric: Matrix, function: Callable[[Matrix], Matrix]) -> Matrix:
    """Return a function of a symmetric matrix: that of its eigenvalues, in ascending order."""
    values, vectors = np.linalg.eigh(symmetric)
    return np.asarray((vectors * function(values)) @ vectors.T) if len(values) else symmetric
