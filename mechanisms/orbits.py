"""The least information for accuracy targets, beyond what is known, on a domain with symmetries.

A symmetric problem has a symmetric solution: where swapping two cells changes nothing about what is asked and known,
C may be averaged over the swap, and the dearest cell pays no more. Symmetric matrices fall apart into blocks (Schur):
block b stands `copies` times in C, each time the same small matrix. Cells that can be swapped are one cell here, rows
that are swapped with each other are one row. Without symmetries there is one block, once.

The part of a row w in block b is a vector v_b such that w C^-1 w^T = sum_b v_b C_b^-1 v_b^T. Cell i stands for sizes_i
cells and pays sum_b copies_b / sizes_i C_b[i, i].

Primal: min max_i of what R charges cell i, over R_b >= 0, with sum_b v_jb (K_b + R_b)^-1 v_jb^T <= 1 for every row j;
    K is what is known, and rows are divided by the roots of their targets.
Dual: for weights mu of the cells, of sum one, N_b = diag(mu / sizes) and any Z_b with Z_b^T Z_b <= N_b, no cost that
    meets the targets is below sum_j (sum_b sqrt(copies_b) z_jb v_jb^T)_+^2 - sum_b copies_b tr(Z_b K_b Z_b^T).

If nothing is known, rows with weights lambda have the best R = N^-1/2 (N^1/2 P N^1/2)^1/2 N^-1/2, where P is the sum of
lambda_j v_j^T v_j / copies; lambda follows the variances and mu the costs, as in `mechanisms.fitness`. If something is
known, ADMM solves the dual for fixed mu (as in `mechanisms.targets`), and mu follows the costs every few steps. Each
solution on the way counts, with its bound. A row's lambda is that of all rows it stands for together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from mechanisms.fitness import Indices, Matrix
from mechanisms.linear import row_space

_FLOOR = 1e-9
"""Weights stay above this part of their sum."""

_RIDGE = 1e-12
"""So much of the largest information counts as known everywhere, lest rounding divides by nothing."""

_POWER = 1.8
"""How far weights follow variances and costs in a step, if nothing is known: beyond 2 they would swing."""

_MOVE, _LEAST_MOVE = 1.6, 0.25
"""How far the weights of cells follow costs between solutions of the dual, at first and at least."""

_CHEAPEST = 1e-2
"""No cell's weight is below this part of the mean, if something is known: ADMM does not get along with large ratios.

The bound loses no more than this part by it.
"""

_FAST = 1.6
"""The weight of a row changes by no more than this factor in a step of ADMM."""

_DIM, _REFINED = 1e-3, 3
"""ADMM is slow where little is needed. So much of a mean direction is added to all, and refined in so many steps."""

_STEPS = 10
"""So many steps of ADMM are made before the weights of cells are changed."""

_GRID, _LEVELS = 17, 3
"""The best scale is looked for on a grid, then on finer ones around what was best."""


@dataclass(frozen=True, eq=False)
class Block:
    """One block: row `rows[j]` of the problem has the part V[j], on coordinates that stand for the cells `cells`.

    `known` is the information that there is, (D, D) as V is (m, D); None if there is none.
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
    about p * multipliers[j] would be saved, shape (m,).
    """

    rows: tuple[Matrix, ...]
    cost: float
    bound: float
    multipliers: Matrix
    worth: float
    """What the targets are worth in the dual: the bound is this less what is known."""

    def bound_at(self, factor: float) -> float:
        """Return what no rows can cost less than that meet targets so many times as large."""
        return max(self.bound - (1 - 1 / factor) * self.worth, 0.0) if factor >= 1 else self.bound


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
    if not any(part.K.any() for part in problem.parts):
        return _fresh(problem, gap, max_steps)[0]
    return _joined(problem, gap, max_steps)


@dataclass(frozen=True, eq=False)
class _Part:
    """A block on the span of its rows and of what is known: V = L Q, known = Q^T K Q, Q orthonormal (None: all)."""

    rows: Indices
    cells: Indices
    copies: int
    L: Matrix
    Q: Matrix | None
    K: Matrix

    def metric(self, mu: Matrix) -> Matrix:
        """Return G with G G^T = Q diag(mu) Q^T, lower triangular."""
        here = mu[self.cells]
        return np.diag(np.sqrt(here)) if self.Q is None else _lower((self.Q * here) @ self.Q.T)

    def diagonal(self, R: Matrix) -> Matrix:
        """Return the diagonal of Q^T R Q."""
        found: Matrix = R.diagonal() if self.Q is None else ((R @ self.Q) * self.Q).sum(axis=0)
        return found

    def spread(self, rows: Matrix) -> Matrix:
        """Return rows on the block's own coordinates."""
        return rows if self.Q is None else np.asarray(rows @ self.Q)


