"""A question that long loops ask at each step: whether they are to end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_asked: ContextVar[Callable[[], None] | None] = ContextVar("asked", default=None)


@contextmanager
def asking(whom: Callable[[], None]) -> Iterator[None]:
    """Have `whom` called before each step of what this thread runs in the block; what it raises ends the loop."""
    token = _asked.set(whom)
    try:
        yield
    finally:
        _asked.reset(token)


def check() -> None:
    """Go on with the next step of something that takes long, unless it is to end."""
    whom = _asked.get()
    if whom is not None:
        whom()
