"""The least information that meets accuracy targets and charges the dearest cell least, beyond what is known.

Without symmetries there is one block, once. A symmetric problem has a symmetric solution: where swapping two cells
changes nothing about what is asked and known, C may be averaged over the swap, and the dearest cell pays no more.
Symmetric matrices fall apart into blocks (Schur): block b stands `copies` times in C, each time the same small matrix.
Cells that can be swapped are one cell here, rows that are swapped with each other are one row.

The part of a row v in block b is a vector v_b such that v C^-1 v^T = sum_b v_b C_b^-1 v_b^T. Cell i stands for so many
cells, sizes_i, and pays sum_b copies_b / sizes_i C_b[i, i].

Primal: min max_i of what C - C_known charges cell i, over C_b >= C_known_b, with sum_b v_jb C_b^-1 v_jb^T <= 1 for all
    rows j; C_known = B^T B, and rows are divided by the roots of their targets.
What is known is a target too: C >= B^T B says just that B C^-1 B^T <= 1. So rows have weights lambda, what is known has
weights Lambda_b >= 0, a matrix, and cells have weights mu, of sum one.
Dual: with N_b = diag(mu / sizes) and S_b = sum_j lambda_j v_jb^T v_jb / copies_b + B_b^T Lambda_b B_b, nothing that
    meets the targets costs less than
        |S|^2 / (sum lambda + sum_b copies_b tr Lambda_b) - sum_b copies_b tr(N_b C_known_b),
    where |S| = sum_b copies_b tr (N_b^1/2 S_b N_b^1/2)^1/2.
The best C for such weights is N^-1/2 (N^1/2 S N^1/2)^1/2 N^-1/2. `ascent` lets the weights follow what they give. Every
point on its way has a bound, and C with all that it lacks is a solution. A row's lambda is that of all rows it stands
for together. Where far more is known than is needed weights settle slowly, and `splitting` goes on. If nothing is
known, `refined` then charges the cells below the dearest less.

If nothing is known and there is one block, |S| is the nuclear norm of diag(sqrt lambda) V diag(sqrt mu), and the least
cost is its largest square over weights of sum one. The elasticity of the cost in the target c_j is -lambda_j at the
optimum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import qr, solve_triangular
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from mechanisms.gaussian.known import Known, nothing_known
from mechanisms.gaussian.linear import Indices, Matrix
from mechanisms.least import splitting
from mechanisms.least.ascent import climbed
from mechanisms.least.blocks import Block, Bound, Part, Problem, fresh_part, part_of
from mechanisms.least.refined import refined
from mechanisms.least.residual import Join, join_residual
from mechanisms.tolerances import AIM, FAINT, MET, NO_DEARER, OUTSIDE, SPARE

_ENOUGH, _SMALL = 60, 512
"""If something is known `splitting` goes on after so many steps, on so many cells at most: for more it is too slow."""

_NEARER = 0.25
"""If nothing is known the way to the bound is short, and a plan comes so many times nearer than asked."""


# --- in blocks, beyond what is known -------------------------------------------------------------------------


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
    is_known = problem.is_known
    if is_known and problem.is_met:
        return Plan(tuple(block.V[:0] for block in blocks), 0.0, Bound(0.0, np.zeros(len(c)), 0.0))
    if is_known:
        best, top = climbed(problem, gap=gap, max_steps=min(max_steps, _ENOUGH))
    else:
        best, top = climbed(problem, gap=_NEARER * gap, max_steps=max_steps)
    bound, first = top.bound, (top.weights.rows, top.weights.cells)
    if is_known and best.cost > bound.value * (1 + gap) and len(sizes) <= _SMALL:
        best, bound = splitting.improved(problem, best, bound, first, gap=gap, max_steps=max_steps)
    below = None if is_known else refined(problem, first, best.cost)
    if below is None:
        return Plan(problem.rows(best), best.cost, bound)
    rows = tuple(part.spread(rows) for part, rows in zip(problem.parts, below.rows, strict=True))
    return Plan(rows, float(below.profile.max()), bound)


# --- one block of which nothing is known: the mixture of rows --------------------------------------------------


@dataclass(frozen=True, eq=False)
class Strategy:
    """Release K W x + N(0, I): every row of W is then known with variance at most its target.

    `cost` is max over columns of |K W|^2 (twice the rho), `bound` is below the cost of every such mechanism.
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


