"""A real server for tests, in a thread of its own, on a port that the system chooses."""

from __future__ import annotations

import asyncio
import io
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb

from planner.basics.stopping import running as running_query
from planner.gate import Gate
from proxy.catalog.types import Column, Description, Table, oid_of
from proxy.server import server, shared
from proxy.server.journal import Journal


class SmallCatalog:
    """Evaluates what has no FROM in an empty DuckDB: as much of a catalog as the tests of the wire need."""

    def __init__(self, *_: object) -> None:
        self._duckdb = duckdb.connect(config={"python_enable_replacements": False})

    def handles(self, sql: str) -> bool:
        first = sql.strip().partition(" ")[0].lower()
        return first in ("select", "values") and (" from " not in sql.lower() or "from generate_series" in sql.lower())

    def describe(self, sql: str, declared: Sequence[int] = ()) -> Description:
        rows = self._duckdb.execute(f"DESCRIBE {sql}").fetchall()
        return Description(tuple(Column(row[0], oid_of(row[1])) for row in rows), tuple(declared))

    def execute(self, sql: str, parameters: Sequence[object], declared: Sequence[int] = ()) -> Table:  # noqa: ARG002 - the contract has it
        with running_query(self._duckdb.interrupt):
            rows = self._duckdb.execute(sql, list(parameters)).fetchall()
        return Table(self.describe(sql).columns, rows)


class Log(io.StringIO):
    """What a server logs; read after all of it was written."""

    journal: Journal

    def getvalue(self) -> str:
        self.journal._waiting.join()
        return super().getvalue()


@dataclass(frozen=True)
class Running:
    """A server that runs: its port, its log, and the way into its event loop."""

    server: server.Server
    loop: asyncio.AbstractEventLoop
    log: Log

    @property
    def port(self) -> int:
        return self.server.port

    @property
    def gate(self) -> Gate:
        return self.server.shared.gate

    def dsn(self, user: str = "ann", **more: object) -> str:
        parts = {"host": "127.0.0.1", "port": self.port, "user": user, "dbname": "noisegate", **more}
        return " ".join(f"{name}={value}" for name, value in parts.items())

    def shut_down(self) -> None:
        """End as on SIGTERM."""
        asyncio.run_coroutine_threadsafe(self.server.close(), self.loop).result(60)


@contextmanager
def running(policy: Path, *, catalog: shared.MakeCatalog = SmallCatalog, **config: Any) -> Iterator[Running]:
    """Serve a policy with some keys of its [server] section changed, until the block ends."""
    gate = Gate.open(policy)
    log = Log()
    log.journal = Journal(log)
    settings = replace(gate.policy.server, port=0, **{"auth": "trust", "tls": "off"} | config)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        starting = server.start(gate, settings, journal=log.journal, make_catalog=catalog)
        found = asyncio.run_coroutine_threadsafe(starting, loop).result(60)
        try:
            yield Running(found, loop, log)
        finally:
            asyncio.run_coroutine_threadsafe(found.close(), loop).result(60)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(60)
        loop.close()
        gate.close()
