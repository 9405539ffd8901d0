"""The threads in which statements run, shared fairly between analysts.

Nobody can have all of them, so that whoever comes next finds one; those who wait are taken in turn, analyst by analyst.
Of one analyst's statements one computes at a time, and few if they take long: Python's interpreter lock goes round
among all threads that want it, and the event loop, which gives the answers that are known, is one of them.
"""

from __future__ import annotations

import functools
import math
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from planner.basics.stopping import resting

LONG = 0.5
"""Seconds after which a statement no longer keeps the next one of the same analyst waiting."""

MOST_AT_ONCE = 3
"""Statements of one analyst that compute at once, if all but the last take long; what only waits is not counted."""


@dataclass(eq=False)
class Task:
    """Something to be run for somebody, and what becomes of it; `began` when it runs, `rests` while it only waits."""

    whose: str
    run: Callable[[], Any]  # Any: each kind of work gives something else
    future: Future[Any] = field(default_factory=Future)
    began: float = 0.0
    rests: bool = False


class Places:
    """A fixed number of threads. They are daemons: one that never ends does not keep the process."""

    def __init__(self, count: int, *, name: str = "statement", clock: Callable[[], float] = time.monotonic) -> None:
        self._count, self._clock, self._closed = count, clock, False
        self._changed = threading.Condition()
        self._waiting: OrderedDict[str, deque[Task]] = OrderedDict()
        self._running: set[Task] = set()
        self._threads = [threading.Thread(target=self._serve, name=f"{name}-{i}", daemon=True) for i in range(count)]
        for thread in self._threads:
            thread.start()

    def submit(self, run: Callable[[], Any], *, whose: str = "") -> Future[Any]:
        """Return what will become of a task; one that is canceled while it waits leaves the queue."""
        task = Task(whose, run)
        with self._changed:
            if self._closed:
                task.future.cancel()
                return task.future
            self._waiting.setdefault(whose, deque()).append(task)
            self._changed.notify()
        task.future.add_done_callback(lambda done: self._leave(task) if done.cancelled() else None)
        return task.future

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def waiting(self) -> int:
        with self._changed:
            return sum(map(len, self._waiting.values()))

    def share(self, whose: str) -> int:
        """Return how many places somebody may have now: three quarters of what others leave, and one at least."""
        others = sum(task.whose != whose for task in self._running)
        return max(1, (self._count - others) * 3 // 4)

    def _wait(self, whose: str) -> float:
        """Return for how many seconds somebody's next statement has to wait if nothing ends meanwhile."""
        mine = [task for task in self._running if task.whose == whose]
        computing = [task for task in mine if not task.rests]
        if len(mine) >= self.share(whose) or len(computing) >= MOST_AT_ONCE:
            return math.inf
        return max((task.began + LONG - self._clock() for task in computing), default=0.0)

    def close(self, patience: float) -> bool:
        """Let nobody in any more; return whether all threads ended within so many seconds."""
        with self._changed:
            self._closed = True
            left = [task for tasks in self._waiting.values() for task in tasks]
            self._changed.notify_all()
        for task in left:
            task.future.cancel()
        end = time.monotonic() + patience
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    # --- called by the threads

    def _serve(self) -> None:
        while (task := self._next()) is not None:
            with resting(functools.partial(self._rest, task)):
                _do(task)
            with self._changed:
                self._running.remove(task)
            del task  # and with it what the task gave

    @contextmanager
    def _rest(self, task: Task) -> Iterator[None]:
        """Let another statement of the same analyst compute while one only waits; it goes on whatever runs then."""
        with self._changed:
            task.rests = True
            self._changed.notify()
        try:
            yield
        finally:
            task.rests = False

    def _next(self) -> Task | None:
        with self._changed:
            while not self._closed:
                task, wait = self._chosen()
                if task is not None:
                    task.began = self._clock()
                    self._running.add(task)
                    if self._waiting:  # one after the other: threads woken for nothing would want the lock as well
                        self._changed.notify()
                    return task
                self._changed.wait(None if wait == math.inf else wait)
        return None

    def _chosen(self) -> tuple[Task | None, float]:
        """Return the first task of whoever's turn it is, of those who may begin another; else when to look again."""
        soonest = math.inf
        for whose in list(self._waiting):
            tasks = self._waiting[whose]
            while tasks and (wait := self._wait(whose)) <= 0:
                task = tasks.popleft()
                self._waiting.move_to_end(whose)
                if task.future.set_running_or_notify_cancel():
                    self._forget_empty(whose)
                    return task, 0.0
            if tasks:
                soonest = min(soonest, wait)
            self._forget_empty(whose)
        return None, soonest

    def _leave(self, task: Task) -> None:
        with self._changed:
            tasks = self._waiting.get(task.whose, deque())
            if task in tasks:
                tasks.remove(task)
            self._forget_empty(task.whose)

    def _forget_empty(self, whose: str) -> None:
        if not self._waiting.get(whose, True):
            del self._waiting[whose]


def _do(task: Task) -> None:
    try:
        result = task.run()
    except BaseException as error:
        task.future.set_exception(error)
    else:
        task.future.set_result(result)
