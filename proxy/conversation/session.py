"""One client's conversation after its login: messages in, bytes out. Knows no sockets and never waits.

`handle` is a generator. It yields `Work`, which whoever drives it does in a thread and sends back the value of (or
throws in what it raised), and `SEND`, after which what was said so far should be on its way. So a test drives a
conversation with a loop of three lines, and the server with asyncio.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from planner.basics.errors import Refusal
from planner.plans.result import Columns
from planner.session import Session
from proxy.catalog.types import Column, Description
from proxy.catalog.variables import NOTICES, Variables
from proxy.conversation import columnar, copying
from proxy.conversation.answer_cache import Recall, key_of
from proxy.conversation.local import Own
from proxy.conversation.portals import (
    MOST_HELD,
    MOST_HELD_BY_ANALYST,
    Portal,
    Prepared,
    Problem,
    Shelf,
    coerced,
    decoded,
    spread,
)
from proxy.conversation.route import Answers, Desk, Outcome, size_of
from proxy.conversation.script import read_script
from proxy.conversation.statements import Ask, Copy, Declare, End, Fetch, Savepoint, Statement, query_of
from proxy.conversation.ticket import KEPT, NOTHING_SPENT, Ticket
from proxy.conversation.transaction import Transaction, changed
from proxy.errors import UNEXPECTED
from proxy.wire import messages as m
from proxy.wire import replies, rows
from proxy.wire.messages import Message
from proxy.wire.replies import Complaint, Severity, Status
from proxy.wire.state import Event, State, after
from proxy.wire.text import Encoder
from proxy.wire.values import Format, encoder

CHUNK, CHUNK_BYTES = 1_000, 2**18
"""Rows, and about how many bytes of memory they take, that are encoded at once; more goes out piece by piece."""

FEW, FEW_BYTES = 200, 2**16
"""Rows, and their bytes, that are encoded without another thread: in less than a millisecond."""

SHORT_SQL = 2_000
"""Longest text that is read without another thread, and kept as it was read."""

MUCH, MANY = 50_000, 500
"""Bytes and number of values that take another thread to be read."""

LONG_SQL = 1_000_000
"""Longest text of a message with SQL, in characters."""


@dataclass(frozen=True)
class Work:
    """Something that takes its time; what has a ticket can be stopped on its way. `what` is for the log."""

    what: str
    run: Callable[[], Any]  # Any: each kind of work gives something else
    ticket: Ticket = field(default_factory=Ticket)

    def do(self) -> Any:
        """Return what it gives, done in this thread; stopping the ticket interrupts it."""
        return self.ticket.carry(self.run)


class Send:
    """A point at which what was said should be sent, and the client given time to read it."""


SEND = Send()
Steps = Generator[Work | Send, Any, None]


@dataclass(frozen=True)
class Ended:
    """How a statement ended, for whoever counts: SQLSTATE 00000 is well."""

    sqlstate: str
    rows: int = 0
    outcome: Outcome | None = None


class Conversation:
    """Takes each message of a logged-in client to its end."""

    def __init__(
        self,
        session: Session,
        *,
        variables: Variables,
        make_catalog: Callable[[Callable[[str], str | None]], Answers],
        recall: Recall | None = None,
        on_end: Callable[[Ended], None] = lambda _: None,
        held_elsewhere: Callable[[], int] = lambda: 0,
    ) -> None:
        self.state = State.READY
        self._session = session
        self._desk = Desk(session, lambda: make_catalog(self.setting))
        self._shelf = Shelf()
        self._own = Own(session, variables, self._shelf, warn=self._warn)
        self._told = variables
        self._out: list[bytes] = []
        self._recall = recall
        self._on_end = on_end
        self._held_elsewhere = held_elsewhere
        self._sending: Portal | None = None  # the one that a simple query is read from
        self._ticket: Ticket | None = None

    def take(self) -> bytes:
        """Return what is to be sent, once."""
        data = b"".join(self._out)
        self._out.clear()
        return data

    @property
    def variables(self) -> Variables:
        return self._own.variables

    @property
    def transaction(self) -> Transaction:
        return self._own.transaction

    @property
    def unsent(self) -> int:
        """Return how many bytes wait to be sent."""
        return sum(map(len, self._out))

    @property
    def held(self) -> int:
        """Return about how many bytes the rows take that are kept for the client."""
        return self._shelf.held + (0 if self._sending is None else self._sending.size)

    def setting(self, name: str) -> str | None:
        """Return the value of a setting by name, or None."""
        try:
            return self._own.show(name)
        except Refusal:
            return None

    # --- messages

    def handle(self, message: Message) -> Steps:
        """Do what a message asks for; ProtocolViolation if it has no place here."""
        before, self.state = self.state, after(self.state, message)
        if before is State.SKIPPING and not isinstance(message, m.Sync):
            return
        self._ticket = None
        try:
            yield from self._handled(message)
        except GeneratorExit:
            raise
        except Exception as error:
            self._fail(error, in_batch=self.state is State.BATCH)
        if isinstance(message, m.Query | m.FunctionCall | m.Sync):
            self._ready()

    def _handled(self, message: Message) -> Steps:
        match message:
            case m.Query():
                yield from self._query(message.sql)
            case m.Parse():
                yield from self._parse(message)
            case m.Bind():
                yield from self._bind(message)
            case m.Describe():
                yield from self._describe(message)
            case m.Execute():
                yield from self._execute(message)
            case m.Close():
                self._close(message)
            case m.Flush():
                yield SEND
            case m.FunctionCall():
                raise Problem("0A000", "functions can't be called by number", hint="use SELECT")
            case _:
                pass  # Sync ends a batch, the pieces of a COPY that was never asked for mean nothing

    def _fail(self, error: Exception, *, in_batch: bool) -> None:
        self._out.append(replies.complaint(self._complaint(error)))
        self.transaction.fail()
        if in_batch:
            self.state = after(self.state, Event.FAILED)

    def _complaint(self, error: Exception) -> Complaint:
        """Return what the client is told of an error, and tell whoever counts.

        Guarantee: the text of an exception that is not ours never reaches a client.
        """
        match error:
            case Problem():
                found = error.complaint
            case Refusal():
                found = self._refused(error)
            case _:
                found = Complaint(UNEXPECTED, "XX000", detail=self._spent())
        self._on_end(Ended(found.sqlstate))
        return found

    def _refused(self, error: Refusal) -> Complaint:
        place = None if error.span is None else error.span[0] + 1
        return Complaint(error.message, error.sqlstate, detail=self._spent(), hint=error.hint, position=place)

    def _spent(self) -> str | None:
        """Return what became of the budget, if a question was on its way."""
        return None if self._ticket is None else KEPT if self._ticket.charged else NOTHING_SPENT

    def _ready(self) -> None:
        if self.transaction.status is Status.IDLE:
            self._shelf.end_transaction(committed=True)
        if self.variables is not self._told:
            changes = changed(self._told.reported(), self.variables.reported())
            self._out.append(replies.parameters(changes))
            self._told = self.variables
        self._out.append(replies.ready(self.transaction.status))

    def _notice(self, message: str, detail: str | None = None) -> None:
        if self.variables.show("client_min_messages") not in ("warning", "error", "fatal", "panic"):
            self._out.append(replies.complaint(Complaint(message, "00000", Severity.NOTICE, detail=detail)))

    def _warn(self, message: str, *, sqlstate: str) -> None:
        if self.variables.show("client_min_messages") not in ("error", "fatal", "panic"):
            self._out.append(replies.complaint(Complaint(message, sqlstate, Severity.WARNING)))

    # --- the simple protocol

    def _query(self, sql: str) -> Steps:
        """Run all statements of a text, after all of it was read."""
        statements = yield from self._read(sql)
        if not statements:
            self._out.append(replies.EMPTY_QUERY)
        if len(statements) > 1:
            yield Work("read", lambda: self._check(statements))
        for statement in statements:
            portal = Portal(Prepared(statement, sql))
            yield from self._run(portal)
            self._sending = portal
            try:
                yield from self._send(portal, most=0, describe=True)
            finally:
                self._sending = None

    def _read(self, sql: str) -> Generator[Work | Send, Any, list[Statement]]:
        if len(sql) > LONG_SQL:
            raise Problem("54000", f"the text has more than {LONG_SQL:,} characters", hint="send less at a time")
        if len(sql) < SHORT_SQL:
            return list(_read_short(sql))
        found: list[Statement] = yield Work("read", lambda: read_script(sql))
        return found

    def _check(self, statements: Iterable[Statement]) -> None:
        for statement in statements:
            question = query_of(statement)
            if question is not None:
                self._desk.check(question.sql)

    # --- the extended protocol

    def _parse(self, message: m.Parse) -> Steps:
        statements = yield from self._read(message.sql)
        if len(statements) > 1:
            raise Problem("42601", "cannot insert multiple commands into a prepared statement")
        statement = statements[0] if statements else None
        self._refuse_in_failed(statement)
        prepared = Prepared(statement, message.sql, message.types)
        if query_of(statement) is None if statement else True:
            prepared.types = message.types
        self._shelf.keep_statement(message.name, prepared)
        self._out.append(replies.PARSE_COMPLETE)

    def _bind(self, message: m.Bind) -> Steps:
        prepared = self._shelf.statement(message.statement)
        self._refuse_in_failed(prepared.statement)
        if prepared.types is None:
            sql = self._question(prepared).sql
            if "$" in sql:
                prepared.types = yield Work("read", lambda: self._desk.types(sql, prepared.stated))
            else:
                prepared.types = prepared.stated
        values = yield from self._decoded(prepared, message)
        portal = Portal(prepared, values, message.result_formats)
        self._shelf.keep_portal(message.portal, portal)
        self._out.append(replies.BIND_COMPLETE)

    def _decoded(self, prepared: Prepared, message: m.Bind) -> Generator[Work | Send, Any, tuple[object, ...]]:
        size = sum(len(value or b"") for value in message.values)
        if size < MUCH and len(message.values) < MANY:
            return decoded(prepared, message.values, message.formats)
        found: tuple[object, ...] = yield Work("read", lambda: decoded(prepared, message.values, message.formats))
        return found

    @staticmethod
    def _question(prepared: Prepared) -> Ask:
        question = query_of(prepared.statement) if prepared.statement else None
        assert question is not None
        return question

    def _describe(self, message: m.Describe) -> Steps:
        if message.what == m.STATEMENT:
            prepared = self._shelf.statement(message.name)
            yield from self._describe_statement(prepared)
            assert prepared.description is not None
            self._out.append(replies.parameter_description(prepared.types or ()))
            self._describe_columns(prepared.description.columns, ())
        else:
            portal = self._shelf.portal(message.name)
            columns = yield from self._portal_columns(portal)
            self._describe_columns(columns, portal.formats)

    def _describe_statement(self, prepared: Prepared) -> Steps:
        if prepared.description is not None:
            return
        question = query_of(prepared.statement) if prepared.statement else None
        if question is None:
            columns = self._own.columns(prepared.statement)
            prepared.description = Description(columns, prepared.types or ())
            return
        sql = question.sql
        found: Description = yield Work("describe", lambda: self._desk.describe(sql, prepared.stated))
        prepared.types = found.parameters
        shows = isinstance(prepared.statement, Ask)  # DECLARE and COPY give no rows of the ordinary kind
        prepared.description = found if shows else replace(found, columns=())

    def _portal_columns(self, portal: Portal) -> Generator[Work | Send, Any, tuple[Column, ...]]:
        """Return the columns of a portal, which are those that its statement was described with."""
        if portal.columns is not None:
            return portal.columns
        prepared = portal.prepared
        if portal.outcome is not None:
            portal.columns = portal.outcome.columns
        elif prepared.description is not None:
            portal.columns = prepared.description.columns
        elif (known := self._recalled(prepared.statement, portal)) is not None:
            portal.columns = known.columns
        elif isinstance(prepared.statement, Ask):
            sql = prepared.statement.sql
            portal.columns = yield Work(
                "describe", lambda: self._desk.columns(sql, portal.values, prepared.types or ())
            )
        else:
            portal.columns = self._own.columns(prepared.statement)
        if isinstance(prepared.statement, Ask) and prepared.description is None:
            prepared.description = Description(portal.columns, prepared.types or ())
        return portal.columns

    def _recalled(self, statement: Statement | None, portal: Portal) -> Outcome | None:
        """Return the answer to a question that was answered before, if it is still that."""
        if self._recall is None or not isinstance(statement, Ask):
            return None
        key = key_of(statement.sql, portal.values, self._session.settings)
        return self._recall.get(key, self._recall.stamp())

    def _describe_columns(self, columns: Sequence[Column], formats: Sequence[Format]) -> None:
        if not columns:
            self._out.append(replies.NO_DATA)
            return
        self._out.append(row_description(columns, spread(formats, len(columns))))

    def _execute(self, message: m.Execute) -> Steps:
        portal = self._shelf.portal(message.portal)
        if portal.prepared.statement is None:
            self._out.append(replies.EMPTY_QUERY)
            return
        if portal.outcome is None:
            yield from self._run(portal)
        yield from self._send(portal, most=message.most, describe=False)

    def _close(self, message: m.Close) -> None:
        kept = self._shelf.statements if message.what == m.STATEMENT else self._shelf.portals
        kept.pop(message.name, None)
        self._out.append(replies.CLOSE_COMPLETE)

    # --- running a portal, once

    def _run(self, portal: Portal) -> Steps:
        """Run the statement of a portal and keep what it gave; whatever it charges, it charges here."""
        statement = portal.prepared.statement
        assert statement is not None
        self._refuse_in_failed(statement)
        match statement:
            case Ask(sql=sql) | Copy(query=Ask(sql=sql)):
                outcome = yield from self._asked(sql, portal)
            case Fetch():
                outcome = yield from self._fetched(statement, portal)
            case Declare():
                outcome = yield from self._declared(statement, portal)
            case _:
                outcome = self._own.do(statement)
        description = portal.prepared.description
        if isinstance(statement, Ask) and description is not None:
            outcome = coerced(outcome, description.columns)
        self._check_room(outcome)
        portal.outcome = outcome
        if not isinstance(statement, Copy):
            portal.columns = outcome.columns

    def _asked(self, sql: str, portal: Portal) -> Generator[Work | Send, Any, Outcome]:
        key = key_of(sql, portal.values, self._session.settings)
        stamp = self._recall.stamp() if self._recall else None
        outcome = self._recall.get(key, stamp) if self._recall else None
        if outcome is None:
            ticket = self._ticket = Ticket()
            types = portal.prepared.types or ()
            outcome = yield Work("ask", lambda: self._desk.ask(sql, portal.values, types, ticket), ticket)
            if self._recall:
                self._recall.put(key, outcome, stamp=stamp)
        self._ticket = None
        if outcome.price is not None and self.variables.show(NOTICES) == "on":
            self._notice(outcome.price.notice, outcome.price.detail)
        return outcome

    def _check_room(self, outcome: Outcome) -> None:
        """Refuse rows for which a session, or all of an analyst's, would have to keep too much at once."""
        held = self.held + outcome.size
        for what, total, most in (
            ("this connection keeps", held, MOST_HELD),
            ("your connections keep", held + self._held_elsewhere(), MOST_HELD_BY_ANALYST),
        ):
            if outcome.size and total > most:
                megabytes = f"{total / 2**20:,.0f} MB of rows, the limit is {most / 2**20:,.0f} MB"
                paid = "; what was paid for is kept" if outcome.cost else ""
                raise Problem(
                    "53200", f"with this answer {what} {megabytes}{paid}", hint="close cursors, or ask for fewer rows"
                )

    def _refuse_in_failed(self, statement: Statement | None) -> None:
        """Refuse all but the end of a transaction that has failed."""
        ends = isinstance(statement, End) or (isinstance(statement, Savepoint) and statement.verb == "ROLLBACK")
        if self.transaction.status is Status.FAILED and not ends and statement is not None:
            raise Problem("25P02", "current transaction is aborted, commands ignored until end of transaction block")

    # --- cursors

    def _declared(self, declare: Declare, portal: Portal) -> Generator[Work | Send, Any, Outcome]:
        if self.transaction.status is Status.IDLE and not declare.hold:
            raise Problem("25P01", "DECLARE CURSOR can only be used in transaction blocks")
        types = portal.prepared.types or ()
        columns = yield Work("describe", lambda: self._desk.columns(declare.query.sql, portal.values, types))
        cursor = Portal(
            Prepared(declare.query, portal.prepared.sql, types=types),
            portal.values,
            (Format.BINARY,) if declare.binary else (),
            columns,
            hold=declare.hold,
            forward_only=declare.forward_only,
            binary=declare.binary,
            declared=True,
        )
        self._shelf.keep_portal(declare.name, cursor)
        return Outcome("DECLARE CURSOR")

    def _fetched(self, fetch: Fetch, portal: Portal) -> Generator[Work | Send, Any, Outcome]:
        cursor = self._shelf.cursor(fetch.cursor)
        if cursor.outcome is None:
            yield from self._run(cursor)
        found = cursor.fetch(fetch)
        if fetch.move:
            return Outcome(f"MOVE {len(found)}")
        portal.binary = cursor.binary
        assert cursor.outcome is not None
        return Outcome(f"FETCH {len(found)}", cursor.outcome.columns, found)

    # --- what a portal gave

    def _send(self, portal: Portal, *, most: int, describe: bool) -> Steps:
        """Send the rows of a portal that has run, or the next of them, and its tag."""
        outcome, statement = portal.outcome, portal.prepared.statement
        assert outcome is not None
        if isinstance(statement, Copy):
            yield from self._send_copy(statement, outcome)
        elif outcome.columns:
            yield from self._send_rows(portal, outcome, most=most, describe=describe)
        else:
            self._out.append(replies.complete(outcome.tag))
            self._on_end(Ended("00000", 0, outcome))

    def _send_rows(self, portal: Portal, outcome: Outcome, *, most: int, describe: bool) -> Steps:
        formats = (
            [Format.BINARY] * len(outcome.columns) if portal.binary else spread(portal.formats, len(outcome.columns))
        )
        if describe:
            self._out.append(row_description(outcome.columns, formats))
        found = portal.take(most)
        if _is_small(found) and len(found) == len(outcome.rows):
            self._out.append(_written(outcome, formats))
        else:
            encoders = _encoders(outcome.columns, formats)
            yield from self._send_chunks(found, functools.partial(_data_rows, encoders=encoders))
        if most and len(found) == most:
            self._out.append(replies.PORTAL_SUSPENDED)
        else:
            verb = outcome.tag.partition(" ")[0]
            self._out.append(replies.complete(f"{verb} {len(found)}" if " " in outcome.tag else verb))
            if portal.is_spent:
                portal.end()
        self._on_end(Ended("00000", len(found), outcome))

    def _send_copy(self, copy: Copy, outcome: Outcome) -> Steps:
        writer = copying.Writer(copy, outcome.columns)
        self._out.append(writer.start())
        yield from self._send_chunks(outcome.rows, writer.some)
        self._out.append(writer.end() + replies.complete(f"COPY {len(outcome.rows)}"))
        self._on_end(Ended("00000", len(outcome.rows), outcome))

    def _send_chunks(self, found: Sequence[tuple[object, ...]], write: Callable[[Sequence[Any]], bytes]) -> Steps:
        """Encode rows piece by piece; a long result in another thread, and no faster than the client reads."""
        if _is_small(found):
            self._out.append(write(found))
            return
        count = _rows_at_once(found)
        for start in range(0, len(found), count):
            chunk = found[start : start + count]
            self._out.append((yield Work("encode", functools.partial(write, chunk))))
            yield SEND


