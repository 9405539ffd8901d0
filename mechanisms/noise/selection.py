"""Quantiles of a histogram over an ordered public domain, chosen by the exponential mechanism."""

import math
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from mechanisms.noise import sampling

# With at most 2^40 rows, such an offset, and an aimed rank in steps of 2^-20, every distance fits int64.
_MOST_ROWS = 1 << 40
_FINEST_STEP = 1 << 20
_ROUND_UP = 1 + 1e-14  # more than the rounding errors of a logarithm and three products


def quantile(
    histogram: npt.NDArray[np.int64],
    *,
    p: Fraction,
    epsilon: Fraction,
    offset: Fraction | int = 0,
    rows: int = 1,
) -> int:
    """Return the index e of a domain value with probability proportional to exp(-epsilon d(e) / (2 s)).

    d(e) = max(0, #{< e} - t, t - #{<= e}) is the rank distance of e from the aimed rank t = p n + offset,
    where n is the number of rows; s = `sensitivity(p, rows)`. An empty histogram gives a uniform choice.

    Guarantee: epsilon^2 / 8 of zCDP (`accounting.exponential_rho`), for neighbours that differ by the up to
    `rows` rows of one privacy unit. Proof: adding a row of value v changes #{< e} - p n by 1 - p (v < e) or
    by -p, and p n - #{<= e} by p (v > e) or by p - 1; `offset` is a constant and drops out. So each of the
    three arguments of the maximum changes by at most max(p, 1 - p), and d(e) too; `rows` rows change it at
    most `rows` times as much.

    Args:
        histogram: number of rows of each domain value, in domain order, shape (d,).
        p: the quantile, between 0 and 1; offset: public shift of the aimed rank, in rows. Their
            common denominator must not exceed 2^20.
    """
    distances, rate = exponents(histogram, p=p, epsilon=epsilon, offset=offset, rows=rows)
    return sampling.exponential_choice(distances, rate=rate)


def exponents(
    histogram: npt.NDArray[np.int64],
    *,
    p: Fraction,
    epsilon: Fraction,
    offset: Fraction | int = 0,
    rows: int = 1,
) -> tuple[npt.NDArray[np.int64], Fraction]:
    """Return integers and a rate: `quantile` chooses e with probability proportional to exp(-rate integers[e]).

    They are true values: no more public than the histogram.
    """
    if histogram.ndim != 1 or len(histogram) == 0 or histogram.dtype != np.int64:
        raise ValueError(
            f"histogram must be a non-empty int64 vector, got {histogram.dtype} of shape {histogram.shape}"
        )
    if epsilon <= 0:
        raise ValueError(f"epsilon must be positive, got {epsilon}")
    step = math.lcm(Fraction(p).denominator, Fraction(offset).denominator)
    if step > _FINEST_STEP or not -_MOST_ROWS <= offset <= _MOST_ROWS:
        raise ValueError(f"p and offset need a common denominator up to 2^20, got {p} and {offset}")
    rate = epsilon / (2 * sensitivity(p, rows=rows) * step)
    return _distances(histogram, p=p, offset=offset, step=step), rate


def sensitivity(p: Fraction, *, rows: int = 1) -> Fraction:
    """Return the most by which one unit of up to `rows` rows changes a rank distance: rows max(p, 1 - p)."""
    if not 0 <= p <= 1:
        raise ValueError(f"p must be between 0 and 1, got {p}")
    if rows < 1:
        raise ValueError(f"rows must be at least 1, got {rows}")
    return rows * max(p, 1 - p)


def rank_error(size: int, *, p: Fraction, epsilon: Fraction, rows: int = 1, alpha: float) -> float:
    """Return t with P(d > t) <= alpha for a quantile over `size` values: t = 2 s ln(size / alpha) / epsilon.

    A value with d > t has weight below exp(-epsilon t / (2 s)), there are fewer than `size` of them, and some
    value has d = 0 and weight 1. The latter needs an aimed rank between 0 and n; otherwise, because of
    `offset`, the bound is on the distance beyond the smallest possible one.
    """
    _check_target(size, alpha=alpha)
    if epsilon <= 0:
        raise ValueError(f"epsilon must be positive, got {epsilon}")
    return float(2 * sensitivity(p, rows=rows) / epsilon) * math.log(size / alpha) * _ROUND_UP


def epsilon_for_rank_error(size: int, *, p: Fraction, error: float, rows: int = 1, alpha: float) -> Fraction:
    """Return an epsilon with rank_error(size, ...) <= error, at most 0.1 % above the smallest one.

    It is rounded up to 11 or 12 significant bits, so that costs stay short fractions.
    """
    _check_target(size, alpha=alpha)
    if not 0 < error < math.inf:
        raise ValueError(f"error must be positive and finite, got {error}")
    exact = 2 * sensitivity(p, rows=rows) * Fraction(math.log(size / alpha) * _ROUND_UP**2) / Fraction(error)
    unit = Fraction(2) ** (exact.numerator.bit_length() - exact.denominator.bit_length() - 11)
    return math.ceil(exact / unit) * unit


def _check_target(size: int, *, alpha: float) -> None:
    if size < 1:
        raise ValueError(f"size must be at least 1, got {size}")
    if not 0 < alpha < 1:
        raise ValueError(f"alpha must be between 0 and 1, got {alpha}")


def _distances(
    histogram: npt.NDArray[np.int64], *, p: Fraction, offset: Fraction | int, step: int
) -> npt.NDArray[np.int64]:
    """Return step * d(e) for every e, as integers: `step` is a common denominator of p and offset."""
    if histogram.min() < 0 or histogram.sum(dtype=np.float64) > _MOST_ROWS:
        raise ValueError("histogram must hold non-negative counts of at most 2^40 rows")
    up_to = np.cumsum(histogram)
    aim = int(step * (p * int(up_to[-1]) + offset))
    above = step * (up_to - histogram) - aim
    distances: npt.NDArray[np.int64] = np.maximum(0, np.maximum(above, aim - step * up_to))
    return distances
