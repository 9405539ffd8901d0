"""Statements that only concern the session: settings, transactions, closing what was kept. Each is done at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from planner.plans.settings import names as gate_settings
from planner.session import Session
from proxy.catalog.types import Column
from proxy.catalog.variables import TRANSACTION_MODES, Variables, is_gates, shown_name
from proxy.conversation.portals import PortalStore, Problem
from proxy.conversation.route import Outcome
from proxy.conversation.statements import (
    Begin,
    CloseCursor,
    Deallocate,
    Discard,
    End,
    Fetch,
    Reset,
    Savepoint,
    SetTo,
    Show,
    Statement,
    Unlisten,
)
from proxy.conversation.transaction import AllSettings, Transaction
from proxy.wire import oids
from proxy.wire.replies import Status


class Warn(Protocol):
    """Sends the client a warning."""

    def __call__(self, message: str, *, sqlstate: str) -> None: ...


class LocalState:
    """The settings and the transaction of a session, and what changes them."""

    def __init__(self, session: Session, variables: Variables, store: PortalStore, *, warn: Warn) -> None:
        self.variables, self.transaction = variables, Transaction()
        self._session, self._store, self._warn = session, store, warn

    def columns(self, statement: Statement | None) -> tuple[Column, ...]:
        """Return the columns of a statement that is neither the gate's nor the catalog's."""
        match statement:
            case Show(name="all"):
                return tuple(Column(name, oids.TEXT) for name in ("name", "setting", "description"))
            case Show(name=name):
                return (Column(shown_name(name), oids.TEXT),)
            case Fetch(cursor=name, move=False):
                return self._store.cursor(name).columns or ()
            case _:
                return ()

    def do(self, statement: Statement) -> Outcome:
        """Do a statement that only concerns the session."""
        match statement:
            case SetTo():
                return self._set(statement)
            case Show(name=name):
                return self._shown(name)
            case Reset(name=name):
                self._reset(name)
                return Outcome(tag="RESET")
            case Begin():
                return self._begin(statement)
            case End():
                return self._end(statement)
            case Savepoint():
                return self._savepoint(statement)
            case CloseCursor(name=name):
                self._close_cursor(name)
                return Outcome(tag="CLOSE CURSOR ALL" if name is None else "CLOSE CURSOR")
            case Deallocate(name=name):
                self._deallocate(name)
                return Outcome(tag="DEALLOCATE ALL" if name is None else "DEALLOCATE")
            case Discard(what=what):
                self._discard(what)
                return Outcome(tag=f"DISCARD {what}")
            case Unlisten():
                return Outcome(tag="UNLISTEN")
            case _:
                raise AssertionError(f"{type(statement).__name__} is not of the session")

    def _now(self) -> AllSettings:
        return AllSettings(self._session.settings, self.variables)

    def _go_to(self, settings: AllSettings) -> None:
        self._session.settings, self.variables = settings.settings, settings.variables

    def _set(self, statement: SetTo) -> Outcome:
        if statement.local:
            if self.transaction.status is Status.IDLE:
                self._warn("SET LOCAL can only be used in transaction blocks", sqlstate="25P01")
                return Outcome(tag="SET")
            self.transaction.set_locally(self._now())
        self._change(lambda now: self._with(now, statement.name, statement.value), local=statement.local)
        return Outcome(tag="SET")

    def _change(self, change: Callable[[AllSettings], AllSettings], *, local: bool = False) -> None:
        self._go_to(change(self._now()))
        if not local:
            self.transaction.set_for_good(change)

    def _with(self, now: AllSettings, name: str, value: str | None) -> AllSettings:
        if is_gates(name):
            return replace(now, settings=now.settings.with_value(name, value or "DEFAULT", self._session.defaults))
        if name == "session_authorization" and value in (None, self._session.analyst):
            return now
        return replace(now, variables=now.variables.with_value(name, value))

    def _reset(self, name: str | None) -> None:
        self._change(lambda now: self._without(now, name))

    def _without(self, now: AllSettings, name: str | None) -> AllSettings:
        if name is None or is_gates(name):
            now = replace(now, settings=now.settings.reset(name, self._session.defaults))
        return replace(now, variables=now.variables.reset(name)) if name is None or not is_gates(name) else now

    def show(self, name: str) -> str:
        return self._session.settings.show(name) if is_gates(name) else self.variables.show(name)

    def _shown(self, name: str) -> Outcome:
        columns = self.columns(Show(name))
        if name != "all":
            return Outcome(tag="SHOW", columns=columns, rows=[(self.show(name),)])
        names = [*self.variables, *gate_settings()]
        return Outcome(tag="SHOW", columns=columns, rows=[(shown_name(name), self.show(name), "") for name in names])

    def _begin(self, statement: Begin) -> Outcome:
        if self.transaction.status is Status.IDLE:
            self.transaction.begin(self._now())
        else:
            self._warn("there is already a transaction in progress", sqlstate="25001")
        for mode in statement.modes:
            self._set(mode)
        return Outcome(tag=statement.tag)

    def _end(self, statement: End) -> Outcome:
        if self.transaction.status is Status.IDLE:
            self._warn("there is no transaction in progress", sqlstate="25P01")
            return Outcome(tag="COMMIT" if statement.commit else "ROLLBACK")
        settings, committed = self.transaction.end(self._now(), commit=statement.commit)
        self._go_to(settings)
        for name in TRANSACTION_MODES:
            self.variables = self.variables.reset(name)
        self._store.end_transaction(committed=committed)
        if statement.chain:
            self.transaction.begin(self._now())
        return Outcome(tag="COMMIT" if committed else "ROLLBACK")

    def _savepoint(self, statement: Savepoint) -> Outcome:
        match statement.verb:
            case "SAVEPOINT":
                self.transaction.savepoint(statement.name, self._now())
            case "RELEASE":
                self.transaction.release(statement.name)
            case _:
                self._go_to(self.transaction.back_to(statement.name))
        return Outcome(tag=statement.verb)

    def _close_cursor(self, name: str | None) -> None:
        if name is None:
            self._store.portals.clear()
        else:
            self._store.cursor(name)
            del self._store.portals[name]

    def _deallocate(self, name: str | None) -> None:
        if name is None:
            self._store.statements.clear()
        else:
            self._store.statement(name)
            del self._store.statements[name]

    def _discard(self, what: str) -> None:
        if what != "ALL":
            return
        if self.transaction.status is not Status.IDLE:
            raise Problem("25001", "DISCARD ALL cannot run inside a transaction block")
        self._store.portals.clear()
        self._store.statements.clear()
        self._reset(None)
