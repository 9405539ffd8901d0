"""Values read back as they were written, and are what psycopg, and PostgreSQL itself, take them for."""

from __future__ import annotations

import datetime as dt
import json
import math
import struct
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.wire import oids, rows
from proxy.wire.spans import Interval, Named
from proxy.wire.values import Format, decoder, encoder

psycopg = pytest.importorskip("psycopg")
from psycopg.adapt import PyFormat, Transformer  # noqa: E402 - psycopg may be missing
from psycopg.types.numeric import Int2, Int4, Int8  # noqa: E402 - the same

TEXT, BINARY = Format.TEXT, Format.BINARY

letters = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)
moments = st.datetimes(min_value=dt.datetime(1, 1, 2), max_value=dt.datetime(9999, 12, 30))
spans = st.builds(Interval, st.integers(-(2**20), 2**20), st.integers(-(2**20), 2**20), st.integers(-(2**40), 2**40))
decimals = st.decimals(allow_nan=False, allow_infinity=False, places=6, min_value=-(10**30), max_value=10**30)

SCALARS: dict[int, st.SearchStrategy[Any]] = {
    oids.BOOL: st.booleans(),
    oids.INT2: st.integers(-(2**15), 2**15 - 1),
    oids.INT4: st.integers(-(2**31), 2**31 - 1),
    oids.INT8: st.integers(-(2**63), 2**63 - 1),
    oids.OID: st.integers(0, 2**32 - 1),
    oids.FLOAT4: st.floats(width=32, allow_nan=False),
    oids.FLOAT8: st.floats(allow_nan=False),
    oids.NUMERIC: decimals,
    oids.TEXT: letters,
    oids.VARCHAR: letters,
    oids.BYTEA: st.binary(max_size=30),
    oids.DATE: st.dates(),
    oids.TIME: st.times(),
    oids.TIMESTAMP: moments,
    oids.TIMESTAMPTZ: moments.map(lambda moment: moment.replace(tzinfo=dt.UTC)),
    oids.INTERVAL: spans,
    oids.UUID: st.uuids(),
    oids.JSON: st.dictionaries(letters, st.integers()).map(json.dumps),
    oids.JSONB: st.dictionaries(letters, st.integers()).map(json.dumps),
}
ARRAYED = [oid for oid in SCALARS if oid in oids.ARRAYS and oid != oids.JSONB]
FORMATS = pytest.mark.parametrize("form", [TEXT, BINARY], ids=["text", "binary"])


def again(value: object, oid: int, form: Format) -> object:
    return decoder(oid, form)(encoder(oid, form)(value))


@FORMATS
@pytest.mark.parametrize("oid", SCALARS)
def test_a_value_reads_back_as_it_was_written(oid: int, form: Format) -> None:
    @given(SCALARS[oid])
    def check(value: object) -> None:
        assert again(value, oid, form) == value

    check()


@FORMATS
@pytest.mark.parametrize("oid", ARRAYED)
def test_an_array_reads_back_as_it_was_written(oid: int, form: Format) -> None:
    @given(st.lists(st.none() | SCALARS[oid], max_size=5))
    def check(values: list[object]) -> None:
        assert again(values, oids.ARRAYS[oid], form) == values

    check()


@FORMATS
def test_an_array_of_two_dimensions_reads_back(form: Format) -> None:
    values = [[1, None, 3], [4, 5, 6]]
    assert again(values, oids.ARRAYS[oids.INT4], form) == values


@FORMATS
@given(value=st.sampled_from(["NULL", "null", "", " ", "a,b", "{}", '"', "\\", "a b", "ü"]))
def test_strings_that_look_like_syntax_survive_in_an_array(value: str, form: Format) -> None:
    assert again([value], oids.ARRAYS[oids.TEXT], form) == [value]


