"""Writes rows that are stored by columns as DataRow messages: the same bytes as row by row, by operations on arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from planner.plans.result import Columns
from proxy.wire import binary, bulk, oids, rows, text
from proxy.wire.text import Encoder

WIDEST = 1_000
"""Longest text for which room is made in every row."""

HEAD = 7
"""Bytes before the first cell: the kind, the length and the number of cells."""

Bytes = npt.NDArray[np.uint8]
Array = np.ndarray[Any, Any]

PACKED = {
    binary.ENCODERS[oid]: np.dtype(code)
    for oid, code in ((oids.INT2, "i2"), (oids.INT4, "i4"), (oids.INT8, "i8"), (oids.FLOAT4, "f4"), (oids.FLOAT8, "f8"))
}
LETTERS = {binary.ENCODERS[oids.BOOL]: b"\0\1", text.ENCODERS[oids.BOOL]: b"ft"}


@dataclass(frozen=True)
class _Cells:
    """The cells of a column: their lengths, -1 for NULL, and their bytes, each row with room for the longest."""

    lengths: npt.NDArray[np.int32]
    data: Bytes


def data_rows(found: Columns, encoders: Sequence[Encoder]) -> bytes:
    """Return the rows as DataRow messages."""
    cells = [_cells(array, encode) for array, encode in zip(found.arrays, encoders, strict=True)]
    known = [each for each in cells if each is not None]
    if len(known) < len(cells):
        return rows.data_rows(list(found), encoders)
    return _joined(known, len(found))


def _joined(cells: Sequence[_Cells], count: int) -> bytes:
    """Lay all cells out side by side, and leave out the room that was not needed."""
    width = HEAD + sum(4 + each.data.shape[1] for each in cells)
    page, used = np.empty((count, width), np.uint8), np.ones((count, width), np.bool_)
    sizes = sum((np.maximum(each.lengths, 0) for each in cells), np.full(count, HEAD - 1 + 4 * len(cells), np.int32))
    page[:, 0] = ord("D")
    page[:, 1:5] = _big_endian(sizes)
    page[:, 5:HEAD] = np.frombuffer(len(cells).to_bytes(2, "big"), np.uint8)
    place = HEAD
    for each in cells:
        room = each.data.shape[1]
        page[:, place : place + 4] = _big_endian(each.lengths)
        page[:, place + 4 : place + 4 + room] = each.data
        used[:, place + 4 : place + 4 + room] = _used(each.lengths, room)
        place += 4 + room
    return page[used].tobytes()


def _used(lengths: npt.NDArray[np.int32], room: int) -> npt.NDArray[np.bool_]:
    return np.arange(room, dtype=np.int32) < lengths[:, np.newaxis]


def _big_endian(numbers: Array) -> Bytes:
    """Return the bytes of each number in a row of its own."""
    swapped = np.ascontiguousarray(numbers.astype(numbers.dtype.newbyteorder(">")))
    return swapped.view(np.uint8).reshape(len(numbers), -1)


def _cells(array: Array, encode: Encoder) -> _Cells | None:
    """Return the cells of a column, or None if they have to be written one by one."""
    null = np.ma.getmaskarray(array) if isinstance(array, np.ma.MaskedArray) else None
    plain = np.ma.getdata(array)
    if encode in LETTERS and plain.dtype == np.bool_:
        letters = np.frombuffer(LETTERS[encode], np.uint8)[plain.astype(np.intp)]
        return _fixed(letters[:, np.newaxis], null)
    if encode in PACKED:
        packed = _as(plain if null is None else np.where(null, np.zeros_like(plain), plain), PACKED[encode])
        return None if packed is None else _fixed(_big_endian(packed), null)
    if encode in bulk.TEXTS and len(array):
        return _texts(plain if null is None else plain[~null], encode, null)
    return None


def _as(numbers: Array, wanted: np.dtype[Any]) -> Array | None:
    """Return the numbers in the type that the client expects; None if some of them may not fit it."""
    if numbers.dtype == wanted:
        return numbers
    if not (numbers.dtype.kind == wanted.kind == "i" and len(numbers)):
        return None
    limits = np.iinfo(wanted)
    return numbers.astype(wanted) if limits.min <= numbers.min() and numbers.max() <= limits.max else None


def _fixed(data: Bytes, null: npt.NDArray[np.bool_] | None) -> _Cells:
    lengths = np.full(len(data), data.shape[1], np.int32)
    return _Cells(lengths if null is None else np.where(null, np.int32(-1), lengths), data)


def _texts(present: Array, encode: Encoder, null: npt.NDArray[np.bool_] | None) -> _Cells | None:
    joined = bulk.TEXTS[encode](present.tolist()) if len(present) else None
    if joined is None:
        return None
    marked = np.frombuffer(joined.encode() + b"\0", np.uint8)
    sizes = np.diff(np.flatnonzero(marked == 0), prepend=-1).astype(np.int32) - 1
    room = int(sizes.max())
    if room > WIDEST:
        return None
    lengths = sizes
    if null is not None:
        lengths = np.full(len(null), -1, np.int32)
        lengths[~null] = sizes
    data = np.zeros((len(lengths), room), np.uint8)
    data[_used(lengths, room)] = marked[marked != 0]
    return _Cells(lengths, data)
