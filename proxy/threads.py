"""One BLAS thread while the gate works: its matrices are small, and threads that wait for each other cost more."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy  # noqa: F401 - loads its BLAS, which can be found only then
import scipy.linalg  # noqa: F401 - the same
from threadpoolctl import ThreadpoolController

BLAS_THREADS = 1


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Keep numpy and scipy to one thread in the block; the last one who leaves gives back what the first one met.

    BLAS has one number of threads for the whole process, so other threads that multiply matrices meanwhile have
    one as well. Pools that are not of BLAS, such as DuckDB's and OpenMP's, are left alone.
    """
    _POOLS.enter()
    try:
        yield
    finally:
        _POOLS.leave()


class _Pools:
    """The BLAS libraries of this process, and how many count on their having one thread.

    They are counted: if each put back what it met, the one who leaves last would leave one thread behind.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._before: list[tuple[Any, int]] = []
        self._found: list[Any] | None = None  # Any: threadpoolctl has no types
        os.register_at_fork(  # a child must not be born with a lock that nobody opens
            before=self._lock.acquire, after_in_parent=self._lock.release, after_in_child=self._lock.release
        )

    def enter(self) -> None:
        with self._lock:
            if not self._inside:
                self._before = [(library, library.get_num_threads()) for library in self._libraries()]
                for library, _ in self._before:
                    _set_threads(library, BLAS_THREADS)
            self._inside += 1

    def leave(self) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                for library, number in self._before:
                    _set_threads(library, number)

    def _libraries(self) -> list[Any]:
        """Return what numpy and scipy have loaded; looking for it takes milliseconds, setting a number microseconds."""
        if self._found is None:
            self._found = ThreadpoolController().select(user_api="blas").lib_controllers
        return self._found


def _set_threads(library: Any, number: int) -> None:
    """Set the number of threads of a library, whoever set it before.

    In threadpoolctl OpenBLAS obeys the first thread that sets a number, and calls of others do nothing, without a word.
    Statements begin and end in any thread, so nobody is left in control.
    """
    release = getattr(library, "clear_controlling_thread", None)
    if release is None:
        library.set_num_threads(number)
    else:
        release(force=True)
        library.set_num_threads(number)
        release(force=True)


_POOLS = _Pools()
