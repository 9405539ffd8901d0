"""Deciders for counts, sums and averages that look at one number of the true table.

Neighbours differ by the rows of one privacy unit, added or removed. A sum then changes by at most
rows * max(|least|, |most|), a count by at most `rows`.

What differs from the paper (DP-PQD, arXiv:2309.08574):
- Propositions 4.3 and 5.2 lose the factor 2 of a tail. The miss rate of LM at q(D) = q(D_s) is exp(-tau / b),
  so its effectiveness threshold is b ln(1/delta), not b ln(1/(2 delta)).
- Proposition 4.2's bounds are equalities.
- EM_count's score is flat beyond 2 tau. Ours goes on: the log odds are (tau - gap) / b at every gap, which is
  the published value up to 2 tau and a smaller error beyond. It still changes by at most epsilon between
  neighbours, since | |a - s| - |b - s| | <= |a - b|.
- An average is not a sum and a count with half the budget each, divided: the claim is the sign of one number.
"""

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from mechanisms.deciders.claims import Claim, Histogram, Number, Totals
from mechanisms.deciders.profiles import Fact, needed
from mechanisms.noise import accounting, laplace, sampling

Decisions = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class LaplaceTotal:
    """LM_count, LM_sum: the total plus Laplace noise, compared with the synthetic total.

    Guarantee: epsilon-DP and `rho`-zCDP, as post-processing of the Laplace mechanism on an integer.
    """

    name: str
    claim: Claim
    epsilon: Fraction
    sensitivity: Fraction | int
    statistics = int
    depends_on = frozenset[Fact]()

    @property
    def rho(self) -> Fraction:
        return accounting.laplace_rho(self.epsilon)

    @cached_property
    def grid(self) -> laplace.Grid:
        return laplace.grid(self.sensitivity, self.epsilon)

    def draw(self, total: int, size: int) -> Decisions:
        low = math.floor((self.claim.low - total) * self.grid.multiplier)
        high = math.ceil((self.claim.high - total) * self.grid.multiplier)
        noise = self.grid.draw(size)
        return np.asarray((noise > low) & (noise < high), np.bool_)

    def yes(self, total: Number) -> float:
        """Return P(decision = yes), closed form (proposition 4.2)."""
        low, high = (float(end - total) / self.grid.scale for end in (self.claim.low, self.claim.high))
        # No difference of numbers near 1: the probability of a far interval keeps its digits.
        if low >= 0:
            return (math.exp(-low) - math.exp(-high)) / 2
        if high <= 0:
            return (math.exp(high) - math.exp(low)) / 2
        return 1 - (math.exp(low) + math.exp(-high)) / 2

    def truth(self, total: Number) -> bool:
        return self.claim.holds(total)

    def given(self, synthetic: Histogram | None, gap: Number) -> Number:  # noqa: ARG002
        return Fraction(self.claim.synthetic) + gap

    def at(self, tau: Number) -> "LaplaceTotal":
        return replace(self, claim=Claim(self.claim.synthetic, tau))

    def effective_tau(self, delta: float, synthetic: Histogram | None = None) -> float:  # noqa: ARG002
        """Return the smallest tau with errors of at most delta at gap 0 and beyond 2 tau: b ln(1/delta)."""
        return self.grid.scale * math.log(1 / delta)


@dataclass(frozen=True)
class LogisticTotal:
    """EM_count, EM_sum: yes with log odds epsilon (tau - |q(D) - q(D_s)|) / sensitivity.

    Guarantee: epsilon-DP, and epsilon^2/8 of zCDP. The log odds change by at most epsilon between neighbours. The
    two privacy losses differ by just this change and have opposite signs, so each is at most epsilon and they lie
    in an interval of length epsilon: bounded range (`accounting.exponential_rho`).
    """

    name: str
    claim: Claim
    epsilon: Fraction
    sensitivity: Fraction | int
    statistics = int
    depends_on = frozenset[Fact]()

    @property
    def rho(self) -> Fraction:
        return accounting.exponential_rho(self.epsilon)

    def log_odds(self, total: Number) -> Fraction:
        return self.epsilon * self.claim.margin(total) / self.sensitivity

    def draw(self, total: int, size: int) -> Decisions:
        return sampling.logistic(size, log_odds=self.log_odds(total))

    def yes(self, total: Number) -> float:
        """Return P(decision = yes), closed form."""
        return float(expit(float(self.log_odds(total))))

    def truth(self, total: Number) -> bool:
        return self.claim.holds(total)

    def given(self, synthetic: Histogram | None, gap: Number) -> Number:  # noqa: ARG002
        return Fraction(self.claim.synthetic) + gap

    def at(self, tau: Number) -> "LogisticTotal":
        return replace(self, claim=Claim(self.claim.synthetic, tau))

    def effective_tau(self, delta: float, synthetic: Histogram | None = None) -> float:  # noqa: ARG002
        """Return b ln((1 - delta)/delta), b = sensitivity / epsilon (proposition 4.7): 0 for delta >= 1/2."""
        return float(self.sensitivity / self.epsilon) * max(0.0, math.log((1 - delta) / delta))


