"""The values that a round is made of: its queries, the rows that it releases, and its whole plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property

import numpy as np

from planner.calls.rounds.roster import Entry
from planner.cells.bills import covers
from planner.cells.costs import Cost
from planner.history.chart import Evidence, made_evidence
from planner.ledger.accounts import Charge, joint_account, total
from planner.plans.prepared import Prepared
from planner.plans.release import Residual, versioned
from planner.plans.settings import Settings
from planner.plans.task import Payable
from planner.questions import body
from planner.sources.measure import Meter
from planner.sql.query import Compiled


@dataclass(frozen=True, eq=False)
class RoundQuery:
    """One query of a round: who enlisted it with which accuracy, and what it asks, placed."""

    entry: Entry
    compiled: Compiled
    parts: tuple[Prepared, ...]
    settings: Settings
    label: str = ""

    @property
    def answers(self) -> int:
        """Return the number of rows of all its parts."""
        return sum(sum(part.placement.group_counts) for part in self.parts)


@dataclass(frozen=True, eq=False, kw_only=True)
class Joint(Residual):
    """Rows that tell several questions at once: another release for every history that it completes."""

    releases: tuple[int, ...] = ()
    also: tuple[str, ...] = ()
    """Digests of the questions that it is released for."""
    payer: str = ""
    """Where each analyst has a release of their own: whose this is."""

    @cached_property
    def key(self) -> str:
        return versioned(self.version, f"{self.measurement.digest(self.made)}{self.releases}{self.payer}")

    def draw(self, meter: Meter) -> bytes:
        y = meter.linear(self.made, self.measurement)
        return body.linear(self.made, self.measurement, y, also=self.also)

    @cached_property
    def evidence(self) -> Evidence:
        """Return what will be released, as evidence that has not told anything yet."""
        zeros = np.zeros((self.made.groups, len(self.measurement.K)))
        return replace(made_evidence(self.made, self.measurement, zeros), also=frozenset(self.also))


@dataclass(frozen=True, eq=False, kw_only=True)
class RoundPlan:
    """A plan for several queries: what is released, and what that means for each of them.

    bound: no way to meet the targets charges the dearest cell less, in rho; None if nobody has shown that.
    asked, errors: of each query, the half-width that was asked for and the one that there will be, of the count or sum
        for which that is most of what was asked; None where it depends on the answer.
    savings: about which part of the cost would be saved if the error of each query were 10 % larger.
    """

    tasks: tuple[Payable, ...]
    populations: Mapping[str, str]  # by table
    bound: float | None
    asked: tuple[float | None, ...]
    errors: tuple[float | None, ...]
    savings: tuple[float, ...]
    releases: tuple[int, ...]

    @cached_property
    def charges(self) -> list[Charge]:
        return [
            Charge(population=self.populations[task.table], table=task.table, version=task.version, cost=cost)
            for task in self.tasks
            if (cost := task.cost)
        ]

    @cached_property
    def rho(self) -> Fraction:
        """Return what a person newly pays at most: in each table the dearest cell, over all tables the sum."""
        return total(self.charges)

    @property
    def path(self) -> str:
        if not self.tasks:
            return "free"
        paths = {getattr(task, "path", "join" if self.releases else "direct") for task in self.tasks}
        return next(path for path in ("direct", "join", "marginals") if path in paths)


def scaled(settings: Settings, scale: float) -> Settings:
    """Return settings for errors that are so many times as large."""
    own = None if settings.sum_error is None else settings.sum_error * scale
    return replace(settings, error=settings.error * scale, sum_error=own)


Shares = Mapping[str, Mapping[str, Sequence[Cost]]]
"""By analyst and table: what is charged to the account, as costs whose sum counts."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Deal:
    """What is released, by which mechanism, and what each analyst is charged for it.

    shares: by analyst and table; none if there is one analyst, who is charged for the releases themselves.
    gains: what going alone would cost over what is paid; or, if a rho is given, the error alone over the error now.
    rho: what was to be spent, if that was given; scale: by how much errors are then larger than asked for, at most.
    """

    mechanism: str
    together: RoundPlan
    paid: Mapping[str, Fraction]
    gains: Mapping[str, float]
    shares: Shares = field(default_factory=dict)
    scale: float | None = None
    rho: Fraction | None = None

    def __post_init__(self) -> None:
        for table, released in costs_by_table(self.together.tasks).items():
            if self.shares and not covers([c for own in self.shares.values() for c in own.get(table, ())], released):
                raise AssertionError(f"the shares of a round must cover what it releases about {table}")

    @property
    def account(self) -> str:
        """Return who pays for the releases; nobody is named if it is who asks."""
        return joint_account(self.shares) if self.shares else ""

    @cached_property
    def charges(self) -> list[Charge]:
        """Return what is charged to whom."""
        populations, versions = self.together.populations, {task.table: task.version for task in self.together.tasks}
        released = [replace(charge, analyst=self.account) for charge in self.together.charges]
        return released + [
            Charge(
                population=populations[table],
                table=table,
                version=versions[table],
                cost=cost,
                analyst=name,
                is_share=True,
            )
            for name, table, cost in self.shared
        ]

    @property
    def shared(self) -> Iterator[tuple[str, str, Cost]]:
        """Yield each analyst's costs with their tables."""
        for name, tables in self.shares.items():
            yield from ((name, table, cost) for table, costs in tables.items() for cost in costs if cost.highest)


def costs_by_table(tasks: Iterable[Payable]) -> dict[str, list[Cost]]:
    """Return the costs of tasks, by table."""
    found: dict[str, list[Cost]] = {}
    for task in tasks:
        if task.cost is not None:
            found.setdefault(task.table, []).append(task.cost)
    return found
