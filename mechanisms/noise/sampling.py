"""Exact random draws: the only module of the project that draws random numbers.

Given independent fair bits, each public function returns a draw from precisely the distribution that its
docstring states. Floating point decides a comparison only where a proven error bound says that it can't be
wrong; a comparison that is too close is settled by `_locate`, which draws more bits of the same uniform and
encloses the probabilities between integers until the answer is certain.

Assumptions: AES-256 in counter mode under a key from the operating system is as good as fair bits, and
`numpy.exp` in float64 is within 64 units in the last place on [-700, 0] (its authors claim less than 4).

Timing: the fast path does the same operations on every lane of a batch, whatever is drawn and whatever the
weights are. Only what could not be decided takes longer: a Gaussian lane with probability 2^-39, a choice
with the probability that `exponential_choice` states.
"""

import math
import os
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

Integers = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.float64]
Draws = npt.NDArray[Any]  # int64; object where a draw does not fit
Enclosure = tuple[int, int]

_LANES = 1 << 12  # proposals a batch: the working arrays stay in the second-level cache
_BYTES_PER_KEY = 1 << 30
_MARGIN = 2.0**-40  # bounds the error of `_acceptance` and of `_unit`; the proof is in `_acceptance`
_CHOICE_MARGIN = 2.0**-50  # for each group, each member and 256 more; the proof is in `_shares`
_INT64_LAPLACE_BITS = 56  # 44 levels of 2^56 fit int64
_FIRST_PRECISION = 128
_GUARD_DIGITS = 64  # keep `_exp_enclosure` tight; it encloses with any number of them


