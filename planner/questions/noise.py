"""Noise on one count."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

MAX_BITS = 58
PRECISION_BITS = 22
"""Each functional's coefficient in the release has at least about this many significant bits."""


@dataclass(frozen=True)
class Noise:
    """A count released as scale * count + round(N(0, 4^bits)): deviation 2^bits / scale."""

    scale: int
    bits: int

    @property
    def variance(self) -> float:
        return 4.0**self.bits / self.scale**2

    @classmethod
    def of(cls, variance: float) -> Noise:
        """Return the noise with at most this variance."""
        bits = min(max(math.ceil(PRECISION_BITS + math.log2(variance) / 2), 0), MAX_BITS)
        return cls(math.ceil(2.0**bits / math.sqrt(variance)), bits)

    def rho(self, sensitivity_squared: int) -> Fraction:
        return Fraction(self.scale**2 * sensitivity_squared, 2 * 4**self.bits)
