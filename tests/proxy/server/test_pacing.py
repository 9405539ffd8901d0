"""Pacing: an address from which many fail to log in waits, a little, and others do not."""

from __future__ import annotations

import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from proxy.server.pacing import FREE, LONGEST, MOST_KEPT, RATE, Pace
from tests.proxy.server.test_server import wait_until
from tests.proxy.servers import running

psycopg = pytest.importorskip("psycopg")


def failed(pace: Pace, count: int, *, now: float = 0.0, address: str = "there") -> None:
    for _ in range(count):
        pace.failed(address, now)


def test_a_few_failures_cost_nothing() -> None:
    pace = Pace()
    failed(pace, FREE)
    assert pace.wait("there", 0.0) == 0


def test_many_failures_make_their_address_wait_and_no_other() -> None:
    pace = Pace()
    failed(pace, FREE + 10)
    assert pace.wait("there", 0.0) == 10 / RATE
    assert pace.wait("elsewhere", 0.0) == 0


def test_nobody_waits_longer_than_the_longest_wait() -> None:
    pace = Pace()
    failed(pace, 10_000)
    assert pace.wait("there", 0.0) == LONGEST


def test_failures_are_forgiven_with_time() -> None:
    pace = Pace()
    failed(pace, FREE + 10)
    assert pace.wait("there", 5 / RATE) == 5 / RATE
    assert pace.wait("there", 10 / RATE) == 0


def test_no_more_addresses_are_remembered_than_may_be() -> None:
    pace = Pace()
    for number in range(MOST_KEPT + 10):
        failed(pace, 1, address=str(number))
    assert len(pace._failures) == MOST_KEPT


def test_whoever_waits_to_log_in_is_not_ended_to_make_room(adult_policy: Path) -> None:
    with running(adult_policy, max_connections=5) as server, ExitStack() as silent, ThreadPoolExecutor(1) as pool:
        failed(server.server.house.pace, 10_000, now=time.monotonic(), address="127.0.0.1")
        login = pool.submit(psycopg.connect, server.dsn())
        wait_until(lambda: any(not found.silent for found in list(server.server.house.connections.values())))
        for _ in range(20):
            silent.enter_context(socket.create_connection(("127.0.0.1", server.port)))
        with login.result() as connection:
            assert connection.execute("SELECT 1").fetchall() == [(1,)]
