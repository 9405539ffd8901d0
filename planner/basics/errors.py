"""Every way in which the gate says no: one class for each decision a caller can take, each with a SQLSTATE."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Span = tuple[int, int]
"""First and last character of the offending piece of SQL, counted from 0, last included."""


class Refusal(Exception):
    """A question was not answered. Nothing was spent, nothing was lost, the connection is usable.

    Args:
        message: one sentence on what is wrong, lower case, no full stop, free of protected values.
        hint: one sentence on what would work.
        span: where in the SQL text, when it is known.
    """

    sqlstate = "XX000"

    def __init__(self, message: str, *, hint: str | None = None, span: Span | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.span = span


class SyntaxRefusal(Refusal):
    """The text is not SQL that we read."""

    sqlstate = "42601"


class Forbidden(Refusal):
    """It would show single rows, write, or reach what the policy hides."""

    sqlstate = "42501"


class RowsAsked(Forbidden):
    """Single rows were asked for."""


class Unsupported(Refusal):
    """It is SQL, but not a question that can be answered privately here."""

    sqlstate = "0A000"


class UnknownTable(Refusal):
    sqlstate = "42P01"


class UnknownColumn(Refusal):
    sqlstate = "42703"


class UnknownParameter(Refusal):
    """A $n that no value can be given for."""

    sqlstate = "42P02"


class AmbiguousColumn(Refusal):
    sqlstate = "42702"


class UnknownFunction(Refusal):
    sqlstate = "42883"


class UnknownSetting(Refusal):
    sqlstate = "42704"


class NotGrouped(Refusal):
    """A column is shown that is neither grouped nor aggregated."""

    sqlstate = "42803"


class WindowMisplaced(Refusal):
    """A window function stands where only rows are, which are never shown."""

    sqlstate = "42P20"


class DivisionByZero(Refusal):
    sqlstate = "22012"


class WrongType(Refusal):
    sqlstate = "42804"


class BadValue(Refusal):
    """A setting, option or parameter has a value outside what is allowed."""

    sqlstate = "22023"


class EvaluationFailed(Refusal):
    """An expression fails on the public domain or on the noisy result."""

    sqlstate = "22000"


class TooLarge(Refusal):
    """The workspace would pass the stated limit."""

    sqlstate = "54000"


class BudgetExceeded(Refusal):
    """A cap would be passed; nothing was charged."""

    sqlstate = "53400"


class TooDear(Refusal):
    """The question costs more than noisegate.max_rho allows."""

    sqlstate = "54P01"


@dataclass(frozen=True)
class Mistake:
    """One thing that is wrong in a policy file: its line, where in the file by dotted keys, and what."""

    line: int | None
    where: str
    text: str

    def render(self, file: str) -> str:
        """Return the mistake as one line that editors can jump to: `noisegate.toml:14: tables.people: …`."""
        place = file if self.line is None else f"{file}:{self.line}"
        return ": ".join(part for part in (place, self.where, self.text) if part)


class PolicyRefusal(Refusal):
    """The policy file is wrong; the message has one line a mistake."""

    sqlstate = "F0000"

    def __init__(self, message: str, *, mistakes: tuple[Mistake, ...] = (), hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.mistakes = mistakes


class UnknownAnalyst(Refusal):
    """The policy knows nobody of that name."""

    sqlstate = "28000"


class SourceFailed(Refusal):
    """The protected source can't be read, or changed under the gate."""

    sqlstate = "58030"


class WrongColumns(SourceFailed):
    """The source lacks columns that the policy declares, or has them in a type that can't be read as declared.

    Args:
        columns: what is wrong with each of them.
    """

    def __init__(self, message: str, *, columns: Mapping[str, str] | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.columns = columns or {}


class LedgerFailed(Refusal):
    """The ledger can't be read or written; nothing is answered without it."""

    sqlstate = "58000"
