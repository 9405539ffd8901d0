"""A dashboard's questions through the gate: what they cost, and how long planning takes as history grows.

Run with `python -m benchmarks.dashboard [questions]`. Random GROUP BYs and filters, three in four counts and the
others sums, every answer at the default error. Times are CPU time of EXPLAIN, in multiples of DuckDB's own time for
the same question on the same file in the same run.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from fractions import Fraction
from pathlib import Path

import duckdb
import numpy as np

from noisegate import connect

QUESTIONS = 300
POLICY = """
[budget]
epsilon = 10000.0
delta = 1e-9
[tables.people]
source = "people.parquet"
[tables.people.columns]
{columns}
income = {{ type = "integer", min = 0, max = 1000, role = "measure" }}
"""
DOMAINS = {"2 x 5 x 9": (2, 5, 9), "4 x 8 x 8": (4, 8, 8), "8 x 8 x 16": (8, 8, 16)}


def make(folder: Path, sizes: tuple[int, ...]) -> Path:
    """Write a table of people and its policy; return the policy's path."""
    columns = [f"(hash(i + {j}) % {size})::INTEGER AS c{j}" for j, size in enumerate(sizes)]
    rows = f"SELECT {', '.join(columns)}, (hash(i + 99) % 1001)::INTEGER AS income FROM range(100000) AS r(i)"
    duckdb.execute(f"COPY ({rows}) TO '{folder / 'people.parquet'}'")
    declared = [f'c{j} = {{ type = "integer", min = 0, max = {size - 1} }}' for j, size in enumerate(sizes)]
    (folder / "noisegate.toml").write_text(POLICY.format(columns="\n".join(declared)))
    return folder / "noisegate.toml"


def question(generator: random.Random, sizes: tuple[int, ...]) -> str:
    """Return a query that groups by, cuts or ignores each column."""
    keys, tests = [], []
    for j, size in enumerate(sizes):
        kind = generator.random()
        if kind < 0.3:
            keys.append(f"c{j}")
        elif kind < 0.65:
            low, high = sorted(generator.choices(range(size), k=2))
            tests.append(f"c{j} BETWEEN {low} AND {high}")
    measured = generator.choice(["count(*)", "count(*)", "count(*)", "sum(income)"])
    where = f" WHERE {' AND '.join(tests)}" if tests else ""
    group = f" GROUP BY {', '.join(keys)}" if keys else ""
    return f"SELECT {', '.join([*keys, measured])} FROM people{where}{group}"


def stream(sizes: tuple[int, ...], questions: int) -> list[tuple[Fraction, Fraction, float, float]]:
    """Return for each question: what it costs alone, what is spent in all, CPU seconds to plan, DuckDB's seconds."""
    found, generator = [], random.Random(7)
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory() as other:
        policy, untouched = make(Path(name), sizes), make(Path(other), sizes)
        bare = duckdb.connect()
        bare.execute(f"CREATE VIEW people AS SELECT * FROM read_parquet('{policy.parent / 'people.parquet'}')")
        with connect(policy) as connection, connect(untouched) as fresh:
            for _ in range(questions):
                sql = question(generator, sizes)
                start = time.perf_counter()
                bare.execute(sql).fetchall()
                middle, cpu = time.perf_counter(), time.process_time()
                plan = connection.explain(sql)
                planned = time.process_time() - cpu
                connection.cursor().execute(sql)
                found.append((fresh.explain(sql).rho, plan.rho_after, planned, middle - start))
    return found


def main() -> None:
    questions = int(sys.argv[1]) if len(sys.argv) > 1 and sys.argv[1].isdigit() else QUESTIONS
    print("cells         questions   below one charge each   planning, times DuckDB: mean   95 %    ms: mean   95 %")
    for name, sizes in DOMAINS.items():
        found = stream(sizes, questions)
        for stop in sorted({min(100, questions), questions}):
            alone, spent = sum(row[0] for row in found[:stop]), found[stop - 1][1]
            times = np.array([row[2] for row in found[:stop]])
            bare = float(np.mean([row[3] for row in found[:stop]]))
            most = float(np.quantile(times, 0.95))
            print(
                f"{name:12}  {stop:9}   {float(alone / spent):21.1f}   {times.mean() / bare:28.1f}   {most / bare:4.1f}"
                f"    {times.mean() * 1e3:8.0f}   {most * 1e3:4.0f}"
            )


if __name__ == "__main__":
    main()
