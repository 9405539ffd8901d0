"""Differentially private answers to SQL: the public face of Noisegate."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__product__ = "noisegate"


def _refuse_foreign_packages() -> None:
    """Raise ImportError unless proxy, planner and mechanisms are the ones that Noisegate ships.

    PyPI has other projects that install top-level packages of these names (proxy.py, planner), and pip
    overwrites files of one distribution with those of another without a word.
    """
    for name in ("proxy", "planner", "mechanisms"):
        package = import_module(name)
        if getattr(package, "__product__", None) != __product__:
            raise ImportError(_what_happened(name, package.__file__), name=name)


def _what_happened(name: str, path: str | None) -> str:
    from importlib import metadata  # here, since it takes long to load, and only this needs it

    owners = sorted(set(metadata.packages_distributions().get(name, [])) - {__product__})
    culprit = f"it comes from the distribution {' or '.join(owners)}" if owners else f"it was found at {path}"
    remedy = f"pip uninstall {' '.join(owners)}" if owners else f"remove or rename {path}"
    return (
        f"the package {name!r} is not the one that noisegate ships: {culprit}; "
        f"use a virtual environment of its own for noisegate, or run: {remedy}; "
        "then: pip install --force-reinstall --no-deps noisegate"
    )


_refuse_foreign_packages()

from proxy.dbapi import (
    BINARY,
    DATETIME,
    NUMBER,
    ROWID,
    STRING,
    Binary,
    Date,
    DateFromTicks,
    Time,
    TimeFromTicks,
    Timestamp,
    TimestampFromTicks,
    apilevel,
    paramstyle,
    threadsafety,
)
from proxy.errors import (
    DatabaseError,
    DataError,
    Error,
    IntegrityError,
    InterfaceError,
    InternalError,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
    Warning,  # noqa: A004 - PEP 249 names it so
)

if TYPE_CHECKING:
    from proxy.dbapi import Connection, Cursor, connect

for _public in (Warning, Error, *Error.__subclasses__(), *DatabaseError.__subclasses__()):
    _public.__module__ = __name__  # what a traceback shows is what a program can import

__all__ = [
    "BINARY",
    "DATETIME",
    "NUMBER",
    "ROWID",
    "STRING",
    "Binary",
    "Connection",
    "Cursor",
    "DataError",
    "DatabaseError",
    "Date",
    "DateFromTicks",
    "Error",
    "IntegrityError",
    "InterfaceError",
    "InternalError",
    "NotSupportedError",
    "OperationalError",
    "ProgrammingError",
    "Time",
    "TimeFromTicks",
    "Timestamp",
    "TimestampFromTicks",
    "Warning",
    "apilevel",
    "connect",
    "main",
    "paramstyle",
    "threadsafety",
]


def __getattr__(name: str) -> object:
    """Return what needs the planner, which is loaded when it is first asked for."""
    if name not in ("Connection", "Cursor", "connect"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from proxy.dbapi import Connection, Cursor, connect

    Connection.__module__ = Cursor.__module__ = __name__
    globals().update(Connection=Connection, Cursor=Cursor, connect=connect)
    return globals()[name]


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return its exit code; this is what the console script calls."""
    from proxy.cli.main import main as run

    return run(argv, show=_demo)


def _demo() -> None:
    from noisegate.demo import main as run  # here, since no other command needs it

    run()
