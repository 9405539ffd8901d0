"""Stopping: what an engine runs is interrupted until it ends, and nothing later begins."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import pytest

from mechanisms import interrupts
from planner.basics import stopping
from planner.basics.stopping import Interrupted, Stop, stoppable
from planner.gate import Gate


def test_what_was_stopped_begins_nothing() -> None:
    stop = Stop()
    stop.stop()
    with stoppable(stop):
        with pytest.raises(Interrupted), stopping.running(lambda: None):
            raise AssertionError("it ran")
        with pytest.raises(Interrupted):
            stopping.sleep(3600)


def test_an_interrupt_is_repeated_until_the_engine_heeds_it() -> None:
    """DuckDB forgets an interrupt that comes between two of its queries."""
    stop, heeded, calls = Stop(), threading.Event(), 0

    def interrupt() -> None:
        nonlocal calls
        calls += 1
        if calls == 5:
            heeded.set()

    def work() -> None:
        with stoppable(stop), stopping.running(interrupt):
            stop.stop()
            assert heeded.wait()
            raise RuntimeError("interrupted, says the engine")

    with pytest.raises(Interrupted):
        work()


def test_what_ended_is_not_interrupted_later() -> None:
    stop, calls = Stop(), 0

    def interrupt() -> None:
        nonlocal calls
        calls += 1

    with stoppable(stop), stopping.running(interrupt):
        pass
    stop.stop()
    assert calls == 0


def test_waiting_for_a_lock_ends_when_the_statement_is_stopped() -> None:
    stop, lock = Stop(), threading.Lock()
    with lock, ThreadPoolExecutor(1) as pool:

        def wait() -> None:
            with stoppable(stop), stopping.holding(lock):
                raise AssertionError("two hold the lock")

        waiting = pool.submit(wait)
        stop.stop()
        assert isinstance(waiting.exception(), Interrupted)
    with stopping.holding(lock):
        assert lock.locked()
    assert not lock.locked()


def test_a_query_of_many_short_ones_is_stopped_wherever_it_is() -> None:
    """Most interrupts come between two queries, or just before one."""
    connection = duckdb.connect()
    for i in range(30):
        stop, began = Stop(), threading.Event()

        def work(stop: Stop = stop, began: threading.Event = began) -> None:
            with stoppable(stop):
                while True:
                    with stopping.running(connection.interrupt):
                        connection.execute("SELECT 1").fetchall()
                    began.set()

        with ThreadPoolExecutor(1) as pool:
            working = pool.submit(work)
            assert began.wait()
            stop.stop()
            assert isinstance(working.exception(), Interrupted), i
    assert connection.execute("SELECT 1").fetchall() == [(1,)]


def test_stopping_again_does_not_wait_for_who_interrupts() -> None:
    """The event loop stops what runs, and must not wait for a server that is asked to cancel."""
    stop, interrupting, go_on = Stop(), threading.Event(), threading.Event()

    def interrupt() -> None:
        interrupting.set()
        assert go_on.wait()

    def work() -> None:
        with stoppable(stop), stopping.elsewhere(interrupt):
            stop.stop()
            assert interrupting.wait()
            stop.stop()
            go_on.set()

    work()


QUESTIONS = (
    "SELECT sex, count(*), avg(age) FROM adult GROUP BY sex",
    "SELECT sex, race, count(*) FROM adult GROUP BY CUBE (sex, race)",
    "SELECT count(DISTINCT education), median(hours) FROM adult",
)


def asking_at(place: int) -> Callable[[], None]:
    """Return what stops a statement when it is asked for the `place`-th time."""
    stop, asked = Stop(), 0

    def ask() -> None:
        nonlocal asked
        asked += 1
        if asked == place:
            stop.stop()
        stop.check()

    return ask


@pytest.mark.parametrize("sql", QUESTIONS)
def test_a_plan_stops_at_its_next_step_spends_nothing_and_leaves_nothing_behind(adult_policy: Path, sql: str) -> None:
    gate = Gate.open(adult_policy)
    session = gate.session("ann")
    session.execute("SELECT sex, count(*) FROM adult GROUP BY sex")
    spent, place = gate.ledger.spent("adult"), 0
    while True:
        place += 1
        try:
            with interrupts.asking(asking_at(place)):
                found = session.explain(sql)
        except Interrupted:
            assert gate.ledger.spent("adult") == spent
        else:
            break
    assert place > 3
    assert found.rho == session.explain(sql).rho
    gate.close()
    again = Gate.open(adult_policy)
    assert again.session("ann").explain(sql).rho == found.rho
    again.close()
