"""Numbers and lines as EXPLAIN writes them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

LABEL = 17
"""Width of the left column of EXPLAIN."""


def number(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' if count != 1 else ''}"


def line(label: str, text: str) -> str:
    return f"  {label:<{LABEL - 2}} {text}"


def price(rho: Fraction, budget: Fraction) -> str:
    """Return a cost as a part of the budget, and as rho.

    >>> price(Fraction(1, 1000), Fraction(1, 20))
    '2.00 % of the budget (ρ 0.001)'
    """
    return f"{percent(rho / budget)} of the budget (ρ {float(rho):.3g})"


def percent(part: Fraction) -> str:
    """Return a part of 1 in percent: two decimals, or the first two digits of a small part.

    >>> [percent(Fraction(n, 10**6)) for n in (0, 3, 812, 123_456, 10**6)]
    ['0.00 %', '0.00030 %', '0.08 %', '12.35 %', '100.00 %']
    """
    hundred = 100 * float(part)
    decimals = 1 - math.floor(math.log10(hundred)) if 0 < hundred < 0.01 else 2
    return f"{hundred:.{decimals}f} %"


def used(before: Fraction, after: Fraction, cap: Fraction) -> str:
    first, last = max(float(before / cap), 0.0), float(after / cap)
    return f"{first:.2%} used" if first == last else f"{first:.2%} used → {last:.2%}"


def ranges(numbers: Sequence[int]) -> str:
    """Return numbers with runs shortened: 1, 3-7, 9."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)
