"""Values of PostgreSQL's types in the text format, both ways."""

from __future__ import annotations

import datetime as dt
import json
import math
import re
import struct
import uuid
from collections.abc import Callable
from decimal import Decimal, InvalidOperation

from proxy.wire import oids
from proxy.wire.spans import Interval

Encoder = Callable[[object], bytes]
Decoder = Callable[[bytes], object]


# --- out ---------------------------------------------------------------------------------------------------


def any_text(value: object) -> bytes:
    """Return any value as text: what has no PostgreSQL form of its own is written as JSON."""
    match value:
        case str():
            return value.encode()
        case bool():
            return b"t" if value else b"f"
        case float():
            return _float8_text(value)
        case bytes():
            return b"\\x" + value.hex().encode()
        case dt.datetime():
            return _timestamp_text(value)
        case dt.timedelta() | Interval():
            return _interval_text(value)
        case dict() | list() | tuple():
            return json.dumps(value, default=lambda item: any_text(item).decode()).encode()
        case _:
            return str(value).encode()


def _bool_text(value: object) -> bytes:
    return b"t" if value else b"f"


def _plain_text(value: object) -> bytes:
    return str(value).encode()


def _decimal_text(value: object) -> bytes:
    return format(value, "f").encode() if isinstance(value, Decimal) and value.is_finite() else str(value).encode()


def _float8_text(value: object) -> bytes:
    """Return the shortest digits that read back as the same double, laid out as PostgreSQL does.

    >>> [_float8_text(x) for x in (1.0, 0.1, 1e15, 123456789012345.0, 1e-5, float("-inf"))]
    [b'1', b'0.1', b'1e+15', b'123456789012345', b'1e-05', b'-Infinity']
    """
    number = float(value)  # type: ignore[arg-type]  # numbers only come here
    digits = repr(number)
    if -1e15 < number < 1e15 and "e" not in digits:
        return digits.removesuffix(".0").encode()
    return _float_text(number, digits, 1e15)


def _float4_text(value: object) -> bytes:
    number = float(value)  # type: ignore[arg-type]  # as above
    if not math.isfinite(number):
        return _float_text(number, "", 1e6)
    stored = struct.pack("!f", number)
    texts = (f"{number:.{digits}g}" for digits in range(1, 10))
    shortest = next((text for text in texts if _float4_is(stored, text)), f"{number:.9g}")
    return _float_text(number, repr(float(shortest)), 1e6)


def _float4_is(stored: bytes, text: str) -> bool:
    try:
        return struct.pack("!f", float(text)) == stored
    except OverflowError:  # rounded up from near the largest one
        return False


def _float_text(number: float, digits: str, bound: float) -> bytes:
    if math.isnan(number):
        return b"NaN"
    if math.isinf(number):
        return b"Infinity" if number > 0 else b"-Infinity"
    if "e" not in digits and abs(number) >= bound:
        mantissa = digits.removesuffix(".0").replace(".", "").lstrip("-")
        exponent = len(digits.lstrip("-").split(".")[0]) - 1
        tail = mantissa[1:].rstrip("0")
        digits = f"{'-' * (number < 0)}{mantissa[0]}{'.' * bool(tail)}{tail}e+{exponent:02d}"
    return digits.removesuffix(".0").replace(".0e", "e").encode()


def _bytea_text(value: object) -> bytes:
    return b"\\x" + bytes(value).hex().encode()  # type: ignore[call-overload, no-any-return]  # bytes-like


def _timestamp_text(value: object) -> bytes:
    """Return date and time with a blank between them; a zone is written as its offset, whole hours in two digits."""
    text = value.isoformat(sep=" ") if isinstance(value, dt.datetime) else f"{value} 00:00:00"
    return _short_fraction(re.sub(r"([+-]\d\d):00$", r"\1", text)).encode()


def _time_text(value: object) -> bytes:
    text = value.isoformat() if isinstance(value, dt.time) else str(value)
    return _short_fraction(re.sub(r"([+-]\d\d):00$", r"\1", text)).encode()


def _short_fraction(text: str) -> str:
    """Return the text without the zeros at the end of a second's fraction."""
    return re.sub(r"(\.\d*?)0+(?=$|[+-])", r"\1", text) if "." in text else text


def _interval_text(value: object) -> bytes:
    """Return an interval as PostgreSQL's default style writes it: `1 year 2 mons 3 days 04:05:06.5`."""
    span = Interval.of(value) if isinstance(value, dt.timedelta) else value
    assert isinstance(span, Interval)
    years, months = int(span.months / 12), int(math.fmod(span.months, 12))
    parts = [_counted(years, "year"), _counted(months, "mon"), _counted(span.days, "day")]
    seconds, rest = divmod(abs(span.microseconds), 1_000_000)
    if span.microseconds or not any(parts):
        clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
        parts.append("-" * (span.microseconds < 0) + _short_fraction(f"{clock}.{rest:06d}" if rest else clock))
    return " ".join(part for part in parts if part).encode()


def _counted(number: int, unit: str) -> str:
    return f"{number} {unit}{'s' * (number != 1)}" if number else ""


ENCODERS: dict[int, Encoder] = {
    oids.BOOL: _bool_text,
    oids.INT2: _plain_text,
    oids.INT4: _plain_text,
    oids.INT8: _plain_text,
    oids.OID: _plain_text,
    oids.FLOAT4: _float4_text,
    oids.FLOAT8: _float8_text,
    oids.NUMERIC: _decimal_text,
    oids.BYTEA: _bytea_text,
    oids.DATE: _plain_text,
    oids.TIME: _time_text,
    oids.TIMETZ: _time_text,
    oids.TIMESTAMP: _timestamp_text,
    oids.TIMESTAMPTZ: _timestamp_text,
    oids.INTERVAL: _interval_text,
}


