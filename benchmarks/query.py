"""A query over 10 million Parquet rows, beside DuckDB's own GROUP BY of the same columns in the same run.

Run with `python -m benchmarks.query [rows]`. Every figure is measured in a process of its own, so that peak
memory is that of the thing measured; the runs of the two sides alternate, and the medians are compared.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import duckdb

from noisegate import connect

ROWS = 10_000_000
RUNS = 5
QUERY = "SELECT sex, region, age, count(*) FROM people GROUP BY sex, region, age"
POLICY = """
[budget]
epsilon = 50.0
delta = 1e-9
[tables.people]
source = "people.parquet"
[tables.people.columns]
age = { type = "integer", min = 0, max = 110 }
sex = { values = ["F", "M"] }
region = { values = [%s] }
income = { type = "integer", min = 0, max = 500_000, role = "measure" }
"""


def make(folder: Path, rows: int) -> None:
    """Write a table of people and its policy."""
    regions = [f"region {i:02}" for i in range(16)]
    duckdb.execute(
        f"""COPY (SELECT (hash(i) % 111)::INTEGER AS age,
        CASE WHEN hash(i + 1) % 2 = 0 THEN 'F' ELSE 'M' END AS sex,
        'region ' || lpad((hash(i + 2) % 16)::VARCHAR, 2, '0') AS region,
        (hash(i + 3) % 600000)::INTEGER AS income
        FROM range({rows}) AS r(i)) TO '{folder / "people.parquet"}' (FORMAT parquet)"""
    )
    (folder / "policy.toml").write_text(POLICY % ", ".join(f'"{region}"' for region in regions))


def bare(folder: Path) -> dict[str, float]:
    """Return the time of DuckDB's own GROUP BY, opening included, and the peak memory."""
    start = time.perf_counter()
    connection = duckdb.connect()
    connection.execute(QUERY.replace("people", f"read_parquet('{folder / 'people.parquet'}')")).fetchall()
    return {"cold": time.perf_counter() - start, "memory": peak()}


def gated(folder: Path) -> dict[str, float]:
    """Return the times of the gate: to open it, to plan, cold, with the vector cached, and free."""
    start = time.perf_counter()
    connection = connect(folder / "policy.toml")
    opened = time.perf_counter()
    connection.explain(QUERY)
    planned = time.perf_counter()
    cursor = connection.cursor()
    cursor.execute(QUERY)
    asked = time.perf_counter()
    cursor.execute("SET noisegate.error = 40")
    cursor.execute(QUERY)
    again = time.perf_counter()
    cursor.execute(QUERY)
    return {
        "open": opened - start,
        "plan": planned - opened,
        "cold": asked - planned,
        "cached": again - asked,
        "free": time.perf_counter() - again,
        "memory": peak(),
    }


def peak() -> float:
    """Return the peak memory of this process in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def apart(side: str, folder: Path) -> dict[str, float]:
    for ledger in folder.glob("*.sqlite*"):
        ledger.unlink()
    output = subprocess.run(
        [sys.executable, "-m", "benchmarks.query", side, str(folder)], check=True, capture_output=True, text=True
    )
    found: dict[str, float] = json.loads(output.stdout)
    return found


def main(rows: int = ROWS) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make(folder, rows)
        runs = [(apart("bare", folder), apart("gated", folder)) for _ in range(RUNS)]
    own = {key: statistics.median(run[0][key] for run in runs) for key in runs[0][0]}
    ours = {key: statistics.median(run[1][key] for run in runs) for key in runs[0][1]}
    print(f"{rows:,} rows, median of {RUNS} runs each: {QUERY}")
    print(f"  DuckDB's own GROUP BY   {own['cold'] * 1000:8.1f} ms   peak {own['memory']:.0f} MB")
    for key in ("open", "plan", "cold", "cached", "free"):
        print(f"  gate, {key:<16}  {ours[key] * 1000:8.1f} ms   {ours[key] / own['cold']:.2f} x")
    more = ours["memory"] - own["memory"]
    print(f"  gate, peak memory       {ours['memory']:8.1f} MB   DuckDB's own plus {more:.0f} MB")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["bare" | "gated" as side, folder]:
            print(json.dumps((bare if side == "bare" else gated)(Path(folder))))
        case [rows]:
            main(int(rows))
        case _:
            main()
