"""The cheapest Gaussian mechanism for given accuracy targets, with a certificate of how cheap it could be.

Names: V is the workload on the extreme points of what one record can add (one column each), c the largest
variances allowed, K the mixing matrix: the mechanism releases K V x + N(0, I).

With U = diag(c)^-1/2 V the least cost is the maximum over lambda, mu in simplices of |A|_*^2 (nuclear norm), where
A = diag(sqrt lambda) U diag(sqrt mu). With R = (A A^T)^1/2 the mechanism K = R^-1/2 diag(sqrt lambda) has variances
R_jj / lambda_j, so that every pair (lambda, mu) gives both a mechanism and a bound below all mechanisms.
The elasticity of the cost in the target c_j is -R_jj / tr R, which is -lambda_j at the optimum.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import qr, solve_triangular
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from mechanisms import interrupts
from mechanisms.gaussian.linear import Indices, Matrix, row_space
from mechanisms.least.blocks import Block, Problem, part_of
from mechanisms.least.refined import refined

_FLOOR = 1e-9
"""Multipliers stay above this, so that no row or point is lost to rounding on the way."""

_OUTSIDE = 1e-6
"""A row is told by a mechanism if no more than this fraction of it lies outside: the rest is rounding."""

_MEMORY = 6
"""So many earlier steps are looked at to find a better one."""

_RIDGE = 1e-8
"""Earlier steps that are alike up to the root of this count as one."""

_LEAP = 2.0
"""By how much, as a logarithm, the better step may differ from the plain one."""

_GRID, _LEVELS = 33, 3
"""The best scale is looked for on a grid, then on a finer one around what was best."""

_DROP = 1e-3
"""A step that lowers the bound by more than this fraction is undone."""

_SURE = 1e-10
"""A Gram matrix whose eigenvalues are not further apart than this surely has full rank."""

_NO_DEARER = 1 + 2e-6
"""By so much may the dearest cell pay more when those below it pay less: rounding."""

_POWER, _REGAIN = 1.8, 1.1
"""How far a step goes: beyond 2 it would swing. After a step that was undone it is at most 1, and then regains."""


@dataclass(frozen=True, eq=False)
class Strategy:
    """Release K V x + N(0, I): every row of V is then known with variance at most its target.

    `cost` is max over columns of |K V|^2 (twice the rho), `bound` is below the cost of every such mechanism.
    `prices` (m,) tell what targets are worth: the least cost changes as c_j^-price_j, and all prices sum to one.
    `weights` (n,) tell which points are dearest: those with weight bind.
    """

    K: Matrix
    cost: float
    bound: float
    prices: Matrix
    weights: Matrix

    def repriced(self, factors: Matrix) -> float:
        """Return about what c * factors would cost, (m,): exact for equal factors, to first order for others.

        log cost is convex in log c (three lines theorem: the norm does not change with the phases of rows), so that
        tightening costs no less than this, up to the gap, and relaxing saves no more.
        """
        return self.cost * float(np.exp(-(self.prices @ np.log(factors))))

    def stretched(self, cost: float) -> tuple[Strategy, float]:
        """Return the strategy at that cost, and the factor on all target variances at which it is as good as this.

        Privacy first (Theorem 5 of arXiv 2012.00135): costs are inverse to a common factor of the targets, so that
        what is best for c is best for all its multiples.
        """
        factor = self.cost / cost
        return Strategy(self.K / np.sqrt(factor), cost, self.bound / factor, self.prices, self.weights), factor


def fit(V: Matrix, c: Matrix, *, gap: float = 1e-3, max_steps: int = 300, start: Strategy | None = None) -> Strategy:
    """Return K that minimises max_i |K v_i|^2 subject to var(row j) <= c_j, by the dual fixed point.

    Guarantee: the variances of V from K V x + N(0, I) are at most c up to rounding, and the cost is as stated.

    Args:
        V: shape (m, n), not all zero.
        c: shape (m,), positive.
        gap: stop once cost / bound <= 1 + gap.
        start: a strategy for other targets of the same rows, to start from.

    >>> prefix = np.tril(np.ones((4, 4)))
    >>> round(fit(prefix, np.ones(4)).cost, 2)
    1.76
    """
    U = V / np.sqrt(c)[:, None]
    columns = undominated(U.T)
    rows = undominated(U[:, columns])
    if not len(rows):
        raise ValueError(f"V must not be zero, got shape {V.shape}")
    parts: list[tuple[Indices, Indices, Strategy]] = []
    solved: dict[bytes, Strategy] = {}
    for part, over in _blocks(U, rows, columns):
        block = U[np.ix_(part, over)]
        first = None if start is None else (start.prices[part], start.weights[over])
        key = block.tobytes() + str(block.shape).encode()
        if key not in solved:
            solved[key] = _solve(block, gap, max_steps, first)
        parts.append((part, over, solved[key]))
    return _assembled(parts, U.shape, c)


def undominated(U: Matrix) -> Indices:
    """Return the rows that are neither zero nor a multiple, at most 1 in size, of another one that is kept.

    A row that is a times another, |a| <= 1, has a^2 times its variance, and so costs nothing more.
    """
    if not U.size:
        return np.zeros(0, dtype=np.intp)
    tops = np.abs(U).argmax(axis=1)
    sizes = U[np.arange(len(U)), tops]
    order = np.argsort(-np.abs(sizes), kind="stable")
    order = order[np.abs(sizes[order]) > 0]
    directions = np.round(U[order] / sizes[order, None], 12) + 0.0
    first = {direction.tobytes(): j for j, direction in zip(order[::-1], directions[::-1], strict=True)}
    return np.sort(np.array(list(first.values()), dtype=np.intp))


def nuclear_bound(U: Matrix, lam: Matrix, mu: Matrix) -> float:
    """Return |diag(sqrt lam) U diag(sqrt mu)|_*^2: no mechanism with variances diag(U C^-1 U^T) <= 1 costs less.

    Args:
        U: rows over the roots of their targets, shape (m, n).
        lam: shape (m,), nonnegative, of sum 1.
        mu: shape (n,), nonnegative, of sum 1.
    """
    A = np.sqrt(lam)[:, None] * U * np.sqrt(mu)
    return float(np.linalg.svd(A, compute_uv=False).sum()) ** 2


def least_total(W: Matrix, *, gap: float = 1e-3, max_steps: int = 300) -> Strategy:
    """Return K with max_i |K w_i|^2 = 1 that minimises the sum of the variances of W: the matrix mechanism.

    Here `cost` is that sum and `bound` is below all such sums: the maximum over mu of |W diag(sqrt mu)|_*^2. `prices`
    are each row's share of the sum.

    >>> round(least_total(np.eye(3)).cost, 2)
    3.0
    """
    rows, columns = np.flatnonzero(W.any(axis=1)), undominated(W.T)
    if not len(rows):
        raise ValueError(f"W must not be zero, got shape {W.shape}")
    found = _fixed_point(_problem(W[np.ix_(rows, columns)]), gap, max_steps, total=True)
    K, prices, weights = np.zeros((len(found.K), len(W))), np.zeros(len(W)), np.zeros(W.shape[1])
    K[:, rows], prices[rows], weights[columns] = found.K, found.prices, found.weights
    return Strategy(K, found.cost, found.bound, prices, weights)


def _blocks(U: Matrix, rows: Indices, columns: Indices) -> list[tuple[Indices, Indices]]:
    """Return rows and columns that have to do with each other: what others need costs them nothing."""
    at = np.nonzero(U[np.ix_(rows, columns)])
    if len(at[0]) == len(rows) * len(columns):
        return [(rows, columns)]
    count = len(rows) + len(columns)
    graph = coo_array((np.ones(len(at[0]), dtype=bool), (at[0], len(rows) + at[1])), shape=(count, count))
    number, label = connected_components(graph, directed=False)
    return [(rows[label[: len(rows)] == k], columns[label[len(rows) :] == k]) for k in range(number)]


def _assembled(parts: list[tuple[Indices, Indices, Strategy]], shape: tuple[int, int], c: Matrix) -> Strategy:
    """Return the blocks as one strategy, which costs what the dearest does; all that are as dear share the prices."""
    cost, bound = max(found.cost for _, _, found in parts), max(found.bound for _, _, found in parts)
    K = np.zeros((sum(len(found.K) for _, _, found in parts), shape[0]))
    prices, weights, filled = np.zeros(shape[0]), np.zeros(shape[1]), 0
    for rows, columns, found in parts:
        K[filled : filled + len(found.K), rows] = found.K
        filled += len(found.K)
        if found.cost >= bound:
            prices[rows], weights[columns] = found.prices, found.weights
    return Strategy(K / np.sqrt(c), cost, bound, prices / prices.sum(), weights / weights.sum())


def _solve(U: Matrix, gap: float, max_steps: int, start: tuple[Matrix, Matrix] | None) -> Strategy:
    """Return the strategy for targets of one, scaled to what its K tells as it stands: rounding is made up for."""
    found = _fixed_point(_problem(U), gap, max_steps, start=start)
    for K in (found.K, np.eye(len(U))):
        worst = _worst_variance(U, K)
        if np.isfinite(worst):
            cost = float(((K @ U) ** 2).sum(axis=0).max()) * worst
            found = Strategy(K * np.sqrt(worst), cost, min(cost, found.bound), found.prices, found.weights)
            return _refined(U, found)
    raise AssertionError("the rows tell themselves")


def _refined(U: Matrix, found: Strategy) -> Strategy:
    """Return a strategy for targets of one that costs no more, and charges the cells below the dearest less."""
    part = part_of(Block(np.arange(len(U)), U, np.arange(U.shape[1])), np.ones(len(U)))
    problem = Problem([part], np.ones(U.shape[1]), np.ones(len(U)))
    below = refined(problem, (found.prices, found.weights), found.cost)
    if below is None:
        return found
    turned, R = qr(part.L, mode="economic", check_finite=False)
    K = solve_triangular(R, below.rows[0].T, trans="T", check_finite=False).T @ turned.T
    worst = _worst_variance(U, K)
    cost = float(((K @ U) ** 2).sum(axis=0).max()) * worst
    return replace(found, K=K * np.sqrt(worst), cost=cost) if cost <= found.cost * _NO_DEARER else found


def _worst_variance(U: Matrix, K: Matrix) -> float:
    """Return the largest variance of a row of U from K U x + N(0, I), inf if some row is not told."""
    Q, R = qr((K @ U).T, mode="economic", check_finite=False)
    inside = U @ Q
    if np.any(np.linalg.norm(U - inside @ Q.T, axis=1) > _OUTSIDE * np.linalg.norm(U, axis=1)):
        return np.inf
    size = np.abs(R.diagonal())
    if len(R) != R.shape[1] or size.min() <= np.finfo(float).tiny:
        return float((np.linalg.norm(inside @ np.linalg.pinv(R.T, rcond=1e-12), axis=1) ** 2).max())
    return float((solve_triangular(R, inside.T, check_finite=False) ** 2).sum(axis=0).max())


@dataclass(frozen=True, eq=False)
class _Problem:
    """U = L Q or, if flipped, U = (L Q)^T, with as many columns in L as U has rank; Q = 1 is left out.

    Weights a belong to the rows of L, b to the columns of Q: lambda and mu, or mu and lambda if flipped. With
    Q diag(b) Q^T = G G^T, the squares of A's singular values are the eigenvalues of G^T L^T diag(a) L G.
    """

    L: Matrix
    Q: Matrix | None
    flipped: bool
    squares: Matrix  # of U, entry by entry

    def at(self, lam: Matrix, mu: Matrix) -> _Point:
        """Return the mechanism and the bound of these multipliers."""
        a, b = (mu, lam) if self.flipped else (lam, mu)
        P = (self.L * a[:, None]).T @ self.L
        if self.Q is None:
            G = np.sqrt(b)
            squares, Y = np.linalg.eigh(G[:, None] * P * G)
            singular = _roots(squares)
            T = G[:, None] * (Y / np.sqrt(singular))
            inner = (Y**2) @ singular / b
        else:
            G = np.linalg.cholesky((self.Q * b) @ self.Q.T)
            squares, Y = np.linalg.eigh(G.T @ P @ G)
            singular = _roots(squares)
            T = G @ (Y / np.sqrt(singular))
            half = solve_triangular(G, self.Q, lower=True, check_finite=False)
            inner = (((Y * np.sqrt(singular)).T @ half) ** 2).sum(axis=0)
        outer = ((self.L @ T) ** 2).sum(axis=1)
        variances, profile = (inner, outer) if self.flipped else (outer, inner)
        return _Point(lam, mu, singular, T, variances, profile)

    def topped(self, point: _Point) -> tuple[float, float, Matrix]:
        """Return the least cost with all variances at most one, a scale and what to add: scale * C + U^T diag(more) U.

        A row whose variance is above one is measured by itself as well, by 1 - scale / variance. That is paid by its
        own cells, and they may be cheap ones: multipliers of rows and cells that do not bind vanish together, and their
        ratio, on which such a row's variance depends, is the last to come right. The cost is convex in the scale.
        """

        worst = float(point.variances.max())
        low, high = 0.0, worst
        for _ in range(_LEVELS):
            scales = np.linspace(low, high, _GRID)
            more = np.maximum(1 - scales[:, None] / point.variances, 0)
            costs = (scales[:, None] * point.profile + more @ self.squares).max(axis=1)
            at = len(costs) - 1 - int(np.argmin(costs[::-1]))
            low, high = scales[max(at - 1, 0)], scales[min(at + 1, _GRID - 1)]
        return float(costs[at]), float(scales[at]), more[at]

    def mixing(self, point: _Point, scale: float, more: Matrix) -> Matrix:
        """Return K for the mechanism K = R^-1/2 diag(sqrt lambda), scaled, and with more of some rows.

        K is not unique where U has more rows than its rank: singular^1/2 Y^T G^-1 = K L decides. As many rows as the
        rank tell all that more would.
        """
        also = more > 0
        if not self.flipped:
            wanted = np.sqrt(scale) * np.linalg.inv(point.T)
            if also.any():
                wanted = np.vstack([wanted, np.sqrt(more[also])[:, None] * self.L[also]])
                wanted = qr(wanted, mode="r", check_finite=False)[0][: self.L.shape[1]]
            turned, R = qr(self.L, mode="economic", check_finite=False)
            return np.asarray(solve_triangular(R, wanted.T, trans="T", check_finite=False).T @ turned.T)
        if self.Q is None:
            wanted, also_rows = point.T.T, np.eye(len(more))
        else:
            wanted = np.linalg.solve((self.Q * point.lam) @ self.Q.T, point.T).T @ (self.Q * point.lam) @ self.Q.T
            also_rows = self.Q.T
        wanted = np.sqrt(scale) * wanted
        if also.any():
            wanted = np.vstack([wanted, np.sqrt(more[also])[:, None] * also_rows[also]])
            wanted = qr(wanted, mode="r", check_finite=False)[0][: wanted.shape[1]]
        return wanted if self.Q is None else np.asarray(wanted @ self.Q)


@dataclass(frozen=True, eq=False)
class _Point:
    """What multipliers give: the singular values of A, T = G Y singular^-1/2, variances (m,) and profile (n,)."""

    lam: Matrix
    mu: Matrix
    singular: Matrix
    T: Matrix
    variances: Matrix
    profile: Matrix

    @property
    def bound(self) -> float:
        """The square of the nuclear norm."""
        return float(self.singular.sum()) ** 2


def _roots(squares: Matrix) -> Matrix:
    found: Matrix = np.sqrt(np.maximum(squares, 1e-30 * squares[-1]))
    return found


def _problem(U: Matrix) -> _Problem:
    flipped = len(U) < U.shape[1]
    L = U.T if flipped else U
    lengths = np.linalg.norm(L, axis=1)
    even = L / np.where(lengths > 0, lengths, 1.0)[:, None]
    squares = np.linalg.eigvalsh(even.T @ even)
    if squares[0] > _SURE * squares[-1]:
        return _Problem(L, None, flipped, U**2)
    Q = row_space(even)
    if len(Q) == L.shape[1]:
        return _Problem(L, None, flipped, U**2)
    return _Problem(L @ Q.T, Q, flipped, U**2)


def _fixed_point(
    problem: _Problem,
    gap: float,
    max_steps: int,
    *,
    start: tuple[Matrix, Matrix] | None = None,
    total: bool = False,
) -> Strategy:
    """Return the best mechanism met on the way and the best bound; with `total`, lambda is one and stays.

    A step multiplies lambda by the variances and mu by the profile, to a power. Of the last steps, in logarithms, that
    combination is taken which would have moved least (Anderson's acceleration). Where the bound falls, the way goes on
    from the best one: for a while without acceleration if that was to blame, else in smaller steps.
    """
    lam, mu = _first(problem, start)
    lam = np.ones(len(lam)) if total else lam
    memory = _Memory(total)
    point = top = problem.at(lam, mu)
    cost, bound = np.inf, 0.0
    best = point, 1.0, np.zeros(len(lam))
    for _ in range(max_steps):
        interrupts.check()
        if total:
            scale = 1 / float(point.profile.max())
            found = float(point.variances.sum()) / scale, scale, np.zeros(len(lam))
        else:
            found = problem.topped(point)
        if found[0] < cost:
            cost, best = found[0], (point, *found[1:])
        if point.bound > bound:
            bound, top = point.bound, point
        elif point.bound < bound * (1 - _DROP):
            memory.undone()
            point = top
        if cost <= bound * (1 + gap):
            break
        point = problem.at(*memory.step(point))
    prices = top.lam * top.variances
    weights = top.mu * top.profile
    return Strategy(problem.mixing(*best), cost, bound, prices / prices.sum(), weights / weights.sum())


def _first(problem: _Problem, start: tuple[Matrix, Matrix] | None) -> tuple[Matrix, Matrix]:
    if start is not None:
        return _spread(start[0]), _spread(start[1])
    a = _spread(np.linalg.norm(problem.L, axis=1))
    columns = problem.L if problem.Q is None else problem.L @ problem.Q
    b = _spread(np.linalg.norm(columns, axis=0))
    return (b, a) if problem.flipped else (a, b)


class _Memory:
    """The last places, as logarithms of the multipliers, and the plain step from each."""

    def __init__(self, total: bool) -> None:
        self.total = total
        self.power = _POWER
        self.waits, self.wait = 0, 0
        self.seen: list[tuple[Matrix, Matrix]] = []

    def undone(self) -> None:
        """Take back the last step: it went too far, or was misled by those before it."""
        if len(self.seen) > 1:
            self.waits += 1
            self.wait = min(2**self.waits, 32)
        else:
            self.power = min(1.0, self.power / 2)
        self.seen = []

    def step(self, point: _Point) -> tuple[Matrix, Matrix]:
        """Return the next multipliers."""
        middle = np.log(point.singular.sum())
        place = np.log(np.concatenate([point.lam, point.mu]))
        step = self.power * (np.log(np.concatenate([point.variances, point.profile])) - middle)
        if self.total:
            step[: len(point.lam)] = 0.0
        self.power = min(_POWER, _REGAIN * self.power)
        target = place + self._accelerated(place, step)
        lam, mu = np.exp(target[: len(point.lam)]), np.exp(target[len(point.lam) :])
        return (point.lam if self.total else _spread(lam)), _spread(mu)

    def _accelerated(self, place: Matrix, step: Matrix) -> Matrix:
        if self.wait:
            self.wait -= 1
            return step
        self.seen = [*self.seen[-_MEMORY:], (place, step)]
        if len(self.seen) == 1:
            return step
        weight = np.exp(place / 2)
        places, steps = (np.diff(np.array(kind), axis=0) for kind in zip(*self.seen, strict=True))
        weighted = steps * weight
        gram = weighted @ weighted.T
        gram[np.diag_indices_from(gram)] += _RIDGE * gram.trace()
        mix = np.linalg.solve(gram, weighted @ (step * weight))
        return np.asarray(step - np.clip(mix @ (places + steps), -_LEAP, _LEAP))


def _spread(weights: Matrix) -> Matrix:
    """Return the weights as a point of the simplex, none of them below the floor."""
    floored: Matrix = np.maximum(weights / weights.sum(), _FLOOR)
    return floored / float(floored.sum())
