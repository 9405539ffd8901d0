"""An hour of mixed load on one server, with kills, full disks and restarts: what grows, what slows down, what is lost.

Run with `python -m benchmarks.soak [--minutes 60] [--clients 16] [--calm]`; `--short` does a few hundred statements.
Clients ask the same questions again and again, and now and then something new, on one table that all share; and each
on a small table of its own. At the end every answer that was seen on those is asked for again, as of then: it must be
stored, and be the same to the digit. Free answers are timed at a quiet server beside as well: others use the machine.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import statistics
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import psycopg

from benchmarks.served import ROOT, Held, Served

ADULT = ROOT / "noisegate" / "data"
OWN_TABLE = """
[tables.own_{number}]
source = "own.parquet"
population = "own {number}"
[tables.own_{number}.columns]
age = {{ type = "integer", min = 0, max = 110 }}
sex = {{ values = ["F", "M"] }}
"""
OWN_ROWS = "SELECT i % 90 AS age, ['F', 'M'][1 + i % 2] AS sex FROM range(3000) AS r(i)"

COLUMNS = ("sex", "race", "education", "occupation", "marital_status", "income", "workclass", "relationship")
DASHBOARD = (
    "SELECT count(*) FROM adult",
    *(f"SELECT {column}, count(*) FROM adult GROUP BY {column} ORDER BY {column}" for column in COLUMNS),
    *(f"SELECT sex, count(*) FROM adult WHERE age >= {age} GROUP BY sex ORDER BY sex" for age in range(20, 70, 10)),
    "SELECT sex, income, count(*) FROM adult GROUP BY sex, income ORDER BY 1, 2",
    "SELECT avg(hours) FROM adult",
    "SELECT income, avg(age) FROM adult GROUP BY income ORDER BY income",
)
"""What is paid for once, before the load, and free from then on."""

CATALOG = (
    "SELECT c.relname, a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid WHERE relname = 'adult'"
)


def policy(folder: Path, clients: int) -> Path:
    """Return a policy with the table that all share, with a budget that does not end, and one for each client."""
    shutil.copy(ADULT / "adult.parquet", folder)
    shutil.copy(ADULT / "adult_synth.parquet", folder)
    duckdb.execute(f"COPY ({OWN_ROWS}) TO '{folder / 'own.parquet'}' (FORMAT parquet)")
    text = (ADULT / "adult.toml").read_text(encoding="utf-8").replace("epsilon = 2.0", "epsilon = 100000.0")
    path = folder / "adult.toml"
    path.write_text(text + "".join(OWN_TABLE.format(number=n) for n in range(clients)), encoding="utf-8")
    return path


def new_question(chance: random.Random) -> str:
    """Return a question on the shared table that was most likely never asked."""
    low, high = sorted(chance.sample(range(17, 91), 2))
    hours, column = chance.randrange(1, 99), chance.choice(COLUMNS)
    return chance.choice(
        (
            f"SELECT count(*) FROM adult WHERE age BETWEEN {low} AND {high} AND hours > {hours}",
            f"SELECT {column}, count(*) FROM adult WHERE hours > {hours} GROUP BY {column} ORDER BY {column}",
            f"SELECT avg(capital_gain) FROM adult WHERE age > {low}",
            f"SELECT count(DISTINCT education) FROM adult WHERE age > {low} AND hours < {hours}",
            f"SELECT median(hours) FROM adult WHERE age > {low}",
        )
    )


@dataclass
class Seen:
    """What one client asked of its own table, in order, and what it was told; None for what failed."""

    table: str
    asked: list[tuple[str, list[tuple[Any, ...]] | None]] = field(default_factory=list)


class Client:
    """One connection that asks, notes what it was told, and connects again when it was thrown out."""

    def __init__(self, server: Served, number: int, note: Callable[[str, float], None], *, pause: float = 0.0) -> None:
        """Ask a server; wait about `pause` seconds after each question, as people and dashboards do."""
        self._server, self._note, self._pause = server, note, pause
        self._chance = random.Random(number)
        self._user = "ann" if number % 2 else "bob"
        self._connection: psycopg.Connection[Any] | None = None
        self.seen = Seen(f"own_{number}")

    def step(self) -> None:
        """Ask one question of some kind; note how long it took, or how it failed."""
        kind = self._chance.choices(("free", "new", "EXPLAIN", "catalog", "own", "budget"), (60, 15, 8, 5, 8, 4))[0]
        time.sleep(self._pause * self._chance.uniform(0.5, 1.5))
        try:
            self._connect()
            start = time.perf_counter()
            getattr(self, f"_{kind.lower()}")()
        except psycopg.Error as error:
            self._note(f"failed {error.sqlstate or 'connection'}", 0.0)
            if self._connection is not None and self._connection.closed:
                self._connection = None
        else:
            self._note(kind, time.perf_counter() - start)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connect(self) -> psycopg.Connection[Any]:
        """Return the connection, a new one where there is none; while the server restarts there is nothing to time."""
        if self._connection is None:
            self._server.up.wait()
            self._connection = psycopg.connect(self._server.dsn(self._user), autocommit=True)
        return self._connection

    def _rows(self, sql: str) -> list[tuple[Any, ...]]:
        return self._connect().execute(sql).fetchall()

    def _free(self) -> None:
        self._rows(self._chance.choice(DASHBOARD))

    def _new(self) -> None:
        self._rows(new_question(self._chance))

    def _explain(self) -> None:
        self._rows(f"EXPLAIN {new_question(self._chance)}")

    def _catalog(self) -> None:
        self._rows(CATALOG)

    def _budget(self) -> None:
        self._rows("SELECT * FROM noisegate.budget")

    def _own(self) -> None:
        """Ask something about the table that nobody else asks about, under a name that says which question it was."""
        asked, age = self.seen.asked, self._chance.randrange(0, 100, 5)
        name = f"question_{len(asked)}"
        sql = self._chance.choice(
            (
                f"SELECT count(*) AS {name} FROM {self.seen.table} WHERE age >= {age}",
                f"SELECT sex, count(*) AS {name} FROM {self.seen.table} GROUP BY sex ORDER BY sex",
                f"SELECT count(DISTINCT age) AS {name} FROM {self.seen.table} WHERE age >= {age}",
                f"SELECT avg(age) AS {name} FROM {self.seen.table}",
            )
        )
        asked.append((sql, None))
        asked[-1] = sql, self._rows(sql)


class Soak:
    """Clients at a server, and what they noted since it was last looked at."""

    def __init__(self, server: Served, clients: int, *, pause: float = 0.0) -> None:
        self.server = server
        self.clients = [Client(server, number, self._note, pause=pause) for number in range(clients)]
        self.took: defaultdict[str, list[float]] = defaultdict(list)
        self.done = self._asking_now = 0
        self._changed = threading.Condition()

    def _note(self, kind: str, seconds: float) -> None:
        with self._changed:
            self.took[kind].append(seconds)
            self.done += 1
            self._changed.notify_all()

    def wait_for(self, statements: int) -> None:
        """Wait until so many statements have ended since the beginning, or nobody asks any more."""
        with self._changed:
            self._changed.wait_for(lambda: self.done >= statements or not self._asking_now)

    def pay(self) -> None:
        """Ask once for what is free from then on."""
        with psycopg.connect(self.server.dsn(), autocommit=True) as connection:
            for sql in DASHBOARD:
                connection.execute(sql)

    def load(self, goes_on: Callable[[int], bool], fault: Callable[[], None] = lambda: None) -> None:
        """Let all clients ask until `goes_on` says no to the number of their questions; do a fault meanwhile."""
        threads = [threading.Thread(target=self._asking, args=(client, goes_on)) for client in self.clients]
        self._asking_now = len(threads)
        for thread in threads:
            thread.start()
        try:
            fault()
        finally:
            for thread in threads:
                thread.join()

    def _asking(self, client: Client, goes_on: Callable[[int], bool]) -> None:
        asked = 0
        while goes_on(asked):
            client.step()
            asked += 1
        client.close()
        with self._changed:
            self._asking_now -= 1
            self._changed.notify_all()

    def taken(self) -> dict[str, list[float]]:
        """Return what was noted since the last time."""
        with self._changed:
            found, self.took = self.took, defaultdict(list)
            return found


def lost(server: Served, clients: list[Client], *, most: int) -> list[str]:
    """Return what answers that were seen are not stored, or are not the same when they are asked for as of then.

    Looks at the last `most` answers of each client. A question was answered from all that had been released about
    its table by then, and nobody else asks about that.
    """
    wrong = []
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        stored = dict(connection.execute("SELECT sql, max(id) FROM noisegate.releases GROUP BY sql").fetchall())
        for seen in (client.seen for client in clients):
            last, answered = 0, list[tuple[int, str, list[tuple[Any, ...]]]]()
            for sql, rows in seen.asked:
                last = max(last, stored.get(sql, 0))
                if rows is not None:
                    answered.append((last, sql, rows))
            for number, sql, rows in answered[-most:]:
                connection.execute(f"SET noisegate.as_of = {number}")
                try:
                    again = connection.execute(sql).fetchall()
                except psycopg.Error as error:
                    again = [(str(error),)]
                if again != rows:
                    wrong.append(f"{sql} told {rows}, as of release {number} {again}")
    return wrong


# --- faults ------------------------------------------------------------------------------------------------


def killed(soak: Soak) -> None:
    soak.server.restart(signal.SIGKILL)


def restarted(soak: Soak) -> None:
    soak.server.restart()


def full_disk(soak: Soak) -> None:
    """Fill the disk until some statements have ended with it full."""
    soak.server.fill_disk()
    soak.wait_for(soak.done + 4 * len(soak.clients))
    soak.server.free_disk()


FAULTS = {"kill -9": killed, "full disk": full_disk, "restart": restarted}


@dataclass(frozen=True)
class Short:
    """What a short soak found: what a server holds before and after connections came and went, and what was lost."""

    before: Held
    after: Held
    lost: list[str]
    answers: int
    ends: dict[str, int]
    crashes: list[str]


def short(folder: Path, *, clients: int = 4, each: int = 12) -> Short:
    """Return what is found after so many statements of each client under each fault, and as many without one."""
    ends: defaultdict[str, int] = defaultdict(int)
    with Served(policy(folder, clients)) as server:
        soak = Soak(server, clients)
        soak.pay()
        for fault in FAULTS.values():
            half = soak.done + clients * each // 2

            def strike(fault: Callable[[Soak], None] = fault, half: int = half) -> None:
                soak.wait_for(half)
                fault(soak)

            soak.load(lambda asked: asked < each, strike)
        held = []
        for _ in range(2):
            for client in soak.clients:
                client._own()  # so that every table is open
                client.close()
            soak.load(lambda asked: asked < each)
            held.append(_quiet(server, held))
        for kind, times in soak.taken().items():
            ends[kind] += len(times)
        wrong = lost(server, soak.clients, most=1000)
        answers = sum(rows is not None for client in soak.clients for _, rows in client.seen.asked)
        return Short(held[0], held[1], wrong, answers, dict(ends), list(server.crashes))


def _quiet(server: Served, before: list[Held]) -> Held:
    """Return what a server holds once connections that have ended are noticed: as much as before, if it ever is."""
    for _ in range(200):
        found = server.held()
        if before and found.descriptors <= before[0].descriptors:
            break
        time.sleep(0.05)
    return found


# --- the long one ------------------------------------------------------------------------------------------

WINDOW = 5
"""Minutes that are told of together; a fault comes between two windows."""

HEADINGS = "  minute  statements  CPU ms each  MB  files  threads  free ms (median, 95 %)  new ms (95 %)  beside ms"


class Beside:
    """Another server, which nobody asks anything new: if it takes longer, that is the machine's doing."""

    def __init__(self, server: Served) -> None:
        self._server = server
        self._connection = psycopg.connect(server.dsn(), autocommit=True)
        self._asked = 0
        for sql in DASHBOARD:
            self._connection.execute(sql)

    def ask(self) -> float:
        """Return how many seconds a free answer takes that is planned anew, since it is asked under other settings."""
        self._asked += 1
        self._connection.execute(f"SET noisegate.max_rho = {self._asked}")
        start = time.perf_counter()
        self._connection.execute(DASHBOARD[self._asked % len(DASHBOARD)])
        return time.perf_counter() - start

    @property
    def cpu(self) -> float:
        """Return how many seconds of CPU the server has used."""
        return self._server.held().cpu


