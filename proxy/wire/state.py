"""Where a conversation stands: one table holds every transition, and what is not in it is a violation."""

from __future__ import annotations

from enum import Enum, auto

from proxy.wire import messages as m
from proxy.wire.messages import Message, ProtocolViolation


class State(Enum):
    """What the server expects of the client."""

    OPENED = auto()
    """Nothing was said yet."""
    SECURED = auto()
    """TLS is on; the startup message comes again."""
    LOGIN = auto()
    """The client proves who it is."""
    READY = auto()
    """Between statements; the client was told so."""
    BATCH = auto()
    """Inside a batch of the extended protocol."""
    SKIPPING = auto()
    """A message of the batch failed: all up to the next Sync are thrown away."""
    CLOSED = auto()


class Event(Enum):
    """What the server itself decides."""

    TLS = auto()
    WELCOME = auto()
    FAILED = auto()
    GOODBYE = auto()


_BATCHED: tuple[type[Message], ...] = (m.Parse, m.Bind, m.Describe, m.Execute, m.Close, m.Flush)
_IGNORED: tuple[type[Message], ...] = (m.CopyData, m.CopyDone, m.CopyFail)

TRANSITIONS: dict[tuple[State, type[Message] | Event], State] = {
    (State.OPENED, m.SslRequest): State.OPENED,
    (State.OPENED, m.GssRequest): State.OPENED,
    (State.OPENED, m.CancelRequest): State.CLOSED,
    (State.OPENED, m.Startup): State.LOGIN,
    (State.OPENED, Event.TLS): State.SECURED,
    (State.SECURED, m.GssRequest): State.SECURED,
    (State.SECURED, m.CancelRequest): State.CLOSED,
    (State.SECURED, m.Startup): State.LOGIN,
    (State.LOGIN, m.Password): State.LOGIN,
    (State.LOGIN, m.Terminate): State.CLOSED,
    (State.LOGIN, Event.WELCOME): State.READY,
    (State.READY, m.Query): State.READY,
    (State.READY, m.FunctionCall): State.READY,
    (State.READY, m.Sync): State.READY,
    (State.READY, m.Terminate): State.CLOSED,
    (State.READY, Event.FAILED): State.READY,
    (State.BATCH, m.Query): State.READY,
    (State.BATCH, m.FunctionCall): State.READY,
    (State.BATCH, m.Sync): State.READY,
    (State.BATCH, m.Terminate): State.CLOSED,
    (State.BATCH, Event.FAILED): State.SKIPPING,
    (State.SKIPPING, m.Query): State.SKIPPING,
    (State.SKIPPING, m.FunctionCall): State.SKIPPING,
    (State.SKIPPING, m.Sync): State.READY,
    (State.SKIPPING, m.Terminate): State.CLOSED,
    **{(state, kind): State.BATCH for state in (State.READY, State.BATCH) for kind in _BATCHED},
    **{(State.SKIPPING, kind): State.SKIPPING for kind in _BATCHED},
    **{(state, kind): state for state in (State.READY, State.BATCH, State.SKIPPING) for kind in _IGNORED},
    **{(state, Event.GOODBYE): State.CLOSED for state in State},
}


def after(state: State, event: Message | Event) -> State:
    """Return the state after a message or an event; ProtocolViolation if it has no place there."""
    key = event if isinstance(event, Event) else type(event)
    try:
        return TRANSITIONS[state, key]
    except KeyError:
        raise ProtocolViolation("a message came where it has no place") from None
