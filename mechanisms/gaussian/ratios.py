"""Ratios of numbers with Gaussian noise: averages, shares and variances, with intervals that hold at any size.

Fieller (1954): if N and D are N(theta n, …) and N(n, …), then N - theta D is Gaussian around 0 with the variance
v(theta) = v_N - 2 theta v_ND + theta^2 v_D. So {theta : (N - theta D)^2 <= z^2 v(theta)} holds the true ratio with the
stated probability, however large the noise in D is. Its interval with what is possible is the hull of what both allow.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from mechanisms.tolerances import FLOAT_SUM

Floats = NDArray[np.float64]

FLOOR = 2.0
"""No group is taken to be smaller than so many deviations of its noisy size: its average would be mostly noise."""

NUISANCE = 0.02
"""The part of the error of a variance's interval that is spent on not knowing the mean."""

STEPS = 9
"""At so many means, equally far apart, is the interval of a variance worked out."""


@dataclass(frozen=True, eq=False)
class Noisy:
    """Numerators and denominators, each shape (G,), their variances and their covariance."""

    above: Floats
    below: Floats
    above_variance: Floats
    covariance: Floats
    below_variance: Floats

    @classmethod
    def of(cls, above: Floats, below: Floats, *, values: Floats, blocks: Floats) -> Noisy:
        """Return the two products with values, for coefficients of shape (F,) or (G, F), and what they vary by."""

        def product(left: Floats, right: Floats) -> Floats:
            at = [["f", "gf"][left.ndim - 1], ["h", "gh"][right.ndim - 1]]
            found: Floats = np.einsum(f"{at[0]},gfh,{at[1]}->g", left, blocks, right, optimize=True)
            return found

        return cls(
            (values * above).sum(axis=1),
            (values * below).sum(axis=1),
            product(above, above),
            product(above, below),
            product(below, below),
        )

    def variance(self, theta: Floats) -> Floats:
        """Return the variance of above - theta below."""
        found: Floats = self.above_variance - 2 * theta * self.covariance + theta**2 * self.below_variance
        return np.maximum(found, 0.0)


@dataclass(frozen=True, eq=False)
class Estimate:
    """An answer in every group, between `low` and `high`, and NaN where no record can count: each shape (G,)."""

    value: Floats
    low: Floats
    high: Floats


def fieller(noisy: Noisy, *, z: float, bottom: Floats, top: Floats) -> tuple[Floats, Floats]:
    """Return the ends of an interval of N / D inside [bottom, top], which may be infinite.

    Guarantee: a true ratio inside the bounds is in the interval if N - ratio D is within z deviations. Where noise
    makes every ratio inside the bounds look unlikely, z is taken larger: as large as the likeliest of them needs.
    """
    with np.errstate(all="ignore"):
        strict = z**2 + _least_square(noisy, bottom, top)
        a = noisy.below**2 - strict * noisy.below_variance
        b = noisy.above * noisy.below - strict * noisy.covariance
        det = np.maximum(noisy.above_variance * noisy.below_variance - noisy.covariance**2, 0.0)
        # b^2 - a c without the terms that cancel.
        form = (
            noisy.below**2 * noisy.above_variance
            - 2 * noisy.above * noisy.below * noisy.covariance
            + noisy.above**2 * noisy.below_variance
        )
        root = np.sqrt(np.maximum(strict * (form - strict * det), 0.0))
        first, second = np.sort(np.stack([(b - root) / a, (b + root) / a]), axis=0)
        slack = FLOAT_SUM * np.maximum(np.abs(first), np.abs(second))
        # a > 0: from the first to the second. a < 0: up to the first and from the second on, unless that is everything.
        outside = (a < 0) & (form > strict * det)
        low = np.where(a > 0, first - slack, np.where(outside & (first < bottom), second - slack, bottom))
        high = np.where(a > 0, second + slack, np.where(outside & (second > top), first + slack, top))
        sure = np.isfinite(first) & np.isfinite(second) & (low <= high) & (low <= top) & (high >= bottom)
        return np.where(sure, np.maximum(low, bottom), bottom), np.where(sure, np.minimum(high, top), top)


def _least_square(noisy: Noisy, bottom: Floats, top: Floats) -> Floats:
    """Return the least (N - theta D)^2 / v(theta) over the bounds: 0 if N / D is inside, else at one of them."""
    ends = [np.where(np.isfinite(end), end, 0.0) for end in (bottom, top)]
    rests = [noisy.above - end * noisy.below for end in ends]
    known = [np.where(v > 0, rest**2 / v, np.inf) for rest, v in zip(rests, map(noisy.variance, ends), strict=True)]
    least = np.minimum(*known)
    bounded = np.isfinite(bottom) & np.isfinite(top) & np.isfinite(least)
    return np.where(bounded & (rests[0] * rests[1] > 0), least, 0.0)


