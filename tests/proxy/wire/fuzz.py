"""Any bytes at all, found by coverage: `python -m tests.proxy.wire.fuzz 1000000` runs so many of them under atheris.

What a server would do with the bytes of a client, without sockets: frame them, step through the states, read the
values of every Bind in every type. Only ProtocolViolation and ValueError may come of it.
"""

from __future__ import annotations

import contextlib
import sys

from proxy.wire import messages as m
from proxy.wire import oids
from proxy.wire.codec import Decoder, Limits
from proxy.wire.messages import Message, ProtocolViolation
from proxy.wire.state import Event, State, after
from proxy.wire.values import Format, decoder

TYPES = (*oids.LENGTHS, oids.TEXT, oids.BYTEA, oids.JSONB, oids.NUMERIC, *oids.ARRAYS.values())
LIMITS = Limits(startup=10_000, login=65_536, message=2**20)


def converse(data: bytes) -> State:
    """Return the state in which bytes leave a server; the first byte says in how large pieces they arrive."""
    size, rest = (data[0] % 64) + 1, data[1:]
    server, state = Decoder(LIMITS), State.OPENED
    for start in range(0, len(rest), size):
        server.feed(rest[start : start + size])
        while (message := server.next()) is not None:
            state = step(server, state, message)
            if state is State.CLOSED:
                return state
    return state


def step(server: Decoder, state: State, message: Message) -> State:
    state = after(state, message)
    if isinstance(message, m.Startup):
        server.started()
        server.logged_in()
        return after(state, Event.WELCOME)
    if isinstance(message, m.Bind):
        read_values(message)
    if isinstance(message, m.Execute) and message.most % 2:
        return after(state, Event.FAILED)
    return state


def read_values(bind: m.Bind) -> None:
    for number, value in enumerate(bind.values):
        form = bind.formats[number % len(bind.formats)] if bind.formats else Format.TEXT
        oid = TYPES[(len(bind.portal) + number) % len(TYPES)]
        with contextlib.suppress(ValueError):
            if value is not None:
                decoder(oid, form)(value)


def one(data: bytes) -> None:
    """Do what atheris asks for with one input."""
    with contextlib.suppress(ProtocolViolation):
        if data:
            converse(data)


def seeds() -> list[bytes]:
    """Return conversations to start from."""
    opening = m.Startup(m.PROTOCOL_3, {"user": "ann"}).write()
    values = (
        b"1",
        None,
        b"{1,2}",
        b"\0\0\0\1\0\0\0\0\0\0\0\x17\0\0\0\1\0\0\0\1\0\0\0\4\0\0\0\7",
        b"2020-01-01 00:00:00",
    )
    talks = (
        [m.Query("SELECT 1")],
        [m.Parse("s", "SELECT $1", (23,)), m.Describe(m.STATEMENT, "s"), m.Sync()],
        [
            m.Bind("p", "s", (Format.BINARY,), values, (Format.TEXT,)),
            m.Execute("p", 1),
            m.Close(m.PORTAL, "p"),
            m.Sync(),
        ],
        [m.CopyData(b"x"), m.CopyDone(), m.CopyFail("no"), m.FunctionCall(b"\0"), m.Flush(), m.Terminate()],
    )
    return [b"\x3f" + opening + b"".join(message.write() for message in talk) for talk in talks]


def main() -> None:
    """Run under atheris; the number of runs is the only argument."""
    import tempfile
    from pathlib import Path

    import atheris  # type: ignore[import-not-found]  # only who fuzzes needs it

    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    atheris.instrument_all()
    with tempfile.TemporaryDirectory() as folder:
        for number, seed in enumerate(seeds()):
            Path(folder, str(number)).write_bytes(seed)
        atheris.Setup([sys.argv[0], f"-runs={runs}", "-max_len=2000", "-timeout=10", "-rss_limit_mb=1000", folder], one)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
