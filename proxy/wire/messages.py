"""What a client sends: every message of the frontend, read from and written to its bytes.

A message's `read` gets the body without type and length, and raises ProtocolViolation unless all of it, and
nothing more, is the message. `write` is what a client would send; tests hold the two against each other.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from proxy.wire.values import Format

PROTOCOL_3 = 3 << 16
SSL_REQUEST, GSS_REQUEST, CANCEL_REQUEST = 80877103, 80877104, 80877102
MOST_PARAMETERS = 65_535


class ProtocolViolation(Exception):
    """The bytes are not the protocol; the connection can't go on. The text never quotes what was sent."""

    sqlstate = "08P01"


# --- reading and writing the parts of a body ---------------------------------------------------------------


class Body:
    """Reads a body from left to right; nothing is read before its length is known to be there."""

    def __init__(self, data: bytes) -> None:
        self._data, self._place = data, 0

    def take(self, size: int) -> bytes:
        if size < 0 or size > len(self._data) - self._place:
            raise ProtocolViolation("a message ends too early")
        self._place += size
        return self._data[self._place - size : self._place]

    def byte(self) -> bytes:
        return self.take(1)

    def int16(self) -> int:
        return int.from_bytes(self.take(2), "big", signed=True)

    def count(self) -> int:
        """Return a number of things that follow; PostgreSQL reads it unsigned, so it goes up to 65,535."""
        return int.from_bytes(self.take(2), "big")

    def int32(self) -> int:
        return int.from_bytes(self.take(4), "big", signed=True)

    def uint32(self) -> int:
        return int.from_bytes(self.take(4), "big")

    def value(self) -> bytes | None:
        """Return bytes after their length, or None for the length -1, which is NULL."""
        size = self.int32()
        return None if size == -1 else self.take(size)

    def text(self) -> str:
        """Return UTF-8 text up to its zero byte."""
        end = self._data.find(b"\0", self._place)
        if end < 0:
            raise ProtocolViolation("a text in a message does not end")
        data = self.take(end - self._place)
        self._place += 1
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise ProtocolViolation("a text in a message is not UTF-8") from None

    def rest(self) -> bytes:
        return self.take(len(self._data) - self._place)

    def end(self) -> None:
        if self._place != len(self._data):
            raise ProtocolViolation("a message is longer than what it says")


def text(value: str) -> bytes:
    return value.encode() + b"\0"


def int16(number: int) -> bytes:
    return struct.pack("!h", number)


def int32(number: int) -> bytes:
    return struct.pack("!i", number)


def value(data: bytes | None) -> bytes:
    return b"\xff\xff\xff\xff" if data is None else int32(len(data)) + data


def counted(parts: Sequence[bytes]) -> bytes:
    return struct.pack("!H", len(parts)) + b"".join(parts)


def framed(kind: bytes, body: bytes) -> bytes:
    """Return a message: its type, if it has one, its length, its body."""
    return kind + int32(len(body) + 4) + body


# --- before the login --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Startup:
    """The first message: protocol version, user, database, settings."""

    kind: ClassVar[bytes] = b""
    version: int
    parameters: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, body: Body, version: int) -> Startup:
        parameters: dict[str, str] = {}
        while name := body.text():
            if name in parameters:
                raise ProtocolViolation("a startup parameter is given twice")
            parameters[name] = body.text()
        body.end()
        return cls(version, parameters)

    def write(self) -> bytes:
        pairs = b"".join(text(name) + text(found) for name, found in self.parameters.items())
        return framed(b"", int32(self.version) + pairs + b"\0")


@dataclass(frozen=True)
class SslRequest:
    kind: ClassVar[bytes] = b""

    def write(self) -> bytes:
        return framed(b"", int32(SSL_REQUEST))


@dataclass(frozen=True)
class GssRequest:
    kind: ClassVar[bytes] = b""

    def write(self) -> bytes:
        return framed(b"", int32(GSS_REQUEST))


