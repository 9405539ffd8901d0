"""A TCP proxy in front of PostgreSQL that does to a commit what a network can do."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

COMMIT = b"COMMIT\0"

FAULTS = {
    "cut after it was sent": (True, True),
    "cut before it arrived": (False, True),
    "silent after it was sent": (True, False),
    "silent before it arrived": (False, False),
}
"""Whether the commit reaches the server, and whether the connection is closed or just never heard of again."""


class Cutter:
    """The proxy. `armed` names the fault that the next commit meets; `shut` lets nobody in."""

    def __init__(self, port: int) -> None:
        self._server = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.armed: str | None = None
        self.shut = self.shut_after = False
        self.met = 0
        self._open: list[socket.socket] = []
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self.shut:
                    client.close()
                    continue
                server = socket.create_connection(("127.0.0.1", self._server))
                self._open += [client, server]
                quiet = threading.Event()
                threading.Thread(target=self._forward, args=(client, server, quiet), daemon=True).start()
                threading.Thread(target=self._back, args=(server, client, quiet), daemon=True).start()

    def _forward(self, client: socket.socket, server: socket.socket, quiet: threading.Event) -> None:
        with suppress(OSError):
            while data := client.recv(65536):
                if self.armed is not None and COMMIT in data:
                    arrives, closes = FAULTS[self.armed]
                    self.armed, self.met, self.shut = None, self.met + 1, self.shut_after
                    quiet.set()
                    if arrives:
                        server.sendall(data)
                    if closes:
                        client.shutdown(socket.SHUT_RDWR)
                        server.shutdown(socket.SHUT_WR)  # after the commit: the server reads it first
                    return
                server.sendall(data)
            server.shutdown(socket.SHUT_WR)

    def _back(self, server: socket.socket, client: socket.socket, quiet: threading.Event) -> None:
        with suppress(OSError):
            while data := server.recv(65536):
                if not quiet.is_set():
                    client.sendall(data)
            if not quiet.is_set():
                client.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for each in (self._listener, *self._open):
            with suppress(OSError):
                each.close()


@contextmanager
def cutting(port: int) -> Iterator[Cutter]:
    cutter = Cutter(port)
    try:
        yield cutter
    finally:
        cutter.close()