# --- in ----------------------------------------------------------------------------------------------------


def read_text(data: bytes) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise ValueError("the bytes are not UTF-8") from None
    if "\0" in text:
        raise ValueError("text can't hold the character U+0000")
    return text


def _bool_in(data: bytes) -> bool:
    word = read_text(data).strip().lower()
    if (word and any(long.startswith(word) for long in ("true", "yes"))) or word in ("on", "1"):
        return True
    if (word and any(long.startswith(word) for long in ("false", "no"))) or word in ("of", "off", "0"):
        return False
    raise ValueError("it is neither true nor false")


def _int_in(bits: int) -> Decoder:
    def read(data: bytes) -> int:
        text = read_text(data).strip()
        if not re.fullmatch(r"[+-]?[0-9]{1,30}", text):
            raise ValueError("it is not an integer")
        return _within(int(text), bits)

    return read


def _within(number: int, bits: int) -> int:
    if not -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
        raise ValueError(f"it is out of range for {bits} bits")
    return number


def _float_in(data: bytes) -> float:
    text = read_text(data).strip()
    if not re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?inf(inity)?|nan", text, re.IGNORECASE):
        raise ValueError("it is not a number")
    return float(text)


def _float4_in(data: bytes) -> float:
    """Return the single-precision number that is nearest to what was written."""
    try:
        (number,) = struct.unpack("!f", struct.pack("!f", _float_in(data)))
    except OverflowError:
        raise ValueError("it is out of range for 32 bits") from None
    return float(number)


def _numeric_in(data: bytes) -> Decimal:
    text = read_text(data).strip()
    if len(text) > 2000 or "_" in text:
        raise ValueError("it is not a number of at most 2,000 characters")
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise ValueError("it is not a number") from None
    if number.is_finite() and abs(number.adjusted()) > 20_000:
        raise ValueError("the number is out of range")
    return number


def _bytea_in(data: bytes) -> bytes:
    if data.startswith(b"\\x"):
        return bytes.fromhex(read_text(data[2:]))
    return re.sub(rb"\\([0-7]{3}|\\)", lambda m: b"\\" if m[1] == b"\\" else bytes([int(m[1], 8) & 255]), data)


def _date_in(data: bytes) -> dt.date:
    return dt.date.fromisoformat(read_text(data).strip().partition(" ")[0])


def _timestamp_in(data: bytes) -> dt.datetime:
    return dt.datetime.fromisoformat(read_text(data).strip()).replace(tzinfo=None)


def _timestamptz_in(data: bytes) -> dt.datetime:
    moment = dt.datetime.fromisoformat(read_text(data).strip())
    return moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)


def _time_in(data: bytes) -> dt.time:
    return dt.time.fromisoformat(read_text(data).strip())


_INTERVAL_UNITS = {"year": (12, 0, 0), "mon": (1, 0, 0), "week": (0, 7, 0), "day": (0, 1, 0)} | {
    unit: (0, 0, size * 1_000_000) for unit, size in (("hour", 3600), ("min", 60), ("sec", 1))
}

_INTERVAL_NUMBER = r"([+-]?)(\d{1,9})(?:\.(\d{1,6}))?"
_INTERVAL_PART = _INTERVAL_NUMBER + r" ?([a-z]+)"


def _interval_in(data: bytes) -> Interval:
    """Return an interval from PostgreSQL's own style: numbers with units, then perhaps a clock."""
    if len(data) > 1_000:
        raise ValueError("it is not an interval of at most 1,000 characters")
    text = read_text(data).strip().lower()
    clock = re.search(r"(^|\s)([+-]?)(\d{1,9}):(\d\d)(?::(\d\d)(?:\.(\d{1,6}))?)?$", text)
    micros = 0
    if clock:
        hours, minutes, seconds = int(clock[3]), int(clock[4]), int(clock[5] or 0)
        micros = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + int((clock[6] or "0").ljust(6, "0"))
        micros, text = -micros if clock[2] == "-" else micros, text[: clock.start()].strip()
    if re.fullmatch(_INTERVAL_NUMBER, text):
        text += " sec"
    months = days = 0
    for sign, whole, fraction, unit in re.findall(_INTERVAL_PART, text):
        sizes = next((sizes for name, sizes in _INTERVAL_UNITS.items() if unit.startswith(name)), None)
        if sizes is None or (fraction and not sizes[2]):
            raise ValueError("it is not an interval")
        number = -int(whole) if sign == "-" else int(whole)
        part = int(f"{sign}{fraction.ljust(6, '0')}") * sizes[2] // 1_000_000
        months, days, micros = months + number * sizes[0], days + number * sizes[1], micros + number * sizes[2] + part
    if re.sub(_INTERVAL_PART, "", text).strip() or not (text or clock):
        raise ValueError("it is not an interval")
    return Interval(months, days, micros)


def _uuid_in(data: bytes) -> uuid.UUID:
    return uuid.UUID(read_text(data))


DECODERS: dict[int, Decoder] = {
    oids.BOOL: _bool_in,
    oids.INT2: _int_in(16),
    oids.INT4: _int_in(32),
    oids.INT8: _int_in(64),
    oids.OID: _int_in(33),
    oids.FLOAT4: _float4_in,
    oids.FLOAT8: _float_in,
    oids.NUMERIC: _numeric_in,
    oids.BYTEA: _bytea_in,
    oids.DATE: _date_in,
    oids.TIME: _time_in,
    oids.TIMETZ: _time_in,
    oids.TIMESTAMP: _timestamp_in,
    oids.TIMESTAMPTZ: _timestamptz_in,
    oids.INTERVAL: _interval_in,
    oids.UUID: _uuid_in,
}
