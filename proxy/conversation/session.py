"""One client's conversation after its login: messages in, bytes out. Knows no sockets and never waits.

`handle` is a generator. It yields `Work`, which whoever drives it does in a thread and sends back the value of (or
throws in what it raised), and `SEND`, after which what was said so far should be on its way. So a test drives a
conversation with a loop of three lines, and the server with asyncio.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable

from planner.basics.errors import Refusal
from planner.plans.presence import Notice
from planner.session import Session
from proxy.catalog.variables import NOTICES, Variables
from proxy.conversation.answer_cache import AnswerCache
from proxy.conversation.local import LocalState
from proxy.conversation.outbox import Outbox
from proxy.conversation.portals import Portal, PortalStore, PreparedStatement, Problem, decoded
from proxy.conversation.route import Answers, Price, Router
from proxy.conversation.runner import Runner
from proxy.conversation.script import read_script
from proxy.conversation.statements import Ask, Statement, query_of
from proxy.conversation.steps import SEND, StatementEnd, Steps, StepsTo, Work
from proxy.conversation.ticket import KEPT, NOTHING_SPENT
from proxy.conversation.transaction import Transaction, changes
from proxy.errors import UNEXPECTED
from proxy.limits import MAX_SQL
from proxy.wire import messages as m
from proxy.wire import replies
from proxy.wire.messages import Message
from proxy.wire.replies import Complaint, Severity, Status
from proxy.wire.state import Event, State, after

SHORT_SQL = 2_000
"""Longest text that is read without another thread, and kept as it was read."""

MUCH, MANY = 50_000, 500
"""Bytes and number of values that take another thread to be read."""


class Conversation:
    """Handles the messages of one client after its login."""

    def __init__(
        self,
        session: Session,
        *,
        variables: Variables,
        make_catalog: Callable[[Callable[[str], str | None]], Answers],
        cache: AnswerCache | None = None,
        on_end: Callable[[StatementEnd], None] = lambda _: None,
        held_elsewhere: Callable[[], int] = lambda: 0,
    ) -> None:
        self.state = State.READY
        self._router = Router(session, lambda: make_catalog(self.setting))
        self._store = PortalStore()
        self._local = LocalState(session, variables, self._store, warn=self._warn)
        self._runner = Runner(
            self._router,
            self._store,
            self._local,
            cache=cache,
            held=(lambda: self.held, held_elsewhere),
            on_price=self._say_price,
            on_notice=self._say_notice,
        )
        self._reported = variables
        self._outbox = Outbox()
        self._on_end = on_end
        self._sending: Portal | None = None  # the one that a simple query is read from

    def take(self) -> bytes:
        """Return what is to be sent, once."""
        return self._outbox.take()

    @property
    def variables(self) -> Variables:
        return self._local.variables

    @property
    def transaction(self) -> Transaction:
        return self._local.transaction

    @property
    def unsent(self) -> int:
        """Return how many bytes wait to be sent."""
        return self._outbox.size

    @property
    def held(self) -> int:
        """Return about how many bytes the rows that are kept for the client take."""
        return self._store.held + (0 if self._sending is None else self._sending.size)

    def setting(self, name: str) -> str | None:
        """Return the value of a setting by name, or None."""
        try:
            return self._local.show(name)
        except Refusal:
            return None

    # --- messages

    def handle(self, message: Message) -> Steps:
        """Do what a message asks for; ProtocolViolation if it has no place here."""
        before, self.state = self.state, after(self.state, message)
        if before is State.SKIPPING and not isinstance(message, m.Sync):
            return
        self._runner.ticket = None
        try:
            yield from self._dispatch(message)
        except GeneratorExit:
            raise
        except Exception as error:
            self._fail(error, in_batch=self.state is State.BATCH)
        if isinstance(message, m.Query | m.FunctionCall | m.Sync):
            self._ready()

    def _dispatch(self, message: Message) -> Steps:
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

    def _ready(self) -> None:
        if self.transaction.status is Status.IDLE:
            self._store.end_transaction(committed=True)
        if self.variables is not self._reported:
            self._outbox.say(replies.parameters(changes(self._reported.reported(), self.variables.reported())))
            self._reported = self.variables
        self._outbox.say(replies.ready(self.transaction.status))

    # --- errors and notices

    def _fail(self, error: Exception, *, in_batch: bool) -> None:
        complaint = self._complaint(error)
        self._on_end(StatementEnd(complaint.sqlstate))
        self._outbox.say(replies.complaint(complaint))
        self.transaction.fail()
        if in_batch:
            self.state = after(self.state, Event.FAILED)

    def _complaint(self, error: Exception) -> Complaint:
        """Return what the client is told of an error.

        Guarantee: the text of an exception that is not ours never reaches a client.
        """
        match error:
            case Problem():
                return error.complaint
            case Refusal():
                place = None if error.span is None else error.span[0] + 1
                detail = self._spent()
                return Complaint(
                    message=error.message, sqlstate=error.sqlstate, detail=detail, hint=error.hint, position=place
                )
            case _:
                return Complaint(message=UNEXPECTED, sqlstate="XX000", detail=self._spent())

    def _spent(self) -> str | None:
        """Return what became of the budget, if a question was on its way."""
        ticket = self._runner.ticket
        return None if ticket is None else KEPT if ticket.charged else NOTHING_SPENT

    def _say_price(self, price: Price) -> None:
        hidden = self.variables.show("client_min_messages") in ("warning", "error", "fatal", "panic")
        if self.variables.show(NOTICES) == "on" and not hidden:
            notice = Complaint(message=price.notice, sqlstate="00000", severity=Severity.NOTICE, detail=price.detail)
            self._outbox.say(replies.complaint(notice))

    def _say_notice(self, found: Notice) -> None:
        if self.variables.show("client_min_messages") not in ("warning", "error", "fatal", "panic"):
            notice = Complaint(message=found.message, sqlstate="00000", severity=Severity.NOTICE, hint=found.hint)
            self._outbox.say(replies.complaint(notice))

    def _warn(self, message: str, *, sqlstate: str) -> None:
        if self.variables.show("client_min_messages") not in ("error", "fatal", "panic"):
            self._outbox.say(
                replies.complaint(Complaint(message=message, sqlstate=sqlstate, severity=Severity.WARNING))
            )

    # --- the simple protocol

    def _query(self, sql: str) -> Steps:
        """Run all statements of a text, after all of it was read."""
        statements = yield from self._read(sql)
        if not statements:
            self._outbox.say(replies.EMPTY_QUERY)
        if len(statements) > 1:
            yield Work("read", lambda: self._check(statements))
        for statement in statements:
            portal = Portal(prepared=PreparedStatement(statement, sql))
            yield from self._runner.run(portal)
            self._sending = portal
            try:
                yield from self._send(portal, most=0, describe=True)
            finally:
                self._sending = None

    def _read(self, sql: str) -> StepsTo[list[Statement]]:
        if len(sql) > MAX_SQL:
            raise Problem("54000", f"the text has more than {MAX_SQL:,} characters", hint="send less at a time")
        if len(sql) < SHORT_SQL:
            return list(_read_short(sql))
        statements: list[Statement] = yield Work("read", lambda: read_script(sql))
        return statements

    def _check(self, statements: Iterable[Statement]) -> None:
        for statement in statements:
            question = query_of(statement)
            if question is not None:
                self._router.check(question.sql)

    def _send(self, portal: Portal, *, most: int, describe: bool) -> Steps:
        outcome = portal.outcome
        count = yield from self._outbox.say_result(portal, most=most, describe=describe)
        self._on_end(StatementEnd("00000", count, outcome))

    # --- the extended protocol

    def _parse(self, message: m.Parse) -> Steps:
        statements = yield from self._read(message.sql)
        if len(statements) > 1:
            raise Problem("42601", "cannot insert multiple commands into a prepared statement")
        statement = statements[0] if statements else None
        self._runner.refuse_in_failed(statement)
        prepared = PreparedStatement(statement, message.sql, message.types)
        if query_of(statement) is None if statement else True:
            prepared.types = message.types
        self._store.keep_statement(message.name, prepared)
        self._outbox.say(replies.PARSE_COMPLETE)

    def _bind(self, message: m.Bind) -> Steps:
        prepared = self._store.statement(message.statement)
        self._runner.refuse_in_failed(prepared.statement)
        if prepared.types is None:
            sql = self._question(prepared).sql
            if "$" in sql:
                prepared.types = yield Work("read", lambda: self._router.types(sql, prepared.stated))
            else:
                prepared.types = prepared.stated
        values = yield from self._decoded(prepared, message)
        portal = Portal(prepared=prepared, values=values, formats=message.result_formats)
        self._store.keep_portal(message.portal, portal)
        self._outbox.say(replies.BIND_COMPLETE)

    def _decoded(self, prepared: PreparedStatement, message: m.Bind) -> StepsTo[tuple[object, ...]]:
        size = sum(len(value or b"") for value in message.values)
        if size < MUCH and len(message.values) < MANY:
            return decoded(prepared, message.values, message.formats)
        values: tuple[object, ...] = yield Work("read", lambda: decoded(prepared, message.values, message.formats))
        return values

    @staticmethod
    def _question(prepared: PreparedStatement) -> Ask:
        question = query_of(prepared.statement) if prepared.statement else None
        assert question is not None
        return question

    def _describe(self, message: m.Describe) -> Steps:
        if message.what == m.STATEMENT:
            prepared = self._store.statement(message.name)
            description = yield from self._runner.describe(prepared)
            self._outbox.say(replies.parameter_description(prepared.types or ()))
            self._outbox.say_columns(description.columns, ())
        else:
            portal = self._store.portal(message.name)
            columns = yield from self._runner.columns(portal)
            self._outbox.say_columns(columns, portal.formats)

    def _execute(self, message: m.Execute) -> Steps:
        portal = self._store.portal(message.portal)
        if portal.prepared.statement is None:
            self._outbox.say(replies.EMPTY_QUERY)
            return
        if portal.outcome is None:
            yield from self._runner.run(portal)
        yield from self._send(portal, most=message.most, describe=False)

    def _close(self, message: m.Close) -> None:
        self._store.close(message.name, statement=message.what == m.STATEMENT)
        self._outbox.say(replies.CLOSE_COMPLETE)


@functools.lru_cache(maxsize=1_000)
def _read_short(sql: str) -> tuple[Statement, ...]:
    return tuple(read_script(sql))