def _part(block: Block, c: Matrix) -> _Part:
    V, known = block.V / np.sqrt(c[block.rows])[:, None], block.known
    lengths = np.linalg.norm(V, axis=1, keepdims=True)
    span = V / np.where(lengths > 0, lengths, 1.0)
    if known is not None and known.any():
        values, vectors = np.linalg.eigh(known)
        span = np.vstack([vectors[:, values > _RIDGE * values[-1]].T, span])
    Q = row_space(span)
    if len(Q) == V.shape[1]:
        return _Part(block.rows, block.cells, block.copies, V, None, np.zeros_like(V.T @ V) if known is None else known)
    L = V @ Q.T
    K = np.zeros_like(L.T @ L) if known is None else Q @ known @ Q.T
    return _Part(block.rows, block.cells, block.copies, L, Q, (K + K.T) / 2)


@dataclass(frozen=True, eq=False)
class _State:
    """New information of each part, factors of all information (lower triangular), and the variances and costs."""

    R: list[Matrix]
    factors: list[Matrix]
    variances: Matrix
    profile: Matrix


class _Problem:
    """Rows with targets of one, in parts."""

    def __init__(self, parts: list[_Part], sizes: Matrix, members: Matrix) -> None:
        self.parts, self.sizes, self.members, self.count = parts, sizes, members, len(members)
        self.squares = np.zeros((self.count, len(sizes)))  # what a row costs the cells when it is measured by itself
        for part in parts:
            self.squares[part.rows[:, None], part.cells] += part.spread(part.L) ** 2 / sizes[part.cells]
        self.squares *= members[:, None]

    def metrics(self, mu: Matrix) -> list[Matrix]:
        """Return G_b with G_b G_b^T = N_b."""
        return [part.metric(mu / self.sizes) for part in self.parts]

    def state(self, R: list[Matrix]) -> _State:
        """Return what new information gives together with what is known."""
        factors, variances, profile = [], np.zeros(self.count), np.zeros(len(self.sizes))
        everything = [part.K + each for part, each in zip(self.parts, R, strict=True)]
        faint = _RIDGE * max(float(C.diagonal().max()) for C in everything)
        for part, each, C in zip(self.parts, R, everything, strict=True):
            C[np.diag_indices_from(C)] += faint
            factors.append(_lower(C))
            half = solve_triangular(factors[-1], part.L.T, lower=True, check_finite=False)
            variances[part.rows] += (half**2).sum(axis=0)
            profile[part.cells] += part.copies * part.diagonal(each)
        return _State(R, factors, variances, profile / self.sizes)

    def best(self, lam: Matrix, mu: Matrix, state: _State | None = None) -> list[Matrix]:
        """Return the best information for these weights if nothing is known; else a better one than there is.

        w (K + R)^-1 w^T <= w_1 K^-1 w_1^T + w_2 R^-1 w_2^T for w_1 + w_2 = w, with equality at w_2 = w (K + R)^-1 R.
        So the best information for the rows w_2, as if nothing were known, is never worse for the rows w than R is.
        """
        found = []
        for i, (part, G) in enumerate(zip(self.parts, self.metrics(mu), strict=True)):
            L = part.L
            if state is not None and part.K.any():
                L = cho_solve((state.factors[i], True), L.T, check_finite=False).T @ state.R[i]
            A = np.sqrt(lam[part.rows] / part.copies)[:, None] * (L @ G)
            squares, Y = np.linalg.eigh(A.T @ A)
            roots = np.maximum(squares, 1e-30 * squares[-1]) ** 0.25
            half = solve_triangular(G, Y * roots, lower=True, trans="T", check_finite=False)
            found.append(half @ half.T)
        return found

    def topped(self, state: _State) -> tuple[float, float, Matrix]:
        """Return the least cost with all variances at most one, a scale of R, and how much of each row is added.

        With C = K + R = F F^T and F^-1 R F^-T = Y diag(shares) Y^T, the variance at scale t is the sum over k of
        (v F^-T Y)_k^2 / (1 + (t - 1) shares_k). A row above one is measured by itself as well, by 1 - 1 / variance:
        that is paid by its own cells, and they may be cheap ones.
        """
        pieces = []
        for part, R, factor in zip(self.parts, state.R, state.factors, strict=True):
            half = solve_triangular(factor, R, lower=True, check_finite=False)
            shares, Y = np.linalg.eigh(solve_triangular(factor, half.T, lower=True, check_finite=False))
            z = Y.T @ solve_triangular(factor, part.L.T, lower=True, check_finite=False)
            pieces.append((part.rows, z.T**2, np.clip(shares, 0.0, 1.0)))
        low, high = 0.0, 1.5 * max(float(state.variances.max()), 1.0)
        best = np.inf, 1.0, np.zeros(self.count)
        for _ in range(_LEVELS):
            scales = np.linspace(low, high, _GRID)[1 if low == 0 else 0 :]
            variances = np.zeros((_GRID, self.count))[: len(scales)]
            for rows, squares, shares in pieces:
                variances[:, rows] += (1 / np.maximum(1 + np.outer(scales - 1, shares), 1e-12)) @ squares.T
            more = np.maximum(1 - 1 / variances, 0.0)
            costs = (scales[:, None] * state.profile + more @ self.squares).max(axis=1)
            at = int(np.argmin(costs))
            if costs[at] < best[0]:
                best = float(costs[at]), float(scales[at]), more[at]
            low, high = (float(scales[at - 1]) if at else low), float(scales[min(at + 1, len(scales) - 1)])
        return best

    def made(self, state: _State, scale: float, more: Matrix) -> tuple[Matrix, ...]:
        """Return the rows of each block: of the information, scaled, and with more of some rows."""
        found = []
        for part, R in zip(self.parts, state.R, strict=True):
            also = (more * self.members)[part.rows] / part.copies
            values, vectors = np.linalg.eigh(scale * R + (part.L.T * also) @ part.L)
            keep = values > _RIDGE * float(values[-1])
            found.append(part.spread((np.sqrt(values[keep]) * vectors[:, keep]).T))
        return tuple(found)

    def bound(self, Z: list[Matrix], metrics: list[Matrix]) -> tuple[float, float]:
        """Return the value of the dual at Z_b G_b^T, where Z_b has no singular value above one, and its first term."""
        inner, spent = np.zeros(self.count), 0.0
        for part, each, G in zip(self.parts, Z, metrics, strict=True):
            U = each @ G.T
            inner[part.rows] += np.sqrt(part.copies) * (part.L * U).sum(axis=1)
            spent += part.copies * float(((U @ part.K) * U).sum())
        worth = float((np.maximum(inner, 0.0) ** 2).sum())
        return worth - spent, worth


