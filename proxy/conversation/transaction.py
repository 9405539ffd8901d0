"""Transactions as clients see them: nothing is written and nothing undone, but settings come and go with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from planner.plans.settings import Settings
from proxy.catalog.variables import Variables
from proxy.conversation.portals import Problem
from proxy.wire.replies import Status


@dataclass(frozen=True)
class AllSettings:
    """All settings of a session, the gate's and PostgreSQL's: what a rollback restores."""

    settings: Settings
    variables: Variables


@dataclass
class Transaction:
    """Where a session stands: outside of a block, inside one, or inside one that failed."""

    status: Status = Status.IDLE
    before: AllSettings | None = None
    local: AllSettings | None = None
    savepoints: list[tuple[str, AllSettings, AllSettings | None]] = field(default_factory=list)

    def begin(self, now: AllSettings) -> None:
        self.status, self.before, self.local, self.savepoints = Status.INSIDE, now, None, []

    def set_locally(self, now: AllSettings) -> None:
        """Remember the settings before the first SET LOCAL, which end with the transaction."""
        self.local = self.local or now

    def set_for_good(self, change: Callable[[AllSettings], AllSettings]) -> None:
        """Apply a change also to the settings that come back after a SET LOCAL."""
        self.local = None if self.local is None else change(self.local)

    def end(self, now: AllSettings, *, commit: bool) -> tuple[AllSettings, bool]:
        """Return the settings after the transaction, and whether it was committed."""
        committed = commit and self.status is Status.INSIDE
        found = (self.local or now) if committed else (self.before or now)
        self.status, self.before, self.local, self.savepoints = Status.IDLE, None, None, []
        return found, committed

    def fail(self) -> None:
        if self.status is Status.INSIDE:
            self.status = Status.FAILED

    def savepoint(self, name: str, now: AllSettings) -> None:
        self._inside("SAVEPOINT")
        self.savepoints.append((name, now, self.local))

    def release(self, name: str) -> None:
        self._inside("RELEASE SAVEPOINT")
        del self.savepoints[self._index(name) :]

    def back_to(self, name: str) -> AllSettings:
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


def changes(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that have another value now."""
    return {name: value for name, value in after.items() if before.get(name) != value}
