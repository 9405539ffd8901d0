"""Deciders for medians and other quantiles: the p-quantile is the ceil(p n)-th smallest of n values.

It lies strictly between low and high if and only if p n > #{<= low} and #{< high} >= p n (p n may be rounded up or
not: the counts are integers).

What differs from the paper (DP-PQD, arXiv:2309.08574):
- EM_med's score has sensitivity max(p, 1 - p) under add/remove, 1/2 for the median; the paper takes 1. Its
  rank #{< e} is biased upwards by one value; `selection.quantile` has the interval-rank score.
- Hist_med spends half of epsilon on the number of rows and half on two bins. With three disjoint bins the number
  is their sum, and each bin has all of epsilon: for the median the variance of a compared number falls
  from 10 / epsilon^2 to 1.5 / epsilon^2.
- EM_rank is new: the claim is the sign of one number of sensitivity max(p, 1 - p), so a single biased coin decides,
  whatever the size of the domain.
"""

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from mechanisms.deciders import claims
from mechanisms.deciders.claims import Claim, Histogram, Number, Ranks
from mechanisms.deciders.profiles import Fact, needed, searched_tau
from mechanisms.noise import accounting, laplace, sampling, selection
from mechanisms.noise.laplace import Floats

Decisions = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class RankChoice:
    """EM_med: a value of the public domain chosen by the exponential mechanism, compared with the claim.

    Guarantee: epsilon-DP and epsilon^2/8 of zCDP: `selection.quantile`.
    """

    name: str
    claim: Claim
    epsilon: Fraction
    rows: int
    p: Fraction
    domain: tuple[int, ...]
    statistics = Histogram
    depends_on = frozenset[Fact]({"rows", "spread"})

    @property
    def rho(self) -> Fraction:
        return accounting.exponential_rho(self.epsilon)

    def draw(self, histogram: Histogram, size: int) -> Decisions:
        exponents, rate = selection.exponents(self._counts(histogram), p=self.p, epsilon=self.epsilon, rows=self.rows)
        chosen = [sampling.exponential_choice(exponents, rate=rate) for _ in range(size)]
        return self._inside()[chosen]

    def yes(self, histogram: Histogram) -> float:
        """Return P(decision = yes), closed form: the share of the weights inside, the largest weight being 1."""
        distances, rate = selection.exponents(self._counts(histogram), p=self.p, epsilon=self.epsilon, rows=self.rows)
        weights = np.exp(-float(rate) * (distances - distances.min()))
        return float(weights[self._inside()].sum() / weights.sum())

    def truth(self, histogram: Histogram) -> bool:
        return histogram.rows > 0 and self.claim.holds(histogram.quantile(self.p))

    def given(self, synthetic: Histogram | None, gap: Number) -> Histogram:
        """Return the synthetic values moved, so that their quantile is off by the gap, and kept in the domain."""
        histogram = moved(needed(synthetic), self.claim, self.p, gap)
        kept = np.clip(histogram.values, self.domain[0], self.domain[-1])
        values, places = np.unique(kept, return_inverse=True)
        return Histogram(values, np.bincount(places, weights=histogram.counts).astype(np.int64))

    def at(self, tau: Number) -> "RankChoice":
        return replace(self, claim=Claim(self.claim.synthetic, tau))

    def effective_tau(self, delta: float, synthetic: Histogram | None = None) -> float:
        return searched_tau(self, delta, needed(synthetic))

    @cached_property
    def _values(self) -> npt.NDArray[np.int64]:
        return np.array(self.domain, np.int64)

    def _inside(self) -> Decisions:
        """Return for every domain value whether it would make the claim hold."""
        low, high = math.floor(self.claim.low), math.ceil(self.claim.high)
        return np.asarray((self._values > low) & (self._values < high))

    def _counts(self, histogram: Histogram) -> npt.NDArray[np.int64]:
        """Return the number of rows of every domain value; a value between two counts for the lower one."""
        counts = np.zeros(len(self.domain), np.int64)
        places = np.searchsorted(self._values, histogram.values, side="right") - 1
        np.add.at(counts, np.maximum(places, 0), histogram.counts)
        return counts


@dataclass(frozen=True)
class RankMargin:
    """EM_rank: yes with log odds epsilon m / sensitivity, m = min(p n - #{<= low}, #{< high} - p n).

    m is positive inside the claim and negative outside. On its upper edge, #{< high} = p n, the claim holds and
    m = 0: the coin is fair.

    Guarantee: epsilon-DP and epsilon^2/8 of zCDP. A row changes p n - #{<= low} by p or p - 1, and #{< high} - p n by
    1 - p or -p, and a minimum by at most the larger change: the log odds change by at most epsilon
    between neighbours. Then as `gaps.LogisticTotal`.
    """

    name: str
    claim: Claim
    epsilon: Fraction
    rows: int
    p: Fraction
    statistics = Ranks
    depends_on = frozenset[Fact]({"rows", "spread"})

    @property
    def rho(self) -> Fraction:
        return accounting.exponential_rho(self.epsilon)

    def log_odds(self, ranks: Ranks) -> Fraction:
        aim = self.p * ranks.rows
        margin = min(aim - ranks.low, ranks.rows - ranks.high - aim)
        return self.epsilon * margin / selection.sensitivity(self.p, rows=self.rows)

    def draw(self, ranks: Ranks, size: int) -> Decisions:
        return sampling.logistic(size, log_odds=self.log_odds(ranks))

    def yes(self, ranks: Ranks) -> float:
        """Return P(decision = yes), closed form."""
        return float(expit(float(self.log_odds(ranks))))

    def truth(self, ranks: Ranks) -> bool:
        return inside(ranks, self.p)

    def given(self, synthetic: Histogram | None, gap: Number) -> Ranks:
        return claims.ranks_of(moved(needed(synthetic), self.claim, self.p, gap), self.claim)

    def at(self, tau: Number) -> "RankMargin":
        return replace(self, claim=Claim(self.claim.synthetic, tau))

    def effective_tau(self, delta: float, synthetic: Histogram | None = None) -> float:
        return searched_tau(self, delta, needed(synthetic))


