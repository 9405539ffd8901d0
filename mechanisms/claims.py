"""What is claimed of a synthetic table, and the few numbers of the true table that a decider looks at.

The statistics hold true values. They go from the measuring module into `deciders.decide` and nowhere else.
Values are integers on the grid of the policy; NULLs are gone, values outside the bounds are clamped.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

Number = Fraction | int
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Claim:
    """The statement |q(D) - synthetic| < tau: the true answer lies strictly between `low` and `high`."""

    synthetic: Number
    tau: Number

    def __post_init__(self) -> None:
        if self.tau <= 0:
            raise ValueError(f"tau must be positive, got {self.tau}")

    @property
    def low(self) -> Fraction:
        return Fraction(self.synthetic) - self.tau

    @property
    def high(self) -> Fraction:
        return Fraction(self.synthetic) + self.tau

    def holds(self, value: Number) -> bool:
        return abs(Fraction(value) - self.synthetic) < self.tau

    def margin(self, value: Number) -> Fraction:
        """Return tau - |value - synthetic|: positive if and only if the claim holds."""
        return self.tau - abs(Fraction(value) - self.synthetic)


@dataclass(frozen=True)
class Histogram:
    """Distinct values in increasing order, and the number of rows that have each of them."""

    values: Integers
    counts: Integers

    def __post_init__(self) -> None:
        if self.values.shape != self.counts.shape or self.values.ndim != 1:
            raise ValueError(f"shapes must be equal and flat, got {self.values.shape} and {self.counts.shape}")
        if np.any(np.diff(self.values) <= 0) or np.any(self.counts < 0):
            raise ValueError("values must increase and counts must not be negative")

    @property
    def rows(self) -> int:
        return _sum(self.counts)

    @property
    def total(self) -> int:
        return _sum(self.values.astype(np.object_) * self.counts)

    def shifted(self, gap: int) -> "Histogram":
        return Histogram(self.values + gap, self.counts)

    def quantile(self, p: Fraction) -> int:
        """Return the value of the ceil(p n)-th row, the first one if that is 0."""
        place = max(1, math.ceil(p * self.rows))
        return int(self.values[np.searchsorted(np.cumsum(self.counts), place)])


@dataclass(frozen=True)
class Totals:
    """The sum and the number of values."""

    sum: Number
    count: Number


@dataclass(frozen=True)
class Ranks:
    """How many values are <= claim.low, how many are >= claim.high, and how many there are."""

    low: int
    high: int
    rows: int


@dataclass(frozen=True)
class Buckets:
    """Number and sum of the values of each magnitude: bucket 0 holds |v| <= 1, bucket j 2^(j-1) < |v| <= 2^j.

    Every row is in exactly one bucket.
    """

    counts: tuple[Number, ...]
    sums: tuple[Number, ...]

    @property
    def total(self) -> Number:
        return sum(self.sums)


def buckets_for(most: int) -> int:
    """Return how many buckets hold the magnitudes up to `most`: ceil(log2 most) + 1, and two at least."""
    return max(1, (most - 1).bit_length()) + 1


def buckets_of(histogram: Histogram, *, most: int) -> Buckets:
    """Return the buckets of a histogram whose magnitudes do not exceed `most`."""
    counts, sums = [0] * buckets_for(most), [0] * buckets_for(most)
    for value, count in zip(histogram.values.tolist(), histogram.counts.tolist(), strict=True):
        place = max(0, abs(value) - 1).bit_length()
        counts[place] += count
        sums[place] += value * count
    return Buckets(tuple(counts), tuple(sums))


def ranks_of(histogram: Histogram, claim: Claim) -> Ranks:
    """Return the ranks of the ends of the claimed interval."""
    low = _sum(histogram.counts[histogram.values <= math.floor(claim.low)])
    return Ranks(low, _sum(histogram.counts[histogram.values >= math.ceil(claim.high)]), histogram.rows)


def _sum(numbers: npt.NDArray[np.int64]) -> int:
    return int(numbers.astype(np.object_).sum()) if len(numbers) else 0
