"""The threads in which statements run, shared fairly between analysts.

Nobody can have all of them, so that whoever comes next finds one; those who wait are taken in turn, analyst by analyst.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, eq=False)
class Task:
    """Something to be run for somebody, and what becomes of it."""

    whose: str
    run: Callable[[], Any]  # Any: each kind of work gives something else
    future: Future[Any] = field(default_factory=Future)


class Places:
    """A fixed number of threads. They are daemons: one that never ends does not keep the process."""

    def __init__(self, count: int, *, name: str = "statement") -> None:
        self._count, self._closed = count, False
        self._changed = threading.Condition()
        self._waiting: OrderedDict[str, deque[Task]] = OrderedDict()
        self._held: Counter[str] = Counter()
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
        return self._held.total()

    @property
    def waiting(self) -> int:
        with self._changed:
            return sum(map(len, self._waiting.values()))

    def share(self, whose: str) -> int:
        """Return how many places somebody may have now: three quarters of what others leave, and one at least."""
        others = self._held.total() - self._held[whose]
        return max(1, (self._count - others) * 3 // 4)

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
            _do(task)
            with self._changed:
                self._held[task.whose] -= 1
                self._changed.notify_all()
            del task  # and with it what the task gave

    def _next(self) -> Task | None:
        with self._changed:
            while not self._closed:
                task = self._chosen()
                if task is not None:
                    self._held[task.whose] += 1
                    return task
                self._changed.wait()
        return None

    def _chosen(self) -> Task | None:
        """Return the first task of whoever's turn it is, of those who may have another place."""
        for whose in list(self._waiting):
            tasks = self._waiting[whose]
            while tasks and self._held[whose] < self.share(whose):
                task = tasks.popleft()
                self._waiting.move_to_end(whose)
                if task.future.set_running_or_notify_cancel():
                    self._forget_empty(whose)
                    return task
            self._forget_empty(whose)
        return None

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
