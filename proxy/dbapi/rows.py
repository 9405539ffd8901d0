"""The rows of an answer: what they are, what they cost, and fetching them one after the other."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from fractions import Fraction
from typing import Any, Self

from planner.duck.relations import OutputColumn
from planner.plans.result import Interval, Result
from proxy import errors
from proxy.errors import ProgrammingError

Row = tuple[Any, ...]  # Any: a row has values of every type
Message = tuple[type[errors.Warning], str]
Description = tuple[str, str, None, None, int | None, int | None, bool | None]


class Rows(ABC):
    """The half of a cursor that holds an answer; whether it may be used is left to `_check`."""

    def __init__(self) -> None:
        self.arraysize = 1
        self._forget()

    @abstractmethod
    def _check(self) -> None:
        """Raise InterfaceError if the cursor is closed."""

    def _forget(self) -> None:
        self._columns: tuple[OutputColumn, ...] = ()
        self._rows: list[Row] = []
        self._intervals: list[tuple[Interval | None, ...]] = []
        self._cost = Fraction(0)
        self._next = 0
        self._messages: list[Message] = []

    def _keep(self, result: Result) -> None:
        self._columns = result.columns
        self._rows += result.rows
        self._intervals += result.intervals
        self._cost += result.cost
        self._messages += [(errors.Warning, f"{notice.message} ({notice.hint})") for notice in result.notices]

    # --- what was answered

    @property
    def description(self) -> list[Description] | None:
        """Return (name, type_code, None, None, precision, scale, None) of each column; None without rows."""
        return [_described(column) for column in self._columns] or None

    @property
    def rowcount(self) -> int:
        """Return the number of rows of the answer, or -1 before there is one."""
        return len(self._rows) if self._columns else -1

    @property
    def rownumber(self) -> int | None:
        """Return the index of the row that is fetched next, or None without rows."""
        return self._next if self._columns else None

    @property
    def intervals(self) -> list[tuple[Interval | None, ...]]:
        """Return for each row of the answer, and each column, its (low, high), or None where it is exact."""
        return self._intervals

    @property
    def cost(self) -> Fraction:
        """Return the rho that the answer was charged on the dearest cell; 0 when it was free."""
        return self._cost

    @property
    def messages(self) -> list[Message]:
        """Return what is to be known of the answer, as (Warning, text): for example which groups were left out."""
        return self._messages

    # --- fetching

    def fetchone(self) -> Row | None:
        """Return the next row, or None when there is no more."""
        rows = self.fetchmany(1)
        return rows[0] if rows else None

    def fetchmany(self, size: int | None = None) -> list[Row]:
        """Return the next `size` rows, by default `arraysize`; fewer when there are no more."""
        wanted = self.arraysize if size is None else size
        return self._fetch(max(0, wanted))

    def fetchall(self) -> list[Row]:
        """Return all rows that were not fetched yet."""
        return self._fetch(len(self._rows))

    def _fetch(self, wanted: int) -> list[Row]:
        self._check()
        if not self._columns:
            raise ProgrammingError("there is no answer to fetch: ask a SELECT first", sqlstate="24000")
        rows = self._rows[self._next : self._next + wanted]
        self._next += len(rows)
        return rows

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Row:
        row = self.fetchone()
        if row is None:
            raise StopIteration
        return row


def _described(column: OutputColumn) -> Description:
    decimal = re.fullmatch(r"DECIMAL\((\d+),\s*(\d+)\)", column.type)
    precision, scale = (int(decimal[1]), int(decimal[2])) if decimal else (None, None)
    return column.name, column.type, None, None, precision, scale, None
