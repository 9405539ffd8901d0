"""A real server with heavy statements: those that are stopped give their places back, and nobody else is kept waiting.

The limits on time are out of the way here: what ends, ends since it was interrupted.
"""

from __future__ import annotations

import select
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest

from planner.duck import workbench
from proxy.catalog import answer
from proxy.limits import THREADS
from proxy.server.places import MOST_AT_ONCE
from proxy.server.shared import policy_catalog
from tests.proxy.server.test_server import wait_until
from tests.proxy.servers import Running, running

psycopg = pytest.importorskip("psycopg")
Connection = Any  # psycopg may be missing where the types are checked

POLICY = """
[budget]
epsilon = 10.0
delta = 1e-9

[analysts.ann]
share = 0.5
[analysts.bob]
share = 0.5

[tables.people]
source = "people.parquet"
[tables.people.columns]
age = { type = "integer", min = 0, max = 9 }

[tables.towns]
source = "towns.parquet"
public = true
"""

PRODUCT = "towns a, towns b, towns c, towns d WHERE a.name || b.name || c.name || d.name = 'nobody'"
"""2,000 towns four times: 1.6e13 rows, which would take weeks."""

HEAVY = {
    "public tables": f"SELECT count(*) FROM {PRODUCT}",
    "beside private ones": f"SELECT count(*) + (SELECT count(*) FROM {PRODUCT}) FROM people",
    "rows": f"SELECT a.name FROM {PRODUCT}",
    "the catalog": "SELECT count(*) FROM generate_series(1, 1000000) a, generate_series(1, 1000000) b WHERE a + b = -1",
    "sleep": "SELECT pg_sleep(50)",
}


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("heavy")
    with duckdb.connect() as memory:
        memory.execute(f"COPY (SELECT i % 10 AS age FROM range(100) AS r(i)) TO '{folder}/people.parquet'")
        memory.execute(f"COPY (SELECT 'town ' || i AS name FROM range(2000) AS r(i)) TO '{folder}/towns.parquet'")
    found = folder / "noisegate.toml"
    found.write_text(POLICY, encoding="utf-8")
    return found


@pytest.fixture
def server(policy: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    monkeypatch.setattr(workbench, "SANDBOX_SECONDS", 1e6)
    monkeypatch.setattr(answer, "CATALOG_SECONDS", 1e6)
    with running(policy, catalog=policy_catalog, metrics_port=0) as found:
        yield found


def connect(server: Running, user: str = "ann") -> Connection:
    return psycopg.connect(server.dsn(user), autocommit=True)


def send(connection: Connection, sql: str) -> None:
    """Send a statement, and do not wait for anything."""
    connection.pgconn.send_query(sql.encode())
    while connection.pgconn.flush():
        pass


def replies(connection: Connection) -> str:
    """Return what the server says to what was sent: libpq itself would wait without letting the server run."""
    said = ""
    while True:
        while connection.pgconn.is_busy():
            select.select([connection.fileno()], [], [])
            connection.pgconn.consume_input()
        if (result := connection.pgconn.get_result()) is None:
            return said
        said += result.error_message.decode()


def busy(server: Running) -> int:
    return server.server.shared.places.running


def idle(server: Running) -> bool:
    """Return whether all places are free, and nobody waits for one."""
    return not busy(server) and not server.server.shared.places.waiting


# --- stopping one -------------------------------------------------------------------------------------------


def by_timeout(connection: Connection, sql: str) -> None:
    connection.execute("SET statement_timeout = '300ms'")
    with pytest.raises(psycopg.errors.QueryCanceled, match="statement timeout"):
        connection.execute(sql)


def by_cancel(server: Running) -> Callable[[Connection, str], None]:
    def stop(connection: Connection, sql: str) -> None:
        send(connection, sql)
        wait_until(lambda: busy(server) > 0)
        connection.cancel_safe()
        assert "user request" in replies(connection)

    return stop


def by_leaving(server: Running) -> Callable[[Connection, str], None]:
    def stop(connection: Connection, sql: str) -> None:
        send(connection, sql)
        wait_until(lambda: busy(server) > 0)
        connection.close()

    return stop


@pytest.mark.parametrize("sql", HEAVY.values(), ids=HEAVY)
def test_a_stopped_statement_gives_its_place_back(server: Running, sql: str) -> None:
    for stop in (by_timeout, by_cancel(server), by_leaving(server)):
        with closing(connect(server)) as connection:
            stop(connection, sql)
            wait_until(lambda: idle(server))


def test_describing_and_explaining_give_their_places_back_as_well(server: Running) -> None:
    inner = HEAVY["beside private ones"]
    with closing(connect(server)) as connection:
        connection.execute("SET statement_timeout = '300ms'")
        connection.pgconn.send_prepare(b"heavy", inner.encode())
        assert replies(connection) == ""
        connection.pgconn.send_describe_prepared(b"heavy")
        assert "statement timeout" in replies(connection)
        wait_until(lambda: idle(server))
        with pytest.raises(psycopg.errors.QueryCanceled):
            connection.execute(f"EXPLAIN SELECT count(*) FROM people WHERE age < (SELECT count(*) FROM {PRODUCT})")
        wait_until(lambda: idle(server))
        connection.execute("SET statement_timeout = 0")  # a busy machine may take longer
        assert connection.execute("SELECT count(*) FROM towns").fetchall() == [(2000,)]


# --- one analyst against the others -------------------------------------------------------------------------


def health(server: Running) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.server.metrics_port}/health") as page:
        return str(page.read().decode())


