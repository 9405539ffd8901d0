"""A cache of a bounded number of values."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")

LONGEST = 50_000
"""Statements with more characters are not kept: a few of them would fill the memory."""


class Memo(Generic[T]):
    """Values by key, of which the least recently used are forgotten. Threads may share it."""

    def __init__(self, most: int) -> None:
        self._most, self._found, self._lock = most, OrderedDict[Hashable, T](), threading.Lock()

    def get(self, key: Hashable, make: Callable[[], T], *, keep: Callable[[T], bool] = lambda _: True) -> T:
        """Return what is kept under a key, or make it; a key that is None or can't be hashed is not kept."""
        if not _is_key(key):
            return make()
        with self._lock:
            if key in self._found:
                self._found.move_to_end(key)
                return self._found[key]
        value = make()
        if keep(value):
            with self._lock:
                self._found[key] = value
                while len(self._found) > self._most:
                    self._found.popitem(last=False)
        return value


def _is_key(key: Hashable) -> bool:
    try:
        hash(key)
    except TypeError:
        return False
    parts = key if isinstance(key, tuple) else (key,)
    return key is not None and sum(len(part) for part in parts if isinstance(part, str)) <= LONGEST
