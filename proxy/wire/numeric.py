"""PostgreSQL's binary numeric: base-10,000 digits with a weight, a sign and a display scale."""

from __future__ import annotations

import struct
from decimal import Decimal

POSITIVE, NEGATIVE, NAN, INFINITY, MINUS_INFINITY = 0x0000, 0x4000, 0xC000, 0xD000, 0xF000
BASE_DIGITS = 4
MOST_DIGITS = 0x3FFF
"""Largest display scale that the format has room for."""

_HEADER = struct.Struct("!HhHH")  # digits, weight of the first, sign, display scale


def encode(value: Decimal | int) -> bytes:
    """Return a number in the binary format; OverflowError if it has more digits than the format holds.

    >>> encode(Decimal("12345.60")).hex(" ", 2)
    '0003 0001 0000 0002 0001 0929 1770'
    """
    number = Decimal(value)
    if not number.is_finite():
        sign = NAN if number.is_nan() else INFINITY if number > 0 else MINUS_INFINITY
        return _HEADER.pack(0, 0, sign, 0)
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)  # finite
    scale = max(0, -exponent)
    if scale > MOST_DIGITS or number.adjusted() > 131_072:
        raise OverflowError("the number has more digits than numeric holds")
    text = "".join(map(str, digits)) + "0" * max(0, exponent)
    whole, fraction = (text[:-scale], text[-scale:].rjust(scale, "0")) if scale else (text, "")
    whole = whole.rjust(-len(whole) % BASE_DIGITS + len(whole), "0")
    fraction = fraction.ljust(-len(fraction) % BASE_DIGITS + len(fraction), "0")
    groups = [int((whole + fraction)[i : i + BASE_DIGITS]) for i in range(0, len(whole + fraction), BASE_DIGITS)]
    return _packed(groups, weight=len(whole) // BASE_DIGITS - 1, sign=NEGATIVE if sign else POSITIVE, scale=scale)


def _packed(groups: list[int], *, weight: int, sign: int, scale: int) -> bytes:
    """Return the digits without the zeros at either end, which the format leaves out."""
    first = next((i for i, group in enumerate(groups) if group), len(groups))
    last = next((i for i in range(len(groups), first, -1) if groups[i - 1]), first)
    kept = groups[first:last]
    header = _HEADER.pack(len(kept), weight - first if kept else 0, sign if kept else POSITIVE, scale)
    return header + struct.pack(f"!{len(kept)}H", *kept)


def decode(data: bytes) -> Decimal:
    """Return the number; ValueError if the bytes are not one."""
    if len(data) < _HEADER.size:
        raise ValueError("a numeric is at least 8 bytes")
    count, weight, sign, scale = _HEADER.unpack_from(data)
    if len(data) != _HEADER.size + 2 * count:
        raise ValueError(f"a numeric of {count} digits is {_HEADER.size + 2 * count} bytes, got {len(data)}")
    special = {NAN: "NaN", INFINITY: "Infinity", MINUS_INFINITY: "-Infinity"}
    if sign in special:
        return Decimal(special[sign])
    groups = struct.unpack_from(f"!{count}H", data, _HEADER.size)
    if sign not in (POSITIVE, NEGATIVE) or scale > MOST_DIGITS or any(group > 9999 for group in groups):
        raise ValueError("the sign, scale or a digit of a numeric is out of range")
    digits = "".join(f"{group:04d}" for group in groups) or "0"
    exponent = BASE_DIGITS * (weight + 1 - count) if groups else 0
    keep = exponent + scale  # digits beyond the display scale are zeros in what PostgreSQL sends
    digits, exponent = (digits + "0" * keep, -scale) if keep >= 0 else (digits[:keep] or "0", -scale)
    return Decimal((int(sign == NEGATIVE), tuple(map(int, digits)), exponent))