class Watch:
    """Prints what a server holds and how long it takes, minute by minute and window by window."""

    def __init__(self, soak: Soak, beside: Beside) -> None:
        self._soak, self._held, self._beside = soak, soak.server.held(), beside
        self._taken: defaultdict[str, list[float]] = defaultdict(list)
        self._cpu, self._cpu_beside = 0.0, beside.cpu
        self._machine: list[float] = []
        self._first: tuple[float, ...] | None = None

    def wait(self, seconds: float) -> list[float]:
        """Wait, and return how long free answers take meanwhile at the server beside."""
        end, found = time.monotonic() + seconds, [self._beside.ask()]
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(1.0, left))
            found.append(self._beside.ask())
        self._machine += found
        return found

    def minute(self, minute: float, machine: list[float]) -> None:
        """Print what happened in about a minute."""
        now, taken = self._soak.server.held(), self._soak.taken()
        for kind, times in taken.items():
            self._taken[kind] += times
        cpu, self._held = now.cpu - self._held.cpu, now
        self._cpu += cpu
        print(f"  {minute:6.1f}  {_told(taken, cpu, now)}  {1e3 * statistics.median(machine):6.1f}", flush=True)
        bad = {kind: len(times) for kind, times in taken.items() if kind.startswith("failed")}
        if bad:
            print(f"          ended badly: {bad}", flush=True)

    def window(self) -> None:
        """Print what happened since the last window, and free answers as ratios to the first, here and beside."""
        free, machine = sorted(self._taken.get("free", [0.0])), sorted(self._machine)
        count, beside = sum(map(len, self._taken.values())), self._beside.cpu
        here = statistics.median(free), _late(free), self._cpu / max(count, 1)
        there = statistics.median(machine), _late(machine), (beside - self._cpu_beside) / len(machine)
        self._first = self._first or (*here, *there)
        ratios = [now / max(then, 1e-9) for now, then in zip((*here, *there), self._first, strict=True)]
        print(
            f"  window  {_told(self._taken, self._cpu, self._held)}  {1e3 * there[0]:6.1f}\n"
            f"          of the first window: free answers' median {ratios[0]:.2f}, 95 % {ratios[1]:.2f},"
            f" CPU each {ratios[2]:.2f}; beside: {ratios[3]:.2f}, {ratios[4]:.2f}, {ratios[5]:.2f}",
            flush=True,
        )
        self._taken, self._cpu, self._cpu_beside, self._machine = defaultdict(list), 0.0, beside, []

    def fault(self, name: str, fault: Callable[[Soak], None]) -> None:
        """Do a fault, and leave out what was noted meanwhile."""
        start = time.monotonic()
        fault(self._soak)
        bad = {kind: len(times) for kind, times in self._soak.taken().items() if kind.startswith("failed")}
        print(f"  {name}: {time.monotonic() - start:.1f} s, ended badly: {bad}", flush=True)
        self._held = self._soak.server.held()


