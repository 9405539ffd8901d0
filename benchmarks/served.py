"""A real server in a process of its own, for benchmarks that load it, hurt it and watch it."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parents[1]
FULL = 4096
"""Bytes beyond which no file of a server grows while its disk is full."""


@dataclass(frozen=True)
class Held:
    """What a process holds, and the seconds of CPU that it has used."""

    megabytes: float
    descriptors: int
    threads: int
    cpu: float


class Served:
    """`noisegate serve` of a policy; ends with the block, and can be killed and started before."""

    def __init__(self, policy: Path, *, trust: bool = True) -> None:
        """Serve a policy, with `trust` whatever passwords it has."""
        options = ["--port", "0", *(["--trust"] if trust else [])]
        self._command = [sys.executable, "-m", "noisegate", "serve", str(policy), *options]
        self.crashes: deque[str] = deque(maxlen=100)
        self.up = threading.Event()

    def __enter__(self) -> Served:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self.stop()

    def start(self) -> None:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        assert self._process.stdout is not None
        said = list[str]()
        for line in self._process.stdout:
            said.append(line)
            if " port=" in line:
                self.port = int(line.split("port=")[1].split()[0])
                break
        else:
            raise RuntimeError(f"the server did not start: {said}")
        streams = (self._process.stdout, self._process.stderr)
        self._listeners = [threading.Thread(target=self._listen, args=(stream,), daemon=True) for stream in streams]
        for listener in self._listeners:
            listener.start()
        self.up.set()

    def _listen(self, stream: IO[str]) -> None:
        """Read what a server says until it ends, and note errors that are its own."""
        with stream:
            for line in stream:
                if "error:" in line or "Traceback" in line:
                    self.crashes.append(line.rstrip())

    def stop(self, number: int = signal.SIGTERM) -> None:
        """End it: SIGTERM lets it finish what is charged, SIGKILL does not."""
        self.up.clear()
        self._process.send_signal(number)
        self._process.wait()
        for listener in self._listeners:
            listener.join()

    def restart(self, number: int = signal.SIGTERM) -> None:
        self.stop(number)
        self.start()

    def fill_disk(self) -> None:
        """Let no file of it grow: what it would store, it can't. Python ignores the signal that comes with that."""
        resource.prlimit(self.pid, resource.RLIMIT_FSIZE, (FULL, resource.RLIM_INFINITY))

    def free_disk(self) -> None:
        resource.prlimit(self.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

    @property
    def pid(self) -> int:
        return self._process.pid

    def dsn(self, user: str = "ann") -> str:
        return f"host=127.0.0.1 port={self.port} user={user} dbname=noisegate sslmode=disable"

    def held(self) -> Held:
        at = Path(f"/proc/{self.pid}")
        status = dict(line.split(":", 1) for line in (at / "status").read_text(encoding="utf-8").splitlines())
        fields = (at / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        cpu = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        kilobytes = float(status["VmRSS"].split()[0])
        return Held(kilobytes / 1024, len(os.listdir(at / "fd")), int(status["Threads"]), cpu)
