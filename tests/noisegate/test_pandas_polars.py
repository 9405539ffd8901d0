"""Data frames are read from a connection as from any other database."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import noisegate

pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")

BY_RACE = "SELECT race, count(*) AS n, avg(age) AS age FROM adult GROUP BY race ORDER BY race"
RACES = ["Amer-Indian-Eskimo", "Asian-Pac-Islander", "Black", "Other", "White"]

# Pandas says so about every connection that is neither SQLAlchemy's nor sqlite3's.
untested_by_pandas = pytest.mark.filterwarnings("ignore:pandas only supports SQLAlchemy connectable:UserWarning")


@pytest.fixture(scope="module")
def connection(shared_adult_policy: Path) -> Iterator[noisegate.Connection]:
    with noisegate.connect(shared_adult_policy, analyst="ann") as connection:
        yield connection


def rows(connection: noisegate.Connection, sql: str) -> list[tuple[object, ...]]:
    with connection.cursor() as cursor:
        return cursor.execute(sql).fetchall()


@untested_by_pandas
def test_pandas_reads_an_answer(connection: noisegate.Connection) -> None:
    frame = pandas.read_sql(BY_RACE, connection)
    assert list(frame.columns) == ["race", "n", "age"]
    assert list(frame["race"]) == RACES
    assert pandas.api.types.is_integer_dtype(frame["n"])
    assert pandas.api.types.is_float_dtype(frame["age"])
    assert list(frame.itertuples(index=False, name=None)) == rows(connection, BY_RACE)


@untested_by_pandas
def test_pandas_passes_parameters(connection: noisegate.Connection) -> None:
    sql = "SELECT ? AS label, count(*) AS n FROM adult WHERE sex = ?"
    frame = pandas.read_sql(sql, connection, params=["x' --", "Male"])
    assert list(frame["label"]) == ["x' --"]


@untested_by_pandas
def test_pandas_reads_in_chunks(connection: noisegate.Connection) -> None:
    chunks = list(pandas.read_sql(BY_RACE, connection, chunksize=2))
    assert [len(chunk) for chunk in chunks] == [2, 2, 1]


@untested_by_pandas
def test_pandas_shows_why_a_question_is_refused(connection: noisegate.Connection) -> None:
    refused = (noisegate.ProgrammingError, pandas.errors.DatabaseError)  # pandas 2 wraps what it gets
    with pytest.raises(refused, match="single rows"):
        pandas.read_sql("SELECT * FROM adult", connection)


def test_polars_reads_an_answer_with_its_types(connection: noisegate.Connection) -> None:
    frame = polars.read_database(BY_RACE, connection)
    assert frame.schema == {"race": polars.String, "n": polars.Int64, "age": polars.Float64}
    assert frame.rows() == rows(connection, BY_RACE)


def test_polars_knows_the_types_of_an_empty_answer(connection: noisegate.Connection) -> None:
    sql = f"SELECT * FROM ({BY_RACE}) AS answer WHERE race = 'nobody'"
    frame = polars.read_database(sql, connection)
    assert frame.height == 0
    assert frame.schema == {"race": polars.String, "n": polars.Int64, "age": polars.Float64}


def test_polars_passes_parameters(connection: noisegate.Connection) -> None:
    options = {"parameters": ["x' --", "Male"]}
    sql = "SELECT ? AS label, count(*) AS n FROM adult WHERE sex = ?"
    assert polars.read_database(sql, connection, execute_options=options)["label"].to_list() == ["x' --"]


def test_polars_reads_in_batches(connection: noisegate.Connection) -> None:
    batches = polars.read_database(BY_RACE, connection, iter_batches=True, batch_size=2)
    assert [batch.height for batch in batches] == [2, 2, 1]


def test_polars_passes_refusals_on(connection: noisegate.Connection) -> None:
    with pytest.raises(noisegate.ProgrammingError):
        polars.read_database("SELECT age FROM adult", connection)