@dataclass(frozen=True, kw_only=True)
class Average:
    """LM_avg, EM_avg: the sign of m = min(sum - (s - tau) n, (s + tau) n - sum), noisy.

    The average sum / n is within tau of s if and only if m > 0 (without rows there is no average, and m = 0).
    LM: m plus Laplace noise is positive. EM: yes with log odds epsilon m / sensitivity.

    Guarantee: epsilon-DP, and the zCDP cost of the Laplace or of a bounded-range mechanism. A row of value a
    changes the first form by a - s + tau and the second by s + tau - a, either at most tau + |a - s|, and a
    minimum of two changes by at most the larger of their changes. So the sensitivity of m is
    rows * (tau + max(|least - s|, |most - s|)).
    """

    name: str
    claim: Claim
    epsilon: Fraction
    rows: int
    least: int
    most: int
    continuous: bool
    statistics = Totals
    depends_on = frozenset[Fact]({"rows"})

    @property
    def reach(self) -> Fraction:
        center = Fraction(self.claim.synthetic)
        return max(abs(self.least - center), abs(self.most - center))

    @property
    def sensitivity(self) -> Fraction:
        return self.rows * (self.claim.tau + self.reach)

    @property
    def rho(self) -> Fraction:
        return (accounting.laplace_rho if self.continuous else accounting.exponential_rho)(self.epsilon)

    @cached_property
    def grid(self) -> laplace.Grid:
        unit = math.lcm(self.claim.low.denominator, self.claim.high.denominator)  # makes the margin an integer
        return laplace.grid(self.sensitivity, self.epsilon, unit=unit)

    def margin(self, totals: Totals) -> Fraction:
        return min(totals.sum - self.claim.low * totals.count, self.claim.high * totals.count - totals.sum)

    def draw(self, totals: Totals, size: int) -> Decisions:
        margin = self.margin(totals)
        if self.continuous:
            return np.asarray(self.grid.draw(size) > -int(margin * self.grid.multiplier), np.bool_)
        return sampling.logistic(size, log_odds=self.epsilon * margin / self.sensitivity)

    def yes(self, totals: Totals) -> float:
        """Return P(decision = yes), closed form."""
        margin = self.margin(totals)
        if self.continuous:
            return float(laplace.cdf(float(margin), self.grid.scale))
        return float(expit(float(self.epsilon * margin / self.sensitivity)))

    def truth(self, totals: Totals) -> bool:
        return self.margin(totals) > 0

    def given(self, synthetic: Histogram | None, gap: Number) -> Totals:
        """Return as many rows as the synthetic table has, with an average that is off by the gap.

        The margin is (tau - |gap|) times their number: errors fall with it, and without rows the coin is fair.
        """
        rows = needed(synthetic).rows
        return Totals((Fraction(self.claim.synthetic) + gap) * rows, rows)

    def at(self, tau: Number) -> "Average":
        return replace(self, claim=Claim(self.claim.synthetic, tau))

    def effective_tau(self, delta: float, synthetic: Histogram | None = None) -> float:
        """Return the tau with n tau epsilon = L rows (tau + reach), n the synthetic number of rows.

        L is ln((1 - delta)/delta) for EM and ln(1/(2 delta)) for LM, which has one tail only.
        """
        level = max(0.0, math.log(1 / (2 * delta) if self.continuous else (1 - delta) / delta))
        told = float(needed(synthetic).rows * self.epsilon) - level * self.rows
        return level * self.rows * float(self.reach) / told if told > 0 else math.inf