def test_floats_are_written_as_postgresql_writes_them() -> None:
    written = {
        1.0: "1", 0.1: "0.1", 1e15: "1e+15", 1e14: "100000000000000", 123456789012345.6: "123456789012345.6",
        1234567890123456.0: "1.234567890123456e+15", 1e-4: "0.0001", 1e-5: "1e-05", 1.5e300: "1.5e+300",
        -0.0: "-0", math.inf: "Infinity", -math.inf: "-Infinity", 40.441313341960466: "40.441313341960466",
    }  # fmt: skip
    assert {value: encoder(oids.FLOAT8, TEXT)(value).decode() for value in written} == written
    assert encoder(oids.FLOAT8, TEXT)(math.nan) == b"NaN"
    assert [encoder(oids.FLOAT4, TEXT)(x) for x in (1.0, 0.1, 1e6, 123456.0, 1e-5)] == [
        b"1", b"0.1", b"1e+06", b"123456", b"1e-05",
    ]  # fmt: skip


@pytest.mark.parametrize("value", [3.4028234663852886e38, -3.4025001647762064e38])
def test_a_float_near_the_largest_one_is_not_rounded_beyond_it(value: float) -> None:
    assert again(value, oids.FLOAT4, TEXT) == value


def test_intervals_are_written_as_postgresql_writes_them() -> None:
    written = {
        Interval(): "00:00:00",
        Interval(14, 3, 14_706_500_000): "1 year 2 mons 3 days 04:05:06.5",
        Interval(-14, -3, -1_000_000): "-1 years -2 mons -3 days -00:00:01",
        Interval(0, 1, 0): "1 day",
        Interval(12, 0, 0): "1 year",
        Interval(0, 0, 90_000_000_000): "25:00:00",
    }
    assert {value: encoder(oids.INTERVAL, TEXT)(value).decode() for value in written} == written
    assert encoder(oids.INTERVAL, TEXT)(dt.timedelta(days=2, seconds=1)) == b"2 days 00:00:01"


def test_times_are_written_as_postgresql_writes_them() -> None:
    moment = dt.datetime(2020, 1, 2, 3, 4, 5, 600_000)
    assert encoder(oids.TIMESTAMP, TEXT)(moment) == b"2020-01-02 03:04:05.6"
    assert encoder(oids.TIMESTAMPTZ, TEXT)(moment.replace(tzinfo=dt.UTC)) == b"2020-01-02 03:04:05.6+00"
    half = dt.timezone(dt.timedelta(hours=5, minutes=30))
    assert encoder(oids.TIMESTAMPTZ, TEXT)(moment.replace(tzinfo=half)) == b"2020-01-02 03:04:05.6+05:30"
    assert encoder(oids.TIME, TEXT)(dt.time(1, 2, 3)) == b"01:02:03"


@pytest.mark.parametrize(
    "value", ["0", "1", "-1", "0.1", "1.50", "10000", "0.0001", "123456789.987654321", "1e20", "NaN"]
)
def test_a_number_of_many_digits_is_what_psycopg_takes_it_for(value: str) -> None:
    number = Decimal(value)
    loaded = (
        Transformer().get_loader(oids.NUMERIC, psycopg.pq.Format.BINARY).load(encoder(oids.NUMERIC, BINARY)(number))
    )
    assert str(loaded) == str(Decimal(format(number, "f"))) or (loaded.is_nan() and number.is_nan())


LOADED: dict[int, Callable[[Any], Any]] = {
    oids.JSON: json.loads,
    oids.JSONB: json.loads,
    oids.INTERVAL: lambda span: dt.timedelta(days=span.days, microseconds=span.microseconds),
}
PSYCOPG = sorted(set(SCALARS) - {oids.INTERVAL, oids.FLOAT4})


@FORMATS
@pytest.mark.parametrize("oid", PSYCOPG)
def test_a_value_is_what_psycopg_takes_it_for(oid: int, form: Format) -> None:
    loader = Transformer().get_loader(oid, psycopg.pq.Format(form))

    @given(SCALARS[oid])
    def check(value: object) -> None:
        expected = LOADED.get(oid, lambda same: same)(value)
        assert loader.load(encoder(oid, form)(value)) == expected

    check()


@FORMATS
@pytest.mark.parametrize("value", [dt.timedelta(days=-3, seconds=5), dt.timedelta(0), dt.timedelta(days=400)])
def test_a_timedelta_is_what_psycopg_takes_it_for(value: dt.timedelta, form: Format) -> None:
    loader = Transformer().get_loader(oids.INTERVAL, psycopg.pq.Format(form))
    assert loader.load(encoder(oids.INTERVAL, form)(value)) == value


