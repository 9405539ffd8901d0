"""The public domain of one column: what the curator says its values can be, never what they are.

A domain is a declared list of values or an evenly spaced grid. Its values are numbered from 0 in declared
order; the cell of undeclared values (`other`) comes after them, the cell of NULL last of all.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import re
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property

from planner.basics.limits import MAX_VALUES

Scalar = str | int | float | bool | dt.date | dt.datetime
"""A value as an analyst sees it; NULL is None and stands apart."""

Bound = int | Decimal | dt.date | dt.datetime
Step = int | Decimal | dt.timedelta

SHOWN_VALUES = 20
"""How many values of a list `describe` writes before it only counts them."""

DUCKDB_TYPES = {
    "integer": "BIGINT",
    "float": "DOUBLE",
    "text": "VARCHAR",
    "boolean": "BOOLEAN",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
}

DURATIONS = {
    "week": dt.timedelta(weeks=1),
    "day": dt.timedelta(days=1),
    "hour": dt.timedelta(hours=1),
    "minute": dt.timedelta(minutes=1),
    "second": dt.timedelta(seconds=1),
    "millisecond": dt.timedelta(milliseconds=1),
    "microsecond": dt.timedelta(microseconds=1),
}


@dataclass(frozen=True, kw_only=True)
class Domain:
    """A list of `values`, or the grid low, low + step, …, high; with a NULL cell if `nullable`.

    Grids by type: integer has int bounds and step, float has Decimal ones (so that the grid is exact),
    date has date bounds and a step in whole days, timestamp has naive datetimes and a timedelta.
    """

    type: str
    values: tuple[Scalar, ...] | None = None
    low: Bound | None = None
    high: Bound | None = None
    step: Step | None = None
    nullable: bool = False
    other: str | None = None

    def __post_init__(self) -> None:
        if self.type not in DUCKDB_TYPES:
            raise ValueError(f"type must be one of {', '.join(DUCKDB_TYPES)}, got {self.type!r}")
        ends = (self.low, self.high, self.step)
        if self.values is None and None in ends:
            raise ValueError("a domain needs values, or low, high and step")
        if self.values is not None and ends != (None, None, None):
            raise ValueError("a domain has values or bounds, not both")

    @property
    def size(self) -> int:
        """Return the number of cells that are not NULL, `other` included."""
        if self.values is not None:
            return len(self.values) + (self.other is not None)
        return grid_size(self.low, self.high, self.step)

    @property
    def cells(self) -> int:
        """Return the number of cells; the NULL cell, if there is one, has the last index."""
        return self.size + self.nullable

    @property
    def ordered(self) -> bool:
        return self.values is None

    @property
    def numeric(self) -> bool:
        return self.type in ("integer", "float")

    @property
    def enumerable(self) -> bool:
        return self.cells <= MAX_VALUES

    @property
    def duckdb_type(self) -> str:
        return DUCKDB_TYPES[self.type]

    @cached_property
    def fingerprint(self) -> str:
        """Return 8 hex digits that change when the meaning of any cell changes."""
        values = None if self.values is None else [_canonical(value) for value in self.values]
        grid = [_canonical(self.low), _canonical(self.high), _canonical(self.step)]
        description = json.dumps([self.type, values, grid, self.nullable, self.other])
        return hashlib.sha256(description.encode()).hexdigest()[:8]

    def value(self, index: int) -> Scalar | None:
        """Return the value of cell `index`: a Python scalar, the label of `other`, or None for NULL."""
        if not 0 <= index < self.cells:
            raise IndexError(f"cell {index} of a domain of {self.cells} cells")
        if index == self.size:
            return None
        if self.values is None:
            return self._grid_value(index)
        return self.values[index] if index < len(self.values) else self.other

    def _grid_value(self, index: int) -> Scalar:
        low, step = self.low, self.step
        if isinstance(low, dt.datetime) and isinstance(step, dt.timedelta):
            return low + index * step
        if isinstance(low, dt.date) and isinstance(step, int):
            return low + dt.timedelta(days=index * step)
        if isinstance(low, int) and isinstance(step, int):
            return low + index * step
        # Fractions, since Decimal arithmetic rounds at the precision of its context; float() rounds once.
        return float(_number(low) + index * _number(step))

    def describe(self) -> str:
        """Return a short text for people: "17 … 90", "0 … 1 by 0.01", "Female, Male or NULL"."""
        text = self._describe_grid() if self.values is None else self._describe_values(self.values)
        return f"{text} or NULL" if self.nullable else text

    def _describe_grid(self) -> str:
        text = f"{_shown(self.low)} … {_shown(self.high)}"
        if self.step == 1 and self.type in ("integer", "date"):
            return text
        unit = "" if self.type != "date" else " days"
        return f"{text} by {_shown(self.step)}{unit}"

    def _describe_values(self, values: tuple[Scalar, ...]) -> str:
        labels = [_shown(value) for value in values[:SHOWN_VALUES]]
        if len(values) > SHOWN_VALUES:
            labels.append(f"… ({len(values)} values)")
        return ", ".join([*labels, self.other] if self.other is not None else labels)


def _distance(low: Bound | None, high: Bound | None) -> Fraction:
    """Return high - low in the unit of `_length`: as it is, in days, in microseconds."""
    if isinstance(low, dt.datetime) and isinstance(high, dt.datetime):
        return _length(high - low)
    if isinstance(low, dt.date) and isinstance(high, dt.date):
        return Fraction((high - low).days)
    return _number(high) - _number(low)


def _length(step: Step | None) -> Fraction:
    if isinstance(step, dt.timedelta):
        return Fraction(step // dt.timedelta(microseconds=1))
    return _number(step)


def _number(value: object) -> Fraction:
    if isinstance(value, int | Decimal):
        return Fraction(value)
    raise TypeError(f"a number was expected, got {type(value).__name__}")


def grid_size(low: Bound | None, high: Bound | None, step: Step | None) -> int:
    """Return the number of values low, low + step, …, high."""
    return int(_distance(low, high) // _length(step)) + 1


def whole_steps(low: Bound, high: Bound, step: Step) -> bool:
    """Return whether high lies on the grid that starts at low, so that no cell is cut short."""
    return _distance(low, high) % _length(step) == 0


def _canonical(value: object) -> str | None:
    """Return one text for one meaning: 0.10 and 0.1 are the same number, 1 and True are not the same."""
    if value is None:
        return None
    if isinstance(value, dt.date):
        return f"{type(value).__name__} {value.isoformat()}"
    number = Fraction(value) if isinstance(value, Decimal) else value
    return f"{type(number).__name__} {number}"


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, dt.timedelta):
        return show_duration(value)
    if isinstance(value, dt.datetime):
        return value.isoformat(sep=" ")
    return str(value)


def show_duration(step: dt.timedelta) -> str:
    """Return a duration in the largest unit that fits it: "15 minutes", "1 day"."""
    name, unit = next((name, unit) for name, unit in DURATIONS.items() if not step % unit)
    count = step // unit
    return f"{count} {name}" if count == 1 else f"{count} {name}s"


def duration(text: str) -> dt.timedelta | None:
    """Return the duration of a text like "15 minutes", or None if it is not one above 0.

    >>> duration("15 minutes")
    datetime.timedelta(seconds=900)
    """
    match = re.fullmatch(r"\s*([0-9]{1,18})\s*([a-z]+?)s?\s*", text, re.IGNORECASE)
    if match is None or match[2].lower() not in DURATIONS:
        return None
    try:
        return int(match[1]) * DURATIONS[match[2].lower()] or None
    except OverflowError:
        return None
