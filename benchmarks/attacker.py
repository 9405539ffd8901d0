"""An honest client beside an attacker: how long free answers take while one analyst does what it can to the others.

Run with `python -m benchmarks.attacker [--rounds 5] [attack …]`. For each attack the same questions are asked in turn
while it is quiet and while the attack runs, several times in one run, so that whatever else the machine does falls on
both. What counts is the ratio of the medians, at most 2. The attacker is another analyst, in a process of its own.
Answers must be what they were, every time.
"""

from __future__ import annotations

import json
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.served import ROOT, Served
from benchmarks.soak import ADULT, DASHBOARD
from planner.policy.passwords import scram_verifier

PASSWORD = "correct horse battery staple"
LEAST, SECONDS = 3 * len(DASHBOARD), 1.5
"""Questions in each part, however long they take, and how long more are asked."""

SETTLED = 0.1
"""A server that uses less than this part of a core is quiet again."""

LARGE = "SELECT i::int4 AS a, i * 3 AS b, 'row ' || i AS c FROM generate_series(1, 100000) AS t(i)"
JOIN = "SELECT count(*) FROM adult_synth a, adult_synth b, adult_synth c WHERE a.age + b.age * c.age % 7 = {number}"


def doubled(levels: int = 17) -> str:
    """Return a short statement that is long once names are replaced by what they stand for."""
    found = "SELECT age AS x FROM adult"
    for _ in range(levels):
        found = f"SELECT x + x AS x FROM ({found})"
    return f"SELECT count(*) FROM ({found}) WHERE x > 0"


# --- attacks: each runs until its process is ended -----------------------------------------------------------


def _again(work: Callable[[int], object], *, threads: int) -> None:
    """Do something again and again, so many at once, whatever comes of it."""

    def run(number: int) -> None:
        while True:
            with suppress(psycopg.Error, OSError):
                work(number)

    started = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()


def joins(dsn: str, _: int) -> None:
    """Cross joins of a public table, each left to its timeout."""

    def work(number: int) -> None:
        with psycopg.connect(dsn, autocommit=True, options="-c statement_timeout=2000") as connection:
            connection.execute(JOIN.format(number=number))

    _again(work, threads=17)


def doubling(dsn: str, _: int) -> None:
    """EXPLAIN of a statement that doubles at every level."""

    def work(_: int) -> None:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(f"EXPLAIN {doubled()}")

    _again(work, threads=4)


def portals(dsn: str, _: int) -> None:
    """Thousands of cursors, each on a large result of which one row is read."""

    def work(_: int) -> None:
        with psycopg.connect(dsn) as connection:
            for number in range(5000):
                connection.execute(f"DECLARE c{number} CURSOR FOR {LARGE}")
                connection.execute(f"FETCH 1 FROM c{number}")

    _again(work, threads=2)


def copies(dsn: str, _: int) -> None:
    """COPYs of large results that nobody reads."""
    connections = list[psycopg.Connection[Any]]()

    def work(_: int) -> None:
        connection = psycopg.connect(dsn, autocommit=True)
        connections.append(connection)
        connection.pgconn.send_query(f"COPY ({LARGE}) TO STDOUT".encode())
        time.sleep(5)
        connection.close()

    _again(work, threads=20)


def half_open(_: str, port: int) -> None:
    """Sockets that connect and say nothing."""
    held = list[socket.socket]()
    while True:
        with suppress(OSError):
            held.append(socket.create_connection(("127.0.0.1", port)))
        if len(held) > 300:
            held.pop(0).close()
        time.sleep(0.005)


def logins(dsn: str, _: int) -> None:
    """Wrong passwords, many at once."""

    def work(number: int) -> None:
        psycopg.connect(dsn.replace(PASSWORD.split()[0], f"wrong{number}")).close()

    _again(work, threads=16)


ATTACKS: dict[str, Callable[[str, int], None]] = {
    attack.__name__: attack for attack in (joins, doubling, portals, copies, half_open, logins)
}


# --- the honest client -----------------------------------------------------------------------------------------


