"""Parameters get the types that stand beside them, and text where nothing does."""

from __future__ import annotations

import pytest

from proxy.conversation.parameters import parameter_types, sample
from proxy.wire import oids

TYPES = {
    "people": {"age": "BIGINT", "sex": "VARCHAR", "joined": "DATE", "height": "DOUBLE", "active": "BOOLEAN"},
    "other": {"age": "VARCHAR"},
}
GUESSES = {
    "SELECT count(*) FROM people WHERE age > $1 AND sex = $2": (oids.INT8, oids.TEXT),
    "SELECT count(*) FROM people WHERE $1 <= age": (oids.INT8,),
    "SELECT count(*) FROM people WHERE joined BETWEEN $1 AND $2": (oids.DATE, oids.DATE),
    "SELECT count(*) FROM people WHERE age IN ($1, $2)": (oids.INT8, oids.INT8),
    "SELECT count(*) FROM people WHERE age = ANY($1)": (oids.ARRAYS[oids.INT8],),
    "SELECT count(*) FROM people WHERE height < $1 LIMIT $2": (oids.FLOAT8, oids.INT8),
    "SELECT $1::date, $2::int4[], CAST($3 AS numeric)": (oids.DATE, oids.ARRAYS[oids.INT4], oids.NUMERIC),
    "SELECT count(*) FILTER (WHERE age / 10 = $1) FROM people HAVING count(*) > $2": (oids.INT8, oids.INT8),
    "SELECT count(*) FROM people WHERE active = $1 OR $2": (oids.BOOL, oids.BOOL),
    "SELECT count(*) FROM people WHERE sex LIKE $1": (oids.TEXT,),
    "SELECT count(*) FROM other WHERE age = $1": (oids.TEXT,),
    "SELECT $1, $2 + 1, $3 || 'a'": (oids.TEXT, oids.INT4, oids.TEXT),
    "SELECT '$9', $2": (oids.TEXT, oids.TEXT),
    "SELECT 1": (),
    "SELECT count(* FROM $1": (oids.TEXT,),
}


@pytest.mark.parametrize("sql", GUESSES)
def test_a_type_is_taken_from_what_stands_beside_it(sql: str) -> None:
    assert parameter_types(sql, (), TYPES) == GUESSES[sql]


def test_a_type_that_the_client_states_is_kept() -> None:
    sql = "SELECT count(*) FROM people WHERE age > $1 AND age < $2"
    assert parameter_types(sql, (oids.INT2,), TYPES) == (oids.INT2, oids.INT8)


@pytest.mark.parametrize("oid", [oids.BOOL, oids.INT8, oids.DATE, oids.TEXT, oids.ARRAYS[oids.INT4]])
def test_every_type_has_a_sample(oid: int) -> None:
    assert sample(oid) is not None
