"""The gate and the session that a command asks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from planner.gate import Gate
from planner.session import Session
from proxy.cli.command import Arguments
from proxy.cli.console import stderr
from proxy.show.render import ProgressLine


@contextmanager
def open_gate(policy: str | Path) -> Iterator[Gate]:
    """Open the gate of a policy, and close it in the end."""
    gate = Gate.open(policy)
    try:
        yield gate
    finally:
        gate.close()


@contextmanager
def open_session(arguments: Arguments, *, settings: list[tuple[str, str]]) -> Iterator[tuple[Session, ProgressLine]]:
    """Open the session of the analyst who asks, with these settings; and what says on a terminal how far it is."""
    with ProgressLine(stderr(), "opening the gate") as waiting, open_gate(arguments.policy) as gate:
        session = gate.session(arguments.analyst)
        for name, value in settings:
            session.execute(f"SET {name} = '{value.replace(chr(39), chr(39) * 2)}'")
        yield session, waiting
