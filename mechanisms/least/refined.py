"""Below the dearest cell: of all solutions that charge it least, the one that charges the next ones least, and so on.

Every cell is billed, so that more than the dearest counts. The refined privacy order (arXiv 2012.00135, Definition 5)
compares what cells pay, sorted, as a dictionary does; its least solution is unique (Theorem 11). It is found level by
level: while the cells that were found to bind pay no more than their caps t_i, the most that any other pays, s, is made
as small as it can be. Those of them that bind get the cap s, and the rest is the next level.

In the notation of `mechanisms.least.minimax`, with nothing known, a level is the dual problem

    max over lambda, mu of Phi - sum_j lambda_j - sum_i mu_i t_i,   Phi = 2 sum_b copies_b tr (N_b^1/2 S_b N_b^1/2)^1/2

where cells without a cap have t_i = 0, and weights mu_i of sum one. Phi is concave, and its slopes are the variances
and the profile. We add eps times the logarithm of every weight and follow the maximum as eps falls, by Newton's method.
There every weight times its slack is eps: 1 - variance for a row, t_i or s less what it pays for a cell. So on the way
all targets are met, no cell pays more than its cap, s is above its least by at most eps for each weight, and the cells
that bind are those whose slack vanishes. As caps are a little above what is least, weights stay finite.

N^1/2 S N^1/2 has the roots sigma. In its own basis every row and cell has a vector e: its square is the variance, or
what is paid. The second derivatives, times both weights, are sums over k, l of e_k e'_k e_l e'_l / (sigma_k + sigma_l),
positive between a row and a cell and else negative; 1 / sigma = integral of exp(-sigma u) du makes them sums of few
squares of products.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

import numpy as np
from scipy.linalg import cho_factor, cho_solve, svd

from mechanisms import interrupts
from mechanisms.gaussian.linear import Indices, Matrix
from mechanisms.least.blocks import Problem, outside
from mechanisms.tolerances import RISE, SINGULAR, UNKNOWN

_FIRST_GAP, _LEAST_GAP, _GAP = 1e-4, 8e-7, 2e-3
"""How near the first level comes to its least cost, how near at most so as to come below what was found, and how near
the other levels come to theirs."""

_BINDS = 5e-3
"""A cell binds if it pays less than s by no more than this part: so much lower every level is, at least."""

_SURE = 0.1
"""A cell with more than this part of the mean weight is one of the dearest for sure; if all are, that is all."""

_CENTRED, _FALL = 0.5, 0.1
"""Weights times slacks are eps up to this part of it before eps falls, by this factor."""

_FAR, _SHORTER, _TRIES = 3.0, 1 / 3, 6
"""No weight changes by more than exp(3) in a step, and steps that lead down are made shorter."""

_STEPS = 40
"""A level that is not found in so many steps is given up."""

_FEWEST = 12
"""With fewer steps than this nothing would be found."""

_SPACING = 1.4
"""Between the logarithms of u at which the integral is taken: it is then right to about exp(-pi^2 / spacing)."""

_WORK = 4e9
"""About so many multiplications are made at most. Then the levels that were found must do."""


@dataclass(frozen=True, eq=False)
class Refined:
    """What each part should be known to, as rows on its coordinates, and what every cell then pays, (n,)."""

    rows: list[Matrix]
    profile: Matrix


def refined(problem: Problem, first: tuple[Matrix, Matrix], cost: float, *, work: float = _WORK) -> Refined | None:
    """Return a solution that comes before one of that cost in the refined order; None if none was found.

    Guarantee: all variances are below one, and no cell pays more than cost * (1 + 1e-6), up to rounding.

    Args:
        problem: rows with targets of one, and nothing known.
        first: weights of rows (m,) and of cells (n,) to begin with, in any units.
        cost: what the dearest cell pays in the solution that was found.
        work: about how many multiplications may be made.
    """
    rows, cells = (np.maximum(weights / weights.sum(), UNKNOWN) for weights in first)
    count = int(work / _work_of(problem))
    if float(cells.min()) * len(cells) >= _SURE or count < _FEWEST:
        return None
    steps = iter(range(count))
    best = _dearest(problem, np.concatenate([rows * cost, cells]), cost, steps)
    return None if best is None else _below(problem, best, cost, steps)


def _dearest(problem: Problem, x: Matrix, cost: float, steps: Iterator[int]) -> _Centre | None:
    """Return a centre at which no cell pays more than the cost found, None if there is none near enough."""
    everywhere = _Level(problem, np.arange(len(problem.sizes)), np.zeros(len(problem.sizes)))
    for centre in everywhere.path(x, _LEAST_GAP, steps):
        if centre.gap <= _FIRST_GAP and centre.most <= cost * (1 + RISE):
            return centre
    return None


def _below(problem: Problem, best: _Centre, cost: float, steps: Iterator[int]) -> Refined | None:
    """Return the last solution that was found on the way down, None if there is nothing below the dearest cells."""
    top, free = best, np.flatnonzero(problem.squares.any(axis=0))  # no row speaks of the others
    cap = cost if best.most <= cost else cost * (1 + RISE)
    caps = np.full(len(best.profile), cap)
    while True:
        interrupts.check()
        binds = best.profile[free] >= best.most * (1 - _BINDS)
        caps[free[binds]] = cap
        free = free[~binds]
        found = best
        for centre in _Level(problem, free, caps).path(best.x, _GAP, steps) if len(free) else ():
            if centre.profile[free].max() < found.profile[free].max():
                found = centre
        if found is best:
            return None if best is top else best.solution
        best, cap = found, found.most


@dataclass(frozen=True, eq=False)
class _Centre:
    """Weights at which every slack times its weight is about eps; the cells without a cap pay less than `most`."""

    point: _Point
    most: float
    gap: float

    @property
    def x(self) -> Matrix:
        return self.point.x

    @property
    def profile(self) -> Matrix:
        return self.point.profile

    @property
    def solution(self) -> Refined:
        return Refined(self.point.information, self.profile)


class _Level:
    """One level: some cells are free, the others have caps. Weights x are those of the rows and then of the cells."""

    def __init__(self, problem: Problem, free: Indices, caps: Matrix) -> None:
        self.problem, self.count = problem, problem.count
        self.free = np.zeros(problem.count + len(caps))
        self.free[problem.count + free] = 1.0
        self.limits = np.concatenate([np.ones(problem.count), np.where(self.free[problem.count :] > 0, 0.0, caps)])

    def path(self, x: Matrix, gap: float, steps: Iterator[int]) -> Iterator[_Centre]:
        """Yield centres as eps falls, until the gap is small enough or rounding or the work allow no more."""
        with suppress(np.linalg.LinAlgError):
            yield from self._centres(_Point(self.problem, x / float(self.free @ x)), gap, steps)

    def _centres(self, point: _Point, gap: float, steps: Iterator[int]) -> Iterator[_Centre]:
        eps = self._wide(point)
        for _ in islice(steps, _STEPS):
            products, most = self._products(point, eps)
            if np.abs(products - eps).max() <= _CENTRED * eps:
                yield _Centre(point, most, eps * len(point.x) / most)
                if eps * len(point.x) <= 1.01 * gap * most:
                    return
                eps = max(_FALL * eps, gap * most / len(point.x))
                products, most = self._products(point, eps)
            point = self._moved(point, products, eps)

    def _wide(self, point: _Point) -> float:
        """Return the eps to begin with: about what weights and slacks are now."""
        most = float((point.slopes * self.free).max())
        slacks = np.abs(self.limits + most * self.free - point.slopes) * point.x
        return min(max(0.1 * float(slacks.mean()), 1e-2 * float(slacks.max())), 0.3 * most / len(slacks))

    def _products(self, point: _Point, eps: float) -> tuple[Matrix, float]:
        """Return slacks times weights, and s: that which is right on the mean."""
        most = float((self.free * point.x) @ point.slopes) + eps * float(self.free.sum())
        return point.x * (self.limits + most * self.free - point.slopes), most

    def _moved(self, point: _Point, products: Matrix, eps: float) -> _Point:
        """Return the point after Newton's step for log(weight) + log(slack) = log(eps), or a shorter one.

        Its matrix is positive definite whatever the slacks are, so that it leads up. Weights that are much too large
        for their slack are brought to eps / slack at once.
        """
        over = np.maximum(products / eps, 1 + 1e-6)
        matrix = point.curvature + np.diag(eps * (over - 1) / np.log(over))
        inside = point.x * self.free
        wanted, aside = cho_solve(cho_factor(matrix, check_finite=False), np.stack([eps - products, inside], axis=1)).T
        step = wanted - aside * (inside @ wanted) / (inside @ aside)
        if not np.isfinite(step).all():
            raise np.linalg.LinAlgError("rounding has taken over")
        step *= min(1.0, _FAR / float(np.abs(step).max()))
        slope, size, here = float((eps - products) @ step), 1.0, self._value(point, eps)
        for _ in range(_TRIES):
            x = point.x * np.exp(size * step)
            moved = _Point(self.problem, x / float(self.free @ x))
            if self._value(moved, eps) >= here + 0.01 * size * slope - SINGULAR * abs(here):
                break
            size *= _SHORTER
        return moved

    def _value(self, point: _Point, eps: float) -> float:
        return point.size - float(self.limits @ point.x) + eps * float(np.log(point.x).sum())


class _Point:
    """What weights give: Phi is `size`, and `slopes` are variances and profile. The rest is made when it is needed."""

    def __init__(self, problem: Problem, x: Matrix) -> None:
        self.problem, self.x, self.spectra = problem, x, list[tuple[Matrix, Matrix, Matrix]]()
        rows, cells = x[: problem.count], x[problem.count :]
        self.size = 0.0
        for part in problem.parts:
            G = part.metric(cells / problem.sizes)
            weighted = np.sqrt(rows[part.rows] / part.copies)[:, None] * (part.L @ G)
            _, roots, Y = svd(weighted, full_matrices=False, check_finite=False)
            self.spectra.append((G, np.maximum(roots, SINGULAR * roots[0]), Y.T))
            self.size += 2 * part.copies * float(roots.sum())

    @cached_property
    def information(self) -> list[Matrix]:
        """Rows of C of each part, on its coordinates."""
        return [outside((Y * np.sqrt(roots)).T, G) for G, roots, Y in self.spectra]

    @cached_property
    def vectors(self) -> list[Matrix]:
        """For each part the vectors of its rows and cells."""
        found = []
        for part, (G, roots, Y), rows in zip(self.problem.parts, self.spectra, self.information, strict=True):
            found.append(np.vstack([part.L @ G @ (Y / np.sqrt(roots)), part.spread(rows).T]))
        return found

    @cached_property
    def slopes(self) -> Matrix:
        variances = np.zeros(self.problem.count)
        for part, vectors in zip(self.problem.parts, self.vectors, strict=True):
            variances[part.rows] += (vectors[: len(part.rows)] ** 2).sum(axis=1)
        return np.concatenate([variances, self.problem.profile(self.information)])

    @property
    def profile(self) -> Matrix:
        return self.slopes[self.problem.count :]

    @property
    def curvature(self) -> Matrix:
        """Minus the second derivatives of Phi, times both weights, (m + n, m + n)."""
        found = np.zeros((len(self.x), len(self.x)))
        for part, (_, roots, _), vectors in zip(self.problem.parts, self.spectra, self.vectors, strict=True):
            at = np.concatenate([part.rows, self.problem.count + part.cells])
            factors = [np.full(len(part.rows), 1.0), part.copies / self.problem.sizes[part.cells]]
            scaled = vectors * np.sqrt(self.x[at] * np.concatenate(factors) / np.sqrt(part.copies))[:, None]
            sign = np.where(np.arange(len(at)) < len(part.rows), 1.0, -1.0)
            found[np.ix_(at, at)] += _squares(scaled, roots) * np.outer(sign, sign)
        return found


def _squares(vectors: Matrix, roots: Matrix) -> Matrix:
    """Return the sums over k, l of e_k e'_k e_l e'_l / (roots_k + roots_l) for all pairs of vectors."""
    found = np.zeros((len(vectors), len(vectors)))
    for log in np.arange(np.log(1e-3 / roots[0]), np.log(3 / roots[-1]) + _SPACING, _SPACING):
        found += _SPACING * np.exp(log) * ((vectors * np.exp(-np.exp(log) * roots)) @ vectors.T) ** 2
    return found


def _work_of(problem: Problem) -> float:
    """Return about how many multiplications a step takes."""
    found = float(problem.count + len(problem.sizes)) ** 3 / 3
    for part in problem.parts:
        rank = part.L.shape[1]
        found += 20.0 * (len(part.rows) + len(part.cells)) ** 2 * rank + 30.0 * rank**3
    return found