def fit(W: Matrix, c: Matrix, *, gap: float = 1e-3, max_steps: int = 300, start: Strategy | None = None) -> Strategy:
    """Return K that minimises max_i |K w_i|^2 over columns w_i, subject to var(row j) <= c_j.

    Guarantee: the variances of W from K W x + N(0, I) are at most c up to rounding, and the cost is as stated.

    Args:
        W: shape (m, n), not all zero; one column for each extreme point of what a record can add.
        c: shape (m,), positive.
        gap: stop once cost / bound <= 1 + gap.
        start: a strategy for other targets of the same rows, to start from.

    >>> prefix = np.tril(np.ones((4, 4)))
    >>> round(fit(prefix, np.ones(4)).cost, 2)
    1.76
    """
    V = W / np.sqrt(c)[:, None]
    columns = undominated(V.T)
    rows = undominated(V[:, columns])
    if not len(rows):
        raise ValueError(f"W must not be zero, got shape {W.shape}")
    parts: list[tuple[Indices, Indices, Strategy]] = []
    solved: dict[bytes, Strategy] = {}
    for part, over in _groups(V, rows, columns):
        block = V[np.ix_(part, over)]
        first = None if start is None else (start.prices[part], start.weights[over])
        key = block.tobytes() + str(block.shape).encode()
        if key not in solved:
            solved[key] = _solved(block, gap, max_steps, first)
        parts.append((part, over, solved[key]))
    return _assembled(parts, V.shape, c)


def undominated(V: Matrix) -> Indices:
    """Return the rows that are neither zero nor a multiple, at most 1 in size, of another one that is kept.

    A row that is a times another, |a| <= 1, has a^2 times its variance, and so costs nothing more.
    """
    if not V.size:
        return np.zeros(0, dtype=np.intp)
    tops = np.abs(V).argmax(axis=1)
    sizes = V[np.arange(len(V)), tops]
    order = np.argsort(-np.abs(sizes), kind="stable")
    order = order[np.abs(sizes[order]) > 0]
    directions = np.round(V[order] / sizes[order, None], 12) + 0.0
    first = {direction.tobytes(): j for j, direction in zip(order[::-1], directions[::-1], strict=True)}
    return np.sort(np.array(list(first.values()), dtype=np.intp))


def nuclear_bound(V: Matrix, lam: Matrix, mu: Matrix) -> float:
    """Return |diag(sqrt lam) V diag(sqrt mu)|_*^2: no mechanism with variances diag(V C^-1 V^T) <= 1 costs less.

    Args:
        V: rows over the roots of their targets, shape (m, n).
        lam: shape (m,), nonnegative, of sum 1.
        mu: shape (n,), nonnegative, of sum 1.
    """
    weighted = np.sqrt(lam)[:, None] * V * np.sqrt(mu)
    return float(np.linalg.svd(weighted, compute_uv=False).sum()) ** 2


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
    found = _mixture(W[np.ix_(rows, columns)], gap, max_steps, total=True)
    K, prices, weights = np.zeros((len(found.K), len(W))), np.zeros(len(W)), np.zeros(W.shape[1])
    K[:, rows], prices[rows], weights[columns] = found.K, found.prices, found.weights
    return Strategy(K, found.cost, found.bound, prices, weights)


def _groups(V: Matrix, rows: Indices, columns: Indices) -> list[tuple[Indices, Indices]]:
    """Return rows and columns that have to do with each other: what others need costs them nothing."""
    at = np.nonzero(V[np.ix_(rows, columns)])
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


def _solved(V: Matrix, gap: float, max_steps: int, start: tuple[Matrix, Matrix] | None) -> Strategy:
    """Return the strategy for targets of one, scaled to what its K tells as it stands: rounding is made up for."""
    found = _mixture(V, gap, max_steps, start=start)
    for K in (found.K, np.eye(len(V))):
        worst = _worst_variance(V, K)
        if np.isfinite(worst):
            cost = float(((K @ V) ** 2).sum(axis=0).max()) * worst
            found = Strategy(K * np.sqrt(worst), cost, min(cost, found.bound), found.prices, found.weights)
            return _refined(V, found)
    raise AssertionError("the rows tell themselves")


def _mixture(
    V: Matrix, gap: float, max_steps: int, *, start: tuple[Matrix, Matrix] | None = None, total: bool = False
) -> Strategy:
    """Return the best mixture of rows with targets of one; as many rows as the rank tell all that more would."""
    part = fresh_part(V)
    problem = Problem([part], np.ones(V.shape[1]), np.ones(len(V)))
    best, top = climbed(problem, gap=gap, max_steps=max_steps, start=start, total=total)
    wanted, also = np.sqrt(best.scale) * best.rows[0], best.more > 0
    if also.any():
        wanted = np.vstack([wanted, np.sqrt(best.more[also])[:, None] * part.L[also]])
        wanted = qr(wanted, mode="r", check_finite=False)[0][: part.L.shape[1]]
    prices, weights = top.weights.rows * top.variances, top.weights.cells * top.profile
    return Strategy(_mixing(part, wanted), best.cost, top.bound.value, prices / prices.sum(), weights / weights.sum())


