"""From a stream of bytes to messages: framing, with every length checked before its bytes are kept."""

from __future__ import annotations

from dataclasses import dataclass

from proxy.wire import messages
from proxy.wire.messages import Message, ProtocolViolation


@dataclass(frozen=True)
class Limits:
    """Longest message, in bytes and without its type: as the first one, before the login, and after it."""

    startup: int = 10_000
    login: int = 65_536
    message: int = 16 * 2**20


HEADER = 5
LENGTH = 4


class Decoder:
    """Cuts what arrives into messages. A violation is final: nothing after it can be read.

    Guarantee: never holds more bytes than the longest message that is allowed, plus what one `feed` brought.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self._buffer = bytearray()
        self._first, self._limit = True, self._limits.login

    def feed(self, data: bytes | memoryview) -> None:
        self._buffer += data

    @property
    def waiting(self) -> int:
        """Return how many bytes have come that no message has used yet."""
        return len(self._buffer)

    def started(self) -> None:
        """Expect messages with a type byte from now on: the first message was a Startup."""
        self._first = False

    def logged_in(self) -> None:
        """Allow messages of full length from now on."""
        self._limit = self._limits.message

    def next(self) -> Message | None:
        """Return the next message, or None until more bytes come."""
        return self._next_first() if self._first else self._next_typed()

    def _next_first(self) -> Message | None:
        body = self._body(0, least=8, most=self._limits.startup)
        return None if body is None else messages.read_first(body)

    def _next_typed(self) -> Message | None:
        if not self._buffer:
            return None
        kind = bytes(self._buffer[:1])
        if kind not in messages.KINDS:
            raise ProtocolViolation("a message has a type that is not known")
        body = self._body(1, least=LENGTH, most=self._limit)
        return None if body is None else messages.read(kind, body)

    def _body(self, skip: int, *, least: int, most: int) -> bytes | None:
        """Return the body of the message whose length stands after `skip` bytes, once all of it is there."""
        if len(self._buffer) < skip + LENGTH:
            return None
        length = int.from_bytes(self._buffer[skip : skip + LENGTH], "big")
        if not least <= length <= most:
            raise ProtocolViolation(f"the length of a message must lie between {least} and {most} bytes")
        if len(self._buffer) < skip + length:
            return None
        body = bytes(self._buffer[skip + LENGTH : skip + length])
        del self._buffer[: skip + length]
        return body
