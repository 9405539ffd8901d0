"""The wire server: listens until a signal ends it, in one process or several."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from planner.basics.errors import PolicyRefusal, SourceFailed
from planner.gate import Gate
from planner.ledger.ledger import Ledger
from planner.policy.file import Policy, load
from planner.policy.server import Server as Config
from planner.policy.server import dangers
from proxy.server import monitor, tls, turns
from proxy.server.connection import Connection
from proxy.server.journal import Journal
from proxy.server.shared import MakeCatalog, Shared, policy_catalog
from proxy.server.tls import Tls
from proxy.server.workers import Peers, reserved, spread


class Server:
    """A listener, and what its connections share."""

    def __init__(self, shared: Shared, listener: asyncio.Server, watcher: asyncio.Server | None) -> None:
        self.shared, self._listener, self._watcher = shared, listener, watcher

    @property
    def port(self) -> int:
        return int(self._listener.sockets[0].getsockname()[1])

    @property
    def metrics_port(self) -> int | None:
        return int(self._watcher.sockets[0].getsockname()[1]) if self._watcher else None

    async def close(self) -> bool:
        """Stop serving; return whether all work has ended."""
        self._listener.close()
        ended = await self.shared.close()
        if self._watcher is not None:
            self._watcher.close()
        return ended


async def start(
    gate: Gate,
    config: Config,
    *,
    journal: Journal,
    peers: Peers | None = None,
    make_catalog: MakeCatalog = policy_catalog,
) -> Server:
    """Return a server that listens; raises if it must not or can't. With peers, they share its port."""
    check(gate.policy, config)
    secured = certificate(gate.policy, config)
    shared = Shared(gate, config, journal=journal, secured=secured, peers=peers, make_catalog=make_catalog)
    loop = asyncio.get_running_loop()
    watcher = None
    if config.metrics_port is not None:
        pages = {"/health": shared.health, "/metrics": shared.measurements}
        with _explained("127.0.0.1", config.metrics_port, "--metrics-port"):
            watcher = await monitor.serve(pages, config.metrics_port)
    try:
        with _explained(config.host, config.port, "--port"):
            listener = await loop.create_server(
                lambda: Connection(shared), config.host, config.port, backlog=256, reuse_port=peers is not None
            )
    except BaseException:
        if watcher is not None:
            watcher.close()
        raise
    return Server(shared, listener, watcher)


def check(policy: Policy, config: Config) -> None:
    """Raise unless what is about to be served is safe, and somebody can log in."""
    for _, why in dangers(config):
        raise PolicyRefusal(why)
    if config.auth == "scram" and not any(analyst.password for analyst in policy.analysts.values()):
        raise PolicyRefusal(
            "nobody could log in: no analyst has a password",
            hint="make one with `noisegate passwd`, or let everyone on this machine in with --trust",
        )


def certificate(policy: Policy, config: Config) -> Tls | None:
    """Return the certificate to be used: the policy's, or one made on first start; None if TLS is off."""
    if config.encryption == "off":
        return None
    if config.certificate is not None and config.key is not None:
        return tls.load(config.certificate, config.key)
    return tls.load(*tls.self_signed(policy.path, config.host))


@contextmanager
def _explained(host: str, port: int, option: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = (error.strerror or "unknown reason").lower()
        raise SourceFailed(f"can't listen on {host}:{port}: {reason}", hint=f"choose another with {option}") from None


async def serve(
    gate: Gate, config: Config, *, journal: Journal, on_start: Callable[[int], None], peers: Peers | None = None
) -> bool:
    """Serve until SIGTERM or SIGINT; `on_start` is called with the port. Return whether all work has ended."""
    server = await start(gate, config, journal=journal, peers=peers)
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    server.shared.warm()
    on_start(server.port)
    journal.info("listening", host=config.host, port=server.port, tls=config.encryption, auth=config.auth)
    await ended.wait()
    journal.info("ending", connections=server.shared.open)
    clean = await server.close()
    journal.info("ended" if clean else "ended while a statement was still running")
    journal.close()
    return clean


def run(
    path: Path,
    *,
    overrides: dict[str, object],
    log_format: str,
    on_start: Callable[[Policy, Config], None],
    workers: int = 1,
) -> None:
    """Serve a policy until a signal ends it, in one process or several; `on_start` is called when it listens."""
    policy = load(path)
    config = replace(policy.server, **overrides)  # type: ignore[arg-type]  # by name
    check(policy, config)
    certificate(policy, config)  # makes it, before several processes would
    Ledger.open(policy.ledger).close()  # the same

    def work(config: Config, peers: Peers | None, ready: Callable[[int], None]) -> None:
        turns.take_short_turns()
        gate = Gate.open(path)
        gc.collect()
        gc.freeze()  # what stays for good is not looked through again while somebody waits
        clean = True
        try:
            journal = Journal(sys.stderr, form=log_format, process=peers.number if peers else None)
            clean = asyncio.run(serve(gate, config, journal=journal, peers=peers, on_start=ready))
        finally:
            if not clean:
                os._exit(0)  # an engine at work would be waited for; what is charged is durable
            gc.unfreeze()
            gate.close()

    if workers == 1:
        work(config, None, lambda port: on_start(policy, replace(config, port=port)))
    else:
        with _explained(config.host, config.port, "--port"):
            port = reserved(config.host, config.port)
        config = replace(config, port=port.getsockname()[1], max_connections=-(-config.max_connections // workers))
        spread(workers, config, work, on_start=lambda: on_start(policy, config))
        port.close()
