"""Where the cells of a grid begin, so that an engine compares values with these edges instead of computing cells."""

from __future__ import annotations

import math
import struct

from planner.policy.domain import Domain, Scalar

MAGNITUDE = 2**63 - 1


def edge(domain: Domain, index: int) -> Scalar | None:
    """Return the least value whose cell is `index` or a later one, for 0 < index < size; None if no value's is.

    Cells of a float grid are those that engines compute, in doubles: floor((value - low) / step + 0.5). That grows
    with the value, so the first double of a cell is found by halving. None is for grids finer than doubles.
    """
    if domain.type != "float":
        return domain.value(index)
    low, high, step = (float(str(end)) for end in (domain.low, domain.high, domain.step))
    below, above = _place(low), _place(high)
    if _cell(high, low, step) < index:
        return None
    while above - below > 1:
        middle = (above + below) // 2
        if _cell(_double(middle), low, step) < index:
            below = middle
        else:
            above = middle
    return _double(above)


def _cell(value: float, low: float, step: float) -> int:
    return math.floor((value - low) / step + 0.5)


def _place(value: float) -> int:
    """Return the place of a double among all doubles: next to each other, they differ by 1."""
    bits: int = struct.unpack("<q", struct.pack("<d", value))[0]
    return bits if bits >= 0 else -(bits & MAGNITUDE)


def _double(place: int) -> float:
    """Return the double at a place; 0.0 for both zeros.

    >>> [_double(_place(value)) for value in (-2.5, -5e-324, 0.0, 0.1)]
    [-2.5, -5e-324, 0.0, 0.1]
    """
    value: float = struct.unpack("<d", struct.pack("<q", abs(place)))[0]
    return math.copysign(value, place) if place else 0.0
