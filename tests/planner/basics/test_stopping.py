"""Stopping: what an engine runs is interrupted until it ends, and nothing later begins."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import duckdb
import pytest

from planner.basics import stopping
from planner.basics.stopping import Interrupted, Stop, stoppable


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
