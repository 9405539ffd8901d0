"""Does to a ledger what a test can't do to itself: races, kill -9, a full disk, lost rights.

Run as `python -m tests.planner.ledger_worker TASK PATH [NUMBER ...]`; prints one JSON value.
Workers are forked after the imports, so that a kill hits the ledger and not Python's start.
"""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import sys
import time
import traceback
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from planner.basics.errors import BudgetExceeded, LedgerFailed, Refusal
from planner.cells.costs import constant
from planner.curator.relocation import relocate
from planner.ledger.accounts import Caps, Draft
from planner.ledger.ledger import Ledger
from planner.ledger.stores import marker_of, postgres, sqlite
from planner.ledger.stores.sqlite import SqliteStore
from planner.policy.ledger import Remote, is_remote
from tests.proxy.postgres import Postgres

Log = Callable[[str], object]


def draft(key: str, *, body: bytes = b"answer", units: int = 1) -> Draft:
    return Draft(
        key=key,
        question="question",
        population="everyone",
        table="people",
        version=1,
        analyst="alice",
        sql="SELECT 1",
        kind="linear",
        body=body,
        cost=constant(units),
    )


def remote(server: Postgres, folder: Path, schema: str | None = None) -> Remote:
    """Return a place in a schema that nothing else uses; the marker is in the folder."""
    url = f"postgresql://noisegate@127.0.0.1:{server.port}/noisegate#{schema or f'ledger_{uuid.uuid4().hex}'}"
    return Remote.parse(url, marker=folder / "policy.ledger.born")


def written(place: Path | Remote) -> str:
    """Return a place as an argument; `read` reads it."""
    return f"{place.conninfo}#{place.schema} {place.marker}" if isinstance(place, Remote) else str(place)


def read(text: str) -> Path | Remote:
    url, _, marker = text.partition(" ")
    return Remote.parse(url, marker=Path(marker)) if is_remote(url) else Path(text)


def beside(place: Path | Remote, name: str) -> Path:
    return marker_of(place).with_name(name)


def forked(work: Callable[[Log], object], log: Path) -> int:
    """Run the work in a child; what it logs is one write a line, so that a kill never tears a line."""
    child = os.fork()
    if child:
        return child
    try:
        with log.open("ab", buffering=0) as lines:
            work(lambda line: lines.write(line.encode() + b"\n"))
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def logged(log: Path) -> list[str]:
    return log.read_text().splitlines() if log.exists() else []


def race(place: Path | Remote, workers: int, tries: int, cap: int) -> object:
    """Each worker opens the ledger (the first one makes it) and tries to spend one unit `tries` times."""
    log = beside(place, "race.log")

    def work(name: int) -> Callable[[Log], None]:
        def spend(write: Log) -> None:
            with Ledger.open(place) as ledger:
                for number in range(tries):
                    try:
                        release = ledger.commit([draft(f"{name}-{number}")], caps=Caps(cap, cap))[0]
                        write(f"stored {release.id}")
                    except BudgetExceeded:
                        write("refused")

        return spend

    children = [forked(work(name), log) for name in range(workers)]
    codes = [os.waitpid(child, 0)[1] for child in children]
    return {"codes": codes, "lines": logged(log)}


def races(place: Path | Remote, times: int) -> object:
    """Let two workers meet again and again over a budget that is enough for one of them."""
    log = beside(place, "races.log")
    Ledger.open(place).close()
    pipes = os.pipe(), os.pipe()

    def work(name: int) -> Callable[[Log], None]:
        def spend(write: Log) -> None:
            with Ledger.open(place) as ledger:
                for number in range(times):
                    wanted = replace(draft(f"{name}-{number}"), population=f"people {number}")
                    os.write(pipes[1 - name][1], b"x")  # they start each race together
                    os.read(pipes[name][0], 1)
                    try:
                        ledger.commit([wanted], caps=Caps(1, 1))
                        write(f"won {number} {name}")
                    except BudgetExceeded:
                        write(f"refused {number} {name}")

        return spend

    children = [forked(work(name), log) for name in range(2)]
    codes = [os.waitpid(child, 0)[1] for child in children]
    assert codes == [0, 0], codes
    return {"lines": logged(log)}