def test_heavy_statements_of_one_keep_nobody_else_waiting(server: Running) -> None:
    anns = [connect(server) for _ in range(2 * THREADS)]
    for i, connection in enumerate(anns):
        send(connection, HEAVY["public tables"].replace("nobody", f"nobody {i}"))
    wait_until(lambda: busy(server) == MOST_AT_ONCE)
    with connect(server, "bob") as bob:
        assert bob.execute("SELECT count(*) FROM towns").fetchall() == [(2000,)]
        assert len(bob.execute("SELECT age, count(*) FROM people GROUP BY age").fetchall()) == 10
        assert bob.execute("SELECT relname FROM pg_class WHERE relname = 'towns'").fetchall() == [("towns",)]
        assert health(server) == "ok\n"
        assert busy(server) == MOST_AT_ONCE
    assert server.server.shared.places.waiting == 2 * THREADS - MOST_AT_ONCE
    for connection in anns:
        connection.close()
    wait_until(lambda: idle(server))
    for _ in range(2 * THREADS):
        with connect(server) as ann:
            assert ann.execute("SELECT count(*) FROM towns").fetchall() == [(2000,)]


def test_the_health_check_needs_no_place(server: Running) -> None:
    go_on = threading.Event()
    for number in range(2 * THREADS):
        server.server.shared.submit(go_on.wait, whose=f"analyst {number}")
    wait_until(lambda: busy(server) == THREADS)
    assert health(server) == "ok\n"
    assert busy(server) == THREADS
    go_on.set()


# --- the end ------------------------------------------------------------------------------------------------

SERVE = """
import sys, threading
from planner.duck import workbench
from planner.session import Session
from proxy.cli.main import main
from proxy.server import shared
workbench.SANDBOX_SECONDS = 1e6
shared.GRACE_SECONDS, shared.LAST_SECONDS = 1.0, 1.0
if sys.argv.pop(1) == "stuck":
    Session.execute = lambda *_, **__: threading.Event().wait()
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("how", ["heavy", "stuck"])
def test_a_signal_ends_the_server_whatever_runs(policy: Path, how: str) -> None:
    """Stuck is what can't be interrupted at all."""
    command = [sys.executable, "-c", SERVE, how, "serve", str(policy), "--port", "0", "--trust"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        port = int(process.stdout.readline().split("port=")[1].split()[0])
        anns = [psycopg.connect(f"host=127.0.0.1 port={port} user=ann", autocommit=True) for _ in range(THREADS + 1)]
        for connection in anns:
            send(connection, HEAVY["public tables"])
        with psycopg.connect(f"host=127.0.0.1 port={port} user=bob") as bob:
            bob.execute("SELECT relname FROM pg_class LIMIT 1")  # anns' have begun
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate()
        for connection in anns:
            connection.close()
    assert process.returncode == 0
    assert ("ended while a statement was still running" in log) == (how == "stuck")
