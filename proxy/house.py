"""What all connections of a server share: the gate, the limits, the threads, and what is counted."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from planner import system
from planner.costs import rho_of
from planner.errors import Refusal
from planner.gate import Gate
from planner.listening import Server as Config
from proxy.answers import Answers
from proxy.auth import BackOff, Verifiers
from proxy.connection import Connection
from proxy.journal import Journal
from proxy.login import Refused
from proxy.metrics import Labels, Metrics
from proxy.portals import Problem
from proxy.recall import Recall
from proxy.session import Ended
from proxy.tls import Tls
from proxy.wire.messages import CancelRequest
from proxy.workers import Peers

THREADS = 16
"""How many statements are worked on at once; the others wait."""

GRACE = 30.0
"""Seconds that statements which are charged have to be answered in, when the server ends."""

NOT_YET = 2
"""So many times max_connections may be open while some of them have not logged in."""

MOST_PROCESSES = 2**24
"""Connections are numbered from 1 to this, and then from 1 again."""

MakeCatalog = Callable[[Gate, str, str, Callable[[str], str | None]], Answers]


def policy_catalog(gate: Gate, analyst: str, database: str, settings: Callable[[str], str | None]) -> Answers:
    """Return the catalog that the policy makes."""
    from proxy.catalog import Catalog  # here, so that the server starts without building one

    return Catalog(gate, analyst, database=database, settings=settings)


class House:
    """What all connections of a server share."""

    def __init__(
        self,
        gate: Gate,
        config: Config,
        *,
        journal: Journal,
        secured: Tls | None = None,
        peers: Peers | None = None,
        make_catalog: MakeCatalog = policy_catalog,
    ) -> None:
        self.gate, self.config, self.journal, self.tls = gate, config, journal, secured
        self.verifiers = Verifiers.of(gate.policy)
        self.back_off = BackOff()
        self.metrics = Metrics()
        self.recall = Recall(gate.policy.ledger if isinstance(gate.policy.ledger, Path) else None)
        self.connections: dict[int, Connection] = {}
        self._admitted: Counter[str] = Counter()
        self._make_catalog = make_catalog
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="statement")
        self._loop = asyncio.get_running_loop()
        self._peers = peers or Peers()
        self._last_number = 0
        self._peers.listen(self._loop, self.cancel)

    # --- connections

    def arrived(self, connection: Connection) -> None:
        """Give a new connection its number; turn it away if far too many have not even logged in."""
        while True:
            self._last_number = self._last_number % MOST_PROCESSES + 1
            connection.process = self._peers.process(self._last_number)
            if connection.process not in self.connections:
                break
        self.connections[connection.process] = connection
        self.metrics.add("noisegate_connections_total")
        if len(self.connections) > NOT_YET * self.config.max_connections:
            connection.abort()

    def admit(self, connection: Connection) -> None:
        """Let an analyst in, or raise Refused if there are too many."""
        assert connection.analyst is not None
        analyst, connection.analyst = connection.analyst, None
        if self._admitted.total() >= self.config.max_connections:
            raise Refused("53300", "sorry, too many clients already", hint="close connections, or try again later")
        if self._admitted[analyst] >= self.config.max_connections_per_analyst:
            raise Refused("53300", f'too many connections for role "{analyst}"', hint="close some of them")
        self._admitted[analyst] += 1
        connection.analyst = analyst

    def left(self, connection: Connection) -> None:
        self.connections.pop(connection.process, None)
        if connection.analyst is not None:
            self._admitted[connection.analyst] -= 1
            self.journal.info("disconnected", analyst=connection.analyst, process=connection.process)

    def cancel(self, request: CancelRequest) -> None:
        """Stop a statement for whoever knows its secret; in the process that it runs in."""
        if not self._peers.is_mine(request.process):
            self._peers.forward(request)
            return
        found = self.connections.get(request.process)
        if found is not None:
            found.cancel(request.secret)

    @property
    def open(self) -> int:
        return self._admitted.total()

    # --- statements

    def warm(self) -> None:
        """Have the catalog made before somebody waits for it."""
        analyst = next(iter(self.gate.policy.analysts))
        self.submit(lambda: self.catalog(analyst, "noisegate", lambda _: None).handles("SELECT 1"))

    def catalog(self, analyst: str, database: str, settings: Callable[[str], str | None]) -> Answers:
        return self._make_catalog(self.gate, analyst, database, settings)

    def timeouts(self) -> dict[str, str]:
        seconds = {"statement_timeout": self.config.statement_timeout, "idle_session_timeout": self.config.idle_timeout}
        return {name: f"{limit:g}s" for name, limit in seconds.items() if limit}

    def submit(self, run: Callable[[], Any]) -> Future[Any]:  # Any: each kind of work gives something else
        return self._pool.submit(run)

    def call_soon(self, function: Callable[..., None], *arguments: object) -> None:
        """Call a function in the event loop, from another thread."""
        with suppress(RuntimeError):  # the loop has ended: nobody waits for this any more
            self._loop.call_soon_threadsafe(function, *arguments)

    def note_crash(self, error: Exception) -> None:
        """Note an error that is none of ours; refusals and problems are answers."""
        if not isinstance(error, Refusal | Problem):
            self.journal.crash("statement failed", error)

    def count(self, analyst: str, ended: Ended, seconds: float) -> None:
        """Note how a statement ended."""
        self.metrics.took(seconds)
        if ended.sqlstate != "00000":
            self.metrics.add("noisegate_refusals_total", analyst=analyst, sqlstate=ended.sqlstate)
            self.journal.info("refused", analyst=analyst, sqlstate=ended.sqlstate, seconds=seconds)
            return
        plan = ended.outcome.plan if ended.outcome else None
        self.metrics.add("noisegate_queries_total", analyst=analyst, by="catalog" if plan is None else "gate")
        if plan is None or ended.outcome is None:
            return
        cost = float(ended.outcome.cost)
        if cost:
            self.metrics.add("noisegate_charges_total", analyst=analyst)
            self.metrics.add("noisegate_charged_rho_total", cost, analyst=analyst)
        self.journal.info("answered", analyst=analyst, rho=cost, path=plan.path, seconds=seconds)

    # --- watching

    async def health(self) -> tuple[bool, str]:
        """Return whether the ledger can be read: without it nothing is answered."""
        try:
            await asyncio.wrap_future(self.submit(self.gate.ledger.populations))
        except Refusal as refusal:
            return False, f"{refusal.message}\n"
        return True, "ok\n"

    async def measurements(self) -> tuple[bool, str]:
        gauges = await asyncio.wrap_future(self.submit(self._budget))
        return True, self.metrics.render({**gauges, ("noisegate_connections", ()): float(self.open)})

    def _budget(self) -> dict[tuple[str, Labels], float]:
        found: dict[tuple[str, Labels], float] = {}
        ledger = self.gate.ledger
        for population in system.populations(self.gate):
            of = ("population", population)
            found["noisegate_budget_rho", (of,)] = float(self.gate.cap)
            found["noisegate_budget_spent_rho", (of,)] = float(rho_of(ledger.spent(population)))
            for analyst in self.gate.policy.analysts:
                spent = float(rho_of(ledger.account_spent(population, analyst)))
                found["noisegate_account_spent_rho", (("analyst", analyst), of)] = spent
        return found

    async def close(self) -> None:
        """End all connections: at once where nothing is charged, otherwise after the answer."""
        tasks = [connection.task for connection in self.connections.values() if connection.task is not None]
        for connection in list(self.connections.values()):
            connection.shut_down()
        if tasks:
            await asyncio.wait(tasks, timeout=GRACE)
        for connection in list(self.connections.values()):
            connection.abort()
        await asyncio.to_thread(self._pool.shutdown, wait=True, cancel_futures=True)
        self.recall.close()
