"""A client that sends any bytes and takes answers apart by itself, so that no driver stands between test and server."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from proxy.wire import messages as m


@dataclass(frozen=True)
class Reply:
    """One message of a server."""

    kind: str
    body: bytes

    @property
    def fields(self) -> dict[str, str]:
        """Return the fields of an error or a notice by their letters."""
        parts = self.body.rstrip(b"\0").split(b"\0")
        return {part[:1].decode(): part[1:].decode() for part in parts if part}

    @property
    def text(self) -> str:
        return self.body.rstrip(b"\0").decode()

    @property
    def cells(self) -> list[bytes | None]:
        """Return the values of a DataRow."""
        (count,), place, found = struct.unpack_from("!H", self.body), 2, []
        for _ in range(count):
            (size,) = struct.unpack_from("!i", self.body, place)
            place += 4
            found.append(None if size < 0 else self.body[place : place + size])
            place += max(size, 0)
        assert place == len(self.body)
        return found

    @property
    def columns(self) -> list[tuple[str, int]]:
        """Return names and types of a RowDescription."""
        (count,), place, found = struct.unpack_from("!H", self.body), 2, []
        for _ in range(count):
            end = self.body.index(b"\0", place)
            (oid,) = struct.unpack_from("!I", self.body, end + 7)
            found.append((self.body[place:end].decode(), oid))
            place = end + 19
        assert place == len(self.body)
        return found

    @property
    def types(self) -> tuple[int, ...]:
        """Return the types of a ParameterDescription."""
        return struct.unpack(f"!{(len(self.body) - 2) // 4}I", self.body[2:])


def split(data: bytes) -> tuple[list[Reply], bytes]:
    """Return the messages in some bytes, and what is left of the last one."""
    found = []
    while len(data) >= 5:
        (length,) = struct.unpack_from("!i", data, 1)
        if len(data) < 1 + length:
            break
        found.append(Reply(data[:1].decode("latin-1"), data[5 : 1 + length]))
        data = data[1 + length :]
    return found, data


def kinds(found: list[Reply]) -> str:
    return "".join(reply.kind for reply in found)


class RawClient:
    """A socket and the bytes that came over it."""

    def __init__(self, port: int, *, timeout: float = 30.0) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        self._left = b""

    def send(self, *messages: m.Message | bytes) -> None:
        self.socket.sendall(b"".join(part if isinstance(part, bytes) else part.write() for part in messages))

    def replies(self, until: str = "Z") -> list[Reply]:
        """Return the messages up to the first of a kind; or up to the end of the connection."""
        found: list[Reply] = []
        while data := self._receive():
            some, self._left = split(self._left + data)
            found += some
            if any(reply.kind == until for reply in some):
                break
        return found

    def _receive(self) -> bytes:
        try:
            return self.socket.recv(65_536)
        except ConnectionError:
            return b""

    def ask(self, *messages: m.Message) -> list[Reply]:
        self.send(*messages)
        return self.replies()

    def login(self, user: str = "ann", **parameters: str) -> list[Reply]:
        self.send(m.Startup(m.PROTOCOL_3, {"user": user, "database": "noisegate", **parameters}))
        return self.replies()

    def is_closed(self) -> bool:
        """Return whether the server has closed the connection, after reading what is left."""
        while data := self._receive():
            self._left += data
        return True

    def close(self) -> None:
        self.socket.close()


@contextmanager
def raw(port: int) -> Iterator[RawClient]:
    client = RawClient(port)
    try:
        yield client
    finally:
        client.close()
