"""The rows of COPY … TO STDOUT, in text, csv and binary."""

from __future__ import annotations

from collections.abc import Sequence

from planner.basics.errors import UnknownColumn
from proxy.catalog.types import Column
from proxy.conversation.statements import Copy
from proxy.wire import replies, rows
from proxy.wire.values import Format, encoder

BINARY_HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
BINARY_END = b"\xff\xff"

ESCAPES = {"\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}

Row = Sequence[object]


class Writer:
    """Writes one COPY: `start`, then `some` rows any number of times, then `end`."""

    def __init__(self, copy: Copy, columns: Sequence[Column]) -> None:
        self._copy, self._columns = copy, columns
        self._form = Format.BINARY if copy.format == "binary" else Format.TEXT
        self._encoders = [encoder(column.oid, self._form) for column in columns]
        self._forced = _forced(copy, columns)
        self._field = _csv_field if copy.format == "csv" else _text_field
        # As PostgreSQL does, in one message with what comes first after it: clients rely on it.
        self._lead = BINARY_HEADER if self._form == Format.BINARY else b""

    def start(self) -> bytes:
        """Return what comes before the rows: the announcement, and a line with names if it is asked for."""
        head = replies.copy_out(len(self._columns), self._form)
        if self._form == Format.BINARY or not self._copy.header:
            return head
        names = [self._field(column.name, self._copy, forced=False) for column in self._columns]
        return head + self._line(names)

    def some(self, found: Sequence[Row]) -> bytes:
        """Return some of the rows."""
        if self._form == Format.TEXT:
            return b"".join(self._line(self._texts(row)) for row in found)
        if self._lead and found:
            first, self._lead = self._lead + rows.copy_row(found[0], self._encoders), b""
            return replies.copy_data(first) + rows.copy_rows(found[1:], self._encoders)
        return rows.copy_rows(found, self._encoders)

    def end(self) -> bytes:
        """Return what comes after the rows."""
        return (replies.copy_data(self._lead + BINARY_END) if self._form == Format.BINARY else b"") + replies.COPY_DONE

    def _texts(self, row: Row) -> list[str]:
        return [
            self._copy.null if value is None else self._field(encode(value).decode(), self._copy, forced=force)
            for value, encode, force in zip(row, self._encoders, self._forced, strict=True)
        ]

    def _line(self, cells: Sequence[str]) -> bytes:
        return replies.copy_data((self._copy.delimiter.join(cells) + "\n").encode())


def _forced(copy: Copy, columns: Sequence[Column]) -> list[bool]:
    names = [column.name for column in columns]
    for name in copy.force_quote or ():
        if name not in names:
            raise UnknownColumn(f"there is no column {name} to quote", hint=f"there are: {', '.join(names)}")
    return [copy.force_quote is None or name in copy.force_quote for name in names]


def _text_field(value: str, copy: Copy, *, forced: bool) -> str:  # noqa: ARG001 - as _csv_field
    escapes: dict[str, str | int | None] = {
        **ESCAPES,
        copy.delimiter: ESCAPES.get(copy.delimiter, "\\" + copy.delimiter),
    }
    return value.translate(str.maketrans(escapes))


def _csv_field(value: str, copy: Copy, *, forced: bool) -> str:
    special = any(letter in value for letter in (copy.delimiter, copy.quote, "\n", "\r"))
    if not (forced or special or value == copy.null or value == "\\."):
        return value
    doubled = "".join(copy.escape + letter if letter in (copy.quote, copy.escape) else letter for letter in value)
    return f"{copy.quote}{doubled}{copy.quote}"
