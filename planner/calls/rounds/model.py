"""The values that a round is made of: its queries, the rows that it releases, and its whole plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np

from planner.calls.rounds.roster import Enlisted
from planner.history.chart import Evidence, made_evidence
from planner.ledger.accounts import Charge, total
from planner.plans.marginals import MarginalTask
from planner.plans.plan import Prepared
from planner.plans.release import DistinctTask, LinearTask, QuantileTask, Residual, versioned
from planner.plans.settings import Settings
from planner.questions import body
from planner.sources.measure import Meter
from planner.sql.query import Compiled


@dataclass(frozen=True, eq=False)
class Asked:
    """One query of a round: who enlisted it with which accuracy, and what it asks, placed."""

    entry: Enlisted
    compiled: Compiled
    parts: tuple[Prepared, ...]
    settings: Settings
    label: str = ""

    @property
    def answers(self) -> int:
        """Return the number of rows of all its parts."""
        return sum(sum(part.placement.group_counts) for part in self.parts)


@dataclass(frozen=True, eq=False)
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


Payable = Joint | LinearTask | MarginalTask | DistinctTask | QuantileTask


@dataclass(frozen=True, eq=False)
class Together:
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
            Charge(self.populations[task.table], task.table, task.version, cost)
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
