"""Whole numbers that a client writes as text."""

from __future__ import annotations

import re

_DIGITS = re.compile(r"[0-9]{1,19}")


def whole(text: str, *, most: int = 2**63 - 1) -> int | None:
    """Return the whole number that a text is, from 0 to `most`; None if it is none.

    `str.isdigit` also takes digits that `int` does not, such as ², and `int` refuses thousands of them.

    >>> whole("012"), whole("²"), whole("9" * 5000), whole("-1"), whole("70000", most=65535)
    (12, None, None, None, None)
    """
    number = int(text) if _DIGITS.fullmatch(text) else None
    return number if number is not None and number <= most else None