class _Best:
    """The best solution so far and the best bound."""

    def __init__(self, problem: _Problem) -> None:
        self.problem, self.cost, self.bound, self.worth = problem, np.inf, 0.0, 0.0
        self.rows: tuple[Matrix, ...] = ()
        self.multipliers = np.zeros(problem.count)

    def offered(self, state: _State) -> float:
        """Look at a solution; return its cost once it meets all targets."""
        cost, scale, more = self.problem.topped(state)
        if cost < self.cost:
            self.cost, self.rows = cost, self.problem.made(state, scale, more)
        return cost

    def bounded(self, bound: float, worth: float, multipliers: Matrix) -> None:
        if bound > self.bound:
            self.bound, self.worth, self.multipliers = bound, worth, multipliers

    def plan(self) -> Plan:
        return Plan(self.rows, self.cost, min(self.bound, self.cost), self.multipliers, self.worth)


def _followed(weights: Matrix, ratios: Matrix, power: float, floor: float = _FLOOR) -> Matrix:
    """Return weights of sum one that follow the ratios, none of them below the floor."""
    moved: Matrix = weights * (ratios / float(weights @ ratios)) ** power
    moved = np.maximum(moved / moved.sum(), floor)
    return moved / float(moved.sum())


def _fresh(problem: _Problem, gap: float, max_steps: int) -> tuple[Plan, Matrix, Matrix]:
    """Return the plan if nothing is known, and the weights of rows and cells that it ends with."""
    lam = 1 / problem.squares.max(axis=1)
    mu = np.full(len(problem.sizes), 1 / len(problem.sizes))
    best = _Best(problem)
    for step in range(max_steps):
        state = problem.state(problem.best(lam, mu))
        if step % 3 == 0:
            best.offered(state)
            # At the best R the dual is Z = diag(sqrt lambda) V R^-1, whose product with itself is N.
            value = float(lam @ state.variances**2)
            best.bounded(value, value, lam * state.variances)
            if best.cost <= best.bound * (1 + gap):
                break
        lam = lam * np.clip(state.variances, 0.1, 10.0) ** _POWER
        lam = np.maximum(lam, _FLOOR * lam.max())
        mu = _followed(mu, state.profile, _POWER)
    return best.plan(), lam, mu


