"""Runs the statement of a portal, once: whatever it charges, it charges here. Describes it before, for nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from planner.plans.presence import Notice
from proxy.catalog.types import Column, Description
from proxy.conversation.answer_cache import AnswerCache, key_of
from proxy.conversation.local import LocalState
from proxy.conversation.portals import Portal, PortalStore, PreparedStatement, Problem, coerced
from proxy.conversation.route import Outcome, Price, Router
from proxy.conversation.statements import Ask, Copy, Declare, End, Fetch, Savepoint, Statement, query_of
from proxy.conversation.steps import Steps, StepsTo, Work
from proxy.conversation.ticket import Ticket
from proxy.limits import MAX_HELD, MAX_HELD_BY_ANALYST
from proxy.wire.replies import Status
from proxy.wire.values import Format


class Runner:
    """Runs and describes the statements of one session.

    Args:
        cache: free answers that were given before, or None.
        held: returns how many bytes of rows the session keeps, and then all others of its analyst.
        on_price: is told what an answer of the gate's cost.
        on_notice: is told what is to be known of an answer.
    """

    def __init__(
        self,
        router: Router,
        store: PortalStore,
        local: LocalState,
        *,
        cache: AnswerCache | None,
        held: tuple[Callable[[], int], Callable[[], int]],
        on_price: Callable[[Price], None],
        on_notice: Callable[[Notice], None],
    ) -> None:
        self._router, self._store, self._local, self._cache = router, store, local, cache
        self._held, self._held_elsewhere = held
        self._on_price, self._on_notice = on_price, on_notice
        self.ticket: Ticket | None = None  # of the question that is being answered

    # --- describing

    def describe(self, prepared: PreparedStatement) -> StepsTo[Description]:
        """Return the parameters and columns of a statement, which are worked out once."""
        if prepared.description is not None:
            return prepared.description
        question = query_of(prepared.statement) if prepared.statement else None
        if question is None:
            columns = self._local.columns(prepared.statement)
            prepared.description = Description(columns, prepared.types or ())
            return prepared.description
        sql = question.sql
        description: Description = yield Work("describe", lambda: self._router.describe(sql, prepared.stated))
        prepared.types = description.parameters
        shows = isinstance(prepared.statement, Ask)  # DECLARE and COPY give no rows of the ordinary kind
        prepared.description = description if shows else replace(description, columns=())
        return prepared.description

    def columns(self, portal: Portal) -> StepsTo[tuple[Column, ...]]:
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
            portal.columns = yield from self._columns(prepared.statement.sql, portal)
        else:
            portal.columns = self._local.columns(prepared.statement)
        if isinstance(prepared.statement, Ask) and prepared.description is None:
            prepared.description = Description(portal.columns, prepared.types or ())
        return portal.columns

    def _columns(self, sql: str, portal: Portal) -> StepsTo[tuple[Column, ...]]:
        types = portal.prepared.types or ()
        columns: tuple[Column, ...] = yield Work("describe", lambda: self._router.columns(sql, portal.values, types))
        return columns

    def _recalled(self, statement: Statement | None, portal: Portal) -> Outcome | None:
        """Return the answer to a question that was answered before, if it is still that."""
        if self._cache is None or not isinstance(statement, Ask):
            return None
        key = key_of(statement.sql, portal.values, self._router.session.settings)
        return self._cache.get(key, self._cache.stamp())

    # --- running

    def run(self, portal: Portal) -> Steps:
        """Run the statement of a portal and keep what it gave."""
        statement = portal.prepared.statement
        assert statement is not None
        self.refuse_in_failed(statement)
        match statement:
            case Ask(sql=sql) | Copy(query=Ask(sql=sql)):
                outcome = yield from self._ask(sql, portal)
            case Fetch():
                outcome = yield from self._fetch(statement, portal)
            case Declare():
                outcome = yield from self._declare(statement, portal)
            case _:
                outcome = self._local.do(statement)
        description = portal.prepared.description
        if isinstance(statement, Ask) and description is not None:
            outcome = coerced(outcome, description.columns)
        self._check_room(outcome)
        portal.outcome = outcome
        if not isinstance(statement, Copy):
            portal.columns = outcome.columns

    def refuse_in_failed(self, statement: Statement | None) -> None:
        """Refuse all but the end of a transaction that has failed."""
        ends = isinstance(statement, End) or (isinstance(statement, Savepoint) and statement.verb == "ROLLBACK")
        if self._local.transaction.status is Status.FAILED and not ends and statement is not None:
            raise Problem("25P02", "current transaction is aborted, commands ignored until end of transaction block")

    def _ask(self, sql: str, portal: Portal) -> StepsTo[Outcome]:
        key = key_of(sql, portal.values, self._router.session.settings)
        stamp = self._cache.stamp() if self._cache else None
        outcome = self._cache.get(key, stamp) if self._cache else None
        if outcome is None:
            ticket = self.ticket = Ticket()
            types = portal.prepared.types or ()
            outcome = yield Work("ask", lambda: self._router.ask(sql, portal.values, types, ticket), ticket)
            if self._cache:
                self._cache.put(key, outcome, stamp=stamp)
        self.ticket = None
        if outcome.price is not None:
            self._on_price(outcome.price)
        for notice in outcome.notices:
            self._on_notice(notice)
        return outcome

    def _check_room(self, outcome: Outcome) -> None:
        """Refuse rows for which a session, or all of an analyst's, would have to keep too much at once."""
        held = self._held() + outcome.size
        for what, total, most in (
            ("this connection keeps", held, MAX_HELD),
            ("your connections keep", held + self._held_elsewhere(), MAX_HELD_BY_ANALYST),
        ):
            if outcome.size and total > most:
                megabytes = f"{total / 2**20:,.0f} MB of rows, the limit is {most / 2**20:,.0f} MB"
                paid = "; what was paid for is kept" if outcome.cost else ""
                raise Problem(
                    "53200", f"with this answer {what} {megabytes}{paid}", hint="close cursors, or ask for fewer rows"
                )

    # --- cursors

    def _declare(self, declare: Declare, portal: Portal) -> StepsTo[Outcome]:
        if self._local.transaction.status is Status.IDLE and not declare.hold:
            raise Problem("25P01", "DECLARE CURSOR can only be used in transaction blocks")
        columns = yield from self._columns(declare.query.sql, portal)
        cursor = Portal(
            prepared=PreparedStatement(declare.query, portal.prepared.sql, types=portal.prepared.types or ()),
            values=portal.values,
            formats=(Format.BINARY,) if declare.binary else (),
            columns=columns,
            hold=declare.hold,
            forward_only=declare.forward_only,
            binary=declare.binary,
            declared=True,
        )
        self._store.keep_portal(declare.name, cursor)
        return Outcome(tag="DECLARE CURSOR")

    def _fetch(self, fetch: Fetch, portal: Portal) -> StepsTo[Outcome]:
        cursor = self._store.cursor(fetch.cursor)
        if cursor.outcome is None:
            yield from self.run(cursor)
        rows = cursor.fetch(fetch)
        if fetch.move:
            return Outcome(tag=f"MOVE {len(rows)}")
        portal.binary = cursor.binary
        assert cursor.outcome is not None
        return Outcome(tag=f"FETCH {len(rows)}", columns=cursor.outcome.columns, rows=rows)
