"""Which tests are quick: those that start no server, no database, no Java and no other process.

Nobody has to sort a new test. It is slow if it can reach, by the names that it and its fixtures use, something that
starts a process or talks over a socket; a test that takes long for another reason carries the mark `slow` itself.
While the quick tests run, a hook refuses what they must not do, so that a test which hides it fails and says so.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Iterable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any, TypeVar

import pytest

T = TypeVar("T")

STARTERS = frozenset(
    {
        *("subprocess", "multiprocessing", "jpype", "pyspark"),
        *("adbc_driver_postgresql", "asyncpg", "pg8000", "psycopg", "psycopg2", "sqlalchemy"),
    }
)
"""Packages whose use means another process, or a server to talk to."""
STARTING_MODULES = frozenset({"postgres", "server", "servers", "workers"})
"""Modules of ours, in whatever package, that do the same."""
ENGINES = frozenset({"postgres", "spark", "java"})
"""Values of a test's parameters that stand for another process."""
STARTING_NAMES = frozenset({"fork", "posix_spawn", "system", "create_server", "socketpair"})
FORBIDDEN = frozenset({"subprocess.Popen", "os.fork", "os.posix_spawn", "os.system", "socket.bind", "socket.connect"})
"""Events of the interpreter that no quick test causes."""


def sampled(cases: Iterable[T], *, every: int = 5) -> list[object]:
    """Return the cases of a long list for `parametrize`: each fifth is quick, all of them belong to the whole suite."""
    return [pytest.param(case, marks=[pytest.mark.slow] if i % every else []) for i, case in enumerate(cases)]


def is_slow(item: pytest.Item) -> bool:
    """Return whether a test, or a fixture that it uses, reaches what starts a process or a server."""
    if not isinstance(item, pytest.Function):
        return False
    values = item.callspec.params.values() if hasattr(item, "callspec") else ()
    if any(isinstance(value, str) and value in ENGINES for value in values):
        return True
    manager = item._fixtureinfo.name2fixturedefs
    fixtures = [definition.func for found in manager.values() for definition in found]
    return reaches_a_process([item.function, *fixtures])


def reaches_a_process(functions: list[Any]) -> bool:
    """Return whether one of these functions, or what they use of the tests, names something that starts a process."""
    waiting, seen = [_unwrapped(function) for function in functions], set[int]()
    while waiting:
        function = waiting.pop()
        if id(function) in seen:
            continue
        seen.add(id(function))
        names = set(_names(function.__code__))
        if names & STARTING_NAMES:
            return True
        for value in (function.__globals__[name] for name in names if name in function.__globals__):
            if _starts(value):
                return True
            waiting += _own_functions(value)
    return False


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names that a function uses, and those of the functions within it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _starts(value: object) -> bool:
    home = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None) or ""
    return isinstance(home, str) and _is_starting(home.split("."))


def _is_starting(parts: list[str]) -> bool:
    return parts[0] in STARTERS or (parts[0] in ("proxy", "tests") and parts[-1] in STARTING_MODULES)


def _own_functions(value: object) -> list[FunctionType]:
    """Return the functions of a value that are tests' own: a function itself, or the methods of a class."""
    if not str(getattr(value, "__module__", "")).startswith("tests"):
        return []
    members = vars(value).values() if inspect.isclass(value) else [value]
    return [found for member in members if isinstance(found := _unwrapped(member), FunctionType)]


def _unwrapped(function: Any) -> Any:
    """Return the function behind a fixture, a context manager, a method or a hypothesis test."""
    if hasattr(function, "hypothesis"):
        function = function.hypothesis.inner_test
    function = getattr(function, "_get_wrapped_function", lambda: function)()
    function = getattr(function, "__func__", function)
    return inspect.unwrap(function)


class Watch:
    """Refuses, while it is on, what a quick test must not do."""

    def __init__(self) -> None:
        self.on = False
        sys.addaudithook(self.hear)

    def hear(self, event: str, _: object) -> None:
        main = threading.current_thread() is threading.main_thread()  # others may be a slow test's, that still run
        if self.on and main and event in FORBIDDEN:
            raise RuntimeError(f"a quick test caused {event}: mark it slow, or name what it starts in tests/tiers.py")