def endure(place: Path | Remote, workers: int, cap: int) -> object:
    """Let workers ask until nothing is left, whatever happens to the server; return answers, and failures met."""
    log = beside(place, "answers.log")
    Ledger.open(place).close()

    def work(name: int) -> Callable[[Log], None]:
        def ask(write: Log) -> None:
            ledger, number = None, 0
            while True:
                try:
                    ledger = ledger or Ledger.open(place)
                    key, body = f"{name}-{number}", os.urandom(8)
                    answered = ledger.commit([draft(key, body=body)], caps=Caps(cap, cap))[0]
                    write(f"{key}={answered.body.hex()}")
                    number += 1
                except LedgerFailed:
                    write("failed")
                    time.sleep(0.02)
                except BudgetExceeded:
                    return

        return ask

    children = [forked(work(name), log) for name in range(workers)]
    codes = [os.waitpid(child, 0)[1] for child in children]
    assert codes == [0] * workers, codes
    answers = [line.split("=") for line in logged(log) if line != "failed"]
    return {"answers": answers, "failures": logged(log).count("failed")}


def pause_before(place: Path | Remote) -> object:
    """Stop after the draw and before the charge; say how the charge ended."""
    with Ledger.open(place) as ledger:
        os.kill(os.getpid(), signal.SIGSTOP)
        return _ending(lambda: ledger.commit([draft("paused")], caps=Caps(1, 1)))


def pause_inside(place: Path | Remote) -> object:
    """Stop inside the transaction that charges; the server is less patient than usual."""
    postgres.IDLE_SECONDS = 1

    def stop(_: object) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)

    with Ledger.open(place) as ledger:
        return _ending(lambda: ledger.commit([draft("paused")], caps=Caps(1, 1), once=stop))


def _ending(work: Callable[[], object]) -> str:
    try:
        work()
    except Refusal as refusal:
        return type(refusal).__name__
    return "done"


def kill(place: Path | Remote, rounds: int, cap: int) -> object:
    """Kill two workers shortly after they gave some answers, again and again; return the answers they gave.

    Both workers ask the same few hundred questions, each with draws of its own.
    """
    log = beside(place, "kill.log")
    moments = random.Random(rounds)

    def answer(write: Log) -> None:
        own = random.Random(os.urandom(16))
        with Ledger.open(place) as ledger:
            while True:
                key = f"key {own.randrange(1000)}"
                try:
                    release = ledger.commit([draft(key, body=own.randbytes(8))], caps=Caps(cap, cap))[0]
                except BudgetExceeded:
                    continue
                write(f"{key}={release.body.hex()}")

    for _ in range(rounds):
        children = [forked(answer, log) for _ in range(2)]
        enough = len(logged(log)) + moments.randint(0, 6)
        while len(logged(log)) < enough:
            time.sleep(0.001)
        for child in children:
            time.sleep(moments.uniform(0, 0.02))
            os.kill(child, signal.SIGKILL)
        endings = [os.waitpid(child, 0)[1] for child in children]
        assert endings == [signal.SIGKILL] * 2, endings
    return [line.split("=") for line in logged(log)]


def born(path: Path, rounds: int) -> object:
    """Kill workers while they make a ledger; return for each round the ledger that is there afterwards."""
    log = path.with_name("born.log")
    moments = random.Random(rounds)
    found = []
    for number in range(rounds):
        place = path.with_name(f"{number}.sqlite")
        children = [forked(lambda _, place=place: Ledger.open(place).close(), log) for _ in range(2)]  # type: ignore[misc]
        time.sleep(moments.uniform(0, 0.03))
        for child in children:
            os.kill(child, signal.SIGKILL)
        for child in children:
            os.waitpid(child, 0)
        with Ledger.open(place) as ledger:
            found.append(ledger.commit([draft("first")], caps=Caps(1, 1))[0].id)
    return found