@dataclass(frozen=True)
class RankBins:
    """Hist_med: the numbers of rows <= low, between, and >= high, each with Laplace noise, put into the definition.

    Guarantee: epsilon-DP and laplace_rho(epsilon) of zCDP. The three bins are disjoint (tau > 0): each row of a unit
    is in one, and changes it by 1. If m_i of a unit's rows are in bin i, its noise Lap(rows / epsilon)
    spends epsilon m_i / rows, and the m_i add up to at most `rows`; for zCDP as in `truncation.Race`.
    """

    name: str
    claim: Claim
    epsilon: Fraction
    rows: int
    p: Fraction
    statistics = Ranks
    depends_on = frozenset[Fact]({"rows", "spread"})

    @property
    def rho(self) -> Fraction:
        return accounting.laplace_rho(self.epsilon)

    @cached_property
    def grid(self) -> laplace.Grid:
        return laplace.grid(self.rows, self.epsilon)

    def draw(self, ranks: Ranks, size: int) -> Decisions:
        over, whole = self.p.as_integer_ratio()
        bins = [ranks.low, ranks.rows - ranks.low - ranks.high, ranks.high]
        # Python integers: counts times multipliers times denominators may be longer than 64 bits.
        low, middle, high = (self.grid.draw(size).astype(np.object_) + n * self.grid.multiplier for n in bins)
        aim = over * (low + middle + high)
        return np.asarray((aim > whole * low) & (whole * (low + middle) >= aim), np.bool_)

    def yes(self, ranks: Ranks) -> float:
        """Return P(decision = yes): an integral over the noise of the middle bin, the rest in closed form.

        Let u = (1 - p) noise_low - p noise_high and y the noisy middle. The two conditions are u < a + p y and
        u >= a - (1 - p) y, where a = p high - (1 - p) low.
        """
        p, scale = float(self.p), self.grid.scale
        middle = float(ranks.rows - ranks.low - ranks.high)
        start = float(self.p * ranks.high - (1 - self.p) * ranks.low)

        kinks = [-middle, -start / p - middle, start / (1 - p) - middle]
        noise, masses = laplace.quadrature([scale], kinks=kinks, finest=min(p, 1 - p) * scale)
        width, scales = np.maximum(0.0, middle + noise), ((1 - p) * scale, p * scale)
        between = _two(start + p * width, *scales) - _two(start - (1 - p) * width, *scales)
        return float(masses @ between)

    def truth(self, ranks: Ranks) -> bool:
        return inside(ranks, self.p)

    def given(self, synthetic: Histogram | None, gap: Number) -> Ranks:
        return claims.ranks_of(moved(needed(synthetic), self.claim, self.p, gap), self.claim)

    def at(self, tau: Number) -> "RankBins":
        return replace(self, claim=Claim(self.claim.synthetic, tau))

    def effective_tau(self, delta: float, synthetic: Histogram | None = None) -> float:
        return searched_tau(self, delta, needed(synthetic))


def moved(synthetic: Histogram, claim: Claim, p: Fraction, gap: Number) -> Histogram:
    """Return the synthetic values, all moved so that their quantile is the claim's synthetic answer plus the gap.

    They stay integers, so the quantile is that rounded. Without rows there is nothing to move.
    """
    if synthetic.rows == 0:
        return synthetic
    return synthetic.shifted(round(Fraction(claim.synthetic) + gap) - synthetic.quantile(p))


def inside(ranks: Ranks, p: Fraction) -> bool:
    """Return whether the ceil(p n)-th value lies strictly in the claimed interval; without rows it does not."""
    aim = p * ranks.rows
    return ranks.low < aim <= ranks.rows - ranks.high


def _two(x: Floats, first: float, second: float) -> Floats:
    """Return P(Lap(first) + Lap(second) <= x).

    Scales closer than 1e-3 of each other are taken as equal to their root mean square: the tail is then
    (1 + |x| / (2 b)) exp(-|x| / b) / 2, and the probability is wrong by less than 1e-6.
    """
    if not math.isclose(first, second, rel_tol=1e-3):
        return laplace.sum_cdf(x, [first, second])
    size = np.abs(x) / math.sqrt((first * first + second * second) / 2)
    tail = (1 + size / 2) * np.exp(-size) / 2
    return np.where(x < 0, tail, 1 - tail)