def _mixing(part: Part, rows: Matrix) -> Matrix:
    """Return K with K L = rows: not unique where there are more rows in V than its rank, and then the shortest."""
    if part.is_on_rows:
        return rows
    turned, upper = qr(part.L, mode="economic", check_finite=False)
    return np.asarray(solve_triangular(upper, rows.T, trans="T", check_finite=False).T @ turned.T)


def _refined(V: Matrix, found: Strategy) -> Strategy:
    """Return a strategy for targets of one that costs no more, and charges the cells below the dearest less."""
    part = part_of(Block(np.arange(len(V)), V, np.arange(V.shape[1])), np.ones(len(V)))
    problem = Problem([part], np.ones(V.shape[1]), np.ones(len(V)))
    below = refined(problem, (found.prices, found.weights), found.cost)
    if below is None:
        return found
    K = _mixing(part, below.rows[0])
    worst = _worst_variance(V, K)
    cost = float(((K @ V) ** 2).sum(axis=0).max()) * worst
    return replace(found, K=K * np.sqrt(worst), cost=cost) if cost <= found.cost * NO_DEARER else found


def _worst_variance(V: Matrix, K: Matrix) -> float:
    """Return the largest variance of a row of V from K V x + N(0, I), inf if some row is not told."""
    Q, upper = qr((K @ V).T, mode="economic", check_finite=False)
    inside = V @ Q
    if np.any(np.linalg.norm(V - inside @ Q.T, axis=1) > OUTSIDE * np.linalg.norm(V, axis=1)):
        return np.inf
    size = np.abs(upper.diagonal())
    if len(upper) != upper.shape[1] or size.min() <= np.finfo(float).tiny:
        return float((np.linalg.norm(inside @ np.linalg.pinv(upper.T, rcond=FAINT), axis=1) ** 2).max())
    return float((solve_triangular(upper, inside.T, check_finite=False) ** 2).sum(axis=0).max())


# --- one block beyond what is known --------------------------------------------------------------------------


def even_join(known: Known, W: Matrix, c: Matrix, *, gap: float = 0.01, max_steps: int = 300) -> Join:
    """Return rows with which each row of W is known with variance at most c_j, and that charge the dearest cell least.

    `cost` is max_i R_ii of the rows, and no rows that meet the targets have less than `bound`; multipliers tell what
    a larger target would save of the cost. Cells that nothing tells apart are one cell to the solver.

    Guarantee: known.with_rows(rows, y).variances(W) <= c (1 + 1e-9), as computed there.
    """
    is_open = (known.variances(W) > c * MET) & W.any(axis=1)
    multipliers = np.zeros(len(W))
    if not is_open.any():
        return Join(W[:0], 0.0, 0.0, multipliers)
    stack = np.vstack([W[is_open], known.rows])
    _, first, kind = np.unique(stack, axis=1, return_index=True, return_inverse=True)
    small = nothing_known(len(first)).with_rows(known.rows[:, first], known.outcome)
    found = _beyond(small, W[is_open][:, first], c[is_open], gap, max_steps)
    multipliers[is_open] = found.multipliers
    return replace(found, rows=found.rows[:, kind.ravel()], multipliers=multipliers)


def _beyond(known: Known, W: Matrix, c: Matrix, gap: float, max_steps: int) -> Join:
    fresh = fit(W, c * AIM, gap=gap)
    if not known.rank:
        return Join(fresh.K @ W, fresh.cost, min(fresh.bound, fresh.cost), fresh.prices * fresh.cost)
    beyond = join_residual(known, fresh.K @ W)
    if not _meets(known, beyond, W, c):
        beyond = fresh.K @ W
    cost = float((beyond**2).sum(axis=0).max(initial=0.0))
    if known.cells > _SMALL:
        return Join(beyond, cost, 0.0, fresh.prices * cost)
    block = Block(np.arange(len(W)), W, np.arange(known.cells), known=known.rows)
    spare = 1 - SPARE
    plan = least([block], c * spare, sizes=np.ones(known.cells), members=np.ones(len(W)), gap=gap, max_steps=max_steps)
    bound = plan.bound_at(1 / spare)
    if plan.cost <= cost and _meets(known, plan.rows[0], W, c):
        return Join(plan.rows[0], plan.cost, min(bound, plan.cost), plan.multipliers)
    return Join(beyond, cost, min(bound, cost), fresh.prices * cost)


def _meets(known: Known, rows: Matrix, W: Matrix, c: Matrix) -> bool:
    return bool((known.with_rows(rows, np.zeros(len(rows))).variances(W) <= c * MET).all())
