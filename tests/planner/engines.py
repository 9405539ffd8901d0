"""The same awkward rows in a Parquet file, in PostgreSQL and in Spark, and tables of the policy that read them."""

from __future__ import annotations

import datetime as dt
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from planner.policy.domain import Domain
from planner.policy.table import Column, Table
from tests.proxy.postgres import Postgres

UTC = dt.UTC
NAN, INFINITY = float("nan"), float("inf")

COLUMNS: dict[str, tuple[pa.DataType, str]] = {
    "key": (pa.int64(), "bigint"),
    "who": (pa.string(), "text"),
    "number": (pa.int32(), "integer"),
    "day_of_key": (pa.date32(), "date"),
    "small": (pa.int16(), "smallint"),
    "count": (pa.int32(), "integer"),
    "big": (pa.int64(), "bigint"),
    "price": (pa.decimal128(18, 4), "numeric(18,4)"),
    "weight": (pa.float64(), "double precision"),
    "short": (pa.float32(), "real"),
    "word": (pa.string(), "text"),
    "flag": (pa.bool_(), "boolean"),
    "day": (pa.date32(), "date"),
    "moment": (pa.timestamp("us"), "timestamp"),
    "instant": (pa.timestamp("us", tz="UTC"), "timestamptz"),
}
"""The columns of the rows: their types in Parquet and in PostgreSQL."""

WORDS = [
    "F",
    "f",
    "F ",
    " F",
    "",
    "é",
    "e\u0301",
    "É",
    "ß",
    "ss",
    "it's",
    'say "hi"',
    "back\\slash",
    "100%",
    "a\tb",
    "a\nb",
]
WORDS += ["😀", "\U0001f600x", "NULL", "null", "İ", "i", "I", "ﬀ", "z", "Z", "\\n", "%s", "{}", "`tick`", "–"]
BIG = [0, 1, -1, 2**31, -(2**31), 2**53 + 1, -(2**53) - 1, 2**62, -(2**62), 2**63 - 1, -(2**63)]
HALVES = [k / 8 for k in range(-24, 41)]
FLOATS = [*HALVES, 0.15, 0.25, 0.35, 1.005, -0.0, 1e-320, 1e308, -1e308, NAN, INFINITY, -INFINITY, 2.0**63, 9.3e18]
SHORT = [float(np.float32(x)) for x in FLOATS if x == 0 or (not 0 < abs(x) < 1e-30 and not 1e30 < abs(x) < INFINITY)]
PRICES = [Decimal(text) for text in ("0.005", "0.015", "0.025", "-0.005", "2.5", "3.5", "-2.5", "99999999999999.9999")]
DAYS = [dt.date(2024, 2, 29), dt.date(2023, 12, 31), dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(1582, 10, 10)]
MOMENTS = [
    dt.datetime(2024, 3, 31, 1, 59, 59, 999_999),
    dt.datetime(2024, 3, 31, 2, 30),
    dt.datetime(2024, 10, 27, 2, 30),
    dt.datetime(1900, 1, 1, 0, 0, 0, 1),
    dt.datetime(1969, 12, 31, 23, 59, 59, 999_999),
    dt.datetime(9999, 12, 31, 23, 59, 59, 999_999),
    dt.datetime(1, 1, 1),
]


def rows(count: int, seed: int) -> list[dict[str, Any]]:
    """Return rows in which each column has every awkward value, plain ones, and NULL."""
    draw = random.Random(seed)

    def some(awkward: list[Any], plain: Any, i: int) -> Any:
        if i < len(awkward):
            return awkward[i]
        return draw.choice([None, plain, plain, plain, draw.choice(awkward)])

    found = []
    for i in range(count):
        moment = dt.datetime(2024, 3, 30) + dt.timedelta(minutes=draw.randrange(4_000), microseconds=draw.randrange(3))
        instant = some(MOMENTS, moment, i)
        found.append(
            {
                "key": i // 2 if draw.random() < 0.1 else i,
                "who": draw.choice([None, "", "a", "A", "a ", "é", "x|1", "x", *(f"p{k}" for k in range(30))]),
                "number": draw.choice([None, *range(-5, 25)]),
                "day_of_key": draw.choice([None, dt.date(2024, 1, 1) + dt.timedelta(days=draw.randrange(60))]),
                "small": some([-(2**15), 2**15 - 1, 0], draw.randrange(-10, 10), i),
                "count": some([-(2**31), 2**31 - 1, 0], draw.randrange(-20, 130), i),
                "big": some(BIG, draw.randrange(-1000, 1000), i),
                "price": some(PRICES, Decimal(draw.randrange(-5_000, 5_000)) / 1000, i),
                "weight": some(FLOATS, draw.randrange(-30, 30) / 8, i),
                "short": some(SHORT, draw.randrange(-30, 30) / 8, i),
                "word": some(WORDS, draw.choice("FM"), i),
                "flag": draw.choice([None, True, False]),
                "day": some(DAYS, dt.date(2024, 1, 1) + dt.timedelta(days=draw.randrange(80)), i),
                "moment": some(MOMENTS, moment, i),
                "instant": instant if instant is None else instant.replace(tzinfo=UTC),
            }
        )
    return found


def write_parquet(path: Path, made: list[dict[str, Any]]) -> None:
    schema = pa.schema([(name, kind) for name, (kind, _) in COLUMNS.items()])
    pq.write_table(pa.Table.from_pylist(made, schema=schema), path)


def write_postgres(server: Postgres, name: str, made: list[dict[str, Any]]) -> str:
    """Make a table, and return the source that reads it."""
    columns = ", ".join(f'"{column}" {kind}' for column, (_, kind) in COLUMNS.items())
    with owner(server) as connection:
        connection.execute(f"DROP TABLE IF EXISTS {name}")
        connection.execute(f"CREATE TABLE {name} ({columns})")
        with connection.cursor().copy(f"COPY {name} FROM STDIN") as copy:
            for row in made:
                copy.write_row(list(row.values()))
        connection.execute(f"GRANT SELECT ON {name} TO ann")
    return f"{url(server)}#public.{name}"


def spark_source(name: str) -> str:
    """Return the source of a table of the tests' Spark, which is started if it does not run yet."""
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    if shutil.which("java") is None:
        pytest.skip("Java is not installed")
    from pyspark.sql import SparkSession

    from planner.sources.spark import LOCAL, STARTED

    # For small tables: one task a stage, no second thoughts, and no compiling of each query.
    quick = {
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    settings = {**STARTED, **LOCAL, **quick}
    builder = SparkSession.builder.master("local[1]").config(map=settings)
    builder.getOrCreate().sparkContext.setLogLevel("OFF")
    return f"spark:local[1]#{name}"


def url(server: Postgres, *, user: str = "ann", port: int | None = None) -> str:
    return f"postgresql://{user}@127.0.0.1:{port or server.port}/noisegate"


@contextmanager
def owner(server: Postgres) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(url(server, user="noisegate"), autocommit=True) as connection:
        yield connection


def grid(kind: str, low: Any, high: Any, step: Any, *, nullable: bool = False) -> Domain:
    return Domain(type=kind, low=low, high=high, step=step, nullable=nullable)


def table(source: str, domains: dict[str, Domain], **rest: Any) -> Table:
    columns = {name: Column(name, domain=domain) for name, domain in domains.items()}
    if rest.get("unit"):
        columns.setdefault(rest["unit"], Column(rest["unit"]))
    return Table(name="people", source=source, columns=columns, **rest)
