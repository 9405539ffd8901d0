"""One release for several analysts: how a budget that they own in shares is spent on what all of them ask.

Every analyst's workload W has a strategy B, rows from which W is told, whose largest column norm is one. Waterfilling
(PVLDB 14(10), "Budget Sharing for Multi-Analyst Differential Privacy", Algorithm 4) gives analyst i's rows the part s_i
of the budget, pours parallel rows of all analysts into one bucket and answers one row for each bucket.

With noise N(0, 1) a record in cell j pays the sum of squares of column j, twice the rho, and rows u_1, u_2, ... in one
bucket become sum_i a_i u_i with a_i = norm(u_i) / sqrt(sum norm(u)^2). The paper has Laplace noise, for which a column
norm is a sum of abs, and a bucket becomes the sum of its rows: that is in `benchmarks.papers.sharing`.

Privacy, whatever the strategies: a cell pays at most the sum over analysts of s_i budget times its norm in A_i. That
norm is at most one, so a cell pays at most the budget, since (sum a_i u_i)^2 <= sum a_i^2 sum u_i^2 (Cauchy and
Schwarz), where the a_i^2 sum to one. Rows in a bucket need not be parallel. The noise always has scale one
and never follows the norm that was reached; what a cell is spared stays in its account.

Sharing incentive and non-interference, at tolerance 0: with one more analyst rows get longer or are added, and neither
makes a least-squares answer worse (Lemmas 4 and 5). Nothing here draws noise or sees data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from mechanisms.gaussian.known import nothing_known
from mechanisms.gaussian.linear import Matrix
from mechanisms.least.minimax import least_total
from mechanisms.tolerances import PARALLEL

Select = Callable[[Matrix], Matrix]

MECHANISMS = ("waterfilling", "independent", "identity", "utilitarian", "weighted_utilitarian")


@dataclass(frozen=True)
class Gaussian:
    """Noise N(0, 1): what column norms are, and what rows in a bucket become."""

    variance: float = 1.0
    """Of an answer to a row of length one."""

    def norms(self, B: Matrix) -> Matrix:
        """Return what a record in each cell pays for B x with noise of scale one, shape (d,)."""
        return np.asarray((B**2).sum(axis=0))

    def scaled(self, B: Matrix, amount: float) -> Matrix:
        """Return B with all column norms multiplied by the amount.

        To be shown: strategies of norm one, scaled to parts of the budget, cost at most the budget. Column norms of
        rows that are stacked add up, as the rhos do, which compose by addition.
        """
        return np.asarray(B * amount**0.5)

    def weight(self, length: float) -> float:
        """Return how much a row of that length counts in the direction of its bucket."""
        return length

    def merged(self, rows: Matrix) -> Matrix:
        """Return the row that stands for a bucket, all of its rows pointing the same way.

        To be shown: a cell pays no more for it than for the rows. The weights have squares of sum one, so
        (sum a u)^2 <= sum u^2 (Cauchy and Schwarz).
        """
        lengths = np.linalg.norm(rows, axis=1)
        return np.asarray(lengths @ rows / np.linalg.norm(lengths))


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
    noise: Gaussian | None = None,
    tolerance: float = 0.0,
    select: Select | None = None,
) -> Shared:
    """Return one release for all analysts, no cell of which pays more than the budget.

    Guarantee: with exact noise of scale one the release is (budget / 2)-zCDP for tables that differ in one record; see
    the top of this file.

    Args:
        budget: largest column norm of the rows: twice the rho.
        mechanism: one of MECHANISMS. Independent analysts do not look at each other's answers.
        noise: another kind of noise, for reproductions; default N(0, 1).
        tolerance: rows with a cosine of at least one minus this share a bucket; beyond 0 nothing is promised.
        select: makes the strategy of a workload, with column norms of at most one. Default: `select_strategy`.

    >>> everyone = [Analyst(np.eye(4)), Analyst(np.ones((1, 4)))]
    >>> share(everyone, budget=1.0).ratios.round(3).tolist()
    [0.8, 0.8]
    """
    table = _Table(analysts, noise or Gaussian(), tolerance, select or select_strategy)
    return table.released(mechanism, budget)


class _Table:
    """The analysts at one table, with the strategies of their workloads, each selected once."""

    def __init__(self, analysts: Sequence[Analyst], noise: Gaussian, tolerance: float, select: Select) -> None:
        if not analysts or len({analyst.W.shape[1] for analyst in analysts}) != 1:
            raise ValueError(f"analysts with workloads on the same cells are needed, got {len(analysts)}")
        shares = np.array([analyst.share for analyst in analysts])
        self.parts = shares / shares.sum()
        self.workloads = [analyst.W for analyst in analysts]
        self.noise, self.tolerance, self.select = noise, tolerance, select
        self._strategies: dict[bytes, Matrix] = {}

    def released(self, mechanism: str, budget: float) -> Shared:
        """Return the release; `budget` is what all analysts own together."""
        if mechanism not in MECHANISMS:
            raise ValueError(f"mechanism must be one of {', '.join(MECHANISMS)}, got {mechanism!r}")
        amounts, workloads = budget * self.parts, self.workloads
        if mechanism == "identity":
            strategies = [np.eye(W.shape[1]) for W in workloads]
        else:
            strategies = [self._strategy(W) for W in workloads]
        pieces = [self.noise.scaled(B, amount) for B, amount in zip(strategies, amounts, strict=True)]
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
            B = self.select(W)
            self._strategies[key] = self.noise.scaled(B, 1 / max(1.0, float(self.noise.norms(B).max())))
        return self._strategies[key]

    def _errors(self, workloads: list[Matrix], rows: Matrix) -> Matrix:
        """Return for each workload the sum of the variances of its least-squares answers."""
        known = nothing_known(rows.shape[1]).with_rows(rows, np.zeros(len(rows)))
        return np.array([self.noise.variance * float(known.variances(W).sum()) for W in workloads])

    def _poured(self, pieces: list[Matrix]) -> Matrix:
        """Return one row for each bucket, up to the sign of its rows.

        B row joins the bucket of an equal one, or else the first bucket that points its way, or else a new one.
        """
        rows = np.vstack(pieces)
        rows = rows[rows.any(axis=1)]
        lengths = np.linalg.norm(rows, axis=1)
        units = rows / lengths[:, None]
        buckets: list[list[Matrix]] = []
        sums, heads = np.zeros(rows.shape), np.zeros(rows.shape)
        equals: dict[bytes, int] = {}
        limit = 1 - max(self.tolerance, PARALLEL)
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
            sums[at] += self.noise.weight(length) * turned
            heads[at] = sums[at] / np.linalg.norm(sums[at])
        return np.array([self.noise.merged(np.array(bucket)) for bucket in buckets])


def _key(W: Matrix) -> bytes:
    return str(W.shape).encode() + W.tobytes()


def select_strategy(W: Matrix) -> Matrix:
    """Return rows B, largest column norm one, from which W is told with the least sum of variances, to a certified gap.

    Cells that W does not tell apart are one cell, and those that it does not ask about pay nothing.
    """
    return on_distinct_cells(W, lambda small: least_total(small, gap=1e-4).K @ small)


def on_distinct_cells(W: Matrix, select: Select) -> Matrix:
    """Return the strategy that is selected for the cells that W tells apart, on all cells."""
    columns, place = np.unique(W, axis=1, return_inverse=True)
    live = np.flatnonzero(columns.any(axis=0))
    B = select(columns[:, live])
    wide = np.zeros((len(B), columns.shape[1]))
    wide[:, live] = B
    return wide[:, place.ravel()]


def total_variance(W: Matrix, B: Matrix) -> float:
    """Return the sum of the variances of W from B x + noise of variance one, inf if B does not tell W."""
    return float(nothing_known(W.shape[1]).with_rows(B, np.zeros(len(B))).variances(W).sum())
