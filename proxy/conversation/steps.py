"""What a conversation asks of whoever drives it: work to be done in a thread, and bytes to be sent."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from proxy.conversation.route import Outcome
from proxy.conversation.ticket import Ticket


@dataclass(frozen=True)
class Work:
    """Something that takes time and can be stopped by its ticket. `what` names it for tests and logs."""

    what: str
    run: Callable[[], Any]  # Any: each kind of work gives something else
    ticket: Ticket = field(default_factory=Ticket)

    def do(self) -> Any:
        """Return what it gives, done in this thread; stopping the ticket interrupts it."""
        return self.ticket.carry(self.run)


class Send:
    """A point at which what was said should be sent, and the client given time to read it."""


SEND = Send()
T = TypeVar("T")
StepsTo = Generator[Work | Send, Any, T]  # Any: what is sent back is what the work gave
Steps = StepsTo[None]


@dataclass(frozen=True)
class StatementEnd:
    """How a statement ended, for metrics and the log; SQLSTATE 00000 means success."""

    sqlstate: str
    rows: int = 0
    outcome: Outcome | None = None