def watched(soak: Soak, beside: Beside, *, minutes: float, calm: bool) -> None:
    """Load a server for so many minutes and print what it holds and how long it takes, about every minute."""
    end, every = time.monotonic() + 60 * minutes, min(60.0, 6 * minutes)
    faults = list(FAULTS.items())

    def watch() -> None:
        watching, number = Watch(soak, beside), 0
        print(HEADINGS, flush=True)
        while (left := end - time.monotonic()) > 0:
            machine = watching.wait(min(every, left))
            watching.minute(minutes - max(end - time.monotonic(), 0) / 60, machine)
            number += 1
            if number % WINDOW == 0:
                watching.window()
                if not calm and end - time.monotonic() > every:
                    watching.fault(*faults[number // WINDOW % len(faults)])

    soak.load(lambda _: time.monotonic() < end, watch)


def _told(taken: dict[str, list[float]], cpu: float, held: Held) -> str:
    count = sum(map(len, taken.values()))
    free, new = sorted(taken.get("free", [0.0])), sorted(taken.get("new", [0.0]))
    return (
        f"{count:10}  {1e3 * cpu / max(count, 1):11.1f}  {held.megabytes:4.0f}  {held.descriptors:5}  {held.threads:7}"
        f"  {1e3 * statistics.median(free):8.0f} {1e3 * _late(free):8.0f}  {1e3 * _late(new):8.0f}"
    )


def _late(times: list[float]) -> float:
    """Return the 95th percentile of sorted times."""
    return times[min(len(times) - 1, int(0.95 * len(times)))]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds between two questions of a client")
    parser.add_argument("--calm", action="store_true", help="no kills, full disks and restarts")
    parser.add_argument("--short", action="store_true", help="a few hundred statements, as in the tests")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="noisegate-soak-") as name:
        if chosen.short:
            print(short(Path(name)))
            return
        other = Path(name, "beside")
        other.mkdir()
        with Served(policy(Path(name), chosen.clients)) as server, Served(policy(other, 0)) as quiet:
            soak = Soak(server, chosen.clients, pause=chosen.pause)
            soak.pay()
            watched(soak, Beside(quiet), minutes=chosen.minutes, calm=chosen.calm)
            wrong = lost(server, soak.clients, most=20)
            print(f"  lost: {wrong or 'nothing'}; errors that are ours: {list(server.crashes) or 'none'}")


if __name__ == "__main__":
    main()
