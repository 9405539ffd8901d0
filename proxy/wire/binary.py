"""Values of PostgreSQL's types in the binary format, both ways."""

from __future__ import annotations

import datetime as dt
import struct
import uuid
from collections.abc import Callable
from decimal import Decimal

from proxy.wire import numeric, oids
from proxy.wire.spans import Interval
from proxy.wire.text import Decoder, Encoder, any_text, read_text

EPOCH = dt.date(2000, 1, 1)
EPOCH_TIME = dt.datetime(2000, 1, 1)
MICROSECOND = dt.timedelta(microseconds=1)


# --- out ---------------------------------------------------------------------------------------------------


def _packer(layout: str) -> Encoder:
    pack = struct.Struct(layout).pack
    return lambda value: pack(value)


def _date_binary(value: object) -> bytes:
    day = value.date() if isinstance(value, dt.datetime) else value
    assert isinstance(day, dt.date)
    return struct.pack("!i", (day - EPOCH).days)


def _timestamp_binary(value: object) -> bytes:
    assert isinstance(value, dt.date)
    moment = value if isinstance(value, dt.datetime) else dt.datetime(value.year, value.month, value.day)
    naive = moment.astimezone(dt.UTC).replace(tzinfo=None) if moment.tzinfo else moment
    return struct.pack("!q", (naive - EPOCH_TIME) // MICROSECOND)


def _clock(value: object) -> int:
    assert isinstance(value, dt.time)
    return ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond


def _timetz_binary(value: object) -> bytes:
    assert isinstance(value, dt.time)
    offset = value.utcoffset() or dt.timedelta()
    return struct.pack("!qi", _clock(value), -int(offset.total_seconds()))


def _interval_binary(value: object) -> bytes:
    span = Interval.of(value) if isinstance(value, dt.timedelta) else value
    assert isinstance(span, Interval)
    return struct.pack("!qii", span.microseconds, span.days, span.months)


def _char_binary(value: object) -> bytes:
    return str(value).encode()[:1] or b"\0"


def _uuid_binary(value: object) -> bytes:
    return value.bytes if isinstance(value, uuid.UUID) else uuid.UUID(str(value)).bytes


def _numeric_binary(value: object) -> bytes:
    return numeric.encode(value if isinstance(value, Decimal | int) else Decimal(str(value)))


ENCODERS: dict[int, Encoder] = {
    oids.BOOL: lambda value: b"\1" if value else b"\0",
    oids.INT2: _packer("!h"),
    oids.INT4: _packer("!i"),
    oids.INT8: _packer("!q"),
    oids.OID: _packer("!I"),
    oids.XID: _packer("!I"),
    oids.FLOAT4: _packer("!f"),
    oids.FLOAT8: _packer("!d"),
    oids.NUMERIC: _numeric_binary,
    oids.BYTEA: lambda value: bytes(value),
    oids.CHAR: _char_binary,
    oids.DATE: _date_binary,
    oids.TIME: lambda value: struct.pack("!q", _clock(value)),
    oids.TIMETZ: _timetz_binary,
    oids.TIMESTAMP: _timestamp_binary,
    oids.TIMESTAMPTZ: _timestamp_binary,
    oids.INTERVAL: _interval_binary,
    oids.UUID: _uuid_binary,
    oids.JSONB: lambda value: b"\1" + any_text(value),
    oids.VOID: lambda _: b"",
} | dict.fromkeys(oids.REGISTERED, _packer("!I"))


# --- in ----------------------------------------------------------------------------------------------------


def _unpacker(layout: str) -> Decoder:
    form = struct.Struct(layout)

    def read(data: bytes) -> object:
        return _fields(form, data)[0]

    return read


def _fields(form: struct.Struct, data: bytes) -> tuple[int, ...]:
    if len(data) != form.size:
        raise ValueError(f"it has {len(data)} bytes, the type has {form.size}")
    return form.unpack(data)


_DATE, _TIME, _TIMETZ, _INTERVAL = map(struct.Struct, ("!i", "!q", "!qi", "!qii"))


def _date_from(data: bytes) -> dt.date:
    (days,) = _fields(_DATE, data)
    return _in_range(lambda: EPOCH + dt.timedelta(days=days))


def _timestamp_from(data: bytes) -> dt.datetime:
    (micros,) = _fields(_TIME, data)
    return _in_range(lambda: EPOCH_TIME + dt.timedelta(microseconds=micros))


def _in_range(make: Callable[[], dt.datetime] | Callable[[], dt.date]) -> dt.datetime:
    try:
        return make()  # type: ignore[return-value]  # a date for dates
    except OverflowError:
        raise ValueError("a date lies outside the years 1 to 9999") from None


def _time_from(data: bytes) -> dt.time:
    (micros,) = _fields(_TIME, data)
    if not 0 <= micros < 86_400_000_000:
        raise ValueError("a time lies between 00:00:00 and 23:59:59")
    return (EPOCH_TIME + dt.timedelta(microseconds=micros)).time()


def _timetz_from(data: bytes) -> dt.time:
    micros, offset = _fields(_TIMETZ, data)
    if abs(offset) >= 86_400:
        raise ValueError("the offset of a time zone is less than a day")
    clock = _time_from(_TIME.pack(micros))
    return clock.replace(tzinfo=dt.timezone(dt.timedelta(seconds=-offset)))


def _interval_from(data: bytes) -> Interval:
    micros, days, months = _fields(_INTERVAL, data)
    return Interval(months, days, micros)


def _jsonb_from(data: bytes) -> str:
    if data[:1] != b"\1":
        raise ValueError("jsonb has version 1")
    return read_text(data[1:])


def _uuid_from(data: bytes) -> uuid.UUID:
    if len(data) != 16:
        raise ValueError(f"it has {len(data)} bytes, the type has 16")
    return uuid.UUID(bytes=data)


DECODERS: dict[int, Decoder] = {
    oids.BOOL: _unpacker("!?"),
    oids.INT2: _unpacker("!h"),
    oids.INT4: _unpacker("!i"),
    oids.INT8: _unpacker("!q"),
    oids.OID: _unpacker("!I"),
    oids.XID: _unpacker("!I"),
    oids.FLOAT4: _unpacker("!f"),
    oids.FLOAT8: _unpacker("!d"),
    oids.NUMERIC: numeric.decode,
    oids.BYTEA: lambda data: data,
    oids.DATE: _date_from,
    oids.TIME: _time_from,
    oids.TIMETZ: _timetz_from,
    oids.TIMESTAMP: _timestamp_from,
    oids.TIMESTAMPTZ: lambda data: _timestamp_from(data).replace(tzinfo=dt.UTC),
    oids.INTERVAL: _interval_from,
    oids.UUID: _uuid_from,
    oids.JSONB: _jsonb_from,
} | dict.fromkeys(oids.REGISTERED, _unpacker("!I"))
