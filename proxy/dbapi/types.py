"""The type objects and constructors of PEP 249."""

from __future__ import annotations

import datetime as dt
import time

from proxy.duck_types import family


class TypeObject:
    """What a `type_code` of `Cursor.description` compares equal to; the codes are DuckDB's names of types.

    >>> ("BIGINT" == NUMBER, "DECIMAL(18,3)" == NUMBER, "VARCHAR" == NUMBER)
    (True, True, False)
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, str) and family(other) == self.name)

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return self.name


STRING = TypeObject("STRING")
BINARY = TypeObject("BINARY")
NUMBER = TypeObject("NUMBER")
DATETIME = TypeObject("DATETIME")
ROWID = TypeObject("ROWID")  # no column has it: rows are never shown

Date = dt.date
Time = dt.time
Timestamp = dt.datetime
Binary = bytes


def DateFromTicks(ticks: float) -> dt.date:
    """Return the local date of a number of seconds since the epoch."""
    return Date(*time.localtime(ticks)[:3])


def TimeFromTicks(ticks: float) -> dt.time:
    """Return the local time of a number of seconds since the epoch."""
    return Time(*time.localtime(ticks)[3:6])


def TimestampFromTicks(ticks: float) -> dt.datetime:
    """Return the local date and time of a number of seconds since the epoch."""
    return Timestamp(*time.localtime(ticks)[:6])
