"""Deciders for sums whose largest values are much smaller than the policy's bound: R2T_sum and SVT_sum.

Both look at the sum and the number of rows of every magnitude (`claims.Buckets`), which one scan gives. A row
of magnitude above a truncation is dropped, not clipped.

What differs from the papers (DP-PQD, arXiv:2309.08574; R2T, doi 10.1145/3514221.3517844):
- R2T pays epsilon / J for each of its J truncated sums, because a row may change all of them. The sums of the
  buckets are changed one at a time, so all of them can have noise for the whole of epsilon, and the truncated
  sums are sums of these. The noise of the truncation at 2^j is 1.16 times that of a single Laplace draw of
  scale 2^j / epsilon, where R2T's has J times that scale.
- R2T returns the noisy truncated sum minus a penalty that makes it a lower bound, so a decision on it is biased
  downwards by the penalty. Here a penalty only selects the truncation; the decision is on the noisy sum.
- R2T needs values >= 0. With signed buckets nothing does: the selection is by the magnitude of the noisy sum.
- A column of zeros and ones would have no race: there are always two buckets.
- SVT_sum is private for values of both signs as well (the proof in `Sparse` does without monotony), but then
  a truncated sum may be larger than the whole one, and what it decides means little: `deciders.candidates`
  offers it for values of one sign only.
- SVT_sum decides on a sum without the values above its private bound, up to 5 % of the rows. Where these hold
  much of the sum it is wrong for small tau, whatever epsilon is; its effectiveness threshold tells.
- SVT_sum's second threshold l + 1 is right for integer l only: it is floor(l) + 1.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from mechanisms.deciders import claims
from mechanisms.deciders.claims import Buckets, Claim, Histogram, Number
from mechanisms.deciders.profiles import Fact, needed, searched_tau
from mechanisms.noise import accounting, laplace
from mechanisms.noise.laplace import Floats

Decisions = npt.NDArray[np.bool_]

_THETA = Fraction(95, 100)  # the share of rows that the private bound is to cover


@dataclass(frozen=True, kw_only=True)
class Race:
    """R2T_sum: the noisy sum of all buckets up to the highest one whose noisy sum stands out, against the claim.

    Bucket j gets noise Lap(b_j), b_j = rows 2^j / epsilon. The highest j with |noisy sum| > c_j wins, where
    c_j = b_j ln(J / beta). With probability 1 - beta no bucket above the largest value wins, and a bucket that was
    dropped holds less than 2 c_j: the sum is then wrong by at most 4 c_L, L the bucket of the largest value.

    Guarantee: epsilon-DP and laplace_rho(epsilon) of zCDP. Each row of a unit is in one bucket and changes its sum
    by at most 2^j. If m_j rows of the unit are in bucket j, the noise of that bucket spends at most
    epsilon m_j / rows, and the m_j add up to at most `rows`. The costs in zCDP add up to at most
    laplace_rho(epsilon), as it is convex. All the rest is post-processing of these noisy sums.
    """

    name: str
    claim: Claim
    epsilon: Fraction
    rows: int
    most: int
    beta: float
    statistics = Buckets
    depends_on = frozenset[Fact]({"spread"})

    @property
    def rho(self) -> Fraction:
        return accounting.laplace_rho(self.epsilon)

    @property
    def races(self) -> int:
        return claims.buckets_for(self.most)

    @cached_property
    def grid(self) -> laplace.Grid:
        return laplace.grid(self.rows, self.epsilon)

    @property
    def scales(self) -> list[float]:
        return [math.ldexp(self.grid.scale, j) for j in range(self.races)]

    @property
    def penalty(self) -> float:
        """Return c_j / b_j."""
        return math.log(self.races / self.beta)

    def draw(self, buckets: Buckets, size: int) -> Decisions:
        # Sums times multipliers are Python integers of any length; they are compared with noise, never added to it.
        unit, prefix = self.grid.multiplier, [0, *accumulate(int(total) for total in buckets.sums)]
        noise = np.array([self.grid.draw(size, doublings=j) for j in range(self.races)])
        limit = math.ceil(Fraction(self.penalty) * (1 << self.grid.bits))
        low, high = math.floor(self.claim.low * unit), math.ceil(self.claim.high * unit)
        decisions = np.full(size, low < 0 < high)
        for j, (total, own) in enumerate(zip(buckets.sums, noise, strict=True)):
            stands_out = (own > (limit << j) - int(total) * unit) | (own < -(limit << j) - int(total) * unit)
            estimate, offset = noise[: j + 1].sum(axis=0), prefix[j + 1] * unit
            inside = (estimate > low - offset) & (estimate < high - offset)
            decisions = np.where(stands_out, inside, decisions)  # the highest one has the last word
        return np.asarray(decisions, np.bool_)

    def yes(self, buckets: Buckets) -> float:
        """Return P(decision = yes): over the winner, a one-dimensional integral each.

        The noise below the winner is a sum of Laplace variables of different scales, in closed form
        (`laplace.sum_cdf`); the winner's own is integrated numerically.
        """
        scales, prefix = self.scales, list(accumulate(buckets.sums))
        nobody, answer = 1.0, 0.0
        for j in reversed(range(self.races)):
            own, limit = float(buckets.sums[j]), self.penalty * scales[j]
            if nobody > 1e-15:
                # Exact differences, for sums that are huge beside tau.
                ends = float(self.claim.low - prefix[j]), float(self.claim.high - prefix[j])
                answer += nobody * self._wins(own, limit, ends, scales[: j + 1])
            nobody *= float(laplace.cdf(limit - own, scales[j]) - laplace.cdf(-limit - own, scales[j]))
        return answer + nobody * (self.claim.low < 0 < self.claim.high)

    @staticmethod
    def _wins(own: float, limit: float, ends: tuple[float, float], scales: Sequence[float]) -> float:
        """Return P(the winner's noisy sum stands out and the estimate is in the interval), all above being quiet."""
        noise, masses = laplace.quadrature(
            scales[-1:], kinks=[*ends, limit - own, -limit - own], finest=max(scales[0], scales[-1] / 1024)
        )
        masses, noise = masses[np.abs(own + noise) > limit], noise[np.abs(own + noise) > limit]
        between = laplace.sum_cdf(ends[1] - noise, scales[:-1]) - laplace.sum_cdf(ends[0] - noise, scales[:-1])
        return float(masses @ between)

    def truth(self, buckets: Buckets) -> bool:
        return self.claim.holds(buckets.total)

    def given(self, synthetic: Histogram | None, gap: Number) -> Buckets:
        buckets = claims.buckets_of(needed(synthetic), most=self.most)
        return scaled(buckets, Fraction(self.claim.synthetic) + gap)

    def at(self, tau: Number) -> "Race":
        return replace(self, claim=Claim(self.claim.synthetic, tau))

    def effective_tau(self, delta: float, synthetic: Histogram | None = None) -> float:
        """Return the smallest tau of a search over data shaped like the synthetic one, or else `bound(delta, most)`."""
        return self.bound(delta, self.most) if synthetic is None else searched_tau(self, delta, synthetic)

    def bound(self, delta: float, largest: int) -> float:
        """Return a tau that suffices for data of magnitudes up to `largest`.

        With probability 1 - delta all |noise_j| <= n_j = b_j ln(J / delta). If delta >= beta, that is at most c_j: no
        empty bucket wins, a bucket that counts is wrong by at most c_j, one that was dropped holds at most 2 c_j,
        and the sum over j <= L is below 4 c_L. For a smaller delta a bucket above L may win, so the noise of all
        buckets is in the bound. Proposition 5.5 has a further factor log2(GS).
        """
        top = claims.buckets_for(largest) - 1 if delta >= self.beta else self.races - 1
        return 4 * self.scales[top] * math.log(self.races / min(delta, self.beta))


@dataclass(frozen=True, kw_only=True)
class Sparse:
    """SVT_sum: the first noisy truncated sum that reaches the upper or else the lower end of the claim decides.

    Part 1 (algorithm 4, epsilon / 3): the truncations go up to the first 2^j below which, noisily, 95 % of the noisy
    number of rows lie. Part 2 (algorithm 2, 2 epsilon / 3): with one noisy threshold, is some sum over values up to
    2^j, divided by 2^j, at least the upper end of the claim divided by 2^j? Then no. If not, is one above the lower
    end? Then yes. Otherwise no.

    Guarantee: epsilon-DP, by `first_success` for each part and by composition. A unit of m <= rows rows, some of
    them with values >= 0, changes sum_j / 2^j upwards by at most the number of these and downwards by at
    most the number of the others, for every j alike; and a number of rows by at most m, upwards. Both thresholds
    are for sums. Comparing |sum - q(D_s)| with tau instead would need twice the noise: one row may bring one of
    these gaps up and another one down.

    Here e1 = e2 = epsilon / 3 in part 2, and epsilon / 9 each in part 1, where the noisy number of rows takes
    another epsilon / 9. In zCDP the parts are composed: laplace_rho(epsilon / 9) + pure_rho(2 epsilon / 9) +
    pure_rho(2 epsilon / 3), about epsilon^2 / 4.
    """

    name: str
    claim: Claim
    epsilon: Fraction
    rows: int
    most: int
    sign: int  # 1 if no value is negative, -1 if none is positive
    statistics = Buckets
    depends_on = frozenset[Fact]({"spread"})

    @property
    def rho(self) -> Fraction:
        parts = accounting.pure_rho(2 * self.epsilon / 9) + accounting.pure_rho(2 * self.epsilon / 3)
        return accounting.laplace_rho(self.epsilon / 9) + parts

    @property
    def truncations(self) -> int:
        return claims.buckets_for(self.most) - 1

    @cached_property
    def counting(self) -> laplace.Grid:
        return laplace.grid(self.rows, self.epsilon / 9)

    @cached_property
    def summing(self) -> laplace.Grid:
        return laplace.grid(self.rows, self.epsilon / 3, unit=1 << self.truncations)

    @property
    def _ends(self) -> tuple[int, int]:
        """Return the smallest integers that are not below the claim's interval, and in or above it."""
        center = self.sign * Fraction(self.claim.synthetic)
        return math.ceil(center + self.claim.tau), math.floor(center - self.claim.tau) + 1

    def draw(self, buckets: Buckets, size: int) -> Decisions:
        last = self._draw_truncation(buckets, size)
        unit = self.summing.multiplier  # a multiple of every 2^j
        sums = list(accumulate(self.sign * int(total) for total in buckets.sums))[1:]
        gaps = [(end - total) * unit >> j for end in self._ends for j, total in enumerate(sums, start=1)]
        noise = self.summing.draw(len(gaps) * size).reshape(len(gaps), size)
        places = np.tile(np.arange(1, self.truncations + 1), 2)
        winner = first_success(gaps, noise, threshold=self.summing.draw(size), asked=places[:, None] <= last)
        return (winner >= self.truncations) & (winner < 2 * self.truncations)

    def _draw_truncation(self, buckets: Buckets, size: int) -> npt.NDArray[np.int64]:
        # count_j + noise_j >= theta (n + noise) + threshold, times the denominator of theta
        share, whole = _THETA.as_integer_ratio()
        unit, rows = self.counting.multiplier, int(sum(buckets.counts))
        below = list(accumulate(int(count) for count in buckets.counts))[1:]
        gaps = [(share * rows - whole * count) * unit for count in below]
        threshold = share * self._count_noise(size) + whole * self._count_noise(size)
        noise = whole * self._count_noise(len(gaps) * size).reshape(len(gaps), size)
        return np.minimum(first_success(gaps, noise, threshold=threshold) + 1, self.truncations)

    def _count_noise(self, size: int) -> npt.NDArray[np.int64]:
        noise = self.counting.draw(size)
        return noise if self.counting.bits <= 50 else noise.astype(np.object_)  # sixty times a draw must fit

    def yes(self, buckets: Buckets) -> float:
        """Return P(decision = yes): given the noise of a threshold all comparisons are independent, and that noise
        is integrated numerically, once for the truncation and once for the decision.
        """
        sums = [self.sign * total for total in accumulate(buckets.sums)][1:]
        upper, lower = (
            [math.ldexp(float(end - total), -j) for j, total in enumerate(sums, start=1)] for end in self._ends
        )
        kinks = [-gap for gap in (*upper, *lower)]
        scale = self.summing.scale
        threshold, masses = laplace.quadrature([scale], kinks=kinks, finest=scale)
        none_above, none_inside = _misses(upper, threshold, scale), _misses(lower, threshold, scale)
        return float(_stops(buckets.counts, self.counting.scale) @ ((none_above * (1 - none_inside)) @ masses))

    def truth(self, buckets: Buckets) -> bool:
        return self.claim.holds(buckets.total)

    def given(self, synthetic: Histogram | None, gap: Number) -> Buckets:
        buckets = claims.buckets_of(needed(synthetic), most=self.most)
        return scaled(buckets, Fraction(self.claim.synthetic) + gap)

    def at(self, tau: Number) -> "Sparse":
        return replace(self, claim=Claim(self.claim.synthetic, tau))

    def effective_tau(self, delta: float, synthetic: Histogram | None = None) -> float:
        return searched_tau(self, delta, needed(synthetic))


def first_success(
    gaps: Sequence[int],
    noise: npt.NDArray[np.int64],
    *,
    threshold: npt.NDArray[np.int64],
    asked: npt.NDArray[np.bool_] | None = None,
) -> npt.NDArray[np.int64]:
    """Return for each draw the first i with noise_i >= gap_i + threshold that is asked for, else the number of gaps.

    This is the sparse vector technique: gap_i is a public end minus a true ask_i.

    Guarantee: let the noise be Lap(rows / e2), the threshold Lap(rows / e1), and let a unit change every ask by at
    most u upwards and at most rows - u downwards, u the same for all. Then the index is (e1 + e2)-DP, whatever
    the number of gaps. Proof: to a threshold t of one table corresponds t + u of the other, at e1 u / rows. The
    comparisons that failed then fail more easily, since no gap falls by more than u. The one that succeeded has
    gap + threshold at most u + (rows - u) larger, at e2. (Monotone asks, u = rows or u = 0, are the case of the
    paper. If one unit could move one ask up and another one down by `rows`, the success would be
    2 rows further away and cost 2 e2.)
    """
    # Row by row: a gap may be longer than 64 bits, and is compared with noise only.
    failed = np.array([own - threshold < gap for own, gap in zip(noise, gaps, strict=True)], np.bool_)
    if asked is not None:
        failed |= ~asked
    return np.where(failed.all(axis=0), len(gaps), np.argmin(failed, axis=0))


def scaled(buckets: Buckets, total: Number) -> Buckets:
    """Return the buckets with rows added or taken away in proportion, so that their sum is `total`.

    Only buckets whose sum has the sign of the whole change, and no further than to 0. An empty table gets rows of
    the largest magnitude.
    """
    whole = buckets.total
    gap = Fraction(total) - whole
    if gap == 0:
        return buckets
    weight = sum(part for part in buckets.sums if part * whole > 0)
    if weight == 0:
        rows = abs(gap) / 2 ** (len(buckets.sums) - 1)
        return Buckets((*buckets.counts[:-1], buckets.counts[-1] + rows), (*buckets.sums[:-1], buckets.sums[-1] + gap))
    factor = max(Fraction(0), 1 + gap / weight)
    factors = [factor if part * weight > 0 else 1 for part in buckets.sums]
    return Buckets(
        tuple(count * by for count, by in zip(buckets.counts, factors, strict=True)),
        tuple(part * by for part, by in zip(buckets.sums, factors, strict=True)),
    )


@lru_cache(maxsize=8)
def _stops(counts: tuple[Number, ...], scale: float) -> Floats:
    """Return the probability of every j that algorithm 4 may stop at; a search asks for the same one many times."""
    below = np.cumsum([float(count) for count in counts])
    gaps = (float(_THETA) * below[-1] - below[1:]).tolist()
    noise, masses = laplace.quadrature([scale, float(_THETA) * scale], kinks=[-gap for gap in gaps], finest=scale)
    left = np.array([1.0, *(_misses(gaps, noise, scale) @ masses)[:-1], 0.0])
    return -np.diff(left)


def _misses(gaps: Sequence[float], threshold: Floats, scale: float) -> Floats:
    """Return P(no success among the first j comparisons | threshold noise), shape (j, thresholds).

    Most gaps are far beyond all noise: there the probability is 0 or 1, and needs no exponentials.
    """
    low, high = float(threshold.min()), float(threshold.max())
    found, left = np.empty((len(gaps), len(threshold))), np.ones(len(threshold))
    for j, gap in enumerate(gaps):
        if gap + high < -laplace.SURE * scale:
            left = np.zeros(len(threshold))
        elif gap + low < laplace.SURE * scale:
            left = left * laplace.cdf(gap + threshold, scale)
        found[j] = left
    return found
