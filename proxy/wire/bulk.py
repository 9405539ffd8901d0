"""Many values of one type as text at once: the same bytes as one by one, in few calls for all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from proxy.wire import oids, text
from proxy.wire.text import Encoder

Bulk = Callable[[Sequence[object]], str | None]
"""Returns the values as one text with marks between them; None if they have to be written one by one."""

MARK = "\0"
"""PostgreSQL has no text with it."""

SECOND = len("2000-01-01 00:00:00")


def plain(values: Sequence[object]) -> str | None:
    """Return what str() makes of each value."""
    return _marked(MARK.join(map(str, values)), len(values))


def _marked(joined: str, count: int) -> str | None:
    return joined if joined.count(MARK) == count - 1 else None


def strings(values: Sequence[object]) -> str | None:
    """Return texts as they are."""
    if set(map(type, values)) - {str}:
        return None
    return _marked(MARK.join(values), len(values))  # type: ignore[arg-type]  # all are str


def floats(values: Sequence[object]) -> str | None:
    """Return doubles that PostgreSQL writes as Python does, but for the .0 of whole ones.

    >>> floats([1.0, -0.5, 10.02]), floats([1e15]), floats([float("nan")])
    ('1\\x00-0.5\\x0010.02', None, None)
    """
    if set(map(type, values)) - {float}:
        return None
    joined = MARK.join(map(repr, values)) + MARK
    if "e" in joined or "n" in joined or not _is_short(values):
        return None
    return joined.replace(f".0{MARK}", MARK)[:-1]


def _is_short(values: Sequence[object]) -> bool:
    """Return whether all are below 1e15, from where on PostgreSQL writes an exponent."""
    return min(values) > -1e15 and max(values) < 1e15  # type: ignore[type-var, operator]  # all are float


def moments(values: Sequence[object]) -> str | None:
    """Return timestamps of whole seconds without a zone."""
    joined = plain(values)
    return joined if joined is not None and set(map(len, joined.split(MARK))) == {SECOND} else None


TEXTS: dict[Encoder, Bulk] = {
    text.any_text: strings,
    text.ENCODERS[oids.INT8]: plain,
    text.ENCODERS[oids.FLOAT8]: floats,
    text.ENCODERS[oids.TIMESTAMP]: moments,
}
"""By what writes one value; there must be at least one. Dates are written as whole numbers are, by str()."""
