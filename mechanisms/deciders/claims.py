"""What is claimed of a synthetic table, and the few numbers of the true table that a decider looks at.

The statistics hold true values. They go from the measuring module into `deciders.decide` and nowhere else.
Values are integers on the grid of the policy; NULLs are gone, values outside the bounds are clamped.
"""

import math
from dataclasses import dataclass, field
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
    memo: "dict[int, Buckets]" = field(default_factory=dict, init=False, repr=False, compare=False)

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
        return _dot(self.values, self.counts)

    def shifted(self, gap: int) -> "Histogram":
        return Histogram(self.values + gap, self.counts)

    def resized(self, rows: int, p: Fraction = Fraction(1, 2)) -> "Histogram":
        """Return so many rows, spread alike, and with the same p-quantile; without rows there is nothing to spread.

        Shares of the rows are rounded down below the quantile, and up from it on.
        """
        if not self.rows or rows == self.rows:
            return self
        ends = np.cumsum(self.counts.astype(np.object_)) * rows  # may be longer than 64 bits
        below = self.values < self.quantile(p)
        counts = np.diff(np.where(below, ends // self.rows, -(-ends // self.rows)), prepend=0).astype(np.int64)
        return Histogram(self.values[counts > 0], counts[counts > 0])

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
    """Return the buckets of a histogram whose magnitudes do not exceed `most`; it keeps the last ones."""
    if most not in histogram.memo:
        edges = 2 ** np.arange(buckets_for(most) - 1)
        places = np.searchsorted(edges, np.abs(histogram.values), side="left")
        members = [places == j for j in range(buckets_for(most))]
        counts = tuple(_sum(histogram.counts[member]) for member in members)
        sums = tuple(_dot(histogram.values[member], histogram.counts[member]) for member in members)
        histogram.memo.clear()
        histogram.memo[most] = Buckets(counts, sums)
    return histogram.memo[most]


def ranks_of(histogram: Histogram, claim: Claim) -> Ranks:
    """Return the ranks of the ends of the claimed interval."""
    low = _sum(histogram.counts[histogram.values <= math.floor(claim.low)])
    return Ranks(low, _sum(histogram.counts[histogram.values >= math.ceil(claim.high)]), histogram.rows)


def _sum(numbers: Integers) -> int:
    return _dot(numbers, np.ones_like(numbers))


def _dot(left: Integers, right: Integers) -> int:
    """Return the exact scalar product: in 64 bits if it must fit, else in Python integers."""
    if len(left) == 0:
        return 0
    largest = int(np.abs(left).max()) * int(np.abs(right).max()) * len(left)
    return int(left @ right) if largest < 1 << 62 else int(left.astype(np.object_) @ right.astype(np.object_))