def _joined(problem: _Problem, gap: float, max_steps: int) -> Plan:
    """Return the plan beyond what is known."""
    bare = _Problem([replace(part, K=0 * part.K) for part in problem.parts], problem.sizes, problem.members)
    _, lam, mu = _fresh(bare, 0.05, 60)
    mu = _followed(mu, np.ones(len(mu)), 1.0, _CHEAPEST / len(mu))
    best, power, last = _Best(problem), _MOVE, np.inf
    splitting = _Splitting(problem, lam, mu)
    for _ in range(0, max_steps, _STEPS):
        for _ in range(_STEPS):
            splitting.step()
            best.bounded(*problem.bound(splitting.Z, splitting.metrics), splitting.root**2)
        state = problem.state(splitting.information())
        for _ in range(_REFINED):
            state = problem.state(problem.best(splitting.root**2, mu, state))
        cost = best.offered(state)
        if best.cost <= best.bound * (1 + gap):
            break
        power, last = (max(power / 1.4, _LEAST_MOVE) if cost > last else power), cost
        mu = _followed(mu, state.profile, power, _CHEAPEST / len(mu))
        splitting.move(mu)
    return best.plan()


class _Splitting:
    """ADMM on the dual for fixed weights of the cells: U = Z, U free and Z in the spectral unit ball.

    Coordinates are those in which N = 1: K' = G^T K G, V' = V G. Then penalty * drift tends to sqrt(lambda) V' - U K',
    and R' to its absolute value (Y^T Y)^1/2: what the ball cut off. `root` are the sqrt(lambda) of the rows.
    """

    def __init__(self, problem: _Problem, lam: Matrix, mu: Matrix) -> None:
        self.problem, self.metrics, self.root = problem, problem.metrics(mu), np.sqrt(lam)
        self.Z, self.drift, self.cuts = list[Matrix](), list[Matrix](), list[tuple[Matrix, Matrix]]()
        sizes = []
        for part, G, R in zip(problem.parts, self.metrics, problem.best(lam, mu), strict=True):
            K = G.T @ part.K @ G
            values, Y = np.linalg.eigh(G.T @ R @ G)
            values = np.maximum(values, 0.0)
            sizes += values[values > 1e-6 * values[-1]].tolist()
            C = K + (Y * values) @ Y.T
            C[np.diag_indices_from(C)] += 1e-9 * float(C.diagonal().max())
            A = (self.root[part.rows] / np.sqrt(part.copies))[:, None] * (part.L @ G)
            U = np.linalg.solve(C, A.T).T
            self.Z.append(_in_ball(U)[0])
            self.drift.append(A - U @ K)
        self.penalty = float(np.mean(sizes)) if sizes else 1.0
        self.drift = [drift / self.penalty for drift in self.drift]
        self._set_up()

    def _set_up(self) -> None:
        pairs = list(zip(self.problem.parts, self.metrics, strict=True))
        self.V = [part.L @ G / np.sqrt(part.copies) for part, G in pairs]
        self.K = [G.T @ part.K @ G for part, G in pairs]
        self._factorise()

    def _factorise(self) -> None:
        self.factors = [cho_factor(K + self.penalty * np.eye(len(K)), check_finite=False) for K in self.K]

    def move(self, mu: Matrix) -> None:
        """Go on with other weights of the cells."""
        before, self.metrics = self.metrics, self.problem.metrics(mu)
        for i, (old, new) in enumerate(zip(before, self.metrics, strict=True)):
            Z = solve_triangular(new, old @ self.Z[i].T, lower=True, check_finite=False).T
            self.Z[i] = _in_ball(Z)[0]
            kept = solve_triangular(old, self.drift[i].T, lower=True, trans="T", check_finite=False).T
            self.drift[i] = kept @ new
        self._set_up()

    def step(self) -> None:
        primal = dual = 0.0
        inner = np.zeros(self.problem.count)
        self.cuts = []
        for i, part in enumerate(self.problem.parts):
            A = self.root[part.rows, None] * self.V[i] + self.penalty * (self.Z[i] - self.drift[i])
            U = cho_solve(self.factors[i], A.T, check_finite=False).T
            before, (self.Z[i], Y, roots) = self.Z[i], _in_ball(U + self.drift[i])
            self.cuts.append((Y, roots - 1))
            self.drift[i] = self.drift[i] + U - self.Z[i]
            primal += part.copies * float(((U - self.Z[i]) ** 2).sum())
            dual += part.copies * float(((self.Z[i] - before) ** 2).sum())
            inner[part.rows] += part.copies * (self.V[i] * self.Z[i]).sum(axis=1)
        self.root = np.clip(inner, self.root / _FAST, self.root * _FAST)
        self.root = np.maximum(self.root, 1e-9 * self.root.max())
        self._balance(primal, dual)

    def _balance(self, primal: float, dual: float) -> None:
        """Change the penalty so that both residuals shrink alike."""
        if not 1 / 9 <= primal / max(dual, 1e-300) <= 9:
            factor = 1.2 if primal > dual else 1 / 1.2
            self.penalty *= factor
            self.drift = [drift / factor for drift in self.drift]
            self.cuts = [(Y, over / factor) for Y, over in self.cuts]
            self._factorise()

    def information(self) -> list[Matrix]:
        """Return R of each part as it is now."""
        found = []
        for G, (Y, over) in zip(self.metrics, self.cuts, strict=True):
            half = solve_triangular(G, Y * np.sqrt(self.penalty * over), lower=True, trans="T", check_finite=False)
            rest = solve_triangular(G, np.eye(len(G)), lower=True, trans="T", check_finite=False)
            found.append(half @ half.T + _DIM * self.penalty * (rest @ rest.T))
        return found


def _lower(C: Matrix) -> Matrix:
    return np.asarray(np.linalg.cholesky(C), dtype=np.float64)


def _in_ball(T: Matrix) -> tuple[Matrix, Matrix, Matrix]:
    """Return the nearest matrix with singular values of at most one; the right singular vectors that had more, and
    those singular values.
    """
    if len(T) < T.shape[1]:
        squares, X = np.linalg.eigh(T @ T.T)
        roots = np.sqrt(np.maximum(squares, 0.0))
        large = roots > 1
        nearest: Matrix = (X / np.maximum(roots, 1.0)) @ (X.T @ T)
        return nearest, (T.T @ X[:, large]) / roots[large], roots[large]
    squares, Y = np.linalg.eigh(T.T @ T)
    roots = np.sqrt(np.maximum(squares, 0.0))
    large = roots > 1
    nearest = ((T @ Y) / np.maximum(roots, 1.0)) @ Y.T
    return nearest, Y[:, large], roots[large]
