"""The exceptions of PEP 249, and which of them stands for which SQLSTATE."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager

from planner.basics.errors import Refusal, Span


class Warning(Exception):  # noqa: A001 - PEP 249 names it so
    """Required by PEP 249; the gate has none."""


class Error(Exception):
    """Base of all errors: str() is the message, and the hint and the place in the SQL are notes below it.

    Args:
        sqlstate: five characters, as PostgreSQL names the reason.
        hint: what would work instead, or None.
        span: first and last character of the offending piece of SQL, counted from 0, or None.
    """

    def __init__(
        self, message: str, *, sqlstate: str = "XX000", hint: str | None = None, span: Span | None = None
    ) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate
        self.hint = hint
        self.span = span

    @property
    def position(self) -> int | None:
        """Return where the offending piece of SQL starts, in characters counted from 1, as in PostgreSQL."""
        return None if self.span is None else self.span[0] + 1


class InterfaceError(Error):
    """The module was used wrongly: something is closed, or nothing was asked yet."""


class DatabaseError(Error):
    """The question was not answered."""


class DataError(DatabaseError):
    """A value is outside what is allowed, or an expression fails on the public domain."""


class OperationalError(DatabaseError):
    """The budget, a limit, a login, the ledger or a source stands in the way."""


class IntegrityError(DatabaseError):
    """Required by PEP 249; the gate never writes."""


class InternalError(DatabaseError):
    """Something went wrong inside the gate."""


class ProgrammingError(DatabaseError):
    """The SQL, its parameters or the policy are wrong."""


class NotSupportedError(DatabaseError):
    """It is SQL, but not a question that can be answered privately here."""


# By class, the first two characters of a SQLSTATE.
BY_CLASS: dict[str, type[Error]] = {
    "0A": NotSupportedError,
    "22": DataError,
    "28": OperationalError,  # login
    "42": ProgrammingError,
    "53": OperationalError,  # the budget
    "54": OperationalError,  # limits
    "58": OperationalError,  # the ledger and the sources
    "F0": ProgrammingError,  # the policy file
    "XX": InternalError,
}
UNEXPECTED = "something went wrong inside the gate"


def from_refusal(refusal: Refusal, sql: str | None = None) -> Error:
    """Return the refusal as an exception of PEP 249, with the place in `sql` and the hint as notes."""
    kind = BY_CLASS.get(refusal.sqlstate[:2], DatabaseError)
    error = kind(refusal.message, sqlstate=refusal.sqlstate, hint=refusal.hint, span=refusal.span)
    for line in (*pointer(sql, refusal.span), *([f"hint: {refusal.hint}"] if refusal.hint else [])):
        error.add_note(line)
    return error


@contextmanager
def translated(sql: str | None = None) -> Iterator[None]:
    """Run a block so that only exceptions of PEP 249 leave it.

    Guarantee: the text of an exception that is not ours never becomes a message.
    """
    try:
        yield
    except Error:
        raise
    except Refusal as refusal:
        raise from_refusal(refusal, sql) from refusal
    except Exception as error:
        raise InternalError(UNEXPECTED) from error


def pointer(sql: str | None, span: Span | None) -> list[str]:
    """Return the line of `sql` in which a span starts, and a line with carets below the piece; or nothing.

    >>> print("\\n".join(pointer("SELECT *\\nFROM adult", (14, 18))))
    LINE 2: FROM adult
                 ^^^^^
    """
    if sql is None or span is None or not 0 <= span[0] < len(sql):
        return []
    first, last = span
    start = sql.rfind("\n", 0, first) + 1
    end = sql.find("\n", first)
    line = sql[start : end if end >= 0 else len(sql)]
    place = f"LINE {sql.count(chr(10), 0, first) + 1}: "
    before, piece = line[: first - start], line[first - start : last - start + 1]
    blank = " " * (len(place) + _columns(before))
    return [place + printable(line), blank + "^" * max(1, _columns(piece))]


def printable(text: str) -> str:
    """Return the text on one line and without control characters, which could act on a terminal."""
    return "".join(" " if c in "\t\n" else c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _columns(text: str) -> int:
    """Return how many columns a terminal needs for the text; combining marks need none."""
    shown = [c for c in printable(text) if not unicodedata.combining(c)]
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in shown)
