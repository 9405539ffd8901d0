"""What all connections of a server share: the gate, the limits, the threads, and what is counted."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

from planner import system
from planner.basics.errors import Refusal
from planner.cells.costs import rho_of
from planner.gate import Gate
from planner.policy.server import Server as Config
from proxy.conversation.answer_cache import AnswerCache
from proxy.conversation.portals import Problem
from proxy.conversation.route import Answers
from proxy.conversation.steps import StatementEnd
from proxy.limits import GRACE_SECONDS, LAST_SECONDS, THREADS
from proxy.login.auth import BackOff, Verifiers, new_salts
from proxy.login.startup import Refused
from proxy.server.connection import Connection
from proxy.server.journal import Journal
from proxy.server.metrics import Labels, Metrics
from proxy.server.pacing import Pace
from proxy.server.places import Places
from proxy.server.tls import Tls
from proxy.server.workers import Peers
from proxy.wire.messages import CancelRequest

MOST_PROCESSES = 2**24
"""Connections are numbered from 1 to this, and then from 1 again."""

INBOX_BYTES = 2**16
"""Bytes that are read from a client at once."""

MakeCatalog = Callable[[Gate, str, str, Callable[[str], str | None]], Answers]


def policy_catalog(gate: Gate, analyst: str, database: str, settings: Callable[[str], str | None]) -> Answers:
    """Return the catalog that the policy makes."""
    from proxy.catalog import Catalog  # here, so that the server starts without building one

    return Catalog(gate, analyst, database=database, settings=settings)


class Shared:
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
        self.verifiers = Verifiers.of(gate.policy, gate.ledger.kept("salts", new_salts()).encode())
        self.back_off = BackOff()
        self.pace = Pace()
        self.metrics = Metrics()
        self.cache = AnswerCache(gate.policy.ledger if isinstance(gate.policy.ledger, Path) else None)
        self.inbox = memoryview(bytearray(INBOX_BYTES))  # each connection takes out at once what was read into it
        self.connections: dict[int, Connection] = {}
        self._admitted: Counter[str] = Counter()
        self._make_catalog = make_catalog
        self.places = Places(THREADS)
        self._watching = Places(1, name="watch")  # health and metrics never wait for a statement
        self._loop = asyncio.get_running_loop()
        self._peers = peers or Peers()
        self._last_number = 0
        self._peers.listen(self._loop, self.cancel)

    # --- connections

    def arrived(self, connection: Connection) -> None:
        """Give a new connection its number; if too many have not logged in, end the one that others miss least."""
        while True:
            self._last_number = self._last_number % MOST_PROCESSES + 1
            connection.process = self._peers.process(self._last_number)
            if connection.process not in self.connections:
                break
        self.connections[connection.process] = connection
        self.metrics.add("noisegate_connections_total")
        self._make_room()

    def _make_room(self) -> None:
        """End the oldest that has not said who it is, or not yet logged in, of the address with the most of them.

        Places for those who are logged in are counted apart, so nobody needs one of theirs.
        """
        strangers = [c for c in self.connections.values() if c.analyst is None and not c.is_leaving]
        if len(strangers) <= self.config.max_connections:
            return
        crowd = Counter(stranger.peer for stranger in strangers)
        [(address, _)] = crowd.most_common(1)
        of_address = [stranger for stranger in strangers if stranger.peer == address]
        self.metrics.add("noisegate_logins_total", result="crowded out")
        next((stranger for stranger in of_address if stranger.silent), of_address[0]).abort()

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

    def held_by(self, analyst: str, *, but: Connection) -> int:
        """Return about how many bytes of rows are kept for an analyst in other connections."""
        mine = (found for found in self.connections.values() if found.analyst == analyst and found is not but)
        return sum(found.held for found in mine)

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

    def submit(self, run: Callable[[], Any], *, whose: str = "") -> Future[Any]:  # Any: each work gives something else
        return self.places.submit(run, whose=whose)

    def call_soon(self, function: Callable[..., None], *arguments: object) -> None:
        """Call a function in the event loop, from another thread."""
        with suppress(RuntimeError):  # the loop has ended: nobody waits for this any more
            self._loop.call_soon_threadsafe(function, *arguments)

    def note_crash(self, error: Exception) -> None:
        """Note an error that is none of ours; refusals and problems are answers."""
        if not isinstance(error, Refusal | Problem):
            self.journal.crash("statement failed", error)

    def count(self, analyst: str, ended: StatementEnd, seconds: float) -> None:
        """Note how a statement ended."""
        self.metrics.took(seconds)
        if ended.sqlstate != "00000":
            self.metrics.add("noisegate_refusals_total", analyst=analyst, sqlstate=ended.sqlstate)
            self.journal.info("refused", analyst=analyst, sqlstate=ended.sqlstate, seconds=seconds)
            return
        price = ended.outcome.price if ended.outcome else None
        self.metrics.add("noisegate_queries_total", analyst=analyst, by="catalog" if price is None else "gate")
        if price is None or ended.outcome is None:
            return
        cost = float(ended.outcome.cost)
        if cost:
            self.metrics.add("noisegate_charges_total", analyst=analyst)
            self.metrics.add("noisegate_charged_rho_total", cost, analyst=analyst)
        self.journal.info("answered", analyst=analyst, rho=cost, path=price.path, seconds=seconds)

    # --- watching

    async def health(self) -> tuple[bool, str]:
        """Return whether the ledger can be read: without it nothing is answered."""
        try:
            await asyncio.wrap_future(self._watching.submit(self.gate.ledger.populations))
        except Refusal as refusal:
            return False, f"{refusal.message}\n"
        return True, "ok\n"

    async def measurements(self) -> tuple[bool, str]:
        gauges = await asyncio.wrap_future(self._watching.submit(self._budget))
        counted = {"connections": self.open, "statements_running": self.places.running}
        counted["statements_waiting"] = self.places.waiting
        gauges |= {(f"noisegate_{name}", ()): float(number) for name, number in counted.items()}
        return True, self.metrics.render(gauges)

    def _budget(self) -> dict[tuple[str, Labels], float]:
        found: dict[tuple[str, Labels], float] = {}
        view = self.gate.ledger.snapshot().view
        for population in system.populations(self.gate.books, view):
            of = ("population", population)
            found["noisegate_budget_rho", (of,)] = float(self.gate.cap)
            found["noisegate_budget_spent_rho", (of,)] = float(rho_of(view.spent(population)))
            for analyst in self.gate.policy.analysts:
                spent = float(rho_of(view.account_spent(population, analyst)))
                found["noisegate_account_spent_rho", (("analyst", analyst), of)] = spent
        return found

    async def close(self) -> bool:
        """End all connections: at once where nothing is charged, otherwise after the answer.

        Return whether all work has ended; what can't be interrupted may run on until the process ends.
        """
        tasks = [connection.task for connection in self.connections.values() if connection.task is not None]
        for connection in list(self.connections.values()):
            connection.shut_down()
        if tasks:
            await asyncio.wait(tasks, timeout=GRACE_SECONDS)
        for connection in list(self.connections.values()):
            connection.abort()
        ended = await asyncio.to_thread(self.places.close, LAST_SECONDS)
        ended &= await asyncio.to_thread(self._watching.close, LAST_SECONDS)
        self.cache.close()
        return ended
