"""Many rows at once, as DataRow messages or as the rows of a binary COPY."""

from __future__ import annotations

import datetime as dt
import itertools
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence

from proxy.wire import binary, bulk, oids
from proxy.wire.text import Encoder

NULL = b"\xff\xff\xff\xff"
_LENGTH = struct.Struct("!i").pack
_HEAD = struct.Struct("!ciH").pack
_COUNT = struct.Struct("!H").pack

ALIKE = (str, int, bool, dt.date)
"""Types whose equal values are written the same way; the decimals 1.0 and 1.00 are equal and are not."""

Row = Sequence[object]


SHORT = 1_000
_PREFIXES = [_LENGTH(size) for size in range(SHORT)]
"""The length before each short value, made beforehand."""

SAMPLE = 100


def cells(values: Sequence[object], encode: Encoder) -> list[bytes]:
    """Return the values of one column, each with its length before it; where many are equal, each is written once."""
    if _repeats(values):
        known = {value: _cell(value, encode) for value in set(values)}
        return list(map(known.__getitem__, values))
    if encode not in FIXED and encode not in bulk.TEXTS:
        return [_cell(value, encode) for value in values]
    present = [value for value in values if value is not None]
    found = _many(present, encode)
    if len(present) == len(values):
        return found
    rest = iter(found)
    return [NULL if value is None else next(rest) for value in values]


FIXED: dict[Encoder, tuple[int, Callable[[int, object], bytes]]] = {
    binary.ENCODERS[oid]: (struct.calcsize(f"!{code}"), struct.Struct(f"!i{code}").pack)
    for oid, code in ((oids.INT2, "h"), (oids.INT4, "i"), (oids.INT8, "q"), (oids.FLOAT4, "f"), (oids.FLOAT8, "d"))
}
"""Types of one size in binary: that size, and what writes it together with a value."""


def _many(values: Sequence[object], encode: Encoder) -> list[bytes]:
    """Return cells of values that are not NULL, written together where the type allows it."""
    if encode in FIXED:
        size, pack = FIXED[encode]
        return list(map(pack, itertools.repeat(size), values))
    joined = bulk.TEXTS[encode](values) if values else None
    if joined is None:
        return [_cell(value, encode) for value in values]
    data = joined.encode().split(b"\0")
    return list(map(bytes.__add__, _prefixes(data), data))


def _prefixes(data: Sequence[bytes]) -> Iterable[bytes]:
    sizes = list(map(len, data))
    return map(_PREFIXES.__getitem__ if max(sizes, default=0) < SHORT else _LENGTH, sizes)


def _repeats(values: Sequence[object]) -> bool:
    """Return whether the first values repeat a few different ones; all must be of one type of ALIKE."""
    kinds = set(map(type, values)) - {type(None)}
    return len(kinds) == 1 and kinds.pop() in ALIKE and len(set(values[:SAMPLE])) < SAMPLE // 2


def _cell(value: object, encode: Encoder) -> bytes:
    if value is None:
        return NULL
    data = encode(value)
    size = len(data)
    return (_PREFIXES[size] if size < SHORT else _LENGTH(size)) + data


def bodies(rows: Sequence[Row], encoders: Sequence[Encoder]) -> list[bytes]:
    """Return each row as its cells, one after the other."""
    if not encoders:
        return [b""] * len(rows)
    columns = zip(*rows, strict=True)
    return list(map(b"".join, zip(*map(cells, columns, encoders), strict=True)))


def data_rows(rows: Sequence[Row], encoders: Sequence[Encoder]) -> bytes:
    """Return the rows as DataRow messages."""
    written = bodies(rows, encoders)
    heads = _Heads(len(encoders))
    return b"".join(_woven(map(heads.__getitem__, map(len, written)), written))


class _Heads(dict[int, bytes]):
    """What stands before a row of so many bytes, made when it is first needed."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self._width = width

    def __missing__(self, size: int) -> bytes:
        self[size] = found = _HEAD(b"D", size + 6, self._width)
        return found


def _woven(heads: Iterable[bytes], written: Sequence[bytes]) -> Iterator[bytes]:
    return itertools.chain.from_iterable(zip(heads, written, strict=True))


def copy_row(row: Row, encoders: Sequence[Encoder]) -> bytes:
    """Return one row of a COPY in binary, without the message around it."""
    return _COUNT(len(encoders)) + bodies([row], encoders)[0]


def copy_rows(rows: Sequence[Row], encoders: Sequence[Encoder]) -> bytes:
    """Return the rows as CopyData messages of a COPY in binary."""
    width = _COUNT(len(encoders))
    parts = [part for body in bodies(rows, encoders) for part in (b"d", _LENGTH(len(body) + 6), width, body)]
    return b"".join(parts)
