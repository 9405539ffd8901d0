"""What the server sends: each function returns the bytes of one message."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from proxy.wire.messages import counted, framed, int16, int32, text
from proxy.wire.values import Format


class Status(Enum):
    """What ReadyForQuery says about the transaction."""

    IDLE = b"I"
    INSIDE = b"T"
    FAILED = b"E"


class Severity(Enum):
    NOTICE = "NOTICE"
    WARNING = "WARNING"
    ERROR = "ERROR"
    FATAL = "FATAL"


@dataclass(frozen=True, kw_only=True)
class Complaint:
    """The fields of an error or a notice; `position` counts characters of the statement from 1."""

    message: str
    sqlstate: str
    severity: Severity = Severity.ERROR
    detail: str | None = None
    hint: str | None = None
    position: int | None = None


NO_TLS, YES_TLS = b"N", b"S"
PARSE_COMPLETE = framed(b"1", b"")
BIND_COMPLETE = framed(b"2", b"")
CLOSE_COMPLETE = framed(b"3", b"")
NO_DATA = framed(b"n", b"")
PORTAL_SUSPENDED = framed(b"s", b"")
EMPTY_QUERY = framed(b"I", b"")
COPY_DONE = framed(b"c", b"")
AUTHENTICATED = framed(b"R", int32(0))


def sasl(mechanisms: Sequence[str]) -> bytes:
    """Offer these mechanisms."""
    return framed(b"R", int32(10) + b"".join(map(text, mechanisms)) + b"\0")


def sasl_continue(data: bytes) -> bytes:
    return framed(b"R", int32(11) + data)


def sasl_final(data: bytes) -> bytes:
    return framed(b"R", int32(12) + data)


def parameter(name: str, setting: str) -> bytes:
    """Report the value of a setting."""
    return framed(b"S", text(name) + text(setting))


def parameters(settings: Mapping[str, str]) -> bytes:
    return b"".join(parameter(name, setting) for name, setting in settings.items())


def key_data(process: int, secret: bytes) -> bytes:
    """Hand out what a cancel request must show."""
    return framed(b"K", struct.pack("!I", process) + secret)


def negotiate(minor: int, options: Sequence[str]) -> bytes:
    """Say which minor version is spoken instead, and which options are not known."""
    return framed(b"v", int32(minor) + int32(len(options)) + b"".join(map(text, options)))


def ready(status: Status) -> bytes:
    return _READY[status]


_READY = {status: framed(b"Z", status.value) for status in Status}


def complaint(found: Complaint) -> bytes:
    """Return an ErrorResponse, or a NoticeResponse for what does not stop anything."""
    fields = {
        "S": found.severity.value,
        "V": found.severity.value,
        "C": found.sqlstate,
        "M": found.message,
        "D": found.detail,
        "H": found.hint,
        "P": None if found.position is None else str(found.position),
    }
    kind = b"E" if found.severity in (Severity.ERROR, Severity.FATAL) else b"N"
    body = b"".join(name.encode() + text(_without_nul(entry)) for name, entry in fields.items() if entry is not None)
    return framed(kind, body + b"\0")


def _without_nul(entry: str) -> str:
    return entry.replace("\0", "").encode(errors="replace").decode()


def parameter_description(types: Sequence[int]) -> bytes:
    return framed(b"t", counted([struct.pack("!I", oid) for oid in types]))


@dataclass(frozen=True)
class Field:
    """One column as RowDescription has it."""

    name: str
    oid: int
    size: int
    modifier: int = -1
    format: Format = Format.TEXT


def row_description(fields: Iterable[Field]) -> bytes:
    parts = [
        text(_without_nul(field.name))
        + struct.pack("!IhIhih", 0, 0, field.oid, field.size, field.modifier, field.format)
        for field in fields
    ]
    return framed(b"T", counted(parts))


def complete(tag: str) -> bytes:
    return framed(b"C", text(tag))


def copy_out(columns: int, form: Format) -> bytes:
    """Announce rows of a COPY."""
    return framed(b"H", struct.pack("!b", form) + counted([int16(form)] * columns))


def copy_data(data: bytes) -> bytes:
    return framed(b"d", data)
