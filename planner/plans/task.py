"""What a plan is made of: things to release, each with its cost, its draw, and what it tells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from planner.cells.costs import Cost
from planner.ledger.accounts import Release
from planner.ledger.kinds import Kind
from planner.plans.estimates import Columns
from planner.sources.measure import Meter
from planner.sql.query import Aggregate, Measured


class Payable(Protocol):
    """Something to release: drawn first, then charged and stored in one commit. It costs None if nothing has to be."""

    @property
    def table(self) -> str: ...
    @property
    def version(self) -> int: ...
    @property
    def kind(self) -> Kind: ...
    @property
    def cost(self) -> Cost | None: ...
    @property
    def key(self) -> str: ...
    @property
    def digest(self) -> str: ...
    def draw(self, meter: Meter) -> bytes:
        """Return what is released, encoded: the only step that reads rows."""


class Task(Payable, Protocol):
    """One thing that a query measures, or reads off the history."""

    @property
    def path(self) -> str:
        """Return the way that was taken: free, direct, join or marginals."""

    @property
    def share(self) -> float:
        """Return how much was known."""

    @property
    def ways(self) -> Mapping[str, float]:
        """Return what each way that was looked at would charge the dearest cell, in rho."""

    @property
    def history(self) -> tuple[Release, ...]:
        """Return the earlier releases of just this question, where they are needed one by one."""

    @property
    def releases(self) -> tuple[int, ...]:
        """Return the numbers of the earlier releases that are used."""

    @property
    def said(self) -> str:
        """Return what would be released, in words."""

    def columns(self, measured: Measured, new: Sequence[Release], s: int, z: float) -> tuple[Columns, str]:
        """Return what it tells about the groups of set s, and the joins that this needs.

        `new` are the releases of the statement.
        """

    def error(self, number: int, aggregate: Aggregate, z: float) -> float | None:
        """Return the largest half-width that an aggregate will have in a group; None if it is not told beforehand."""


def of_task(task: Task, new: Sequence[Release] | None) -> tuple[Release, ...]:
    """Return the releases that answer a task, earlier and new."""
    return (*task.history, *(release for release in new or () if release.key == task.key))
