"""The watchdog: one thread that stops whatever takes longer than it may.

A thread for each statement would be simpler, and slower than most statements: whoever starts one waits for it.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Watchdog:
    """Calls functions that are overdue. Threads may share it; its own begins with the first limit."""

    def __init__(self) -> None:
        self._due: dict[object, tuple[float, Callable[[], object]]] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._wakes = math.inf

    @contextmanager
    def limit(self, seconds: float, stop: Callable[[], object]) -> Iterator[None]:
        """Call `stop` once if the block takes longer; never after it has ended."""
        due, token = time.monotonic() + seconds, object()
        with self._changed:
            self._due[token] = due, stop
            self._watch()
            if due < self._wakes:  # else it looks at all that is due before this one is
                self._changed.notify()
        try:
            yield
        finally:
            with self._changed:
                self._due.pop(token, None)

    def _watch(self) -> None:
        if self._thread is None or not self._thread.is_alive():  # none yet, or left behind by a fork
            self._wakes = math.inf
            self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        with self._changed:
            while True:
                now = time.monotonic()
                for token in [token for token, (due, _) in self._due.items() if due <= now]:
                    self._due.pop(token)[1]()
                self._wakes = min((due for due, _ in self._due.values()), default=math.inf)
                self._changed.wait(None if self._wakes == math.inf else max(self._wakes - now, 0.0))


WATCHDOG = Watchdog()
"""The one of this process."""