@dataclass(frozen=True)
class CancelRequest:
    """Asks to stop the statement of another connection; the secret proves that both belong to one client."""

    kind: ClassVar[bytes] = b""
    process: int
    secret: bytes

    @classmethod
    def read(cls, body: Body) -> CancelRequest:
        process, secret = body.uint32(), body.rest()
        if not 4 <= len(secret) <= 256:
            raise ProtocolViolation("a cancel key has 4 to 256 bytes")
        return cls(process, secret)

    def write(self) -> bytes:
        return framed(b"", int32(CANCEL_REQUEST) + struct.pack("!I", self.process) + self.secret)


def read_first(data: bytes) -> Startup | SslRequest | GssRequest | CancelRequest:
    """Return the message that opens a connection, from its body."""
    body = Body(data)
    code = body.int32()
    if code == CANCEL_REQUEST:
        return CancelRequest.read(body)
    if code in (SSL_REQUEST, GSS_REQUEST):
        body.end()
        return SslRequest() if code == SSL_REQUEST else GssRequest()
    if code >> 16 != 3:
        raise ProtocolViolation("only version 3 of the protocol is spoken")
    return Startup.read(body, code)


# --- after it ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Password:
    """An answer to a request for a password: what it holds depends on the method."""

    kind: ClassVar[bytes] = b"p"
    data: bytes

    @classmethod
    def read(cls, body: Body) -> Password:
        return cls(body.rest())

    def write(self) -> bytes:
        return framed(self.kind, self.data)


@dataclass(frozen=True)
class SaslInitial:
    """The first answer under SASL: the chosen mechanism and its first words. Not a type of its own: see `of`."""

    mechanism: str
    data: bytes | None

    @classmethod
    def of(cls, password: Password) -> SaslInitial:
        body = Body(password.data)
        found = cls(body.text(), body.value())
        body.end()
        return found

    def write(self) -> bytes:
        return framed(b"p", text(self.mechanism) + value(self.data))


@dataclass(frozen=True)
class Query:
    """The simple protocol: one text with any number of statements."""

    kind: ClassVar[bytes] = b"Q"
    sql: str

    @classmethod
    def read(cls, body: Body) -> Query:
        found = cls(body.text())
        body.end()
        return found

    def write(self) -> bytes:
        return framed(self.kind, text(self.sql))


@dataclass(frozen=True)
class Parse:
    """Makes a prepared statement; a type 0 is left to the server."""

    kind: ClassVar[bytes] = b"P"
    name: str
    sql: str
    types: tuple[int, ...] = ()

    @classmethod
    def read(cls, body: Body) -> Parse:
        found = cls(body.text(), body.text(), tuple(body.uint32() for _ in range(body.count())))
        body.end()
        return found

    def write(self) -> bytes:
        types = counted([struct.pack("!I", oid) for oid in self.types])
        return framed(self.kind, text(self.name) + text(self.sql) + types)


@dataclass(frozen=True)
class Bind:
    """Makes a portal from a statement: values, their formats, and the formats wanted back."""

    kind: ClassVar[bytes] = b"B"
    portal: str
    statement: str
    formats: tuple[Format, ...] = ()
    values: tuple[bytes | None, ...] = ()
    result_formats: tuple[Format, ...] = ()

    @classmethod
    def read(cls, body: Body) -> Bind:
        found = cls(
            body.text(),
            body.text(),
            tuple(_format(body) for _ in range(body.count())),
            tuple(body.value() for _ in range(body.count())),
            tuple(_format(body) for _ in range(body.count())),
        )
        body.end()
        return found

    def write(self) -> bytes:
        lists = (map(int16, self.formats), map(value, self.values), map(int16, self.result_formats))
        return framed(
            self.kind, text(self.portal) + text(self.statement) + b"".join(counted(list(part)) for part in lists)
        )


def _format(body: Body) -> Format:
    code = body.int16()
    if code not in (0, 1):
        raise ProtocolViolation("a format code is 0 or 1")
    return Format(code)


