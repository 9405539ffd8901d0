"""The weights of rows, of cells and of what is known that make the dual bound of a problem in blocks largest.

In the notation of `minimax`: rows have weights lambda, cells have weights mu of sum one, and what is known has a matrix
of weights Lambda_b in each block. For such weights the best information is C = N^-1/2 (N^1/2 S N^1/2)^1/2 N^-1/2, and
(tr (N^1/2 S N^1/2)^1/2)^2 is, up to what is known, a bound below all costs. At the maximum every row that has weight
has just its target variance, every cell with weight pays the most that any pays, and B C^-1 B^T is one where Lambda
is not zero. So each step multiplies lambda by the variances, mu by what cells pay, Lambda by B C^-1 B^T, to a power.

Where nothing is known, that combination of the last steps is taken, in logarithms, which would have moved least
(Anderson's acceleration). Where something is, matrices of weights do not commute from step to step, and a step goes on
with a part of the one before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from mechanisms import interrupts
from mechanisms.gaussian.linear import Matrix
from mechanisms.least.blocks import Bound, Part, Piece, Problem, Solution, outside, piece
from mechanisms.tolerances import FAINT, ROOTS, WEIGHT_FLOOR

_KNOWN_FLOOR = 0.1
"""If something is known, no weights that are all as small as allowed count for more than this part of the gap. Rows and
cells that do not bind then keep some weight, without which their directions would be told last, or by rounding."""

_POWER, _REGAIN = 1.8, 1.1
"""How far a step goes: beyond 2 it would swing. After a step that was undone it is at most 1, and then regains."""

_MEMORY = 6
"""So many earlier steps are looked at to find a better one."""

_RIDGE = 1e-8
"""Earlier steps that are alike up to the root of this count as one."""

_LEAP = 2.0
"""By how much, as a logarithm, the better step may differ from the plain one."""

_DROP = 1e-3
"""A step that lowers the bound by more than this fraction is undone."""

_MOMENTUM, _FIRST, _FAR = 0.6, 3, 10.0
"""If something is known: how much of the last step weights go on with, after how many steps, for the first ones go far;
and the largest factor by which a weight changes in a step."""

_EVERY = 3
"""If something is known a solution is made in one of so many steps."""


@dataclass(frozen=True, eq=False)
class Weights:
    """Weights of rows (m,) and cells (n,), and for each part the logarithm of the matrix Lambda."""

    rows: Matrix
    cells: Matrix
    known: list[Matrix]


@dataclass(frozen=True, eq=False, kw_only=True)
class Spectrum:
    """The best information of a part for some weights, as rows on its coordinates, and what it is worth.

    If something is known also G^T C G = Y diag(roots) Y^T, with V and B, what is asked and known, on these coordinates.
    """

    roots: Matrix
    rows: Matrix
    variances: Matrix
    profile: Matrix
    G: Matrix
    Y: Matrix
    V: Matrix
    B: Matrix

    @property
    def told(self) -> Matrix:
        """B C^-1 B^T."""
        half = self.B @ (self.Y / np.sqrt(self.roots))
        return np.asarray(half @ half.T)

    def scaled(self, factor: float) -> Spectrum:
        """Return the same for weights times factor^2."""
        return replace(
            self,
            roots=self.roots * factor,
            rows=self.rows * np.sqrt(factor),
            variances=self.variances / factor,
            profile=self.profile * factor,
        )

    @property
    def beyond(self) -> Piece:
        """What C has beyond what is known, (C - C_known)_+; if nothing is known, that is all of it."""
        if not len(self.B):
            return Piece(self.rows, self.variances[:, None], np.ones(1))
        values, vectors = np.linalg.eigh((self.Y * self.roots) @ self.Y.T - self.B.T @ self.B)
        return piece((np.sqrt(np.maximum(values, 0.0)) * vectors).T, self.V, self.B, self.G)


@dataclass(frozen=True, eq=False)
class Point:
    """What weights give, scaled as is best: `profile` is what cells pay for C."""

    weights: Weights
    spectra: list[Spectrum]
    variances: Matrix
    profile: Matrix
    bound: Bound


def climbed(
    problem: Problem, *, gap: float, max_steps: int, start: tuple[Matrix, Matrix] | None = None, total: bool = False
) -> tuple[Solution, Point]:
    """Return the best solution that is met on the way of the weights, and the point with the best bound.

    With `total` all rows have weight one for good: then C has the least sum of variances among all that charge no cell
    more than one, `cost` and bound are that sum.
    """
    way = _Known(problem, _KNOWN_FLOOR * gap) if problem.is_known else _Fresh(problem, start, total=total)
    best, point = problem.nothing, problem_at(problem, way.first(), total=total)
    top = point
    for step in range(max_steps):
        interrupts.check()
        if way.is_due(step) or step == max_steps - 1:
            best = min(best, _solution(problem, point, total=total), key=lambda found: found.cost)
        top = max(top, point, key=lambda found: found.bound.value)
        if best.cost <= top.bound.value * (1 + gap):
            break
        point = problem_at(problem, way.on(point, top), total=total)
    return best, top


def _solution(problem: Problem, point: Point, *, total: bool) -> Solution:
    if problem.is_known:
        return problem.solution([spectrum.beyond for spectrum in point.spectra])
    rows = [spectrum.rows for spectrum in point.spectra]
    if total:
        scale = 1 / float(point.profile.max())
        return Solution(float(point.variances.sum()) / scale, rows, scale, np.zeros(problem.count))
    return problem.topped(rows, point.variances, point.profile)


# --- what weights give ---------------------------------------------------------------------------------------


def problem_at(problem: Problem, weights: Weights, *, total: bool = False) -> Point:
    """Return what weights give, times the factor for which the bound is best."""
    pairs = zip(problem.parts, weights.known, strict=True)
    spectra = [(_told if problem.is_known else _fresh)(problem, part, weights, log) for part, log in pairs]
    worth = 1.0 if total else float(weights.rows.sum())
    size, doubt, variances = 0.0, 0.0, np.zeros(problem.count)
    for part, found, log in zip(problem.parts, spectra, weights.known, strict=True):
        worth += part.copies * float(np.exp(np.linalg.eigvalsh(log)).sum()) if len(log) else 0.0
        size += part.copies * float(found.roots.sum())
        doubt += part.copies * _doubt(found.roots)
        variances[part.rows] += found.variances
    low = size - doubt  # |S| is no less; a factor that is a little off only makes the bound a little lower
    factor = (low if problem.is_known else size) / worth
    known = [log + 2 * np.log(factor) * np.eye(len(log)) for log in weights.known]
    scaled = Weights(weights.rows * factor**2, weights.cells, known)
    profile = np.zeros(len(problem.sizes))
    for part, found in zip(problem.parts, spectra, strict=True):
        profile[part.cells] += part.copies * found.profile
    worth *= factor**2
    bound = Bound(2 * factor * low - worth - float(weights.cells @ problem.paid), scaled.rows, worth)
    spectra = [found.scaled(factor) for found in spectra]
    return Point(scaled, spectra, variances / factor, profile * factor / problem.sizes, bound)


def _fresh(problem: Problem, part: Part, weights: Weights, log: Matrix) -> Spectrum:
    """Return the best information if nothing is known: on the cells of a part, or on its rows if these are fewer."""
    if part.Q is not None and not part.is_on_rows:
        return _told(problem, part, weights, log)
    lam, mu = weights.rows[part.rows] / part.copies, weights.cells[part.cells] / problem.sizes[part.cells]
    none = part.L[:0]
    if part.Q is None:
        root = np.sqrt(mu)
        roots, Y = _roots(root[:, None] * ((part.L * lam[:, None]).T @ part.L) * root)
        variances = ((part.L @ (root[:, None] * (Y / np.sqrt(roots)))) ** 2).sum(axis=1)
        rows = (Y * np.sqrt(roots)).T / root
        return Spectrum(
            roots=roots, rows=rows, variances=variances, profile=(rows**2).sum(axis=0), G=none, Y=none, V=none, B=none
        )
    root = np.sqrt(lam)
    roots, Y = _roots(root[:, None] * ((part.Q * mu) @ part.Q.T) * root)
    rows = (root[:, None] * (Y / np.sqrt(roots))).T
    profile = (part.spread(rows) ** 2).sum(axis=0)
    return Spectrum(
        roots=roots, rows=rows, variances=(Y**2) @ roots / lam, profile=profile, G=none, Y=none, V=none, B=none
    )


def _told(problem: Problem, part: Part, weights: Weights, log: Matrix) -> Spectrum:
    """Return the best information on the coordinates of a part."""
    G = part.metric(weights.cells / problem.sizes)
    V, B = part.L @ G, part.B @ G
    stack = V * np.sqrt(weights.rows[part.rows] / part.copies)[:, None]
    if len(B):
        stack = np.vstack([stack, _mapped(log, lambda logs: np.exp(logs / 2)) @ B])
    roots, Y = _roots(stack.T @ stack)
    rows = outside((Y * np.sqrt(roots)).T, G)
    variances = ((V @ (Y / np.sqrt(roots))) ** 2).sum(axis=1)
    return Spectrum(
        roots=roots, rows=rows, variances=variances, profile=(part.spread(rows) ** 2).sum(axis=0), G=G, Y=Y, V=V, B=B
    )


def _doubt(roots: Matrix) -> float:
    """Return by how much the sum of roots may be too large, where eigenvalues are rounding."""
    least = np.sqrt(np.maximum(roots**2 - (ROOTS * roots[-1]) ** 2, 0.0))
    return float((roots - least).sum())


def _roots(gram: Matrix) -> tuple[Matrix, Matrix]:
    squares, Y = np.linalg.eigh(gram)
    return np.sqrt(np.maximum(squares, ROOTS**2 * squares[-1])), Y


def _mapped(symmetric: Matrix, function: Callable[[Matrix], Matrix]) -> Matrix:
    """Return a function of a symmetric matrix: that of its eigenvalues, in ascending order."""
    values, vectors = np.linalg.eigh(symmetric)
    return np.asarray((vectors * function(values)) @ vectors.T) if len(values) else symmetric


# --- the way of the weights ----------------------------------------------------------------------------------


class _Fresh:
    """The way if nothing is known: steps with Anderson's acceleration, and undone where the bound falls.

    Where the bound falls, the way goes on from the best point: for a while without acceleration if that was to blame,
    else in smaller steps. `seen` has the last places, as logarithms of the weights, and the plain step from each.
    """

    def __init__(self, problem: Problem, start: tuple[Matrix, Matrix] | None, *, total: bool) -> None:
        self.problem, self.start, self.total = problem, start, total
        self.power = _POWER
        self.waits, self.wait = 0, 0
        self.seen: list[tuple[Matrix, Matrix]] = []

    def is_due(self, step: int) -> bool:
        """Return whether a solution is made in this step."""
        return step >= 0

    def first(self) -> Weights:
        """Return weights to start from: those given, or as long as rows and columns are."""
        none, start = [np.zeros((0, 0)) for _ in self.problem.parts], self.start
        if start is None:
            squares = self.problem.squares
            start = np.sqrt(squares @ self.problem.sizes / self.problem.members), np.sqrt(squares.sum(axis=0))
        rows = np.ones(self.problem.count) if self.total else _spread(start[0])
        return Weights(rows, _spread(start[1]), none)

    def on(self, point: Point, top: Point) -> Weights:
        """Return the next weights."""
        if point.bound.value < top.bound.value * (1 - _DROP):
            self._undo()
            point = top
        place = np.log(np.concatenate([point.weights.rows / point.weights.rows.sum(), point.weights.cells]))
        plain = np.concatenate([point.variances, point.profile / point.bound.worth])
        change = self.power * np.log(np.maximum(plain, WEIGHT_FLOOR))
        count = self.problem.count
        if self.total:
            change[:count] = 0.0
        self.power = min(_POWER, _REGAIN * self.power)
        target = np.exp(place + self._accelerated(place, change))
        rows = np.ones(count) if self.total else _spread(target[:count])
        return Weights(rows, _spread(target[count:]), point.weights.known)

    def _undo(self) -> None:
        """Take back the last step: it went too far, or was misled by those before it."""
        if len(self.seen) > 1:
            self.waits += 1
            self.wait = min(2**self.waits, 32)
        else:
            self.power = min(1.0, self.power / 2)
        self.seen = []

    def _accelerated(self, place: Matrix, change: Matrix) -> Matrix:
        if self.wait:
            self.wait -= 1
            return change
        self.seen = [*self.seen[-_MEMORY:], (place, change)]
        if len(self.seen) == 1:
            return change
        weight = np.exp(place / 2)
        places, changes = (np.diff(np.array(kind), axis=0) for kind in zip(*self.seen, strict=True))
        weighted = changes * weight
        gram = weighted @ weighted.T
        gram[np.diag_indices_from(gram)] += _RIDGE * gram.trace()
        mix = np.linalg.solve(gram, weighted @ (change * weight))
        return np.asarray(change - np.clip(mix @ (places + changes), -_LEAP, _LEAP))


def _spread(weights: Matrix) -> Matrix:
    """Return the weights as a point of the simplex, none of them below the floor."""
    floored: Matrix = np.maximum(weights / weights.sum(), WEIGHT_FLOOR)
    return floored / float(floored.sum())


class _Known:
    """The way if something is known: each step follows what the last weights gave, and goes on with the step before."""

    def __init__(self, problem: Problem, floor: float) -> None:
        self.problem, self.floor = problem, floor
        self.ranks = max(sum(len(part.B) * part.copies for part in problem.parts), 1)
        none = [np.zeros((len(part.B), len(part.B))) for part in problem.parts]
        self.last, self.steps = Weights(np.zeros(problem.count), np.zeros(len(problem.sizes)), none), 0

    def is_due(self, step: int) -> bool:
        """Return whether a solution is made in this step: it takes about as long as the step."""
        return step % _EVERY == 0

    def first(self) -> Weights:
        """Return weights to start from: as if each row were alone, and for what is known as if it were all."""
        mu, known = np.full(len(self.problem.sizes), 1 / len(self.problem.sizes)), []
        for part in self.problem.parts:
            half = part.B @ part.metric(mu / self.problem.sizes)
            known.append(_mapped(half @ half.T / 4, lambda values: np.log(np.maximum(values, FAINT * values[-1]))))
        return Weights(1 / self.problem.squares.max(axis=1), mu, known)

    def on(self, point: Point, top: Point) -> Weights:
        """Return the next weights; `last` becomes the step to them, in logarithms."""
        before, part = point.weights, _MOMENTUM if self.steps >= _FIRST and point is top else 0.0
        self.steps += 1
        value = max(point.bound.value, 1e-3 * point.bound.worth)
        rows = before.rows * np.exp(_clipped(_POWER * _log(point.variances) + part * self.last.rows))
        rows = np.maximum(rows, self.floor * value / len(rows))
        wanted = self.problem.paid + value  # where every cell pays as much beyond what is known
        cells = before.cells * np.exp(_clipped(_POWER * _log(point.profile / wanted) + part * self.last.cells))
        cells = np.maximum(cells / cells.sum(), self.floor / len(cells))
        cells /= cells.sum()
        least, known = np.log(self.floor * value / self.ranks), []
        for log, found, last in zip(before.known, point.spectra, self.last.known, strict=True):
            change = _mapped(_POWER * _mapped(found.told, _log) + part * last, _clipped)
            known.append(_mapped(log + change, lambda values: np.maximum(values, least)))
        changes = [new - old for new, old in zip(known, before.known, strict=True)]
        self.last = Weights(np.log(rows / before.rows), np.log(cells / before.cells), changes)
        return Weights(rows, cells, known)


def _log(ratios: Matrix) -> Matrix:
    return np.log(np.maximum(ratios, 1 / _FAR))


def _clipped(logs: Matrix) -> Matrix:
    return np.clip(logs, -np.log(_FAR), np.log(_FAR))
