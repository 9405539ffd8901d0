"""One release for several analysts: how a budget that they own in shares is spent on what all of them ask.

Every analyst's workload W has a strategy A, rows from which W is told, whose largest column norm is one. Waterfilling
(PVLDB 14(10), "Budget Sharing for Multi-Analyst Differential Privacy", Algorithm 4) gives analyst i's rows the part s_i
of the budget, pours parallel rows of all analysts into one bucket and answers one row for each bucket.

What a column norm is depends on the noise, and so does what rows in a bucket add up to:

| noise | a record in cell j pays | budget | rows u_1, u_2, ... in one bucket become |
|---|---|---|---|
| Laplace(1) | sum of abs(column j), epsilon | epsilon | their sum |
| N(0, 1) | sum of squares of column j, twice the rho | 2 rho | sum_i a_i u_i, a_i = norm(u_i) / sqrt(sum norm(u)^2) |

Privacy, whatever the strategies: a cell pays at most the sum over analysts of s_i budget times its norm in A_i. That
norm is at most one, so a cell pays at most the budget. For Laplace noise since abs(sum u) <= sum abs(u); for Gaussian
noise since (sum a_i u_i)^2 <= sum a_i^2 sum u_i^2 (Cauchy and Schwarz), where the a_i^2 sum to one. Neither needs the
rows in a bucket to be parallel. The noise always has scale one and never follows the norm that was reached. In the
paper it does, and for that Lemma 3 needs strategies all of whose columns have the norm one: `fill` makes them so.
Without it, what a cell is spared stays in its account.

Sharing incentive and non-interference, at tolerance 0: with one more analyst rows get longer or are added, and neither
makes a least-squares answer worse (Lemmas 4 and 5). Nothing here draws noise or sees data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.optimize import minimize

from mechanisms import interrupts
from mechanisms.gaussian.known import nothing_known
from mechanisms.gaussian.linear import Matrix
from mechanisms.least.fitness import least_total, undominated

Select = Callable[[Matrix], Matrix]

MECHANISMS = ("waterfilling", "independent", "identity", "utilitarian", "weighted_utilitarian")

_PARALLEL = 1e-14
"""Rows whose cosine is within this of one are parallel: rounding."""

_EATEN = 1e-9
"""A difference that is smaller than this fraction of what it is taken from has too few digits left."""


@dataclass(frozen=True)
class _Noise:
    """Column norms are sums of abs^power; an answer to a row of length one has this variance."""

    power: int
    variance: float

    def norms(self, A: Matrix) -> Matrix:
        """Return what a record in each cell pays for A x with noise of scale one, shape (d,)."""
        return np.asarray((np.abs(A) ** self.power).sum(axis=0))

    def scaled(self, A: Matrix, amount: float) -> Matrix:
        """Return A with all column norms multiplied by the amount.

        To be shown: strategies of norm one, scaled to parts of the budget, cost at most the budget. Column norms of
        rows that are stacked add up: for Laplace noise the epsilons, for Gaussian noise the rhos, both of which compose
        by addition.
        """
        return np.asarray(A * amount ** (1 / self.power))

    def merged(self, rows: Matrix) -> Matrix:
        """Return the row that stands for a bucket, all of its rows pointing the same way.

        To be shown: a cell pays no more for it than for the rows. Laplace: abs(sum u) <= sum abs(u). Gaussian: the
        weights have squares of sum one, so (sum a u)^2 <= sum u^2 (Cauchy and Schwarz).
        """
        if self.power == 1:
            return np.asarray(rows.sum(axis=0))
        lengths = np.linalg.norm(rows, axis=1)
        return np.asarray(lengths @ rows / np.linalg.norm(lengths))


NOISES = {"gaussian": _Noise(2, 1.0), "laplace": _Noise(1, 2.0)}


@dataclass(frozen=True, eq=False)
class Analyst:
    """What one analyst asks: rows W, each divided by the error its owner accepts, and a share in the budget."""

    W: Matrix
    share: float = 1.0

    def __post_init__(self) -> None:
        if self.W.ndim != 2 or not self.W.any():
            raise ValueError(f"W must be a matrix that is not zero, got shape {self.W.shape}")
        if not self.share > 0:
            raise ValueError(f"a share must be positive, got {self.share}")


@dataclass(frozen=True, eq=False)
class Shared:
    """Release rows x + noise of scale one, rows (r, d); a record in each cell then pays `profile`, (d,).

    `joint` and `alone`, (k,), are the sums of variances of each analyst's rows, from this release and from one for the
    analyst's own share.
    """

    rows: Matrix
    profile: Matrix
    joint: Matrix
    alone: Matrix

    @property
    def ratios(self) -> Matrix:
        """What taking part does to each analyst's error: below one it is a gain."""
        return np.asarray(self.joint / self.alone)


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
    """Return one release for all analysts, no cell of which pays more than the budget.

    Guarantee: with exact noise of scale one the release is (budget / 2)-zCDP (Gaussian) or budget-DP (Laplace) for
    tables that differ in one record; see the top of this file.

    Args:
        budget: largest column norm of the rows: twice the rho for Gaussian noise, epsilon for Laplace.
        mechanism: one of MECHANISMS. Independent analysts do not look at each other's answers.
        noise: one of NOISES.
        tolerance: rows with a cosine of at least one minus this share a bucket; beyond 0 nothing is promised.
        select: makes the strategy of a workload, with column norms of at most one. Default: `select_strategy`.
        fill: measure single cells where a strategy's columns are short of the norm one.

    >>> everyone = [Analyst(np.eye(4)), Analyst(np.ones((1, 4)))]
    >>> share(everyone, budget=1.0).ratios.round(3).tolist()
    [0.8, 0.8]
    """
    table = _Table(analysts, NOISES[noise], tolerance, select or partial(select_strategy, noise=noise), fill=fill)
    return table.released(mechanism, budget, list(range(len(analysts))))


