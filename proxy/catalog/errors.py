"""What DuckDB raises, as refusals: with a SQLSTATE, and never with the engine's own text."""

from __future__ import annotations

import re

import duckdb

from planner.basics.errors import (
    DivisionByZero,
    EvaluationFailed,
    NotGrouped,
    Refusal,
    TooLarge,
    UnknownColumn,
    UnknownFunction,
    Unsupported,
)

TOO_LARGE = "noisegate: too large"
"""What the engine is made to say when a value would fill the memory, which it does not count in its limit."""

HINT = "the catalog answers what PostgreSQL's clients ask about tables, columns and types"


class InvalidText(Refusal):
    """A text is not a value of the type that it should be."""

    sqlstate = "22P02"


class OutOfRange(Refusal):
    """A number is too large for its type."""

    sqlstate = "22003"


def refusal_of(error: duckdb.Error) -> Refusal:
    """Return the refusal for an error of the engine's; names of columns are those that the statement has."""
    text = str(error)
    if TOO_LARGE in text:
        return TooLarge("the statement makes a value that is too large", hint="ask for less at a time")
    if "ivision by zero" in text:
        return DivisionByZero("division by zero", hint="check the divisor")
    missing = re.search(r'(?:column named|Referenced column) "([^"]+)"|Column "([^"]+)" referenced that exists', text)
    match error:
        case duckdb.InterruptException():
            return TooLarge("the statement takes too long to evaluate", hint="ask for less at a time")
        case duckdb.OutOfMemoryException():
            return TooLarge("the answer needs more memory than the catalog has", hint="add a LIMIT")
        case duckdb.ConversionException() if "out of range" in text:
            return OutOfRange("value out of range", hint="check the numbers")
        case duckdb.ConversionException():
            return InvalidText("a value can't be read as the type that it should have", hint="check the values")
        case duckdb.OutOfRangeException():
            return OutOfRange("value out of range", hint="check the numbers")
        case duckdb.BinderException() if missing:
            return UnknownColumn(f'column "{missing[1] or missing[2]}" does not exist', hint="check its name")
        case duckdb.BinderException() if "GROUP BY" in text:
            return NotGrouped("a column must appear in GROUP BY or in an aggregate", hint="add it to GROUP BY")
        case duckdb.BinderException() if "No function matches" in text:
            return UnknownFunction("no function or operator takes values of these types", hint="add casts")
        case duckdb.CatalogException():
            return UnknownFunction("the statement calls a function that is not known here", hint=HINT)
        case duckdb.BinderException() | duckdb.ParserException() | duckdb.NotImplementedException():
            return Unsupported("the catalog can't answer this statement", hint=HINT)
        case _:
            return EvaluationFailed("the statement can't be evaluated", hint="check the types and values")
