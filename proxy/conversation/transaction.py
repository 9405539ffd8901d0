"""Transactions as clients see them: nothing is written and nothing undone, but settings come and go with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from planner.plans.settings import Settings
from proxy.catalog.variables import Variables
from proxy.conversation.portals import Problem
from proxy.wire.replies import Status


@dataclass(frozen=True)
class State:
    """What a rollback goes back to: the settings of the gate's and PostgreSQL's own."""

    settings: Settings
    variables: Variables


@dataclass
class Transaction:
    """Where a session stands: outside of a block, inside one, or inside one that failed."""

    status: Status = Status.IDLE
    before: State | None = None
    local: State | None = None
    savepoints: list[tuple[str, State, State | None]] = field(default_factory=list)

    def begin(self, now: State) -> None:
        self.status, self.before, self.local, self.savepoints = Status.INSIDE, now, None, []

    def set_locally(self, now: State) -> None:
        """Remember the settings before the first SET LOCAL, which end with the transaction."""
        self.local = self.local or now

    def set_for_good(self, change: Callable[[State], State]) -> None:
        """Have a change of the settings outlive a SET LOCAL before it."""
        self.local = None if self.local is None else change(self.local)

    def end(self, now: State, *, commit: bool) -> tuple[State, bool]:
        """Return the settings after the transaction, and whether it was committed."""
        committed = commit and self.status is Status.INSIDE
        found = (self.local or now) if committed else (self.before or now)
        self.status, self.before, self.local, self.savepoints = Status.IDLE, None, None, []
        return found, committed

    def fail(self) -> None:
        if self.status is Status.INSIDE:
            self.status = Status.FAILED

    def savepoint(self, name: str, now: State) -> None:
        self._inside("SAVEPOINT")
        self.savepoints.append((name, now, self.local))

    def release(self, name: str) -> None:
        self._inside("RELEASE SAVEPOINT")
        del self.savepoints[self._index(name) :]

    def back_to(self, name: str) -> State:
        """Return the settings of a savepoint, in a transaction that goes on from there."""
        self._inside("ROLLBACK TO SAVEPOINT")
        index = self._index(name)
        del self.savepoints[index + 1 :]
        self.status = Status.INSIDE
        _, settings, self.local = self.savepoints[index]
        return settings

    def _inside(self, what: str) -> None:
        if self.status is Status.IDLE:
            raise Problem("25P01", f"{what} can only be used in transaction blocks")

    def _index(self, name: str) -> int:
        places = [i for i, (found, *_) in enumerate(self.savepoints) if found == name]
        if not places:
            raise Problem("3B001", f'savepoint "{name}" does not exist')
        return places[-1]


def changed(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that have another value now."""
    return {name: value for name, value in after.items() if before.get(name) != value}