def rounded_gaussian(size: int, *, bits: int) -> Draws:
    """Return `size` independent draws of round(N(0, 4^bits)), the standard deviation being 2^bits.

    Guarantee: P(draw = z) = Phi((z + 1/2) / 2^bits) - Phi((z - 1/2) / 2^bits) for every integer z, exactly.
    So an integer plus such a draw is the rounding of that integer plus a real Gaussian: post-processing of
    the Gaussian mechanism.

    Why (after Karney, arXiv:1303.6257): propose a level k >= 0 with probability proportional to exp(-k^2/2)
    and an independent x uniform in [0, 1), accept with probability exp(-x (2k + x) / 2). The product is
    exp(-(k + x)^2 / 2), so an accepted k + x is distributed as |N(0, 1)|. A fair sign makes it N(0, 1), and
    k + x scaled by 2^bits is rounded by the leading bits + 1 binary digits of the same x. Proposals are
    independent of each other, so the accepted ones are independent draws. About 0.715 are accepted.

    The dtype is int64; it is object (Python integers) if a draw does not fit, which at bits = 58 has
    probability below 2^-700.
    """
    if size < 0:
        raise ValueError(f"size must not be negative, got {size}")
    if not 0 <= bits <= 58:
        raise ValueError(f"bits must be between 0 and 58, got {bits}")
    stream = _Stream()
    parts: list[Draws] = [np.empty(0, np.int64)]
    missing = size
    while missing > 0:
        lanes = min(_LANES, missing + missing // 2 + 32)
        parts.append(_accepted(stream, lanes, bits)[:missing])
        missing -= len(parts[-1])
    return np.concatenate(parts)


def rounded_laplace(size: int, *, bits: int) -> Draws:
    """Return `size` independent draws of round(Lap(2^bits)), the density being exp(-|t| / 2^bits) / 2^(bits + 1).

    Guarantee: for every integer z > 0, P(draw >= z) = P(draw <= -z) = exp(-(z - 1/2) / 2^bits) / 2, exactly.
    So an integer plus such a draw is the rounding of that integer plus a real Laplace variable:
    post-processing of the Laplace mechanism.

    Why: as for `rounded_gaussian`, with levels k >= 0 of probability proportional to exp(-k) and acceptance
    exp(-x): the product is exp(-(k + x)). About 0.632 of the proposals are accepted.

    The dtype is int64; it is object (Python integers) if bits > 56 or, with probability below 2^-60, if a
    draw does not fit.
    """
    if size < 0:
        raise ValueError(f"size must not be negative, got {size}")
    if bits < 0:
        raise ValueError(f"bits must not be negative, got {bits}")
    stream = _Stream()
    parts: list[Draws] = [np.empty(0, np.int64)]
    missing = size
    while missing > 0:
        lanes = min(_LANES, missing + missing + 32)
        parts.append(_laplace_accepted(stream, lanes, bits)[:missing])
        missing -= len(parts[-1])
    return np.concatenate(parts)


def logistic(size: int, *, log_odds: Fraction) -> npt.NDArray[np.bool_]:
    """Return `size` independent draws that are true with probability 1 / (1 + exp(-log_odds)), exactly.

    Nothing overflows, however large the log odds are: the rarer outcome has the weight exp(-|log_odds|)
    beside 1. In floating point that weight is wrong by less than 2^-40 (the rate is cut at 700 as in
    `_shares`); a uniform that is closer is settled by `_locate`.
    """
    if size < 0:
        raise ValueError(f"size must not be negative, got {size}")
    distance = abs(log_odds)
    stream = _Stream()
    words = stream.words(size)
    likely = 1 / (1 + math.exp(-float(min(distance, Fraction(700)))))
    excess = likely - _unit(words)
    hits = excess > 0
    for lane in np.flatnonzero(np.abs(excess) <= _MARGIN):
        uniform = _Uniform(stream, int(words[lane]), 64)
        hits[lane] = (
            _locate(
                uniform, lambda precision: [_exp_enclosure(Fraction(0), precision), _exp_enclosure(distance, precision)]
            )
            == 0
        )
    return hits if log_odds >= 0 else ~hits


def exponential_choice(exponents: npt.NDArray[np.int64], *, rate: Fraction) -> int:
    """Return the index i with probability exp(-rate * exponents[i]) / sum_j exp(-rate * exponents[j]).

    Guarantee: this is the exact distribution, for all sizes of `exponents` and of `rate`; nothing overflows
    and no weight is lost to underflow. Apart from the fallback (see `_shares`: 1 in 10^8 for 10^6 exponents,
    1 in 10^11 for 100) the operations depend on the number of exponents only.

    Two stages keep the rounding errors of sums small: first one of about sqrt(n) groups of neighbours is
    chosen by its total weight, then a member of the group by its weight in the group.

    Args:
        exponents: non-negative integers, shape (n,), n >= 1.
        rate: non-negative; 0 makes the choice uniform.
    """
    if exponents.ndim != 1 or len(exponents) == 0 or exponents.dtype != np.int64:
        raise ValueError(
            f"exponents must be a non-empty int64 vector, got {exponents.dtype} of shape {exponents.shape}"
        )
    if exponents.min() < 0:
        raise ValueError("exponents must not be negative")
    if rate < 0:
        raise ValueError(f"rate must not be negative, got {rate}")
    stream = _Stream()
    width = math.isqrt(len(exponents))
    start = width * _choose_group(exponents, width, rate, stream)
    return start + _choose_group(exponents[start : start + width], 1, rate, stream)


# Bits


class _Stream:
    """Independent fair bits: AES-256-CTR under a key from the operating system.

    Every public call makes its own, so no state is shared between threads, and none outlives a request that
    could be replayed from a snapshot of the machine. The key is replaced after 1 GiB and in a forked child.
    """

    def __init__(self) -> None:
        self._rekey()

    def words(self, count: int) -> Words:
        """Return `count` independent uniform 64-bit words."""
        return np.frombuffer(self._take(8 * count), np.uint64)

    def bits(self, count: int) -> int:
        """Return an integer uniform in [0, 2^count)."""
        size = -(-count // 8)
        return int.from_bytes(self._take(size), "big") >> (8 * size - count)

    def _take(self, size: int) -> bytes:
        if self._left < size or self._pid != os.getpid():
            self._rekey()
        self._left -= size
        return self._cipher.update(bytes(size))

    def _rekey(self) -> None:
        # A key is used for one stream only, so the counter may start at zero.
        self._cipher = Cipher(algorithms.AES(os.urandom(32)), modes.CTR(bytes(16))).encryptor()
        self._left = _BYTES_PER_KEY
        self._pid = os.getpid()


class _Uniform:
    """One real number uniform in [0, 1), of which as many binary digits are drawn as someone asks for."""

    def __init__(self, stream: _Stream, digits: int = 0, length: int = 0) -> None:
        self._stream, self._digits, self._length = stream, digits, length

    def prefix(self, length: int) -> int:
        """Return floor(2^length * u); longer prefixes continue shorter ones."""
        more = length - self._length
        if more > 0:
            self._digits = self._digits << more | self._stream.bits(more)
            self._length = length
        return self._digits >> (self._length - length)


# The Gaussian, by lanes


def _accepted(stream: _Stream, lanes: int, bits: int) -> Draws:
    """Return the accepted ones among `lanes` proposals, rounded and signed."""
    words, x, v = stream.words(3 * lanes).reshape(3, lanes)
    level_digits, sign = words >> np.uint64(1), 1 - 2 * (words & np.uint64(1)).astype(np.int64)
    level = _levels(level_digits)
    excess = _acceptance(level, x) - _unit(v)
    accept = excess > 0
    magnitude: Draws = (level.astype(np.int64) << bits) + _rounded(x, bits)
    undecided = (np.abs(excess) <= _MARGIN) | (level_digits == _EDGES.take(level))
    for lane in np.flatnonzero(undecided):
        exact_level, accept[lane] = _propose_exactly(
            _Uniform(stream, int(level_digits[lane]), 63),
            _Uniform(stream, int(x[lane]), 64),
            _Uniform(stream, int(v[lane]), 64),
        )
        exact = (exact_level << bits) + int(_rounded(x, bits)[lane])
        if exact > np.iinfo(np.int64).max:
            magnitude = magnitude.astype(np.object_)
        magnitude[lane] = exact
    return (magnitude * sign)[np.flatnonzero(accept)]


def _unit(words: Words) -> Floats:
    """Return the leading 53 digits of each uniform, exactly; the uniform is less than 2^-53 above."""
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _rounded(x: Words, bits: int) -> Integers:
    """Return round(2^bits x) = floor((floor(2^(bits + 1) x) + 1) / 2), from the leading digits of x."""
    halves = (x >> np.uint64(63 - bits)).astype(np.int64)
    return (halves + 1) >> 1


def _levels(digits: Words) -> npt.NDArray[np.uint8]:
    """Return for each 63-digit uniform u its level k, the number of j >= 1 with u >= P(level < j).

    The first 63 digits of P(level < j) are _EDGES[j], and the probability is irrational: so the digits
    decide unless they equal _EDGES[k]. The last edge is 2^63 - 1, so level 10 and above is never certain.
    """
    level = np.zeros(digits.shape, np.uint8)
    for edge in _EDGES[1:]:
        level += digits >= edge
    return level


def _acceptance(level: npt.NDArray[np.uint8], x: Words) -> Floats:
    """Return exp(-x (2k + x) / 2) within 2^-41, for levels k <= 10.

    Cutting x to 53 digits changes the exponent by at most (k + 1) 2^-53; the sum and the product of floats
    by at most 2 * 2^-53 of it, and it is at most k + 1/2; together below 2^-47. Then exp, whose values are
    at most 1, adds at most 2^-46 (see the assumption above).
    """
    fraction = _unit(x)
    return np.exp(-fraction * (level + 0.5 * fraction))


def _propose_exactly(level_uniform: _Uniform, x: _Uniform, v: _Uniform) -> tuple[int, bool]:
    """Return the level and the acceptance of one proposal, given its three uniforms, without an error."""
    level = _locate(level_uniform, _level_weights)
    return level, _locate(v, lambda precision: _acceptance_weights(level, x, precision)) == 0


@cache
def _level_weights(precision: int) -> Sequence[Enclosure]:
    """Return enclosures of exp(-k^2/2) for k = 0, 1, ..., and last one of all the further ones together.

    With (m + 1)^2 / 2 > precision the first one left out is below 2^-precision, and each next one is less
    than half of the one before: together they are below 2 units.
    """
    last = math.isqrt(2 * precision)
    return *(_exp_enclosure(Fraction(k * k, 2), precision) for k in range(last + 1)), (0, 2)


def _acceptance_weights(level: int, x: _Uniform, precision: int) -> Sequence[Enclosure]:
    """Return enclosures of p = exp(-x (2 level + x) / 2) and of 1 - p, using `precision` digits of x."""
    digits, one = x.prefix(precision), 1 << precision

    def exponent(numerator: int) -> Fraction:
        return Fraction(numerator * (2 * level * one + numerator), 2 * one * one)

    low, _ = _exp_enclosure(exponent(digits + 1), precision)
    _, high = _exp_enclosure(exponent(digits), precision)
    return [(low, high), (one - min(high, one), one - low)]


# The Laplace distribution, by lanes


def _laplace_accepted(stream: _Stream, lanes: int, bits: int) -> Draws:
    """Return the accepted ones among `lanes` proposals, rounded and signed."""
    words, x, v = stream.words(3 * lanes).reshape(3, lanes)
    level_digits, sign = words >> np.uint64(1), 1 - 2 * (words & np.uint64(1)).astype(np.int64)
    level = np.count_nonzero(level_digits[:, None] >= _LAPLACE_EDGES[1:], axis=1)
    excess = np.exp(-_unit(x)) - _unit(v)
    accept = excess > 0
    extra = max(0, bits - _INT64_LAPLACE_BITS)
    magnitude: Draws
    if extra == 0:
        magnitude = (level << bits) + _rounded(x, bits)
    else:  # rounding needs more digits of x than its first 64
        x = np.array([int(digits) << extra | stream.bits(extra) for digits in x], np.object_)
        pairs = zip(level, x, strict=True)
        magnitude = np.array([_long_rounded(k, digits, bits, extra) for k, digits in pairs], np.object_)
    undecided = (np.abs(excess) <= _MARGIN) | (level_digits == _LAPLACE_EDGES.take(level))
    for lane in np.flatnonzero(undecided):
        digits = _Uniform(stream, int(x[lane]), 64 + extra)
        exact_level = _locate(_Uniform(stream, int(level_digits[lane]), 63), _laplace_level_weights)
        accept[lane] = _decay(digits, _Uniform(stream, int(v[lane]), 64))
        exact = _long_rounded(exact_level, int(x[lane]), bits, extra)
        if exact > np.iinfo(np.int64).max:
            magnitude = magnitude.astype(np.object_)
        magnitude[lane] = exact
    return (magnitude * sign)[np.flatnonzero(accept)]


def _long_rounded(level: int, digits: int, bits: int, extra: int) -> int:
    """Return round(2^bits (level + x)), given the first 64 + extra digits of x; needs bits <= 63 + extra."""
    return (int(level) << bits) + ((digits >> (63 + extra - bits)) + 1 >> 1)


def _decay(x: _Uniform, v: _Uniform) -> bool:
    """Return whether v < exp(-x), without an error."""

    def weights(precision: int) -> Sequence[Enclosure]:
        digits, one = x.prefix(precision), 1 << precision
        low, _ = _exp_enclosure(Fraction(digits + 1, one), precision)
        _, high = _exp_enclosure(Fraction(digits, one), precision)
        return [(low, high), (one - min(high, one), one - low)]

    return _locate(v, weights) == 0


@cache
def _laplace_level_weights(precision: int) -> Sequence[Enclosure]:
    """Return enclosures of exp(-k) for k = 0, 1, ..., and last one of all the further ones together.

    The first one left out is exp(-precision - 1), and together they are less than 1.6 times that: below 1 unit.
    """
    return *(_exp_enclosure(Fraction(k), precision) for k in range(precision + 1)), (0, 1)


# The choice, by groups


def _choose_group(exponents: Integers, width: int, rate: Fraction, stream: _Stream) -> int:
    """Return one of the groups of `width` neighbours, with probability proportional to its total weight."""
    gaps = exponents - exponents.min()
    uniform = _Uniform(stream)
    position = (uniform.prefix(64) >> 11) * 2.0**-53
    shares, margin = _shares(gaps, width, rate)
    below = int(np.count_nonzero(shares <= position - margin))
    not_above = int(np.count_nonzero(shares <= position + margin))
    if below == not_above:
        return below
    return _locate(uniform, lambda precision: _group_weights(gaps, width, rate, precision))


def _shares(gaps: Integers, width: int, rate: Fraction) -> tuple[Floats, float]:
    """Return P(group <= j) for all groups but the last, and a bound on their error.

    Let u = 2^-53 and n weights w = exp(-t), t = rate * gap, the largest of which is 1. A float of t is wrong
    by 3 u t, a float of w therefore by (3 t + 128) u w (128 u for exp; cutting t at 700 adds e^-699, a
    rate too small for a normal float 2^-1000). The mean of t under the weights is at most ln n < 44 (it is
    their entropy minus the logarithm of their sum), so the errors of all weights together are below 261 u of
    their sum. Adding up in a group and over groups adds (width + groups) u of the sum, in whatever order, and
    dividing doubles it all. The uniform is cut to 53 digits, one more u. The bound taken is more than twice
    that: 8 u (width + groups + 256).

    A uniform falls within the bound of a share with probability at most 2 * bound * groups.
    """
    # A rate above 2^900 gives weight 0 to all gaps but 0, as 2^900 does, and would overflow.
    exponent = np.minimum(float(min(rate, Fraction(2**900))) * gaps, 700.0)
    totals = np.add.reduceat(np.exp(-exponent), np.arange(0, len(gaps), width))
    cumulative = np.cumsum(totals)
    return cumulative[:-1] / cumulative[-1], (width + len(totals) + 256) * _CHOICE_MARGIN


def _group_weights(gaps: Integers, width: int, rate: Fraction, precision: int) -> Sequence[Enclosure]:
    """Return enclosures of the total weight of each group."""
    distinct, places = np.unique(gaps, return_inverse=True)
    enclosures = np.array([_exp_enclosure(rate * int(gap), precision) for gap in distinct], np.object_)
    sums = np.add.reduceat(enclosures[places], np.arange(0, len(gaps), width), axis=0)
    return [(low, high) for low, high in sums]


# Certainty


def _locate(uniform: _Uniform, weights: Callable[[int], Sequence[Enclosure]]) -> int:
    """Return the i with C(i) <= u C(n) < C(i + 1), C(i) being the sum of the first i of n weights.

    Guarantee: for a uniform u this is i with probability proportional to weight i, exactly, whatever prefix
    of u was looked at before. `weights(precision)` encloses 2^precision times each weight; the enclosures
    must shrink, relative to the sum, as the precision grows. Then the loop ends with probability 1.
    """
    precision = _FIRST_PRECISION
    while (index := _certain_index(uniform.prefix(precision), weights(precision), precision)) is None:
        precision *= 2
    return index


def _certain_index(digits: int, weights: Sequence[Enclosure], precision: int) -> int | None:
    """Return what `_locate` seeks, if it is the same for all u and all weights in the enclosures."""
    lows = list(accumulate(low for low, _ in weights))
    highs = list(accumulate(high for _, high in weights))
    below = sum(digits * lows[-1] >= high << precision for high in highs[:-1])
    not_above = sum((digits + 1) * highs[-1] > low << precision for low in lows[:-1])
    return below if below == not_above else None


def _exp_enclosure(exponent: Fraction, precision: int) -> Enclosure:
    """Return integers (low, high) with low <= 2^precision exp(-exponent) <= high, for exponent >= 0.

    The Taylor series of exp(r), r = exponent / 2^s <= 1/2, in integers of some more digits: each term is
    rounded down and inherits at most half the error before it, so it is wrong by less than 2; when a term
    has become 0, the true rest is below 4. Then s squarings and one division, rounded outwards.
    """
    if exponent == 0:
        return 1 << precision, 1 << precision
    if exponent > precision:
        return 0, 1
    numerator, denominator = exponent.as_integer_ratio()
    squarings = max(0, numerator.bit_length() - denominator.bit_length() + 2)
    digits = precision + _GUARD_DIGITS
    low, terms, term = 0, 0, 1 << digits
    while term:
        low, terms = low + term, terms + 1
        term = term * numerator // ((denominator << squarings) * terms)
    high = low + 2 * terms + 4
    for _ in range(squarings):
        low, high = low * low >> digits, (high * high >> digits) + 1
    return (1 << digits + precision) // high, (1 << digits + precision) // low + 1


def _edges(weights: Sequence[Enclosure], count: int) -> Words:
    """Return the first 63 digits of P(level < j) for j = 0, ..., count."""
    total = sum(high for _, high in weights)
    cumulative = accumulate((low for low, _ in weights[:count]), initial=0)
    return np.array([(low << 63) // total for low in cumulative], np.uint64)


_EDGES = _edges(_level_weights(256), 10)
_LAPLACE_EDGES = _edges(_laplace_level_weights(256), 44)
