"""Stopping a statement in the middle: the engine that works for it is interrupted, and no further step begins.

A statement runs in one thread, and knows by a context variable what may stop it; another thread does the stopping.
Without anything that could stop it, a statement runs to its end.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar

from mechanisms import interrupts
from planner.basics.errors import Refusal

AGAIN = 0.02
"""Seconds between two interrupts: DuckDB forgets one that comes just before a query begins."""


class Interrupted(Refusal):
    """The statement was stopped while it ran."""

    sqlstate = "57014"

    def __init__(self) -> None:
        super().__init__("canceling statement due to user request", hint="ask again")


class Stop:
    """What one statement asks before and while it lets an engine work. Threads may share it.

    Guarantee: after `stop`, no `running` block is entered, and those that were are interrupted until they end.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._running: list[Callable[[], None]] = []

    def stop(self) -> None:
        """Stop the statement; returns at once."""
        if self._stopped.is_set():
            return  # the lock may be held by whoever interrupts
        with self._lock:
            first = not self._stopped.is_set()
            self._stopped.set()
        if first and self._running:
            threading.Thread(target=self._insist, name="stop", daemon=True).start()

    def _insist(self) -> None:
        while self._interrupted():
            time.sleep(AGAIN)

    def _interrupted(self) -> bool:
        """Interrupt what runs, and return whether anything does; under the lock, so that nothing later is hit."""
        with self._lock:
            for interrupt in self._running:
                interrupt()
            return bool(self._running)

    def check(self) -> None:
        """Raise Interrupted if the statement was stopped."""
        if self._stopped.is_set():
            raise Interrupted

    @contextmanager
    def running(self, interrupt: Callable[[], None]) -> Iterator[None]:
        with self._lock:
            self.check()
            self._running.append(interrupt)
        try:
            yield
        except Exception:
            self.check()  # whatever the engine says of an interrupt
            raise
        finally:
            with self._lock:
                self._running.remove(interrupt)

    def wait(self, seconds: float) -> None:
        if self._stopped.wait(seconds):
            raise Interrupted


_current: ContextVar[Stop | None] = ContextVar("stop", default=None)


def _found() -> Stop:
    return _current.get() or Stop()


@contextmanager
def stoppable(stop: Stop) -> Iterator[None]:
    """Let `stop` end whatever this thread runs in the block."""
    token = _current.set(stop)
    try:
        with interrupts.asking(stop.check):
            yield
    finally:
        _current.reset(token)


@contextmanager
def running(interrupt: Callable[[], None]) -> Iterator[None]:
    """Have `interrupt` called if the statement is stopped in the block; raise Interrupted if it was, or is."""
    with _found().running(interrupt):
        yield


@contextmanager
def elsewhere(interrupt: Callable[[], None]) -> Iterator[None]:
    """Do the same while another server computes, and this process only waits for it."""
    with _found().running(interrupt), _rest.get()():
        yield


Rest = Callable[[], AbstractContextManager[None]]
_rest: ContextVar[Rest] = ContextVar("rest", default=nullcontext)


@contextmanager
def resting(rest: Rest) -> Iterator[None]:
    """Have `rest` entered around each wait of what this thread runs in the block."""
    token = _rest.set(rest)
    try:
        yield
    finally:
        _rest.reset(token)


def sleep(seconds: float) -> None:
    """Wait; raise Interrupted if the statement is stopped meanwhile."""
    with _rest.get()():
        _found().wait(seconds)


@contextmanager
def holding(lock: threading.Lock) -> Iterator[None]:
    """Hold a lock that others hold for long; raise Interrupted if the statement is stopped while it waits."""
    if not lock.acquire(blocking=False):
        with _rest.get()():
            while not lock.acquire(timeout=AGAIN):
                _found().check()
    try:
        yield
    finally:
        lock.release()