def interference(
    analysts: Sequence[Analyst],
    *,
    mechanism: str = "waterfilling",
    noise: str = "gaussian",
    tolerance: float = 0.0,
    select: Select | None = None,
    fill: bool = False,
) -> Matrix:
    """Return I, shape (k, k): the error of analyst j with everybody, over that without analyst i and i's part.

    Above one, j has reason to regret i. The diagonal is nan. The budget cancels out.
    """
    table = _Table(analysts, NOISES[noise], tolerance, select or partial(select_strategy, noise=noise), fill=fill)
    everybody = list(range(len(analysts)))
    together = table.released(mechanism, 1.0, everybody).joint
    found = np.full((len(analysts), len(analysts)), np.nan)
    for i in everybody if len(analysts) > 1 else []:
        rest = [j for j in everybody if j != i]
        found[i, rest] = together[rest] / table.released(mechanism, float(table.parts[rest].sum()), rest).joint
    return found


class _Table:
    """The analysts at one table, with the strategies of their workloads, each selected once."""

    def __init__(
        self, analysts: Sequence[Analyst], noise: _Noise, tolerance: float, select: Select, *, fill: bool
    ) -> None:
        if not analysts or len({analyst.W.shape[1] for analyst in analysts}) != 1:
            raise ValueError(f"analysts with workloads on the same cells are needed, got {len(analysts)}")
        shares = np.array([analyst.share for analyst in analysts])
        self.parts = shares / shares.sum()
        self.workloads = [analyst.W for analyst in analysts]
        self.noise, self.tolerance, self.select, self.fill = noise, tolerance, select, fill
        self._strategies: dict[bytes, Matrix] = {}

    def released(self, mechanism: str, budget: float, members: list[int]) -> Shared:
        """Return the release for some analysts; `budget` is what all of these own together."""
        if mechanism not in MECHANISMS:
            raise ValueError(f"mechanism must be one of {', '.join(MECHANISMS)}, got {mechanism!r}")
        amounts = budget * self.parts[members] / self.parts[members].sum()
        workloads = [self.workloads[i] for i in members]
        if mechanism == "identity":
            strategies = [np.eye(W.shape[1]) for W in workloads]
        else:
            strategies = [self._strategy(W) for W in workloads]
        pieces = [self.noise.scaled(A, amount) for A, amount in zip(strategies, amounts, strict=True)]
        alone = self._alone(workloads, pieces)
        if mechanism == "utilitarian":
            rows = self.noise.scaled(self._strategy(np.vstack(workloads)), budget)
        elif mechanism == "weighted_utilitarian":
            weighted = [W / np.sqrt(error) for W, error in zip(workloads, alone, strict=True)]
            rows = self.noise.scaled(self._strategy(np.vstack(weighted)), budget)
        elif mechanism == "independent":
            rows = np.vstack(pieces)
            return Shared(rows, self.noise.norms(rows), alone, alone)
        else:
            rows = self._poured(pieces)
        return Shared(rows, self.noise.norms(rows), self._errors(workloads, rows), alone)

    def _alone(self, workloads: list[Matrix], pieces: list[Matrix]) -> Matrix:
        """Return the error of each workload from its own piece; who asks the same has the same."""
        found: dict[bytes, float] = {}
        keys = [_key(W) + B.tobytes() for W, B in zip(workloads, pieces, strict=True)]
        for key, W, B in zip(keys, workloads, pieces, strict=True):
            if key not in found:
                found[key] = float(self._errors([W], self._poured([B]))[0])
        return np.array([found[key] for key in keys])

    def _strategy(self, W: Matrix) -> Matrix:
        """Return the strategy of a workload, its largest column norm at most one: on that rests what a cell pays."""
        key = _key(W)
        if key not in self._strategies:
            A = self.select(W)
            A = self.noise.scaled(A, 1 / max(1.0, float(self.noise.norms(A).max())))
            self._strategies[key] = self._filled(A) if self.fill else A
        return self._strategies[key]

    def _filled(self, A: Matrix) -> Matrix:
        """Return A with rows for single cells, so that all columns have the norm one (Lemma 3)."""
        missing = np.maximum(1 - self.noise.norms(A), 0.0)
        return np.vstack([A, np.diag(missing ** (1 / self.noise.power))[missing > _PARALLEL]])

    def _errors(self, workloads: list[Matrix], rows: Matrix) -> Matrix:
        """Return for each workload the sum of the variances of its least-squares answers."""
        known = nothing_known(rows.shape[1]).with_rows(rows, np.zeros(len(rows)))
        return np.array([self.noise.variance * float(known.variances(W).sum()) for W in workloads])

    def _poured(self, pieces: list[Matrix]) -> Matrix:
        """Return one row for each bucket, up to the sign of its rows.

        A row joins the bucket of an equal one, or else the first bucket that points its way, or else a new one.
        """
        rows = np.vstack(pieces)
        rows = rows[rows.any(axis=1)]
        lengths = np.linalg.norm(rows, axis=1)
        units = rows / lengths[:, None]
        buckets: list[list[Matrix]] = []
        sums, heads = np.zeros(rows.shape), np.zeros(rows.shape)
        equals: dict[bytes, int] = {}
        limit = 1 - max(self.tolerance, _PARALLEL)
        for row, unit, length in zip(rows, units, lengths, strict=True):
            key = (np.round(unit, 12) + 0.0).tobytes()
            at = equals.get(key, -1)
            if at < 0 or abs(heads[at] @ unit) < limit:
                near = np.abs(heads[: len(buckets)] @ unit) >= limit
                at = int(near.argmax()) if near.any() else len(buckets)
            equals[key] = at
            if at == len(buckets):
                buckets.append([])
            turned = -row if heads[at] @ unit < 0 else row
            buckets[at].append(turned)
            sums[at] += length ** (self.noise.power - 1) * turned
            heads[at] = sums[at] / np.linalg.norm(sums[at])
        return np.array([self.noise.merged(np.array(bucket)) for bucket in buckets])


