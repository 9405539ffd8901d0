"""How probably a decider is wrong, at every true gap; and the smallest tau for which it is right.

Both are public: they are computed from the claim and from the synthetic table, and nothing else. Where errors depend
on more of the true table than its gap, a decider says on what: on how many rows it has, on how its values are spread.
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from mechanisms.deciders.claims import Claim, Histogram, Number

Fact = Literal["rows", "spread"]

_SIZES = (1, 4, 16, 64)  # times the fewest rows, where errors may grow with them for a while
_STRIDE, _STEPS = 16, 10  # a searched threshold is at most 16^(1/1024) - 1 = 0.3 % too large


class Decider(Protocol):
    """A differentially private answer to a claim.

    `statistics` is the type of what it looks at: an int (the total), Totals, Ranks, Buckets or Histogram. It is
    `Any` in the methods, since it depends on the decider.
    """

    @property
    def name(self) -> str: ...
    @property
    def claim(self) -> Claim: ...
    @property
    def epsilon(self) -> Fraction: ...
    @property
    def statistics(self) -> type: ...
    @property
    def depends_on(self) -> frozenset[Fact]:
        """What its errors depend on beside the gap."""

    @property
    def rho(self) -> Fraction:
        """The zCDP cost, rounded up."""

    def draw(self, statistics: Any, size: int) -> npt.NDArray[np.bool_]:
        """Return `size` independent decisions. Each costs epsilon; more than one is for tests."""

    def yes(self, statistics: Any) -> float:
        """Return the probability of the decision `yes`."""

    def truth(self, statistics: Any) -> bool:
        """Return whether the claim holds."""

    def given(self, synthetic: Histogram | None, gap: Number) -> Any:
        """Return the statistics of a table like the synthetic one whose answer is `gap` larger."""

    def at(self, tau: Number) -> "Decider":
        """Return the same decider for another tau."""

    def effective_tau(self, delta: float, synthetic: Histogram | None = None) -> float:
        """Return the smallest tau with errors of at most delta at gap 0 and at gaps of 2 tau."""


def profile(decider: Decider, synthetic: Histogram | None, gaps: Sequence[Number]) -> npt.NDArray[np.float64]:
    """Return the probability of a wrong decision for each gap q(D) - q(D_s), negative ones included.

    Counts, sums by LM and EM, and averages depend on the gap only. The others depend on the data: the true table is
    then taken to be like the synthetic one, with rows added or removed in proportion (truncated sums) or with all
    values moved by the gap (quantiles).
    """
    return np.array([_wrong(decider, decider.given(synthetic, gap)) for gap in gaps])


def at_worst(
    decider: Decider, synthetic: Histogram, gaps: Sequence[Number], *, rows: int, p: Fraction
) -> npt.NDArray[np.float64]:
    """Return the probability of a wrong decision for each gap, the largest for any true table of at least `rows` rows.

    Where errors depend on the spread of values as well, it is taken to be that of the synthetic table, and a few
    sizes are looked at: errors may then grow with the size, a little and for a while. Everywhere else the smallest
    table is the worst.

    Args:
        p: the quantile that stays in its place, for quantiles.
    """
    if "rows" not in decider.depends_on:
        return profile(decider, synthetic, gaps)
    sizes = {rows, *(max(rows, 1) * times for times in _SIZES)} if "spread" in decider.depends_on else {rows}
    found = np.stack([profile(decider, synthetic.resized(n, p), gaps) for n in sizes])
    return np.asarray(found.max(axis=0), np.float64)


def tells(decider: Decider, tau: Number, delta: float, synthetic: Histogram) -> bool:
    """Return whether, with this tau, the errors at gap 0 and at gaps of -2 tau and 2 tau are at most delta."""
    other, reach = decider.at(tau), 2 * Fraction(tau)
    same = other.given(synthetic, 0)
    if not other.truth(same) or _wrong(other, same) > delta:
        return False
    return all(_wrong(other, other.given(synthetic, gap)) <= delta for gap in (-reach, reach))


def searched_tau(decider: Decider, delta: float, synthetic: Histogram) -> float:
    """Return the threshold by bisection of its logarithm; infinity if 2^60 is not enough, or if there are no rows.

    Errors need not fall with tau for every shape of data, so this is a tau that is enough, not always the smallest one.
    """
    high = 1.0
    while not tells(decider, Fraction(high), delta, synthetic):
        high *= _STRIDE
        if high > 2.0**60:
            return math.inf
    low = high / _STRIDE
    for _ in range(_STEPS if high > 1 else 0):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if tells(decider, Fraction(middle), delta, synthetic) else (middle, high)
    return high


def needed(synthetic: Histogram | None) -> Histogram:
    if synthetic is None:
        raise ValueError("what this decider can tell depends on the data: give the synthetic histogram")
    return synthetic


def _wrong(decider: Decider, statistics: Any) -> float:
    yes = decider.yes(statistics)
    return min(1.0, max(0.0, 1 - yes if decider.truth(statistics) else yes))
