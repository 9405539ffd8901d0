"""Charges a second beside bare SQLite inserts in the same run, and what a commit takes with a long history.

    python -m benchmarks.ledger

Commits and bare inserts alternate in small batches, so that both see the same disk. A bare insert stores the
same bytes in one table with one index, WAL, synchronous=FULL: it is what the disk allows.
"""

from __future__ import annotations

import json
import os
import platform
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from planner.cells.costs import Cost, to_bytes
from planner.ledger.accounts import Caps, Draft
from planner.ledger.ledger import Ledger

HISTORY = 1000
BATCHES, BATCH = 20, 20
CAP = 2**60
SIZES = {"age#1": 74, "education#1": 16, "hours#1": 99, "race#1": 5, "sex#1": 2}
BODY = bytes(range(256)) * 4


def draft(number: int) -> Draft:
    """The number-th of a stream: without a filter, with a filter on one column, on two columns, and so on."""
    generator = np.random.default_rng(number)
    scope = sorted(generator.choice(sorted(SIZES), size=number % 3, replace=False).tolist())
    values = np.zeros([2] * len(scope), dtype=np.int64)
    values[(1,) * len(scope)] = generator.integers(1, 1000)
    cost = Cost(tuple(scope), tuple(_filter(SIZES[column], generator) for column in scope), values)
    key = sha256(str(number).encode()).hexdigest()
    return Draft(
        key=key,
        question=key,
        population="everyone",
        table="people",
        version=1,
        analyst=f"analyst {number % 4}",
        sql="SELECT 1",
        kind="linear",
        body=BODY,
        cost=cost,
    )


def _filter(size: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """Atom 1 is a random range of the domain, atom 0 the rest."""
    low, high = sorted(generator.choice(size + 1, size=2, replace=False))
    atoms = np.zeros(size, dtype=np.int64)
    atoms[low:high] = 1
    return atoms


def bare(connection: sqlite3.Connection) -> Callable[[int], None]:
    """A loop body that inserts the same bytes without any accounting."""
    connection.isolation_level = None
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE releases (id INTEGER PRIMARY KEY, key TEXT UNIQUE, body BLOB, cost BLOB)")

    def insert(number: int) -> None:
        release = draft(number)
        row = (release.key, release.body, to_bytes(release.cost))
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO releases (key, body, cost) VALUES (?, ?, ?)", row)
        connection.execute("COMMIT")

    return insert


def seconds(work: Callable[[int], object], numbers: range) -> list[float]:
    """The wall time of each call; the draft is made inside, which costs both sides the same."""
    times = []
    for number in numbers:
        start = time.perf_counter()
        work(number)
        times.append(time.perf_counter() - start)
    return times


def alternate(first: Callable[[int], object], second: Callable[[int], object], start: int) -> tuple[float, float]:
    """The median time of a call of each, batch by batch in turn."""
    times: tuple[list[float], list[float]] = ([], [])
    for batch in range(BATCHES):
        numbers = range(start + batch * BATCH, start + (batch + 1) * BATCH)
        times[0].extend(seconds(first, numbers))
        times[1].extend(seconds(second, numbers))
    return statistics.median(times[0]), statistics.median(times[1])


def run() -> dict[str, object]:
    """The figures, as a dictionary that can be printed as JSON."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.sqlite"
        with (
            Ledger.open(path) as ledger,
            closing(sqlite3.connect(Path(folder) / "bare.sqlite")) as connection,
        ):
            insert = bare(connection)

            def commit(number: int) -> None:
                ledger.commit([draft(number)], caps=Caps(CAP, CAP))

            empty = alternate(commit, insert, 0)
            for number in range(BATCHES * BATCH, HISTORY):
                commit(number)
            full = alternate(commit, insert, HISTORY)
            releases = len(ledger.releases())
        start = time.perf_counter()
        Ledger.open(path).close()
        reopened = time.perf_counter() - start
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    return {
        "machine": f"{machine}, SQLite {sqlite3.sqlite_version}",
        "charges a second, first 400": round(1 / empty[0], 1),
        "bare inserts a second": round(1 / empty[1], 1),
        "ratio, first 400": round(empty[1] / empty[0], 3),
        "commit at 1,000 releases, ms": round(full[0] * 1e3, 2),
        "bare insert then, ms": round(full[1] * 1e3, 2),
        "ratio at 1,000 releases": round(full[1] / full[0], 3),
        f"open and verify {releases:,} releases, ms": round(reopened * 1e3, 1),
    }


def main() -> None:
    print(json.dumps(run(), indent=2))


if __name__ == "__main__":
    main()