@pytest.mark.parametrize(
    "value",
    [True, Int2(5), Int4(-7), Int8(2**40), 1.5, Decimal("12.50"), "text", dt.date(2020, 2, 29),
     dt.datetime(2020, 1, 1, 12), dt.datetime(2020, 1, 1, 12, tzinfo=dt.UTC), dt.time(3, 4), uuid.UUID(int=7)],
)  # fmt: skip
@FORMATS
def test_a_parameter_of_psycopg_is_read(value: object, form: Format) -> None:
    wanted = PyFormat.BINARY if form else PyFormat.TEXT
    transformer = Transformer()
    [data] = transformer.dump_sequence([value], [wanted])
    [oid] = transformer.types or (0,)
    assert data is not None
    assert decoder(oid or oids.TEXT, form)(bytes(data)) == value


@given(st.binary(max_size=60), st.sampled_from([*SCALARS, *oids.ARRAYS.values()]), st.sampled_from(Format))
def test_any_bytes_are_a_value_or_a_value_error(data: bytes, oid: int, form: Format) -> None:
    try:
        decoder(oid, form)(data)
    except ValueError as error:
        assert str(error)  # noqa: PT017 - both ends are right


@given(st.integers(-1, 2**31 - 1), st.integers(-3, 2**31 - 1))
def test_an_array_that_claims_to_be_large_is_refused_without_being_made(dimensions: int, size: int) -> None:
    data = struct.pack("!iiiii", dimensions, 0, oids.INT4, size, 1)
    if dimensions == 0:
        return
    with pytest.raises(ValueError, match="array"):
        decoder(oids.ARRAYS[oids.INT4], BINARY)(data)


def test_names_are_text_and_numbers_are_binary() -> None:
    table = Named(16385, "public.people")
    assert encoder(oids.REGCLASS, TEXT)(table) == b"public.people"
    assert encoder(oids.REGCLASS, BINARY)(table) == struct.pack("!I", 16385)


def test_vectors_are_written_as_the_catalog_writes_them() -> None:
    assert encoder(oids.INT2VECTOR, TEXT)([1, 2]) == b"1 2"
    assert encoder(oids.OIDVECTOR, BINARY)([23])[:20] == struct.pack("!iiiii", 1, 0, oids.OID, 1, 0)


def test_what_has_no_type_of_its_own_is_written_as_text() -> None:
    assert (
        encoder(oids.TEXT, TEXT)({"a": dt.date(2020, 1, 1), "b": [1, None]}) == b'{"a": "2020-01-01", "b": [1, null]}'
    )


@given(st.lists(st.tuples(st.none() | st.integers(-9, 9), st.none() | letters), max_size=8))
def test_many_rows_at_once_are_the_rows_one_by_one(found: list[tuple[object, ...]]) -> None:
    encoders = [encoder(oids.INT4, BINARY), encoder(oids.TEXT, TEXT)]
    one_by_one = b"".join(rows.data_rows([row], encoders) for row in found)
    assert rows.data_rows(found, encoders) == one_by_one


def test_equal_values_that_are_written_differently_stay_different() -> None:
    found = [(Decimal("1.0"),), (Decimal("1.00"),)]
    written = rows.data_rows(found, [encoder(oids.NUMERIC, TEXT)])
    assert b"1.0D" in written
    assert written.endswith(b"1.00")
    assert rows.data_rows([(0.0,), (-0.0,)], [encoder(oids.FLOAT8, TEXT)]).endswith(b"-0")


@FORMATS
@pytest.mark.parametrize("oid", SCALARS)
@given(data=st.data())
def test_many_values_at_once_are_the_bytes_of_each(oid: int, form: Format, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.none() | SCALARS[oid], max_size=20))
    encode = encoder(oid, form)
    each = [rows.NULL if v is None else struct.pack("!i", len(encode(v))) + encode(v) for v in values]
    assert rows.cells(values, encode) == each


def test_texts_with_a_mark_between_them_stay_apart() -> None:
    """U+0000 stands between texts that are written together; one that has it itself is written alone."""
    encode = encoder(oids.TEXT, TEXT)
    assert rows.cells(["a\0b", "c"], encode) == [b"\0\0\0\3a\0b", b"\0\0\0\1c"]
