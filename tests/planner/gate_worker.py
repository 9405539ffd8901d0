"""Does to a gate what a test can't do to itself: many processes that ask, races, kill -9.

Run as `python -m tests.planner.gate_worker TASK POLICY [NUMBER ...]`; prints one JSON value.
Workers are forked after the imports, so that a kill hits the gate and not Python's start.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from planner.basics.errors import BudgetExceeded
from planner.gate import Gate
from planner.session import Session
from tests.planner.ledger_worker import Log, forked, logged

QUESTIONS = [
    "SELECT count(*) FROM people",
    "SELECT sex, count(*), sum(age) FROM people GROUP BY sex ORDER BY sex",
    "SELECT median(age) FROM people",
    "SELECT count(DISTINCT age) FROM people",
    "SELECT avg(age), median(age), count(DISTINCT sex) FROM people WHERE sex = 'F'",
    "SELECT * FROM noisegate.verify($$SELECT sex, median(age) FROM copy GROUP BY sex$$, tau => 3, epsilon => 0.1)",
    *(f"SELECT count(*), sum(age) FROM people WHERE age >= {age}" for age in range(30, 60)),
]


def told(session: Session, sql: str) -> str:
    """Return an answer as a line of JSON: what a client would see of it, and the last release it can be made from."""
    result = session.execute(sql)
    last = len(session.gate.ledger.releases())
    return json.dumps([sql, result.rows, result.intervals, str(result.cost), last])


def kill(path: Path, rounds: int) -> object:
    """Kill two workers that ask questions in any order, again and again; return the answers that got out."""
    return _killed(path, rounds, workers=2)


def kill_one(path: Path, rounds: int) -> object:
    """The same with one worker at a time."""
    return _killed(path, rounds, workers=1)


def _killed(path: Path, rounds: int, *, workers: int) -> object:
    log, moments = path.with_name("kill.log"), random.Random(rounds)

    def ask(write: Log) -> None:
        own = random.Random(os.urandom(16))
        gate = Gate.open(path)
        session = gate.session()
        write("ready")
        while True:
            write(told(session, own.choice(QUESTIONS)))

    for _ in range(rounds):
        children = [forked(ask, log) for _ in range(workers)]
        enough = len(logged(log)) + moments.randint(1, 12)
        while len(logged(log)) < enough:
            time.sleep(0.001)
        for child in children:
            time.sleep(moments.uniform(0, 0.03))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    return [line for line in logged(log) if line != "ready"]


def come_and_go(path: Path, rounds: int) -> object:
    """Add gates while two others answer, and remove them again, closed or killed; return all answers of each."""
    log, stop = path.with_name("gates.log"), path.with_name("stop")

    def asking(name: str, most: int) -> Callable[[Log], None]:
        def ask(write: Log) -> None:
            own = random.Random(os.urandom(16))
            gate = Gate.open(path)
            session = gate.session("ann" if name == "steady" else "bob")
            for _ in range(most):
                if stop.exists():
                    break
                write(f"{name} {told(session, own.choice(QUESTIONS))}")
            gate.close()

        return ask

    def answers(name: str) -> int:
        return sum(line.startswith(f"{name} ") for line in logged(log))

    steady = [forked(asking("steady", 10**9), log) for _ in range(2)]
    for number in range(rounds):
        before, killed = answers("steady"), number % 2
        child = forked(asking(str(number), 10**9 if killed else 3), log)
        while answers(str(number)) < 3 or answers("steady") < before + 3:  # they answer at the same time
            time.sleep(0.005)
        if killed:
            os.kill(child, signal.SIGKILL)
        assert os.waitpid(child, 0)[1] == (signal.SIGKILL if killed else 0)
    stop.touch()
    assert [os.waitpid(child, 0)[1] for child in steady] == [0, 0]
    return [line.partition(" ")[2] for line in logged(log)]


def together(path: Path, workers: int, number: int) -> object:
    """Let processes wait for each other, then ask the same question at once; return all answers."""
    log, start = path.with_name("together.log"), path.with_name("start")

    def ask(write: Log) -> None:
        session = Gate.open(path).session()
        write("ready")
        while not start.exists():
            time.sleep(0.001)
        write(told(session, QUESTIONS[number]))

    return _all(ask, workers, log, start)


def race(path: Path, workers: int) -> object:
    """Let processes ask ever more exactly until all are refused; return all that happened."""
    log, start = path.with_name("race.log"), path.with_name("start")

    def asking(number: int) -> Callable[[Log], None]:
        def ask(write: Log) -> None:
            session = Gate.open(path).session("ann" if number % 2 else "bob")
            write("ready")
            while not start.exists():
                time.sleep(0.001)
            for exact in range(12):
                session.execute(f"SET noisegate.error = {50 * 0.6**exact}")
                try:
                    write(told(session, f"SELECT count(*) FROM people WHERE age <> 100 + {number}"))
                except BudgetExceeded as refusal:
                    write(f"refused {refusal.sqlstate}")

        return ask

    children = [forked(asking(number), log) for number in range(workers)]
    return _started(children, log, start)


def _all(work: Callable[[Log], None], workers: int, log: Path, start: Path) -> object:
    return _started([forked(work, log) for _ in range(workers)], log, start)


def _started(children: list[int], log: Path, start: Path) -> object:
    while logged(log).count("ready") < len(children):
        time.sleep(0.01)
    start.touch()
    codes = [os.waitpid(child, 0)[1] for child in children]
    return {"codes": codes, "lines": [line for line in logged(log) if line != "ready"]}


TASKS: dict[str, Callable[..., object]] = {
    task.__name__: task for task in (kill, kill_one, come_and_go, together, race)
}

if __name__ == "__main__":
    print(json.dumps(TASKS[sys.argv[1]](Path(sys.argv[2]), *map(int, sys.argv[3:]))))
