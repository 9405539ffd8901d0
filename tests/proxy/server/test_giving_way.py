"""Giving way: nothing that one client is sent keeps the event loop, or much memory, from the others."""

from __future__ import annotations

import ctypes
import socket
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from planner.duck import workbench
from planner.duck.workbench import PIECE, fetched
from planner.gate import Gate
from proxy.catalog.variables import Variables
from proxy.conversation.outbox import CHUNK, CHUNK_BYTES
from proxy.conversation.session import Conversation
from proxy.conversation.steps import Work
from proxy.server import server as servers
from proxy.server import turns
from proxy.server.connection import Connection
from proxy.wire import messages as m
from tests.proxy.server.test_server import wait_until
from tests.proxy.servers import Running, SmallCatalog, running

psycopg = pytest.importorskip("psycopg")

SERIES = "FROM generate_series(1, 20000) AS t(i)"
NARROW = f"SELECT i AS a, i * 3 AS b, 'row ' || i AS c {SERIES}"
WIDE = f"SELECT i AS a, repeat('x', 2000) AS b {SERIES}"


@pytest.fixture
def server(adult_policy: Path) -> Iterator[Running]:
    with running(adult_policy) as found:
        yield found


def pieces(policy: Path, sql: str) -> tuple[list[int], int]:
    """Return how many bytes each piece has that is encoded in a thread, and how many were written without one."""
    gate = Gate.open(policy)
    talk = Conversation(gate.session("ann"), variables=Variables(), make_catalog=SmallCatalog)
    steps, value, sizes, written = talk.handle(m.Query(sql)), None, list[int](), 0
    try:
        while True:
            step = steps.send(value)
            value = step.do() if isinstance(step, Work) else None
            if isinstance(step, Work) and step.what == "encode":
                sizes.append(len(value))
            written += len(talk.take())
    except StopIteration:
        written += len(talk.take())
    finally:
        gate.close()
    return sizes, written - sum(sizes)


@pytest.mark.parametrize("form", ["{}", "COPY ({}) TO STDOUT", "COPY ({}) TO STDOUT (FORMAT binary)"])
def test_long_results_are_encoded_in_small_pieces_outside_the_loop(adult_policy: Path, form: str) -> None:
    sizes, by_loop = pieces(adult_policy, form.format(NARROW))
    assert len(sizes) >= 20_000 / CHUNK
    assert by_loop < 1_000
    sizes, by_loop = pieces(adult_policy, form.format(WIDE))
    assert max(sizes) <= CHUNK_BYTES
    assert by_loop < 1_000


def test_an_unread_copy_holds_no_more_than_a_few_pieces(server: Running) -> None:
    with closing(psycopg.connect(server.dsn(), autocommit=True)) as connection:
        with socket.socket(fileno=connection.fileno()) as raw:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            raw.detach()
        connection.pgconn.send_query(f"COPY ({WIDE}) TO STDOUT".encode())
        connection.pgconn.flush()
        [mine] = server.server.shared.connections.values()
        wait_until(lambda: mine._writable is not None and not server.server.shared.places.running)
        assert waiting(mine) <= 2 * CHUNK_BYTES
        with psycopg.connect(server.dsn("bob")) as other:
            assert other.execute("SELECT 1").fetchall() == [(1,)]
        assert waiting(mine) <= 2 * CHUNK_BYTES


def waiting(connection: Connection) -> int:
    """Return how many bytes wait for a client."""
    assert connection._transport is not None
    assert connection._conversation is not None
    return connection._transport.get_write_buffer_size() + connection._conversation.unsent


class Cursor:
    """Gives rows, and notes how many are asked for at a time."""

    def __init__(self, count: int) -> None:
        self.left, self.asked = count, list[int]()

    def fetchmany(self, size: int) -> list[tuple[Any, ...]]:
        self.asked.append(size)
        given, self.left = min(size, self.left), max(0, self.left - size)
        return [(1,)] * given


@pytest.mark.parametrize(("there", "most"), [(0, 10), (1, 10), (PIECE, 10_000), (3 * PIECE + 1, 10_000), (999, 700)])
def test_rows_are_fetched_piece_by_piece_and_no_more_than_wanted(there: int, most: int) -> None:
    cursor = Cursor(there)
    assert len(fetched(cursor, most)) == min(there, most)  # type: ignore[arg-type]  # as much of a cursor as is used
    assert max(cursor.asked) <= PIECE


def test_a_large_answer_comes_whole_out_of_its_pieces(adult_policy: Path) -> None:
    gate = Gate.open(adult_policy)
    rows = gate.sandbox.workbench().rows(f"SELECT i FROM range({5 * workbench.PIECE + 7}) AS t(i)")
    assert [row[0] for row in rows] == list(range(5 * workbench.PIECE + 7))
    gate.close()


def test_a_serving_process_gives_way_quickly(adult_policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[tuple[float, int]]()

    async def serve(*_: object, **__: object) -> bool:
        seen.append((sys.getswitchinterval(), timer_slack()))
        return True

    monkeypatch.setattr(servers, "serve", serve)
    before = sys.getswitchinterval(), timer_slack()
    try:
        servers.run(adult_policy, overrides={"auth": "trust"}, log_format="text", on_start=lambda *_: None)
    finally:
        sys.setswitchinterval(before[0])
        timer_slack(before[1])
    assert seen == [(pytest.approx(turns.SWITCH_INTERVAL), turns.TIMER_SLACK if sys.platform == "linux" else 0)]


def timer_slack(wanted: int | None = None) -> int:
    """Return by how many nanoseconds this thread's waits may be late, after it was set if a number is given."""
    if sys.platform != "linux":
        return 0
    if wanted is not None:
        ctypes.CDLL(None).prctl(29, ctypes.c_ulong(wanted), 0, 0, 0)
    return int(ctypes.CDLL(None).prctl(30, 0, 0, 0, 0))


def test_a_known_answer_is_given_as_its_bytes_come_and_wakes_no_task(
    adult_policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    woken, more = list[Connection](), Connection._more

    async def counted(self: Connection, patience: float) -> bool:
        woken.append(self)
        return await more(self, patience)

    monkeypatch.setattr(Connection, "_more", counted)
    known = "SELECT sex, count(*) FROM adult GROUP BY sex ORDER BY sex"
    with running(adult_policy) as server, psycopg.connect(server.dsn(), autocommit=True) as connection:
        first = [connection.execute(known).fetchall() for _ in range(3)][2]  # paid for, found to be free, kept
        before = len(woken)
        assert [connection.execute(known).fetchall() for _ in range(20)] == [first] * 20
        assert len(woken) == before
        connection.execute("SET idle_session_timeout = '1h'")
        assert connection.execute(known).fetchall() == first
        wait_until(lambda: len(woken) == before + 2)  # the client's time to go on begins after each answer
