"""A cache of so many bytes, in which what was not used for longest is forgotten first."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

import numpy as np

T = TypeVar("T")

ENTRY = 1_000
"""About how many bytes a key and its place take."""


class BoundedCache(Generic[T]):
    """Values by key, as many as fit into so many bytes; the newest stays however large it is. Threads may share it."""

    def __init__(self, most_bytes: int) -> None:
        self.most, self._lock = most_bytes, threading.Lock()
        self._found: OrderedDict[Hashable, tuple[T, int]] = OrderedDict()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._found)

    def get(self, key: Hashable) -> T | None:
        with self._lock:
            found = self._found.get(key)
            if found is None:
                return None
            self._found.move_to_end(key)
            return found[0]

    def put(self, key: Hashable, value: T, size: int) -> None:
        """Keep a value of about so many bytes, in place of any that was there."""
        with self._lock:
            self._drop(key)
            self._found[key] = value, size + ENTRY
            self.bytes += size + ENTRY
            while self.bytes > self.most and len(self._found) > 1:
                self._drop(next(iter(self._found)))

    def pop(self, key: Hashable) -> T | None:
        """Return what was kept under a key, which is forgotten."""
        with self._lock:
            return self._drop(key)

    def _drop(self, key: Hashable) -> T | None:
        found = self._found.pop(key, None)
        if found is None:
            return None
        self.bytes -= found[1]
        return found[0]


def array_bytes(value: object) -> int:
    """Return how many bytes the arrays take that a value holds, as an attribute of attributes or an item of items.

    >>> array_bytes((np.zeros(10), {"a": [np.zeros(5)]}))
    120
    """
    seen, waiting, total = set[int](), [value], 0
    while waiting:
        found = waiting.pop()
        if id(found) in seen:
            continue
        seen.add(id(found))
        if isinstance(found, np.ndarray):
            total += found.nbytes
        elif isinstance(found, dict):
            waiting.extend(found.values())
        elif isinstance(found, tuple | list | frozenset | set):
            waiting.extend(found)
        elif type(found).__module__.startswith(("planner", "mechanisms")):
            waiting.extend(getattr(found, "__dict__", {}).values())
    return total
