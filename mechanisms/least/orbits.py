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

from mechanisms import interrupts
from mechanisms.gaussian.linear import Matrix
from mechanisms.least import splitting
from mechanisms.least.blocks import FAINT, Block, Bound, Piece, Problem, Solution, outside, part_of, piece
from mechanisms.least.refined import refined

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

_ENOUGH, _SMALL = 60, 512
"""If something is known another way goes on after so many steps, on so many cells at most: for more it is too slow."""

_ROUNDING = 1e-8
"""Singular values are known up to this part of the largest: the roots of what eigenvalues are known to."""


@dataclass(frozen=True, eq=False)
class Plan:
    """What to release: rows for each block, (r_b, D_b). `cost` is what the dearest cell then pays beyond what is known.

    If the target variance of row j were larger by a small part p, about p * multipliers[j] would be saved, shape (m,).
    """

    rows: tuple[Matrix, ...]
    cost: float
    least: Bound

    @property
    def bound(self) -> float:
        """No rows that meet the targets cost less."""
        return self.bound_at(1.0)

    def bound_at(self, factor: float) -> float:
        """Return what no rows can cost less than that meet targets so many times as large."""
        return max(min(self.least.at(factor), self.cost), 0.0)

    @property
    def multipliers(self) -> Matrix:
        return self.least.multipliers


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
        return Plan((), 0.0, Bound(0.0, np.zeros(len(c)), 0.0))
    problem = Problem([part_of(block, c) for block in blocks], sizes, members)
    is_known = any(len(part.B) for part in problem.parts)
    best, top = _followed(problem, gap, min(max_steps, _ENOUGH) if is_known else max_steps)
    bound, weights = top.bound, top.weights
    if is_known and best.cost > bound.value * (1 + gap) and len(sizes) <= _SMALL:
        first = weights.rows, weights.cells
        best, bound = splitting.improved(problem, best, bound, first, gap=gap, max_steps=max_steps)
    below = None if is_known else refined(problem, (weights.rows, weights.cells), best.cost)
    if below is None:
        return Plan(problem.rows(best), best.cost, bound)
    rows = tuple(part.spread(rows) for part, rows in zip(problem.parts, below.rows, strict=True))
    return Plan(rows, float(below.profile.max()), bound)


def _followed(problem: Problem, gap: float, max_steps: int) -> tuple[Solution, _Point]:
    """Return the best solution that is met on the way of the weights, and the point with the best bound."""
    search, way = _Search(problem), _Way(problem, _FLOOR * gap)
    best, point = problem.nothing, search.at(search.first())
    top = point
    for step in range(max_steps):
        interrupts.check()
        if step % _EVERY == 0 or step == max_steps - 1:
            pieces = [_beyond(found) for found in point.spectra]
            best = min(best, problem.solution(pieces), key=lambda found: found.cost)
        top = max(top, point, key=lambda found: found.bound.value)
        if best.cost <= top.bound.value * (1 + gap):
            break
        point = search.at(way.on(point, momentum=step >= _FIRST and point is top))
    return best, top


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


@dataclass(frozen=True, eq=False)
class _Point:
    """What weights give, scaled as is best: `profile` is what cells pay for C."""

    weights: _Weights
    spectra: list[_Spectrum]
    variances: Matrix
    profile: Matrix
    bound: Bound


class _Search:
    """What weights give in a problem."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.parts, self.sizes = problem, problem.parts, problem.sizes

    def first(self) -> _Weights:
        """Return weights to start from: as if each row were alone, and for what is known as if it were all."""
        mu, known = np.full(len(self.sizes), 1 / len(self.sizes)), []
        for part in self.parts:
            half = part.B @ part.metric(mu / self.sizes)
            known.append(_mapped(half @ half.T / 4, lambda values: np.log(np.maximum(values, FAINT * values[-1]))))
        return _Weights(1 / self.problem.squares.max(axis=1), mu, known)

    def at(self, weights: _Weights) -> _Point:
        """Return what weights give, times the factor for which the bound is best."""
        spectra = [self._spectrum(i, weights) for i in range(len(self.parts))]
        worth, size, variances = float(weights.rows.sum()), 0.0, np.zeros(self.problem.count)
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
        profile = self.problem.profile([outside((s.Y * np.sqrt(s.roots)).T, s.G) for s in spectra])
        bound = Bound(size * factor - float(weights.cells @ self.problem.paid), scaled.rows, size * factor)
        return _Point(scaled, spectra, variances / factor, profile, bound)

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


def _beyond(found: _Spectrum) -> Piece:
    """Return what C has beyond what is known, (C - K)_+; if nothing is known, that is all of it."""
    if not len(found.B):
        rows = outside((found.Y * np.sqrt(found.roots)).T, found.G)
        return Piece(rows, found.variances[:, None], np.ones(1))
    values, vectors = np.linalg.eigh((found.Y * found.roots) @ found.Y.T - found.B.T @ found.B)
    return piece((np.sqrt(np.maximum(values, 0.0)) * vectors).T, found.V, found.B, found.G)


class _Way:
    """The way that weights go: each step follows what the last weights gave, and goes on with the step before."""

    def __init__(self, problem: Problem, floor: float) -> None:
        self.problem, self.floor = problem, floor
        self.ranks = max(sum(len(part.B) * part.copies for part in problem.parts), 1)
        none = [np.zeros((len(part.B), len(part.B))) for part in problem.parts]
        self.last = _Weights(np.zeros(problem.count), np.zeros(len(problem.sizes)), none)

    def on(self, point: _Point, *, momentum: bool) -> _Weights:
        """Return the next weights; `last` becomes the step to them, in logarithms."""
        before, part = point.weights, _MOMENTUM if momentum else 0.0
        value = max(point.bound.value, 1e-3 * point.bound.worth)
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
