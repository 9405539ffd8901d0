"""The least information beyond what is known, where far more is known than is needed: ADMM on the dual.

There the fixed point of `ascent` is slow: what is missing is a small difference of large matrices. This way
does not form it, but takes an eigendecomposition a step and many steps.

Dual: for weights mu of the cells, N_b = diag(mu / sizes) and any Z_b with Z_b^T Z_b <= N_b, no cost that meets the
    targets is below sum_j (sum_b sqrt(copies_b) z_jb v_jb^T)_+^2 - sum_b copies_b tr(Z_b C_known_b Z_b^T).
ADMM solves it for fixed mu (as in `trace`), and mu follows the costs every few steps.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from mechanisms import interrupts
from mechanisms.gaussian.linear import Matrix
from mechanisms.least.blocks import Bound, Piece, Problem, Solution, piece
from mechanisms.least.trace import in_ball
from mechanisms.tolerances import FAINT, START_RIDGE, TINY, WEIGHT_FLOOR

_MOVE, _LEAST_MOVE = 1.6, 0.25
"""How far the weights of cells follow costs between solutions of the dual, at first and at least."""

_CHEAPEST = 1e-2
"""No cell's weight is below this part of the mean: ADMM does not get along with large ratios.

The bound loses no more than this part by it.
"""

_FAST = 1.6
"""The weight of a row changes by no more than this factor in a step."""

_DIM, _REFINED = 1e-3, 3
"""ADMM is slow where little is needed. So much of a mean direction is added to all, and refined in so many steps."""

_STEPS = 10
"""So many steps are made before the weights of cells are changed."""


def improved(
    problem: Problem, best: Solution, bound: Bound, first: tuple[Matrix, Matrix], *, gap: float, max_steps: int
) -> tuple[Solution, Bound]:
    """Return the best solution and bound that are found from these on, beginning with weights of rows and of cells."""
    rows, cells = first
    mu, power, last = _followed(cells, np.ones(len(cells)), 1.0), _MOVE, np.inf
    splitting = _Splitting(problem, np.sqrt(rows), mu, best)
    for _ in range(0, max_steps, _STEPS):
        interrupts.check()
        for _ in range(_STEPS):
            bound = max(bound, splitting.step(), key=lambda found: found.value)
        found = splitting.solution()
        best = min(best, found, key=lambda solution: solution.cost)
        if best.cost <= bound.value * (1 + gap):
            break
        power, last = (max(power / 1.4, _LEAST_MOVE) if found.cost > last else power), found.cost
        mu = _followed(mu, problem.profile(found.rows), power)
        splitting.move(mu)
    return best, bound


def _followed(weights: Matrix, ratios: Matrix, power: float) -> Matrix:
    """Return weights of sum one that follow the ratios, none of them below the floor."""
    moved: Matrix = weights * (ratios / float(weights @ ratios)) ** power
    moved = np.maximum(moved / moved.sum(), _CHEAPEST / len(moved))
    return moved / float(moved.sum())


class _Splitting:
    """ADMM on the dual for fixed weights of the cells: U = Z, U free and Z in the spectral unit ball.

    Coordinates are those in which N = 1: C_known' = G^T C_known G, V' = V G. Then penalty * drift tends to
    E = sqrt(lambda) V' - U C_known', and R' to its absolute value (E^T E)^1/2: what the ball cut off. `root` are the
    sqrt(lambda) of the rows.
    """

    def __init__(self, problem: Problem, root: Matrix, mu: Matrix, start: Solution) -> None:
        self.problem, self.root = problem, root
        self.Z, self.drift, self.cuts = list[Matrix](), list[Matrix](), list[tuple[Matrix, Matrix]]()
        self._set_out(mu)
        sizes = []
        for i, (part, rows) in enumerate(zip(problem.parts, start.rows, strict=True)):
            new = rows @ self.metrics[i] * np.sqrt(start.scale)
            values = np.linalg.eigvalsh(new.T @ new)
            sizes += values[values > 1e-6 * values[-1]].tolist()
            C = self.C_known[i] + new.T @ new
            C[np.diag_indices_from(C)] += START_RIDGE * float(C.diagonal().max())
            weighted = self.root[part.rows, None] * self.V[i]
            U = np.linalg.solve(C, weighted.T).T
            self.Z.append(in_ball(U)[0])
            self.drift.append(weighted - U @ self.C_known[i])
        self.penalty = float(np.mean(sizes)) if sizes else 1.0
        self.drift = [drift / self.penalty for drift in self.drift]
        self._factorise()

    def _set_out(self, mu: Matrix) -> None:
        self.metrics = [part.metric(mu / self.problem.sizes) for part in self.problem.parts]
        pairs = list(zip(self.problem.parts, self.metrics, strict=True))
        self.V = [part.L @ G / np.sqrt(part.copies) for part, G in pairs]
        self.B = [part.B @ G for part, G in pairs]
        self.C_known = [B.T @ B for B in self.B]

    def _factorise(self) -> None:
        self.factors = [cho_factor(C + self.penalty * np.eye(len(C)), check_finite=False) for C in self.C_known]

    def move(self, mu: Matrix) -> None:
        """Go on with other weights of the cells."""
        before = self.metrics
        self._set_out(mu)
        for i, (old, new) in enumerate(zip(before, self.metrics, strict=True)):
            Z = solve_triangular(new, old @ self.Z[i].T, lower=True, check_finite=False).T
            self.Z[i] = in_ball(Z)[0]
            kept = solve_triangular(old, self.drift[i].T, lower=True, trans="T", check_finite=False).T
            self.drift[i] = kept @ new
        self._factorise()

    def step(self) -> Bound:
        """Return the bound after one step."""
        primal = dual = spent = 0.0
        inner = np.zeros(self.problem.count)
        self.cuts = []
        for i, part in enumerate(self.problem.parts):
            weighted = self.root[part.rows, None] * self.V[i] + self.penalty * (self.Z[i] - self.drift[i])
            U = cho_solve(self.factors[i], weighted.T, check_finite=False).T
            before, (self.Z[i], Y, roots) = self.Z[i], in_ball(U + self.drift[i])
            self.cuts.append((Y, roots - 1))
            self.drift[i] = self.drift[i] + U - self.Z[i]
            primal += part.copies * float(((U - self.Z[i]) ** 2).sum())
            dual += part.copies * float(((self.Z[i] - before) ** 2).sum())
            spent += part.copies * float(((self.Z[i] @ self.B[i].T) ** 2).sum())
            inner[part.rows] += part.copies * (self.V[i] * self.Z[i]).sum(axis=1)
        self.root = np.clip(inner, self.root / _FAST, self.root * _FAST)
        self.root = np.maximum(self.root, WEIGHT_FLOOR * self.root.max())
        self._balance(primal, dual)
        multipliers = np.maximum(inner, 0.0) ** 2
        return Bound(float(multipliers.sum()) - spent, multipliers, float(multipliers.sum()))

    def _balance(self, primal: float, dual: float) -> None:
        """Change the penalty so that both residuals shrink alike."""
        if not 1 / 9 <= primal / max(dual, 1e-300) <= 9:
            factor = 1.2 if primal > dual else 1 / 1.2
            self.penalty *= factor
            self.drift = [drift / factor for drift in self.drift]
            self.cuts = [(Y, over / factor) for Y, over in self.cuts]
            self._factorise()

    def solution(self) -> Solution:
        """Return R as it is now, refined."""
        return self.problem.solution([self._piece(i) for i in range(len(self.problem.parts))])

    def _piece(self, i: int) -> Piece:
        """Return R of a part as it is now, and then a few times a better one.

        w (C_known + R)^-1 w^T <= w_1 C_known^-1 w_1^T + w_2 R^-1 w_2^T for w_1 + w_2 = w, with equality at
        w_2 = w (C_known + R)^-1 R. So the best information for the rows w_2, as if nothing were known, is never worse
        for the rows w than R is.
        """
        (Y, over), part = self.cuts[i], self.problem.parts[i]
        R = (Y * (self.penalty * over)) @ Y.T + _DIM * self.penalty * np.eye(len(self.C_known[i]))
        weighted = self.root[part.rows, None] * self.V[i]
        rows = weighted[:0]
        for _ in range(_REFINED):
            C = self.C_known[i] + R
            C[np.diag_indices_from(C)] += FAINT * float(C.diagonal().max())
            rest = np.linalg.solve(C, weighted.T).T @ R
            squares, Y = np.linalg.eigh(rest.T @ rest)
            rows = (np.maximum(squares, TINY**2 * squares[-1]) ** 0.25 * Y).T
            R = rows.T @ rows
        return piece(rows, self.V[i] * np.sqrt(part.copies), self.B[i], self.metrics[i])
