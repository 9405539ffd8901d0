"""The right to go on with one statement, which can be taken away: by a cancel request, a timeout, a lost client.

A statement runs in a thread of its own. It shows its ticket at every step; the one before the charge decides
whether it is too late to stop it for nothing. What an engine runs for it between two steps is interrupted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeVar

from planner.basics.errors import Refusal
from planner.basics.stopping import Stop, stoppable

T = TypeVar("T")

NOTHING_SPENT = "nothing was spent"
KEPT = "what was paid for is kept: the same question is free the next time"


@dataclass(frozen=True)
class Reason:
    """Why a statement was stopped."""

    message: str
    sqlstate: str = "57014"


CANCELED = Reason("canceling statement due to user request")
TIMEOUT = Reason("canceling statement due to statement timeout")
SHUTDOWN = Reason("terminating connection due to administrator command", "57P01")
GONE = Reason("the client is gone", "08006")


class Stopped(Refusal):
    """The statement was stopped; `charged` says whether after its charge."""

    def __init__(self, reason: Reason, *, charged: bool) -> None:
        super().__init__(reason.message)
        self.sqlstate = reason.sqlstate
        self.charged = charged


class Phase(Enum):
    """How far a statement is: before its charge, inside it, after it."""

    BEFORE = auto()
    CHARGING = auto()
    AFTER = auto()


class Ticket:
    """Shared by the thread that runs a statement and the loop that may stop it.

    Guarantee: if `stop` is called before the step "charging", the statement never charges.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._phase = Phase.BEFORE
        self._reason: Reason | None = None
        self._stop = Stop()

    @property
    def charged(self) -> bool:
        """Return whether the statement got as far as its charge."""
        return self._phase is not Phase.BEFORE

    def step(self, name: str) -> None:
        """Go on to a step of the gate's, or raise Stopped."""
        with self._lock:
            if self._reason is not None:
                raise Stopped(self._reason, charged=self.charged)
            if name == "charging":
                self._phase = Phase.CHARGING
            elif name == "answering":
                self._phase = Phase.AFTER

    def carry(self, run: Callable[[], T]) -> T:
        """Return what the statement gives; whatever an engine runs for it is interrupted when it is stopped."""
        with stoppable(self._stop):
            return run()

    def stop(self, reason: Reason, *, unless_charged: bool = False) -> Stopped | None:
        """Return how the statement ends, if that is certain now; while it charges, its next step will tell."""
        with self._lock:
            if unless_charged and self.charged:
                return None
            self._reason = self._reason or reason
            self._stop.stop()
            return None if self._phase is Phase.CHARGING else Stopped(self._reason, charged=self.charged)
