"""The open gates, shared by the connections of a process."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from planner.gate import Gate

Key = tuple[int, Path, bytes]


class Gates:
    """The open gates: one for each policy file and content, closed with its last connection.

    A fork gets gates of its own: neither SQLite nor a random generator may be shared with a child.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[Key, tuple[Gate, int]] = {}

    def take(self, policy: Path) -> tuple[Key, Gate]:
        """Return the gate of a policy, opened if need be, and the key to give it back with."""
        key = (os.getpid(), policy.resolve(), _content(policy))
        with self._lock:
            gate, users = self._open[key] if key in self._open else (Gate.open(policy), 0)
            self._open[key] = gate, users + 1
        return key, gate

    def give_back(self, key: Key) -> None:
        """Close the gate if nobody else uses it."""
        with self._lock:
            gate, users = self._open.pop(key)
            if users > 1:
                self._open[key] = gate, users - 1
            else:
                gate.close()


def _content(policy: Path) -> bytes:
    try:
        return policy.read_bytes()
    except OSError:
        return b""  # opening the gate says what is wrong


GATES = Gates()
