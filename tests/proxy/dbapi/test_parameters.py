"""Parameters are bound as values, whatever they hold."""

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest

import noisegate
from planner.sql.statement import Parameters

HOSTILE = [
    "x' OR 1=1 --",
    "' OR ''='",
    "'; DROP TABLE adult; --",
    'quo"te',
    "back\\slash\\' OR 1=1 --",
    "100 % %s %(name)s",
    "? $1 :name",
    "/* comment */ -- comment",
    "$$ dollar $$",
    "new\nline\ttab\r",
    "☃ ' \u2019 \u02bc \uff07",
    "",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_comes_back_as_the_value_it_is(cursor: noisegate.Cursor, text: str) -> None:
    assert cursor.execute("SELECT ? AS v", [text]).fetchall() == [(text,)]


@pytest.mark.parametrize("text", [*HOSTILE, "a\x00b", "\x00' OR 1=1 --"])
def test_hostile_text_never_widens_a_condition(cursor: noisegate.Cursor, text: str) -> None:
    """None of the texts is an education, so the count is 0, give or take 100 times its half-width of 50."""
    try:
        [(n,)] = cursor.execute("SELECT count(*) FROM adult WHERE education = ?", [text]).fetchall()
    except noisegate.DataError:
        assert "\x00" in text
    else:
        assert abs(n) < 5_000


@pytest.mark.parametrize(
    "value",
    [
        0,
        -7,
        2**62,
        0.1,
        -1e-300,
        1e300,
        True,
        False,
        None,
        Decimal("-12.50"),
        dt.date(2024, 2, 29),
        dt.datetime(2024, 2, 29, 12, 30, 1, 5),
    ],
    ids=repr,
)
def test_a_value_comes_back_as_it_went_in(cursor: noisegate.Cursor, value: object) -> None:
    [(found,)] = cursor.execute("SELECT ? AS v", [value]).fetchall()
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("sql", "parameters"),
    [
        ("SELECT ? AS a, ? AS b", (1, "x")),
        ("SELECT $1 AS a, $2 AS b", [1, "x"]),
        ("SELECT $2::INT AS a, $1 AS b", ["x", 1]),
        ("SELECT %s AS a, %s AS b", (1, "x")),
        ("SELECT :one AS a, :two AS b", {"one": 1, "two": "x"}),
        ("SELECT %(one)s AS a, %(two)s AS b", {"one": 1, "two": "x"}),
    ],
)
def test_every_style_of_placeholders_is_bound(cursor: noisegate.Cursor, sql: str, parameters: Parameters) -> None:
    assert cursor.execute(sql, parameters).fetchall() == [(1, "x")]


def test_a_list_can_be_bound_to_in(cursor: noisegate.Cursor) -> None:
    sql = "SELECT count(*) FROM adult WHERE education IN ?"
    [(n,)] = cursor.execute(sql, [("x' OR 1=1 --", "Doctorate")]).fetchall()
    assert abs(n - 413) < 5_000


def test_a_negative_number_binds_tighter_than_any_operator(cursor: noisegate.Cursor) -> None:
    assert cursor.execute("SELECT 5 -? AS a, -? AS b", [-3, -4]).fetchall() == [(8, 4)]


@pytest.mark.parametrize("parameters", ["x", b"x", {"x"}, 5, iter([1])])
def test_parameters_must_be_a_sequence_or_a_mapping(cursor: noisegate.Cursor, parameters: Any) -> None:
    with pytest.raises(noisegate.ProgrammingError, match="parameters must be a sequence or a mapping"):
        cursor.execute("SELECT ? AS v", parameters)


@pytest.mark.parametrize("parameters", [None, [], [1, 2, 3], {"a": 1}], ids=repr)
def test_a_wrong_number_of_parameters_is_refused(cursor: noisegate.Cursor, parameters: Parameters) -> None:
    with pytest.raises(noisegate.DatabaseError, match="parameter"):
        cursor.execute("SELECT ? AS a, ? AS b", parameters)


@pytest.mark.parametrize("value", [object(), b"bytes", 1j])
def test_a_value_of_an_unknown_type_is_refused(cursor: noisegate.Cursor, value: object) -> None:
    with pytest.raises(noisegate.DataError, match="can't be used"):
        cursor.execute("SELECT ? AS v", [value])


def test_sql_must_be_text(cursor: noisegate.Cursor) -> None:
    with pytest.raises(noisegate.ProgrammingError, match="SQL must be text, got bytes"):
        cursor.execute(b"SELECT 1")  # type: ignore[arg-type]
