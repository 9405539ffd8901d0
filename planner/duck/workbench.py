"""One connection to the sandbox: SELECTs are run on it within limits, and what fails is said in our own words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import duckdb
import numpy as np

from planner.basics.errors import EvaluationFailed, TooLarge
from planner.basics.limits import MAX_ANSWER_ROWS, SANDBOX_SECONDS
from planner.basics.stopping import running
from planner.basics.watchdog import WATCHDOG
from planner.duck import bounds

PIECE = 500
"""Rows that are made at once: in about half a millisecond."""


def fetched(cursor: duckdb.DuckDBPyConnection, most: int) -> list[tuple[Any, ...]]:
    """Return at most so many rows. DuckDB lets no other thread run while it makes them, so they come piece by piece."""
    rows = list[tuple[Any, ...]]()
    while len(rows) < most and (more := cursor.fetchmany(min(PIECE, most - len(rows)))):
        rows += more
    return rows


class Workbench:
    """One connection to the sandbox: registers arrays, runs SELECTs, says clearly what fails."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection) -> None:
        self._cursor = cursor

    def register(self, name: str, columns: Mapping[str, np.ndarray[Any, Any]]) -> None:
        self._cursor.register(name, dict(columns))

    def run(self, sql: str) -> None:
        """Run one statement of ours that gives no rows; parts of it may be rewritten from the analyst's tree."""
        with self._limited():
            self._cursor.execute(sql)

    @contextmanager
    def _limited(self) -> Iterator[None]:
        """Stop what takes too long or was stopped; DuckDB computes most of a large result while it is fetched."""
        try:
            with WATCHDOG.limit(SANDBOX_SECONDS, self._cursor.interrupt), running(self._cursor.interrupt):
                yield
        except duckdb.InterruptException:
            raise TooLarge(
                f"the query takes longer than {SANDBOX_SECONDS:g} seconds to evaluate", hint="ask about less at a time"
            ) from None
        except duckdb.Error as error:
            raise EvaluationFailed(
                f"the expression can't be evaluated: {_reason(error)}",
                hint="check the types and functions; the public domain of each column is in noisegate.domains",
            ) from None

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Return all rows of a statement; refuse more than an answer may have."""
        with self._limited():
            found = fetched(self._cursor.execute(sql), MAX_ANSWER_ROWS + 1)
        if len(found) > MAX_ANSWER_ROWS:
            raise TooLarge(f"the answer has more than {MAX_ANSWER_ROWS:,} rows", hint="add a LIMIT")
        return found

    def rehearse(self, sql: str) -> None:
        """Run a statement for its shape: raise if a subquery has more than one row where one value is expected."""
        try:
            self.rows(sql)
        except EvaluationFailed as failure:
            if MANY_ROWS in failure.message:
                raise

    def arrays(self, sql: str) -> dict[str, np.ndarray[Any, Any]]:
        """Return the result column by column; an integer or float column has NULL as a masked value."""
        with self._limited():
            return self._cursor.execute(sql).fetchnumpy()

    def types(self, sql: str) -> list[tuple[str, str]]:
        """Return (name, type) of every output column, without running anything."""
        with self._limited():
            return [(row[0], row[1]) for row in self._cursor.execute(f"DESCRIBE {sql}").fetchall()]


MANY_ROWS = "more than one row is returned by a subquery used as an expression"


def _reason(error: duckdb.Error) -> str:
    """Return why an expression failed, in our own words: the engine's name functions and types that nobody wrote."""
    text = str(error)
    own = next((message for message in bounds.MESSAGES if message in text), None)
    match error:
        case _ if own is not None:
            return own
        case _ if "More than one row" in text:
            return MANY_ROWS
        case duckdb.OutOfMemoryException():
            return "it needs more memory than there is for it"
        case duckdb.OutOfRangeException():
            return "a number is out of range"
        case duckdb.ConversionException():
            return "a number is out of range" if "range" in text else "a value can't be read as the type it is cast to"
        case duckdb.BinderException() | duckdb.CatalogException():
            return "no function or operator takes values of these types"
    return "it fails on some value"


def first_line(error: Exception) -> str:
    """Return the first line of an engine's message, without its class name and full stop."""
    line = str(error).splitlines()[0]
    return line.split("Error: ", 1)[-1].rstrip(".")