def _key(W: Matrix) -> bytes:
    return str(W.shape).encode() + W.tobytes()


def select_strategy(W: Matrix, *, noise: str = "gaussian", starts: int = 10) -> Matrix:
    """Return rows A, largest column norm one, from which W is told with a small sum of variances.

    Cells that W does not tell apart are one cell, and those that it does not ask about pay nothing. Gaussian: the least
    there is, to a certified gap. Laplace: the best of p-identity, single cells, the rows asked and the Gaussian
    strategy; no better way than trying is known.
    """
    columns, place = np.unique(W, axis=1, return_inverse=True)
    live = np.flatnonzero(columns.any(axis=0))
    small = columns[:, live]
    A = least_total(small, gap=1e-4).K @ small
    if noise != "gaussian":
        candidates = [p_identity(small, starts=starts), np.eye(len(live)), small[undominated(small)], A]
        A = min((B / np.abs(B).sum(axis=0).max() for B in candidates), key=partial(total_variance, small))
    wide = np.zeros((len(A), columns.shape[1]))
    wide[:, live] = A
    return wide[:, place.ravel()]


def total_variance(W: Matrix, A: Matrix) -> float:
    """Return the sum of the variances of W from A x + noise of variance one, inf if A does not tell W."""
    return float(nothing_known(W.shape[1]).with_rows(A, np.zeros(len(A))).variances(W).sum())


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
        interrupts.check()
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