STATEMENT, PORTAL = b"S", b"P"


@dataclass(frozen=True)
class Describe:
    """Asks what a statement or a portal gives back."""

    kind: ClassVar[bytes] = b"D"
    what: bytes
    name: str

    @classmethod
    def read(cls, body: Body) -> Describe:
        found = cls(_what(body), body.text())
        body.end()
        return found

    def write(self) -> bytes:
        return framed(self.kind, self.what + text(self.name))


@dataclass(frozen=True)
class Close:
    """Forgets a statement or a portal."""

    kind: ClassVar[bytes] = b"C"
    what: bytes
    name: str

    @classmethod
    def read(cls, body: Body) -> Close:
        found = cls(_what(body), body.text())
        body.end()
        return found

    def write(self) -> bytes:
        return framed(self.kind, self.what + text(self.name))


def _what(body: Body) -> bytes:
    what = body.byte()
    if what not in (STATEMENT, PORTAL):
        raise ProtocolViolation("a message names neither a statement nor a portal")
    return what


@dataclass(frozen=True)
class Execute:
    """Runs a portal for at most `most` rows; 0 is all of them."""

    kind: ClassVar[bytes] = b"E"
    portal: str
    most: int = 0

    @classmethod
    def read(cls, body: Body) -> Execute:
        found = cls(body.text(), max(0, body.int32()))
        body.end()
        return found

    def write(self) -> bytes:
        return framed(self.kind, text(self.portal) + int32(self.most))


@dataclass(frozen=True)
class _Bare:
    """A message without a body."""

    kind: ClassVar[bytes]

    @classmethod
    def read(cls, body: Body) -> _Bare:
        body.end()
        return cls()

    def write(self) -> bytes:
        return framed(self.kind, b"")


class Sync(_Bare):
    """Ends a batch of the extended protocol; the server answers that it is ready."""

    kind = b"S"


class Flush(_Bare):
    """Asks for what is ready to be sent now."""

    kind = b"H"


class Terminate(_Bare):
    """Says goodbye."""

    kind = b"X"


class CopyDone(_Bare):
    kind = b"c"


@dataclass(frozen=True)
class CopyData:
    """A piece of a COPY from the client, which is never asked for; such a message is thrown away."""

    kind: ClassVar[bytes] = b"d"
    data: bytes

    @classmethod
    def read(cls, body: Body) -> CopyData:
        return cls(body.rest())

    def write(self) -> bytes:
        return framed(self.kind, self.data)


@dataclass(frozen=True)
class CopyFail:
    kind: ClassVar[bytes] = b"f"
    reason: str

    @classmethod
    def read(cls, body: Body) -> CopyFail:
        found = cls(body.text())
        body.end()
        return found

    def write(self) -> bytes:
        return framed(self.kind, text(self.reason))


@dataclass(frozen=True)
class FunctionCall:
    """The old way to call a function by its number, which is refused."""

    kind: ClassVar[bytes] = b"F"
    data: bytes

    @classmethod
    def read(cls, body: Body) -> FunctionCall:
        return cls(body.rest())

    def write(self) -> bytes:
        return framed(self.kind, self.data)


First = Startup | SslRequest | GssRequest | CancelRequest
Message = (
    First | Password | Query | Parse | Bind | Describe | Close | Execute | _Bare | CopyData | CopyFail | FunctionCall
)

KINDS: dict[bytes, type[Message]] = {
    kind.kind: kind
    for kind in (
        Password, Query, Parse, Bind, Describe, Close, Execute, Sync, Flush, Terminate, CopyDone, CopyData, CopyFail,
        FunctionCall,
    )
}  # fmt: skip
"""Every message with a type byte."""


def read(kind: bytes, data: bytes) -> Message:
    """Return the message of a type from its body."""
    return KINDS[kind].read(Body(data))  # type: ignore[union-attr, call-arg]  # those of KINDS take a body