def abandon(path: Path, commits: int) -> object:
    """Commit as earlier versions did, and die without closing, so that the write-ahead log is left; return its size."""

    def work(write: Log) -> None:
        sqlite._leave_log = lambda connection: connection.execute("PRAGMA journal_mode = WAL")  # type: ignore[assignment,return-value]
        ledger = Ledger.open(path)
        for number in range(commits):
            ledger.commit([draft(f"abandoned {number}")], caps=Caps(1000, 1000))[0]
        os.kill(os.getpid(), signal.SIGKILL)

    os.waitpid(forked(work, path.with_name("abandon.log")), 0)
    return path.with_name(path.name + "-wal").stat().st_size


def cut_short(path: Path, commits: int) -> object:
    """Commit, then die in the middle of a transaction that has written half of its pages; return the journal's size."""

    def work(write: Log) -> None:
        ledger = Ledger.open(path)
        for number in range(commits):
            ledger.commit([draft(f"whole {number}")], caps=Caps(1000, 1000))[0]
        with ledger.beside(write=True) as connection:
            connection.execute("PRAGMA cache_size = 1")
            for number in range(200):
                connection.execute("INSERT INTO meta VALUES (?, ?)", (f"half {number}", "x" * 4000))
            os.kill(os.getpid(), signal.SIGKILL)

    os.waitpid(forked(work, path.with_name("cut.log")), 0)
    return path.with_name(path.name + "-journal").stat().st_size


def births(path: Path, step: int) -> object:
    """Make ledgers where files can't grow beyond ever larger sizes; return what failed for each, then and with room."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    found = []
    for size in range(0, 80_000, step):
        place = path.with_name(f"{size}.sqlite")
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
        failure = _failure(lambda place=place: Ledger.open(place).close())  # type: ignore[misc]
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        found.append((failure, _failure(lambda place=place: Ledger.open(place).close())))  # type: ignore[misc]
    return found, sorted(file.name for file in path.parent.iterdir())


def relocated(place: Path | Remote, back: int, commits: int) -> object:
    """Move the ledger beside a place there, or back; die right after so many transactions were written."""
    file, count = beside(place, "old.sqlite"), 0

    def counting(store: type) -> None:
        commit = store._commit  # type: ignore[attr-defined]

        def counted(self: object, *arguments: object, write: bool) -> None:
            nonlocal count
            commit(self, *arguments, write=write)
            count += write
            if count == commits:
                os.kill(os.getpid(), signal.SIGKILL)

        store._commit = counted  # type: ignore[attr-defined]

    counting(SqliteStore)
    counting(postgres.PostgresStore)
    return relocate(*(place, file) if back else (file, place))


def full(path: Path) -> object:
    """Commit until no file can grow any more, then make room and go on."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    stored = 0
    failures: list[str] = []
    with Ledger.open(path) as ledger:
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
        while len(failures) < 3:
            try:
                ledger.commit([draft(f"full {stored}", body=bytes(5000))], caps=Caps(1000, 1000))[0]
                stored += 1
            except LedgerFailed as failure:
                failures.append(failure.message)
        spent = ledger.spent("everyone")
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        after = ledger.commit([draft(f"full {stored}")], caps=Caps(1000, 1000))[0].id
    return {"stored": stored, "failures": failures, "spent": spent, "after": after}


def readonly(path: Path) -> object:
    """Open a ledger that may be read and not written; root gives up its rights first."""
    path.chmod(0o444)
    path.parent.chmod(0o555)
    if os.getuid() == 0:
        os.setuid(65534)
    return _failure(lambda: Ledger.open(path))


def fork(path: Path) -> object:
    """Use in a child the ledger that its parent opened."""
    ledger = Ledger.open(path)
    log = path.with_name("fork.log")
    os.waitpid(forked(lambda write: write(str(_failure(lambda: ledger.spent("everyone")))), log), 0)
    return logged(log)


def _failure(work: Callable[[], object]) -> str | None:
    try:
        work()
    except LedgerFailed as failure:
        return failure.message
    return None


TASKS: dict[str, Callable[..., object]] = {
    task.__name__: task
    for task in (
        race,
        races,
        endure,
        pause_before,
        pause_inside,
        kill,
        born,
        births,
        abandon,
        cut_short,
        relocated,
        full,
        readonly,
        fork,
    )
}

if __name__ == "__main__":
    print(json.dumps(TASKS[sys.argv[1]](read(sys.argv[2]), *map(int, sys.argv[3:]))))
