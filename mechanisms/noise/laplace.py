"""Laplace noise for deciders: its exact draw on a grid, and probabilities of sums of it.

Draws are exact (`sampling`). Probabilities are floating point: they are told to analysts and decide between
deciders, but no decision depends on them.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from mechanisms.noise import sampling
from mechanisms.noise.sampling import Draws

Floats = npt.NDArray[np.float64]

_FINE = 20  # the scale is at most 2^-20 of it larger than asked for
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)
_TAIL = 45.0  # beyond this many scales lies e^-45 of a Laplace distribution

SURE = 750.0
"""Beyond this many scales from the middle `cdf` is 0 or 1: e^-750 is 0 in floating point."""


@dataclass(frozen=True)
class Grid:
    """Noise Lap(sensitivity / epsilon), drawn as integers in units of 1 / `multiplier`.

    Guarantee: multiplier times an integer of that sensitivity, plus `draw`, is post-processing of real Laplace
    noise of scale 2^bits, which is at least multiplier * sensitivity / epsilon: the scale is rounded up, by
    less than one part in 2^20. The same holds if the sensitivity is that of a rational number, as long as
    `multiplier` is given in units that make the number an integer (`unit`).
    """

    multiplier: int
    bits: int

    @property
    def scale(self) -> float:
        return math.ldexp(1.0, self.bits) / self.multiplier

    def draw(self, size: int, *, doublings: int = 0) -> Draws:
        """Return `size` draws, of a scale 2^doublings times as large."""
        return sampling.rounded_laplace(size, bits=self.bits + doublings)


def grid(sensitivity: Fraction | int, epsilon: Fraction, *, unit: int = 1) -> Grid:
    """Return the grid whose multiplier is a multiple of `unit`, and whose scale is at least sensitivity / epsilon."""
    scale = Fraction(sensitivity) * unit / epsilon
    if scale <= 0:
        raise ValueError("sensitivity and epsilon must be positive")
    bits = max(0, _FINE + 1 + math.ceil(scale).bit_length())
    return Grid(unit * math.floor(Fraction(1 << bits) / scale), bits)


def cdf(x: npt.ArrayLike, scale: float) -> Floats:
    """Return P(Lap(scale) <= x)."""
    x = np.asarray(x, np.float64) / scale
    tail = np.exp(-np.abs(x)) / 2
    return np.where(x < 0, tail, 1 - tail)


@functools.lru_cache(maxsize=256)
def mixture(scales: tuple[float, ...]) -> Floats:
    """Return weights w with P(sum of independent Lap(scales) <= x) = sum_i w_i P(Lap(scales[i]) <= x).

    By partial fractions of the characteristic function, prod 1 / (1 + b_i^2 t^2). The scales must be distinct;
    if they differ by factors of 2, the weights are below 2 in magnitude and nothing cancels.
    """
    squares = np.square(np.asarray(scales, np.float64) / max(scales, default=1.0))
    return np.array(
        [np.prod([own / (own - other) for other in np.delete(squares, i)]) for i, own in enumerate(squares)]
    )


def sum_cdf(x: npt.ArrayLike, scales: Sequence[float]) -> Floats:
    """Return P(sum of independent Lap(scales) <= x) for distinct scales; without any, the sum is 0."""
    x = np.asarray(x, np.float64)
    if not scales:
        return (x >= 0).astype(np.float64)
    size = np.abs(x)
    weights = mixture(tuple(scales)) / 2  # their sum is a half: `tail` is that of the mixture
    tail = np.asarray(sum(weight * np.exp(size / -scale) for weight, scale in zip(weights, scales, strict=True)))
    return np.where(x < 0, tail, 1 - tail)


def quadrature(scales: Sequence[float], *, kinks: Sequence[float], finest: float) -> tuple[Floats, Floats]:
    """Return points z and masses m with E[f(Z)] = sum m f(z), Z the sum of independent Lap(scales).

    For functions that are products of cumulative probabilities of Laplace variables, of scales not below `finest`,
    with their middles at `kinks`. Intervals double in length away from each kink, so every factor is smooth on the
    scale of the interval or has died out; Gauss-Legendre with 20 points leaves an error of about 1e-9.
    """
    reach = _TAIL * max(scales)
    finest = min(finest, *scales) / 4
    near = finest * 2.0 ** np.arange(math.ceil(math.log2(reach / finest)))
    cuts = np.add.outer([0.0, *kinks], np.concatenate([-near, [0.0], near])).ravel()
    cuts = np.unique(np.concatenate([cuts[np.abs(cuts) < reach], [-reach, reach]]))
    half = np.diff(cuts)[:, None] / 2
    points = cuts[:-1, None] + half + half * _NODES
    density = sum(
        weight * np.exp(-np.abs(points) / scale) / (2 * scale)
        for weight, scale in zip(mixture(tuple(scales)), scales, strict=True)
    )
    return points.ravel(), (half * _WEIGHTS * density).ravel()