@functools.lru_cache(maxsize=1_000)
def _read_short(sql: str) -> tuple[Statement, ...]:
    return tuple(read_script(sql))


def _is_small(found: Sequence[tuple[object, ...]]) -> bool:
    return len(found) <= FEW and size_of(found) <= FEW_BYTES


def _rows_at_once(found: Sequence[tuple[object, ...]]) -> int:
    """Return how many rows of a result are encoded at once: fewer if they are long."""
    return max(1, min(CHUNK, CHUNK_BYTES * len(found) // max(1, size_of(found))))


def _data_rows(found: Sequence[Any], *, encoders: Sequence[Encoder]) -> bytes:
    return columnar.data_rows(found, encoders) if isinstance(found, Columns) else rows.data_rows(found, encoders)


def _encoders(columns: Sequence[Column], formats: Sequence[Format]) -> list[Encoder]:
    return [encoder(column.oid, form) for column, form in zip(columns, formats, strict=True)]


def _written(outcome: Outcome, formats: Sequence[Format]) -> bytes:
    """Return all rows of an outcome as bytes, written once: a free answer is sent many times."""
    key = tuple(formats)
    if key not in outcome.written:
        outcome.written[key] = rows.data_rows(outcome.rows, _encoders(outcome.columns, formats))
    return outcome.written[key]


def row_description(columns: Sequence[Column], formats: Sequence[Format]) -> bytes:
    """Return the RowDescription of columns in these formats."""
    return _row_description(tuple(columns), tuple(formats))


@functools.lru_cache(maxsize=1_000)
def _row_description(columns: tuple[Column, ...], formats: tuple[Format, ...]) -> bytes:
    fields = [
        replies.Field(column.name, column.oid, column.typlen, column.typmod, form)
        for column, form in zip(columns, formats, strict=True)
    ]
    return replies.row_description(fields)
