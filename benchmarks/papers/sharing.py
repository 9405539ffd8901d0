"""Sharing a budget as the paper has it: Laplace noise, strategies by p-identity, who regrets whom (PVLDB 14(10)).

The buckets are those of `mechanisms.sharing`. With Laplace noise of scale one a record in cell j pays the sum of
abs(column j), the budget is epsilon, and rows in one bucket become their sum: abs(sum u) <= sum abs(u). There the
noise follows the norm that was reached, and for that Lemma 3 needs strategies all of whose columns have the norm one:
`fill` makes them so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.optimize import minimize

from mechanisms import sharing
from mechanisms.gaussian.linear import Matrix
from mechanisms.least.minimax import least_total, undominated
from mechanisms.sharing import Analyst, Gaussian, Select, Shared, on_distinct_cells, total_variance

_EATEN = 1e-9
"""A difference that is smaller than this fraction of what it is taken from has too few digits left."""

_FULL = 1e-14
"""A column whose norm is within this of one needs no row to fill it."""


@dataclass(frozen=True)
class Laplace(Gaussian):
    """Noise Laplace(1)."""

    variance: float = 2.0

    def norms(self, A: Matrix) -> Matrix:
        """Return what a record in each cell pays, its epsilon."""
        return np.asarray(np.abs(A).sum(axis=0))

    def scaled(self, A: Matrix, amount: float) -> Matrix:
        """Return A with all column norms multiplied by the amount: the epsilons of stacked rows add up."""
        return np.asarray(A * amount)

    def weight(self, length: float) -> float:
        """Return one, whatever the length: rows in a bucket are added up as they are."""
        return float(length > 0)

    def merged(self, rows: Matrix) -> Matrix:
        """Return the sum of the rows."""
        return np.asarray(rows.sum(axis=0))


NOISES: dict[str, Gaussian] = {"gaussian": Gaussian(), "laplace": Laplace()}
POWERS = {"gaussian": 2, "laplace": 1}
"""Column norms are sums of abs^power."""


def share(
    analysts: Sequence[Analyst],
    *,
    budget: float,
    mechanism: str = "waterfilling",
    noise: str = "gaussian",
    tolerance: float = 0.0,
    select: Select | None = None,
    fill: bool = False,
) -> Shared:
    """Return `mechanisms.sharing.share` with one of NOISES; `fill` measures single cells where columns are short."""
    chosen = select or partial(select_strategy, noise=noise)
    return sharing.share(
        analysts,
        budget=budget,
        mechanism=mechanism,
        noise=NOISES[noise],
        tolerance=tolerance,
        select=partial(_filled, chosen, NOISES[noise]) if fill else chosen,
    )


def _filled(select: Select, noise: Gaussian, W: Matrix) -> Matrix:
    """Return the strategy with rows for single cells, so that all columns have the norm one (Lemma 3)."""
    A = select(W)
    A = noise.scaled(A, 1 / max(1.0, float(noise.norms(A).max())))
    missing = np.maximum(1 - noise.norms(A), 0.0)
    cells = np.eye(len(missing))[missing > _FULL]
    return np.vstack(
        [A, *(noise.scaled(row, amount) for row, amount in zip(cells, missing[missing > _FULL], strict=True))]
    )


def interference(
    analysts: Sequence[Analyst],
    *,
    mechanism: str = "waterfilling",
    noise: str = "gaussian",
    select: Select | None = None,
    fill: bool = False,
) -> Matrix:
    """Return I, shape (k, k): the error of analyst j with everybody, over that without analyst i and i's part.

    Above one, j has reason to regret i. The diagonal is nan. The budget cancels out.
    """
    known: dict[bytes, Matrix] = {}

    def once(W: Matrix) -> Matrix:
        key = str(W.shape).encode() + W.tobytes()
        if key not in known:
            known[key] = (select or partial(select_strategy, noise=noise))(W)
        return known[key]

    def errors(members: list[int]) -> Matrix:
        budget = sum(analysts[i].share for i in members) / sum(analyst.share for analyst in analysts)
        some = [analysts[i] for i in members]
        return share(some, budget=budget, mechanism=mechanism, noise=noise, select=once, fill=fill).joint

    everybody = list(range(len(analysts)))
    together, found = errors(everybody), np.full((len(analysts), len(analysts)), np.nan)
    for i in everybody if len(analysts) > 1 else []:
        rest = [j for j in everybody if j != i]
        found[i, rest] = together[rest] / errors(rest)
    return found


def select_strategy(W: Matrix, *, noise: str = "gaussian", starts: int = 10) -> Matrix:
    """Return rows A, largest column norm one, from which W is told with a small sum of variances.

    Gaussian: the least there is, to a certified gap. Laplace: the best of p-identity, single cells, the rows asked and
    the Gaussian strategy; no better way than trying is known.
    """
    return sharing.select_strategy(W) if noise == "gaussian" else on_distinct_cells(W, partial(_best, starts=starts))


def _best(W: Matrix, *, starts: int) -> Matrix:
    A = least_total(W, gap=1e-4).K @ W
    candidates = [p_identity(W, starts=starts), np.eye(W.shape[1]), W[undominated(W)], A]
    return min((B / np.abs(B).sum(axis=0).max() for B in candidates), key=partial(total_variance, W))


def p_identity(W: Matrix, *, rows: int | None = None, starts: int = 10) -> Matrix:
    """Return A = [1; T] diag(1 / (1 + sum T)), T >= 0, that tells W well; its columns have the L1 norm one.

    With s = 1 + sum T and N = (1 + T^T T)^-1 the sum of variances is sum_ij G_ij s_i N_ij s_j for G = W^T W; it is
    lowered by L-BFGS-B from several starts, and the best is taken (HDMM, PVLDB 11(10), Section 5.2).

    Args:
        rows: number of rows of T; default max(1, d / 16).
        starts: how often; the n-th start is always the same.
    """
    d = W.shape[1]
    p = rows or max(1, d // 16)
    G = W.T @ W
    best, least = np.zeros((p, d)), float(np.trace(G))
    for start in range(starts):
        found = minimize(
            _loss, _scattered(start, p * d), args=(G, p), jac=True, method="L-BFGS-B", bounds=[(0, None)] * (p * d)
        )
        if found.fun < least:
            best, least = found.x.reshape(p, d), float(found.fun)
    A: Matrix = np.vstack([np.eye(d), best]) / (1 + best.sum(axis=0))
    return A[A.any(axis=1)]


def _scattered(start: int, count: int) -> Matrix:
    """Return numbers in [0, 1) that look random and are not: the fractions of golden k^2."""
    k = np.arange(start * count + 1, (start + 1) * count + 1, dtype=float)
    return np.asarray((k * k * ((np.sqrt(5) - 1) / 2)) % 1.0)


def _loss(values: Matrix, G: Matrix, p: int) -> tuple[float, Matrix]:
    """Return the sum of variances and its gradient, with one product by G: T N = (1 + T T^T)^-1 T has p rows.

    Where T is so large that rounding eats the sum, N <= 1 takes its place: far too much, so that a search turns back.
    """
    T = values.reshape(p, -1)
    s = 1 + T.sum(axis=0)
    half = np.linalg.solve(np.eye(p) + T @ T.T, T)
    outer = (half * s) @ G
    plain = G.diagonal() * s
    by_scale = plain - (T * outer).sum(axis=0)
    if by_scale @ s < _EATEN * (plain @ s):
        return float(plain @ s), np.tile(2 * plain, p)
    outer *= s
    gradient = 2 * (by_scale - outer + (outer @ T.T) @ half)
    return float(by_scale @ s), np.asarray(gradient.ravel())
