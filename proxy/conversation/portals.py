"""PreparedStatement statements, portals and cursors of one session: what is kept between messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from proxy.catalog.types import Column, Description
from proxy.conversation.route import Outcome
from proxy.conversation.statements import Fetch, Statement
from proxy.limits import MAX_PORTALS
from proxy.wire.replies import Complaint
from proxy.wire.values import Format, decoder

Row = tuple[object, ...]


class Problem(Exception):
    """A statement of the session can't be done; carries what the client is told."""

    def __init__(self, sqlstate: str, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.complaint = Complaint(message=message, sqlstate=sqlstate, hint=hint)


@dataclass
class PreparedStatement:
    """A statement that was parsed; None is the empty one. `description` is filled in when it is first needed."""

    statement: Statement | None
    sql: str = ""
    stated: tuple[int, ...] = ()
    types: tuple[int, ...] | None = None
    description: Description | None = None


@dataclass(kw_only=True)
class Portal:
    """A statement with its values, and once it has run its rows and how far they were fetched.

    `place` is the number of the row that the cursor stands on: 0 before the first, one past the last after it.
    """

    prepared: PreparedStatement
    values: tuple[object, ...] = ()
    formats: tuple[Format, ...] = ()
    columns: tuple[Column, ...] | None = None
    outcome: Outcome | None = None
    place: int = 0
    hold: bool = False
    held: bool = False
    forward_only: bool = False
    binary: bool = False
    declared: bool = False  # by DECLARE: it may go back

    @property
    def is_spent(self) -> bool:
        """Whether nothing more can be read from it."""
        return self.outcome is not None and not self.declared and self.place >= len(self.outcome.rows)

    @property
    def size(self) -> int:
        """About how many bytes its rows take."""
        return 0 if self.outcome is None else self.outcome.size

    def end(self) -> None:
        """Forget the rows of a portal that was read to its end: it only ever goes forward."""
        assert self.outcome is not None
        self.outcome, self.place = replace(self.outcome, rows=[], written={}), 0

    def take(self, most: int) -> Sequence[Row]:
        """Return the next rows, as Execute asks for them: at most `most`, all for 0."""
        assert self.outcome is not None
        rows = self.outcome.rows
        end = len(rows) if most == 0 else min(len(rows), self.place + most)
        found = rows[self.place : end]
        self.place = end
        return found

    def fetch(self, fetch: Fetch) -> Sequence[Row]:
        """Return the rows that FETCH or MOVE goes over, and go there."""
        assert self.outcome is not None
        rows = self.outcome.rows
        way, count = fetch.way, fetch.count
        if count is not None and count < 0 and way in ("forward", "backward"):
            way, count = ("backward" if way == "forward" else "forward"), -count
        if self.forward_only and (way in ("backward", "absolute") or (count or 1) < 0):
            raise Problem("55000", "cursor can only scan forward", hint="declare it with SCROLL option")
        if way == "forward":
            return self._forward(rows, len(rows) + 1 if count is None else count)
        if way == "backward":
            return self._backward(rows, len(rows) + 1 if count is None else count)
        return self._jump(rows, count or 0, relative=way == "relative")

    def _forward(self, rows: Sequence[Row], count: int) -> Sequence[Row]:
        if count == 0:
            return self._here(rows)
        start = min(self.place, len(rows))
        found = rows[start : start + count]
        # As PostgreSQL: behind the last row only if more were asked for than there are.
        self.place = start + len(found) + (len(found) < count)
        return found

    def _backward(self, rows: Sequence[Row], count: int) -> Sequence[Row]:
        if count == 0:
            return self._here(rows)
        before = min(self.place, len(rows) + 1) - 1
        first = max(0, before - count)
        found = rows[first : max(0, before)][::-1]
        self.place = first + 1 if len(found) == count else 0
        return found

    def _jump(self, rows: Sequence[Row], count: int, *, relative: bool) -> Sequence[Row]:
        target = self.place + count if relative else count if count >= 0 else len(rows) + 1 + count
        self.place = max(0, min(target, len(rows) + 1))
        return self._here(rows)

    def _here(self, rows: Sequence[Row]) -> Sequence[Row]:
        return rows[self.place - 1 : self.place] if 1 <= self.place <= len(rows) else []


def decoded(
    prepared: PreparedStatement, values: Sequence[bytes | None], formats: Sequence[Format]
) -> tuple[object, ...]:
    """Return the values of a Bind as Python values of the statement's types."""
    types = prepared.types or ()
    if len(values) != len(types):
        message = f"bind message supplies {len(values)} parameters, but the statement requires {len(types)}"
        raise Problem("08P01", message)
    found = []
    for number, (data, oid, form) in enumerate(zip(values, types, spread(formats, len(values)), strict=True), 1):
        try:
            found.append(None if data is None else decoder(oid, form)(data))
        except (ValueError, OverflowError, ArithmeticError):
            raise Problem(
                "22P03" if form else "22P02", f"the value of parameter ${number} does not fit its type"
            ) from None
    return tuple(found)


def spread(formats: Sequence[Format], count: int) -> list[Format]:
    """Return a format for each of `count` values: text if none is given; a single one holds for all."""
    if len(formats) not in (0, 1, count):
        raise Problem("08P01", f"a message has {len(formats)} formats for {count} values")
    return list(formats) if len(formats) == count else [*(formats or (Format.TEXT,))] * count


@dataclass
class PortalStore:
    """The prepared statements and portals of a session, by name; the unnamed one has the name ""."""

    statements: dict[str, PreparedStatement] = field(default_factory=dict)
    portals: dict[str, Portal] = field(default_factory=dict)

    @property
    def held(self) -> int:
        """About how many bytes the rows of all portals take."""
        return sum(portal.size for portal in self.portals.values())

    def keep_statement(self, name: str, prepared: PreparedStatement) -> None:
        if name and name in self.statements:
            raise Problem("42P05", f'prepared statement "{name}" already exists')
        self._room(len(self.statements))
        self.statements[name] = prepared

    def statement(self, name: str) -> PreparedStatement:
        try:
            return self.statements[name]
        except KeyError:
            which = f'prepared statement "{name}"' if name else "unnamed prepared statement"
            raise Problem("26000", f"{which} does not exist") from None

    def keep_portal(self, name: str, portal: Portal) -> None:
        if name and name in self.portals:
            raise Problem("42P03", f'cursor "{name}" already exists')
        self._room(len(self.portals))
        self.portals[name] = portal

    def portal(self, name: str) -> Portal:
        try:
            return self.portals[name]
        except KeyError:
            raise Problem("34000", f'portal "{name}" does not exist') from None

    def cursor(self, name: str) -> Portal:
        try:
            return self.portals[name]
        except KeyError:
            raise Problem("34000", f'cursor "{name}" does not exist') from None

    def close(self, name: str, *, statement: bool) -> None:
        """Forget a prepared statement, or else a portal; none of that name does no harm."""
        if statement:
            self.statements.pop(name, None)
        else:
            self.portals.pop(name, None)

    def end_transaction(self, *, committed: bool) -> None:
        """Drop all portals but cursors WITH HOLD of a transaction that was committed."""
        for portal in self.portals.values():
            portal.held |= portal.hold and committed
        self.portals = {name: portal for name, portal in self.portals.items() if portal.held}

    @staticmethod
    def _room(kept: int) -> None:
        if kept >= MAX_PORTALS:
            raise Problem("54000", f"a session keeps at most {MAX_PORTALS:,} statements and portals", hint="close some")


def coerced(outcome: Outcome, columns: tuple[Column, ...]) -> Outcome:
    """Return an outcome with the columns that were described to the client."""
    if len(columns) != len(outcome.columns):
        raise Problem("0A000", "cached plan must not change result type", hint="prepare the statement again")
    return outcome if columns == outcome.columns else replace(outcome, columns=columns)
