"""The deciders of DP-PQD (arXiv 2309.08574) as published, where ours differ: P(yes), and runs with numpy's noise.

For comparison on public data only.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mechanisms.deciders import claims
from mechanisms.deciders.claims import Claim, Histogram

BETA = 0.05

Decisions = NDArray[np.bool_]


def _below(x: NDArray[np.float64] | float, scale: NDArray[np.float64] | float) -> NDArray[np.float64]:
    """Return P(Lap(scale) < x)."""
    tail = np.exp(-np.abs(x) / scale) / 2
    return np.where(np.asarray(x) < 0, tail, 1 - tail)


@dataclass(frozen=True)
class PublishedCount:
    """EM_count with the score that is flat beyond 2 tau; without the overflow."""

    rows: Histogram
    bounds: tuple[int, int]
    claim: Claim
    epsilon: float

    def yes(self) -> float:
        tau = float(self.claim.tau)
        score = max(0.0, 1 - abs(self.rows.rows - float(self.claim.synthetic)) / (2 * tau))
        return 1 / (1 + math.exp(min(700.0, -self.epsilon * tau * (2 * score - 1))))

    def runs(self, size: int, rng: np.random.Generator) -> Decisions:
        return rng.random(size) < self.yes()


@dataclass(frozen=True)
class PublishedRace:
    """R2T_sum with the budget divided by the number of races, equations 11 and 12."""

    rows: Histogram
    bounds: tuple[int, int]
    claim: Claim
    epsilon: float

    @property
    def races(self) -> int:
        return max(1, math.ceil(math.log2(self.bounds[1])))

    def _entries(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        rows, truncations = self.rows, 2.0 ** np.arange(1, self.races + 1)
        sums = np.array([rows.values[rows.values <= t] @ rows.counts[rows.values <= t] for t in truncations], float)
        scales = np.asarray(truncations * self.races / self.epsilon, float)
        return sums - scales * math.log(self.races / BETA), scales

    def yes(self) -> float:
        means, scales = self._entries()
        low, high = (float(np.prod(_below(float(end) - means, scales))) for end in (self.claim.low, self.claim.high))
        return (high if self.claim.high > 0 else 0.0) - (low if self.claim.low >= 0 else 0.0)

    def runs(self, size: int, rng: np.random.Generator) -> Decisions:
        means, scales = self._entries()
        estimates = np.maximum(0, (means + rng.laplace(0, scales, (size, self.races))).max(axis=1))
        return np.asarray((estimates > float(self.claim.low)) & (estimates < float(self.claim.high)))


@dataclass(frozen=True)
class PublishedMedian:
    """EM_med with the strict rank and sensitivity 1, over the whole domain."""

    rows: Histogram
    bounds: tuple[int, int]
    claim: Claim
    epsilon: float

    def _weights(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        low, high = self.bounds
        domain, rows = np.arange(low, high + 1), self.rows
        ranks = np.array([rows.counts[rows.values < value].sum() for value in domain])
        scores = -np.abs(ranks - rows.rows / 2) * self.epsilon / 2
        weights = np.exp(scores - scores.max())
        return domain, weights / weights.sum()

    def yes(self) -> float:
        domain, weights = self._weights()
        return float(weights[[self.claim.holds(int(value)) for value in domain]].sum())

    def runs(self, size: int, rng: np.random.Generator) -> Decisions:
        domain, weights = self._weights()
        return np.array([self.claim.holds(int(value)) for value in rng.choice(domain, size, p=weights)])


@dataclass(frozen=True)
class PublishedBins:
    """Hist_med with half of epsilon on the number of rows and half on the two outer bins, algorithm 3."""

    rows: Histogram
    bounds: tuple[int, int]
    claim: Claim
    epsilon: float

    def yes(self) -> float:
        ranks, scale = claims.ranks_of(self.rows, self.claim), 2 / self.epsilon
        halves = np.arange(-50 * scale, (ranks.rows + 100 * scale) / 2).round()  # where ceil(noisy rows / 2) may lie
        chances = _below(2 * halves - ranks.rows, scale) - _below(2 * halves - 2 - ranks.rows, scale)
        return float(chances @ (_below(halves - ranks.low, scale) * _below(halves - ranks.high, scale)))

    def runs(self, size: int, rng: np.random.Generator) -> Decisions:
        ranks = claims.ranks_of(self.rows, self.claim)
        noise = rng.laplace(0, 2 / self.epsilon, (3, size))
        half = np.ceil((ranks.rows + noise[0]) / 2)
        return np.asarray((ranks.low + noise[1] < half) & (ranks.high + noise[2] < half))


class Published(Protocol):
    """A decider as published, on given rows."""

    def yes(self) -> float: ...
    def runs(self, size: int, rng: np.random.Generator) -> Decisions: ...


PUBLISHED: dict[str, Callable[[Histogram, tuple[int, int], Claim, float], Published]] = {
    "EM_count*": PublishedCount,
    "R2T_sum*": PublishedRace,
    "EM_med*": PublishedMedian,
    "Hist_med*": PublishedBins,
}