def policy(folder: Path) -> Path:
    """Return the policy of the bundled table with passwords, and time for few statements."""
    for name in ("adult.parquet", "adult_synth.parquet", "adult.toml"):
        shutil.copy(ADULT / name, folder)
    path = folder / "adult.toml"
    text = path.read_text(encoding="utf-8")
    for share in ("share = 0.6", "share = 0.4"):
        text = text.replace(share, f'{share}\npassword = "{scram_verifier(PASSWORD)}"')
    path.write_text(text, encoding="utf-8")
    return path


Answers = dict[str, list[tuple[Any, ...]]]


@dataclass(frozen=True)
class Part:
    """How long each question took in one part of a run, and what the answers were."""

    took: list[float]
    told: Answers

    def at(self, percent: int) -> float:
        return statistics.quantiles(self.took, n=100, method="inclusive")[percent - 1]


def asked(server: Served) -> Part:
    """Ask all questions again and again on one connection."""
    took, told = list[float](), Answers()
    with psycopg.connect(_dsn(server, "ann"), autocommit=True) as connection:
        end = time.perf_counter() + SECONDS
        while len(took) < LEAST or time.perf_counter() < end:
            sql = DASHBOARD[len(took) % len(DASHBOARD)]
            start = time.perf_counter()
            told[sql] = connection.execute(sql).fetchall()
            took.append(time.perf_counter() - start)
    return Part(took, told)


def settle(server: Served) -> None:
    """Wait until a server has got over what it was asked."""
    while True:
        before = server.held().cpu
        time.sleep(0.5)
        if server.held().cpu - before < 0.5 * SETTLED:
            return


@contextmanager
def attacked(name: str, server: Served) -> Iterator[None]:
    """Have a server attacked, by another process, until the block ends."""
    command = [sys.executable, "-m", "benchmarks.attacker", "--attack", name, _dsn(server, "bob"), str(server.port)]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        time.sleep(3)  # until the attack is under way
        yield
    finally:
        process.kill()
        process.wait()


def _dsn(server: Served, user: str) -> str:
    return f"{server.dsn(user)} password='{PASSWORD}'"


def ratios(name: str, server: Served, *, rounds: int) -> dict[str, object]:
    """Return how much longer answers take while attacked, and what the server holds then; raise if one was lost."""
    asked(server)  # all is paid for from here on
    first = quiet = asked(server)
    medians, late, calm, held = list[float](), list[float](), [first.at(50)], server.held()
    for _ in range(rounds):
        with attacked(name, server):
            try:
                under = asked(server)
            except psycopg.Error as error:
                return {"attack": name, "failed": str(error).splitlines()[0], "MB": round(server.held().megabytes)}
            held = server.held()
        settle(server)
        before, quiet = quiet, asked(server)
        if not first.told == under.told == quiet.told:
            raise AssertionError(f"{name}: answers are not what they were")
        medians.append(under.at(50) * 2 / (before.at(50) + quiet.at(50)))
        late.append(under.at(95) * 2 / (before.at(95) + quiet.at(95)))
        calm.append(quiet.at(50))
    return {
        "attack": name,
        "median, times": _spread(medians),
        "95 %, times": _spread(late),
        "quiet ms": round(1e3 * statistics.median(calm), 2),
        "MB": round(held.megabytes),
        "threads": held.threads,
        "files": held.descriptors,
    }


def _spread(found: list[float]) -> str:
    """Return the middle of several ratios, and the least and the most of them."""
    return f"{statistics.median(found):.2f} ({min(found):.2f} to {max(found):.2f})"


def main(names: list[str], rounds: int) -> None:
    for name in names or list(ATTACKS):
        with tempfile.TemporaryDirectory() as folder, Served(policy(Path(folder)), trust=False) as server:
            print(f"  {json.dumps(ratios(name, server, rounds=rounds))}", flush=True)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--attack", name, dsn, port]:
            ATTACKS[name](dsn, int(port))
        case ["--rounds", rounds, *names]:
            main(names, int(rounds))
        case names:
            main(names, 5)