def mean(values: Floats, blocks: Floats, *, centre: float, bottom: Floats, top: Floats, z: float) -> Estimate:
    """Return averages, from the noisy (number, sum of what lies above the centre) of each group.

    The average is sum / number. Where the number is less than two deviations, they are put in its place: the average
    then goes to the centre with the sum, instead of growing without bounds.

    Args:
        values: shape (G, 2).
        blocks: their covariances, shape (G, 2, 2).
        bottom: what no record of a group is below, shape (G,); with `top` also what its average is between.
    """
    noisy = Noisy.of(np.array([0.0, 1.0]), np.array([1.0, 0.0]), values=values, blocks=blocks)
    low, high = fieller(noisy, z=z, bottom=bottom - centre, top=top - centre)
    return _between(centre + noisy.above / at_least(noisy, 1.0), centre + low, centre + high, bottom, top)


def at_least(noisy: Noisy, least: float) -> Floats:
    """Return noisy sizes, none smaller than the least possible one nor than two of its deviations."""
    return np.maximum(noisy.below, np.maximum(FLOOR * np.sqrt(noisy.below_variance), least))


def variance(values: Floats, blocks: Floats, *, bottom: Floats, top: Floats, z: float, sample: bool) -> Estimate:
    """Return variances, from the noisy (n, sum t, sum t^2) of each group, shape (G, 3); t is between bottom and top.

    For the true mean m the ratio (sum t^2 - 2 m sum t + m^2 n) / n is the variance, and both parts are linear in what
    is known: its interval is Fieller's. The interval stated is the hull over all m that are in an interval of the mean,
    which is wrong only one time in fifty of those that this one may be. A sample's variance has n - 1 below.
    """
    alpha = 2 * NormalDist().cdf(-z)
    z_mean, z_rest = (-NormalDist().inv_cdf(alpha * part / 2) for part in (NUISANCE, 1 - NUISANCE))
    n, first, second = (np.array([float(i == f) for f in range(3)]) for i in range(3))
    sums = Noisy.of(first, n, values=values, blocks=blocks)
    least, most = fieller(sums, z=z_mean, bottom=bottom, top=top)
    size = at_least(sums, 2.0 if sample else 1.0)
    with np.errstate(all="ignore"):
        value = (values[:, 2] - sums.above**2 / size) / (size - 1 if sample else size)
        middle = np.clip(sums.above / size, least, most)
    floor, ceiling = np.zeros(len(values)), _largest_variance(bottom, top, sample=sample)
    low, high = ceiling.copy(), floor.copy()
    for share in [*np.linspace(0.0, 1.0, STEPS), None]:
        m = middle if share is None else least + share * (most - least)
        rows = second - 2 * m[:, None] * first + (m**2)[:, None] * n
        noisy = Noisy.of(rows, n, values=values, blocks=blocks)
        if sample:
            noisy = Noisy(noisy.above, noisy.below - 1, noisy.above_variance, noisy.covariance, noisy.below_variance)
        ends = fieller(noisy, z=z_rest, bottom=floor, top=ceiling)
        low, high = np.minimum(low, ends[0]), np.maximum(high, ends[1])
    return _between(value, low, high, floor, ceiling)


def _largest_variance(bottom: Floats, top: Floats, *, sample: bool) -> Floats:
    """Return (top - bottom)^2 / 4, of equal parts at both ends; twice that for a sample, which may have two records."""
    found: Floats = (top - bottom) ** 2 / (2 if sample else 4)
    return found


def roots(found: Estimate) -> Estimate:
    """Return the square roots: standard deviations of variances."""
    return Estimate(*(np.sqrt(part) for part in (found.value, found.low, found.high)))


def _between(value: Floats, low: Floats, high: Floats, bottom: Floats, top: Floats) -> Estimate:
    """Return an estimate inside its bounds, and inside its interval."""
    value, low, high = (np.clip(part, bottom, top) for part in (value, low, high))
    return Estimate(value, np.minimum(low, value), np.maximum(high, value))


def possible(N: Floats, D: Floats) -> tuple[Floats, Floats]:
    """Return what a ratio of sums is between, if what each record can add lies between points N, D (…, P).

    The ratio is a mean of the ratios of what is added, weighted by what is added below, if that is never negative.

    >>> possible(np.array([0.0, 1.0, 0.0]), np.array([1.0, 4.0, 0.0]))
    (array(0.), array(0.25))
    """
    counts = D > 0
    unbounded = (D < 0).any(axis=-1) | (~counts & (N != 0)).any(axis=-1) | ~counts.any(axis=-1)
    each = np.divide(N, D, out=np.zeros_like(N), where=counts)
    low, high = np.where(counts, each, np.inf).min(axis=-1), np.where(counts, each, -np.inf).max(axis=-1)
    return np.where(unbounded, -np.inf, low), np.where(unbounded, np.inf, high)
