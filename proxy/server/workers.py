"""Several processes that serve one port. Each has a gate of its own; the ledger, which they share, keeps them honest.

A request to cancel may reach any of them, and is passed on to the one whose statement it is about.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from planner.basics.errors import SourceFailed
from planner.policy.server import Server as Config
from proxy.wire.messages import CancelRequest

_PROCESS = struct.Struct("!I")
LONGEST = 300

Work = Callable[[Config, "Peers | None", Callable[[int], None]], None]


@dataclass(frozen=True)
class Peers:
    """The processes of a server as one of them, `number`, sees them: a socket to each, and the one it listens on."""

    number: int = 0
    senders: tuple[socket.socket, ...] = ()
    receiver: socket.socket | None = None

    def process(self, count: int) -> int:
        """Return the process number of this worker's connection `count`; it tells which worker has it."""
        return count * max(1, len(self.senders)) + self.number

    def is_mine(self, process: int) -> bool:
        return process % max(1, len(self.senders)) == self.number

    def forward(self, request: CancelRequest) -> None:
        """Pass a request on to the process that it is meant for; it may get lost, as PostgreSQL's may."""
        with suppress(OSError):
            self.senders[request.process % len(self.senders)].send(_PROCESS.pack(request.process) + request.secret)

    def listen(self, loop: asyncio.AbstractEventLoop, cancel: Callable[[CancelRequest], None]) -> None:
        """Handle the requests that the other processes pass on."""
        receiver = self.receiver
        if receiver is None:
            return
        receiver.setblocking(False)

        def take() -> None:
            with suppress(OSError):
                data = receiver.recv(LONGEST)
                request = CancelRequest(_PROCESS.unpack_from(data)[0], data[_PROCESS.size :])
                if self.is_mine(request.process):
                    cancel(request)

        loop.add_reader(receiver, take)


def reserved(host: str, port: int) -> socket.socket:
    """Return a socket that holds a port for the workers, and does not listen itself."""
    family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        found.bind(address)
    except OSError:
        found.close()
        raise
    return found


def spread(count: int, config: Config, work: Work, *, on_start: Callable[[], None]) -> None:
    """Run `work` in so many processes until a signal ends them; if one of them fails, end the others and raise."""
    pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(count)]
    senders = tuple(sender for sender, _ in pairs)
    ready, announce = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    children = []
    for number, (_, receiver) in enumerate(pairs):
        child = os.fork()
        if child == 0:
            _worker(work, _config_of(config, number), Peers(number, senders, receiver), announce)
        children.append(child)
    for sender, receiver in pairs:
        sender.close()
        receiver.close()
    os.close(announce)
    _watch(children, ready, on_start)


def _config_of(config: Config, number: int) -> Config:
    """Return the configuration of one worker: metrics are on a port of its own, counted on from the first."""
    port = config.metrics_port
    return config if not port else replace(config, metrics_port=port + number)


def _worker(work: Work, config: Config, peers: Peers, announce: int) -> None:
    """Run as a child process, and exit."""
    code = 1
    try:
        work(config, peers, lambda _: os.close(announce) if os.write(announce, b"r") else None)
        code = 0
    except Exception as error:
        print(f"error: worker {peers.number}: {type(error).__name__}", file=sys.stderr)
    finally:
        sys.stderr.flush()
        os._exit(code)


def _watch(children: list[int], ready: int, on_start: Callable[[], None]) -> None:
    """Pass signals on to the children, say when all of them listen, and wait for their end."""
    asked = False

    def end() -> None:
        for child in children:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGTERM)

    def on_signal(*_: object) -> None:
        nonlocal asked
        asked = True
        end()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    with os.fdopen(ready, "rb") as announced:
        if len(announced.read()) == len(children):
            on_start()
    alone = False
    while children:
        child, _ = os.wait()
        children.remove(child)
        alone |= not asked
        end()
    if alone:
        raise SourceFailed("a worker ended by itself, and the others with it", hint="the lines above say why")
